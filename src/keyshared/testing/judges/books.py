"""What a history says about now: which messages are outstanding, who has them, who is there, who owns what.

All promises are judged on these books. They believe the history; whether it may be so is the promises' business.
"""

from collections import deque
from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import Final, NoReturn, TypeAlias

from keyshared.testing.errors import HistoryError
from keyshared.testing.guarantees import Guarantees, Promise
from keyshared.testing.history import (
    Acked,
    AtRest,
    Committed,
    Connected,
    DeadLettered,
    Delivered,
    Done,
    Dropped,
    Expired,
    Freed,
    Gone,
    Happening,
    Held,
    HoldReason,
    LimitChanged,
    Measured,
    Nacked,
    Owned,
    PlacementChanged,
    Published,
    Quiet,
    Redriven,
    Released,
    Resumed,
    SessionBegun,
    SessionEnded,
    SessionEnding,
    Settled,
    Skipped,
    Suspended,
)
from keyshared.testing.judges.changes import Changes, Places
from keyshared.testing.judges.early import EarlyBook
from keyshared.testing.judges.entries import (
    SLACK,
    Lane,
    LaneId,
    LazyHeap,
    Member,
    Message,
    Place,
    Seen,
    Standing,
    is_running,
    published_offset,
    standing,
    turn_limit,
)
from keyshared.testing.judges.unit_book import UnitBook

__all__ = ["Books"]

_Apply: TypeAlias = Callable[..., None]  # each takes its own kind of happening

_WHOLE_LOG: Final = b""
_ASKED_FOR: Final = frozenset({HoldReason.NOT_BEFORE, HoldReason.POSTPONED})


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
        self.ended: list[int] = []  # what this happening has ended
        self.members: dict[str, Member] = {}
        self.open_at: dict[str, dict[int, Message]] = {}
        self.unsure_at: dict[str, dict[int, Message]] = {}  # what may be open there, or not
        self.units = UnitBook(guarantees.unit_of)
        self.unsure_units = UnitBook(guarantees.unit_of)
        self.early = EarlyBook()
        self.highest: int | None = None  # of the offsets that were published, delivered or answered
        self.open = self.spilled = self.loading = self.doubtful = 0
        self.last_published: Seen | None = None
        self.redriven_to: int | None = None  # the greatest offset that has come back
        self.log_is_told = False  # what was published, which many promises need
        self.committed: Seen | None = None
        self.changes = Changes()
        self.places = Places(remembered_keys)
        self._fenced = Promise.FENCE in guarantees.promises
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
            Redriven: self._redrive,
            Done: self._done,
            Held: self._hold,
            Freed: self._free,
            Connected: self._connect,
            Gone: self._leave,
            Suspended: self._suspend,
            Resumed: self._suspend,
            LimitChanged: self._limit,
            PlacementChanged: self._change_placement,
            Owned: self._own,
            SessionBegun: _pass,
            SessionEnding: _pass,
            SessionEnded: _pass,
            Committed: self._commit,
            Measured: self._pass,
            Quiet: self._end_block,
            AtRest: self._end_block,
        }

    # --- what happens -----------------------------------------------------------------------------------------------

    def see(self, happening: Happening) -> Seen:
        """Set the position and time of the next happening, and end what must have expired by now."""
        at_ms = happening.at_ms
        position = self.position
        self.position = position + 1
        if at_ms is not None and (self.now is None or at_ms > self.now):
            self.now = at_ms
            self._expire(at_ms)
        return Seen(position, happening, self.now)

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
        last = None if self.last_published is None else published_offset(self.last_published)
        if type(happening) is Published:
            if last is not None and happening.offset <= last:
                self._refuse(happening, f"be greater than {last}, which was published before")
            if self.redriven_to is not None and happening.offset <= self.redriven_to:
                self._refuse(happening, f"be greater than {self.redriven_to}, which was redriven before")
        elif type(happening) is Redriven and last is not None and happening.offset > last:
            self._refuse(happening, f"be at most {last}, up to which everything is published")

    def _refuse(self, happening: Published | Redriven, requirement: str) -> NoReturn:
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
        return limit is None or self._busy(member.name) + self.loading < limit

    def _busy(self, name: str) -> int:
        """How many deliveries a consumer may have open, as far as is known."""
        return len(self.open_at.get(name, ())) + len(self.unsure_at.get(name, ()))

    def units_are_free(self, lane_id: LaneId, owner: str | None) -> bool:
        """Whether nobody else than the owner surely or perhaps has something of a lane's unit open."""
        both = (self.units, self.unsure_units)
        return all(units.open_besides(lane_id, owner) is None for units in both)

    def waiting_in_memory(self) -> list[Message]:
        """The messages that surely wait, and in memory: O(outstanding messages)."""
        return [message for message in self.messages.values() if message.waits and not message.is_spilled]

    def tracked(self) -> list[Message]:
        """The messages that are surely outstanding: O(outstanding messages)."""
        return [message for message in self.messages.values() if not message.doubtful]

    def in_memory(self) -> list[Message]:
        """Those of them that are not spilled: O(outstanding messages)."""
        return [message for message in self.tracked() if not message.is_spilled]

    def is_over(self, offset: int) -> bool:
        """Whether an offset that is not outstanding is done, or was never published; else it is not told of yet."""
        last = self.last_published
        return (last is not None and offset <= published_offset(last)) or offset in self.early

    def entries(self) -> int:
        """How much is kept, in entries of all books."""
        lanes = sum(1 + len(lane.listed) + len(lane.holders) for lane in self.lanes.values())
        lanes += self.doubtful
        people = len(self.members) + len(self.open_at) + len(self.changes) + len(self.units)
        unsure = len(self.unsure_units) + sum(1 + len(each) for each in self.unsure_at.values())
        messages = len(self.messages) + sum(len(each.earlier or ()) for each in self.messages.values())
        others = len(self.places) + len(self.early) + self.open + len(self._lowest) + len(self._leases)
        return lanes + people + unsure + messages + others

    # --- messages ---------------------------------------------------------------------------------------------------

    def _publish(self, seen: Seen, happening: Published) -> None:
        self.changes.in_block = False
        offset = happening.offset
        previous = None if self.last_published is None else published_offset(self.last_published)
        message = self.messages.get(offset)
        if message is not None:  # it was delivered before its publication was written down
            message.published, message.previous, message.odd = seen, previous, None
            message.key = happening.key
        elif not self.early.told or offset not in self.early:  # or even done
            message = self._add(seen, offset, happening.key, previous)
            message.asked = None if happening.until_ms is None else seen
            self._list(message)
        if message is not None:
            message.lane.newest = message
        if self.early.told:
            self.early.published(offset)
        self.last_published = seen
        self.log_is_told = True

    def _redrive(self, seen: Seen, happening: Redriven) -> None:
        self.changes.in_block = False
        offset = happening.offset
        self.redriven_to = offset if self.redriven_to is None else max(self.redriven_to, offset)
        known = self.messages.get(offset)
        if known is not None:
            if not known.doubtful:
                return  # there is one already
            self._settle(known, seen)
        lane = self._lane(self.lane_id(offset, happening.key))
        message = self.messages[offset] = Message(offset, happening.key, lane, seen, None)
        message.redriven, message.attempt = True, happening.attempt
        if not lane.size:
            lane.turn = self.position
        lane.size += 1
        self._list(message)

    def _add(self, seen: Seen, offset: int, key: bytes | None, previous: int | None) -> Message:
        lane = self._lane(self.lane_id(offset, key))
        lane.size += 1
        message = self.messages[offset] = Message(offset, key, lane, seen, previous)
        self._lowest.push(offset, len(self.messages))
        if self.highest is None or offset > self.highest:
            self.highest = offset
        return message

    def _lane(self, lane_id: LaneId) -> Lane:
        lane = self.lanes.get(lane_id)
        if lane is None:
            lane = self.lanes[lane_id] = Lane(lane_id)
            if isinstance(lane_id, bytes):
                self.places.wake(lane_id)
        return lane

    def _deliver(self, seen: Seen, happening: Delivered) -> None:
        self.changes.in_block = False
        message = self.messages.get(happening.offset)
        if message is None:
            if self.is_over(happening.offset):
                return  # there is nothing to book it under
            message = self._add(seen, happening.offset, happening.key, None)
        elif message.delivered is not None:
            self._deliver_again(message, happening, seen)
        self._unhold(message)
        self._open(message, happening, seen)
        if isinstance(message.lane.id, bytes):
            self.places.note(message.lane.id, is_idle=False).last = seen

    def _deliver_again(self, message: Message, happening: Delivered, seen: Seen) -> None:
        message.remember_delivery()
        if not self.log_is_told and happening.key != message.key:
            message.odd = seen
        if message.is_open:
            name = message.consumer
            assert name is not None
            self._close(message)
            self._note_room(name, seen)
        elif message.unsure:
            self._make_sure(message, seen)
        if message.doubtful:
            self._believe(message)
            self._lowest.push(message.offset, len(self.messages))

    def _open(self, message: Message, happening: Delivered, seen: Seen) -> None:
        name = happening.consumer
        message.is_open, message.consumer, message.attempt = True, name, happening.attempt
        message.since = message.delivered = seen
        message.can_wait = message.presumed = False
        message.asked = None
        lane = message.lane
        lane.open += 1
        lane.turn = self.position
        lane.holders.setdefault(name, {})[message.offset] = message
        self.open += 1
        self.open_at.setdefault(name, {})[message.offset] = message
        self.units.opened(message, name)
        self.changed[lane.id] = lane
        self._note_room(name, seen)
        timeout = self.guarantees.ack_timeout_ms
        if timeout is not None and seen.now is not None:
            self._leases.append((seen.now + timeout - self.guarantees.tolerance_ms, message, seen))
            if len(self._leases) > 2 * len(self.messages) + SLACK:
                self._leases = deque(lease for lease in self._leases if is_running(lease))

    def _close(self, message: Message) -> None:
        """A delivery ends, whatever comes then."""
        lane, name = message.lane, message.consumer
        assert name is not None
        message.is_open = False
        if lane.open >= (turn_limit(self.guarantees, lane.id) or lane.open + 1):
            lane.turn = self.position
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
        self._put_back(message, seen)
        self._note_room(name, seen)

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
            self.unsure_at.setdefault(name, {})[message.offset] = message
            self.unsure_units.opened(message, name)
        message.can_wait |= can_wait

    def _make_sure(self, message: Message, seen: Seen) -> None:
        """A delivery that may have ended has ended by now."""
        name = message.consumer
        assert name is not None
        message.unsure = False
        message.lane.unsure -= 1
        held = self.unsure_at[name]
        del held[message.offset]
        if not held:
            del self.unsure_at[name]
        self.unsure_units.closed(message, name)
        self.changed[message.lane.id] = message.lane
        self._note_room(name, seen)

    def _end_of(self, message: Message, found: Standing, seen: Seen) -> None:
        """End the delivery that an answer names, whether it was surely open or not."""
        if found is Standing.CURRENT:
            self._end(message, seen)
        elif found is Standing.UNSURE:
            message.presumed = False
            if message.unsure:
                self._make_sure(message, seen)
                self._put_back(message, seen)

    def _settle(self, message: Message, seen: Seen) -> None:
        lane = message.lane
        if message.is_open:
            name = message.consumer
            assert name is not None
            self._close(message)
            self._note_room(name, seen)
        elif message.unsure:
            self._make_sure(message, seen)
        self._unhold(message)
        if message.doubtful:
            self._believe(message)
        del self.messages[message.offset]
        self.ended.append(message.offset)
        if type(message.published.happening) is Delivered:
            self.early.done(message.offset, message)
        elif message.redriven and not self.is_over(message.offset):
            self.early.done(message.offset, None)
        self.changed[lane.id] = lane
        lane.size -= 1
        if not lane.size:
            del self.lanes[lane.id]
            if isinstance(lane.id, bytes):
                self.places.rest(lane.id)

    def _list(self, message: Message) -> None:
        """Hold back newer messages of a key behind one that waits."""
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
            if happening.counted:
                self._answer_early(happening.offset)
            return
        found = standing(message, happening.consumer, happening.attempt)
        if happening.counted or (found is Standing.CURRENT and happening.counted is None):
            self._settle(message, seen)
        elif found in {Standing.UNSURE, Standing.STALE, Standing.LATE}:
            message.noted = True
            if happening.counted is None:
                self._take_ambiguously(message, found, seen)

    def _take_ambiguously(self, message: Message, found: Standing, seen: Seen) -> None:
        """An ack of a delivery that has ended, or may have: systems may take it or not, nobody said what this one did.

        Behind a fence an ack of an earlier delivery changes nothing for the last one, if that is open.
        """
        if found is Standing.UNSURE:
            message.presumed = False
            if message.unsure:
                self._make_sure(message, seen)
            if message.can_wait:
                self._doubt(message)
            else:
                self._settle(message, seen)
        elif found is Standing.STALE and not self._fenced:
            self._end_perhaps(message, seen, can_wait=False)
            self._doubt(message)
        elif found is Standing.LATE and (message.can_wait or not self._fenced):
            self._doubt(message)

    def _nack(self, seen: Seen, happening: Nacked) -> None:
        if happening.counted is not False:
            self._release(seen, happening)

    def _release(self, seen: Seen, happening: Nacked | Expired | Released) -> None:
        message = self.messages.get(happening.offset)
        if message is not None:
            found = standing(message, happening.consumer, happening.attempt)
            message.failed += found is Standing.CURRENT and type(happening) is not Released
            if found in {Standing.CURRENT, Standing.UNSURE}:
                self._note_wishes(message, happening, seen)
            self._end_of(message, found, seen)

    def _note_wishes(self, message: Message, happening: Nacked | Expired | Released, seen: Seen) -> None:
        """Remember what whoever ended a delivery wants to be kept to."""
        if isinstance(happening, Released) and happening.until_ms is not None:
            message.asked = seen
        elif isinstance(happening, Nacked) and happening.reason is not None:
            message.named = seen

    def _answer(self, seen: Seen, happening: Settled | DeadLettered | Dropped | Skipped) -> None:
        message = self.messages.get(happening.offset)
        if message is None:
            self._answer_early(happening.offset)
        else:
            self._settle(message, seen)

    def _answer_early(self, offset: int) -> None:
        if not self.is_over(offset):
            self.early.done(offset, None)
            self.ended.append(offset)
            self.highest = offset if self.highest is None else max(self.highest, offset)

    def _done(self, seen: Seen, happening: Done) -> None:
        """A system that calls a message done has taken the ack of which nobody knew whether it counted."""
        message = self.messages.get(happening.offset)
        if message is not None and message.doubtful:
            self._settle(message, seen)

    def _hold(self, seen: Seen, happening: Held) -> None:
        message = self.messages.get(happening.offset)
        if message is not None:
            self._unhold(message)
            message.held = seen
            if happening.reason in _ASKED_FOR and happening.until_ms is None:
                message.asked = None  # by whatever clock it was
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
            if message.is_kept_back:
                message.failed = 0
            message.held = None

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

    def _expire(self, now: int) -> None:
        leases = self._leases
        while leases and leases[0][0] <= now:
            lease = leases.popleft()
            _, message, seen = lease
            if is_running(lease):
                self._end_perhaps(message, seen, can_wait=True)
                message.presumed = True

    def _notice_expiries(self, seen: Seen) -> None:
        """A system that had time to act has noticed which deliveries are overdue."""
        presumed = [message for held in self.unsure_at.values() for message in held.values() if message.presumed]
        for message in filter(self._is_overdue, presumed):
            self._make_sure(message, seen)
            self._put_back(message, message.since)

    def _is_overdue(self, message: Message) -> bool:
        """Whether a delivery that may have expired has done so by any clock."""
        timeout, delivered = self.guarantees.ack_timeout_ms, message.delivered
        assert timeout is not None
        assert delivered is not None
        assert delivered.now is not None
        assert self.now is not None
        return delivered.now + timeout + self.guarantees.tolerance_ms <= self.now

    # --- consumers and keys -----------------------------------------------------------------------------------------

    def _connect(self, seen: Seen, happening: Connected) -> None:
        name = happening.consumer
        self.changes.join(name, self.members.get(name), seen)
        self.members[name] = Member(name, happening.limit, seen)
        self._note_room(name, seen)

    def _leave(self, seen: Seen, happening: Gone) -> None:
        name = happening.consumer
        self.changes.leave(name, self.members.pop(name, None), seen)
        if not happening.drains:
            for message in list(self.open_at.get(name, {}).values()):
                self._end_of(message, Standing.CURRENT, seen)
            for message in list(self.unsure_at.get(name, {}).values()):
                self._end_of(message, Standing.UNSURE, seen)

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
        has_room = member.suspended is None and (limit is None or self._busy(name) < limit)
        if not has_room:
            member.room_since = None
        elif member.room_since is None:
            member.room_since = seen

    def _pass(self, seen: Seen, happening: Measured) -> None:
        """It changes nothing."""

    def _change_placement(self, seen: Seen, happening: PlacementChanged) -> None:  # noqa: ARG002  # as all of them
        self.changes.change_by_hand(seen)

    def _end_block(self, seen: Seen, happening: Quiet | AtRest) -> None:  # noqa: ARG002  # as all of them
        self.changes.in_block = False
        if self.unsure_at:
            self._notice_expiries(seen)

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
                if message.doubtful and not message.redriven and message.offset < happening.resume_offset
            ]
            for message in done:
                self._settle(message, seen)

    def _holds_its_key(self, message: Message) -> bool:
        return message.waits and not self.may_be_passed(message)

    def may_be_passed(self, message: Message) -> bool:
        """Whether a message that waits lets newer ones of its key pass."""
        return message.came_back and not self.guarantees.nack_holds_key

    def _holds_the_cursor(self, offset: int) -> bool:
        message = self.messages.get(offset)
        return message is not None and not (message.doubtful or message.redriven)


def _pass(seen: Seen, happening: Happening) -> None:
    """Sessions of keys are the business of one judge."""
