"""The promise about messages that wait: progress."""

from collections.abc import Iterable, Iterator, Mapping
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from keyshared.testing import history as h
from keyshared.testing.checks.check import PUBLISHED, QUIET, Check, Handler, need
from keyshared.testing.claims import Promise, Violation
from keyshared.testing.records import SLACK, Lane, LaneId, Member, Message, Seen
from keyshared.testing.state import State

__all__ = ["Progress", "is_held", "takers"]


class _Ready(NamedTuple):
    """A lane that only room at a consumer keeps from going on."""

    message: Message
    owner: str | None  # None: it is not known who owns the key
    is_beside: bool  # something of the key is open, and it is not known who owns it


class Progress(Check):
    """All that can be delivered is delivered before the system falls quiet."""

    promise = Promise.PROGRESS
    needs = (PUBLISHED, need("write `connected`, which says who has room", h.Connected), QUIET)

    def __init__(self, state: State) -> None:
        super().__init__(state)
        self.known: dict[LaneId, _Ready] = {}
        self.ready: dict[str | None, dict[LaneId, _Ready]] = {}  # the same by owner
        self.beside: dict[LaneId, _Ready] = {}  # those that only a consumer that is alone has to take
        self.wakes: list[tuple[int, int]] = []  # when which offsets are no longer held
        self.changed: dict[LaneId, Lane] = {}  # since the last moment of quiet

    def handlers(self) -> Mapping[type[h.Event], Handler]:
        return {h.Quiet: self._quiet, h.AtRest: self._quiet}

    def after(self, seen: Seen) -> None:  # noqa: ARG002  # one shape for all
        for lane_id, lane in self.state.changed.items():
            if lane.size or lane_id in self.known:
                self.changed[lane_id] = lane
            else:
                self.changed.pop(lane_id, None)

    def _quiet(self, seen: Seen, event: h.Event) -> Iterable[Violation]:  # noqa: ARG002  # one shape for all
        for lane in self.changed.values():
            self._update(lane)
        self.changed.clear()
        self._wake()
        return tuple(self._waiting(seen)) if self.state.log_is_told else ()

    def _waiting(self, seen: Seen) -> Iterator[Violation]:
        """Blame lanes that are ready, at consumers that have room."""
        for owner, lanes in list(self.ready.items()):
            if there := _with_room(self.state, owner):
                for lane_id, entry in list(lanes.items()):
                    if self.state.unit_is_free(lane_id, owner):  # else it drains with its unit
                        yield self._blame_lane(seen, lane_id, entry, there)
        if self.beside and len(self.state.members) == 1:
            (name,) = self.state.members
            there = _with_room(self.state, name)
            for lane_id, entry in list(self.beside.items()) if there else ():
                is_here = not self.state.lanes[lane_id].holders.keys() - {name}
                if is_here and self.state.unit_is_free(lane_id, name):
                    yield self._blame_lane(seen, lane_id, entry, there)

    def _blame_lane(self, seen: Seen, lane_id: LaneId, entry: _Ready, there: list[Member]) -> Violation:
        self._drop(lane_id, entry)  # once, until something changes
        place = self.state.place_of(lane_id)
        names = ", ".join(repr(taker.name) for taker in there)
        text = f"offset {entry.message.offset} waits or is lost: nothing holds it back, and {names} had room"
        proof = [entry.message.since, None if place is None else place.owned, *(taker.room_since for taker in there)]
        return self.blame(text, *proof, seen)

    def _update(self, lane: Lane) -> None:
        known = self.known.get(lane.id)
        place = lane.place
        owned, owner = (None, None) if place is None else (place.owned, place.owner)
        message = None if owner is None and owned is not None else self._candidate(lane, owner)
        is_beside = bool(lane.open) and owner is None
        if known is not None:
            if known.message is message and known.owner == owner and known.is_beside == is_beside:
                return
            self._drop(lane.id, known)
        if message is not None:
            entry = self.known[lane.id] = _Ready(message, owner, is_beside)
            lanes = self.beside if is_beside else self.ready.setdefault(owner, {})
            lanes[lane.id] = entry

    def _drop(self, lane_id: LaneId, entry: _Ready) -> None:
        del self.known[lane_id]
        if entry.is_beside:
            del self.beside[lane_id]
            return
        lanes = self.ready[entry.owner]
        del lanes[lane_id]
        if not lanes:
            del self.ready[entry.owner]

    def _candidate(self, lane: Lane, owner: str | None) -> Message | None:
        """Return the message that only room keeps from going out, if there is one."""
        state, limit = self.state, lane.turn_limit
        if not lane.size or lane.doubt or not isinstance(lane.id, bytes):
            return None  # the history does not tell who takes messages without a key
        message = state.oldest_waiting(lane)
        if message is None or (limit is not None and lane.open >= limit):
            return None
        if owner is not None and lane.holders.keys() - {owner}:
            return None  # it drains
        if message.held is not None and is_held(message, state):
            self._wake_later(message)
            return None
        return message

    def _wake_later(self, message: Message) -> None:
        until_ms = _until(message, self.state)
        if until_ms is None:
            return
        heappush(self.wakes, (until_ms, message.offset))
        messages = self.state.messages
        if len(self.wakes) > 2 * len(messages) + SLACK:
            self.wakes = [(ms, each) for ms, each in set(self.wakes) if each in messages and messages[each].held]
            heapify(self.wakes)

    def _wake(self) -> None:
        now = self.state.now
        while self.wakes and now is not None and self.wakes[0][0] <= now:
            _, offset = heappop(self.wakes)
            message = self.state.messages.get(offset)
            if message is not None:
                self._update(message.lane)


def takers(lane: Lane, state: State) -> list[Member]:
    """Return who would have to take the next message of a lane, as far as is known."""
    place = lane.place
    owned, owner = (None, None) if place is None else (place.owned, place.owner)
    if (owned is not None and owner is None) or not state.unit_is_free(lane.id, owner):
        return []
    return _with_room(state, owner)


def is_held(message: Message, state: State) -> bool:
    """Return whether a message is held back on purpose now."""
    if message.held is None:
        return False
    until_ms = _until(message, state)
    return until_ms is None or state.now is None or state.now < until_ms


def _with_room(state: State, owner: str | None) -> list[Member]:
    """Return who of the possible owners has room; of an unknown owner nobody, unless all have."""
    if owner is not None:
        member = state.members.get(owner)
        return [member] if member is not None and state.has_room(member) else []
    members = list(state.members.values())
    return members if all(map(state.has_room, members)) else []


def _until(message: Message, state: State) -> int | None:
    """Return when the hold is over by itself, by any clock. Where a payload is does not change with time."""
    held = None if message.held is None else message.held.event
    if not isinstance(held, h.Held) or held.reason in {h.HoldReason.SPILLED, h.HoldReason.LOADING}:
        return None
    return None if held.until_ms is None else held.until_ms + state.claims.tolerance_ms
