"""From the verdicts and violations of an audit to the figures of its report, in native Spark.

What comes to the driver is bounded by the promises and by what a page can show, never by the histories.
"""

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Final

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark user knows

from keyshared.spark.audits.audit_report import AuditReport, PromiseFindings, Proof
from keyshared.spark.pages.page import as_text

__all__ = ["audit_report"]

_WORST: Final = 20
_KEYS: Final = 10
_REASONS: Final = 20  # of a promise


def audit_report(
    violations: DataFrame,
    verdicts: DataFrame,
    claimed: Sequence[str],
    unjudged: Mapping[str, Mapping[str, int]],
    *,
    title: str,
    source: str,
    proofs: int,
) -> AuditReport:
    """Find what a report of an audit shows; runs two jobs, and two more if something is broken.

    Args:
        violations: Rows of `AUDIT_SCHEMA`.
        verdicts: Rows of `VERDICT_SCHEMA`.
        claimed: The promises that were judged.
        unjudged: Of these, why not, and in how many topic-partitions.
        title: Headline of the page.
        source: What was audited, for the reader.
        proofs: How many violations of each promise are shown.

    Returns:
        The figures.
    """
    found = _by_promise(verdicts)
    promises = tuple(_findings(promise, found.get(promise), unjudged.get(promise, {})) for promise in claimed)
    broken = [each.promise for each in promises if each.violations]
    one = next(iter(found.values()), None)  # each promise has read all rows
    return AuditReport(
        title=title,
        source=source,
        topic_partitions=one["topic_partitions"] if one else 0,
        happenings=one["happenings"] if one else 0,
        promises=promises,
        worst=_worst(verdicts),
        keys=_keys(violations) if broken else (),
        proofs=_proofs(violations, broken, proofs) if broken and proofs else (),
    )


def _by_promise(verdicts: DataFrame) -> dict[str, Row]:
    rows = verdicts.groupBy("promise").agg(
        F.count("*").alias("topic_partitions"),
        F.sum("happenings").alias("happenings"),
        F.sum("violations").alias("violations"),
        F.count_if(F.col("violations") > 0).alias("broken_in"),
    )
    return {row["promise"]: row for row in rows.collect()}


def _findings(promise: str, row: Row | None, reasons: Mapping[str, int]) -> PromiseFindings:
    often = sorted(reasons.items(), key=lambda reason: (-reason[1], reason[0]))
    return PromiseFindings(
        promise=promise,
        violations=row["violations"] if row else 0,
        broken_in=row["broken_in"] if row else 0,
        unjudged=tuple(often[:_REASONS]),
    )


def _worst(verdicts: DataFrame) -> tuple[tuple[str, int], ...]:
    counts = verdicts.groupBy("topic_partition").agg(F.sum("violations").alias("violations")).filter("violations > 0")
    rows = counts.orderBy(F.desc("violations"), "topic_partition").limit(_WORST).collect()
    return tuple((row["topic_partition"], row["violations"]) for row in rows)


def _keys(violations: DataFrame) -> tuple[tuple[str, int], ...]:
    counts = violations.dropna(subset=["key"]).groupBy("key").agg(F.count("*").alias("proofs"))
    rows = counts.orderBy(F.desc("proofs"), "key").limit(_KEYS).collect()
    return tuple((as_text(bytes(row["key"])), row["proofs"]) for row in rows)


def _proofs(violations: DataFrame, broken: Sequence[str], most: int) -> tuple[Proof, ...]:
    """A limit for each promise: ranking all violations would sort them all."""
    firsts = (
        violations.filter(F.col("promise") == promise).orderBy("topic_partition", "sequence").limit(most)
        for promise in broken
    )
    rows = reduce(DataFrame.unionAll, firsts).collect()
    return tuple(
        Proof(
            promise=row["promise"],
            topic_partition=row["topic_partition"],
            key="" if row["key"] is None else as_text(bytes(row["key"])),
            sequence=row["sequence"],
            explanation=row["explanation"],
            excerpt=row["excerpt"],
        )
        for row in sorted(rows, key=lambda row: (broken.index(row["promise"]), row["topic_partition"], row["sequence"]))
    )
