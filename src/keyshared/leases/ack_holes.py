"""How many stretches above the lowest outstanding message are settled, counted as they come and go.

A broker that stores its acks stores these stretches, so their number is what has to be bounded. Reading it off the
cursor costs a walk over everything outstanding; here each change costs O(1), because a settled message touches only the
two outstanding ones beside it.
"""

from collections import deque
from collections.abc import Iterable

from keyshared.errors import InvariantError

__all__ = ["AckHoles"]


class _Outstanding:
    """An outstanding message: its neighbours, and whether something between it and the lower one is settled."""

    __slots__ = ("above", "below", "hole")

    def __init__(self) -> None:
        self.below = self.above = self
        self.hole = False


class AckHoles:
    """Counts the settled stretches above the lowest outstanding message.

    Attributes:
        count: How many holes there are; neighbouring ones are one.

    Example:
        >>> holes = AckHoles()
        >>> for offset in range(6):
        ...     holes.offered(offset)
        >>> for offset in (1, 2, 4):
        ...     holes.settled(offset)
        >>> holes.count
        2
        >>> holes.settled(0)                        # the cursor passes 0, 1 and 2
        >>> holes.count
        1
    """

    __slots__ = ("_end", "_offsets", "count")

    def __init__(self) -> None:
        self._end = _Outstanding()  # beyond the greatest message, and before the lowest one
        self._offsets: dict[int, _Outstanding] = {}
        self.count = 0

    def offered(self, offset: int) -> None:
        """Take a message that is above all others. O(1).

        Args:
            offset: Its offset.
        """
        end, new = self._end, _Outstanding()
        new.below, new.above, new.hole = end.below, end, end.hole
        end.below.above = end.below = new
        end.hole = False
        self._offsets[offset] = new

    def settled(self, offset: int) -> None:
        """Settle an outstanding message. O(1).

        Args:
            offset: Its offset.
        """
        gone = self._offsets.pop(offset)
        below, above = gone.below, gone.above
        below.above, above.below = above, below
        self.count -= gone.hole + above.hole
        # Below the lowest outstanding message the cursor has passed everything: no hole is left there.
        above.hole = below is not self._end
        self.count += above.hole

    def load(self, outstanding: Iterable[int], ranges: Iterable[tuple[int, int]]) -> None:
        """Start from what a dispatcher knows.

        Args:
            outstanding: Offsets of outstanding messages, lowest first.
            ranges: Its `acked_ranges`.
        """
        starts = deque(start for start, _ in ranges)
        for offset in outstanding:
            self._pass(starts, offset)
            self.offered(offset)
        self._pass(starts, None)

    def _pass(self, starts: deque[int], offset: int | None) -> None:
        """Note the hole that begins below an offset."""
        if starts and (offset is None or starts[0] < offset):
            starts.popleft()
            self._end.hole = True
            self.count += 1

    def check_invariants(self, ranges: int) -> None:
        """Raise `InvariantError` if there are not so many holes. For tests; O(1)."""
        if self.count != ranges:
            raise InvariantError(f"holes are the acked ranges above the cursor: {self.count} are not {ranges}")
