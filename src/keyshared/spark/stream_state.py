"""A journal for each topic-partition, kept in Spark's state store between micro-batches.

Only `keyshared.spark.stream` imports this module, and only for a stream: it needs PySpark 4.1 and protobuf.
"""

from collections.abc import Iterable, Iterator, Sequence
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
from keyshared.journal import Command, Journal, OutcomeRow
from keyshared.ring import HashRing
from keyshared.spark.stream_rows import DUPLICATE, unpacked

__all__ = ["DispatchProcessor"]

_ROWS: Final = 10_000  # outcomes in one row
_NO_OUTCOMES: Final[tuple[list[object], ...]] = tuple([] for _ in OutcomeRow._fields)


class DispatchProcessor(StatefulProcessor):
    """The methods that ``transformWithState`` calls, in event time, for each topic-partition.

    The value of the state is the journal as bytes, and the instant of the one timer that is set: the next deadline. A
    deadline that the watermark has passed acts at its own instant, when rows come or the timer expires.

    Args:
        placement: See `Journal`.
        config: See `Journal`.
        names: The columns that name a topic-partition.

    Example:
        >>> DispatchProcessor(HashRing(), None, ["topic", "partition"]).close()
    """

    # Spark passes all arguments by keyword, so their names are not ours to choose.

    def __init__(self, placement: HashRing, config: DispatcherConfig | None, names: Sequence[str]) -> None:
        self._placement = placement
        self._config = config
        self._row: Any = Row(*names, *OutcomeRow._fields, DUPLICATE)
        self._handle: StatefulProcessorHandle
        self._kept: ValueState
        self._ring: HashRing | None = None  # of the topic-partition before: most have the same consumers

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Open the state."""
        self._handle = handle
        self._kept = handle.getValueState("journal", "state binary, timer_ms bigint")

    def handleInputRows(self, key: tuple[Any, ...], rows: Iterator[Any], timerValues: TimerValues) -> Iterator[Row]:
        """Carry out the commands of a micro-batch, in order of sequence; they may come in any order."""
        journal, timer = self._opened()
        commands = sorted((Command(*fields) for row in rows for fields in unpacked(row[-1])), key=_SEQUENCE)
        duplicates: list[Command] = []
        yield from self._rows(key, _carried_out(journal, commands, duplicates))
        yield from self._rows(key, journal.advance(timerValues.getCurrentWatermarkInMs()))
        if duplicates:
            yield self._row(*key, *_NO_OUTCOMES, len(duplicates))
        self._put_away(journal, timer)

    def handleExpiredTimer(
        self, key: tuple[Any, ...], timerValues: TimerValues, expiredTimerInfo: ExpiredTimerInfo
    ) -> Iterator[Row]:
        """Act on every deadline that the watermark has passed."""
        journal, timer = self._opened()
        yield from self._rows(key, journal.advance(timerValues.getCurrentWatermarkInMs()))
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

    def _rows(self, key: tuple[Any, ...], outcomes: Iterable[OutcomeRow]) -> Iterator[Row]:
        rest = iter(outcomes)
        while chunk := list(islice(rest, _ROWS)):
            yield self._row(*key, *zip(*chunk, strict=True), 0)


_SEQUENCE: Final = attrgetter("sequence")


def _carried_out(journal: Journal, commands: Iterable[Command], duplicates: list[Command]) -> Iterator[OutcomeRow]:
    """Carry out commands in order; those that came before have no outcome and are added to the duplicates."""
    for command in commands:
        last = journal.sequence
        outcomes = journal.apply(command)
        if last is not None and command.sequence <= last and not outcomes:
            duplicates.append(command)
        yield from outcomes
