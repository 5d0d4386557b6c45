"""The clock of both runners, and how long one sleep may be."""

from time import monotonic_ns
from typing import Final

__all__ = ["now_ms", "seconds"]

_LONGEST_SLEEP_MS: Final = 3_600_000  # Python cannot wait for ever by a number; whoever sleeps looks at the time again


def now_ms() -> int:
    """The clock of both runners."""
    return monotonic_ns() // 1_000_000


def seconds(ms: int) -> float:
    """What to sleep for if so much is left: not less than nothing, and not more than an hour.

    Example:
        >>> seconds(1_500), seconds(-1), seconds(10**13)
        (1.5, 0.0, 3600.0)
    """
    return min(max(0, ms), _LONGEST_SLEEP_MS) / 1_000
