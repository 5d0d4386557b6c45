"""The promise about turns: fairness."""

from collections.abc import Iterable, Mapping

from keyshared.testing import history as h
from keyshared.testing.checks.check import DELIVERED, PUBLISHED, QUIET, Check, Handler, need
from keyshared.testing.checks.features import heir_of
from keyshared.testing.claims import Promise, Violation
from keyshared.testing.records import Lane, LaneId, Message, Seen
from keyshared.testing.state import State

__all__ = ["Fairness"]


class Turn:
    """A key that only room at its owner keeps from going on."""

    __slots__ = ("message", "owned", "owner", "passed", "quiet", "since")

    def __init__(self, message: Message, owner: str, owned: Seen) -> None:
        self.message = message
        self.owner = owner
        self.owned = owned
        self.quiet: Seen | None = None  # the first moment of quiet in which it was so
        self.since = 0  # how many events there were then
        self.passed: list[Seen] = []


class Fairness(Check):
    """While a consumer takes something, a ready key of its own is passed over only so many times."""

    promise = Promise.FAIRNESS
    claim = "fairness"
    needs = (PUBLISHED, DELIVERED, need("write `owned`", h.Owned), QUIET)

    def __init__(self, state: State) -> None:
        super().__init__(state)
        self.known: dict[LaneId, Turn] = {}
        self.fresh: dict[LaneId, Turn] = {}  # of these: what was not seen in a moment of quiet yet
        self.ready: dict[str, dict[LaneId, Turn]] = {}  # of the others, by owner: oldest first, without the blamed

    def handlers(self) -> Mapping[type[h.Event], Handler]:
        return {h.Delivered: self._delivered, h.Settled: self._settled}

    def after(self, seen: Seen) -> None:
        for lane in self.state.changed.values():
            self._update(lane)
        match seen.event:
            case h.Quiet() | h.AtRest() if self.fresh:
                self._note_quiet(seen)
            case h.Connected(consumer=consumer) | h.Gone(consumer=consumer) | h.LimitChanged(consumer=consumer):
                self._restart_turns(consumer)
            case h.Rewound():
                for consumer in list(self.ready):
                    self._restart_turns(consumer)
            case h.SessionEnding(key=key) if (turn := self.known.get(key)) and key in self.ready.get(turn.owner, {}):
                self._restart_turn(key, turn)  # it waits for its consumer to be done with it: that is told later
            case _:
                pass

    def _settled(self, seen: Seen, event: h.Settled, message: Message | None) -> Iterable[Violation]:  # noqa: ARG002
        """Hand the place of a superseded message on to the one that supersedes it."""
        if event.reason is not h.SettledBy.SUPERSEDED or message is None or message.was_delivered:
            return ()
        heir, turn = heir_of(message, self.state), self.known.get(message.lane.id)
        if heir is not None and heir.delivered is None and turn is not None and turn.message is message:
            turn.message = heir
        return ()

    def _began(self, message: Message) -> int:
        """Return how many events there were at least when the turn of a message began."""
        lane = message.lane
        # What comes back takes the turn of its key; what is published that of an older one which ends undelivered.
        return lane.turn if message.was_delivered else max(lane.turn, lane.waits_since)

    def _restart_turns(self, consumer: str) -> None:
        """Nothing has waited yet for another session of a consumer, nor for one that may now take more, or less."""
        for lane_id, turn in list(self.ready.get(consumer, {}).items()):
            self._restart_turn(lane_id, turn)

    def _restart_turn(self, lane_id: LaneId, turn: Turn) -> None:
        self._leave(lane_id, turn)
        turn.quiet, turn.passed = None, []
        self.fresh[lane_id] = turn

    def _note_quiet(self, seen: Seen) -> None:
        """What waits now waits for its turn: the system has had time to see that it could go on."""
        state = self.state
        if state.is_behind():
            return  # what was done waits for its turn, too
        for lane_id, turn in list(self.fresh.items()):
            if state.unit_is_free(lane_id, turn.owner):  # else it drains with its unit
                del self.fresh[lane_id]
                turn.quiet, turn.since = seen, state.position
                self._join(lane_id, turn)

    def _delivered(self, seen: Seen, event: h.Delivered, message: Message | None) -> Iterable[Violation]:
        waiting, most = self.ready.get(event.consumer), self.claims.fairness
        if not waiting or message is None or most is None or not self._is_a_turn(message):
            return ()
        began = self._began(message)
        found: list[Violation] = []
        for lane_id, turn in list(waiting.items()):
            if turn.since >= began:
                break  # the later ones began to wait even later
            if turn.message.lane is message.lane:
                continue
            turn.passed.append(seen)
            if len(turn.passed) > most:
                self._leave(lane_id, turn)  # once, until something changes
                found.append(self._blame(turn))
        return found

    def _is_a_turn(self, message: Message) -> bool:
        """Whether a delivery is a turn of its key: of a batch only the first is."""
        return not (self.claims.batches and message.lane.open > (message.consumer is not None))

    def _blame(self, turn: Turn) -> Violation:
        times = "once" if len(turn.passed) == 1 else f"{len(turn.passed)} times"
        text = (
            f"offset {turn.message.offset} waits for room at {turn.owner!r} only, and was passed over {times} "
            f"by what began to wait later; {self.claims.fairness} is claimed"
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

    def _join(self, lane_id: LaneId, turn: Turn) -> None:
        self.ready.setdefault(turn.owner, {})[lane_id] = turn

    def _leave(self, lane_id: LaneId, turn: Turn) -> None:
        turns = self.ready.get(turn.owner)
        if turns is not None and turns.pop(lane_id, None) is not None and not turns:
            del self.ready[turn.owner]

    def _candidate(self, lane: Lane, owner: str) -> Message | None:
        """Return the message that only room at the owner keeps from going out."""
        state, limit = self.state, lane.turn_limit
        if state.lanes.get(lane.id) is not lane or lane.doubt:
            return None
        if (limit is not None and lane.open >= limit) or lane.holders.keys() - {owner}:
            return None
        message = state.oldest_waiting(lane)
        return message if message is not None and message.held is None else None
