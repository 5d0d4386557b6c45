"""The promises of single features: whole-batch, latest-only, redrive-order and one-session."""

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from keyshared.testing import history as h
from keyshared.testing.checks.check import DELIVERED, PUBLISHED, QUIET, Check, Handler, need
from keyshared.testing.checks.outcomes import is_latest_only
from keyshared.testing.claims import Promise, Violation
from keyshared.testing.records import Lane, LaneId, Message, Seen
from keyshared.testing.state import State

__all__ = ["LatestOnly", "OneSession", "RedriveOrder", "WholeBatch", "heir_of"]

_ON_ITS_WAY: Final = frozenset({h.HoldReason.DEAD_LETTERING, h.HoldReason.BLOCKED})
_REMEMBERED_NUMBERS: Final = 100_000


class WholeBatch(Check):
    """A batch goes out in one turn, nothing goes out beside it, and what is newer than a failure comes back with it."""

    promise = Promise.WHOLE_BATCH
    claim = "batches"
    needs = (DELIVERED, PUBLISHED)

    def __init__(self, state: State) -> None:
        super().__init__(state)
        self.turn: LaneId | None = None  # the lane of the latest event, if that is a delivery

    def handlers(self) -> Mapping[type[h.Event], Handler]:
        return {h.Delivered: self._delivered, h.Acked: self._acked}

    def after(self, seen: Seen) -> None:
        event = seen.event
        message = self.state.messages.get(event.offset) if isinstance(event, h.Delivered) else None
        self.turn = None if message is None else message.lane.id

    def _delivered(self, seen: Seen, event: h.Delivered, message: Message | None) -> Iterator[Violation]:
        lane = self.state.lane_of(message, event)
        if lane is None or lane.id == self.turn:
            return
        beside = next((each for held in lane.holders.values() for each in held.values() if each is not message), None)
        if beside is not None:
            text = f"offset {event.offset} went out while offset {beside.offset} was left of the batch before it"
            yield self.blame(text, beside.since, seen)

    def _acked(self, seen: Seen, event: h.Acked, message: Message | None) -> Iterator[Violation]:
        if message is None or event.counted is False or not message.is_current(event.consumer, event.attempt):
            return
        older = self.state.oldest_waiting(message.lane)
        if older is None or older.offset >= message.offset or (older.redriven and older.delivered is None):
            return
        text = f"offset {message.offset} stayed open and was acked, although offset {older.offset} came back"
        yield self.blame(text, older.since, seen)


class LatestOnly(Check):
    """At most one message of a key waits for its first delivery; an older one is given up for it, and nothing else."""

    promise = Promise.LATEST_ONLY
    claim = "latest_only"
    needs = (PUBLISHED, QUIET)

    def __init__(self, state: State) -> None:
        super().__init__(state)
        self.crowded: dict[LaneId, Lane] = {}  # of which several messages wait
        self.blamed: set[int] = set()  # what was not given up is one violation, not one in each moment of quiet

    def handlers(self) -> Mapping[type[h.Event], Handler]:
        return {h.Settled: self._settled, h.Quiet: self._quiet, h.AtRest: self._quiet}

    def after(self, seen: Seen) -> None:  # noqa: ARG002  # one shape for all
        for lane in self.state.changed.values():
            is_crowded = len(lane.listed) > 1 and isinstance(lane.id, bytes)
            if is_crowded and is_latest_only(self.state, lane.id) and self.state.lanes.get(lane.id) is lane:
                self.crowded[lane.id] = lane
            else:
                self.crowded.pop(lane.id, None)
        self.blamed.difference_update(self.state.ended)

    def _settled(self, seen: Seen, event: h.Settled, message: Message | None) -> Iterator[Violation]:
        if event.reason is not h.SettledBy.SUPERSEDED or message is None:
            return
        if not is_latest_only(self.state, message.lane.id):
            return  # no-loss says that no policy allows it
        if message.was_delivered:
            text = f"offset {message.offset} was superseded, although it had been delivered"
            yield self.blame(text, message.delivered or message.published, seen)
        elif heir_of(message, self.state) is None and not message.lane.doubt:
            text = f"offset {message.offset} was superseded, and there is no newer message of its key"
            yield self.blame(text, message.published, seen)

    def _quiet(self, seen: Seen, event: h.Event) -> Iterator[Violation]:  # noqa: ARG002  # one shape for all
        for lane in self.crowded.values():
            undelivered = self._undelivered(lane)
            for message in undelivered[:-1]:
                if message.offset not in self.blamed:
                    self.blamed.add(message.offset)
                    text = f"offset {message.offset} waits for its first delivery, and so does a newer one of its key"
                    yield self.blame(text, message.published, undelivered[-1].published, seen)

    def _undelivered(self, lane: Lane) -> list[Message]:
        """Return what waits for its first delivery, oldest first."""
        known = (self.state.messages.get(offset) for offset in sorted(lane.listed))
        waiting = (message for message in known if message is not None and message.lane is lane)
        return [message for message in waiting if not (message.was_delivered or message.hold in _ON_ITS_WAY)]


class RedriveOrder(Check):
    """A message that was redriven waits once, and nothing newer of its key goes out before it."""

    promise = Promise.REDRIVE_ORDER
    needs = (need("write `redriven`", h.Redriven),)

    def handlers(self) -> Mapping[type[h.Event], Handler]:
        return {h.Delivered: self._delivered, h.Redriven: self._redriven}

    def _redriven(self, seen: Seen, event: h.Redriven, message: Message | None) -> Iterator[Violation]:
        if message is not None:
            yield self.blame(f"offset {event.offset} was redriven, though it was outstanding", message.since, seen)

    def _delivered(self, seen: Seen, event: h.Delivered, message: Message | None) -> Iterable[Violation]:
        lane = self.state.lane_of(message, event)
        older = None if lane is None or not lane.listed else self.state.oldest_waiting(lane)
        if older is None or not older.redriven or older.offset >= event.offset:
            return ()
        text = f"offset {event.offset} overtook offset {older.offset} of its key, which was redriven and waits"
        return (self.blame(text, older.since, seen),)


@dataclass(slots=True)
class _Session:
    """A session that is on."""

    begun: Seen
    consumer: str
    number: int
    ending: Seen | None = None  # what told that it has to end
    lost: Seen | None = None  # what told that its consumer is gone
    is_busy: bool = True  # whether something of the key may be open
    idle_ms: int | None = None  # since when that is not so, if it is known


class OneSession(Check):
    """Sessions of a key do not overlap, and nothing of the key goes out but in one of them, before it has to end."""

    promise = Promise.ONE_SESSION
    claim = "sessions"
    needs = (DELIVERED,)

    def __init__(self, state: State) -> None:
        super().__init__(state)
        self.sessions: dict[bytes, _Session] = {}
        self.lost: dict[bytes, _Session] = {}  # those whose consumer is gone since the last moment of quiet
        self.numbers: OrderedDict[bytes, tuple[int, Seen]] = OrderedDict()  # the highest of a key

    def handlers(self) -> Mapping[type[h.Event], Handler]:
        return {
            h.SessionBegun: self._begun,
            h.SessionEnding: self._ending,
            h.SessionEnded: self._ended,
            h.Delivered: self._delivered,
            h.Gone: self._gone,
            h.Quiet: self._quiet,
            h.AtRest: self._quiet,
        }

    def after(self, seen: Seen) -> None:
        """Note since when nothing of a key is open."""
        for lane in self.state.changed.values():
            session = self.sessions.get(lane.id) if isinstance(lane.id, bytes) else None
            if session is not None:
                self._note(session, seen, is_busy=bool(lane.open or lane.doubt))

    def _begun(self, seen: Seen, event: h.SessionBegun) -> Iterator[Violation]:
        key, number = event.key, event.session
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
        session = self.sessions[key] = _Session(seen, event.consumer, number)
        self.lost.pop(key, None)
        lane = self.state.lanes.get(key)
        self._note(session, seen, is_busy=lane is not None and bool(lane.open or lane.doubt))

    def _ending(self, seen: Seen, event: h.SessionEnding) -> Iterable[Violation]:
        session = self._named(event)
        if session is not None:
            session.ending = session.ending or seen
        return ()

    def _ended(self, seen: Seen, event: h.SessionEnded) -> Iterator[Violation]:
        session, key = self._named(event), event.key
        if session is None:
            return
        del self.sessions[key]
        self.lost.pop(key, None)
        lane = self.state.lanes.get(key)
        if lane is not None and lane.open:
            still = [message for held in lane.holders.values() for message in held.values()]
            text = f"session {session.number} of key {key!r} ends while offset {still[0].offset} is open"
            yield self.blame(text, *(message.since for message in still), seen)
        linger, idle, now = self.claims.linger_ms, session.idle_ms, seen.now
        if event.reason is not h.SessionEnds.IDLE or linger is None or idle is None or now is None:
            return
        if now - idle < linger - self.claims.tolerance_ms:
            text = f"session {session.number} of key {key!r} is idle since {idle}, and ends at {now}"
            yield self.blame(text, session.begun, seen)

    def _delivered(self, seen: Seen, event: h.Delivered, message: Message | None) -> Iterator[Violation]:
        state, offset = self.state, event.offset
        key = state.lane_id(offset, event.key) if message is None else message.lane.id
        if not isinstance(key, bytes):
            return
        session = self.sessions.get(key)
        if session is None:
            yield self.blame(f"offset {offset} went out though no session of key {key!r} had begun", seen)
        elif session.consumer != event.consumer:
            text = f"offset {offset} went to {event.consumer!r}, and the session of key {key!r} is another's"
            yield self.blame(text, session.begun, seen)
        elif session.ending is not None:
            yield self.blame(f"offset {offset} went out while key {key!r} is flushed", session.ending, seen)

    def _gone(self, seen: Seen, event: h.Gone) -> Iterable[Violation]:
        for key, session in self.sessions.items() if not event.drains else ():
            if session.consumer == event.consumer and session.lost is None:
                session.lost = seen
                self.lost[key] = session
        return ()

    def _quiet(self, seen: Seen, event: h.Event) -> Iterator[Violation]:  # noqa: ARG002  # one shape for all
        for key, session in self.lost.items():
            text = f"session {session.number} of key {key!r} is still on, though its consumer is gone"
            yield self.blame(text, session.begun, session.lost, seen)
            session.lost = None
        self.lost.clear()

    def _named(self, event: h.SessionEnding | h.SessionEnded) -> _Session | None:
        session = self.sessions.get(event.key)
        if session is None or (session.number, session.consumer) != (event.session, event.consumer):
            return None
        return session

    def _note(self, session: _Session, seen: Seen, *, is_busy: bool) -> None:
        if is_busy != session.is_busy:
            session.is_busy = is_busy
            session.idle_ms = None if is_busy else seen.now


def heir_of(message: Message, state: State) -> Message | None:
    """Return the newest message of the key, if that is a newer one and not done."""
    newest = message.lane.newest
    if newest is None or newest.offset <= message.offset or state.messages.get(newest.offset) is not newest:
        return None
    return newest
