"""Which promises does a history break? The judge of recorded histories, whatever system they are from."""

from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple, get_args

from keyshared.testing._batches import in_batches
from keyshared.testing.errors import GuaranteesError, HistoryError
from keyshared.testing.guarantees import Guarantees, Promise, Unjudged, Violation
from keyshared.testing.history import Happening
from keyshared.testing.judges.asked_promises import NotEarly, ReasonTravels
from keyshared.testing.judges.bookkeeper import Bookkeeper, Write
from keyshared.testing.judges.delivery_promises import Affinity, Bounds, Fence, KeyOrder, MinimalMove, OneHolder
from keyshared.testing.judges.fairness import Fairness
from keyshared.testing.judges.group_fairness import GroupFairness
from keyshared.testing.judges.health import HealthAddsUp
from keyshared.testing.judges.judge import Judge, Judgement
from keyshared.testing.judges.latest_only import LatestOnly
from keyshared.testing.judges.losses import without_overtaken_losses
from keyshared.testing.judges.one_session import OneSession
from keyshared.testing.judges.outcome_promises import Attempts, NoLoss, SafeCursor
from keyshared.testing.judges.redrive import RedriveOrder
from keyshared.testing.judges.settlement import SettledOnce
from keyshared.testing.judges.token_budget import TokenBudget
from keyshared.testing.judges.waiting_promises import Isolation, Progress
from keyshared.testing.judges.whole_batch import WholeBatch

__all__ = ["DEFAULT_REMEMBERED_KEYS", "Checker", "check_history"]

DEFAULT_REMEMBERED_KEYS: Final = 100_000

# Causes before consequences: a violation is easier to read if what explains it stands before it.
_JUDGES: Final[tuple[type[Judge], ...]] = (
    *(
        NoLoss,
        SettledOnce,
        Fence,
        OneHolder,
        KeyOrder,
        Affinity,
        MinimalMove,
        Bounds,
        WholeBatch,
        LatestOnly,
        OneSession,
        RedriveOrder,
        SafeCursor,
        Isolation,
        Attempts,
        Fairness,
        GroupFairness,
    ),
    *(NotEarly, ReasonTravels, HealthAddsUp, TokenBudget, Progress),
)
_NEVER_JUDGED: Final = {
    Promise.RESUME: "it shows only where the history after a restart is compared with the one without",
    Promise.DETERMINISM: "it shows only where two histories of the same inputs are compared",
}


class _Course(NamedTuple):
    """What is done with a kind of happening.

    Attributes:
        judgements: Who judges it, with the books as they were before.
        write: Who writes it into the books.
        is_of_message: Whether both are told what is outstanding of its message.
        check: Who refuses one that contradicts the history so far, if any can.
    """

    judgements: tuple[Judgement, ...]
    write: Write
    is_of_message: bool
    check: Callable[..., None] | None


class Checker:
    """Judges a history while it is read, and keeps none of it.

    Args:
        guarantees: What the system claims.
        remembered_keys: Of how many keys that have nothing outstanding the checker remembers to whom they belonged.
            Beyond that it forgets the one that was idle for longest, and says so in `unjudged`.

    Raises:
        GuaranteesError: ``remembered_keys`` is no int of at least 0.

    Complexity:
        O(log n) for each happening, n messages outstanding. Memory O(outstanding messages + consumers +
        ``remembered_keys``). A violation costs its proof: of a limit of open deliveries, of the window and of
        outstanding messages that is as many messages as the limit; of one on what waits, all that wait.
    """

    def __init__(self, guarantees: Guarantees | None = None, *, remembered_keys: int = DEFAULT_REMEMBERED_KEYS) -> None:
        guarantees = Guarantees() if guarantees is None else guarantees
        if not isinstance(guarantees, Guarantees):
            raise GuaranteesError("guarantees", guarantees, "be Guarantees")
        if type(remembered_keys) is not int or remembered_keys < 0:
            raise GuaranteesError("remembered_keys", remembered_keys, "be an int of at least 0")
        self._claimed = guarantees.promises
        self._books = Bookkeeper(guarantees, remembered_keys)
        self._judges = [judge(self._books) for judge in _JUDGES if judge.promise in self._claimed]
        self._afters = [judge.after for judge in self._judges if judge.looks]
        self._courses = self._all_courses()

    def _all_courses(self) -> dict[type[Happening], _Course]:
        judged = [judge.judgements() for judge in self._judges]
        of_messages = self._books.of_messages()
        writers = {**of_messages, **self._books.of_others()}
        courses: dict[type[Happening], _Course] = {}
        for kind in get_args(Happening):
            judgements = tuple(each[kind] for each in judged if kind in each)
            courses[kind] = _Course(judgements, writers[kind], kind in of_messages, self._books.checks().get(kind))
        return courses

    def feed(self, happening: Happening) -> list[Violation]:
        """Take the next happening.

        Args:
            happening: What happened next; never kept longer than its message is outstanding.

        Returns:
            What it breaks; empty if nothing. A system that goes on after a violation is judged on from there.

        Raises:
            HistoryError: This is no happening, or the history contradicts itself (offsets of `Published` that do not
                grow). Nothing was changed.

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
        kind, books = type(happening), self._books
        course = self._courses.get(kind)
        if course is None:
            requirement = "be a value of keyshared.testing.history"
            raise HistoryError(books.position, "happening", None, happening, requirement)
        judgements, write, is_of_message, check = course
        if check is not None:
            check(happening)
        seen = books.see(happening)
        found: list[Violation] = []
        if is_of_message:
            message = books.messages.get(happening.offset)  # type: ignore[union-attr]  # each of them has one
            for judge in judgements:
                if broken := judge(seen, happening, message):
                    found += broken
            write(seen, happening, message)
        else:
            for judge in judgements:
                if broken := judge(seen, happening):
                    found += broken
            write(seen, happening)
        books.kinds.add(kind)
        for look in self._afters:
            look(seen)
        books.changed.clear()
        books.ended.clear()
        return found

    def violations(self, history: Iterable[Happening]) -> Iterator[Violation]:
        """Take many happenings, lazily, and give what they break as it shows; `finish` gives what the end shows."""
        for happening in history:
            yield from self.feed(happening)

    def finish(self) -> list[Violation]:
        """Take the end of the history: nothing follows that could explain what is still open to doubt.

        Returns:
            What only the end shows: messages that were delivered or answered and never published, or that were
            superseded by nothing.

        Example:
            >>> from keyshared.testing.history import Delivered, Published
            >>> checker = Checker()
            >>> list(checker.violations([Published(offset=0), Delivered(offset=1, consumer="c1")]))
            []
            >>> print(*checker.finish())
            no-loss: Delivered tells of offset 1, which was never published
            #1 Delivered(offset=1, consumer='c1')
        """
        return [violation for judge in self._judges for violation in judge.finish()]

    def unjudged(self) -> list[Unjudged]:
        """List the claimed promises that could not be judged so far, or not in full, and why."""
        reasons = {judge.promise: judge.missing() for judge in self._judges}
        reasons |= {promise: reason for promise, reason in _NEVER_JUDGED.items() if promise in self._claimed}
        return [Unjudged(promise, reason) for promise in Promise if (reason := reasons.get(promise)) is not None]

    def entries(self) -> int:
        """Count what is kept in memory, in entries of all books: proportional to its size."""
        return self._books.entries() + sum(judge.entries() for judge in self._judges)


def check_history(history: Iterable[Happening], guarantees: Guarantees | None = None) -> list[Violation]:
    """Judge a whole history.

    Args:
        history: What happened, in order.
        guarantees: What the system claims; None: every promise that a history can show, one delivery of a key at a
            time.

    Returns:
        All violations, in the order in which they show; those that only the end shows come last. That newer messages of
        a key overtook one that is lost is not among them: the loss is.

    Raises:
        HistoryError: The history contradicts itself.
    """
    checker = Checker(guarantees)
    found = [violation for batch in in_batches(history) for violation in checker.violations(batch)]
    return without_overtaken_losses(found + checker.finish())
