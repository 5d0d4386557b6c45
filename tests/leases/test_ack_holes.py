"""Holes counted as they come and go are those that the cursor shows."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keyshared.cursor import ContiguousCursor
from keyshared.errors import InvariantError
from keyshared.leases.ack_holes import AckHoles

STEPS = st.lists(st.tuples(st.booleans(), st.integers(0, 30), st.integers(1, 3)), max_size=60)


@pytest.mark.no_cover
@given(steps=STEPS)
def test_after_every_step_there_are_as_many_as_acked_ranges(steps: list[tuple[bool, int, int]]) -> None:
    cursor, holes, outstanding, last = ContiguousCursor(), AckHoles(), list[int](), -1
    for offer, pick, gap in steps:
        if offer or not outstanding:
            last += gap
            cursor.offer(last)
            holes.offered(last)
            outstanding.append(last)
        else:
            offset = outstanding.pop(pick % len(outstanding))
            cursor.settle(offset)
            holes.settled(offset)
        assert len(cursor.acked_ranges()) == holes.count
        again = AckHoles()
        again.load(outstanding, cursor.acked_ranges())
        assert holes.count == again.count


@given(steps=STEPS)
def test_loaded_holes_close_like_the_others(steps: list[tuple[bool, int, int]]) -> None:
    cursor, outstanding = ContiguousCursor(), list(range(20))
    for offset in outstanding:
        cursor.offer(offset)
    for _, pick, _ in steps[:8]:
        cursor.settle(outstanding.pop(pick % len(outstanding)))
    holes = AckHoles()
    holes.load(outstanding, cursor.acked_ranges())
    for _, pick, _ in steps[8:20]:
        offset = outstanding.pop(pick % len(outstanding))
        cursor.settle(offset)
        holes.settled(offset)
        holes.check_invariants(len(cursor.acked_ranges()))


def test_a_count_that_has_drifted_is_found() -> None:
    with pytest.raises(InvariantError):
        AckHoles().check_invariants(1)
