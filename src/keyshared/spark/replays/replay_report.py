"""What a replay found, as plain values, and the page that shows them. Plain Python; needs no Spark."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final

from keyshared.errors import ArgumentError
from keyshared.spark.keystats.bucket_report import BucketReport, bucket_section
from keyshared.spark.pages.clock import COUNTED, Clock
from keyshared.spark.pages.page import Figure, Ms, against, as_html, duration, named, off
from keyshared.spark.pages.parts import (
    Bar,
    Bars,
    Counts,
    Facts,
    Line,
    Lines,
    Mark,
    Page,
    Section,
    Table,
    Verdict,
    files_section,
    promises,
)
from keyshared.spark.replays.cause_report import HotKey, HotSlot, MembershipChange, changes_section, keys_section
from keyshared.spark.replays.detail_report import Subject, detail_sections
from keyshared.spark.replays.enough_report import Enough, Story, Wait, sections, verdict
from keyshared.spark.replays.flow_report import Flow, flow_section

__all__ = ["Backlog", "ConsumerLoad", "ReplayReport", "backlog_section", "html"]

_FRAMES: Final = (
    "A row for each delivery is in the frame deliveries of the replay, and one for each topic-partition in summaries: "
    "keyshared.spark.save_results(result, folder) saves both as tables."
)


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
    """What a replay found. Times count from when the first thing happened.

    Attributes:
        title: Headline of the page.
        source: Where the messages are from, for the reader.
        topic_partitions: How many.
        stopped: How many of them did not come to rest.
        span_ms: From the first thing that happened to the last.
        messages: How many.
        keys: How many different keys.
        keyless: How many messages have no key.
        deliveries: How many, redeliveries included.
        redeliveries: How many of them were not the first of their message.
        seconds: How long the job took; None if that is not known.
        wait_p50_ms: Half of all deliveries waited no longer than this.
        wait_p99_ms: All but one in a hundred waited no longer than this.
        violations: Broken promises by id, zeros included; None without an audit.
        unjudged: Those of them that could not be judged, and why, as a part of a sentence.
        consumers: In order of name or joining, as they are to be shown.
        changes: In order of time.
        hot_keys: The hottest first.
        backlogs: Of the topic-partitions with the largest ones, the largest first.
        waits: In order of time, all topic-partitions together.
        epoch_ms: Milliseconds since 1970 when the first thing happened; None if the log has no calendar.
        zone: Of the times of the calendar.
        wait_ms: How long all deliveries waited together.
        enough: Whether the group was enough; None if nobody looked.
        slow_keys: The keys that waited most, first the one that did so longest.
        slow_slots: Likewise the slots.
        flow: What was done when; None if nobody looked.
        subjects: Single topic-partitions and keys.
        buckets: What the keys of the log mean for bucket boundaries.

    Raises:
        ArgumentError: ``seconds`` is not positive, or ``violations`` is empty: an audit of nothing is no audit.
    """

    title: str
    source: str
    topic_partitions: int
    stopped: int
    span_ms: int
    messages: int
    keys: int
    keyless: int
    deliveries: int
    redeliveries: int
    wait_p50_ms: int
    wait_p99_ms: int
    seconds: float | None = None
    violations: Counts | None = None
    unjudged: Mapping[str, str] = field(default_factory=dict)
    consumers: tuple[ConsumerLoad, ...] = ()
    changes: tuple[MembershipChange, ...] = ()
    hot_keys: tuple[HotKey, ...] = ()
    backlogs: tuple[Backlog, ...] = ()
    waits: tuple[Wait, ...] = ()
    epoch_ms: int | None = None
    zone: str = "UTC"
    wait_ms: int = 0
    enough: Enough | None = None
    slow_keys: tuple[HotKey, ...] = ()
    slow_slots: tuple[HotSlot, ...] = ()
    flow: Flow | None = None
    subjects: tuple[Subject, ...] = ()
    buckets: BucketReport | None = None

    def __post_init__(self) -> None:
        if self.seconds is not None and not self.seconds > 0:
            raise ArgumentError("seconds", self.seconds, "be positive")
        if self.violations is not None and not self.violations:
            raise ArgumentError("violations", self.violations, "name every promise that was checked")

    @property
    def throughput(self) -> float | None:
        """Messages a second of the whole job, if it is known how long that took."""
        return None if self.seconds is None else self.messages / self.seconds

    @property
    def violation_count(self) -> int:
        """All violations together; 0 without an audit."""
        return sum(count for _, count in self.violations or ())


def html(report: ReplayReport) -> str:
    """Write the page.

    Args:
        report: What to show. Names and keys may contain anything.

    Returns:
        A complete HTML document that refers to nothing outside itself.

    Complexity:
        O(size of the report); below 3 MB for 1,000 topic-partitions, 200 consumers and 200 hot keys.
    """
    story = Story(
        clock=Clock(report.epoch_ms, report.zone),
        span_ms=report.span_ms,
        marks=tuple(Mark(change.at_ms, f"{change.consumer} {change.what}") for change in report.changes),
        topic_partitions=report.topic_partitions,
        anchors={subject.name: subject.anchor for subject in report.subjects if not subject.is_key},
    )
    shown: tuple[Section, ...] = (
        *([] if report.enough is None else sections(report.enough, report.waits, story)),
        _backlog(report, story),
        *([] if report.flow is None else [flow_section(report.flow, story)]),
        keys_section(
            report.slow_keys, report.hot_keys, report.slow_slots, messages=report.messages, wait_ms=report.wait_ms
        ),
        changes_section(report.changes, story, report.wait_ms),
        _load(report),
        *([] if report.buckets is None else [bucket_section(report.buckets)]),
    )
    ends = (*detail_sections(report.subjects, shown, story), files_section(_FRAMES))
    parts: tuple[Facts | Section, ...] = (_numbers(report), *shown, *ends)
    return as_html(Page(report.title, report.source, tuple(_verdicts(report, story)), parts))


def _verdicts(report: ReplayReport, story: Story) -> Iterator[Verdict]:
    why = (f"{promise} was not judged: {reason}." for promise, reason in report.unjudged.items())
    yield replace(promises(report.violations, report.unjudged), why=" ".join(why))
    if report.enough is not None:
        yield verdict(
            report.enough, story, deliveries=report.deliveries, p99_ms=report.wait_p99_ms, stopped=report.stopped
        )


def backlog_section(
    backlogs: Sequence[Backlog],
    note: str,
    marks: tuple[Mark, ...] = (),
    clock: Clock = COUNTED,
    anchors: Mapping[str, str] = MappingProxyType({}),
) -> Section:
    """Return the part of a page with backlogs over time.

    Args:
        backlogs: With what they are of as the name of the topic-partition.
        note: What is to be seen.
        marks: Moments to point out.
        clock: When the first thing happened.
        anchors: Parts of the page about single topic-partitions, by name.

    Returns:
        A section with a chart and a table.
    """
    lines = tuple(Line(backlog.topic_partition, backlog.points) for backlog in backlogs)
    largest = max((backlog.largest for backlog in backlogs), default=0)
    chart = Lines(
        about=f"Backlog over time, at most {largest:,}", lines=lines, marks=marks, value="messages", clock=clock
    )
    rows = tuple((named(b.topic_partition, anchors.get(b.topic_partition, "")), b.largest) for b in backlogs)
    figures = Table("Largest backlogs", ("in", "messages"), rows)
    return Section("Backlog over time", note, (chart, figures))


def _numbers(report: ReplayReport) -> Facts:
    largest = max((backlog.largest for backlog in report.backlogs), default=0)
    speed = report.throughput
    return Facts(
        (
            ("messages", f"{report.messages:,}"),
            ("keys", f"{report.keys:,}"),
            ("without a key", f"{report.keyless:,}"),
            ("topic-partitions", f"{report.topic_partitions:,}"),
            ("redeliveries", f"{report.redeliveries:,}"),
            ("wait p50", duration(report.wait_p50_ms)),
            ("wait p99", duration(report.wait_p99_ms)),
            ("largest backlog", f"{largest:,}"),
            ("from first to last", duration(report.span_ms)),
            *([("not at rest", f"{report.stopped:,}")] if report.stopped else []),
            *([] if speed is None else [("messages a second", f"{speed:,.0f}")]),
        )
    )


def _load(report: ReplayReport) -> Section:
    rows = tuple(
        Bar(load.consumer, load.deliveries, load.ideal, f"{load.deliveries:,} ({against(load.deliveries, load.ideal)})")
        for load in report.consumers
    )
    figures = Table(
        "Deliveries of each consumer",
        ("consumer", "deliveries", "ideal", "off by", "keys", "wait p50", "wait p99"),
        tuple(
            (
                load.consumer,
                load.deliveries,
                Figure(f"{round(load.ideal):,}", load.ideal),
                off(load.deliveries, load.ideal),
                load.keys,
                Ms(load.wait_p50_ms),
                Ms(load.wait_p99_ms),
            )
            for load in report.consumers
        ),
    )
    note = "The mark is the ideal: the share of an even split over the consumers that were there at each moment."
    return Section("Load per consumer", note, (Bars("deliveries per consumer against the ideal", rows), figures))


def _backlog(report: ReplayReport, story: Story) -> Section:
    shown = len(report.backlogs)
    note = "Messages that were available and not settled." + (
        f" The {shown} largest of {report.topic_partitions:,} topic-partitions."
        if report.topic_partitions > shown
        else ""
    )
    return backlog_section(report.backlogs, note, story.marks, story.clock, story.anchors)
