"""The real dispatcher that measures, and one fault each in its figures."""

from typing import Any

from keyshared._dispatch.measure import HealthRoom, MeasuringLedger
from keyshared.dispatcher import KeySharedDispatcher
from keyshared.effects import Done, Effect, Ending

__all__ = ["AgeOfTheNewest", "CountsAreLostOverARestart", "CountsOnlyAcks", "CountsTheOfferTwice"]


class CountsTheOfferTwice(KeySharedDispatcher[object]):
    """What is read again after a restart is counted again."""

    def _admit(self, offset: int, *others: Any) -> list[Effect[object]] | None:
        known = self._admission.is_known(offset) and self._window.find(offset) is None
        answer = super()._admit(offset, *others)
        if known and isinstance(self._ledger, MeasuringLedger):
            self._ledger.ended[Ending.EARLIER] += 1
        return answer


class _Newest(HealthRoom):
    __slots__ = ()

    def age_of(self, offset: int, now: int) -> int:
        return super().age_of(max(offset, self._last or 0), now)


class AgeOfTheNewest(KeySharedDispatcher[object]):
    """The age is that of the last message that was offered."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self._health is not None:
            self._health.__class__ = _Newest


class _LedgerOfAcks(MeasuringLedger):
    __slots__ = ()

    def take(self) -> list[Done]:
        before = dict(self.ended)
        done = super().take()
        self.ended = {**before, Ending.ACKED: self.ended[Ending.ACKED]}
        return done


class CountsOnlyAcks(KeySharedDispatcher[object]):
    """What is done in another way is not counted."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if isinstance(self._ledger, MeasuringLedger):
            self._ledger.__class__ = _LedgerOfAcks


class CountsAreLostOverARestart(KeySharedDispatcher[object]):
    """After a crash the counts begin anew."""

    def snapshot(self) -> dict[str, Any]:
        state: dict[str, Any] = super().snapshot()
        health = state["rooms"].get("health")
        if health is not None:
            health |= {"ended": {}, "delivered": 0, "failed": 0}
        return state
