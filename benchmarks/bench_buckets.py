"""Entry buckets: boundaries for skewed keys, what a change of consumers moves, and how full batches are."""

from collections.abc import Sequence
from random import Random

from benchmarks._harness import Report, Scale, timed, turns

from keyshared.buckets import (
    HASH_STOP,
    BatchLimits,
    BatchMessage,
    BucketBatcher,
    BucketLayout,
    BucketPlacement,
    balanced_boundaries,
    bucket_loads,
    imbalance,
    key_halves,
    owner_loads,
)
from keyshared.hashing import XXH64_SEED_42

BUCKETS = 1024
KEYS = 100_000
CONSUMERS = 8
BOUNDARIES_MS = 1_000
NEAR = 1.1
ZIPF = (0.8, 1.0, 1.2)
CHANGES = (3, 4, 7, 9)
MESSAGES = 200_000
CONTAINER = 1_000
FILL_BUCKETS = (4, 16)
BATCHED_KEYS = (10, 1_000, 100_000)
GAIN_BOUND = 10.0


def zipf(keys: int, exponent: float) -> dict[int, int]:
    """Messages by slot if the i-th most frequent key has 1/i**exponent of the first one's; keys fall at random."""
    random = Random(486)
    histogram: dict[int, int] = {}
    for rank in range(1, keys + 1):
        slot = random.randrange(HASH_STOP)
        histogram[slot] = histogram.get(slot, 0) + round(1_000_000 / rank**exponent) + 1
    return histogram


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


def mean_batch(hashes: Sequence[int], buckets: int) -> float:
    limits = BatchLimits(max_messages=CONTAINER, max_bytes=1 << 40, max_delay_ms=None)
    batcher = BucketBatcher(BucketLayout.equal_width(buckets), limits)
    for number, entry_hash in enumerate(hashes):
        batcher.add(BatchMessage(number, None, 100, entry_hash))
    batcher.flush()
    return float(batcher.stats().mean_batch)


def fill(scale: Scale) -> Report:
    columns = ("by key", *(f"{buckets} buckets" for buckets in FILL_BUCKETS))
    report = Report("batch fill", columns, [f"messages of a batch, on average; containers of {CONTAINER}"])
    random = Random(486)
    for keys in BATCHED_KEYS:
        of_key = [key_halves(b"key-%d" % number, XXH64_SEED_42).bucket for number in range(keys)]
        picks = [random.randrange(keys) for _ in range(scale.size(MESSAGES))]
        containers = [set(picks[start : start + CONTAINER]) for start in range(0, len(picks), CONTAINER)]
        by_key = len(picks) / sum(map(len, containers))
        hashes = [of_key[pick] for pick in picks]
        report.add(f"{keys} keys", by_key, *(mean_batch(hashes, buckets) for buckets in FILL_BUCKETS))
    by_key, _, by_most = report.rows[-1].values
    report.judge(f"{FILL_BUCKETS[-1]} buckets / by key, {keys} keys", by_most / by_key, GAIN_BOUND, at_most=False)
    return report


def run(scale: Scale) -> list[Report]:
    return [boundaries(scale), movement(), fill(scale)]
