"""The window that a configuration and rules ask for, once they are known to fit each other."""

from collections.abc import Callable, Sized
from typing import Any, Protocol, TypeAlias

from keyshared._checks import check_kind, configuration
from keyshared._dispatch.units import Placed
from keyshared._window.books import Owners
from keyshared._window.gate import DrainGate, KeyGate
from keyshared._window.watched import WatchedList
from keyshared.config import DispatcherConfig, DrainUnit, GroupLimits, Rules
from keyshared.errors import ArgumentError
from keyshared.window import InFlightWindow

__all__ = ["PlacedOwners", "check_rules", "window_for"]

_Settings: TypeAlias = dict[str, Any]


class PlacedOwners(Owners, Placed, Protocol):
    """Whoever can say which consumer a key belongs to because of the slot that it is in, as builders can."""


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
    kinds, settings = _kinds(config, connected, Rules(mark="none") if rules is None else rules)
    make: Callable[..., InFlightWindow] = InFlightWindow
    if kinds:
        from keyshared._window.kinds import one_kind  # noqa: PLC0415  # only where it is used

        make = one_kind(*kinds)
    window = make(
        owners,
        gate=_gate(config, owners),
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


def _kinds(config: DispatcherConfig, connected: Sized, rules: Rules) -> tuple[list[type[InFlightWindow]], _Settings]:
    """The kinds of window that are wanted in one, and what these want to know."""
    kinds: list[type[InFlightWindow]] = []
    settings: _Settings = {}
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
    return kinds, settings


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


def _gate(config: DispatcherConfig, owners: PlacedOwners) -> DrainGate | None:
    """The gate that the drain unit and sessions ask for; None for that of keys, which a window has by itself."""
    gate: DrainGate | None = None
    if config.unit is not DrainUnit.KEY:
        from keyshared._dispatch.unit_gate import UnitGate  # noqa: PLC0415  # only where it is used

        gate = UnitGate(config.unit, owners)
    if config.sessions is not None:
        from keyshared._dispatch.gates import Gates  # noqa: PLC0415  # as above

        gate = Gates(KeyGate() if gate is None else gate)
    return gate


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
