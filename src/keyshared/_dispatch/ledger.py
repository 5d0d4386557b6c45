"""How each message ended, told once, in the call that settled it.

The cursor notes what is settled. What settles a message other than the ack of its open delivery says so here first.
"""

from typing import NamedTuple

from keyshared._window.lanes import Entry
from keyshared._window.watched import WatchedCursor
from keyshared.cursor import Cell
from keyshared.effects import Done, Ending

__all__ = ["Ledger", "RestartMark"]


class RestartMark(NamedTuple):
    """What a restart would redo, as a mark: two that are equal say that nothing was settled or offered in between.

    Attributes:
        last: Greatest offset offered so far, None before any.
        outstanding: How many offered messages are not settled.
    """

    last: int | None
    outstanding: int


class Ledger:
    """Turns what the cursor notes into one `Done` for each message.

    Args:
        cursor: Emptied of its notes by each `take`.
    """

    __slots__ = ("_cursor", "_said")

    def __init__(self, cursor: WatchedCursor) -> None:
        self._cursor = cursor
        self._said: dict[int, Done] = {}

    def say(self, offset: int, key: bytes | None, how: Ending) -> None:
        """Say how a message ends that is about to be settled: without this, by the ack of its open delivery."""
        self._said[offset] = Done(offset, key, how)

    def take(self) -> list[Done]:
        """Return what was settled since the last time, in that order. O(result)."""
        ended = self._cursor.ended
        done = [self._done(each) for each in ended]
        ended.clear()
        return done

    def forget(self) -> None:
        """Begin with a cursor that was filled in another life."""
        self._cursor.ended.clear()

    def _done(self, ended: Cell | int) -> Done:
        if not isinstance(ended, Entry):
            return self._said.pop(ended)  # type: ignore[arg-type]  # an offset: whoever skips one says why
        if ended.offset in self._said:
            return self._said.pop(ended.offset)
        return Done(ended.offset, ended.key, Ending.ACKED)
