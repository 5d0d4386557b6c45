"""What is outstanding: lanes, the places where they wait, consumers, and which payloads are in memory.

A lane that could go on is in exactly one place, and each change that can make it go on touches that lane or serves that
place; so nothing is scanned. `Window` decides what goes out.
"""

from collections.abc import Callable, Iterable, Iterator
from heapq import merge
from operator import attrgetter
from typing import Final, Protocol, TypeAlias

from keyshared._core.feature import Feature
from keyshared._core.most_room import MostRoom
from keyshared._core.quotas import Quota
from keyshared._core.records import (
    DEAD_LETTERING,
    DELAYED,
    IN_FLIGHT,
    LOADING,
    QUEUED,
    SETTLED,
    SPILLED,
    Consumer,
    Entry,
    Lane,
    Note,
    Place,
    Rule,
    holds_slot,
    next_spilled,
)
from keyshared.cursor import Cursor
from keyshared.effects import BlockReason

__all__ = ["Gate", "Lanes", "Owners", "lowest_of", "overrides"]

Gate: TypeAlias = tuple[Callable[[Lane, Consumer], bool], Place]
"""What refuses a lane, and where the lane waits then."""

_offset_of: Final = attrgetter("offset")


class Owners(Protocol):
    """Knows which consumer a key belongs to; looked up again for each question, because it changes."""

    @property
    def owner(self) -> Callable[[bytes], str | None]:
        """Function of a key: the name of its owner, or None."""


class Lanes:
    """Outstanding messages in lanes.

    Args:
        owners: Asked once per lane and version; call `reassign` when its answers may have changed.
        cursor: What is settled; only the window moves it.
        capacity: Messages whose payload is in memory.
        max_tracked: Outstanding messages, spilled ones included.
        rule: What holds for keys without a rule of their own.
        rule_of: Function of a key: its rule.
        total: The quota of the subscription.
        spills: Whether the payload of what has to wait may be dropped.

    Attributes:
        lanes: The lanes of keys that have an outstanding message.
        consumers: Consumers by name, in the order of joining.
        quarantined: Keys whose messages go to the dead-letter store instead of a consumer.
        beside: Messages that came back from the dead-letter store, which the cursor does not know, by offset.
        loaded: Messages that hold a slot of ``capacity``.
        waiting: Those of them that are not in flight.
        held: How many messages are in each state, of the states that only `put_back` and `settle` end.
        first_attempt: New deliveries have attempt numbers above this.
        keyless: Messages without a key for which no consumer has capacity.
        ownerless: Lanes whose key belongs to no consumer.
        draining: Lanes that wait for the end of deliveries at other consumers than their owner.
        starved: Lanes whose turn has come, but whose message cannot be loaded because every slot is taken.
        orphaned: Lanes that were ready for a consumer that has left in this call.
        granted: Messages to deliver, to load or to archive, as their states say.
        dropped: Messages whose payload was dropped.
        emptied: Consumers of limit 0 whose last delivery has ended.
    """

    def __init__(
        self,
        owners: Owners,
        cursor: Cursor,
        *,
        capacity: int,
        max_tracked: int,
        rule: Rule,
        rule_of: Callable[[bytes], Rule] | None = None,
        total: "Quota[Consumer] | None" = None,
        spills: bool = True,
    ) -> None:
        self.owners = owners
        self.cursor = cursor
        self.capacity = capacity
        self.max_tracked = max_tracked
        self.rule = rule
        self.rule_of = rule_of
        self.prepared: dict[bytes, Rule] = {}  # of keys that are about to be offered: rules are asked once
        self.total = total
        self.spills = spills
        self.lanes: dict[bytes, Lane] = {}
        self.consumers: dict[str, Consumer] = {}
        self.quarantined: dict[bytes, None] = {}
        self.beside: dict[int, Entry] = {}
        self.loaded = 0
        self.waiting = 0
        self.held = [0] * 8
        self.first_attempt = 0
        self.version = 0
        self.number = 0  # of the last lane that began to wait
        self.keyless = Place(BlockReason.CONSUMER_FULL)
        self.ownerless = Place(BlockReason.NO_CONSUMER)
        self.draining = Place(BlockReason.DRAINING)
        self.starved = Place(BlockReason.WINDOW_FULL)
        self.orphaned = Place(BlockReason.NO_CONSUMER)
        self.granted: list[Entry] = []
        self.dropped: list[Entry] = []
        self.emptied: list[Consumer] = []
        self.touched: dict[Lane, None] = {}
        self.freed: dict[Consumer, None] = {}
        self.opened: dict[Quota[Consumer], None] = {}
        self.returned: list[Entry] = []  # deliveries that ended in this call: spilled if they still wait at its end
        self.rooms = MostRoom()
        self.is_stale = False  # owners may have changed
        self.most_of_turn: int | None = None  # how long batches may be for once
        self.spare: list[Lane] = []  # of keys that are gone: a new one takes 6 % of a life of unique keys
        self.keeps_spare = False  # only where nothing else remembers lanes
        self.watch(())

    def watch(self, features: Iterable[Feature], *, has_groups: bool = False) -> None:
        """Take the methods that features override, before anything is offered."""
        chosen = list(features)
        self.goes_at_once = self.total is None and not has_groups  # a message with none before it needs no turn
        self.gates: tuple[Gate, ...] = tuple((each.refuses, each.gate) for each in chosen if each.gate is not None)
        self.on_open = tuple(each.opened for each in chosen if overrides(each, "opened"))
        self.on_close = tuple(each.closed for each in chosen if overrides(each, "closed"))
        self.on_track = tuple(each.tracked for each in chosen if overrides(each, "tracked"))
        self.on_settle = tuple(each.settled for each in chosen if overrides(each, "settled"))
        self.on_move = tuple(each.moved for each in chosen if overrides(each, "moved"))
        self.on_wake = tuple(each.woken for each in chosen if overrides(each, "woken"))
        counted = self.gates or self.on_open or self.on_close or self.on_track
        self.is_bare = self.goes_at_once and not counted  # nothing but the window counts what is open

    def find(self, offset: int) -> Entry | None:
        """Return an outstanding message. O(log n)."""
        entry = self.beside.get(offset)
        if entry is None:
            cell = self.cursor.find(offset)
            return cell if isinstance(cell, Entry) else None
        return entry

    def outstanding(self) -> Iterator[Entry]:
        """Return all outstanding messages in offset order; any of them may be settled meanwhile. O(n)."""
        log: Iterator[Entry] = iter(self.cursor)  # type: ignore[arg-type]  # its cells are the window's entries
        if not self.beside:
            return log
        return merge(sorted(self.beside.values(), key=_offset_of), log, key=_offset_of)

    @property
    def tracked(self) -> int:
        """How many messages are outstanding."""
        return self.cursor.outstanding + len(self.beside)

    @property
    def free_slots(self) -> int:
        """How many messages memory and the limit of tracked offsets let in."""
        return max(0, min(self.capacity - self.loaded, self.max_tracked - self.cursor.outstanding))

    def places(self) -> list[Place]:
        """Return every place that a lane can wait in. O(consumers)."""
        places = [self.keyless, self.ownerless, self.draining, self.starved, self.orphaned]
        places += [place for _, place in self.gates if place is not self.draining]
        return places + [consumer.ready for consumer in self.consumers.values()]

    def owner_of(self, lane: Lane) -> Consumer | None:
        """Return the owner of a lane that has a key."""
        return lane.owner if lane.version == self.version else self._ask_owner(lane)

    def new_lane(self, key: bytes | None) -> Lane:
        """Return a lane that nothing is in yet. What a rule of the user's raises, this raises, and changes nothing."""
        if key is None:
            return Lane(None, self.rule)
        rule = self.prepared.pop(key, None) if self.prepared else None
        if rule is None:
            rule = self.rule if self.rule_of is None else self.rule_of(key)
        lane = self.lanes[key] = Lane(key, rule)
        if rule is not self.rule:
            for quota in rule.quotas:
                quota.lanes += 1
        return lane

    def _forget(self, lane: Lane) -> None:
        """Forget a lane that nothing is in any more."""
        self._leave(lane)
        self.touched.pop(lane, None)
        if lane.key is not None:
            del self.lanes[lane.key]
            if lane.rule is not self.rule:
                for quota in lane.rule.quotas:
                    quota.lanes -= 1

    def overtaken(self, lane: Lane) -> list[Entry]:
        """Return what a newer message takes the place of: everything that was never delivered, oldest first.

        A message whose dead letter is being written stays, and so does what came back from the dead-letter store.
        """
        older: list[Entry] = []
        entry = lane.fresh
        while entry is not None:
            if entry.state == DEAD_LETTERING:
                older.clear()
            elif entry.note is None or not entry.note.redriven:
                older.append(entry)
            entry = entry.newer
        return older

    def _close_cell(self, entry: Entry) -> None:
        if self.beside and self.beside.pop(entry.offset, None) is not None:
            entry.state = SETTLED
            self.max_tracked += 1
        else:
            self.cursor.close(entry)

    def come_back(self, offset: int, key: bytes | None, item: object, attempt: int, near: Entry | None) -> Entry:
        """Track a settled message again, at the place in its lane that it always had; the cursor does not know it.

        ``near`` is an older message that came back: in the same lane, the place is looked for from there on. O(older
        messages of the lane).
        """
        lane = self.lanes.get(key) if key is not None else None
        if lane is None:
            lane = self.new_lane(key)
        entry = Entry(offset, item, lane)
        entry.attempt = attempt
        note = entry.note = Note()
        note.redriven = True
        before = lane.head if near is None or near.lane is not lane else near
        while before is not None and before.offset < offset:
            before = before.newer
        lane.insert(entry, before)
        if lane.fresh is None or offset < lane.fresh.offset:
            lane.take_back(entry)
        self.beside[offset] = entry
        self.max_tracked -= 1
        lane.loaded += 1
        self.loaded += 1
        self.waiting += 1
        self.touched[lane] = None
        return entry

    def add(self, consumer: Consumer) -> None:
        """Add a consumer."""
        self.consumers[consumer.name] = consumer
        if consumer.keyless:
            self.rooms.add(consumer)
        self.freed[consumer] = None

    def discard(self, consumer: Consumer) -> None:
        """Take out a consumer that nothing is open at; call `reassign` before or after."""
        self.cancel_reservations(consumer)
        for lane, number in list(consumer.ready.items()):
            consumer.ready.drop(lane)
            self.orphaned.put(lane, number)
            lane.place = self.orphaned
        if self.total is not None:
            self.total.waiting.pop(consumer, None)
        self.rooms.discard(consumer)
        self.freed.pop(consumer, None)
        del self.consumers[consumer.name]

    def set_limit(self, consumer: Consumer, limit: int) -> None:
        """Change how many deliveries and reservations a consumer may have."""
        consumer.free += limit - consumer.limit
        consumer.limit = limit
        self.rooms.note(consumer)
        self.freed[consumer] = None

    def set_keyless(self, consumer: Consumer, *, keyless: bool) -> None:
        """Change whether a consumer may get messages without a key."""
        consumer.keyless = keyless
        if keyless:
            self.rooms.add(consumer)
        else:
            self.rooms.discard(consumer)

    def cancel_reservations(self, consumer: Consumer) -> None:
        """Cancel the reservations of a consumer: the loads go on, for no consumer."""
        for entry in list(consumer.reserved.values()):
            self._unreserve(entry.lane, entry)

    def reassign(self) -> None:
        """Note that owners may have changed; `wake` then looks at every lane that waits."""
        self.version += 1
        self.is_stale = True
        if self.total is not None:
            self.total.waiting.clear()
        for moved in self.on_move:
            moved()

    def _gate_of(self, lane: Lane, owner: Consumer) -> Place | None:
        """Return the place of the first feature that refuses a lane."""
        for refuses, place in self.gates:
            if refuses(lane, owner):
                return place
        return None

    def _ask_owner(self, lane: Lane) -> Consumer | None:
        lane.version = self.version
        name = self.owners.owner(lane.key)  # type: ignore[arg-type]  # lanes without a key have no owner
        owner = lane.owner = None if name is None else self.consumers.get(name)
        return owner

    def enlist(self, lane: Lane, place: Place | None) -> None:
        """Move a lane to the end of a place."""
        if lane.place is not None:
            lane.place.drop(lane)
        lane.place = place
        if place is not None:
            self.number += 1
            place.put(lane, self.number)

    def _leave(self, lane: Lane) -> None:
        if lane.place is not None:
            lane.place.drop(lane)
            lane.place = None

    def note_room(self, quota: "Quota[Consumer]") -> None:
        """Note that a quota may have capacity again; `wake` serves the consumers that it remembers."""
        if quota.waiting and quota.has_room:
            self.opened[quota] = None

    def _free(self, consumer: Consumer) -> None:
        consumer.free += 1
        self.freed[consumer] = None
        self.rooms.note(consumer)
        if not (consumer.free or consumer.limit):
            self.emptied.append(consumer)

    def _may_get(self, lane: Lane, consumer: Consumer) -> bool:
        """Return whether a consumer may get the next message of a lane, its own capacity aside."""
        return self._fits(lane, consumer) and all(quota.admits(consumer) for quota in lane.rule.quotas)

    def _fits(self, lane: Lane, consumer: Consumer) -> bool:
        """Return whether a consumer may get the next message of a lane, capacity and quotas aside."""
        if lane.key is None:
            return consumer.keyless
        return (
            lane.key not in self.quarantined
            and self.owner_of(lane) is consumer
            and (not lane.open or (lane.holder is consumer and lane.open < lane.rule.turn))
            and self._gate_of(lane, consumer) is None
        )

    def _spill(self, lane: Lane, entry: Entry) -> None:
        """Drop the payload of a message that has to wait for its first delivery."""
        entry.state = SPILLED
        entry.item = None
        if lane.spilled is None:
            lane.spilled = entry
        self.dropped.append(entry)

    def _spill_if_crowded(self, lane: Lane, entry: Entry) -> None:
        """Spill a message that has to wait while waiting ones, itself aside, take half the window."""
        if entry.state not in (QUEUED, DELAYED) or not self.is_crowded:
            return
        if entry.state == DELAYED:
            self.held[DELAYED] -= 1
        lane.loaded -= 1
        self.loaded -= 1
        self.waiting -= 1
        self._spill(lane, entry)

    def _spill_returned(self) -> None:
        """Spill what came back from a delivery and still waits, while waiting messages take half the window.

        The payload stays until the effects of the call are made: a dead letter carries it.
        """
        returned, self.returned = self.returned, []
        for entry in returned:
            note = entry.note
            if entry.state in (SETTLED, IN_FLIGHT, LOADING) or not self.is_crowded or not holds_slot(entry):
                continue
            if note is None:
                note = entry.note = Note()
            if note.redriven:  # a letter is never spilled: the log may not have it any more
                continue
            lane = entry.lane
            lane.loaded -= 1
            self.loaded -= 1
            self.waiting -= 1
            if entry.state == QUEUED:
                entry.state = SPILLED
            else:
                note.spilled = True
            self.dropped.append(entry)

    @property
    def is_crowded(self) -> bool:
        """Whether waiting messages, one aside, take half the window, and may be spilled."""
        return 2 * (self.waiting - 1) >= self.capacity and self.spills

    def _load_next(self, lane: Lane) -> None:
        """Load the oldest spilled message of a lane into the slot of a settled one, unless one before it needs that."""
        if lane.spilled is not None and self.loaded < self.capacity and self._has_room(lane):
            self._load(lane, lane.spilled, None)

    def _has_room(self, lane: Lane) -> bool:
        """Return whether a message that never went out may be loaded: not into a slot that one before it needs."""
        return lane.loaded < lane.rule.loaded and (not lane.back or all(map(holds_slot, lane.back)))

    def _load_in_turn(self, lane: Lane, entry: Entry, consumer: Consumer | None) -> Place | None:
        """Load a message whose turn has come; return where its lane waits if there is no slot."""
        if self.starved.lanes or self.loaded >= self.capacity:
            return self.starved
        self._load(lane, entry, consumer)
        return None

    def _load(self, lane: Lane, entry: Entry, consumer: Consumer | None) -> None:
        entry.state = LOADING
        if lane.spilled is entry:
            lane.spilled = next_spilled(entry.newer)
        lane.loaded += 1
        self.loaded += 1
        self.waiting += 1
        if consumer is not None and lane.taker is None:  # else a newer message of the lane is loaded for it already
            lane.taker = consumer
            consumer.reserved[entry.offset] = entry
            consumer.free -= 1
            self.rooms.note(consumer)
        self.granted.append(entry)

    def _unreserve(self, lane: Lane, entry: Entry) -> None:
        taker: Consumer = lane.taker  # type: ignore[assignment]  # the message is reserved for it
        del taker.reserved[entry.offset]
        lane.taker = None
        self._free(taker)


def overrides(feature: Feature, name: str) -> bool:
    """Return whether a feature has a method of its own under a name."""
    return getattr(type(feature), name) is not getattr(Feature, name)


def lowest_of(lane: Lane) -> int:
    """Return the lowest offset of a lane."""
    return lane.head.offset if lane.head is not None else 0
