"""The state of a history: which messages are outstanding, who has them, who is connected, who owns which key.

All promises are checked against it. It has one method for each kind of event, and believes the history: whether an
event may be is for the checks.
"""

from collections.abc import Iterator
from heapq import heappop
from typing import Final, NoReturn

from keyshared.testing import history as h
from keyshared.testing.claims import Claims
from keyshared.testing.errors import HistoryError
from keyshared.testing.history import Event, HoldReason
from keyshared.testing.outstanding import WHOLE_LOG, Outstanding
from keyshared.testing.records import Changes, Lane, LaneId, Member, Message, Place, Seen

__all__ = ["State"]

_ASKED_FOR: Final = frozenset({HoldReason.NOT_BEFORE, HoldReason.POSTPONED})
_LATE_ROW: Final = "write its `published` row before all others of it"
_NO_NUMBER: Final = "number its deliveries, and name the number in each answer"
_NOT_SAID: Final = "say whether a late answer counted"


class State(Outstanding):
    """The facts that are known by now."""

    def __init__(self, claims: Claims, remembered_keys: int) -> None:
        super().__init__(claims, remembered_keys)
        self.kinds: set[type[Event]] = set()
        self.last_published: Seen | None = None
        self.redriven_to: int | None = None
        self.committed: Seen | None = None
        self.resume_offset: int | None = None
        self.changes = Changes()
        self.unlogged = 0  # messages of which the history does not tell the publication
        self._repeatable: set[int] = set()  # of these, what may be delivered again

    # --- queries ----------------------------------------------------------------------------------------------------

    @property
    def log_is_told(self) -> bool:
        """Whether the history tells what was published, which many promises need."""
        return self.last_offset is not None

    def lane_of(self, message: Message | None, event: h.Delivered) -> Lane | None:
        """Return where a delivered message belongs; None if nothing else is there."""
        return self.lanes.get(self.lane_id(event.offset, event.key)) if message is None else message.lane

    def place_of(self, lane_id: LaneId) -> Place | None:
        """Return where a lane belongs, None for a message without a key."""
        return self.places.get(lane_id) if isinstance(lane_id, bytes) else None

    def oldest_waiting(self, lane: Lane) -> Message | None:
        """Return the oldest message of a lane that surely waits and holds the others."""
        listed = lane.listed
        while listed:
            message = self.messages.get(listed[0])
            if message is not None:
                if message.consumer is None and message.lapsed is None and self.holds_its_key(message):
                    return message
                message.listed = False
            heappop(listed)
        return None

    def lowest(self) -> Message | None:
        """Return the oldest message that holds the cursor."""
        return self.outstanding.first(_holds_the_cursor)

    def has_room(self, member: Member) -> bool:
        """Whether a consumer surely may get one more, even if all messages that are being loaded are for it."""
        if member.suspended is not None:
            return False
        return member.limit is None or self.busy(member.name) + self.loading < member.limit

    def open_in_unit(self, lane_id: LaneId, consumer: str | None) -> Message | None:
        """Return a message of a lane's unit that is open at another consumer."""
        holders = self.units.get(self._unit(lane_id), {})
        held = (each for name, each in holders.items() if name != consumer)
        return next((message for each in held for message in each.values()), None)

    def unit_is_free(self, lane_id: LaneId, owner: str | None) -> bool:
        """Whether no other consumer than the owner may have a message of a lane's unit open."""
        return self.open_in_unit(lane_id, owner) is None and not self.doubt_in[self._unit(lane_id)]

    def waiting(self) -> Iterator[Message]:
        """Yield the messages that surely wait: O(outstanding messages)."""
        return (each for each in self.messages.values() if each.waits)

    def is_late(self, offset: int) -> bool:
        """Whether the publication of an offset is told only after something that came later: it proves nothing."""
        return self._highest_told is not None and offset <= self._highest_told

    def may_repeat(self, offset: int) -> bool:
        """Whether a message that is done may be delivered again, as the log was rewound."""
        return offset in self._repeatable

    def is_unjudged(self, offset: int) -> bool:
        """Whether a message is not judged, or was not while it was outstanding."""
        return offset in self.unclear.items or offset in self.let_go

    def is_behind(self) -> bool:
        """Whether the system may have to do messages again that were done: its cursor rightly lags then."""
        return bool(self._repeatable) or (self.claims.rewinds and any(each.repeated for each in self.messages.values()))

    # --- the next event ---------------------------------------------------------------------------------------------

    def see(self, event: Event) -> Seen:
        """Set the position and time of the next event, and end the deliveries that have expired by now."""
        at_ms, position = event.at_ms, self.position
        self.position = position + 1
        if at_ms is not None and (self.now is None or at_ms > self.now):
            self.now = at_ms
            if self._leases:
                self._expire(at_ms)
        if self._overdue and type(event) is h.AtRest:  # nothing more happens by itself
            self._notice_expiries()
        return Seen(position, event, self.now)

    def check_published(self, event: h.Published) -> None:
        """Refuse an offset that does not grow."""
        if self.last_offset is not None and event.offset <= self.last_offset:
            self._refuse(event.offset, f"be greater than {self.last_offset}, which was published before")
        if self.redriven_to is not None and event.offset <= self.redriven_to:
            self._refuse(event.offset, f"be greater than {self.redriven_to}, which was redriven before")

    def check_redriven(self, event: h.Redriven) -> None:
        """Refuse an offset that is still to be published."""
        if self.last_offset is not None and event.offset > self.last_offset:
            self._refuse(event.offset, f"be at most {self.last_offset}, up to which everything is published")

    def _refuse(self, offset: int, requirement: str) -> NoReturn:
        raise HistoryError(self.position, "event", "offset", offset, requirement)

    # --- messages ---------------------------------------------------------------------------------------------------

    def published(self, seen: Seen, event: h.Published, message: Message | None) -> None:
        """Take a publication."""
        self.changes.in_block = False
        offset, previous = event.offset, self.last_offset
        self._note_published(seen, offset)
        if message is not None:
            self._make_unclear(message, _LATE_ROW)
        elif self.is_late(offset):
            self._note_unclear(offset, self._lane(self.lane_id(offset, event.key)), None, _LATE_ROW)
        else:
            message = self._add(seen, offset, event.key, previous)
            message.asked = None if event.until_ms is None else seen
            message.lane.newest = message

    def _note_published(self, seen: Seen, offset: int) -> None:
        self.last_published, self.last_offset = seen, offset
        if self.first_offset is None:
            self.first_offset = offset

    def redriven(self, seen: Seen, event: h.Redriven, message: Message | None) -> None:
        """Take a return from the dead-letter store."""
        self.changes.in_block = False
        self.redriven_to = max(event.offset, self.redriven_to or event.offset)
        if message is None:
            message = self._add(seen, event.offset, event.key, None)
            message.redriven, message.attempt = True, event.attempt

    def delivered(self, seen: Seen, event: h.Delivered, message: Message | None) -> None:
        """Take a delivery; of a message that is done it opens nothing."""
        self.changes.in_block = False
        offset = event.offset
        if message is None:
            if self.is_over(offset) and offset not in self._repeatable:
                return
            message = self._unknown(seen, event)
        elif message.consumer is not None:
            self._close(message)
        else:
            self._make_sure(message)
        if message.deliveries and (event.attempt is None or message.attempt is None):
            self._make_unclear(message, _NO_NUMBER, event.consumer)
            return
        self._unhold(message)
        self._open(message, event, seen)
        lane = message.lane
        place = lane.place
        if place is None and isinstance(lane.id, bytes):
            place = lane.place = self.places.note(lane.id, is_idle=False)
        if place is not None:
            place.last, place.consumer = seen, event.consumer

    def _unknown(self, seen: Seen, event: h.Delivered) -> Message:
        """Begin with a message that was done and comes again, or of which nothing was told before."""
        offset = event.offset
        if offset in self._repeatable:
            self._repeatable.discard(offset)
            (key,) = self._done_above.items[offset]
            return self._add(seen, offset, key, None, repeated=True)
        message = self._add(seen, offset, event.key, None)
        message.logged = False
        self.unlogged += 1
        self._note_told(offset)
        return message

    def acked(self, seen: Seen, event: h.Acked, message: Message | None) -> None:
        """Take an ack."""
        if message is None:
            if event.counted:
                self._note_told(event.offset)
            return
        current = message.is_current(event.consumer, event.attempt)
        may_be = current or message.is_of(message.lapsed, event.consumer, event.attempt)
        if event.counted:
            self._settle(message, seen)
        elif event.counted is False:
            message.noted |= not current
            if may_be and (message.revoked or not current):
                self._end(message, seen)
        elif message.deliveries > 1 and event.attempt is None:
            self._make_unclear(message, _NO_NUMBER)
        elif current and not message.revoked:
            self._settle(message, seen)
        else:
            self._make_unclear(message, _NOT_SAID)

    def nacked(self, seen: Seen, event: h.Nacked, message: Message | None) -> None:
        """Take a nack."""
        if message is None:
            return
        current = message.is_current(event.consumer, event.attempt)
        if event.counted is None and message.deliveries > 1 and event.attempt is None:
            self._make_unclear(message, _NO_NUMBER)
        elif current:
            if event.counted is not False:
                message.failed += 1
                message.named = message.named if event.reason is None else seen
            if event.counted is not False or message.revoked:
                self._end(message, seen)
        elif message.is_of(message.lapsed, event.consumer, event.attempt):
            if event.counted:
                message.failed += 1
                message.named = message.named if event.reason is None else seen
            elif event.counted is None:
                self._make_unclear(message, _NOT_SAID)
                return
            self._end(message, seen)
        elif event.counted is None and message.consumer is not None:
            self._make_unclear(message, _NOT_SAID)

    def released(self, seen: Seen, event: h.Expired | h.Released, message: Message | None) -> None:
        """Take the end of a delivery."""
        if message is None:
            return
        if event.attempt is None and message.deliveries > 1:
            self._make_unclear(message, _NO_NUMBER)
        elif message.is_of(message.consumer or message.lapsed, event.consumer, event.attempt):
            message.failed += type(event) is h.Expired
            if isinstance(event, h.Released) and event.until_ms is not None:
                message.asked = seen
            self._end(message, seen)

    def settled(self, seen: Seen, event: Event, message: Message | None) -> None:
        """Take the end of a message."""
        if message is not None:
            self._settle(message, seen)
        else:
            self._note_told(event.offset)  # type: ignore[union-attr]  # all of them have one

    def made_unclear(self, seen: Seen, event: h.Unclear, message: Message | None) -> None:  # noqa: ARG002  # as all
        """Take the word of the recorder that it does not know what became of a message."""
        reason = event.reason or "the recorder cannot know what became of it"
        if message is not None:
            self._make_unclear(message, reason)
        elif not self.is_over(event.offset):
            self._note_told(event.offset)
            lane = self._lane(WHOLE_LOG) if self.claims.total_order else None
            self._note_unclear(event.offset, lane, None, reason)

    def held(self, seen: Seen, event: h.Held, message: Message | None) -> None:
        """Take the begin of a hold."""
        if message is not None:
            self._unhold(message)
            message.held = seen
            self.loading += event.reason is HoldReason.LOADING
            self.changed[message.lane.id] = message.lane
            if event.reason in _ASKED_FOR and event.until_ms is None:
                message.asked = None  # by whatever clock it was

    def freed(self, seen: Seen, event: h.Freed, message: Message | None) -> None:  # noqa: ARG002  # as all
        """Take the end of a hold."""
        if message is not None:
            self._unhold(message)
            self.changed[message.lane.id] = message.lane

    def passed(self, *_: object) -> None:
        """Take an event that changes nothing here: one check keeps state of its own."""

    def trace(self, seen: Seen, event: Event) -> None:
        """Follow a message that is not judged: where it may be open, and whether it is surely done."""
        match event:
            case h.Published():
                self._note_published(seen, event.offset)
            case h.Redriven():
                self.redriven_to = max(event.offset, self.redriven_to or event.offset)
                self._unclear_again.add(event.offset)
                if event.offset not in self.unclear.items:
                    own = self._lane(self.lane_id(event.offset, event.key))
                    self.unclear.add(event.offset, (own, None))
                    self._doubt(own, None, 1)
            case h.Delivered():
                if event.offset not in self.unclear.items:
                    self.unclear.add(event.offset, (None, None))
                lane, before = self.unclear.items[event.offset]
                if lane is None:
                    lane = self._lane(self.lane_id(event.offset, event.key))
                    self._doubt(lane, None, 1)
                self._doubt(None, before, -1)
                self._doubt(None, event.consumer, 1)
                self.unclear.items[event.offset] = lane, event.consumer
            case h.Acked(counted=True) | h.Settled() | h.DeadLettered() | h.Dropped() | h.Skipped():
                if event.offset in self.unclear.items:
                    self._forget_unclear(event.offset, *self.unclear.items.pop(event.offset))
            case _:
                pass

    # --- consumers and keys -----------------------------------------------------------------------------------------

    def connected(self, seen: Seen, event: h.Connected) -> None:
        """Take a join."""
        name = event.consumer
        self.changes.join(name, self.members.get(name), seen)
        self.members[name] = Member(name, self._limit_of(event), seen)
        self._note_room(name, seen)

    def gone(self, seen: Seen, event: h.Gone) -> None:
        """Take a leave."""
        name = event.consumer
        self.changes.leave(name, self.members.pop(name, None), seen)
        if not event.drains:
            for message in list(self.open_at.get(name, {}).values()):
                self._end(message, seen)
            for message in [each for each in self.messages.values() if each.lapsed == name] if self._overdue else ():
                self._end(message, seen)
            if self.doubt_at[name]:
                for offset, (lane, holder) in self.unclear.items.items():
                    if holder == name:
                        self._doubt(None, name, -1)
                        self.unclear.items[offset] = lane, None

    def suspended(self, seen: Seen, event: h.Suspended | h.Resumed) -> None:
        """Take the begin or the end of a pause of a consumer."""
        member = self.members.get(event.consumer)
        if member is not None:
            member.suspended = seen if isinstance(event, h.Suspended) else None
            self._note_room(member.name, seen)

    def limit_changed(self, seen: Seen, event: h.LimitChanged) -> None:
        """Take a new limit of a consumer."""
        member = self.members.get(event.consumer)
        if member is not None:
            member.limit, member.limited = self._limit_of(event), seen
            self._note_room(member.name, seen)

    def placement_changed(self, seen: Seen, event: h.PlacementChanged) -> None:  # noqa: ARG002  # as all
        """Take a change of the placement."""
        self.changes.by_hand = seen
        self.changes.note("", seen)

    def owned(self, seen: Seen, event: h.Owned) -> None:
        """Take a new owner of a key."""
        lane = self.lanes.get(event.key)
        place = self.places.note(event.key, is_idle=lane is None)
        place.owned, place.owner = seen, event.consumer
        self.changes.block_is_told = True
        if lane is not None:
            lane.place = place
            self.changed[lane.id] = lane

    def committed_to(self, seen: Seen, event: h.Committed) -> None:
        """Take a cursor."""
        self.committed, self.resume_offset = seen, event.resume_offset
        for offset, (lane, name) in self.unclear.pop_below(event.resume_offset):
            if offset in self._unclear_again:
                self.unclear.add(offset, (lane, name))
            else:
                self._forget_unclear(offset, lane, name)
        for offset, _ in self._done_above.pop_below(event.resume_offset):
            self._repeatable.discard(offset)

    def rewound(self, seen: Seen, event: h.Rewound) -> None:  # noqa: ARG002  # as all
        """Take a rewind: what was done above the cursor may come again, and open deliveries need no answer."""
        start = event.resume_offset
        if self.claims.rewinds:
            self._repeatable.update(each for each in self._done_above.items if start is None or each >= start)
        for message in self.messages.values():
            message.revoked = message.consumer is not None or message.lapsed is not None
            message.had.clear()
            if not message.revoked and message.deliveries:
                message.attempt = 0

    def quiet(self, seen: Seen, event: Event) -> None:  # noqa: ARG002  # as all
        """Take a moment of quiet: the system has noticed what has expired."""
        self.changes.in_block = False
        self._notice_expiries()

    def _limit_of(self, event: h.Connected | h.LimitChanged) -> int | None:
        return self.claims.per_consumer if event.limit is None else event.limit


def _holds_the_cursor(message: Message) -> bool:
    return not (message.redriven or message.repeated)
