"""Builds the list of effects of a call: in order, state effects last and once."""

from collections.abc import Callable, Collection, Iterable
from typing import Any, Final

from keyshared._core.admission import Admission
from keyshared._core.feature import Feature
from keyshared._core.lanes import overrides
from keyshared._core.membership import Membership
from keyshared._core.records import DEAD_LETTERING, IN_FLIGHT, LOADING, Consumer, Entry
from keyshared._core.sessions import Sessions
from keyshared._core.timers import Timers
from keyshared._core.window import Window
from keyshared.effects import (
    CursorAdvanced,
    DeadLetter,
    Deliver,
    Done,
    Effect,
    KeyBegun,
    KeyEnded,
    KeyEnding,
    Load,
    Resumed,
    Spilled,
)

__all__ = ["Outbox"]

_RANKS: Final[dict[type[Any], int]] = {
    Done: 1,
    KeyBegun: 2,
    KeyEnded: 2,
    KeyEnding: 2,
    DeadLetter: 3,
    Load: 4,
    Deliver: 5,
}
_STATES: Final = frozenset({CursorAdvanced, Resumed})
_new: Final[Any] = tuple.__new__  # builds an effect in half the time that its own constructor takes


class Outbox:
    """Turns what the window granted into effects, and remembers what was last emitted of cursor and pause.

    Args:
        features: Those in use; each may add effects at the end of a call.
        notices: Where a call has appended its notices.

    Attributes:
        reported: The cursor of the last `CursorAdvanced`.
        paused: Whether there was no free slot after a call, and no `Resumed` since.
        resume_at: A pause may end once no more messages are loaded; so an offer never ends one.
    """

    def __init__(
        self,
        window: Window,
        membership: Membership,
        admission: Admission,
        timers: Timers,
        notices: list[Effect],
        features: Iterable[Feature],
        ack_timeout_ms: int | None,
    ) -> None:
        chosen = list(features)
        self._window = window
        self._membership = membership
        self._admission = admission
        self._timers = timers
        self._notices = notices
        self._finishers: tuple[Callable[[int], Iterable[Effect]], ...] = tuple(
            each.finish for each in chosen if overrides(each, "finish")
        )
        self._on_deliver = tuple(each.delivered for each in chosen if overrides(each, "delivered"))
        self._sessions = next((each for each in chosen if isinstance(each, Sessions)), None)
        self._ack_timeout_ms = ack_timeout_ms
        self.resume_at = window.capacity - max(1, window.capacity // 4)
        self._looks_ahead = admission.looks_ahead
        self.reported: int | None = None
        self.paused = False

    @property
    def is_plain(self) -> bool:
        """Whether no feature looks at the end of each call."""
        return not self._finishers

    def resume(self, *, paused: bool) -> None:
        """Begin with a state that the host knows: between none and a quarter free, a pause is as it was."""
        self.reported = self._window.cursor.safe_cursor
        self.paused = not self._admission.free_slots or (paused and not self._admission.is_roomy)

    def finish(self, now: int) -> list[Effect[Any]]:
        """Return what a call returns: notices, what features add, obligations, state. O(granted)."""
        window = self._window
        out: list[Effect[Any]] = []
        if self._notices:
            out += self._notices
            self._notices.clear()
        obligations = self._obligations(now) if window.granted else None
        if window.dropped:
            self._add_spilled(out)
        if window.emptied:
            self._membership.reap()
        for finish in self._finishers:
            out += finish(now)
        if obligations is not None:
            out = out + obligations if out else obligations
        cursor = window.cursor
        if cursor.safe_cursor != self.reported:
            self.reported = cursor.safe_cursor
            out.append(_new(CursorAdvanced, (cursor.safe_cursor,)))
        if self.paused:
            if window.loaded <= self.resume_at:
                self._resume_if_roomy(out)
        else:
            is_full = window.loaded >= window.capacity or cursor.outstanding >= window.max_tracked
            self.paused = is_full or (self._looks_ahead and not self._admission.free_slots)
        return out

    def _obligations(self, now: int) -> list[Effect[Any]]:
        window = self._window
        granted, window.granted = window.granted, []
        delivered: list[Effect[Any]] = []
        loads: list[Effect[Any]] = []
        archive: list[Effect[Any]] = []
        timeout_ms, deadline = self._ack_timeout_ms, None
        if timeout_ms is not None:
            opened = [entry for entry in granted if entry.state == IN_FLIGHT]
            deadline = self._timers.start_last(opened, now + timeout_ms) if opened else None
        for entry in granted:
            state = entry.state
            if state == IN_FLIGHT:
                entry.deadline = deadline
                lane, note = entry.lane, entry.note
                name = lane.holder.name  # type: ignore[union-attr]  # an open message has one
                failures = 0 if note is None else note.failures
                fields = (entry.offset, lane.key, name, entry.attempt, failures, entry.item)
                delivered.append(_new(Deliver, fields))
            elif state == LOADING:
                loads.append(_new(Load, (entry.offset, entry.lane.key)))
            elif state == DEAD_LETTERING:
                archive.append(self._dead_letter(entry))
        for told in self._on_deliver:
            told(len(delivered))
        return archive + loads + delivered if loads or archive else delivered

    def _add_spilled(self, out: list[Effect[Any]]) -> None:
        window = self._window
        dropped, window.dropped = window.dropped, []
        for entry in dropped:
            entry.item = None
            out.append(_new(Spilled, (entry.offset,)))

    def merge(self, calls: list[list[Effect[Any]]], settled: Collection[int] | None = None) -> list[Effect[Any]]:
        """Return one list for several calls at one instant: kinds in order, each kind as it came, state once.

        ``settled`` names what those calls were to settle, None for anything: an obligation of a call that a later one
        has overtaken is left out.
        """
        effects = [effect for call in calls for effect in call]
        merged: list[Effect[Any]] = [
            effect
            for effect in effects
            if type(effect) not in _STATES
            and ((settled is not None and effect[0] not in settled) or self._is_unmet(effect))
        ]
        merged.sort(key=_rank)
        merged.extend([effect for effect in effects if isinstance(effect, CursorAdvanced)][-1:])
        if any(isinstance(effect, Resumed) for effect in effects):
            self.paused = True
            self._resume_if_roomy(merged)
        return merged

    def outstanding(self) -> list[Effect[Any]]:
        """Return every obligation that is not met: flushes, dead letters, loads, deliveries, in offset order. O(n)."""
        entries = list(self._window.outstanding())
        flushes: list[Effect[Any]] = [] if self._sessions is None else self._sessions.outstanding()
        archive = [self._dead_letter(entry) for entry in entries if entry.state == DEAD_LETTERING]
        loads = [Load(entry.offset, entry.key) for entry in entries if entry.state == LOADING]
        return [*flushes, *archive, *loads, *(self.delivery(entry) for entry in entries if entry.state == IN_FLIGHT)]

    def delivery(self, entry: Entry) -> Deliver[Any]:
        """Return the effect of an open delivery."""
        name = entry.lane.holder.name  # type: ignore[union-attr]  # an open message has one
        failures = 0 if entry.note is None else entry.note.failures
        delivery: Deliver[Any] = _new(
            Deliver, (entry.offset, entry.lane.key, name, entry.attempt, failures, entry.item)
        )
        return delivery

    def deliveries_of(self, consumer: Consumer) -> list[Deliver[Any]]:
        """Return the open deliveries of a consumer, in offset order."""
        return [self.delivery(consumer.open[offset]) for offset in sorted(consumer.open)]

    def is_current(self, effect: object) -> bool:
        """Return whether an effect still holds. O(log n)."""
        match effect:
            case CursorAdvanced(safe_cursor):
                return safe_cursor == self._window.cursor.safe_cursor
            case KeyEnding(key, _, session):
                return self._sessions is not None and self._sessions.is_flushing(key, session)
            case Resumed():
                return self._admission.free_slots > 0
            case Deliver(offset, _, consumer, attempt):
                member = self._window.consumers.get(consumer)
                opened = None if member is None else member.open.get(offset)
                return opened is not None and opened.attempt == attempt
            case DeadLetter(offset) | Load(offset):
                entry = self._window.find(offset)
                state = DEAD_LETTERING if isinstance(effect, DeadLetter) else LOADING
                return entry is not None and entry.state == state
            case _:
                return True

    def _dead_letter(self, entry: Entry) -> Effect[Any]:
        note = entry.note
        failures, reason = (0, None) if note is None else (note.failures, note.reason)
        return DeadLetter(entry.offset, entry.key, entry.attempt, failures, entry.item, reason)

    def _is_unmet(self, effect: Effect[Any]) -> bool:
        return type(effect) not in _RANKS or self.is_current(effect)

    def _resume_if_roomy(self, out: list[Effect[Any]]) -> None:
        if self._admission.is_roomy:
            self.paused = False
            out.append(Resumed(self._admission.free_slots))


def _rank(effect: Effect[Any]) -> int:
    return _RANKS.get(type(effect), 0)
