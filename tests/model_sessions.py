"""Sessions of keys, written for reading: one dict by lane, looked at after each call."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from keyshared.dispatcher import KeySession, SessionPhase
from keyshared.effects import KeyBegun, KeyEnd, KeyEnded, KeyEnding

if TYPE_CHECKING:
    from tests.model import Lane, ModelDispatcher

__all__ = ["Session", "SessionRule"]


@dataclass
class Session:
    """What a consumer keeps for a key."""

    lane: "Lane"
    consumer: str
    number: int
    ending: KeyEnd | None = None  # why it is being flushed
    deadline: int | None = None  # of its lingering or its flush


class SessionRule:
    """The rule about sessions, in terms of a model."""

    def __init__(self, model: "ModelDispatcher") -> None:
        self.model = model
        self.settings = model.config.sessions

    @property
    def all(self) -> list[Session]:
        """Every session, in the order of beginning."""
        return sorted(self.model.sessions_of_lanes.values(), key=lambda session: session.number)

    def of(self, lane: "Lane") -> Session | None:
        return self.model.sessions_of_lanes.get(lane)

    def at(self, consumer: str) -> list[Session]:
        return [session for session in self.all if session.consumer == consumer]

    def opened(self, lane: "Lane", consumer: str) -> None:
        """The first delivery to a consumer begins a session; whoever had the key and need not flush has none now."""
        if self.settings is None or self.model._is_keyless(lane):
            return
        session = self.of(lane)
        if session and session.consumer != consumer:
            self.end(session, self.why_away(session))
            session = None
        if session is None:
            self.model.last_session = max(self.model.last_session, self.model.epoch << 32) + 1
            session = Session(lane, consumer, self.model.last_session)
            self.model.sessions_of_lanes[lane] = session
            self.model.out.sessions.append(KeyBegun(self.key(lane), consumer, session.number))
        session.deadline = None

    def refuses(self, lane: "Lane", owner: str) -> bool:
        """Whether nothing of the lane may go out before a session of it has ended."""
        session = self.of(lane)
        if session is None or self.settings is None:
            return False
        return session.ending is not None or (session.consumer != owner and self.settings.flush_ms != 0)

    def look(self) -> None:
        """End what has nothing open, and has lingered or is not where its key belongs."""
        if self.settings is None:
            return
        for session in self.all:
            if self.model._open_in(session.lane) or session.ending is not None:
                continue
            if self.model._owner_of(session.lane) != session.consumer:
                self.close(session, self.why_away(session))
            elif session.deadline is None and self.settings.linger_ms:
                session.deadline = self.model.now + self.settings.linger_ms
            elif session.deadline is None:
                self.close(session, KeyEnd.IDLE)
        if self.settings.flush_ms != 0:
            self.model._wake()

    def end_what_is_due(self) -> None:
        """Sessions that have lingered, or were flushed, for long enough, in (deadline, number) order."""
        due = [session for session in self.all if session.deadline is not None and session.deadline <= self.model.now]
        for session in sorted(due, key=lambda session: session.deadline or 0):
            if session.deadline is None or session.deadline > self.model.now:
                continue
            if session.ending is None:
                self.close(session, KeyEnd.IDLE)
            else:
                self.end(session, KeyEnd.FLUSH_TIMEOUT)

    def close(self, session: Session, why: KeyEnd) -> None:
        """End a session, after its flush if it has to have one."""
        assert self.settings is not None
        flush_ms = self.settings.flush_ms
        if flush_ms == 0:
            self.end(session, why)
            return
        session.ending = why
        session.deadline = None if flush_ms is None else self.model.now + flush_ms
        self.model.out.sessions.append(KeyEnding(self.key(session.lane), session.consumer, session.number))
        self.model.touched.append(session.lane)

    def end(self, session: Session, why: KeyEnd) -> None:
        del self.model.sessions_of_lanes[session.lane]
        self.model.out.sessions.append(KeyEnded(self.key(session.lane), session.consumer, session.number, why))
        if session.ending is not None:
            self.model.touched.append(session.lane)
        self.model._let_go_if_done(session.consumer)

    def lose(self, consumer: str) -> None:
        """A consumer has lost what it kept, or is gone."""
        for session in self.at(consumer):
            self.end(session, KeyEnd.LOST)

    def holds(self, consumer: str) -> bool:
        """Whether a consumer that leaves has something to flush."""
        flushes = self.settings is not None and self.settings.flush_ms != 0
        return any(flushes or session.ending is not None for session in self.at(consumer))

    def why_away(self, session: Session) -> KeyEnd:
        leaves = session.consumer not in [consumer.name for consumer in self.model._not_draining()]
        return KeyEnd.LEFT if leaves else KeyEnd.MOVED

    def flushing(self, key: bytes, number: int) -> Session | None:
        session = self.of(key)
        return session if session and session.number == number and session.ending is not None else None

    def told(self) -> list[KeySession]:
        return [
            KeySession(self.key(each.lane), each.consumer, each.number, self.phase(each), each.deadline)
            for each in self.all
        ]

    def phase(self, session: Session) -> SessionPhase:
        if session.ending is not None:
            return SessionPhase.FLUSHING
        return SessionPhase.WORKING if self.model._open_in(session.lane) else SessionPhase.LINGERING

    def key(self, lane: "Lane") -> bytes:
        assert isinstance(lane, bytes)  # nothing without a key has a session
        return lane
