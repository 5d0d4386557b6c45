"""Every figure of the page is the one that pandas gives; each planted cause is named, with what would be enough."""

import html
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from keyshared.config import DispatcherConfig, RetryPolicy
from keyshared.simulate import (
    Answer,
    Change,
    Crash,
    Fixed,
    Group,
    Join,
    Leave,
    Redrive,
    Return,
    SampledAnswers,
    SimulatedConsumer,
)

pytest.importorskip("pyspark")
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark user knows
from tests.spark.logs import log_frame, random_group, random_log

from keyshared.spark.causes import causes_of
from keyshared.spark.deliveries import DELIVERIES, simulate
from keyshared.spark.log_columns import LogColumns
from keyshared.spark.page import duration, page_html, summary_text, write_page
from keyshared.spark.page_figures import HOT_KEYS, INTERVALS, Figures, figures
from keyshared.spark.verdicts import audit

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

COLUMNS = f"topic string, partition int, {DELIVERIES}"


@pytest.fixture(scope="module")
def deliveries(spark: "SparkSession") -> DataFrame:
    """Deliveries of a random group with failures, kept in memory."""
    return simulate(log_frame(spark, random_log(3, messages=200)), random_group(3)).persist()


@pytest.fixture(scope="module")
def found(deliveries: DataFrame) -> Figures:
    verdicts = audit(deliveries)
    [only] = figures(deliveries, verdicts, group=random_group(3))
    return only


def waiting(deliveries: DataFrame) -> Any:
    """The deliveries, and when their work began."""
    rows = deliveries.toPandas()
    rows["began_ms"] = (rows["ended_ms"] - rows["service_ms"]).fillna(rows["delivered_ms"])
    rows["wait_ms"] = (rows["began_ms"] - rows["available_ms"]).fillna(rows["wait_ms"])
    return rows


def test_totals_are_those_of_pandas(deliveries: DataFrame, found: Figures) -> None:
    rows = waiting(deliveries)
    rows["place"] = rows["topic"] + "-" + rows["partition"].astype(str)
    rows["key"] = rows["key"].map(lambda key: None if key is None else bytes(key))
    parts = [(found.total, rows), *((row, rows[rows["place"] == row["name"]]) for row in found.topic_partitions)]
    parts += [(row, rows[rows["consumer"] == row["name"]]) for row in found.consumers if row["deliveries"]]
    for figure, part in parts:
        assert figure["messages"] == (part["attempt"] <= 1).sum()
        assert figure["deliveries"] == part["consumer"].notna().sum()
        assert figure["redeliveries"] == (part["attempt"] > 1).sum()
        assert figure["acked"] == (part["outcome"] == "acked").sum()
        assert figure["failed"] == part["outcome"].isin(["nacked", "rejected", "timed_out"]).sum()
        assert figure["wait_p50_ms"] == part["wait_ms"].quantile(0.5)
        assert figure["wait_p99_ms"] == pytest.approx(part["wait_ms"].quantile(0.99))
        assert figure["wait_max_ms"] == part["wait_ms"].max()
        assert figure["busy_ms"] == part["service_ms"].sum()
    assert found.total["messages"] == rows.drop_duplicates(["place", "offset"]).shape[0] == 800
    assert found.keys == rows["key"].nunique() == 8
    assert len(found.topic_partitions) == 4
    keyed = rows.dropna(subset=["key"]).groupby(["place", "key"])
    waited = keyed["wait_ms"].sum().sort_values(ascending=False)
    assert [row["wait_ms"] for row in found.hot_keys] == waited.tolist()[:HOT_KEYS]
    for row in found.hot_keys:
        own = keyed.get_group((row["topic_partition"], row["key"]))
        assert row["messages"] == (own["attempt"] <= 1).sum()
        assert row["p99"] == pytest.approx(own["wait_ms"].quantile(0.99))
        assert row["consumers"] == sorted(own["consumer"].dropna().unique())


def test_waits_and_backlog_over_time_are_those_of_pandas(deliveries: DataFrame, found: Figures) -> None:
    rows = waiting(deliveries)
    first = found.total["start_ms"]
    starts = rows.dropna(subset=["consumer"])
    at = ((starts["began_ms"] - first) // found.width_ms).astype(int)
    for row in found.waits:
        own = starts[at == row["at"]]["wait_ms"]
        assert (row["deliveries"], row["p50"]) == (len(own), own.quantile(0.5))
        assert row["p99"] == pytest.approx(own.quantile(0.99))
    assert sum(row["deliveries"] for row in found.waits) == len(starts)
    everything = [row for row in found.backlog if row["topic_partition"] == "all"]
    assert len(everything) == INTERVALS
    arrived = rows[rows["attempt"] <= 1]["available_ms"]
    done = rows[(rows["outcome"] == "acked") | rows["consumer"].isna()]["ended_ms"].dropna()
    instants = sorted({*arrived, *done})
    backlog = {at_ms: (arrived <= at_ms).sum() - (done <= at_ms).sum() for at_ms in instants}
    for row in everything:
        end = row["start_ms"] + found.width_ms
        before = [backlog[at_ms] for at_ms in instants if at_ms < row["start_ms"]][-1:]
        assert row["backlog"] == max([*before, *(backlog[at] for at in instants if row["start_ms"] <= at < end)])
    assert {row["topic_partition"] for row in found.backlog} == {"all", "orders-0", "orders-1", "bills-0", "bills-1"}
    assert {row["consumer"] for row in found.use} == {"a", "b", "c"}
    assert all(0 <= row["use"] <= 1 for row in found.use)


def test_a_consumer_that_always_works_is_in_use_all_of_its_time(spark: "SparkSession") -> None:
    log = spark.range(100).selectExpr("'t' topic", "0 partition", "id offset", "cast(id as string) key", "0L timestamp")
    changes: list[Change] = [Crash(100, "b"), Return(200, "b")]
    consumers = [SimulatedConsumer(name, Fixed(10), concurrency=2, limit=2) for name in "ab"]
    group = Group(consumers=consumers, changes=changes)
    [found] = figures(simulate(log, group), group=group)
    use = {name: [row["use"] for row in found.use if row["consumer"] == name] for name in "ab"}
    assert len(use["b"]) < len(use["a"]) <= INTERVALS
    assert sum(use["a"]) / len(use["a"]) > 0.4


def test_a_redriven_message_is_in_the_backlog_again_until_it_is_done(spark: "SparkSession") -> None:
    log = spark.range(5).selectExpr("'t' topic", "0 partition", "id offset", "'k' key", "id timestamp")
    group = Group(
        consumers=[SimulatedConsumer("a", Fixed(10))],
        changes=[Redrive(500, "k"), Redrive(900, "k")],
        answers=[SampledAnswers([Answer.REJECT, Answer.ACK])],
        config=DispatcherConfig(redrive=True),
    )
    deliveries = simulate(log, group)
    ends = [(row.offset, row.ended_ms) for row in deliveries.filter("outcome = 'dead_lettered'").collect()]
    assert [(3, 40), (4, 50), (3, 510), (3, 910)] == ends  # 4 is acked at 520
    [found] = figures(deliveries, group=group)
    backlog = {row["start_ms"]: row["backlog"] for row in found.backlog if row["topic_partition"] == "all"}
    assert (found.width_ms, max(backlog.values())) == (8, 5)
    assert [0, 2, 1, 0, 0, 1, 1] == [backlog[at_ms] for at_ms in (400, 496, 512, 528, 888, 896, 904)]


def test_a_message_that_is_settled_without_a_delivery_leaves_the_backlog(spark: "SparkSession") -> None:
    rows: list[Any] = [("t", 0, 0, b"k", None, 0, 5, None, 9, "skipped", None, None, None, 0)]
    rows += [("t", 0, 1, b"k", "a", 1, 200, 200, 300, "acked", 0, 100, 1, 2)]
    [found] = figures(spark.createDataFrame(rows, COLUMNS))
    backlog = {row["start_ms"]: row["backlog"] for row in found.backlog if row["topic_partition"] == "all"}
    assert [1, 0, 1, 1] == [backlog[at_ms] for at_ms in (5, 101, 200, 299)]


def test_a_key_of_two_topics_is_two_keys_in_order(spark: "SparkSession") -> None:
    log = spark.range(1_000).selectExpr(
        "if(id % 2 = 0, 'a', 'b') topic", "0 partition", "id offset", "'same' key", "id * 100 timestamp"
    )
    group = Group(consumers=consumers(150, 150))
    [found] = figures(simulate(log, group), group=group, enough_ms=1)
    assert (found.keys, found.is_enough) == (1, True)
    assert [("a-0", 500), ("b-0", 500)] == [(row["topic_partition"], row["messages"]) for row in found.hot_keys]
    slow = Group(consumers=consumers(190, 190))
    [found] = figures(simulate(log.withColumn("timestamp", F.expr("offset * 90")), slow), group=slow, enough_ms=1)
    text = next(cause.text for cause in causes_of(found) if cause.name == "hot key")
    assert text.startswith("Key same of a-0 has 50% of all waiting: its messages need 106% of the time of one worker")


def by_offset(spark: "SparkSession", key: str, *, every_ms: int = 100, count: int = 1_500) -> DataFrame:
    return spark.range(count).selectExpr(
        "'t' topic", "0 partition", "id offset", f"{key} key", f"id * {every_ms} timestamp"
    )


def consumers(*services: int) -> list[SimulatedConsumer]:
    return [SimulatedConsumer(f"c{number}", Fixed(ms)) for number, ms in enumerate(services, 1)]


SPREAD = "concat('k', id % 500)"
HOT = "if(id % 3 = 0, 'hot', concat('k', id))"
RETRY = DispatcherConfig(retry=RetryPolicy(base_delay_ms=30_000, max_delay_ms=60_000))
CAUSES = {
    "too few consumers": (Group(consumers=consumers(300, 300)), r"\d+ consumers instead of 2"),
    "slow consumer": (Group(consumers=consumers(100, 100, 1_200)), "Repair c3"),
    "retries": (
        Group(consumers=consumers(100, 100, 100), answers=[SampledAnswers((Answer.ACK, Answer.NACK))], config=RETRY),
        "Repair the failures",
    ),
    "absence": (
        Group(
            consumers=consumers(100, 100, 100, 100),
            changes=[Crash(50_000, "c1")],
            config=DispatcherConfig(inactive_grace_ms=45_000),
        ),
        "inactive_grace_ms",
    ),
}


def test_each_cause_is_named_with_what_would_be_enough(spark: "SparkSession") -> None:
    groups = {name: group for name, (group, _) in CAUSES.items()}
    log = by_offset(spark, SPREAD)
    wanted = 0
    for found in figures(simulate(log, groups), group=groups, enough_ms=10_000):
        causes = {cause.name: cause.remedy for cause in causes_of(found)}
        assert found.is_enough is False
        assert re.search(CAUSES[found.name][1], causes[found.name]), (found.name, causes)
        if found.name == "too few consumers":
            wanted = int(causes[found.name].split()[0])
    more = Group(consumers=consumers(*[300] * wanted))  # as many as it says are enough
    hot = Group(consumers=consumers(*[350] * 12))
    [again] = figures(simulate(log, more), group=more, enough_ms=10_000)
    assert again.is_enough
    [found] = figures(simulate(by_offset(spark, HOT), hot), group=hot, enough_ms=10_000)
    assert [("hot key", True)] == [(cause.name, "split the key" in cause.remedy) for cause in causes_of(found)]


def test_a_group_that_is_enough_has_no_causes_and_one_that_stops_early_is_not_enough(spark: "SparkSession") -> None:
    log = by_offset(spark, SPREAD, count=300)
    group, short = Group(consumers=consumers(10, 10)), Group(consumers=consumers(10, 10), until_ms=5_000)
    [found] = figures(simulate(log, group), group=group)
    assert (found.is_enough, causes_of(found)) == (True, [])
    [found] = figures(simulate(log, short), group=short)
    assert (found.is_enough, found.total["unfinished"]) == (False, 250)
    assert "250 messages were not done at the end" in page_html([found])
    assert ["other"] == [cause.name for cause in causes_of(found)]


def test_the_page_runs_six_queries_at_most(deliveries: DataFrame, monkeypatch: pytest.MonkeyPatch) -> None:
    verdicts, count = audit(deliveries), 0
    collect = type(deliveries).collect

    def counted(df: DataFrame) -> Any:
        nonlocal count
        count += 1
        return collect(df)

    monkeypatch.setattr(type(deliveries), "collect", counted)
    figures(deliveries, verdicts, group=random_group(3))
    assert count == 6


def text_of(page: str) -> str:
    return html.unescape(re.sub(r"<[^>]+>", " ", re.sub(r"<(style|svg).*?</\1>", "", page, flags=re.DOTALL)))


def test_the_page_and_the_terminal_say_the_same(found: Figures, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    write_page([found], path, title="Orders & <bills>", about="made up")
    page = path.read_text()
    text, terminal = text_of(page), summary_text([found], title="Orders & <bills>", about="made up")
    assert "<script" not in page
    assert 3 * 2 == page.count("<svg")
    assert 3 == page.count("<table")
    assert 10 == page.count("<dt>")
    for line in ("Orders & <bills>", "made up", "every promise kept", "800", duration(found.total["wait_p99_ms"])):
        assert line in text
        assert line in terminal
    assert len(terminal.splitlines()) <= 20


def test_a_violation_is_shown_with_its_proof_and_nothing_of_a_key_is_markup(spark: "SparkSession") -> None:
    key = b"<b>\xff"
    rows = [
        ("t", 0, 0, key, "ann", 1, 0, 0, 10, "acked", 0, 10, 0, 2),
        ("t", 0, 1, key, "<i>", 1, 0, 1, 11, "acked", 1, 10, 1, 3),
    ]
    df = spark.createDataFrame(rows, COLUMNS)
    [found] = figures(df, audit(df))
    assert [("one-holder", "t-0")] == [(proof["promise"], proof["place"]) for proof in found.proofs]
    page = page_html([found])
    assert "broken: one-holder 1" in text_of(page)
    assert "<b>\\xff" in text_of(page)
    assert "<b>\\xff" not in page
    assert "<i>" not in page
    assert "[!!] broken: one-holder 1" in summary_text([found])


def test_groups_are_compared_side_by_side(spark: "SparkSession") -> None:
    groups = {"one": Group(consumers=consumers(300)), "four": Group(consumers=consumers(100, 100, 100, 100))}
    deliveries = simulate(by_offset(spark, SPREAD, count=600), groups)
    verdicts = audit(deliveries, topic_partition=("consumer_group", "topic", "partition"))
    found = figures(deliveries, verdicts, group=groups, enough_ms=10_000)
    assert [("four", True), ("one", False)] == [(each.name, each.is_enough) for each in found]
    assert [(4, 0, {})] * 2 == [(len(each.promises), each.violations, each.unjudged) for each in found]
    page = text_of(page_html(found))
    assert "Groups side by side" in page
    assert "too few consumers" in page
    assert "Groups side by side" not in summary_text(found[:1])
    assert re.search(r"four .* yes", summary_text(found))


def test_no_deliveries_give_no_figures_and_nothing_delivered_is_no_verdict(spark: "SparkSession") -> None:
    log = by_offset(spark, SPREAD, count=5)
    group = Group(consumers=[], until_ms=1_000)
    assert [] == figures(simulate(log.filter("offset < 0"), group, LogColumns(start=0)), group=group)
    [found] = figures(simulate(log, group), group=group)
    assert found.is_enough is None
    page = text_of(page_html([found]))
    assert "nothing was delivered" in page
    assert "promises were not judged" in page


@pytest.mark.parametrize(
    ("ms", "text"), [(0, "0 ms"), (999, "999 ms"), (61_000, "1.0 min"), (90_000_000, "1.0 d"), (None, "")]
)
def test_a_duration_is_written_for_people(ms: int | None, text: str) -> None:
    assert text == duration(ms)


def test_a_change_of_a_group_is_marked(found: Figures) -> None:
    names = {Join: "joins", Crash: "crashes", Leave: "leaves", Return: "returns"}
    expected = sorted(
        (found.total["start_ms"] + change.at_ms, f"{getattr(change, 'name', 'c')} {names[type(change)]}")
        for change in random_group(3).changes
    )
    assert expected == sorted(found.marks)
