"""The producer's side of entry buckets: batches whose messages all belong to one bucket.

What is open is a *container* of one sub-batch per bucket. The limits of a producer (messages, bytes, delay) hold for
the container as a whole; when one is reached, all of it goes out, each sub-batch as an `EntryBatch` of its own. So a
producer needs no more memory and waits no longer than without buckets.

There are no limits for each bucket: buckets would go out at different times, so the sequence ids stamped on entries
would no longer grow, and a broker that deduplicates would drop good entries.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from operator import attrgetter
from typing import Any, Final, NamedTuple

from keyshared._checks import check_int, check_kind, check_several, checked_now, configuration, require
from keyshared.buckets.layout import HASH_STOP, BucketLayout
from keyshared.errors import ArgumentError, SequenceOrderError

__all__ = [
    "KEYLESS_HASH",
    "BatchLimits",
    "BatchMessage",
    "BatchStats",
    "BucketBatcher",
    "EntryBatch",
    "Refitted",
    "check_message",
    "refit",
    "refit_all",
]

KEYLESS_HASH: Final = 0  # PIP-486: bucket 0 takes what has no key

_sequence_id: Final = attrgetter("sequence_id")


class BatchMessage(NamedTuple):
    """One message on its way out.

    Attributes:
        sequence_id: Its number; those of one producer grow strictly.
        item: The payload; never looked at.
        size: Its bytes, as far as they count for the limits.
        bucket_hash: Low half of the hash of its key; `KEYLESS_HASH` without a key.
        segment_hash: High half; kept for routing the message again, not used here.
    """

    sequence_id: int
    item: Any = None
    size: int = 0
    bucket_hash: int = KEYLESS_HASH
    segment_hash: int = 0


@dataclass(frozen=True, slots=True)
class EntryBatch:
    """Messages that go out as one entry, and what is stamped on it.

    Attributes:
        hash_min: The lowest bucket hash of its messages.
        hash_max: The highest.
        sequence_id: The greatest sequence id. The lowest says nothing: those of a bucket have gaps.
        messages: In the order of their sequence ids; at least one.

    Source:
        PIP-486, ``entry_hash_min`` and ``entry_hash_max``, inclusive on the wire and here.
    """

    hash_min: int
    hash_max: int
    sequence_id: int
    messages: tuple[BatchMessage, ...]

    def __post_init__(self) -> None:
        if type(self.messages) is not tuple or not self.messages:
            raise ArgumentError("messages", self.messages, "be a tuple of at least one message")
        check_int("sequence_id", self.sequence_id)
        if type(self.hash_min) is not int or type(self.hash_max) is not int:
            raise ArgumentError("bounds", (self.hash_min, self.hash_max), "be ints")
        if not 0 <= self.hash_min <= self.hash_max < HASH_STOP:
            raise ArgumentError("bounds", (self.hash_min, self.hash_max), f"be two hashes below {HASH_STOP} in order")

    @classmethod
    def of(cls, messages: Iterable[BatchMessage]) -> "EntryBatch":
        """Build an entry with the tightest bounds from at least one message of one bucket, in order.

        Example:
            >>> entry = EntryBatch.of([BatchMessage(1, "a", bucket_hash=70), BatchMessage(4, "b", bucket_hash=9)])
            >>> entry.hash_min, entry.hash_max, entry.sequence_id
            (9, 70, 4)
        """
        given = tuple(map(check_message, messages))
        if not given:
            raise ArgumentError("messages", given, "be at least one")
        return _entry(given)

    @property
    def size(self) -> int:
        """Bytes of all its messages."""
        return sum(message.size for message in self.messages)

    def __len__(self) -> int:
        return len(self.messages)


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchLimits:
    """The limits of a container: it goes out as soon as one of them is reached.

    Args:
        max_messages: Messages of the container; 1 switches batching off, as an encrypted topic needs it.
        max_bytes: Bytes of the container. Only a message that is larger by itself exceeds it, and goes out alone.
        max_delay_ms: How long its oldest message may wait; None for no bound.

    Source:
        Pulsar's batchingMaxMessages, batchingMaxBytes and batchingMaxPublishDelay, with its defaults.
    """

    max_messages: int = 1_000
    max_bytes: int = 128 * 1_024
    max_delay_ms: int | None = 1

    @configuration()
    def __post_init__(self) -> None:
        check_int("max_messages", self.max_messages, 1)
        check_int("max_bytes", self.max_bytes, 1)
        if self.max_delay_ms is not None:
            check_int("max_delay_ms", self.max_delay_ms, 0)


@dataclass(frozen=True, slots=True)
class BatchStats:
    """The figures of a batcher: what went out so far, and the limits."""

    messages: int
    bytes: int
    entries: int
    containers: int
    limits: BatchLimits

    def __add__(self, other: "BatchStats") -> "BatchStats":
        """Add the figures of two batchers with the same limits."""
        return BatchStats(
            self.messages + other.messages,
            self.bytes + other.bytes,
            self.entries + other.entries,
            self.containers + other.containers,
            self.limits,
        )

    @property
    def mean_batch(self) -> Fraction:
        """Messages of an entry, on average; 0 before any."""
        return Fraction(self.messages, self.entries or 1)

    @property
    def fill_ratio(self) -> Fraction:
        """The mean fill of an entry, by messages or by bytes: whichever is nearer to its limit.

        With N buckets that fill alike it is at most about 1/N: the limits are those of the container.
        """
        entries = self.entries or 1
        by_messages = Fraction(self.messages, entries * self.limits.max_messages)
        return max(by_messages, Fraction(self.bytes, entries * self.limits.max_bytes))


class BucketBatcher:
    """Collects the messages of one segment and gives them back as entries of one bucket each.

    Messages of a key stay in order: they share a bucket, and a bucket keeps the order in which they were added. Entries
    come out with growing sequence ids. Each ``now_ms`` is in monotonic milliseconds, None for the instant of the last
    call; a `ClockError` if it goes back. Not thread-safe.

    Args:
        layout: The buckets of the segment.
        limits: When a container goes out; None for the defaults.

    Complexity:
        O(log n) a message, n buckets; O(m + b log b) to flush m messages of b buckets. Memory: one container.

    Source:
        PIP-486, producer-side batching.

    Example:
        >>> batcher = BucketBatcher(BucketLayout.equal_width(2), BatchLimits(max_messages=3))
        >>> [batcher.add(BatchMessage(i, bucket_hash=h), now_ms=0) for i, h in [(0, 9), (1, 40_000)]]
        [[], []]
        >>> for entry in batcher.add(BatchMessage(2, bucket_hash=7), now_ms=0):
        ...     print(entry.hash_min, entry.hash_max, entry.sequence_id, len(entry))
        40000 40000 1 1
        7 9 2 2
    """

    __slots__ = ("_bytes", "_count", "_last", "_layout", "_limits", "_now", "_open", "_sent", "_since", "_splits")

    def __init__(self, layout: BucketLayout, limits: BatchLimits | None = None) -> None:
        self._layout = check_kind("layout", layout, BucketLayout)
        self._limits = BatchLimits() if limits is None else check_kind("limits", limits, BatchLimits, ", or None")
        self._splits = layout.splits
        self._open: dict[int, list[BatchMessage]] = defaultdict(list)
        self._count = self._bytes = self._since = 0  # of the container
        self._last: int | None = None
        self._now = 0
        self._sent = BatchStats(0, 0, 0, 0, self._limits)

    def add(self, message: BatchMessage, *, now_ms: int | None = None) -> list[EntryBatch]:
        """Take the next message of the producer; return the entries of the container that it completes.

        If its bytes do not fit into the open container, that one goes out first. An error changes nothing. O(log n), n
        buckets; plus the flush.

        Raises:
            SequenceOrderError: Its sequence id is not above the one before.
        """
        check_message(message)
        if self._last is not None and message.sequence_id <= self._last:
            raise SequenceOrderError(message.sequence_id, self._last)
        now = checked_now(now_ms, self._now)
        self._last = message.sequence_id
        return self._put(message, now_ms=now)

    def _put(self, message: BatchMessage, *, now_ms: int) -> list[EntryBatch]:
        """Do as `add`, unchecked: for `keyshared.segments.SegmentProducer`, which has checked the message."""
        self._now = now_ms
        limits, full = self._limits, []
        if self._count and self._bytes + message.size > limits.max_bytes:
            full = self.flush()
        if not self._count:
            self._since = now_ms
        self._open[bisect_right(self._splits, message.bucket_hash)].append(message)
        self._count += 1
        self._bytes += message.size
        if self._count >= limits.max_messages or self._bytes >= limits.max_bytes:
            full += self.flush()
        return full

    def flush(self) -> list[EntryBatch]:
        """Send what is open: one entry for each bucket that has messages, with growing sequence ids."""
        if not self._count:
            return []
        entries = sorted(map(_entry, map(tuple, self._open.values())), key=_sequence_id)
        self._sent += BatchStats(self._count, self._bytes, len(entries), 1, self._limits)
        self._clear()
        return entries

    def handle_timeout(self, *, now_ms: int | None = None) -> list[EntryBatch]:
        """Send what is open if it has waited long enough, as `flush`. Early and extra calls are free."""
        self._now = checked_now(now_ms, self._now)
        deadline = self.next_deadline_ms()
        return self.flush() if deadline is not None and deadline <= self._now else []

    def take_open(self) -> list[BatchMessage]:
        """Return what is open, unsent, for the batchers of several successors or of another layout.

        In the order of the sequence ids. The batcher is empty afterwards, and does not take them again: its sequence
        ids go on from where they were.
        """
        taken = self._in_order()
        self._clear()
        return taken

    @property
    def layout(self) -> BucketLayout:
        """The buckets that are filled now."""
        return self._layout

    def next_deadline_ms(self) -> int | None:
        """Return when `handle_timeout` will send something; None if nothing waits for time to pass."""
        delay = self._limits.max_delay_ms
        return self._since + delay if self._count and delay is not None else None

    def stats(self) -> BatchStats:
        """Return the figures so far; open batches do not count."""
        return self._sent

    def __len__(self) -> int:
        return self._count

    def check_invariants(self) -> None:
        """Check what must hold between any two calls; an InvariantError is a bug in this library."""
        for bucket, batch in self._open.items():
            ids = [message.sequence_id for message in batch]
            require(ids and ids == sorted(set(ids)), f"bucket {bucket} holds messages in the order of their ids")
            own = all(self._layout.bucket_of(message.bucket_hash) == bucket for message in batch)
            require(own, f"bucket {bucket} holds its own messages only")
        still_open = self._in_order()
        counted = (len(still_open), sum(message.size for message in still_open))
        require(counted == (self._count, self._bytes), "what is open is counted")
        full = self._count >= self._limits.max_messages or self._bytes >= self._limits.max_bytes
        require(not (self._count and full), "a full container goes out at once")

    def _in_order(self) -> list[BatchMessage]:
        return sorted((message for batch in self._open.values() for message in batch), key=_sequence_id)

    def _clear(self) -> None:
        self._open.clear()
        self._count = self._bytes = 0


class Refitted(NamedTuple):
    """Entries under another layout, in order, and how many of the old ones stayed as they are or were split."""

    entries: tuple[EntryBatch, ...]
    as_is: int
    split: int


def refit(entry: EntryBatch, layout: BucketLayout) -> tuple[EntryBatch, ...]:
    """Fit an entry from elsewhere (a replicated one, one that a seal refused) to a layout.

    Returns the very entry, not even opened, if its bounds fall into one bucket. Else one for each bucket that has
    messages, with tight bounds and growing sequence ids, the messages in their order. O(log n), n buckets; O(m log n)
    if m messages have to be sorted.

    Source:
        PIP-486 on clusters with different layouts.

    Example:
        >>> entry = EntryBatch.of([BatchMessage(1, bucket_hash=9), BatchMessage(2, bucket_hash=40_000)])
        >>> [(each.hash_min, each.hash_max) for each in refit(entry, BucketLayout.equal_width(2))]
        [(9, 9), (40000, 40000)]
        >>> refit(entry, BucketLayout.equal_width(1)) == (entry,)
        True
    """
    check_kind("entry", entry, EntryBatch)
    check_kind("layout", layout, BucketLayout)
    if isinstance(layout.route(entry.hash_min, entry.hash_max), int):
        return (entry,)
    parts = layout.split((message.bucket_hash, message) for message in map(check_message, entry.messages))
    fitted = [_entry(tuple(message for _, message in part.messages)) for part in parts]
    return tuple(sorted(fitted, key=_sequence_id))


def refit_all(entries: Iterable[EntryBatch], layout: BucketLayout) -> Refitted:
    """Fit entries to a layout, one after the other, and count what it took."""
    fitted: list[EntryBatch] = []
    as_is = split = 0
    for entry in check_several("entries", entries, "entries"):
        parts = refit(entry, layout)
        fitted += parts
        if parts[0] is entry:
            as_is += 1
        else:
            split += 1
    return Refitted(tuple(fitted), as_is, split)


def _entry(messages: tuple[BatchMessage, ...]) -> EntryBatch:
    """Build an entry of messages that were checked when they came."""
    hashes = [message.bucket_hash for message in messages]
    return EntryBatch(min(hashes), max(hashes), messages[-1].sequence_id, messages)


def check_message(message: object) -> BatchMessage:
    """Check that a message can be batched."""
    if not isinstance(message, BatchMessage):
        raise ArgumentError("message", message, "be a BatchMessage")
    sequence_id, _, size, bucket_hash, _ = message
    if type(sequence_id) is not int:
        raise ArgumentError("sequence_id", sequence_id, "be an int")
    if type(size) is not int or size < 0:
        raise ArgumentError("size", size, "be an int of at least 0")
    if type(bucket_hash) is not int or not 0 <= bucket_hash < HASH_STOP:
        raise ArgumentError("bucket_hash", bucket_hash, f"be an int from 0 to {HASH_STOP - 1}")
    return message
