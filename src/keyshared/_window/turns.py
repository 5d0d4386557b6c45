"""Where a lane goes when it is looked at: on to a consumer, or into the list of what it waits for.

A lane whose turn it is sends one message at a time. Who looks at it, and when, is up to `InFlightWindow`.
"""

from collections import deque

from keyshared._window.books import WindowBooks
from keyshared._window.lanes import (
    DEAD_LETTERING,
    IN_FLIGHT,
    QUEUED,
    SPILLED,
    Consumer,
    Entry,
    Lane,
    ReadyList,
    WorkList,
    place_of,
)

__all__ = ["WindowTurns"]


class WindowTurns(WindowBooks):
    """How an `InFlightWindow` serves lanes and consumers."""

    __slots__ = ()

    def _examine(self, lane: Lane, granted: list[Entry]) -> None:
        """Send out the lane's next messages, or put the lane into the list of what it waits for."""
        while self._step(lane, granted):
            pass

    def _examine_in_turns(self, lanes: list[Lane], granted: list[Entry]) -> None:
        """The same for several lanes; no key is served twice before every other one had its turn."""
        turns = deque(lanes)
        while turns:
            lane = turns.popleft()
            if self._step(lane, granted):
                turns.append(lane)

    def _step(self, lane: Lane, granted: list[Entry]) -> bool:  # noqa: PLR0911  # one return for each place
        """Send out one message, or list the lane. True if one went out and the lane may have another."""
        entry = lane.back[0] if lane.back else lane.fresh
        # What is spilled and has a deadline is not wanted yet.
        if entry is None or (entry.state >= SPILLED and (entry.state > SPILLED or entry.deadline is not None)):
            if lane.listed is not None:
                self._unlist(lane)
            return False
        key = lane.key
        if key is None or (self.quarantined and key in self.quarantined):
            self._step_special(lane, entry, granted)
            return False
        owner = lane.owner if lane.version == self._version else self._ask_owner(lane, key)
        if owner is None:
            self._list(lane, self.ownerless)
            return False
        if lane.open >= self.per_key and lane.holder is owner:
            if lane.listed is not None:
                self._unlist(lane)
            return False
        if (lane.open or self._counts is not None) and self._gate.keeps(lane, owner):  # a key is kept while it is open
            self._keep(lane, owner)
            return False
        if owner.free <= 0 or owner.ready or (owner.keyless and self.shared):
            self._list(lane, owner.ready)
            if owner.free > 0:
                self._freed[owner] = None  # what it stands back behind may yet go to somebody else
            return False
        return self._send(lane, entry, owner, granted)

    def _step_special(self, lane: Lane, entry: Entry, granted: list[Entry]) -> None:
        """Lanes that the placement has no say in: a keyless message, or a quarantined key."""
        if lane.key is None:
            consumer = self._rooms.roomiest()
            if consumer is None or consumer.ready or self.shared:
                self._list(lane, self.shared)
            else:
                self._send(lane, entry, consumer, granted)
        elif lane.open:  # the end of what is open looks at it again
            if lane.listed is not None:
                self._unlist(lane)
        elif entry.state == SPILLED:
            self._load_in_turn(lane, entry, None, granted)
        else:
            if lane.listed is not None:
                self._unlist(lane)
            entry.state = DEAD_LETTERING
            self.held[DEAD_LETTERING] += 1
            granted.append(entry)

    def _send(self, lane: Lane, entry: Entry, consumer: Consumer, granted: list[Entry]) -> bool:
        """Open a delivery, or load the message for it. True if the lane may have more to send."""
        if entry.state == SPILLED:
            self._load_in_turn(lane, entry, consumer, granted)
            return False
        self._open(lane, entry, consumer, granted)
        return self.per_key > 1

    def _load_in_turn(self, lane: Lane, entry: Entry, consumer: Consumer | None, granted: list[Entry]) -> None:
        """Load a spilled message, or queue for a slot."""
        if self.starved or self.loaded >= self.capacity:
            self._list(lane, self.starved)
        else:
            self._unlist(lane)
            self._load(lane, entry, consumer, granted)

    def _could_get(self, consumer: Consumer, lane: Lane) -> bool:
        """Whether this consumer may be handed the lane's next message, room aside."""
        if lane.key is None:
            return consumer.keyless
        if lane.key in self.quarantined or self._owner_now(lane) is not consumer:
            return False
        return lane.open < self.per_key and not self._gate.keeps(lane, consumer)

    def _serve(self, consumer: Consumer, granted: list[Entry]) -> None:
        """Hand out what waits for this consumer, one message per lane and turn, while it has room."""
        ready, shared = consumer.ready, self.shared
        while consumer.free > 0:
            turn: WorkList | ReadyList = ready
            if shared and consumer.keyless and (not ready or _first(shared) < _first(ready)):
                turn = shared
            if not turn:
                return
            waiting = next(iter(turn))
            del turn[waiting]  # type: ignore[arg-type]  # it was there
            if type(waiting) is not Entry:
                lane = waiting
            elif waiting.lane.head is None and waiting.state == QUEUED:
                self._open_alone(waiting, consumer, granted)
                continue
            else:
                lane = self._lane_of(waiting)
                lane.sign = None
            lane.listed = None
            entry: Entry = lane.candidate  # type: ignore[assignment]  # a listed lane has one
            if self._send(lane, entry, consumer, granted):
                self._examine(lane, granted)

    def _open_alone(self, entry: Entry, consumer: Consumer, granted: list[Entry]) -> None:
        """Open the first delivery of a message that has waited alone."""
        entry.state = IN_FLIGHT
        entry.attempt = self.first_attempt + 1
        self.waiting -= 1
        consumer.open[entry.offset] = entry
        consumer.free -= 1
        if not consumer.noted:
            self._rooms.note(consumer)
        granted.append(entry)

    def _serve_shared(self, granted: list[Entry]) -> None:
        """Find a consumer for keyless messages that stood back behind one which then took something older."""
        while self.shared and (roomiest := self._rooms.roomiest()) is not None:
            self._serve(roomiest, granted)

    def _hand_out(self, entry: Entry, consumer: Consumer, granted: list[Entry]) -> None:
        """Hand out one message out of its turn, if it waits for nothing but this consumer, or for a slot."""
        lane = self._lane_of(entry)
        mine = lane.listed is consumer.ready or (consumer.keyless and lane.listed is self.shared)
        # What is in quarantine is nobody's: whoever asks has it read, to be archived.
        starves = lane.listed is self.starved and (lane.key in self.quarantined or self._could_get(consumer, lane))
        if lane.candidate is not entry or not (mine or starves):
            return
        if entry.state == SPILLED and entry.offset == self.cursor.resume_offset:
            # Whoever wants nothing else until this one is settled would wait for ever in a full window: nothing in it
            # is handed out. One slot beyond is enough, because there is one lowest message, and it gives the slot back.
            self._unlist(lane)
            self._load(lane, entry, consumer if mine else None, granted)
        elif mine:
            self._unlist(lane)
            if self._send(lane, entry, consumer, granted):
                self._examine(lane, granted)

    def _feed(self, granted: list[Entry]) -> None:
        """Hand free slots of the window to lanes that wait for one."""
        starved = self.starved
        while starved and self.loaded < self.capacity:
            lane, _ = starved.popitem(last=False)
            lane.listed = None
            entry: Entry = lane.candidate  # type: ignore[assignment]  # a listed lane has one
            if lane.key is not None and lane.key in self.quarantined:  # nothing of it is open, or it would not starve
                self._load(lane, entry, None, granted)
                continue
            owner = self._owner_now(lane)
            if owner is not None and owner.free > 0 and self._could_get(owner, lane):
                self._load(lane, entry, owner, granted)
            else:
                self._examine(lane, granted)


def _first(lanes: WorkList | ReadyList) -> int:
    return place_of(*next(iter(lanes.items())))
