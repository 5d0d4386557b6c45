"""A dispatcher with one fault each, of what it tells of messages that are done."""

from typing import Any

from keyshared._dispatch.explain import RestartMark
from keyshared._dispatch.ledger import Ledger
from keyshared._window.lanes import IN_FLIGHT
from keyshared._window.watched import WatchedCursor
from keyshared.cursor import Cell
from keyshared.dispatcher import KeySharedDispatcher
from keyshared.effects import Done, Effect, Ending

__all__ = ["AckNotTold", "ArchiveToldTwice", "ForgetsHowItEnded", "MarkStandsStill", "SkipNotTold"]


class UntoldAck(WatchedCursor):
    """Notes what is settled, but not what is acked."""

    __slots__ = ()

    def close(self, cell: Cell) -> None:
        is_acked = cell.state == IN_FLIGHT
        super().close(cell)
        if is_acked:
            self.ended.pop()


class UntoldSkip(WatchedCursor):
    """Notes what is settled, but not what never was outstanding."""

    __slots__ = ()

    def skip(self, offset: int) -> None:
        super().skip(offset)
        self.ended.pop()


class LedgerOfAcks(Ledger):
    """Takes every end for an ack."""

    __slots__ = ()

    def say(self, offset: int, key: bytes | None, how: Ending) -> None:  # noqa: ARG002  # the fault
        super().say(offset, key, Ending.ACKED)


class AckNotTold(KeySharedDispatcher[object]):
    """Says how messages end, but of an ack its consumer knows already."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        _replace_class(self._window.cursor, WatchedCursor, UntoldAck)


class SkipNotTold(KeySharedDispatcher[object]):
    """What nobody accepts is settled in a path of its own, which forgets to say so."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        _replace_class(self._window.cursor, WatchedCursor, UntoldSkip)


class ForgetsHowItEnded(KeySharedDispatcher[object]):
    """Says of each message that it was acked, also of one that was parked."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        _replace_class(self._ledger, Ledger, LedgerOfAcks)


class ArchiveToldTwice(KeySharedDispatcher[object]):
    """Says that a message is done when its dead letter is written, and again when it is settled."""

    def dead_lettered(self, offset: int, *, now_ms: int | None = None) -> list[Effect]:
        effects = super().dead_lettered(offset, now_ms=now_ms)
        done = [effect for effect in effects if isinstance(effect, Done)]
        return [*done, *effects]


class MarkStandsStill(KeySharedDispatcher[object]):
    """Takes the cursor for what a restart would redo: behind a slow head nothing seems to happen."""

    @property
    def restart_mark(self) -> RestartMark:
        return RestartMark(self.safe_cursor, 0)


def _replace_class(thing: object, known: type, broken: type) -> None:
    """Let a part of a dispatcher be a broken one, if it is there: not every configuration asks for it."""
    if type(thing) is known:
        thing.__class__ = broken
