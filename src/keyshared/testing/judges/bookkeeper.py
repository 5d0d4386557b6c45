"""What each kind of happening changes in the books of a history."""

from collections.abc import Callable, Mapping
from typing import Final, NoReturn, TypeAlias

from keyshared.testing.errors import HistoryError
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
from keyshared.testing.judges.entries import (
    PERHAPS_OPEN,
    Member,
    Message,
    Seen,
    Standing,
    may_be_done_by,
    may_name_earlier,
    standing,
)
from keyshared.testing.judges.lives import Lives

__all__ = ["Bookkeeper"]

Write: TypeAlias = Callable[..., None]
"""Takes what was seen, its happening and, if that is of a message, what is known of that."""

_ASKED_FOR: Final = frozenset({HoldReason.NOT_BEFORE, HoldReason.POSTPONED})
_OLDER_DELIVERIES: Final = (Standing.UNSURE, Standing.STALE, Standing.LATE)


class Bookkeeper(Lives):
    """Takes happenings, one after the other."""

    def of_messages(self) -> Mapping[type[Happening], Write]:
        """Return who writes down happenings of a message."""
        return {
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
        }

    def of_others(self) -> Mapping[type[Happening], Write]:
        """Return who writes down all other happenings."""
        return {
            Connected: self._connect,
            Gone: self._leave,
            Suspended: self._suspend,
            Resumed: self._suspend,
            LimitChanged: self._limit,
            PlacementChanged: self._change_placement,
            Owned: self._own,
            SessionBegun: self._pass,
            SessionEnding: self._pass,
            SessionEnded: self._pass,
            Committed: self._commit,
            Measured: self._pass,
            Quiet: self._end_block,
            AtRest: self._end_block,
        }

    def checks(self) -> Mapping[type[Happening], Callable[..., None]]:
        """Return who raises if a happening contradicts the history so far."""
        return {Published: self._check_published, Redriven: self._check_redriven}

    # --- the next one -----------------------------------------------------------------------------------------------

    def see(self, happening: Happening) -> Seen:
        """Set the position and time of the next happening, and end what must have expired by now.

        At rest a system has noticed that already: nothing more happens by itself.
        """
        at_ms = happening.at_ms
        position = self.position
        self.position = position + 1
        if at_ms is not None and (self.now is None or at_ms > self.now):
            self.now = at_ms
            if self._leases:
                self._expire(at_ms)
        seen = Seen(position, happening, self.now)
        if self._overdue and type(happening) is AtRest:
            self._notice_expiries(seen)
        return seen

    def _check_published(self, happening: Published) -> None:
        offset, last, redriven = happening.offset, self.last_offset, self.redriven_to
        if last is not None and offset <= last:
            self._refuse(offset, f"be greater than {last}, which was published before")
        if redriven is not None and offset <= redriven:
            self._refuse(offset, f"be greater than {redriven}, which was redriven before")

    def _check_redriven(self, happening: Redriven) -> None:
        offset, last = happening.offset, self.last_offset
        if last is not None and offset > last:
            self._refuse(offset, f"be at most {last}, up to which everything is published")

    def _refuse(self, offset: int, requirement: str) -> NoReturn:
        raise HistoryError(self.position, "happening", "offset", offset, requirement)

    # --- messages ---------------------------------------------------------------------------------------------------

    def _publish(self, seen: Seen, happening: Published, message: Message | None) -> None:
        self.changes.in_block = False
        offset, previous, early = happening.offset, self.last_offset, self.early
        told = self.told_early() if previous is None else {}
        if message is not None:  # it was delivered before its publication was written down
            message.published, message.previous, message.odd = seen, previous, None
            message.key = happening.key
        elif not early.told or offset not in early:  # or even done
            message = self._add(seen, offset, happening.key, previous)
            if happening.until_ms is not None:
                message.asked = seen
            self._list(message)
        if message is not None:
            message.lane.newest = message
        if early.told or previous is None:
            early.published(offset, is_first=previous is None)
        if previous is None:
            self.first_offset = offset
            self.has_older |= any(each < offset for each in told)
        self.last_published, self.last_offset = seen, offset
        self.log_is_told = True

    def _redrive(self, seen: Seen, happening: Redriven, known: Message | None) -> None:
        self.changes.in_block = False
        offset = happening.offset
        self.redriven_to = offset if self.redriven_to is None else max(self.redriven_to, offset)
        if known is not None:
            if not known.doubtful:
                return  # there is one already
            self._settle(known, seen)
        lane = self._lane(self.lane_id(offset, happening.key))
        message = self.messages[offset] = Message(offset, happening.key, lane, seen, None)
        message.redriven, message.attempt = True, happening.attempt
        if not lane.size:
            lane.turn = self.position
        if lane.size == lane.open:
            lane.waits_since = self.position
        lane.size += 1
        self._list(message)

    def _deliver(self, seen: Seen, happening: Delivered, message: Message | None) -> None:
        self.changes.in_block = False
        if message is None:
            if self.is_over(happening.offset):
                return  # there is nothing to book it under
            self.has_older |= self.is_older(happening.offset)
            message = self._add(seen, happening.offset, happening.key, None)
        elif message.delivered is not None:
            self._deliver_again(message, happening, seen)
        if message.held is not None:
            self._unhold(message)
        lane = message.lane
        if lane.unclear:
            self._settle_what_was_done(lane, seen, happening)
        self._open(message, happening, seen)
        place = lane.place
        if place is None and isinstance(lane.id, bytes):
            place = lane.place = self.places.note(lane.id, is_idle=False)
        if place is not None:
            place.last, place.consumer = seen, happening.consumer

    def _deliver_again(self, message: Message, happening: Delivered, seen: Seen) -> None:
        message.remember_delivery()
        if message.is_open or message.unsure or message.presumed:
            message.leave_unsaid()
        if not self.log_is_told and happening.key != message.key:
            message.odd = seen
        if message.is_open:
            self._close(message)
            self._note_more_room(message.consumer, seen)
        elif message.unsure:
            self._make_sure(message, seen)
        if message.doubtful:
            self._believe(message)
            self.oldest_first.add(message.offset)

    def _end_of(self, message: Message, found: Standing, seen: Seen) -> None:
        """End the delivery that an answer names, whether it was surely open or not."""
        if found is Standing.CURRENT:
            self._end(message, seen)
        elif found is Standing.UNSURE:
            message.presumed = False
            if message.unsure:
                self._make_sure(message, seen)
                self._put_back(message, seen)

    def _ack(self, seen: Seen, happening: Acked, message: Message | None) -> None:
        if message is None:
            if happening.counted:
                self._answer_early(happening.offset, seen)
            return
        found = standing(message, happening.consumer, happening.attempt)
        if happening.counted:
            self._settle(message, seen)
        elif found in PERHAPS_OPEN and may_name_earlier(message, happening.consumer, happening.attempt):
            message.noted = True
            if happening.counted is None:
                self.ambiguous += 1
                self._end_or_not(message, seen)
        elif found is Standing.CURRENT and happening.counted is None:
            self._settle(message, seen)
        elif found in _OLDER_DELIVERIES:
            message.noted = True
            if happening.counted is None:
                self._take_ambiguously(message, found, seen)

    def _take_ambiguously(self, message: Message, found: Standing, seen: Seen) -> None:
        """An ack of a delivery that has ended, or may have: systems may take it, and nobody said what this one did."""
        if not may_be_done_by(message, found, self.guarantees):
            return
        if found is Standing.UNSURE and message.unsure:
            self._make_sure(message, seen)
        if found is Standing.UNSURE and not message.can_wait:
            self._settle(message, seen)
            return
        if found is Standing.STALE:
            self._end_or_not(message, seen)
        else:
            self._doubt(message)

    def _nack(self, seen: Seen, happening: Nacked, message: Message | None) -> None:
        if happening.counted is False:
            return
        if happening.counted:
            self._release(seen, happening, message)
        elif message is not None and standing(message, happening.consumer, happening.attempt) in PERHAPS_OPEN:
            self._end_perhaps(message, seen, can_wait=True)
            if message.unsure:
                lane = message.lane
                lane.nacked = {} if lane.nacked is None else lane.nacked
                lane.nacked[message.offset] = message
            message.name_perhaps(happening.reason)

    def _release(self, seen: Seen, happening: Nacked | Expired | Released, message: Message | None) -> None:
        if message is not None:
            found = standing(message, happening.consumer, happening.attempt)
            is_open = found in PERHAPS_OPEN
            if self._is_told_late(message, happening, is_open=is_open) and is_open:
                self._end_perhaps(message, seen, can_wait=True)
                return
            if is_open:
                message.failed += type(happening) is not Released
                self._note_wishes(message, happening, seen)
            self._end_of(message, found, seen)

    def _is_told_late(self, message: Message, happening: Nacked | Expired | Released, *, is_open: bool) -> bool:
        """Whether this may say how an earlier delivery ended, of which no row of its own has told that."""
        has_numbers = happening.attempt is not None and message.attempt is not None
        if isinstance(happening, Nacked) or (is_open and has_numbers):
            return False
        said = message.unsaid_of(happening.consumer, happening.attempt)
        if said is None:
            return message.may_be_older_than(happening.attempt)
        message.unsaid = [each for each in message.unsaid or () if each is not said]
        return True

    def _note_wishes(self, message: Message, happening: Nacked | Expired | Released, seen: Seen) -> None:
        """Remember what whoever ended a delivery wants to be kept to."""
        if isinstance(happening, Released) and happening.until_ms is not None:
            message.asked = seen
        elif isinstance(happening, Nacked) and happening.reason is not None:
            message.named, message.perhaps_named = seen, ()

    def _answer(
        self, seen: Seen, happening: Settled | DeadLettered | Dropped | Skipped, message: Message | None
    ) -> None:
        if message is None:
            self._answer_early(happening.offset, seen)
        else:
            self._settle(message, seen)

    def _answer_early(self, offset: int, seen: Seen) -> None:
        if not self.is_over(offset):
            self.has_older |= self.is_older(offset)
            self.early.done(offset, None, seen, is_older=self.is_older(offset))
            self.ended.append(offset)

    def _done(self, seen: Seen, happening: Done, message: Message | None) -> None:  # noqa: ARG002  # as all of them
        """A system that calls a message done has taken the ack of which nobody knew whether it counted."""
        if message is not None and message.doubtful:
            self._settle(message, seen)

    def _hold(self, seen: Seen, happening: Held, message: Message | None) -> None:
        if message is not None:
            self._hold_back(message, happening, seen)
            if happening.reason in _ASKED_FOR and happening.until_ms is None:
                message.asked = None  # by whatever clock it was

    def _free(self, seen: Seen, happening: Freed, message: Message | None) -> None:  # noqa: ARG002  # as all of them
        if message is not None:
            self._unhold(message)
            self.changed[message.lane.id] = message.lane

    # --- consumers and keys -----------------------------------------------------------------------------------------

    def _connect(self, seen: Seen, happening: Connected) -> None:
        name = happening.consumer
        self.changes.join(name, self.members.get(name), seen)
        self.members[name] = Member(name, self._limit_of(happening), seen)
        self._note_room(name, seen)

    def _leave(self, seen: Seen, happening: Gone) -> None:
        name = happening.consumer
        self.changes.leave(name, self.members.pop(name, None), seen)
        if not happening.drains:
            for message in list(self.open_at.get(name, {}).values()):
                message.leave_unsaid()
                self._end_of(message, Standing.CURRENT, seen)
            for message in list(self.unsure_at.get(name, {}).values()):
                message.leave_unsaid()
                self._end_of(message, Standing.UNSURE, seen)

    def _suspend(self, seen: Seen, happening: Suspended | Resumed) -> None:
        member = self.members.get(happening.consumer)
        if member is not None:
            member.suspended = seen if isinstance(happening, Suspended) else None
            self._note_room(member.name, seen)

    def _limit(self, seen: Seen, happening: LimitChanged) -> None:
        member = self.members.get(happening.consumer)
        if member is not None:
            member.limit, member.limited = self._limit_of(happening), seen
            self._note_room(member.name, seen)

    def _limit_of(self, happening: Connected | LimitChanged) -> int | None:
        return self.guarantees.per_consumer if happening.limit is None else happening.limit

    def _pass(self, seen: Seen, happening: Measured | SessionBegun | SessionEnding | SessionEnded) -> None:
        """It changes nothing: one judge keeps books of its own."""

    def _change_placement(self, seen: Seen, happening: PlacementChanged) -> None:  # noqa: ARG002  # as all of them
        self.changes.change_by_hand(seen)

    def _end_block(self, seen: Seen, happening: Quiet | AtRest) -> None:  # noqa: ARG002  # as all of them
        self.changes.in_block = False
        if self._overdue:
            self._notice_expiries(seen)

    def _own(self, seen: Seen, happening: Owned) -> None:
        lane = self.lanes.get(happening.key)
        place = self.places.note(happening.key, is_idle=lane is None)
        place.owned, place.owner = seen, happening.consumer
        self.changes.tell()
        if lane is not None:
            lane.place = place
            self.changed[lane.id] = lane

    def _commit(self, seen: Seen, happening: Committed) -> None:
        self.committed, self.resume_offset = seen, happening.resume_offset
        if self.doubtful:  # a system that commits beyond an ack has taken it
            done = [
                message
                for message in self.messages.values()
                if message.doubtful and not message.redriven and message.offset < happening.resume_offset
            ]
            for message in done:
                self._settle(message, seen)
