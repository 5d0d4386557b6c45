"""What is written down while a broker is tried, and judged row by row, unless an answer under way may explain it.

An answer takes effect at some moment between its begin and its end. Which one does not show, so rows that are told in
between are kept until it has ended, and it is written where it accuses nobody: at its begin, or behind the last row
that tells that its delivery has ended or its message was delivered again. If it did not count: at its end.

That a message was overtaken is told only when it is clear that it is not lost, which would be another promise. So what
follows from then on decides nothing else.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import NamedTuple

from keyshared.testing.guarantees import Guarantees, Promise, Violation
from keyshared.testing.history import Acked, Delivered, Expired, Happening, Nacked, Released
from keyshared.testing.judges.checker import Checker
from keyshared.testing.judges.delivery_promises import OR_IS_LOST
from keyshared.testing.judges.losses import loss_of, overtaken_in

__all__ = ["Ledger", "UnderWay"]


class UnderWay:
    """An answer that has begun.

    Attributes:
        begun: How many rows were kept back when it began.
    """

    def __init__(self, begun: int) -> None:
        self.begun = begun


class _Overtaking(NamedTuple):
    """That a message was overtaken, the history in which it was, how long that was, and whether it was the end."""

    violation: Violation
    history: list[Happening]
    length: int
    in_the_end: bool


class Ledger:
    """The history of a trial.

    Args:
        claimed: What is judged.
        blame: Is told of each violation.

    Attributes:
        checker: Judges what is written.
        history: What is written.
        in_the_end: Whether what is written now shows only in the end, when everybody answers everything.
    """

    def __init__(self, claimed: Guarantees, blame: Callable[[Violation], None]) -> None:
        self._claimed = claimed
        self._blame = blame
        self._waits_for_losses = Promise.NO_LOSS in claimed.promises
        self._overtaking: _Overtaking | None = None
        self._loss: Violation | None = None
        self.in_the_end = False
        self._under_way: list[UnderWay] = []
        self._kept: list[Happening] = []
        self.begin_anew()

    def begin_anew(self) -> None:
        """Forget everything: from here on it is another history."""
        self.checker, self.history = Checker(self._claimed), list[Happening]()

    def tell(self, happening: Happening) -> None:
        """Write the next row, now or as soon as no answer is under way.

        Args:
            happening: What happened.
        """
        if self._under_way:
            self._kept.append(happening)
        else:
            self._write(happening)

    @property
    def is_undecided(self) -> bool:
        """Whether a message was overtaken that may be lost: then let the end come, and `decide`."""
        return self._overtaking is not None

    @contextmanager
    def tolerating(self) -> Iterator[None]:
        """Pass over what a broker raises that has let a message be overtaken: that came first."""
        try:
            yield
        except Exception:
            if self._overtaking is None:
                raise

    def decide(self) -> None:
        """Blame that a message is lost, or else that it was overtaken, if it was."""
        if self._loss is not None:
            self._blame(self._loss)
        elif self._overtaking is not None:
            self._blame_overtaking(*self._overtaking)

    def _blame_overtaking(self, violation: Violation, history: list[Happening], length: int, in_the_end: bool) -> None:
        came_later = self.history is history and any(_came(each, violation.offset) for each in history[length:])
        self.history, self.in_the_end = history[:length], in_the_end
        text = violation.explanation
        self._blame(replace(violation, explanation=text.removesuffix(OR_IS_LOST) if came_later else text))

    def begin(self) -> UnderWay:
        """Begin an answer."""
        answer = UnderWay(len(self._kept))
        self._under_way.append(answer)
        return answer

    def end(self, answer: UnderWay, row: Acked) -> None:
        """End an answer, and write what was waiting for it.

        Args:
            answer: What has begun.
            row: What it says.
        """
        self._under_way.remove(answer)
        self._place(answer, row)
        if not self._under_way:
            kept, self._kept = self._kept, []
            for happening in kept:
                self._write(happening)

    def _place(self, answer: UnderWay, row: Acked) -> None:
        at = len(self._kept)
        if row.counted is not False:
            about = [at for at, each in enumerate(self._kept) if at >= answer.begun and _is_about(each, row)]
            at = about[-1] + 1 if about else answer.begun
        self._kept.insert(at, row)
        for other in self._under_way:
            other.begun += other.begun > at

    def _write(self, happening: Happening) -> None:
        self.history.append(happening)
        for violation in self.checker.feed(happening):
            self._weigh(violation)

    def _weigh(self, violation: Violation) -> None:
        if self._overtaking is None:
            if self._waits_for_losses and overtaken_in(violation) is not None:
                self._overtaking = _Overtaking(violation, self.history, len(self.history), self.in_the_end)
            else:
                self._blame(violation)
        elif self._is_loss_of(violation, *self._overtaking[:2]):
            self._loss = violation

    def _is_loss_of(self, loss: Violation, overtaking: Violation, history: list[Happening]) -> bool:
        return self.history is history and loss_of(loss) == overtaken_in(overtaking)


def _came(happening: Happening, offset: int | None) -> bool:
    return isinstance(happening, Delivered) and happening.offset == offset


def _is_about(happening: Happening, answer: Acked) -> bool:
    """Whether a row tells that the message was delivered again, or that the delivery has ended that is answered for."""
    match happening:
        case Delivered():
            return happening.offset == answer.offset
        case Expired() | Released() | Nacked():
            named = (happening.offset, happening.consumer, happening.attempt)
            refused = isinstance(happening, Nacked) and happening.counted is False
            return named == (answer.offset, answer.consumer, answer.attempt) and not refused
        case _:
            return False
