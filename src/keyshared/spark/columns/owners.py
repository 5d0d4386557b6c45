"""Who owns a key, as a Spark expression.

A placement is an immutable `RangeMap`, and its default hash is Spark's own ``xxhash64``, so the owner of a key is a
table look-up that Catalyst compiles: no row passes through Python. With any other hash the slot is computed in an Arrow
function (`keyshared.spark.columns.slots`), and the look-up is the same. The table goes into the plan as constants:

- *directory*: the top bits of the slot (16 at most) give the run in which that part of the space begins;
- *starts*: in finer maps runs begin inside a part, and as many comparisons as the most crowded part has starts find the
  right run; up to 16 bits there are none, and the directory alone leads to the owner;
- *names*: owners are numbers until the last step, because an array of 65,536 texts is slower than one of numbers.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark user knows

from keyshared.errors import ArgumentError
from keyshared.placement.protocol import Placement
from keyshared.placement.ranges import RangeMap
from keyshared.spark.columns.slots import ranges_of, slot
from keyshared.spark.frames.checks import check_key, check_new
from keyshared.spark.frames.tables import constant

__all__ = ["owner", "owner_number", "owner_of_slot", "with_owner"]

# 65,536 numbers: 130 kB of plan, and a ring of 10,000 runs has about one start in each part
_DIRECTORY_BITS: Final = 16
_MAX_CROWD: Final = 64  # each is one more comparison for every row


def with_owner(df: DataFrame, placement: Placement | RangeMap, *, key: str = "key", into: str = "owner") -> DataFrame:
    """Add a column with the owner of each row's key.

    The owner is the one that ``placement.ranges.owner_of(key)`` gives in Python, for every key. A row without a key
    (NULL) has no owner, and neither has a key whose slot lies in a hole: both get NULL.

    Args:
        df: Any frame, batch or streaming.
        placement: A `RangeMap`, or anything that builds one. What it says now is what counts, later changes of it do
            not. For a `BucketPlacement` and keys of messages use `with_bucket_owner`.
        key: Name of the key column, string or binary. A field of a struct is written as usual, ``"event.key"``.
        into: Name of the new column.

    Returns:
        The frame with the column ``into`` (string) added.

    Raises:
        ArgumentError: No such column, or one of another type (cast it first: ``xxhash64`` of a number is not the hash
            of its text); ``into`` is taken; or the placement cannot be expressed, see `owner`. No job was started.

    Complexity:
        O(len(key)) a row. With `XXH64_SEED_42`, the default of every placement, in the same compiled stage as the
        reading of the key; with any other hash the keys pass through Python.

    Example:
        >>> halves = RangeMap.from_stops([32768, 65536], ["a", "b"])
        >>> with_owner(spark.createDataFrame([("order-1",)], ["key"]), halves).collect()
        [Row(key='order-1', owner='b')]
    """
    check_key(df, key)
    check_new(df, into)
    return df.withColumn(into, owner(F.col(key), placement))


def owner(key: Column, placement: Placement | RangeMap) -> Column:
    """Return the owner of a key as a column expression, for ``select``, ``filter`` or ``groupBy``.

    Args:
        key: String or binary column. Its type is not known here: any other type fails when the job runs; `with_owner`
            knows the frame and says so before.
        placement: A `RangeMap`, or anything that builds one. What it says now is what counts, later changes of it do
            not. For a `BucketPlacement` and keys of messages use `with_bucket_owner`.

    Returns:
        A string column called ``owner``: NULL for a NULL key, and for a key in a hole.

    Raises:
        ArgumentError: Not a placement, or more than 64 of its runs start within one 65,536th of the space.

    Complexity:
        O(len(key)) a row. The constants take 130 kB of the plan, and 10 to 20 bytes for each run of maps finer than
        16 bits: do not print the plan.

    Example:
        >>> halves = RangeMap.from_stops([32768, 65536], ["a", "b"])
        >>> df = spark.createDataFrame([("order-1",), ("order-2",), (None,)], "key string")
        >>> df.filter(owner(F.col("key"), halves) == "b").collect()
        [Row(key='order-1')]
    """
    ranges = ranges_of(placement)
    return owner_of_slot(slot(key, ranges), ranges).alias("owner")


def owner_of_slot(slots: Column, ranges: RangeMap) -> Column:
    """Return the owner of a slot as a column expression.

    Args:
        slots: Whole numbers in the space of the map, or NULL.
        ranges: Who owns which slot.

    Returns:
        A string column: NULL for NULL, and in a hole.

    Raises:
        ArgumentError: More than 64 runs start within one 65,536th of the space.

    Complexity:
        O(1) a row.
    """
    return F.get(constant(ranges.owners, "array<string>"), owner_number(slots, ranges))


def owner_number(slots: Column, ranges: RangeMap) -> Column:
    """Return the position of a slot's owner in ``ranges.owners`` as a column expression.

    Args:
        slots: Whole numbers in the space of the map, or NULL.
        ranges: Who owns which slot.

    Returns:
        An int column: NULL for NULL, and in a hole.

    Raises:
        ArgumentError: More than 64 runs start within one 65,536th of the space.

    Complexity:
        O(1) a row.
    """
    number = {name: index for index, name in enumerate(ranges.owners)}
    starts = [start for start, _, _ in ranges.runs]
    owners = [None if name is None else number[name] for _, _, name in ranges.runs]
    part_bits = max(ranges.slot_bits - _DIRECTORY_BITS, 0)
    directory = _directory(starts, part_bits, ranges.slot_bits)
    part = F.shiftright(slots, part_bits).cast("int")
    if part_bits == 0:
        return F.get(constant([owners[run] for run in directory], "array<int>"), part)
    crowd = max(following - first for first, following in pairwise((*directory, len(starts) - 1)))
    if crowd > _MAX_CROWD:
        requirement = (
            f"have at most {_MAX_CROWD} runs starting within one {1 << _DIRECTORY_BITS}th of the space to be looked up "
            "by Spark; build it with slot_bits=16"
        )
        raise ArgumentError("placement", f"so crowded that {crowd} start in one", requirement)
    run = F.get(constant(directory, "array<int>"), part)
    # beyond the last run: starts that no slot reaches, so that every comparison has an answer
    table = constant([*starts, *[1 << ranges.slot_bits] * crowd], "array<bigint>")
    near = F.slice(table, run + 2, crowd)
    passed = [(F.get(near, step) <= slots).cast("int") for step in range(crowd)]
    return F.get(constant(owners, "array<int>"), sum(passed, run))


def _directory(starts: Sequence[int], part_bits: int, slot_bits: int) -> list[int]:
    """Return for each part of the space the run that holds its first slot."""
    directory = []
    run = 0
    for first in range(0, 1 << slot_bits, 1 << part_bits):
        while run + 1 < len(starts) and starts[run + 1] <= first:
            run += 1
        directory.append(run)
    return directory
