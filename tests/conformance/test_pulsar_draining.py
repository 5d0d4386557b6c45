"""What Pulsar's own draining classes answered, call by call, and the schedule that used to block a hash for ever."""

import json
from pathlib import Path
from typing import Any

import pytest

from keyshared.draining import DrainingHash, DrainingHashes
from keyshared.draintracker import DrainTracker, SendReceipt
from keyshared.errors import ArgumentError, MisuseError
from keyshared.placement import HashRange, RangeMap

RECORDED: dict[str, Any] = json.loads((Path(__file__).parent / "data" / "pulsar_draining.json").read_text("utf-8"))
COMES_HOME: dict[str, Any] = RECORDED["comes_home"]
FAULTS = {ArgumentError: "ValueError", MisuseError: "StateError"}
HASH = 100


def played(draining: DrainingHashes, name: str, arguments: list[Any]) -> tuple[object, list[int]]:
    """One operation of a trace: its outcome, and what it notified, as the trace writes them."""
    outcome: object = "ok"
    unblocked: list[int] = []
    if name == "start_batch":
        draining.start_batch()
    elif name == "end_batch":
        unblocked = [-1] if draining.end_batch() else []
    else:
        consumer, hash_, *closing = arguments
        try:
            if name == "add":
                draining.add(str(consumer), hash_)
            elif name == "should_block":
                outcome = draining.should_block(str(consumer), hash_)
            else:
                unblocked = draining.reduce(str(consumer), hash_, closing=closing[0])
        except (ArgumentError, MisuseError) as fault:
            outcome = FAULTS[type(fault)]
    return outcome, unblocked


def entries_of(draining: DrainingHashes) -> list[list[int]]:
    drains = [draining.entry(entry.hash) for entry in draining.stats().entries]
    return [[drain.hash, int(drain.holder), drain.unacked, drain.refused] for drain in drains if drain is not None]


@pytest.mark.parametrize("trace", RECORDED["traces"], ids=lambda trace: f"seed {trace['seed']}")
def test_every_call_answers_what_pulsar_answered(trace: dict[str, Any]) -> None:
    draining = DrainingHashes()
    for name, *arguments, outcome, notified, entries in trace["operations"]:
        assert (outcome, notified) == played(draining, name, arguments), (name, arguments)
        assert entries == entries_of(draining), (name, arguments)
        draining.check_invariants()
    found = [draining.stats(str(consumer)) for consumer in range(len(trace["stats"]))]
    assert trace["stats"] == [[stats.hashes, stats.cleared_total] for stats in found]


def owned_by(consumer: str) -> RangeMap:
    """Everything that matters here belongs to one consumer."""
    return RangeMap([(HashRange(0, 65536), consumer)])


def references(tracker: DrainTracker) -> int:
    return tracker.stats().unacked


def test_a_hash_that_came_home_and_moves_again_is_not_blocked_for_ever() -> None:
    tracker = DrainTracker(owned_by("A"))
    receipts = [tracker.add("A", (0, entry), HASH) for entry in (0, 1)]
    counted: list[int] = []
    notified: list[int] = []

    tracker.add_consumer("B", owned_by("B"))
    counted.append(references(tracker))
    tracker.refusal("B", HASH)
    notified += tracker.remove_consumer("B", owned_by("A")).unblocked
    counted.append(references(tracker))
    tracker.add_consumer("C", owned_by("C"))
    counted.append(references(tracker))
    tracker.refusal("C", HASH)
    for receipt in receipts:
        assert isinstance(receipt, SendReceipt)
        notified += tracker.ack(*receipt).unblocked
    counted.append(references(tracker))

    assert COMES_HOME["references"] == counted
    assert COMES_HOME["notifications"] == notified
    assert isinstance(tracker.add("C", (0, 2), HASH), SendReceipt)


@pytest.mark.parametrize("cancels", [True, False])
def test_whoever_does_not_cancel_on_the_way_home_counts_twice(*, cancels: bool) -> None:
    draining = DrainingHashes()
    counted = []

    def count() -> None:
        drain = draining.entry(HASH)
        counted.append(0 if drain is None else drain.unacked)

    draining.add("A", HASH, 2)
    count()
    if cancels:
        draining.reduce("A", HASH, 2)
    count()
    draining.add("A", HASH, 2)
    count()
    draining.reduce("A", HASH, 2)
    count()

    assert COMES_HOME["references" if cancels else "references_without_cancelling"] == counted
    stuck = COMES_HOME["stuck_without_cancelling"] and not cancels
    assert stuck == draining.should_block("C", HASH)


def test_an_owner_that_takes_its_blocked_hash_back_ends_the_drain_without_a_word() -> None:
    draining = DrainingHashes()
    draining.add("A", 7)
    draining.add("A", 7)
    assert draining.should_block("B", 7)
    assert not draining.should_block("A", 7)
    assert 7 not in draining
    assert [] == draining.reduce("A", 7)


# Faults that the recorded calls have to find


class BatchesTellAtOnce(DrainingHashes):
    """A hash is told within the batch, and again at its end."""

    def reduce(
        self, consumer: str, hash_: int, count: int = 1, *, of: DrainingHash | None = None, closing: bool = False
    ) -> list[int]:
        before = set(self._batched)
        told = super().reduce(consumer, hash_, count, of=of, closing=closing)
        return told or [hash_ for hash_ in self._batched if hash_ not in before]


class EveryBatchEndTells(DrainingHashes):
    """The end of an inner batch tells already."""

    def end_batch(self) -> list[int]:
        level, self._batch_level = self._batch_level, 1
        told = super().end_batch()
        self._batch_level = level - 1
        return told


class TakingBackChangesNothing(DrainingHashes):
    """The owner that takes its hash back is let through, but the drain goes on."""

    def should_block(self, consumer: str, hash_: int) -> bool:
        drain = self.entry(hash_)
        return super().should_block(consumer, hash_) if drain is None or drain.holder != consumer else False


@pytest.mark.parametrize("broken", [BatchesTellAtOnce, EveryBatchEndTells, TakingBackChangesNothing])
def test_the_recorded_calls_find_a_fault(broken: type[DrainingHashes]) -> None:
    assert any(not agrees(broken(), trace["operations"]) for trace in RECORDED["traces"])


def agrees(draining: DrainingHashes, operations: list[list[Any]]) -> bool:
    """Whether every call answers what was recorded."""
    return all(
        (outcome, notified) == played(draining, name, arguments) and entries == entries_of(draining)
        for name, *arguments, outcome, notified, entries in operations
    )
