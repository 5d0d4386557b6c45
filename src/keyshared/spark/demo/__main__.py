r"""``python -m keyshared.spark.demo``: a year of flights, or your own log, replayed over a group of consumers.

The log is replayed (`keyshared.spark.replay`) and the delivery log that came out is audited (`keyshared.spark.audit`).
What happened is printed, written as a page of HTML and saved as tables (`keyshared.spark.save_results`). Keys of that
log are counted (`keyshared.spark.keystats.histogram`) to compare bucket boundaries of equal width with balanced ones.

``python -m keyshared.spark.demo distribution`` shows something else: the flights on five clusters that copy to one
another (`keyshared.spark.demo.distribution`).

The exit status is 0 if no promise was broken, 1 if one was, and 2 if the job could not run. Where the plan leaves
messages over on purpose (a time at which it ends, blocked keys, filters), no-loss is not judged.

With ``spark-submit`` everything of Spark's own goes to standard error, and everything of the demo to standard output::

    spark-submit --master spark://host:7077 src/keyshared/spark/demo/__main__.py --input s3a://logs/2024/ --key user \
        --partition shard --order ts --results s3a://lake/2024-replayed 2>spark.log

The driver and the workers need keyshared installed. Without ``--results`` the tables go to a folder that all workers
must share with the driver, such as any folder of a local master.
"""

import argparse
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, TextIO

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark user knows
from rich.text import Text

from keyshared.errors import ArgumentError, MissingExtraError
from keyshared.simulate.group import Group, Pace
from keyshared.spark.audits.audit import audit
from keyshared.spark.audits.delivery_history import DELIVERY_GUARANTEES, delivery_history
from keyshared.spark.demo import distribution as demo_distribution
from keyshared.spark.demo.comparison import comparison, warned
from keyshared.spark.demo.log import PLACE, Log, beginning, flights, measured, own_log, with_own_service, with_service
from keyshared.spark.demo.options import check_input, check_options, check_plans, consumers_of, needs_service
from keyshared.spark.demo.plan import CONCURRENCY, LOAD, Story
from keyshared.spark.demo.text import columns, summary, tell
from keyshared.spark.frames.kept import Kept
from keyshared.spark.frames.tables import brought_here
from keyshared.spark.keystats.bucket_figures import BUCKETS
from keyshared.spark.logs.files import spark_path
from keyshared.spark.logs.times import MS_OF, TIMES
from keyshared.spark.pages.page import checked_target
from keyshared.spark.plans.load import OfferedLoad
from keyshared.spark.plans.ranking import BY, CRITERIA
from keyshared.spark.replays.left_over import REDRIVEN, left_over, settled_once, why_unjudged
from keyshared.spark.replays.offered_load import offered_loads
from keyshared.spark.replays.replay import replay as replayed
from keyshared.spark.replays.replay_figures import replay_report
from keyshared.spark.replays.replay_report import ReplayReport, html
from keyshared.spark.replays.what_if import what_if
from keyshared.spark.replays.what_if_figures import outcomes_of
from keyshared.spark.results.catalogue import RUN
from keyshared.spark.results.save import load_results, save_results
from keyshared.spark.runtime.progress import watch
from keyshared.spark.runtime.session import local_session, reason
from keyshared.testing.guarantees import Promise

__all__ = ["main"]

_NO_LOSS: Final = str(Promise.NO_LOSS)
_KEPT: Final = 0
_BROKEN: Final = 1
_FAILED: Final = 2
_DISTRIBUTION: Final = "distribution"
_HOT_KEYS: Final = 10
_BACKLOG_POINTS: Final = 720  # what the page can show
_SHOWN_PROOFS: Final = 3  # of each promise
_PROOF_WIDTH: Final = 120
_LINE_S: Final = 5
_SUBMITTED: Final = "PYSPARK_GATEWAY_PORT"  # spark-submit says so, and has a master of its own


@dataclass(frozen=True, slots=True)
class _Job:
    """What one replay takes.

    Attributes:
        title: For the headline.
        told: What is replayed, for the reader.
        plan: The plan.
        messages: The columns that `replay` takes.
        epoch_ms: When the first message arrived, in milliseconds since 1970; None: nobody knows.
        zone: Of that time.
    """

    title: str
    told: str
    plan: Group
    messages: DataFrame
    epoch_ms: int | None
    zone: str


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
        epilog="Exit status: 0 no promise broken, 1 a promise broken, 2 the job could not run.",
    )
    add = parser.add_argument
    add("--consumers", type=int, metavar="N", help="consumers in the beginning (8)")
    add(
        "--plan",
        action="append",
        default=[],
        metavar="FILE",
        help="your own group as .toml or .yaml; several are compared, and nothing is audited",
    )
    add("--by", metavar="WHAT", help=f"what the best of several plans is found by: {', '.join(CRITERIA)} ({BY})")
    add("--limit", type=int, metavar="N", help="only the first N messages")
    add("--out", type=Path, default=Path("demo-output"), metavar="DIR", help="where the page goes (demo-output)")
    add(
        "--results",
        metavar="PATH",
        help="where tables go, in place of those that are there (results below --out): workers must reach it",
    )
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
    add(
        "--service-unit",
        metavar="UNIT",
        help=f"what that column counts, for a --plan: one of {', '.join(MS_OF)} (milliseconds)",
    )
    return parser


def _with_session(options: argparse.Namespace, job: Callable[[SparkSession, argparse.Namespace], int]) -> int:
    if job is _run_distribution:
        demo_distribution.check_options(options)
    else:
        check_options(options)
        options.plans = check_plans(options)
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
    plans: Mapping[str, Group] = options.plans
    with ExitStack() as kept:
        with _progress(spark, "reading the log", options):
            log = own_log(spark, options) if options.input else flights(spark, options.limit)
            if options.limit is not None:
                log = replace(log, rows=log.rows.orderBy("at_ms", "topic_partition", "offset").limit(options.limit))
            kept.enter_context(Kept(log.rows))
            workload = measured(log, all_told=any(map(needs_service, plans.values())))
        when = (beginning(log, workload), log.zone)
        if len(plans) > 1:
            return _compare(spark, options, log, with_own_service(log, workload))
        if plans:
            ((name, plan),) = plans.items()
            told = f"{log.about}. The plan is {name} ({options.plan[0]})."
            return _replay(spark, options, _Job(log.title, told, plan, with_own_service(log, workload), *when))
        story = Story(consumers=consumers_of(options), workload=workload)
        job = _Job(log.title, _told(log, story), story.plan(), with_service(log, story), *when)
        return _replay(spark, options, job)


def _weighed(
    spark: SparkSession, options: argparse.Namespace, messages: DataFrame, plans: Mapping[str, Group]
) -> dict[str, OfferedLoad]:
    """Compute what the log asks of each plan, and say at once why waits would be endless: the replay may take long."""
    timed = {name: plan for name, plan in plans.items() if plan.pace is Pace.ARRIVALS}
    if options.quiet or not timed:
        return {}
    with _progress(spark, "adding up the work", options):
        loads = offered_loads(messages, timed, service_ms="service_ms")
    before = {f"{name}: " if len(plans) > 1 else "": load for name, load in loads.items()}
    for text in warned(before, _hint(options)):
        tell(sys.stderr, text)
    return loads


def _hint(options: argparse.Namespace) -> str:
    """Return what else may be the reason, where times are those of a column."""
    if not options.plan or options.service is None:
        return ""
    unit = options.service_unit or "milliseconds"
    return f"(--service {options.service} is taken to count {unit}; --service-unit says otherwise)"


def _replay(spark: SparkSession, options: argparse.Namespace, job: _Job) -> int:
    loads = _weighed(spark, options, job.messages, {"": job.plan})
    path = _results(options)
    started = time.monotonic()
    with (
        _progress(spark, "replaying", options),
        replayed(
            job.messages, job.plan, service_ms="service_ms", partitions=options.partitions, points=_BACKLOG_POINTS
        ) as result,
    ):
        run = save_results(result, path, mode="overwrite")
        summaries = brought_here(result.summaries)  # a row for each topic-partition
    seconds = time.monotonic() - started
    deliveries = load_results(spark, path, run=run)["deliveries"].drop(RUN)
    left = left_over(summaries, job.plan)
    with ExitStack() as kept:
        with _progress(spark, "auditing every delivery", options):
            # what the plan leaves over on purpose looks like a loss
            history = delivery_history(
                settled_once(deliveries) if REDRIVEN in left else deliveries,
                offered=None if left else job.messages.select(*PLACE),
            )
            kept.enter_context(Kept(history))
            audited = kept.enter_context(
                audit(history, DELIVERY_GUARANTEES, partitions=options.partitions, most=_SHOWN_PROOFS)
            )
            broken = audited.counts()
            save_results(audited, path, mode="append")
        with _progress(spark, "counting", options):
            report = replay_report(
                deliveries,
                summaries,
                job.plan,
                title=job.title,
                source=job.told,
                violations=tuple(broken.items()),
                unjudged={_NO_LOSS: why_unjudged(left)} if left else {},
                seconds=seconds,
                hottest=_HOT_KEYS,
                buckets=BUCKETS,
                epoch_ms=job.epoch_ms,
                zone=job.zone,
            )
            (options.out / "report.html").write_text(html(report), encoding="utf-8")
        _tell(report, audited.violations, path, options, loads)
    return _BROKEN if report.violation_count else _KEPT


def _compare(spark: SparkSession, options: argparse.Namespace, log: Log, messages: DataFrame) -> int:
    page = options.out / "plans.html"
    loads = _weighed(spark, options, messages, options.plans)
    with what_if(messages, options.plans, service_ms="service_ms", partitions=options.partitions) as compared:
        with _progress(spark, f"replaying {len(options.plans)} plans", options):
            path = _results(options)
            save_results(compared, path, mode="overwrite")
            outcomes = outcomes_of(compared.totals.collect(), options.plans)
        with _progress(spark, "counting", options):
            compared.report(page, title=log.title, about=log.about, by=options.by or BY, hottest=_HOT_KEYS)
    if not options.quiet:
        told = comparison(log.title, f"{log.about}.", options.plans, outcomes, options.by or BY, loads=loads)
        tell(sys.stdout, "", told, "")
        sys.stdout.write(f"results       {path}\nreport        {page}\n")
    return _KEPT


# what is told


def _told(log: Log, story: Story) -> str:
    return (
        f"{log.about}. Service time in proportion to {log.work}, so that the busiest topic-partition keeps "
        f"{story.consumers} consumers, each at {CONCURRENCY} messages at once, busy for {LOAD * 100:.0f} % of its "
        "time. "
        f"{story.crashed} crashes after a third of the time, {story.joined} joins after two thirds; "
        "1 % of deliveries fail, 0.1 % are never answered."
    )


def _tell(
    report: ReplayReport,
    violations: DataFrame,
    path: str,
    options: argparse.Namespace,
    loads: Mapping[str, OfferedLoad],
) -> None:
    if report.violation_count:
        proofs: list[tuple[str, ...]] = []
        for promise in (name for name, count in report.violations or () if count):
            first = violations.filter(F.col("promise") == promise).orderBy("topic_partition", "sequence")
            proofs += [(promise, *row) for row in first.select("topic_partition", "explanation").head(_SHOWN_PROOFS)]
        table = columns(proofs, heads=("promise", "in", "what happened"), left=(0, 1, 2), widest=_PROOF_WIDTH)
        tell(sys.stderr, Text(f"{report.violation_count:,} violations, such as", style="bold red"), table)
    if not options.quiet:
        tell(sys.stdout, "", summary(report), *warned(loads, _hint(options)), "")
        sys.stdout.write(f"results       {path}\nreport        {options.out / 'report.html'}\n")


def _results(options: argparse.Namespace) -> str:
    given: str | None = options.results
    out: Path = options.out
    return given or spark_path(out / "results")


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
