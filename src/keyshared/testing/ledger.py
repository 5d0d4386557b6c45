"""What is written down while a broker is tried, and judged row by row, unless an answer under way may explain it.

An answer takes effect at some moment between its begin and its end. Which one does not show, so rows that are told in
between are kept until it has ended, and it is written where it accuses nobody: at its begin, or behind the last row
that tells that its delivery has ended or its message was delivered again. If it did not count: at its end.
"""

from collections.abc import Callable

from keyshared.testing.guarantees import Guarantees, Violation
from keyshared.testing.history import Acked, Delivered, Expired, Happening, Nacked, Released
from keyshared.testing.judges.checker import Checker

__all__ = ["Ledger", "UnderWay"]


class UnderWay:
    """An answer that has begun.

    Attributes:
        begun: How many rows were kept back when it began.
    """

    def __init__(self, begun: int) -> None:
        self.begun = begun


class Ledger:
    """The history of a trial.

    Args:
        claimed: What is judged.
        blame: Is told of each violation.

    Attributes:
        checker: Judges what is written.
        history: What is written.
    """

    def __init__(self, claimed: Guarantees, blame: Callable[[Violation], None]) -> None:
        self._claimed = claimed
        self._blame = blame
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
            self._blame(violation)


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
