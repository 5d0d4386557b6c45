"""A producer across rollovers: where each message goes, and what a seal sends back.

A broker takes the entries of a segment in the order in which they were sent, up to the seal, and refuses everything
after it. A message that was refused goes to the successor, and must get there before anything newer of its key. Hence
one rule, the mirror image of the reader's: nothing goes to a successor while an entry to a segment whose range it
shares is unanswered. Until then messages are held.
"""

from collections.abc import Iterable
from operator import attrgetter
from typing import Final, NamedTuple

from keyshared._checks import check_bool, check_kind, checked_now, require
from keyshared.buckets.batcher import BatchLimits, BatchMessage, BatchStats, BucketBatcher, EntryBatch, check_message
from keyshared.errors import SequenceOrderError
from keyshared.placement.range_map import HashRange
from keyshared.segments.map import SegmentMap
from keyshared.segments.segment import Segment

__all__ = ["PublishEntry", "SegmentProducer"]

_SEQUENCE_ID: Final = attrgetter("sequence_id")


class PublishEntry(NamedTuple):
    """An entry to be sent to a segment, after all that were returned before it; answered by its ``sequence_id``."""

    segment: int
    entry: EntryBatch


class _Lane:
    """The entries that are on their way to one segment."""

    __slots__ = ("batcher", "closing", "sealed", "segment", "unanswered")

    def __init__(self, segment: Segment, limits: BatchLimits) -> None:
        self.segment = segment
        self.batcher = BucketBatcher(segment.layout, limits)
        self.unanswered: dict[int, EntryBatch] = {}
        self.closing = False  # it refused something, or a newer map says that it is sealed
        self.sealed = False  # the broker has refused an entry for it; a newer map names the successors


class SegmentProducer:
    """Routes messages to segments, batches them by bucket, and sends again what a seal refused.

    Order of keys is kept across splits, merges and rebucketings, and every message is confirmed in the end or still
    known here. If the outcome of an entry is unknown (a lost connection), the caller chooses: `refused` with
    ``sealed=False`` sends it again and may double it, `confirmed` may lose it.

    Calls return entries to send, in order. Each ``now_ms`` is in monotonic milliseconds, None for the instant of the
    last call; a `ClockError` if it goes back. Not thread-safe.

    Args:
        segments: The map to begin with.
        limits: When batches go out; None for the defaults.

    Complexity:
        O(log s + log b) a message, s active segments and b buckets. Of each sealed segment O(s * l) for the first
        refusal, l segments under way, and O(h log h + s * l) when its last answer is there, h messages held.

    Source:
        PIP-468 and PIP-486: a seal redirects producers; differs: says what is held until when.

    Example:
        >>> before = SegmentMap.equal_width()
        >>> producer = SegmentProducer(before, BatchLimits(max_messages=1))
        >>> [publish.segment for publish in producer.send(BatchMessage(0, "a"))]
        [0]
        >>> producer.update(before.split(0)), producer.send(BatchMessage(1, "b"))
        ([], [])
        >>> [(publish.segment, publish.entry.messages[0].item) for publish in producer.refused(0, 0)]
        [(1, 'a'), (1, 'b')]
    """

    __slots__ = ("_blocked", "_held", "_lanes", "_last", "_limits", "_now", "_segments", "_sent")

    def __init__(self, segments: SegmentMap, limits: BatchLimits | None = None) -> None:
        check_kind("segments", segments, SegmentMap)
        self._segments = segments
        self._limits = BatchLimits() if limits is None else check_kind("limits", limits, BatchLimits, ", or None")
        self._lanes: dict[int, _Lane] = {}
        self._held: list[BatchMessage] = []
        self._blocked: frozenset[int] = frozenset()
        self._last: int | None = None
        self._now = 0
        self._sent = BatchStats(0, 0, 0, 0, self._limits)  # by lanes that are no more

    def send(self, message: BatchMessage, *, now_ms: int | None = None) -> list[PublishEntry]:
        """Take the next message; its ``segment_hash`` chooses the segment.

        Nothing is returned if it waits in a batch, or is held by a rollover (see `held`). An error changes nothing.

        Raises:
            SequenceOrderError: Its sequence id is not above the one before.
        """
        check_message(message)
        target = self._segments.segment_at(message.segment_hash)
        if self._last is not None and message.sequence_id <= self._last:
            raise SequenceOrderError(message.sequence_id, self._last)
        self._now = checked_now(now_ms, self._now)
        self._last = message.sequence_id
        if target.id in self._blocked:
            self._held.append(message)
            return []
        return self._add(target, message)

    def flush(self) -> list[PublishEntry]:
        """Send what is open; what is held stays."""
        return [publish for lane in self._lanes.values() for publish in self._sending(lane, lane.batcher.flush())]

    def handle_timeout(self, *, now_ms: int | None = None) -> list[PublishEntry]:
        """Send what has waited long enough. Early and extra calls are free."""
        self._now = checked_now(now_ms, self._now)
        due = ((lane, lane.batcher.handle_timeout(now_ms=self._now)) for lane in self._lanes.values())
        return [publish for lane, entries in due for publish in self._sending(lane, entries)]

    def confirmed(self, segment: int, sequence_id: int) -> list[PublishEntry]:
        """Record that a broker has taken an entry; an answer that no entry waits for is ignored."""
        lane = self._lanes.get(segment)
        if lane is None or lane.unanswered.pop(sequence_id, None) is None:
            return []
        return self._settle(lane)

    def refused(self, segment: int, sequence_id: int, *, sealed: bool = True) -> list[PublishEntry]:
        """Record that a broker has refused an entry, because the segment is sealed, or did not take it otherwise.

        If it is not sealed (the connection broke), the entry goes out again without a newer map, to the same segment
        unless that is sealed by then. Entries that waited for this answer go out when all other answers are there, and
        of a sealed segment when the newer map is known.
        """
        check_bool("sealed", sealed)
        lane = self._lanes.get(segment)
        entry = lane.unanswered.pop(sequence_id, None) if lane is not None else None
        if lane is None or entry is None:
            return []
        lane.sealed |= sealed
        self._held += entry.messages
        if not lane.closing:
            self._close(lane)
            self._blocked = self._now_blocked()
        return self._settle(lane)

    def update(self, segments: SegmentMap) -> list[PublishEntry]:
        """Take a newer map; one that is not newer is ignored."""
        check_kind("segments", segments, SegmentMap)
        if not segments.supersedes(self._segments):
            return []
        self._segments = segments
        active = set(segments.active_ids)
        for lane in [lane for one, lane in self._lanes.items() if one not in active]:
            self._close(lane)
            self._forget_if_done(lane)
        return self._release()

    @property
    def segments(self) -> SegmentMap:
        """The newest map that was given."""
        return self._segments

    @property
    def held(self) -> int:
        """Messages that wait for a rollover to end. Stop producing while they are too many."""
        return len(self._held)

    @property
    def unanswered(self) -> tuple[PublishEntry, ...]:
        """Entries that are neither confirmed nor refused, segment by segment in the order in which they were given."""
        return tuple(
            PublishEntry(one, entry) for one, lane in self._lanes.items() for entry in lane.unanswered.values()
        )

    def next_deadline_ms(self) -> int | None:
        """Return when `handle_timeout` will send something; None if nothing waits. O(segments under way)."""
        due = (lane.batcher.next_deadline_ms() for lane in self._lanes.values())
        return min((each for each in due if each is not None), default=None)

    def stats(self) -> BatchStats:
        """Return the figures of all batches so far; what was refused and sent again counts each time."""
        total = self._sent
        for lane in self._lanes.values():
            total += lane.batcher.stats()
        return total

    def check_invariants(self) -> None:
        """Check what must hold between any two calls; an InvariantError is a bug in this library."""
        ids = [message.sequence_id for message in self._held]
        require(len(ids) == len(set(ids)), "what is held is held once")
        held = {self._segments.segment_at(message.segment_hash).id for message in self._held}
        require(held <= self._blocked, "only what is blocked is held")
        require(self._blocked == self._now_blocked(), "a segment is blocked while one it shares its range with closes")
        active = set(self._segments.active_ids)
        for one, lane in self._lanes.items():
            lane.batcher.check_invariants()
            require(not (lane.closing and len(lane.batcher)), f"nothing is open for segment {one}, which is closing")
            waits = bool(lane.unanswered)
            require(waits or lane.sealed or not lane.closing, f"segment {one} is closing for its answers only")
            require(one in active or (lane.closing and waits), f"sealed segment {one} is kept for its answers only")

    def _add(self, target: Segment, message: BatchMessage) -> list[PublishEntry]:
        lane = self._lanes.get(target.id)
        if lane is None:
            lane = self._lanes[target.id] = _Lane(target, self._limits)
        full = lane.batcher._put(message, now_ms=self._now)  # noqa: SLF001  # it was checked here
        return self._sending(lane, full)

    def _sending(self, lane: _Lane, entries: Iterable[EntryBatch]) -> list[PublishEntry]:
        publishes = [PublishEntry(lane.segment.id, entry) for entry in entries]
        lane.unanswered.update((publish.entry.sequence_id, publish.entry) for publish in publishes)
        return publishes

    def _close(self, lane: _Lane) -> None:
        lane.closing = True
        self._held += lane.batcher.take_open()

    def _settle(self, lane: _Lane) -> list[PublishEntry]:
        return self._release() if self._forget_if_done(lane) else []

    def _forget_if_done(self, lane: _Lane) -> bool:
        if not lane.closing or lane.unanswered or (lane.sealed and lane.segment.id in self._segments.active_ids):
            return False
        self._sent += lane.batcher.stats()
        del self._lanes[lane.segment.id]
        return True

    def _release(self) -> list[PublishEntry]:
        self._blocked = self._now_blocked()
        waiting, self._held = sorted(self._held, key=_SEQUENCE_ID), []
        publishes: list[PublishEntry] = []
        for message in waiting:
            target = self._segments.segment_at(message.segment_hash)
            if target.id in self._blocked:
                self._held.append(message)
            else:
                publishes += self._add(target, message)
        return publishes

    def _now_blocked(self) -> frozenset[int]:
        closing = [lane.segment.range for lane in self._lanes.values() if lane.closing]
        return frozenset(
            segment.id for segment in self._segments.active if any(_overlap(segment.range, each) for each in closing)
        )


def _overlap(first: HashRange, second: HashRange) -> bool:
    return first.start < second.stop and second.start < first.stop
