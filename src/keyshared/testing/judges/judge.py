"""What the judges of all promises have in common: they see a happening before it is booked, and blame with proof."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from typing import ClassVar, Final, TypeAlias

from keyshared.testing.guarantees import Promise, Violation
from keyshared.testing.history import Happening
from keyshared.testing.judges.books import Books
from keyshared.testing.judges.entries import Message, Seen

__all__ = ["Judge", "Judgement", "describe", "sinces"]

Judgement: TypeAlias = Callable[..., Iterable[Violation]]
"""Takes what was seen and its happening; and, if that is of a message, what is outstanding of it, or None.

Returns what that breaks. A judgement of every delivery returns at once where nothing is wrong, as nearly always.
"""

_SHOWN: Final = 8


class Judge(ABC):
    """Judges one promise.

    Args:
        books: As they were before the happening that is judged.
    """

    promise: ClassVar[Promise]

    def __init__(self, books: Books) -> None:
        self.books = books
        self.guarantees = books.guarantees

    @abstractmethod
    def judgements(self) -> Mapping[type[Happening], Judgement]:
        """Which happenings can break the promise, and who judges them."""

    @property
    def looks(self) -> bool:
        """Whether it wants to look at the books after each happening."""
        return type(self).after is not Judge.after

    def after(self, seen: Seen) -> None:  # noqa: B027  # for those who do not care
        """Look at the books after a happening."""

    @abstractmethod
    def missing(self) -> str | None:
        """What the history would have to tell so that the promise could be judged (in full); None: nothing."""

    def finish(self) -> Iterable[Violation]:
        """Blame what only the end of the history shows."""
        return ()

    def entries(self) -> int:
        """How much the judge keeps beyond the books."""
        return 0

    def blame(self, explanation: str, *proof: Seen | None, offset: int | None = None) -> Violation:
        """Return what was broken; the proof in any order, without what is not known."""
        shown = {seen.position: seen for seen in proof if seen is not None}
        positions = tuple(sorted(shown))
        happenings = tuple(shown[position].happening for position in positions)
        return Violation(self.promise, explanation, positions, _excerpt(positions, happenings), happenings, offset)


def describe(happening: Happening) -> str:
    """Write a happening as a call of its class, without what is not known."""
    values = ((field.name, getattr(happening, field.name)) for field in fields(happening))
    named = ", ".join(f"{name}={_plain(value)!r}" for name, value in values if value is not None)
    return f"{type(happening).__name__}({named})"


def sinces(messages: Iterable[Message]) -> list[Seen]:
    """What made these messages wait, or opened them."""
    return [message.since for message in messages]


def _excerpt(positions: tuple[int, ...], happenings: tuple[Happening, ...]) -> str:
    """Write the first and the last few of them; only those are described."""
    left_out = len(positions) - _SHOWN
    shown = list(zip(positions, happenings, strict=True))
    if left_out > 0:
        shown[_SHOWN // 2 : -_SHOWN // 2] = []
    lines = [f"#{position} {describe(each)}" for position, each in shown]
    if left_out > 0:
        lines.insert(_SHOWN // 2, f"... and {left_out} more")
    return "\n".join(lines)


def _plain(value: object) -> object:
    return str(value) if isinstance(value, str) else value
