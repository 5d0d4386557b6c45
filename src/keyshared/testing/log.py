"""The history of one run of a schedule: written row by row, and judged as it is written.

An ack that stands half-way takes effect at some moment between its begin and its end. Which one does not show, so rows
that come in between are kept until it has ended, and it is written where it accuses nobody: at its begin, or behind
the last row that says that its delivery has ended or its message was delivered again. If it did not count: at its end.
"""

from collections.abc import Callable
from typing import NamedTuple

from keyshared.testing import history as h
from keyshared.testing.checker import Checker
from keyshared.testing.claims import Claims, Promise, Violation

__all__ = ["Log", "UnderWay"]


class UnderWay:
    """An answer that has begun, and how many rows were kept back when it did."""

    def __init__(self, begun: int) -> None:
        self.begun = begun


class _Suspicion(NamedTuple):
    """That a message was overtaken which may be lost, how long the history was then, and whether it was the end."""

    violation: Violation
    length: int
    in_the_end: bool


class Log:
    """A history and its checker.

    Args:
        claims: What is judged.
        blame: Is called with the first violation; has to raise.

    Attributes:
        checker: Judges what is written.
        history: What is written.
        in_the_end: Whether all steps of the schedule are taken.
    """

    def __init__(self, claims: Claims, blame: Callable[[Violation], None]) -> None:
        self.checker, self.history = Checker(claims), list[h.Event]()
        self.in_the_end = False
        self._blame = blame
        self._waits_for_losses = Promise.NO_LOSS in claims.promises
        self._suspicion: _Suspicion | None = None
        self._loss: Violation | None = None
        self._under_way: list[UnderWay] = []
        self._kept: list[h.Event] = []

    @property
    def is_undecided(self) -> bool:
        """Whether a message was overtaken that may be lost: the run then goes to its end, and to `decide`."""
        return self._suspicion is not None

    def write(self, event: h.Event) -> None:
        """Write the next row, now or as soon as no answer is under way."""
        if self._under_way:
            self._kept.append(event)
            return
        self.history.append(event)
        for violation in self.checker.feed(event):
            self._weigh(violation)

    def decide(self) -> None:
        """Blame that a message is lost, or else that it was overtaken, if it was."""
        if self._loss is not None:
            self._blame(self._loss)
        elif self._suspicion is not None:
            violation, length, self.in_the_end = self._suspicion
            del self.history[length:]
            self._blame(violation)

    def begin(self) -> UnderWay:
        """Begin an answer."""
        answer = UnderWay(len(self._kept))
        self._under_way.append(answer)
        return answer

    def end(self, answer: UnderWay, row: h.Acked) -> None:
        """End an answer that has begun with its row, and write the rows that were kept for it."""
        self._under_way.remove(answer)
        at = len(self._kept)
        if row.counted is not False:
            about = [at for at, each in enumerate(self._kept) if at >= answer.begun and _is_about(each, row)]
            at = about[-1] + 1 if about else answer.begun
        self._kept.insert(at, row)
        for other in self._under_way:
            other.begun += other.begun > at
        if not self._under_way:
            kept, self._kept = self._kept, []
            for event in kept:
                self.write(event)

    def _weigh(self, violation: Violation) -> None:
        """What is lost was not overtaken: that waits for the end of the run, and nothing else is blamed meanwhile."""
        suspicion = self._suspicion
        if suspicion is None:
            if self._waits_for_losses and violation.promise is Promise.KEY_ORDER:
                self._suspicion = _Suspicion(violation, len(self.history), self.in_the_end)
            else:
                self._blame(violation)
        elif violation.promise is Promise.NO_LOSS and _victim(violation) == _victim(suspicion.violation):
            self._loss = violation


def _victim(violation: Violation) -> tuple[int | None, int]:
    """Return the message that was overtaken or is lost, and since when it waits."""
    return violation.offset, violation.proof[0]


def _is_about(event: h.Event, answer: h.Acked) -> bool:
    """Whether a row says that the message was delivered again, or that the answered delivery has ended."""
    match event:
        case h.Delivered():
            return event.offset == answer.offset
        case h.Expired() | h.Released() | h.Nacked():
            named = (event.offset, event.consumer, event.attempt)
            refused = isinstance(event, h.Nacked) and event.counted is False
            return named == (answer.offset, answer.consumer, answer.attempt) and not refused
        case _:
            return False
