"""What a replay found, as plain values, and the page that shows them. Plain Python; needs no Spark.

The page is one HTML file: drawings inline, no script, nothing loaded from anywhere. It follows the reader's light or
dark setting, fits a phone, and prints on white.
"""

from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Final

from keyshared.errors import ConfigError
from keyshared.spark.bucket_report import BucketReport, bucket_section
from keyshared.spark.charts import Bar, Line, Mark, bars, panels, thinned
from keyshared.spark.page import Ms, Part, clipped, duration, page, section, table

__all__ = ["Backlog", "Change", "ConsumerLoad", "HotKey", "ReplayReport", "html", "write_html"]

_MAX_PANELS: Final = 8


@dataclass(frozen=True, kw_only=True, slots=True)
class ConsumerLoad:
    """What one consumer did.

    Attributes:
        consumer: Its name.
        deliveries: How many it got, redeliveries included.
        ideal: How many it would have got if the hash space had been split evenly over the consumers present at each
            moment.
        keys: How many different keys were delivered to it.
        wait_p50_ms: Half of its deliveries waited no longer than this.
        wait_p99_ms: All but one in a hundred waited no longer than this.
    """

    consumer: str
    deliveries: int
    ideal: float
    keys: int
    wait_p50_ms: int
    wait_p99_ms: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    """A consumer that came or went.

    Attributes:
        at_ms: When, in the time of the replay.
        what: "joins" or "leaves".
        consumer: Who.
        keys_moved: How many of the keys have another owner than before.
        keys: How many there are.
        ideal: Which part of them has to move: 1/N with N consumers, the one that came or went included.
    """

    at_ms: int
    what: str
    consumer: str
    keys_moved: int
    keys: int
    ideal: float


@dataclass(frozen=True, kw_only=True, slots=True)
class HotKey:
    """A key with many messages.

    Attributes:
        key: The key, as text for people.
        messages: How many it has.
        owners: Who had it, in order of time.
        wait_p99_ms: All but one in a hundred of its deliveries waited no longer than this.
    """

    key: str
    messages: int
    owners: tuple[str, ...]
    wait_p99_ms: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Backlog:
    """Messages that were available and not settled, over time.

    Attributes:
        topic_partition: Where.
        points: (milliseconds, messages) in order of time; a value holds until the next.
    """

    topic_partition: str
    points: tuple[tuple[int, int], ...]

    @property
    def largest(self) -> int:
        """The highest value, 0 without any."""
        return max((value for _, value in self.points), default=0)


@dataclass(frozen=True, kw_only=True, slots=True)
class ReplayReport:
    """What a replay found.

    Attributes:
        title: Headline of the page.
        source: Where the messages are from, for the reader.
        messages: How many.
        keys: How many different keys.
        keyless: How many messages have no key.
        deliveries: How many, redeliveries included.
        redeliveries: How many of them were not the first of their message.
        seconds: How long the job took.
        wait_p50_ms: Half of all deliveries waited no longer than this.
        wait_p99_ms: All but one in a hundred waited no longer than this.
        violations: Broken promises by id, zeros included.
        consumers: In order of name or joining, as they are to be shown.
        changes: In order of time.
        hot_keys: The hottest first.
        backlogs: One for each topic-partition.
        buckets: What the keys of the log mean for bucket boundaries.

    Raises:
        ConfigError: ``seconds`` is not positive, or ``violations`` is empty: a log that nobody audited has no report.
    """

    title: str
    source: str
    messages: int
    keys: int
    keyless: int
    deliveries: int
    redeliveries: int
    seconds: float
    wait_p50_ms: int
    wait_p99_ms: int
    violations: tuple[tuple[str, int], ...]
    consumers: tuple[ConsumerLoad, ...] = ()
    changes: tuple[Change, ...] = ()
    hot_keys: tuple[HotKey, ...] = ()
    backlogs: tuple[Backlog, ...] = ()
    buckets: BucketReport | None = None

    def __post_init__(self) -> None:
        if not self.seconds > 0:
            raise ConfigError("seconds", self.seconds, "be positive")
        if not self.violations:
            raise ConfigError("violations", self.violations, "name every promise that was checked")

    @property
    def throughput(self) -> float:
        """Messages a second of the whole job."""
        return self.messages / self.seconds

    @property
    def violation_count(self) -> int:
        """All violations together."""
        return sum(count for _, count in self.violations)


def html(report: ReplayReport) -> str:
    """Make the page.

    Args:
        report: What to show. Names and keys may contain anything.

    Returns:
        A complete HTML document that refers to nothing outside itself.

    Complexity:
        O(size of the report); below 300 kB for any number of topic-partitions, 200 consumers and 200 hot keys.
    """
    parts = (_header, _numbers, _load, _backlog, _moves, _hottest, _buckets)
    return page(report.title, "".join(part(report) for part in parts))


def write_html(report: ReplayReport, path: Path) -> None:
    """Write the page to a file.

    Args:
        report: What to show.
        path: Where; the folder must exist. An older file is replaced.
    """
    path.write_text(html(report), encoding="utf-8")


def _header(report: ReplayReport) -> str:
    kept = report.violation_count == 0
    verdict = "every promise kept" if kept else f"{report.violation_count:,} violations"
    promises = "".join(
        f'<li class="{"bad" if count else "good"}">{escape(name)} <b>{count:,}</b></li>'
        for name, count in report.violations
    )
    return (
        f"<header><h1>{escape(report.title)}</h1><p>{escape(report.source)}</p>"
        f'<p class="verdict {"good" if kept else "bad"}">{verdict}</p>'
        f'<ul class="promises" aria-label="violations by promise">{promises}</ul></header>'
    )


def _numbers(report: ReplayReport) -> str:
    largest = max((backlog.largest for backlog in report.backlogs), default=0)
    facts = (
        ("messages", f"{report.messages:,}"),
        ("keys", f"{report.keys:,}"),
        ("without a key", f"{report.keyless:,}"),
        ("redeliveries", f"{report.redeliveries:,}"),
        ("wait p50", duration(report.wait_p50_ms)),
        ("wait p99", duration(report.wait_p99_ms)),
        ("largest backlog", f"{largest:,}"),
        ("messages a second", f"{report.throughput:,.0f}"),
    )
    cells = "".join(f"<div><dt>{name}</dt><dd>{escape(value)}</dd></div>" for name, value in facts)
    return f'<dl class="numbers">{cells}</dl>'


def _load(report: ReplayReport) -> str:
    rows = [
        Bar(
            load.consumer, load.deliveries, load.ideal, f"{load.deliveries:,} ({_against(load.deliveries, load.ideal)})"
        )
        for load in report.consumers
    ]
    figures = table(
        ("consumer", "deliveries", "ideal", "keys", "wait p50", "wait p99"),
        (
            (load.consumer, load.deliveries, round(load.ideal), load.keys, Ms(load.wait_p50_ms), Ms(load.wait_p99_ms))
            for load in report.consumers
        ),
    )
    note = "The mark is the ideal: the share of an even split over the consumers that were there at each moment."
    return section("Load per consumer", note, bars(rows, title="deliveries per consumer against the ideal"), figures)


def _against(value: float, ideal: float) -> str:
    return f"{value / ideal - 1:+.1%}" if ideal else "no share"


def _backlog(report: ReplayReport) -> str:
    shown = sorted(report.backlogs, key=lambda backlog: -backlog.largest)[:_MAX_PANELS]
    series = [Line(backlog.topic_partition, thinned(backlog.points)) for backlog in shown]
    marks = [Mark(change.at_ms, f"{change.consumer} {change.what}") for change in report.changes]
    left_out = len(report.backlogs) - len(shown)
    note = "Messages that were available and not settled." + (
        f" The {_MAX_PANELS} largest of {len(report.backlogs)} topic-partitions." if left_out else ""
    )
    return section("Backlog over time", note, panels(series, title="backlog over time", marks=marks, unit=duration))


def _moves(report: ReplayReport) -> str:
    rows = (
        (
            duration(change.at_ms),
            f"{change.consumer} {change.what}",
            change.keys_moved,
            Part(f"{change.keys_moved / change.keys:.1%}" if change.keys else ""),
            Part(f"{change.ideal:.1%}"),
        )
        for change in report.changes
    )
    note = "A change moves only the keys of the consumer that comes or goes: 1/N of them if the split is even."
    return section("Keys moved", note, table(("after", "change", "keys moved", "of all", "ideal"), rows))


def _hottest(report: ReplayReport) -> str:
    rows = (
        (
            clipped(hot.key),
            hot.messages,
            Part(f"{hot.messages / report.messages:.2%}"),
            " → ".join(hot.owners),
            Ms(hot.wait_p99_ms),
        )
        for hot in report.hot_keys
    )
    note = "Messages of a key go to one consumer, one after the other: the hottest keys say how far a group can grow."
    return section("Hottest keys", note, table(("key", "messages", "of all", "consumers", "wait p99"), rows))


def _buckets(report: ReplayReport) -> str:
    return "" if report.buckets is None else bucket_section(report.buckets)
