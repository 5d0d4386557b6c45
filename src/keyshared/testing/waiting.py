"""The promises about what waits: progress and isolation."""

# ruff: noqa: D102  # what each method is for is said once, at Judge

from collections.abc import Iterable, Iterator, Mapping
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from keyshared.testing.books import Books
from keyshared.testing.deliveries import NO_PUBLISHED
from keyshared.testing.entries import SLACK, Lane, LaneId, Member, Message, Seen
from keyshared.testing.guarantees import Promise, Violation
from keyshared.testing.history import (
    AtRest,
    Committed,
    Connected,
    Happening,
    Held,
    Owned,
    Published,
    Quiet,
)
from keyshared.testing.judging import Judge, Judgement, sinces

__all__ = ["Isolation", "Progress", "is_held", "owner_of"]


class _Ready(NamedTuple):
    """A lane that only room at a consumer keeps from going on."""

    message: Message
    since_ms: int | None


class Progress(Judge):
    """What can be delivered is delivered before the system falls quiet, and within the promised time."""

    promise = Promise.PROGRESS

    def __init__(self, books: Books) -> None:
        super().__init__(books)
        self.ready: dict[str | None, dict[LaneId, _Ready]] = {}  # by owner; None: it is not known who owns the key
        self.owners: dict[LaneId, str | None] = {}  # where a lane is in ``ready``
        self.wakes: list[tuple[int, int]] = []  # when which offsets are no longer held
        self.seen_ms: int | None = None

    def judgements(self) -> Mapping[type[Happening], Judgement]:
        return {Quiet: self._quiet, AtRest: self._quiet}

    def missing(self) -> str | None:
        kinds = self.books.kinds
        if Published not in kinds:
            return NO_PUBLISHED
        if Connected not in kinds:
            return "nobody is Connected in the history, so it does not say who has room"
        if self.guarantees.progress_ms is None or self.guarantees.unit_of is not None:
            return None if kinds & {Quiet, AtRest} else self._never_quiet
        return None if kinds & {Quiet, AtRest} or self.books.now is not None else "the history has no times"

    @property
    def _never_quiet(self) -> str:
        claimed = self.guarantees.progress_ms is not None
        reason = "units are judged only there" if claimed else "no progress_ms is claimed"
        return f"the history never says Quiet, and {reason}"

    def entries(self) -> int:
        """How much is kept."""
        return len(self.owners) + len(self.wakes) + sum(1 + len(lanes) for lanes in self.ready.values())

    def after(self, seen: Seen) -> Iterable[Violation]:
        self._wake()
        for lane in self.books.changed.values():
            self._update(lane)
        within, now = self.guarantees.progress_ms, self.books.now
        if within is None or now is None or now == self.seen_ms or self.guarantees.unit_of is not None:
            return ()  # since when a unit is free nobody has noted
        self.seen_ms = now
        return self._overdue(seen, now - within)

    def _quiet(self, seen: Seen, happening: Happening) -> Iterator[Violation]:  # noqa: ARG002  # one shape for all
        self._wake()
        for owner, lanes in list(self.ready.items()):
            if takers := self._takers(owner):
                for lane_id, entry in list(lanes.items()):
                    if self.books.units.open_besides(lane_id, owner) is None:  # else it drains with its unit
                        yield self._blame_lane(seen, lane_id, entry, takers)

    def _overdue(self, seen: Seen, latest_ms: int) -> Iterator[Violation]:
        """Lanes that have been ready, at consumers that have had room, since before that time."""
        for owner, lanes in list(self.ready.items()):
            takers = self._takers(owner)
            since = [None if taker.room_since is None else taker.room_since.now for taker in takers]
            if not takers or any(at_ms is None or at_ms >= latest_ms for at_ms in since):
                continue
            for lane_id, entry in list(lanes.items()):
                if entry.since_ms is None or entry.since_ms >= latest_ms:
                    break  # the later ones have been ready for less
                yield self._blame_lane(seen, lane_id, entry, takers)

    def _blame_lane(self, seen: Seen, lane_id: LaneId, entry: _Ready, takers: list[Member]) -> Violation:
        self._drop(lane_id)  # once, until something changes
        place = self.books.place_of(lane_id)
        names = ", ".join(repr(taker.name) for taker in takers)
        text = f"offset {entry.message.offset} waits, though nothing holds it back and {names} had room"
        proof = [entry.message.since, None if place is None else place.owned, *(taker.room_since for taker in takers)]
        return self.blame(text, *proof, seen)

    def _takers(self, owner: str | None) -> list[Member]:
        """Who would have had to take a lane of this owner; of an unknown one: everybody must have room."""
        books = self.books
        if owner is not None:
            member = books.members.get(owner)
            return [member] if member is not None and books.has_room(member) else []
        active = [member for member in books.members.values() if member.suspended is None]
        return active if all(map(books.has_room, active)) else []

    def _update(self, lane: Lane) -> None:
        message = self._candidate(lane)
        if message is None:
            self._drop(lane.id)
            return
        owner = self._owner(lane)
        known = self.ready.get(owner, {}).get(lane.id)
        if known is None or known.message is not message:
            self._drop(lane.id)
            self.owners[lane.id] = owner
            self.ready.setdefault(owner, {})[lane.id] = _Ready(message, self.books.now)

    def _drop(self, lane_id: LaneId) -> None:
        if lane_id in self.owners:
            owner = self.owners.pop(lane_id)
            lanes = self.ready[owner]
            del lanes[lane_id]
            if not lanes:
                del self.ready[owner]

    def _candidate(self, lane: Lane) -> Message | None:
        """The message that only room keeps from going out, if there is one."""
        books = self.books
        if not isinstance(lane.id, bytes) or books.lanes.get(lane.id) is not lane:
            return None  # it is not told who takes messages without a key
        limit = self.guarantees.per_key
        message = books.oldest_waiting(lane)
        if message is None or (limit is not None and lane.open >= limit):
            return None
        place = books.place_of(lane.id)
        owned = None if place is None else place.owned
        if lane.open and (owned is None or lane.holders.keys() - {owner_of(owned)}):
            return None  # it drains, or may have to
        if owned is not None and owner_of(owned) is None:
            return None
        if is_held(message, books):
            self._wake_later(message)
            return None
        return message

    def _owner(self, lane: Lane) -> str | None:
        place = self.books.place_of(lane.id)
        return None if place is None or place.owned is None else owner_of(place.owned)

    def _wake_later(self, message: Message) -> None:
        until_ms = _until(message)
        if until_ms is None:
            return
        heappush(self.wakes, (until_ms, message.offset))
        if len(self.wakes) > 2 * len(self.books.messages) + SLACK:
            messages = self.books.messages
            self.wakes = [
                wake for wake in set(self.wakes) if wake[1] in messages and _until(messages[wake[1]]) == wake[0]
            ]
            heapify(self.wakes)

    def _wake(self) -> None:
        now = self.books.now
        while self.wakes and now is not None and self.wakes[0][0] <= now:
            _, offset = heappop(self.wakes)
            message = self.books.messages.get(offset)
            if message is not None:
                self._update(message.lane)


class Isolation(Judge):
    """What waits fills at most half the window, so that there is room for what can go out."""

    promise = Promise.ISOLATION

    def __init__(self, books: Books) -> None:
        super().__init__(books)
        self.newest: Seen | None = None  # what was published since the last moment of quiet,
        self.alone = True  # if nothing else has happened

    def judgements(self) -> Mapping[type[Happening], Judgement]:
        return {Quiet: self._quiet}

    def missing(self) -> str | None:
        if self.guarantees.window is None:
            return "the guarantees claim no window"
        if Published not in self.books.kinds:
            return NO_PUBLISHED
        return None if Quiet in self.books.kinds else "the history never says Quiet"

    def after(self, seen: Seen) -> Iterable[Violation]:
        match seen.happening:
            case Quiet():
                self.newest, self.alone = None, True
            case Published() if self.newest is None:
                self.newest = seen
            case Owned() | Committed():
                pass
            case _:
                self.alone = False
        return ()

    def _quiet(self, seen: Seen, happening: Quiet) -> Iterator[Violation]:  # noqa: ARG002  # one shape for all
        books, window = self.books, self.guarantees.window
        if window is None or self.newest is None or not self.alone:
            return
        message = books.messages.get(_offset(self.newest))
        others = books.waiting_in_memory() - 1
        if message is None or message.is_open or message.held is not None or 2 * others < window:
            return
        text = f"offset {message.offset} waits in memory behind {others} others, which fill half the window of {window}"
        waiting = [each for each in books.messages.values() if not each.is_open and not each.is_spilled]
        yield self.blame(text, *sinces(waiting), seen)


def owner_of(seen: Seen) -> str | None:
    """Who owns a key, by an `Owned`."""
    happening = seen.happening
    assert isinstance(happening, Owned)
    return happening.consumer


def is_held(message: Message, books: Books) -> bool:
    """Whether the system holds a message back on purpose now."""
    if message.held is None:
        return False
    until_ms = _until(message)
    return until_ms is None or books.now is None or books.now < until_ms


def _until(message: Message) -> int | None:
    held = None if message.held is None else message.held.happening
    return held.until_ms if isinstance(held, Held) else None


def _offset(seen: Seen) -> int:
    happening = seen.happening
    assert isinstance(happening, Published)
    return happening.offset
