"""A bound on the holes: settled stretches above the lowest outstanding message, which a restart token has to name.

Stretches of an earlier token count from when they are read again.

While there are too many, only the lowest outstanding message goes out: that alone can join a hole to the position. The
quota of the subscription is paused meanwhile, so all that is ready stays where it is and the consumers are remembered.
"""

from keyshared._checks import require
from keyshared._core.feature import Feature
from keyshared._core.quotas import Quota
from keyshared._core.reader import Reader
from keyshared._core.records import Consumer, Entry
from keyshared._core.window import Window
from keyshared.effects import Ending

__all__ = ["AckHoles"]


class _Outstanding:
    """An outstanding message: its neighbours, and whether something between it and the lower one is settled."""

    __slots__ = ("above", "below", "entry", "hole")

    def __init__(self, entry: Entry | None = None) -> None:
        self.entry = entry
        self.below = self.above = self
        self.hole = False


class AckHoles(Feature):
    """Counts the holes as they come and go, and pauses the subscription while there are too many. O(1) a message.

    Args:
        window: A new one.
        total: The quota of its subscription.
        most: How many holes there may be; with more only the lowest message goes out, until there are half as many.

    Attributes:
        count: How many holes there are; neighbouring ones are one.
    """

    name = "ack_holes"

    def __init__(self, window: Window, total: Quota[Consumer], most: int) -> None:
        self._window = window
        self._total = total
        self._most = most
        self._end = _Outstanding()  # beyond the greatest message, and before the lowest one
        self._known: dict[int, _Outstanding] = {}
        self.count = 0

    @property
    def is_full(self) -> bool:
        """Whether only the lowest outstanding message goes out."""
        return self._total.paused

    @property
    def lowest(self) -> Entry | None:
        """The lowest outstanding message."""
        return self._end.above.entry

    def tracked(self, entry: Entry) -> None:
        """Note that a message is outstanding, above all others."""
        end, new = self._end, _Outstanding(entry)
        new.below, new.above, new.hole = end.below, end, end.hole
        end.below.above = end.below = new
        end.hole = False
        self._known[entry.offset] = new

    def settled(self, entry: Entry, how: Ending) -> None:
        """Note that a message is settled."""
        gone = self._known.pop(entry.offset)
        below, above = gone.below, gone.above
        below.above, above.below = above, below
        self.count -= gone.hole + above.hole
        above.hole = below is not self._end  # below the lowest one the cursor has passed everything
        self.count += above.hole
        self._judge()

    def skipped(self, offset: int, key: bytes | None, how: Ending) -> None:
        """Note that an offered message is settled already: a hole, if something is outstanding."""
        end = self._end
        if end.below is not end and not end.hole:
            end.hole = True
            self.count += 1
            self._judge()

    def _judge(self) -> None:
        """Pause the subscription, or let it go on."""
        if self.count > self._most:
            self._total.paused = True
        elif self._total.paused and self.count <= self._most // 2:
            self._total.paused = False
            self._window.note_room(self._total)

    def woken(self) -> None:
        """Send the lowest message past what is ready before it, or load it though the window may be full."""
        lowest = self.lowest
        if not self._total.paused or lowest is None:
            return
        lane = lowest.lane
        if lane.next is not lowest or lane.place is None:
            return
        window = self._window
        owner = window.rooms.roomiest() if lane.key is None else window.owner_of(lane)
        if owner is not None and owner.free > 0:
            window.hand_out(lowest, owner, past_quotas=True)

    def dump(self, now: int) -> object:
        """Return True while there are too many holes: between half and all of them the number does not say it."""
        return self._total.paused or None

    def load(self, row: Reader, now: int) -> None:
        """Go on waiting if there are still more holes than half of the most."""
        self._total.paused = row.flag() and self.count > self._most // 2

    def restored(self) -> None:
        """Count the holes of a window that was restored."""
        below: int | None = None
        for entry, before in self._window.cursor.with_before():
            self._pass(below, before)
            self.tracked(entry)  # type: ignore[arg-type]  # the cells of a window are its entries
            below = entry.offset
        self._pass(below, self._window.cursor.last)
        self._judge()

    def _pass(self, below: int | None, before: int | None) -> None:
        """Note a hole above an outstanding message if an offset up to ``before`` was settled there."""
        if below is not None and before is not None and below < before:
            self._end.hole = True
            self.count += 1

    def check_invariants(self) -> None:
        """Raise `InvariantError` unless the holes are what is settled between outstanding messages. For tests; O(n)."""
        cursor = self._window.cursor
        cells = list(cursor.with_before())
        offered_before = [*(before for _, before in cells), cursor.last][1:]
        holes = sum(
            before is not None and cell.offset < before
            for (cell, _), before in zip(cells, offered_before, strict=False)
        )
        require(self.count == holes, f"{self.count} holes are the {holes} settled stretches above the position")
        require(self._total.paused or self.count <= self._most, "with too many holes the subscription is paused")
        require(not self._total.paused or self.count > self._most // 2, "with half of them it goes on")
