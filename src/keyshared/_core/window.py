"""One window for all features: the lanes, what may go out of them, and what their payloads take of the memory.

What keeps a message waiting is a field of its lane, a quota, or a gate. One method, `Window.look`, decides where a lane
waits or sends its next message; one opens a delivery, one closes it, one settles a message. Nothing is scanned: a lane
that could go on is in exactly one place, and each change that can make it go on touches that lane or serves that place.

A call changes the state with `settle`, `put_back`, `provide` and the like, and then calls `wake`, which looks at the
lanes and consumers that the changes touched. `offer` and `ack`, which every message goes through, do all at once.
Messages to deliver, to load or to archive are in ``granted``; messages that gave up their payload in ``dropped``.
"""

from collections.abc import Iterable
from operator import attrgetter, itemgetter
from typing import Final

from keyshared._core.lanes import Lanes, lowest_of
from keyshared._core.quotas import Quota
from keyshared._core.records import (
    DEAD_LETTERING,
    DELAYED,
    IN_FLIGHT,
    LOADING,
    QUEUED,
    SPILLED,
    Consumer,
    Entry,
    Lane,
    Place,
    holds_slot,
)
from keyshared._core.rotation import Rotation
from keyshared.effects import Ending

__all__ = ["Window"]

_MOST_SPARE: Final = 1_000
_ACKED: Final = Ending.ACKED
_order_of: Final = attrgetter("order")
_number_of: Final = itemgetter(1)


class Window(Lanes):
    """Decides what goes out of the lanes, and counts what opens, closes and is settled."""

    def offer(self, offset: int, key: bytes | None, item: object, deadline: int | None) -> Entry:
        """Track a message that is new and has a slot; it goes out if its turn has come.

        ``deadline`` is the instant before which it must not; the caller starts its timer.
        """
        lane = self.lanes.get(key)  # type: ignore[arg-type]  # None is the key of no lane
        if lane is None:
            lane = self.new_lane(key)
        entry = Entry(offset, item, lane)
        self.cursor.append(entry)
        tail = entry.older = lane.tail  # `Lane.append`, written out: 3 % of a life of hot keys
        if tail is None:
            lane.head = entry
        else:
            tail.newer = entry
        lane.tail = entry
        if lane.fresh is None:
            lane.fresh = entry
        if (
            lane.spilled is not None
            or lane.loaded >= lane.rule.loaded  # `_has_room`, written out for each offer
            or (lane.back and not all(map(holds_slot, lane.back)))
        ):
            entry.deadline = deadline
            self._spill(lane, entry)
        else:
            lane.loaded += 1
            self.loaded += 1
            self.waiting += 1
            if deadline is not None:
                entry.deadline = deadline
                entry.state = DELAYED
                self.held[DELAYED] += 1
        for tracked in self.on_track:
            tracked(entry)
        if lane.fresh is entry and (
            lane.open < lane.rule.turn or lane.holder is not lane.owner or lane.version != self.version or self.gates
        ):
            while self.look(lane):
                pass
            if self.freed:
                self._serve_freed()
        if self.keyless.lanes:
            self._serve_keyless()
        if self.returned:
            self._relieve()
        if 2 * self.waiting > self.capacity:
            self._spill_if_crowded(lane, entry)
        return entry

    def offer_first(self, offset: int, key: bytes, item: object) -> Entry | None:
        """Open the only message of its key at once, if that is possible; else return None, for `offer`.

        `offer` written out for a window that is bare, because without it a life of unique keys takes 1.5 times as long.
        What goes out is not in ``granted``.
        """
        owner = self.consumers.get(self.owners.owner(key))  # type: ignore[arg-type]  # None is no name
        if owner is None or owner.free <= 0 or owner.ready.lanes or self.keyless.lanes or self.quarantined:
            lane = self.lanes[key] = Lane(key, self.rule)  # it is empty yet, and knows its owner
            lane.owner = owner
            lane.version = self.version
            return None
        if self.spare:
            lane = self.spare.pop()
            lane.key = key
        else:
            lane = Lane(key, self.rule)
        self.lanes[key] = lane
        lane.owner = owner
        lane.version = self.version
        entry = lane.head = lane.tail = Entry(offset, item, lane)
        self.cursor.append(entry)
        entry.state = IN_FLIGHT
        entry.attempt = self.first_attempt + 1
        lane.holder = owner
        lane.open = lane.loaded = 1
        self.loaded += 1
        owner.open[offset] = entry
        owner.free -= 1
        if not owner.dirty:
            self.rooms.note(owner)
        return entry

    def replace(self, older: list[Entry], offset: int, item: object, deadline: int | None) -> Entry:
        """Track a message in the place, and the slot, of those of its key that were never delivered; then `wake`."""
        first = older[0]
        lane = first.lane
        was_next = lane.next
        had_slot = first.state != SPILLED
        taker = lane.taker if first.state == LOADING else None
        entry = Entry(offset, item, lane)
        entry.deadline = deadline
        self.cursor.append(entry)
        lane.append(entry)
        lane.spilled = None  # all of them go, and none is to be loaded for that
        for each in older:
            each.deadline = None
            self.settle(each, Ending.SUPERSEDED)
        if had_slot or self._has_room(lane):
            lane.loaded += 1
            self.loaded += 1
            self.waiting += 1
            if deadline is not None:
                if not had_slot:
                    self._spill_if_crowded(lane, entry)
                if entry.state == QUEUED:
                    entry.state = DELAYED
                    self.held[DELAYED] += 1
        else:
            self._spill(lane, entry)
        if lane.next is was_next or (lane.next is entry and lane.place is not None and deadline is None):
            del self.touched[lane]  # it waits for what it waited for
        elif lane.next is entry and taker is not None:
            self._hand_over(lane, entry, taker)
        self.wake()
        if not had_slot and deadline is None:
            self._spill_if_crowded(lane, entry)
        return entry

    def settle(self, entry: Entry, how: Ending) -> None:
        """Settle a message in any state; `wake` hands out what that makes possible."""
        lane, state = entry.lane, entry.state
        has_slot = state == IN_FLIGHT or holds_slot(entry)
        entry.deadline = None
        if state == IN_FLIGHT:
            self._close(entry)
        elif state == LOADING and entry.consumer is not None:
            self._unreserve(lane, entry)
        self.held[state] -= state >= DELAYED
        self._close_cell(entry)
        lane.unlink(entry)
        entry.item = None
        if has_slot:
            lane.loaded -= 1
            self.loaded -= 1
            self.waiting -= 1
            if lane.spilled is not None:
                self._load_next(lane)
        if lane.head is None:
            self._forget(lane)
        else:
            self.touched[lane] = None
        for settled in self.on_settle:
            settled(entry, how)

    def ack(self, entry: Entry) -> Entry | None:
        """Settle an open message; return the next of its lane if that goes out in its place, not in ``granted``.

        `settle` and `wake` written out for the oldest message of a lane: a life of hot keys takes 0.6 of the time.
        """
        lane = entry.lane
        if not self.goes_at_once or lane.head is not entry or self.quarantined or self.touched or self.beside:
            self.settle(entry, _ACKED)
            self.wake()
            return None
        entry.deadline = None
        consumer: Consumer = lane.holder  # type: ignore[assignment]  # an open message has one
        del consumer.open[entry.offset]
        if not consumer.dirty:
            self.rooms.note(consumer)
        self.cursor.close(entry)
        self.loaded -= 1
        entry.item = None
        for closed in self.on_close:
            closed(entry, consumer)
        for settled in self.on_settle:
            settled(entry, _ACKED)
        after = entry.newer
        if after is not None:
            after.older = None
            return self._go_on(lane, after, consumer)
        if lane.key is not None:
            del self.lanes[lane.key]
            if self.keeps_spare and len(self.spare) < _MOST_SPARE:
                self.spare.append(lane)
        consumer.free += 1
        if consumer.ready.lanes or self.keyless.lanes or self.touched or self.starved.lanes or not consumer.limit:
            self._serve_after_ack(consumer)
        return None

    def _go_on(self, lane: Lane, after: Entry, consumer: Consumer) -> Entry | None:
        """Go on with a lane whose oldest message was acked; return what `ack` returns."""
        lane.head = after
        lane.loaded -= 1
        if lane.spilled is not None:
            self._load_next(lane)
        if (
            after is lane.fresh
            and after.state == QUEUED
            and self.is_bare
            and lane.owner is consumer
            and lane.version == self.version
            and consumer.free >= 0
            and lane.rule.batch == 1
            and not (consumer.ready.lanes or self.keyless.lanes or self.starved.lanes)
        ):  # the next one goes where this one was
            lane.fresh = after.newer
            after.state = IN_FLIGHT
            after.attempt = (after.attempt if after.attempt > self.first_attempt else self.first_attempt) + 1
            self.waiting -= 1
            consumer.open[after.offset] = after
            return after
        consumer.free += 1
        lane.open -= 1
        if not lane.open:
            lane.holder = None
        if self.touched:  # what waited for the delivery may be older
            self.touched[lane] = None
        else:
            while self.look(lane):
                pass
        self._serve_after_ack(consumer)
        return None

    def _serve_after_ack(self, consumer: Consumer) -> None:
        if self.touched:
            self.freed[consumer] = None
            self.wake()
        else:
            self._serve(consumer)
            self._serve_freed()
            if self.starved.lanes:
                self._feed()
        if not (consumer.free or consumer.limit):
            self.emptied.append(consumer)

    def put_back(self, entry: Entry, state: int) -> None:
        """End a delivery without settling the message, or move on a message that was held."""
        lane, before, note = entry.lane, entry.state, entry.note
        if before == IN_FLIGHT:
            self._close(entry)
            lane.take_back(entry)
            self.returned.append(entry)
        if state == QUEUED and note is not None and note.spilled:
            note.spilled = False
            state = SPILLED
            if entry is lane.fresh:  # archived in a quarantine, it never went out
                lane.spilled = entry
        self.held[before] -= before >= DELAYED
        self.held[state] += state >= DELAYED
        entry.state = state
        self.touched[lane] = None
        if state == DEAD_LETTERING:
            self.granted.append(entry)

    def provide(self, entry: Entry, item: object) -> bool:
        """Take the payload of a message that was being loaded; it goes out at once if a consumer waits for it.

        Returns:
            Whether anything can come of it in `wake`: not if it waits behind others of its lane, as it did before.
        """
        lane, taker = entry.lane, entry.consumer
        entry.item = item
        if entry.deadline is None:
            entry.state = QUEUED
        else:
            entry.state = DELAYED
            self.held[DELAYED] += 1
        if taker is None and lane.next is not entry:
            return False
        self.touched[lane] = None
        if taker is not None:
            self._unreserve(lane, entry)
            if entry is lane.next:
                self._hand_over(lane, entry, taker)
        return True

    def _hand_over(self, lane: Lane, entry: Entry, taker: Consumer) -> None:
        """Send the next message of a lane to the consumer that it was loaded for, if that may still get it."""
        if taker.free > 0 and entry.state == QUEUED and self._may_get(lane, taker):
            self._leave(lane)
            self._send(lane, entry, taker)

    def wake(self) -> None:
        """Act on all changes since the last call.

        Touched lanes come first, by lowest offset; after `reassign` all lanes that wait, longest waiting first, and
        those that wait in no place, by lowest offset; then consumers that have got capacity, in order of joining; then
        the consumers that quotas with new capacity remember; then what gave up its payload, and lanes that wait for it.
        """
        while self.touched:
            touched, self.touched = self.touched, {}
            self._look_each(sorted(touched, key=lowest_of) if len(touched) > 1 else touched)
        if self.is_stale:
            self.is_stale = False
            if self.loaded - self.waiting < self.tracked:  # else everything is open, and no lane waits
                self._look_at_all()
        self._serve_freed()
        if self.opened:
            opened, self.opened = self.opened, {}
            for quota in sorted(opened, key=self._rank_of):
                self._serve_remembered(quota)
        if self.keyless.lanes:
            self._serve_keyless()
        for woken in self.on_wake:
            woken()
        if self.returned or self.starved.lanes:
            self._relieve()

    def pull(
        self, consumer: Consumer, most: int, only: Entry | None, per_key: int | None, *, past_quotas: bool = False
    ) -> None:
        """Hand out what waits for a consumer, past its limit.

        Args:
            consumer: An active one.
            most: How many messages.
            only: Nothing but this one, out of its turn, and nothing if it waits for more than this consumer.
            per_key: How many messages of one key may go out in one turn this time.
            past_quotas: Whether ``only`` goes out though its quotas are closed: too many holes wait for it.
        """
        extra = most - consumer.free
        consumer.limit += extra
        consumer.free = most
        self.most_of_turn = 1 if only is not None else per_key
        if only is None:
            self._serve(consumer)
        else:
            self.hand_out(only, consumer, past_quotas=past_quotas)
        self.most_of_turn = None
        consumer.limit -= extra
        consumer.free -= extra
        self.rooms.note(consumer)

    def hand_out(self, entry: Entry, consumer: Consumer, *, past_quotas: bool = False) -> None:
        """Hand out one message out of its turn, if it waits for nothing but this consumer, or for a slot."""
        lane = entry.lane
        if lane.next is not entry or lane.place is None:
            return
        mine = lane.place is consumer.ready or (consumer.keyless and lane.place is self.keyless)
        starves = lane.place is self.starved and (lane.key in self.quarantined or self._fits(lane, consumer))
        if not (mine or starves) or not (past_quotas or all(quota.admits(consumer) for quota in lane.rule.quotas)):
            return
        if entry.state == SPILLED and entry.offset == self.cursor.resume_offset:
            # A caller that wants nothing else until this one is settled would wait for ever in a full window. One slot
            # beyond is enough: there is one lowest message, and it gives the slot back.
            self._leave(lane)
            self._load(lane, entry, consumer if mine else None)
        elif mine:
            self._leave(lane)
            if entry.state == SPILLED:
                self.enlist(lane, self._load_in_turn(lane, entry, consumer))
            else:
                self._send(lane, entry, consumer)

    def look(self, lane: Lane) -> bool:
        """Put a lane where its next message waits, or send that; return whether the lane may send another one."""
        entry = lane.back[0] if lane.back else lane.fresh
        if entry is None or entry.state > SPILLED or entry.deadline is not None:
            place = None
        elif lane.key is None:
            place = self._look_keyless(lane, entry)
        elif lane.key in self.quarantined:
            place = None if lane.open else self._archive_next(lane, entry)
        else:
            owner = lane.owner if lane.version == self.version else self._ask_owner(lane)
            if owner is None:
                place = self.ownerless
            elif lane.open and lane.holder is not owner:
                place = self.draining
            elif lane.open >= lane.rule.turn:
                place = None
            else:
                place = self._gate_of(lane, owner) if self.gates else None
                if place is None:
                    place = owner.ready
                    if owner.free > 0:
                        if self.goes_at_once and not (place.lanes or (self.keyless.lanes and owner.keyless)):
                            if entry.state == QUEUED:
                                if lane.place is not None:
                                    self._leave(lane)
                                return self._open_turn(lane, entry, owner)
                            place = self._load_in_turn(lane, entry, owner)
                        else:
                            self.freed[owner] = None
        if place is not lane.place:
            self.enlist(lane, place)
        return False

    def _look_keyless(self, lane: Lane, entry: Entry) -> Place | None:
        """Send a message without a key to the consumer with most capacity; return where it waits if it has to."""
        taker = self.rooms.roomiest()
        if taker is None or taker.ready.has_turns or self.keyless.lanes:
            return self.keyless
        if self.total is not None and not self.total.admits(taker):
            self.total.waiting.setdefault(taker)
            return self.keyless
        if entry.state != QUEUED:
            return self._load_in_turn(lane, entry, taker)
        self._open(lane, entry, taker)
        return None

    def _archive_next(self, lane: Lane, entry: Entry) -> Place | None:
        """Archive the next message of a quarantined key; return where its lane waits if it has to be loaded first."""
        if entry.state == SPILLED:
            return self._load_in_turn(lane, entry, None)
        entry.state = DEAD_LETTERING
        self.held[DEAD_LETTERING] += 1
        self.granted.append(entry)
        self.returned.append(entry)
        return None

    def _look_each(self, lanes: Iterable[Lane]) -> None:
        """Look at several lanes; none has a second turn before every other has had its first."""
        turns = [lane for lane in lanes if self.look(lane)]
        while turns:
            turns = [lane for lane in turns if self.look(lane)]

    def _look_at_all(self) -> None:
        """Look at every lane that waits in a place, and at those that wait for one of their own to end."""
        listed = [pair for place in self.places() for pair in place.items()]
        waiting = [lane for lane, _ in sorted(listed, key=_number_of)]
        opened = (entry.lane for each in self.consumers.values() for entry in each.open.values())
        at_limit = {lane: None for lane in opened if lane.place is None and (lane.fresh is not None or lane.back)}
        for lane in waiting:  # all of them first: a lane must not wait behind one that is about to go elsewhere
            self._leave(lane)
        self._look_each(waiting)
        self._look_each(sorted(at_limit, key=lowest_of))

    def _serve_freed(self) -> None:
        while self.freed:
            freed, self.freed = self.freed, {}
            for consumer in sorted(freed, key=_order_of) if len(freed) > 1 else freed:
                if consumer.ready.lanes or self.keyless.lanes:
                    self._serve(consumer)

    def _serve_remembered(self, quota: "Quota[Consumer]") -> None:
        """Serve the consumers that a quota remembers, one turn each and round again, while it has capacity."""
        while quota.waiting and quota.has_room:
            consumer, _ = quota.waiting.popitem(last=False)
            quota.granted = consumer
            if isinstance(consumer.ready, Rotation) and quota is not self.total:
                consumer.ready.wake(quota)
            self._serve(consumer)
            quota.granted = None

    def _serve_keyless(self) -> None:
        """Serve messages without a key: each goes to the consumer that has most capacity then."""
        while self.keyless.lanes and (consumer := self.rooms.roomiest()) is not None:
            if self.total is not None and not self.total.admits(consumer):
                self.total.waiting.setdefault(consumer)
                return
            self._serve(consumer)

    def _serve(self, consumer: Consumer) -> None:
        """Hand out what waits for a consumer, a turn for each lane, while it and the quotas have capacity."""
        ready, keyless, total = consumer.ready, self.keyless, self.total
        while consumer.free > 0:
            lane = ready.head() if ready.lanes else None
            if keyless.lanes and consumer.keyless:
                alone = keyless.head()
                if lane is None or (alone is not None and keyless.lanes[alone] < ready.lanes[lane]):
                    lane = alone
            if lane is None:
                return
            if total is not None and not total.admits(consumer):
                total.waiting.setdefault(consumer)
                return
            turn: Place = lane.place  # type: ignore[assignment]  # the one whose head it is
            entry: Entry = lane.next  # type: ignore[assignment]  # a lane in a place has one
            turn.took(lane)
            lane.place = None
            if entry.state == SPILLED:
                place = self._load_in_turn(lane, entry, consumer)
                if place is not None:
                    self.enlist(lane, place)
            else:
                self._send(lane, entry, consumer)
            turn.end_turn()
            if total is not None:
                total.granted = None
            if lane.rule.quotas:
                lane.rule.quotas[0].granted = None

    def _send(self, lane: Lane, entry: Entry, consumer: Consumer) -> None:
        """Open what a turn is: one message, after which the lane may have another turn; or a batch."""
        if self._open_turn(lane, entry, consumer):
            while self.look(lane):
                pass

    def _open_turn(self, lane: Lane, entry: Entry, consumer: Consumer) -> bool:
        """Open a message, or a batch; return whether the lane may have another turn."""
        self._open(lane, entry, consumer)
        rule = lane.rule
        if rule.batch == 1 or lane.key is None:
            return lane.open < rule.turn and lane.key is not None
        most = min(rule.batch, rule.limit, self.most_of_turn or rule.batch)
        while lane.open < most and consumer.free > 0:
            following = lane.next
            if following is None or following.state != QUEUED:
                break
            if not all(quota.has_room for quota in rule.quotas):
                break
            self._open(lane, following, consumer)
        return False

    def _open(self, lane: Lane, entry: Entry, consumer: Consumer) -> None:
        if lane.back:
            lane.back.pop(0)
        else:
            lane.fresh = entry.newer
        entry.state = IN_FLIGHT
        entry.attempt = (entry.attempt if entry.attempt > self.first_attempt else self.first_attempt) + 1
        lane.holder = consumer
        lane.open += 1
        self.waiting -= 1
        consumer.open[entry.offset] = entry
        consumer.free -= 1
        if not consumer.dirty:
            self.rooms.note(consumer)
        for quota in lane.rule.quotas:
            quota.opened()
        for opened in self.on_open:
            opened(entry, consumer)
        self.granted.append(entry)

    def _close(self, entry: Entry) -> None:
        lane = entry.lane
        consumer: Consumer = lane.holder  # type: ignore[assignment]  # an open message has one
        del consumer.open[entry.offset]
        self._free(consumer)
        for closed in self.on_close:
            closed(entry, consumer)
        lane.open -= 1
        if not lane.open:
            lane.holder = None
        self.waiting += 1
        for quota in lane.rule.quotas:
            quota.open -= 1
            self.note_room(quota)

    def _rank_of(self, quota: "Quota[Consumer]") -> tuple[bool, str]:
        return quota is self.total, quota.name

    def _relieve(self) -> None:
        """Spill what came back and still waits, and give free slots to lanes that wait for one."""
        if self.returned:
            self._spill_returned()
        if self.starved.lanes:
            self._feed()

    def _feed(self) -> None:
        """Load messages of lanes that wait for a slot, while there is one."""
        while self.starved.lanes and self.loaded < self.capacity:
            lane: Lane = self.starved.head()  # type: ignore[assignment]  # there is one
            entry: Entry = lane.next  # type: ignore[assignment]  # a lane in a place has one
            self._leave(lane)
            if lane.key in self.quarantined:
                self._load(lane, entry, None)
                continue
            owner = self.rooms.roomiest() if lane.key is None else self.owner_of(lane)
            if owner is not None and owner.free > 0 and self._may_get(lane, owner):
                self._load(lane, entry, owner)
            else:
                self.look(lane)
        self._serve_freed()
