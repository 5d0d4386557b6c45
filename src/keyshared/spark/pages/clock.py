"""Times on a page: of the calendar where the log has it, else counted from the first thing that happened."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from keyshared.errors import ArgumentError
from keyshared.spark.pages.page import DAY_MS, MINUTE_MS, Figure, duration

__all__ = ["CALENDAR", "COUNTED", "Clock"]

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
CALENDAR: Final = range(-62_135_596_800_000, 253_402_300_800_000)
"""Milliseconds since 1970 that have a date: of the years 1 to 9999."""


@dataclass(frozen=True, slots=True)
class Clock:
    """When the first thing happened.

    Attributes:
        epoch_ms: Milliseconds since 1970; None if the log has no calendar.
        zone: Of the times that come out.

    Raises:
        ArgumentError: It is in none of the years 1 to 9999.

    Example:
        >>> Clock().told(3_600_000), Clock(1_368_328_500_000).told(3_600_000)
        ('after 1 h', '2013-05-12 04:15')
    """

    epoch_ms: int | None = None
    zone: str = "UTC"

    def __post_init__(self) -> None:
        if self.epoch_ms is not None and self.epoch_ms not in CALENDAR:
            raise ArgumentError("epoch_ms", self.epoch_ms, "be milliseconds since 1970, in one of the years 1 to 9999")

    def told(self, since_ms: int, *, span_ms: int = DAY_MS) -> str:
        """Write a time the way people read it.

        Args:
            since_ms: Milliseconds since the first thing happened.
            span_ms: How long everything takes: the shorter, the finer is the time.

        Returns:
            A date and a time of day, or how long after the first thing it was.
        """
        moment = self._moment(since_ms)
        if moment is None:
            return f"after {duration(since_ms)}"
        if span_ms >= 10 * MINUTE_MS:
            return f"{moment:%Y-%m-%d %H:%M}"
        return _to_the_ms(moment)

    def figure(self, since_ms: float, *, span_ms: int = DAY_MS) -> Figure:
        """Return a time for a table.

        Args:
            since_ms: Milliseconds since the first thing happened.
            span_ms: See `told`.

        Returns:
            As `told` on the page; in a file a date and a time of day to the millisecond, or milliseconds.

        Example:
            >>> Clock(1_368_328_500_000).figure(3_600_000).value, Clock().figure(3_600_000).value
            ('2013-05-12 04:15:00.000', 3600000)
        """
        whole = round(since_ms)
        moment = self._moment(whole)
        told = self.told(whole, span_ms=span_ms)
        if moment is None:
            return Figure(told, whole, "ms after the start", number=False)
        return Figure(told, _to_the_ms(moment), self.zone, number=False)

    def _moment(self, since_ms: int) -> datetime | None:
        if self.epoch_ms is None or self.epoch_ms + since_ms not in CALENDAR:
            return None
        return _EPOCH + timedelta(milliseconds=self.epoch_ms + since_ms)


def _to_the_ms(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M:%S}.{moment.microsecond // 1_000:03}"


COUNTED: Final = Clock()
"""Times of a log without a calendar."""
