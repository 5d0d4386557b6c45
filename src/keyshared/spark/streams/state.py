"""A journal for each topic-partition, kept in Spark's state store between micro-batches.

Between rows and journals stand plain functions, so that what a stream does can be tested without Spark; the processor
adds nothing to them but where the state lies and when Spark has to come back.

Only `keyshared.spark.streams.dispatch` imports this module, and only for a stream: it needs Spark 4.0 and protobuf.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from operator import attrgetter
from typing import Any, Final

from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import (
    ExpiredTimerInfo,
    StatefulProcessor,
    StatefulProcessorHandle,
    TimerValues,
    ValueState,
)

from keyshared.config import DispatcherConfig
from keyshared.journal.commands import Command, OutcomeRow
from keyshared.journal.journal import Journal
from keyshared.ring import HashRing
from keyshared.spark.streams.rows import DUPLICATE, unpacked

__all__ = ["DispatchProcessor"]

_ROWS: Final = 10_000  # outcomes in one row

_OutcomesRow: Final[Any] = Row("topic_partition", *OutcomeRow._fields, DUPLICATE)
_NO_OUTCOMES: Final[tuple[list[object], ...]] = tuple([] for _ in OutcomeRow._fields)


@dataclass(slots=True)
class _Counts:
    """What a micro-batch has of a topic-partition that no outcome tells.

    Attributes:
        duplicate: Commands that have been there before.
    """

    duplicate: int = 0


class DispatchProcessor(StatefulProcessor):
    """What ``transformWithState`` calls, in event time, for each topic-partition.

    Commands come in rows of `PACKED_SCHEMA`, many in one. Outcomes go as `bundled` describes, many in one row of
    arrays, with one more column, `DUPLICATE`.

    The value of the state is the journal as bytes, and the instant of the one timer that is set: the next deadline.
    What is due by the watermark acts at its own instant, when rows come or the timer expires, whichever is first.

    Args:
        placement: See `Journal`.
        config: See `Journal`.

    Raises:
        ArgumentError: See `Journal`.

    Example:
        >>> DispatchProcessor(HashRing(), None).close()
    """

    # Spark passes all arguments by keyword, so their names are not ours to choose.

    def __init__(self, placement: HashRing, config: DispatcherConfig | None) -> None:
        Journal(placement, config)  # says what is wrong with them
        self._placement = placement
        self._config = config
        self._handle: StatefulProcessorHandle
        self._kept: ValueState
        self._ring: HashRing | None = None  # of the topic-partition before: most have the same consumers

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Open the state."""
        self._handle = handle
        self._kept = handle.getValueState("journal", "state binary, timer_ms bigint")

    def handleInputRows(self, key: tuple[str], rows: Iterator[Any], timerValues: TimerValues) -> Iterator[Row]:
        """Carry out the commands of a micro-batch, in order of sequence whatever order they come in."""
        journal, timer = self._opened()
        commands = [Command(*fields) for _, packed in rows for fields in unpacked(packed)]
        counts = _Counts()
        yield from _rows(key, _carried_out(journal, commands, counts))
        yield from _rows(key, journal.advance(timerValues.getCurrentWatermarkInMs()))
        if counts.duplicate:
            yield _OutcomesRow(*key, *_NO_OUTCOMES, counts.duplicate)
        self._put_away(journal, timer)

    def handleExpiredTimer(
        self, key: tuple[str], timerValues: TimerValues, expiredTimerInfo: ExpiredTimerInfo
    ) -> Iterator[Row]:
        """Do everything that is due by the watermark."""
        journal, timer = self._opened()
        yield from _rows(key, journal.advance(timerValues.getCurrentWatermarkInMs()))
        # the timer that has expired is not set any more: Spark deletes it
        self._put_away(journal, None if timer == expiredTimerInfo.getExpiryTimeInMs() else timer)

    def close(self) -> None:
        """Nothing is open."""

    def _opened(self) -> tuple[Journal, int | None]:
        kept = self._kept.get()
        if kept is None:
            return Journal(self._placement, self._config), None
        return Journal.from_bytes(bytes(kept[0]), self._placement, self._config, joined=self._ring), kept[1]

    def _put_away(self, journal: Journal, timer: int | None) -> None:
        self._ring = journal.ring
        deadline = journal.next_deadline_ms()
        if deadline != timer:
            if timer is not None:
                self._handle.deleteTimer(timer)
            if deadline is not None:
                self._handle.registerTimer(deadline)
        self._kept.update((journal.to_bytes(), deadline))


def _carried_out(journal: Journal, commands: Iterable[Command], counts: _Counts) -> Iterator[OutcomeRow]:
    """Carry out commands in order of sequence, and count those that have been here before: they have no outcome."""
    for command in sorted(commands, key=attrgetter("sequence")):
        last = journal.sequence
        outcomes = journal.apply(command)
        if last is not None and command.sequence <= last and not outcomes:
            counts.duplicate += 1
        yield from outcomes


def _rows(key: tuple[str], outcomes: Iterable[OutcomeRow]) -> Iterator[Row]:
    (topic_partition,) = key
    rest = iter(outcomes)
    while chunk := list(islice(rest, _ROWS)):
        yield _OutcomesRow(topic_partition, *zip(*chunk, strict=True), 0)
