"""What the checks of all promises have in common: they see an event before the state takes it, and blame with proof."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from typing import ClassVar, Final, NamedTuple, TypeAlias

from keyshared.testing import history as h
from keyshared.testing.claims import Promise, Violation
from keyshared.testing.errors import describe
from keyshared.testing.records import Message, Seen
from keyshared.testing.state import State

__all__ = ["DELIVERED", "PUBLISHED", "QUIET", "Check", "Handler", "need", "sinces"]

Handler: TypeAlias = Callable[..., Iterable[Violation]]
"""Takes what was seen and its event; and, if that is of a message, the outstanding message, or None.

Returns what that breaks. One that sees every delivery returns at once where nothing is wrong.
"""

_SHOWN: Final = 8


class Need(NamedTuple):
    """A kind of event that a history must hold so that a promise is judged.

    Attributes:
        advice: What to write.
        kinds: Events, of which it has to hold one.
    """

    advice: str
    kinds: frozenset[type[h.Event]]


def need(advice: str, *kinds: type[h.Event]) -> Need:
    """Return a need of any of these events."""
    return Need(advice, frozenset(kinds))


DELIVERED: Final = need("write `delivered`", h.Delivered)
PUBLISHED: Final = need("write `published`, which says what is outstanding", h.Published)
QUIET: Final = need("write `quiet` where the system has had time to act", h.Quiet, h.AtRest)


class Check(ABC):
    """Checks one promise.

    Args:
        state: The state before the event that is judged.

    Attributes:
        promise: Which.
        claim: The claim without which it is not judged, if there is one.
        needs: What the history must tell.
    """

    promise: ClassVar[Promise]
    claim: ClassVar[str | None] = None
    needs: ClassVar[tuple[Need, ...]]

    def __init__(self, state: State) -> None:
        self.state = state
        self.claims = state.claims

    @abstractmethod
    def handlers(self) -> Mapping[type[h.Event], Handler]:
        """Return which events can break the promise, and who judges them."""

    @property
    def is_claimed(self) -> bool:
        """Whether the system makes the claim without which the promise means nothing."""
        value = True if self.claim is None else getattr(self.claims, self.claim)
        return value is not None and value is not False  # 0 is a claim

    def after(self, seen: Seen) -> None:  # noqa: B027  # for those that look
        """Look at the state after an event."""

    def missing(self) -> str | None:
        """Return what the history would have to tell so that the promise is judged in full; None: nothing."""
        if not self.is_claimed:
            return f"claim {self.claim}"
        return next((need.advice for need in self.needs if not need.kinds & self.state.kinds), None)

    def blame(self, explanation: str, *proof: Seen | None, offset: int | None = None) -> Violation:
        """Return a violation; the proof comes in any order, and None is left out."""
        shown = {seen.position: seen for seen in proof if seen is not None}
        positions = tuple(sorted(shown))
        events = tuple(shown[position].event for position in positions)
        return Violation(self.promise, explanation, positions, _excerpt(positions, events), events, offset)


def sinces(messages: Iterable[Message]) -> list[Seen]:
    """Return what made these messages wait, or opened them."""
    return [message.since for message in messages]


def _excerpt(positions: tuple[int, ...], events: tuple[h.Event, ...]) -> str:
    """Write the first and the last few of them."""
    left_out = len(positions) - _SHOWN
    shown = list(zip(positions, events, strict=True))
    if left_out > 0:
        shown[_SHOWN // 2 : -_SHOWN // 2] = []
    lines = [f"#{position} {describe(each)}" for position, each in shown]
    if left_out > 0:
        lines.insert(_SHOWN // 2, f"... and {left_out} more")
    return "\n".join(lines)
