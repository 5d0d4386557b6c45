"""How the books change when a message comes, goes out, comes back, is held or ends: whatever happening tells of it."""

from collections import deque
from heapq import heapify, heappush
from typing import TypeAlias

from keyshared.testing.guarantees import Guarantees, Promise
from keyshared.testing.history import Delivered, Held, HoldReason
from keyshared.testing.judges.books import Books
from keyshared.testing.judges.entries import SLACK, Lane, LaneId, Message, Seen, is_running

__all__ = ["Lives"]

_AtConsumers: TypeAlias = dict[str, dict[int, Message]]
_Lease: TypeAlias = tuple[int, Message, Seen]
"""When something becomes of which delivery."""


class Lives(Books):
    """Writes the life of a message into the books, step by step."""

    def __init__(self, guarantees: Guarantees, remembered_keys: int) -> None:
        super().__init__(guarantees, remembered_keys)
        self._leases: deque[_Lease] = deque()
        self._overdue: deque[_Lease] = deque()  # those that may have expired, and when they have by any clock
        self._has_units = guarantees.unit_of is not None

    def entries(self) -> int:
        """How much is kept, in entries of all books."""
        return super().entries() + len(self._leases) + len(self._overdue)

    # --- it comes ---------------------------------------------------------------------------------------------------

    def _add(self, seen: Seen, offset: int, key: bytes | None, previous: int | None) -> Message:
        lane = self._lane(self.lane_id(offset, key))
        if lane.size == lane.open:
            lane.waits_since = self.position
        lane.size += 1
        message = self.messages[offset] = Message(offset, key, lane, seen, previous)
        self.oldest_first.add(offset)
        return message

    def _lane(self, lane_id: LaneId) -> Lane:
        lane = self.lanes.get(lane_id)
        if lane is None:
            place = self.places.wake(lane_id) if isinstance(lane_id, bytes) else None
            lane = self.lanes[lane_id] = Lane(lane_id, self.guarantees, place)
        return lane

    def _list(self, message: Message) -> None:
        """Hold back newer messages of a key behind one that waits."""
        lane = message.lane
        self.changed[lane.id] = lane
        if message.is_listed or not self.holds_its_key(message):
            return
        message.is_listed = True
        heappush(lane.listed, message.offset)
        if len(lane.listed) > 2 * lane.size + SLACK:
            self._clean(lane)

    def _clean(self, lane: Lane) -> None:
        """What was settled out of order is still in the heap."""
        lane.listed = [offset for offset in lane.listed if offset in self.messages]
        heapify(lane.listed)

    # --- it goes out ------------------------------------------------------------------------------------------------

    def _open(self, message: Message, happening: Delivered, seen: Seen) -> None:
        name, lane = happening.consumer, message.lane
        message.is_open, message.consumer, message.attempt = True, name, happening.attempt
        message.since = message.delivered = seen
        message.can_wait = message.presumed = False
        message.asked = None
        lane.open += 1
        lane.turn = self.position
        _enter(lane.holders, name, message)
        self.open += 1
        _enter(self.open_at, name, message)
        if self._has_units:
            self.units.opened(message, name)
        self.changed[lane.id] = lane
        self._note_room(name, seen)
        timeout = self.guarantees.ack_timeout_ms
        if timeout is not None and seen.now is not None:
            self._leases.append((seen.now + timeout - self.guarantees.tolerance_ms, message, seen))
            self._leases = self._of_the_living(self._leases)

    def _of_the_living(self, leases: deque[_Lease]) -> deque[_Lease]:
        """Drop what is over, if it is most of it."""
        is_long = len(leases) > 2 * len(self.messages) + SLACK
        return deque(lease for lease in leases if is_running(lease)) if is_long else leases

    # --- its delivery ends ------------------------------------------------------------------------------------------

    def _close(self, message: Message) -> None:
        """A delivery ends, whatever comes then."""
        lane, name, limit = message.lane, message.consumer, message.lane.turn_limit
        assert name is not None
        message.is_open = False
        if limit and lane.open >= limit:
            lane.turn = self.position
        if lane.size == lane.open:
            lane.waits_since = self.position
        lane.open -= 1
        self.open -= 1
        _strike(lane.holders, name, message)
        _strike(self.open_at, name, message)
        if self._has_units:
            self.units.closed(message, name)
        self.changed[lane.id] = lane

    def _end(self, message: Message, seen: Seen) -> None:
        """A delivery ends, and its message is still outstanding."""
        self._close(message)
        self._put_back(message, seen)
        self._note_more_room(message.consumer, seen)

    def _put_back(self, message: Message, seen: Seen) -> None:
        """It surely does not lie with its consumer any more."""
        message.since = seen
        message.came_back = message.can_wait = True
        self._list(message)

    def _end_perhaps(self, message: Message, seen: Seen, *, can_wait: bool) -> None:
        """A delivery may have ended, or not."""
        name = message.consumer
        assert name is not None
        if message.is_open:
            self._close(message)
            message.unsure = message.came_back = True
            message.since = seen
            message.lane.unsure += 1
            _enter(self.unsure_at, name, message)
            self.unsure_units.opened(message, name)
        if can_wait:
            message.can_wait = message.presumed = True  # the system may still say how the delivery has ended
            self._clear(message)

    def _end_or_not(self, message: Message, seen: Seen) -> None:
        """A delivery goes on, or has ended with its message."""
        self._end_perhaps(message, seen, can_wait=False)
        self._doubt(message)
        name, lane = message.consumer, message.lane
        assert name is not None
        if message.unsure and not message.can_wait:
            lane.unclear = {} if lane.unclear is None else lane.unclear
            _enter(lane.unclear, name, message)

    def _clear(self, message: Message) -> None:
        """It may be something else than open or done, or is not both any more."""
        unclear, name = message.lane.unclear, message.consumer
        assert name is not None
        if unclear and message.offset in unclear.get(name, ()):
            _strike(unclear, name, message)

    def _settle_what_was_done(self, lane: Lane, seen: Seen, happening: Delivered) -> None:
        """What is open or done is done by the time that something of its key goes out which could not if it were open.

        If it were open all the same, the delivery would be the fault; so nobody is blamed who has none.
        """
        claimed, unclear = self.guarantees.promises, lane.unclear or {}
        is_full = Promise.BOUNDS in claimed and lane.most_open is not None and lane.open + 1 >= lane.most_open
        is_at_one = Promise.ONE_HOLDER in claimed
        done = [name for name in unclear if is_full or (is_at_one and name != happening.consumer)]
        for message in [each for name in done for each in unclear[name].values()]:
            self._settle(message, seen)

    def _make_sure(self, message: Message, seen: Seen) -> None:
        """A delivery that may have ended has ended by now."""
        name, lane = message.consumer, message.lane
        assert name is not None
        message.unsure = False
        lane.unsure -= 1
        if lane.nacked:
            lane.nacked.pop(message.offset, None)
        self._clear(message)
        _strike(self.unsure_at, name, message)
        self.unsure_units.closed(message, name)
        self.changed[message.lane.id] = message.lane
        self._note_more_room(name, seen)

    def _expire(self, now: int) -> None:
        leases = self._leases
        while leases and leases[0][0] <= now:
            lease = leases.popleft()
            _, message, seen = lease
            if is_running(lease):
                self._end_perhaps(message, seen, can_wait=True)
                self._overdue.append((lease[0] + 2 * self.guarantees.tolerance_ms, message, seen))
        self._overdue = self._of_the_living(self._overdue)

    def _notice_expiries(self, seen: Seen) -> None:
        """A system that had time to act has noticed which deliveries are overdue."""
        overdue, now = self._overdue, self.now
        while overdue and now is not None and overdue[0][0] <= now:
            lease = overdue.popleft()
            message = lease[1]
            if is_running(lease):
                self._make_sure(message, seen)
                self._put_back(message, message.since)

    # --- it is done -------------------------------------------------------------------------------------------------

    def _settle(self, message: Message, seen: Seen) -> None:
        lane, offset = message.lane, message.offset
        if message.is_open:
            self._close(message)
            self._note_more_room(message.consumer, seen)
        elif message.unsure:
            self._make_sure(message, seen)
        if message.held is not None:
            self._unhold(message)
        if message.doubtful:
            self._believe(message)
        del self.messages[offset]
        self.ended.append(offset)
        if type(message.published.happening) is Delivered:
            self.early.done(offset, message, seen, is_older=self.is_older(offset))
        elif message.redriven and not self.is_over(offset):
            self.early.done(offset, None, seen, is_older=self.is_older(offset))
        self.changed[lane.id] = lane
        lane.size -= 1
        if not lane.size:
            del self.lanes[lane.id]
            lane.newest = None  # which knows its lane: nothing may be left for the garbage collector
            if lane.place is not None and isinstance(lane.id, bytes):
                self.places.rest(lane.id)

    def _doubt(self, message: Message) -> None:
        """It may be done, or not."""
        if not message.doubtful:
            message.doubtful = True
            lane = message.lane
            lane.doubtful = {} if lane.doubtful is None else lane.doubtful
            lane.doubtful[message.offset] = message
            self.doubtful += 1
        self.changed[message.lane.id] = message.lane

    def _believe(self, message: Message) -> None:
        """It is no longer doubtful."""
        message.doubtful = False
        others = message.lane.doubtful
        assert others is not None
        del others[message.offset]
        self.doubtful -= 1
        self.changed[message.lane.id] = message.lane

    # --- it is held -------------------------------------------------------------------------------------------------

    def _hold_back(self, message: Message, happening: Held, seen: Seen) -> None:
        self._unhold(message)
        message.held = seen
        self.spilled += happening.reason is HoldReason.SPILLED
        self.loading += happening.reason is HoldReason.LOADING
        self.changed[message.lane.id] = message.lane

    def _unhold(self, message: Message) -> None:
        if message.held is not None:
            happening = message.held.happening
            assert isinstance(happening, Held)
            self.spilled -= happening.reason is HoldReason.SPILLED
            self.loading -= happening.reason is HoldReason.LOADING
            if message.is_kept_back:
                message.failed = 0
            message.held = None

    # --- its consumer has room --------------------------------------------------------------------------------------

    def _note_room(self, name: str, seen: Seen) -> None:
        """Remember since when a consumer has room. Loads come and go too often to count here."""
        member = self.members.get(name)
        if member is None:
            return
        if member.suspended is not None or (member.limit is not None and self.busy(name) >= member.limit):
            member.room_since = None
        elif member.room_since is None:
            member.room_since = seen

    def _note_more_room(self, name: str | None, seen: Seen) -> None:
        """The same where a consumer has less open than before: who had room has it still."""
        assert name is not None
        member = self.members.get(name)
        if member is not None and member.room_since is None:
            self._note_room(name, seen)


def _enter(holders: _AtConsumers, name: str, message: Message) -> None:
    held = holders.get(name)
    if held is None:
        holders[name] = {message.offset: message}
    else:
        held[message.offset] = message


def _strike(holders: _AtConsumers, name: str, message: Message) -> None:
    held = holders[name]
    del held[message.offset]
    if not held:
        del holders[name]
