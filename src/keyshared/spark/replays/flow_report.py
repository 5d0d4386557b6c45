"""What a group did over time: deliveries that were done, redeliveries, and what was unacked; values and a section."""

from collections.abc import Iterator
from dataclasses import dataclass

from keyshared.spark.pages.page import Figure, duration
from keyshared.spark.pages.parts import Heat, Line, Lines, Section, Table
from keyshared.spark.replays.enough_report import Points, Series, Story

__all__ = ["Flow", "Work", "flow_section"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Work:
    """What was done in each interval of time.

    Attributes:
        name: By whom.
        done: How many deliveries ended with an ack.
        again: How many deliveries began that were not the first of their message.
        unacked: How many deliveries were open, on average.
    """

    name: str
    done: Points
    again: Points
    unacked: Points


@dataclass(frozen=True, kw_only=True, slots=True)
class Flow:
    """What a group did over time. Times count from when the first thing happened.

    Attributes:
        width_ms: How long an interval is.
        everybody: All consumers together.
        consumers: Each of them.
    """

    width_ms: int
    everybody: Work
    consumers: tuple[Work, ...] = ()


def flow_section(flow: Flow, story: Story) -> Section:
    """Return the part of a page about what was done when.

    Args:
        flow: The figures.
        story: When and where.

    Returns:
        A section with charts of the whole group and of each consumer, and a table.
    """
    width = duration(flow.width_ms)
    note = (
        "Deliveries that ended with an ack, redeliveries that began, and deliveries that were open on average, in each "
        f"interval of {width}. Many redeliveries mean that deliveries fail, time out or lose their consumer."
    )
    everybody = flow.everybody
    counted = Lines(
        about=f"Deliveries done and redeliveries over time, at most {Series('', everybody.done).peak:,.0f} in {width}",
        lines=(Line("done", everybody.done), Line("redeliveries", everybody.again)),
        marks=story.marks,
        value=f"deliveries in {width}",
        clock=story.clock,
    )
    opened = Lines(
        about=f"Unacked deliveries over time, at most {Series('', everybody.unacked).peak:,.1f} on average",
        lines=(Line("all", everybody.unacked),),
        marks=story.marks,
        value="unacked deliveries",
        clock=story.clock,
    )
    return Section("Work over time", note, (counted, opened, *_by_consumer(flow, story, width), _table(flow)))


def _by_consumer(flow: Flow, story: Story, width: str) -> Iterator[Heat]:
    shown = (
        ("Deliveries done by each consumer", f"done in {width}", [(work.name, work.done) for work in flow.consumers]),
        ("Redeliveries to each consumer", f"redeliveries in {width}", [(w.name, w.again) for w in flow.consumers]),
        ("Unacked deliveries of each consumer", "unacked", [(work.name, work.unacked) for work in flow.consumers]),
    )
    for about, value, rows in shown:
        heat = Heat(
            about=f"{about} over time",
            rows=tuple(Line(*row) for row in rows),
            width_ms=flow.width_ms,
            marks=story.marks,
            value=value,
            clock=story.clock,
        )
        if not heat.empty:
            yield heat


def _table(flow: Flow) -> Table:
    return Table(
        "Work of each consumer",
        ("consumer", "done", "redeliveries", "unacked on average", "unacked at most"),
        tuple(
            (
                work.name,
                _total(work.done),
                _total(work.again),
                _number(Series("", work.unacked).mean),
                _number(Series("", work.unacked).peak),
            )
            for work in (flow.everybody, *flow.consumers)
        ),
    )


def _total(points: Points) -> int:
    return sum(round(value) for _, value in points)


def _number(value: float) -> Figure:
    return Figure(f"{value:,.1f}", value)
