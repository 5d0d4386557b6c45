"""The exact audit of one lane, against an obvious model and against planted faults."""

from collections.abc import Callable
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keyshared.errors import ArgumentError
from keyshared.spark.audits.lanes import Attempt, Finding, audit_lane

LaneHistory = Callable[[Random, int, int], list[Attempt]]


@st.composite
def any_lane(draw: st.DrawFn) -> list[Attempt]:
    """Deliveries at random, mostly broken; every position is used once, except that an ack ends and settles at once."""
    count = draw(st.integers(0, 7))
    positions = draw(st.permutations(range(3 * count)))
    rows = []
    for i in range(count):
        start, end, settle = sorted(positions[3 * i : 3 * i + 3])
        shape = draw(st.sampled_from(["open", "ended", "acked", "settled later"]))
        rows.append(
            Attempt(
                offset=draw(st.integers(0, 3)),
                consumer=draw(st.sampled_from("ab")),
                attempt=draw(st.integers(1, 3)),
                sequence=start,
                end_sequence=None if shape == "open" else end,
                settled_sequence={"acked": end, "settled later": settle}.get(shape),
            )
        )
    return rows


def obvious(rows: list[Attempt]) -> set[tuple[str, int, int | None, int]]:
    """The promises read aloud: for every delivery look at all others."""
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


@given(any_lane())
def test_audit_finds_what_the_promises_say_and_nothing_else(rows: list[Attempt]) -> None:
    findings = audit_lane(rows)
    assert obvious(rows) == {finding[:4] for finding in findings}
    assert len(findings) == len({finding[:4] for finding in findings})
    assert sorted(finding.sequence for finding in findings) == [finding.sequence for finding in findings]


@given(any_lane(), st.randoms(use_true_random=False))
def test_audit_does_not_depend_on_the_order_of_rows(rows: list[Attempt], rng: Random) -> None:
    shuffled = rng.sample(rows, len(rows))
    assert audit_lane(rows) == audit_lane(shuffled)


@pytest.mark.parametrize("limit", [1, 2, 5])
@pytest.mark.parametrize("seed", range(10))
def test_a_lane_that_keeps_its_promises_has_no_findings(lane_history: LaneHistory, seed: int, limit: int) -> None:
    rows = lane_history(Random(seed), 60, limit)
    assert any(row.settled_sequence != row.end_sequence for row in rows)  # redeliveries and late acks are among them
    assert [] == audit_lane(rows)


def acked(offset: int, consumer: str, start: int, end: int, attempt: int = 1) -> Attempt:
    return Attempt(offset, consumer, attempt, start, end, end)


PLANTED = {
    "overlap at another consumer": (
        [acked(1, "a", 0, 5), acked(2, "b", 3, 6)],
        [Finding("one-holder", 2, 1, 3, "2 went to 'b' while 1 of the same key was open at 'a'")],
    ),
    "a newer message overtakes one that was never out": (
        [acked(2, "a", 0, 1), acked(1, "a", 2, 3)],
        [Finding("key-order", 2, 1, 0, "2 went to 'a' while older 1 was neither out nor settled")],
    ),
    "a newer message overtakes one in retry-wait": (
        [Attempt(1, "a", 1, 0, 1, None), acked(2, "a", 2, 3), acked(1, "a", 4, 5, attempt=2)],
        [Finding("key-order", 2, 1, 2, "2 went to 'a' while older 1 was neither out nor settled")],
    ),
    "a newer message overtakes one that never comes back": (
        [Attempt(1, "a", 1, 0, 1, None), acked(2, "b", 2, 3)],
        [Finding("key-order", 2, 1, 2, "2 went to 'b' while older 1 was neither out nor settled")],
    ),
    "a delivery after the ack": (
        [acked(1, "a", 0, 1), Attempt(1, "a", 2, 2, None, None)],
        [Finding("no-loss", 1, None, 2, "1 went to 'a' although it had been settled")],
    ),
    "two acks of two attempts": (
        [Attempt(1, "a", 1, 0, 1, 4), acked(1, "a", 2, 6, attempt=2)],
        [
            Finding("fence", 1, None, 4, "1 was settled by attempt 1 while attempt 2 was open"),
            Finding("no-loss", 1, None, 6, "1 was settled once more, by attempt 2 at 'a'"),
        ],
    ),
    "a late ack that settles although the message is out again": (
        [Attempt(1, "a", 1, 0, 1, 4), Attempt(1, "b", 2, 2, 6, None)],
        [Finding("fence", 1, None, 4, "1 was settled by attempt 1 while attempt 2 was open")],
    ),
    "an attempt number that comes again": (
        [Attempt(1, "a", 1, 0, 1, None), acked(1, "a", 2, 3)],
        [Finding("fence", 1, None, 2, "attempt 1 of 1 came after attempt 1")],
    ),
    "an attempt that begins before the last one has ended": (
        [Attempt(1, "a", 1, 0, 5, None), acked(1, "a", 2, 7, attempt=2)],
        [Finding("fence", 1, None, 2, "attempt 2 of 1 began while attempt 1 was open")],
    ),
}


@pytest.mark.parametrize("name", PLANTED)
def test_audit_finds_a_planted_fault_and_only_that(name: str) -> None:
    rows, findings = PLANTED[name]
    assert findings == audit_lane(rows)


def test_messages_side_by_side_at_one_consumer_are_in_order() -> None:
    assert [] == audit_lane([acked(1, "a", 0, 9), acked(2, "a", 1, 8), acked(3, "a", 2, 7)])


def test_a_delivery_may_start_at_the_position_where_another_ends() -> None:
    assert [] == audit_lane([acked(1, "a", 0, 3), acked(2, "b", 3, 4)])


@pytest.mark.parametrize(
    ("row", "parameter"),
    [
        (Attempt(1, "a", 1, 5, 5, None), "end_sequence"),
        (Attempt(1, "a", 1, 5, 4, None), "end_sequence"),
        (Attempt(1, "a", 1, 5, 7, 6), "settled_sequence"),
        (Attempt(1, "a", 1, 5, None, 6), "settled_sequence"),
    ],
)
def test_positions_that_run_backwards_are_refused(row: Attempt, parameter: str) -> None:
    with pytest.raises(ArgumentError) as raised:
        audit_lane([row])
    assert parameter == raised.value.parameter
