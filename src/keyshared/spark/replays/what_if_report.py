"""Several plans over one log side by side, as plain values, and the page that shows them. Needs no Spark."""

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Final

from keyshared.buckets.boundaries import imbalance
from keyshared.spark.keystats.bucket_report import as_figure
from keyshared.spark.pages.page import Ms, as_html, clipped, duration, named, share
from keyshared.spark.pages.parts import Bar, Bars, Facts, Page, Section, Table, Unit, Verdict, files_section
from keyshared.spark.plans.ranking import CRITERIA, PlanOutcome, verdict
from keyshared.spark.replays.cause_report import MembershipChange
from keyshared.spark.replays.plan_contents import Item
from keyshared.spark.replays.replay_report import Backlog, backlog_section

__all__ = ["ConsumerWork", "PlanFigures", "WhatIfReport", "html"]

_FRAMES: Final = (
    "A row for each plan and topic-partition is in the frame summaries of the comparison: "
    "keyshared.spark.save_results(compared, folder) saves it as a table, with what adds up to these figures."
)


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
        outcome: What became of the log.
        stopped: How many topic-partitions did not come to rest.
        span_ms: From the first thing that happened to the last.
        consumers: In order of name.
        changes: In order of time.
        backlog: Of the topic-partition with the largest one; times count from when the first thing happened.
        contents: What the plan consists of; the same items for every plan.
    """

    outcome: PlanOutcome
    stopped: int
    span_ms: int
    consumers: tuple[ConsumerWork, ...] = ()
    changes: tuple[MembershipChange, ...] = ()
    backlog: Backlog
    contents: tuple[Item, ...] = ()

    @property
    def plan(self) -> str:
        """Its name."""
        return self.outcome.plan

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
        by: What the best plan is found by, one of `CRITERIA`.
        plans: In the order in which they are to be shown.
        hot_keys: Keys with most messages, as text, and how many each has.
    """

    title: str
    source: str
    messages: int
    topic_partitions: int
    by: str
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
    parts = (_numbers, _compared, _contents, _backlogs, _load, _moves, _hottest)
    shown = (*(part(report) for part in parts), files_section(_FRAMES))
    return as_html(Page(report.title, report.source, (_best(report),), shown))


def _best(report: WhatIfReport) -> Verdict:
    why = (
        f"The winner has {CRITERIA[report.by].told}. Before that comes a plan under which more messages are "
        "acked; after that, one with fewer consumers."
    )
    if all(each.stopped for each in report.plans):
        return Verdict("bad", "no plan came to rest in all topic-partitions", why)
    outcomes = [replace(each.outcome, plan=clipped(each.plan)) for each in report.plans]
    return Verdict("good", verdict(outcomes, report.by), why)


def _contents(report: WhatIfReport) -> Section:
    first = report.plans[0].contents if report.plans else ()
    told = [[item.name, *(each.contents[place].text for each in report.plans)] for place, item in enumerate(first)]
    differs = [row for row in told if len(set(row[1:])) > 1]
    alike = [row for row in told if len(set(row[1:])) == 1]
    marked = frozenset(
        (y, x) for y, row in enumerate(differs) for x, text in enumerate(row) if x > 1 and text != row[1]
    )
    heads = ("", *(clipped(each.plan) for each in report.plans))
    note = "What differs from the first plan is marked; what all plans have alike stands below."
    return Section(
        "What the plans are",
        note,
        (
            Table("What differs between the plans", heads, tuple(tuple(map(named, row)) for row in differs), marked),
            Table("What all plans have alike", ("", "all plans"), tuple((row[0], named(row[1])) for row in alike)),
        ),
    )


def _numbers(report: WhatIfReport) -> Facts:
    return Facts(
        (
            ("plans", f"{len(report.plans):,}"),
            ("messages", f"{report.messages:,}"),
            ("topic-partitions", f"{report.topic_partitions:,}"),
        )
    )


def _compared(report: WhatIfReport) -> Section:
    waits = [(each.plan, each.outcome.wait_p99_ms) for each in report.plans]
    rows = tuple(Bar(name, wait_ms, None, duration(wait_ms)) for name, wait_ms in waits)
    note = "Waits are those of the topic-partition where they are longest; the bars show the p99."
    figures = Table(
        "Plans compared",
        (
            *("plan", "consumers", "wait p50", "wait p99", "longest wait", "largest backlog", "heaviest / mean"),
            *("redeliveries", "never acked", "not settled", "dead letters", "span", "not at rest"),
        ),
        tuple(
            (
                named(each.plan),
                each.outcome.consumers,
                Ms(each.outcome.wait_p50_ms),
                Ms(each.outcome.wait_p99_ms),
                Ms(each.outcome.wait_max_ms),
                each.outcome.largest_backlog,
                as_figure(each.evenness),
                each.outcome.redeliveries,
                each.outcome.lost,
                each.outcome.outstanding,
                each.outcome.dead_lettered,
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
            named(each.plan),
            one.consumer,
            one.deliveries,
            share(one.deliveries, each.outcome.deliveries),
            Ms(one.busy_ms),
        )
        for each in report.plans
        for one in each.consumers
    )
    figures = Table("Deliveries of each consumer", ("plan", "consumer", "deliveries", "of all", "busy"), rows)
    return Section("Load per consumer", "Of all topic-partitions together.", (figures,))


def _moves(report: WhatIfReport) -> Section:
    rows = tuple((named(each.plan), *_move(change)) for each in report.plans for change in each.changes)
    note = "A change moves only the keys of the consumer that comes or goes: 1/N of them if the split is even."
    heads = ("plan", "after", "change", "keys moved", "of all", "ideal")
    return Section("Keys moved", note, (Table("Keys with another owner", heads, rows),))


def _hottest(report: WhatIfReport) -> Section:
    rows = tuple(
        (named(key), messages, share(messages, report.messages, digits=2)) for key, messages in report.hot_keys
    )
    note = "Messages of a key go to one consumer, one after the other: the hottest keys say how far a group can grow."
    return Section("Hottest keys", note, (Table("Keys with most messages", ("key", "messages", "of all"), rows),))


def _move(change: MembershipChange) -> tuple[object, ...]:
    return (
        Ms(change.at_ms),
        f"{change.consumer} {change.what}",
        change.keys_moved,
        share(change.keys_moved, change.keys),
        share(change.ideal, 1),
    )
