"""Which promises does a history break? The checker of recorded histories, whatever system they are from."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple, TypeAlias, get_args

from keyshared.testing import history as h
from keyshared.testing.checks.check import Check, Handler
from keyshared.testing.checks.deliveries import Attempts, Bounds, Fence, KeyOrder, NotEarly, OneHolder
from keyshared.testing.checks.features import LatestOnly, OneSession, RedriveOrder, WholeBatch
from keyshared.testing.checks.outcomes import NoLoss, ReasonTravels, SafeCursor, SettledOnce
from keyshared.testing.checks.placement import Affinity, MinimalMove
from keyshared.testing.checks.turns import Fairness
from keyshared.testing.checks.waiting import Progress
from keyshared.testing.claims import NEVER_JUDGED, Claims, Promise, Unjudged, Violation
from keyshared.testing.errors import ClaimsError, HistoryError
from keyshared.testing.history import Event
from keyshared.testing.state import State

__all__ = ["DEFAULT_REMEMBERED_KEYS", "Checker", "check_history", "without_overtaken_losses"]

DEFAULT_REMEMBERED_KEYS: Final = 100_000

# Causes before consequences: a violation is easier to read if its explanation stands before it.
_CHECKS: Final[tuple[type[Check], ...]] = (
    *(NoLoss, SettledOnce, Fence, OneHolder, KeyOrder, Affinity, MinimalMove, Bounds, WholeBatch, LatestOnly),
    *(OneSession, RedriveOrder, SafeCursor, Attempts, Fairness, NotEarly, ReasonTravels, Progress),
)
_Write: TypeAlias = Callable[..., None]


class _Course(NamedTuple):
    """What is done with a kind of event.

    Attributes:
        handlers: The checks that judge it, with the state as it was before.
        write: The method of the state that takes it.
        is_of_message: Whether both get the outstanding message that it names.
        refuse: Raises if it contradicts the history so far, if any event of its kind can.
    """

    handlers: tuple[Handler, ...]
    write: _Write
    is_of_message: bool
    refuse: Callable[..., None] | None


class Checker:
    """Judges a history while it is read, and keeps none of it.

    Args:
        claims: What the system claims; None: every promise that a history can show.
        remembered_keys: Of how many keys without outstanding messages the checker remembers to whom they belonged.
            Beyond that it forgets the one that was idle for longest, and says so in `unjudged`.

    Attributes:
        unjudged_messages: How many messages are not judged, by what to add to the history so that they are.

    Raises:
        ClaimsError: ``remembered_keys`` is no int of at least 0.

    Complexity:
        O(log n) for each event, n messages outstanding. Memory O(outstanding messages + consumers +
        ``remembered_keys``). A violation costs its proof: at most as many messages as the limit that is broken.

    Example:
        >>> from keyshared.testing.history import Committed, Published
        >>> checker = Checker()
        >>> checker.feed(Published(offset=0, key=b"k"))
        []
        >>> print(*checker.feed(Committed(resume_offset=1)))
        safe-cursor: cursor 1 passed outstanding offset 0
        #0 Published(offset=0, key=b'k')
        #1 Committed(resume_offset=1)
    """

    def __init__(self, claims: Claims | None = None, *, remembered_keys: int = DEFAULT_REMEMBERED_KEYS) -> None:
        claims = Claims() if claims is None else claims
        if not isinstance(claims, Claims):
            raise ClaimsError("claims", claims, "be Claims")
        if type(remembered_keys) is not int or remembered_keys < 0:
            raise ClaimsError("remembered_keys", remembered_keys, "be an int of at least 0")
        self._claimed = claims.promises
        self._state = State(claims, remembered_keys)
        self._checks = [check(self._state) for check in _CHECKS if check.promise in self._claimed]
        claimed = [check for check in self._checks if check.is_claimed]
        self._afters = [check.after for check in claimed if type(check).after is not Check.after]
        self._courses = self._all_courses(claimed)

    def _all_courses(self, checks: Iterable[Check]) -> dict[type[Event], _Course]:
        judged = [check.handlers() for check in checks]
        refuse: dict[type[Event], Callable[..., None]] = {
            h.Published: self._state.check_published,
            h.Redriven: self._state.check_redriven,
        }
        courses: dict[type[Event], _Course] = {}
        for kind in get_args(Event):
            handlers = tuple(each[kind] for each in judged if kind in each)
            is_of_message = "offset" in kind.__dataclass_fields__
            courses[kind] = _Course(handlers, _write_of(self._state, kind), is_of_message, refuse.get(kind))
        return courses

    @property
    def unjudged_messages(self) -> Counter[str]:
        """How many messages are not judged, by what to add to the history so that they are."""
        return self._state.reasons

    def feed(self, event: Event) -> list[Violation]:
        """Take the next event.

        Args:
            event: It is kept no longer than its message is outstanding.

        Returns:
            What it breaks; empty if nothing. A system that goes on after a violation is judged on from there.

        Raises:
            HistoryError: This is no event, or the history contradicts itself (offsets of `Published` that do not grow).
                Nothing was changed.
        """
        kind, state = type(event), self._state
        course = self._courses.get(kind)
        if course is None:
            raise HistoryError(state.position, "event", None, event, "be a value of keyshared.testing.history")
        handlers, write, is_of_message, refuse = course
        if refuse is not None:
            refuse(event)
        seen = state.see(event)
        found: list[Violation] = []
        if not is_of_message:
            for handler in handlers:
                if broken := handler(seen, event):
                    found += broken
            write(seen, event)
        elif state.reasons and state.is_unjudged(event.offset):  # type: ignore[union-attr]  # it has one
            state.trace(seen, event)
        else:
            message = state.messages.get(event.offset)  # type: ignore[union-attr]  # likewise
            for handler in handlers:
                if broken := handler(seen, event, message):
                    found += broken
            write(seen, event, message)
        state.kinds.add(kind)
        for look in self._afters:
            look(seen)
        state.changed.clear()
        state.ended.clear()
        return found

    def violations(self, history: Iterable[Event]) -> Iterator[Violation]:
        """Take many events, lazily, and yield what they break as it shows."""
        for event in history:
            yield from self.feed(event)

    def unjudged(self) -> list[Unjudged]:
        """List the claimed promises that could not be judged so far, or not in full, and what to add."""
        reasons = {check.promise: check.missing() for check in self._checks}
        reasons |= {promise: reason for promise, reason in NEVER_JUDGED.items() if promise in self._claimed}
        return [Unjudged(promise, reason) for promise in Promise if (reason := reasons.get(promise)) is not None]


def _write_of(state: State, kind: type[Event]) -> _Write:
    """Return the method of the state that takes a kind of event."""
    writes: dict[type[Event], _Write] = {
        h.Published: state.published,
        h.Delivered: state.delivered,
        h.Acked: state.acked,
        h.Nacked: state.nacked,
        h.Expired: state.released,
        h.Released: state.released,
        h.Unclear: state.made_unclear,
        h.Settled: state.settled,
        h.DeadLettered: state.settled,
        h.Dropped: state.settled,
        h.Skipped: state.settled,
        h.Redriven: state.redriven,
        h.Rewound: state.rewound,
        h.Held: state.held,
        h.Freed: state.freed,
        h.Connected: state.connected,
        h.Gone: state.gone,
        h.Suspended: state.suspended,
        h.Resumed: state.suspended,
        h.LimitChanged: state.limit_changed,
        h.PlacementChanged: state.placement_changed,
        h.Owned: state.owned,
        h.Committed: state.committed_to,
        h.Quiet: state.quiet,
        h.AtRest: state.quiet,
    }
    return writes.get(kind, state.passed)


def check_history(history: Iterable[Event], claims: Claims | None = None) -> list[Violation]:
    """Judge a whole history.

    Args:
        history: What happened, in order.
        claims: What the system claims; None: every promise that a history can show, one delivery of a key at a time.

    Returns:
        All violations, in the order in which they show. That newer messages of a key overtook one that is lost is not
        among them: the loss is.

    Raises:
        HistoryError: The history contradicts itself.
    """
    return without_overtaken_losses(Checker(claims).violations(history))


def without_overtaken_losses(found: Iterable[Violation]) -> list[Violation]:
    """Leave out that a message was overtaken that is lost: of one that is gone, only the loss is reported.

    Args:
        found: Violations of one history.
    """
    violations = list(found)
    lost = {(each.offset, each.proof[0]) for each in violations if each.promise is Promise.NO_LOSS}
    return [
        each for each in violations if each.promise is not Promise.KEY_ORDER or (each.offset, each.proof[0]) not in lost
    ]
