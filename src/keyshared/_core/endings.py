"""How a delivery can end other than by its ack, and what becomes of the message then.

One place for failures, retries, poison and the marks that a late ack or a lost log leaves, so that a nack, a timeout,
an eviction and a lost session cannot treat a message differently by accident. The window's ``wake`` acts afterwards.
"""

from collections.abc import Callable
from typing import Any, Final

from keyshared._core.records import (
    BLOCKED,
    DEAD_LETTERING,
    DELAYED,
    IN_FLIGHT,
    LOADING,
    QUEUED,
    SPILLED,
    Consumer,
    Entry,
    Note,
)
from keyshared._core.timers import Timers
from keyshared._core.window import Window
from keyshared.config import DispatcherConfig, OnEvict, Poison
from keyshared.effects import (
    Blocked,
    Dropped,
    DropReason,
    Effect,
    Ending,
    Released,
    ReleaseReason,
    Settled,
    SettleReason,
    Skipped,
    SkipReason,
)

__all__ = ["REMEMBERED_DELIVERIES", "Endings"]

REMEMBERED_DELIVERIES: Final = 8
"""Ended deliveries that are remembered of one message; the default retries make six, releases any number."""

_UNCOUNTED: Final[tuple[ReleaseReason, ...]] = (
    ReleaseReason.BATCH_BROKEN,
    ReleaseReason.RELEASED,
    ReleaseReason.REMOVED,
    ReleaseReason.DRAIN_TIMEOUT,
)
_LOSSES: Final = (ReleaseReason.EVICTED, ReleaseReason.SESSION_LOST)
"""Failures of the consumer: the message does not wait for them."""

_BREAKS: Final = (ReleaseReason.NACKED, ReleaseReason.REJECTED, ReleaseReason.RELEASED, ReleaseReason.ACK_TIMEOUT)
"""Ends of one delivery, which break its batch. What ends all deliveries of a consumer ends each in its own right."""

_new: Final[Any] = tuple.__new__  # builds an effect in half the time that its own constructor takes


class Endings:
    """Applies the policies of a configuration to messages whose delivery has ended.

    Args:
        notices: Where the effects go that say what was decided.

    Attributes:
        keyless_blocked: Blocked messages without a key, by offset.
        on_fail: Methods of features that count failures.
        uncounted: Ends of a delivery that are no failure.
        reserved: Offsets of deliveries that their consumer has not seen: their end is neither counted nor reported.
    """

    def __init__(self, config: DispatcherConfig, window: Window, timers: Timers, notices: list[Effect]) -> None:
        self._config = config
        self._window = window
        self._timers = timers
        self._notices = notices
        self._has_batches = config.batch_per_key > 1
        self.keyless_blocked: dict[int, Entry] = {}
        self.on_fail: tuple[Callable[[], None], ...] = ()
        self.uncounted = _UNCOUNTED
        self.reserved: set[int] = set()

    def end(
        self, entry: Entry, reason: ReleaseReason, now: int, delay_ms: int | None = None, why: str | None = None
    ) -> None:
        """End an open delivery other than by its ack, and decide what becomes of its message.

        ``delay_ms`` and ``why`` are what its consumer says: how long it should wait, and what went wrong.
        """
        newer: list[Entry] = []
        if self._has_batches and reason in _BREAKS:
            newer = [each for each in entry.lane.opened() if each.offset > entry.offset]
        self._end_one(entry, reason, now, delay_ms, why)
        for each in newer:
            self._end_one(each, ReleaseReason.BATCH_BROKEN, now, None, None)

    def end_all(self, consumer: Consumer, reason: ReleaseReason, now: int) -> None:
        """End every delivery of a consumer, in offset order."""
        for offset in sorted(consumer.open):
            self._end_one(consumer.open[offset], reason, now, None, None)

    def _end_one(self, entry: Entry, reason: ReleaseReason, now: int, delay_ms: int | None, why: str | None) -> None:
        entry.deadline = None
        holder = _holder(entry).name
        note = entry.note
        if note is None:
            note = entry.note = Note()
        if note.mark is not None:
            self._report(_new(Released, (entry.offset, holder, entry.attempt, reason, note.failures, None)))
            self._settle_as_marked(entry, note)
            return
        note.ended = (*note.ended[1 - REMEMBERED_DELIVERIES :], (entry.attempt, holder))
        if why is not None:
            note.reason = why
        drops = reason is ReleaseReason.EVICTED and self._config.on_evict is OnEvict.DROP
        if reason in self.uncounted or entry.offset in self.reserved:
            delay: int | None = delay_ms or 0
        else:
            delay = self._delay_after_failure(note, reason, delay_ms)
            if drops:
                delay = None
        retry_at = None if delay is None else now + delay
        self._report(_new(Released, (entry.offset, holder, entry.attempt, reason, note.failures, retry_at)))
        if delay is None:
            self._give_up(entry, note, drops=drops)
        elif delay == 0:
            self._window.put_back(entry, QUEUED)
        else:
            note.postponed = reason is ReleaseReason.RELEASED
            self._window.put_back(entry, DELAYED)
            self._timers.start(entry, now + delay)

    def _report(self, released: Released) -> None:
        if released.offset not in self.reserved:
            self._notices.append(released)

    def _delay_after_failure(self, note: Note, reason: ReleaseReason, delay_ms: int | None) -> int | None:
        """Count a failure; return how long the message waits now, None if it is given up."""
        note.failures += 1
        for failed in self.on_fail:
            failed()
        if reason is ReleaseReason.REJECTED:
            return None
        delay = self._config.retry.delay_after(note.failures, delay_ms)
        return 0 if delay is not None and reason in _LOSSES else delay

    def _settle_as_marked(self, entry: Entry, note: Note) -> None:
        mark = note.mark
        if isinstance(mark, SettleReason):
            self._notices.append(Settled(entry.offset, entry.key, mark))
            self._window.settle(entry, Ending.LATE_ACK)
        else:
            self._notices.append(Skipped(entry.offset, entry.key, SkipReason.GONE))
            self._window.settle(entry, Ending.GONE)

    def _give_up(self, entry: Entry, note: Note, *, drops: bool) -> None:
        config, window = self._config, self._window
        if drops or config.poison is Poison.DROP:
            self._notices.append(Dropped(entry.offset, entry.key, DropReason.EVICTED if drops else DropReason.POISON))
            window.settle(entry, Ending.DROPPED)
        elif config.quarantine and entry.key is not None:
            window.put_back(entry, QUEUED)
            window.quarantined[entry.key] = None
        elif config.poison is Poison.DEAD_LETTER or config.archive_blocked:
            window.put_back(entry, DEAD_LETTERING)
        else:
            self._block(entry, note)

    def _block(self, entry: Entry, note: Note) -> None:
        self._window.put_back(entry, BLOCKED)
        if entry.key is None:
            self.keyless_blocked[entry.offset] = entry
        self._notices.append(Blocked(entry.offset, entry.key, note.failures, note.reason))

    def archived(self, entry: Entry) -> None:
        """Note that the dead letter of a message is written."""
        if self._config.archive_blocked and entry.note is not None:
            self._block(entry, entry.note)
        else:
            self._window.settle(entry, Ending.DEAD_LETTERED)

    def park(self, entry: Entry) -> None:
        """Settle a blocked message."""
        self._notices.append(Settled(entry.offset, entry.key, SettleReason.PARKED))
        self.keyless_blocked.pop(entry.offset, None)
        self._window.settle(entry, Ending.PARKED)

    def unblock(self, key: bytes | None) -> None:
        """Unblock all messages of a key, and end its quarantine. O(messages of it that came back)."""
        if key is None:
            for entry in list(self.keyless_blocked.values()):
                self.unblock_one(entry, reset_failures=True)
            return
        window = self._window
        was_quarantined = window.quarantined.pop(key, 0) is None
        lane = window.lanes.get(key)
        if lane is None:
            return
        for entry in list(lane.back or ()):
            if entry.state == BLOCKED:
                self.unblock_one(entry, reset_failures=True)
            elif was_quarantined and entry.state in (QUEUED, SPILLED, LOADING) and entry.note is not None:
                entry.note.failures = 0
        if was_quarantined:
            window.touched[lane] = None

    def unblock_one(self, entry: Entry, *, reset_failures: bool) -> None:
        """Unblock one message; if its failures stay counted, the next failure is its last again."""
        if reset_failures and entry.note is not None:
            entry.note.failures = 0
        self.keyless_blocked.pop(entry.offset, None)
        self._window.put_back(entry, QUEUED)

    def gone(self, entry: Entry) -> None:
        """Settle a message that can no longer be read: now, or when its open delivery has ended."""
        if entry.state == IN_FLIGHT:
            note = entry.note = entry.note or Note()
            note.mark = note.mark or SkipReason.GONE
        else:
            self._notices.append(Skipped(entry.offset, entry.key, SkipReason.GONE))
            self.settle(entry, Ending.GONE)

    def settle(self, entry: Entry, how: Ending) -> None:
        """Settle a message that is not open, whatever it waits for."""
        self.keyless_blocked.pop(entry.offset, None)
        self._window.settle(entry, how)

    def together(self, entry: Entry) -> list[Entry]:
        """Return the deliveries that time is given to together: the batch of an open message."""
        return entry.lane.opened() if self._has_batches else [entry]

    def due(self, entry: Entry, now: int) -> None:
        """Act on the deadline of a message: its delivery has timed out, or it has waited long enough."""
        if entry.state == IN_FLIGHT:
            self.end(entry, ReleaseReason.ACK_TIMEOUT, now)
            return
        if entry.note is not None:
            entry.note.postponed = False
        if entry.state == DELAYED:
            self._window.put_back(entry, QUEUED)
        else:
            self._window.touched[entry.lane] = None

    def restored(self, now: int) -> None:
        """Find what is blocked, and start the time of open deliveries that had no ack timeout before the restart."""
        timeout_ms = self._config.ack_timeout_ms
        for entry in self._window.outstanding():
            if entry.state == BLOCKED and entry.key is None:
                self.keyless_blocked[entry.offset] = entry
            elif entry.state == IN_FLIGHT and entry.deadline is None and timeout_ms is not None:
                self._timers.start(entry, now + timeout_ms)


def _holder(entry: Entry) -> Consumer:
    holder = entry.lane.holder
    assert holder is not None  # noqa: S101  # an open message has one
    return holder
