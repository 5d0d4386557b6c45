"""Each row lies in the Spark partition that was chosen for it, with partitioning by id and without."""

import struct
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")
import mmh3
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark user knows
from tests.spark.since import only_since

from keyshared.spark.frames import partitions
from keyshared.spark.frames.partitions import by_ticket, moved, ticket, tickets
from keyshared.spark.versions import BY_ID

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

NEVER = BY_ID._replace(major=99)
SIZES = [(0, 3), (1, 1), (4, 4), (4, 2), (7, 3), (2, 5), (200, 200), (500, 7)]


@pytest.fixture
def by_hash(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if this Spark could not partition by id."""
    monkeypatch.setattr(partitions, "BY_ID", NEVER)


@pytest.mark.parametrize(("numbers", "count"), SIZES)
@pytest.mark.usefixtures("by_hash")
def test_the_hash_of_a_ticket_leads_to_the_partition_of_its_number(numbers: int, count: int) -> None:
    given = tickets(numbers, count)
    assert numbers == len({*given})
    assert [number % count for number in range(numbers)] == [
        mmh3.hash(struct.pack("<i", each), 42) % count for each in given
    ]
    assert all([*given[place::count]] == sorted(given[place::count]) for place in range(count))


@pytest.mark.usefixtures("by_hash")
@pytest.mark.parametrize(("numbers", "count"), [(20, 20), (20, 3), (2, 9)])
def test_spark_moves_each_row_to_where_its_ticket_leads(spark: "SparkSession", numbers: int, count: int) -> None:
    rows = spark.range(0, 3 * numbers, 1, 4).select((F.col("id") % numbers).alias("number"))
    there = moved(rows.withColumn("ticket", ticket(F.col("number"), tickets(numbers, count))), count, "ticket")
    found = there.select("number", F.spark_partition_id().alias("at"))
    assert count == there.rdd.getNumPartitions()
    assert {(number, number % count) for number in range(numbers)} == {(row.number, row.at) for row in found.collect()}


@pytest.mark.usefixtures("by_hash")
def test_a_table_by_ticket_has_the_value_of_each_number() -> None:
    given, names = tickets(9, 4), [f"c{number}" for number in range(8)]
    table = by_ticket(names, given)
    assert names == [table[each] for each in given[:8]]
    assert 8 == sum(value is not None for value in table)
    assert [] == by_ticket([], tickets(0, 4))


@only_since(BY_ID)
def test_where_spark_takes_numbers_they_are_their_own_tickets() -> None:
    assert [*range(5)] == [*tickets(5, 2)]
    assert ["a", "b"] == by_ticket(["a", "b"], tickets(2, 2))
