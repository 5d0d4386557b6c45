"""Half-open ranges of slots, and what a change of owners moved."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple, Self

from keyshared._checks import check_int, check_several, checked_kinds
from keyshared.errors import ArgumentError, shown

__all__ = ["HashRange", "Moved", "gained", "lost"]


@dataclass(frozen=True, slots=True, order=True)
class HashRange:
    """A run of slots, half-open like Python's ``range``.

    Attributes:
        start: First slot.
        stop: One past the last slot.

    Raises:
        ArgumentError: Not ints, negative, or empty.

    Source:
        PIP-486 ranges are half-open as well; PIP-379's and Celeriant's are inclusive and are converted at the edge.

    Example:
        >>> 9 in HashRange(0, 10), 10 in HashRange(0, 10), len(HashRange(0, 10))
        (True, False, 10)
    """

    start: int
    stop: int

    def __post_init__(self) -> None:
        check_int("start", self.start, 0)
        if type(self.stop) is not int or self.stop <= self.start:
            raise ArgumentError("stop", self.stop, f"be an int greater than start ({shown(self.start)})")

    @classmethod
    def inclusive(cls, first: int, last: int) -> Self:
        """Read a range that names its last slot, as Pulsar and Celeriant write them.

        Raises:
            ArgumentError: Not ints, negative, or the last one comes before the first.

        Example:
            >>> HashRange.inclusive(0, 0xFFFF)
            HashRange(start=0, stop=65536)
        """
        check_int("last", last)
        return cls(first, last + 1)

    def __contains__(self, slot: object) -> bool:
        return isinstance(slot, int) and self.start <= slot < self.stop

    def __len__(self) -> int:
        return self.stop - self.start


class Moved(NamedTuple):
    """A run of slots whose owner is not the same in two placements.

    Attributes:
        start: First slot.
        stop: One past the last slot.
        old: The owner before, or None for a hole.
        new: The owner now, or None for a hole.
    """

    start: int
    stop: int
    old: str | None
    new: str | None


def gained(moves: Iterable[Moved]) -> dict[str, tuple[HashRange, ...]]:
    """List what every consumer gained by a change, as placements and `RangeMap.moved` return it.

    Returns:
        Ranges by consumer, in slot order and as long as can be; only consumers that gained something, in the order of
        the first slot that they gained.

    Raises:
        ArgumentError: One of them is no move.

    Example:
        >>> gained([Moved(0, 5, "a", "c"), Moved(5, 9, "b", "c")])
        {'c': (HashRange(start=0, stop=9),)}
    """
    return _joined((move.new, move.start, move.stop) for move in _checked(moves))


def lost(moves: Iterable[Moved]) -> dict[str, tuple[HashRange, ...]]:
    """List what every consumer lost by a change, the counterpart of `gained`.

    Example:
        >>> lost([Moved(0, 5, "a", "c"), Moved(5, 9, "b", "c")])
        {'a': (HashRange(start=0, stop=5),), 'b': (HashRange(start=5, stop=9),)}
    """
    return _joined((move.old, move.start, move.stop) for move in _checked(moves))


def _checked(moves: Iterable[Moved]) -> Iterable[Moved]:
    return checked_kinds("move", check_several("moves", moves, "moves"), Moved)


def _joined(spans: Iterable[tuple[str | None, int, int]]) -> dict[str, tuple[HashRange, ...]]:
    """Gather ranges by consumer, touching ones joined; holes are left out."""
    found: dict[str, list[HashRange]] = {}
    for name, start, stop in spans:
        if name is None:
            continue
        own = found.setdefault(name, [])
        if own and own[-1].stop == start:
            start = own.pop().start  # noqa: PLW2901 - the range goes on
        own.append(HashRange(start, stop))
    return {name: tuple(own) for name, own in found.items()}
