"""Draining: what a join costs while much is pending, what a message costs while much drains, and bytes per hash."""

import gc
import tracemalloc
from collections.abc import Callable
from time import process_time_ns

from benchmarks._harness import Report, Scale, Timed, turns

from keyshared.draining import DrainingHashes
from keyshared.draintracker import DrainTracker
from keyshared.placement import RangeMap
from keyshared.ring import HashRing

CONSUMERS = 10
SLOTS = 1 << 16
PENDING = (10_000, 100_000)
HASHES = 10_000  # that anything is pending of: the same, so that the same ones move
DRAINING = (0, 1_000, 60_000)
CYCLES = 20_000
REPEATS = 7
JOIN_MS_BOUND = 2.0
FLAT_BOUND = 1.5
BYTES_BOUND = 150.0


def names() -> list[str]:
    return [f"consumer-{number}" for number in range(CONSUMERS)]


def spread(count: int) -> list[int]:
    """Return so many different hashes, all over the space: an odd step visits every slot."""
    return [number * 40_503 % SLOTS for number in range(count)]


def joins(pending: int, hashes: int) -> Timed:
    """Add a consumer while so many entries of so many hashes are pending; then it leaves, untimed."""
    ring = HashRing(names())
    before = ring.ranges
    ring.add("newcomer")
    after = ring.ranges
    tracker = DrainTracker(before)
    many = spread(hashes)
    for entry in range(pending):
        hash_ = many[entry % hashes]
        tracker.add(tracker.owner(hash_) or "", (0, entry), hash_)

    def once() -> tuple[int, int]:
        started = process_time_ns()
        tracker.add_consumer("newcomer", after)
        spent = process_time_ns() - started
        tracker.remove_consumer("newcomer", before)
        return spent, 1

    return once


def drained(count: int) -> DrainTracker:
    """Return a tracker in which so many hashes drain, one entry each; the rest belongs to a consumer that may go on."""
    tracker = DrainTracker(RangeMap.from_stops([SLOTS], ["old"]))
    for hash_ in range(count):
        tracker.add("old", (0, hash_), hash_)
    tracker.add_consumer("new", RangeMap.from_stops([SLOTS], ["new"]))
    return tracker


def tracker_cycles(count: int, cycles: int) -> Timed:
    """Ask for a hash that may go out, enter an entry of it, ack that."""
    tracker = drained(count)
    hash_ = SLOTS - 1

    def once() -> tuple[int, int]:
        refusal, add, ack = tracker.refusal, tracker.add, tracker.ack
        started = process_time_ns()
        for entry in range(cycles):
            refusal("new", hash_)
            add("new", (1, entry), hash_)
            ack("new", (1, entry))
        return process_time_ns() - started, cycles

    return once


def counter_cycles(count: int, cycles: int) -> Timed:
    """Start the drain of one more hash, refuse it to a consumer, end the drain."""
    draining = DrainingHashes()
    for hash_ in range(1, count + 1):
        draining.add("old", hash_)
    hash_ = SLOTS - 1

    def once() -> tuple[int, int]:
        add, should_block, reduce = draining.add, draining.should_block, draining.reduce
        started = process_time_ns()
        for _ in range(cycles):
            add("old", hash_)
            should_block("new", hash_)
            reduce("old", hash_)
        return process_time_ns() - started, cycles

    return once


def kept_bytes(act: Callable[[], object]) -> int:
    """Return what a call has allocated and kept."""
    gc.collect()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        kept = act()
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    del kept
    return after - before


def bytes_of_counts(count: int) -> float:
    def act() -> DrainingHashes:
        draining = DrainingHashes()
        for hash_ in range(1_000, 1_000 + count):  # small ints are shared, not allocated
            draining.add("old", hash_)
        return draining

    return kept_bytes(act) / count


def bytes_of_drains(count: int) -> float:
    """Measure what a move leaves behind, beyond what the pending entries need anyway."""
    tracker = DrainTracker(RangeMap.from_stops([SLOTS], ["old"]), drain_timeout_ms=1_000)
    for hash_ in range(count):
        tracker.add("old", (0, hash_), hash_)
    moved = RangeMap.from_stops([SLOTS], ["new"])
    return kept_bytes(lambda: tracker.add_consumer("new", moved)) / count


def join_report(scale: Scale) -> Report:
    counts = [scale.size(count) for count in PENDING]
    hashes = scale.size(HASHES)
    cases = {(f"{hashes:,} hashes pending", count): joins(count, hashes) for count in counts}
    cases["every hash pending", counts[-1]] = joins(counts[-1], min(counts[-1], SLOTS))
    found = turns(cases, scale.repeats(REPEATS))
    notes = [f"{CONSUMERS} consumers on a ring of 100 points each, one more joins; N entries pending"]
    report = Report("draining: joins, ms", ("ms",), notes)
    for (name, count), nanoseconds in found.items():
        report.add(f"{name}, N = {count:,}", nanoseconds / 1e6)
    few, many = (found[f"{hashes:,} hashes pending", count] for count in counts)
    report.judge(f"a join, N = {counts[-1]:,}", many / 1e6, JOIN_MS_BOUND)
    report.judge(f"N = {counts[-1]:,} / N = {counts[0]:,}, the same hashes", many / few, FLAT_BOUND)
    return report


def cycle_report(scale: Scale) -> Report:
    counts = [scale.size(count) for count in DRAINING]
    cycles = scale.size(CYCLES)
    cases = {("tracker: ask, add, ack", count): tracker_cycles(count, cycles) for count in counts}
    cases |= {("counts: add, should_block, reduce", count): counter_cycles(count, cycles) for count in counts}
    found = turns(cases, scale.repeats(REPEATS))
    report = Report("draining: us per message", tuple(f"D = {count:,}" for count in counts), ["D hashes draining"])
    for name in dict.fromkeys(name for name, _ in found):
        report.add(name, *(found[name, count] / 1e3 for count in counts))
        worst = max(found[name, count] for count in counts) / found[name, 0]
        report.judge(f"{name}, worst / D = 0", worst, FLAT_BOUND)
    return report


def memory_report(scale: Scale) -> Report:
    counts = [scale.size(count) for count in DRAINING[1:]]
    columns = tuple(f"D = {count:,}" for count in counts)
    report = Report("draining: bytes per hash", columns, ["by tracemalloc; of a tracker, beyond its pending entries"])
    for name, measure in (("counts", bytes_of_counts), ("tracker", bytes_of_drains)):
        measure(counts[0])  # code that runs for the first time keeps what it allocates
        kept = [measure(count) for count in counts]
        report.add(name, *kept)
        report.judge(f"{name}, D = {counts[-1]:,}", kept[-1], BYTES_BOUND)
    return report


def run(scale: Scale) -> list[Report]:
    return [join_report(scale), cycle_report(scale), memory_report(scale)]
