"""Who holds something open in which drain unit.

A *drain unit* is what is handed over as a whole when the placement changes: one key, every key of a slot, or every key
of a run of slots. For a single key the lane itself knows who holds it; for the larger ones it is counted here, from
nothing but the open deliveries: there is no list of reassignments that could be forgotten, doubled or left behind.

A unit is named by an int that means something in one placement only: the slot, or the first slot of the run. `follow`
carries everything over to another placement.
"""

from collections.abc import Container, Iterable
from itertools import chain
from operator import attrgetter
from typing import Final, Protocol

from keyshared._window.lanes import Consumer, Entry, Lane
from keyshared.config import DrainUnit
from keyshared.errors import InvariantError
from keyshared.placement.ranges import RangeMap

__all__ = ["Placed", "RangeUnits", "SlotUnits", "units_of"]

Holders = dict[Consumer, dict[int, Entry]]
"""Who holds what, by offset; nobody who holds nothing."""

_offset_of: Final = attrgetter("offset")


class Placed(Protocol):
    """Whoever has a placement; every builder of one does."""

    @property
    def ranges(self) -> RangeMap:
        """Who owns which slot now; the same object until something changes."""
        ...


class SlotUnits:
    """Open deliveries and waiting lanes by slot. Messages without a key are in no unit.

    Args:
        placed: Whose placement says which slot a key is in.

    Attributes:
        open: For each unit of which something is open: who holds what of it; or the delivery itself while there was
            never another one at the same time.
        vacated: Units that somebody has finished with while lanes wait for them; clear it when you have seen them.

    Complexity:
        O(1) for each call about one delivery or lane.

    Source:
        PIP-379's DrainingHashesTracker; differs: not only what is being drained is counted, but all that is open, so
        that a change of placement has nothing to record, and one that is taken back nothing to undo.
    """

    __slots__ = ("_placed", "_ranges", "_waiting", "open", "vacated")

    def __init__(self, placed: Placed) -> None:
        self.open: dict[int, Entry | Holders] = {}
        self.vacated: dict[int, None] = {}
        self._placed = placed
        self._ranges = placed.ranges
        self._waiting: dict[int, dict[Lane, None]] = {}

    def unit_of(self, key: bytes) -> int:
        """The unit that a key is in, as of the last `follow`."""
        return self._ranges.slot_of(key)

    # what is open

    def opened(self, unit: int, entry: Entry) -> None:
        """Count a delivery that begins."""
        held = self.open.get(unit)
        if held is None:
            self.open[unit] = entry
        else:
            self._spread(unit, held).setdefault(_holder(entry), {})[entry.offset] = entry

    def admits(self, unit: int, entry: Entry, owner: Consumer) -> bool:
        """Count a delivery to the owner that begins; False, uncounted, if somebody else holds something of the unit."""
        held = self.open.get(unit)
        if held is None:
            self.open[unit] = entry
        elif self.is_foreign(unit, owner):
            return False
        else:
            self._spread(unit, held).setdefault(owner, {})[entry.offset] = entry
        return True

    def closed(self, unit: int, entry: Entry) -> None:
        """Count a delivery that ends."""
        held = self.open[unit]
        if held is entry:
            del self.open[unit]
        else:
            holders, holder = self._spread(unit, held), _holder(entry)
            mine = holders[holder]
            del mine[entry.offset]
            if mine:
                return
            del holders[holder]
            if not holders:
                del self.open[unit]
        if unit in self._waiting:
            self.vacated[unit] = None

    def releases(self, unit: int, entry: Entry) -> bool:
        """Count a delivery that ends; False, uncounted, if lanes wait for ends in the unit."""
        if unit in self._waiting:
            return False
        self.closed(unit, entry)
        return True

    def is_foreign(self, unit: int, owner: Consumer) -> bool:
        """Whether somebody else than the owner holds something of the unit."""
        held = self.open.get(unit)
        if held is None:
            return False
        if type(held) is Entry:
            return held.consumer is not owner
        return len(held) > 1 or owner not in held

    def holder_besides(self, unit: int, owner: Consumer) -> Consumer | None:
        """Who holds something of the unit besides the owner; of several the one who joined first. O(holders)."""
        others = (holder for holder in self._holders(unit) if holder is not owner)
        return min(others, key=_order_of, default=None)

    def open_besides(self, unit: int, owner: Consumer | None) -> list[Entry]:
        """What others than the owner hold of the unit, in offset order. O(n log n), n deliveries."""
        held = self._holders(unit)
        others = chain.from_iterable(mine.values() for holder, mine in held.items() if holder is not owner)
        return sorted(others, key=_offset_of)

    def _holders(self, unit: int) -> Holders:
        held = self.open.get(unit, {})
        return {_holder(held): {held.offset: held}} if isinstance(held, Entry) else held

    def _spread(self, unit: int, held: Entry | Holders) -> Holders:
        """Who holds what of a unit of which more than one delivery is, or was, open."""
        if not isinstance(held, Entry):
            return held
        spread = self.open[unit] = {_holder(held): {held.offset: held}}
        return spread

    # who waits

    def wait(self, unit: int, lane: Lane) -> None:
        """Note that a lane waits for the end of deliveries of a unit."""
        self._waiting.setdefault(unit, {})[lane] = None

    def stop_waiting(self, unit: int, lane: Lane) -> None:
        """Note that it does no more."""
        lanes = self._waiting[unit]
        del lanes[lane]
        if not lanes:
            del self._waiting[unit]

    def take_vacated(self) -> list[Lane]:
        """The lanes that wait for deliveries of a vacated unit; none is vacated after that."""
        vacated, self.vacated = self.vacated, {}
        return [lane for unit in vacated for lane in self._waiting.get(unit, ())]

    # another placement

    @property
    def is_behind(self) -> bool:
        """Whether the placement of now is another one than `follow` has seen."""
        return self._ranges is not self._placed.ranges

    def follow(self) -> None:
        """Carry over to the placement of now. O(1), unless keys are in other slots there: O(open deliveries)."""
        before, self._ranges = self._ranges, self._placed.ranges
        if not _same_space(before, self._ranges):
            self._refile(list(self.open), list(self._waiting))

    def check_invariants(self, entries: Iterable[Entry], waiting: Iterable[Lane]) -> None:
        """Recount. For tests; O(n).

        Args:
            entries: The open deliveries.
            waiting: The lanes that wait for others.

        Raises:
            InvariantError: Something else is counted than is there.
        """
        fresh = type(self)(self._placed)
        for entry in entries:
            if entry.key is not None:
                fresh.opened(fresh.unit_of(entry.key), entry)
        for lane in waiting:
            fresh.wait(fresh.unit_of(_key(lane)), lane)
        if {unit: fresh._holders(unit) for unit in fresh.open} != {unit: self._holders(unit) for unit in self.open}:
            raise InvariantError("units count exactly the open deliveries")
        if fresh._waiting != self._waiting:
            raise InvariantError("units know exactly the lanes that wait for them")

    def _refile(self, opened: Iterable[int], waiting: Iterable[int]) -> None:
        """Put what is known under these names of before under its names of now."""
        self.vacated.clear()
        entries: list[Entry] = []
        for unit in opened:
            for mine in self._holders(unit).values():
                entries.extend(mine.values())
            del self.open[unit]
        lanes = [lane for unit in waiting for lane in self._waiting.pop(unit)]
        for entry in entries:
            self.opened(self.unit_of(_key(entry)), entry)
        for lane in lanes:
            self.wait(self.unit_of(_key(lane)), lane)


class RangeUnits(SlotUnits):
    """Open deliveries and waiting lanes by run: the longest stretch of slots around a key with one owner.

    Args:
        placed: Whose placement has the runs that count.

    Complexity:
        O(log runs) for each call about one delivery or lane. `follow` is O(log runs) for each run of which something is
        known, and for each delivery and lane of a run that has become another one; what lies in a run that stays as it
        is is not looked at.

    Source:
        Celeriant "The draining protocol"; differs: derived from what is open, not from recorded reassignments.
    """

    __slots__ = ()

    def unit_of(self, key: bytes) -> int:
        """The unit that a key is in now."""
        return self._ranges.run_at(self._ranges.slot_of(key))[0]

    def follow(self) -> None:
        """Carry over to the placement of now."""
        before, self._ranges = self._ranges, self._placed.ranges
        if before is self._ranges:
            return
        known = sorted(self.open.keys() | self._waiting.keys())
        if _same_space(before, self._ranges):
            known = [start for start in known if before.run_at(start) != self._ranges.run_at(start)]
        self._refile(_among(known, self.open), _among(known, self._waiting))


def units_of(unit: DrainUnit, placed: Placed) -> SlotUnits:
    """The books for a unit that is larger than a key."""
    return (RangeUnits if unit is DrainUnit.RANGE else SlotUnits)(placed)


def _same_space(one: RangeMap, other: RangeMap) -> bool:
    return (one.key_hash, one.slot_bits) == (other.key_hash, other.slot_bits)


def _among(units: Iterable[int], known: Container[int]) -> list[int]:
    return [unit for unit in units if unit in known]


def _key(keyed: Entry | Lane) -> bytes:
    return keyed.key  # type: ignore[return-value]  # what has no key is in no unit


def _holder(entry: Entry) -> Consumer:
    return entry.consumer  # type: ignore[return-value]  # whatever is in flight has one, also while it is closed


def _order_of(consumer: Consumer) -> int:
    return consumer.order
