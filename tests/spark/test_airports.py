"""The log with hot keys: on a small excerpt here, the true one nightly."""

import hashlib
import shutil
import subprocess
import sys
import tarfile
from collections import Counter
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")
import pyarrow as pa
import pyarrow.parquet as pq
from examples.airports import __main__ as airports
from examples.airports import flights
from examples.airports.npm import NpmPackage

from keyshared.hashing import XXH64_SEED_42

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

HUB = "ORD"
SPOKES = ("LAX", "DEN", "MSP", "STL", "PHX")


def excerpt() -> pa.Table:
    """300 flights in the form of the true file, two of three from one airport."""
    return pa.table(
        {
            "date": [datetime(2001, 1, 1, i // 60, i % 60) for i in range(300)],  # noqa: DTZ001 - as in the file
            "delay": [i % 9 - 4 for i in range(300)],
            "distance": [100 + i % 7 for i in range(300)],
            "origin": [SPOKES[i % 5] if i % 3 == 0 else HUB for i in range(300)],
            "destination": [HUB if i % 3 == 0 else SPOKES[i % 5] for i in range(300)],
        }
    )


@pytest.mark.parametrize(("key", "keys"), [("airport", 6), ("route", 10)])
def test_a_key_has_one_topic_partition_by_its_hash(key: str, keys: int) -> None:
    rows = flights.airport_log(excerpt(), key=key).to_pylist()
    assert 300 == len(rows)
    assert [f"{key}-{XXH64_SEED_42.function(row[key].encode()) % 8}" for row in rows] == [
        row["partition"] for row in rows
    ]
    assert keys == len({row[key] for row in rows})
    named = {"airport": "{origin}", "route": "{origin}-{destination}"}[key]
    assert [named.format(**row) for row in rows] == [row[key] for row in rows]


@pytest.fixture
def packed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The excerpt as the package that the demo takes."""
    pq.write_table(excerpt(), tmp_path / "excerpt.parquet")
    folder = tmp_path / "data"
    folder.mkdir()
    tarball = folder / "vega-datasets-3.2.1.tgz"
    with tarfile.open(tarball, "w:gz") as archive:
        archive.add(tmp_path / "excerpt.parquet", "package/data/flights-3m.parquet")
    digest = hashlib.sha512(tarball.read_bytes()).hexdigest()
    monkeypatch.setattr(flights, "PACKAGE", NpmPackage("vega-datasets", "3.2.1", digest))
    return folder


def test_the_command_gets_a_query_of_the_log_and_the_other_options(
    spark: "SparkSession", packed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[list[str]] = []

    def run(command: list[str], *, check: bool) -> "subprocess.CompletedProcess[str]":
        asked.append(command)
        return subprocess.CompletedProcess(command, returncode=1 - check)

    monkeypatch.setattr(subprocess, "run", run)
    assert 1 == airports.main(["--data", str(packed), "--key", "route", "--tasks", "9", "--quiet"])
    assert {"flights-3m.parquet", "flights-by-route.parquet", "vega-datasets-3.2.1.tgz"} == {
        path.name for path in packed.iterdir()
    }
    [[*command]] = asked
    query = command[4]
    assert [sys.executable, "-m", "keyshared.spark.cli", "--log", query] == command[:5]
    assert ["--topic-partition", "partition", "--tasks", "9", "--quiet"] == command[5:]
    log = spark.sql(query)
    assert 300 == log.count() == log.select("partition", "offset").distinct().count()
    first = log.filter("key = 'LAX-ORD'").orderBy("timestamp").first()
    assert first is not None
    assert ("LAX-ORD", 100) == (first["key"], first["work"])


def test_a_package_that_cannot_be_had_is_told_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "vega-datasets-3.2.1.tgz").write_text("something else")
    assert 2 == airports.main(["--data", str(tmp_path)])
    (tmp_path / "file").write_text("")
    assert 2 == airports.main(["--data", str(tmp_path / "file" / "below")])
    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith("error: ")
    assert "it must have the SHA-512 of vega-datasets@3.2.1" in first
    assert second.startswith("error: ")


@pytest.mark.slow
def test_the_flights_become_a_page(packed: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    assert 0 == airports.main(["--data", str(packed), "--consumers", "2", "--tasks", "1", "--out", str(out)])
    text = capfd.readouterr().out
    assert "[ok] every promise kept" in text
    assert "\nORD       200  66.7%" in text
    assert "every promise kept" in (out / "report.html").read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("npm") is None, reason="needs npm")
def test_the_true_log_is_fetched_and_has_hot_keys(tmp_path: Path) -> None:
    log = pq.read_table(flights.write_airport_log(tmp_path, key="airport"))
    assert flights.AIRPORT_FLIGHTS == log.num_rows
    counts = Counter(log["airport"].to_pylist())
    assert (229, [("ORD", 166_341), ("DFW", 157_162)]) == (len(counts), counts.most_common(2))
    assert 8 == len(log["partition"].unique())


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("npm") is None, reason="needs npm")
@pytest.mark.parametrize("key", flights.KEYS)
def test_the_demo_keeps_every_promise_on_the_true_log(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], key: str
) -> None:
    assert 0 == airports.main(["--key", key, "--data", str(tmp_path), "--out", str(tmp_path)])
    assert "messages 3,000,000; keys" in capfd.readouterr().out
