"""Which promises does a history break? The checker of recorded histories, whatever system they are from."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple, TypeAlias, get_args

from keyshared.testing import history as h
from keyshared.testing.books import Books
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
        handlers: The checks that judge it, with the books as they were before.
        write: The method of the books that takes it.
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
        self._books = Books(claims, remembered_keys)
        self._checks = [check(self._books) for check in _CHECKS if check.promise in self._claimed]
        claimed = [check for check in self._checks if check.is_claimed]
        self._afters = [check.after for check in claimed if type(check).after is not Check.after]
        self._courses = self._all_courses(claimed)

    def _all_courses(self, checks: Iterable[Check]) -> dict[type[Event], _Course]:
        judged = [check.handlers() for check in checks]
        refuse: dict[type[Event], Callable[..., None]] = {
            h.Published: self._books.check_published,
            h.Redriven: self._books.check_redriven,
        }
        courses: dict[type[Event], _Course] = {}
        for kind in get_args(Event):
            handlers = tuple(each[kind] for each in judged if kind in each)
            is_of_message = "offset" in kind.__dataclass_fields__
            courses[kind] = _Course(handlers, _write_of(self._books, kind), is_of_message, refuse.get(kind))
        return courses

    @property
    def unjudged_messages(self) -> Counter[str]:
        """How many messages are not judged, by what to add to the history so that they are."""
        return self._books.reasons

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
        kind, books = type(event), self._books
        course = self._courses.get(kind)
        if course is None:
            raise HistoryError(books.position, "event", None, event, "be a value of keyshared.testing.history")
        handlers, write, is_of_message, refuse = course
        if refuse is not None:
            refuse(event)
        seen = books.see(event)
        found: list[Violation] = []
        if not is_of_message:
            for handler in handlers:
                if broken := handler(seen, event):
                    found += broken
            write(seen, event)
        elif books.reasons and books.is_unjudged(event.offset):  # type: ignore[union-attr]  # it has one
            books.trace(seen, event)
        else:
            message = books.messages.get(event.offset)  # type: ignore[union-attr]  # likewise
            for handler in handlers:
                if broken := handler(seen, event, message):
                    found += broken
            write(seen, event, message)
        books.kinds.add(kind)
        for look in self._afters:
            look(seen)
        books.changed.clear()
        books.ended.clear()
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


def _write_of(books: Books, kind: type[Event]) -> _Write:
    """Return the method of the books that takes a kind of event."""
    writes: dict[type[Event], _Write] = {
        h.Published: books.published,
        h.Delivered: books.delivered,
        h.Acked: books.acked,
        h.Nacked: books.nacked,
        h.Expired: books.released,
        h.Released: books.released,
        h.Unclear: books.made_unclear,
        h.Settled: books.settled,
        h.DeadLettered: books.settled,
        h.Dropped: books.settled,
        h.Skipped: books.settled,
        h.Redriven: books.redriven,
        h.Rewound: books.rewound,
        h.Held: books.held,
        h.Freed: books.freed,
        h.Connected: books.connected,
        h.Gone: books.gone,
        h.Suspended: books.suspended,
        h.Resumed: books.suspended,
        h.LimitChanged: books.limit_changed,
        h.PlacementChanged: books.placement_changed,
        h.Owned: books.owned,
        h.Committed: books.committed_to,
        h.Quiet: books.quiet,
        h.AtRest: books.quiet,
    }
    return writes.get(kind, books.passed)


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
