"""The distribution demo from end to end: what it promises holds, what is broken is noticed, and figures add up."""

import os
import re
import subprocess
import sys
from collections import Counter
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest
from tests.spark.replays.test_replay_report import Page

from keyshared.distribution import DistributionTree, Hop, RecordArrival, judge

pyspark = pytest.importorskip("pyspark")
from pyspark.sql import functions as F  # noqa: E402, N812 - needs pyspark

from keyshared.spark.demo import __main__ as demo  # noqa: E402 - needs pyspark
from keyshared.spark.demo import clusters as demo_clusters  # noqa: E402 - needs pyspark
from keyshared.spark.demo import distribution as demo_distribution  # noqa: E402 - needs pyspark
from keyshared.spark.demo.clusters import FAILED, GROUPS, REFUGE, TREE, Year  # noqa: E402
from keyshared.spark.demo.distribution_report import ClusterLog, DistributionReport, Failover, html, summary  # noqa: E402
from keyshared.spark.demo.text import tell  # noqa: E402
from keyshared.spark.pages.treechart import NARROW, WIDE  # noqa: E402

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]

LIMIT = 2_000


def run(out: Path, *options: str) -> int:
    return demo.main(["distribution", "--out", str(out), "--limit", str(LIMIT), *options])


class Told(NamedTuple):
    """A run that is in order."""

    status: int
    text: str
    out: Path


@pytest.fixture(scope="module")
def told(spark: "SparkSession", tmp_path_factory: pytest.TempPathFactory) -> Told:
    out = tmp_path_factory.mktemp("distribution")
    assert spark is not None  # the demo takes the session that is running
    with redirect_stdout(StringIO()) as text:
        status = run(out)
    return Told(status, text.getvalue(), out)


@pytest.fixture(scope="module")
def records(spark: "SparkSession", told: Told) -> "DataFrame":
    return spark.read.parquet(str(told.out / "records"))


def _year(records: "DataFrame") -> Year:
    first, last = records.agg(F.min("timestamp_epoch_ms"), F.max("timestamp_epoch_ms")).collect()[0]
    return Year(first, last - first)


def test_every_promise_is_kept(told: Told) -> None:
    assert 0 == told.status
    page = (told.out / "distribution.html").read_text("utf-8")
    assert [] == Page(page).open
    assert "every promise kept" in page
    assert "<script" not in page
    assert "://" not in page.replace("http://www.w3.org", "")
    for width in (WIDE, NARROW):
        assert page.count(f'marker-end="url(#arrow{width})"') == 13  # twelve links, one of which has had two targets


def test_the_judge_of_the_core_finds_nothing_either(records: "DataFrame") -> None:
    rows = records.orderBy("cluster", "topic_partition", "offset").collect()
    arrivals = [
        RecordArrival(row.at_ms, row.cluster, f"{row.origin}/{row.topic_partition}", row.origin_offset) for row in rows
    ]
    report = judge(arrivals, TREE.clusters)
    assert report.exactly_once_in_order
    assert LIMIT == report.produced
    assert LIMIT * (len(TREE.clusters) - 1) == report.copies


def test_records_lie_in_the_order_of_their_arrival_and_a_copy_comes_after_what_it_is_of(records: "DataFrame") -> None:
    rows = records.collect()
    at = {(row.message_id, row.cluster): row.at_ms for row in rows}
    assert all(row.at_ms > at[row.message_id, row.from_cluster] for row in rows if row.from_cluster)
    for place in {(row.cluster, row.topic_partition) for row in rows}:
        arrived = sorted((row.offset, row.at_ms) for row in rows if (row.cluster, row.topic_partition) == place)
        assert [moment for _, moment in arrived] == sorted(moment for _, moment in arrived)
        assert [offset for offset, _ in arrived] == list(range(arrived[0][0], arrived[0][0] + len(arrived)))


def test_the_move_and_the_outage_can_be_seen_in_the_records(records: "DataFrame") -> None:
    year = _year(records)
    (moved,) = year.change.moved
    links = Counter((row.from_cluster, row.level, row.cluster) for row in records.collect())
    assert links[moved.old] > 0
    assert links[moved.new] > 0
    late = records.filter(F.col("at_ms") - F.col("timestamp_epoch_ms") > 3_600_000)
    assert {("c1", "c4"), ("c1", "c5")} == {(row.origin, row.cluster) for row in late.collect()}
    new = records.filter((F.col("from_cluster") == moved.new.cluster) & (F.col("cluster") == moved.new.target))
    assert new.filter(F.col("level") == moved.new.level).agg(F.min("at_ms")).collect()[0][0] >= year.apply_ms


def test_what_is_told_adds_up(told: Told) -> None:
    text = told.text
    assert re.search(rf"messages +{LIMIT:,}\n +copies +{4 * LIMIT:,}\n", text)
    table = [line.split() for line in text.partition("records of each cluster\n")[2].splitlines()[1:6]]
    assert [*TREE.clusters] == [row[0] for row in table]
    assert {LIMIT} == {int(row[1].replace(",", "")) + int(row[2].replace(",", "")) for row in table}
    ways = [line for line in text.splitlines() if line.endswith(("  no loss", "  none"))]
    assert ["timestamp, margin 1 min", "timestamp, margin 6 h 3 min", "provenance"] == [
        line.strip().partition("  ")[0] for line in ways
    ]
    assert [0, 0] == [int(line.split()[-4].replace(",", "")) for line in ways[1:2]] + [int(ways[2].split()[1])]


# one in every run, and without the failover, which has nothing to do with it: each takes a quarter of a minute
@pytest.mark.slow
@pytest.mark.parametrize("fault", ["lossy", "own-bit"])
def test_a_broken_distribution_exits_with_1_and_says_what_happened(
    fault: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo_distribution, "_failovers", lambda *_: ((), 0))
    assert 1 == run(tmp_path, "--fault", fault, "--quiet", "--limit", "300")
    errors = capsys.readouterr().err
    expected = {"lossy": "c1 did not copy it to c2 at level 2", "own-bit": "2 copies"}[fault]
    assert expected in errors
    assert " violations" in (tmp_path / "distribution.html").read_text("utf-8")


def test_the_drain_needs_as_many_looks_as_it_has_levels(records: "DataFrame", monkeypatch: pytest.MonkeyPatch) -> None:
    year = _year(records)
    token = demo_clusters.drained(records, year)
    assert token is not None
    assert TREE.apply(year.change, token) == year.change.after
    monkeypatch.setattr(demo_clusters, "_LOOK_MS", 10**6)
    assert demo_clusters.drained(records, year) is None


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (["--limit", "0"], "--limit is 0; it must be at least 1"),
        (["--limit", "-3"], "--limit is -3; it must be at least 1"),
        (["--records", "lake[1]"], "--records is 'lake[1]'; it must have none of * ? [ ]"),
        (["--out", "out{1}"], "--out is '/"),
    ],
)
def test_what_cannot_be_run_exits_with_2(options: list[str], error: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert 2 == demo.main(["distribution", *options])
    assert capsys.readouterr().err.startswith(f"error: {error}")
    assert not Path("out{1}").exists()


def test_an_unknown_option_exits_with_2(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        demo.main(["distribution", "--fault", "everything"])
    assert 2 == stop.value.code
    assert "invalid choice: 'everything'" in capsys.readouterr().err


def test_the_options_are_told_without_spark() -> None:
    command = [sys.executable, "-m", "keyshared.spark.demo", "distribution", "--help"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    told = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert 0 == told.returncode
    assert "--fault {lossy,own-bit}" in told.stdout


REPORT = DistributionReport(
    title="a <title>",
    source="what & where",
    tree=DistributionTree({1: ["a", "b"]}),
    moved=(),
    messages=3,
    seconds=1.0,
    faults=(("lost", 0),),
    clusters=(ClusterLog(cluster="a", produced=3, received=0, sent=3),),
    links=((Hop("a", 1, "b"), 3),),
    groups=1,
    failovers=(
        Failover(way="margin", promised=False, lost=7, again=1),
        Failover(way="vector", promised=True, lost=0, again=2),
    ),
)


def test_only_what_was_promised_is_a_violation() -> None:
    assert (("lost", 0), ("lost in failover (vector)", 0)) == REPORT.broken
    assert "every promise kept" in html(REPORT)
    assert "a &lt;title&gt;" in html(REPORT)
    told = StringIO()
    tell(told, summary(REPORT))
    assert "  margin         7           1  none\n" in told.getvalue()


def test_groups_fail_over_to_another_cluster_of_the_tree() -> None:
    assert 2 == len({FAILED, REFUGE} & set(TREE.clusters))
    assert 0 in GROUPS.values()
