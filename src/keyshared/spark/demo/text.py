"""The demo's summary for a terminal: facts and tables in aligned columns. Plain Python; needs no Spark."""

from collections.abc import Sequence
from textwrap import fill
from typing import Final

from keyshared.spark.keystats.bucket_report import BucketReport, times
from keyshared.spark.pages.page import duration, listed
from keyshared.spark.replays.replay_report import ReplayReport

__all__ = ["columns", "summary"]

_LINE: Final = 100
_WIDEST: Final = 40  # of a cell: keys may be long


def summary(report: ReplayReport) -> str:
    """Write the figures of a report as text.

    Args:
        report: What the replay found.

    Returns:
        Lines, the last one ended.
    """
    violations = [(name, f"{count:,}") for name, count in report.violations or ()]
    parts = (
        f"{report.title}\n{fill(report.source, _LINE)}\n",
        _facts(report),
        "share of each consumer\n" + _loads(report),
        "keys moved\n" + _moves(report),
        "hottest keys\n" + _hottest(report),
        *(() if report.buckets is None else (_boundaries(report.buckets), _hot_slots(report.buckets))),
        "violations\n" + columns([("promise", "violations"), *violations]),
    )
    return "\n".join(parts)


def columns(rows: Sequence[Sequence[str]], *, left: Sequence[int] = (0,), widest: int = _WIDEST) -> str:
    """Align cells: text to the left, numbers to the right.

    Args:
        rows: All of the same length, the first one the heads.
        left: Which columns hold text.
        widest: Longer cells are cut.

    Returns:
        Lines, the last one ended.

    Example:
        >>> print(columns([("key", "messages"), ("N725MQ", "575"), ("N7", "9")]), end="")
          key     messages
          N725MQ       575
          N7             9
    """
    cut = [[cell if len(cell) <= widest else cell[: widest - 1] + "…" for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cut, strict=True)]
    lines = (
        "  ".join(
            cell.ljust(w) if i in left else cell.rjust(w) for i, (cell, w) in enumerate(zip(row, widths, strict=True))
        )
        for row in cut
    )
    return "".join(f"  {line.rstrip()}\n" for line in lines)


def _facts(report: ReplayReport) -> str:
    largest = report.backlogs[0] if report.backlogs else None
    facts = (
        ("messages", f"{report.messages:,}"),
        ("keys", f"{report.keys:,}"),
        ("keyless messages", f"{report.keyless:,}"),
        ("topic-partitions", f"{report.topic_partitions:,}"),
        ("deliveries", f"{report.deliveries:,}"),
        ("redeliveries", f"{report.redeliveries:,}"),
        ("wait p50", duration(report.wait_p50_ms)),
        ("wait p99", duration(report.wait_p99_ms)),
        ("largest backlog", f"{largest.largest:,} in {largest.topic_partition}" if largest else "0"),
        ("from first to last", duration(report.span_ms)),
        *_speed(report),
        ("violations", f"{report.violation_count:,}"),
    )
    return columns(facts, left=(0, 1))


def _speed(report: ReplayReport) -> tuple[tuple[str, str], ...]:
    if report.seconds is None:
        return ()
    return (("replayed in", f"{report.seconds:.1f} s"), ("throughput", f"{report.throughput:,.0f} messages a second"))


def _loads(report: ReplayReport) -> str:
    total = report.deliveries or 1
    rows = [
        (
            load.consumer,
            f"{load.deliveries:,}",
            f"{load.deliveries / total:.1%}",
            f"{load.ideal / total:.1%}",
            f"{load.deliveries / load.ideal - 1:+.1%}" if load.ideal else "",
            f"{load.keys:,}",
            duration(load.wait_p50_ms),
            duration(load.wait_p99_ms),
        )
        for load in report.consumers
    ]
    return columns([("consumer", "deliveries", "share", "ideal", "off by", "keys", "wait p50", "wait p99"), *rows])


def _moves(report: ReplayReport) -> str:
    rows = [
        (
            f"{change.consumer} {change.what}",
            duration(change.at_ms),
            f"{change.keys_moved:,}",
            f"{change.keys:,}",
            f"{change.keys_moved / change.keys:.1%}" if change.keys else "",
            f"{change.ideal:.1%}",
        )
        for change in report.changes
    ]
    return columns([("change", "after", "keys moved", "of", "share", "ideal 1/N"), *rows])


def _hottest(report: ReplayReport) -> str:
    rows = [
        (
            hot.key,
            f"{hot.messages:,}",
            f"{hot.messages / report.messages:.2%}" if report.messages else "",
            duration(hot.wait_p99_ms),
            listed(hot.owners, " → "),
        )
        for hot in report.hot_keys
    ]
    return columns([("key", "messages", "share", "wait p99", "consumers"), *rows], left=(0, 4))


def _boundaries(report: BucketReport) -> str:
    rows = [(layout.name, *map(times, layout.imbalances)) for layout in report.layouts]
    heads = ("boundaries", "heaviest bucket", "heaviest consumer", "with owners by load")
    return f"bucket boundaries: {report.title}, heaviest by mean\n" + columns([heads, *rows])


def _hot_slots(report: BucketReport) -> str:
    rows = [
        (
            str(hot.slot),
            f"{hot.load:,}",
            times(hot.times_mean),
            f"{hot.keys:,}",
            hot.hot_key,
            f"{hot.hot_load:,}",
        )
        for hot in report.hot_slots
    ]
    heads = ("slot", report.unit, "by mean bucket", "keys", "hottest key", f"its {report.unit}")
    return fill(f"hot slots: {report.about_hot_slots}", _LINE) + "\n" + columns([heads, *rows], left=(4,))
