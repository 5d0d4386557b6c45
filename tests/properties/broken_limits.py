"""Real dispatchers that read too far ahead, or let the restart token grow, or hold back what would shorten it."""

from typing import Any

from keyshared._dispatch.budget import BudgetedWindow
from keyshared._dispatch.look_ahead import LookAheadWindow, Reach
from keyshared._window.holes import MeasuringCursor
from keyshared._window.kinds import one_kind
from keyshared._window.lanes import Entry
from keyshared.config import DispatcherConfig, LookAhead
from keyshared.dispatcher import KeySharedDispatcher

__all__ = [
    "BudgetHoldsTheLowest",
    "BudgetNeverCloses",
    "BudgetNeverOpens",
    "LookAheadForgetsTheCap",
    "LookAheadOfTheLeft",
]


class LookAheadForgetsTheCap(KeySharedDispatcher[object]):
    """As many messages may wait as all consumers together may leave waiting, however many consumers there are."""

    def __init__(self, placement: Any, config: DispatcherConfig, **kwargs: Any) -> None:
        super().__init__(placement, config, **kwargs)
        if (
            isinstance(self._window, LookAheadWindow)
            and config.look_ahead is not None
            and config.look_ahead.per_consumer
        ):
            uncapped = LookAhead(per_consumer=config.look_ahead.per_consumer, per_subscription=0)
            self._window.reach = Reach(uncapped, config.max_in_flight_per_consumer, self._routing.filters)


class LookAheadOfTheLeft(KeySharedDispatcher[object]):
    """A consumer that drains goes on to count."""

    def __init__(self, placement: Any, config: DispatcherConfig, **kwargs: Any) -> None:
        super().__init__(placement, config, **kwargs)
        if isinstance(self._window, LookAheadWindow):
            self._window.reach._connected = self._members


class _NeverCloses(MeasuringCursor):
    def _measure(self) -> None:
        super()._measure()
        self.is_full = False


class _NeverOpens(MeasuringCursor):
    def close(self, cell: Any) -> None:
        was_full = self.is_full
        super().close(cell)
        self.is_full = self.is_full or was_full


class _HoldsEverything(BudgetedWindow):
    def is_held(self, entry: Entry) -> bool:  # noqa: ARG002  # the fault
        return self.cursor.is_full


class BudgetNeverCloses(KeySharedDispatcher[object]):
    """A token may become too long, and everything goes on."""

    def __init__(self, placement: Any, config: DispatcherConfig, **kwargs: Any) -> None:
        super().__init__(placement, config, **kwargs)
        _break(self._window.cursor, _NeverCloses)


class BudgetNeverOpens(KeySharedDispatcher[object]):
    """Once the token was full, only the lowest message goes out for ever."""

    def __init__(self, placement: Any, config: DispatcherConfig, **kwargs: Any) -> None:
        super().__init__(placement, config, **kwargs)
        _break(self._window.cursor, _NeverOpens)


class BudgetHoldsTheLowest(KeySharedDispatcher[object]):
    """While the token is full nothing goes out, not even what would make it shorter."""

    def __init__(self, placement: Any, config: DispatcherConfig, **kwargs: Any) -> None:
        super().__init__(placement, config, **kwargs)
        _break(self._window, _HoldsEverything)


def _break(part: object, fault: type) -> None:
    """Give a part a fault of the kind of part that it is, if there is such a part."""
    if isinstance(part, fault.__base__ or object):
        part.__class__ = one_kind(fault, type(part))
