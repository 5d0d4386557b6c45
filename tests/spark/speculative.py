"""Jobs of which one task hangs until Spark has run a copy of it elsewhere.

``python -m tests.spark.speculative MASTER FOLDER``: MASTER has two hosts, because a copy runs on another one. FOLDER
gets what each job of `JOBS` writes, as Parquet, and attempts.json: how the attempts of each ended, as Spark's own log
of events tells.
"""

import json
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession
from tests.spark import lost_executor
from tests.spark.everywhere import session
from tests.spark.holding import HELD, HeldServiceTime, held_batches
from tests.spark.small_jobs import PLAN, RING, broken_log, keyed

from keyshared import spark as ks
from keyshared.simulate import Group

HELD_PLAN: Final = replace(
    PLAN,
    consumers=[
        replace(consumer, service=HeldServiceTime(consumer.service, lost_executor.MESSAGES // 2))
        for consumer in PLAN.consumers
    ],
)
_LOOK_S: Final = 0.1
_SETTINGS: Final = {
    "spark.speculation": "true",
    "spark.speculation.interval": "50ms",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.efficiency.enabled": "false",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "20",  # the small logs too are more than a batch
    "spark.eventLog.enabled": "true",
    "spark.eventLog.compress": "false",
    "spark.eventLog.rolling.enabled": "false",
}


def replayed(spark: SparkSession, plan: Group, folder: Path) -> None:
    """A replay that hangs in the middle of a topic-partition."""
    with ks.replay(lost_executor.log(spark), plan, partitions=lost_executor.TOPIC_PARTITIONS) as result:
        result.deliveries.write.parquet(str(folder / "replayed"))
        result.summaries.write.parquet(str(folder / "summaries"))


def colocated(spark: SparkSession) -> DataFrame:
    """Each consumer's messages in one file, in order."""
    return ks.colocate(lost_executor.log(spark), RING)


def audited(spark: SparkSession) -> DataFrame:
    """The violations of a delivery log; they are kept, and found there by the copy."""
    return ks.audit(ks.delivery_history(broken_log(spark), offered=keyed(spark)), ks.DELIVERY_GUARANTEES).violations


def _written(job: Callable[[SparkSession], DataFrame], after: int, spark: SparkSession, folder: Path) -> None:
    """Hang when this many rows are on their way into a file."""
    rows = job(spark)
    rows.mapInArrow(partial(held_batches, after=after), rows.schema).write.parquet(str(folder / job.__name__))


JOBS: Final[Mapping[str, Callable[[SparkSession, Path], None]]] = {
    "replayed": lambda spark, folder: replayed(spark, HELD_PLAN, folder),
    "colocated": partial(_written, colocated, lost_executor.MESSAGES // 4),
    "audited": partial(_written, audited, 1),
}


def attempts(events: Path) -> dict[str, list[list[list[Any]]]]:
    """Read how the attempts of the held partition ended: by job and stage, in the order of launch.

    Each is whether it was a copy, its host, and the end's reason.
    """
    jobs: dict[int, str] = {}
    ended: defaultdict[int, list[tuple[Any, ...]]] = defaultdict(list)
    for line in events.read_text(encoding="utf-8").splitlines():
        event = json.loads(line)
        if event["Event"] == "SparkListenerJobStart":
            jobs |= dict.fromkeys(event["Stage IDs"], event["Properties"]["spark.job.description"])
        elif event["Event"] == "SparkListenerTaskEnd" and event["Task Info"]["Index"] == HELD:
            task = event["Task Info"]
            row = task["Task ID"], task["Speculative"], task["Host"], event["Task End Reason"]["Reason"]
            ended[event["Stage ID"]].append(row)
    found: dict[str, list[list[list[Any]]]] = {name: [] for name in JOBS}
    for stage, rows in ended.items():
        found[jobs[stage]].append([list(row) for _, *row in sorted(rows)])
    return found


def _wait_until_idle(context: SparkContext) -> None:
    """A task that was told to end may take seconds, and a session that stops does not wait for it."""
    store = context._jsc.sc().statusStore()
    executors = store.executorList(True)
    while any(executors.apply(number).activeTasks() for number in range(executors.size())):
        time.sleep(_LOOK_S)
        executors = store.executorList(True)


def main(master: str, folder: Path) -> None:
    """Run all jobs, one after the other."""
    events = folder / "events"
    events.mkdir()
    spark = session(master, {**_SETTINGS, "spark.eventLog.dir": events.as_uri()})
    try:
        for name, job in JOBS.items():
            spark.sparkContext.setJobDescription(name)
            job(spark, folder)
            _wait_until_idle(spark.sparkContext)
    finally:
        spark.stop()
    (log,) = events.iterdir()
    (folder / "attempts.json").write_text(json.dumps(attempts(log)))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
