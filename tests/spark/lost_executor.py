"""A replay on two executors of which one is killed on the way: ``python -m tests.spark.lost_executor FOLDER``.

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
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark user knows
from tests.spark.everywhere import PLAN, session

from keyshared.spark.partition import Message
from keyshared.spark.replay import replay

MASTER: Final = "local-cluster[2,1,1024]"
TOPIC_PARTITIONS: Final = 4
MESSAGES: Final = 40_000
KEYS: Final = 97
READ_PARTITIONS: Final = 3  # other than the replay's, so that its stage can be told from those before it
_LOOK_S: Final = 0.02


def messages() -> Iterator[Message]:
    """The log, a topic-partition after the other."""
    for topic_partition in range(TOPIC_PARTITIONS):
        for number in range(topic_partition, MESSAGES, TOPIC_PARTITIONS):
            yield Message(f"p{topic_partition}", number, f"k{number % KEYS}".encode(), number, None)


def run(spark: SparkSession, folder: Path) -> None:
    """Replay, and kill the executor as soon as one topic-partition is done and another one is not."""
    number = F.col("id")
    log = spark.range(0, MESSAGES, 1, READ_PARTITIONS).select(
        F.concat(F.lit("p"), number % TOPIC_PARTITIONS).alias("topic_partition"),
        number.alias("offset"),
        F.concat(F.lit("k"), number % KEYS).alias("key"),
        number.alias("at_ms"),
    )
    found: dict[str, object] = {}
    over = threading.Event()
    killer = threading.Thread(target=_kill_one, args=(spark.sparkContext, over, found))
    with replay(log, PLAN, partitions=TOPIC_PARTITIONS) as result:
        killer.start()
        try:
            result.deliveries.write.parquet(str(folder / "deliveries"))
            names = ("topic_partition", "messages", "deliveries", "safe_cursor", "outstanding")
            found["summaries"] = sorted(tuple(row) for row in result.summaries.select(*names).collect())
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
    """Process ids of the executors' JVMs: children of the driver's, because the workers are threads of that one."""
    driver = context._jvm.java.lang.ProcessHandle.current().pid()  # type: ignore[union-attr]  # there is a JVM
    command = ["ps", "-eo", "pid=,ppid=,args="]
    listing = subprocess.run(command, capture_output=True, text=True, check=True)
    rows = [line.split(maxsplit=2) for line in listing.stdout.splitlines()]
    return sorted(int(pid) for pid, parent, *args in rows if int(parent) == driver and "ExecutorBackend" in str(args))


if __name__ == "__main__":
    made = session(MASTER)
    try:
        run(made, Path(sys.argv[1]))
    finally:
        made.stop()
