"""A cursor that remembers what was settled, until somebody takes it."""

from collections.abc import Sequence

from keyshared.cursor import Cell, ContiguousCursor

__all__ = ["WatchedCursor"]


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
