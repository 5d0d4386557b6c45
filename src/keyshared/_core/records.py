"""The records of the core: a message, the lane of its key, a place to wait in, a consumer.

A *lane* is the outstanding messages of one key in offset order. It exists from the first offer to the last settlement
of its key, so a newer message can never go out past an older one that came back: the older one is still in front of it.

A message goes out only while every older message of its lane is open. So the messages that were delivered at least once
are the front part of the lane. ``fresh`` points at the first message behind that part; ``back`` lists, in offset order,
those of the front part that are not open. The next message of a lane is ``back[0]``, or ``fresh`` if nothing came back:
finding it needs no scan, however long the lane is.

Only the window changes these records.
"""

from bisect import bisect_left, insort
from collections import OrderedDict
from collections.abc import ItemsView
from enum import IntEnum, StrEnum
from operator import attrgetter
from typing import Final

from keyshared._core.quotas import Quota
from keyshared.cursor import SETTLED, Cell
from keyshared.effects import BlockReason
from keyshared.glob import KeyFilter
from keyshared.placement.range_map import Weight

__all__ = [
    "BLOCKED",
    "DEAD_LETTERING",
    "DELAYED",
    "IN_FLIGHT",
    "LOADING",
    "NEXT_STATE",
    "QUEUED",
    "SETTLED",
    "SPILLED",
    "Consumer",
    "ConsumerState",
    "Entry",
    "Lane",
    "Note",
    "Place",
    "Rule",
    "State",
    "Transition",
    "holds_slot",
    "next_spilled",
]


class State(IntEnum):
    """State of an outstanding message. The hot paths compare the plain ints below: an enum lookup costs too much."""

    SETTLED = SETTLED
    QUEUED = 1  # in its lane, payload at hand
    SPILLED = 2  # in its lane, payload dropped
    LOADING = 3  # the payload is being read again; its slot is reserved
    IN_FLIGHT = 4  # open: a consumer has it
    DELAYED = 5  # waits for its deadline
    DEAD_LETTERING = 6  # its dead letter is being written
    BLOCKED = 7  # waits for ``unblock`` or ``park``


QUEUED: Final = 1
SPILLED: Final = 2
LOADING: Final = 3
IN_FLIGHT: Final = 4
DELAYED: Final = 5
DEAD_LETTERING: Final = 6
BLOCKED: Final = 7


class Transition(IntEnum):
    """An event in the life of an outstanding message."""

    SPILL = 0
    LOAD = 1
    LOADED = 2
    DELIVER = 3
    PUT_BACK = 4
    DELAY = 5
    ARCHIVE = 6
    BLOCK = 7
    SETTLE = 8


NEXT_STATE: Final[dict[tuple[State, Transition], State]] = {
    (State.QUEUED, Transition.SPILL): State.SPILLED,
    (State.QUEUED, Transition.DELAY): State.DELAYED,
    (State.QUEUED, Transition.DELIVER): State.IN_FLIGHT,
    (State.QUEUED, Transition.ARCHIVE): State.DEAD_LETTERING,
    (State.QUEUED, Transition.SETTLE): State.SETTLED,
    (State.SPILLED, Transition.LOAD): State.LOADING,
    (State.SPILLED, Transition.SETTLE): State.SETTLED,
    (State.LOADING, Transition.LOADED): State.QUEUED,
    (State.LOADING, Transition.DELAY): State.DELAYED,
    (State.LOADING, Transition.SETTLE): State.SETTLED,
    (State.IN_FLIGHT, Transition.PUT_BACK): State.QUEUED,
    (State.IN_FLIGHT, Transition.DELAY): State.DELAYED,
    (State.IN_FLIGHT, Transition.ARCHIVE): State.DEAD_LETTERING,
    (State.IN_FLIGHT, Transition.BLOCK): State.BLOCKED,
    (State.IN_FLIGHT, Transition.SETTLE): State.SETTLED,
    (State.DELAYED, Transition.PUT_BACK): State.QUEUED,
    (State.DELAYED, Transition.SETTLE): State.SETTLED,
    (State.DEAD_LETTERING, Transition.BLOCK): State.BLOCKED,
    (State.DEAD_LETTERING, Transition.SETTLE): State.SETTLED,
    (State.BLOCKED, Transition.PUT_BACK): State.QUEUED,
    (State.BLOCKED, Transition.SETTLE): State.SETTLED,
}
"""Every legal step; the documentation draws it and the tests compare the window with it.

A message that gives up its payload while it is delayed, blocked or dead-lettering keeps its state, see `Note.spilled`;
when it goes on, it is ``SPILLED`` instead of ``QUEUED``.
"""

_offset_of: Final = attrgetter("offset")


class Note:
    """The notes of a message after its first delivery has ended; nearly all messages have none.

    Attributes:
        ended: The last eight deliveries that ended, each as attempt and consumer.
        failures: How many deliveries failed.
        mark: The ending that counts once the open delivery ends, whatever ends it: `SettleReason.LATE_ACK` after a late
            ack, `SkipReason.GONE` after ``gone``.
        postponed: Whether it waits because of ``release``, and not for a retry.
        reason: The reason of the last failure that named one.
        spilled: Whether its payload was dropped while it was delayed, blocked or dead-lettering.
        redriven: Whether it came back from the dead-letter store, so the cursor does not know it.
    """

    __slots__ = ("ended", "failures", "mark", "postponed", "reason", "redriven", "spilled")

    def __init__(self) -> None:
        self.ended: tuple[tuple[int, str], ...] = ()
        self.failures = 0
        self.mark: StrEnum | None = None
        self.postponed = False
        self.reason: str | None = None
        self.spilled = False
        self.redriven = False


class Entry(Cell):
    """One outstanding message.

    Attributes:
        lane: The lane of its key; a message without a key has a lane of its own.
        item: The passenger of the host, None while the payload is not at hand.
        attempt: Number of its last delivery, 0 before the first.
        deadline: When its ack timeout, its retry or its first delivery is due; None if nothing is.
        note: See `Note`; None before its first delivery has ended.
        older: The message before it in its lane.
        newer: The message behind it in its lane.
    """

    __slots__ = ("attempt", "deadline", "item", "lane", "newer", "note", "older")

    def __init__(self, offset: int, item: object, lane: "Lane") -> None:
        self.offset = offset
        self.state = QUEUED
        self.item = item
        self.lane = lane
        self.attempt = 0
        self.deadline: int | None = None
        self.note: Note | None = None
        self.older: Entry | None = None
        self.newer: Entry | None = None

    @property
    def key(self) -> bytes | None:
        """Key of the message."""
        return self.lane.key

    @property
    def consumer(self) -> "Consumer | None":
        """The consumer that has it, or for which it is being loaded."""
        lane = self.lane
        if self.state == IN_FLIGHT:
            return lane.holder
        taker = lane.taker
        return taker if self.state == LOADING and taker is not None and self.offset in taker.reserved else None


def holds_slot(entry: Entry) -> bool:
    """Return whether the payload of a message takes a slot of the window."""
    state = entry.state
    return state != SPILLED and (state < DELAYED or entry.note is None or not entry.note.spilled)


def next_spilled(entry: Entry | None) -> Entry | None:
    """Return the oldest spilled message of a lane from one on: a message that was redriven is never spilled."""
    while entry is not None and entry.state != SPILLED:
        entry = entry.newer
    return entry


class Rule:
    """The rule of a key; made once when its lane begins, and shared by all keys that have the same.

    Attributes:
        limit: Open deliveries of the key.
        batch: Messages of a turn.
        latest: Whether a newer message takes the place of those that were never delivered.
        quotas: The group of the key and the subscription, both or none.
        turn: With so many open the lane has no further turn.
        loaded: Messages of the key whose payload is in memory.
    """

    __slots__ = ("batch", "latest", "limit", "loaded", "quotas", "turn")

    def __init__(
        self, limit: int, batch: int, loaded: int, quotas: "tuple[Quota[Consumer], ...]", *, latest: bool = False
    ) -> None:
        self.limit = limit
        self.batch = batch
        self.loaded = loaded
        self.latest = latest
        self.quotas = quotas
        self.turn = 1 if batch > 1 else limit


class Place:
    """Lanes that wait for one thing, oldest first, each with its number in the order of waiting over all places.

    A lane stands in one place at most, and knows which. ``reason`` is what `why_blocked` says of it.
    """

    __slots__ = ("lanes", "reason")

    def __init__(self, reason: BlockReason) -> None:
        self.reason = reason
        self.lanes: OrderedDict[Lane, int] = OrderedDict()

    def __len__(self) -> int:
        return len(self.lanes)

    def put(self, lane: "Lane", number: int) -> None:
        """Add a lane at the end."""
        self.lanes[lane] = number

    def drop(self, lane: "Lane") -> None:
        """Take a lane out."""
        del self.lanes[lane]

    def head(self) -> "Lane | None":
        """Return the lane whose turn it is."""
        return next(iter(self.lanes)) if self.lanes else None

    @property
    def has_turns(self) -> bool:
        """Whether a lane here may have a turn."""
        return bool(self.lanes)

    def took(self, lane: "Lane") -> None:
        """Take the lane out that `head` returned: it has its turn."""
        del self.lanes[lane]

    def end_turn(self) -> None:
        """End the turn that `took` began."""

    def items(self) -> "ItemsView[Lane, int]":
        """Return the lanes and their numbers."""
        return self.lanes.items()


class Lane:
    """The outstanding messages of one key, oldest first.

    Attributes:
        key: The key, None for the lane of a message without one.
        rule: Its limits.
        head: The oldest message.
        tail: The newest message.
        fresh: The oldest message that was never delivered.
        back: Messages that were delivered and are not open, in offset order; None or empty if there are none.
        spilled: The oldest of the spilled messages at its end; None if nothing is spilled there.
        open: How many are open, all of them at ``holder``.
        loaded: How many hold a slot of the window.
        holder: The consumer that has what is open.
        taker: The consumer for which a message of the lane is being loaded.
        owner: The consumer that the key belongs to, as of ``version`` of the window.
        place: Where the lane waits; None if it waits for something of its own.
        unit: The drain unit of the key, if that is larger than a key and was looked up.
    """

    __slots__ = (
        *("back", "fresh", "head", "holder", "key", "loaded", "open", "owner", "place", "rule", "spilled", "tail"),
        *("taker", "unit", "version"),
    )

    def __init__(self, key: bytes | None, rule: Rule) -> None:
        self.key = key
        self.rule = rule
        self.head: Entry | None = None
        self.tail: Entry | None = None
        self.fresh: Entry | None = None
        self.back: list[Entry] | None = None
        self.spilled: Entry | None = None
        self.open = 0
        self.loaded = 0
        self.holder: Consumer | None = None
        self.taker: Consumer | None = None
        self.owner: Consumer | None = None
        self.version = -1
        self.place: Place | None = None
        self.unit: int | None = None

    @property
    def next(self) -> Entry | None:
        """The message that goes out next."""
        return self.back[0] if self.back else self.fresh

    def append(self, entry: Entry) -> None:
        """Add a message that is newer than all others."""
        entry.older = tail = self.tail
        if tail is None:
            self.head = entry
        else:
            tail.newer = entry
        self.tail = entry
        if self.fresh is None:
            self.fresh = entry

    def insert(self, entry: Entry, before: Entry | None) -> None:
        """Add a message in front of another, or at the end; ``fresh`` and ``back`` are the caller's to set."""
        older = self.tail if before is None else before.older
        entry.older, entry.newer = older, before
        if older is None:
            self.head = entry
        else:
            older.newer = entry
        if before is None:
            self.tail = entry
        else:
            before.older = entry

    def take_back(self, entry: Entry) -> None:
        """Note that a message that was delivered is not open any more; it stands where it always stood."""
        if self.back:
            insort(self.back, entry, key=_offset_of)
        else:
            self.back = [entry]

    def unlink(self, entry: Entry) -> None:
        """Take a message out that is settled."""
        older, newer = entry.older, entry.newer
        if self.spilled is entry:
            self.spilled = next_spilled(newer)
        if self.fresh is entry:
            self.fresh = newer
        elif self.back:
            index = bisect_left(self.back, entry.offset, key=_offset_of)
            if index < len(self.back) and self.back[index] is entry:
                del self.back[index]
        if older is None:
            self.head = newer
        else:
            older.newer = newer
        if newer is None:
            self.tail = older
        else:
            newer.older = older

    def opened(self) -> list[Entry]:
        """Return what is open, oldest first. O(messages that were delivered)."""
        opened: list[Entry] = []
        each, fresh = self.head, self.fresh
        while each is not None and each is not fresh:
            if each.state == IN_FLIGHT:
                opened.append(each)
            each = each.newer
        return opened

    def was_delivered(self, entry: Entry) -> bool:
        """Return whether a message of this lane belongs to its front part."""
        return self.fresh is None or entry.offset < self.fresh.offset


class ConsumerState(StrEnum):
    """The state of a consumer: what it may do now."""

    ACTIVE = "active"  # owns keys, gets messages
    INACTIVE = "inactive"  # owns keys, gets nothing until it is back or its grace period is over
    DRAINING = "draining"  # owns nothing, finishes what it holds


class Consumer:
    """One session of a consumer.

    Attributes:
        name: Its name.
        order: Its place in the order of joining.
        limit: Open deliveries and reservations it may have now: its quota while it is active, else 0.
        free: ``limit`` less its open deliveries and reservations; negative after the limit was lowered below use.
        quota: The limit it asked for.
        keyless: Whether it may get messages without a key.
        open: Its open deliveries by offset.
        reserved: Messages that are being loaded for it, by offset.
        ready: Lanes whose next message can go to it once it has capacity.
        dirty: Whether `MostRoom` has yet to look at its capacity.
        state: What it may do now.
        accepts: Its key filter.
        weight: The weight it asked for; None if the placement decides.
        deadline: When its grace period or its drain is over.
    """

    __slots__ = (
        *("accepts", "deadline", "dirty", "free", "keyless", "limit", "name", "open", "order", "quota", "ready"),
        *("reserved", "state", "weight"),
    )

    def __init__(
        self, name: str, order: int, limit: int, ready: Place, accepts: KeyFilter, weight: Weight | None
    ) -> None:
        self.name = name
        self.order = order
        self.limit = self.free = self.quota = limit
        self.ready = ready
        self.accepts = accepts
        self.weight = weight
        self.keyless = accepts.takes_keyless
        self.open: dict[int, Entry] = {}
        self.reserved: dict[int, Entry] = {}
        self.dirty = False
        self.state = ConsumerState.ACTIVE
        self.deadline: int | None = None

    def __repr__(self) -> str:
        return f"<Consumer {self.name!r} {len(self.open)}/{self.limit}>"
