"""One Spark session for the whole lane: starting one takes longer than most tests."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

LOG4J = Path(__file__).with_name("log4j2.properties")


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A local session with two cores, two shuffle partitions, and nothing on the screen but errors."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    scratch = tmp_path_factory.mktemp("spark")
    session = (
        SparkSession.builder.master("local[2]")
        .appName("keyshared tests")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        # The C1 compiler alone: jobs this small end before C2 pays.
        .config(
            "spark.driver.extraJavaOptions",
            f'-XX:TieredStopAtLevel=1 -Dderby.system.home={scratch} "-Dlog4j2.configurationFile={LOG4J.as_uri()}"',
        )
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", 2)
        .config("spark.sql.warehouse.dir", str(scratch / "warehouse"))
        .config("spark.ui.enabled", value=False)
        .config("spark.ui.showConsoleProgress", value=False)
        .getOrCreate()
    )
    yield session
    session.stop()
