"""What takes the place of what an older Spark has not, what is refused there, and what the guide says of both."""

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark user knows
from tests.spark.keys import SOME_BYTES, SOME_TEXTS
from tests.spark.since import JOB_FAILED, only_since

from keyshared import HashRing
from keyshared import spark as ks
from keyshared.errors import MissingExtraError, TooOldError
from keyshared.placement import RangeMap
from keyshared.spark import versions
from keyshared.spark.frames import partitions, tables
from keyshared.spark.logs.source import as_log
from keyshared.spark.versions import (
    ARROW_FRAMES,
    ARROW_FUNCTIONS,
    BATCH,
    BY_ID,
    STREAMS,
    UTF8_CHECK,
    Since,
    condition_of,
    needs,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

ADAPTER = Path(versions.__file__).parent
GUIDE = Path(__file__).parents[2] / "docs" / "spark.md"
NEVER = Since("nothing that there is", 99, 0)
RING = HashRing(["ann", "bob", "eve"])
KNOWN = {each for each in vars(versions).values() if isinstance(each, Since)}


def lying(df: "DataFrame") -> list[tuple[object, ...]]:
    """Rows with their partitions, in the order within each of them: collect() keeps it."""
    return sorted(map(tuple, df.withColumn("at", F.spark_partition_id()).collect()), key=lambda row: row[-1])


@only_since(BY_ID)
@pytest.mark.parametrize("how", ["an owner each", "owners share", "by key", "nobody"])
def test_a_colocation_without_partitioning_by_id_lies_as_one_with_it(
    spark: "SparkSession", monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    log = spark.range(0, 90, 1, 3).selectExpr(
        "if(id % 8 = 0, null, 'k' || id % 17) as key", "'t-' || id % 2 as topic_partition", "100 - id as offset"
    )
    placements: dict[str, tuple[HashRing | RangeMap | None, int | None]] = {
        "an owner each": (RING, None),
        "owners share": (RING, 2),
        "by key": (None, 5),
        "nobody": (RangeMap(), None),
    }
    placement, count = placements[how]
    expected = lying(ks.colocate(log, placement, partitions=count))
    monkeypatch.setattr(partitions, "BY_ID", NEVER)
    found = ks.colocate(log, placement, partitions=count)
    plan = found._jdf.queryExecution().executedPlan().toString()
    assert expected == lying(found)
    assert [1, 1, 0] == [len(re.findall(operator, plan)) for operator in (r"\bExchange ", r"\bSort \[", "Python")]


@only_since(ARROW_FUNCTIONS)
@pytest.mark.parametrize("kind", ["string", "binary"])
def test_a_hash_that_spark_lacks_is_the_same_by_pandas_series(
    spark: "SparkSession", monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    keys = SOME_TEXTS if kind == "string" else SOME_BYTES
    frame = spark.createDataFrame([*((key,) for key in keys), (None,)], f"key {kind}").coalesce(1)
    nothing = frame.filter("key is null")
    ring = HashRing.pulsar(["ann", "bob"])
    monkeypatch.setattr(versions, "ARROW_FUNCTIONS", NEVER)
    slots = [row.slot for row in ks.with_slot(frame, ring).collect()]
    assert [*map(ring.ranges.slot_of, keys), None] == slots
    assert [None] == [row.slot for row in ks.with_slot(nothing, ring).collect()]


@only_since(ARROW_FRAMES)
def test_a_log_is_numbered_and_laid_out_alike_without_arrow_frames_and_ids(
    spark: "SparkSession", monkeypatch: pytest.MonkeyPatch
) -> None:
    events = spark.range(0, 60, 1, 3).selectExpr("'p' || id % 4 as shard", "'k' || id % 7 as user", "90 - id as ts")
    expected = lying(as_log(events, key="user", partition="shard", order="ts"))
    monkeypatch.setattr(tables, "ARROW_FRAMES", NEVER)
    monkeypatch.setattr(partitions, "BY_ID", NEVER)
    assert expected == lying(as_log(events, key="user", partition="shard", order="ts"))


@only_since(UTF8_CHECK)
def test_what_is_no_text_to_python_is_found_without_a_function_for_it(
    spark: "SparkSession", monkeypatch: pytest.MonkeyPatch
) -> None:
    odd = [b"\xed\xa0\x80", b"\xc0\x80", b"a\xff", "\ufffd".encode(), None]  # half a pair, an overlong NUL, a byte
    keys = [*(key.encode() for key in SOME_TEXTS), *SOME_BYTES, *odd]
    texts = spark.createDataFrame([(key,) for key in keys], "key binary").select(F.col("key").cast("string"))
    checked = [versions.is_utf8(F.col("key")).alias("by function")]
    monkeypatch.setattr(versions, "UTF8_CHECK", NEVER)
    checked.append(versions.is_utf8(F.col("key")).alias("without"))
    found = [*map(tuple, texts.select(*checked).collect())]
    assert [(told, told) for told in map(is_text, keys)] == found


def is_text(key: bytes | None) -> bool | None:
    if key is None:
        return None
    try:
        return bool(key.decode()) or True
    except UnicodeDecodeError:
        return False


def test_what_this_spark_is_too_old_for_is_refused_with_both_versions_and_a_way_out() -> None:
    needs(BATCH, "keyshared.spark", "install keyshared[spark]")
    with pytest.raises(TooOldError, match=r"^a verb needs pyspark 99.0 or later, and \d.* is installed; upgrade it$"):
        needs(NEVER, "a verb", "upgrade it")


def test_a_stream_is_refused_where_spark_is_too_old_or_protobuf_is_missing(
    spark: "SparkSession", monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = spark.readStream.format("rate").load()
    commands = stream.selectExpr("'p' topic_partition", "value sequence", "value at_ms", "'offer' command")
    monkeypatch.setitem(sys.modules, "google.protobuf", None)
    monkeypatch.setattr(versions, "VERSION", (4, 0))
    with pytest.raises(MissingExtraError, match=r"install keyshared\[streams\]$"):
        ks.stream_dispatch(commands, HashRing())
    monkeypatch.setattr(versions, "VERSION", (3, 5))
    with pytest.raises(TooOldError, match=r"a streaming frame of commands needs pyspark 4.0 .* dispatch batch frames"):
        ks.stream_dispatch(commands, HashRing())


@only_since(STREAMS)
def test_a_stream_of_connect_is_refused_where_spark_is_too_old_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    from keyshared.spark.streams.frames import transform_with_state  # noqa: PLC0415 - not there in older versions
    from keyshared.spark.streams.state import DispatchProcessor  # noqa: PLC0415 - as above

    monkeypatch.setattr(versions, "VERSION", (4, 0))
    grouped = object()  # as through Connect, it has no such method
    with pytest.raises(TooOldError, match=r"a streaming frame of Spark Connect needs pyspark 4.1 .* dispatch batch"):
        transform_with_state(grouped, DispatchProcessor(HashRing(), None), ks.OUTCOME_SCHEMA)


def test_spark_names_what_is_wrong(spark: "SparkSession") -> None:
    with pytest.raises(JOB_FAILED) as failure:
        spark.read.parquet("/nowhere/at/all")
    assert "PATH_NOT_FOUND" == condition_of(failure.value)


def test_the_guide_names_the_version_of_all_that_is_known_of_versions() -> None:
    text = GUIDE.read_text("utf-8").split("## Which Spark")[1].split("\n## ")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line[:3] == "| `"]
    assert {(each.what, each.version) for each in KNOWN} == {(what.strip("`"), since) for what, since, *_ in rows}
    told = {name for *_, verbs, _ in rows for name in re.findall(r"`(\w+)\(", verbs)}
    assert told <= {*ks.__all__}
    assert STREAMS in KNOWN


def test_nothing_else_in_the_adapter_asks_for_a_version_of_pyspark() -> None:
    asking = [
        path.relative_to(ADAPTER).as_posix()
        for path in ADAPTER.rglob("*.py")
        if "pyspark.__version__" in path.read_text()
    ]
    assert ["versions.py"] == asking
