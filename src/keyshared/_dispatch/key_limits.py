"""Windows in which a rule says of each key how many of its deliveries may be open.

A lane at its limit stands in no list, as one does where all keys have the same limit: the end of one of its deliveries
looks at it again.
"""

from typing import Any

from keyshared._dispatch.batches import BatchWindow
from keyshared._dispatch.ruled import RuledWindow
from keyshared._window.lanes import Consumer, Entry, Lane

__all__ = ["KeyLimitBatchWindow", "KeyLimitWindow"]


class KeyLimitWindow(RuledWindow):
    """A window whose keys are worked on in a pipeline, each as deep as its rule says.

    The limit of all keys counts for nothing; that of what is loaded of a key counts, because what is open is loaded.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401  # as those of the window
        super().__init__(*args, **kwargs)
        self.per_key = self.loaded_per_key  # never less than a limit: what a lane may have is asked of the lane

    def turn_limit(self, lane: Lane) -> int:
        """With how many open deliveries a lane waits for the end of one before it has a turn."""
        return self.per_key if lane.key is None else min(self.per_key, lane.rule.most_open)

    def _step(self, lane: Lane, granted: list[Entry]) -> bool:
        if lane.open and self._is_at_limit(lane):
            self._unlist(lane)
            return False
        return super()._step(lane, granted)

    def _is_at_limit(self, lane: Lane) -> bool:
        """Whether the owner of a lane, of which something is open, works on as much of it as may be."""
        key = lane.key
        if key is None or key in self.quarantined or lane.open < self.turn_limit(lane):
            return False
        return lane.holder is self._owner_now(lane)

    def _could_get(self, consumer: Consumer, lane: Lane) -> bool:
        return lane.open < self.turn_limit(lane) and super()._could_get(consumer, lane)


class KeyLimitBatchWindow(RuledWindow, BatchWindow):
    """A window whose keys get batches, none of which is larger than the rule of its key says."""

    def most_of(self, lane: Lane) -> int:
        """How many deliveries of a lane may be open."""
        most = super().most_of(lane)
        return most if lane.key is None else min(most, lane.rule.most_open)

    def _goes_on(self, lane: Lane, consumer: Consumer) -> bool:
        return lane.open < self.most_of(lane) and super()._goes_on(lane, consumer)
