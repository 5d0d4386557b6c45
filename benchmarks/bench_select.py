"""Who owns a hash: the same bisection for every placement, against a plain one in the same run."""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from itertools import pairwise
from random import Random

from benchmarks._harness import Report, Scale, repeated, turns

from keyshared.placement import HashRange, Placement
from keyshared.placement.assigned import AssignedRanges, ExclusiveRanges
from keyshared.placement.autosplit import AutoSplit
from keyshared.ring import HashRing

CONSUMERS = (1, 10, 100)
SLOTS = 65_536
LOOKUPS = 20_000
REPEATS = 11
PLAIN_BOUND = 3.0


def even(count: int) -> list[tuple[HashRange, str]]:
    """As many ranges as consumers, about equally wide."""
    edges = [number * SLOTS // count for number in range(count + 1)]
    return [(HashRange(start, stop), f"c{i}") for i, (start, stop) in enumerate(pairwise(edges))]


def placements(count: int) -> dict[str, Placement]:
    names = [f"c{number}" for number in range(count)]
    return {
        "HashRing": HashRing(names),
        "HashRing.pulsar": HashRing.pulsar(names),
        "AutoSplit": AutoSplit(names),
        "AutoSplit.pulsar": AutoSplit.pulsar(names),
        "ExclusiveRanges": ExclusiveRanges({name: [piece] for piece, name in even(count)}),
        "AssignedRanges": AssignedRanges(even(count)),
        "AssignedRanges over a ring": AssignedRanges(even(count)[::2], fallback=HashRing(names)),
    }


def plain(placement: Placement) -> Callable[[int], str]:
    """The code that one would write without a library: two lists of the same runs, and no check of anything."""
    runs = list(placement.ranges.runs)
    lasts, owners = [stop - 1 for _, stop, _ in runs], [owner or "" for _, _, owner in runs]
    return lambda slot: owners[bisect_left(lasts, slot)]


def slots(scale: Scale) -> Sequence[int]:
    drawn = Random(5)  # the same slots in every run
    return [drawn.randrange(SLOTS) for _ in range(scale.size(LOOKUPS))]


def run(scale: Scale) -> list[Report]:
    report = Report("select", ("ns", "runs", "this/plain"), ["owner(slot) of the value, against bisect on two lists"])
    wanted = slots(scale)
    for count in CONSUMERS:
        built = placements(count)
        cases = {name: repeated(placement.ranges.owner, wanted) for name, placement in built.items()}
        bare = {f"plain {name}": repeated(plain(placement), wanted) for name, placement in built.items()}
        found = turns({**cases, **bare}, scale.repeats(REPEATS))
        ratios = {name: found[name] / found[f"plain {name}"] for name in built}
        for name, placement in built.items():
            report.add(f"{name}, {count}", found[name], len(list(placement.ranges.runs)), ratios[name])
        report.judge(f"slowest placement / plain bisect, {count} consumers", max(ratios.values()), PLAIN_BOUND)
    return [report]
