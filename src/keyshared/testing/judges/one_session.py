"""The promise about what consumers keep for a key: one-session."""

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from keyshared.testing.guarantees import Promise, Violation
from keyshared.testing.history import (
    AtRest,
    Delivered,
    Gone,
    Happening,
    Quiet,
    SessionBegun,
    SessionEnded,
    SessionEnding,
    SessionEnds,
)
from keyshared.testing.judges.books import Books
from keyshared.testing.judges.delivery_promises import NO_DELIVERY
from keyshared.testing.judges.entries import Message, Seen
from keyshared.testing.judges.judge import Judge, Judgement

__all__ = ["OneSession"]

_REMEMBERED_NUMBERS: Final = 100_000


@dataclass(slots=True)
class _Session:
    """A session that is on.

    Attributes:
        begun: What told of its beginning.
        consumer: Who has it.
        number: Its number.
        ending: What told that it has to end.
        lost: What told that its consumer is gone.
        is_busy: Whether something of the key may be open.
        idle_ms: Since when that is not so; None if it is, or if the history had no time then.
    """

    begun: Seen
    consumer: str
    number: int
    ending: Seen | None = None
    lost: Seen | None = None
    is_busy: bool = True
    idle_ms: int | None = None


class OneSession(Judge):
    """Sessions of a key do not overlap, and nothing of the key goes out but in one of them, before it has to end."""

    promise = Promise.ONE_SESSION

    def __init__(self, books: Books) -> None:
        super().__init__(books)
        self.sessions: dict[bytes, _Session] = {}
        self.lost: dict[bytes, _Session] = {}  # those whose consumer is gone since the last moment of quiet
        self.numbers: OrderedDict[bytes, tuple[int, Seen]] = OrderedDict()  # the highest of a key

    def judgements(self) -> Mapping[type[Happening], Judgement]:
        if not self.guarantees.sessions:
            return {}
        return {
            SessionBegun: self._begun,
            SessionEnding: self._ending,
            SessionEnded: self._ended,
            Delivered: self._delivered,
            Gone: self._gone,
            Quiet: self._quiet,
            AtRest: self._quiet,
        }

    @property
    def looks(self) -> bool:
        return self.guarantees.sessions

    def after(self, seen: Seen) -> None:
        """Note since when nothing of a key is open."""
        for lane in self.books.changed.values():
            session = self.sessions.get(lane.id) if isinstance(lane.id, bytes) else None
            if session is not None:
                self._note(session, seen, is_busy=bool(lane.open or lane.unsure))

    def missing(self) -> str | None:
        if not self.guarantees.sessions:
            return "the guarantees claim no sessions"
        return None if Delivered in self.books.kinds else NO_DELIVERY

    def entries(self) -> int:
        return len(self.sessions) + len(self.lost) + len(self.numbers)

    def _begun(self, seen: Seen, happening: SessionBegun) -> Iterator[Violation]:
        key, number = happening.key, happening.session
        before, known = self.sessions.get(key), self.numbers.get(key)
        if before is not None:
            text = f"session {number} of key {key!r} begins before session {before.number} of it has ended"
            yield self.blame(text, before.begun, seen)
        if known is not None and number <= known[0]:
            yield self.blame(f"session {number} of key {key!r} comes after session {known[0]}", known[1], seen)
        if known is None or number > known[0]:
            self.numbers[key] = number, seen
            self.numbers.move_to_end(key)
            if len(self.numbers) > _REMEMBERED_NUMBERS:
                self.numbers.popitem(last=False)
        session = self.sessions[key] = _Session(seen, happening.consumer, number)
        self.lost.pop(key, None)
        lane = self.books.lanes.get(key)
        self._note(session, seen, is_busy=lane is not None and bool(lane.open or lane.unsure))

    def _ending(self, seen: Seen, happening: SessionEnding) -> Iterable[Violation]:
        session = self._named(happening)
        if session is not None:
            session.ending = session.ending or seen
        return ()

    def _ended(self, seen: Seen, happening: SessionEnded) -> Iterator[Violation]:
        session = self._named(happening)
        if session is None:
            return
        del self.sessions[happening.key]
        self.lost.pop(happening.key, None)
        yield from self._while_open(seen, happening, session)
        linger, idle, now = self.guarantees.linger_ms, session.idle_ms, seen.now
        if happening.reason is not SessionEnds.IDLE or linger is None or idle is None or now is None:
            return
        if now - idle < linger - self.guarantees.tolerance_ms:
            text = f"session {session.number} of key {happening.key!r} is idle since {idle}, and ends at {now}"
            yield self.blame(text, session.begun, seen)

    def _delivered(self, seen: Seen, happening: Delivered, message: Message | None) -> Iterator[Violation]:
        books, offset = self.books, happening.offset
        key = books.lane_id(offset, happening.key) if message is None else message.lane.id
        if not isinstance(key, bytes):
            return
        session = self.sessions.get(key)
        if session is None:
            yield self.blame(f"offset {offset} went out though no session of key {key!r} had begun", seen)
        elif session.consumer != happening.consumer:
            text = f"offset {offset} went to {happening.consumer!r}, and the session of key {key!r} is another's"
            yield self.blame(text, session.begun, seen)
        elif session.ending is not None:
            yield self.blame(f"offset {offset} went out while key {key!r} is flushed", session.ending, seen)

    def _gone(self, seen: Seen, happening: Gone) -> Iterator[Violation]:
        if not happening.drains:
            for key, session in self.sessions.items():
                if session.consumer == happening.consumer and session.lost is None:
                    session.lost = seen
                    self.lost[key] = session
        return iter(())

    def _quiet(self, seen: Seen, happening: Quiet | AtRest) -> Iterator[Violation]:  # noqa: ARG002  # one shape for all
        for key, session in self.lost.items():
            text = f"session {session.number} of key {key!r} is still on, though its consumer is gone"
            yield self.blame(text, session.begun, session.lost, seen)
            session.lost = None
        self.lost.clear()

    def _named(self, happening: SessionEnding | SessionEnded) -> _Session | None:
        session = self.sessions.get(happening.key)
        if session is None or (session.number, session.consumer) != (happening.session, happening.consumer):
            return None
        return session

    def _while_open(self, seen: Seen, happening: SessionEnded, session: _Session) -> Iterator[Violation]:
        lane = self.books.lanes.get(happening.key)
        if lane is not None and lane.open:
            still = [message for held in lane.holders.values() for message in held.values()]
            text = f"session {session.number} of key {happening.key!r} ends while offset {still[0].offset} is open"
            yield self.blame(text, *(message.since for message in still), seen)

    def _note(self, session: _Session, seen: Seen, *, is_busy: bool) -> None:
        if is_busy != session.is_busy:
            session.is_busy = is_busy
            session.idle_ms = None if is_busy else seen.now
