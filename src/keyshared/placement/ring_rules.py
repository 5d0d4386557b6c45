"""How kinds of rings differ: the text of a point, legal names, owners of contested slots, numbers of equal names."""

from collections.abc import Callable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Final, Self

from keyshared._checks import configuration, require
from keyshared.errors import ArgumentError
from keyshared.placement.protocol import check_name

__all__ = ["DANUBE_RULES", "DEFAULT_RULES", "RingNumbers", "RingRules", "pulsar_rules"]

_U64_STOP: Final = 1 << 64


@dataclass(frozen=True, slots=True)
class RingRules:
    """The rules of one kind of ring, as a value.

    Attributes:
        point_text: What is hashed for a point: of the name, its number among those with equal points, and which point.
        check_name: Raises `ArgumentError` for a name that cannot stand on this ring.
        ties_by_join: A repeated point belongs to the consumer that joined first; otherwise to the smaller name.
        latest_owns_exact: The very slot of a repeated point belongs to the consumer that joined last.
        separator: What stands between the name that points are made of and the instance; None if names are whole.
    """

    point_text: Callable[[str, int, int], bytes]
    check_name: Callable[[object], None]
    ties_by_join: bool
    latest_owns_exact: bool
    separator: str | None = None

    def point_name(self, name: str) -> str:
        """Return the part of a consumer's name that its points are made of.

        Returns:
            What stands before the last separator; the whole name if there is none, or nothing before it.
        """
        if self.separator is None:
            return name
        return name.rpartition(self.separator)[0] or name


def _default_point_text(name: str, _: int, vnode: int) -> bytes:
    # the last NUL ends the name whatever the name holds: "a" + "11" and "a1" + "1" are not one point
    return b"%b\0%d" % (name.encode(), vnode)


def _danube_point_text(name: str, _: int, vnode: int) -> bytes:
    return b"%b-%d" % (name.encode(), vnode)


def _pulsar_point_text(name: str, index: int, vnode: int) -> bytes:
    return b"%b\0%d\0%d" % (name.encode(), index, vnode)


def _check_danube_id(name: object) -> None:
    decimal = isinstance(name, str) and name.isascii() and name.isdecimal() and str(int(name[:20])) == name
    if not decimal or int(str(name)) >= _U64_STOP:
        raise ArgumentError("name", name, "be a consumer id of Danube: the decimal digits of an unsigned 64-bit number")


DEFAULT_RULES: Final = RingRules(_default_point_text, check_name, ties_by_join=False, latest_owns_exact=False)
"""Ties do not depend on the order of joins."""

DANUBE_RULES: Final = RingRules(_danube_point_text, _check_danube_id, ties_by_join=True, latest_owns_exact=True)
"""Danube v0.15.1."""


@configuration()
def pulsar_rules(separator: str | None) -> RingRules:
    """Return the rules of Pulsar's selector: the first keeps a contested point, and equal names are numbered."""
    if separator is not None:
        check_name(separator, "separator")
    return RingRules(_pulsar_point_text, check_name, ties_by_join=True, latest_owns_exact=False, separator=separator)


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
