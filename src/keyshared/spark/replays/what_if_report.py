"""Several plans over one log side by side, as plain values, and the page that shows them. Needs no Spark."""

from dataclasses import dataclass
from fractions import Fraction

from keyshared.buckets.boundaries import imbalance
from keyshared.spark.keystats.bucket_report import times
from keyshared.spark.pages.page import Ms, Part, as_html, clipped, duration
from keyshared.spark.pages.parts import Bar, Bars, Facts, Page, Section, Table, Unit
from keyshared.spark.replays.replay_report import Backlog, MembershipChange, backlog_section, move_row

__all__ = ["ConsumerWork", "PlanFigures", "WhatIfReport", "html"]


@dataclass(frozen=True, kw_only=True, slots=True)
class ConsumerWork:
    """What one consumer did under one plan.

    Attributes:
        consumer: Its name.
        deliveries: How many it got.
        busy_ms: How long it worked, in all topic-partitions together.
    """

    consumer: str
    deliveries: int
    busy_ms: int


@dataclass(frozen=True, kw_only=True, slots=True)
class PlanFigures:
    """What would have happened under one plan.

    Attributes:
        plan: Its name.
        stopped: How many topic-partitions did not come to rest.
        span_ms: From the first thing that happened to the last.
        deliveries: How many, redeliveries included.
        redeliveries: How many of them were not the first of their message.
        wait_p50_ms: Of the topic-partition where half of the deliveries waited longest.
        wait_p99_ms: Likewise for all but one in a hundred.
        consumers: In order of name.
        changes: In order of time.
        backlog: Of the topic-partition with the largest one; times count from when the first thing happened.
    """

    plan: str
    stopped: int
    span_ms: int
    deliveries: int
    redeliveries: int
    wait_p50_ms: int
    wait_p99_ms: int
    consumers: tuple[ConsumerWork, ...] = ()
    changes: tuple[MembershipChange, ...] = ()
    backlog: Backlog

    @property
    def evenness(self) -> Fraction:
        """The deliveries of the consumer with most, by their mean; 1 if there are none."""
        loads = [each.deliveries for each in self.consumers]
        return imbalance(loads) if loads else Fraction(1)


@dataclass(frozen=True, kw_only=True, slots=True)
class WhatIfReport:
    """What would have happened under several plans.

    Attributes:
        title: Headline of the page.
        source: Where the messages are from, for the reader.
        messages: How many.
        topic_partitions: How many.
        plans: In the order in which they are to be shown.
        hot_keys: Keys with most messages, as text, and how many each has.
    """

    title: str
    source: str
    messages: int
    topic_partitions: int
    plans: tuple[PlanFigures, ...]
    hot_keys: tuple[tuple[str, int], ...] = ()


def html(report: WhatIfReport) -> str:
    """Write the page.

    Args:
        report: What to show. Names and keys may contain anything.

    Returns:
        A complete HTML document that refers to nothing outside itself.

    Complexity:
        O(size of the report).
    """
    parts = (_numbers, _compared, _backlogs, _load, _moves, _hottest)
    return as_html(Page(report.title, report.source, (), tuple(part(report) for part in parts)))


def _numbers(report: WhatIfReport) -> Facts:
    return Facts(
        (
            ("plans", f"{len(report.plans):,}"),
            ("messages", f"{report.messages:,}"),
            ("topic-partitions", f"{report.topic_partitions:,}"),
        )
    )


def _compared(report: WhatIfReport) -> Section:
    rows = tuple(Bar(each.plan, each.wait_p99_ms, None, duration(each.wait_p99_ms)) for each in report.plans)
    note = "Waits are those of the topic-partition where they are longest; the bars show the p99."
    figures = Table(
        "Plans compared",
        ("plan", "wait p50", "wait p99", "largest backlog", "heaviest / mean", "redeliveries", "span", "not at rest"),
        tuple(
            (
                clipped(each.plan),
                Ms(each.wait_p50_ms),
                Ms(each.wait_p99_ms),
                each.backlog.largest,
                Part(times(each.evenness)),
                each.redeliveries,
                Ms(each.span_ms),
                each.stopped,
            )
            for each in report.plans
        ),
    )
    return Section("Plans", note, (Bars("wait p99 under each plan", rows, Unit.DURATION), figures))


def _backlogs(report: WhatIfReport) -> Section:
    note = "Messages that were available and not settled, in the topic-partition of each plan that had most of them."
    shown = [
        Backlog(topic_partition=f"{each.plan}, {each.backlog.topic_partition}", points=each.backlog.points)
        for each in report.plans
    ]
    return backlog_section(shown, note)


def _load(report: WhatIfReport) -> Section:
    rows = tuple(
        (
            clipped(each.plan),
            one.consumer,
            one.deliveries,
            Part(f"{one.deliveries / each.deliveries:.1%}" if each.deliveries else ""),
            Ms(one.busy_ms),
        )
        for each in report.plans
        for one in each.consumers
    )
    figures = Table("Deliveries of each consumer", ("plan", "consumer", "deliveries", "of all", "busy"), rows)
    return Section("Load per consumer", "Of all topic-partitions together.", (figures,))


def _moves(report: WhatIfReport) -> Section:
    rows = tuple((clipped(each.plan), *move_row(change)) for each in report.plans for change in each.changes)
    note = "A change moves only the keys of the consumer that comes or goes: 1/N of them if the split is even."
    heads = ("plan", "after", "change", "keys moved", "of all", "ideal")
    return Section("Keys moved", note, (Table("Keys with another owner", heads, rows),))


def _hottest(report: WhatIfReport) -> Section:
    rows = tuple(
        (clipped(key), messages, Part(f"{messages / report.messages:.2%}" if report.messages else ""))
        for key, messages in report.hot_keys
    )
    note = "Messages of a key go to one consumer, one after the other: the hottest keys say how far a group can grow."
    return Section("Hottest keys", note, (Table("Keys with most messages", ("key", "messages", "of all"), rows),))
