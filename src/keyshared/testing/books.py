"""What a history says about now: which messages are outstanding, who has them, who is there, who owns what.

All promises are judged on these books. They believe the history; whether it may be so is the promises' business.
"""

from collections import deque
from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import Final, TypeAlias

from keyshared.testing.changes import Changes, Places
from keyshared.testing.entries import SLACK, Lane, LaneId, LazyHeap, Member, Message, Place, Seen, Standing, standing
from keyshared.testing.errors import HistoryError
from keyshared.testing.guarantees import Guarantees, Promise
from keyshared.testing.history import (
    Acked,
    AtRest,
    Committed,
    Connected,
    DeadLettered,
    Delivered,
    Dropped,
    Expired,
    Freed,
    Gone,
    Happening,
    Held,
    HoldReason,
    LimitChanged,
    Nacked,
    Owned,
    PlacementChanged,
    Published,
    Quiet,
    Released,
    Resumed,
    Settled,
    Skipped,
    Suspended,
)
from keyshared.testing.unitbook import UnitBook

__all__ = ["Books"]

_Apply: TypeAlias = Callable[..., None]  # each takes its own kind of happening

_WHOLE_LOG: Final = b""


class Books:
    """Kept happening by happening; the judges read them just before and just after each."""

    def __init__(self, guarantees: Guarantees, remembered_keys: int) -> None:
        self.guarantees = guarantees
        self.position = 0
        self.now: int | None = None
        self.kinds: set[type[Happening]] = set()  # what the history has told of so far
        self.messages: dict[int, Message] = {}
        self.lanes: dict[LaneId, Lane] = {}
        self.changed: dict[LaneId, Lane] = {}  # lanes that this happening may have made ready, or unready
        self.members: dict[str, Member] = {}
        self.open_at: dict[str, dict[int, Message]] = {}
        self.units = UnitBook(guarantees.unit_of)
        self.open = self.spilled = self.loading = self.doubtful = 0
        self.last_published: Seen | None = None
        self.committed: Seen | None = None
        self.changes = Changes()
        self.places = Places(remembered_keys)
        self._lowest = LazyHeap(self._holds_the_cursor)
        self._leases: deque[tuple[int, Message, Seen]] = deque()
        self._apply: dict[type[Happening], _Apply] = {
            Published: self._publish,
            Delivered: self._deliver,
            Acked: self._ack,
            Nacked: self._nack,
            Expired: self._release,
            Released: self._release,
            Settled: self._answer,
            DeadLettered: self._answer,
            Dropped: self._answer,
            Skipped: self._answer,
            Held: self._hold,
            Freed: self._free,
            Connected: self._connect,
            Gone: self._leave,
            Suspended: self._suspend,
            Resumed: self._suspend,
            LimitChanged: self._limit,
            PlacementChanged: self._change_placement,
            Owned: self._own,
            Committed: self._commit,
            Quiet: self._end_block,
            AtRest: self._end_block,
        }

    # --- what happens -----------------------------------------------------------------------------------------------

    def see(self, happening: Happening) -> Seen:
        """Give the next happening its position and time, and end what must have expired by now."""
        at_ms = happening.at_ms
        if at_ms is not None and (self.now is None or at_ms > self.now):
            self.now = at_ms
            self._expire(at_ms)
        seen = Seen(self.position, happening, self.now)
        self.position += 1
        return seen

    def apply(self, seen: Seen) -> None:
        """Write a happening into the books."""
        happening = seen.happening
        self._apply[type(happening)](seen, happening)
        self.kinds.add(type(happening))

    def check(self, happening: Happening) -> None:
        """Raise if a happening is none, or contradicts the history so far."""
        if type(happening) not in self._apply:
            requirement = "be a value of keyshared.testing.history"
            raise HistoryError(self.position, "happening", None, happening, requirement)
        if type(happening) is Published and self.last_published is not None:
            last = _published(self.last_published)
            if happening.offset <= last:
                requirement = f"be greater than {last}, which was published before"
                raise HistoryError(self.position, "happening", "offset", happening.offset, requirement)

    # --- facts ------------------------------------------------------------------------------------------------------

    def lane_id(self, offset: int, key: bytes | None) -> LaneId:
        """Which lane a message is in: its key's, or its own if it has none."""
        if self.guarantees.total_order:
            return _WHOLE_LOG
        return offset if key is None else key

    def place_of(self, lane_id: LaneId) -> Place | None:
        """Where a lane belongs, None for a message without a key."""
        return self.places.get(lane_id) if isinstance(lane_id, bytes) else None

    def oldest_waiting(self, lane: Lane) -> Message | None:
        """The oldest message of a lane that holds the others: not open, and surely outstanding."""
        listed = lane.listed
        while listed:
            message = self.messages.get(listed[0])
            if message is not None and self._holds_its_key(message):
                return message
            heappop(listed)
            if message is not None:
                message.is_listed = False
        return None

    def lowest(self) -> Message | None:
        """The oldest message that is surely outstanding."""
        offset = self._lowest.first()
        return None if offset is None else self.messages[offset]

    def limit_of(self, member: Member) -> int | None:
        """How many deliveries a consumer may have open."""
        return self.guarantees.per_consumer if member.limit is None else member.limit

    def has_room(self, member: Member) -> bool:
        """Whether a consumer may get one more, even if everything that is being loaded is for it."""
        if member.suspended is not None:
            return False
        limit = self.limit_of(member)
        return limit is None or len(self.open_at.get(member.name, ())) + self.loading < limit

    def waiting_in_memory(self) -> int:
        """How many messages the system keeps in memory that are not at a consumer."""
        return len(self.messages) - self.spilled - self.open

    def entries(self) -> int:
        """How much is kept, in entries of all books."""
        lanes = sum(1 + len(lane.listed) + len(lane.holders) for lane in self.lanes.values())
        people = len(self.members) + len(self.open_at) + len(self.changes) + len(self.units)
        return (
            lanes + people + len(self.places) + len(self.messages) + self.open + len(self._lowest) + len(self._leases)
        )

    # --- messages ---------------------------------------------------------------------------------------------------

    def _publish(self, seen: Seen, happening: Published) -> None:
        self.changes.in_block = False
        previous = None if self.last_published is None else _published(self.last_published)
        message = self.messages.get(happening.offset)
        if message is None:
            message = self._add(seen, happening.offset, happening.key, previous)
            self._list(message)
        else:  # it was delivered before its publication was written down
            message.published, message.previous = seen, previous
        self._lowest.push(message.offset, len(self.messages))
        self.last_published = seen

    def _add(self, seen: Seen, offset: int, key: bytes | None, previous: int | None) -> Message:
        lane_id = self.lane_id(offset, key)
        lane = self.lanes.get(lane_id)
        if lane is None:
            lane = self.lanes[lane_id] = Lane(lane_id)
            if isinstance(lane_id, bytes):
                self.places.wake(lane_id)
        lane.size += 1
        message = self.messages[offset] = Message(offset, lane, seen, previous)
        return message

    def _deliver(self, seen: Seen, happening: Delivered) -> None:
        self.changes.in_block = False
        message = self.messages.get(happening.offset)
        if message is None:
            if self.last_published is not None:
                return  # settled, or never published: there is nothing to book it under
            message = self._add(seen, happening.offset, happening.key, None)
        if message.is_open:
            self._close(message)
        if message.doubtful:
            self._doubt(message, doubtful=False)
        self._unhold(message)
        self._open(message, happening, seen)
        if isinstance(message.lane.id, bytes):
            self.places.note(message.lane.id, is_idle=False).last = seen

    def _open(self, message: Message, happening: Delivered, seen: Seen) -> None:
        name = happening.consumer
        message.is_open, message.consumer, message.attempt = True, name, happening.attempt
        message.since = message.delivered = seen
        message.presumed = False
        lane = message.lane
        lane.open += 1
        lane.holders.setdefault(name, {})[message.offset] = message
        self.open += 1
        self.open_at.setdefault(name, {})[message.offset] = message
        self.units.opened(message, name)
        self.changed[lane.id] = lane
        self._note_room(name, seen)
        timeout = self.guarantees.ack_timeout_ms
        if timeout is not None and seen.now is not None:
            self._leases.append((seen.now + timeout, message, seen))
            if len(self._leases) > 2 * self.open + SLACK:
                self._leases = deque(lease for lease in self._leases if _is_running(lease))

    def _close(self, message: Message) -> None:
        """A delivery ends, whatever comes then."""
        lane, name = message.lane, message.consumer
        assert name is not None
        message.is_open = False
        lane.open -= 1
        self.open -= 1
        for books in (lane.holders, self.open_at):
            del books[name][message.offset]
            if not books[name]:
                del books[name]
        self.units.closed(message, name)
        self.changed[lane.id] = lane

    def _end(self, message: Message, seen: Seen) -> None:
        """A delivery ends, and its message is still outstanding."""
        name = message.consumer
        assert name is not None
        self._close(message)
        message.since = seen
        message.came_back = True
        self._list(message)
        self._note_room(name, seen)

    def _settle(self, message: Message, seen: Seen) -> None:
        lane = message.lane
        if message.is_open:
            name = message.consumer
            assert name is not None
            self._close(message)
            self._note_room(name, seen)
        self._unhold(message)
        self.doubtful -= message.doubtful
        del self.messages[message.offset]
        self.changed[lane.id] = lane
        lane.size -= 1
        if not lane.size:
            del self.lanes[lane.id]
            if isinstance(lane.id, bytes):
                self.places.rest(lane.id)

    def _list(self, message: Message) -> None:
        """Let a message that waits hold the newer ones of its key."""
        lane = message.lane
        self.changed[lane.id] = lane
        if message.is_listed or not self._holds_its_key(message):
            return
        message.is_listed = True
        heappush(lane.listed, message.offset)
        if len(lane.listed) > 2 * lane.size + SLACK:
            self._clean(lane)

    def _clean(self, lane: Lane) -> None:
        """What was settled out of order is still in the heap."""
        lane.listed = [offset for offset in lane.listed if offset in self.messages]
        heapify(lane.listed)

    def _ack(self, seen: Seen, happening: Acked) -> None:
        message = self.messages.get(happening.offset)
        if message is None:
            return
        found = standing(message, happening.consumer, happening.attempt)
        if happening.counted or (found is Standing.CURRENT and happening.counted is None):
            self._settle(message, seen)
        elif found in {Standing.STALE, Standing.LATE}:
            message.noted = True
            self._take_ambiguously(message, happening, found, seen)

    def _take_ambiguously(self, message: Message, happening: Acked, found: Standing, seen: Seen) -> None:
        """An ack of a delivery that has ended: systems may take it or not, and nobody said what this one did."""
        unclear = happening.counted is None and not message.doubtful
        if unclear and (found is Standing.LATE or Promise.FENCE not in self.guarantees.promises):
            if message.is_open:
                self._end(message, seen)
            self._doubt(message, doubtful=True)

    def _nack(self, seen: Seen, happening: Nacked) -> None:
        message = self.messages.get(happening.offset)
        if message is not None and happening.counted is not False and _is_current(message, happening):
            self._end(message, seen)

    def _release(self, seen: Seen, happening: Expired | Released) -> None:
        message = self.messages.get(happening.offset)
        if message is not None and _is_current(message, happening):
            self._end(message, seen)

    def _answer(self, seen: Seen, happening: Settled | DeadLettered | Dropped | Skipped) -> None:
        message = self.messages.get(happening.offset)
        if message is not None:
            self._settle(message, seen)

    def _hold(self, seen: Seen, happening: Held) -> None:
        message = self.messages.get(happening.offset)
        if message is not None:
            self._unhold(message)
            message.held = seen
            self.spilled += happening.reason is HoldReason.SPILLED
            self.loading += happening.reason is HoldReason.LOADING
            self.changed[message.lane.id] = message.lane

    def _free(self, seen: Seen, happening: Freed) -> None:  # noqa: ARG002  # as all of them
        message = self.messages.get(happening.offset)
        if message is not None:
            self._unhold(message)
            self.changed[message.lane.id] = message.lane

    def _unhold(self, message: Message) -> None:
        if message.held is not None:
            happening = message.held.happening
            assert isinstance(happening, Held)
            self.spilled -= happening.reason is HoldReason.SPILLED
            self.loading -= happening.reason is HoldReason.LOADING
            message.held = None

    def _doubt(self, message: Message, *, doubtful: bool) -> None:
        message.doubtful = doubtful
        self.doubtful += 1 if doubtful else -1
        self.changed[message.lane.id] = message.lane
        if not doubtful:
            self._lowest.push(message.offset, len(self.messages))

    def _expire(self, now: int) -> None:
        leases = self._leases
        while leases and leases[0][0] <= now:
            lease = leases.popleft()
            _, message, seen = lease
            if _is_running(lease):
                message.presumed = True
                self._end(message, seen)

    # --- consumers and keys -----------------------------------------------------------------------------------------

    def _connect(self, seen: Seen, happening: Connected) -> None:
        name = happening.consumer
        self.members[name] = Member(name, happening.limit, seen)
        self.changes.join(name, seen)
        self._note_room(name, seen)

    def _leave(self, seen: Seen, happening: Gone) -> None:
        name = happening.consumer
        self.changes.leave(name, self.members.pop(name, None), seen)
        if not happening.drains:
            for message in list(self.open_at.get(name, {}).values()):
                self._end(message, seen)

    def _suspend(self, seen: Seen, happening: Suspended | Resumed) -> None:
        member = self.members.get(happening.consumer)
        if member is not None:
            member.suspended = seen if isinstance(happening, Suspended) else None
            self._note_room(member.name, seen)

    def _limit(self, seen: Seen, happening: LimitChanged) -> None:
        member = self.members.get(happening.consumer)
        if member is not None:
            member.limit, member.limited = happening.limit, seen
            self._note_room(member.name, seen)

    def _note_room(self, name: str, seen: Seen) -> None:
        """Remember since when a consumer has room. Loads come and go too often to count here."""
        member = self.members.get(name)
        if member is None:
            return
        limit = self.limit_of(member)
        has_room = member.suspended is None and (limit is None or len(self.open_at.get(name, ())) < limit)
        if not has_room:
            member.room_since = None
        elif member.room_since is None:
            member.room_since = seen

    def _change_placement(self, seen: Seen, happening: PlacementChanged) -> None:  # noqa: ARG002  # as all of them
        self.changes.change_by_hand(seen)

    def _end_block(self, seen: Seen, happening: Quiet | AtRest) -> None:  # noqa: ARG002  # as all of them
        self.changes.in_block = False

    def _own(self, seen: Seen, happening: Owned) -> None:
        self.places.note(happening.key, is_idle=happening.key not in self.lanes).owned = seen
        self.changes.tell()
        lane = self.lanes.get(happening.key)
        if lane is not None:
            self.changed[lane.id] = lane

    def _commit(self, seen: Seen, happening: Committed) -> None:
        self.committed = seen
        if self.doubtful:  # a system that commits beyond an ack has taken it
            done = [
                message
                for message in self.messages.values()
                if message.doubtful and message.offset < happening.resume_offset
            ]
            for message in done:
                self._settle(message, seen)

    def _holds_its_key(self, message: Message) -> bool:
        passable = message.came_back and not self.guarantees.nack_holds_key
        return not (message.is_open or message.doubtful or passable)

    def _holds_the_cursor(self, offset: int) -> bool:
        message = self.messages.get(offset)
        return message is not None and not message.doubtful


def _is_current(message: Message, happening: Nacked | Expired | Released) -> bool:
    return standing(message, happening.consumer, happening.attempt) is Standing.CURRENT


def _is_running(lease: tuple[int, Message, Seen]) -> bool:
    _, message, seen = lease
    return message.is_open and message.delivered is seen


def _published(seen: Seen) -> int:
    happening = seen.happening
    assert isinstance(happening, Published)
    return happening.offset
