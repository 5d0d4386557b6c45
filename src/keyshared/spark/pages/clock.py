"""Times on a page: of the calendar where the log has it, else counted from the first thing that happened."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from keyshared.errors import ArgumentError
from keyshared.spark.pages.page import DAY_MS, MINUTE_MS, duration

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
        if self.epoch_ms is None or self.epoch_ms + since_ms not in CALENDAR:
            return f"after {duration(since_ms)}"
        moment = _EPOCH + timedelta(milliseconds=self.epoch_ms + since_ms)
        if span_ms >= 10 * MINUTE_MS:
            return f"{moment:%Y-%m-%d %H:%M}"
        return f"{moment:%Y-%m-%d %H:%M:%S}.{moment.microsecond // 1_000:03}"


COUNTED: Final = Clock()
"""Times of a log without a calendar."""
