"""Many rows of a topic-partition become one, and come out of it as they were."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pytest

pyspark = pytest.importorskip("pyspark")
import pyarrow as pa  # noqa: E402 - comes with pyspark
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema  # noqa: E402 - needs pyspark

from keyshared.spark.streams.dispatch import COMMAND_SCHEMA, OUTCOME_SCHEMA  # noqa: E402 - needs pyspark
from keyshared.spark.streams.rows import PACKED_SCHEMA, bundled, pack_batches, unbundled, unpacked  # noqa: E402 - needs pyspark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

BIG = (1 << 63) - 1
SCHEMA = pa.schema(
    [("topic_partition", pa.string()), ("offset", pa.int64()), ("key", pa.binary()), ("filters", pa.list_(pa.string()))]
)
ROWS = [
    ("q", BIG, b"\x00", None),
    ("p", None, None, ["a", None]),
    ("q", None, b"", []),
    ("q", -BIG, None, ["b"]),
]


def batch_of(rows: Sequence[tuple[object, ...]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in rows], schema=SCHEMA)


def flat(batch: pa.RecordBatch) -> list[tuple[object, ...]]:
    return [(name, *row) for name, packed in map(dict.values, batch.to_pylist()) for row in unpacked(packed)]


def test_rows_of_a_topic_partition_stand_in_one_in_their_order_and_nothing_is_rounded() -> None:
    (packed,) = pack_batches([batch_of(ROWS)])

    assert ["p", "q"] == packed.column(0).to_pylist()
    assert sorted(ROWS, key=lambda row: str(row[0])) == flat(packed)


def test_a_batch_that_is_cut_out_of_another_one_or_is_empty_is_packed_alike() -> None:
    inner, empty = pack_batches([batch_of(ROWS).slice(1, 2), batch_of([])])

    assert [ROWS[1], ROWS[2]] == flat(inner)
    assert (inner.schema, 0) == (empty.schema, empty.num_rows)


def test_each_row_takes_the_bytes_of_its_own_rows_only() -> None:
    one, many = [("p", 7, b"k", None)], [("q", number, b"k", None) for number in range(5_000)]
    (alone,) = pack_batches([batch_of(one)])
    (beside,) = pack_batches([batch_of([*one, *many])])

    assert ["p", "q"] == beside.column(0).to_pylist()
    assert len(beside.column(1)[0].as_py()) < 2 * len(alone.column(1)[0].as_py())


def test_texts_may_be_large() -> None:
    large = pa.schema([("topic_partition", pa.large_string()), ("consumer", pa.large_string())])
    (packed,) = pack_batches([pa.record_batch([["q", "p", "q"], ["c", None, "d"]], schema=large)])

    assert pa.large_string() == packed.column(0).type
    assert [("p", None), ("q", "c"), ("q", "d")] == flat(packed)


def test_what_comes_out_of_the_worker_has_the_types_that_spark_was_told() -> None:
    (packed,) = pack_batches([no_commands()])

    assert PACKED_SCHEMA.simpleString() == from_arrow_schema(packed.schema).simpleString()


def no_commands() -> pa.RecordBatch:
    schema = to_arrow_schema(COMMAND_SCHEMA)
    return pa.RecordBatch.from_arrays([pa.array([], field.type) for field in schema], schema=schema)


def test_each_element_gets_its_row_back_and_spark_knows_what_is_never_null(spark: "SparkSession") -> None:
    one = (7, 8, 9, "released", BIG, None, "c", 1, 0, BIG, None, "nacked")
    other = (8, 8, 9, "ignored", -BIG, b"k", None, None, None, None, "ack", None)
    bundles = spark.createDataFrame([("p", *map(list, zip(one, other, strict=True)))], bundled(OUTCOME_SCHEMA))
    rows = unbundled(bundles, OUTCOME_SCHEMA)

    assert OUTCOME_SCHEMA == rows.schema
    assert [("p", *one), ("p", *other)] == [tuple(row) for row in rows.collect()]
