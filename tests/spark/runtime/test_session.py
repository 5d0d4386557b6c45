import sys

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812  # the name that all of Spark's documentation uses

import keyshared


def test_workers_run_this_interpreter_and_see_the_package(spark: SparkSession) -> None:
    def where(_: object) -> tuple[str, str]:
        import keyshared as on_the_worker  # noqa: PLC0415  # imported there, not pickled here

        return sys.executable, on_the_worker.__version__

    assert {(sys.executable, keyshared.__version__)} == set(spark.sparkContext.range(4).map(where).collect())


def test_a_shuffle_brings_every_row_to_its_group(spark: SparkSession) -> None:
    counts = spark.range(10).groupBy((F.col("id") % 3).alias("rest")).count().collect()
    assert {(0, 4), (1, 3), (2, 3)} == {tuple(row) for row in counts}
