"""What the processes of a crash run have written down, and which promises it breaks."""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

DONE = ("end", "reject")


class Verdict(NamedTuple):
    """Counts of messages: the first three have to be 0."""

    lost: int
    out_of_order: int
    at_once: int
    done: int
    again: int


def judge(lines: Sequence[str], sent: dict[str, int]) -> Verdict:
    """Judge a diary; ``sent`` is how many messages each key has, numbered from 0. A message is ``key/number/place``.

    A key starts again where a process redoes it. So a message is out of order if it starts while an older one of its
    key was never done.
    """
    done: Counter[tuple[str, int]] = Counter()
    running: dict[str, set[str]] = {key: set() for key in sent}
    upto: Counter[str] = Counter()  # of each key, how many from the beginning are done
    out_of_order = at_once = 0
    for line in lines:
        what, process, value = line.split()
        if what in {"ready", "killed", "left"}:
            for processes in running.values():
                processes.discard(process)
            continue
        key, _, place = value.split("/")
        if what == "start":
            at_once += bool(running[key])
            running[key].add(process)
            out_of_order += int(place) > upto[key]
        else:
            running[key].discard(process)
            if what in DONE:
                done[key, int(place)] += 1
                while done[key, upto[key]]:
                    upto[key] += 1
    lost = sum(not done[key, place] for key, many in sent.items() for place in range(many))
    return Verdict(lost, out_of_order, at_once, len(done), sum(done.values()) - len(done))
