"""A replay on two executors of which one is killed on the way: ``python -m tests.spark.lost_executor MASTER FOLDER``.

The deliveries go to FOLDER/deliveries as Parquet; FOLDER/found.json has the summaries, and who was killed with what.
"""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark user knows
from tests.spark.everywhere import session
from tests.spark.holding import HeldOnce
from tests.spark.small_jobs import PLAN

from keyshared.simulate import Group
from keyshared.spark.replays.partition import Message
from keyshared.spark.replays.replay import replay

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
    """Replay, and kill an executor in the middle of a topic-partition, when another one is done."""
    found: dict[str, object] = {}
    held = folder / "held"
    over = threading.Event()
    killer = threading.Thread(target=_kill_one, args=(spark.sparkContext, held, over, found))
    with replay(log(spark), _plan(held), partitions=TOPIC_PARTITIONS) as result:
        killer.start()
        try:
            result.deliveries.write.parquet(str(folder / "deliveries"))
            found["summaries"] = sorted(tuple(row) for row in result.summaries.select(*SUMMARIES).collect())
        finally:
            over.set()
            killer.join()
    (folder / "found.json").write_text(json.dumps(found))


def _plan(held: Path) -> Group:
    consumers = [replace(each, service=HeldOnce(each.service, MESSAGES // 2, held)) for each in PLAN.consumers]
    return replace(PLAN, consumers=consumers)


def _kill_one(context: SparkContext, held: Path, over: threading.Event, found: dict[str, object]) -> None:
    tracker = context.statusTracker()
    while not over.wait(_LOOK_S):
        stages = map(tracker.getStageInfo, tracker.getActiveStageIds())
        done = any(stage.numTasks == TOPIC_PARTITIONS and stage.numCompletedTasks for stage in stages if stage)
        if done and held.exists() and (worker := held.read_text()).endswith("\n"):
            found["executors"] = executors = _executors(context)
            found["killed"] = killed = next(pid for pid in _above(int(worker)) if pid in executors)
            os.kill(killed, signal.SIGKILL)
            return


def _above(pid: int) -> Iterator[int]:
    """A process and those that it descends from."""
    while pid > 1:
        yield pid
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def _executors(context: SparkContext) -> list[int]:
    """Process ids of this application's executors."""
    command = ["ps", "-ww", "-eo", "pid=,args="]  # as wide as it is, whatever COLUMNS says
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
