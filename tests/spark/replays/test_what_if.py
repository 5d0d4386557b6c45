"""Several plans over one log as a Spark job: what each says alone, in one pass over the log."""

from collections.abc import Iterable, Iterator
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.spark.replays.test_replay import BACKLOG, CALM, STORMY, frame, plain, random_log
from tests.spark.settings import BATCH_ROWS, settings

from keyshared.config import DispatcherConfig, Poison, RetryPolicy
from keyshared.errors import ArgumentError
from keyshared.placement import AutoSplit, Placement
from keyshared.ring import HashRing
from keyshared.simulate import Answer, Fixed, Group, Join, Leave, Poisoned, SimulatedConsumer
from keyshared.spark.replays.comparison import what_if_partition
from keyshared.spark.replays.partition import Message

pyspark = pytest.importorskip("pyspark")
import pyarrow as pa  # noqa: E402 - comes with pyspark's extra

from keyshared.spark.plans.ranking import CRITERIA, best  # noqa: E402 - needs pyspark
from keyshared.spark.replays.replay import summary_fields  # noqa: E402 - needs pyspark
from keyshared.spark.replays.what_if import WHAT_IF_SCHEMA, what_if, what_if_batches  # noqa: E402 - needs pyspark
from keyshared.spark.replays.what_if_figures import outcomes_of  # noqa: E402 - needs pyspark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def of_two(placement: Placement) -> Group:
    return Group(
        consumers=[SimulatedConsumer("a", Fixed(9)), SimulatedConsumer("b", Fixed(7))],
        changes=[Join(90, SimulatedConsumer("c", Fixed(5))), Leave(300, "a")],
        placement=placement,
    )


PLANS = {"stormy": STORMY, "backlog": BACKLOG, "ring": of_two(HashRing()), "split": of_two(AutoSplit())}


def expected(log: list[Message], plans: dict[str, Group]) -> list[dict[str, object]]:
    rows = what_if_partition(sorted(log, key=lambda row: row[:2]), plans, points=10, hottest=3)
    return [{"plan": plan, **summary_fields(summary)} for plan, summary in rows]


def by_name(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: (row["topic_partition"], row["plan"]))


@pytest.mark.parametrize(("partitions", "batch"), [(None, 10_000), (7, 3)])
def test_every_plan_says_what_it_says_in_process_whatever_the_partitions_and_batches(
    spark: "SparkSession", partitions: int | None, batch: int
) -> None:
    log = random_log(seed=11, topic_partitions=5)
    with settings(spark, {BATCH_ROWS: str(batch)}):
        rows = frame(spark, log).repartition(3)
        with what_if(rows, PLANS, service_ms="service_ms", partitions=partitions, points=10, hottest=3) as compared:
            assert WHAT_IF_SCHEMA == compared.summaries.schema
            found = [plain(row) for row in compared.summaries.collect()]
    assert by_name(expected(log, PLANS)) == by_name(found)


def test_the_log_is_read_as_often_for_four_plans_as_for_one(spark: "SparkSession", tmp_path: Path) -> None:
    log = frame(spark, random_log(seed=12, topic_partitions=2)).coalesce(1)
    counts = []
    for number, plans in enumerate([{"calm": CALM}, PLANS]):
        trace = tmp_path / str(number)
        watched = log.mapInArrow(partial(watched_rows, str(trace)), log.schema)
        with what_if(watched, plans, service_ms="service_ms") as compared:
            before = len(trace.read_text().splitlines())
            assert len(plans) == compared.totals.count()
            assert 2 * len(plans) == compared.summaries.count()
        counts.append((before, len(trace.read_text().splitlines())))
    assert [(1, 2), (1, 2)] == counts  # once to look at it, and once to simulate all plans


def watched_rows(trace: str, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    with Path(trace).open("a") as file:
        file.write("read\n")
    yield from batches


def test_loads_moves_and_totals_are_views_of_the_summaries(spark: "SparkSession") -> None:
    log = random_log(seed=13, topic_partitions=3)
    told = expected(log, PLANS)
    with what_if(frame(spark, log), PLANS, service_ms="service_ms", points=10, hottest=3) as compared:
        consumers = [plain(row) for row in compared.consumers.collect()]
        moves = [plain(row) for row in compared.moved_keys.collect()]
        totals = {row.plan: row for row in compared.totals.collect()}
    place = ("plan", "topic_partition")
    for name, rows in (("consumers", consumers), ("moved_keys", moves)):
        wanted = [{**{at: row[at] for at in place}, **each} for row in told for each in row[name]]  # type: ignore[attr-defined]  # a list
        assert sorted(map(repr, wanted)) == sorted(map(repr, rows))
    assert moves
    for plan in PLANS:
        mine: list[dict[str, Any]] = [row for row in told if row["plan"] == plan]
        total = totals[plan]
        assert (3, max(row["wait_p99_ms"] for row in mine)) == (total.topic_partitions, total.wait_p99_ms)
        assert (sum(row["deliveries"] for row in mine), max(row["largest_backlog"] for row in mine)) == (
            total.deliveries,
            total.largest_backlog,
        )
        assert sum(each["moved"] for row in mine for each in row["moved_keys"]) == total.moved_keys


def test_what_a_plan_drops_skips_or_is_never_offered_counts_against_it(spark: "SparkSession") -> None:
    retry = RetryPolicy(max_redeliveries=1, base_delay_ms=10)
    ann = SimulatedConsumer("ann", Fixed(10))
    answers = [Poisoned(keys=["k1"], reply=Answer.NACK)]
    plans = {
        "archive": Group(
            consumers=[ann], answers=answers, config=DispatcherConfig(retry=retry, poison=Poison.DEAD_LETTER)
        ),
        "drop": Group(consumers=[ann], answers=answers, config=DispatcherConfig(retry=retry, poison=Poison.DROP)),
        "filter": Group(consumers=[SimulatedConsumer("ann", Fixed(10), filters=["k0"])]),
        "until": Group(consumers=[ann], until_ms=899),
        "whole": Group(consumers=[ann, SimulatedConsumer("bob", Fixed(10))]),
    }
    log = [Message("p", number, b"k%d" % (number % 3), number * 20) for number in range(90)]
    with what_if(frame(spark, log), plans) as compared:
        outcomes = outcomes_of(compared.totals.collect(), plans)
    lost = {"archive": 30, "drop": 30, "filter": 60, "until": 45, "whole": 0}
    assert lost == {each.plan: each.lost for each in outcomes}
    for by in CRITERIA:
        assert ["whole"] == [each.plan for each in best(outcomes, by)]


def test_batches_are_written_as_they_fill(monkeypatch: pytest.MonkeyPatch) -> None:
    module = import_module("keyshared.spark.replays.what_if")  # by attribute, the name is the function's
    monkeypatch.setattr(module, "_BATCH_ROWS", 3)
    log = sorted(random_log(seed=14, topic_partitions=2), key=lambda row: row[:2])
    columns = Message._fields
    batch = pa.RecordBatch.from_pylist([dict(zip(columns, row, strict=True)) for row in log])
    batches = list(what_if_batches([batch.slice(0, 5), batch.slice(5)], PLANS, points=10, hottest=3))
    assert [3, 3, 2] == [found.num_rows for found in batches]
    assert by_name(expected(log, PLANS)) == by_name([row for found in batches for row in found.to_pylist()])


def test_names_of_columns_and_plans_are_free_and_keys_within_structs_and_maps_are_taken(
    spark: "SparkSession",
) -> None:
    rows = [(({"user": "é"}, "t"), 1, 5), (({"user": None}, "t"), 2, 9), (({}, "t"), 3, 9)]
    log = spark.createDataFrame(
        rows, "event struct<headers: map<string, string>, shard: string>, `due.ms` int, pos int"
    )
    log = log.selectExpr("event", "`due.ms` as pos", "pos as `due.ms`")
    names = {"topic_partition": "event.shard", "key": "event.headers.user", "offset": "pos", "at_ms": "`due.ms`"}
    with what_if(log, {"été 'x'": CALM}, **names) as compared:  # type: ignore[arg-type]  # names of columns
        found = compared.summaries.select("plan", "topic_partition", "keys", "keyless").collect()
    assert [("été 'x'", "t", 1, 2)] == [tuple(row) for row in found]


def test_an_error_in_a_plan_names_it(spark: "SparkSession") -> None:
    log = frame(spark, [Message("t", 7, b"k"), Message("t", 7, b"k")])
    with (
        what_if(log, {"calm": CALM}) as compared,
        pytest.raises(pyspark.errors.PythonException, match="in plan 'calm', topic-partition 't'"),
    ):
        compared.summaries.collect()


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"plans": {}}, "it must be a mapping from names to plans, with at least one of them"),
        ({"plans": {"": CALM}}, "it must be a non-empty str"),
        ({"plans": {"calm": None}}, "plan 'calm' is None; it must be a Group"),
        ({"key": "at_ms"}, "'at_ms'; it must be string or binary, and it is bigint; cast it to string first"),
        ({"topic_partition": "nope"}, "'nope'; it must be a column of the frame"),
        ({"offset": "key"}, "'key'; it must be long or int or smallint or tinyint, and it is binary"),
        ({"partitions": 0}, "partitions is 0"),
        ({"points": 0}, "points is 0"),
        ({"hottest": -1}, "hottest is -1"),
    ],
)
def test_what_cannot_be_compared_is_said_before_any_job(
    spark: "SparkSession", arguments: dict[str, object], told: str
) -> None:
    log = frame(spark, [Message("t", 7, b"k")])
    with pytest.raises(ArgumentError, match=told):
        what_if(log, **{"plans": {"calm": CALM}, **arguments})  # type: ignore[arg-type]  # that is the mistake
