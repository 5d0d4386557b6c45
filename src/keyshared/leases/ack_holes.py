"""How many stretches above the lowest outstanding version are settled, counted as they come and go.

A broker that stores its acks stores these stretches, so their number is what has to be bounded. Reading it off the
cursor costs a walk over everything outstanding; here each change costs O(1), because a settled version touches only the
two outstanding ones beside it.
"""

from collections import deque
from collections.abc import Iterable

from keyshared.errors import InvariantError

__all__ = ["AckHoles"]


class _Outstanding:
    """An outstanding version: its neighbours, and whether something between it and the lower one is settled."""

    __slots__ = ("above", "below", "hole")

    def __init__(self) -> None:
        self.below = self.above = self
        self.hole = False


class AckHoles:
    """Counts the holes that acks leave above the lowest outstanding version.

    Attributes:
        count: How many holes there are; neighbouring ones are one.

    Example:
        >>> holes = AckHoles()
        >>> for version in range(6):
        ...     holes.offered(version)
        >>> for version in (1, 2, 4):
        ...     holes.settled(version)
        >>> holes.count
        2
        >>> holes.settled(0)                        # the cursor passes 0, 1 and 2
        >>> holes.count
        1
    """

    __slots__ = ("_end", "_versions", "count")

    def __init__(self) -> None:
        self._end = _Outstanding()  # beyond the greatest version, and before the lowest one
        self._versions: dict[int, _Outstanding] = {}
        self.count = 0

    def offered(self, version: int) -> None:
        """Take a version that is above all others. O(1).

        Args:
            version: The version.
        """
        end, new = self._end, _Outstanding()
        new.below, new.above, new.hole = end.below, end, end.hole
        end.below.above = end.below = new
        end.hole = False
        self._versions[version] = new

    def settled(self, version: int) -> None:
        """Settle an outstanding version. O(1).

        Args:
            version: The version.
        """
        gone = self._versions.pop(version)
        below, above = gone.below, gone.above
        below.above, above.below = above, below
        self.count -= gone.hole + above.hole
        # Below the lowest outstanding version the cursor has passed everything: no hole is left there.
        above.hole = below is not self._end
        self.count += above.hole

    def load(self, outstanding: Iterable[int], ranges: Iterable[tuple[int, int]]) -> None:
        """Start from what a dispatcher knows.

        Args:
            outstanding: Outstanding versions, lowest first.
            ranges: Its `acked_ranges`.
        """
        starts = deque(start for start, _ in ranges)
        for version in outstanding:
            self._pass(starts, version)
            self.offered(version)
        self._pass(starts, None)

    def _pass(self, starts: deque[int], version: int | None) -> None:
        """Note the hole that begins below a version."""
        if starts and (version is None or starts[0] < version):
            starts.popleft()
            self._end.hole = True
            self.count += 1

    def check_invariants(self, ranges: int) -> None:
        """Raise `InvariantError` if there are not so many holes. For tests; O(1)."""
        if self.count != ranges:
            raise InvariantError(f"holes are the acked ranges above the cursor: {self.count} are not {ranges}")
