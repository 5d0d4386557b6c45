"""The outstanding messages of a history, by key, consumer and unit: how they come, open, end and are done.

What nobody can know is here, too. A message of which the history cannot say what became of it is taken out and counted:
it proves nothing against any other, and its key and its consumer are not expected to go on because of it.
"""

from collections import Counter, OrderedDict, deque
from collections.abc import Hashable
from heapq import heapify, heappush
from typing import Final, TypeAlias

from keyshared.testing import history as h
from keyshared.testing.claims import Claims
from keyshared.testing.history import HoldReason
from keyshared.testing.records import SLACK, ByOffset, Holders, Lane, LaneId, Member, Message, Places, Seen

__all__ = ["WHOLE_LOG", "Outstanding"]

WHOLE_LOG: Final = b""
"""The key of everything, with a total order."""
_REMEMBERED_UNJUDGED: Final = 100_000
_Lease: TypeAlias = tuple[int, Message, Seen]  # when something becomes of which delivery


class Outstanding:
    """The messages that are outstanding by now, and those that may be."""

    def __init__(self, claims: Claims, remembered_keys: int) -> None:
        self.claims = claims
        self.position = 0
        self.now: int | None = None
        self.messages: dict[int, Message] = {}
        self.lanes: dict[LaneId, Lane] = {}
        self.members: dict[str, Member] = {}
        self.open_at: Holders = {}
        self.units: dict[Hashable, Holders] = {}
        self.changed: dict[LaneId, Lane] = {}  # by the latest event
        self.ended: list[int] = []  # messages, by the latest event
        self.open = self.loading = 0
        self.first_offset: int | None = None  # the lowest that was published
        self.last_offset: int | None = None
        self.places = Places(remembered_keys)
        self.outstanding: ByOffset[Message] = ByOffset()
        # messages that may be outstanding, and are not judged: their lane, and who may have them
        self.unclear: ByOffset[tuple[Lane | None, str | None]] = ByOffset()
        self.doubt_at: Counter[str] = Counter()  # messages that may be open at a consumer, or not
        self.doubt_in: Counter[Hashable] = Counter()  # likewise, of a unit
        self.let_go: OrderedDict[int, None] = OrderedDict()  # messages that were not judged, and are surely done
        self.reasons: Counter[str] = Counter()  # why messages are not judged, and how many
        self._unclear_again: set[int] = set()  # of the unclear ones, those that no cursor ends: they were redriven
        self._highest_told: int | None = None  # the greatest offset that was told of before it was published
        self._done_above: ByOffset[tuple[bytes | None]] = ByOffset()  # the keys of what is done above the cursor
        self._leases: deque[_Lease] = deque()
        self._overdue: deque[_Lease] = deque()  # those that may have expired, and when they surely have

    def lane_id(self, offset: int, key: bytes | None) -> LaneId:
        """Return which lane a message is in: its key's, or its own if it has none."""
        if self.claims.total_order:
            return WHOLE_LOG
        return offset if key is None else key

    def holds_its_key(self, message: Message) -> bool:
        """Whether newer messages of its key wait for a message that waits."""
        return not (message.repeated or (message.came_back and not self.claims.nack_holds_key))

    def busy(self, name: str) -> int:
        """Return how many deliveries a consumer may have open."""
        return len(self.open_at.get(name, ())) + self.doubt_at[name]

    def is_over(self, offset: int) -> bool:
        """Whether an offset that is not outstanding is done, or was never published."""
        return self.first_offset is not None and self.first_offset <= offset <= (self.last_offset or 0)

    # --- the life of a message --------------------------------------------------------------------------------------

    def _add(
        self, seen: Seen, offset: int, key: bytes | None, previous: int | None, *, repeated: bool = False
    ) -> Message:
        lane = self._lane(self.lane_id(offset, key))
        if not lane.size:
            lane.turn = self.position
        if lane.size == lane.open:
            lane.waits_since = self.position
        lane.size += 1
        message = self.messages[offset] = Message(offset, key, lane, seen, previous)
        message.repeated = repeated
        self.outstanding.add(offset, message)
        self._list(message)
        return message

    def _lane(self, lane_id: LaneId) -> Lane:
        lane = self.lanes.get(lane_id)
        if lane is None:
            place = self.places.wake(lane_id) if isinstance(lane_id, bytes) else None
            lane = self.lanes[lane_id] = Lane(lane_id, self.claims, place)
        return lane

    def _list(self, message: Message) -> None:
        """Hold back newer messages of a key behind one that waits."""
        lane = message.lane
        self.changed[lane.id] = lane
        if message.listed or not (message.repeated or self.holds_its_key(message)):
            return
        message.listed = True
        if message.repeated:  # it may hold its key for the system, and proves nothing
            self._doubt(lane, None, 1)
            return
        heappush(lane.listed, message.offset)
        if len(lane.listed) > 2 * lane.size + SLACK:  # what was settled out of order is still in the heap
            lane.listed = [offset for offset in lane.listed if offset in self.messages]
            heapify(lane.listed)

    def _unlist(self, message: Message) -> None:
        """A message that was done before goes out, or is done again."""
        if message.repeated and message.listed:
            message.listed = False
            self._doubt(message.lane, None, -1)

    def _open(self, message: Message, event: h.Delivered, seen: Seen) -> None:
        name, lane, number = event.consumer, message.lane, event.attempt
        self._unlist(message)
        message.consumer, message.attempt = name, number
        message.deliveries += 1
        message.had[name] = max(message.had.get(name, number or 0), number or 0)
        message.since = message.delivered = seen
        message.asked, message.revoked = None, False
        lane.open += 1
        lane.turn = self.position
        _enter(lane.holders, name, message)
        self.open += 1
        _enter(self.open_at, name, message)
        if (unit := self._unit(lane.id)) is not None:
            _enter(self.units.setdefault(unit, {}), name, message)
        self.changed[lane.id] = lane
        self._note_room(name, seen)
        timeout = self.claims.ack_timeout_ms
        if timeout is not None and seen.now is not None:
            self._leases.append((seen.now + timeout - self.claims.tolerance_ms, message, seen))
            self._leases = self._running(self._leases)

    def _close(self, message: Message) -> None:
        """End an open delivery, whatever comes then."""
        lane, name = message.lane, message.consumer
        assert name is not None
        message.consumer = None
        if lane.turn_limit and lane.open >= lane.turn_limit:
            lane.turn = self.position
        if lane.size == lane.open:
            lane.waits_since = self.position
        lane.open -= 1
        self.open -= 1
        _strike(lane.holders, name, message)
        _strike(self.open_at, name, message)
        unit = self._unit(lane.id)
        if unit is not None:
            _strike(self.units[unit], name, message)
            if not self.units[unit]:
                del self.units[unit]
        self.changed[lane.id] = lane

    def _end(self, message: Message, seen: Seen) -> None:
        """End a delivery; its message is still outstanding."""
        name = message.lapsed if message.consumer is None else message.consumer
        assert name is not None
        if message.consumer is not None:
            self._close(message)
        self._make_sure(message)
        message.since = seen
        message.came_back, message.revoked = True, False
        self._list(message)
        self._note_room(name, seen)

    def _settle(self, message: Message, seen: Seen) -> None:
        name = message.consumer
        self._remove(message)
        self.ended.append(message.offset)
        if name is not None:
            self._note_room(name, seen)
        if self.claims.rewinds and message.logged:
            self._done_above.add(message.offset, (message.key,))

    def _remove(self, message: Message) -> None:
        """Take a message out of the state."""
        lane, offset = message.lane, message.offset
        if message.consumer is not None:
            self._close(message)
        self._unlist(message)
        self._make_sure(message)
        self._unhold(message)
        del self.messages[offset], self.outstanding.items[offset]
        self.changed[lane.id] = lane
        lane.size -= 1
        self._tidy(lane)

    def _tidy(self, lane: Lane) -> None:
        """Forget a lane of which nothing is outstanding."""
        if not lane.size and not lane.doubt:
            self.lanes.pop(lane.id, None)
            lane.newest = None  # which knows its lane: nothing may be left for the garbage collector
            if lane.place is not None and isinstance(lane.id, bytes):
                self.places.rest(lane.id)

    def _unhold(self, message: Message) -> None:
        if message.held is not None:
            self.loading -= message.hold is HoldReason.LOADING
            if message.is_kept_back:
                message.failed = 0
            message.held = None

    def _note_room(self, name: str, seen: Seen) -> None:
        """Remember since when a consumer has room. Loads come and go too often to count here."""
        member = self.members.get(name)
        if member is None:
            return
        if member.suspended is not None or (member.limit is not None and self.busy(name) >= member.limit):
            member.room_since = None
        elif member.room_since is None:
            member.room_since = seen

    def _note_told(self, offset: int) -> None:
        """Remember what was told of before its publication, if that still comes."""
        if not self.is_over(offset):
            self._highest_told = offset if self._highest_told is None else max(offset, self._highest_told)

    def _unit(self, lane_id: LaneId) -> Hashable:
        unit_of = self.claims.unit_of
        return None if unit_of is None or not isinstance(lane_id, bytes) else (unit_of(lane_id),)

    # --- what nobody can know ---------------------------------------------------------------------------------------

    def _expire(self, now: int) -> None:
        """Deliveries may have expired: the system may have noticed, or not."""
        leases, tolerance = self._leases, self.claims.tolerance_ms
        while leases and leases[0][0] <= now:
            due, message, seen = leases.popleft()
            name = message.consumer
            if message.delivered is seen and name is not None:
                self._close(message)
                message.lapsed = name
                self._doubt(message.lane, name, 1)
                self._overdue.append((due + 2 * tolerance, message, seen))

    def _notice_expiries(self) -> None:
        """Deliveries that may have expired for longer than the tolerance have."""
        while self._overdue and self.now is not None and self._overdue[0][0] <= self.now:
            _, message, seen = self._overdue.popleft()
            if message.delivered is seen and message.lapsed is not None:
                self._end(message, message.since)

    def _running(self, leases: deque[_Lease]) -> deque[_Lease]:
        """Drop deliveries that have ended, if they are most of them."""
        is_long = len(leases) > 2 * len(self.messages) + SLACK
        return (
            deque(each for each in leases if each[1].delivered is each[2] and each[1].consumer) if is_long else leases
        )

    def _make_sure(self, message: Message) -> None:
        """A delivery that may have expired has ended by now."""
        if message.lapsed is not None:
            self._doubt(message.lane, message.lapsed, -1)
            message.lapsed = None

    def _doubt(self, lane: Lane | None, name: str | None, step: int) -> None:
        if name is not None:
            self.doubt_at[name] += step
        if lane is not None:
            lane.doubt += step
            self.changed[lane.id] = lane
            if (unit := self._unit(lane.id)) is not None:
                self.doubt_in[unit] += step

    def _make_unclear(self, message: Message, reason: str, consumer: str | None = None) -> None:
        name, lane = consumer or message.consumer or message.lapsed, message.lane
        lane.doubt += 1  # so that the lane stays
        self._remove(message)
        lane.doubt -= 1
        self._note_unclear(message.offset, lane, name, reason)
        if message.redriven:
            self._unclear_again.add(message.offset)

    def _note_unclear(self, offset: int, lane: Lane | None, name: str | None, reason: str) -> None:
        self.reasons[reason] += 1
        self.unclear.add(offset, (lane, name))
        self._doubt(lane, name, 1)

    def _forget_unclear(self, offset: int, lane: Lane | None, name: str | None) -> None:
        """A message that is not judged is surely done; what is still told of it is not judged either."""
        self._unclear_again.discard(offset)
        self.let_go[offset] = None
        if len(self.let_go) > _REMEMBERED_UNJUDGED:
            self.let_go.popitem(last=False)
        self._doubt(lane, name, -1)
        if lane is not None:
            self._tidy(lane)


def _enter(holders: Holders, name: str, message: Message) -> None:
    held = holders.get(name)
    if held is None:
        holders[name] = {message.offset: message}
    else:
        held[message.offset] = message


def _strike(holders: Holders, name: str, message: Message) -> None:
    held = holders[name]
    del held[message.offset]
    if not held:
        del holders[name]
