"""One topic-partition or key by itself: how it waited, who had it when, what happened to it; values and sections."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from keyshared.spark.pages.page import clipped, duration, share
from keyshared.spark.pages.parts import Detail, Facts, Line, Lines, Section, Table
from keyshared.spark.replays.enough_report import Points, Series, Story

__all__ = ["Holding", "Move", "Subject", "detail_sections", "key_anchor", "place_anchor"]


class Holding(NamedTuple):
    """What one consumer had of it.

    Attributes:
        consumer: Who.
        topic_partition: Where.
        from_ms: When the first of these deliveries began.
        until_ms: When the last of them had ended.
        deliveries: How many there were.
        again: How many of them were not the first of their message.
    """

    consumer: str
    topic_partition: str
    from_ms: int
    until_ms: int
    deliveries: int
    again: int


class Move(NamedTuple):
    """A change of the group that moved keys of a topic-partition.

    Attributes:
        at_ms: When.
        told: Who did what.
        moved: How many keys had another owner from then on.
        keys: How many there were.
    """

    at_ms: int
    told: str
    moved: int
    keys: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Subject:
    """One topic-partition or key. Times count from when the first thing happened.

    Attributes:
        anchor: Where its part of the page is.
        is_key: Whether it is a key.
        name: As text.
        deliveries: How many, redeliveries included.
        again: How many of them were not the first of their message.
        wait_p50_ms: Half of its deliveries waited no longer than this.
        wait_p99_ms: All but one in a hundred waited no longer than this.
        wait_max_ms: The longest wait.
        outcomes: How deliveries ended, and how many did so.
        lag: Messages of it that waited, on average in each interval of time.
        holdings: Of a key, stretches in which one consumer got its messages; of a topic-partition, one for each
            consumer. Those with most deliveries, in order of time.
        holding_count: How many there are.
        moves: Changes that moved keys of the topic-partition: those that moved most, in order of time.
    """

    anchor: str
    is_key: bool
    name: str
    deliveries: int
    again: int
    wait_p50_ms: int
    wait_p99_ms: int
    wait_max_ms: int
    outcomes: tuple[tuple[str, int], ...] = ()
    lag: Points = ()
    holdings: tuple[Holding, ...] = ()
    holding_count: int = 0
    moves: tuple[Move, ...] = ()

    @property
    def title(self) -> str:
        """What it is called on the page."""
        return f"{'key' if self.is_key else 'topic-partition'} {clipped(self.name)}"


def place_anchor(number: int) -> str:
    """Return where the part of a topic-partition is.

    Args:
        number: Which of those that have one.
    """
    return f"topic-partition-{number}"


def key_anchor(number: int) -> str:
    """Return where the part of a key is.

    Args:
        number: Which of those that have one.
    """
    return f"key-{number}"


def detail_sections(subjects: Sequence[Subject], above: Iterable[Section], story: Story) -> Iterator[Section]:
    """Return the parts of a page that stand for themselves.

    Args:
        subjects: What is to be shown.
        above: What stands above, for the ways back.
        story: When and where.

    Yields:
        A section of topic-partitions and one of keys, if there are any.
    """
    tables = [part for section in above for part in section.parts if isinstance(part, Table)]
    for title, is_key in (("Topic-partitions, one by one", False), ("Keys, one by one", True)):
        shown = [subject for subject in subjects if subject.is_key == is_key]
        if shown:
            what = "key" if is_key else "topic-partition"
            note = f"Follow the name of a {what} in a table above: its part opens here."
            yield Section(title, note, tuple(_detail(subject, tables, story) for subject in shown))


def _detail(subject: Subject, tables: Iterable[Table], story: Story) -> Detail:
    back = tuple(table.caption for table in tables if subject.anchor in table.anchors)
    parts = (_facts(subject), _lag(subject, story), _holdings(subject, story), _outcomes(subject))
    return Detail(subject.anchor, subject.title, back, (*parts, *([] if subject.is_key else [_moves(subject, story)])))


def _facts(subject: Subject) -> Facts:
    return Facts(
        (
            ("deliveries", f"{subject.deliveries:,}"),
            ("redeliveries", f"{subject.again:,}"),
            ("wait p50", duration(subject.wait_p50_ms)),
            ("wait p99", duration(subject.wait_p99_ms)),
            ("longest wait", duration(subject.wait_max_ms)),
        )
    )


def _lag(subject: Subject, story: Story) -> Lines:
    peak = Series("", subject.lag).peak
    return Lines(
        about=f"Lag of {subject.title} over time, at most {peak:,.1f} messages",
        lines=(Line(clipped(subject.name), subject.lag),),
        marks=story.marks,
        value="messages waiting",
        clock=story.clock,
    )


def _holdings(subject: Subject, story: Story) -> Table:
    of = f" (the {len(subject.holdings)} of {subject.holding_count:,} with most deliveries)"
    where = ("topic-partition",) if subject.is_key else ()
    return Table(
        f"Who had {subject.title} when" + (of if subject.holding_count > len(subject.holdings) else ""),
        ("consumer", *where, "from", "until", "deliveries", "redeliveries"),
        tuple(
            (
                each.consumer,
                *([each.topic_partition] if subject.is_key else []),
                story.clock.figure(each.from_ms, span_ms=story.span_ms),
                story.clock.figure(each.until_ms, span_ms=story.span_ms),
                each.deliveries,
                each.again,
            )
            for each in subject.holdings
        ),
    )


def _outcomes(subject: Subject) -> Table:
    rows = tuple((name, count, share(count, subject.deliveries)) for name, count in subject.outcomes)
    return Table(f"How deliveries of {subject.title} ended", ("outcome", "deliveries", "of all"), rows)


def _moves(subject: Subject, story: Story) -> Table:
    return Table(
        f"Changes that moved keys of {subject.title}",
        ("when", "change", "keys moved", "of all"),
        tuple(
            (
                story.clock.figure(move.at_ms, span_ms=story.span_ms),
                move.told,
                move.moved,
                share(move.moved, move.keys),
            )
            for move in subject.moves
        ),
    )
