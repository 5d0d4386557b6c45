"""The demo from end to end: on a sample of the flights, on logs of one's own, and on a delivery log that is wrong."""

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.spark.audits.test_delivery_history import blamed
from tests.spark.replays.test_replay_report import Page
from tests.spark.settings import QUICK

pyspark = pytest.importorskip("pyspark")
from pyspark.sql import functions as F  # noqa: E402, N812 - needs pyspark

import keyshared.spark as ks  # noqa: E402 - needs pyspark
from keyshared.errors import ArgumentError  # noqa: E402 - needs pyspark
from keyshared.spark.audits.delivery_history import delivery_history  # noqa: E402 - needs pyspark
from keyshared.spark.demo import __main__ as demo  # noqa: E402 - needs pyspark
from keyshared.spark.demo.log import own_log  # noqa: E402 - needs pyspark
from keyshared.spark.demo.options import check_input  # noqa: E402 - needs pyspark
from keyshared.spark.replays.replay import Replay  # noqa: E402 - needs pyspark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]

CSV = "user,shard,at,work,name\n" + "".join(f"u{i % 7},{i % 2},{i},{1 + i % 3},x\n" for i in range(200))


COLUMNS = {"key": "user", "partition": "shard", "order": "at", "time": "seconds"}


def own(path: object, **columns: str) -> list[str]:
    return ["--input", str(path), *(part for name, column in columns.items() for part in (f"--{name}", column))]


def run(*options: str, out: Path) -> int:
    return demo.main([*options, "--out", str(out)])


def facts(text: str) -> dict[str, str]:
    """The block of facts: names to the left, values after two blanks or more."""
    return dict(re.findall(r"^  ([a-z0-9-]+(?: [a-z0-9]+)*) {2,}(\S.*)$", text, re.MULTILINE))


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> tuple[subprocess.CompletedProcess[str], Path]:
    """The demo as a program of its own, on a sample of the flights."""
    folder = tmp_path_factory.mktemp("program")
    out = folder / "new" / "out"
    command = [sys.executable, "-m", "keyshared.spark.demo", "--limit", "3000", "--consumers", "4", "--out", str(out)]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(sys.path),
        "JDK_JAVA_OPTIONS": QUICK,
    }
    told = subprocess.run(
        [*command, "--master", "local[2]", "--partitions", "2"],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
        cwd=folder,
    )
    return told, out


def test_the_module_runs_as_a_program_and_spark_is_not_heard(
    program: tuple[subprocess.CompletedProcess[str], Path],
) -> None:
    told, out = program
    assert 0 == told.returncode, told.stderr
    lines = told.stderr.splitlines()
    steps = [line.partition(":")[0] for line in lines if "done in" in line]
    assert [
        "starting Spark",
        "reading the log",
        "adding up the work",
        "replaying",
        "auditing every delivery",
        "counting",
    ] == steps
    assert [] == [line for line in lines if not re.search(r": .*\d s$", line)]
    assert {"results", "report.html", "spark.log"} == {path.name for path in out.iterdir()}


def test_flights_leave_a_delivery_log_and_a_page(
    spark: "SparkSession", program: tuple[subprocess.CompletedProcess[str], Path]
) -> None:
    told, out = program
    found = facts(told.stdout)
    assert ("3,000", "3", "0") == (found["messages"], found["topic-partitions"], found["violations"])
    assert {"c2 leaves", "c5 joins"} <= set(found)
    saved = ks.load_results(spark, out / "results")
    assert {"deliveries", "summaries", "violations", "verdicts"} == {*saved}
    assert (0, 4) == (saved["violations"].count(), saved["verdicts"].select("promise").distinct().count())
    deliveries = saved["deliveries"]
    assert 3_000 == deliveries.select("topic_partition", "offset").distinct().count()
    assert 3_000 == deliveries.filter("settled_sequence is not null").count()
    counts = {
        "deliveries": deliveries,
        "redeliveries": deliveries.filter("attempt > 1"),
        "keys": deliveries.select("key").dropna().distinct(),
        "keyless messages": deliveries.filter("key is null and attempt = 1"),
    }
    assert {name: f"{frame.count():,}" for name, frame in counts.items()} == {name: found[name] for name in counts}
    assert "0" != found["redeliveries"]
    shares: dict[str, int] = dict(deliveries.groupBy("consumer").count().collect())
    assert {f"c{number}": f"{shares[f'c{number}']:,}" for number in range(1, 6)} == {
        name: value.split()[0] for name, value in found.items() if re.fullmatch(r"c\d", name)
    }


def test_the_fast_audit_and_the_exact_one_agree_on_the_delivery_log(
    spark: "SparkSession", program: tuple[subprocess.CompletedProcess[str], Path]
) -> None:
    log = ks.load_results(spark, program[1] / "results")["deliveries"].drop("run")
    elsewhere = F.when(F.col("offset") % 5 == 0, "z").otherwise(F.col("consumer"))
    unsettled = F.when(F.col("offset") % 7 != 0, F.col("settled_sequence"))
    late = F.when(F.col("settled_sequence").isNotNull(), 1_000).otherwise(0)  # of messages that are not sent again
    wrong = log.withColumns({"consumer": elsewhere, "end_sequence": F.col("end_sequence") + late})
    wrong = wrong.withColumn("settled_sequence", unsettled + late)
    both = log.unionByName(wrong.withColumn("topic_partition", F.concat(F.lit("wrong-"), "topic_partition")))
    history = delivery_history(both).persist()
    fast, slow, violations = blamed(both, history)
    history.unpersist()
    assert fast == slow
    assert {"one-holder", "key-order"} == {promise for promise, *_ in slow}
    assert [] == [row for row in violations if not row.topic_partition.startswith("wrong-")]


def test_bucket_boundaries_are_compared_on_the_keys_of_the_log(
    program: tuple[subprocess.CompletedProcess[str], Path],
) -> None:
    found = facts(program[0].stdout)
    assert "bucket boundaries: 1,024 buckets, 4 consumers, heaviest by mean" in program[0].stdout
    equal, balanced = (tuple(map(float, found[name].split())) for name in ("equal widths", "balanced"))
    assert balanced[0] < equal[0]  # the heaviest bucket; consumers by number depend on their luck
    assert 1 <= balanced[2] <= 1.05
    page = Page((program[1] / "report.html").read_text(encoding="utf-8"))
    assert "Bucket boundaries" in page.text
    assert {"equal widths", "balanced"} in [set(chart.get("lines", {}).get("label", ())) for chart in page.charts]


def test_the_page_is_whole_and_needs_nothing_else(program: tuple[subprocess.CompletedProcess[str], Path]) -> None:
    page = Page((program[1] / "report.html").read_text(encoding="utf-8"))
    assert "every promise kept" in page.text
    assert {"EWR", "JFK", "LGA"} in [set(chart.get("lines", {}).get("label", ())) for chart in page.charts]
    assert "src" not in dict(page.attributes)
    assert all((link or "").startswith(("data:text/csv", "#")) for link in page.links)


# One whole run on a log of one's own, and one on a log that is wrong, in every run: `load_log` and `check_order` have
# tests of their own.
@pytest.mark.parametrize(
    ("name", "write"),
    [
        ("log.csv", lambda path, _: path.write_text(CSV)),
        pytest.param(
            "log.json",
            lambda path, rows: rows.toPandas().to_json(path, orient="records", lines=True),
            marks=pytest.mark.slow,
        ),
        pytest.param("log.parquet", lambda path, rows: rows.write.parquet(str(path)), marks=pytest.mark.slow),
    ],
)
def test_a_log_of_ones_own_is_replayed(
    spark: "SparkSession",
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    name: str,
    write: Callable[[Path, "DataFrame"], None],
) -> None:
    (tmp_path / "rows.csv").write_text(CSV)
    write(tmp_path / name, spark.read.csv(str(tmp_path / "rows.csv"), header=True, inferSchema=True))
    out = tmp_path / "my out, größer, 50%20"
    options = own(tmp_path / name, **COLUMNS, service="work")
    assert 0 == run(*options, "--consumers", "2", out=out)
    told = capsys.readouterr()
    found = facts(told.out)
    assert ("200", "7", "0", "2") == tuple(
        found[name] for name in ("messages", "keys", "keyless messages", "topic-partitions")
    )
    assert "in proportion to work" in told.out.replace("\n", " ")
    assert {"results", "report.html"} == {path.name for path in out.iterdir()}
    deliveries = ks.load_results(spark, out / "results")["deliveries"]
    assert 199_000 <= (deliveries.agg(F.max("delivered_ms")).collect()[0][0])  # a unit is a second


@pytest.mark.parametrize("name", ["order", "offset", "key", "took", "at"])
def test_the_work_of_a_message_is_the_column_of_the_file(spark: "SparkSession", tmp_path: Path, name: str) -> None:
    (tmp_path / "log.csv").write_text(f"user,shard,ts,{name}\nu,p,1735689600,2\nu,p,1735689601,3\n")
    options = demo._parser().parse_args(
        [*own(tmp_path / "log.csv", key="user", partition="shard", order="ts", service=name), "--quiet"]
    )
    options.values = check_input(options, near=True)
    rows = own_log(spark, options).rows
    assert ["topic_partition", "key", "offset", "at_ms", "work"] == rows.columns
    assert [("u", 1_735_689_600_000, 2.0), ("u", 1_735_689_601_000, 3.0)] == [
        tuple(row) for row in rows.orderBy("offset").select("key", "at_ms", "work").collect()
    ]


@pytest.mark.slow
def test_a_log_without_keys_and_of_one_instant_is_replayed_quietly(
    spark: "SparkSession", tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "log.csv").write_text("k,p,o\n,a,5\n,a,5\n,b,5\n")
    elsewhere = tmp_path / "elsewhere"
    options = own(tmp_path / "log.csv", key="k", partition="p", order="o", time="hours")
    assert 0 == run(*options, "--quiet", "--results", str(elsewhere), out=tmp_path / "out")
    assert ("", "") == capsys.readouterr()
    assert 3 == ks.load_results(spark, elsewhere)["deliveries"].select("offset", "topic_partition").distinct().count()
    assert not (tmp_path / "out" / "results").exists()
    assert "none" in (tmp_path / "out" / "report.html").read_text()  # no hottest key


@pytest.mark.parametrize(
    ("broken", "promise"),
    [
        pytest.param(lambda rows: rows.filter("attempt > 1 or offset != 17"), "no-loss", marks=pytest.mark.slow),
        (
            lambda rows: rows.withColumn("consumer", F.concat("consumer", F.col("offset") % 2)).transform(_overlapping),
            "one-holder",
        ),
    ],
)
def test_a_delivery_log_that_is_wrong_makes_the_demo_fail(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    broken: Callable[["DataFrame"], "DataFrame"],
    promise: str,
) -> None:
    whole: Any = Replay.__dict__["deliveries"].fget
    monkeypatch.setattr(Replay, "deliveries", property(lambda self: broken(whole(self))))
    (tmp_path / "log.csv").write_text(CSV)
    assert 1 == run(*own(tmp_path / "log.csv", **COLUMNS), "--quiet", out=tmp_path / "out")
    told = capsys.readouterr()
    assert "" == told.out
    assert re.match(r"[\d,]+ violations, such as\n  promise", told.err)
    assert promise in told.err
    assert "every promise kept" not in (tmp_path / "out" / "report.html").read_text()


def _overlapping(rows: "DataFrame") -> "DataFrame":
    late = F.col("end_sequence") + 1_000
    return rows.withColumns({"end_sequence": late, "settled_sequence": late})


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (own("LOG"), "--key and --partition and --order is None; it must name a column of .*user, shard, at"),
        (own("LOG", key="user"), "--partition and --order is None; it must name a column of"),
        (
            own("LOG", key="nope", partition="shard", order="at"),
            "--key is 'nope'; it must be a column of .*user, shard",
        ),
        (own("LOG", key="user", partition="shard", order="name"), "--time is None; it must say what name holds"),
        (own("LOG", **COLUMNS, service="name"), "it must be a column of numbers, and it is string"),
        (own("LOG", **COLUMNS, service="nope"), "--service is 'nope'; it must be a column of .*user, shard"),
        (own("none.csv", **COLUMNS), "be a file or folder that exists"),
        (own("BELOW", **COLUMNS, service="work"), "work.*it must hold no negative and no endless numbers"),
        (["--key", "user"], "--key is 'user'; it must come with --input"),
        (["--service", "x"], "--service is 'x'; it must come with --input"),
        (["--consumers", "1"], "consumers is 1; it must be an int of at least 2"),
        (["--limit", "0"], "--limit is 0; it must be at least 1"),
        (["--partitions", "0"], "--partitions is 0; it must be at least 1"),
    ],
)
def test_options_that_cannot_work_are_refused_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], told: str
) -> None:
    files = {"LOG": CSV, "BELOW": "user,shard,at,work\na,b,1,-2.5\n"}
    for name, text in files.items():
        (tmp_path / f"{name}.csv").write_text(text)
    named = [str(tmp_path / f"{each}.csv") if each in files else each for each in options]
    assert 2 == run(*named, "--quiet", out=tmp_path / "out")
    said = capsys.readouterr()
    assert "" == said.out
    assert re.match(f"error: .*{told}.*\n$", said.err), said.err


def test_a_log_of_no_messages_is_refused(
    spark: "SparkSession", tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spark.createDataFrame([], "user string, shard string, at long").write.parquet(str(tmp_path / "log"))
    assert 2 == run(*own(tmp_path / "log", **COLUMNS), "--quiet", out=tmp_path / "out")
    assert "error: log is 'log'; it must hold at least one message\n" == capsys.readouterr().err


@pytest.mark.parametrize("logged", [True, False])
def test_a_job_that_fails_is_told_in_one_line_that_names_the_log_if_there_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *, logged: bool
) -> None:
    whole: Any = Replay.__dict__["deliveries"].fget
    failing = F.raise_error(F.lit("the disk is full")).cast("bigint")
    monkeypatch.setattr(Replay, "deliveries", property(lambda self: whole(self).withColumn("wait_ms", failing)))
    log = tmp_path / "out" / "spark.log"
    log.parent.mkdir()
    if logged:
        log.write_text("")
    (tmp_path / "log.csv").write_text(CSV)
    assert 2 == run(*own(tmp_path / "log.csv", **COLUMNS), "--quiet", out=tmp_path / "out")
    said = capsys.readouterr().err
    assert said.startswith("error: ")
    assert "the disk is full" in said
    assert logged == said.endswith(f"; details are in {log}\n")
    assert logged == ("details" in said)
    assert 1 == said.count("\n")


@pytest.mark.parametrize("held", ["a file", "a folder of somebody else's"])
def test_a_place_that_cannot_take_results_is_refused_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], held: str
) -> None:
    place = tmp_path / "place"
    if held == "a file":
        place.write_text("")
        place /= "below"
    else:
        place.mkdir()
        (place / "accounts.csv").write_text("mine\n")
    (tmp_path / "log.csv").write_text(CSV)
    options = own(tmp_path / "log.csv", **COLUMNS)
    assert 2 == run(*options, "--quiet", "--results", str(place), out=tmp_path / "out")
    said = capsys.readouterr().err
    assert said.startswith(f"error: path is '{place}'; it must ")
    assert 1 == said.count("\n")


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    assert 2 == run("--quiet", out=tmp_path / "file" / "out")
    assert "it must be a folder that can be made" in capsys.readouterr().err


PLAN = """
consumers = [{ name = "c", count = COUNT, limit = 2, service = { kind = "per-message" } }]
config = { ack_timeout_ms = "none" }
"""


def test_a_plan_of_ones_own_is_replayed_and_what_cannot_be_done_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "log.csv").write_text(CSV)
    (tmp_path / "two.toml").write_text(PLAN.replace("COUNT", "2"))
    options = [*own(tmp_path / "log.csv", **COLUMNS, service="work"), "--service-unit", "minutes"]
    assert 0 == run(*options, "--plan", str(tmp_path / "two.toml"), out=tmp_path / "out")
    told = capsys.readouterr()
    found = facts(told.out)
    assert ("200", "0") == (found["messages"], found["violations"])
    assert {"c1", "c2"} <= found.keys()
    text = " ".join(told.out.split())
    # each shard has 100 messages of 1 to 3 minutes in 199 s, for two consumers that take two at a time
    work = {shard: sum(1 + i % 3 for i in range(200) if i % 2 == shard) * 60 for shard in (0, 1)}
    assert f"has {max(work.values()) / 199 / 2:.1f} times the work that its consumers can do in the 3 min 19 s" in text
    assert "More consumers do not help" in text
    assert "(--service work is taken to count minutes; --service-unit says otherwise)" in text
    assert "warning: key" in told.err


def test_several_plans_are_compared_and_one_wins(
    spark: "SparkSession", tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "log.csv").write_text(CSV)
    plans = []
    for name, count in (("few", 1), ("many", 4)):
        (tmp_path / f"{name}.toml").write_text(PLAN.replace("COUNT", str(count)))
        plans += ["--plan", str(tmp_path / f"{name}.toml")]
    options = [*own(tmp_path / "log.csv", **COLUMNS, service="work"), "--service-unit", "minutes", *plans]
    assert 0 == run(*options, "--by", "wait-p50", out=tmp_path / "out")
    told = capsys.readouterr()
    lines = [line.split() for line in told.out.splitlines()]
    assert ["consumers", "1:", "c1", "4:", "c1,", "c2,", "...", "c4"] in lines
    assert ["few", "many", "*"] in lines
    assert "* winner by wait-p50: many, " in told.out
    assert {"few", "many"} == set(re.findall(r"^warning: (\w+): topic-partition", told.out, re.MULTILINE))
    page = (tmp_path / "out" / "plans.html").read_text(encoding="utf-8")
    assert page.startswith("<!DOCTYPE html>")
    assert "winner by wait-p50: many, " in page
    saved = ks.load_results(spark, tmp_path / "out" / "results")
    assert {"plan_summaries", "plan_totals", "plan_consumers", "plan_moved_keys"} == {*saved}
    assert {"few", "many"} == {row.plan for row in saved["plan_totals"].collect()}


@pytest.mark.parametrize(
    ("plan", "why"),
    [
        ('until_ms = "20 s"', "topic-partitions that did not come to rest: 2"),
        pytest.param(
            """answers = [{ kind = "poisoned", keys = ["u3"], reply = "reject" }]
config = { poison = "block" }""",
            "topic-partitions that did not come to rest: 2",
            marks=pytest.mark.slow,
        ),
        pytest.param("FILTERED", "messages skipped: 171", marks=pytest.mark.slow),
        pytest.param(
            """answers = [{ kind = "fail-first", attempts = 1 }]
changes = [{ kind = "redrive", at_ms = "150 s", key = "u3" }]
config = { redrive = true, retry = { max_redeliveries = 0 } }""",
            "dead letters redriven: ",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            """answers = [{ kind = "poisoned", keys = ["u3"], reply = "reject" }]
config = { poison = "quarantine" }""",
            "dead letters, those of keys in quarantine among them: ",
            marks=pytest.mark.slow,
        ),
        ("config = { latest_only = true }", "messages skipped: "),
    ],
    ids=["until", "block", "filters", "redrive", "quarantine", "latest only"],
)
def test_what_a_plan_leaves_over_on_purpose_is_not_called_lost(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], plan: str, why: str
) -> None:
    (tmp_path / "log.csv").write_text(CSV)
    extra, plan = (', filters = ["u3"]', "") if plan == "FILTERED" else ("", plan)
    consumers = f'consumers = [{{ name = "c", service = "9 s"{extra} }}]'
    (tmp_path / "plan.toml").write_text(f"{plan}\n{consumers}\n")
    options = [*own(tmp_path / "log.csv", **COLUMNS), "--plan", str(tmp_path / "plan.toml")]
    assert 0 == run(*options, out=tmp_path / "out")
    told = " ".join(capsys.readouterr().out.split())
    page = Page((tmp_path / "out" / "report.html").read_text(encoding="utf-8")).text
    for text in (told, page):
        assert "no-loss was not judged: what this plan leaves over cannot be told from what is lost (" in text
        assert why in text
    assert "no-loss not judged" in told
    assert "every promise kept" not in page
    assert "not everything could be judged" in page


def test_a_log_that_is_refused_is_not_kept(spark: "SparkSession", tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text("user,shard,at,work\na,b,1,-2.5\n")
    kept: Any = spark.sparkContext
    before = kept._jsc.getPersistentRDDs().size()
    assert 2 == run(*own(tmp_path / "log.csv", **COLUMNS, service="work"), "--quiet", out=tmp_path / "out")
    assert before == kept._jsc.getPersistentRDDs().size()


def test_a_job_that_fails_keeps_nothing(spark: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "log.csv").write_text(CSV)
    kept: Any = spark.sparkContext
    before = kept._jsc.getPersistentRDDs().size()

    def failing(*_: object, **__: object) -> None:
        raise ArgumentError("page", "report", "be written")

    monkeypatch.setattr(demo, "replay_report", failing)
    assert 2 == run(*own(tmp_path / "log.csv", **COLUMNS), "--quiet", out=tmp_path / "out")
    assert before == kept._jsc.getPersistentRDDs().size()
