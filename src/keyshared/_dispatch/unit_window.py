"""An in-flight window whose drain unit is larger than a key: all keys of a slot, or of a run of slots.

Of the books of `InFlightWindow` nothing changes but one question: may this lane's next message go to its owner? Here it
may only while nobody else holds anything of the lane's unit. Everything that writes a shorter way out of the window's
rules down is therefore left here in favour of the rules themselves.

A unit can come to be held by others than its owner in one way, a change of placement, after which every lane that waits
is asked again. From then on only the owner is handed anything of it. So what stands in a ready list never has to be
asked again when its turn comes.
"""

from typing import Final, Protocol

from keyshared._dispatch.units import Placed, units_of
from keyshared._window.books import Owners
from keyshared._window.lanes import ALONE, Consumer, Entry, Lane, State, WatchedList, WorkList
from keyshared.config import DispatcherConfig, DrainUnit
from keyshared.window import InFlightWindow, by_lowest_offset

__all__ = ["PlacedOwners", "UnitWindow", "window_for"]

_SPILLED: Final = int(State.SPILLED)
_IN_FLIGHT: Final = int(State.IN_FLIGHT)


class PlacedOwners(Owners, Placed, Protocol):
    """Whoever can say which consumer a key belongs to because of the slot that it is in; every placement can."""


class UnitWindow(InFlightWindow):
    """An `InFlightWindow` in which a lane also waits for deliveries of other keys of its drain unit.

    All keys of a unit must have one owner: ``owners.owner(key)`` is the owner of the slot of the key, or None.

    Args:
        owners: Who owns a key, and in which placement. Call `reassign` when the answers may have changed.
        unit: What is handed over as a whole.
        capacity: This and all that follows as `InFlightWindow`.
        max_tracked: Outstanding messages, spilled ones included.
        per_key: Open deliveries per key.
        loaded_per_key: Messages of one key whose payload is in memory.
        draining: The list for lanes that drain, if whoever composes the window wants to be told of them.
        start: What ``cursor.resume_offset`` says before the first offer.

    Complexity:
        As `InFlightWindow`, and O(log runs) more for each delivery where the unit is a run. There `reassign` is O(runs)
        and O(log runs) for each delivery of a run that has changed.

    Example:
        >>> from keyshared.placement import HashRange, RangeMap
        >>> class Halves:
        ...     ranges = RangeMap([(HashRange(0, 2), "c1")], slot_bits=1)
        ...     def owner(self, key: bytes) -> str | None:
        ...         return self.ranges.owner_of(key)
        >>> halves = Halves()
        >>> window = UnitWindow(halves, unit=DrainUnit.RANGE, capacity=10)
        >>> _ = window.add(Consumer("c1", 0, 5)), window.add(Consumer("c2", 1, 5))
        >>> first, = window.offer(0, b"k")
        >>> halves.ranges = RangeMap([(HashRange(0, 2), "c2")], slot_bits=1)
        >>> window.reassign()
        >>> window.wake(), window.offer(1, b"l")        # c1 still holds something of the run
        ([], [])
        >>> [(entry.offset, entry.consumer.name) for entry in window.settle(first)]
        [(1, 'c2')]
    """

    def __init__(
        self,
        owners: PlacedOwners,
        *,
        unit: DrainUnit,
        capacity: int,
        max_tracked: int = 1_000_000,
        per_key: int = 1,
        loaded_per_key: int = 1_000,
        draining: WatchedList | None = None,
        start: int | None = None,
    ) -> None:
        super().__init__(
            owners,
            capacity=capacity,
            max_tracked=max_tracked,
            per_key=per_key,
            loaded_per_key=loaded_per_key,
            draining=draining,
            start=start,
        )
        self._units = units_of(unit, owners)

    def add(self, consumer: Consumer) -> Consumer:
        """Connect a consumer; call `reassign` if keys may move to it."""
        if self._units.follow():
            self._version += 1  # what lanes know of their units is of before
        return super().add(consumer)

    def settle(self, entry: Entry) -> list[Entry]:
        """Settle a message, whatever its state, and let go out what that makes possible.

        Args:
            entry: An outstanding message of this window.

        Returns:
            What was granted.

        Raises:
            EntryStateError: The message is settled already.
        """
        lane, key, consumer = entry.lane, entry.key, entry.consumer
        easy = lane is ALONE or (lane.head is entry and lane.spilled is None)
        if entry.state == _IN_FLIGHT and consumer is not None and key is not None and easy and not self.draining:
            unit = self._units.unit_of(key) if lane is ALONE else self._unit_of(lane)
            if not self._units.is_foreign(unit, consumer):
                return self._settle_shortly(entry, unit)
        self.remove(entry)
        return self.wake()

    def _settle_shortly(self, entry: Entry, unit: int) -> list[Entry]:
        """Let the window of keys settle it, where nobody waits for that and its next message need not wait either."""
        after = entry.after
        self._units.closed(unit, entry)
        granted = super().settle(entry)
        if after is not None and after.state == _IN_FLIGHT:
            self._units.opened(unit, after)  # what goes out by the short way is not counted there
        return granted

    def reassign(self) -> None:
        """Say that owners may have changed; `wake` then asks again for every lane that waits."""
        self._units.follow()
        super().reassign()

    def wake(self) -> list[Entry]:
        """Act on all changes since the last call.

        As the window of keys does; lanes that wait for a unit which only its owner still holds are looked at together
        with the touched lanes, after them, longest waiting first.

        Returns:
            What was granted, in service order.
        """
        if self._units.vacated:
            lanes = self._units.take_vacated()
            if not self._stale:  # else all lanes that wait are looked at anyway
                self._look_again(lanes)
        return super().wake()

    def unit_of(self, key: bytes) -> bytes | int:
        """The drain unit that a key is in now: a slot, or the first slot of a run."""
        return self._units.unit_of(key)

    def holder_elsewhere(self, lane: Lane, owner: Consumer) -> Consumer | None:
        """Who besides its owner holds something that the lane has to wait for, or None. O(holders of its unit)."""
        return self._units.holder_besides(self._unit_of(lane), owner)

    def awaited(self, lane: Lane) -> list[Entry]:
        """The open deliveries that a draining lane waits for, in offset order. O(deliveries of its unit)."""
        owner: Consumer = self.owner_of(lane)  # type: ignore[assignment]  # what drains has one, else it is ownerless
        return self._units.open_besides(self._unit_of(lane), owner)

    def check_invariants(self) -> None:
        """Raise `InvariantError` if the structure contradicts itself. For tests; O(n)."""
        super().check_invariants()
        opened = [entry for consumer in self.consumers.values() for entry in consumer.open.values()]
        self._units.check_invariants(opened, self.draining)

    # what differs inside

    def _offer_first(self, offset: int, key: bytes | None, item: object, lane_key: bytes | None) -> list[Entry]:
        if lane_key is None:
            return super()._offer_first(offset, key, item, lane_key)
        unit = self._units.unit_of(lane_key)
        if unit in self._units.open:
            owner = self.consumers.get(self._owners.owner(lane_key) or "")
            if owner is None or self._units.is_foreign(unit, owner):
                self.lanes[lane_key] = Lane(lane_key)
                return self.offer(offset, key, item)
        granted = super()._offer_first(offset, key, item, lane_key)
        if granted and granted[0].lane is ALONE:
            self._units.opened(unit, granted[0])  # what goes out by the short way is not counted there
        return granted

    def _step(self, lane: Lane, granted: list[Entry]) -> bool:
        entry = lane.candidate
        able = entry is not None and entry.state <= _SPILLED and lane.open < self.per_key
        if able and lane.key not in self.quarantined and self._is_kept(lane):
            self._list(lane, self.draining)
            return False
        return super()._step(lane, granted)

    def _could_get(self, consumer: Consumer, lane: Lane) -> bool:
        return super()._could_get(consumer, lane) and not self._is_kept(lane)

    def _is_kept(self, lane: Lane) -> bool:
        """Whether the lane has an owner, and somebody else holds something of its unit."""
        if lane.key is None:
            return False
        owner = self._owner_now(lane)
        return owner is not None and self._units.is_foreign(lane.unit, owner)  # both were read together

    def _unit_of(self, lane: Lane) -> int:
        """The unit of a lane that has a key. Remembers nothing."""
        if lane.version == self._version:
            return lane.unit
        return self._units.unit_of(lane.key)  # type: ignore[arg-type]  # see above

    def _ask_owner(self, lane: Lane, key: bytes) -> Consumer | None:
        lane.unit = self._units.unit_of(key)
        return super()._ask_owner(lane, key)

    def _look_again(self, lanes: list[Lane]) -> None:
        """Examine the touched lanes, and those of the given draining ones that nobody else keeps any more."""
        granted, self._granted = self._granted, []
        touched, self._touched = self._touched, {}
        freed = [lane for lane in lanes if lane not in touched and not self._is_kept(lane)]
        freed.sort(key=self.draining.__getitem__)
        self._examine_in_turns([*by_lowest_offset(touched), *freed], granted)
        self._granted = granted

    def _open(self, lane: Lane, entry: Entry, consumer: Consumer, granted: list[Entry]) -> None:
        super()._open(lane, entry, consumer, granted)
        if lane.key is not None:
            self._units.opened(self._unit_of(lane), entry)

    def _close(self, entry: Entry) -> None:
        super()._close(entry)
        if entry.key is not None:
            self._units.closed(self._unit_of(entry.lane), entry)

    def _list(self, lane: Lane, where: WorkList) -> None:
        if where is self.draining and lane.listed is not where:
            self._units.wait(self._unit_of(lane), lane)
        super()._list(lane, where)

    def _unlist(self, lane: Lane) -> None:
        if lane.listed is self.draining:
            self._units.stop_waiting(self._unit_of(lane), lane)
        super()._unlist(lane)

    def _recount(self, entry: Entry) -> None:
        super()._recount(entry)
        if entry.state == _IN_FLIGHT and entry.key is not None:
            self._units.opened(self._unit_of(entry.lane), entry)


def window_for(config: DispatcherConfig, owners: PlacedOwners, draining: WatchedList | None = None) -> InFlightWindow:
    """The window that a configuration asks for."""
    if config.unit is DrainUnit.KEY:
        return InFlightWindow(
            owners,
            capacity=config.window,
            max_tracked=config.max_tracked,
            per_key=config.max_in_flight_per_key,
            loaded_per_key=config.max_loaded_per_key,
            one_lane=config.ordering_required,
            draining=draining,
            start=config.start,
        )
    return UnitWindow(
        owners,
        unit=config.unit,
        capacity=config.window,
        max_tracked=config.max_tracked,
        per_key=config.max_in_flight_per_key,
        loaded_per_key=config.max_loaded_per_key,
        draining=draining,
        start=config.start,
    )
