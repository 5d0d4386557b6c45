"""What a join costs a broker that tracks pending acks, while many of them are pending."""

from time import process_time_ns

from benchmarks._harness import Report, Scale, Timed, turns

from keyshared.draintracker import DrainTracker
from keyshared.ring import HashRing

CONSUMERS = 10
SLOTS = 1 << 16
PENDING = (10_000, 100_000)
HASHES = 10_000  # that anything is pending of: the same, so that the same ones move
REPEATS = 7
JOIN_MS_BOUND = 2.0
FLAT_BOUND = 1.5


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


def run(scale: Scale) -> list[Report]:
    counts, hashes = [scale.size(count) for count in PENDING], scale.size(HASHES)
    found = turns({count: joins(count, hashes) for count in counts}, scale.repeats(REPEATS))
    notes = [
        f"{CONSUMERS} consumers on a ring of 100 points each, one more joins; N entries of {hashes:,} hashes pending"
    ]
    report = Report("draining: joins, ms", ("ms",), notes)
    for count, nanoseconds in found.items():
        report.add(f"N = {count:,}", nanoseconds / 1e6)
    few, many = (found[count] for count in counts)
    report.judge(f"a join, N = {counts[-1]:,}", many / 1e6, JOIN_MS_BOUND)
    report.judge(f"N = {counts[-1]:,} / N = {counts[0]:,}, the same hashes", many / few, FLAT_BOUND)
    return [report]
