"""The books of an in-flight window: which message is where, who holds what, and which lanes wait for what.

Every method here is one step that keeps the books consistent; `InFlightWindow` decides which step is next.
"""

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from itertools import chain, takewhile
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar, Final, Protocol

from keyshared._checks import check_int, check_kind, check_members, check_offset
from keyshared._window.gate import CountingGate, DrainGate, KeyGate
from keyshared._window.lanes import (
    IN_FLIGHT,
    LOADING,
    QUEUED,
    SPILLED,
    Consumer,
    Entry,
    Lane,
    ReadyList,
    State,
    WorkList,
    live_from,
    place_of,
    spilled_from,
)
from keyshared._window.room_index import RoomIndex
from keyshared._window.watched import WatchedList
from keyshared.cursor import Cell, ContiguousCursor
from keyshared.errors import (
    ConsumerExistsError,
    EntryStateError,
    OffsetOrderError,
    UnknownConsumerError,
    WindowFullError,
)

if TYPE_CHECKING:
    from keyshared._window.served import Scope

__all__ = ["Owners", "WindowBooks"]

_NOTHING: Final[Mapping[int, Cell]] = MappingProxyType({})
_NEVER_REACHED: Final = 1 << 63  # of a key; the limit of windows that spill nothing


class Owners(Protocol):
    """Whoever can say which consumer a key belongs to: `HashRing` and all builders of `keyshared.placement` can."""

    def owner(self, key: bytes) -> str | None:
        """Name of the consumer that the key belongs to now, or None."""
        ...


class WindowBooks:
    """What an `InFlightWindow` knows; its arguments and attributes are described there."""

    # Slots, because Python 3.11 reads the fields of an instance quickly only while there are at most thirty: 2 % of a
    # message's life. What extends this class may have fields of its own without them.
    __slots__ = (
        "_counts",
        "_freed",
        "_gate",
        "_granted",
        "_is_lean",
        "_one_lane",
        "_orphaned",
        "_owners",
        "_rooms",
        "_sequence",
        "_stale",
        "_touched",
        "_version",
        "capacity",
        "consumers",
        "cursor",
        "draining",
        "emptied",
        "first_attempt",
        "held",
        "is_anew",
        "lanes",
        "loaded",
        "loaded_per_key",
        "max_tracked",
        "ownerless",
        "per_key",
        "quarantined",
        "shared",
        "starved",
        "waiting",
    )

    asks_keys: ClassVar[bool] = False  # whether `check_key` may raise
    has_scopes: ClassVar[bool] = False  # whether lanes share limits
    has_lone: ClassVar[bool] = True  # whether what waits alone of its key may have no lane
    supersedes: ClassVar[bool] = False  # whether a newer message may take the place of an older one of its key

    def __init__(
        self,
        owners: Owners,
        *,
        capacity: int,
        max_tracked: int = 1_000_000,
        per_key: int = 1,
        loaded_per_key: int = 1_000,
        spills: bool = True,
        one_lane: bool = False,
        gate: DrainGate | None = None,
        draining: WatchedList | None = None,
        start: int | None = None,
    ) -> None:
        check_members("owners", owners, Owners)
        limits = {
            "capacity": capacity,
            "max_tracked": max_tracked,
            "per_key": per_key,
            "loaded_per_key": loaded_per_key,
        }
        for name, limit in limits.items():
            check_int(name, limit, 1)
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
        self.draining: WorkList = OrderedDict() if draining is None else check_kind("draining", draining, WatchedList)
        self.starved: OrderedDict[Lane, int] = OrderedDict()
        self.is_anew = False
        self.capacity = capacity
        self.max_tracked = max_tracked
        self._owners = owners
        self.per_key = per_key
        # One field for both: an offer asks once.
        self.loaded_per_key = min(loaded_per_key, _NEVER_REACHED - 1) if spills else _NEVER_REACHED
        self._one_lane = one_lane
        known: DrainGate = KeyGate() if gate is None else check_kind("gate", gate, DrainGate)  # type: ignore[type-abstract]
        self._gate = known
        self._counts = known if isinstance(known, CountingGate) else None
        self._is_lean = self.has_lone and self._counts is None and not one_lane
        self._rooms = RoomIndex()
        self._orphaned: WorkList = OrderedDict()  # ready lanes of consumers that have left
        self._version = 0
        self._sequence = 0
        self._stale = False  # owners may have changed since the last wake()
        self._granted: list[Entry] = []
        self._touched: dict[Lane, None] = {}
        self._freed: dict[Consumer, None] = {}

    # consumers

    def add(self, consumer: Consumer) -> Consumer:
        """Connect a consumer; call `reassign` if keys may move to it.

        Raises:
            ConsumerExistsError: One of that name is connected.
        """
        if consumer.name in self.consumers:
            raise ConsumerExistsError(consumer.name)
        if self._counts is not None and self._counts.is_behind:  # what lanes know of their units is of before
            self._follow()
        self.consumers[consumer.name] = consumer
        consumer.alone.holder = consumer
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
        for waiting, number in consumer.ready.items():
            lane = self._lane_of(waiting) if isinstance(waiting, Entry) else waiting
            self._orphaned[lane] = place_of(waiting, number)
            lane.listed = self._orphaned
            lane.sign = None
        self._rooms.discard(consumer)
        self._freed.pop(consumer, None)
        del self.consumers[name]
        consumer.alone.holder = None  # or only the collector could free the two

    def set_limit(self, consumer: Consumer, limit: int) -> None:
        """Set how many messages a consumer may hold; what it holds beyond that stays."""
        consumer.free += limit - consumer.limit
        consumer.limit = limit
        self._rooms.note(consumer)
        self._freed[consumer] = None

    def cancel_reservations(self, consumer: Consumer) -> None:
        """Take back what is being loaded for a consumer: once loaded, it goes to whoever owns it."""
        for entry in consumer.reserved.values():
            entry.lane.taker = None
        consumer.free += len(consumer.reserved)
        consumer.reserved.clear()
        self._rooms.note(consumer)
        self._freed[consumer] = None

    def set_keyless(self, consumer: Consumer, *, keyless: bool) -> None:
        """Set whether a consumer may get messages without a key."""
        consumer.keyless = keyless
        if keyless:
            self._rooms.add(consumer)
            self._freed[consumer] = None  # it may have room for what nobody else had room for
        else:
            self._rooms.discard(consumer)

    # restoring

    def readmit(
        self, offset: int, key: bytes | None, item: object, state: State, *, delivered: bool, consumer: Consumer | None
    ) -> Entry:
        """Put a message of a snapshot back, unchecked: in offset order, into a window that nothing was offered to yet.

        `check_invariants` afterwards says whether what was put back fits together.
        """
        lane_key = b"" if self._one_lane else key
        known = None if lane_key is None else self.lanes.get(lane_key)
        lane = known if isinstance(known, Lane) else self.new_lane(lane_key)
        if lane_key is not None:
            self.lanes[lane_key] = lane
        entry = Entry(offset, key, item, lane)
        entry.state = int(state)
        self.cursor.append(entry)
        lane.append(entry)
        if delivered:
            lane.fresh = None
            if state is not State.IN_FLIGHT:
                lane.take_back(entry)
        self._recount(entry, consumer)
        return entry

    def _recount(self, entry: Entry, consumer: Consumer | None) -> None:
        """Update every counter for a message that was put back, and whose it is."""
        lane = entry.lane
        self.held[entry.state] += 1
        if entry.state == SPILLED:
            lane.spilled = lane.spilled or entry
            return
        lane.loaded += 1
        self.loaded += 1
        if entry.state == IN_FLIGHT:
            lane.open += 1
            lane.holder = consumer
            if self._counts is not None:
                self._counts.opened(entry)
        else:
            self.waiting += 1
        if consumer is not None and entry.state in {IN_FLIGHT, LOADING}:
            if entry.state == IN_FLIGHT:
                consumer.open[entry.offset] = entry
            else:
                consumer.reserved[entry.offset] = entry
                lane.taker = consumer
            consumer.free -= 1

    def enlist(self, lane: Lane, where: WorkList | ReadyList) -> None:
        """Put a lane at the end of a work list."""
        self._list(lane, where)

    def begin_anew(self) -> None:
        """Go on from a snapshot, whose limits may have been others; call it when all that was kept of it is back.

        Everybody was served when it was made: who joined just now has got no room by that. What could not go on there,
        and may do so now, is touched: the limit of its key or the window was smaller. What waited for room or memory
        there, and waits for the end of a delivery of its key now, stands in no list any more: that limit was wider.
        """
        self._freed.clear()
        for lane in [each for each in self.lanes.values() if isinstance(each, Lane)]:
            if self._was_at_limit(lane) and lane.open < self.turn_limit(lane):
                self._touched[lane] = None
            elif self._is_at_limit_anew(lane):
                self._unlist(lane)
        if self.loaded < self.capacity:
            self._touched.update(dict.fromkeys(self.starved))
        self.is_anew = self.wants_wake

    def _was_at_limit(self, lane: Lane) -> bool:
        """Whether a lane waited in no list because as much of it was open as might be, in this life or another."""
        return lane.listed is None and lane.open > 0 and lane.is_able and lane.key not in self.quarantined

    def _is_at_limit_anew(self, lane: Lane) -> bool:
        """Whether a lane waits where it could in a life with a wider limit, and its owner works on as much as may be.

        So it waits for room or memory, or for others who hold its unit. A lane that stands elsewhere was forged.
        """
        if lane.listed is None or not lane.open or lane.open < self.turn_limit(lane) or lane.key in self.quarantined:
            return False
        owner = self.owner_of(lane)
        if owner is None or lane.holder is not owner:
            return False
        if lane.listed is self.draining:
            return self.holder_elsewhere(lane, owner) is not None
        return lane.listed is owner.ready or lane.listed is self.starved

    @property
    def wants_wake(self) -> bool:
        """Whether something may go out that only `wake` hands out. Between two calls: if limits are wider than before.

        That is after another life with narrower ones.
        """
        return bool(self._touched)

    @property
    def is_due_anew(self) -> bool:
        """Whether something may go out because a restart has made it possible, and nothing has woken the window."""
        return self.is_anew and self.wants_wake

    # queries

    @property
    def spills(self) -> bool:
        """Whether the payload of what has to wait may be dropped."""
        return self.loaded_per_key < _NEVER_REACHED

    @property
    def free_slots(self) -> int:
        """How many messages may be offered now."""
        return max(0, min(self.memory_left, self.max_tracked - self.cursor.outstanding))

    @property
    def memory_left(self) -> int:
        """How many messages may be offered now as far as ``capacity`` goes; negative while one stands beyond it.

        While `is_due_anew` what is spilled counts as what is loaded: `wake` may load it before anything is offered.
        """
        taken = self.cursor.outstanding + len(self.beside) if self.is_due_anew else self.loaded
        return self.capacity - taken

    def turn_limit(self, lane: Lane) -> int:  # noqa: ARG002  # where keys have limits of their own, it counts
        """With how many open deliveries a lane waits for the end of one before it has a turn."""
        return self.per_key

    def most_of(self, lane: Lane) -> int:
        """How many deliveries of a lane may be open."""
        return self.turn_limit(lane)

    def full_error(self) -> WindowFullError:
        """Return what to raise for more messages than there are free slots: the limit that leaves least room."""
        by_memory = self.memory_left <= self.max_tracked - self.cursor.outstanding
        return WindowFullError(self.capacity if by_memory else self.max_tracked + len(self.beside))

    def check_offer(self, offset: int) -> None:
        """Raise what `offer` would raise for this offset."""
        cursor = self.cursor
        if type(offset) is not int or (cursor.last is not None and offset <= cursor.last):
            raise OffsetOrderError(offset, cursor.last)
        check_offset("offset", offset)
        if self.memory_left <= 0:
            raise WindowFullError(self.capacity)
        if cursor.outstanding >= self.max_tracked:
            raise WindowFullError(self.max_tracked + len(self.beside))

    def check_key(self, key: bytes | None) -> None:
        """Raise what `offer` would raise because of the key; nothing where keys have no rules."""

    def find(self, offset: int) -> Entry | None:
        """The outstanding message of that offset, or None. O(log n)."""
        cell = self.cursor.find(offset)
        return cell if isinstance(cell, Entry) else None

    def outstanding(self) -> list[Entry]:
        """Everything outstanding, in offset order. O(n)."""
        return [cell for cell in self.cursor if isinstance(cell, Entry)]

    @property
    def beside(self) -> Mapping[int, Cell]:
        """What has come back beside the log, by offset. The cursor's count of what is outstanding is without it."""
        beside: Mapping[int, Cell] = getattr(self.cursor, "beside", _NOTHING)
        return beside

    def of_log(self) -> list[Entry]:
        """Everything outstanding that has not come back beside the log, in offset order. O(n)."""
        return self._without_beside(self.cursor)

    def older_than(self, offset: int) -> list[Entry]:
        """Everything of the log that is outstanding below an offset, in offset order. O(result)."""
        return self._without_beside(takewhile(lambda cell: cell.offset < offset, self.cursor))

    def _without_beside(self, cells: Iterable[Cell]) -> list[Entry]:
        beside = self.beside
        return [cell for cell in cells if isinstance(cell, Entry) and cell.offset not in beside]

    def owner_of(self, lane: Lane) -> Consumer | None:
        """Who would get the next message of a lane: for a keyless one, whoever has most room; O(consumers) then."""
        if lane.key is None:
            able = [consumer for consumer in self.consumers.values() if consumer.keyless and consumer.free > 0]
            return max(able, key=_room_of, default=None)
        return lane.owner if lane.version == self._version else self.owner_named(lane.key)

    def owner_named(self, key: bytes) -> Consumer | None:
        """The connected consumer that a key belongs to now, or None."""
        name = self._owners.owner(key)
        return None if name is None else self.consumers.get(name)

    @property
    def gate(self) -> DrainGate:
        """What is asked before a lane with a key may go on."""
        return self._gate

    @property
    def kept_back(self) -> WorkList | None:
        """Lanes that a gate keeps back though nobody holds anything of their drain unit; None without such gates."""
        return self._gate.kept_back

    def unit_of(self, key: bytes) -> bytes | int:
        """The drain unit that a key is in now: the key itself, a slot, or the first slot of a run."""
        return self._gate.unit_of(key)

    def holder_elsewhere(self, lane: Lane, owner: Consumer) -> Consumer | None:
        """Who besides its owner holds something that the lane has to wait for, or None. O(holders of its unit)."""
        return self._gate.holder_besides(lane, owner)

    def awaited(self, lane: Lane) -> list[Entry]:
        """The open deliveries that a draining lane waits for, in offset order. O(deliveries of its unit)."""
        return self._gate.open_besides(lane, self.owner_of(lane))

    @property
    def is_subscription_full(self) -> bool:
        """Whether as much is open, at all consumers together, as may be; False where that has no limit."""
        return False

    def closed_group(self, lane: Lane) -> "Scope | None":  # noqa: ARG002  # where there are groups, it counts
        """The group of a lane that has a key, if that is closed; None: there are none."""
        return None

    def can_serve(self, consumer: Consumer) -> bool:
        """Whether something that is ready may go to a consumer, if that has room."""
        return bool(consumer.ready or (consumer.keyless and self.shared))

    def is_held(self, entry: Entry) -> bool:  # noqa: ARG002  # for windows with a budget
        """Whether a message has to wait for what the whole subscription waits for."""
        return False

    def waiting_lanes(self) -> list[Lane]:
        """Lanes of all work lists, longest waiting first; made for the answer where there is none. O(n log n)."""
        return [self.lane_of(each) if isinstance(each, Entry) else each for each in self._all_waiting()]

    def lane_of(self, entry: Entry) -> Lane:
        """The message's lane; one that is made for the answer if it is alone."""
        return entry.lane if entry.lane.head is not None else self._lane_for(entry)

    # where a lane is

    def new_lane(self, key: bytes | None) -> Lane:
        """Return a lane that nothing is in yet; raise what `check_key` raises."""
        return Lane(key)

    def _all_waiting(self) -> list[Lane | Entry]:
        """What stands in all work lists, longest waiting first. O(n log n)."""
        listed = chain.from_iterable(work_list.items() for work_list in self._work_lists())
        placed = [(place_of(waiting, number), waiting) for waiting, number in listed]
        return [waiting for _, waiting in sorted(placed, key=_first)]

    def _work_lists(self) -> list[WorkList | ReadyList]:
        """Every list that a lane can wait in, but empty ready lists; a lane stands in one at most. O(consumers)."""
        # asked for its length: a list may be false while nothing in it can be served
        ready = [consumer.ready for consumer in self.consumers.values() if len(consumer.ready) > 0]
        kept_back = self._gate.kept_back
        lists: list[WorkList | ReadyList] = [
            self.shared,
            self.ownerless,
            self.draining,
            self.starved,
            self._orphaned,
            *ready,
        ]
        return lists if kept_back is None else [*lists, kept_back]

    def _is_all_open(self) -> bool:
        """Whether everything outstanding is open, so that no lane waits for anything."""
        return self.cursor.outstanding + len(self.beside) == self.loaded - self.waiting

    def _follow(self) -> None:
        self._version += 1
        if self._counts is not None:
            self._counts.follow(self._version)

    def _still_drains(self, lane: Lane) -> bool:
        """Whether a lane that has a key has an owner, and somebody else holds something of its unit."""
        owner = self._owner_now(lane)
        return owner is not None and self._gate.drains(lane, owner)

    def _keep(self, lane: Lane, owner: Consumer) -> None:
        """Put a lane that the gate keeps into the list of what it waits for."""
        kept_back = self._gate.kept_back
        self._list(lane, self.draining if kept_back is None or self._gate.drains(lane, owner) else kept_back)

    def _owner_now(self, lane: Lane) -> Consumer | None:
        """As `owner_of`, and remembered: for changes, never for queries."""
        if lane.key is None:
            return self._rooms.roomiest()
        return lane.owner if lane.version == self._version else self._ask_owner(lane, lane.key)

    def _ask_owner(self, lane: Lane, key: bytes) -> Consumer | None:
        lane.version = self._version
        if self._counts is not None:
            self._counts.place(lane, key)
        name = self._owners.owner(key)
        owner = lane.owner = None if name is None else self.consumers.get(name)
        return owner

    def _lane_of(self, entry: Entry) -> Lane:
        """The message's lane; one that was alone gets its own now."""
        if entry.lane.head is None and entry.key is not None:
            entry.lane = self.lanes[entry.key] = self._lane_for(entry)
        return entry.lane

    def _lane_for(self, entry: Entry) -> Lane:
        """Make the lane of a message that is alone. Changes nothing."""
        lane, holder = Lane(entry.key), entry.lane.holder
        lane.head = lane.tail = entry
        lane.loaded = 1
        if entry.state == IN_FLIGHT:
            lane.holder = holder
            lane.open = 1
            return lane
        lane.fresh = lane.sign = entry
        lane.listed = holder.ready  # type: ignore[union-attr]  # for whom it is ready is connected
        if entry.state == SPILLED:
            lane.spilled = entry
            lane.loaded = 0
        return lane

    def returned_of(self, key: bytes) -> list[Entry]:
        """The messages of a key that were delivered and are not open now, oldest first. O(result)."""
        lane = self.lanes.get(key)
        return list(lane.back or ()) if isinstance(lane, Lane) else []  # what is alone has not come back

    def touch_key(self, key: bytes) -> None:
        """Look at the lane of a key in the next `wake`: its gate has opened or closed."""
        lane = self.lanes.get(key)
        if isinstance(lane, Entry) and lane.state != IN_FLIGHT:
            lane = self._lane_of(lane)
        if isinstance(lane, Lane):  # else nothing of it waits
            self._touched[lane] = None

    def _forget(self, lane: Lane) -> None:
        self._unlist(lane)
        self._touched.pop(lane, None)
        if lane.key is not None:
            del self.lanes[lane.key]

    def _list(self, lane: Lane, where: WorkList | ReadyList) -> None:
        if lane.listed is where:
            return
        if lane.listed is not None:
            self._unlist(lane)
        if self._counts is not None and where is self.draining:
            self._counts.wait(lane)
        self._sequence += 1
        where[lane] = self._sequence
        lane.listed = where

    def _unlist(self, lane: Lane) -> None:
        if lane.listed is None:
            return
        if self._counts is not None and lane.listed is self.draining:
            self._counts.stop_waiting(lane)
        if lane.sign is None:
            del lane.listed[lane]
        else:
            del lane.listed[lane.sign]  # type: ignore[arg-type]  # the list is a ready list
            lane.sign = None
        lane.listed = None

    def _at_limit(self) -> dict[Lane, None]:
        """Lanes that wait in no list because as much of them is in flight as may be.

        O(open deliveries), O(1) if everything is open.
        """
        if self._is_all_open():
            return {}
        opened = chain.from_iterable(consumer.open.values() for consumer in self.consumers.values())
        lanes = {entry.lane: None for entry in opened if entry.lane.head is not None}
        return {lane: None for lane in lanes if lane.listed is None}

    # what a message does

    def _open(self, lane: Lane, entry: Entry, consumer: Consumer, granted: list[Entry]) -> None:
        if lane.listed is not None:
            self._unlist(lane)
        if lane.back:
            lane.back.pop(0)
        else:
            lane.fresh = live_from(entry.after) if lane.gaps else entry.after
        entry.state = IN_FLIGHT
        entry.attempt = self._next_attempt(entry) if self.first_attempt else entry.attempt + 1
        lane.holder = consumer
        lane.open += 1
        self.waiting -= 1
        consumer.open[entry.offset] = entry
        consumer.free -= 1
        if not consumer.noted:
            self._rooms.note(consumer)
        if self._counts is not None:
            self._counts.opened(entry)
        granted.append(entry)

    def _next_attempt(self, entry: Entry) -> int:
        return max(entry.attempt, self.first_attempt) + 1

    def _close(self, entry: Entry) -> None:
        lane = entry.lane
        consumer: Consumer = lane.holder  # type: ignore[assignment]  # whatever is in flight has one
        if self._counts is not None:
            self._counts.closed(entry)
        del consumer.open[entry.offset]
        self._free(consumer)
        lane.open -= 1
        if not lane.open:
            lane.holder = None
        self.waiting += 1

    def _spill(self, lane: Lane, entry: Entry) -> None:
        entry.state = SPILLED
        entry.item = None
        if lane.spilled is None:
            lane.spilled = entry

    def _spill_if_crowded(self, lane: Lane, entry: Entry, granted: list[Entry]) -> None:
        """Spill a message that has to wait while waiting ones, itself aside, take half the window."""
        if entry.state == QUEUED and 2 * (self.waiting - 1) >= self.capacity and self.spills:
            lane.loaded -= 1
            self.loaded -= 1
            self.waiting -= 1
            self._spill(lane, entry)
            granted.append(entry)

    def _load(self, lane: Lane, entry: Entry, consumer: Consumer | None, granted: list[Entry]) -> None:
        after = entry.after
        lane.spilled = after if after is None or after.state == SPILLED else spilled_from(after)
        lane.loaded += 1
        self.loaded += 1
        self.waiting += 1
        entry.state = LOADING
        if consumer is not None:
            lane.taker = consumer
            consumer.reserved[entry.offset] = entry
            consumer.free -= 1
            self._rooms.note(consumer)
        granted.append(entry)

    def _unreserve(self, consumer: Consumer, entry: Entry) -> None:
        del consumer.reserved[entry.offset]
        entry.lane.taker = None
        self._free(consumer)

    def _free(self, consumer: Consumer) -> None:
        consumer.free += 1
        self._freed[consumer] = None
        self._rooms.note(consumer)
        if not (consumer.free or consumer.limit):
            self.emptied.append(consumer)


def _room_of(consumer: Consumer) -> tuple[int, int]:
    return consumer.free, -consumer.order


def _first(placed: tuple[int, Lane | Entry]) -> int:
    return placed[0]
