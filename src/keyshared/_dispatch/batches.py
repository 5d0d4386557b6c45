"""Batches of a key: what a handler gets that works on several messages of one key at once.

A *batch* is all open deliveries of a key. Nothing records it: it is what is open. One is made in one turn, out of what
is at hand, and nothing more of the key goes out until all of it has ended.
"""

from collections.abc import Sequence
from typing import Any, Final

from keyshared._dispatch.endings import Endings
from keyshared._window.lanes import IN_FLIGHT, QUEUED, Consumer, Entry, Lane
from keyshared._window.strides import settle_each
from keyshared.effects import Effect, ReleaseReason
from keyshared.window import InFlightWindow

__all__ = ["BatchEndings", "BatchWindow"]

_BREAKS: Final = frozenset(
    {ReleaseReason.NACKED, ReleaseReason.REJECTED, ReleaseReason.RELEASED, ReleaseReason.ACK_TIMEOUT}
)
"""Ends of one delivery. Whatever ends all that a consumer holds ends each message of a batch in its own right."""


class BatchWindow(InFlightWindow):
    """A window whose keys get several messages in one turn, and the next turn when all of them have ended.

    Args:
        batch: How many messages of a key go out in one turn, at most. The limit per key stays 1: that one is asked
            whether a key may have a turn.
        args: As `InFlightWindow`.
        kwargs: As `InFlightWindow`.

    Complexity:
        As `InFlightWindow`, and O(1) for each message of a batch.
    """

    has_lone = False

    def __init__(self, *args: Any, batch: int, **kwargs: Any) -> None:  # noqa: ANN401  # as those of the window
        super().__init__(*args, **kwargs)
        self._batch = self._turn = batch

    def most_of(self, lane: Lane) -> int:  # noqa: ARG002  # where keys have limits of their own, it counts
        """How many deliveries of a lane may be open."""
        return self._batch

    def settle(self, entry: Entry) -> list[Entry]:
        """As `InFlightWindow.settle`; after the last one of a batch the key has a turn, not a single message."""
        if entry.after is None or entry.lane.open > 1:
            return super().settle(entry)
        self.remove(entry)
        return self.wake()

    def settle_many(self, entries: Sequence[Entry]) -> tuple[list[Entry], bool]:
        """As `InFlightWindow.settle_many`, message after message."""
        return settle_each(self, entries)

    def pull(self, consumer: Consumer, most: int, only: Entry | None = None, per_key: int | None = None) -> list[Entry]:
        """As `InFlightWindow.pull`, with another size of batches for this once; what is wanted alone goes alone."""
        self._turn = 1 if only is not None else per_key or self._batch
        granted = super().pull(consumer, most, only)
        self._turn = self._batch
        return granted

    def _send(self, lane: Lane, entry: Entry, consumer: Consumer, granted: list[Entry]) -> bool:
        super()._send(lane, entry, consumer, granted)
        while lane.open and lane.open < self._turn and self._goes_on(lane, consumer):
            following = lane.candidate
            if following is None or following.state != QUEUED:
                break
            self._open(lane, following, consumer, granted)
        return False  # a key has one turn

    def _goes_on(self, lane: Lane, consumer: Consumer) -> bool:  # noqa: ARG002  # some limits are those of the lane
        """Whether there is room for another message of a batch."""
        return consumer.free > 0


class BatchEndings(Endings):
    """When one message of a batch ends in another way than by its ack, the newer ones of the batch are put back."""

    __slots__ = ()

    def end(
        self,
        entry: Entry,
        reason: ReleaseReason,
        notices: list[Effect],
        now: int,
        *,
        delay_ms: int | None = None,
        why: str | None = None,
    ) -> None:
        """End an open delivery in any way but by its ack, and what of its batch is newer: that waits for nothing."""
        newer = _newer_of_batch(entry) if reason in _BREAKS else []
        super().end(entry, reason, notices, now, delay_ms=delay_ms, why=why)
        for each in newer:
            super().end(each, ReleaseReason.BATCH_BROKEN, notices, now)

    def together(self, entry: Entry) -> list[Entry]:
        """The deliveries that time is given to together: the batch."""
        first = entry.lane.head
        if first is None:
            return [entry]
        return ([first] if first.state == IN_FLIGHT else []) + _newer_of_batch(first)


def _newer_of_batch(entry: Entry) -> list[Entry]:
    """The open deliveries of the lane that are newer, oldest first. O(batch)."""
    newer: list[Entry] = []
    fresh, after = entry.lane.fresh, entry.after
    while after is not None and after is not fresh:
        if after.state == IN_FLIGHT:
            newer.append(after)
        after = after.after
    return newer
