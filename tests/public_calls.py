"""Every public callable of the library, found by walking it, with arguments that are right.

A callable is called with what its parameters are usually called in this library (`BY_NAME`), unless something else
stands in `ARGUMENTS`; methods are called on a fresh object of `BUILD`.
"""

import enum
import importlib
import inspect
import pkgutil
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from tests.members import is_property, needs_no_object

import keyshared
from keyshared.buckets import (
    BatchLimits,
    BatchMessage,
    BatchStats,
    BucketBatcher,
    BucketCheckpoints,
    BucketLayout,
    BucketPlacement,
    EntryBatch,
)
from keyshared.config import DispatcherConfig, LookAhead, RetryPolicy, Rules
from keyshared.copyflags import BigEndian, CopyFlags, FlagsHeader
from keyshared.cursor import ContiguousCursor
from keyshared.dispatcher import KeySharedDispatcher
from keyshared.distribution import (
    DistributionTree,
    Distributor,
    Hop,
    Quiescence,
    RecordArrival,
    Replication,
    ReplicationReport,
    TreeChange,
)
from keyshared.draining import DrainingEntry, DrainingHashes, DrainingStats
from keyshared.draintracker import DrainTracker, PendingAcks
from keyshared.effects import CursorAdvanced, Deliver
from keyshared.glob import Glob, KeyFilter
from keyshared.hashing import KeyHash
from keyshared.journal import Command, Journal
from keyshared.leases import Lease, LeaseConfig, Leased, LeaseQueue, Reservation
from keyshared.offsets import (
    Bounds,
    GroupCommit,
    GroupPartition,
    GroupTimestamp,
    OffsetCommitter,
    OffsetDistributor,
    OffsetEnvelope,
    OffsetIndex,
    ProvenanceVector,
    TargetGroup,
)
from keyshared.placement import HashRange, Moved, RangeMap
from keyshared.placement.assigned import AssignedRanges, ExclusiveRanges
from keyshared.placement.autosplit import AutoSplit
from keyshared.ring import HashRing
from keyshared.router import KeyRouter
from keyshared.segments import (
    AutoScale,
    Rates,
    ScaleReason,
    SegmentLoad,
    SegmentMap,
    SegmentProducer,
    SegmentProgress,
    Split,
)
from keyshared.simulate import (
    Answer,
    Arrival,
    Event,
    FailFirst,
    Fixed,
    Group,
    PerMessage,
    Poisoned,
    Row,
    Scaled,
    SimulatedConsumer,
    Simulation,
    Tally,
)
from keyshared.subjects import (
    NamePattern,
    NameTranslation,
    Reference,
    Registration,
    RegistryView,
    SchemaDistribution,
    SchemaProposal,
)
from keyshared.window import InFlightWindow

__all__ = ["BUILD", "REFUSED", "Call", "public_calls", "public_modules"]

# What no user imports: parts of one public module, whose callers are checked already.
PRIVATE = frozenset(
    [
        "buckets.load_spread",
        "buckets.segment_cursors",
        "cursor.core",
        "cursor.token",
        "distribution.shape",
        "errors",
        "journal.commands",
        "journal.host",
        "journal.outcomes",
        "journal.sequences",
        "leases.answers",
        "leases.why_empty",
        "leases.table",
        "placement.ring_points",
        "run.actions",
        "run.assignment",
        "run.assignments",
        "run.runner",
        "run.engine",
        "run.handling",
        "run.loops",
        "run.memory",
        "run.schedule",
        "run.commits",
        "run.tasks",  # runners begin threads and tasks: tests/run asks them for their errors
        "run.threads",
        "run.workers",
        "segments.segment",
        "simulate.engine",
        "simulate.subscription",
    ]
)
# Of the runners: what is given to them, and what they give. They themselves start threads and tasks, so tests/run asks
# them; what is between them and the dispatcher takes only what they have made.
RUN = frozenset(["run.values"])
# Unchecked, as their docstrings say: they take what the window or a cursor itself has made, or what was checked before.
UNCHECKED = frozenset(
    [
        *("simulate.service.Sampled.duration_ms", "simulate.service.SampledAnswers.answer"),
        *(f"window.InFlightWindow.{name}" for name in ("move", "provide", "pull", "remove", "ripen", "settle")),
        *(
            "config.dispatcher.settings_from_json",
            "config.dispatcher.settings_to_json",
            "config.dispatcher.check_rules",
        ),
    ]
)

Make = Callable[[], Any]


class Call(NamedTuple):
    """One public callable, and how to call it."""

    name: str
    call: Callable[..., Any]
    build: Make | None
    """Makes the object whose method it is."""
    arguments: dict[str, Make | None]
    """By parameter; None for those that are left out, because they have a default."""
    positional: frozenset[str]


def segment_map() -> SegmentMap:
    return SegmentMap.equal_width(2, budget=4)


def pattern(suffixes: tuple[str, ...] = ()) -> NamePattern:
    return NamePattern("{topic}-{kind}", suffixes=suffixes)


def registry() -> RegistryView:
    return RegistryView([Registration("a-b-value", 1, 7, "{}")])


def tree() -> DistributionTree:
    return DistributionTree(["a", ["b", "c"]])


RULES = Rules(mark="v1", group_of=bytes.hex)


def dispatcher(rules: Rules | None = None) -> KeySharedDispatcher:
    """Something is in flight, something waits, somebody is away."""
    made = KeySharedDispatcher(HashRing(vnodes=3, slot_bits=4), DispatcherConfig(window=10, redrive=True), rules=rules)
    for name in ("ann", "bob"):
        made.add_consumer(name, limit=2, now_ms=0)
    made.offer_many([(offset, f"k{offset % 2}", None) for offset in (3, 5, 6)], now_ms=0)
    made.set_inactive("bob", now_ms=0)
    return made


def queue(rules: Rules | None = None) -> LeaseQueue:
    made = LeaseQueue(
        HashRing(vnodes=3, slot_bits=4), LeaseConfig(dispatcher=DispatcherConfig(redrive=True)), rules=rules
    )
    made.add_consumer("ann", now_ms=0)
    made.offer(1, "k", now_ms=0)
    made.offer(2, "l", now_ms=0)
    made.consume("ann", now_ms=0)
    made.reserve("ann", now_ms=0)
    return made


def window() -> InFlightWindow:
    made = InFlightWindow(HashRing(["ann"], vnodes=3), capacity=5)
    made.add("ann", limit=2)
    made.add("zoe", limit=2)
    for offset in (1, 2, 3):
        made.offer(offset, b"k", None)
    return made


def journal() -> Journal:
    made = Journal(HashRing(vnodes=3, slot_bits=4), rules=RULES)
    made.apply(Command(1, 0, "add_consumer", consumer="ann"))
    made.apply(Command(2, 0, "offer", offset=3, key="k"))
    return made


def tracker() -> DrainTracker:
    made = DrainTracker(RangeMap([(HashRange(0, 65536), "ann")]))
    made.add("ann", (1, 1), 7)
    return made


def draining_hashes() -> DrainingHashes:
    made = DrainingHashes()
    made.add("ann", 7)
    made.start_batch()
    return made


def pending() -> PendingAcks:
    made = PendingAcks()
    made.add((1, 1), 7, 2)
    return made


def index() -> OffsetIndex:
    made = OffsetIndex(4)
    for offset in range(10):
        made.append(offset, offset * 10)
    return made


def cursor() -> ContiguousCursor:
    made = ContiguousCursor(0)
    for offset in (1, 2, 3):
        made.offer(offset)
    made.settle(2)
    return made


def checkpoints() -> BucketCheckpoints:
    made = BucketCheckpoints()
    made.offer(0, 0, 1)
    return made


def progress() -> SegmentProgress:
    made = SegmentProgress(segment_map())
    made.offer(0, 1, 0, 0)
    return made


def producer() -> SegmentProducer:
    made = SegmentProducer(segment_map(), BatchLimits(max_messages=1))
    made.send(BatchMessage(1, size=3))
    return made


def batcher() -> BucketBatcher:
    made = BucketBatcher(BucketLayout.equal_width(4))
    made.add(BatchMessage(1, size=3), now_ms=0)
    return made


def change() -> TreeChange[DistributionTree]:
    return tree().propose_add("d", near="b")


def drain() -> Quiescence[DistributionTree]:
    made = Quiescence(tree().propose_remove("c"))
    made.observe(dict.fromkeys("abc", 0), dict.fromkeys(tree().hops(), 0))
    return made


def replication() -> Replication:
    made = Replication(("a", "b", "c"), tree().hops())
    made.produce("a")
    return made


def losing() -> TreeChange[DistributionTree]:
    return tree().propose_remove("c")


def _same_ring() -> HashRing:
    return HashRing(["ann", "bob"], vnodes=3, slot_bits=4)


def router() -> KeyRouter:
    made = KeyRouter(HashRing(vnodes=3, slot_bits=4))
    made.add_consumer("ann")
    return made


def asked(placement: Any) -> Any:
    """A placement draws its ranges when somebody asks for the first time; that is no change."""
    placement.owner("k")
    return placement


def tally() -> Tally:
    made = Tally()
    made.add(row())
    return made


def row() -> Row:
    return Row(0, 0, Event.OFFERED, offset=1, key=b"k")


def translation() -> NameTranslation:
    return NameTranslation(NamePattern("{topic}"), NamePattern("x-{topic}"))


def schemas() -> SchemaDistribution:
    here = NamePattern("{topic}").for_subjects()
    return SchemaDistribution("a", {"a": here, "b": NamePattern("x-{topic}").for_subjects()})


def simulation() -> Simulation:
    return Simulation(Group(consumers=[SimulatedConsumer("ann")]), [Arrival(1, "k", service_ms=1)])


def hash_of(data: bytes) -> int:
    return len(data)


# An object of each class whose methods and properties are public
BUILD: dict[str, Make] = {
    "placement.assigned.AssignedRanges": lambda: asked(AssignedRanges([(HashRange(0, 9), "ann")])),
    "segments.autoscale.Rates": Rates,
    "placement.autosplit.AutoSplit": lambda: asked(AutoSplit(["ann"])),
    "buckets.batcher.BatchStats": lambda: BatchStats(1, 1, 1, 1, BatchLimits()),
    "buckets.batcher.BucketBatcher": batcher,
    "buckets.batcher.EntryBatch": lambda: EntryBatch.of([BatchMessage(1)]),
    "buckets.layout.BucketLayout": lambda: BucketLayout.equal_width(4),
    "buckets.checkpoints.BucketCheckpoints": checkpoints,
    "config.dispatcher.DispatcherConfig": DispatcherConfig,
    "copyflags.BigEndian": BigEndian,
    "copyflags.CopyFlags": lambda: CopyFlags(5),
    "copyflags.FlagsHeader": FlagsHeader,
    "cursor.contiguous.ContiguousCursor": cursor,
    "dispatcher.KeySharedDispatcher": lambda: dispatcher(RULES),
    "distribution.tree.DistributionTree": tree,
    "distribution.distributor.Distributor": lambda: Distributor("a", 1, ["b"]),
    "distribution.distributor.Hop": lambda: Hop("a", 1, "b"),
    "draining.DrainingHashes": draining_hashes,
    "draining.DrainingStats": lambda: DrainingStats(1, 0, 1, (DrainingEntry(7, 1, 0),)),
    "draintracker.tracker.DrainTracker": tracker,
    "effects.Deliver": lambda: Deliver(3, b"k", "ann", 1, 0, None),
    "placement.assigned.ExclusiveRanges": lambda: asked(ExclusiveRanges({"ann": [(0, 9)]})),
    "glob.Glob": lambda: Glob("a?*"),
    "glob.KeyFilter": lambda: KeyFilter(["a?*"]),
    "hashing.KeyHash": lambda: KeyHash("length", 32, hash_of),
    "journal.journal.Journal": journal,
    "leases.config.LeaseConfig": LeaseConfig,
    "leases.queue.LeaseQueue": lambda: queue(RULES),
    "leases.lease.Lease": lambda: Lease(1, "ann", (Leased(1, b"k", None, 1),), 9),
    "leases.lease.Reservation": lambda: Reservation(1, "ann", (Leased(1, b"k", None, 1),), 9),
    "offsets.index.Bounds": lambda: Bounds(1, 1),
    "offsets.index.OffsetIndex": index,
    "offsets.translate.OffsetCommitter": OffsetCommitter,
    "offsets.translate.OffsetDistributor": OffsetDistributor,
    "draintracker.pending_acks.PendingAcks": pending,
    "segments.producer.SegmentProducer": producer,
    "offsets.provenance.ProvenanceVector": lambda: ProvenanceVector({"a": 3}),
    "distribution.change.TreeChange": change,
    "distribution.change.Quiescence": drain,
    "placement.range_map.HashRange": lambda: HashRange(0, 9),
    "placement.range_map.RangeMap": lambda: RangeMap([(HashRange(0, 9), "ann")]),
    "subjects.registry.Reference": lambda: Reference("n", "s", 1),
    "subjects.registry.Registration": lambda: Registration("a-b-value", 1, 7, "{}"),
    "subjects.registry.RegistryView": registry,
    "distribution.replication.Replication": replication,
    "distribution.arrivals.ReplicationReport": lambda: ReplicationReport(0, 0, (), (), (), (), 0),
    "config.limits.LookAhead": LookAhead,
    "config.retry.RetryPolicy": RetryPolicy,
    "ring.HashRing": lambda: asked(HashRing(["ann", "bob"], vnodes=3)),
    "segments.rollover.SegmentProgress": progress,
    "router.KeyRouter": router,
    "subjects.schemas.SchemaDistribution": schemas,
    "subjects.schemas.SchemaProposal": SchemaProposal,
    "segments.map.SegmentMap": segment_map,
    "simulate.service.FailFirst": lambda: FailFirst(1),
    "simulate.service.Fixed": lambda: Fixed(1),
    "simulate.service.PerMessage": lambda: PerMessage(1),
    "simulate.service.Poisoned": lambda: Poisoned(["k"]),
    "simulate.service.Scaled": lambda: Scaled(Fixed(1), 2),
    "simulate.simulation.SimulationState": lambda: _ended().state,
    "simulate.simulation.Simulation": simulation,
    "buckets.placement.BucketPlacement": lambda: BucketPlacement(BucketLayout.equal_width(4), ["ann"]),
    "subjects.names.NamePattern": pattern,
    "subjects.translation.NameTranslation": translation,
    "simulate.summary.Summary": lambda: tally().summary(),
    "simulate.summary.Tally": tally,
    "window.InFlightWindow": window,
}


def _ended() -> Simulation:
    made = simulation()
    list(made)
    return made


# What a parameter of this name usually takes
BY_NAME: dict[str, Make] = {
    "arrivals": lambda: [Arrival(1, "k")],
    "at": lambda: None,
    "at_ms": lambda: 3,
    "attempt": lambda: 1,
    "attempts": lambda: 1,
    "before": lambda: 4,
    "bits": lambda: 32,
    "bucket": lambda: 0,
    "bucket_hash": lambda: 0,
    "bucket_key": lambda: b"\0\0",
    "budget": lambda: 4,
    "capacity": lambda: 5,
    "change": change,
    "client_id": lambda: "p",
    "cluster": lambda: "b",
    "clusters": lambda: ["a", "b", "c"],
    "command": lambda: Command(3, 0, "offer", offset=9, key="k"),
    "commands": lambda: [Command(3, 0, "offer", offset=9, key="k")],
    "consumer": lambda: "ann",
    "consumers": lambda: ["ann"],
    "count": lambda: 1,
    "data": lambda: b"k",
    "dispatcher": dispatcher,
    "drained": list,
    "effect": lambda: CursorAdvanced(3),
    "entry": lambda: EntryBatch.of([BatchMessage(1)]),
    "entries": lambda: [EntryBatch.of([BatchMessage(1)])],
    "epoch": lambda: 1,
    "envelope": lambda: OffsetEnvelope(CopyFlags(1), 5, 1),
    "factor": lambda: 2,
    "failures": lambda: 1,
    "field": lambda: "topic",
    "filters": lambda: ["k*"],
    "first": lambda: 0,
    "flags": lambda: CopyFlags(1),
    "foreign": lambda: "x",
    "function": lambda: hash_of,
    "handles": lambda: [(1, 1)],
    "group": lambda: "g",
    "hash_": lambda: 7,
    "hash_max": lambda: 0,
    "hash_min": lambda: 0,
    "headers": lambda: [("Axual-Copy-Flags", b"1")],
    "here": registry,
    "there": RegistryView,
    "histogram": lambda: {1: 5, 40000: 7},
    "hop": lambda: tree().hops()[0],
    "hops": lambda: tree().hops(),
    "id": lambda: 7,
    "items": lambda: None,
    "key": lambda: "k",
    "key_hash": lambda: KeyHash("length", 32, hash_of),
    "lag_ms": lambda: 5,
    "last_processed_epoch_ms": lambda: 5,
    "layout": lambda: BucketLayout.equal_width(2),
    "lease_id": lambda: 1,
    "level": lambda: 1,
    "levels": lambda: 2,
    "limit": lambda: 3,
    "loads": lambda: [1, 2],
    "log": index,
    "log_ends": lambda: {"a": 1, "b": 1, "c": 1},
    "mark": lambda: "v1",
    "message": lambda: BatchMessage(2, size=3),
    "messages": lambda: 1,
    "model": lambda: Fixed(1),
    "most": lambda: 1,
    "moves": lambda: [Moved(0, 9, None, "ann")],
    "ms": lambda: 1,
    "n": lambda: 2,
    "name": lambda: "ann",
    "names": lambda: ["a", "b"],
    "near": lambda: "b",
    "nested": lambda: ["a", ["b", "c"]],
    "now_ms": lambda: 7,
    "number": lambda: 7,
    "offset": lambda: 5,
    "offsets": lambda: [1, 2],
    "older": segment_map,
    "origin": lambda: "a",
    "other": lambda: ProvenanceVector({"a": 3}),
    "own_ms": lambda: 5,
    "owner": lambda: "ann",
    "owners": lambda: RangeMap([(HashRange(0, 65536), "ann")]),
    "parameter": lambda: "name",
    "partition": lambda: 0,
    "pattern": lambda: "a?*",
    "piece": lambda: HashRange(3, 9),
    "placement": lambda: HashRing(vnodes=3, slot_bits=4),
    "policy": AutoScale,
    "position": lambda: (1, 1),
    "positions": dict,
    "primary": lambda: "a",
    "range_size": lambda: 65536,
    "ranges": lambda: [HashRange(0, 32768), HashRange(32768, 65536)],
    "rates": Rates,
    "raw": lambda: 7,
    "receipts": lambda: [(3, "ann", 1)],
    "records": lambda: [(1, "a", 1)],
    "remaining": lambda: 2,
    "reservation_id": lambda: 2,
    "rules": lambda: RULES,
    "samples": lambda: [1, 2],
    "schema": lambda: "{}",
    "second": lambda: 1,
    "seed": lambda: 0,
    "segment": lambda: 0,
    "segment_hash": lambda: 0,
    "segments": segment_map,
    "sequence_id": lambda: 1,
    "service": lambda: Fixed(1),
    "session": lambda: 1,
    "since_ms": lambda: 0,
    "slot": lambda: 5,
    "slot_bits": lambda: 16,
    "source": lambda: NamePattern("{topic}"),
    "target": lambda: "b",
    "splits": lambda: [0, 32768, 65535],
    "start": lambda: 0,
    "starts": lambda: [0, 9],
    "stop": lambda: 9,
    "stops": lambda: [65536],
    "subject": lambda: "a-b-value",
    "subjects": lambda: {"a": NamePattern("{topic}"), "b": NamePattern("x-{topic}")},
    "subscriptions": lambda: [progress()],
    "targets": lambda: ["b"],
    "text": lambda: "{topic}",
    "timestamp_epoch_ms": lambda: 95,
    "topic": lambda: "t",
    "tree": tree,
    "unprocessed_epoch_ms": lambda: [3],
    "until_ms": lambda: 9,
    "value": lambda: "v",
    "values": lambda: {"topic": "t", "kind": "k"},
    "version": lambda: 1,
    "weight": lambda: 1,
}

SEEN = RecordArrival(3, "b", "a", 1, CopyFlags(1), Hop("a", 1, "b"))
GROUP = Group(consumers=[SimulatedConsumer("ann")])
ARRIVALS = [Arrival(1, "k", service_ms=1)]
SENT = GroupTimestamp(GroupPartition("t", 0, "g"), 50, CopyFlags(1))

# Where a parameter takes something else than its name says
ARGUMENTS: dict[str, dict[str, Make]] = {
    "placement.assigned.AssignedRanges.add": {"name": lambda: "new"},
    "segments.autoscale.apply_decision": {"decision": lambda: Split(0, ScaleReason.MSG_IN)},
    "segments.autoscale.decide": {"loads": lambda: {0: SegmentLoad(Rates(), 0)}, "consumers": lambda: {"ann": 0}},
    "placement.autosplit.AutoSplit.add": {"name": lambda: "new"},
    "buckets.batcher.BatchStats": {"limits": BatchLimits},
    "buckets.batcher.EntryBatch": {"messages": lambda: (BatchMessage(1),)},
    "buckets.batcher.EntryBatch.of": {"messages": lambda: [BatchMessage(1)]},
    "buckets.boundaries.owner_loads": {"ranges": lambda: RangeMap([(HashRange(0, 9), "ann")])},
    "buckets.layout.BucketLayout.check_declared": {"declared": lambda: BucketLayout.equal_width(4)},
    "buckets.layout.BucketLayout.from_splits": {"splits": lambda: [9, 80]},
    "buckets.layout.BucketLayout.split": {"messages": lambda: [(5, "x")]},
    "buckets.checkpoints.BucketCheckpoints.forget": {"segment": lambda: 9},
    "buckets.checkpoints.BucketCheckpoints.restore": {"state": lambda: checkpoints().snapshot()},
    "config.dispatcher.DispatcherConfig.from_json": {"data": lambda: DispatcherConfig().to_json()},
    "cursor.contiguous.ContiguousCursor.from_token": {"text": lambda: cursor().to_token().text},
    "dispatcher.KeySharedDispatcher.add_consumer": {"name": lambda: "new"},
    "dispatcher.KeySharedDispatcher.offer": {"offset": lambda: 9},
    "dispatcher.KeySharedDispatcher.offer_many": {"messages": lambda: [(9, "k", None)]},
    "dispatcher.KeySharedDispatcher.redrive": {"letters": lambda: [(4, 1, None)]},
    "dispatcher.KeySharedDispatcher.restore": {
        "state": lambda: dispatcher(RULES).snapshot(),
        "placement": _same_ring,
        "config": lambda: DispatcherConfig(redrive=True),
        "rules": lambda: RULES,
    },
    "distribution.tree.DistributionTree.propose_add": {"cluster": lambda: "d"},
    "distribution.tree.DistributionTree.propose_move": {"target": lambda: "c"},
    "distribution.distributor.Distributor": {"targets": lambda: ["c"]},
    "draintracker.tracker.DrainTracker.add_consumer": {"consumer": lambda: "new"},
    "draintracker.tracker.DrainTracker.remove_consumer": {"owners": RangeMap},
    "placement.assigned.ExclusiveRanges.add": {"name": lambda: "new"},
    "placement.assigned.ExclusiveRanges.declare": {"name": lambda: "new", "ranges": lambda: [(10, 20)]},
    "hashing.key_hash_named": {"name": lambda: "danube32"},
    "leases.queue.LeaseQueue": {"placement": lambda: HashRing(vnodes=3)},
    "leases.queue.LeaseQueue.add_consumer": {"name": lambda: "new"},
    "leases.queue.LeaseQueue.offer": {"offset": lambda: 9},
    "leases.queue.LeaseQueue.redrive": {"letters": lambda: [(0, 1, None)]},
    "leases.queue.LeaseQueue.restore": {
        "state": lambda: queue(RULES).snapshot(),
        "placement": lambda: HashRing(["ann"], vnodes=3, slot_bits=4),
        "config": lambda: LeaseConfig(dispatcher=DispatcherConfig(redrive=True)),
        "rules": lambda: RULES,
    },
    "offsets.index.OffsetIndex.append": {"offset": lambda: 99},
    "offsets.translate.GroupCommit": {"position": lambda: GroupPartition("t", 0, "g")},
    "offsets.translate.GroupTimestamp": {"position": lambda: GroupPartition("t", 0, "g")},
    "offsets.translate.OffsetCommitter.propose": {"sent": lambda: SENT, "group": TargetGroup},
    "offsets.translate.OffsetDistributor.translate": {"commit": lambda: GroupCommit(GroupPartition("t", 0, "g"), 3)},
    "placement.protocol.find_consumer": {"consumers": lambda: {"ann": 1}},
    "offsets.provenance.ProvenanceVector.compact": {"earliest": lambda: {"a": 2}},
    "offsets.provenance.ProvenanceVector.find_uncovered": {"by_origin": lambda: {"a": OffsetIndex()}},
    "offsets.provenance.ProvenanceVector.from_json": {"data": lambda: ProvenanceVector({"a": 3}).to_json()},
    "distribution.change.Quiescence": {"change": losing},
    "distribution.change.Quiescence.observe": {"positions": lambda: dict.fromkeys(tree().hops(), 1)},
    "placement.range_map.HashRange.inclusive": {"last": lambda: 9},
    "placement.range_map.RangeMap.from_json": {"data": lambda: RangeMap([(HashRange(0, 9), "ann")]).to_json()},
    "placement.range_map.RangeMap.from_stops": {"owners": lambda: ["ann"]},
    "placement.range_map.RangeMap.moved": {"after": RangeMap},
    "distribution.arrivals.judge": {"arrivals": lambda: [SEEN]},
    "ring.HashRing.add": {"name": lambda: "new"},
    "config.limits.LookAhead.limit": {"consumers": lambda: 2},
    "config.limits.look_ahead_limit": {
        "consumers": lambda: 2,
        "per_consumer": lambda: 2,
        "per_subscription": lambda: 2,
    },
    "segments.rollover.SegmentProgress.restore": {"state": lambda: progress().snapshot()},
    "router.KeyRouter.add_consumer": {"name": lambda: "new"},
    "segments.map.SegmentMap": {"segments": lambda: segment_map().segments},
    "segments.map.SegmentMap.from_json": {"data": lambda: segment_map().to_json()},
    "segments.map.SegmentMap.rebucket": {"layout": lambda: BucketLayout.equal_width(3)},
    "segments.map.buckets_for_budget": {"segments": lambda: 2},
    "simulate.service.SampledAnswers": {"samples": lambda: [Answer.NACK]},
    "simulate.deliveries.simulated_deliveries": {"group": lambda: GROUP, "arrivals": lambda: ARRIVALS},
    "simulate.simulation.Simulation": {"group": lambda: GROUP, "arrivals": lambda: ARRIVALS},
    "simulate.simulation.summarize": {"group": lambda: GROUP, "arrivals": lambda: ARRIVALS},
    "buckets.placement.BucketPlacement.add": {"name": lambda: "new"},
    "buckets.placement.BucketPlacement.from_ranges": {
        "ranges": lambda: BucketPlacement(BucketLayout.equal_width(2), ["a"]).ranges
    },
    "subjects.names.NamePattern.from_brackets": {"text": lambda: "[tenant|environment]-topic"},
    "subjects.translation.NameTranslation": {"target": lambda: NamePattern("x-{topic}")},
    "simulate.summary.Tally.add": {"row": row},
    "simulate.summary.Tally.add_all": {"rows": lambda: [row()]},
    "window.InFlightWindow.add": {"name": lambda: "new", "limit": lambda: 2},
    "window.InFlightWindow.set_keyless": {"keyless": lambda: True},
    "window.InFlightWindow.discard": {"name": lambda: "zoe"},
    "window.InFlightWindow.offer": {"key": lambda: b"k"},
    "window.InFlightWindow": {"owners": lambda: HashRing(["ann"])},
}


class _Found(NamedTuple):
    name: str
    call: Callable[..., Any]
    owner: type | None


def public_modules() -> Iterator[tuple[str, Any]]:
    """Every module of the core that a user imports from."""
    for found in pkgutil.walk_packages(keyshared.__path__, "keyshared."):
        short = found.name.removeprefix("keyshared.")
        parts = short.split(".")
        if parts[0] in {"spark", "testing"} or short in PRIVATE or any(part.startswith("_") for part in parts):
            continue
        yield short, importlib.import_module(found.name)


def _found() -> Iterator[_Found]:
    for short, module in public_modules():
        if short.startswith("run.") and short not in RUN:
            continue
        for public in module.__all__:
            thing = getattr(module, public)
            if getattr(thing, "__module__", None) != module.__name__:
                continue
            name = f"{short}.{public}"
            if inspect.isroutine(thing) and name not in UNCHECKED:
                yield _Found(name, thing, None)
            elif (
                inspect.isclass(thing) and not issubclass(thing, enum.Enum | BaseException) and not _is_abstract(thing)
            ):
                yield _Found(name, thing, None)
                yield from (found for found in _members(name, thing) if found.name not in UNCHECKED)


def _is_abstract(thing: type) -> bool:
    return inspect.isabstract(thing) or bool(getattr(thing, "_is_protocol", False))


def _members(name: str, thing: type) -> Iterator[_Found]:
    for member in sorted(set(dir(thing)) - set(dir(tuple)) - set(dir(int))):
        kind = inspect.getattr_static(thing, member)
        if member.startswith("_"):
            continue
        if needs_no_object(kind):
            yield _Found(f"{name}.{member}", getattr(thing, member), None)
        elif inspect.isroutine(kind):
            yield _Found(f"{name}.{member}", kind, thing)
        elif is_property(kind):
            yield _Found(f"{name}.{member}", lambda self, member=member: getattr(self, member), thing)


# The arguments are right, and the object is in no state for them
REFUSED = frozenset(
    {
        "placement.assigned.ExclusiveRanges.add",
        "distribution.change.Quiescence.quiesced",
        "segments.map.SegmentMap.prune",
    }
)


def public_calls() -> Iterator[Call]:
    """Walk the library."""
    for name, call, owner in _found():
        own = ARGUMENTS.get(name, {})
        arguments: dict[str, Make | None] = {}
        positional = set()
        for parameter in _parameters(call)[1 if owner else 0 :]:
            if parameter.kind is parameter.VAR_KEYWORD:
                continue
            make = own.get(parameter.name)
            if make is None and parameter.default is parameter.empty:
                make = BY_NAME.get(parameter.name, lambda: None)
            arguments[parameter.name] = make
            if parameter.kind in {parameter.POSITIONAL_ONLY, parameter.VAR_POSITIONAL}:
                positional.add(parameter.name)
        yield Call(name, call, BUILD[name.rpartition(".")[0]] if owner else None, arguments, frozenset(positional))


def _parameters(call: Callable[..., Any]) -> list[inspect.Parameter]:
    if inspect.isfunction(call) and call.__name__ == "<lambda>":
        return []
    return list(inspect.signature(call).parameters.values())
