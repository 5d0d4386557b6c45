"""A replay on two executors of which one is killed on the way: ``python -m tests.spark.lost_executor MASTER FOLDER``.

The deliveries go to FOLDER/deliveries as Parquet; FOLDER/found.json has the summaries, and what the loss looked like.
"""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark user knows
from tests.spark.everywhere import session
from tests.spark.small_jobs import PLAN

from keyshared.spark.partition import Message
from keyshared.spark.replay import replay

TOPIC_PARTITIONS: Final = 4
MESSAGES: Final = 40_000
KEYS: Final = 97
READ_PARTITIONS: Final = 3  # other than the replay's, so that its stage can be told from those before it
SUMMARIES: Final = ("topic_partition", "messages", "deliveries", "safe_cursor", "outstanding")
_LOOK_S: Final = 0.02


def messages() -> Iterator[Message]:
    """The log, a topic-partition after the other."""
    for topic_partition in range(TOPIC_PARTITIONS):
        for number in range(topic_partition, MESSAGES, TOPIC_PARTITIONS):
            yield Message(f"p{topic_partition}", number, f"k{number % KEYS}".encode(), number, None)


def log(spark: SparkSession) -> DataFrame:
    """The same as a frame."""
    number = F.col("id")
    return spark.range(0, MESSAGES, 1, READ_PARTITIONS).select(
        F.concat(F.lit("p"), number % TOPIC_PARTITIONS).alias("topic_partition"),
        number.alias("offset"),
        F.concat(F.lit("k"), number % KEYS).alias("key"),
        number.alias("at_ms"),
    )


def run(spark: SparkSession, folder: Path) -> None:
    """Replay, and kill the executor as soon as one topic-partition is done and another one is not."""
    found: dict[str, object] = {}
    over = threading.Event()
    killer = threading.Thread(target=_kill_one, args=(spark.sparkContext, over, found))
    with replay(log(spark), PLAN, partitions=TOPIC_PARTITIONS) as result:
        killer.start()
        try:
            result.deliveries.write.parquet(str(folder / "deliveries"))
            found["summaries"] = sorted(tuple(row) for row in result.summaries.select(*SUMMARIES).collect())
        finally:
            over.set()
            killer.join()
    (folder / "found.json").write_text(json.dumps(found))


def _kill_one(context: SparkContext, over: threading.Event, found: dict[str, object]) -> None:
    tracker = context.statusTracker()
    while not over.wait(_LOOK_S):
        for number in tracker.getActiveStageIds():
            stage = tracker.getStageInfo(number)
            if stage is None or stage.numTasks != TOPIC_PARTITIONS:
                continue
            if "killed" not in found and stage.numCompletedTasks >= 1 and stage.numActiveTasks >= 1:
                found["executors"] = executors = _executors(context)
                found["killed"] = executors[0]
                os.kill(executors[0], signal.SIGKILL)
            # what was lost fails, or its stage is tried again
            found["lost"] = bool(found.get("lost")) or stage.numFailedTasks > 0 or stage.currentAttemptId > 0


def _executors(context: SparkContext) -> list[int]:
    """Process ids of this application's executors."""
    command = ["ps", "-eo", "pid=,args="]
    listing = subprocess.run(command, capture_output=True, text=True, check=True)
    rows = [line.split(maxsplit=1) for line in listing.stdout.splitlines()]
    mine = ("CoarseGrainedExecutorBackend", f"--app-id {context.applicationId}")
    return sorted(int(pid) for pid, *args in rows if all(word in str(args) for word in mine))


if __name__ == "__main__":
    made = session(sys.argv[1])
    try:
        run(made, Path(sys.argv[2]))
    finally:
        made.stop()
