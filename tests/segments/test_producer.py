"""A producer across rollovers: routing, what a seal sends back, what is held until when, and what is refused."""

from typing import Any

import pytest
from tests.steps import steps_of

from keyshared.buckets import BatchLimits, BatchMessage, BatchStats, BucketLayout
from keyshared.errors import ArgumentError, ClockError, InvariantError, SequenceOrderError
from keyshared.segments import PublishEntry, SegmentMap, SegmentProducer

WHOLE = SegmentMap.equal_width()
HALVES = WHOLE.split(0)
SINGLE = BatchLimits(max_messages=1)
LOW, HIGH = 100, 40_000


def message(sequence_id: int, segment_hash: int = LOW, bucket_hash: int = 0) -> BatchMessage:
    return BatchMessage(sequence_id, f"m{sequence_id}", 1, bucket_hash, segment_hash)


def shape(publishes: list[PublishEntry]) -> list[tuple[int, list[int]]]:
    return [(publish.segment, [m.sequence_id for m in publish.entry.messages]) for publish in publishes]


def sent(limits: BatchLimits = SINGLE, *hashes: int) -> SegmentProducer:
    """Messages 0, 1, ... went to segment 0 and are unanswered."""
    producer = SegmentProducer(WHOLE, limits)
    for sequence_id, segment_hash in enumerate(hashes):
        producer.send(message(sequence_id, segment_hash))
    return producer


def test_a_message_goes_to_its_segment_and_batch() -> None:
    producer = SegmentProducer(HALVES, BatchLimits(max_messages=2))

    assert [] == producer.send(message(0, LOW))
    assert [] == producer.send(message(1, HIGH))
    assert [(1, [0]), (1, [2])] == shape(producer.send(message(2, LOW, 40_000)))
    assert [(2, [1])] == shape(producer.flush())
    assert [(1, [0]), (1, [2]), (2, [1])] == shape(list(producer.unanswered))
    assert BatchStats(3, 3, 3, 2, BatchLimits(max_messages=2)) == producer.stats()


def test_confirmed_entries_are_forgotten_and_other_answers_ignored() -> None:
    producer = sent(SINGLE, LOW, LOW)

    for segment, sequence_id in ((0, 0), (0, 0), (0, 99), (7, 1)):
        assert [] == producer.confirmed(segment, sequence_id)
    assert [] == producer.refused(7, 1) == producer.refused(0, 0)
    assert [(0, [1])] == shape(list(producer.unanswered))


def test_whether_a_segment_is_sealed_is_yes_or_no() -> None:
    producer = sent(SINGLE, LOW)
    with pytest.raises(ArgumentError, match="sealed is None; it must be a bool"):
        producer.refused(0, 0, sealed=None)  # type: ignore[arg-type]  # on purpose
    assert [(0, [0])] == shape(list(producer.unanswered))


def test_a_seal_elsewhere_holds_nothing_up() -> None:
    segments = HALVES.split(2)
    producer = SegmentProducer(HALVES, SINGLE)
    producer.send(message(0, HIGH))
    producer.update(segments)

    assert [(1, [1])] == shape(producer.send(message(1, LOW)))
    assert [] == producer.send(message(2, HIGH))
    assert [(3, [2])] == shape(producer.confirmed(2, 0))


def test_what_is_open_moves_into_the_buckets_of_the_successor() -> None:
    producer = SegmentProducer(WHOLE, BatchLimits(max_messages=3))
    producer.send(message(0, LOW, 0))
    producer.send(message(1, LOW, 40_000))
    one = WHOLE.rebucket(0, BucketLayout.equal_width(1))

    assert [] == producer.update(one)
    assert [(1, [0, 1, 2])] == shape(producer.send(message(2, LOW, 20_000)))
    producer.check_invariants()


def test_a_map_that_is_not_newer_is_ignored() -> None:
    producer = SegmentProducer(HALVES, SINGLE)
    producer.send(message(0))

    assert [] == producer.update(WHOLE)
    assert [] == producer.update(HALVES)
    assert HALVES is producer.segments
    assert [(1, [1])] == shape(producer.send(message(1)))


def test_batches_wait_no_longer_than_the_delay() -> None:
    producer = SegmentProducer(HALVES, BatchLimits(max_delay_ms=5))
    assert producer.next_deadline_ms() is None
    producer.send(message(0, LOW), now_ms=10)
    producer.send(message(1, HIGH), now_ms=12)

    assert 15 == producer.next_deadline_ms()
    assert [] == producer.handle_timeout(now_ms=14)
    assert [(1, [0])] == shape(producer.handle_timeout(now_ms=16))
    assert 17 == producer.next_deadline_ms()
    assert [(2, [1])] == shape(producer.handle_timeout(now_ms=17))


def test_a_timeout_without_an_instant_is_of_the_last_one() -> None:
    producer = SegmentProducer(HALVES, BatchLimits(max_delay_ms=0))
    producer.send(message(0, LOW), now_ms=7)

    assert [(1, [0])] == shape(producer.handle_timeout())


def test_what_was_held_waits_from_its_release_on() -> None:
    producer = SegmentProducer(WHOLE, BatchLimits(max_delay_ms=5))
    producer.send(message(0), now_ms=1)
    producer.handle_timeout(now_ms=6)
    producer.send(message(1), now_ms=7)
    producer.update(HALVES)
    producer.handle_timeout(now_ms=20)
    assert producer.next_deadline_ms() is None
    producer.refused(0, 0)

    assert 25 == producer.next_deadline_ms()
    assert [(1, [0, 1])] == shape(producer.handle_timeout(now_ms=25))


def test_the_figures_survive_a_rollover() -> None:
    producer = sent(SINGLE, LOW, LOW)
    producer.refused(0, 1)
    producer.confirmed(0, 0)
    producer.update(HALVES)

    assert (3, 3) == (producer.stats().messages, producer.stats().entries)


def test_bad_messages_change_nothing() -> None:
    producer = sent(SINGLE, LOW)
    for bad in (None, message(1, 65_536), message(1, -1), message(1, LOW, 65_536)):
        with pytest.raises(ArgumentError):
            producer.send(bad, now_ms=9)  # type: ignore[arg-type]  # on purpose
    with pytest.raises(SequenceOrderError, match="after 0"):
        producer.send(message(0), now_ms=9)
    for now_ms in (-1, 1.5, True):
        with pytest.raises(ClockError):
            producer.send(message(1), now_ms=now_ms)  # type: ignore[arg-type]  # on purpose
    assert [(0, [1])] == shape(producer.send(message(1), now_ms=0))


@pytest.mark.parametrize("arguments", [(None,), (WHOLE, 1_000)])
def test_a_producer_has_a_map_and_limits(arguments: Any) -> None:
    with pytest.raises(ArgumentError):
        SegmentProducer(*arguments)


def test_a_newer_map_is_a_map_of_the_same_topic() -> None:
    producer = sent(SINGLE, LOW)
    for bad in (None, SegmentMap.equal_width(2).split(0)):
        with pytest.raises(ArgumentError):
            producer.update(bad)  # type: ignore[arg-type]  # on purpose
    assert WHOLE is producer.segments


def test_a_broken_producer_is_found_out() -> None:
    def holding(**changes: Any) -> SegmentProducer:
        producer = sent(SINGLE, LOW, HIGH, LOW)
        producer.refused(0, 1)
        producer.refused(0, 2)
        for name, value in changes.items():
            setattr(producer, name, value)
        return producer

    kept = SegmentProducer(WHOLE, BatchLimits(max_messages=2))
    kept.send(message(0))
    kept._segments = HALVES
    still_open = SegmentProducer(WHOLE, BatchLimits(max_messages=2))
    still_open.send(message(0))
    still_open._lanes[0].closing = True
    still_open._blocked = frozenset({0})
    unsealed = holding()
    unsealed.confirmed(0, 0)
    unsealed._lanes[0].sealed = False
    for producer, fact in (
        (holding(_held=[message(2), message(2)]), "held once"),
        (holding(_blocked=frozenset()), "only what is blocked"),
        (holding(_blocked=frozenset({0, 1})), "shares its range with"),
        (still_open, "which is closing"),
        (unsealed, "is closing for its answers only"),
        (kept, "sealed segment 0 is kept for its answers only"),
    ):
        with pytest.raises(InvariantError, match=fact):
            producer.check_invariants()


def test_each_refusal_takes_as_many_steps_however_many_messages_are_held() -> None:
    cost = {count: _steps_of_refusals(count) for count in (20, 400)}

    assert cost[400] / 400 < 1.2 * cost[20] / 20, cost


def _steps_of_refusals(count: int) -> int:
    """All entries of a segment but the oldest are refused, the newest first; nothing goes out before the last one."""
    producer = SegmentProducer(WHOLE, BatchLimits(max_messages=10))
    entries = [publish for each in range(10 * count) for publish in producer.send(message(each))]
    producer.update(HALVES)
    steps = 0
    for _, entry in reversed(entries[1:]):
        steps += steps_of(producer.refused, 0, entry.sequence_id)
    assert 10 * (count - 1) == producer.held
    producer.check_invariants()
    again = producer.confirmed(0, 0) + producer.flush()
    for side in (1, 2):
        ids = [each.sequence_id for one, entry in again if one == side for each in entry.messages]
        assert ids == sorted(ids)
    return steps
