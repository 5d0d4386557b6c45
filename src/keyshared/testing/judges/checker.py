"""Which promises does a history break? The judge of recorded histories, whatever system they are from."""

from collections.abc import Iterable, Iterator
from typing import Final, get_args

from keyshared.testing.errors import GuaranteesError
from keyshared.testing.guarantees import Guarantees, Promise, Unjudged, Violation
from keyshared.testing.history import Happening
from keyshared.testing.judges.asked_promises import NotEarly, ReasonTravels
from keyshared.testing.judges.books import Books
from keyshared.testing.judges.delivery_promises import Affinity, Bounds, Fence, KeyOrder, MinimalMove, OneHolder
from keyshared.testing.judges.fairness import Fairness
from keyshared.testing.judges.group_fairness import GroupFairness
from keyshared.testing.judges.health import HealthAddsUp
from keyshared.testing.judges.judge import Judge, Judgement
from keyshared.testing.judges.latest_only import LatestOnly
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
        ``remembered_keys``).
    """

    def __init__(self, guarantees: Guarantees | None = None, *, remembered_keys: int = DEFAULT_REMEMBERED_KEYS) -> None:
        guarantees = Guarantees() if guarantees is None else guarantees
        if not isinstance(guarantees, Guarantees):
            raise GuaranteesError("guarantees", guarantees, "be Guarantees")
        if type(remembered_keys) is not int or remembered_keys < 0:
            raise GuaranteesError("remembered_keys", remembered_keys, "be an int of at least 0")
        self._claimed = guarantees.promises
        self._books = Books(guarantees, remembered_keys)
        self._judges = [judge(self._books) for judge in _JUDGES if judge.promise in self._claimed]
        self._afters = [judge.after for judge in self._judges if judge.looks]
        self._judgements: dict[type[Happening], list[Judgement]] = {kind: [] for kind in get_args(Happening)}
        for judge in self._judges:
            for kind, judgement in judge.judgements().items():
                self._judgements[kind].append(judgement)

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
        books = self._books
        books.check(happening)
        seen = books.see(happening)
        found: list[Violation] = []
        for judge in self._judgements[type(happening)]:
            found += judge(seen, happening)
        books.apply(seen)
        for look in self._afters:
            found += look(seen)
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
            What only the end shows, which is the messages that were delivered or answered and never published.

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
        All violations, in the order in which they show; those that only the end shows come last.

    Raises:
        HistoryError: The history contradicts itself.
    """
    checker = Checker(guarantees)
    return [*checker.violations(history), *checker.finish()]
