"""The drain gate of units that are larger than a key: all keys of a slot, or of a run of slots.

A unit can come to be held by others than its owner in one way, a change of placement, after which every lane that waits
is asked again. From then on only the owner is handed anything of it. So what stands in a ready list never has to be
asked again when its turn comes.
"""

from collections.abc import Iterable, Sequence

from keyshared._checks import require
from keyshared._dispatch.units import Placed, units_of
from keyshared._window.gate import CountingGate
from keyshared._window.lanes import Consumer, Entry, Lane
from keyshared.config import DrainUnit

__all__ = ["UnitGate"]


class UnitGate(CountingGate):
    """Keeps a lane while somebody besides its owner holds anything of its drain unit, whatever the key.

    All keys of a unit must have one owner: the window's ``owners.owner(key)`` is the owner of the slot of the key, or
    None.

    Args:
        unit: What is handed over as a whole.
        placed: The placement whose slots count. `InFlightWindow.reassign` carries over to another one.

    Complexity:
        O(1) for each call about one delivery or lane, O(log runs) where the unit is a run. There `follow` is
        O(log runs) for each run of which something is known, and for each delivery of one that has changed.

    Example:
        >>> from keyshared.placement import HashRange, RangeMap
        >>> from keyshared.window import InFlightWindow
        >>> class Halves:
        ...     ranges = RangeMap([(HashRange(0, 2), "c1")], slot_bits=1)
        ...     def owner(self, key: bytes) -> str | None:
        ...         return self.ranges.owner_of(key)
        >>> halves = Halves()
        >>> window = InFlightWindow(halves, gate=UnitGate(DrainUnit.RANGE, halves), capacity=10)
        >>> _ = window.add(Consumer("c1", 0, 5)), window.add(Consumer("c2", 1, 5))
        >>> first, = window.offer(0, b"k")
        >>> halves.ranges = RangeMap([(HashRange(0, 2), "c2")], slot_bits=1)
        >>> window.reassign()
        >>> window.wake(), window.offer(1, b"l")        # c1 still holds something of the run
        ([], [])
        >>> [(entry.offset, entry.consumer.name) for entry in window.settle(first)]
        [(1, 'c2')]
    """

    __slots__ = ("_units", "_version")

    def __init__(self, unit: DrainUnit, placed: Placed) -> None:
        self._units = units_of(unit, placed)
        self._version = 0  # the lanes that were placed since then know their unit

    def unit_of(self, key: bytes) -> int:
        """Return the slot, or the first slot of the run, that a key is in now."""
        return self._units.unit_of(key)

    def opened(self, entry: Entry) -> None:
        """Count a delivery that begins."""
        unit = self._unit_of(entry)
        if unit is not None:
            self._units.opened(unit, entry)

    def admits(self, entry: Entry, owner: Consumer) -> bool:
        """Count a delivery to the owner of its key, who was just read; False, uncounted, if others hold the unit."""
        return self._units.admits(self._unit_of(entry), entry, owner)  # type: ignore[arg-type]  # it has a key

    def closed(self, entry: Entry) -> None:
        """Count a delivery that ends. The message still knows its consumer."""
        unit = self._unit_of(entry)
        if unit is not None:
            self._units.closed(unit, entry)

    def releases(self, entry: Entry) -> bool:
        """Count a delivery that ends; False, uncounted, if lanes wait for ends in its unit."""
        unit = self._unit_of(entry)
        return unit is None or self._units.releases(unit, entry)

    def place(self, lane: Lane, key: bytes) -> None:
        """Note which unit a lane is in, whenever its owner is read."""
        lane.unit = self._units.unit_of(key)

    def keeps(self, lane: Lane, owner: Consumer) -> bool:
        """Whether somebody besides the owner of a lane, which was just read, holds something of its unit."""
        return self._units.is_foreign(lane.unit, owner)

    def holder_besides(self, lane: Lane, owner: Consumer) -> Consumer | None:
        """Return who besides the owner holds something of the lane's unit; of several, who joined first. O(holders)."""
        return self._units.holder_besides(self._unit_of_lane(lane), owner)

    def open_besides(self, lane: Lane, owner: Consumer | None) -> list[Entry]:
        """Return what others than the owner hold of the lane's unit, in offset order. O(n log n), n deliveries."""
        return self._units.open_besides(self._unit_of_lane(lane), owner)

    def wait(self, lane: Lane) -> None:
        """Note that a lane begins to drain."""
        self._units.wait(self._unit_of_lane(lane), lane)

    def stop_waiting(self, lane: Lane) -> None:
        """Note that a lane drains no more."""
        self._units.stop_waiting(self._unit_of_lane(lane), lane)

    def take_vacated(self) -> Sequence[Lane]:
        """Return the lanes that drain in units with which somebody has finished since the last call."""
        return self._units.take_vacated() if self._units.vacated else ()

    @property
    def is_behind(self) -> bool:
        """Whether there is another placement than `follow` has seen."""
        return self._units.is_behind

    def follow(self, version: int) -> None:
        """Carry over to the placement of now, which the window calls by this number from now on."""
        self._units.follow()
        self._version = version

    def check_invariants(
        self, version: int, lanes: Iterable[Lane], opened: Iterable[Entry], draining: Iterable[Lane]
    ) -> None:
        """Raise `InvariantError` if something else is counted than is there. For tests; O(n)."""
        require(self._version == version, "units are those of the window's placement")
        for lane in lanes:
            known = self._unit_of_lane(lane)
            require(known == self._units.unit_of(_key(lane)), f"lane {lane.key!r} knows its unit of now, or nothing")
        self._units.check_invariants(opened, draining)

    def _unit_of_lane(self, lane: Lane) -> int:
        """Return the unit of a lane that has a key. Remembers nothing."""
        return lane.unit if lane.version == self._version else self._units.unit_of(_key(lane))

    def _unit_of(self, entry: Entry) -> int | None:
        """Return the unit of a message, None if it has no key. Remembers nothing."""
        lane = entry.lane
        if lane.version == self._version:
            return lane.unit
        key = entry.key if lane.head is None else lane.key
        return None if key is None else self._units.unit_of(key)


def _key(lane: Lane) -> bytes:
    return lane.key  # type: ignore[return-value]  # a lane that is in a unit has one
