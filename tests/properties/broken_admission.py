"""Real dispatchers that let in what they should refuse, or refuse what they should let in."""

from typing import Any

from keyshared._dispatch.waiting import WaitingCounts, WaitingLimits
from keyshared._window.lanes import Lane
from keyshared.config import DispatcherConfig
from keyshared.dispatcher import KeySharedDispatcher

__all__ = ["JoinRecountsNothing", "OpenCountsAsWaiting", "SpillsAllTheSame", "WaitsBeyondTheKeyLimit"]


class SpillsAllTheSame(KeySharedDispatcher[object]):
    """Spills what waits beyond half the window, though spilling is off."""

    def __init__(self, placement: Any, config: DispatcherConfig, **kwargs: Any) -> None:
        super().__init__(placement, config, **kwargs)
        self._window.loaded_per_key = self._window.capacity


class _OneMore(WaitingLimits):
    __slots__ = ()

    def _waiting_of(self, lane_key: bytes) -> int:
        return super()._waiting_of(lane_key) - 1


class WaitsBeyondTheKeyLimit(KeySharedDispatcher[object]):
    """Refuses a message when more of its key wait than may, not when as many do."""

    def __init__(self, placement: Any, config: DispatcherConfig, **kwargs: Any) -> None:
        super().__init__(placement, config, **kwargs)
        if self._waiting is not None:
            self._waiting.__class__ = _OneMore


class _All(WaitingLimits):
    __slots__ = ()

    def _waiting_of(self, lane_key: bytes) -> int:
        lane = self._window.lanes.get(lane_key)
        return lane.loaded if isinstance(lane, Lane) else int(lane is not None)


class OpenCountsAsWaiting(KeySharedDispatcher[object]):
    """Counts what is open of a key, too: with a limit of 1 nothing may wait."""

    def __init__(self, placement: Any, config: DispatcherConfig, **kwargs: Any) -> None:
        super().__init__(placement, config, **kwargs)
        if self._waiting is not None:
            self._waiting.__class__ = _All


class _NeverAnew(WaitingCounts):
    __slots__ = ()

    def recount(self) -> None:
        self._asked = self._routing.owner


class JoinRecountsNothing(KeySharedDispatcher[object]):
    """What waits for a consumer is counted for the one that owned the key when it was offered."""

    def __init__(self, placement: Any, config: DispatcherConfig, **kwargs: Any) -> None:
        super().__init__(placement, config, **kwargs)
        if self._waiting is not None and self._waiting.counts is not None:
            self._waiting.counts.__class__ = _NeverAnew
