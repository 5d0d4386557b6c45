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
    store = context._jsc.sc().statusStore()
    before = {kept.id() for kept in _rows_of(store)}
    rows = spark.range(1_000).selectExpr("id", "uuid() as text")
    with Kept(rows):
        assert 1_000 == rows.count()
        [kept] = [each for each in _rows_of(store) if each.id() not in before]
        assert kept.memoryUsed() == 0
        assert kept.diskUsed() > 1_000
    assert before == {each.id() for each in _rows_of(store)}


def _rows_of(store: Any) -> list[Any]:
    found = store.rddList(True)
    return [found.apply(at) for at in range(found.size())]
