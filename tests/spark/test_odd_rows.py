"""NULL, numbers out of range, columns that are missing, there twice, of another type or spelling: at every entry point.

Whatever is wrong, the error names the column; and what is wrong in a row it shows with the row.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from tests.spark.settings import SHUFFLE_PARTITIONS, settings

from keyshared import HashRing
from keyshared.buckets import BucketLayout, BucketPlacement
from keyshared.distribution import DistributionTree
from keyshared.errors import ArgumentError
from keyshared.simulate import Fixed, Group, SimulatedConsumer

pyspark = pytest.importorskip("pyspark")
from pyspark.sql import functions as F  # noqa: E402, N812 - needs pyspark
from tests.spark.since import JOB_FAILED  # noqa: E402 - needs pyspark

from keyshared import spark as ks  # noqa: E402 - needs pyspark
from keyshared.spark.frames.rules import MAX_MS  # noqa: E402 - needs pyspark
from keyshared.spark.replays.replay import Replay  # noqa: E402 - needs pyspark
from keyshared.testing import Guarantees  # noqa: E402 - needs pyspark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture(autouse=True, scope="module")
def _one_task(spark: "SparkSession") -> Iterator[None]:
    """What fails has no time to lose."""
    with settings(spark, {SHUFFLE_PARTITIONS: "1"}):
        yield


RING = HashRing(["ann"])
TREE = DistributionTree({1: ["c1", "c2"]})
PLAN = Group(consumers=[SimulatedConsumer("a", Fixed(1))])
LAYOUT = BucketLayout.equal_width(4)
ROWS = 6
BAD = (2, 4)  # rows with the value that is wrong


def text(value: str) -> str:
    return f"'{value}'"


LOG = {
    "topic_partition": text("p"),
    "offset": "id",
    "key": text("k"),
    "at_ms": "id",
    "service_ms": "1L",
    "not_before_ms": "9L",
}
TIMES: Any = {"service_ms": "service_ms", "not_before_ms": "not_before_ms"}
DELIVERY = {
    "topic_partition": text("p"),
    "offset": "id",
    "key": text("k"),
    "consumer": text("a"),
    "attempt": "1",
    "sequence": "4 * id",
    "end_sequence": "4 * id + 1",
    "settled_sequence": "4 * id + 1",
    "outcome": text("acked"),
    "delivered_ms": "id",
    "ended_ms": "id",
}
OFFERED = {"topic_partition": text("p"), "offset": "id", "key": text("k")}
HISTORY = {
    "topic_partition": text("p"),
    "sequence": "id",
    "version": "1",
    "happening": text("published"),
    "offset": "id",
    "key": text("k"),
    "at_ms": "id",
}
COPY = {"message_id": "string(id)", "cluster": "concat('c', 1 + id % 2)", "flags": "1L"}
COMMIT = {"group": text("g"), "topic_partition": text("p"), "offset": "id", "metadata": text("")}
RECORD = {
    "topic_partition": text("p"),
    "offset": "id",
    "timestamp_epoch_ms": "id",
    "origin": text("eu"),
    "origin_offset": "id",
}
BOUNDS = {"topic_partition": text("p"), "start": "0L", "end": "9L"}
COMMAND = {
    "topic_partition": text("p"),
    "sequence": "id",
    "at_ms": "id",
    "command": text("offer"),
    "offset": "id",
    "key": text("k"),
    "consumer": text("a"),
    "attempt": "1L",
    "duration_ms": "1L",
    "limit": "1L",
    "weight": "1L",
    "resumed": "true",
    "reason": text("r"),
}
FLIGHT = {"who": text("k"), "shard": text("p"), "ts": "timestamp_ntz'2013-03-10 02:30:00'", "door": text("in")}


class Entry(NamedTuple):
    """Where frames come in.

    Attributes:
        columns: Of the frame, with an expression for each.
        call: What is called with it; gives something to collect.
        optional: Columns that may be missing.
        nullable: Columns that may be NULL.
        any_type: Columns that may be of any type.
        numbers: Columns with milliseconds, which have a range.
    """

    columns: dict[str, str]
    call: Callable[["DataFrame"], Any]
    optional: str = ""
    nullable: str = ""
    any_type: str = ""
    numbers: str = ""


def frame_of(spark: "SparkSession", columns: dict[str, str]) -> "DataFrame":
    return spark.range(0, ROWS, 1, 1).selectExpr(*(f"{value} AS `{name}`" for name, value in columns.items()))


def beside(columns: dict[str, str]) -> Callable[["DataFrame"], "DataFrame"]:
    return lambda frame: frame_of(frame.sparkSession, columns)


RECORDS, COMMITS, DELIVERIES = beside(RECORD), beside(COMMIT), beside(DELIVERY)

ENTRIES = {
    "replay": Entry(
        LOG, lambda log: ks.replay(log, PLAN, **TIMES).deliveries,
        nullable="key service_ms not_before_ms", numbers="at_ms service_ms not_before_ms",
    ),
    "what_if": Entry(
        LOG, lambda log: ks.what_if(log, {"one": PLAN}, **TIMES).summaries,
        nullable="key service_ms not_before_ms", numbers="at_ms service_ms not_before_ms",
    ),
    "audit": Entry(
        HISTORY, lambda history: ks.audit(history).verdicts,
        optional="offset key at_ms", nullable="offset key at_ms version happening",  # of these the checker speaks
    ),
    "check_order": Entry(
        DELIVERY, ks.check_order,
        optional="outcome delivered_ms ended_ms",
        nullable="key end_sequence settled_sequence outcome delivered_ms ended_ms",
        any_type="outcome delivered_ms ended_ms",
    ),
    "check_order, offered": Entry(
        OFFERED, lambda offered: ks.check_order(DELIVERIES(offered), offered=offered), optional="key", nullable="key"
    ),
    "delivery_history": Entry(
        DELIVERY, ks.delivery_history,
        optional="outcome delivered_ms ended_ms",
        nullable="key end_sequence settled_sequence outcome delivered_ms ended_ms",
    ),
    "delivery_history, offered": Entry(
        OFFERED, lambda offered: ks.delivery_history(DELIVERIES(offered), offered=offered),
        optional="key", nullable="key",
    ),
    "audit_distribution": Entry(COPY, lambda copies: ks.audit_distribution(copies, TREE), nullable="flags"),
    "audit_distribution, produced": Entry(
        {"message_id": "string(id)"},
        lambda produced: ks.audit_distribution(frame_of(produced.sparkSession, COPY), TREE, produced=produced),
    ),
    "translate_offsets, commits": Entry(
        COMMIT, lambda commits: ks.translate_offsets(commits, RECORDS(commits), RECORDS(commits)),
        optional="metadata", nullable="metadata",
    ),
    "translate_offsets, source": Entry(
        RECORD, lambda source: ks.translate_offsets(COMMITS(source), source, RECORDS(source), provenance=True)
    ),
    "translate_offsets, target": Entry(
        RECORD, lambda target: ks.translate_offsets(COMMITS(target), RECORDS(target), target, provenance=True),
        nullable="timestamp_epoch_ms",  # of the target nobody asks for it then
    ),
    "translate_offsets, bounds": Entry(
        BOUNDS, lambda told: ks.translate_offsets(COMMITS(told), RECORDS(told), RECORDS(told), target_bounds=told)
    ),
    "stream_dispatch": Entry(
        COMMAND, lambda commands: ks.stream_dispatch(commands, HashRing()),
        optional="offset key consumer attempt duration_ms limit weight resumed reason",
        nullable="offset key consumer attempt duration_ms limit weight resumed reason",
    ),
    "colocate": Entry(
        {name: LOG[name] for name in ("topic_partition", "offset", "key")},
        lambda log: ks.colocate(log, RING), nullable="key",
    ),
    "as_log": Entry(
        FLIGHT, lambda flights: ks.as_log(flights, key="who", partition="shard", order="ts"),
        optional="door", nullable="who door", any_type="who shard door",
    ),
    "key_histogram": Entry(
        {"key": text("k"), "bytes": "id"}, lambda log: ks.key_histogram(log, weight="bytes"), nullable="key"
    ),
    "with_owner": Entry({"key": text("k")}, lambda log: ks.with_owner(log, RING), nullable="key"),
    "with_slot": Entry({"key": text("k")}, lambda log: ks.with_slot(log, RING), nullable="key"),
    "with_bucket": Entry({"key": text("k")}, lambda log: ks.with_bucket(log, LAYOUT), nullable="key"),
    "with_bucket_owner": Entry(
        {"key": text("k")}, lambda log: ks.with_bucket_owner(log, BucketPlacement(LAYOUT, ["ann"])), nullable="key"
    ),
    "with_copy_due": Entry({"flags": "1L"}, lambda log: ks.with_copy_due(log, TREE, "c1"), nullable="flags"),
}  # fmt: skip
WITHOUT_PLACE = {"key_histogram", "audit_distribution, produced"}  # nothing else says which row it is
# Each column without NULL costs a job that is planned, compiled and fails. The columns of one frame go one way, so the
# first and the last of them stand for all in every run, and each has its turn at night.
NEVER_NULL = [
    pytest.param(name, column, marks=[] if column in {needed[0], needed[-1]} else [pytest.mark.slow])
    for name, entry in ENTRIES.items()
    for needed in [[column for column in entry.columns if column not in entry.nullable.split()]]
    for column in needed
]


def case_counts(spark: "SparkSession") -> AbstractContextManager[None]:
    return settings(spark, {"spark.sql.caseSensitive": "true"})


@pytest.mark.parametrize("entry", ENTRIES)
def test_a_column_that_is_missing_or_there_twice_or_of_another_type_is_named_at_the_call(
    spark: "SparkSession", entry: str
) -> None:
    columns, call, optional, _, any_type, _ = ENTRIES[entry]
    for column in columns:
        rest = {name: value for name, value in columns.items() if name != column}
        again = frame_of(spark, columns).select("*", F.lit(None).alias(column.upper()))
        wrong = frame_of(spark, {**rest, column: "array(struct(1.5D AS x))"})
        if column not in optional.split():
            with pytest.raises(ArgumentError, match=f"'{column}'; it must be a column of the frame"):
                call(frame_of(spark, rest))
        if column not in any_type.split() or column in {"who", "shard", "door"}:
            with pytest.raises(ArgumentError, match=f"'{column}'; it must be one column, and the frame has 2"):
                call(again)
        if column not in any_type.split():
            with pytest.raises(ArgumentError, match=f"'{column}'; it must be .*array"):
                call(wrong)


@pytest.mark.parametrize("entry", ENTRIES)
def test_where_case_counts_another_spelling_is_another_column(spark: "SparkSession", entry: str) -> None:
    columns, call, optional, *_ = ENTRIES[entry]
    with case_counts(spark):
        for column in columns:
            spelt = frame_of(spark, columns).withColumnRenamed(column, column.upper())
            if column not in optional.split():
                with pytest.raises(ArgumentError, match=f"'{column}'; it must be a column of the frame"):
                    call(spelt)
            elif entry == "audit":
                with pytest.raises(ArgumentError, match=f"'{column.upper()}'; it must be one of version"):
                    call(spelt)
            else:
                assert call(spelt).columns
        if entry != "audit":  # it takes no columns that it does not know
            beside_it = [F.lit(1.5).alias(column.upper()) for column in columns]
            assert call(frame_of(spark, columns).select("*", *beside_it)).columns


@pytest.mark.parametrize(("entry", "column"), NEVER_NULL)
def test_null_or_no_text_where_a_value_must_be_is_an_error_that_shows_the_row(
    spark: "SparkSession", entry: str, column: str
) -> None:
    columns, call, *_ = ENTRIES[entry]
    bad = "CAST(X'FF' AS string)" if column in {"topic_partition", "shard"} else "NULL"  # no text to Python
    wrong = f"CASE id WHEN {BAD[0]} THEN {bad} WHEN {BAD[1]} THEN NULL ELSE {columns[column]} END"
    rows = frame_of(spark, {**columns, column: wrong})
    said = rf"(column|weight) .*{column}.* must .*NULL.* and it is .*|must be at least 0, and it is NULL"
    with pytest.raises((ArgumentError, *JOB_FAILED), match=said) as failure:
        call(rows).collect()
    text_of = str(failure.value)
    lines = [line for line in text_of.splitlines() if "must" in line]
    assert lines
    shown = ("sequence", "offset", "message_id", "who", "start", "topic_partition")
    assert any(re.search(rf"\b{place} ('|\d|NULL)", lines[0]) for place in shown) or entry in WITHOUT_PLACE
    if entry in {"replay", "what_if", "audit", "as_log"}:
        told = re.search(r"in any row, and it is in 2, such as (.*)", lines[0])
        assert told is not None
        assert 2 == len(told[1].split("; "))  # both, by their places


def test_an_argument_that_can_never_work_is_refused_before_a_job(spark: "SparkSession", tmp_path: Path) -> None:
    file, page = tmp_path / "log.csv", tmp_path / "page.html"
    file.write_text("who,shard,ts\neve,p,7\n")
    fails = frame_of(spark, {**LOG, "flags": "1L", "ts": "id"}).filter("assert_true(false) is null")  # in any job
    stream = spark.readStream.format("rate").load()
    load: Any = partial(ks.load_log, spark, key="who", partition="shard", order="ts")
    log: Any = partial(ks.as_log, fails, partition="topic_partition", order="ts")
    replayed: Any = Replay(fails, PLAN)
    audited: Any = ks.Audit(fails, Guarantees())
    anything: Any = None
    cases: dict[str, Callable[[], object]] = {
        "frame is None; it must be a DataFrame": lambda: ks.with_owner(anything, RING),
        "frame is 5; it must be a DataFrame": lambda: ks.check_order(frame_of(spark, DELIVERY), offered=5),  # type: ignore[arg-type]
        "tree is None; it must be a DistributionTree": lambda: ks.with_copy_due(fails, anything, "c1"),
        "tree is None; it must be a Dist": lambda: ks.audit_distribution(frame_of(spark, COPY), anything),
        "into is 5; it must be the name of a new column": lambda: ks.with_owner(fails, RING, into=5),  # type: ignore[arg-type]
        "column is None; it must be a column": partial(log, key=None),
        "column is 5; it must be a column": partial(log, key=5),
        "frame is 'a stream'; it must be batch": lambda: ks.as_log(
            stream, key="value", partition="value", order="value"
        ),
        "key_hash is 'junk'; it must be left out": lambda: ks.colocate(fails, key_hash="junk"),  # type: ignore[arg-type]
        "path is None; it must be a non-empty str": partial(load, None),
        "options is 5; it must be a mapping": partial(load, file, options=5),
        "options is 5; it must be a non-empty str": partial(load, file, options={5: "x"}),
        "format is 5; it must be a non-empty str": partial(load, file, format=5),
        "format is 'xx'; it must be one that this session can read": partial(load, file, format="xx"),
        "schema is 5; it must be a non-empty str": partial(load, file, schema=5),
        "schema is 'foo bar baz'; it must be columns and types": partial(load, file, schema="foo bar baz"),
        "violations is 5; it must be a mapping": partial(replayed.report, page, violations=5),
        "violations['a'] is 'b'; it must be an int": partial(replayed.report, page, violations={"a": "b"}),
        "path is 5; it must be where": partial(replayed.report, 5),
        "title is 5; it must be a str": partial(audited.report, page, title=5),
        "about is None; it must be a str": partial(audited.report, page, about=None),
    }
    told = {wanted: refusal(call) for wanted, call in cases.items()}
    replayed.close()
    audited.close()
    assert {} == {wanted: message for wanted, message in told.items() if wanted not in message}
    assert ["eve"] == [row.key for row in load(file).collect()]  # a path may be one of Python's


def refusal(call: Callable[[], object]) -> str:
    with pytest.raises(ArgumentError) as caught:
        call()
    return str(caught.value)


@pytest.mark.parametrize("value", [-1, MAX_MS + 1, (1 << 63) - 1])
def test_milliseconds_have_a_range(spark: "SparkSession", value: int) -> None:
    for entry in ("replay", "what_if"):
        columns, call, *_, numbers = ENTRIES[entry]
        for column in numbers.split():
            rows = frame_of(spark, {**columns, column: f"{value}L"})
            with pytest.raises(
                ArgumentError, match=rf"column {column} is '{column}'; it must not be .*in 6, such as .*offset 0"
            ):
                call(rows)
    columns, call, *_ = ENTRIES["stream_dispatch"]
    with pytest.raises(JOB_FAILED, match=r"column at_ms must not be NULL, negative or above .* sequence 0"):
        call(frame_of(spark, {**columns, "at_ms": f"{value}L"})).collect()


def test_the_greatest_instant_comes_through(spark: "SparkSession") -> None:
    columns, call, *_ = ENTRIES["replay"]
    rows = call(frame_of(spark, {**columns, "at_ms": f"{MAX_MS}L"})).select("delivered_ms").collect()
    assert MAX_MS <= min(row.delivered_ms for row in rows)
    columns, call, *_ = ENTRIES["stream_dispatch"]
    told = call(frame_of(spark, {**columns, "at_ms": f"{MAX_MS}L", "command": text("add_consumer")})).collect()
    assert [MAX_MS] * (ROWS - 1) == [row.at_ms for row in told if row.effect == "refused"]


NIGHT = ["2013-03-10 01:30:00", "2013-03-10 02:30:00", "2013-03-10 03:15:00"]  # at two they put the clocks forward


@pytest.mark.parametrize("zone", ["America/New_York", "UTC"])
@pytest.mark.parametrize("kind", ["timestamp_ntz", "timestamp", "date"])
def test_times_without_a_zone_are_in_their_own_order_whatever_the_zone_of_the_session(
    spark: "SparkSession", zone: str, kind: str
) -> None:
    """[key-order] And times of one millisecond are in theirs."""
    with settings(spark, {"spark.sql.session.timeZone": zone}):
        times = [*NIGHT, "2013-03-10 03:15:00.000001", "2013-03-10 03:15:00.000002", "1969-12-31 23:59:59.9995"]
        suffix = "+00:00" if kind == "timestamp" else ""
        rows = spark.createDataFrame(
            [(f"k{9 - i}", f"{at}{suffix}") for i, at in enumerate(times)], "k string, at string"
        )
        events = rows.select("k", F.lit("p").alias("p"), F.col("at").cast(kind).alias("at"))
        log = ks.as_log(events, key="k", partition="p", order="at").orderBy("offset").collect()
    day = 1_362_873_600_000
    if kind == "date":
        assert [-86_400_000, *[day] * 5] == [row.order for row in log]
        return
    assert ["k4", "k9", "k8", "k7", "k6", "k5"] == [row.key for row in log]
    minutes = (90, 150, 195, 195, 195)
    assert [-1, *(day + minute * 60_000 for minute in minutes)] == [row.order for row in log]
