"""How the delivery of a message can end other than by its ack, and what becomes of the message then.

One place for failures, retries, poison and the marks that a late ack or a lost log leaves behind, so that a nack, a
timeout, an eviction and a lost session cannot treat a message differently by accident.
"""

from typing import Final, TypeAlias

from keyshared._dispatch.timers import Timers
from keyshared._window.lanes import IN_FLIGHT, Consumer, Entry, State
from keyshared.config import DispatcherConfig, OnEvict, Then
from keyshared.effects import (
    Blocked,
    Dropped,
    DropReason,
    Effect,
    Released,
    ReleaseReason,
    Settled,
    SettleReason,
    Skipped,
    SkipReason,
)
from keyshared.window import InFlightWindow

__all__ = ["REMEMBERED_DELIVERIES", "Ended", "Endings", "Note"]

REMEMBERED_DELIVERIES: Final = 8
"""Ended deliveries that are remembered of one message: with the default retries, which make six at most, all."""

Ended: TypeAlias = tuple[int, str]
"""A delivery that has ended: its attempt, and the consumer that had it."""

_SETTLES: TypeAlias = SettleReason | SkipReason

_new: Final = tuple.__new__  # builds an effect in half the time that its own constructor takes
_REJECTED: Final = ReleaseReason.REJECTED
_EVICTED: Final = ReleaseReason.EVICTED
_NO_FAILURES: Final = (ReleaseReason.RELEASED, ReleaseReason.REMOVED, ReleaseReason.DRAIN_TIMEOUT)
_LOSSES: Final = (_EVICTED, ReleaseReason.SESSION_LOST)
"""Failures that are the consumer's: only what the message itself may have caused makes it wait."""


class Note:
    """What is noted of an outstanding message beyond its place in the window.

    Attributes:
        ended: Its deliveries that have ended, oldest first: the last `REMEMBERED_DELIVERIES` of them. An ack of one of
            these is a late success; anything else was never delivered, or is forgotten.
        mark: What the end of its open delivery will count as, whichever way it ends.
    """

    __slots__ = ("ended", "mark")

    def __init__(self, ended: tuple[Ended, ...] = (), mark: _SETTLES | None = None) -> None:
        self.ended = ended
        self.mark = mark


class Endings:
    """Applies the policies of a configuration to messages whose delivery has ended.

    What was decided is appended to ``notices``. Only the books change: the window's ``wake`` acts on them.

    Attributes:
        notes: What is noted of offsets: nothing of a message whose first delivery is open, or was not made yet.
        blocked: Blocked messages by key, then offset.
    """

    __slots__ = ("_config", "_timers", "_window", "blocked", "notes")

    def __init__(self, config: DispatcherConfig, window: InFlightWindow, timers: Timers) -> None:
        self._config = config
        self._window = window
        self._timers = timers
        self.notes: dict[int, Note] = {}
        self.blocked: dict[bytes | None, dict[int, Entry]] = {}

    def end(
        self, entry: Entry, reason: ReleaseReason, notices: list[Effect], now: int, *, delay_ms: int | None = None
    ) -> None:
        """End an open delivery in any way but by its ack, and decide what becomes of its message."""
        entry.deadline = None
        holder: Consumer = entry.consumer  # type: ignore[assignment]  # whatever is in flight has a consumer
        note = self.notes.get(entry.offset)
        if note is None:
            note = self.notes[entry.offset] = Note()
        if note.mark is not None:
            notices.append(Released(entry.offset, holder.name, entry.attempt, reason, entry.failures, None))
            self._settle_as(note.mark, entry, notices)
            return
        note.ended = (*note.ended[1 - REMEMBERED_DELIVERIES :], (entry.attempt, holder.name))
        delay = self._delay_after(reason, entry, delay_ms)
        retry_at = None if delay is None else now + delay
        fields = (entry.offset, holder.name, entry.attempt, reason, entry.failures, retry_at)
        notices.append(_new(Released, fields))
        if delay is None:
            self._give_up(entry, reason, notices)
        elif delay == 0:
            self._window.move(entry, State.QUEUED)
        else:
            self._window.move(entry, State.RETRY_WAIT)
            self._timers.start(entry, now + delay)

    def archived(self, entry: Entry, notices: list[Effect]) -> None:
        """The dead letter is written."""
        if self._config.poison.then is Then.BLOCK:
            self._block(entry, notices)
        else:
            self.settle(entry)

    def unblock(self, key: bytes | None) -> None:
        """Let everything of a key go on."""
        for entry in self.blocked.pop(key, {}).values():
            entry.failures = 0
            self._window.move(entry, State.QUEUED)
        if key is not None:
            self._window.lift_quarantine(key)

    def unblock_one(self, entry: Entry, *, reset_failures: bool) -> None:
        """Let one blocked message go on; if its failures stay, the next one is its last again."""
        self._forget_blocked(entry)
        if reset_failures:
            entry.failures = 0
        self._window.move(entry, State.QUEUED)

    def park(self, entry: Entry, notices: list[Effect]) -> None:
        """Settle a blocked message."""
        notices.append(Settled(entry.offset, entry.key, SettleReason.PARKED))
        self.settle(entry)

    def gone(self, entry: Entry, notices: list[Effect]) -> None:
        """The message can no longer be read: settle it, now or when the delivery that is open has ended."""
        if entry.state == IN_FLIGHT:
            note = self.notes.setdefault(entry.offset, Note())
            note.mark = note.mark or SkipReason.GONE
        else:
            notices.append(Skipped(entry.offset, entry.key, SkipReason.GONE))
            self.settle(entry)

    def mark_late(self, entry: Entry) -> None:
        """An earlier delivery of an open message turned out to have succeeded."""
        self.notes[entry.offset].mark = SettleReason.LATE_ACK

    def ended(self, offset: int) -> tuple[Ended, ...]:
        """The deliveries of an outstanding message that have ended and are remembered, oldest first."""
        note = self.notes.get(offset)
        return () if note is None else note.ended

    def settle(self, entry: Entry) -> None:
        """Settle a message in any state and forget all that was noted about it."""
        entry.deadline = None
        self.notes.pop(entry.offset, None)
        if entry.state == State.BLOCKED:
            self._forget_blocked(entry)
        self._window.remove(entry)

    def due(self, entry: Entry, notices: list[Effect], now: int) -> None:
        """The deadline of a message has come: its delivery timed out, or its retry may go out."""
        if entry.state == State.IN_FLIGHT:
            self.end(entry, ReleaseReason.ACK_TIMEOUT, notices, now)
        elif entry.state == State.RETRY_WAIT:
            self._window.move(entry, State.QUEUED)

    def _delay_after(self, reason: ReleaseReason, entry: Entry, delay_ms: int | None) -> int | None:
        """Count the failure, if it is one; return how long the message waits now, None if it is given up."""
        if reason in _NO_FAILURES:
            return 0
        entry.failures += 1
        if reason is _REJECTED or self._drops(reason):
            return None
        delay = self._config.retry.delay_ms(entry.failures, delay_ms)
        return 0 if delay is not None and reason in _LOSSES else delay

    def _drops(self, reason: ReleaseReason) -> bool:
        return reason is _EVICTED and self._config.on_evict is OnEvict.DROP

    def _settle_as(self, mark: _SETTLES, entry: Entry, notices: list[Effect]) -> None:
        if isinstance(mark, SettleReason):
            notices.append(Settled(entry.offset, entry.key, mark))
        else:
            notices.append(Skipped(entry.offset, entry.key, mark))
        self.settle(entry)

    def _give_up(self, entry: Entry, reason: ReleaseReason, notices: list[Effect]) -> None:
        if self._drops(reason):
            notices.append(Dropped(entry.offset, entry.key, DropReason.EVICTED))
            self.settle(entry)
        else:
            self._poison(entry, notices)

    def _poison(self, entry: Entry, notices: list[Effect]) -> None:
        poison = self._config.poison
        if poison.then is Then.QUARANTINE and entry.key is not None:
            self._window.move(entry, State.QUEUED)
            self._window.quarantine(entry.key)
        elif poison.archive:
            self._window.move(entry, State.DEAD_LETTERING)
        elif poison.then is Then.BLOCK:
            self._block(entry, notices)
        else:
            notices.append(Dropped(entry.offset, entry.key, DropReason.POISON))
            self.settle(entry)

    def _forget_blocked(self, entry: Entry) -> None:
        of_key = self.blocked[entry.key]
        del of_key[entry.offset]
        if not of_key:
            del self.blocked[entry.key]

    def _block(self, entry: Entry, notices: list[Effect]) -> None:
        self._window.move(entry, State.BLOCKED)
        self.blocked.setdefault(entry.key, {})[entry.offset] = entry
        notices.append(Blocked(entry.offset, entry.key, entry.failures))
