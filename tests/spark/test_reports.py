"""Reports of real jobs: the figures on a page are those of the frames, and only bounded data leaves them."""

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.spark.replays.test_replay_report import NASTY, Page
from tests.spark.replays.test_replay_report import report as full

pyspark = pytest.importorskip("pyspark")
from pyspark.sql import functions as F  # noqa: E402, N812 - needs pyspark

from keyshared.errors import ArgumentError  # noqa: E402 - as above
from keyshared.simulate import Fixed, Group, Join, Leave, SetWeight, SimulatedConsumer  # noqa: E402 - as above
from keyshared.spark.audits.audit import audit  # noqa: E402 - as above
from keyshared.spark.replays.replay import Replay, replay  # noqa: E402 - as above
from keyshared.spark.replays.replay_figures import replay_report  # noqa: E402 - as above
from keyshared.spark.replays.replay_report import ReplayReport  # noqa: E402 - as above
from keyshared.spark.replays.schemas import DELIVERY_SCHEMA, SUMMARY_SCHEMA  # noqa: E402 - as above
from keyshared.spark.replays.what_if_figures import what_if_report  # noqa: E402 - as above
from keyshared.testing import Guarantees  # noqa: E402 - as above

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

START = 1_000_000  # the clock of a log seldom begins with 0
PLAN = Group(
    consumers=[SimulatedConsumer("ann", Fixed(5)), SimulatedConsumer("bob", Fixed(5))],
    changes=[
        Join(START + 200, SimulatedConsumer(NASTY, Fixed(5))),
        SetWeight(START + 250, "bob", 3),
        Leave(START + 300, "ann"),
    ],
)


@pytest.fixture(scope="module")
def replayed(spark: "SparkSession") -> Iterator[Replay]:
    number = F.col("id")
    key = F.when(number % 20 == 0, F.lit(NASTY)).when(number % 10 != 5, F.concat(F.lit("k"), number % 31))
    log = spark.range(400).select(
        F.concat(F.lit("p"), number % 2).alias("topic_partition"),
        number.alias("offset"),
        key.alias("key"),
        (number + START).alias("at_ms"),
    )
    with replay(log, PLAN, partitions=1) as result:
        yield result


def text_of(path: Path) -> str:
    return Page(path.read_text(encoding="utf-8")).text


def test_the_figures_of_a_replay_are_those_of_its_frames(replayed: Replay) -> None:
    found = replay_report(replayed.deliveries, replayed.summaries, PLAN, title="t", source="s", hottest=2, buckets=8)
    rows, summaries = replayed.deliveries.collect(), replayed.summaries.collect()
    assert (400, 2, 0) == (found.messages, found.topic_partitions, found.stopped)
    assert len({row["key"] for row in rows} - {None}) == found.keys
    assert 40 == found.keyless
    assert {load.consumer: load.deliveries for load in found.consumers} == {
        name: sum(row["consumer"] == name for row in rows) for name in ("ann", "bob", NASTY)
    }
    assert len(rows) == found.deliveries == pytest.approx(sum(load.ideal for load in found.consumers))
    # from 250 to 300 bob should have had three fifths, and from then on three quarters
    late = sum(row["delivered_ms"] >= START + 300 for row in rows)
    heavy = sum(START + 250 <= row["delivered_ms"] < START + 300 for row in rows)
    three = sum(START + 200 <= row["delivered_ms"] < START + 250 for row in rows)
    early = len(rows) - late - heavy - three
    assert [early / 2 + three / 3 + heavy / 5, early / 2 + three / 3 + 3 * heavy / 5 + 3 * late / 4] == pytest.approx(
        [load.ideal for load in found.consumers[:2]]
    )
    assert [("joins", NASTY, 200), ("changes weight", "bob", 250), ("leaves", "ann", 300)] == [
        (change.what, change.consumer, change.at_ms) for change in found.changes
    ]
    assert pytest.approx([1 / 3, 3 / 5 - 1 / 3, 1 / 5]) == [change.ideal for change in found.changes]
    moved = [change for row in summaries for change in row["moved_keys"] if change["keys"]]
    assert sum(change["moved"] for change in moved) == sum(change.keys_moved for change in found.changes)
    assert [(NASTY, 20)] == [(hot.key, hot.messages) for hot in found.hot_keys[:1]]
    assert max(row["largest_backlog"] for row in summaries) == found.backlogs[0].largest
    assert 0 == found.backlogs[0].points[0][0]
    assert max(row["end_ms"] for row in summaries) - START == found.span_ms
    assert max(row["wait_ms"] for row in rows) == max(wait.p99_ms for wait in found.waits)
    assert len(found.waits) <= 121
    assert found.buckets is not None
    assert 360 == sum(found.buckets.layouts[0].buckets)


def test_a_replay_writes_its_page_and_replaces_an_older_one(
    replayed: Replay, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []

    def figures(deliveries: "DataFrame", summaries: "DataFrame", plan: Group, **options: object) -> ReplayReport:
        """No jobs here: another test looks at the figures."""
        asked.extend((deliveries.columns, summaries.columns, plan))
        asked.extend(options.pop(name) for name in ("hottest", "buckets", "enough_ms", "epoch_ms"))
        return full(**options)

    # by import_module: as an attribute of the package, the name is the function
    monkeypatch.setattr(import_module("keyshared.spark.replays.replay"), "replay_report", figures)
    path = tmp_path / "replay.html"
    path.write_text("old" * 1_000_000)
    replayed.report(
        path,
        title="Replay of <May>",
        about="orders",
        violations={"one-holder": 0},
        hottest=1,
        buckets=None,
        enough_ms=5,
    )
    text = text_of(path)
    assert "Replay of <May>\norders\nevery promise kept\n" in text
    assert [DELIVERY_SCHEMA.names, SUMMARY_SCHEMA.names, PLAN, 1, None, 5, None] == asked
    assert path.stat().st_size < 100_000


@pytest.mark.parametrize(
    ("options", "parameter"),
    [
        ({"hottest": -1}, "hottest"),
        ({"buckets": 0}, "n"),
        ({"violations": {}}, "violations"),
        ({"enough_ms": -1}, "enough_ms"),
        ({"epoch_ms": 10**18}, "epoch_ms"),
        ({"path": "."}, "path"),
    ],
)
def test_a_report_that_cannot_be_is_refused_before_the_replay_runs(
    spark: "SparkSession", tmp_path: Path, options: dict[str, object], parameter: str
) -> None:
    never = Replay(spark.range(1).select(F.raise_error(F.lit("a job was started")).alias("deliveries")), PLAN)
    with pytest.raises(ArgumentError) as raised:
        never.report(**{"path": tmp_path / "page.html", **options})  # type: ignore[arg-type]  # wrong on purpose
    assert parameter == raised.value.parameter
    assert [] == list(tmp_path.iterdir())


def test_plans_are_compared_by_their_summaries(replayed: Replay) -> None:
    summaries = replayed.summaries.withColumn("plan", F.explode(F.array(F.lit("as it is"), F.lit("again"))))
    slow = F.when(F.col("plan") == "again", F.col("wait_p99_ms") + 1_000_000).otherwise(F.col("wait_p99_ms"))
    told = summaries.withColumn("wait_p99_ms", slow)
    found = what_if_report(told, {"again": PLAN, "as it is": PLAN}, title="t", source="s", by="backlog", hottest=1)
    rows = replayed.summaries.collect()
    assert (400, 2, ["again", "as it is"]) == (found.messages, found.topic_partitions, [p.plan for p in found.plans])
    worst = max(row["wait_p99_ms"] for row in rows)
    assert [worst + 1_000_000, worst] == [each.outcome.wait_p99_ms for each in found.plans]
    assert "backlog" == found.by
    for each in found.plans:
        deliveries = sum(row["deliveries"] for row in rows)
        assert deliveries == each.outcome.deliveries == sum(w.deliveries for w in each.consumers)
        assert ["ann", "bob", NASTY] == [work.consumer for work in each.consumers]
        assert sum(c["busy_ms"] for row in rows for c in row["consumers"]) == sum(w.busy_ms for w in each.consumers)
        assert ["joins", "changes weight", "leaves"] == [change.what for change in each.changes]
        largest = max(row["largest_backlog"] for row in rows)
        assert largest == each.backlog.largest == each.outcome.largest_backlog
    assert ((NASTY, 20),) == found.hot_keys


def test_plans_without_summaries_or_names_are_refused(spark: "SparkSession", replayed: Replay) -> None:
    for summaries, plans, parameter in (
        (replayed.summaries, {"a": PLAN}, "column"),
        (spark.range(1), {}, "plans"),
    ):
        with pytest.raises(ArgumentError) as raised:
            what_if_report(summaries, plans, title="t", source="s", by="backlog", hottest=1)
        assert parameter == raised.value.parameter


def history(spark: "SparkSession") -> "DataFrame":
    """A key at two consumers at once, in two of three topic-partitions."""
    rows: list[tuple[object, ...]] = []
    for name in ("t-0", "t-1", NASTY):
        second = "ann" if name == "t-1" else "bob"
        rows += [
            (name, 1, "published", 0, NASTY, None),
            (name, 2, "published", 1, NASTY, None),
            (name, 3, "delivered", 0, NASTY, "ann"),
            (name, 4, "delivered", 1, NASTY, second),
        ]
    columns = "topic_partition string, sequence long, happening string, offset long, key string, consumer string"
    return spark.createDataFrame(rows, columns).withColumn("version", F.lit(1))


def test_the_page_of_an_audit_names_what_was_broken_where_and_shows_proofs(
    spark: "SparkSession", tmp_path: Path
) -> None:
    path = tmp_path / "audit.html"
    with audit(history(spark), Guarantees(promises={"one-holder", "fence"}), partitions=1) as found:
        found.report(path, title="Audit", about="a log", proofs=1)
        with pytest.raises(ArgumentError, match="proofs is -1"):
            found.report(path, proofs=-1)
    text = text_of(path)
    assert "Audit\na log\n2 violations\n" in text
    assert "happenings\n12\ntopic-partitions\n3\npromises claimed\n2\n" in text
    assert "one-holder\nbroken\n2\n2\n" in text
    assert "fence\nnot judged in full\n0\n0\n" in text
    assert f"{NASTY}\n1\n50.0%\n" in text
    assert f"{NASTY}\n2\n" in text  # the key of both proofs
    assert 1 == text.count("offset 1 went to 'bob' while offset 0 of its key was open at 'ann'")
