"""``python -m keyshared.spark.demo distribution``: the flights on five clusters, a move, an outage and a failover.

The records of all clusters are written as Parquet, read again and audited (`keyshared.spark.clusters.audit`); the
offsets of the consumer groups of a cluster that fails are translated in three ways
(`keyshared.spark.clusters.offsets`), and what they lose and read again is counted record by record.
"""

import argparse
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import reduce
from pathlib import Path
from typing import Final, TextIO, TypeAlias

from pyspark.sql import DataFrame, Row, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark user knows
from rich.console import RenderableType
from rich.text import Text

from keyshared.distribution.distributor import Hop
from keyshared.distribution.tree import DistributionTree
from keyshared.errors import ArgumentError
from keyshared.offsets.translate import DEFAULT_MARGIN_MS
from keyshared.spark.clusters.audit import audit_distribution, count_by_fault
from keyshared.spark.clusters.offsets import translate_offsets
from keyshared.spark.demo.clusters import (
    FAILED,
    FAULTS,
    GROUPS,
    MARGIN_MS,
    REFUGE,
    TREE,
    Year,
    commits,
    distributed,
    drained,
    log,
)
from keyshared.spark.demo.distribution_report import ClusterLog, DistributionReport, Failover, html, summary
from keyshared.spark.demo.options import check_place
from keyshared.spark.demo.text import columns, tell
from keyshared.spark.logs.files import spark_path
from keyshared.spark.logs.source import load_flights
from keyshared.spark.pages.page import duration

__all__ = ["Doing", "check_options", "parser", "run"]

Doing: TypeAlias = Callable[[str], AbstractContextManager[object]]
"""Shows what is being done."""

_MINUTE_MS: Final = 60_000
_SHOWN_PROOFS: Final = 3
_PROOF_WIDTH: Final = 120
_WAYS: Final = (
    (f"timestamp, margin {duration(DEFAULT_MARGIN_MS)}", False, {"margin_ms": DEFAULT_MARGIN_MS}),
    (f"timestamp, margin {duration(MARGIN_MS)}", True, {"margin_ms": MARGIN_MS}),
    ("provenance", True, {"provenance": True}),
)


def parser() -> argparse.ArgumentParser:
    """Return the options.

    Returns:
        Their parser.
    """
    made = argparse.ArgumentParser(
        prog="python -m keyshared.spark.demo distribution",
        description="Distribute the flights that left New York in 2013 between five clusters; move a target, cut a "
        "link, and let the consumer groups of one cluster go on at another.",
        epilog="Exit status: 0 every promise kept, 1 a promise broken, 2 the job could not run.",
    )
    add = made.add_argument
    add("--limit", type=int, metavar="N", help="only the first N messages")
    add("--fault", choices=FAULTS, help="break something: a link that loses copies, or a rule that looks at too little")
    add("--out", type=Path, default=Path("demo-output"), metavar="DIR", help="where results go (demo-output)")
    add("--records", metavar="PATH", help="where the records go, if not below --out: workers must reach it")
    add("--master", metavar="URL", help="Spark master, or sc://host:port (local[*], or what spark-submit was told)")
    add("--quiet", action="store_true", help="print nothing but violations and errors")
    return made


def check_options(options: argparse.Namespace) -> None:
    """Check the options before anything runs.

    Args:
        options: What `parser` gave.

    Raises:
        ArgumentError: A number is too small, or Spark would take the place of the records for a pattern.
    """
    if options.limit is not None and options.limit < 1:
        raise ArgumentError("--limit", options.limit, "be at least 1")
    check_place(options, "--records", options.records)


def run(spark: SparkSession, options: argparse.Namespace, doing: Doing, out: TextIO, errors: TextIO) -> bool:
    """Run the demo.

    Args:
        spark: The session.
        options: What `parser` gave.
        doing: Shows what is being done.
        out: For the summary.
        errors: For violations.

    Returns:
        Whether every promise was kept.
    """
    started = time.monotonic()
    path = options.records or spark_path(options.out / "records")
    with doing("distributing"):
        flights, year = _flights(spark, options.limit)
        with distributed(flights, year, fault=options.fault) as copied:
            copied.write.mode("overwrite").parquet(path)
    records = spark.read.parquet(path)
    with doing("auditing every record"):
        token = drained(records, year)
        tree = TREE if token is None else TREE.apply(year.change, token)
        produced = flights.select(F.concat_ws("-", "topic_partition", "offset").alias("message_id"))
        found = audit_distribution(records, tree, produced=produced).persist()
        faults = {**count_by_fault(found), "reordered": _reordered(records), "not drained": int(token is None)}
    with doing("failing over"):
        failovers, groups = _failovers(records, year)
    with doing("counting"):
        report = _report(records, tree, year, faults=faults, failovers=failovers, groups=groups, started=started)
        (options.out / "distribution.html").write_text(html(report), encoding="utf-8")
    if report.broken_count:
        tell(errors, Text(f"{report.broken_count:,} violations, such as", style="bold red"), _proofs(found))
    if not options.quiet:
        tell(out, "", summary(report), "")
        out.write(f"records       {path}\nreport        {options.out / 'distribution.html'}\n")
    found.unpersist()
    flights.unpersist()
    return report.broken_count == 0


def _flights(spark: SparkSession, limit: int | None) -> tuple[DataFrame, Year]:
    at = (F.col("order") * _MINUTE_MS).alias("at_ms")
    flights = load_flights(spark, limit=limit).select("topic_partition", "key", "carrier", "offset", at).persist()
    first, last = flights.agg(F.min("at_ms"), F.max("at_ms")).collect()[0]
    return flights, Year(first, last - first)


def _reordered(records: DataFrame) -> int:
    """Records that lie behind a newer one of their origin."""
    before = Window.partitionBy("cluster", "topic_partition", "origin").orderBy("offset")
    newest = F.max("origin_offset").over(before.rowsBetween(Window.unboundedPreceding, -1))
    # a copy that comes twice is a duplicate, and counted as that
    return records.withColumn("newest", newest).filter("newest > origin_offset").count()


def _failovers(records: DataFrame, year: Year) -> tuple[tuple[Failover, ...], int]:
    """Translate every group's commits in every way, and compare with what the groups have processed."""
    source, target = log(records, FAILED, year).persist(), log(records, REFUGE, year).persist()
    asked = commits(source, year).persist()
    translated = [
        translate_offsets(asked, source, target, **how).withColumn("way", F.lit(way)) for way, _, how in _WAYS
    ]
    plans = reduce(DataFrame.unionByName, translated).select("way", "topic_partition", "offset", "target_offset")
    processed = F.coalesce(F.col("source_offset") < F.col("offset"), F.lit(False))
    before = F.col("at") < F.col("target_offset")
    # everything that the refuge ever gets, not only what it has when the cluster fails
    there = records.filter(F.col("cluster") == REFUGE).select(
        "message_id", "topic_partition", F.col("offset").alias("at")
    )
    here = source.select("message_id", F.col("offset").alias("source_offset"))
    counts = (
        there.join(here, "message_id", "left")
        .join(F.broadcast(plans), "topic_partition")
        .groupBy("way")
        .agg(F.count_if(before & ~processed).alias("lost"), F.count_if(~before & processed).alias("again"))
    )
    found = {row["way"]: row for row in counts.collect()}
    groups = asked.count()
    for frame in (asked, source, target):
        frame.unpersist()
    return tuple(_failover(way, promised, found.get(way)) for way, promised, _ in _WAYS), groups


def _failover(way: str, promised: bool, row: Row | None) -> Failover:
    return Failover(way=way, promised=promised, lost=row["lost"] if row else 0, again=row["again"] if row else 0)


def _report(
    records: DataFrame,
    tree: DistributionTree,
    year: Year,
    *,
    faults: dict[str, int],
    failovers: tuple[Failover, ...],
    groups: int,
    started: float,
) -> DistributionReport:
    rows = records.groupBy("from_cluster", "level", "cluster").count().collect()
    links = {(row["from_cluster"], row["level"], row["cluster"]): row["count"] for row in rows}
    sent = sorted((Hop(*link), count) for link, count in links.items() if link[0] is not None)
    produced = {link[2]: count for link, count in links.items() if link[0] is None}
    clusters = tuple(
        ClusterLog(
            cluster=name,
            produced=produced.get(name, 0),
            received=sum(count for hop, count in sent if hop.target == name),
            sent=sum(count for hop, count in sent if hop.cluster == name),
        )
        for name in tree.clusters
    )
    return DistributionReport(
        title="Flights of 2013 on five clusters",
        source=f"{year.told} Groups: {', '.join(GROUPS)}.",
        tree=tree,
        moved=tuple(hop for moved in year.change.moved for hop in moved),
        messages=sum(produced.values()),
        seconds=time.monotonic() - started,
        faults=tuple(faults.items()),
        clusters=clusters,
        links=tuple(sent),
        groups=groups,
        failovers=failovers,
    )


def _proofs(found: DataFrame) -> RenderableType:
    rows = found.orderBy("fault", "message_id", "cluster").select("fault", "message_id", "cluster", "explanation")
    shown = [tuple(row) for row in rows.head(_SHOWN_PROOFS)]
    heads = ("fault", "message", "on", "what happened")
    return columns(shown, heads=heads, left=(0, 1, 2, 3), widest=_PROOF_WIDTH)
