"""Sessions of keys: what a consumer may keep for a key, from the first delivery to it until it has let go of the key.

A key has at most one session. Its end begins when nothing of the key is open and the key belongs to another consumer,
or has lingered for long enough. Where consumers flush, the key waits from then on until its consumer has said that it
did, or its time is over: no two sessions of a key overlap. What has to end is looked for once, at the end of the call,
because a key of which nothing is open in the middle of a call may have something open at its end.
"""

from collections.abc import Iterable
from typing import Final

from keyshared._checks import require
from keyshared._core.feature import Feature
from keyshared._core.reader import Reader, binary_text
from keyshared._core.records import IN_FLIGHT, Consumer, ConsumerState, Entry, Lane, Place
from keyshared._core.timers import Duties, Duty, Stage, Timers
from keyshared._core.values import KeySession, SessionPhase
from keyshared._core.window import Window
from keyshared.config import KeySessions
from keyshared.effects import BlockReason, Effect, KeyBegun, KeyEnd, KeyEnded, KeyEnding

__all__ = ["Session", "Sessions"]

_WHY_FLUSHED: Final = {reason.value: reason for reason in (KeyEnd.IDLE, KeyEnd.LEFT, KeyEnd.MOVED)}


class Session:
    """One session of a key.

    Attributes:
        key: The key.
        consumer: The consumer that keeps something for it.
        number: Its number, which no other session has.
        open: How many deliveries of the key are open.
        ending: Why it has to end, while its consumer flushes.
        deadline: When it has lingered, or flushed, for long enough.
    """

    __slots__ = ("consumer", "deadline", "ending", "key", "number", "open")

    def __init__(self, key: bytes, consumer: Consumer, number: int) -> None:
        self.key = key
        self.consumer = consumer
        self.number = number
        self.open = 0
        self.ending: KeyEnd | None = None
        self.deadline: int | None = None

    @property
    def phase(self) -> SessionPhase:
        """The phase that it is in."""
        if self.ending is not None:
            return SessionPhase.FLUSHING
        return SessionPhase.WORKING if self.open else SessionPhase.LINGERING


class Sessions(Feature):
    """Begins and ends the sessions of keys: a gate that is closed while a session has to end first.

    Complexity:
        O(1) for each delivery that opens or closes, O(log n) where a deadline is set; O(sessions) after a change of
        placement, because a key of which nothing is outstanding has no lane that would ask.
    """

    name = "sessions"

    def __init__(self, window: Window, timers: Timers, config: KeySessions) -> None:
        self._window = window
        self._timers = timers
        self._linger_ms = config.linger_ms
        self._flush_ms = config.flush_ms
        self.gate = Place(BlockReason.FLUSHING)
        self._by_key: dict[bytes, Session] = {}  # in the order in which they began
        self._at: dict[Consumer, dict[bytes, Session]] = {}  # the same by consumer
        self._last = 0
        self._changed: dict[Session, None] = {}  # those of which a delivery has ended in this call
        self._has_moved = False  # owners may have changed in this call
        self._told: list[Effect] = []

    # the gate

    def refuses(self, lane: Lane, owner: Consumer) -> bool:
        """Return whether the session of a key has to end first; one without a flush ends when that is asked."""
        session = self._by_key.get(lane.key)  # type: ignore[arg-type]  # None is no key of a session
        if session is None:
            return False
        return session.ending is not None or (session.consumer is not owner and self._flush_ms != 0)

    def opened(self, entry: Entry, consumer: Consumer) -> None:
        """Begin a session with the first delivery to a consumer, or go on with it."""
        key = entry.lane.key
        if key is None:
            return
        session = self._by_key.get(key)
        if session is not None and session.consumer is not consumer:  # nothing is open there, and it needs no flush
            self._end(session, self._why_away(session))
            session = None
        if session is None:
            self._last = max(self._last, self._window.first_attempt) + 1
            session = Session(key, consumer, self._last)
            self._add(session)
            self._told.append(KeyBegun(key, consumer.name, session.number))
        session.open += 1
        session.deadline = None

    def closed(self, entry: Entry, consumer: Consumer) -> None:
        """Note that a delivery ends."""
        key = entry.lane.key
        if key is not None:
            session = self._by_key[key]
            session.open -= 1
            if not session.open:
                self._changed[session] = None

    def moved(self) -> None:
        """Note that keys may belong to others now."""
        self._has_moved = True

    # what ends a session

    def lost(self, consumer: Consumer) -> None:
        """End all sessions of a consumer that has lost what it kept, or is gone. Nothing is open at it."""
        for session in list(self._at.get(consumer, {}).values()):
            self._end(session, KeyEnd.LOST)

    def must_finish(self, consumer: Consumer) -> bool:
        """Return whether a consumer that leaves has something to flush. O(its sessions)."""
        mine = self._at.get(consumer, {}).values()
        return any(session.ending is not None for session in mine) or (bool(mine) and self._flush_ms != 0)

    def flushed(self, key: bytes, number: int) -> bool:
        """End the session that is being flushed; return whether there is one of that number."""
        session = self._by_key.get(key)
        if session is None or session.number != number or session.ending is None:
            return False
        self._end(session, session.ending)
        return True

    def duties(self) -> Duties:
        """End a session that has lingered for long enough, or whose flush takes too long."""
        return {Session: Duty(Stage.SESSIONS, _number_of, self._due)}

    def _due(self, session: Session, now: int) -> None:
        if session.ending is None:
            self._close(session, KeyEnd.IDLE, now)
        else:
            self._end(session, KeyEnd.FLUSH_TIMEOUT)

    def finish(self, now: int) -> Iterable[Effect]:
        """End sessions of which nothing is open any more; return what has begun and ended in this call."""
        if self._has_moved or self._changed:
            changed = list(self._by_key.values() if self._has_moved else self._changed)
            self._has_moved = False
            self._changed = {}
            for session in sorted(changed, key=_number_of):
                self._look(session, now)
        if not self._told:
            return ()
        told, self._told = self._told, []
        return [each for each in told if type(each) is not KeyEnding or self.is_flushing(each.key, each.session)]

    def _look(self, session: Session, now: int) -> None:
        if session.open or session.ending is not None or self._by_key.get(session.key) is not session:
            return
        if self._owner_of(session.key) is not session.consumer:
            self._close(session, self._why_away(session), now)
        elif session.deadline is None and self._linger_ms:
            self._timers.start(session, now + self._linger_ms)
        elif session.deadline is None:
            self._close(session, KeyEnd.IDLE, now)

    def _close(self, session: Session, why: KeyEnd, now: int) -> None:
        """End a session of which nothing is open, after its flush if it is to have one."""
        if self._flush_ms == 0:
            self._end(session, why)
            return
        session.ending = why
        session.deadline = None
        self._time_flush(session, now)
        self._told.append(KeyEnding(session.key, session.consumer.name, session.number))
        lane = self._window.lanes.get(session.key)
        if lane is not None:
            self._window.look(lane)  # the gate is closed now, so nothing goes out

    def _time_flush(self, session: Session, now: int) -> None:
        if self._flush_ms is not None:
            self._timers.start(session, now + self._flush_ms)

    def _why_away(self, session: Session) -> KeyEnd:
        """Return why a session ends whose key belongs to another consumer: its own leaves, or the key has moved."""
        consumer = session.consumer
        is_here = self._window.consumers.get(consumer.name) is consumer
        return KeyEnd.MOVED if is_here and consumer.state is not ConsumerState.DRAINING else KeyEnd.LEFT

    def _add(self, session: Session) -> None:
        self._by_key[session.key] = session
        self._at.setdefault(session.consumer, {})[session.key] = session

    def _end(self, session: Session, why: KeyEnd) -> None:
        session.deadline = None
        mine = self._at[session.consumer]
        del self._by_key[session.key], mine[session.key]
        if not mine:
            del self._at[session.consumer]
        self._told.append(KeyEnded(session.key, session.consumer.name, session.number, why))
        if session.ending is not None:
            lane = self._window.lanes.get(session.key)
            if lane is not None:
                self._window.touched[lane] = None
            self._window.emptied.append(session.consumer)

    def _owner_of(self, key: bytes) -> Consumer | None:
        name = self._window.owners.owner(key)
        return None if name is None else self._window.consumers.get(name)

    # questions

    def is_flushing(self, key: bytes, number: int) -> bool:
        """Return whether the session of that number waits for its flush. O(1)."""
        session = self._by_key.get(key)
        return session is not None and session.number == number and session.ending is not None

    def of(self, key: bytes) -> Session | None:
        """Return the session of a key."""
        return self._by_key.get(key)

    def keys(self) -> Iterable[bytes]:
        """Return the key of every session."""
        return list(self._by_key)

    def outstanding(self) -> list[Effect]:
        """Return every flush that is asked for and not done, in the order of beginning. O(sessions)."""
        flushing = [session for session in self._by_key.values() if session.ending is not None]
        return [KeyEnding(session.key, session.consumer.name, session.number) for session in flushing]

    def all(self) -> list[KeySession]:
        """Return every session, in the order of beginning. O(result)."""
        return [
            KeySession(session.key, session.consumer.name, session.number, session.phase, session.deadline)
            for session in self._by_key.values()
        ]

    # the snapshot

    def restored(self) -> None:
        """Begin a session for each key of which something is open: there may have been no sessions before."""
        for entry in self._window.outstanding():
            if entry.state == IN_FLIGHT and entry.lane.holder is not None:
                self.opened(entry, entry.lane.holder)
        self._told.clear()

    def dump(self, now: int) -> object:
        """Return the last number that was given, and each session with the time that it has left."""
        rows = [
            [
                binary_text(session.key),
                session.consumer.name,
                session.number,
                None if session.ending is None else session.ending.value,
                None if session.deadline is None else session.deadline - now,
            ]
            for session in self._by_key.values()
        ]
        return {"last": self._last, "sessions": rows} if self._last else None

    def load(self, row: Reader, now: int) -> None:
        """Take what `dump` returned, in place of the sessions that `restored` began."""
        opened = {key: session.open for key, session in self._by_key.items()}
        self._by_key, self._at = {}, {}
        self._last = row.field("last").count()
        for each in row.field("sessions").items():
            key, name, number, ending, remaining = each.items(5)
            session = Session(key.binary(), name.one_of(self._window.consumers), number.count())
            session.open = opened.pop(session.key, 0)
            session.ending = ending.maybe(lambda reason: reason.one_of(_WHY_FLUSHED))
            left = remaining.maybe(Reader.integer)
            if left is not None:
                self._timers.start(session, now + left)
            elif session.ending is not None:  # flushes had no time before the restart
                self._time_flush(session, now)
            self._add(session)
        if opened:
            raise row.field("sessions").refuse("have one of every key that something is open of")

    def check_invariants(self) -> None:
        """Raise `InvariantError` unless sessions are where they belong. For tests; O(open deliveries + sessions)."""
        consumers = self._window.consumers
        opened: dict[bytes, dict[Consumer, int]] = {}
        for consumer in consumers.values():
            for entry in consumer.open.values():
                if entry.lane.key is not None:
                    counts = opened.setdefault(entry.lane.key, {})
                    counts[consumer] = counts.get(consumer, 0) + 1
        require(opened.keys() <= self._by_key.keys(), "what is open of a key belongs to its session")
        at: dict[Consumer, dict[bytes, Session]] = {}
        for key, session in self._by_key.items():
            name = f"session {session.number} of {key!r}"
            at.setdefault(session.consumer, {})[key] = session
            require(consumers.get(session.consumer.name) is session.consumer, f"{name} is at a connected consumer")
            expected = {session.consumer: session.open} if session.open else {}
            require(opened.get(key, {}) == expected, f"{name} counts what is open at it")
            self._check_phase(session, name)
        require(self._at == at, "sessions are known by their consumers")
        numbers = [session.number for session in self._by_key.values()]
        require(numbers == sorted(set(numbers)) and self._last >= max(numbers, default=0), "numbers rise")
        require(not self._told and not self._changed and not self._has_moved, "all that happened was looked at")

    def _check_phase(self, session: Session, name: str) -> None:
        require(session.ending is None or not session.open, f"{name} is not flushed while something is open")
        if session.phase is SessionPhase.WORKING:
            require(session.deadline is None, f"{name} does not linger while something is open")
        elif session.phase is SessionPhase.LINGERING:
            require(session.deadline is not None, f"{name} lingers until some time")
            require(self._owner_of(session.key) is session.consumer, f"{name} lingers where its key belongs")
        else:
            require(session.deadline is not None or self._flush_ms is None, f"{name} is flushed until some time")


def _number_of(session: Session) -> int:
    return session.number
