"""What a dispatcher has to keep so that it can tell how it is. Loaded only where that is asked for.

The cursor notes what is settled, as for `keyshared._dispatch.ledger`. When messages were offered is kept as marks, one
for each second in which anything was offered: so no message carries a time.
"""

from bisect import bisect_right
from collections.abc import Mapping
from functools import cache
from operator import itemgetter
from typing import Any, Final

from keyshared._checks import require
from keyshared._dispatch.ledger import Ledger
from keyshared._dispatch.outbox import Outbox
from keyshared._dispatch.snapshot import Reader
from keyshared._dispatch.timers import Duties
from keyshared._window.lanes import IN_FLIGHT, Entry
from keyshared.effects import Done, Effect, Ending
from keyshared.window import InFlightWindow

__all__ = ["HealthRoom", "MeasuringLedger", "measuring"]

_SECOND: Final = 1_000
_offset_of: Final = itemgetter(0)
_NO_DUTIES: Final[Duties] = {}


class MeasuringLedger(Ledger):
    """A ledger that counts what is done, and what has failed.

    Attributes:
        ended: How many messages were settled, by how they ended.
        failed: How many deliveries failed.
    """

    __slots__ = ("ended", "failed")

    def __init__(self, window: InFlightWindow) -> None:
        super().__init__(window)
        self.ended = dict.fromkeys(Ending, 0)
        self.failed = 0

    def fail(self) -> None:
        """Count a delivery that has failed."""
        self.failed += 1

    def take(self) -> list[Done]:
        """Return what was settled since the last time, counted."""
        done = super().take()
        for each in done:
            self.ended[each.how] += 1
        return done


class HealthRoom:
    """Counts and ages of a dispatcher.

    Args:
        window: Whose messages.
        ledger: Counts how they end.
        tells: Whether somebody else takes what is settled from the ledger, to tell it.

    Attributes:
        delivered: How many deliveries were made.
    """

    __slots__ = ("_cursor", "_last", "_ledger", "_marks", "_tells", "delivered")

    name: Final = "health"
    duties: Final = _NO_DUTIES

    def __init__(self, window: InFlightWindow, ledger: MeasuringLedger, *, tells: bool) -> None:
        self._cursor = window.cursor
        self._ledger = ledger
        self._tells = tells
        self._last = self._cursor.last
        self._marks: list[tuple[int, int]] = []  # from which offset on, and when at the earliest, by both
        self.delivered = 0

    @property
    def ended(self) -> Mapping[Ending, int]:
        """How many messages were settled, by how they ended; the caller's own."""
        return {how: number for how, number in self._ledger.ended.items() if number}

    @property
    def failed(self) -> int:
        """How many deliveries failed."""
        return self._ledger.failed

    def age_of(self, offset: int, now: int) -> int:
        """Return how long ago an outstanding message was offered, at most a second more. O(log n)."""
        return now - self._marks[bisect_right(self._marks, offset, key=_offset_of) - 1][1]

    def refresh(self, now: int, notices: list[Effect]) -> None:  # noqa: ARG002  # it tells nothing
        """Count what was settled in a call, and note the time of what was offered in it. O(1) amortised."""
        if not self._tells:
            self._ledger.take()
        cursor, marks = self._cursor, self._marks
        if not cursor.outstanding:
            marks.clear()
        elif not marks:
            marks.append((cursor.resume_offset or 0, now))
        elif cursor.last != self._last and now - marks[-1][1] >= _SECOND:
            marks.append((cursor.last or 0, now))
        self._last = cursor.last
        if len(marks) > 1:
            passed = bisect_right(marks, cursor.resume_offset or 0, key=_offset_of) - 1
            del marks[:passed]

    def dump(self, now: int) -> object:
        """The counts, and the marks with their ages."""
        return {
            "ended": {how.value: number for how, number in self.ended.items()},
            "delivered": self.delivered,
            "failed": self.failed,
            "marks": [[offset, now - since] for offset, since in self._marks],
        }

    def load(self, data: Reader, now: int) -> None:
        """Go on counting, and grow older, from where another life was."""
        endings = {how.value: how for how in Ending}
        for name, number in data.field("ended").fields().items():
            if name not in endings:
                raise number.refuse(f"be named one of {', '.join(endings)}")
            self._ledger.ended[endings[name]] = number.count()
        self.delivered = data.field("delivered").count()
        self._ledger.failed = data.field("failed").count()
        rows = [row.items(2) for row in data.field("marks").items()]
        self._marks = [(offset.offset(), now - age.count()) for offset, age in rows]
        self._last = self._cursor.last
        if not (self._covers_what_is_outstanding() and self._is_rising()):
            raise data.field("marks").refuse("be of all that is outstanding, oldest first, each after the one before")

    def check_invariants(self) -> None:
        """Raise `InvariantError` unless every outstanding message has an age, and none has two. For tests; O(n)."""
        require(self._covers_what_is_outstanding(), "what is outstanding has an age, and nothing else has")
        require(self._is_rising(), "times of offers grow with their offsets")
        lowest = self._cursor.resume_offset or 0
        require(all(offset > lowest for offset, _ in self._marks[1:]), "what is passed is forgotten")

    def _covers_what_is_outstanding(self) -> bool:
        cursor, marks = self._cursor, self._marks
        if not cursor.outstanding or not marks:
            return not cursor.outstanding and not marks
        return marks[0][0] <= (cursor.resume_offset or 0) and marks[-1][0] <= (cursor.last or 0)

    def _is_rising(self) -> bool:
        pairs = zip(self._marks, self._marks[1:], strict=False)
        return all(offset < later and since + _SECOND <= then for (offset, since), (later, then) in pairs)


@cache
def measuring(outbox: type[Outbox]) -> type[Outbox]:
    """Return the kind of outbox that counts, besides what it does, the deliveries that come by."""

    class MeasuringOutbox(outbox):  # type: ignore[misc, valid-type]  # whichever kind it is
        __slots__ = ("_health",)

        def __init__(self, health: HealthRoom, *others: Any, **settings: Any) -> None:  # noqa: ANN401  # as an outbox
            super().__init__(*others, **settings)
            self._health = health

        def finish(self, out: list[Effect], granted: list[Entry], now: int) -> list[Effect[Any]]:
            """Count the deliveries, and add obligations and state to the notices."""
            self._health.delivered += sum(entry.state == IN_FLIGHT for entry in granted)
            return super().finish(out, granted, now)  # type: ignore[no-any-return]  # mypy does not know the base

    return MeasuringOutbox
