"""What the window tells a feature, and what a feature may refuse.

A feature is one class. It overrides the methods that it needs; the window and the outbox keep tuples of just these, so
a method that no feature overrides costs nothing. Features know this module and the window, and never one another.
"""

from collections.abc import Iterable
from typing import ClassVar

from keyshared._core.reader import Reader
from keyshared._core.records import Consumer, Entry, Lane, Place
from keyshared._core.timers import Duties
from keyshared.effects import Effect, Ending

__all__ = ["Feature"]


class Feature:
    """A part of the dispatcher that a configuration asks for; see `chosen` for the list.

    Attributes:
        name: Its name in a snapshot; empty if it keeps nothing.
        gate: Where lanes wait that `refuses` keeps back; None if it keeps back none.
    """

    name: ClassVar[str] = ""
    gate: Place | None = None

    def refuses(self, lane: Lane, owner: Consumer) -> bool:
        """Return whether the next message of a lane may not go to its owner now; asked if there is a ``gate``.

        It has to add the lane to ``window.touched`` when that may have changed.
        """
        return False

    def opened(self, entry: Entry, consumer: Consumer) -> None:
        """Note that a delivery has begun."""

    def closed(self, entry: Entry, consumer: Consumer) -> None:
        """Note that a delivery has ended, whatever becomes of the message."""

    def tracked(self, entry: Entry) -> None:
        """Note that a message is outstanding."""

    def settled(self, entry: Entry, how: Ending) -> None:
        """Note that a message is settled."""

    def skipped(self, offset: int, key: bytes | None, how: Ending) -> None:
        """Note that an offered message is settled without having been outstanding."""

    def moved(self) -> None:
        """Note that owners of keys may have changed."""

    def woken(self) -> None:
        """Act at the end of `Window.wake`."""

    def delivered(self, number: int) -> None:
        """Note how many deliveries a call returns."""

    def failed_one(self) -> None:
        """Note that a delivery has failed."""

    def lost(self, consumer: Consumer) -> None:
        """Note that a consumer has lost what it kept, or is gone; nothing is open at it."""

    def must_finish(self, consumer: Consumer) -> bool:
        """Return whether a consumer that leaves has something to finish besides its deliveries."""
        return False

    def keys(self) -> Iterable[bytes]:
        """Return keys that it knows although nothing of them may be outstanding."""
        return ()

    def finish(self, now: int) -> Iterable[Effect]:
        """End a call: return the effects that belong behind the notices."""
        return ()

    def duties(self) -> Duties:
        """Return what it does when the deadlines that it starts have come."""
        return {}

    def restored(self) -> None:
        """Count what it derives from the window, which was restored, before `load`."""

    def dump(self, now: int) -> object:
        """Return what a snapshot has to keep, as plain data; None for nothing. Times are what remains of them."""
        return None

    def load(self, row: Reader, now: int) -> None:
        """Take what `dump` returned, once messages, consumers and lanes are restored."""

    def check_invariants(self) -> None:
        """Raise `InvariantError` if what it keeps contradicts the window. For tests; O(n)."""
