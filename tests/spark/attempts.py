"""Delivery logs to audit, and what breaks the promises there."""

from random import Random
from typing import NamedTuple


class Attempt(NamedTuple):
    """One delivery: the columns of a delivery log that say who got what in which order."""

    offset: int
    consumer: str
    attempt: int
    sequence: int
    end_sequence: int | None
    settled_sequence: int | None


def lane_history(rng: Random, messages: int, limit: int) -> list[Attempt]:
    """A history of one key that keeps every promise: up to ``limit`` messages out at one consumer, nacks, late acks."""
    clock = iter(range(1_000_000))
    waiting = sorted(rng.sample(range(messages * 3), messages))  # gaps between offsets are legal
    attempts = dict.fromkeys(waiting, 0)
    rows: list[Attempt] = []
    out: list[Attempt] = []
    timed_out: list[Attempt] = []  # of messages that wait again: a late ack settles them
    holder = "a"
    while waiting or out:
        for row in [row for row in timed_out if rng.random() < 0.3 and row.offset in waiting]:
            waiting.remove(row.offset)
            timed_out = [other for other in timed_out if other.offset != row.offset]
            rows.append(row._replace(settled_sequence=next(clock)))
        if (
            waiting
            and len(out) < limit
            and (not out or (rng.random() < 0.5 and waiting[0] > max(o.offset for o in out)))
        ):
            if not out:
                holder = rng.choice("abc")
            offset = waiting.pop(0)
            attempts[offset] += 1
            rows += [row for row in timed_out if row.offset == offset]
            timed_out = [row for row in timed_out if row.offset != offset]
            out.append(Attempt(offset, holder, attempts[offset], next(clock), None, None))
        elif out:
            row = out.pop(rng.randrange(len(out)))
            row = row._replace(end_sequence=next(clock))
            if rng.random() < 0.7:
                rows.append(row._replace(settled_sequence=row.end_sequence))
            else:
                waiting = sorted([*waiting, row.offset])
                timed_out.append(row)
    return rows + timed_out


def obvious(rows: list[Attempt]) -> set[tuple[str, int, int | None, int]]:
    """The promises read aloud, for the deliveries of one key: for every delivery look at all others."""
    found: set[tuple[str, int, int | None, int]] = set()
    for row in rows:
        now = row.sequence
        is_open = [o for o in rows if o.sequence < now and (o.end_sequence is None or o.end_sequence > now)]
        settled = {o.offset for o in rows if o.settled_sequence is not None and o.settled_sequence <= now}
        elsewhere = [o.offset for o in is_open if o.consumer != row.consumer]
        if elsewhere:
            found.add(("one-holder", row.offset, min(elsewhere), now))
        held = {o.offset for o in rows} - {o.offset for o in is_open} - settled
        older = [offset for offset in held if offset < row.offset]
        if older:
            found.add(("key-order", row.offset, min(older), now))
        if row.offset in settled:
            found.add(("no-loss", row.offset, None, now))
        before = [o for o in rows if o.offset == row.offset and o.sequence < now]
        if before:
            last = max(before, key=lambda o: o.sequence)
            if row.attempt <= last.attempt or any(o.offset == row.offset for o in is_open):
                found.add(("fence", row.offset, None, now))
        again = row.settled_sequence
        if again is not None and any(
            o.offset == row.offset and o.settled_sequence is not None and o.settled_sequence < again for o in rows
        ):
            found.add(("no-loss", row.offset, None, again))
        newer = [o for o in rows if o.offset == row.offset and o.sequence > now]
        if again is not None and any(
            o.sequence < again and (o.end_sequence is None or o.end_sequence > again) for o in newer
        ):
            found.add(("fence", row.offset, None, again))
    return found
