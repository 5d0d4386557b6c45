"""The values that a cursor returns."""

from dataclasses import dataclass
from enum import Enum

__all__ = ["CursorToken", "OfferAnswer"]


class OfferAnswer(Enum):
    """Whether an offset that is read needs work; true if it does."""

    WORK = "work"  # new: it is outstanding from now on
    SETTLED = "settled"  # above the position, and settled before the restart
    REWIND = "rewind"  # below the position: the log was read from further back than it had to be

    def __bool__(self) -> bool:
        return self is OfferAnswer.WORK


@dataclass(frozen=True, slots=True)
class CursorToken:
    """A cursor as a line of text, and the ranges that did not fit.

    Attributes:
        text: ASCII, safe in URLs, headers and commit metadata; `ContiguousCursor.from_token` reads it.
        omitted_ranges: Acked ranges that did not fit. The lowest ones go in first.
        omitted_span: Sum of their lengths: at most so many settled messages are delivered again after a restart.
    """

    text: str
    omitted_ranges: int = 0
    omitted_span: int = 0

    @property
    def complete(self) -> bool:
        """Whether a restart from it redelivers nothing that was settled."""
        return self.omitted_ranges == 0
