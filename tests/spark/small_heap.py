"""A replay of a long log in a small heap: ``python -m tests.spark.small_heap`` prints the number of deliveries."""

import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from pyspark.sql import functions as F  # noqa: N812 - the name every Spark user knows

from keyshared.simulate import Fixed, Group, SimulatedConsumer
from keyshared.spark.replays.replay import replay
from keyshared.spark.runtime.session import local_session

MESSAGES: Final = 3_000_000
HEAP: Final = "512m"  # Spark refuses less than 450
TASKS: Final = 2
PLAN: Final = Group(consumers=[SimulatedConsumer(name, Fixed(1)) for name in "ab"], count_moved_keys=False)


def main(folder: Path) -> None:
    """Replay, and write what is kept nowhere."""
    settings = {"spark.driver.memory": HEAP, "spark.local.dir": str(folder)}
    spark = local_session("small heap", master=f"local[{TASKS}]", settings=settings)
    number = F.col("id")
    log = spark.range(0, MESSAGES, 1, 4).select(
        F.concat(F.lit("p"), number % TASKS).alias("topic_partition"),
        number.alias("offset"),
        F.concat(F.lit("user-"), number % 1_000).alias("key"),
        number.alias("at_ms"),
    )
    try:
        with replay(log, PLAN) as result:
            result.deliveries.write.format("noop").mode("overwrite").save()
            (deliveries,) = result.summaries.agg(F.sum("deliveries")).first() or (None,)
    finally:
        spark.stop()
    sys.stdout.write(f"{deliveries}\n")


if __name__ == "__main__":
    with TemporaryDirectory() as made:
        main(Path(made))
