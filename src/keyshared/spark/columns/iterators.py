"""What the native columns say, as plain iterators: for ``rdd.mapPartitions``, within a UDF, or without Spark.

A row is anything that has its key by position or by name: a tuple, a ``Row`` of Spark, a dictionary. Rows are read
lazily, and each comes out once, in its place, with the answer beside it. Nothing is kept from row to row.
"""

from collections.abc import Callable, Iterable, Iterator
from operator import itemgetter
from typing import Any, TypeVar

from keyshared.buckets.layout import BucketLayout, key_halves
from keyshared.copyflags import CopyFlags
from keyshared.distribution.distributor import Copy
from keyshared.distribution.tree import DistributionTree
from keyshared.hashing.named import XXH64_SEED_42, KeyHash
from keyshared.placement.protocol import Placement
from keyshared.placement.ranges import RangeMap
from keyshared.spark.columns.buckets import bucket_ranges_of, check_layout
from keyshared.spark.columns.slots import check_wide, ranges_of

__all__ = ["bucket_owner_partition", "bucket_partition", "copies_partition", "owner_partition", "slot_partition"]

_R = TypeVar("_R")
_A = TypeVar("_A")


def slot_partition(
    rows: Iterable[_R], placement: Placement | RangeMap, *, key: int | str = "key"
) -> Iterator[tuple[_R, int | None]]:
    """Yield each row with the slot of its key, as `with_slot` does.

    Args:
        rows: Rows of one partition.
        placement: A `RangeMap`, or anything that builds one.
        key: Where a row has its key (text, bytes, or None for no key): a name or a position.

    Returns:
        Each row and its slot, in order; None where there is no key.

    Raises:
        ArgumentError: Not a placement. While iterating, `KeyTypeError`: a key that is no text and no bytes.

    Complexity:
        O(len(key)) a row.

    Example:
        >>> list(slot_partition([("order-1", 7)], RangeMap(), key=0))
        [(('order-1', 7), 34068)]
    """
    return _answered(rows, key, ranges_of(placement).slot_of)


def owner_partition(
    rows: Iterable[_R], placement: Placement | RangeMap, *, key: int | str = "key"
) -> Iterator[tuple[_R, str | None]]:
    """Yield each row with the owner of its key, as `with_owner` does.

    Args:
        rows: Rows of one partition.
        placement: A `RangeMap`, or anything that builds one. For keys of messages and a `BucketPlacement` use
            `bucket_owner_partition`.
        key: Where a row has its key: a name or a position.

    Returns:
        Each row and the owner, in order; None where there is no key, and in a hole.

    Raises:
        ArgumentError: Not a placement. While iterating, `KeyTypeError`: a key that is no text and no bytes.

    Complexity:
        O(len(key) + log(runs)) a row.

    Example:
        >>> halves = RangeMap.from_stops([32768, 65536], ["a", "b"])
        >>> list(owner_partition([{"key": "order-1"}, {"key": None}], halves))
        [({'key': 'order-1'}, 'b'), ({'key': None}, None)]
    """
    return _answered(rows, key, ranges_of(placement).owner_of)


def bucket_partition(
    rows: Iterable[_R], layout: BucketLayout, *, key: int | str = "key", key_hash: KeyHash = XXH64_SEED_42
) -> Iterator[tuple[_R, int | None]]:
    """Yield each row with the bucket of its key, as `with_bucket` does.

    Args:
        rows: Rows of one partition.
        layout: The buckets.
        key: Where a row has its key: a name or a position.
        key_hash: Any hash of at least 32 bits.

    Returns:
        Each row and its bucket, in order; None where there is no key.

    Raises:
        ArgumentError: The layout or the hash is none. While iterating, `KeyTypeError`: a key that is no text and no
            bytes.
        MissingExtraError: The hash needs a package that is not installed.

    Complexity:
        O(len(key) + log(buckets)) a row.

    Example:
        >>> list(bucket_partition([("order-1",)], BucketLayout.equal_width(4), key=0))
        [(('order-1',), 3)]
    """
    check_layout(layout)
    check_wide(key_hash)
    return _answered(rows, key, lambda found: layout.bucket_of(key_halves(found, key_hash).bucket))


def bucket_owner_partition(
    rows: Iterable[_R],
    placement: Placement | RangeMap,
    *,
    key: int | str = "key",
    key_hash: KeyHash = XXH64_SEED_42,
) -> Iterator[tuple[_R, str | None]]:
    """Yield each row with the owner of its key's bucket, as `with_bucket_owner` does.

    Args:
        rows: Rows of one partition.
        placement: A `BucketPlacement` over `BUCKET_HASH`, its default, or its ranges.
        key: Where a row has its key: a name or a position.
        key_hash: Any hash of at least 32 bits.

    Returns:
        Each row and the owner, in order; None where there is no key, and for a bucket without owner.

    Raises:
        ArgumentError: No placement of buckets, or the hash is none. While iterating, `KeyTypeError`: a key that is no
            text and no bytes.
        MissingExtraError: The hash needs a package that is not installed.

    Complexity:
        O(len(key) + log(runs)) a row.

    Example:
        >>> from keyshared.buckets import BucketPlacement
        >>> placement = BucketPlacement(BucketLayout.equal_width(4), ["ann", "bob"])
        >>> list(bucket_owner_partition([("order-1",)], placement, key=0))
        [(('order-1',), 'bob')]
    """
    ranges = bucket_ranges_of(placement)
    check_wide(key_hash)
    return _answered(rows, key, lambda found: ranges.owner(key_halves(found, key_hash).bucket))


def copies_partition(
    rows: Iterable[_R], tree: DistributionTree, cluster: str, *, flags: int | str = "flags"
) -> Iterator[tuple[_R, tuple[Copy, ...]]]:
    """Yield each row with the copies that a cluster's distributors have to make, as `with_copy_due` does for numbers.

    Args:
        rows: Rows of one partition.
        tree: The distribution.
        cluster: Whose distributors decide.
        flags: Where a row has its flags, a whole number or None for none: a name or a position.

    Returns:
        Each row and its copies, in order: the highest level first, none if nothing is due.

    Raises:
        ArgumentError: The cluster is not in the tree. While iterating: flags that are none.

    Complexity:
        O(links of the cluster) a row.

    Example:
        >>> tree = DistributionTree({1: ["c1", "c2"]})
        >>> for (flags,), copies in copies_partition([(0,), (1,)], tree, "c1", flags=0):
        ...     print(flags, [copy.target for copy in copies])
        0 ['c2']
        1 []
    """
    tree.copies(cluster, CopyFlags(0))  # says what is wrong with the cluster
    field = _field(flags)
    return ((row, tree.copies(cluster, CopyFlags(field(row) or 0))) for row in rows)


def _answered(
    rows: Iterable[_R], key: int | str, answer: Callable[[str | bytes], _A]
) -> Iterator[tuple[_R, _A | None]]:
    field = _field(key)
    for row in rows:
        found = field(row)
        if isinstance(found, bytearray):  # what an RDD makes of binary depends on a setting
            found = bytes(found)
        yield row, None if found is None else answer(found)


def _field(place: int | str) -> Callable[[Any], Any]:
    return itemgetter(place)
