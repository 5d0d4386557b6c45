"""What remembers what happens to it until somebody takes that: ends at a cursor, comings and goings of a list."""

from collections import OrderedDict
from collections.abc import Sequence

from keyshared._window.lanes import Lane
from keyshared.cursor import Cell, ContiguousCursor

__all__ = ["WatchedCursor", "WatchedList"]


class WatchedCursor(ContiguousCursor):
    """A cursor that notes each settlement. Nothing is settled but by `close` and `skip`, so nothing can be missed.

    Attributes:
        ended: What was settled since somebody took this, in that order: cells, and offsets that were skipped.
    """

    __slots__ = ("ended",)

    def __init__(self, start: int | None = None) -> None:
        super().__init__(start)
        self.ended: list[Cell | int] = []

    def close(self, cell: Cell) -> None:
        """Settle a cell, and note it."""
        self.ended.append(cell)
        super().close(cell)

    def close_many(self, cells: Sequence[Cell]) -> None:
        """Settle several cells, and note them."""
        self.ended += cells
        super().close_many(cells)

    def skip(self, offset: int) -> None:
        """Offer an offset that is settled already, and note it."""
        self.ended.append(offset)
        super().skip(offset)


class WatchedList(OrderedDict[Lane, int]):
    """A work list that notes who enters and who leaves: the list itself does, so no way in or out can forget it.

    Attributes:
        changed: Lanes that entered or left; clear it when you have seen them.
    """

    def __init__(self) -> None:
        super().__init__()
        self.changed: dict[Lane, None] = {}

    def __setitem__(self, lane: Lane, place: int) -> None:
        self.changed[lane] = None
        super().__setitem__(lane, place)

    def __delitem__(self, lane: Lane) -> None:
        self.changed[lane] = None
        super().__delitem__(lane)
