"""What overtook a message, held back until it is clear that this message is not lost: then only the loss is told.

`keyshared.testing.check_history` leaves it out when it knows the whole history. Here rows stream by, so a row is held
only as long as the overtaken message waits. Plain Python; needs no Spark.
"""

from typing import Final, Generic, NamedTuple, TypeVar

from keyshared.testing.guarantees import Guarantees, Promise, Violation
from keyshared.testing.history import DeadLettered, Delivered, Dropped, Happening, Settled, Skipped
from keyshared.testing.judges.losses import loss_of, overtaken_in

__all__ = ["Overtakings", "Sure"]

Row = TypeVar("Row")

# after each of them a message waits no more, or since later: it was not lost where it was overtaken
_ENDS_A_WAIT: Final = (Delivered, Settled, DeadLettered, Dropped, Skipped)


class Sure(NamedTuple, Generic[Row]):
    """Violations of key-order that no loss explains.

    Attributes:
        number: How many there are.
        rows: Those that were kept of them, in the order in which they showed.
    """

    number: int
    rows: list[Row]


class _Held(Generic[Row]):
    def __init__(self, since: int) -> None:
        self.since = since  # the row since which the message waits
        self.is_lost = False
        self.number = 0
        self.rows: list[Row] = []


class Overtakings(Generic[Row]):
    """Holds back that messages were overtaken which may be lost.

    Args:
        guarantees: What is claimed. Nothing is held back unless key-order and no-loss both are.
        most: How many rows are kept of each message that was overtaken. None: all.

    Complexity:
        O(1) for each row. Memory O(rows that are held back).
    """

    def __init__(self, guarantees: Guarantees, most: int | None = None) -> None:
        self._waits = {Promise.KEY_ORDER, Promise.NO_LOSS} <= guarantees.promises
        self._most = most
        self._held: dict[int, _Held[Row]] = {}
        self._over: list[Sure[Row]] = []  # the message waits again: what was held before is sure

    def hold(self, violation: Violation, row: Row) -> bool:
        """Take a violation.

        Args:
            violation: Any one, in the order in which they show.
            row: What is to be told of it.

        Returns:
            Whether it is held back; if not, it is sure.
        """
        if not self._waits:
            return False
        lost, overtaken = loss_of(violation), overtaken_in(violation)
        if lost is not None:
            held = self._of(*lost)
            held.is_lost, held.rows = True, []
        if overtaken is None:
            return False
        held = self._of(*overtaken)
        held.number += 1
        if not held.is_lost and (self._most is None or len(held.rows) < self._most):
            held.rows.append(row)
        return True

    def after(self, happening: Happening) -> list[Sure[Row]]:
        """Return what is sure once a happening was judged; to be called after each one.

        Args:
            happening: What was judged last.
        """
        if self._held and isinstance(happening, _ENDS_A_WAIT):
            self._release(happening.offset)
        if not self._over:
            return []
        over, self._over = self._over, []
        return over

    def finish(self) -> list[Sure[Row]]:
        """Return what is sure at the end of the history."""
        for offset in [*self._held]:
            self._release(offset)
        over, self._over = self._over, []
        return over

    def _of(self, offset: int, since: int) -> _Held[Row]:
        held = self._held.get(offset)
        if held is not None and held.since != since:
            self._release(offset)
            held = None
        if held is None:
            held = self._held[offset] = _Held(since)
        return held

    def _release(self, offset: int) -> None:
        held = self._held.pop(offset, None)
        if held is not None and held.number and not held.is_lost:
            self._over.append(Sure(held.number, held.rows))
