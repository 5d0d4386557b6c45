"""Who gets a key: a placement, seen through the key filters of its consumers."""

from collections.abc import Iterable

from keyshared.glob import KeyFilter
from keyshared.placement import Placement
from keyshared.ranges import RangeMap, Weight

__all__ = ["Routing"]


class Routing:
    """Joins a placement with filters: the owner of a key is the first consumer, clockwise, whose filter accepts it.

    A name that the placement knows but that never joined here owns its keys all the same, and nobody answers for it: its keys wait. So do
    the keys of a hole. ``filters`` holds everyone who joined.

    Args:
        placement: Where keys go; copied, so that later changes of the caller's object have no effect here.
        one_key: Treat every key as this one.
    """

    __slots__ = ("_one_key", "_placement", "_ranges", "_selective", "filters")

    def __init__(self, placement: Placement, *, one_key: bytes | None = None) -> None:
        self.filters: dict[str, KeyFilter] = {}
        self._one_key = one_key
        self._selective = 0  # how many filters do not accept everything
        self._placement = placement.copy()
        self._ranges = self._placement.ranges

    @property
    def ranges(self) -> RangeMap:
        """Who owns which slot now, filters aside."""
        return self._ranges

    def owner(self, key: bytes) -> str | None:
        """Name of the key's owner now, or None. O(log vnodes), with filters O(log vnodes + vnodes passed)."""
        if self._one_key is not None:
            key = self._one_key
        if not self._selective:
            name = self._ranges.owner_of(key)
            return name if name in self.filters else None
        slot = self._ranges.slot_of(key)
        if self._ranges.owner(slot) is None:
            return None
        for name in self._ranges.walk(slot):
            accepts = self.filters.get(name)
            if accepts is None:
                return None
            if accepts.accepts(key):
                return name
        return None

    def join(self, name: str, accepts: KeyFilter, weight: Weight) -> None:
        """Let a consumer take part; one that the placement already names keeps its place there."""
        if name not in self._placement.consumers:
            self._placement.add(name, weight=weight)
        self._set_filter(name, accepts)
        self._ranges = self._placement.ranges

    def leave(self, name: str) -> None:
        """Let a consumer's keys go to the others."""
        self._placement.remove(name)
        self._selective -= not self.filters.pop(name).accepts_all
        self._ranges = self._placement.ranges

    def set_filter(self, name: str, accepts: KeyFilter) -> None:
        """Replace what a consumer accepts."""
        self._set_filter(name, accepts)

    def set_weight(self, name: str, weight: Weight) -> None:
        """Change a consumer's share."""
        self._placement.set_weight(name, weight)
        self._ranges = self._placement.ranges

    def replace(self, placement: Placement, members: Iterable[tuple[str, Weight]]) -> None:
        """Take another placement; members that it lacks are added to it in the given order."""
        fresh = placement.copy()
        known = set(fresh.consumers)
        for name, weight in members:
            if name not in known:
                fresh.add(name, weight=weight)
        self._placement = fresh
        self._ranges = fresh.ranges

    def _set_filter(self, name: str, accepts: KeyFilter) -> None:
        before = self.filters.get(name)
        self._selective += (not accepts.accepts_all) - (before is not None and not before.accepts_all)
        self.filters[name] = accepts
