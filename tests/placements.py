"""A placement that is small enough to be checked by eye."""

from collections.abc import Callable, Iterable, Iterator
from fractions import Fraction
from functools import cache
from itertools import groupby
from typing import ClassVar, Self
from zlib import crc32

from keyshared.hashing import MURMUR3_32, KeyHash

__all__ = ["RankedPlacement", "Ranking"]

SLOTS = 8


class Ranking:
    """For each slot all names in the order of their rank there: a value, like the real ranges."""

    key_hash: ClassVar[KeyHash] = MURMUR3_32  # not what it hashes with: one of which it is known that it refuses no key
    slot_bits: ClassVar[int] = 3

    def __init__(self, weights: dict[str, int]) -> None:
        self.weights = dict(weights)
        self._walks: dict[int, list[str]] = {}  # as far as somebody has asked

    @property
    def owners(self) -> tuple[str, ...]:
        """Everyone who can own something."""
        return tuple(self.weights)

    @property
    def runs(self) -> Iterator[tuple[int, int, str | None]]:
        """Neighbouring slots of one owner together: first slot, one past the last one, owner."""
        start = 0
        for owner, slots in groupby(range(SLOTS), key=self.owner):
            stop = start + len(list(slots))
            yield start, stop, owner
            start = stop

    def run_at(self, slot: int) -> tuple[int, int]:
        """The run that a slot is in."""
        return next((start, stop) for start, stop, _ in self.runs if slot < stop)

    def slot_of(self, key: str | bytes) -> int:
        """The slot of a key."""
        return crc32(key.encode() if isinstance(key, str) else key) % SLOTS

    def walk(self, slot: int) -> Iterator[str]:
        """The names that would own this slot, best first."""
        names = self._walks.get(slot)
        if names is None:
            names = sorted(self.weights, key=lambda name: _rank(name, slot, self.weights[name]))
            self._walks[slot] = names
        return iter(names)

    def owner(self, slot: int) -> str | None:
        """The first name of the walk."""
        return next(self.walk(slot), None)

    def to_json(self) -> dict[str, object]:
        """What tells this placement from another."""
        return {"weights": self.weights}

    def owner_of(self, key: str | bytes) -> str | None:
        """The first name of the walk of the key's slot."""
        return self.owner(self.slot_of(key))

    def finder(self) -> Callable[[bytes], str | None]:
        """`owner_of` for bytes."""
        return self.owner_of


@cache
def _rank(name: str, slot: int, weight: int) -> int:
    return min(crc32(f"{name}/{draw}/{slot}".encode()) for draw in range(weight))


class RankedPlacement:
    """Rendezvous hashing: the smallest number drawn for a slot owns it, so a join moves slots to the newcomer only."""

    ranking: ClassVar[type[Ranking]] = Ranking

    def __init__(self, names: Iterable[str] = ()) -> None:
        self.ranges = self.ranking(dict.fromkeys(names, 1))

    @property
    def consumers(self) -> tuple[str, ...]:
        """Everyone, in join order."""
        return tuple(self.ranges.weights)

    def add(self, name: str, *, weight: float | Fraction = 1) -> list[object]:
        """Join."""
        self.ranges = self.ranking({**self.ranges.weights, name: int(weight)})
        return []

    def remove(self, name: str) -> list[object]:
        """Leave."""
        self.ranges = self.ranking({other: weight for other, weight in self.ranges.weights.items() if other != name})
        return []

    def set_weight(self, name: str, weight: float | Fraction) -> list[object]:
        """Draw more or fewer numbers."""
        self.ranges = self.ranking({**self.ranges.weights, name: int(weight)})
        return []

    def copy(self) -> Self:
        """An independent placement with the same names."""
        twin = type(self)()
        twin.ranges = self.ranges
        return twin

    def __deepcopy__(self, memo: object) -> Self:
        return self.copy()
