"""Times on a page: of the calendar where the log has it, else counted from the first thing that happened."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from keyshared.errors import ArgumentError
from keyshared.spark.pages.page import DAY_MS, MINUTE_MS, duration

__all__ = ["COUNTED", "Clock"]

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_END_MS: Final = 253_402_300_800_000  # the year 10000, which no date can be in


@dataclass(frozen=True, slots=True)
class Clock:
    """When the first thing happened.

    Attributes:
        epoch_ms: Milliseconds since 1970, UTC; None if the log has no calendar.

    Raises:
        ArgumentError: It is before 1970 or after the year 9999.

    Example:
        >>> Clock().told(3_600_000), Clock(1_368_328_500_000).told(3_600_000)
        ('after 1 h', '2013-05-12 04:15')
    """

    epoch_ms: int | None = None

    def __post_init__(self) -> None:
        if self.epoch_ms is not None and not 0 <= self.epoch_ms < _END_MS:
            raise ArgumentError("epoch_ms", self.epoch_ms, "be milliseconds since 1970 and before the year 10000")

    def told(self, since_ms: int, *, span_ms: int = DAY_MS) -> str:
        """Write a time the way people read it.

        Args:
            since_ms: Milliseconds since the first thing happened.
            span_ms: How long everything takes: the shorter, the finer is the time.

        Returns:
            A date and a time of day in UTC, or how long after the first thing it was.
        """
        if self.epoch_ms is None or self.epoch_ms + since_ms >= _END_MS:
            return f"after {duration(since_ms)}"
        moment = _EPOCH + timedelta(milliseconds=self.epoch_ms + since_ms)
        if span_ms >= 10 * MINUTE_MS:
            return f"{moment:%Y-%m-%d %H:%M}"
        return f"{moment:%Y-%m-%d %H:%M:%S}.{moment.microsecond // 1_000:03}"


COUNTED: Final = Clock()
"""Times of a log without a calendar."""
