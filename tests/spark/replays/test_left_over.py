"""What a plan leaves over on purpose: counted from the summaries, and told in a sentence."""

from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")

from keyshared.config import DispatcherConfig, Poison
from keyshared.simulate import Group, SimulatedConsumer
from keyshared.spark.replays.left_over import left_over, settled_once, why_unjudged

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

PLAN = Group(consumers=[SimulatedConsumer("a")])
COLUMNS = "stop string, skipped long, dropped long, redriven long, dead_lettered long"


@pytest.mark.parametrize(
    ("rows", "poison", "expected"),
    [
        ([], Poison.DEAD_LETTER, {}),
        ([("at_rest", 0, 0, 0, 5)], Poison.DEAD_LETTER, {}),
        ([("at_rest", 0, 0, 0, 5)], Poison.QUARANTINE, {"quarantined": 5}),
        ([("at_rest", 0, 0, 0, 0), ("until", 3, 0, 0, 0), ("stuck", 4, 1, 2, 0)], Poison.DROP, None),
    ],
)
def test_what_is_left_over_is_counted(
    spark: "SparkSession", rows: list[tuple[object, ...]], poison: Poison, expected: dict[str, int] | None
) -> None:
    plan = Group(consumers=PLAN.consumers, config=DispatcherConfig(poison=poison))
    found = left_over(spark.createDataFrame(rows, COLUMNS), plan)
    assert ({"stopped": 2, "skipped": 7, "dropped": 1, "redriven": 2} if expected is None else expected) == found


def test_it_is_told_in_a_sentence() -> None:
    assert why_unjudged({"stopped": 2, "skipped": 1_234}).endswith(
        "(topic-partitions that did not come to rest: 2, messages skipped: 1,234)"
    )


def test_a_dead_letter_that_came_back_is_followed_until_it_was_one(spark: "SparkSession") -> None:
    rows = [
        ("p", 0, 1, None),
        ("p", 0, 3, 5),  # given up
        ("p", 0, 9, 11),  # and back
        ("p", 1, 2, None),
        ("p", 1, 4, 7),  # acked late, while it was out again
        ("p", 2, 6, None),
        ("q", 0, 8, 9),
    ]
    deliveries = spark.createDataFrame(
        rows, "topic_partition string, offset long, sequence long, settled_sequence long"
    )
    found = settled_once(deliveries)
    assert deliveries.columns == found.columns
    assert sorted(sequence for _, _, sequence, _ in rows if sequence != 9) == sorted(
        row.sequence for row in found.collect()
    )
