"""What the checks of all promises have in common: they see an event before it is booked, and blame with proof."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from typing import ClassVar, Final, TypeAlias

from keyshared.testing.books import Books
from keyshared.testing.claims import Promise, Violation
from keyshared.testing.entries import Message, Seen
from keyshared.testing.errors import describe
from keyshared.testing.history import Event

__all__ = ["NO_DELIVERY", "NO_PUBLISHED", "NO_QUIET", "Check", "Handler", "sinces"]

Handler: TypeAlias = Callable[..., Iterable[Violation]]
"""Takes what was seen and its event; and, if that is of a message, the outstanding message, or None.

Returns what that breaks. One that sees every delivery returns at once where nothing is wrong.
"""

NO_DELIVERY: Final = "write `delivered`"
NO_PUBLISHED: Final = "write `published`, which says what is outstanding"
NO_QUIET: Final = "write `quiet` where the system has had time to act"
_SHOWN: Final = 8


class Check(ABC):
    """Checks one promise.

    Args:
        books: As they were before the event that is judged.
    """

    promise: ClassVar[Promise]

    def __init__(self, books: Books) -> None:
        self.books = books
        self.claims = books.claims

    @abstractmethod
    def handlers(self) -> Mapping[type[Event], Handler]:
        """Return which events can break the promise, and who judges them."""

    @property
    def looks(self) -> bool:
        """Whether it looks at the books after each event."""
        return type(self).after is not Check.after

    def after(self, seen: Seen) -> None:  # noqa: B027  # for those that look
        """Look at the books after an event."""

    @abstractmethod
    def missing(self) -> str | None:
        """Return what the history would have to tell so that the promise is judged in full; None: nothing."""

    def blame(self, explanation: str, *proof: Seen | None, offset: int | None = None) -> Violation:
        """Return a violation; the proof comes in any order, and None is left out."""
        shown = {seen.position: seen for seen in proof if seen is not None}
        positions = tuple(sorted(shown))
        events = tuple(shown[position].event for position in positions)
        return Violation(self.promise, explanation, positions, _excerpt(positions, events), events, offset)


def sinces(messages: Iterable[Message]) -> list[Seen]:
    """Return what made these messages wait, or opened them."""
    return [message.since for message in messages]


def _excerpt(positions: tuple[int, ...], events: tuple[Event, ...]) -> str:
    """Write the first and the last few of them."""
    left_out = len(positions) - _SHOWN
    shown = list(zip(positions, events, strict=True))
    if left_out > 0:
        shown[_SHOWN // 2 : -_SHOWN // 2] = []
    lines = [f"#{position} {describe(each)}" for position, each in shown]
    if left_out > 0:
        lines.insert(_SHOWN // 2, f"... and {left_out} more")
    return "\n".join(lines)
