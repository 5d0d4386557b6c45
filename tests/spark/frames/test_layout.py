"""A log that is laid out already is replayed as it lies: shuffled and sorted once, with the same result."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from keyshared.simulate import Crash, Fixed, Group, Join, SimulatedConsumer

pyspark = pytest.importorskip("pyspark")
from pyspark.sql import Window  # noqa: E402 - needs pyspark
from pyspark.sql import functions as F  # noqa: E402, N812 - needs pyspark

from keyshared.spark.frames.layout import layout_of  # noqa: E402 - needs pyspark
from keyshared.spark.logs.source import as_log, load_log  # noqa: E402 - needs pyspark
from keyshared.spark.replays.replay import replay  # noqa: E402 - needs pyspark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

PLAN = Group(
    consumers=[SimulatedConsumer("a", Fixed(7)), SimulatedConsumer("b", Fixed(2))],
    changes=[Crash(100, "a"), Join(300, SimulatedConsumer("c", Fixed(3)))],
)


@pytest.fixture
def log(spark: "SparkSession") -> "Iterator[DataFrame]":
    events = spark.range(0, 200, 1, 4)
    rows = events.selectExpr("'p' || id % 3 as shard", "'k' || id % 7 as user", "1000 - id * 3 as ts", "id")
    yield as_log(rows, key="user", partition="shard", order="ts")
    spark.catalog.clearCache()  # the same log is made for the next test, which would read what this one has kept


def plan_of(df: "DataFrame") -> str:
    frame: Any = df
    return str(frame._jdf.queryExecution().executedPlan().toString())


def moves(df: "DataFrame") -> tuple[int, int]:
    """How often a plan shuffles and how often it sorts; a table that every task gets is no shuffle."""
    plan = plan_of(df)
    return len(re.findall(r"\bExchange ", plan)), len(re.findall(r"\bSort \[", plan))


def replayed(df: "DataFrame", partitions: int | None = None) -> tuple[list[Any], list[Any]]:
    with replay(df, PLAN, partitions=partitions) as result:
        return sorted(map(tuple, result.deliveries.collect())), sorted(map(tuple, result.summaries.collect()))


def test_from_a_log_to_its_replay_rows_are_shuffled_and_sorted_once(log: "DataFrame") -> None:
    ready = log.withColumn("at_ms", F.col("order") * 1).filter("at_ms != 7")
    with replay(ready, PLAN) as result:
        assert (1, 1) == moves(result.deliveries)
    with replay(ready, PLAN, partitions=2) as result:
        assert (2, 2) == moves(result.deliveries)  # it has to lie elsewhere


def test_what_only_counts_a_log_does_not_shuffle_it(log: "DataFrame") -> None:
    layout = layout_of(log.withColumn("at_ms", F.col("order")), topic_partition="topic_partition", offset="offset")
    assert layout is not None
    assert 3 == layout.partitions
    assert (0, 0) == moves(layout.source.select("at_ms"))
    assert sorted(log.collect()) == sorted(layout.source.drop("at_ms").collect())


def test_a_log_is_replayed_alike_however_it_lies(log: "DataFrame") -> None:
    ready = log.withColumn("at_ms", F.col("order")).filter("id % 5 != 0")
    expected = replayed(ready)
    assert len(expected[0]) >= ready.count()
    assert expected == replayed(ready.repartition(5, "key"))
    assert expected == replayed(ready.localCheckpoint())
    assert expected == replayed(ready, partitions=2)
    assert expected == replayed(ready.persist())


def test_a_log_that_is_kept_is_counted_where_it_is_kept(log: "DataFrame", tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text("user,shard,ts\n" + "".join(f"k{i % 7},p{i % 2},{i}\n" for i in range(50)))
    read = load_log(log.sparkSession, str(tmp_path / "log.csv"), key="user", partition="shard", order="ts")
    kept = read.persist()
    assert 50 == kept.count()
    (tmp_path / "log.csv").unlink()
    for ready in (
        kept.withColumn("at_ms", F.col("order")),
        kept.selectExpr("*", "order as at_ms").filter("at_ms >= 0"),
    ):
        assert 50 == sum(row[3] for row in replayed(ready)[1])


def test_what_is_kept_before_it_is_laid_out_is_counted_there(spark: "SparkSession") -> None:
    rows = spark.range(50).selectExpr("'k' user", "'p' shard", "id ts").persist()
    layout = layout_of(
        as_log(rows, key="user", partition="shard", order="ts"), topic_partition="topic_partition", offset="offset"
    )
    assert layout is not None
    assert (0, 0) == moves(layout.source.select("order"))
    rows.unpersist()


STILL: dict[str, Callable[["DataFrame"], "DataFrame"]] = {
    "as it comes": lambda log: log,
    "with another column": lambda log: log.withColumn("more", F.upper("key")),
    "without some rows": lambda log: log.filter("offset > 3 and key != 'k1'").alias("some"),
    "without some columns": lambda log: log.select("offset", "key", "topic_partition"),
    "kept": lambda log: log.persist(),
}
MOVED: dict[str, Callable[["DataFrame"], "DataFrame"]] = {
    "spread": lambda log: log.repartition(3, "topic_partition"),
    "in another order": lambda log: log.sortWithinPartitions("key"),
    "limited": lambda log: log.limit(50),
    "with another": lambda log: log.union(log),
    "joined": lambda log: log.join(log.select("key").distinct(), "key"),
    "exploded": lambda log: log.withColumn("more", F.explode(F.array(F.lit(1), F.lit(2)))),
    "numbered otherwise": lambda log: log.withColumn("offset", -F.col("offset")),
    "by other topic-partitions": lambda log: log.withColumn("topic_partition", F.col("key")),
    "with a window over keys": lambda log: log.withColumn(
        "more", F.row_number().over(Window.partitionBy("key").orderBy("offset"))
    ),
    "through Python": lambda log: log.mapInArrow(lambda batches: batches, log.schema),
    "no log at all": lambda log: log.sparkSession.range(3).selectExpr("'p' as topic_partition", "id as offset"),
}


@pytest.mark.parametrize("how", [*STILL, *MOVED])
def test_only_a_log_whose_rows_cannot_have_moved_counts_as_laid_out(log: "DataFrame", how: str) -> None:
    found = layout_of({**STILL, **MOVED}[how](log), topic_partition="topic_partition", offset="offset")
    assert (found is not None) == (how in STILL)


def test_other_columns_do_not_say_where_a_log_lies(log: "DataFrame") -> None:
    assert layout_of(log, topic_partition="key", offset="offset") is None
    assert layout_of(log, topic_partition="topic_partition", offset="order") is None


def test_columns_of_other_names_do(log: "DataFrame") -> None:
    assert layout_of(log, topic_partition="`Topic_Partition`", offset="OFFSET") is not None
