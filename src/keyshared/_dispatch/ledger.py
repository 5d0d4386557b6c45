"""How each message ended, told once, in the call that settled it. Loaded only where that is asked for.

The cursor notes what is settled. What settles a message other than the ack of its open delivery says so here first.
"""

from typing import Any, Final

from keyshared._dispatch.outbox import RANKS, STATES, Outbox
from keyshared._window.lanes import Entry
from keyshared._window.watched import WatchedCursor
from keyshared.cursor import Cell
from keyshared.effects import Done, Effect, Ending
from keyshared.window import InFlightWindow

__all__ = ["Ledger", "TellingOutbox"]

_AFTER_NOTICES: Final = (RANKS.keys() - {Done}) | STATES
_ACKED: Final = Ending.ACKED
_new: Final = tuple.__new__  # builds an effect in half the time that its own constructor takes


class Ledger:
    """Turns what a cursor notes into one `Done` for each message.

    Args:
        window: A new one: it gets a cursor that notes what is settled, unless it has one.
    """

    __slots__ = ("_said", "cursor")

    def __init__(self, window: InFlightWindow) -> None:
        if not isinstance(window.cursor, WatchedCursor):
            window.cursor = WatchedCursor(window.cursor.start)
        self.cursor = window.cursor
        self._said: dict[int, Done] = {}

    def say(self, offset: int, key: bytes | None, how: Ending) -> None:
        """Note how a message ends that is about to be settled: without this, by the ack of its open delivery."""
        self._said[offset] = Done(offset, key, how)

    def fail(self) -> None:
        """Note that a delivery has failed: only who measures counts it."""

    def forget(self) -> None:
        """Pass over what was settled since the last time: it was told in an earlier life."""
        self.cursor.ended.clear()

    def take(self) -> list[Done]:
        """Return what was settled since the last time, in that order. O(result)."""
        ended = self.cursor.ended
        done = [self._done(each) for each in ended]
        ended.clear()
        return done

    def _done(self, ended: Cell | int) -> Done:
        if not isinstance(ended, Entry):
            return self._said.pop(ended)  # type: ignore[arg-type]  # an offset: whoever skips one says why
        if self._said and ended.offset in self._said:
            return self._said.pop(ended.offset)
        return _new(Done, (ended.offset, ended.key, _ACKED))


class TellingOutbox(Outbox):
    """Adds to what a call returns one `Done` for each message that it has settled, after all other notices."""

    __slots__ = ("_ended", "_ledger")

    def __init__(self, ledger: Ledger, *others: Any, **settings: Any) -> None:  # noqa: ANN401  # those of an outbox
        super().__init__(*others, **settings)
        self._ledger = ledger
        self._ended = ledger.cursor.ended

    def known(self, offset: int, key: bytes | None) -> list[Effect[Any]]:
        """Answer an offer that is no news: it is done, unless it is outstanding."""
        return [] if self._window.find(offset) is not None else [Done(offset, key, Ending.EARLIER)]

    def finish(self, out: list[Effect], granted: list[Entry], now: int) -> list[Effect[Any]]:
        """Put the settlements between the notices and the obligations."""
        out = super().finish(out, granted, now)
        if self._ended:
            place = 0
            while place < len(out) and type(out[place]) not in _AFTER_NOTICES:
                place += 1
            out[place:place] = self._ledger.take()
        return out
