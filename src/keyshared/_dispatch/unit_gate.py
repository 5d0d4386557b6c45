"""The drain gate of units that are larger than a key: all keys of a slot, or of a run of slots.

A unit can come to be held by others than its owner in one way, a change of placement, after which every lane that waits
is asked again. From then on only the owner is handed anything of it. So what stands in a ready list never has to be
asked again when its turn comes.
"""

from collections.abc import Callable, Iterable, Sequence, Sized
from typing import Any, Protocol

from keyshared._checks import check_kind, configuration, require
from keyshared._dispatch.units import Placed, units_of
from keyshared._window.books import Owners
from keyshared._window.gate import CountingGate, DrainGate, KeyGate
from keyshared._window.lanes import Consumer, Entry, Lane
from keyshared._window.watched import WatchedList
from keyshared.config import DispatcherConfig, DrainUnit, GroupLimits, Rules
from keyshared.errors import ArgumentError
from keyshared.window import InFlightWindow

__all__ = ["PlacedOwners", "UnitGate", "check_rules", "window_for"]


class PlacedOwners(Owners, Placed, Protocol):
    """Whoever can say which consumer a key belongs to because of the slot that it is in, as builders can."""


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


def check_rules(rules: Rules, config: DispatcherConfig) -> Rules:
    """Return rules that fit a configuration.

    Raises:
        ArgumentError: They are no `Rules`.
        ConfigError: They contradict the configuration.
    """
    check_kind("rules", rules, Rules, ", or None")
    for function, setting, is_set, why in (
        ("group_of", "ordering_required", config.ordering_required, "its one lane is in one group"),
        ("limit_of", "ordering_required", config.ordering_required, "its one lane has one limit"),
        ("latest_only", "ordering_required", config.ordering_required, "its one lane has messages of many keys"),
        ("group_of", "token_bytes", config.token_bytes is not None, "the lowest message could wait for a closed group"),
        ("latest_only", "token_bytes", config.token_bytes is not None, "superseding makes holes whatever is held back"),
        ("latest_only", "latest_only", config.latest_only, "that is set for every key already"),
    ):
        if is_set and getattr(rules, function) is not None:
            with configuration():
                raise ArgumentError("rules", rules, f"have no {function} with {setting}: {why}")
    return rules


def window_for(
    config: DispatcherConfig, owners: PlacedOwners, connected: Sized = (), rules: Rules | None = None
) -> InFlightWindow:
    """The window that a configuration and rules ask for; ``connected`` is who is connected, at any later moment."""
    kinds: list[type[InFlightWindow]] = []
    settings: dict[str, Any] = {}
    rules = Rules(mark="none") if rules is None else rules
    if config.look_ahead is not None:
        from keyshared._dispatch.look_ahead import LookAheadWindow, Reach  # noqa: PLC0415  # only where it is used

        kinds.append(LookAheadWindow)
        settings["reach"] = Reach(config.look_ahead, config.max_in_flight_per_consumer, connected)
    if config.token_bytes is not None:
        from keyshared._dispatch.budget import BudgetedWindow  # noqa: PLC0415  # as above

        kinds.append(BudgetedWindow)
    if rules.group_of is not None or config.max_in_flight is not None:
        from keyshared._dispatch.group_book import GroupBook  # noqa: PLC0415  # as above
        from keyshared._dispatch.scopes import ScopedBatchWindow, ScopedWindow  # noqa: PLC0415  # as above

        kinds.append(ScopedWindow if config.batch_per_key == 1 else ScopedBatchWindow)
        limits = GroupLimits() if rules.group_of is None else config.group  # all keys are in one that nobody asked for
        settings |= {"book": GroupBook(rules.group_of, limits), "most_open": config.max_in_flight}
    if rules.limit_of is not None or rules.latest_only is not None:
        kinds += _kinds_of_rules(config, rules)
        settings["rules"] = rules
    if config.latest_only:
        from keyshared._dispatch.latest import LatestWindow  # noqa: PLC0415  # as above

        kinds.append(LatestWindow)
    if config.batch_per_key > 1:
        from keyshared._dispatch.batches import BatchWindow  # noqa: PLC0415  # as above

        kinds.append(BatchWindow)
        settings["batch"] = config.batch_per_key
    gate: DrainGate | None = None if config.unit is DrainUnit.KEY else UnitGate(config.unit, owners)
    if config.sessions is not None:
        from keyshared._dispatch.gates import Gates  # noqa: PLC0415  # only where it is used

        gate = Gates(KeyGate() if gate is None else gate)
    make: Callable[..., InFlightWindow] = InFlightWindow
    if kinds:
        from keyshared._window.kinds import one_kind  # noqa: PLC0415  # as above

        make = one_kind(*kinds)
    window = make(
        owners,
        gate=gate,
        capacity=config.window,
        max_tracked=config.max_tracked if config.spill else config.window,
        per_key=config.max_in_flight_per_key,
        loaded_per_key=config.max_loaded_per_key,
        spills=config.spill,
        one_lane=config.ordering_required,
        draining=None if config.drain_timeout_ms is None else WatchedList(),
        start=config.start,
        **settings,
    )
    _give_cursor(window, config)
    return window


def _kinds_of_rules(config: DispatcherConfig, rules: Rules) -> list[type[InFlightWindow]]:
    """The kinds of window that rules of a single key ask for."""
    kinds: list[type[InFlightWindow]] = []
    if rules.limit_of is not None:
        from keyshared._dispatch.key_limits import KeyLimitBatchWindow, KeyLimitWindow  # noqa: PLC0415  # where used

        kinds.append(KeyLimitWindow if config.batch_per_key == 1 else KeyLimitBatchWindow)
    if rules.latest_only is not None:
        from keyshared._dispatch.latest import KeyLatestWindow  # noqa: PLC0415  # as above

        kinds.append(KeyLatestWindow)
    return kinds


def _give_cursor(window: InFlightWindow, config: DispatcherConfig) -> None:
    """Replace the cursor by one of the kind that a configuration asks for, if it asks for any."""
    if config.token_bytes is not None:
        from keyshared._window.holes import MeasuringCursor  # noqa: PLC0415  # only where it is used
        from keyshared._window.kinds import one_kind  # noqa: PLC0415  # as above
        from keyshared._window.watched import WatchedCursor  # noqa: PLC0415  # as above

        kinds = [MeasuringCursor, WatchedCursor] if config.tell_settled or config.measure else [MeasuringCursor]
        window.cursor = one_kind(*kinds)(config.start, budget=config.token_bytes)
    if config.redrive:
        from keyshared._window.beside import SideCursor  # noqa: PLC0415  # as above

        window.cursor = SideCursor(config.start)


def _key(lane: Lane) -> bytes:
    return lane.key  # type: ignore[return-value]  # a lane that is in a unit has one
