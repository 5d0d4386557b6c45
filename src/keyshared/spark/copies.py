"""Which copies a record needs, as native Spark expressions: the rule of the copy flags for every row of a log.

Flags come as a number, up to 63 levels, or as the bytes of the header, up to `keyshared.copyflags.MAX_LEVEL`. Numbers
take the rule as it is written: ``flags & mask == 0``, then ``flags | bit``. Spark has no bit operations on binary, and
needs none: a distributor is due if its level lies below the lowest flag that is set. The hexadecimal digits show that
flag, because each trailing zero counts four levels. Setting a bit changes one digit.
"""

from collections.abc import Callable
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark user knows

from keyshared._checks import check_kind, check_text
from keyshared.copyflags import COPY_FLAGS_HEADER, MAX_LEVEL, BigEndian, CopyFlags
from keyshared.distribution.distributor import Hop
from keyshared.distribution.tree import DistributionTree
from keyshared.errors import ArgumentError
from keyshared.spark.columns import as_column

__all__ = ["copies_due", "flags_header"]

_LONG_LEVELS: Final = 63  # the sign is no level
_DIGITS: Final = "0123456789ABCDEF"
_LOWEST_BIT: Final = "010201030102010"  # of 1 to F
_NOTHING: Final = "array<struct<level: int, target: string, flags: {}>>"


def copies_due(
    tree: DistributionTree, cluster: str, flags: Column | str = "flags", *, codec: BigEndian | None = None
) -> Column:
    """Return the copies that the distributors of a cluster have to make of each record; ``explode`` makes them rows.

    The copies are those of ``tree.copies(cluster, flags)``, for every value of the flags.

    Args:
        tree: The distribution.
        cluster: The cluster whose distributors decide.
        flags: Flags of the record, or the name of the column; NULL counts as 0, a record without the header.
        codec: None if the flags are int or long; for a binary column, how its bytes encode them.

    Returns:
        A column called ``copies``, ``array<struct<level: int, target: string, flags>>``: the highest level first,
        empty if nothing is due. ``flags`` are those of the copy, long or binary. The job fails on a row whose flags
        are invalid: negative, or bytes that the codec refuses.

    Raises:
        ArgumentError: The cluster is not in the tree; the codec is another one than `BigEndian`; or a level of the
            cluster does not fit into 63 bits, or into the codec's width.

    Complexity:
        O(links of the cluster) a row, in the same compiled stage as the reading of the flags.

    Example:
        >>> tree = DistributionTree({3: [{1: ["c1", "c2"]}, {1: ["c3", "c4"]}]})
        >>> records = spark.createDataFrame([(None,)], "flags int")
        >>> records.select(F.explode(copies_due(tree, "c3")).alias("copy")).select("copy.*").collect()
        [Row(level=3, target='c1', flags=4), Row(level=1, target='c4', flags=1)]
    """
    check_kind("tree", tree, DistributionTree)
    hops = [hop for distributor in tree.distributors(cluster) for hop in distributor.hops]
    highest = max((hop.level for hop in hops), default=0)
    given = as_column(flags)
    if codec is None:
        if highest > _LONG_LEVELS:
            requirement = f"be at most {_LONG_LEVELS} where flags are numbers; keep them as binary"
            raise ArgumentError(f"level of {cluster!r}", highest, requirement)
        copy, kind = _of_numbers(given), "bigint"
    else:
        if not isinstance(codec, BigEndian):
            raise ArgumentError("codec", codec, "be BigEndian(); decode other bytes into a column of numbers first")
        if codec.width is not None and highest > 8 * codec.width:
            raise ArgumentError(f"level of {cluster!r}", highest, f"fit into the codec's {codec.width} bytes")
        copy, kind = _of_bytes(given, codec), "binary"
    made = F.array_compact(F.array(*map(copy, hops))) if hops else F.array()
    return made.cast(_NOTHING.format(kind)).alias("copies")


def flags_header(headers: Column | str = "headers", name: str = COPY_FLAGS_HEADER) -> Column:
    """Return the flags from a record's headers as Spark's Kafka source provides them (``includeHeaders``).

    Args:
        headers: ``array<struct<key: string, value: binary>>``, or the name of the column.
        name: Name of the header. Case counts, as in Kafka.

    Returns:
        A binary column called ``flags``: the last header of the name, as in `FlagsHeader.read`; NULL if there is none.
        The job fails on a header without a value.

    Raises:
        ArgumentError: The name is no non-empty str.

    Example:
        >>> df = spark.sql("select array(named_struct('key', 'Axual-Copy-Flags', 'value', X'04')) as headers")
        >>> df.select(F.hex(flags_header()).alias("flags")).collect()
        [Row(flags='04')]
    """
    check_text("name", name)
    last = F.try_element_at(F.filter(as_column(headers), lambda header: header["key"] == name), F.lit(-1))
    empty = last.isNotNull() & last["value"].isNull()
    return F.when(empty, _refused("a header without a value")).otherwise(last["value"]).alias("flags")


def _of_numbers(flags: Column) -> Callable[[Hop], Column]:
    """Return the copy that a link makes, NULL if none is due; for flags as a number."""
    given = F.coalesce(flags.cast("bigint"), F.lit(0))
    crossed = F.when(given < 0, _refused(given.cast("string"))).otherwise(given)

    def copy(hop: Hop) -> Column:
        mask, bit = F.lit(CopyFlags.mask(hop.level)).cast("bigint"), F.lit(CopyFlags.bit(hop.level)).cast("bigint")
        # the condition has refused negative flags
        return F.when(crossed.bitwiseAND(mask) == 0, _copy(hop, given.bitwiseOR(bit)))

    return copy


def _of_bytes(flags: Column, codec: BigEndian) -> Callable[[Hop], Column]:
    """Return the same for flags as bytes, the most significant one first: as hexadecimal digits."""
    size = F.octet_length(flags)
    fits = size.between(1, MAX_LEVEL // 8) if codec.width is None else size == codec.width
    refused = _refused(F.concat(size.cast("string"), F.lit(" bytes")))
    given = F.coalesce(F.hex(flags), F.lit("00" * (codec.width or 1)))
    digits = F.when(flags.isNull() | fits, given).otherwise(refused)
    # ends with the lowest digit that is not 0; called by its name, because the function took no zeros before Spark 4.0
    upper = F.call_function("rtrim", F.lit("0"), digits)
    zeros = F.length(digits) - F.length(upper)
    in_digit = F.when(upper != "", F.translate(F.right(upper, F.lit(1)), _DIGITS[1:], _LOWEST_BIT).cast("int"))
    lowest = F.coalesce(zeros * 4 + in_digit + 1, F.lit(MAX_LEVEL + 1))

    def copy(hop: Hop) -> Column:
        # the condition has refused wrong bytes
        return F.when(lowest > hop.level, _copy(hop, F.unhex(_with_bit(given, hop.level, codec))))

    return copy


def _with_bit(digits: Column, level: int, codec: BigEndian) -> Column:
    """Return hexadecimal digits with one more bit set; neither that bit nor any lower one was set."""
    place, bit = divmod(level - 1, 4)
    above = F.length(digits) - (place + 1)  # digits, none if it is negative
    digit = F.translate(digits.substr(above + 1, F.lit(1)), _DIGITS, "".join(_DIGITS[d | 1 << bit] for d in range(16)))
    changed = F.when(above < 0, F.lit(_DIGITS[1 << bit])).otherwise(F.concat(F.left(digits, above), digit))
    result = F.concat(changed, F.lit("0" * place))
    # as few bytes as the flags need, as the codec writes them; the first may have one digit
    return result if codec.width is not None else F.call_function("ltrim", F.lit("0"), result)


def _copy(hop: Hop, flags: Column) -> Column:
    return F.struct(F.lit(hop.level).alias("level"), F.lit(hop.target).alias("target"), flags.alias("flags"))


def _refused(found: Column | str) -> Column:
    text = F.lit(found) if isinstance(found, str) else found
    return F.raise_error(F.concat(F.lit("keyshared: not valid copy flags: "), text))
