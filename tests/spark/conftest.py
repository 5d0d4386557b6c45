"""Histories to audit."""

from collections.abc import Callable
from random import Random
from typing import TypeAlias

import pytest

from keyshared.spark.audits.lanes import Attempt

LaneHistory: TypeAlias = Callable[[Random, int, int], list[Attempt]]


@pytest.fixture(scope="session")
def lane_history() -> LaneHistory:
    return _lane_history


def _lane_history(rng: Random, messages: int, limit: int) -> list[Attempt]:
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
