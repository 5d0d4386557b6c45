"""Whether a group of consumers was enough for a log: use, lag, and who fell behind; values and sections of a page."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, NamedTuple, TypeAlias

from keyshared.spark.pages.clock import Clock
from keyshared.spark.pages.page import Figure, Ms, duration, named, share
from keyshared.spark.pages.parts import Heat, Line, Lines, Mark, Section, Span, Table, Timelines, Unit, Verdict
from keyshared.spark.replays.stays import State, Stay

__all__ = ["FULL", "Behind", "Enough", "Points", "Series", "Story", "Wait", "sections", "verdict"]

FULL: Final = 0.95
"""The use from which on a consumer is called full."""

_PLACE: Final = "topic-partition"

Points: TypeAlias = tuple[tuple[int, float], ...]


class Series(NamedTuple):
    """A figure in each interval of time.

    Attributes:
        name: What it is of.
        points: (beginning of the interval, value), in order of time; intervals without a value are left out.
    """

    name: str
    points: Points

    @property
    def peak(self) -> float:
        """The highest value, 0 without any."""
        return max((value for _, value in self.points), default=0)

    @property
    def mean(self) -> float:
        """The mean over the intervals with a value, 0 without any."""
        return sum(value for _, value in self.points) / (len(self.points) or 1)


@dataclass(frozen=True, slots=True)
class Wait:
    """How long messages waited that were delivered in an interval of time.

    Attributes:
        at_ms: Where it begins.
        p50_ms: Half of the deliveries waited no longer than this.
        p99_ms: All but one in a hundred waited no longer than this.
    """

    at_ms: int
    p50_ms: int
    p99_ms: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Behind:
    """When a topic-partition was behind: something in it had been waiting for longer than is enough.

    Attributes:
        topic_partition: Which.
        from_ms: When the longest such stretch began.
        until_ms: When it ended: from then on nothing had been waiting for so long. None if something that had
            not gone out was left in the end: then it never caught up.
        longest_ms: The longest wait.
        late: How many deliveries came later than is enough.
        stretches: How many such stretches there were.
        total_ms: How long all of them took together.
    """

    topic_partition: str
    from_ms: int
    until_ms: int | None
    longest_ms: int
    late: int
    stretches: int
    total_ms: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Enough:
    """Whether a group was enough. Times count from when the first thing happened.

    Attributes:
        enough_ms: The wait that is enough for all but one delivery in a hundred.
        asked: Whether somebody asked for just that; otherwise it was taken from the log.
        width_ms: How long an interval of time is.
        use: Of each consumer: the part of what it could work on at once that it had in its hands, while it was there.
        waiting: Messages that waited, on average in each interval: all together.
        topic_partitions: The same for the topic-partitions with the largest backlogs.
        consumers: The same for whom they went to in the end.
        behind: Topic-partitions that were behind, the one first that was so for the longest time.
        behind_count: How many such topic-partitions there were.
        behind_from_ms: When the first of them fell behind; None if none did.
        behind_until_ms: When the last of them had caught up; None if one did not.
        behind_left: How many of them did not catch up, because something that had not gone out was left in the end.
        left: In how many topic-partitions there was such, behind or not.
        stays: When each consumer was up, draining or away.
    """

    enough_ms: int
    asked: bool
    width_ms: int
    use: tuple[Series, ...] = ()
    waiting: Points = ()
    topic_partitions: tuple[Series, ...] = ()
    consumers: tuple[Series, ...] = ()
    behind: tuple[Behind, ...] = ()
    behind_count: int = 0
    behind_from_ms: int | None = None
    behind_until_ms: int | None = None
    behind_left: int = 0
    left: int = 0
    stays: tuple[Stay, ...] = ()


class Story(NamedTuple):
    """What sections have in common.

    Attributes:
        clock: When the first thing happened.
        span_ms: How long everything took.
        marks: Moments to point out.
        topic_partitions: How many there are.
        anchors: Parts of the page about single topic-partitions, by name.
    """

    clock: Clock
    span_ms: int
    marks: tuple[Mark, ...]
    topic_partitions: int
    anchors: Mapping[str, str] = MappingProxyType({})


def verdict(enough: Enough, story: Story, *, deliveries: int, p99_ms: int, stopped: int) -> Verdict:
    """Judge whether the group was enough.

    Args:
        enough: The figures.
        story: When and where.
        deliveries: How many there were.
        p99_ms: All but one in a hundred of them waited no longer than this.
        stopped: How many topic-partitions did not come to rest.

    Returns:
        "good" only if nothing was left and all but one delivery in a hundred waited no longer than is enough.
    """
    why = "as asked for" if enough.asked else "(ten times the mean delivery, and at least a minute)"
    bar = f"{duration(enough.enough_ms)} {why}"
    if not deliveries:
        return Verdict("open", "nothing was delivered: whether the group is enough cannot be said")
    if stopped:
        return Verdict(
            "bad",
            f"not enough: {stopped:,} of {story.topic_partitions:,} topic-partitions never came to rest",
            _fell_behind(enough, story),
        )
    if p99_ms > enough.enough_ms:
        told = f"not enough: one delivery in a hundred waits {duration(p99_ms)} or longer"
        return Verdict("bad", told, f"Enough would be {bar}. {_fell_behind(enough, story)}".strip())
    told = f"enough: 99 in a hundred deliveries wait at most {duration(p99_ms)}"
    return Verdict("good", told, f"The limit is {bar}. {_fell_behind(enough, story)}".strip())


def sections(enough: Enough, waits: tuple[Wait, ...], story: Story) -> Iterator[Section]:
    """Return the parts of a page, in the order in which an operator asks.

    Args:
        enough: The figures.
        waits: In order of time.
        story: When and where.

    Yields:
        Who fell behind, lag, use, waits.
    """
    yield _behind(enough, story)
    yield _use(enough, story)
    yield _lag(enough, story)
    yield _waits(waits, story)


def _fell_behind(enough: Enough, story: Story) -> str:
    if enough.behind_from_ms is None:
        return ""
    first = story.clock.told(enough.behind_from_ms, span_ms=story.span_ms)
    if enough.behind_until_ms is None:
        last = f"{enough.behind_left:,} had not caught up by the end"
    else:
        last = f"the last had caught up {story.clock.told(enough.behind_until_ms, span_ms=story.span_ms)}"
    return (
        f"{enough.behind_count:,} of {story.topic_partitions:,} topic-partitions fell behind, the first of them "
        f"{first}; {last}."
    )


def _behind(enough: Enough, story: Story) -> Section:
    note = (
        f"A topic-partition is behind while something in it has been waiting for longer than "
        f"{duration(enough.enough_ms)}; it has caught up when nothing has. {_fell_behind(enough, story)}"
    ).strip()
    peak = max((value for _, value in enough.waiting), default=0)
    chart = Lines(
        about=f"Messages that waited over time, all topic-partitions together: at most {peak:,.0f}",
        lines=(Line("all", enough.waiting),),
        marks=story.marks,
        value="messages waiting",
        clock=story.clock,
    )
    figures = Table(
        "Topic-partitions that were behind, the longest first",
        ("topic-partition", "fell behind", "caught up", "after", "longest wait", "late", "times behind", "in all"),
        tuple(
            (
                named(each.topic_partition, story.anchors.get(each.topic_partition, "")),
                story.clock.figure(each.from_ms, span_ms=story.span_ms),
                *_caught_up(each, story),
                Ms(each.longest_ms),
                each.late,
                each.stretches,
                Ms(each.total_ms),
            )
            for each in enough.behind
        ),
    )
    return Section("Is it enough?", note, (chart, figures))


def _caught_up(behind: Behind, story: Story) -> tuple[object, object]:
    """Return when a topic-partition had caught up, and after how long."""
    if behind.until_ms is None:
        return "not by the end", ""
    return story.clock.figure(behind.until_ms, span_ms=story.span_ms), Ms(behind.until_ms - behind.from_ms)


def _use(enough: Enough, story: Story) -> Section:
    note = (
        "What each consumer had in its hands, as a part of what it can work on at once in all topic-partitions "
        f"together, while it was there: the darker, the fuller; from {FULL:.0%} on in the second colour. Where nobody "
        "is full and messages wait, keys are the cause."
    )
    stayed = Timelines(
        about="When each consumer was up, draining or away",
        spans=tuple(Span(stay.consumer, stay.from_ms, stay.until_ms, stay.state) for stay in enough.stays),
        states=tuple(State),
        marks=story.marks,
        clock=story.clock,
    )
    fullest = max((series.peak for series in enough.use), default=0)
    chart = Heat(
        about=f"Use of each consumer over time, at most {fullest:.0%}",
        rows=tuple(Line(series.name, series.points) for series in enough.use),
        width_ms=enough.width_ms,
        marks=story.marks,
        unit=Unit.SHARE,
        value="in use",
        most=1,
        full=FULL,
        clock=story.clock,
    )
    figures = Table(
        "Use of each consumer",
        ("consumer", "mean", "highest", f"of its time at {FULL:.0%} or more"),
        tuple((each.name, share(each.mean, 1), share(each.peak, 1), _full(each)) for each in enough.use),
    )
    return Section("Consumers over time", note, (stayed, chart, figures))


def _full(series: Series) -> Figure:
    full = sum(value >= FULL for _, value in series.points)
    return share(full, len(series.points) or 1, digits=0)


def _lag(enough: Enough, story: Story) -> Section:
    note = "Messages that could have gone out and waited, on average in each interval of time: the darker, the more."
    if story.topic_partitions > len(enough.topic_partitions):
        shown = len(enough.topic_partitions)
        note += f" Of {story.topic_partitions:,} topic-partitions the {shown} with the largest backlogs."
    if enough.left:
        note += " What never went out is not in it, only in the backlog: the last lags are too low."
    return Section(
        "Lag",
        note,
        (
            *_lags(enough.topic_partitions, _PLACE, enough, story),
            *_lags(enough.consumers, "consumer", enough, story),
        ),
    )


def _lags(rows: tuple[Series, ...], what: str, enough: Enough, story: Story) -> Iterator[Heat | Table]:
    anchors = story.anchors if what == _PLACE else {}
    peak = max((series.peak for series in rows), default=0)
    yield Heat(
        about=f"Lag of each {what} over time, at most {peak:,.0f} messages",
        rows=tuple(Line(series.name, series.points) for series in rows),
        width_ms=enough.width_ms,
        marks=story.marks,
        value="messages waiting",
        clock=story.clock,
    )
    yield Table(
        f"Lag of each {what}, in messages",
        (what, "mean", "highest"),
        tuple((named(each.name, anchors.get(each.name, "")), _number(each.mean), _number(each.peak)) for each in rows),
    )


def _number(value: float) -> Figure:
    return Figure(f"{value:,.1f}", value)


def _waits(waits: tuple[Wait, ...], story: Story) -> Section:
    lines = (
        Line("p99", tuple((wait.at_ms, wait.p99_ms) for wait in waits)),
        Line("p50", tuple((wait.at_ms, wait.p50_ms) for wait in waits)),
    )
    longest = max((wait.p99_ms for wait in waits), default=0)
    chart = Lines(
        about=f"Wait over time, p99 at most {duration(longest)}",
        lines=lines,
        marks=story.marks,
        unit=Unit.DURATION,
        value="wait",
        clock=story.clock,
    )
    note = "From when a message could have gone out to when it did: all but one in a hundred, and half of what was due."
    return Section("Wait over time", note, (chart,))
