"""The command: a log in SQL and a group in Python become a page; the demo's flights keep every promise."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from keyshared.errors import ArgumentError
from keyshared.simulate import Crash, Join

pytest.importorskip("pyspark")
from tests.spark.logs import log_frame, random_log

from keyshared.spark import cli, demo
from keyshared.spark.cli import main
from keyshared.spark.deliveries import simulate
from keyshared.spark.log_columns import LogColumns

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

GROUP = """
from keyshared.simulate import Fixed, Group, SimulatedConsumer

def of(*names):
    return Group(consumers=[SimulatedConsumer(name, Fixed(20)) for name in names])
"""


@pytest.fixture(scope="module")
def events(spark: "SparkSession", tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of Parquet with topic, partition, offset, key and timestamp."""
    folder = tmp_path_factory.mktemp("log") / "events"
    log_frame(spark, random_log(5)).write.parquet(folder.as_uri())
    return folder


def group_file(folder: Path, name: str, line: str) -> str:
    path = folder / name
    path.write_text(GROUP + line)
    return str(path)


def test_a_parquet_folder_and_a_group_become_a_page(
    spark: "SparkSession", events: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    group = group_file(tmp_path, "today.py", 'group = of("ann", "bob")')
    assert 0 == main(["--log", f"TABLE parquet.`{events}`", "--group", group, "--out", str(tmp_path / "out")])
    text = capsys.readouterr().out
    assert "[ok] every promise kept" in text
    assert "messages 240; keys 8; topic-partitions 4" in text
    page = (tmp_path / "out" / "report.html").read_text()
    assert "every promise kept" in page
    deliveries = spark.read.parquet(f"{tmp_path}/out/deliveries")
    assert deliveries.columns[:3] == ["topic", "partition", "offset"]
    assert deliveries.filter("attempt <= 1").count() == 240
    verdicts = spark.read.parquet(f"{tmp_path}/out/audit")
    assert verdicts.count() == 4 * 4


def test_several_groups_are_compared(
    events: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], spark: "SparkSession"
) -> None:
    assert spark is not None
    files = [
        group_file(tmp_path, "one.py", 'group = of("ann")'),
        group_file(tmp_path, "more.py", 'groups = {"two": of("ann", "bob"), "three": of("ann", "bob", "eve")}'),
    ]
    statements = f"CREATE OR REPLACE TEMPORARY VIEW events USING parquet OPTIONS (path '{events}'); TABLE events;"
    arguments = ["--log", statements, "--out", str(tmp_path / "out"), *(f"--group={file}" for file in files)]
    assert 0 == main(arguments)
    text = capsys.readouterr().out
    assert all(name in text for name in ("group one", "group two", "group three"))


def test_a_semicolon_in_quotes_ends_no_statement(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], spark: "SparkSession"
) -> None:
    assert spark is not None
    (tmp_path / "log.csv").write_text("topic;partition;offset;key;timestamp\nt;0;7;k;5\n")
    view = f"CREATE OR REPLACE TEMPORARY VIEW rows USING csv OPTIONS (path '{tmp_path}/log.csv', sep ';', "
    query = "SELECT * FROM rows WHERE key != 'it''s; \"not\"'"
    arguments = ["--log", f"{view} header true, inferSchema true); {query} ;", "--out", str(tmp_path / "out")]
    group = group_file(tmp_path, "today.py", 'group = of("ann", "bob")')
    assert 0 == main([*arguments, "--group", group])
    assert f"Messages of {query}." in capsys.readouterr().out
    assert 2 == main(["--log", " ; ", "--group", group, "--out", str(tmp_path / "out")])
    assert "--log" in capsys.readouterr().err


def test_without_a_group_one_is_made_up_that_the_log_keeps_busy(
    events: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], spark: "SparkSession"
) -> None:
    assert spark is not None
    query = (
        f"SELECT concat(topic, partition) AS shard, offset AS n, key AS user, timestamp AS ts FROM parquet.`{events}`"  # noqa: S608 - of a file
    )
    names = ["--topic-partition", "shard", "--offset", "n", "--key", "user", "--time", "ts"]
    assert 0 == main(["--log", query, *names, "--consumers", "3", "--out", str(tmp_path), "--title", "Mine"])
    text = capsys.readouterr().out
    assert text.startswith("Mine\n")
    assert "3 made-up consumers" in text
    assert "c1" in text


def test_a_broken_promise_is_the_exit_status(
    spark: "SparkSession",
    events: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert spark is not None
    simulated = simulate

    def broken(*arguments: Any, **options: Any) -> Any:
        deliveries = simulated(*arguments, **options)
        return deliveries.filter("outcome != 'acked' or offset % 7 != 3").unionByName(
            deliveries.filter("outcome = 'acked' and offset % 7 = 3").selectExpr(
                *(name for name in deliveries.columns if name != "outcome"), "'nacked' outcome"
            )
        )

    monkeypatch.setattr(cli, "simulate", broken)
    group = group_file(tmp_path, "group.py", 'group = of("ann", "bob")')
    arguments = ["--log", f"TABLE parquet.`{events}`", "--group", group, "--out", str(tmp_path), "--quiet"]
    assert 1 == main(arguments)
    text = capsys.readouterr().out
    assert "[!!] broken: " in text
    assert "no-loss in " in text


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--log", "SELECT 1 AS offset"], "column is 'topic'; it must be one of offset"),
        (["--log", "SELECT * FROM nowhere"], "nowhere"),
        (["--group", "{folder}/bad.py"], "it must name a Group as group, or several as groups, a dict"),
        (["--group", "{folder}/none.py"], "No such file"),
        (["--group", "{folder}/wrong.py"], "it must run without NameError: name 'undefined' is not defined"),
        (["--log", "TABLE parquet.`{events}`", "--consumers", "1"], "consumers is 1; it must be an int of at least 2"),
        (
            ["--log", "TABLE parquet.`{events}` UNION ALL TABLE parquet.`{events}`", "--group", "{folder}/good.py"],
            r"offset=.*: offset is .* it must be there once in a topic-partition",
        ),
    ],
)
def test_what_cannot_work_is_said_in_a_line(  # noqa: PLR0917 - fixtures
    spark: "SparkSession",
    events: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    text: str,
) -> None:
    assert spark is not None
    group_file(tmp_path, "bad.py", "group = 7")
    group_file(tmp_path, "wrong.py", "group = undefined")
    group_file(tmp_path, "good.py", 'group = of("ann")')
    filled = [argument.format(folder=tmp_path, events=events) for argument in arguments]
    assert 2 == main([*filled, "--out", str(tmp_path / "out"), "--quiet"])
    told = capsys.readouterr().err
    assert told.startswith("error: ")
    assert re.search(text, told), told
    assert len(told.splitlines()) <= 2


def test_the_flights_keep_every_promise_with_a_crash_and_a_join(
    spark: "SparkSession", tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The demo on the flights of a few days: all of them take minutes."""
    flights = demo.write_flights(tmp_path / "all.parquet")
    assert flights == demo.write_flights(flights)
    few = spark.read.parquet(str(flights)).filter("timestamp < '2013-01-05'")
    assert (few.count(), spark.read.parquet(str(flights)).count()) == (3_614, 336_776)
    few.toPandas().to_parquet(tmp_path / "few.parquet", coerce_timestamps="us")
    monkeypatch.setattr(cli, "write_flights", lambda _: tmp_path / "few.parquet")
    assert 0 == main(["--out", str(tmp_path)])
    text = capsys.readouterr().out
    assert "[ok] every promise kept" in text
    assert "Violations: fence 0, key-order 0, no-loss 0, one-holder 0." in text
    assert "c4 crashes" in text
    assert "c9" in text


def test_the_made_up_group_is_as_busy_as_it_says(spark: "SparkSession") -> None:
    log = spark.range(100).selectExpr("'t' topic", "0 partition", "id * 10 timestamp", "if(id < 50, 3, null) work")
    workload = demo.measure(log, LogColumns(), work="work")
    assert workload == (100, 990, 300.0, 3.0, 3.0)
    group, about = demo.example_group(workload, 4)
    assert workload.ms_for_work(4) * 300 == pytest.approx(demo.LOAD * 4 * demo.CONCURRENCY * 990)
    assert [Crash(330, "c2"), Join(660, group.changes[1].consumer)] == [*group.changes]  # type: ignore[union-attr]  # a Join
    assert "c2 crashes" in about
    with pytest.raises(ArgumentError, match="at least one message"):
        demo.measure(log.filter("timestamp < 0"), LogColumns(), work=None)
