"""Entry buckets: finding one, placing boundaries on skewed keys, and what a change of consumers moves."""

from bisect import bisect_right
from collections.abc import Callable
from itertools import starmap
from random import Random

from benchmarks._harness import Report, Scale, repeated, timed, turns

from keyshared.buckets import (
    HASH_STOP,
    BucketLayout,
    BucketPlacement,
    balanced_boundaries,
    bucket_loads,
    imbalance,
    owner_loads,
)

BUCKETS = 1024
LOOKUPS = 50_000
REPEATS = 11
KEYS = 100_000
CONSUMERS = 8
LOOKUP_BOUND = 5.0  # the check of the argument, and a call of Python
BOUNDARIES_MS = 1_000
NEAR = 1.1
ZIPF = (0.8, 1.0, 1.2)
CHANGES = (3, 4, 7, 9)


def zipf(keys: int, exponent: float) -> dict[int, int]:
    """Messages by slot if the i-th most frequent key has 1/i**exponent of the first one's; keys fall at random."""
    random = Random(486)
    histogram: dict[int, int] = {}
    for rank in range(1, keys + 1):
        slot = random.randrange(HASH_STOP)
        histogram[slot] = histogram.get(slot, 0) + round(1_000_000 / rank**exponent) + 1
    return histogram


def lookups(scale: Scale) -> Report:
    layout = BucketLayout.equal_width(BUCKETS)
    splits = layout.splits
    random = Random(1)
    hashes = [random.randrange(HASH_STOP) for _ in range(scale.size(LOOKUPS))]
    narrow = [(entry_hash, entry_hash | 7) for entry_hash in hashes]  # the buckets are 64 wide
    wide = [(entry_hash // 2, HASH_STOP - 1) for entry_hash in hashes]

    def routed(stamps: list[tuple[int, int]]) -> Callable[[], int]:
        def run() -> int:
            return sum(1 for _ in starmap(layout.route, stamps))

        return run

    found = turns(
        {
            "plain bisect": repeated(lambda entry_hash: bisect_right(splits, entry_hash), hashes),
            "bucket_of": repeated(layout.bucket_of, hashes),
            "route, one bucket": timed(routed(narrow)),
            "route, straddling": timed(routed(wide)),
        },
        scale.repeats(REPEATS),
    )
    report = Report("bucket lookup", ("ns", "this/bisect"), [f"{BUCKETS} buckets"])
    for name, nanoseconds in found.items():
        report.add(name, nanoseconds, nanoseconds / found["plain bisect"])
    for name in ("bucket_of", "route, one bucket"):
        report.judge(f"{name} / plain bisect", found[name] / found["plain bisect"], LOOKUP_BOUND)
    return report


def boundaries(scale: Scale) -> Report:
    columns = ("hottest slot", "equal width", "placed", "equal, by load", "placed, by load", "placing, ms")
    notes = [
        f"{KEYS} keys, Zipf; max/mean load of {CONSUMERS} consumers that own as many buckets, or buckets by load",
        "no placement is below the hottest slot, nor below 1",
    ]
    report = Report("boundaries from key statistics", columns, notes)
    slowest = 0.0
    for exponent in ZIPF:
        histogram = zipf(scale.size(KEYS), exponent)
        for n in (64, BUCKETS):
            layout = balanced_boundaries(histogram, n)
            milliseconds = _milliseconds(histogram, n, scale)
            slowest = max(slowest, milliseconds)
            hottest = CONSUMERS * max(histogram.values()) / sum(histogram.values())
            layouts = (BucketLayout.equal_width(n), layout)
            uneven = [_unevenness(histogram, one, by_load=by_load) for by_load in (False, True) for one in layouts]
            report.add(f"exponent {exponent}, {n} buckets", hottest, *uneven, milliseconds)
            least = max(1.0, hottest)
            report.judge(f"exponent {exponent}, {n} buckets, placed by load / bound", uneven[-1] / least, NEAR)
    report.judge("slowest, ms", slowest, BOUNDARIES_MS)
    return report


def _milliseconds(histogram: dict[int, int], n: int, scale: Scale) -> float:
    def run() -> int:
        balanced_boundaries(histogram, n)
        return 1

    return turns({n: timed(run)}, scale.repeats(5))[n] / 1e6


def _unevenness(histogram: dict[int, int], layout: BucketLayout, *, by_load: bool) -> float:
    names = [str(i) for i in range(CONSUMERS)]
    loads = bucket_loads(histogram, layout)
    placement = BucketPlacement.by_load(layout, loads, names) if by_load else BucketPlacement(layout, names)
    return float(imbalance(owner_loads(histogram, placement.ranges).values()))


def heaviest_bucket(scale: Scale) -> Report:
    columns = ("equal width", "placed", "heaviest slot")
    report = Report("heaviest bucket", columns, [f"{KEYS} keys, Zipf; in mean loads of a bucket, 64 buckets"])
    for exponent in ZIPF:
        histogram = zipf(scale.size(KEYS), exponent)
        layouts = (BucketLayout.equal_width(64), balanced_boundaries(histogram, 64))
        loads = [float(imbalance(bucket_loads(histogram, layout))) for layout in layouts]
        report.add(f"exponent {exponent}", *loads, max(histogram.values()) * 64 / sum(histogram.values()))
    return report


def movement() -> Report:
    columns = ("this", "published min", "published max")
    notes = [f"{BUCKETS} buckets; the published spread depends on where the newcomer's name sorts"]
    report = Report("buckets that a join moves", columns, notes)
    layout = BucketLayout.equal_width(BUCKETS)
    for consumers in CHANGES:
        names = [f"c{i}" for i in range(consumers + 1)]
        ours = moved(BucketPlacement(layout, names[:-1]), names[-1])
        theirs = [moved(BucketPlacement.pulsar(layout, [n for n in names if n != new]), new) for new in names]
        report.add(f"{consumers} -> {consumers + 1} consumers", ours, min(theirs), max(theirs))
        report.judge(f"{consumers} -> {consumers + 1}, moves beyond the least", ours - BUCKETS // (consumers + 1), 0)
    return report


def moved(placement: BucketPlacement, new: str) -> int:
    before = [placement.owner(bucket) for bucket in range(BUCKETS)]
    placement.add(new)
    return sum(placement.owner(bucket) != old for bucket, old in enumerate(before))


def run(scale: Scale) -> list[Report]:
    return [lookups(scale), boundaries(scale), heaviest_bucket(scale), movement()]
