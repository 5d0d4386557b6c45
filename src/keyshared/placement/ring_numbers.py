"""The numbers that tell consumers apart whose points are made of one name."""

from collections.abc import Set as AbstractSet
from heapq import heappop, heappush
from typing import Self

from keyshared._checks import require

__all__ = ["RingNumbers"]


class RingNumbers:
    """For each name the numbers that are taken: all below some number, but for those that were given back.

    Complexity:
        O(log n) for each call, n numbers of one name that were given back.
    """

    __slots__ = ("_free", "_stops")

    def __init__(self) -> None:
        self._stops: dict[str, int] = {}
        self._free: dict[str, list[int]] = {}  # heaps

    def lowest(self, name: str) -> int:
        """Return the lowest number of a name that is free. O(1)."""
        free = self._free.get(name)
        return free[0] if free else self._stops.get(name, 0)

    def take(self, name: str) -> None:
        """Take the lowest number of a name."""
        free = self._free.get(name)
        if free:
            heappop(free)
        else:
            self._stops[name] = self._stops.get(name, 0) + 1

    def free(self, name: str, number: int) -> None:
        """Return a number of a name to those that are free."""
        free = self._free.setdefault(name, [])
        heappush(free, number)
        if len(free) == self._stops[name]:  # nobody of that name is left
            del self._free[name], self._stops[name]

    def copy(self) -> Self:
        """Copy the numbers; nothing is shared that can change."""
        twin = type(self)()
        twin._stops = self._stops.copy()
        twin._free = {name: free.copy() for name, free in self._free.items()}
        return twin

    def check_invariants(self, taken: AbstractSet[tuple[str, int]]) -> None:
        """Raise `InvariantError` unless exactly these pairs of a name and a number are taken. O(n)."""
        counted = {
            (name, number)
            for name, stop in self._stops.items()
            for number in set(range(stop)).difference(self._free.get(name, ()))
        }
        require(counted == taken, "the numbers that are taken are those of the consumers")
