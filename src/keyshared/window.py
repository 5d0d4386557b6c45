"""In-flight window: per-key lanes, what every consumer may hold, and what may go out next.

The window knows order, limits and memory. It knows no time, no retry policy and no rules of membership: whoever
composes it brings those, and says who owns a key. `KeySharedDispatcher` is one such composition; a broker with its own
timers can be another.

Three kinds of call:

- `offer` and `settle`, the two that every message goes through, do all there is to do and return what they granted;
- other changes (`move`, `provide`, `remove`, `set_limit`, `reassign`, ...) only change the books, so that many can
happen at one instant;
- `wake` then looks at exactly the lanes and consumers that those changes touched, and returns what was granted. Call it
before the next `offer` or `settle`: those two count on every lane standing where it belongs.

What is granted is a list of entries, in order, and the state of each says what to do with it: ``IN_FLIGHT`` hand it to
``entry.consumer``, ``LOADING`` read its payload again and `provide` it, ``DEAD_LETTERING`` archive it, ``SPILLED``
forget its payload; anything else: it was changed once more before `wake`, and nothing is to be done.

Why nothing is ever scanned: a lane that could go on stands in exactly one work list (its owner's ready list, or one of
the four lists for lanes that wait for an owner, for the end of a drain, for a keyless-capable consumer or for memory),
and whatever could make it move on touches that lane or serves that list.
"""

from collections import OrderedDict, deque
from collections.abc import ItemsView
from itertools import chain, takewhile
from typing import Final, Protocol

from keyshared.checks import check_window
from keyshared.cursor import ContiguousCursor
from keyshared.errors import (
    ConsumerExistsError,
    EntryStateError,
    OffsetOrderError,
    UnknownConsumerError,
    WindowFullError,
)
from keyshared.lanes import ALONE, LEGAL_MOVES, Consumer, Entry, Lane, State, WorkList
from keyshared.rooms import RoomIndex

__all__ = ["InFlightWindow", "Owners"]

_SETTLED: Final = int(State.SETTLED)
_QUEUED: Final = int(State.QUEUED)
_SPILLED: Final = int(State.SPILLED)
_LOADING: Final = int(State.LOADING)
_IN_FLIGHT: Final = int(State.IN_FLIGHT)
_DEAD_LETTERING: Final = int(State.DEAD_LETTERING)


class Owners(Protocol):
    """Whoever can say which consumer a key belongs to; every placement can."""

    def owner(self, key: bytes) -> str | None:
        """Name of the consumer that the key belongs to now, or None."""
        ...


class InFlightWindow:
    """Outstanding messages in per-key lanes, with limits per key, per consumer and in total.

    Not thread-safe. Offsets grow strictly; a key is bytes, or None for a message without order.

    Args:
        owners: Who owns a key. Asked once per lane and version; call `reassign` when its answers may have changed.
        capacity: Messages whose payload is in memory (in flight or waiting).
        max_tracked: Outstanding messages, spilled ones included.
        per_key: Open deliveries per key.
        loaded_per_key: Messages of one key whose payload is in memory.
        one_lane: Treat everything as one key: total order.
        track_drains: Note in ``drain_changes`` which lanes begin or end to drain; `reassign` then also looks at lanes
            that have something in flight, because one at its limit would otherwise only be seen to drain at its next
            message.
        start: What ``cursor.resume_offset`` says before the first offer.

    Attributes:
        cursor: What is settled. Read it; only the window moves it.
        consumers: Connected consumers by name.
        lanes: What is outstanding by key, keyless messages excluded: a lane, or the message itself while it is `ALONE`.
        quarantined: Keys whose messages go to the dead-letter store instead of a consumer.
        loaded: Messages that hold a slot of ``capacity``.
        waiting: Those of them that are not in flight.
        first_attempt: New deliveries have attempt numbers above this.
        emptied: Consumers of limit 0 whose last delivery has ended; take them out when you have seen them.
        held: How many messages are in each state that only `move` or `remove` ends, by state.
        shared: Keyless messages for whom no consumer has room.
        ownerless: Lanes whose key nobody owns.
        draining: Lanes that wait for the end of deliveries at their previous owner.
        drain_changes: With ``track_drains``, lanes that entered or left ``draining``; clear it when you have seen them.
        starved: Lanes whose turn has come but whose message cannot be loaded because every slot is taken.

    Complexity:
        Every call is O(1) amortised plus what it grants, O(log vnodes) where an owner is looked up.

    Example:
        >>> class Everything:
        ...     def owner(self, key: bytes) -> str:
        ...         return "c1"
        >>> window = InFlightWindow(Everything(), capacity=10)
        >>> _ = window.add(Consumer("c1", order=0, limit=5))
        >>> first, = window.offer(0, b"k", "hello")
        >>> first.consumer.name, first.item
        ('c1', 'hello')
        >>> window.offer(1, b"k", "world")          # the key is in flight: it waits
        []
        >>> [entry.offset for entry in window.settle(first)]
        [1]
        >>> window.cursor.safe_cursor
        0
    """

    def __init__(
        self,
        owners: Owners,
        *,
        capacity: int,
        max_tracked: int = 1_000_000,
        per_key: int = 1,
        loaded_per_key: int = 1_000,
        one_lane: bool = False,
        track_drains: bool = False,
        start: int | None = None,
    ) -> None:
        self.cursor = ContiguousCursor(start=start)
        self.consumers: dict[str, Consumer] = {}
        self.lanes: dict[bytes, Lane | Entry] = {}
        self.quarantined: dict[bytes, None] = {}
        self.loaded = 0
        self.waiting = 0
        self.first_attempt = 0
        self.emptied: list[Consumer] = []
        self.held = [0] * len(State)
        self.shared: WorkList = OrderedDict()
        self.ownerless: WorkList = OrderedDict()
        self.draining: WorkList = OrderedDict()
        self.starved: WorkList = OrderedDict()
        self.drain_changes: dict[Lane, None] = {}
        self.capacity = capacity
        self.max_tracked = max_tracked
        self._owners = owners
        self.per_key = per_key
        self.loaded_per_key = loaded_per_key
        self._one_lane = one_lane
        self._track_drains = track_drains
        self._rooms = RoomIndex()
        self._orphaned: WorkList = OrderedDict()  # ready lanes of consumers that have left
        self._version = 0
        self._sequence = 0
        self._stale = False  # owners may have changed since the last wake()
        self._granted: list[Entry] = []
        self._touched: dict[Lane, None] = {}
        self._freed: dict[Consumer, None] = {}

    # the two calls that every message goes through

    def offer(self, offset: int, key: bytes | None, item: object = None) -> list[Entry]:
        """Track a message and let it go out if its turn has come.

        Args:
            offset: Greater than every offset offered before.
            key: Its key; None for none.
            item: A passenger that comes back with the entry.

        Returns:
            What was granted: the message itself, in flight, spilled or dead-lettering; nothing if it waits.

        Raises:
            OffsetOrderError: The offset is not an int greater than the last one.
            WindowFullError: No slot is free.
        """
        cursor = self.cursor
        last = cursor.last
        if (
            type(offset) is not int
            or (last is not None and offset <= last)
            or self.loaded >= self.capacity
            or cursor.outstanding >= self.max_tracked
        ):
            self.check_offer(offset)
        lane_key = b"" if self._one_lane else key
        lane = None if lane_key is None else self.lanes.get(lane_key)
        if lane is None:
            return self._offer_first(offset, key, item, lane_key)
        if type(lane) is Entry:
            lane = self._lane_of(lane)
        entry = Entry(offset, key, item, lane)
        cursor.append(entry)
        lane.append(entry)
        if lane.spilled is not None or lane.loaded >= self.loaded_per_key:
            self._spill(lane, entry)
            granted: list[Entry] = [entry]
            if entry is lane.candidate:
                self._examine(lane, granted)
            return granted
        lane.loaded += 1
        self.loaded += 1
        self.waiting += 1
        granted = []
        if lane.open < self.per_key or lane.version != self._version:
            self._examine(lane, granted)
        if 2 * self.waiting > self.capacity:
            self._spill_if_crowded(lane, entry, granted)
        return granted

    def _offer_first(self, offset: int, key: bytes | None, item: object, lane_key: bytes | None) -> list[Entry]:
        """Offer the only message of its key. Mostly it goes out at once, and then needs no lane: written out here."""
        if lane_key is not None:
            name = self._owners.owner(lane_key)
            owner = None if name is None else self.consumers.get(name)
            crowded = self.shared or self.quarantined or self._one_lane
            if owner is not None and owner.free > 0 and not owner.ready and not crowded:
                entry = Entry(offset, key, item, ALONE)
                self.cursor.append(entry)
                entry.state = _IN_FLIGHT
                entry.attempt = self.first_attempt + 1
                entry.consumer = owner
                owner.open[offset] = entry
                owner.free -= 1
                if not owner.noted:
                    self._rooms.note(owner)
                self.loaded += 1
                self.lanes[lane_key] = entry
                return [entry]
        lane = Lane(lane_key)
        entry = Entry(offset, key, item, lane)
        self.cursor.append(entry)
        lane.append(entry)
        lane.loaded = 1
        self.loaded += 1
        self.waiting += 1
        if lane_key is not None:
            self.lanes[lane_key] = lane
        granted: list[Entry] = []
        self._examine(lane, granted)
        if 2 * self.waiting > self.capacity:
            self._spill_if_crowded(lane, entry, granted)
        return granted

    def settle(self, entry: Entry) -> list[Entry]:  # noqa: C901  # written out, see below
        """Settle a message, whatever its state, and let go out what that makes possible.

        Args:
            entry: An outstanding message of this window.

        Returns:
            What was granted.

        Raises:
            EntryStateError: The message is settled already.
        """
        lane = entry.lane
        consumer = entry.consumer
        easy = lane is ALONE or (lane.head is entry and lane.spilled is None)
        if entry.state != _IN_FLIGHT or consumer is None or not easy:
            self.remove(entry)
            return self.wake()
        # The oldest message of a lane is acked: remove() and wake(), written out because every message comes by here.
        del consumer.open[entry.offset]
        consumer.free += 1
        if not consumer.noted:
            self._rooms.note(consumer)
        self.cursor.close(entry)
        self.loaded -= 1
        entry.item = entry.consumer = None
        granted: list[Entry] = []
        after = entry.after
        if lane is ALONE:
            del self.lanes[entry.key]  # type: ignore[arg-type]  # a keyless message has a lane of its own
        elif after is None:
            lane.head = lane.tail = None
            if lane.key is not None:
                del self.lanes[lane.key]
        else:
            lane.head = after
            after.before = entry.after = None
            lane.loaded -= 1
            if (
                after is lane.fresh
                and lane.owner is consumer
                and after.state == _QUEUED
                and lane.version == self._version
                and consumer.free > 0
                and not (consumer.ready or self.shared or self.quarantined or self.starved)
            ):
                # The next one goes where this one was: _close(), _step() and _open(), less what cancels out.
                lane.fresh = after.after
                after.state = _IN_FLIGHT
                after.attempt = self._next_attempt(after) if self.first_attempt else after.attempt + 1
                after.consumer = consumer
                consumer.open[after.offset] = after
                consumer.free -= 1
                self.waiting -= 1
                granted.append(after)
                return granted
            lane.open -= 1
            if not lane.open:
                lane.holder = None
            self._examine(lane, granted)
        if consumer.ready or self.shared:
            self._serve(consumer, granted)
        if self.starved:
            self._feed(granted)
        if not (consumer.free or consumer.limit):
            self.emptied.append(consumer)
        return granted

    # changes of the books; wake() acts on them

    def move(self, entry: Entry, to: State) -> None:
        """End a delivery without settling the message, or let a held message go on.

        Args:
            entry: An outstanding message.
            to: ``QUEUED``, ``RETRY_WAIT``, ``DEAD_LETTERING`` or ``BLOCKED``.

        Raises:
            EntryStateError: That step is not in `NEXT_STATE`. Nothing was changed.
        """
        if (entry.state, to) not in LEGAL_MOVES:
            raise EntryStateError(entry.offset, State(entry.state).name, to.name)
        lane = self._lane_of(entry)
        if entry.state == _IN_FLIGHT:
            self._close(entry)
            lane.take_back(entry)
        self.held[entry.state] -= 1
        self.held[to] += 1
        entry.state = int(to)
        self._touched[lane] = None
        if to is State.DEAD_LETTERING:
            self._granted.append(entry)

    def provide(self, entry: Entry, item: object) -> None:
        """Hand in the payload of a message that was being loaded; it goes out at once if a consumer waits for it.

        Args:
            entry: A message in state ``LOADING``.
            item: The passenger it shall carry.

        Raises:
            EntryStateError: The message is not being loaded. Nothing was changed.
        """
        if entry.state != _LOADING:
            raise EntryStateError(entry.offset, State(entry.state).name, State.QUEUED.name)
        lane, waits = entry.lane, entry.consumer
        entry.state = _QUEUED
        entry.item = item
        self._touched[lane] = None
        if waits is None:
            return
        self._unreserve(waits, entry)
        entry.consumer = None
        if waits.free > 0 and entry is lane.candidate and self._could_get(waits, lane):
            self._open(lane, entry, waits, self._granted)

    def remove(self, entry: Entry) -> None:
        """Settle a message in any state; its slot goes to the oldest spilled message of its lane, if there is one.

        Args:
            entry: An outstanding message.

        Raises:
            EntryStateError: The message is settled already.
        """
        if entry.state == _SETTLED:
            raise EntryStateError(entry.offset, State.SETTLED.name, State.SETTLED.name)
        lane = self._lane_of(entry)
        had_slot = entry.state != _SPILLED
        if entry.state == _IN_FLIGHT:
            self._close(entry)
        elif entry.state == _LOADING and entry.consumer is not None:
            self._unreserve(entry.consumer, entry)
        self.held[entry.state] -= 1
        lane.unlink(entry)
        self.cursor.close(entry)
        entry.item = entry.consumer = None
        if had_slot:
            lane.loaded -= 1
            self.loaded -= 1
            self.waiting -= 1
            if lane.spilled is not None:
                self._load(lane, lane.spilled, None, self._granted)
        if lane.head is None:
            self._forget(lane)
        else:
            self._touched[lane] = None

    def quarantine(self, key: bytes) -> None:
        """Send the messages of a key to the dead-letter store, one at a time and in order, instead of to a consumer."""
        self.quarantined[key] = None
        self._touch_key(key)

    def lift_quarantine(self, key: bytes) -> None:
        """Let a key's messages go to its consumer again; nothing if it is not quarantined."""
        if key not in self.quarantined:
            return
        del self.quarantined[key]
        self._touch_key(key)

    # consumers

    def add(self, consumer: Consumer) -> Consumer:
        """Connect a consumer; call `reassign` if keys may move to it.

        Raises:
            ConsumerExistsError: One of that name is connected.
        """
        if consumer.name in self.consumers:
            raise ConsumerExistsError(consumer.name)
        self.consumers[consumer.name] = consumer
        if consumer.keyless:
            self._rooms.add(consumer)
        self._freed[consumer] = None
        return consumer

    def discard(self, name: str) -> None:
        """Disconnect a consumer that holds nothing any more; call `reassign` if it owned keys.

        Raises:
            UnknownConsumerError: Nobody of that name is connected.
            EntryStateError: It still has an open delivery: `move` or `remove` those first.
        """
        consumer = self.consumers.get(name)
        if consumer is None:
            raise UnknownConsumerError(name)
        if consumer.open:
            raise EntryStateError(min(consumer.open), State.IN_FLIGHT.name, State.QUEUED.name)
        self.cancel_reservations(consumer)
        for lane, sequence in consumer.ready.items():
            self._orphaned[lane] = sequence
            lane.listed = self._orphaned
        self._rooms.discard(consumer)
        self._freed.pop(consumer, None)
        del self.consumers[name]

    def set_limit(self, consumer: Consumer, limit: int) -> None:
        """Let a consumer hold that many messages; what it holds beyond that stays."""
        consumer.free += limit - consumer.limit
        consumer.limit = limit
        self._rooms.note(consumer)
        self._freed[consumer] = None

    def cancel_reservations(self, consumer: Consumer) -> None:
        """Let messages that are being loaded for a consumer go to whoever owns them once they are there."""
        for entry in consumer.reserved.values():
            entry.consumer = None
        consumer.free += len(consumer.reserved)
        consumer.reserved.clear()
        self._rooms.note(consumer)
        self._freed[consumer] = None

    def set_keyless(self, consumer: Consumer, *, keyless: bool) -> None:
        """Say whether a consumer may get messages without a key."""
        consumer.keyless = keyless
        if keyless:
            self._rooms.add(consumer)
            self._freed[consumer] = None  # it may have room for what nobody else had room for
        else:
            self._rooms.discard(consumer)

    def reassign(self) -> None:
        """Say that owners may have changed; `wake` then asks again for every lane that waits in a work list."""
        self._version += 1
        self._stale = True

    def wake(self) -> list[Entry]:
        """Act on all changes since the last call.

        Touched lanes come first, by their lowest offset; after `reassign`, the lanes of all work lists, longest waiting
        first; then consumers that have got room, in order of joining; then lanes that wait for a slot of the window.

        Returns:
            What was granted, in service order.
        """
        granted, self._granted = self._granted, []
        if self._touched:
            touched, self._touched = self._touched, {}
            self._examine_in_turns(_by_lowest_offset(touched), granted)
        if self._stale:
            self._stale = False
            lanes = self.waiting_lanes()
            for lane in lanes:  # all of them first: a lane must not queue behind one that is about to go elsewhere
                self._unlist(lane)
            self._examine_in_turns(lanes, granted)
            if self._track_drains:
                self._examine_in_turns(_by_lowest_offset(self._held()), granted)
        if self._freed:
            freed, self._freed = self._freed, {}
            for consumer in sorted(freed, key=_order_of):
                self._serve(consumer, granted)
        if self.starved:
            self._feed(granted)
        return granted

    # restoring

    def readmit(
        self, offset: int, key: bytes | None, item: object, state: State, *, delivered: bool, consumer: Consumer | None
    ) -> Entry:
        """Put a message of a snapshot back, unchecked: in offset order, into a window that nothing was offered to yet.

        `check_invariants` afterwards says whether what was put back fits together.
        """
        lane_key = b"" if self._one_lane else key
        known = None if lane_key is None else self.lanes.get(lane_key)
        lane = known if isinstance(known, Lane) else Lane(lane_key)
        if lane_key is not None:
            self.lanes[lane_key] = lane
        entry = Entry(offset, key, item, lane)
        entry.state = int(state)
        entry.consumer = consumer
        self.cursor.append(entry)
        lane.append(entry)
        if delivered:
            lane.fresh = None
            if state is not State.IN_FLIGHT:
                lane.take_back(entry)
        self._recount(entry)
        return entry

    def _recount(self, entry: Entry) -> None:
        """Let every counter know of a message that was put back."""
        lane, consumer = entry.lane, entry.consumer
        self.held[entry.state] += 1
        if entry.state == _SPILLED:
            lane.spilled = lane.spilled or entry
            return
        lane.loaded += 1
        self.loaded += 1
        if entry.state == _IN_FLIGHT:
            lane.open += 1
            lane.holder = consumer
        else:
            self.waiting += 1
        if consumer is not None and entry.state in {_IN_FLIGHT, _LOADING}:
            (consumer.open if entry.state == _IN_FLIGHT else consumer.reserved)[entry.offset] = entry
            consumer.free -= 1

    def enlist(self, lane: Lane, where: WorkList) -> None:
        """Put a lane at the end of a work list."""
        self._list(lane, where)

    # queries

    @property
    def free_slots(self) -> int:
        """How many messages may be offered now."""
        return min(self.capacity - self.loaded, self.max_tracked - self.cursor.outstanding)

    @property
    def tightest_limit(self) -> int:
        """Which of the two limits leaves less room."""
        by_memory = self.capacity - self.loaded <= self.max_tracked - self.cursor.outstanding
        return self.capacity if by_memory else self.max_tracked

    def find(self, offset: int) -> Entry | None:
        """The outstanding message of that offset, or None. O(log n)."""
        cell = self.cursor.find(offset)
        return cell if isinstance(cell, Entry) else None

    def check_offer(self, offset: int) -> None:
        """Raise what `offer` would raise for this offset."""
        cursor = self.cursor
        if type(offset) is not int or (cursor.last is not None and offset <= cursor.last):
            raise OffsetOrderError(offset, cursor.last)
        if self.loaded >= self.capacity:
            raise WindowFullError(self.capacity)
        if cursor.outstanding >= self.max_tracked:
            raise WindowFullError(self.max_tracked)

    def owner_of(self, lane: Lane) -> Consumer | None:
        """Who would get the next message of a lane: for a keyless one, whoever has most room."""
        if lane.key is None:
            return self._rooms.roomiest()
        return lane.owner if lane.version == self._version else self._ask_owner(lane, lane.key)

    def outstanding(self) -> list[Entry]:
        """Everything outstanding, in offset order. O(n)."""
        return [cell for cell in self.cursor if isinstance(cell, Entry)]

    def older_than(self, offset: int) -> list[Entry]:
        """Everything outstanding below an offset, in offset order. O(result)."""
        return [cell for cell in takewhile(lambda cell: cell.offset < offset, self.cursor) if isinstance(cell, Entry)]

    def work_lists(self) -> list[WorkList]:
        """Every list that a lane can wait in; each lane stands in one at most. O(consumers)."""
        ready = [consumer.ready for consumer in self.consumers.values()]
        return [self.shared, self.ownerless, self.draining, self.starved, self._orphaned, *ready]

    def waiting_lanes(self) -> list[Lane]:
        """Lanes of all work lists, longest waiting first. O(n log n) over them."""
        return [lane for lane, _ in sorted(chain.from_iterable(map(_items, self.work_lists())), key=_second)]

    def check_invariants(self) -> None:
        """Raise `InvariantError` if the structure contradicts itself. For tests; O(n)."""
        check_window(self)

    # where a lane goes

    def _examine(self, lane: Lane, granted: list[Entry]) -> None:
        """Let the lane's next messages go out, or put the lane into the list of what it waits for."""
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
        """Let one message go out, or list the lane. True if one went out and the lane may have another."""
        entry = lane.back[0] if lane.back else lane.fresh
        if entry is None or entry.state > _SPILLED:
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
        if lane.open:
            if lane.holder is not owner:
                self._list(lane, self.draining)
                return False
            if lane.open >= self.per_key:
                if lane.listed is not None:
                    self._unlist(lane)
                return False
        if owner.free <= 0 or owner.ready or (owner.keyless and self.shared):
            self._list(lane, owner.ready)
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
        elif lane.open:
            self._list(lane, self.draining)
        elif entry.state == _SPILLED:
            self._load_in_turn(lane, entry, None, granted)
        else:
            if lane.listed is not None:
                self._unlist(lane)
            entry.state = _DEAD_LETTERING
            self.held[_DEAD_LETTERING] += 1
            granted.append(entry)

    def _send(self, lane: Lane, entry: Entry, consumer: Consumer, granted: list[Entry]) -> bool:
        """Open a delivery, or load the message for it. True if the lane may have more to send."""
        if entry.state == _SPILLED:
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
        if lane.key in self.quarantined or self.owner_of(lane) is not consumer:
            return False
        return not lane.open or (lane.holder is consumer and lane.open < self.per_key)

    def _ask_owner(self, lane: Lane, key: bytes) -> Consumer | None:
        lane.version = self._version
        name = self._owners.owner(key)
        owner = lane.owner = None if name is None else self.consumers.get(name)
        return owner

    def _serve(self, consumer: Consumer, granted: list[Entry]) -> None:
        """Hand out what waits for this consumer, one message per lane and turn, while it has room."""
        ready, shared = consumer.ready, self.shared
        while consumer.free > 0:
            turn = ready
            if shared and consumer.keyless and (not ready or _first(shared) < _first(ready)):
                turn = shared
            if not turn:
                return
            lane, _ = turn.popitem(last=False)
            lane.listed = None
            entry: Entry = lane.candidate  # type: ignore[assignment]  # a listed lane has one
            if self._send(lane, entry, consumer, granted):
                self._examine(lane, granted)

    def _feed(self, granted: list[Entry]) -> None:
        """Give free slots of the window to lanes that wait for one."""
        starved = self.starved
        while starved and self.loaded < self.capacity:
            lane, _ = starved.popitem(last=False)
            lane.listed = None
            entry: Entry = lane.candidate  # type: ignore[assignment]  # a listed lane has one
            if lane.key is not None and lane.key in self.quarantined:  # nothing of it is open, or it would drain
                self._load(lane, entry, None, granted)
                continue
            owner = self.owner_of(lane)
            if owner is not None and owner.free > 0 and self._could_get(owner, lane):
                self._load(lane, entry, owner, granted)
            else:
                self._examine(lane, granted)

    def _list(self, lane: Lane, where: WorkList) -> None:
        if lane.listed is where:
            return
        if lane.listed is not None:
            self._unlist(lane)
        self._sequence += 1
        where[lane] = self._sequence
        lane.listed = where
        if self._track_drains and where is self.draining:
            self.drain_changes[lane] = None

    def _unlist(self, lane: Lane) -> None:
        if lane.listed is None:
            return
        del lane.listed[lane]
        if self._track_drains and lane.listed is self.draining:
            self.drain_changes[lane] = None
        lane.listed = None

    def _held(self) -> dict[Lane, None]:
        """Lanes that have something in flight and may have something behind it."""
        opened = chain.from_iterable(consumer.open.values() for consumer in self.consumers.values())
        return {entry.lane: None for entry in opened if entry.lane is not ALONE}

    def _lane_of(self, entry: Entry) -> Lane:
        """The message's lane; one that was alone gets its own now."""
        lane = entry.lane
        if lane is not ALONE or entry.key is None:
            return lane
        lane = entry.lane = self.lanes[entry.key] = Lane(entry.key)
        lane.head = lane.tail = entry
        lane.holder = entry.consumer
        lane.open = lane.loaded = 1
        return lane

    def _touch_key(self, key: bytes) -> None:
        lane = self.lanes.get(key)
        if not isinstance(lane, Lane):
            return  # nothing of it waits
        self._touched[lane] = None
        if self._track_drains:
            self.drain_changes[lane] = None

    def _forget(self, lane: Lane) -> None:
        self._unlist(lane)
        self._touched.pop(lane, None)
        if lane.key is not None:
            del self.lanes[lane.key]

    # what a message does

    def _open(self, lane: Lane, entry: Entry, consumer: Consumer, granted: list[Entry]) -> None:
        if lane.listed is not None:
            self._unlist(lane)
        if lane.back:
            lane.back.pop(0)
        else:
            lane.fresh = entry.after
        entry.state = _IN_FLIGHT
        entry.attempt = self._next_attempt(entry) if self.first_attempt else entry.attempt + 1
        entry.consumer = lane.holder = consumer
        lane.open += 1
        self.waiting -= 1
        consumer.open[entry.offset] = entry
        consumer.free -= 1
        if not consumer.noted:
            self._rooms.note(consumer)
        granted.append(entry)

    def _next_attempt(self, entry: Entry) -> int:
        return max(entry.attempt, self.first_attempt) + 1

    def _close(self, entry: Entry) -> None:
        consumer: Consumer = entry.consumer  # type: ignore[assignment]  # whatever is in flight has one
        del consumer.open[entry.offset]
        self._free(consumer)
        lane = entry.lane
        lane.open -= 1
        if not lane.open:
            lane.holder = None
        self.waiting += 1

    def _spill(self, lane: Lane, entry: Entry) -> None:
        entry.state = _SPILLED
        entry.item = None
        if lane.spilled is None:
            lane.spilled = entry

    def _spill_if_crowded(self, lane: Lane, entry: Entry, granted: list[Entry]) -> None:
        """Spill a message that has to wait while waiting ones, itself aside, take half the window."""
        if entry.state == _QUEUED and 2 * (self.waiting - 1) >= self.capacity:
            lane.loaded -= 1
            self.loaded -= 1
            self.waiting -= 1
            self._spill(lane, entry)
            granted.append(entry)

    def _load(self, lane: Lane, entry: Entry, consumer: Consumer | None, granted: list[Entry]) -> None:
        lane.spilled = entry.after
        lane.loaded += 1
        self.loaded += 1
        self.waiting += 1
        entry.state = _LOADING
        entry.consumer = consumer
        if consumer is not None:
            consumer.reserved[entry.offset] = entry
            consumer.free -= 1
            self._rooms.note(consumer)
        granted.append(entry)

    def _unreserve(self, consumer: Consumer, entry: Entry) -> None:
        del consumer.reserved[entry.offset]
        self._free(consumer)

    def _free(self, consumer: Consumer) -> None:
        consumer.free += 1
        self._freed[consumer] = None
        self._rooms.note(consumer)
        if not (consumer.free or consumer.limit):
            self.emptied.append(consumer)


def _by_lowest_offset(lanes: dict[Lane, None]) -> list[Lane]:
    return sorted(lanes, key=_lowest_offset)


def _lowest_offset(lane: Lane) -> int:
    return lane.head.offset if lane.head is not None else 0


def _order_of(consumer: Consumer) -> int:
    return consumer.order


def _first(lanes: WorkList) -> int:
    return next(iter(lanes.values()))


def _items(lanes: WorkList) -> ItemsView[Lane, int]:
    return lanes.items()


def _second(item: tuple[Lane, int]) -> int:
    return item[1]
