"""The features that a configuration asks for: the only place that lists them."""

from collections.abc import Callable
from typing import Any

from keyshared._checks import check_bool, check_int, configuration
from keyshared._core.ack_holes import AckHoles
from keyshared._core.drains import DrainDeadlines, DrainUnits, WatchedPlace
from keyshared._core.feature import Feature
from keyshared._core.groups import GroupBook, Groups, TotalQuota
from keyshared._core.health import Measure, TellSettled
from keyshared._core.membership import ready_list
from keyshared._core.quotas import Clock, Quota
from keyshared._core.records import Consumer, Entry, Lane, Place, Rule
from keyshared._core.rotation import Rotation
from keyshared._core.routing import Routing
from keyshared._core.sessions import Sessions
from keyshared._core.timers import Timers
from keyshared._core.window import Window
from keyshared.config import DispatcherConfig, DrainUnit, Rules
from keyshared.cursor import Cursor
from keyshared.effects import ReleaseReason
from keyshared.errors import ArgumentError

__all__ = ["Chosen", "WindowParts", "window_for"]

_UNBOUNDED = 1 << 62


class WindowParts:
    """A window, and the quotas that its lanes share.

    Attributes:
        window: The window.
        total: The quota of the subscription; None if it has no limit.
        book: The groups; None if there are none.
    """

    def __init__(self, window: Window, total: Quota[Consumer] | None, book: GroupBook | None) -> None:
        self.window = window
        self.total = total
        self.book = book

    def new_ready(self) -> Place:
        """Return the ready list of a new consumer."""
        return ready_list() if self.book is None else Rotation(self.book.changed)


def window_for(config: DispatcherConfig, rules: Rules | None, routing: Routing, clock: Clock) -> WindowParts:
    """Return the window that a configuration and rules ask for."""
    has_total = config.max_in_flight is not None or config.max_ack_holes is not None
    total: Quota[Consumer] | None = Quota(limit=config.max_in_flight) if has_total else None
    quotas = () if total is None else (total,)
    has_groups = rules is not None and rules.group_of is not None
    book = GroupBook(clock, config.group) if has_groups else None
    most = config.batch_per_key if config.batch_per_key > 1 else config.max_in_flight_per_key
    loaded = config.max_loaded_per_key if config.spill else _UNBOUNDED
    window = Window(
        routing,
        Cursor(config.start),
        capacity=config.window,
        max_tracked=config.max_tracked if config.spill else config.window,
        rule=Rule(most, config.batch_per_key, loaded, quotas, latest=config.latest_only),
        rule_of=None if rules is None else _rule_of(config, rules, book, quotas, loaded),
        total=total,
        spills=config.spill,
    )
    return WindowParts(window, total, book)


class _RuleOf:
    """Asks the rules of the user; an object, so that a copy of the window goes by quotas of its own."""

    def __init__(
        self,
        config: DispatcherConfig,
        rules: Rules,
        book: GroupBook | None,
        quotas: tuple[Quota[Consumer], ...],
        loaded: int,
    ) -> None:
        self._rules = rules
        self._book = book
        self._quotas = quotas
        self._loaded = loaded
        self._batch = config.batch_per_key
        self._most = config.batch_per_key if config.batch_per_key > 1 else config.max_in_flight_per_key
        self._latest = config.latest_only

    def __call__(self, key: bytes) -> Rule:
        limit_of, latest_only, group_of = self._rules.limit_of, self._rules.latest_only, self._rules.group_of
        limit = self._most if limit_of is None else min(_limit_answer(limit_of, key), self._loaded)
        latest = self._latest if latest_only is None else _bool_answer(latest_only, key)
        quotas = self._quotas
        if group_of is not None and self._book is not None:
            quotas = (self._book.named(_group_answer(group_of, key)), *quotas)
        return Rule(limit, self._batch, self._loaded, quotas, latest=latest)


def _rule_of(
    config: DispatcherConfig,
    rules: Rules,
    book: GroupBook | None,
    quotas: tuple[Quota[Consumer], ...],
    loaded: int,
) -> Callable[[bytes], Rule] | None:
    """Return what asks the rules of the user; None if they answer nothing."""
    if rules.limit_of is None and rules.latest_only is None and rules.group_of is None:
        return None
    return _RuleOf(config, rules, book, quotas, loaded)


@configuration()
def _limit_answer(limit_of: Callable[[bytes], Any], key: bytes) -> int:
    return check_int("limit_of", _ask("limit_of", limit_of, key), 1)


@configuration()
def _bool_answer(latest_only: Callable[[bytes], Any], key: bytes) -> bool:
    return check_bool("latest_only", _ask("latest_only", latest_only, key))


@configuration()
def _group_answer(group_of: Callable[[bytes], Any], key: bytes) -> str:
    answer = _ask("group_of", group_of, key)
    if answer is None:
        return ""
    if type(answer) is not str:
        raise ArgumentError("group_of", answer, "be a str or None")
    return answer


def _ask(name: str, function: Callable[[bytes], Any], key: bytes) -> Any:  # noqa: ANN401  # whatever a user's function returns
    try:
        return function(key)
    except Exception as error:
        raise ArgumentError(name, error, "answer for every key, and raise nothing") from error


class Chosen:
    """The features in use.

    Args:
        parts: The window that they watch.
        end: Ends a delivery.
        extra: A feature of the owner of the core, such as the table of a lease queue.

    Attributes:
        features: All of them, in the order in which they are told, asked and end a call.
        units, groups, sessions, health, holes: Each by itself, None if it is not in use.
    """

    def __init__(
        self,
        config: DispatcherConfig,
        parts: WindowParts,
        routing: Routing,
        timers: Timers,
        end: Callable[[Entry, ReleaseReason, int], None],
        extra: Feature | None,
    ) -> None:
        window, total = parts.window, parts.total
        draining = WatchedPlace()
        if config.drain_timeout_ms is not None:
            window.draining = draining
        self.units = None if config.unit is DrainUnit.KEY else DrainUnits(window, routing, config.unit)
        awaited: Callable[[Lane], list[Entry]] = Lane.opened if self.units is None else self.units.awaited
        self.drains: DrainDeadlines | None = None
        if config.drain_timeout_ms is not None:
            self.drains = DrainDeadlines(window, draining, timers, config.drain_timeout_ms, awaited, end)
        self.settled = TellSettled() if config.tell_settled else None
        self.health = Measure(window) if config.measure else None
        self.sessions = None if config.sessions is None else Sessions(window, timers, config.sessions)
        self.holes: AckHoles | None = None
        if config.max_ack_holes is not None and total is not None:
            self.holes = AckHoles(window, total, config.max_ack_holes)
        self.total: TotalQuota | None = None if total is None else TotalQuota(window, total)
        self.groups = None if parts.book is None else Groups(window, timers, parts.book)
        several: tuple[Feature | None, ...] = (
            self.units,
            self.drains,
            self.settled,
            self.health,
            self.sessions,
            self.holes,
            self.total,
            self.groups,
            extra,
        )
        self.features = tuple(each for each in several if each is not None)
        window.watch(self.features, has_groups=self.groups is not None)
