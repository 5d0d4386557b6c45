"""What was saved comes back as it was, in whole or not at all, and only from a version that is known."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

from pyspark.sql import functions as F  # noqa: N812 - the name every Spark user knows
from tests.spark import small_jobs

from keyshared import spark as ks
from keyshared.errors import ArgumentError
from keyshared.spark.results.catalogue import MANIFEST
from keyshared.spark.results.place import check_prefix, checked_place
from keyshared.spark.results.runs import manifest_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

Frames = dict[str, "DataFrame"]


@pytest.fixture(scope="module")
def few(spark: "SparkSession") -> "DataFrame":
    """Six messages; one has no key."""
    rows = [("p", offset, None if offset == 2 else f"k{offset % 2}", offset * 3) for offset in range(6)]
    return spark.createDataFrame(rows, "topic_partition string, offset long, key string, at_ms long")


@pytest.fixture(scope="module")
def jobs(few: "DataFrame") -> "Iterator[tuple[ks.Replay, ks.Audit, ks.WhatIf]]":
    """What a replay, the audit of its deliveries, and a comparison have found."""
    with ks.replay(few, small_jobs.PLAN) as replayed, ks.what_if(few, small_jobs.PLANS) as compared:
        history = ks.delivery_history(replayed.deliveries, offered=few.select("topic_partition", "offset"))
        with ks.audit(history, ks.DELIVERY_GUARANTEES) as audited:
            yield replayed, audited, compared


@pytest.fixture
def counted(spark: "SparkSession") -> "DataFrame":
    """A small frame with the columns of a key histogram."""
    return ks.key_histogram(spark.createDataFrame([("a", 3), ("a", 4), (None, 5)], "key string, bytes int"))


def rows_of(frame: "DataFrame") -> "list[Row]":
    return sorted(frame.collect(), key=repr)


def refused(call: Callable[[], Any]) -> str:
    with pytest.raises(ArgumentError) as caught:
        call()
    return str(caught.value)


def test_what_a_replay_and_its_audit_found_comes_back_as_it_was(
    spark: "SparkSession", jobs: "tuple[ks.Replay, ks.Audit, ks.WhatIf]", tmp_path: Path
) -> None:
    replayed, audited, _ = jobs
    run = ks.save_results(replayed, tmp_path / "may")
    assert run < ks.save_results(audited, tmp_path / "may", mode="append")
    frames: Frames = {
        "deliveries": replayed.deliveries,
        "summaries": replayed.summaries,
        "violations": audited.violations,
        "verdicts": audited.verdicts,
    }
    loaded = ks.load_results(spark, str(tmp_path / "may"))
    assert {*frames} == {*loaded}
    for name, frame in frames.items():
        assert [("run", "string"), *frame.dtypes] == loaded[name].dtypes
        assert rows_of(frame) == rows_of(loaded[name].drop("run")), name
    assert 0 == loaded["violations"].count()
    # and a table alone is what any reader finds, also if it has no rows
    assert [*ks.AUDIT_SCHEMA.names, "run"] == spark.read.parquet(str(tmp_path / "may" / "violations")).columns
    assert {"deliveries", "summaries"} == {*ks.load_results(spark, tmp_path / "may", run=run)}


def test_every_job_gives_the_columns_of_its_table(
    spark: "SparkSession", jobs: "tuple[ks.Replay, ks.Audit, ks.WhatIf]", few: "DataFrame"
) -> None:
    compared = jobs[2]
    records = spark.createDataFrame([("m", "c1", None)], "message_id string, cluster string, flags int")
    commits = spark.createDataFrame([("g", "p", 1)], "group string, topic_partition string, offset long")
    log = spark.createDataFrame([], small_jobs.RECORDS)
    weighed = ks.key_histogram(few.withColumn("key", F.col("key").cast("binary")))
    frames: Frames = {
        "deliveries": jobs[0].deliveries,
        "summaries": jobs[0].summaries,
        "violations": jobs[1].violations,
        "verdicts": jobs[1].verdicts,
        **{f"plan_{name}": getattr(compared, name) for name in ("summaries", "totals", "consumers", "moved_keys")},
        "order_violations": ks.check_order(jobs[0].deliveries),
        "histogram": weighed.withColumns({n: F.col(n).cast("decimal(38,9)") for n in ("weight", "hot_weight")}),
        "faults": ks.audit_distribution(records, small_jobs.TREE),
        "translations": ks.translate_offsets(commits, log, log),
    }
    assert {name: table.schema.simpleString() for name, table in ks.RESULT_TABLES.items()} == {
        name: frame.schema.simpleString() for name, frame in frames.items()
    }


def test_a_comparison_of_plans_and_a_histogram_come_back_from_tables_of_a_catalog(
    spark: "SparkSession", jobs: "tuple[ks.Replay, ks.Audit, ks.WhatIf]", few: "DataFrame"
) -> None:
    compared = jobs[2]
    counted = ks.key_histogram(few.withColumn("cost", F.lit("1.25").cast("decimal(9,2)")), weight="cost")
    ks.save_results(compared, prefix="may")
    frames: Frames = {"histogram": counted, "plan_totals": compared.totals.filter("plan = 'one alone'")}
    run = ks.save_results(frames, prefix="may", mode="append")
    totals = ks.load_results(spark, prefix="may")["plan_totals"]
    assert rows_of(compared.totals.union(frames["plan_totals"])) == rows_of(totals.drop("run"))
    assert ks.collect_histogram(counted) == ks.collect_histogram(
        ks.load_results(spark, prefix="may", run=run)["histogram"]
    )
    assert 2 == spark.table("may_histogram").filter("slot is not null").count()
    ks.save_results({"histogram": counted.limit(0)}, prefix="may", mode="overwrite")
    assert ["histogram"] == [*ks.load_results(spark, prefix="may")]
    assert [0, 0] == [spark.table(f"may_{name}").count() for name in ("histogram", "plan_totals")]
    assert "prefix is 'may'; it must hold no results yet" in refused(lambda: ks.save_results(frames, prefix="may"))
    assert "SCHEMA_NOT_FOUND" in refused(lambda: ks.save_results(frames, prefix="nowhere.may"))


def test_what_was_cut_short_is_not_seen_and_is_in_nobodys_way(
    spark: "SparkSession", counted: "DataFrame", tmp_path: Path
) -> None:
    place = tmp_path / "may"
    fails: Frames = {"histogram": counted, "order_violations": broken(spark)}
    with pytest.raises(Exception, match="killed"):
        ks.save_results(fails, place)
    assert 1 <= len([*(place / "histogram").glob("run=*/*.parquet")])  # one table was written
    assert "none were saved there in whole" in refused(lambda: ks.load_results(spark, place))
    run = ks.save_results({"histogram": counted}, place, mode="append")
    with pytest.raises(Exception, match="killed"):
        ks.save_results(fails, place, mode="append")
    loaded = ks.load_results(spark, place)
    assert ["histogram"] == [*loaded]
    assert {run} == {row.run for row in loaded["histogram"].collect()}
    assert 3 == len([*(place / "histogram").glob("run=*")])
    with pytest.raises(Exception, match="killed"):
        ks.save_results(fails, place, mode="overwrite")
    assert "none were saved there in whole" in refused(lambda: ks.load_results(spark, place))
    again = ks.save_results({"histogram": counted}, place, mode="overwrite")
    assert [f"run={again}"] == [each.name for each in (place / "histogram").glob("run=*")]


def broken(spark: "SparkSession") -> "DataFrame":
    """Violations that are never found: the job fails."""
    columns = [F.lit(None).cast(f.dataType).alias(f.name) for f in ks.VIOLATION_SCHEMA.fields[1:]]
    return spark.range(1).select(F.raise_error(F.lit("killed")).cast("string").alias("promise"), *columns)


def test_another_version_is_neither_read_nor_added_to(
    spark: "SparkSession", counted: "DataFrame", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = ks.save_results({"histogram": counted}, tmp_path)
    known = ks.RESULT_TABLES["histogram"]
    monkeypatch.setattr("keyshared.spark.results.runs.RESULT_TABLES", {"histogram": known._replace(version=2)})
    told = f"schema_version is 1; it must be 2: histogram of run {run} was saved by another version of keyshared"
    for call in (
        lambda: ks.load_results(spark, tmp_path),
        lambda: ks.save_results({"histogram": counted}, tmp_path, mode="append"),
    ):
        assert told in refused(call)
    newer = ks.save_results({"histogram": counted}, tmp_path, mode="overwrite")
    assert 2 == ks.load_results(spark, tmp_path)["histogram"].count()
    monkeypatch.undo()
    assert "schema_version is 2; it must be 1" in refused(lambda: ks.load_results(spark, tmp_path))
    place = checked_place(spark, tmp_path, None, "parquet", None)
    monkeypatch.setattr("keyshared.spark.results.runs.RESULT_TABLES", {"later": known})
    place.append(MANIFEST, manifest_rows(spark, {"later": None}), "later")
    monkeypatch.undo()
    told = refused(lambda: ks.load_results(spark, tmp_path, run="later"))
    assert "table_name is 'later'; it must be one of deliveries, " in told
    assert newer not in told


def test_what_is_read_from_a_place_does_not_overwrite_it(
    spark: "SparkSession", counted: "DataFrame", tmp_path: Path
) -> None:
    places: list[dict[str, Any]] = [{"prefix": "read_again"}, {"path": tmp_path / "by path"}]
    runs = [ks.save_results({"histogram": counted}, **place) for place in places]
    for run, place in zip(runs, places, strict=True):
        loaded = ks.load_results(spark, run=run, **place)["histogram"].drop("run")
        in_doubt: Frames = {
            "as it is": loaded,
            "kept": loaded.filter("messages > 0").persist(),
            "a part": counted.union(loaded.limit(1)),
        }
        for what, frame in in_doubt.items():
            told = refused(partial(ks.save_results, {"histogram": frame}, mode="overwrite", **place))
            assert "results is 'histogram'; it must be read from another place than" in told, what
            assert "save with mode='append', or to another place" in told, what
        in_doubt["kept"].unpersist()
    left = ks.load_results(spark, **places[0])["histogram"].drop("run")
    assert 2 == len([*(tmp_path / "by path").rglob("run=*")])  # of the histogram, and of what was saved
    again = ks.save_results({"histogram": left}, tmp_path / "by path", mode="overwrite")  # read from elsewhere
    assert {f"run={again}"} == {each.name for each in (tmp_path / "by path").rglob("run=*")}
    assert rows_of(left) == rows_of(ks.load_results(spark, **places[1])["histogram"].drop("run"))


def test_no_two_prefixes_that_may_be_saved_to_have_a_table_in_common() -> None:
    written: Counter[str] = Counter()
    for prefix in ("may", "may_plan", "may_order", "may_plan_order", "plan", "order", "border"):
        with suppress(ArgumentError):
            check_prefix(prefix)
            written.update(f"{prefix}_{table}" for table in (MANIFEST, *ks.RESULT_TABLES))
    assert 4 * (1 + len(ks.RESULT_TABLES)) == len(written)
    assert {1} == {*written.values()}


def test_what_was_saved_as_delta_is_not_read_as_parquet(
    spark: "SparkSession", counted: "DataFrame", tmp_path: Path
) -> None:
    ks.save_results({"histogram": counted}, tmp_path)
    log = tmp_path / MANIFEST / "_delta_log"
    log.mkdir()
    for call in (
        lambda: ks.load_results(spark, tmp_path),
        lambda: ks.save_results({"histogram": counted}, tmp_path, mode="overwrite"),
    ):
        assert "format is 'parquet'; it must be delta, as which the results there were saved" == refused(call)
    log.rmdir()
    assert ["histogram"] == [*ks.load_results(spark, tmp_path)]


def test_what_cannot_be_saved_is_refused_and_nothing_is_written(
    spark: "SparkSession", counted: "DataFrame", tmp_path: Path
) -> None:
    place = tmp_path / "may"
    full = tmp_path / "full"
    (full / "notes").mkdir(parents=True)
    (full / "notes" / "mine.txt").write_text("keep me")
    good: Any = {"histogram": counted}
    never: Any = broken(spark)  # a job would fail otherwise
    stream = spark.readStream.format("rate").load()
    cases: dict[str, Callable[[], object]] = {
        "mode is 'ignore'; it must be one of error, append, overwrite": lambda: ks.save_results(
            good, place, mode="ignore"
        ),
        "format is 'orc'; it must be one of parquet, delta, iceberg": lambda: ks.save_results(
            good, place, format="orc"
        ),
        "be a folder, or else prefix": lambda: ks.save_results(good),
        "give one of them": lambda: ks.save_results(good, place, prefix="may"),
        "path is '/'; it must be a folder of its own": lambda: ks.save_results(good, "/"),
        **{
            f"{folder!r}; it must have none of * ? [ ] {{ }}": partial(ks.save_results, good, folder)
            for folder in (f"{tmp_path}/lake{mark}" for mark in ("*", "?", "[1]", "]", "{a}", "}", "\\"))
        },
        "none of * ? [": lambda: ks.load_results(spark, "lake[1]"),
        **{
            f"prefix is {prefix!r}; it must not end in _order or _plan": partial(ks.save_results, good, prefix=prefix)
            for prefix in ("may_plan", "db.May_Order")
        },
        **{
            f"options is {name!r}; it must be none of partitionOverwriteMode": partial(
                ks.save_results, good, place, options={name: "dynamic"}
            )
            for name in ("partitionOverwriteMode", "PARTITIONoverwritemode", "replaceWhere", "overwrite-mode", "path")
        },
        "prefix is 'db.'; it must be the beginning": lambda: ks.save_results(good, prefix="db."),
        "be left out for iceberg": lambda: ks.save_results(good, place, format="iceberg"),
        "io.delta:delta-spark_": lambda: ks.save_results(good, place, format="delta"),
        "org.apache.iceberg:iceberg-spark-runtime-": lambda: ks.save_results(good, prefix="june", format="iceberg"),
        "results is {}; it must be what replay, what_if or audit gave": lambda: ks.save_results({}, place),
        "results is 'delivered'; it must be one of deliveries, ": lambda: ks.save_results({"delivered": never}, place),
        "results['histogram'] is 5; it must be a DataFrame": lambda: ks.save_results(
            {"histogram": 5},  # type: ignore[dict-item]
            place,
        ),
        "save each one of a stream within foreachBatch": lambda: ks.save_results({"faults": stream}, place),
        "(missing ['keys'], and not of the table ['more'])": lambda: ks.save_results(
            {"histogram": counted.withColumnRenamed("keys", "more")}, place
        ),
        "column of histogram is 'weight'; it must be decimal(38,9), and it is double": lambda: ks.save_results(
            {"histogram": counted.withColumn("weight", F.col("weight").cast("double"))}, place
        ),
        "and it is decimal(38,10); cast it first": lambda: ks.save_results(
            {"histogram": counted.withColumn("weight", F.col("weight").cast("decimal(38,10)"))}, place
        ),
        "hold nothing, or what save_results has written": lambda: ks.save_results(
            {"order_violations": never}, full, mode="overwrite"
        ),
        "hold nothing, or what": lambda: ks.save_results({"order_violations": never}, full / "notes" / "mine.txt"),
        "hold results of save_results, and none": lambda: ks.load_results(spark, full),
        "options is 5": lambda: ks.load_results(spark, full, options=5),  # type: ignore[arg-type]
    }
    told = {wanted: refused(call) for wanted, call in cases.items()}
    assert {} == {wanted: message for wanted, message in told.items() if wanted not in message}
    assert ["mine.txt"] == [each.name for each in tmp_path.rglob("*") if each.is_file()]
    ks.save_results(good, place)
    assert "mode='append' adds a run" in refused(lambda: ks.save_results({"order_violations": never}, place))
    assert "the last ones are 2" in refused(lambda: ks.load_results(spark, place, run="first"))
