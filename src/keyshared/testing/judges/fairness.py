"""The promise about turns: fairness."""

from collections.abc import Iterable, Iterator, Mapping

from keyshared.testing.guarantees import Promise, Violation
from keyshared.testing.history import (
    AtRest,
    Connected,
    Delivered,
    Gone,
    Happening,
    LimitChanged,
    Owned,
    Published,
    Quiet,
    SessionEnding,
    Settled,
    SettledBy,
)
from keyshared.testing.judges.books import Books
from keyshared.testing.judges.delivery_promises import NO_DELIVERY, NO_PUBLISHED
from keyshared.testing.judges.entries import Lane, LaneId, Message, Seen, heir_of, was_delivered
from keyshared.testing.judges.judge import Judge, Judgement

__all__ = ["Fairness", "Turn"]


class Turn:
    """A key that only room at its owner keeps from going on."""

    __slots__ = ("message", "owned", "owner", "passed", "quiet", "since")

    def __init__(self, message: Message, owner: str, owned: Seen) -> None:
        self.message = message
        self.owner = owner
        self.owned = owned
        self.quiet: Seen | None = None  # the first moment of quiet in which it was so
        self.since = 0  # how many happenings there were then
        self.passed: list[Seen] = []


class Fairness(Judge):
    """While a consumer takes something, a ready key of its own is passed over only so many times."""

    promise = Promise.FAIRNESS

    def __init__(self, books: Books) -> None:
        super().__init__(books)
        self.known: dict[LaneId, Turn] = {}
        self.fresh: dict[LaneId, Turn] = {}  # of these: what was not seen in a moment of quiet yet
        self.ready: dict[str, dict[LaneId, Turn]] = {}  # of the others, by owner: oldest first, without the blamed

    def judgements(self) -> Mapping[type[Happening], Judgement]:
        return {} if self.guarantees.fairness is None else {Delivered: self._delivered, Settled: self._settled}

    @property
    def looks(self) -> bool:
        return self.guarantees.fairness is not None

    def missing(self) -> str | None:
        return "the guarantees claim no fairness" if self.guarantees.fairness is None else self.missing_of_turns()

    def missing_of_turns(self) -> str | None:
        """What the history would have to tell so that turns could be judged; None: nothing."""
        kinds = self.books.kinds
        if Published not in kinds:
            return NO_PUBLISHED
        if Delivered not in kinds:
            return NO_DELIVERY
        if Owned not in kinds:
            return "the history does not tell who has Owned a key"
        return None if kinds & {Quiet, AtRest} else "the history never says Quiet"

    def entries(self) -> int:
        """How much is kept."""
        passed = sum(len(turn.passed) for turn in self.known.values())
        ready = sum(1 + len(turns) for turns in self.ready.values())
        return len(self.known) + len(self.fresh) + passed + ready

    def after(self, seen: Seen) -> None:
        for lane in self.books.changed.values():
            self._update(lane)
        match seen.happening:
            case Quiet() | AtRest() if self.fresh:
                self._note_quiet(seen)
            case Connected(consumer=consumer) | Gone(consumer=consumer) | LimitChanged(consumer=consumer):
                self._begin_anew(consumer)
            case SessionEnding(key=key) if (turn := self.known.get(key)) and key in self.ready.get(turn.owner, {}):
                self._wait_anew(key, turn)  # for its consumer to be done with it: that it is held is told later
            case _:
                pass

    def _settled(self, seen: Seen, happening: Settled, message: Message | None) -> Iterable[Violation]:  # noqa: ARG002  # one shape for all
        """Hand the place of a superseded message on to the one that supersedes it."""
        if happening.reason is not SettledBy.SUPERSEDED or message is None or was_delivered(message):
            return ()
        heir = heir_of(message, self.books.messages)
        if heir is None or heir.delivered is not None:
            return ()
        turn = self.known.get(message.lane.id)
        if turn is not None and turn.message is message:
            turn.message = heir
        return ()

    def _turn_of(self, message: Message) -> int:
        """How many happenings there were at least when the turn of a message began."""
        lane = message.lane
        # What comes back takes the turn of its key, and what is published that of an older one which ends undelivered.
        return lane.turn if was_delivered(message) else max(lane.turn, lane.waits_since)

    def _begin_anew(self, consumer: str) -> None:
        """Nothing has waited yet for another session of that name, nor for who may now take more, or less."""
        for lane_id, turn in list(self.ready.get(consumer, {}).items()):
            self._wait_anew(lane_id, turn)

    def _wait_anew(self, lane_id: LaneId, turn: Turn) -> None:
        self._leave(lane_id, turn)
        turn.quiet, turn.passed = None, []
        self.fresh[lane_id] = turn

    def _note_quiet(self, seen: Seen) -> None:
        """What waits now, waits for its turn: the system has had time to see that it could go on."""
        books = self.books
        for lane_id, turn in list(self.fresh.items()):
            if books.units_are_free(lane_id, turn.owner):  # else it drains with its unit
                del self.fresh[lane_id]
                turn.quiet, turn.since = seen, books.position
                self._join(lane_id, turn)

    def _delivered(self, seen: Seen, happening: Delivered, message: Message | None) -> Iterator[Violation]:
        waiting = self.ready.get(happening.consumer)
        most = self.guarantees.fairness
        if waiting is None or message is None or most is None or not self.books.log_is_told:
            return
        if self.guarantees.batches and message.lane.open > message.is_open:
            return  # it belongs to the turn that the first of its batch had
        if (
            self.guarantees.token_bytes is not None
            and (lowest := self.books.lowest())
            and message.offset <= lowest.offset
        ):
            return  # while the token is full it goes past all others
        began = self._turn_of(message)
        for lane_id, turn in list(waiting.items()):
            if turn.since >= began:
                break  # the later ones began to wait even later
            if turn.message.lane is message.lane or not self._share_turns(lane_id, message.lane.id):
                continue
            turn.passed.append(seen)
            if len(turn.passed) > most:
                self._leave(lane_id, turn)  # once, until something changes
                yield self._blame(turn)

    def _blame(self, turn: Turn) -> Violation:
        times = "once" if len(turn.passed) == 1 else f"{len(turn.passed)} times"
        text = (
            f"offset {turn.message.offset} waits for room at {turn.owner!r} only, and was passed over {times} "
            f"by what began to wait later; {self.guarantees.fairness} is claimed"
        )
        return self.blame(text, turn.message.since, turn.owned, turn.quiet, *turn.passed)

    def _update(self, lane: Lane) -> None:
        place = lane.place
        owned, owner = (None, None) if place is None else (place.owned, place.owner)
        message = None if owner is None else self._candidate(lane, owner)
        known = self.known.get(lane.id)
        if known is not None:
            if known.message is message and known.owner == owner:
                return
            del self.known[lane.id]
            self.fresh.pop(lane.id, None)
            self._leave(lane.id, known)
        if message is not None and owner is not None and owned is not None:
            self.known[lane.id] = self.fresh[lane.id] = Turn(message, owner, owned)

    def _share_turns(self, lane_id: LaneId, other: LaneId) -> bool:
        """Whether two lanes are served in one order: groups have one each, and so has what has no key."""
        group_of = self.guarantees.group_of
        if group_of is None or not isinstance(lane_id, bytes):
            return True
        return isinstance(other, bytes) and group_of(lane_id) == group_of(other)

    def _join(self, lane_id: LaneId, turn: Turn) -> None:
        self.ready.setdefault(turn.owner, {})[lane_id] = turn

    def _leave(self, lane_id: LaneId, turn: Turn) -> None:
        turns = self.ready.get(turn.owner)
        if turns is not None and turns.pop(lane_id, None) is not None and not turns:
            del self.ready[turn.owner]

    def _candidate(self, lane: Lane, owner: str) -> Message | None:
        """The message that nothing but room at the owner keeps from going out, whatever is true."""
        books, limit = self.books, lane.turn_limit
        if books.lanes.get(lane.id) is not lane or lane.unsure or lane.doubtful:
            return None
        if (limit is not None and lane.open >= limit) or lane.holders.keys() - {owner}:
            return None
        message = books.oldest_waiting(lane)
        return message if message is not None and message.held is None else None
