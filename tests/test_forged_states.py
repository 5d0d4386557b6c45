"""Stored states with one part changed: refused, or what comes of them is sound and says the same."""

from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any, NamedTuple

import pytest
from tests.public_calls import checkpoints, dispatcher, progress, queue, segment_map

from keyshared.buckets import BucketCheckpoints
from keyshared.config import DispatcherConfig
from keyshared.dispatcher import KeySharedDispatcher
from keyshared.errors import ConfigError, SnapshotError
from keyshared.leases import LeaseQueue
from keyshared.offsets import ProvenanceVector
from keyshared.ranges import HashRange, RangeMap
from keyshared.ring import HashRing
from keyshared.segments import SegmentMap, SegmentProgress

NUMBERS = (-1, 0, 1, 5, 2**63, 2**64, 2**256, 0.5, float("nan"))
ODD: tuple[object, ...] = (None, True, False, *NUMBERS, "", "odd", "\ud800", [], [None], {}, {"a": 1})
# Read on purpose as something else
REREAD = {
    "leases": ("dispatcher",),  # judged by itself; the queue has its dispatcher report and act at once
    "progress": ("cursors", 0, 0),  # a segment that the map does not know was pruned
}


class Stored(NamedTuple):
    """Something with a state, and how to go there and back."""

    state: Callable[[], Any]
    restore: Callable[[Any], Any]
    write: Callable[[Any], Any]


def ring() -> HashRing:
    return HashRing(vnodes=3, slot_bits=4)


STORED = {
    "dispatcher": Stored(
        lambda: dispatcher().snapshot(),
        lambda state: KeySharedDispatcher.restore(state, ring(), DispatcherConfig(window=10), now_ms=0),
        lambda made: made.snapshot(),
    ),
    "leases": Stored(
        lambda: queue().snapshot(),
        lambda state: LeaseQueue.restore(state, ring(), now_ms=0),
        lambda made: made.snapshot(),
    ),
    "config": Stored(DispatcherConfig().to_json, DispatcherConfig.from_json, DispatcherConfig.to_json),
    "ranges": Stored(RangeMap([(HashRange(0, 9), "ann")]).to_json, RangeMap.from_json, RangeMap.to_json),
    "segments": Stored(segment_map().to_json, SegmentMap.from_json, SegmentMap.to_json),
    "checkpoints": Stored(lambda: checkpoints().snapshot(), BucketCheckpoints.restore, lambda made: made.snapshot()),
    "progress": Stored(
        lambda: progress().snapshot(),
        lambda state: SegmentProgress.restore(state, segment_map()),
        lambda made: made.snapshot(),
    ),
    "provenance": Stored(ProvenanceVector({"a": 3}).to_json, ProvenanceVector.from_json, ProvenanceVector.to_json),
}


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place in plain data."""
    if path:
        yield path
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, part in parts:
        yield from places(part, (*path, name))


def changed(state: Any, path: tuple[Any, ...], value: object) -> Any:
    forged = deepcopy(state)
    inner = forged
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = value
    return forged


def same(state: object, other: object) -> bool:
    """Equal, with types: 1 is neither True nor 1.0 to who reads it elsewhere."""
    return repr(state) == repr(other)


def verdict(stored: Stored, forged: Any) -> str | None:
    try:
        made = stored.restore(forged)
    except ConfigError:
        return None
    except Exception as error:  # noqa: BLE001 - what comes out is the question
        return f"raises {type(error).__name__}: {error}"
    if hasattr(made, "check_invariants"):
        made.check_invariants()
    return None if same(forged, stored.write(made)) else "is taken for something else"


@pytest.mark.parametrize("name", sorted(STORED))
def test_a_state_that_was_changed_is_refused_or_is_a_state(name: str) -> None:
    stored = STORED[name]
    state = stored.state()

    assert None is verdict(stored, state)
    assert [] == [
        f"{path} = {value!r} {problem}"
        for path in places(state)
        if path[: len(REREAD.get(name, path))] != REREAD.get(name)
        for value in ODD
        if (problem := verdict(stored, changed(state, path, value))) is not None
    ]


def test_an_active_consumer_has_no_deadline_of_absence() -> None:
    state = dispatcher().snapshot()

    with pytest.raises(SnapshotError, match=r"consumers\[0\].remaining_ms is 5; it must be None for an active"):
        STORED["dispatcher"].restore(changed(state, ("consumers", 0, "remaining_ms"), 5))


@pytest.mark.parametrize("before", [None, 1, 2])
def test_a_message_follows_the_one_before_it(before: int | None) -> None:
    with pytest.raises(SnapshotError, match=r"messages\[1\]\[1\] is .*; it must be 3, the offset before it"):
        STORED["dispatcher"].restore(changed(dispatcher().snapshot(), ("messages", 1, 1), before))


def test_a_segment_whose_tokens_have_a_position_has_one_itself() -> None:
    made = progress()
    made.settle(0, 0, 1)

    with pytest.raises(SnapshotError, match="resume is None; it must be an offset for segment 0"):
        STORED["progress"].restore(changed(made.snapshot(), ("cursors", 0, 1), None))


def test_a_line_of_a_queue_without_one_is_refused() -> None:
    with pytest.raises(SnapshotError, match="line is 'ann'; it must be None without ordering_required"):
        STORED["leases"].restore(changed(queue().snapshot(), ("line",), "ann"))
