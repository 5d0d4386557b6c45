"""The batcher against the promises of entry buckets, and against batchers with the faults it must not have.

The judge sees only what went in and what came out: entries, in the order in which they were sent.
"""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keyshared.buckets import BatchLimits, BatchMessage, BucketBatcher, BucketLayout, EntryBatch, refit

hashes = st.sampled_from([0, 1, 7, 16_383, 16_384, 30_000, 32_768, 40_000, 65_535])
layouts = st.sampled_from([[0], [0, 32_768], [0, 2, 8, 16_384, 32_768, 65_535], [0, 30_000, 30_001]]).map(BucketLayout)
limits = st.builds(
    BatchLimits,
    max_messages=st.integers(1, 8),
    max_bytes=st.integers(1, 20),
    max_delay_ms=st.none() | st.integers(0, 4),
)
# add (hash, size), let time pass, or flush
steps = st.lists(
    st.one_of(
        st.tuples(st.just("add"), hashes, st.integers(0, 8)),
        st.tuples(st.just("add"), hashes, st.integers(0, 8)),
        st.tuples(st.just("wait"), st.integers(0, 6), st.just(0)),
        st.tuples(st.just("flush"), st.just(0), st.just(0)),
    ),
    max_size=40,
)
Steps = Sequence[tuple[str, int, int]]
Sent = list[list[EntryBatch]]


def run(batcher: BucketBatcher, steps: Steps) -> tuple[list[BatchMessage], Sent]:
    """Drive a batcher; return what went in, and what every call sent."""
    given_messages: list[BatchMessage] = []
    sent: Sent = []
    now = 0
    for number, (kind, value, size) in enumerate(steps):
        out: list[EntryBatch] = []
        if kind == "add":
            given_messages.append(BatchMessage(3 * number, size=size, bucket_hash=value))
            out = batcher.add(given_messages[-1], now_ms=now)
        elif kind == "wait":
            now += value
            out = batcher.handle_timeout(now_ms=now)
        else:
            out = batcher.flush()
        batcher.check_invariants()
        sent.append(out)
    sent.append(batcher.flush())
    return given_messages, sent


def judge(layout: BucketLayout, given_messages: list[BatchMessage], sent: Sent) -> None:
    entries = [entry for out in sent for entry in out]
    stamped = [entry.sequence_id for entry in entries]
    assert sorted(set(stamped)) == stamped, "stamped ids grow, also from container to container"
    assert sorted(m for entry in entries for m in entry.messages) == given_messages, "nothing is lost or doubled"
    for bucket_hash in {m.bucket_hash for m in given_messages}:
        ids = [m.sequence_id for entry in entries for m in entry.messages if m.bucket_hash == bucket_hash]
        assert sorted(ids) == ids, f"order of the keys of hash {bucket_hash}"
    for entry in entries:
        inside = [m.bucket_hash for m in entry.messages]
        assert (min(inside), max(inside)) == (entry.hash_min, entry.hash_max), "bounds are tight"
        assert entry.messages[-1].sequence_id == entry.sequence_id, "the greatest id is stamped"
        assert layout.bucket_of(entry.hash_min) == layout.bucket_of(entry.hash_max), "one bucket"


@given(layouts, limits, steps)
def test_every_message_goes_out_once_in_order_in_a_batch_of_its_bucket(
    layout: BucketLayout, allowed: BatchLimits, steps: Steps
) -> None:
    judge(layout, *run(BucketBatcher(layout, allowed), steps))


def containers(allowed: BatchLimits, steps: Steps) -> list[list[int]]:
    """The model: one list of what is open, without any buckets; what each call sends, by sequence id."""
    waiting: list[tuple[int, int, int]] = []  # id, size, since
    now = 0
    calls: list[list[int]] = []
    for number, (kind, value, size) in enumerate(steps):
        sent: list[int] = []
        if kind == "add":
            if waiting and sum(each[1] for each in waiting) + size > allowed.max_bytes:
                sent, waiting = [each[0] for each in waiting], []
            waiting.append((3 * number, size, now))
            full = len(waiting) >= allowed.max_messages or sum(each[1] for each in waiting) >= allowed.max_bytes
        elif kind == "wait":
            now += value
            full = bool(waiting) and allowed.max_delay_ms is not None and now - waiting[0][2] >= allowed.max_delay_ms
        else:
            full = True
        if full:
            sent, waiting = sent + [each[0] for each in waiting], []
        calls.append(sent)
    return [*calls, [each[0] for each in waiting]]


@given(layouts, limits, steps)
def test_every_call_sends_exactly_what_a_batcher_without_buckets_would(
    layout: BucketLayout, allowed: BatchLimits, steps: Steps
) -> None:
    _, sent = run(BucketBatcher(layout, allowed), steps)
    ids = [sorted(m.sequence_id for entry in out for m in entry.messages) for out in sent]
    assert containers(allowed, steps) == ids


@given(layouts, limits, st.lists(st.tuples(hashes, st.integers(0, 3)), max_size=30))
def test_nothing_waits_longer_than_the_delay_if_the_deadline_is_kept(
    layout: BucketLayout, allowed: BatchLimits, arrivals: list[tuple[int, int]]
) -> None:
    batcher = BucketBatcher(layout, allowed)
    since: dict[int, int] = {}
    now = 0
    for number, (bucket_hash, gap) in enumerate(arrivals):
        for instant in range(now, now + gap + 1):  # a loop that comes back at every deadline, and only then
            if batcher.next_deadline_ms() == instant:
                assert batcher.handle_timeout(now_ms=instant)
        now += gap
        since[number] = now
        batcher.add(BatchMessage(number, bucket_hash=bucket_hash), now_ms=now)
        if allowed.max_delay_ms is not None:
            assert all(now - since[m.sequence_id] <= allowed.max_delay_ms for m in batcher._in_order())


@given(layouts, layouts, st.lists(hashes, min_size=1, max_size=20))
def test_refitted_entries_hold_the_same_messages_in_the_order_of_each_key(
    before: BucketLayout, after: BucketLayout, drawn: list[int]
) -> None:
    batcher = BucketBatcher(before)
    for number, bucket_hash in enumerate(drawn):
        batcher.add(BatchMessage(number, bucket_hash=bucket_hash))
    entries = batcher.flush()
    for entry in entries:
        parts = refit(entry, after)
        judge(after, sorted(entry.messages), [list(parts)])
        spans = {after.bucket_of(m.bucket_hash) for m in entry.messages}
        assert (parts[0] is entry) == (len(spans) == 1)
        assert len(spans) == len(parts)


class ByFirstMessage(BucketBatcher):
    """Sorts entries by their first message instead of the id that is stamped on them."""

    __slots__ = ()

    def flush(self) -> list[EntryBatch]:
        return sorted(super().flush(), key=lambda entry: entry.messages[0].sequence_id)


class BucketBounds(BucketBatcher):
    """Stamps the bounds of the bucket, not of the messages."""

    __slots__ = ()

    def flush(self) -> list[EntryBatch]:
        found = super().flush()
        wide = [self._layout.range_of(self._layout.bucket_of(entry.hash_min)) for entry in found]
        return [EntryBatch(r.start, r.stop - 1, e.sequence_id, e.messages) for r, e in zip(wide, found, strict=True)]


SCHEDULE: Steps = [
    ("add", 0, 1),
    ("add", 40_000, 1),
    ("add", 40_000, 1),
    ("add", 20_000, 1),
    ("add", 17_000, 1),
    ("add", 7, 1),
    ("flush", 0, 0),
]


@pytest.mark.parametrize("broken", [ByFirstMessage, BucketBounds])
def test_the_judge_catches_a_broken_batcher(broken: type[BucketBatcher]) -> None:
    two = BucketLayout.equal_width(2)
    judge(two, *run(BucketBatcher(two), SCHEDULE))
    with pytest.raises(AssertionError):
        judge(two, *run(broken(two), SCHEDULE))
