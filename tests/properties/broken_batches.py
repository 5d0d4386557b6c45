"""The real dispatcher with batches of a key, and one fault each."""

from typing import Any

from keyshared._dispatch.batches import BatchEndings, BatchWindow
from keyshared._dispatch.endings import Endings, Note
from keyshared._dispatch.receipts import current, open_through
from keyshared._window.lanes import QUEUED, Consumer, Entry, Lane, State
from keyshared.config import DispatcherConfig
from keyshared.dispatcher import KeySharedDispatcher
from keyshared.effects import Effect, ReleaseReason

__all__ = ["BROKEN_BATCHES", "AckThroughSkipsOne", "BatchWithAHole"]


class _KeepsNewerOpen(BatchEndings):
    __slots__ = ()

    def end(self, entry: Entry, reason: ReleaseReason, notices: list[Effect], now: int, **said: Any) -> None:
        Endings.end(self, entry, reason, notices, now, **said)


class _CountsThemAll(BatchEndings):
    __slots__ = ()

    def end(self, entry: Entry, reason: ReleaseReason, notices: list[Effect], now: int, **said: Any) -> None:
        for each in self.together(entry):
            note = self.notes.setdefault(each.offset, Note())
            note.failures += each.offset > entry.offset
        super().end(entry, reason, notices, now, **said)


class _PassesOverWhatIsNotAtHand(BatchWindow):
    def _send(self, lane: Lane, entry: Entry, consumer: Consumer, granted: list[Entry]) -> bool:
        super()._send(lane, entry, consumer, granted)
        hole = lane.candidate
        if lane.open and lane.back and hole is not None and hole.state == State.DELAYED and consumer.free > 0:
            lane.back.remove(hole)
            following = lane.candidate
            if following is not None and following.state == QUEUED:
                self._open(lane, following, consumer, granted)
            lane.take_back(hole)
        return False


class MiddleFailureGoesOn(KeySharedDispatcher[object]):
    """When one of a batch fails, the newer ones stay out."""

    def __init__(self, placement: Any, config: DispatcherConfig, **kwargs: Any) -> None:
        super().__init__(placement, config, **kwargs)
        if isinstance(self._endings, BatchEndings):
            self._endings.__class__ = _KeepsNewerOpen


class BrokenBatchCountsFailures(KeySharedDispatcher[object]):
    """When one of a batch fails, the newer ones have failed too."""

    def __init__(self, placement: Any, config: DispatcherConfig, **kwargs: Any) -> None:
        super().__init__(placement, config, **kwargs)
        if isinstance(self._endings, BatchEndings):
            self._endings.__class__ = _CountsThemAll


class BatchWithAHole(KeySharedDispatcher[object]):
    """A batch passes over what waits for its retry."""

    def __init__(self, placement: Any, config: DispatcherConfig, **kwargs: Any) -> None:
        super().__init__(placement, config, **kwargs)
        if isinstance(self._window, BatchWindow):
            self._window.__class__ = _PassesOverWhatIsNotAtHand


class SecondBatchBesideTheFirst(KeySharedDispatcher[object]):
    """What comes later goes out beside a batch that is not full, or not done."""

    def __init__(self, placement: Any, config: DispatcherConfig, **kwargs: Any) -> None:
        super().__init__(placement, config, **kwargs)
        self._window.per_key = max(self._window.per_key, config.batch_per_key)


class AckThroughSkipsOne(KeySharedDispatcher[object]):
    """Of what is acked together, the oldest is forgotten."""

    def ack_through(self, offset: int, consumer: str, attempt: int, *, now_ms: int | None = None) -> list[Effect]:
        entry = current(self._members, offset, consumer, attempt)
        older = [] if entry is None else open_through(entry)
        return self.ack_many(older[1:] if len(older) > 1 else [(offset, consumer, attempt)], now_ms=now_ms)


BROKEN_BATCHES = (MiddleFailureGoesOn, SecondBatchBesideTheFirst, BrokenBatchCountsFailures, AckThroughSkipsOne)
