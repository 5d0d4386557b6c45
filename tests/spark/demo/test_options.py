"""The demo refuses files, columns and options before Spark starts: a session here would be a failure."""

from pathlib import Path

import pytest

pytest.importorskip("pyspark")
from pyspark.sql import SparkSession

from keyshared.spark.demo import __main__ as demo

CSV = "user,shard,at,step\na,p,1735689600,1\n"
COLUMNS = ["--key", "user", "--partition", "shard", "--order", "at"]


@pytest.fixture(autouse=True)
def _no_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        pytest.fail("Spark was started")

    monkeypatch.setattr(demo, "local_session", refuse)
    monkeypatch.setattr(SparkSession, "getActiveSession", lambda: None)
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "log.csv").write_text(CSV)
    (tmp_path / "log.txt").write_text(CSV)
    (tmp_path / "two.toml").write_text('consumers = [{ name = "c", count = 2, service = 5 }]')
    (tmp_path / "odd.toml").write_text('consumers = [{ name = "c", limits = 2 }]')
    scaled = '{ kind = "scaled", factor = 2, model = { kind = "per-message" } }'
    (tmp_path / "own.toml").write_text(f'consumers = [{{ name = "c", service = {scaled} }}]')


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--input", "log.txt", *COLUMNS], "path is 'log.txt'; it must end in one of .parquet, .csv"),
        (["--input", "lag.csv", *COLUMNS], "path is 'lag.csv'; it must be a file or folder that exists; did you mean"),
        (["--input", "log.csv"], "--key and --partition and --order is None; it must name a column of log.csv (user, "),
        (
            ["--input", "log.csv", *COLUMNS, "--key", "usr"],
            "--key is 'usr'; it must be a column of log.csv (user, shar",
        ),
        (["--input", "log.csv", *COLUMNS, "--service", "work"], "--service is 'work'; it must be a column of log.csv"),
        (["--input", "log.csv", *COLUMNS, "--results", "log.csv"], "--results is 'log.csv'; it must lie apart"),
        (
            ["--input", "demo-output/results", *COLUMNS],
            "--results is 'demo-output/results'; it must lie apart",
        ),
        (
            ["--input", "s3a://logs/", *COLUMNS, "--results", "s3a://logs/"],
            "--results is 's3a://logs/'; it must ",
        ),
        (["--input", "s3a://logs/log.txt", *COLUMNS], "path is 's3a://logs/log.txt'; it must end in one of .parquet"),
        (
            ["--input", "far.txt", *COLUMNS, "--master", "sc://host"],
            "path is 'far.txt'; it must end in one of .parquet",
        ),
        (["--time", "iso"], "--time is 'iso'; it must come with --input: the flights have their own"),
        (["--input", "log.csv", *COLUMNS, "--time", "ticks"], "--time is 'ticks'; it must be one of seconds, millisec"),
        (["--input", "log.csv", *COLUMNS, "--time", "iso"], "--time is 'iso'; it must fit column at, and '1735689600'"),
        (["--input", "log.csv", *COLUMNS, "--order", "step"], "--time is None; it must say what step holds: one of se"),
        (["--option", "sep=;"], "--option is 'sep=;'; it must come with --input"),
        (["--format", "csv"], "--format is 'csv'; it must come with --input"),
        (
            ["--input", "log.csv", *COLUMNS, "--option", "sep=;", "--option", "SEP=,"],
            "--option is 'SEP=,'; it must stand once",
        ),
        (["--results", "lake[1]"], "--results is 'lake[1]'; it must have none of * ? [ ]"),
        (["--out", "out{1}"], "--out is '/"),
        (["--input", "log.csv", *COLUMNS, "--option", "sep"], "--option is 'sep'; it must be a name and a value"),
        (
            ["--input", "log.txt", *COLUMNS, "--format", "csv", "--option", "sep=;"],
            "--key is 'user'; it must be a column",
        ),
        (["--key", "user"], "--key is 'user'; it must come with --input"),
        (["--consumers", "1"], "consumers is 1; it must be an int of at least 2"),
        (["--limit", "0"], "--limit is 0; it must be at least 1"),
        (["--plan", "own.json"], "plan is 'own.json'; it must be a file that ends in .toml"),
        (
            ["--plan", "two.toml", "--plan", "odd.toml"],
            "odd.toml: a key of consumers[0] is 'limits'; it must be a known",
        ),
        (["--plan", "two.toml", "--plan", "two.toml"], "two.toml: name is 'two'; it must be another one than in the "),
        (["--plan", "two.toml", "--consumers", "3"], "--consumers is 3; it must come without --plan"),
        (["--plan", "two.toml", "--by", "backlog"], "--by is 'backlog'; it must come with two plans or more"),
        (["--plan", "two.toml", "--by", "cost"], "--by is 'cost'; it must be one of wait-p99, "),
        (
            ["--input", "log.csv", *COLUMNS, "--service-unit", "days"],
            "--service-unit is 'days'; it must come with --plan",
        ),
        (
            ["--input", "log.csv", *COLUMNS, "--plan", "two.toml", "--service-unit", "days"],
            "--service-unit is 'days'; it must come with --service",
        ),
        (["--plan", "two.toml", "--service-unit", "weeks"], "--service-unit is 'weeks'; it must be one of seconds, "),
        (
            ["--input", "log.csv", *COLUMNS, "--plan", "two.toml", "--plan", "own.toml"],
            "--service is None; it must name a column, because consumers of plan 'own' take as long as each ",
        ),
    ],
)
def test_what_cannot_work_is_refused_in_one_line_and_nothing_is_made(
    capsys: pytest.CaptureFixture[str], options: list[str], told: str
) -> None:
    assert 2 == demo.main(options)
    said = capsys.readouterr()
    assert "" == said.out
    assert said.err.startswith(f"error: {told}")
    assert 1 == said.err.count("\n")
    assert not Path("demo-output").exists()
