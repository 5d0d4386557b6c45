"""One offered offset, as a window and a cursor share it."""

from typing import Final

__all__ = ["SETTLED", "Cell"]

SETTLED: Final = 0
OPEN: Final = 1


class Cell:
    """One offered offset. A subclass adds what its owner needs.

    Attributes:
        offset: Its place in the log.
        state: `SETTLED`, or any positive int while it is outstanding.
    """

    __slots__ = ("offset", "state")

    def __init__(self, offset: int, state: int = OPEN) -> None:
        self.offset = offset
        self.state = state

    def __repr__(self) -> str:
        return f"{type(self).__name__}(offset={self.offset}, state={self.state})"
