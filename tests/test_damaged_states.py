"""Stored states that were cut or damaged: each is refused by a typed error, and a whole one comes back as it was.

What else a snapshot of the dispatcher refuses is in `tests/dispatcher/test_rule_13_snapshot.py`. That a *forged* state
is refused is not promised: whoever can forge one can send messages too.
"""

import json
import zlib
from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any, NamedTuple

import pytest
from tests.public_calls import checkpoints, dispatcher, journal, progress, queue, segment_map

from keyshared.buckets import BucketCheckpoints
from keyshared.config import Rules
from keyshared.cursor import ContiguousCursor
from keyshared.dispatcher import KeySharedDispatcher
from keyshared.errors import ArgumentError, SnapshotError
from keyshared.journal import Journal
from keyshared.leases import LeaseConfig, LeaseQueue
from keyshared.offsets import ProvenanceVector
from keyshared.placement import HashRange, RangeMap
from keyshared.ring import HashRing
from keyshared.segments import SegmentMap, SegmentProgress


class Stored(NamedTuple):
    """Something with a state, and how to go there and back."""

    state: Callable[[], Any]
    restore: Callable[[Any], Any]
    write: Callable[[Any], Any]


def ring() -> HashRing:
    return HashRing(vnodes=3, slot_bits=4)


def read_journal(data: bytes) -> Journal:
    return Journal.from_bytes(data, ring(), rules=Rules(mark="v1", group_of=bytes.hex))


STORED = {
    "dispatcher": Stored(
        lambda: dispatcher().snapshot(),
        lambda state: KeySharedDispatcher.restore(state, ring(), dispatcher().config, now_ms=0),
        lambda made: made.snapshot(),
    ),
    "leases": Stored(
        lambda: queue().snapshot(),
        lambda state: LeaseQueue.restore(state, ring(), LeaseConfig(dispatcher=queue().config.dispatcher), now_ms=0),
        lambda made: made.snapshot(),
    ),
    "journal": Stored(
        lambda: json.loads(zlib.decompress(journal().to_bytes())),
        lambda state: read_journal(zlib.compress(json.dumps(state).encode())),
        lambda made: json.loads(zlib.decompress(made.to_bytes())),
    ),
    "ranges": Stored(RangeMap([(HashRange(0, 9), "ann")]).to_json, RangeMap.from_json, RangeMap.to_json),
    "segments": Stored(segment_map().to_json, SegmentMap.from_json, SegmentMap.to_json),
    "checkpoints": Stored(lambda: checkpoints().snapshot(), BucketCheckpoints.restore, BucketCheckpoints.snapshot),
    "progress": Stored(
        lambda: progress().snapshot(),
        lambda state: SegmentProgress.restore(state, segment_map()),
        SegmentProgress.snapshot,
    ),
    "provenance": Stored(ProvenanceVector({"a": 3}).to_json, ProvenanceVector.from_json, ProvenanceVector.to_json),
}
every_state = pytest.mark.parametrize("name", STORED)


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place in plain data."""
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, part in parts:
        yield (*path, name)
        yield from places(part, (*path, name))


def damaged(state: Any, path: tuple[Any, ...]) -> Iterator[Any]:
    """The state without a field, and with a value of another type in its place."""
    for is_lost in (True, False):
        copy = deepcopy(state)
        *way, last = path
        part = copy
        for step in way:
            part = part[step]
        if not is_lost:
            part[last] = {"damaged": 1} if not isinstance(part[last], dict) else "damaged"
            yield copy
        elif isinstance(part, dict) and "positions" not in way:  # a map from names, of which one less is a state
            del part[last]
            yield copy


@every_state
def test_a_whole_state_comes_back_as_it_was(name: str) -> None:
    stored = STORED[name]
    state = stored.state()

    assert state == stored.write(stored.restore(state))


def turned_round(value: Any) -> Any:
    """The same data with the fields of every object in the opposite order."""
    if isinstance(value, list):
        return [turned_round(each) for each in value]
    return {name: turned_round(value[name]) for name in [*value][::-1]} if isinstance(value, dict) else value


@every_state
def test_the_order_of_fields_means_nothing(name: str) -> None:
    stored = STORED[name]
    state = stored.state()

    assert state == stored.write(stored.restore(turned_round(state)))


@pytest.mark.no_cover
@every_state
def test_a_state_with_one_part_lost_or_of_another_type_is_refused(name: str) -> None:
    stored = STORED[name]
    state = stored.state()

    taken = []
    for path in places(state):
        for broken in damaged(state, path):
            try:
                stored.restore(broken)
            except ArgumentError:
                continue
            taken.append((path, broken))
    assert [] == taken
    assert state == stored.state(), "reading changes nothing"


def test_a_token_that_was_cut_or_has_another_letter_is_refused() -> None:
    cursor = ContiguousCursor(0)
    for offset in range(1, 30):
        cursor.offer(offset)
    cursor.settle_many([12, 13, 25])
    text = cursor.to_token().text

    for place, letter in enumerate(text):
        for wrong in (text[:place], text[:place] + ("A" if letter != "A" else "B") + text[place + 1 :]):
            with pytest.raises(SnapshotError):
                ContiguousCursor.from_token(wrong)


def test_a_journal_that_was_cut_is_refused() -> None:
    data = journal().to_bytes()

    for length in range(len(data)):
        with pytest.raises(SnapshotError):
            read_journal(data[:length])
