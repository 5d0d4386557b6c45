"""One `Done` for each message, in the call that settles it."""

from collections.abc import Iterable

from keyshared._core.feature import Feature
from keyshared._core.records import Entry
from keyshared.effects import Done, Effect, Ending

__all__ = ["TellSettled"]


class TellSettled(Feature):
    """Notes what is settled, and tells it at the end of the call."""

    def __init__(self) -> None:
        self._done: list[Effect] = []

    def settled(self, entry: Entry, how: Ending) -> None:
        """Note that a message is settled."""
        self._done.append(Done(entry.offset, entry.key, how))

    def skipped(self, offset: int, key: bytes | None, how: Ending) -> None:
        """Note that an offered message is settled already."""
        self._done.append(Done(offset, key, how))

    def finish(self, now: int) -> Iterable[Effect]:
        """Return what was settled, in that order."""
        done = self._done
        if done:
            self._done = []
        return done
