"""Whose verdict depends on what no log tells: two entries of different logs, either of which may have come first.

What a promise is judged by is written down as *scopes*. A scope names, for an entry, which parts of the checker's books
the entry touches, and how. If two entries touch one part in ways that do not go together, and nothing says which of
them came first, then another order of the logs may be judged otherwise. If there are no two such entries, then every
order of the logs comes from every other one by exchanging neighbours that have nothing to do with each other, and the
verdict is the same.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from enum import Enum, auto
from typing import TYPE_CHECKING, Final, TypeAlias

from keyshared.testing.guarantees import Guarantees, Promise
from keyshared.testing.history import (
    AtRest,
    Committed,
    Connected,
    DeadLettered,
    Delivered,
    Done,
    Freed,
    Gone,
    Happening,
    Held,
    LimitChanged,
    Measured,
    Owned,
    Published,
    Quiet,
    Redriven,
    Resumed,
    SessionBegun,
    SessionEnded,
    SessionEnding,
    Settled,
    Suspended,
)
from keyshared.testing.merging.facts import Facts, Group
from keyshared.testing.merging.order import Order, Spot

if TYPE_CHECKING:
    from keyshared.testing.errors import LogEntry

__all__ = ["Races"]


class _Way(Enum):
    """How an entry touches a part of the books. Only entries that look, and those that are seen, go with their like."""

    CHANGES = auto()
    LOOKS = auto()
    IS_SEEN = auto()


_Touch: TypeAlias = tuple[Hashable, _Way]
_Scope: TypeAlias = Callable[[Facts, Happening], Iterable[_Touch]]
_CHANGES, _LOOKS, _IS_SEEN = _Way
_MEMBERS: Final = (Connected, Gone, Suspended, Resumed, LimitChanged)
_SESSIONS: Final = (SessionBegun, SessionEnding, SessionEnded)


def _everything(facts: Facts, happening: Happening) -> Iterator[_Touch]:  # noqa: ARG001  # one shape for all
    yield None, _CHANGES


def _log(facts: Facts, happening: Happening) -> Iterator[_Touch]:
    """Whether what was published is told, and whether a message that nobody published can still be."""
    if isinstance(happening, Published):
        if happening.offset == facts.first:
            yield "log", _LOOKS
        for missing in facts.decided_by.get(happening.offset, ()):
            yield missing, _LOOKS
        return
    offset = facts.offset(happening)
    if offset is not None or isinstance(happening, Committed):
        yield "log", _IS_SEEN
    if offset in facts.unpublished:
        yield offset, _IS_SEEN


def _messages(facts: Facts, happening: Happening) -> Iterator[_Touch]:
    """What becomes of each message, without what it is held for, or is said of it."""
    offset = facts.offset(happening)
    if not isinstance(happening, Held | Freed | Done) or offset in facts.doubtful:
        yield from _each_message(facts, happening)


def _each_message(facts: Facts, happening: Happening) -> Iterator[_Touch]:
    """What becomes of each message."""
    offset = facts.offset(happening)
    yield from _group(facts, happening, () if offset is None else (offset,))


def _lanes(facts: Facts, happening: Happening) -> Iterator[_Touch]:
    """What becomes of the messages of each key, or unit of keys."""
    offset = facts.offset(happening)
    if not isinstance(happening, Held | Freed | Done) or offset in facts.doubtful:
        yield from _group(facts, happening, () if offset is None else facts.lanes_of[offset])


def _group(facts: Facts, happening: Happening, groups: Iterable[Group]) -> Iterator[_Touch]:
    """What a publication adds is newer than all that was told before, and takes part in nothing yet."""
    if isinstance(happening, Published):
        return
    for group in groups:
        yield group, _CHANGES
        for consumer in facts.consumers_of.get(group, ()):
            yield ("at", consumer), _IS_SEEN
        if group in facts.doubtful:
            yield "doubt", _IS_SEEN
    if isinstance(happening, Gone) and not happening.drains:
        yield ("at", happening.consumer), _CHANGES
        yield "doubt", _IS_SEEN
    elif isinstance(happening, Committed):
        yield "doubt", _LOOKS


def _moments(
    kinds: tuple[type[Happening], ...], way: _Way, *blind_to: type[Happening]
) -> Callable[[Facts, Happening], Iterator[_Touch]]:
    """Moments at which all is looked at that has happened before."""

    def touches(facts: Facts, happening: Happening) -> Iterator[_Touch]:  # noqa: ARG001  # one shape for all
        if isinstance(happening, kinds):
            yield None, way
        elif not isinstance(happening, blind_to):
            yield None, _IS_SEEN

    return touches


def _cursor(facts: Facts, happening: Happening) -> Iterator[_Touch]:
    """The cursor, and how far the log was told of."""
    if isinstance(happening, Committed) or facts.offset(happening) in facts.unpublished:
        yield None, _CHANGES


def _members(facts: Facts, happening: Happening) -> Iterator[_Touch]:  # noqa: ARG001  # one shape for all
    """Who is there, with which limit, and who owns what."""
    if isinstance(happening, _MEMBERS):
        yield happening.consumer, _CHANGES
    elif isinstance(happening, Owned):
        yield happening.key, _CHANGES


def _rooms(facts: Facts, happening: Happening) -> Iterator[_Touch]:
    """What each consumer has open, and may have."""
    if isinstance(happening, _MEMBERS):
        yield happening.consumer, _CHANGES
    elif not isinstance(happening, Published):
        offset = facts.offset(happening)
        for consumer in () if offset is None else facts.consumers_of.get(offset, ()):
            yield consumer, _CHANGES


def _sessions(facts: Facts, happening: Happening) -> Iterator[_Touch]:
    """The sessions of each key."""
    if isinstance(happening, _SESSIONS):
        yield facts.lane(None, happening.key), _CHANGES
        yield ("at", happening.consumer), _IS_SEEN
    else:
        yield from _lanes(facts, happening)


def _wishes(facts: Facts, happening: Happening) -> Iterator[_Touch]:
    """What time it is when a message goes out that was asked to wait."""
    if isinstance(happening, Delivered) and happening.offset in facts.asked_to_wait:
        yield None, _LOOKS
    if happening.at_ms is not None:
        yield None, _IS_SEEN


_QUIET: Final = (Quiet, AtRest)
_MESSAGE_SCOPES: Final = (_log, _messages)
_LANE_SCOPES: Final = (_log, _lanes)
_SCOPES: Final[dict[Promise, tuple[_Scope, ...]]] = {
    Promise.ONE_HOLDER: _LANE_SCOPES,
    Promise.KEY_ORDER: _LANE_SCOPES,
    Promise.REDRIVE_ORDER: _LANE_SCOPES,
    Promise.BOUNDS: _LANE_SCOPES,
    Promise.FENCE: _MESSAGE_SCOPES,
    Promise.REASON_TRAVELS: _MESSAGE_SCOPES,
    Promise.NOT_EARLY: (_log, _each_message, _wishes),
    Promise.ATTEMPTS: (_log, _each_message, _moments((AtRest,), _LOOKS, Published)),
    Promise.NO_LOSS: (_log, _each_message, _lanes, _members, _moments((AtRest,), _LOOKS)),
    Promise.SETTLED_ONCE: (_log, _each_message, _moments(_QUIET, _LOOKS, Published)),
    Promise.ONE_SESSION: (_log, _sessions, _moments(_QUIET, _LOOKS, Published)),
    Promise.HEALTH_ADDS_UP: (*_MESSAGE_SCOPES, _moments((Measured,), _CHANGES, Published)),
    Promise.SAFE_CURSOR: (*_MESSAGE_SCOPES, _cursor, _moments((Committed,), _LOOKS, Published)),
}
"""By what a promise is judged; one that does not stand here, by everything."""


def _scopes(promise: Promise, guarantees: Guarantees, facts: Facts) -> tuple[_Scope, ...]:
    if promise in _wide(guarantees):
        return (_everything,)
    if promise is Promise.NO_LOSS and AtRest not in facts.kinds:
        return _MESSAGE_SCOPES
    if promise is Promise.BOUNDS and facts.limits_consumers:
        return (*_LANE_SCOPES, _rooms)
    return _SCOPES.get(promise, (_everything,))


def _wide(guarantees: Guarantees) -> Iterator[Promise]:
    """Promises that are claimed in such a way that they are judged by everything."""
    if guarantees.ack_timeout_ms is not None:  # each time that is told may end deliveries
        yield from Promise
    if guarantees.cursor_keeps_up:
        yield Promise.SAFE_CURSOR
    if guarantees.linger_ms is not None:
        yield Promise.ONE_SESSION
    if _limits_all(guarantees):
        yield Promise.BOUNDS


def _limits_all(guarantees: Guarantees) -> bool:
    """Whether something of the whole system has a limit."""
    sizes = (guarantees.window, guarantees.max_tracked, guarantees.open_at_once, guarantees.look_ahead)
    waiting = (guarantees.waiting_per_key, guarantees.waiting_per_consumer)
    return any(limit is not None for limit in (*sizes, *waiting))


_NEEDED: Final[dict[Promise, tuple[tuple[type[Happening], ...], ...]]] = {
    Promise.ONE_HOLDER: ((Delivered,),),
    Promise.KEY_ORDER: ((Published,), (Delivered,)),
    Promise.NO_LOSS: ((Published,),),
    Promise.SETTLED_ONCE: ((Done, *_QUIET),),
    Promise.BOUNDS: ((Delivered, Published, Held, Redriven),),
    Promise.WHOLE_BATCH: ((Delivered,),),
    Promise.LATEST_ONLY: ((Published,), (Settled, *_QUIET)),
    Promise.ONE_SESSION: ((Delivered, *_SESSIONS),),
    Promise.REDRIVE_ORDER: ((Redriven,),),
    Promise.AFFINITY: ((Connected, Owned),),
    Promise.MINIMAL_MOVE: ((Connected, Owned), (Delivered, Owned)),
    Promise.ISOLATION: ((Published,), _QUIET),
    Promise.FAIRNESS: ((Delivered,), (Owned,), _QUIET),
    Promise.GROUP_FAIRNESS: ((Delivered,), (Owned,), _QUIET),
    Promise.ATTEMPTS: ((Delivered,),),
    Promise.REASON_TRAVELS: ((DeadLettered,),),
    Promise.HEALTH_ADDS_UP: ((Measured,),),
    Promise.TOKEN_BUDGET: ((Published,), _QUIET),
}
"""Kinds of happenings without which a promise is never broken: of each group at least one."""


def _is_judged(promise: Promise, guarantees: Guarantees, facts: Facts) -> bool:
    """Whether there is anything by which a promise could be broken."""
    claims: dict[Promise, bool] = {
        Promise.SAFE_CURSOR: Committed in facts.kinds or (guarantees.cursor_keeps_up and Published in facts.kinds),
        Promise.SETTLED_ONCE: guarantees.tells_done,
        Promise.WHOLE_BATCH: guarantees.batches,
        Promise.LATEST_ONLY: bool(guarantees.latest_only),
        Promise.ONE_SESSION: guarantees.sessions,
        Promise.ISOLATION: guarantees.window is not None,
        Promise.FAIRNESS: guarantees.fairness is not None,
        Promise.GROUP_FAIRNESS: guarantees.group_of is not None,
        Promise.ATTEMPTS: guarantees.max_attempts is not None,
        Promise.NOT_EARLY: bool(facts.asked_to_wait),
        Promise.HEALTH_ADDS_UP: guarantees.measures,
        Promise.TOKEN_BUDGET: guarantees.token_bytes is not None,
        Promise.PROGRESS: bool(facts.kinds & set(_QUIET)) or guarantees.progress_ms is not None,
        Promise.RESUME: False,
        Promise.DETERMINISM: False,
    }
    groups: Sequence[tuple[type[Happening], ...]] = _NEEDED.get(promise, ())
    return claims.get(promise, True) and all(facts.kinds.intersection(group) for group in groups)


class Races:
    """Looks for races while logs are merged.

    Args:
        order: What must have happened before what; each entry is looked at when it was taken.
        guarantees: What is claimed.
        facts: What the logs tell, whatever the order.

    Attributes:
        found: Of each promise that has a race the first one: two entries of which no log tells which one came first.
    """

    def __init__(self, order: Order, guarantees: Guarantees, facts: Facts) -> None:
        self.found: dict[Promise, tuple[LogEntry, LogEntry]] = {}
        self._order = order
        self._facts = facts
        self._promises: dict[_Scope, set[Promise]] = {}  # which ones are judged by a scope, and have no race yet
        for promise in sorted(guarantees.promises):
            claimed = Promise(promise)
            if _is_judged(claimed, guarantees, facts):
                for scope in _scopes(claimed, guarantees, facts):
                    self._promises.setdefault(scope, set()).add(claimed)
        # of each scope, part and way: the latest entry of each log
        self._latest: dict[_Scope, dict[Hashable, dict[_Way, dict[int, int]]]] = {each: {} for each in self._promises}

    def look(self, spot: Spot, happening: Happening) -> None:
        """Take the next entry of the merged history."""
        for scope in list(self._promises):
            for part, way in scope(self._facts, happening):
                touched = self._latest[scope].setdefault(part, {})
                before = self._unknown(touched, way, spot)
                if before is not None:
                    self._note(scope, before, spot)
                    break
                touched.setdefault(way, {})[spot.log] = spot.number

    def _unknown(self, touched: dict[_Way, dict[int, int]], way: _Way, spot: Spot) -> Spot | None:
        """An entry of another log that does not go together with this one, and may have come behind it."""
        for other, latest in touched.items():
            if other is not way or way is _CHANGES:
                for log, number in latest.items():
                    if self._order.known(spot, log) <= number:
                        return Spot(log, number)
        return None

    def _note(self, scope: _Scope, one: Spot, other: Spot) -> None:
        logs = self._order.logs
        race = logs[one.log].entry(one.number), logs[other.log].entry(other.number)
        for promise in self._promises.pop(scope):
            self.found.setdefault(promise, race)
