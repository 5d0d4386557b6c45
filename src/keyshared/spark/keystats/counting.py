"""Key statistics in plain Python: what `key_histogram` counts natively, for ``rdd.mapPartitions`` or without Spark."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from fractions import Fraction
from typing import Final, NamedTuple

from keyshared.buckets.boundaries import SlotLoad
from keyshared.buckets.layout import key_halves
from keyshared.errors import ArgumentError
from keyshared.hashing.named import XXH64_SEED_42, Key, KeyHash, key_bytes
from keyshared.placement.protocol import Placement
from keyshared.placement.ranges import RangeMap
from keyshared.spark.columns.slots import check_wide, ranges_of
from keyshared.spark.keystats.counts import SlotCount
from keyshared.spark.keystats.histogram import KeyHistogram

__all__ = ["KeyCount", "histogram_of", "histogram_partition"]

_LOADS: Final = frozenset({int, Fraction})


class KeyCount(NamedTuple):
    """What a key weighs in a part of a log.

    Attributes:
        slot: Its slot; None for messages without a key.
        key: The key; None for no key.
        messages: How many messages.
        weight: Their weight.
    """

    slot: int | None
    key: bytes | None
    messages: int
    weight: SlotLoad


def histogram_partition(
    rows: Iterable[tuple[Key | bytearray, SlotLoad]], *, slots: KeyHash | Placement | RangeMap = XXH64_SEED_42
) -> Iterator[KeyCount]:
    """Count the keys of one partition: the function for ``rdd.mapPartitions``, before `histogram_of`.

    Args:
        rows: Keys and what each message weighs.
        slots: As in `key_histogram`.

    Yields:
        One count for each different key, in the order of their first messages.

    Raises:
        ArgumentError: A hash of less than 32 bits, no placement, or a weight that is none.
        KeyTypeError: A key is no text and no bytes.

    Complexity:
        O(1) a row, and O(len(key)) for each different key; memory O(different keys).

    Example:
        >>> for count in histogram_partition([("a", 5), (None, 1), ("a", 2)]):
        ...     print(count.slot, count.key, count.messages, count.weight)
        65113 b'a' 2 7
        None None 1 1
    """
    number = _numbering(slots)
    counts: dict[bytes | None, tuple[int, SlotLoad]] = {}
    for key, weight in rows:
        if type(weight) not in _LOADS or weight < 0:
            raise ArgumentError("weight", weight, "be an int or a Fraction of at least 0")
        # what an RDD makes of binary depends on a setting
        plain = key_bytes(bytes(key) if isinstance(key, bytearray) else key)
        messages, total = counts.get(plain, (0, 0))
        counts[plain] = messages + 1, total + weight
    for plain, (messages, total) in counts.items():
        yield KeyCount(None if plain is None else number(plain), plain, messages, total)


def histogram_of(counts: Iterable[KeyCount]) -> KeyHistogram:
    """Put the counts of all partitions together.

    Args:
        counts: What `histogram_partition` gave for each partition, in any order.

    Returns:
        What `collect_histogram` gives.

    Complexity:
        O(different keys of each partition).

    Example:
        >>> parts = [[("a", 5), ("b", 1)], [("a", 2), (None, 3)]]
        >>> found = histogram_of(count for part in parts for count in histogram_partition(part))
        >>> found.slots[65113].hot_weight, found.keyless_weight
        (7, 3)
    """
    keys: dict[bytes | None, KeyCount] = {}
    for count in counts:
        before = keys.get(count.key, count._replace(messages=0, weight=0))
        keys[count.key] = count._replace(messages=before.messages + count.messages, weight=before.weight + count.weight)
    keyless = keys.pop(None, KeyCount(None, None, 0, 0))
    slots: defaultdict[int, list[KeyCount]] = defaultdict(list)
    for count in keys.values():
        if count.slot is not None:
            slots[count.slot].append(count)
    return KeyHistogram({slot: _together(slots[slot]) for slot in sorted(slots)}, keyless.messages, keyless.weight)


def _together(counts: Sequence[KeyCount]) -> SlotCount:
    _, key, messages, weight = min(counts, key=lambda count: (-count.weight, -count.messages, count.key))
    return SlotCount(
        messages=sum(count.messages for count in counts),
        weight=sum(count.weight for count in counts),
        keys=len(counts),
        hot_key=key or b"",
        hot_messages=messages,
        hot_weight=weight,
    )


def _numbering(slots: KeyHash | Placement | RangeMap) -> Callable[[bytes], int]:
    if not isinstance(slots, KeyHash):
        return ranges_of(slots).slot_of
    check_wide(slots)
    key_hash = slots
    return lambda key: key_halves(key, key_hash).bucket
