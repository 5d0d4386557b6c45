"""Drains: units of keys that are handed over as a whole, and how long a key that has moved may wait.

A lane drains while deliveries that are open at other consumers than its owner keep it back. Where the unit is the key,
the window knows that by itself. With a larger unit, every open delivery of a slot, or of a run of slots, counts.
"""

from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import Final, Protocol

from keyshared._checks import require
from keyshared._core.feature import Feature
from keyshared._core.lanes import lowest_of
from keyshared._core.reader import Reader
from keyshared._core.records import Consumer, Entry, Lane, Place
from keyshared._core.timers import Duties, Duty, Stage, Timers
from keyshared._core.window import Window
from keyshared.config import DrainUnit
from keyshared.effects import BlockReason, Effect, ReleaseReason
from keyshared.placement.range_map import RangeMap

__all__ = ["Drain", "DrainDeadlines", "DrainUnits", "WatchedPlace"]

_offset_of: Final = attrgetter("offset")
_order_of: Final = attrgetter("order")


class Placed(Protocol):
    """Knows who owns which slot now."""

    @property
    def ranges(self) -> RangeMap:
        """The map of now; another object after each change."""


class DrainUnits(Feature):
    """A gate that is closed while others than the owner hold something of the drain unit of a key.

    Args:
        placed: Says which slot a key is in.
        unit: A slot, or a run of slots with one owner.

    Complexity:
        O(1) for each delivery, O(log runs) where the unit is a run; a change of placement that moves units costs
        O(open deliveries + lanes).

    Source:
        PIP-379's DrainingHashesTracker (slots), Celeriant "The draining protocol" (runs); differs: derived from what is
        open, so a change of placement records nothing, and one that is taken back undoes nothing.
    """

    def __init__(self, window: Window, placed: Placed, unit: DrainUnit) -> None:
        self.gate = window.draining
        self._window = window
        self._placed = placed
        self._is_run = unit is DrainUnit.RANGE
        self._ranges = placed.ranges
        self._holders: dict[int, dict[Consumer, int]] = {}  # how much each consumer has open of a unit
        self._waiting: dict[int, dict[Lane, None]] = {}

    def unit_of(self, lane: Lane) -> int:
        """Return the slot, or the first slot of the run, that the key of a lane is in."""
        if lane.unit is None:
            slot = self._ranges.slot_of(lane.key)  # type: ignore[arg-type]  # lanes without a key are in no unit
            lane.unit = self._ranges.run_at(slot)[0] if self._is_run else slot
        return lane.unit

    def refuses(self, lane: Lane, owner: Consumer) -> bool:
        """Return whether others than the owner hold something of the unit."""
        unit = self.unit_of(lane)
        holders = self._holders.get(unit)
        if not holders or (len(holders) == 1 and owner in holders):
            return False
        self._waiting.setdefault(unit, {})[lane] = None
        return True

    def opened(self, entry: Entry, consumer: Consumer) -> None:
        """Count a delivery that begins."""
        if entry.lane.key is None:
            return
        unit = self.unit_of(entry.lane)
        holders = self._holders.get(unit)
        if holders is None:
            self._holders[unit] = {consumer: 1}
        else:
            holders[consumer] = holders.get(consumer, 0) + 1

    def closed(self, entry: Entry, consumer: Consumer) -> None:
        """Count a delivery that ends; lanes wait for the last one of a consumer."""
        if entry.lane.key is None:
            return
        unit = self.unit_of(entry.lane)
        holders = self._holders[unit]
        holders[consumer] -= 1
        if holders[consumer]:
            return
        del holders[consumer]
        if not holders:
            del self._holders[unit]
        for lane in self._waiting.pop(unit, ()):
            if lane.place is self._window.draining:
                self._window.touched[lane] = None

    def moved(self) -> None:
        """Follow the placement: units may be others now."""
        before, now = self._ranges, self._placed.ranges
        if before is now:
            return
        if not self._is_run and before.key_hash == now.key_hash and before.slot_bits == now.slot_bits:
            self._ranges = now
            return
        self._holders.clear()
        self._waiting.clear()
        for lane in self._window.lanes.values():
            lane.unit = None
        self.restored()

    def restored(self) -> None:
        """Count what is open, in the units of now."""
        self._ranges = self._placed.ranges
        for consumer in self._window.consumers.values():
            for entry in consumer.open.values():
                self.opened(entry, consumer)

    def holder_besides(self, lane: Lane, owner: Consumer | None) -> Consumer | None:
        """Return another consumer than the owner that holds something of the unit; of several, the first."""
        others = [holder for holder in self._holders.get(self.unit_of(lane), ()) if holder is not owner]
        return min(others, key=_order_of, default=None)

    def awaited(self, lane: Lane) -> list[Entry]:
        """Return what others than the owner hold of the unit of a lane, in offset order. O(what these have open)."""
        unit = self.unit_of(lane)
        opened = (e for holder in self._holders.get(unit, ()) if holder is not lane.owner for e in holder.open.values())
        entries = [entry for entry in opened if entry.lane.key is not None and self.unit_of(entry.lane) == unit]
        return sorted(entries, key=_offset_of)

    def check_invariants(self) -> None:
        """Raise `InvariantError` unless units count exactly the open deliveries. For tests; O(n)."""
        opened: dict[int, dict[Consumer, int]] = {}
        for consumer in self._window.consumers.values():
            for entry in consumer.open.values():
                if entry.lane.key is not None:
                    holders = opened.setdefault(self.unit_of(entry.lane), {})
                    holders[consumer] = holders.get(consumer, 0) + 1
        require(self._holders == opened, "units count exactly the open deliveries")
        for lane in self._window.draining.lanes:
            known = lane in self._waiting.get(self.unit_of(lane), ()) or (lane.open and lane.holder is not lane.owner)
            require(bool(known), f"lane {lane.key!r} waits for its unit")


class WatchedPlace(Place):
    """The place of lanes that drain; it notes which lanes come and go, so a lane that does both goes on draining."""

    __slots__ = ("changed",)

    def __init__(self) -> None:
        super().__init__(BlockReason.DRAINING)
        self.changed: dict[Lane, None] = {}

    def put(self, lane: Lane, number: int) -> None:
        """Add a lane at the end, and note it."""
        self.changed[lane] = None
        self.lanes[lane] = number

    def drop(self, lane: Lane) -> None:
        """Take a lane out, and note it."""
        self.changed[lane] = None
        del self.lanes[lane]


class Drain:
    """The drain of one lane: over with the last delivery that it waits for, or at the deadline."""

    __slots__ = ("deadline", "lane")

    def __init__(self, lane: Lane) -> None:
        self.lane = lane
        self.deadline: int | None = None


class DrainDeadlines(Feature):
    """Ends the deliveries that a lane has waited for too long.

    Args:
        draining: The place of lanes that drain, of that window.
        timeout_ms: How long a lane may drain.
        awaited: Function of a lane: the deliveries that it waits for.
        end: Ends a delivery.
    """

    name = "drains"

    def __init__(
        self,
        window: Window,
        draining: WatchedPlace,
        timers: Timers,
        timeout_ms: int,
        awaited: Callable[[Lane], list[Entry]],
        end: Callable[[Entry, ReleaseReason, int], None],
    ) -> None:
        self._window = window
        self._draining = draining
        self._timers = timers
        self._timeout_ms = timeout_ms
        self._awaited = awaited
        self._end = end
        self._drains: dict[Lane, Drain] = {}

    def duties(self) -> Duties:
        """End what a lane waits for. Of one offset, its own deadline acts before that of a drain."""
        return {Drain: Duty(Stage.DELIVERIES, self._lowest, self._due, is_last=True)}

    def _lowest(self, drain: Drain) -> int:
        return min((entry.offset for entry in self._awaited(drain.lane)), default=0)

    def _due(self, drain: Drain, now: int) -> None:
        """End the deliveries that a lane has waited for; if it has to wait for others then, its time begins again."""
        del self._drains[drain.lane]
        self._draining.changed[drain.lane] = None
        for entry in self._awaited(drain.lane):
            self._end(entry, ReleaseReason.DRAIN_TIMEOUT, now)

    def finish(self, now: int) -> Iterable[Effect]:
        """Start the time of lanes that drain since this call, and stop that of those that do no more. O(changes)."""
        changed = self._draining.changed
        if changed:
            for lane in changed:
                if lane.place is not self._draining:
                    self._stop(lane)
                elif lane not in self._drains:
                    self._start(lane, now + self._timeout_ms)
            changed.clear()
        return ()

    def _start(self, lane: Lane, deadline: int) -> None:
        drain = self._drains[lane] = Drain(lane)
        self._timers.start(drain, deadline)

    def _stop(self, lane: Lane) -> None:
        drain = self._drains.pop(lane, None)
        if drain is not None:
            drain.deadline = None

    def dump(self, now: int) -> object:
        """Return the first offset of each lane that drains, and the time that it has left."""
        rows: list[list[int]] = []
        for lane in self._draining.lanes:
            deadline: int = self._drains[lane].deadline  # type: ignore[assignment]  # it has not come yet
            rows.append([lowest_of(lane), deadline - now])
        return rows or None

    def load(self, row: Reader, now: int) -> None:
        """Set the deadlines of lanes that were draining."""
        for each in row.items():
            first, remaining = each.items(2)
            entry = self._window.find(first.integer())
            if entry is None or entry.lane.place is not self._draining:
                raise each.refuse("be the first offset of a lane that drains")
            self._start(entry.lane, now + remaining.integer())

    def check_invariants(self) -> None:
        """Raise `InvariantError` unless exactly the lanes that drain have a deadline. For tests; O(n)."""
        require(set(self._drains) == set(self._draining.lanes), "lanes have a drain deadline exactly while they drain")
        for drain in self._drains.values():
            require(drain.deadline is not None, "a lane that drains has a deadline")
