"""What the state of a history holds: messages, lanes, consumers, places of keys, and where each was seen."""

from collections import OrderedDict
from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import Final, Generic, TypeAlias, TypeVar

from keyshared.testing.claims import Claims
from keyshared.testing.history import Event, Held, HoldReason

__all__ = ["SLACK", "ByOffset", "Changes", "Holders", "Lane", "LaneId", "Member", "Message", "Place", "Places", "Seen"]

LaneId: TypeAlias = bytes | int
SLACK: Final = 16  # a list with dead entries may be this much longer than twice its living ones
_REMEMBERED_LEAVERS: Final = 1_000
_DECIDED_OUTSIDE: Final = frozenset({HoldReason.BLOCKED, HoldReason.OTHER})
_Value = TypeVar("_Value")


class Seen:
    """An event, its position in the history, and the time as it is known there."""

    __slots__ = ("event", "now", "position")  # every row makes one: a named tuple costs twice as much

    def __init__(self, position: int, event: Event, now: int | None) -> None:
        self.position = position
        self.event = event
        self.now = now


class Place:
    """Where a key belongs, as far as it is known."""

    __slots__ = ("consumer", "last", "owned", "owner")

    def __init__(self) -> None:
        self.owned: Seen | None = None  # the latest `Owned`
        self.owner: str | None = None  # the owner by that
        self.last: Seen | None = None  # its last delivery
        self.consumer: str | None = None  # to whom that was


class Lane:
    """The outstanding messages of one key, or one message that has none."""

    __slots__ = (
        *("doubt", "holders", "id", "listed", "most_open", "newest", "open", "place", "size"),
        *("turn", "turn_limit", "waits_since"),
    )

    def __init__(self, id: LaneId, claims: Claims, place: Place | None) -> None:  # noqa: A002  # the field's name
        self.id = id
        self.place = place  # None: nothing is known of its key, or it has none
        self.most_open = most_open(claims, id)  # None: any number
        self.turn_limit = 1 if claims.batches else self.most_open  # at which it waits for its next turn; or None
        self.size = 0  # outstanding messages that are judged
        self.open = 0
        self.doubt = 0  # messages that may be open or not, judged or not
        self.holders: Holders = {}  # the open messages, by consumer
        self.listed: list[int] = []  # heap of offsets that wait, and some that no longer belong here
        self.turn = 0  # how many events there were when it was last delivered from, or got below its limit
        self.waits_since = 0  # how many there were when a message began to wait in it where none had waited
        self.newest: Message | None = None  # of what was published, done or not


class Message:
    """An outstanding message: open (it has a consumer), lapsed (its delivery may have expired), or waiting."""

    __slots__ = (
        *("asked", "attempt", "came_back", "consumer", "delivered", "deliveries", "failed", "had", "held", "key"),
        *("lane", "lapsed", "listed", "logged", "named", "noted", "offset", "previous", "published"),
        *("redriven", "repeated", "revoked", "since"),
    )

    def __init__(self, offset: int, key: bytes | None, lane: Lane, seen: Seen, previous: int | None) -> None:
        self.offset = offset
        self.key = key
        self.lane = lane
        self.published = seen  # or its first delivery, or what redrove it
        self.logged = True  # whether the history told of its publication
        self.previous = previous  # what was published before it, if anything
        self.since = seen  # what made it wait, or opened it
        self.consumer: str | None = None  # of its open delivery
        self.lapsed: str | None = None  # the consumer of a delivery that may have expired, or not
        self.delivered: Seen | None = None  # its last delivery
        self.attempt: int | None = None  # the number of that
        self.deliveries = 0
        self.had: dict[str, int] = {}  # the last number that each consumer had
        self.failed = 0  # deliveries that were nacked or have expired, since an operator last decided
        self.came_back = False
        self.held: Seen | None = None
        self.asked: Seen | None = None  # what asked that it shall not be delivered before some time
        self.named: Seen | None = None  # the last failure that named a reason
        self.noted = False  # an ack came that did not count at once
        self.redriven = False  # it holds its key, and not the cursor
        self.repeated = False  # it was done, and the log was rewound: it holds neither
        self.revoked = False  # its delivery is from before the log was rewound: it need not be answered for
        self.listed = False

    @property
    def waits(self) -> bool:
        """Whether it is surely not open."""
        return self.consumer is None and self.lapsed is None

    @property
    def was_delivered(self) -> bool:
        """Whether it has been at a consumer, or has come back from the dead-letter store."""
        return self.delivered is not None or self.redriven

    @property
    def hold(self) -> HoldReason | None:
        """Why it is held back, if it is."""
        event = None if self.held is None else self.held.event
        return event.reason if isinstance(event, Held) else None

    @property
    def is_kept_back(self) -> bool:
        """Whether it is held until an operator decides."""
        return self.hold in _DECIDED_OUTSIDE

    def is_of(self, holder: str | None, consumer: str, attempt: int | None) -> bool:
        """Whether an answer names its last delivery, if that is at this holder."""
        return holder == consumer and (attempt == self.attempt or attempt is None or self.attempt is None)

    def is_current(self, consumer: str, attempt: int | None) -> bool:
        """Whether an answer names its open delivery."""
        return self.is_of(self.consumer, consumer, attempt)

    def was_at(self, consumer: str, attempt: int | None) -> bool:
        """Whether an answer names a delivery of it that there was."""
        number = self.had.get(consumer)
        return number is not None and (attempt is None or attempt <= number)


class Member:
    """A connected consumer."""

    __slots__ = ("connected", "limit", "limited", "name", "room_since", "suspended")

    def __init__(self, name: str, limit: int | None, seen: Seen) -> None:
        self.name = name
        self.limit = limit  # how many deliveries it may have open; None: any number
        self.connected = seen
        self.limited = seen  # the latest event that told the limit
        self.suspended: Seen | None = None
        self.room_since: Seen | None = None


Holders: TypeAlias = dict[str, dict[int, Message]]
"""The open messages of each consumer."""


class ByOffset(Generic[_Value]):
    """Values by offset, of which the lowest is wanted: a dict, and a heap of which a part is dead."""

    def __init__(self) -> None:
        self.items: dict[int, _Value] = {}
        self._heap: list[int] = []

    def add(self, offset: int, value: _Value) -> None:
        """Set the value of an offset."""
        self.items[offset] = value
        heappush(self._heap, offset)
        if len(self._heap) > 2 * len(self.items) + SLACK:
            self._heap = list(self.items)
            heapify(self._heap)

    def first(self, is_wanted: Callable[[_Value], bool]) -> _Value | None:
        """Return the value of the lowest offset; what is not wanted now never will be."""
        while self._heap:
            value = self.items.get(self._heap[0])
            if value is not None and is_wanted(value):
                return value
            heappop(self._heap)
        return None

    def pop_below(self, offset: int) -> list[tuple[int, _Value]]:
        """Remove all lower offsets, and return them with their values."""
        removed: list[tuple[int, _Value]] = []
        while self._heap and self._heap[0] < offset:
            lowest = heappop(self._heap)
            if lowest in self.items:
                removed.append((lowest, self.items.pop(lowest)))
        return removed


class Places:
    """Where keys belong. Of keys without outstanding messages only the latest ones are remembered."""

    def __init__(self, remembered: int) -> None:
        self.forgotten = 0
        self._remembered = remembered
        self._places: dict[bytes, Place] = {}
        self._idle: OrderedDict[bytes, None] = OrderedDict()

    def get(self, key: bytes) -> Place | None:
        """Return what is known of a key."""
        return self._places.get(key)

    def note(self, key: bytes, *, is_idle: bool) -> Place:
        """Return the place of a key, to write something down about it."""
        place = self._places.get(key)
        if place is None:
            place = self._places[key] = Place()
            if is_idle:
                self.rest(key)
        return place

    def wake(self, key: bytes) -> Place | None:
        """Note that a key has an outstanding message, and return what is known of it."""
        place = self._places.get(key)
        if place is not None:
            self._idle.pop(key, None)
        return place

    def rest(self, key: bytes) -> None:
        """Note that a known key has no outstanding message any more."""
        self._idle[key] = None
        if len(self._idle) > self._remembered:
            oldest, _ = self._idle.popitem(last=False)
            del self._places[oldest]
            self.forgotten += 1


class Changes:
    """Joins, leaves and changes of the placement: what may have moved keys."""

    def __init__(self) -> None:
        self.last: Seen | None = None
        self.by_hand: Seen | None = None
        self.leavers: OrderedDict[str, Seen] = OrderedDict()
        self.latest_join_of_a_leaver = -1
        self.block: dict[tuple[type[Event], str], Seen] = {}  # the latest ones, which follow each other
        self.in_block = False  # whether only `Owned` and ends of deliveries have followed them
        self.block_is_told = False  # whether an `Owned` has followed them

    def join(self, name: str, before: Member | None, seen: Seen) -> None:
        """Note that a consumer is connected, with its earlier session, if there was one."""
        self._end_session(before)
        self.leavers.pop(name, None)
        self.note(name, seen)

    def leave(self, name: str, member: Member | None, seen: Seen) -> None:
        """Note that a consumer is gone."""
        self._end_session(member)
        self.leavers[name] = seen
        self.leavers.move_to_end(name)
        if len(self.leavers) > _REMEMBERED_LEAVERS:
            self.leavers.popitem(last=False)
        self.note(name, seen)

    def note(self, name: str, seen: Seen) -> None:
        """Note a change; one of the placement has no name."""
        self.last = seen
        if self.block_is_told or not self.in_block:
            self.block.clear()
        self.in_block, self.block_is_told = True, False
        self.block[type(seen.event), name] = seen

    def _end_session(self, member: Member | None) -> None:
        if member is not None:
            self.latest_join_of_a_leaver = max(self.latest_join_of_a_leaver, member.connected.position)


def most_open(claims: Claims, lane: LaneId) -> int | None:
    """Return how many deliveries of a lane may be open; None for any number."""
    if claims.limit_of is None or not isinstance(lane, bytes):
        return claims.per_key
    limit = claims.limit_of(lane)
    return limit if claims.per_key is None else min(limit, claims.per_key)
