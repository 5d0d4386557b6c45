"""What bucketing costs a producer against a batcher that is one list, and what batching by key would have cost.

The second table is the reason for entry buckets. With many keys a batch for each key holds hardly more than one
message, as if batching was off; a batch for each of N buckets holds an Nth of the container, whatever the keys.
"""

from collections.abc import Callable, Sequence
from random import Random

from benchmarks._harness import Report, Scale, Timed, timed, turns

from keyshared.buckets import BatchLimits, BatchMessage, BucketBatcher, BucketLayout, key_halves
from keyshared.hashing import XXH64_SEED_42

MESSAGES = 20_000
CONTAINER = 1_000
REPEATS = 11
BUCKETS = (1, 4, 64)
FILL_BUCKETS = (4, 16)
KEYS = (10, 1_000, 100_000)
COST_BOUND = 6.0
GAIN_BOUND = 10.0
SEED = 486


def drawn(messages: int, keys: int) -> list[BatchMessage]:
    """Messages with random keys, hashed before anything is timed."""
    random = Random(SEED)
    buckets = [key_halves(b"key-%d" % number, XXH64_SEED_42).bucket for number in range(keys)]
    picks = [random.randrange(keys) for _ in range(messages)]
    return [BatchMessage(number, pick, 100, buckets[pick]) for number, pick in enumerate(picks)]


class OneList:
    """The plainest batcher with the same limits: it checks nothing, stamps nothing, and knows no time."""

    __slots__ = ("batch", "bytes", "max_bytes", "max_messages")

    def __init__(self, max_messages: int, max_bytes: int) -> None:
        self.max_messages, self.max_bytes = max_messages, max_bytes
        self.batch: list[BatchMessage] = []
        self.bytes = 0

    def add(self, message: BatchMessage) -> tuple[BatchMessage, ...]:
        self.batch.append(message)
        self.bytes += message.size
        if len(self.batch) < self.max_messages and self.bytes < self.max_bytes:
            return ()
        full = tuple(self.batch)
        self.batch, self.bytes = [], 0
        return full


def one_list(messages: Sequence[BatchMessage]) -> Timed:
    def run() -> int:
        add = OneList(CONTAINER, 1 << 40).add
        for message in messages:
            add(message)
        return len(messages)

    return timed(run)


def bucketed(messages: Sequence[BatchMessage], buckets: int) -> Timed:
    layout, limits = BucketLayout.equal_width(buckets), BatchLimits(max_messages=CONTAINER, max_bytes=1 << 40)

    def run() -> int:
        add: Callable[..., object] = BucketBatcher(layout, limits).add
        for message in messages:
            add(message, now_ms=0)
        return len(messages)

    return timed(run)


def mean_by_key(messages: Sequence[BatchMessage]) -> float:
    """Return the messages of a batch if every key of a container had one."""
    containers = [messages[start : start + CONTAINER] for start in range(0, len(messages), CONTAINER)]
    return len(messages) / sum(len({message.item for message in each}) for each in containers)


def mean_by_bucket(messages: Sequence[BatchMessage], buckets: int) -> float:
    batcher = BucketBatcher(
        BucketLayout.equal_width(buckets), BatchLimits(max_messages=CONTAINER, max_bytes=1 << 40, max_delay_ms=None)
    )
    for message in messages:
        batcher.add(message)
    batcher.flush()
    return float(batcher.stats().mean_batch)


def cost(scale: Scale) -> Report:
    messages = drawn(scale.size(MESSAGES), 1_000)
    cases = {f"{buckets} buckets": bucketed(messages, buckets) for buckets in BUCKETS}
    found = turns({"one list": one_list(messages), **cases}, scale.repeats(REPEATS))
    report = Report("batcher", ("ns", "/one list"), [f"add and flush, per message; containers of {CONTAINER}"])
    for name, nanoseconds in found.items():
        report.add(name, nanoseconds, nanoseconds / found["one list"])
    report.judge("4 buckets / one list", found["4 buckets"] / found["one list"], COST_BOUND)
    return report


def fill(scale: Scale) -> Report:
    columns = ("by key", *(f"{buckets} buckets" for buckets in FILL_BUCKETS))
    report = Report("batch fill", columns, [f"messages of a batch, on average; containers of {CONTAINER}"])
    for keys in KEYS:
        messages = drawn(scale.size(10 * MESSAGES), keys)
        means = [mean_by_key(messages), *(mean_by_bucket(messages, buckets) for buckets in FILL_BUCKETS)]
        report.add(f"{keys} keys", *means)
    by_key, _, by_most = report.rows[-1].values
    report.judge(f"{FILL_BUCKETS[-1]} buckets / by key, {KEYS[-1]} keys", by_most / by_key, GAIN_BOUND, at_most=False)
    return report


def run(scale: Scale) -> list[Report]:
    return [cost(scale), fill(scale)]
