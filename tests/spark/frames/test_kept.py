"""What a job keeps stays out of the heap, which would have to grow with the log."""

from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

from keyshared.spark.frames.kept import Kept

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def test_what_is_kept_is_on_disk_until_it_is_released(spark: "SparkSession") -> None:
    context: Any = spark.sparkContext
    before = kept_rows(context).keys()
    rows = spark.range(1_000).selectExpr("id", "uuid() as text")
    with Kept(rows):
        assert 1_000 == rows.count()
        [number] = kept_rows(context).keys() - before
        kept = kept_rows(context)[number]
        assert kept.memoryUsed() == 0
        assert kept.diskUsed() > 1_000
    assert number not in kept_rows(context)


def kept_rows(context: Any) -> dict[int, Any]:
    """What Spark keeps, by number; its figures come over a queue."""
    context._jsc.sc().listenerBus().waitUntilEmpty()
    found = context._jsc.sc().statusStore().rddList(True)
    return {kept.id(): kept for kept in (found.apply(at) for at in range(found.size()))}
