"""The real dispatcher with one fault each in what it postpones, and in what it says of failures."""

from typing import Any

from tests.broken_parts import Broken

from keyshared._dispatch.endings import Endings, Note
from keyshared._dispatch.snapshot import _MessageRow
from keyshared._window.lanes import DELAYED, LOADING, SPILLED, Consumer, Entry, State
from keyshared.config import DispatcherConfig
from keyshared.dispatcher import KeySharedDispatcher
from keyshared.effects import Effect, ReleaseReason
from keyshared.window import InFlightWindow

__all__ = [
    "DelayHoldsOtherKeys",
    "FirstDeliveryIsEarly",
    "LoadedForgetsItsTime",
    "NewerPassesThePostponed",
    "PostponedForNoLongerThanARetry",
    "PostponedGoesAtOnce",
    "PostponedNeverWakes",
    "PostponingCounts",
    "ReasonIsLost",
    "ReasonOfAnotherMessage",
    "RestartForgetsTheTime",
    "RipeNeverWakes",
    "SpilledForgetsItsTime",
]

_Effects = list[Effect[object]]


class PostponedGoesAtOnce(KeySharedDispatcher[object]):
    """What is given back for later is at hand at once."""

    def release(self, *receipt: Any, delay_ms: int = 0, now_ms: int | None = None) -> _Effects:  # noqa: ARG002  # the fault
        return super().release(*receipt, now_ms=now_ms)


class PostponedForNoLongerThanARetry(KeySharedDispatcher[object]):
    """The longest delay of a retry bounds what a consumer asks for, too."""

    def release(self, *receipt: Any, delay_ms: int = 0, now_ms: int | None = None) -> _Effects:
        most = self.config.retry.max_delay_ms
        return super().release(*receipt, delay_ms=min(delay_ms, most), now_ms=now_ms)


class PostponingCounts(Broken):
    """What is given back for later has failed once more."""

    class _Fault(Endings):
        __slots__ = ()

        def _delay_after(self, reason: ReleaseReason, note: Note, delay_ms: int | None) -> int | None:
            note.failures += reason is ReleaseReason.RELEASED and bool(delay_ms)
            return super()._delay_after(reason, note, delay_ms)


class DelayHoldsOtherKeys(Broken):
    """What waits for its time keeps its place at the consumer that gave it back, and other keys wait for that."""

    class _Fault(InFlightWindow):
        kept: dict[int, Consumer]

        def move(self, entry: Entry, to: State) -> None:
            holder = entry.consumer
            super().move(entry, to)
            before = self.kept.pop(entry.offset, None)
            if before is not None:
                self._free(before)
            if to is State.DELAYED and holder is not None:
                self.kept[entry.offset] = holder
                holder.free -= 1

    def __init__(self, placement: Any, config: DispatcherConfig | None = None, **kwargs: Any) -> None:
        super().__init__(placement, config, **kwargs)
        vars(self._window)["kept"] = {}


class NewerPassesThePostponed(KeySharedDispatcher[object]):
    """What is given back for later does not hold its key."""

    def release(self, *receipt: Any, delay_ms: int = 0, now_ms: int | None = None) -> _Effects:
        effects = super().release(*receipt, delay_ms=delay_ms, now_ms=now_ms)
        entry = self._window.find(receipt[0])
        if isinstance(entry, Entry) and entry.state == DELAYED and entry.lane.back and entry in entry.lane.back:
            entry.lane.back.remove(entry)
            self._window._touched[entry.lane] = None
        return effects + self._outbox.wake([], self._now)


class PostponedNeverWakes(KeySharedDispatcher[object]):
    """Nothing starts the clock of what is given back for later."""

    def release(self, *receipt: Any, delay_ms: int = 0, now_ms: int | None = None) -> _Effects:
        effects = super().release(*receipt, delay_ms=delay_ms, now_ms=now_ms)
        entry = self._window.find(receipt[0])
        if entry is not None and entry.state == DELAYED:
            entry.deadline = None
        return effects


class ReasonIsLost(KeySharedDispatcher[object]):
    """A failure that names no reason wipes out that of the one before."""

    def _end(self, *args: Any, **kwargs: Any) -> _Effects:
        note = self._notes.get(args[2][0])
        if note is not None:
            note.reason = None
        return super()._end(*args, **kwargs)


class ReasonOfAnotherMessage(KeySharedDispatcher[object]):
    """There is one last reason, of whatever failed last."""

    def nack(self, *receipt: Any, reason: str | None = None, **others: Any) -> _Effects:
        for note in self._notes.values() if reason is not None else ():
            note.reason = reason
        return super().nack(*receipt, reason=reason, **others)


class FirstDeliveryIsEarly(KeySharedDispatcher[object]):
    """What is offered for later goes out as soon as its turn comes."""

    def offer(self, *args: Any, not_before_ms: int | None = None, now_ms: int | None = None) -> _Effects:  # noqa: ARG002  # the fault
        return super().offer(*args, now_ms=now_ms)


class LoadedForgetsItsTime(KeySharedDispatcher[object]):
    """What was spilled while it waited for its time goes out as soon as it is loaded."""

    def loaded(self, offset: int, *args: Any, **kwargs: Any) -> _Effects:
        entry = self._window.find(offset)
        if entry is not None and entry.state == LOADING:
            entry.deadline = None
        return super().loaded(offset, *args, **kwargs)


class RipeNeverWakes(KeySharedDispatcher[object]):
    """What was spilled while it waited for its time is not asked again when that has come."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        ripen = self._window.ripen
        self._window.ripen = lambda entry: ripen(entry) if entry.state == DELAYED else None  # type: ignore[method-assign]


class SpilledForgetsItsTime(KeySharedDispatcher[object]):
    """What is spilled when it is offered for later keeps its place, and not its time."""

    def _offer_asked(self, offset: int, *args: Any) -> _Effects:
        effects: _Effects = super()._offer_asked(offset, *args)
        entry = self._window.find(offset)
        if entry is not None and entry.state == SPILLED:
            entry.deadline = None
        return effects


class RestartForgetsTheTime(KeySharedDispatcher[object]):
    """After a crash nothing waits for its time any more."""

    def snapshot(self) -> dict[str, Any]:
        state: dict[str, Any] = super().snapshot()
        rows = [_MessageRow(*row) for row in state["messages"]]
        return {
            **state,
            "messages": [list(row._replace(remaining_ms=0) if row.state == "delayed" else row) for row in rows],
        }
