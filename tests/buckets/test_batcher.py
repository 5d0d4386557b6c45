"""Batches of one bucket each: when they go out, what is stamped on them, and how they fit another layout."""

from fractions import Fraction
from typing import Any

import pytest

from keyshared.buckets import (
    KEYLESS_HASH,
    BatchLimits,
    BatchMessage,
    BatchStats,
    BucketBatcher,
    BucketLayout,
    EntryBatch,
    refit,
    refit_all,
)
from keyshared.errors import ArgumentError, ClockError, InvariantError, SequenceOrderError

ONE, TWO, FOUR = (BucketLayout.equal_width(n) for n in (1, 2, 4))
LOOSE = BatchLimits(max_delay_ms=None)


def message(sequence_id: int, bucket_hash: int = KEYLESS_HASH, size: int = 1) -> BatchMessage:
    return BatchMessage(sequence_id, f"m{sequence_id}", size, bucket_hash)


def stamps(entries: list[EntryBatch] | tuple[EntryBatch, ...]) -> list[tuple[int, int, int, list[int]]]:
    return [(e.hash_min, e.hash_max, e.sequence_id, [m.sequence_id for m in e.messages]) for e in entries]


def filled(layout: BucketLayout, *hashes: int, limits: BatchLimits = LOOSE) -> BucketBatcher:
    batcher = BucketBatcher(layout, limits)
    for sequence_id, bucket_hash in enumerate(hashes):
        assert [] == batcher.add(message(sequence_id, bucket_hash))
    return batcher


def test_the_defaults_are_pulsars() -> None:
    assert BatchLimits() == BatchLimits(max_messages=1_000, max_bytes=131_072, max_delay_ms=1)


def test_what_has_no_key_goes_to_hash_zero() -> None:
    batcher = BucketBatcher(FOUR)
    batcher.add(BatchMessage(0, "no key"))

    assert [(0, 0, 0, [0])] == stamps(batcher.flush())


def test_bytes_that_do_not_fit_send_what_is_open_first() -> None:
    batcher = BucketBatcher(TWO, BatchLimits(max_bytes=10, max_delay_ms=None))

    assert [] == batcher.add(message(0, 0, 6))
    assert [(0, 0, 0, [0])] == stamps(batcher.add(message(1, 0, 5)))
    assert [(0, 0, 2, [1, 2])] == stamps(batcher.add(message(2, 0, 5)))


def test_the_oldest_message_of_the_container_waits_no_longer_than_the_delay() -> None:
    batcher = BucketBatcher(FOUR, BatchLimits(max_delay_ms=10))
    assert batcher.next_deadline_ms() is None
    batcher.add(message(0, 0), now_ms=5)
    batcher.add(message(1, 60_000), now_ms=14)

    assert 15 == batcher.next_deadline_ms()
    assert [] == batcher.handle_timeout(now_ms=14)
    assert [0, 1] == [entry.sequence_id for entry in batcher.handle_timeout(now_ms=15)]
    assert batcher.next_deadline_ms() is None
    assert [] == batcher.handle_timeout(now_ms=99) == batcher.handle_timeout()
    batcher.add(message(2))
    assert 109 == batcher.next_deadline_ms()


def test_what_is_open_can_be_taken_back_in_order() -> None:
    batcher = filled(FOUR, 40_000, 0, 20_000, 1)

    assert [0, 1, 2, 3] == [each.sequence_id for each in batcher.take_open()]
    assert ([], 0, None) == (batcher.flush(), len(batcher), batcher.next_deadline_ms())
    assert BatchStats(0, 0, 0, 0, LOOSE) == batcher.stats()
    with pytest.raises(SequenceOrderError):
        batcher.add(message(3))


def test_the_figures_count_what_went_out() -> None:
    limits = BatchLimits(max_messages=4, max_bytes=100, max_delay_ms=None)
    batcher = BucketBatcher(TWO, limits)
    assert 0 == batcher.stats().mean_batch == batcher.stats().fill_ratio
    for sequence_id, bucket_hash in enumerate([0, 1, 40_000, 2, 3]):
        batcher.add(message(sequence_id, bucket_hash, 10))

    stats = batcher.stats()
    assert BatchStats(messages=4, bytes=40, entries=2, containers=1, limits=limits) == stats
    assert (Fraction(2), Fraction(1, 2)) == (stats.mean_batch, stats.fill_ratio)
    by_bytes = BatchStats(messages=1, bytes=75, entries=1, containers=1, limits=limits)
    assert Fraction(3, 4) == by_bytes.fill_ratio


@pytest.mark.parametrize("last", [3, 2, -1])
def test_sequence_ids_grow(last: int) -> None:
    batcher = BucketBatcher(TWO, BatchLimits(max_bytes=1))
    batcher.add(message(3, size=0))
    with pytest.raises(SequenceOrderError, match="after 3"):
        batcher.add(message(last, size=9), now_ms=70)
    assert [(0, 0, 4, [3, 4])] == stamps(batcher.add(message(4), now_ms=5))


BAD_MESSAGES: list[Any] = [
    (0, "a", 1, 0, 0),
    message(0, -1),
    message(0, 65_536),
    message(0, True),
    message(0, size=-1),
    BatchMessage(0, size=1.0),  # type: ignore[arg-type]  # on purpose
    BatchMessage("0"),  # type: ignore[arg-type]  # on purpose
    BatchMessage(True),
]


@pytest.mark.parametrize("bad", BAD_MESSAGES, ids=range(len(BAD_MESSAGES)))
def test_a_message_that_can_never_work_is_refused_and_changes_nothing(bad: Any) -> None:
    batcher = BucketBatcher(TWO)
    with pytest.raises(ArgumentError):
        batcher.add(bad, now_ms=9)
    batcher.add(message(0), now_ms=1)
    batcher.check_invariants()
    assert [(0, 0, 0, [0])] == stamps(batcher.flush())


def test_a_timeout_without_an_instant_is_of_the_last_one() -> None:
    batcher = BucketBatcher(TWO, BatchLimits(max_delay_ms=0))
    batcher.add(message(0), now_ms=7)

    assert [(0, 0, 0, [0])] == stamps(batcher.handle_timeout())


@pytest.mark.parametrize("now_ms", [4, -1, 5.0, True])
def test_the_clock_never_goes_back(now_ms: Any) -> None:
    batcher = BucketBatcher(TWO, BatchLimits(max_bytes=4))
    batcher.add(message(0, size=3), now_ms=5)
    with pytest.raises(ClockError):
        batcher.add(message(1, size=3), now_ms=now_ms)
    with pytest.raises(ClockError):
        batcher.handle_timeout(now_ms=now_ms)
    assert [(0, 0, 1, [0, 1])] == stamps(batcher.add(message(1), now_ms=5))


@pytest.mark.parametrize(
    "limits",
    [
        {"max_messages": 0},
        {"max_messages": 1.0},
        {"max_bytes": 0},
        {"max_bytes": True},
        {"max_delay_ms": -1},
        {"max_delay_ms": 0.5},
    ],
    ids=str,
)
def test_limits_that_can_never_work_are_refused(limits: dict[str, Any]) -> None:
    with pytest.raises(ArgumentError, match=f"{next(iter(limits))} is"):
        BatchLimits(**limits)


def test_a_batcher_has_a_layout_and_limits() -> None:
    with pytest.raises(ArgumentError, match="be a BucketLayout"):
        BucketBatcher([0])  # type: ignore[arg-type]  # on purpose
    with pytest.raises(ArgumentError, match="be a BatchLimits, or None"):
        BucketBatcher(TWO, 1_000)  # type: ignore[arg-type]  # on purpose
    assert TWO == filled(TWO, 0).layout


@pytest.mark.parametrize(
    "fields",
    [
        (0, 0, 0, ()),
        (0, 0, 0, [message(0)]),
        (0, 0, "0", (message(0),)),
        (0.0, 0, 0, (message(0),)),
        (0, True, 0, (message(0),)),
        (5, 4, 0, (message(0),)),
        (-1, 4, 0, (message(0),)),
        (0, 65_536, 0, (message(0),)),
    ],
    ids=range(8),
)
def test_an_entry_has_messages_and_bounds(fields: Any) -> None:
    with pytest.raises(ArgumentError):
        EntryBatch(*fields)


def test_an_entry_knows_its_size() -> None:
    entry = EntryBatch.of([message(0, size=5), message(1, size=6)])

    assert (2, 11) == (len(entry), entry.size)
    with pytest.raises(ArgumentError, match="at least one"):
        EntryBatch.of([])


def test_an_entry_within_one_bucket_goes_through_untouched() -> None:
    entry = EntryBatch(16_384, 32_767, 1, (message(0, 16_400), message(1, 16_500)))

    assert entry is refit(entry, FOUR)[0]
    assert ((entry,), 1, 0) == refit_all([entry], TWO)


def test_loose_bounds_are_tightened_if_all_messages_fit_one_bucket() -> None:
    entry = EntryBatch(0, 65_535, 0, (message(0, 9),))

    assert [(9, 9, 0, [0])] == stamps(refit(entry, TWO))


def test_what_it_took_to_refit_is_counted() -> None:
    narrow, wide = EntryBatch.of([message(0, 9)]), EntryBatch.of([message(1, 9), message(2, 40_000)])

    fitted = refit_all([narrow, wide, narrow], TWO)
    assert (2, 1) == (fitted.as_is, fitted.split)
    assert [0, 1, 2, 0] == [entry.sequence_id for entry in fitted.entries]
    assert ((), 0, 0) == refit_all([], TWO)


def test_only_entries_are_refitted_and_only_to_layouts() -> None:
    with pytest.raises(ArgumentError, match="be an EntryBatch"):
        refit((message(0),), TWO)  # type: ignore[arg-type]  # on purpose
    with pytest.raises(ArgumentError, match="be a BucketLayout"):
        refit(EntryBatch.of([message(0)]), [0])  # type: ignore[arg-type]  # on purpose
    with pytest.raises(ArgumentError, match="bucket_hash is 70000"):
        refit(EntryBatch(0, 65_535, 0, (message(0, 70_000),)), TWO)
    with pytest.raises(ArgumentError, match="message is 1; it must be a BatchMessage"):
        refit(EntryBatch(0, 65_535, 0, (1,)), TWO)  # type: ignore[arg-type]  # on purpose


def test_a_broken_batcher_is_found_out() -> None:
    def broken(**changes: Any) -> BucketBatcher:
        batcher = filled(TWO, 0, 40_000, 1)
        for name, value in changes.items():
            setattr(batcher, name, value)
        return batcher

    for batcher, fact in (
        (broken(_open={0: [message(2), message(0)], 1: [message(1, 40_000)]}), "order"),
        (broken(_open={0: []}), "order"),
        (broken(_open={0: [message(0), message(1, 40_000), message(2)]}), "its own"),
        (broken(_count=2), "counted"),
        (broken(_bytes=2), "counted"),
        (broken(_limits=BatchLimits(max_messages=3)), "full"),
        (broken(_limits=BatchLimits(max_bytes=3)), "full"),
    ):
        with pytest.raises(InvariantError, match=fact):
            batcher.check_invariants()
