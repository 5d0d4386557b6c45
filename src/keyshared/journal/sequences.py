"""The sequences of commands that have come, as stretches without a gap."""

from bisect import bisect_right
from operator import itemgetter
from typing import Final

__all__ = ["Sequences"]

_MOST_STRETCHES: Final = 256  # 3 kB of state; there is one where there are no gaps
_SKIPPED: Final = "it comes after a command that stands behind it"
_FORGOTTEN: Final = "it comes after a command that stands behind it, or once more: so far back is not remembered"
_first_of: Final = itemgetter(0)


class Sequences:
    """Remembers the newest stretches.

    Args:
        stretches: The first and the last sequence of each stretch, in order.
        forgotten: Whether there were stretches below the first one.
    """

    __slots__ = ("forgotten", "stretches")

    def __init__(self, stretches: list[list[int]] | None = None, *, forgotten: bool = False) -> None:
        self.stretches = [] if stretches is None else stretches
        self.forgotten = forgotten

    def is_next(self, sequence: int) -> bool:
        """Return whether a sequence is above all that have come."""
        return not self.stretches or sequence > self.stretches[-1][1]

    def note(self, sequence: int) -> str | None:
        """Remember a sequence; return None if it has come before, else why a command with it would be late."""
        stretches = self.stretches
        place = bisect_right(stretches, sequence, key=_first_of)  # of the first stretch behind it
        if place and sequence <= stretches[place - 1][1]:
            return None
        if not place and self.forgotten:
            return _FORGOTTEN
        stretches.insert(place, [sequence, sequence])
        for left in (place, place - 1):
            if 0 <= left < len(stretches) - 1 and stretches[left][1] == stretches[left + 1][0] - 1:
                stretches[left][1] = stretches.pop(left + 1)[1]
        if len(stretches) > _MOST_STRETCHES:
            del stretches[0]
            self.forgotten = True
        return _SKIPPED
