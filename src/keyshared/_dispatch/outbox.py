"""What a call returns: effects in their order, and the state that only the last one counts of."""

from collections.abc import Collection
from typing import Any, ClassVar, Final, get_args, get_origin

from keyshared._checks import require
from keyshared._dispatch.endings import Endings
from keyshared._dispatch.membership import Membership
from keyshared._dispatch.rooms import Room
from keyshared._dispatch.timers import Timers
from keyshared._window.lanes import DEAD_LETTERING, IN_FLIGHT, LOADING, SPILLED, Entry
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
from keyshared.errors import ArgumentError
from keyshared.window import InFlightWindow

__all__ = ["RANKS", "STATES", "Outbox", "load"]

RANKS: Final[dict[type[Effect], int]] = {
    Done: 1,
    KeyBegun: 2,
    KeyEnded: 2,
    KeyEnding: 2,
    DeadLetter: 3,
    Load: 4,
    Deliver: 5,
}
STATES: Final = frozenset({CursorAdvanced, Resumed})
_EFFECTS: Final = tuple(get_origin(each) or each for each in get_args(Effect))
_new: Final = tuple.__new__  # builds an effect in half the time that its own constructor takes


class Outbox:
    """Turns what the window granted into effects, and remembers what was last said of cursor and room.

    Args:
        window: Whose grants these are.
        membership: Told to forget consumers whose drain is over.
        endings: Knows why messages failed.
        timers: Where the ack timeouts of deliveries are started.
        rooms: Those in use; each is asked to look at the end of every call.
        ack_timeout_ms: How long a delivery may stay open; None for ever.

    Attributes:
        tells_once: Whether one `finish` may tell what several calls at one instant have granted; else each comes by.
        reported: The cursor of the last `CursorAdvanced`.
        paused: Whether there was no free slot after a call, and no `Resumed` since.
    """

    __slots__ = (
        "_ack_timeout_ms",
        "_cursor",
        "_endings",
        "_membership",
        "_notes",
        "_resume_at",
        "_rooms",
        "_sessions",
        "_timers",
        "_window",
        "paused",
        "reported",
    )

    tells_once: ClassVar[bool] = True

    def __init__(
        self,
        window: InFlightWindow,
        membership: Membership,
        endings: Endings,
        timers: Timers,
        rooms: tuple[Room, ...],
        *,
        ack_timeout_ms: int | None,
    ) -> None:
        self._window = window
        self._cursor = window.cursor
        self._membership = membership
        self._endings = endings
        self._notes = endings.notes
        self._timers = timers
        self._rooms = rooms
        self._sessions = membership.sessions
        self._ack_timeout_ms = ack_timeout_ms
        self._resume_at = window.capacity - max(1, window.capacity // 4)
        self.reported: int | None = None
        self.paused = False

    def resume(self, *, paused: bool) -> None:
        """Begin with books that were filled in another life, whose host knows their cursor.

        A pause follows from the room there is, unless that lies between none and a quarter: then it is as it was. The
        limits may have changed meanwhile.
        """
        self.reported = self._cursor.safe_cursor
        free = self._window.free_slots
        self.paused = not free or (paused and not self._is_roomy())

    def wake(self, notices: list[Effect], now: int) -> list[Effect[Any]]:
        """Run the window on all that has changed, and add what comes of it to the notices."""
        return self.finish(notices, self._window.wake(), now)

    def finish(self, out: list[Effect], granted: list[Entry], now: int) -> list[Effect[Any]]:  # noqa: C901, PLR0912  # for speed
        """Add obligations and state to the notices in ``out``: what a call returns. O(granted)."""
        if granted:
            notes = self._notes
            place, mixed = len(out), False
            loads: list[Effect] = []
            for entry in granted:
                state = entry.state
                if state == IN_FLIGHT:
                    if self._ack_timeout_ms is not None:
                        entry.deadline = self._timers.start_last(entry, now + self._ack_timeout_ms)
                    name = entry.lane.holder.name  # type: ignore[union-attr]  # whatever is in flight has a consumer
                    offset = entry.offset
                    failures = notes[offset].failures if offset in notes else 0
                    fields = (offset, entry.key, name, entry.attempt, failures, entry.item)
                    out.append(_new(Deliver, fields))
                elif state == LOADING:
                    loads.append(_new(Load, (entry.offset, entry.key)))
                else:
                    mixed = True
            if mixed:
                loads = self._other_obligations(granted)
            if loads:
                out[place:place] = loads
        window, cursor = self._window, self._cursor
        if window.emptied:
            self._membership.reap()
        if self._rooms:
            self._look_into_rooms(out, now)
        if cursor.safe_cursor != self.reported:
            self.reported = cursor.safe_cursor
            out.append(_new(CursorAdvanced, (cursor.safe_cursor,)))
        if self.paused:
            if window.loaded <= self._resume_at:
                self._resume_if_roomy(out)
        elif window.loaded >= window.capacity or cursor.outstanding >= window.max_tracked:
            self.paused = True
        return out

    def _look_into_rooms(self, out: list[Effect], now: int) -> None:
        """Put what rooms have to tell between the notices and the obligations. O(result)."""
        told: list[Effect] = []
        for room in self._rooms:
            room.refresh(now, told)
        if told:
            place = 0
            while place < len(out) and type(out[place]) not in RANKS:
                place += 1
            out[place:place] = told

    def finish_many(self, granted: list[Entry], now: int, *, was_full: bool) -> list[Effect[Any]]:
        """`finish` for a batch: what all of its calls granted, and whether the window was full between two of them."""
        out: list[Effect] = []
        opened = [entry for entry in granted if entry.state == IN_FLIGHT]
        if len(opened) < len(granted):
            out += self._other_obligations(granted)
        due = None if self._ack_timeout_ms is None else self._timers.start_all_last(opened, now + self._ack_timeout_ms)
        notes = self._notes
        for each in opened:
            if due is not None:
                each.deadline = due
            offset = each.offset
            name = each.lane.holder.name  # type: ignore[union-attr]  # whatever is in flight has a consumer
            failures = notes[offset].failures if offset in notes else 0
            out.append(_new(Deliver, (offset, each.key, name, each.attempt, failures, each.item)))
        self.paused = self.paused or was_full
        return self.finish(out, [], now)

    def known(self, offset: int, key: bytes | None) -> list[Effect[Any]]:  # noqa: ARG002  # for those who tell
        """Answer an offer that is no news."""
        return []

    def finish_offer(self, granted: list[Entry], now: int) -> list[Effect[Any]]:
        """`finish` for an offer, which can move no cursor and free nothing: the common cases are written out."""
        if self._rooms or len(granted) > 1:
            return self.finish([], granted, now)
        window = self._window
        if window.loaded >= window.capacity or self._cursor.outstanding >= window.max_tracked:
            self.paused = True
        if not granted:
            return []
        entry = granted[0]
        state = entry.state
        if state == IN_FLIGHT:
            if self._ack_timeout_ms is not None:
                entry.deadline = self._timers.start_last(entry, now + self._ack_timeout_ms)
            name = entry.lane.holder.name  # type: ignore[union-attr]  # whatever is in flight has a consumer
            notes, offset = self._notes, entry.offset
            failures = notes[offset].failures if offset in notes else 0
            return [_new(Deliver, (offset, entry.key, name, entry.attempt, failures, entry.item))]
        return [_new(Spilled, (entry.offset,))] if state == SPILLED else self.finish([], granted, now)

    def merge(self, calls: list[list[Effect[Any]]], settled: Collection[int] = ()) -> list[Effect[Any]]:
        """One list for several calls at one instant: kinds in order, each kind as it came, state once.

        ``settled`` names what those calls were to settle: what one of them handed out and a later one settled is left
        out.
        """
        effects = [effect for call in calls for effect in call]
        merged: list[Effect] = [
            effect
            for effect in effects
            if type(effect) not in STATES and (effect[0] not in settled or self._is_unmet(effect))
        ]
        merged.sort(key=_rank)
        merged.extend([effect for effect in effects if isinstance(effect, CursorAdvanced)][-1:])
        if any(isinstance(effect, Resumed) for effect in effects):
            self.paused = True
            self._resume_if_roomy(merged)
        return merged

    def outstanding(self) -> list[Effect[Any]]:
        """Every obligation that is not met: flushes, dead letters, loads, deliveries, each in offset order. O(n)."""
        entries = self._window.outstanding()
        archive = [self._dead_letter(entry) for entry in entries if entry.state == DEAD_LETTERING]
        loads = [load(entry) for entry in entries if entry.state == LOADING]
        flushes = [] if self._sessions is None else self._sessions.outstanding()
        return [*flushes, *archive, *loads, *(self.delivery(entry) for entry in entries if entry.state == IN_FLIGHT)]

    def delivery(self, entry: Entry) -> Deliver[Any]:
        """What a message in flight asks for."""
        name = entry.lane.holder.name  # type: ignore[union-attr]  # whatever is in flight has a consumer
        failures = self._endings.failures_of(entry.offset)
        return Deliver(entry.offset, entry.key, name, entry.attempt, failures, entry.item)

    def is_current(self, effect: object) -> bool:
        """Whether an effect still holds. O(log n)."""
        match effect:
            case CursorAdvanced(safe_cursor):
                return safe_cursor == self._cursor.safe_cursor
            case KeyEnding(key, _, session):
                return self._sessions is not None and self._sessions.is_flushing(key, session)
            case Resumed():
                return self._window.free_slots > 0
            case Deliver(offset, _, consumer, attempt):
                member = self._membership.members.get(consumer)
                opened = None if member is None else member.open.get(offset)
                return opened is not None and opened.attempt == attempt
            case DeadLetter(offset) | Load(offset):
                entry = self._window.find(offset)
                state = DEAD_LETTERING if isinstance(effect, DeadLetter) else LOADING
                return entry is not None and entry.state == state
            case _:
                if not isinstance(effect, _EFFECTS):
                    raise ArgumentError("effect", effect, "be an effect, as a call has returned it")
                return True

    def check_invariants(self) -> None:
        """Raise `InvariantError` unless the host knows the cursor, and that there is no room. For tests; O(1)."""
        require(self.reported == self._cursor.safe_cursor, "the cursor that was reported is the cursor")
        free = self._window.free_slots
        require(self.paused or free, "there is a pause while there is no room")
        require(not self.paused or not self._is_roomy(), "a pause ends with a quarter free")

    def _dead_letter(self, entry: Entry) -> DeadLetter[Any]:
        reason = self._endings.reason_of(entry.offset)
        failures = self._endings.failures_of(entry.offset)
        return DeadLetter(entry.offset, entry.key, entry.attempt, failures, entry.item, reason)

    def _other_obligations(self, entries: list[Entry]) -> list[Effect[Any]]:
        """Spill notices, dead letters and loads. Deliveries, and what was settled within the call, are passed over."""
        spilled: list[Effect] = []
        archive: list[Effect] = []
        loads: list[Effect] = []
        for entry in entries:
            state = entry.state
            if state == LOADING:
                loads.append(_new(Load, (entry.offset, entry.key)))
            elif state == SPILLED:
                spilled.append(_new(Spilled, (entry.offset,)))
            elif state == DEAD_LETTERING:
                archive.append(self._dead_letter(entry))
        return spilled + archive + loads

    def _is_unmet(self, effect: Effect) -> bool:
        """False for an obligation that has ended; notices always hold."""
        return type(effect) not in RANKS or self.is_current(effect)

    def _resume_if_roomy(self, out: list[Effect]) -> None:
        if self._is_roomy():
            self.paused = False
            out.append(Resumed(self._window.free_slots))

    def _is_roomy(self) -> bool:
        """Whether there is so much room that a pause ends."""
        return self._window.capacity - self._resume_at <= self._window.free_slots


def load(entry: Entry) -> Load:
    """What a message that is being loaded asks for."""
    return Load(entry.offset, entry.key)


def _rank(effect: Effect) -> int:
    return RANKS.get(type(effect), 0)
