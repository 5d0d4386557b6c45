"""What has come back beside the log: settled messages that wait for another delivery at their old place.

The position has passed them, and nothing moves it back. So the cursor knows them as *side cells*, which hold only what
is newer of their lane. Loaded only where dead letters are redriven.
"""

from collections.abc import Iterator, Sequence
from heapq import merge
from operator import attrgetter
from typing import Final

from keyshared._checks import require
from keyshared._window.books import WindowBooks
from keyshared._window.lanes import IN_FLIGHT, Consumer, Entry, Lane, State
from keyshared._window.watched import WatchedCursor
from keyshared.cursor import SETTLED, Cell

__all__ = ["SideCursor", "come_back", "readmit_beside"]

_offset_of: Final = attrgetter("offset")


class SideCursor(WatchedCursor):
    """A watched cursor that knows side cells, by offset: they are found, iterated and closed as all others.

    Everything else is of the log alone: the position, `outstanding`, the acked ranges and the token.

    Attributes:
        beside: The side cells that are not settled, in no order.
    """

    __slots__ = ("beside",)

    def __init__(self, start: int | None = None) -> None:
        super().__init__(start)
        self.beside: dict[int, Cell] = {}

    @property
    def next_offer(self) -> int | None:
        """The lowest offset that may still be offered; None before any, if no start is known. O(1)."""
        if self.last is None:
            return self.start
        return self.last + 1 if self.start is None else max(self.start, self.last + 1)

    def put(self, cell: Cell) -> None:
        """Take a side cell, unchecked: its offset is below `next_offer`, and nothing of it is outstanding. O(1)."""
        cell.prev = None
        self.beside[cell.offset] = cell

    def close(self, cell: Cell) -> None:
        """Settle a cell, and note it. A side cell moves nothing."""
        if self.beside.pop(cell.offset, None) is None:
            super().close(cell)
        else:
            cell.state = SETTLED
            self.ended.append(cell)

    def close_many(self, cells: Sequence[Cell]) -> None:
        """Settle several cells, and note them."""
        for cell in cells:
            self.close(cell)

    def find(self, offset: int) -> Cell | None:
        """As `ContiguousCursor.find`, side cells included."""
        return self.beside.get(offset) or super().find(offset)

    def __iter__(self) -> Iterator[Cell]:
        """Outstanding cells in offset order, side cells included; any of them may be closed meanwhile."""
        beside = sorted(self.beside.values(), key=_offset_of)
        return (cell for cell in merge(beside, self._of_log(), key=_offset_of) if cell.state)

    def check_invariants(self) -> None:
        """As `ContiguousCursor.check_invariants`, and that side cells are no cells of the log."""
        super().check_invariants()
        below = self.next_offer
        for offset, cell in self.beside.items():
            require(cell.offset == offset and cell.state != SETTLED, "side cells are known by their offsets")
            require(below is not None and offset < below, "what has come back is never offered again")
            require(super().find(offset) is None, "what has come back is not outstanding in the log")


def come_back(
    window: WindowBooks, offset: int, key: bytes | None, item: object, *, attempt: int, near: Entry | None = None
) -> Entry:
    """Put a settled message back at its place in its lane, beside the log; `InFlightWindow.wake` acts on it.

    Args:
        window: One with a `SideCursor`. Its limit of tracked messages is the caller's to lower.
        offset: Nothing of it is outstanding.
        key: Its key.
        item: Its passenger.
        attempt: Its last delivery.
        near: An older message that came back: if it is of the same lane, the place is looked for from there on.

    Returns:
        The message, queued. It counts as delivered, unless something older of its lane was never delivered.

    Complexity:
        O(older messages of its lane that are newer than ``near``), and O(log n), n messages that came back.
    """
    entry = _put(window, offset, key, item, near)
    entry.attempt = attempt
    if entry.lane.was_delivered(entry):
        entry.lane.take_back(entry)
    window._recount(entry, None)
    window._touched[entry.lane] = None
    return entry


def readmit_beside(
    window: WindowBooks,
    offset: int,
    key: bytes | None,
    item: object,
    state: State,
    *,
    delivered: bool,
    consumer: Consumer | None,
    near: Entry | None = None,
) -> Entry:
    """Put a side cell of a snapshot back, unchecked, as `WindowBooks.readmit` does what is of the log."""
    entry = _put(window, offset, key, item, near)
    entry.state = int(state)
    lane = entry.lane
    if not delivered:
        if lane.fresh is None or entry.offset < lane.fresh.offset:
            lane.fresh = entry
    elif entry.state != IN_FLIGHT:
        lane.take_back(entry)
    window._recount(entry, consumer)
    return entry


def _put(window: WindowBooks, offset: int, key: bytes | None, item: object, near: Entry | None) -> Entry:
    lane_key = b"" if window._one_lane else key
    known = None if lane_key is None else window.lanes.get(lane_key)
    lane = window.new_lane(lane_key) if known is None else window._lane_of(known) if isinstance(known, Entry) else known
    if lane_key is not None:
        window.lanes[lane_key] = lane
    entry = Entry(offset, key, item, lane)
    cursor: SideCursor = window.cursor  # type: ignore[assignment]  # where anything comes back it is one
    cursor.put(entry)
    _link(lane, entry, lane.head if near is None or near.lane is not lane else near)
    return entry


def _link(lane: Lane, entry: Entry, after: Entry | None) -> None:
    """Link a message where its offset belongs, looking from a message on that is not newer."""
    before: Entry | None = None
    while after is not None and after.offset < entry.offset:
        before, after = after, after.after
    entry.after = after
    if before is None:
        lane.head = entry
    else:
        before.after = entry
    if after is None:
        lane.tail = entry
