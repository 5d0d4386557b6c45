"""The owner of each slot of a ring, without going through all of its points after each change.

A ring changes at the points of one consumer. So its map finds owners among the points at first, and derives its runs
once so many were asked for that this pays; and what moved is worked out at those points only, if it is read.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Final, overload

from keyshared.hashing.named import KeyHash, required_key_bytes
from keyshared.placement.ranges import RangeMap
from keyshared.placement.ring_points import Point, RingPoints
from keyshared.placement.spans import Moved

__all__ = ["RingMoves", "RingRanges"]

_LOOKUPS_PER_RUN: Final = 8  # among the points: both ends of a run are looked for, over several of them
_POINTS_PER_LOOKUP: Final = 8  # deriving costs for eight points what a lookup among the points costs more than in runs


class RingRanges(RangeMap):
    """The map of a ring: a `RangeMap` that derives its runs from the points when they are wanted.

    Args:
        points: All points of the ring.
        key_hash: Which hash turns a key into a slot.
        slot_bits: There are ``2**slot_bits`` slots.

    Complexity:
        O(1) to build. `owner`, `owner_of`, `run_at` and `walk` take O(log p) for each point that they pass, p points in
        all; every other query derives the runs, in O(p), unless they are there.
    """

    __slots__ = ("_lookups", "_points")

    def __init__(self, points: RingPoints, key_hash: KeyHash, slot_bits: int) -> None:
        self._set_space(key_hash, slot_bits)
        self._points = points
        self._lookups = len(points) // _POINTS_PER_LOOKUP  # before the runs are derived
        self._stops = ()

    def owner(self, slot: int) -> str | None:
        """See `RangeMap.owner`."""
        if self._stops or self._has_runs():
            return self._runs[bisect_right(self._stops, self._checked_slot(slot))]
        return self._points.owner_at(self._checked_slot(slot))

    def run_at(self, slot: int) -> tuple[int, int]:
        """See `RangeMap.run_at`."""
        if self._stops or self._has_runs(_LOOKUPS_PER_RUN):
            index = bisect_right(self._stops, self._checked_slot(slot))
            return self._stops[index - 1] if index else 0, self._stops[index]
        return self._points.run_at(self._checked_slot(slot), 1 << self._slot_bits)

    def owner_of(self, key: str | bytes) -> str | None:
        """See `RangeMap.owner_of`."""
        stops = self._stops
        if stops:
            data: bytes = key if key.__class__ is bytes else required_key_bytes(key)
            try:
                slot = self._function(data) >> self._shift
                if slot >= 0:  # as in `RangeMap`
                    return self._runs[bisect_right(stops, slot)]
            except Exception:  # noqa: BLE001, S110  # likewise
                pass
        return self.owner(self.slot_of(key))

    def walk(self, slot: int) -> Iterator[str]:
        """See `RangeMap.walk`."""
        if self._stops or self._has_runs():
            return self._walk_from(bisect_right(self._stops, self._checked_slot(slot)))
        return self._walk_points(self._checked_slot(slot))

    def _walk_points(self, slot: int) -> Iterator[str]:
        size = 1 << self._slot_bits
        seen: set[str | None] = {None}
        turn, at = 0, slot
        while turn + at < size + slot:
            if self._has_runs():
                yield from (name for name in RangeMap.walk(self, slot) if name not in seen)
                return
            owner = self._points.owner_at(at)
            if owner is not None and owner not in seen:
                yield owner
                seen.add(owner)
            stop = self._points.stop_at(at)
            if stop is None or stop == size:
                turn, at = turn + size, 0
            else:
                at = stop

    def _has_runs(self, lookups: int = 1) -> bool:
        """Count lookups, and return whether they find runs."""
        if self._lookups > 0:
            self._lookups -= lookups
        else:
            self._derive()
        return bool(self._stops)

    def _derive(self) -> None:
        if not self._stops:
            stops, owners = self._points.runs(1 << self._slot_bits)
            self._fill(stops, owners, self._key_hash, self._slot_bits)


class RingMoves(Sequence[Moved]):
    """The slots that a change of a ring moved, in order; worked out when it is first read.

    Equal to any list of the same moves.

    Args:
        before: All points before the change.
        after: All points after it.
        changed: Those that came, or those that went.
        size: The number of slots.

    Complexity:
        O(1) until it is read; then O(d log p), d points changed and p in all.
    """

    __slots__ = ("_after", "_before", "_changed", "_moves", "_size")

    _moves: list[Moved] | None

    def __init__(self, before: RingPoints, after: RingPoints, changed: list[Point], size: int) -> None:
        self._before = before
        self._after = after
        self._changed = changed
        self._size = size
        self._moves = None

    def _read(self) -> list[Moved]:
        if self._moves is None:
            self._moves = self._worked_out()
        return self._moves

    def _worked_out(self) -> list[Moved]:
        moves: list[Moved] = []
        # Those that came or went are all on the side that has more; one stretch of it is never two on the other side.
        richer = max(self._before, self._after, key=len)
        for start, stop in richer.stretches(self._changed, self._size):
            old, new = self._before.owner_at(start), self._after.owner_at(start)
            if old == new:
                continue
            if moves and moves[-1][1:] == (start, old, new):
                start = moves.pop().start  # noqa: PLW2901 - the run goes on
            moves.append(Moved(start, stop, old, new))
        return moves

    def __len__(self) -> int:
        return len(self._read())

    @overload
    def __getitem__(self, index: int) -> Moved: ...
    @overload
    def __getitem__(self, index: slice) -> list[Moved]: ...
    def __getitem__(self, index: int | slice) -> Moved | list[Moved]:
        return self._read()[index]

    def __iter__(self) -> Iterator[Moved]:
        return iter(self._read())

    def __eq__(self, other: object) -> bool:
        if isinstance(other, RingMoves):
            return self._read() == other._read()
        return self._read() == other if isinstance(other, list) else NotImplemented

    __hash__ = None  # type: ignore[assignment]  # as of a list

    def __repr__(self) -> str:
        return repr(self._read())

    def __reduce__(self) -> tuple[object, ...]:
        return list, (self._read(),)
