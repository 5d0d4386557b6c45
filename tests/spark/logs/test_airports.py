"""The log with hot keys: on a small excerpt here, the true one nightly."""

import hashlib
import shutil
import tarfile
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.spark.replays.test_replay_report import Page

pyspark = pytest.importorskip("pyspark")
from pyspark.sql import functions as F  # noqa: E402, N812 - needs pyspark

from keyshared.errors import ArgumentError  # noqa: E402 - as above
from keyshared.hashing import XXH64_SEED_42  # noqa: E402 - as above
from keyshared.spark.demo import __main__ as demo  # noqa: E402 - as above
from keyshared.spark.logs import airports  # noqa: E402 - as above
from keyshared.spark.logs.airports import AIRPORT_FLIGHTS, airport_log, load_airport_flights  # noqa: E402 - as above
from keyshared.spark.logs.npm import NpmPackage  # noqa: E402 - as above

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]

HUB = "ORD"
SPOKES = ("LAX", "DEN", "MSP", "STL", "PHX")


def excerpt(spark: "SparkSession") -> "DataFrame":
    """300 flights in the form of the true file, two of three from one airport."""
    rows = [
        (
            datetime(2001, 1, 1, i // 60, i % 60),  # noqa: DTZ001 - as in the file, which knows no zone
            i % 9 - 4,
            100 + i % 7,
            SPOKES[i % 5] if i % 3 == 0 else HUB,
            HUB if i % 3 == 0 else SPOKES[i % 5],
        )
        for i in range(300)
    ]
    columns = "date timestamp_ntz, delay bigint, distance bigint, origin string, destination string"
    return spark.createDataFrame(rows, columns)


@pytest.mark.parametrize(("key", "keys"), [("airport", 6), ("route", 10)])
def test_a_key_has_one_topic_partition_by_its_hash(spark: "SparkSession", key: str, keys: int) -> None:
    rows = airport_log(excerpt(spark), key=key).collect()
    assert 300 == len(rows)
    assert {f"{key}-{XXH64_SEED_42.function(row['key'].encode()) % 8}" for row in rows} == {
        row["topic_partition"] for row in rows
    }
    assert keys == len({(row["key"], row["topic_partition"]) for row in rows}) == len({row["key"] for row in rows})
    assert all(row["key"] in {row["origin"], f"{row['origin']}-{row['destination']}"} for row in rows)
    for name in {row["topic_partition"] for row in rows}:
        own = sorted((row["offset"], row["order"]) for row in rows if row["topic_partition"] == name)
        assert list(range(len(own))) == [offset for offset, _ in own]
        assert sorted(order for _, order in own) == [order for _, order in own]
    assert min(row["order"] for row in rows) == int(datetime(2001, 1, 1).timestamp() * 1_000)  # noqa: DTZ001 - as above


def test_another_key_and_another_file_are_refused(spark: "SparkSession", tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="key is 'x'; it must be one of airport, route"):
        airport_log(excerpt(spark), key="x")
    with pytest.raises(ArgumentError, match="key is 'x'; it must be one of airport, route"):
        load_airport_flights(spark, tmp_path, key="x")
    with pytest.raises(ArgumentError, match="'origin'; it must be a column of the frame"):
        airport_log(excerpt(spark).drop("origin"))


@pytest.fixture
def packed(spark: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The excerpt as the package that the demo takes."""
    excerpt(spark).coalesce(1).write.parquet(str(tmp_path / "parquet"))
    [part] = (tmp_path / "parquet").glob("part-*.parquet")
    folder = tmp_path / "data"
    folder.mkdir()
    tarball = folder / "vega-datasets-3.2.1.tgz"
    with tarfile.open(tarball, "w:gz") as archive:
        archive.add(part, "package/data/flights-3m.parquet")
    digest = hashlib.sha512(tarball.read_bytes()).hexdigest()
    monkeypatch.setattr(airports, "PACKAGE", NpmPackage("vega-datasets", "3.2.1", digest))
    return folder


def test_the_demo_takes_the_flights_out_of_the_package(spark: "SparkSession", packed: Path, tmp_path: Path) -> None:
    options = demo._airports_parser().parse_args(["--key", "route", "--data", str(packed), "--out", str(tmp_path)])
    log = options.log(spark, options)
    assert "Flights of 2001 by route" == log.title
    first = log.rows.filter("topic_partition is not null and key = 'LAX-ORD'").orderBy("at_ms").first()
    assert ("LAX-ORD", 978_307_200_000, 100.0) == (first["key"], first["at_ms"], first["work"])
    assert ["flights-3m.parquet", "vega-datasets-3.2.1.tgz"] == sorted(path.name for path in packed.iterdir())


@pytest.mark.slow
def test_the_demo_replays_and_audits_the_flights_and_writes_a_page(
    packed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    options = ["airports", "--data", str(packed), "--consumers", "2", "--partitions", "1", "--out", str(out)]
    assert 0 == demo.main(options)
    told = capsys.readouterr().out
    assert "Flights of 2001 by airport" in told
    assert "ORD       200  66.67%" in told
    text = Page((out / "report.html").read_text(encoding="utf-8")).text
    assert "every promise kept" in text
    assert "ORD\n200\n66.67%\n" in text


def test_a_folder_for_the_flights_that_is_not_there_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["airports", "--data", str(tmp_path / "none"), "--quiet", "--out", str(tmp_path / "out")]
    assert 2 == demo.main(options)
    assert "--data is '" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("npm") is None, reason="needs npm")
def test_the_true_log_is_fetched_and_has_hot_keys(spark: "SparkSession", tmp_path: Path) -> None:
    flights = load_airport_flights(spark, tmp_path).persist()
    assert AIRPORT_FLIGHTS == flights.count()
    counts = flights.groupBy("key").count().orderBy(F.desc("count"))
    assert (229, [("ORD", 166_341), ("DFW", 157_162)]) == (counts.count(), [tuple(row) for row in counts.head(2)])
    assert 8 == flights.select("topic_partition").distinct().count()
    flights.unpersist()


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("npm") is None, reason="needs npm")
@pytest.mark.parametrize("key", airports.KEYS)
def test_the_demo_keeps_every_promise_on_the_true_log(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], key: str
) -> None:
    assert 0 == demo.main(["airports", "--key", key, "--out", str(tmp_path)])
    assert "messages            3,000,000" in capsys.readouterr().out
