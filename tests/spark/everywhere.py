"""A program that runs every small job on the session it is told to make.

``python -m tests.spark.everywhere MASTER FILE`` writes the answers as JSON. MASTER is a Spark master, or where a Spark
Connect server listens (``sc://...``): there, what needs an RDD is left out.
"""

import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from pyspark.sql import SparkSession
from tests.spark import rdd_jobs, refusals, small_jobs, stream_jobs
from tests.spark.settings import QUICK

from keyshared.spark.runtime.session import local_session

Job = Callable[[SparkSession], list[Any]]

JOBS: Final[Mapping[str, Job]] = {
    "owners": small_jobs.owners,
    "colocate": small_jobs.colocated,
    "histogram": small_jobs.histogram,
    "replay": small_jobs.replayed,
    "what_if": small_jobs.compared,
    "audits": small_jobs.audited,
    "distribution": small_jobs.distributed,
    "offsets": small_jobs.translated,
    "log": small_jobs.loaded,
    "results": small_jobs.saved,
    "refusals": refusals.refused,
    "failures": refusals.failed,
    "streams": stream_jobs.dispatched,
    "micro-batches": stream_jobs.colocated,
}
RDD_JOBS: Final[Mapping[str, Job]] = {
    "rdd columns": rdd_jobs.columns,
    "rdd replays": rdd_jobs.replays,
    "rdd audits": rdd_jobs.audits,
    "rdd streams": rdd_jobs.streams,
}


def answers(spark: SparkSession, jobs: Mapping[str, Job]) -> dict[str, list[str]]:
    """What each job says, in an order of its own: frames have none."""
    return {name: sorted(map(repr, job(spark))) for name, job in jobs.items()}


def session(master: str, settings: Mapping[str, str] | None = None) -> SparkSession:
    """Make the session that is asked for; its own driver and executors are such that start quickly."""
    executors = {} if _is_remote(master) else {"spark.executor.extraJavaOptions": QUICK}
    made = {"spark.sql.shuffle.partitions": "3", **executors, **(settings or {})}
    return local_session("everywhere", master=master, jvm_options=QUICK, settings=made)


def hosts(spark: SparkSession) -> list[str]:
    """Where tasks run in Python: the hosts of the executors, each once."""
    return sorted(set(spark.sparkContext.parallelize(range(4), 4).mapPartitions(_host).collect()))


def _host(rows: Iterable[int]) -> Iterator[str]:
    import time  # noqa: PLC0415 - it is sent to the workers by value

    time.sleep(1)  # until every executor has a task
    yield from (os.environ["SPARK_LOCAL_IP"] for _ in rows)


def _is_remote(master: str) -> bool:
    return master.startswith("sc://")


def main(master: str, file: str) -> None:
    """Run everything and write the answers."""
    spark = session(master)
    try:
        found = answers(spark, JOBS if _is_remote(master) else {**JOBS, **RDD_JOBS})
        if not _is_remote(master):
            found["hosts"] = hosts(spark)
    finally:
        spark.stop()
    Path(file).write_text(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
