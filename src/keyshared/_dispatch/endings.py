"""How the delivery of a message can end other than by its ack, and what becomes of the message then.

One place for failures, retries, poison and the marks that a late ack or a lost log leaves behind, so that a nack, a
timeout, an eviction and a lost session cannot treat a message differently by accident.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, TypeAlias

from keyshared._checks import require
from keyshared._dispatch.timers import Timers
from keyshared._window.lanes import IN_FLIGHT, QUEUED, Consumer, Entry, State
from keyshared.config import DispatcherConfig, OnEvict, Then
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
from keyshared.window import InFlightWindow

if TYPE_CHECKING:  # a dispatcher that asks for neither loads neither
    from keyshared._dispatch.ledger import Ledger
    from keyshared._dispatch.waiting import WaitingCounts

__all__ = ["REMEMBERED_DELIVERIES", "TIMED", "Ended", "Endings", "Note", "endings_for"]

REMEMBERED_DELIVERIES: Final = 8
"""Ended deliveries that are remembered of one message; the default retries make six, releases any number."""

TIMED: Final = frozenset({State.IN_FLIGHT, State.DELAYED, State.SPILLED, State.LOADING})
"""The states of messages that may have a deadline."""

Ended: TypeAlias = tuple[int, str]
"""A delivery that has ended: its attempt, and the consumer that had it."""

_SETTLES: TypeAlias = SettleReason | SkipReason

_new: Final = tuple.__new__  # builds an effect in half the time that its own constructor takes
_REJECTED: Final = ReleaseReason.REJECTED
_RELEASED: Final = ReleaseReason.RELEASED
_EVICTED: Final = ReleaseReason.EVICTED
_NO_FAILURES: Final = (
    ReleaseReason.BATCH_BROKEN,
    ReleaseReason.RELEASED,
    ReleaseReason.REMOVED,
    ReleaseReason.DRAIN_TIMEOUT,
)
_LOSSES: Final = (_EVICTED, ReleaseReason.SESSION_LOST)
"""Failures that are the consumer's: only what the message itself may have caused makes it wait."""


class Note:
    """What is noted of an outstanding message beyond its place in the window.

    Attributes:
        ended: Its deliveries that have ended, oldest first: the last `REMEMBERED_DELIVERIES` of them. An ack of one of
            these is a late success; anything else was never delivered, or is forgotten.
        mark: What the end of its open delivery will count as, whichever way it ends.
        failures: How many of its deliveries failed, as far as they still count.
        postponed: Whether it waits because it was given back with a delay.
        reason: What the last failure that named a reason said.
    """

    __slots__ = ("ended", "failures", "mark", "postponed", "reason")

    def __init__(
        self,
        ended: tuple[Ended, ...] = (),
        mark: _SETTLES | None = None,
        *,
        failures: int = 0,
        postponed: bool = False,
        reason: str | None = None,
    ) -> None:
        self.ended = ended
        self.mark = mark
        self.failures = failures
        self.postponed = postponed
        self.reason = reason


class Endings:
    """Applies the policies of a configuration to messages whose delivery has ended.

    What was decided is appended to ``notices``. Only the books change: the window's ``wake`` acts on them.

    Attributes:
        notes: What is noted of offsets: nothing of a message whose first delivery is open, or was not made yet.
        blocked: Blocked messages by key, then offset.
    """

    __slots__ = ("_config", "_counts", "_ledger", "_timers", "_window", "blocked", "notes")

    def __init__(
        self,
        config: DispatcherConfig,
        window: InFlightWindow,
        timers: Timers,
        ledger: "Ledger | None" = None,
        counts: "WaitingCounts | None" = None,
    ) -> None:
        self._config = config
        self._ledger = ledger
        self._window = window
        self._timers = timers
        self._counts = counts
        self.notes: dict[int, Note] = {}
        self.blocked: dict[bytes | None, dict[int, Entry]] = {}

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
        """End an open delivery in any way but by its ack, and decide what becomes of its message.

        ``delay_ms`` and ``why`` are what its consumer says: how long it shall wait, and what went wrong.
        """
        entry.deadline = None
        holder: Consumer = entry.consumer  # type: ignore[assignment]  # whatever is in flight has a consumer
        note = self.notes.get(entry.offset)
        if note is None:
            note = self.notes[entry.offset] = Note()
        if note.mark is not None:
            notices.append(Released(entry.offset, holder.name, entry.attempt, reason, note.failures, None))
            self._settle_as(note.mark, entry, notices)
            return
        note.ended = (*note.ended[1 - REMEMBERED_DELIVERIES :], (entry.attempt, holder.name))
        note.reason = note.reason if why is None else why
        delay = self._delay_after(reason, note, delay_ms)
        retry_at = None if delay is None else now + delay
        fields = (entry.offset, holder.name, entry.attempt, reason, note.failures, retry_at)
        notices.append(_new(Released, fields))
        if delay is None:
            self._give_up(entry, reason, notices)
        elif delay == 0:
            self._window.move(entry, State.QUEUED)
        else:
            note.postponed = reason is _RELEASED
            self._window.move(entry, State.DELAYED)
            self._timers.start(entry, now + delay)
        if self._counts is not None and entry.state != State.SETTLED:
            self._counts.begin(entry.key)

    def archived(self, entry: Entry, notices: list[Effect]) -> None:
        """The dead letter is written."""
        if self._config.poison.then is Then.BLOCK:
            self._block(entry, notices)
        else:
            self.settle(entry, Ending.DEAD_LETTERED)

    def unblock(self, key: bytes | None) -> None:
        """Resume everything of a key. O(messages of it that are blocked or have come back)."""
        for entry in self.blocked.pop(key, {}).values():
            self._forgive(entry)
            self._window.move(entry, State.QUEUED)
        if key is not None and self._window.lift_quarantine(key):
            self._forgive_quarantined(key)

    def unblock_one(self, entry: Entry, *, reset_failures: bool) -> None:
        """Resume one blocked message; if its failures stay counted, the next failure is its last again."""
        self._forget_blocked(entry)
        if reset_failures:
            self._forgive(entry)
        self._window.move(entry, State.QUEUED)

    def park(self, entry: Entry, notices: list[Effect]) -> None:
        """Settle a blocked message."""
        notices.append(Settled(entry.offset, entry.key, SettleReason.PARKED))
        self.settle(entry, Ending.PARKED)

    def came_back(self, key: bytes | None) -> None:
        """A message of the key that was settled waits again."""
        if self._counts is not None:
            self._counts.begin(key)

    def gone(self, entry: Entry, notices: list[Effect]) -> None:
        """The message can no longer be read: settle it, now or when the delivery that is open has ended."""
        if entry.state == IN_FLIGHT:
            note = self.notes.setdefault(entry.offset, Note())
            note.mark = note.mark or SkipReason.GONE
        else:
            notices.append(Skipped(entry.offset, entry.key, SkipReason.GONE))
            self.settle(entry, Ending.GONE)

    def mark_late(self, entry: Entry) -> None:
        """An earlier delivery of an open message turned out to have succeeded."""
        self.notes[entry.offset].mark = SettleReason.LATE_ACK

    def ended(self, offset: int) -> tuple[Ended, ...]:
        """The deliveries of an outstanding message that have ended and are remembered, oldest first."""
        note = self.notes.get(offset)
        return () if note is None else note.ended

    def reason_of(self, offset: int) -> str | None:
        """Return what the last failure of an outstanding message that named a reason said."""
        note = self.notes.get(offset)
        return None if note is None else note.reason

    def failures_of(self, offset: int) -> int:
        """How many deliveries of an outstanding message failed, as far as they still count."""
        note = self.notes.get(offset)
        return 0 if note is None else note.failures

    def is_postponed(self, entry: Entry) -> bool:
        """Whether a message waits because it was given back with a delay."""
        note = self.notes.get(entry.offset)
        return note is not None and note.postponed

    def supersede(self, older: Iterable[Entry], notices: list[Effect]) -> None:
        """Note the end of messages that wait for their first delivery, and that a newer one is about to replace."""
        for entry in older:
            notices.append(Skipped(entry.offset, entry.key, SkipReason.SUPERSEDED))
            self._forget(entry, Ending.SUPERSEDED)

    def settle(self, entry: Entry, how: Ending) -> None:
        """Settle a message in any state and forget all that was noted about it."""
        self._forget(entry, how)
        self._window.remove(entry)

    def _forget(self, entry: Entry, how: Ending) -> None:
        """Forget all that was noted about a message that is about to be settled."""
        if self._ledger is not None:
            self._ledger.say(entry.offset, entry.key, how)
        entry.deadline = None
        self.notes.pop(entry.offset, None)
        if entry.state == State.BLOCKED:
            self._forget_blocked(entry)
        if self._counts is not None and entry.state != IN_FLIGHT:
            self._counts.end(entry.key)

    def together(self, entry: Entry) -> list[Entry]:
        """The deliveries that time is given to together: this one."""
        return [entry]

    def due(self, entry: Entry, notices: list[Effect], now: int) -> None:
        """The deadline of a message has come: its delivery timed out, or it has waited long enough."""
        if entry.state == State.IN_FLIGHT:
            self.end(entry, ReleaseReason.ACK_TIMEOUT, notices, now)
        else:
            note = self.notes.get(entry.offset)
            if note is not None:
                note.postponed = False
            self._window.ripen(entry)

    def time_open(self, entries: Iterable[Entry], now: int) -> None:
        """Start the whole time of open deliveries that have none: there was no ack timeout in another life."""
        timeout_ms = self._config.ack_timeout_ms
        for entry in entries:
            if entry.deadline is None and timeout_ms is not None:
                self._timers.start(entry, now + timeout_ms)

    def check_invariants(self) -> None:
        """Raise `InvariantError` unless notes and deadlines are of the messages that may have them. For tests; O(n)."""
        entries = {entry.offset: entry for entry in self._window.outstanding()}
        blocked = {offset: entry for of_key in self.blocked.values() for offset, entry in of_key.items()}
        known = [(entry.key, offset) for offset, entry in entries.items() if entry.state == State.BLOCKED]
        require({offset: entries.get(offset) for offset in blocked} == blocked, "what is blocked is outstanding")
        of_keys = [(key, offset) for key, of_key in self.blocked.items() for offset in of_key]
        require(sorted(of_keys, key=_second) == known, "what is blocked is known by its key")
        require(self.notes.keys() <= entries.keys(), "notes are of outstanding messages")
        timed = {id(running) for running in self._timers.running()}
        for offset, entry in entries.items():
            require(entry.deadline is None or id(entry) in timed, f"message {offset} has a timer for its deadline")
            require(
                entry.deadline is None or entry.state in TIMED, f"message {offset} has a deadline while time ends it"
            )
            waits = entry.state == State.DELAYED or (
                entry.state == IN_FLIGHT and self._config.ack_timeout_ms is not None
            )
            require(entry.deadline is not None or not waits, f"message {offset} waits until some time")
            self._check_note(entry)

    def _check_note(self, entry: Entry) -> None:
        note = self.notes.get(entry.offset)
        if note is not None:
            require(note.mark is None or entry.state == IN_FLIGHT, f"message {entry.offset} is marked while it is open")
            went_out = not note.failures or entry.lane.was_delivered(entry)
            require(went_out, f"message {entry.offset} has failed, so it stands before what never went out")
            delays = not note.postponed or entry.state == State.DELAYED
            require(delays, f"message {entry.offset} is postponed while it is delayed")

    def _delay_after(self, reason: ReleaseReason, note: Note, delay_ms: int | None) -> int | None:
        """Count the failure, if it is one; return how long the message waits now, None if it is given up."""
        if reason in _NO_FAILURES:
            return delay_ms or 0
        note.failures += 1
        if self._ledger is not None:
            self._ledger.fail()
        if reason is _REJECTED or self._drops(reason):
            return None
        delay = self._config.retry.delay_ms(note.failures, delay_ms)
        return 0 if delay is not None and reason in _LOSSES else delay

    def _drops(self, reason: ReleaseReason) -> bool:
        return reason is _EVICTED and self._config.on_evict is OnEvict.DROP

    def _settle_as(self, mark: _SETTLES, entry: Entry, notices: list[Effect]) -> None:
        if isinstance(mark, SettleReason):
            notices.append(Settled(entry.offset, entry.key, mark))
        else:
            notices.append(Skipped(entry.offset, entry.key, mark))
        self.settle(entry, Ending(mark))

    def _give_up(self, entry: Entry, reason: ReleaseReason, notices: list[Effect]) -> None:
        if self._drops(reason):
            notices.append(Dropped(entry.offset, entry.key, DropReason.EVICTED))
            self.settle(entry, Ending.DROPPED)
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
            self.settle(entry, Ending.DROPPED)

    def _forgive(self, entry: Entry) -> None:
        """Count no failure of a message any more."""
        note = self.notes.get(entry.offset)
        if note is not None:
            note.failures = 0

    def _forgive_quarantined(self, key: bytes) -> None:
        """The same for what waits to be archived: more than one message of a key may be poison."""
        for entry in self._window.returned_of(key):
            if entry.state == QUEUED:
                self._forgive(entry)

    def _forget_blocked(self, entry: Entry) -> None:
        of_key = self.blocked[entry.key]
        del of_key[entry.offset]
        if not of_key:
            del self.blocked[entry.key]

    def _block(self, entry: Entry, notices: list[Effect]) -> None:
        self._window.move(entry, State.BLOCKED)
        self.blocked.setdefault(entry.key, {})[entry.offset] = entry
        failures, reason = self.failures_of(entry.offset), self.reason_of(entry.offset)
        notices.append(Blocked(entry.offset, entry.key, failures, reason))


def _second(pair: tuple[object, int]) -> int:
    return pair[1]


def endings_for(
    config: DispatcherConfig,
    window: InFlightWindow,
    timers: Timers,
    ledger: "Ledger | None" = None,
    counts: "WaitingCounts | None" = None,
) -> Endings:
    """Return the endings that a configuration asks for."""
    if config.batch_per_key == 1:
        return Endings(config, window, timers, ledger, counts)
    from keyshared._dispatch.batches import BatchEndings  # noqa: PLC0415  # only where it is used

    return BatchEndings(config, window, timers, ledger, counts)
