"""What the members of a crash run have written down, and which promises it breaks."""

from collections import Counter
from typing import NamedTuple

DONE = ("end", "reject")


class Verdict(NamedTuple):
    """Counts of messages: each but the last two has to be 0."""

    lost: int
    out_of_order: int
    at_once: int
    done: int
    again: int


def judge(lines: list[str], sent: dict[str, int]) -> Verdict:
    """Judge a diary; ``sent`` is how many messages each key has, numbered from 0. A message is ``key/number/place``.

    A key starts again where a member redoes it. So a message is out of order if it starts while an older one of its key
    was never done.
    """
    done: Counter[tuple[str, int]] = Counter()
    runs: dict[str, set[str]] = {}
    upto: Counter[str] = Counter()  # of each key, how many from the beginning are done
    out_of_order = at_once = 0
    for line in lines:
        what, member, value = line.split()
        if what in {"killed", "left"}:
            for members in runs.values():
                members.discard(member)
            continue
        key, _, place = value.split("/")
        if what == "start":
            running = runs.setdefault(key, set())
            at_once += bool(running)
            running.add(member)
            out_of_order += int(place) > upto[key]
        else:
            runs[key].discard(member)
            if what in DONE:
                done[key, int(place)] += 1
                while done[key, upto[key]]:
                    upto[key] += 1
    lost = sum(not done[key, place] for key, many in sent.items() for place in range(many))
    return Verdict(lost, out_of_order, at_once, len(done), sum(done.values()) - len(done))
