"""How a dispatcher is: figures for whoever watches it, as values and under the names of OpenMetrics."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias

from keyshared._window.lanes import IN_FLIGHT
from keyshared.effects import Ending
from keyshared.window import InFlightWindow

__all__ = ["Health", "Measured", "MetricRow", "gather_health"]

MetricRow: TypeAlias = tuple[str, tuple[tuple[str, str], ...], int | float]
"""Name, labels and value of one figure."""

_MS: Final = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """Figures of a dispatcher at the instant of its last call.

    Ages count from the offer, to within one second, rounded up. Counts are since the start and survive a snapshot.

    Attributes:
        oldest_ms: Age of the oldest outstanding message; None if nothing is outstanding, or nobody measured.
        longest_blocked_ms: Age of the oldest outstanding message that is not open; None likewise.
        blocked_offset: Which one that is; None if there is none.
        busiest: Keys with the most outstanding messages, with their number; of equals the first by its bytes.
        ended: How many messages were settled, by how they ended; None if nobody measured.
        delivered: How many deliveries were made; None likewise.
        failed: How many of them failed; None likewise.
    """

    oldest_ms: int | None
    longest_blocked_ms: int | None
    blocked_offset: int | None
    busiest: tuple[tuple[bytes, int], ...]
    ended: Mapping[Ending, int] | None
    delivered: int | None
    failed: int | None

    def rows(self) -> list[MetricRow]:
        """Return the figures under the names that docs/howto-health.md lists; what is None is left out.

        Returns:
            Name, labels and value of each, as any client of OpenMetrics takes them: times in seconds, counters with
            ``_total``. A key is written as text, with escapes where it is none.

        Example:
            >>> health = Health(oldest_ms=1_500, longest_blocked_ms=None, blocked_offset=None, busiest=((b"k", 2),),
            ...     ended=None, delivered=None, failed=None)
            >>> health.rows()
            [('keyshared_oldest_age_seconds', (), 1.5), ('keyshared_key_outstanding', (('key', 'k'),), 2)]
        """
        ages = [
            ("keyshared_oldest_age_seconds", self.oldest_ms),
            ("keyshared_blocked_age_seconds", self.longest_blocked_ms),
        ]
        counts = [("keyshared_deliveries_total", self.delivered), ("keyshared_failures_total", self.failed)]
        return [
            *((name, (), age / _MS) for name, age in ages if age is not None),
            *(("keyshared_key_outstanding", (("key", _text(key)),), number) for key, number in self.busiest),
            *(("keyshared_settled_total", (("how", how.value),), number) for how, number in (self.ended or {}).items()),
            *((name, (), count) for name, count in counts if count is not None),
        ]


class Measured(Protocol):
    """What is kept where a dispatcher measures."""

    @property
    def delivered(self) -> int: ...

    @property
    def ended(self) -> Mapping[Ending, int]: ...

    @property
    def failed(self) -> int: ...

    def age_of(self, offset: int, now: int) -> int:
        """Return how long ago an outstanding message was offered."""


def gather_health(window: InFlightWindow, measured: Measured | None, *, busiest: int, now: int) -> Health:
    """Return the figures of this moment; what is back from the dead-letter store has no age. O(outstanding)."""
    of_log = window.of_log()
    blocked = next((entry.offset for entry in of_log if entry.state != IN_FLIGHT), None)
    oldest = of_log[0].offset if of_log else None
    keys = Counter(entry.key for entry in window.outstanding() if entry.key is not None)
    return Health(
        oldest_ms=None if measured is None or oldest is None else measured.age_of(oldest, now),
        longest_blocked_ms=None if measured is None or blocked is None else measured.age_of(blocked, now),
        blocked_offset=blocked,
        busiest=tuple(sorted(keys.items(), key=_most_first)[:busiest]),
        ended=None if measured is None else measured.ended,
        delivered=None if measured is None else measured.delivered,
        failed=None if measured is None else measured.failed,
    )


def _most_first(counted: tuple[bytes, int]) -> tuple[int, bytes]:
    key, number = counted
    return -number, key


def _text(key: bytes) -> str:
    return key.decode("utf-8", "backslashreplace")
