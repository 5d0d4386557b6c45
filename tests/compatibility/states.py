"""Everything else that is stored: how it is written, and how it is read."""

from collections.abc import Callable
from typing import Any, NamedTuple

from keyshared.buckets import BucketCheckpoints
from keyshared.config import DispatcherConfig, KeySessions, LookAhead, RetryPolicy
from keyshared.copyflags import BigEndian, CopyFlags
from keyshared.cursor import ContiguousCursor
from keyshared.offsets import OffsetEnvelope, ProvenanceVector, compose_metadata, parse_metadata
from keyshared.placement import RangeMap
from keyshared.ring import HashRing
from keyshared.segments import SegmentMap, SegmentProgress

__all__ = ["STATES"]


class State(NamedTuple):
    """A value, what is stored of it, and the value again: equal if it is stored as the same."""

    make: Callable[[], Any]
    write: Callable[[Any], Any]
    read: Callable[[Any], Any]


def _cursor() -> ContiguousCursor:
    cursor = ContiguousCursor()
    for offset in range(10, 40, 2):
        cursor.offer(offset)
    cursor.settle_many([10, 14, 16, 22, 38])
    return cursor


def _checkpoints() -> BucketCheckpoints:
    made = BucketCheckpoints()
    for offset in range(12):
        made.offer(3, offset % 3, offset)
    for offset in (0, 1, 4, 6, 9):
        made.settle(3, offset % 3, offset)
    return made


def _map() -> SegmentMap:
    return SegmentMap.equal_width(3).split(1).merge(0, 3)


def _progress() -> SegmentProgress:
    made = SegmentProgress(_map())
    made.offer(0, 7, 100, 200)
    made.offer(0, 9, 100, 20_000)
    made.reached_end(1)
    return made


def _ranges(consumers: list[str]) -> RangeMap:
    return HashRing(consumers, vnodes=4, slot_bits=6).ranges


STATES: dict[str, State] = {
    "cursor": State(_cursor, lambda cursor: cursor.to_token().text, ContiguousCursor.from_token),
    "cursor, short": State(_cursor, lambda cursor: cursor.to_token(24).text, ContiguousCursor.from_token),
    "bucket checkpoints": State(_checkpoints, BucketCheckpoints.snapshot, BucketCheckpoints.restore),
    "segments": State(_map, SegmentMap.to_json, SegmentMap.from_json),
    "progress in segments": State(
        _progress, SegmentProgress.snapshot, lambda state: SegmentProgress.restore(state, _map())
    ),
    "ranges": State(lambda: _ranges(["ann", "bob", "cy"]), RangeMap.to_json, RangeMap.from_json),
    "provenance": State(
        lambda: ProvenanceVector({"eu": 7, "us": 1 << 40}), ProvenanceVector.to_json, ProvenanceVector.from_json
    ),
    "copy flags": State(
        lambda: CopyFlags.of(1, 3, 17),
        lambda flags: BigEndian().encode(flags).hex(),
        lambda text: BigEndian().decode(bytes.fromhex(text)),
    ),
    "commit metadata": State(
        lambda: parse_metadata(_metadata()),
        lambda parsed: compose_metadata(parsed.foreign, parsed.envelope),
        parse_metadata,
    ),
    "config": State(
        lambda: DispatcherConfig(
            retry=RetryPolicy(base_delay_ms=7), sessions=KeySessions(linger_ms=9), look_ahead=LookAhead(per_consumer=3)
        ),
        DispatcherConfig.to_json,
        DispatcherConfig.from_json,
    ),
}


def _metadata() -> str:
    written = compose_metadata("stream time 5", OffsetEnvelope(CopyFlags.of(2), 1_700_000_000_000, 77))
    assert isinstance(written, str)
    return written
