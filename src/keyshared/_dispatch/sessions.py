"""Sessions of keys: what a consumer may keep for a key, from the first delivery to it until it has let go of the key.

Of one key there is one session at most. Its end begins when nothing of the key is open and the key belongs to somebody
else, or has lingered for long enough. Where consumers flush, the key waits from then on until its consumer has said
that it did, or its time is over: no two sessions of a key ever overlap.

What opens and closes is noted as it happens. What has to end because of it is looked for once, at the end of the call,
because a key of which nothing is open in the middle of a call may well have something open at its end.
"""

from base64 import b64encode
from typing import Final

from keyshared._checks import require
from keyshared._dispatch.explain import Blocking, KeySession, SessionPhase
from keyshared._dispatch.gates import key_of
from keyshared._dispatch.members import Member, MemberState
from keyshared._dispatch.snapshot import Reader
from keyshared._dispatch.timers import Duties, Duty, Stage, Timers
from keyshared._window.lanes import IN_FLIGHT, Consumer, Entry
from keyshared.config import KeySessions
from keyshared.effects import BlockReason, Effect, KeyBegun, KeyEnd, KeyEnded, KeyEnding
from keyshared.window import InFlightWindow

__all__ = ["Session", "Sessions"]

_WHY_FLUSHED: Final = {reason.value: reason for reason in (KeyEnd.IDLE, KeyEnd.LEFT, KeyEnd.MOVED)}


class Session:
    """One session of a key.

    Attributes:
        key: The key; b"" where everything is one lane.
        consumer: Who keeps something for it.
        number: Its number, which no other session has.
        open: How many deliveries of the key are open.
        ending: Why it has to end, while its consumer flushes.
        deadline: When it has lingered, or flushed, for long enough.
    """

    __slots__ = ("consumer", "deadline", "ending", "key", "number", "open")

    def __init__(self, key: bytes, consumer: Consumer, number: int, opened: int = 0) -> None:
        self.key = key
        self.consumer = consumer
        self.number = number
        self.open = opened
        self.ending: KeyEnd | None = None
        self.deadline: int | None = None

    @property
    def phase(self) -> SessionPhase:
        """What it does now."""
        if self.ending is not None:
            return SessionPhase.FLUSHING
        return SessionPhase.WORKING if self.open else SessionPhase.LINGERING


class Sessions:
    """Begins and ends the sessions of keys: a room, and a gate that is closed while somebody else's is not over.

    Args:
        window: Whose deliveries make sessions begin.
        timers: Where their deadlines are kept.
        config: How long sessions linger and flush.

    Complexity:
        O(1) for each delivery that opens or closes, O(log n) where a deadline is set; O(sessions) after a change of
        placement, because a key of which nothing is outstanding has no lane that would ask.
    """

    __slots__ = ("_at", "_by_key", "_changed", "_config", "_last", "_moved", "_timers", "_told", "_window", "duties")

    name: Final = "sessions"

    def __init__(self, window: InFlightWindow, timers: Timers, config: KeySessions) -> None:
        self._window = window
        self._timers = timers
        self._config = config
        self._by_key: dict[bytes, Session] = {}  # in the order in which they began
        self._at: dict[Consumer, dict[bytes, Session]] = {}  # the same by consumer
        self._last = 0
        self._changed: dict[Session, None] = {}  # those of which a delivery has ended in this call
        self._moved = False  # whether owners may have changed in this call
        self._told: list[Effect] = []
        self.duties: Duties = {Session: Duty(Stage.SESSIONS, _number_of, self.due)}

    # the gate

    def refuses(self, entry: Entry, owner: Consumer) -> bool:
        """Whether the session of the key has to end first. One that need not be flushed is over when that is asked."""
        session = self._by_key.get(key_of(entry))  # type: ignore[arg-type]  # only what has a key is asked for
        if session is None:
            return False
        return session.ending is not None or (session.consumer is not owner and self._config.flush_ms != 0)

    def why(self, entry: Entry, owner: Consumer) -> Blocking:  # noqa: ARG002  # as a gate
        """Return whose flush the message waits for."""
        return Blocking(BlockReason.FLUSHING, self._by_key[key_of(entry)].consumer.name)  # type: ignore[index]  # as above

    def opened(self, entry: Entry, holder: Consumer) -> None:
        """Begin a session with the first delivery to a consumer, or go on with it."""
        key = key_of(entry)
        if key is None:
            return
        session = self._by_key.get(key)
        if session is not None and session.consumer is not holder:  # nothing is open there, and nobody flushes
            self._end(session, self._why_away(session))
            session = None
        if session is None:
            session = self._begin(key, holder)
        session.open += 1
        session.deadline = None

    def closed(self, entry: Entry) -> None:
        """Note that a delivery ends."""
        key = key_of(entry)
        if key is None:
            return
        session = self._by_key[key]
        session.open -= 1
        if not session.open:
            self._changed[session] = None

    def moved(self) -> None:
        """Note that keys may belong to others now."""
        self._moved = True

    # what ends a session

    def lose(self, consumer: Consumer) -> None:
        """End all sessions of a consumer that has lost what it kept, or is gone. Nothing is open at it."""
        for session in list(self._at.get(consumer, {}).values()):
            self._end(session, KeyEnd.LOST)

    def holds(self, consumer: Consumer) -> bool:
        """Whether a consumer that leaves has something to flush. O(its sessions)."""
        mine = self._at.get(consumer, {}).values()
        return any(session.ending is not None for session in mine) or (bool(mine) and self._config.flush_ms != 0)

    def flush_ends(self, key: bytes, number: int) -> bool:
        """End the session that is being flushed; False if there is none of that number."""
        session = self._by_key.get(key)
        if session is None or session.number != number or session.ending is None:
            return False
        self._end(session, session.ending)
        return True

    def due(self, session: Session, notices: list[Effect], now: int) -> None:  # noqa: ARG002  # told at the end
        """A session has lingered for long enough, or its flush takes too long."""
        if session.ending is None:
            self._close(session, KeyEnd.IDLE, now)
        else:
            self._end(session, KeyEnd.FLUSH_TIMEOUT)

    # the room

    def refresh(self, now: int, notices: list[Effect]) -> None:
        """End what has nothing open any more, and tell what has begun and ended in this call."""
        if self._moved or self._changed:
            changed = list(self._by_key.values() if self._moved else self._changed)
            self._moved = False
            self._changed = {}
            for session in sorted(changed, key=_number_of):
                self._look(session, now)
            self._window.keep_back(told.key for told in self._told if type(told) is KeyEnding)
        if self._told:
            notices += [told for told in self._told if self._stands(told)]
            self._told.clear()

    def outstanding(self) -> list[Effect]:
        """Every flush that is asked for and not done, in the order of beginning. O(sessions)."""
        flushing = [session for session in self._by_key.values() if session.ending is not None]
        return [KeyEnding(session.key, session.consumer.name, session.number) for session in flushing]

    def is_flushing(self, key: bytes, number: int) -> bool:
        """Whether the session of that number waits for its flush. O(1)."""
        session = self._by_key.get(key)
        return session is not None and session.number == number and session.ending is not None

    def keys(self) -> list[bytes]:
        """The key of every session. O(result)."""
        return list(self._by_key)

    def all(self) -> list[KeySession]:
        """Every session, in the order of beginning. O(result)."""
        return [
            KeySession(session.key, session.consumer.name, session.number, session.phase, session.deadline)
            for session in self._by_key.values()
        ]

    def dump(self, now: int) -> object:
        """The last number that was given, and each session: why it is being flushed, and the time that is left."""
        rows = [
            [
                b64encode(session.key).decode("ascii"),
                session.consumer.name,
                session.number,
                None if session.ending is None else session.ending.value,
                None if session.deadline is None else session.deadline - now,
            ]
            for session in self._by_key.values()
        ]
        return {"last": self._last, "sessions": rows} if self._last else None

    def load(self, data: Reader, now: int) -> None:
        """Take the place of the sessions that were begun when the open deliveries were put back."""
        opened = self._by_key
        self._by_key, self._at, self._last = {}, {}, 0
        for row in data.field("sessions").items():
            key, name, number, ending, remaining = row.items(5)
            if key.binary() in self._by_key:
                raise key.refuse("have one session")
            if number.number() <= self._last:
                raise number.refuse(f"be above {self._last}: sessions stand in the order of beginning")
            self._last = number.integer()
            known = opened.pop(key.binary(), None)
            consumer = name.one_of(self._window.consumers)
            session = Session(key.binary(), consumer, self._last, known.open if known is not None else 0)
            session.ending = ending.maybe(lambda reason: reason.one_of(_WHY_FLUSHED))
            left = remaining.maybe(Reader.remaining)
            if left is not None:
                self._timers.start(session, now + left)
            elif session.ending is not None:  # flushes had no time in another life
                self._time_flush(session, now)
            self._add(session)
        if opened:
            raise data.field("sessions").refuse("have one of every key that something is open of")
        if data.field("last").number() < self._last:
            raise data.field("last").refuse(f"be at least {self._last}, the number of a session")
        self._last = data.field("last").number()
        self._told.clear()

    def check_invariants(self) -> None:
        """Raise `InvariantError` unless sessions are where they belong. For tests; O(outstanding + sessions)."""
        window = self._window
        opened: dict[bytes, list[Consumer | None]] = {}
        for entry in window.outstanding():
            key = key_of(entry)
            if entry.state == IN_FLIGHT and key is not None:
                opened.setdefault(key, []).append(entry.consumer)
        require(opened.keys() <= self._by_key.keys(), "what is open of a key belongs to its session")
        at: dict[Consumer, dict[bytes, Session]] = {}
        for key, session in self._by_key.items():
            name = f"session {session.number} of {key!r}"
            at.setdefault(session.consumer, {})[key] = session
            require(window.consumers.get(session.consumer.name) is session.consumer, f"{name} is at somebody connected")
            require(opened.get(key, []) == [session.consumer] * session.open, f"{name} counts what is open at it")
            require(session.ending is None or not session.open, f"{name} is not flushed while something is open")
            if session.phase is SessionPhase.WORKING:
                require(session.deadline is None, f"{name} lingers no more")
            elif session.phase is SessionPhase.LINGERING:
                require(session.deadline is not None, f"{name} lingers until some time")
                require(window.owner_named(key) is session.consumer, f"{name} lingers where its key belongs")
            else:
                is_timed = self._config.flush_ms is not None
                require(session.deadline is not None or not is_timed, f"{name} is flushed until some time")
        require({who: mine for who, mine in self._at.items() if mine} == at, "sessions are known by their consumers")
        numbers = [session.number for session in self._by_key.values()]
        require(numbers == sorted(set(numbers)) and self._last >= max(numbers, default=0), "numbers rise")
        require(not self._told and not self._changed and not self._moved, "all that happened was looked at")
        timed = {running for running in self._timers.running() if isinstance(running, Session)}
        ends = {session for session in self._by_key.values() if session.deadline is not None}
        require(timed == ends, "sessions that time ends have a timer, and no others")

    # inside

    def _stands(self, told: Effect) -> bool:
        """Whether it still holds at the end of the call: a session that is lost there is not flushed any more."""
        return type(told) is not KeyEnding or self.is_flushing(told.key, told.session)

    def _look(self, session: Session, now: int) -> None:
        if session.open or session.ending is not None or self._by_key.get(session.key) is not session:
            return
        if self._window.owner_named(session.key) is not session.consumer:
            self._close(session, self._why_away(session), now)
        elif session.deadline is None and self._config.linger_ms:
            self._timers.start(session, now + self._config.linger_ms)
        elif session.deadline is None:
            self._close(session, KeyEnd.IDLE, now)

    def _close(self, session: Session, why: KeyEnd, now: int) -> None:
        """End a session of which nothing is open, after its flush if it is to have one."""
        if self._config.flush_ms == 0:
            self._end(session, why)
            return
        session.ending = why
        session.deadline = None
        self._time_flush(session, now)
        self._told.append(KeyEnding(session.key, session.consumer.name, session.number))
        self._window.touch_key(session.key)

    def _time_flush(self, session: Session, now: int) -> None:
        """Start the whole time that a flush may take, if there is a limit."""
        if self._config.flush_ms is not None:
            self._timers.start(session, now + self._config.flush_ms)

    def _why_away(self, session: Session) -> KeyEnd:
        """Why a session ends whose key belongs to somebody else: its consumer leaves, or the key has moved."""
        consumer = session.consumer
        is_gone = self._window.consumers.get(consumer.name) is not consumer
        leaves = isinstance(consumer, Member) and consumer.state is MemberState.DRAINING
        return KeyEnd.LEFT if is_gone or leaves else KeyEnd.MOVED

    def _begin(self, key: bytes, consumer: Consumer) -> Session:
        self._last = max(self._last, self._window.first_attempt) + 1
        session = Session(key, consumer, self._last)
        self._add(session)
        self._told.append(KeyBegun(key, consumer.name, session.number))
        return session

    def _add(self, session: Session) -> None:
        self._by_key[session.key] = self._at.setdefault(session.consumer, {})[session.key] = session

    def _end(self, session: Session, why: KeyEnd) -> None:
        consumer = session.consumer
        session.deadline = None
        del self._by_key[session.key]
        mine = self._at[consumer]
        del mine[session.key]
        if not mine:
            del self._at[consumer]
        self._told.append(KeyEnded(session.key, consumer.name, session.number, why))
        if session.ending is not None:
            self._window.touch_key(session.key)  # it was kept back for this
            self._window.emptied.append(consumer)  # it may have drained for this


def _number_of(session: Session) -> int:
    return session.number
