"""One outstanding message, the lane it waits in, and the consumer that may hold it.

A *lane* is the outstanding messages of one key in offset order. It exists from the first offer to the last settlement
of its key, so a newer message can never be handed out past an older one that was put back: whatever happens, the older
one is still in front of it.

A message goes out only while every older message of its lane is open. So the messages that were ever delivered are
always the front part of the lane, at most one per slot of the per-key limit; what has come back beside the log stands
there too, unless something older was never delivered. ``fresh`` points at the first message
behind that part; ``back`` lists, in offset order, those within it that are not open (put back, waiting for a retry,
dead-lettering, blocked). The next message of a lane is therefore ``back[0]``, or ``fresh`` when nothing came back: no
scan, however long the lane is.

These are plain records. `InFlightWindow` is the only one that changes them.
"""

from bisect import bisect_left, insort
from collections import OrderedDict
from collections.abc import MutableMapping
from enum import IntEnum
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, final

from keyshared.cursor import SETTLED, Cell

if TYPE_CHECKING:  # a scope remembers consumers
    from keyshared._window.served import Scope

__all__ = [
    "BLOCKED",
    "DEAD_LETTERING",
    "DELAYED",
    "IN_FLIGHT",
    "LEGAL_MOVES",
    "LISTINGS",
    "LOADING",
    "NEXT_STATE",
    "QUEUED",
    "SETTLED",
    "SLACK",
    "SPILLED",
    "Alone",
    "Consumer",
    "Entry",
    "KeyRule",
    "Lane",
    "ReadyList",
    "State",
    "Transition",
    "WorkList",
    "live_from",
    "place_of",
    "spilled_from",
]


class State(IntEnum):
    """Where an outstanding message is. Plain ints at run time: an Enum lookup costs a tenth of a message's life."""

    SETTLED = SETTLED
    QUEUED = 1  # in its lane, payload at hand
    SPILLED = 2  # in its lane, payload dropped
    LOADING = 3  # the payload is being read again; its slot is reserved
    IN_FLIGHT = 4  # open: at a consumer
    DELAYED = 5  # until its deadline
    DEAD_LETTERING = 6  # its dead letter is being written
    BLOCKED = 7  # until somebody unblocks or parks it


# The states that the hot paths compare with; `SETTLED` is the cursor's.
QUEUED: Final = int(State.QUEUED)
SPILLED: Final = int(State.SPILLED)
LOADING: Final = int(State.LOADING)
IN_FLIGHT: Final = int(State.IN_FLIGHT)
DELAYED: Final = int(State.DELAYED)
DEAD_LETTERING: Final = int(State.DEAD_LETTERING)
BLOCKED: Final = int(State.BLOCKED)


class Transition(IntEnum):
    """What can happen to an outstanding message."""

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
"""Every legal step; the tests draw it, brute-force it and compare the window with it."""

_MOVES: Final = (Transition.PUT_BACK, Transition.DELAY, Transition.ARCHIVE, Transition.BLOCK)
LEGAL_MOVES: Final = frozenset(
    (before, after)
    for (before, change), after in NEXT_STATE.items()
    if change in _MOVES and before not in {State.QUEUED, State.LOADING}  # of what never went out the window decides
)
"""The steps that ``InFlightWindow.move`` may take."""

SLACK: Final = 64
"""Of this, and of what was outstanding in a lane at its last sweep, half as many settled messages may stay in it."""

_offset_of: Final = attrgetter("offset")


@final
class Entry(Cell):
    """One outstanding message: the handle that an `InFlightWindow` gives out and takes back.

    Attributes:
        offset: Its offset.
        prev: The offset that was offered before it, or None.
        key: Its key, or None.
        item: The passenger given with it; None once it is spilled or settled.
        state: One of `State`, as a plain int.
        lane: The lane it waits in, or `Consumer.alone`.
        after: The next newer message of the lane, which may be settled.
        attempt: Deliveries so far.
        deadline: For the embedder's timer. What was never delivered waits while it has one.
    """

    __slots__ = ("after", "attempt", "deadline", "item", "key", "lane")

    def __init__(self, offset: int, key: bytes | None, item: Any, lane: "Lane") -> None:  # noqa: ANN401  # its owner knows
        # Cell has no constructor: one call less on the path that every message takes.
        self.offset = offset
        self.state = QUEUED
        self.key = key
        self.item = item
        self.attempt = 0
        self.lane = lane
        self.after: Entry | None = None
        self.deadline: int | None = None

    @property
    def consumer(self) -> "Consumer | None":
        """Who holds it, or has room for it while it is being loaded; of what is in flight that is its lane's holder."""
        lane = self.lane
        if self.state == IN_FLIGHT:
            return lane.holder
        is_awaited = self.state == LOADING and lane.taker is not None and self.offset in lane.taker.reserved
        return lane.taker if is_awaited else None

    def __repr__(self) -> str:
        return f"<Entry {self.offset} key={self.key!r} {State(self.state).name}>"


class KeyRule(NamedTuple):
    """What the rules have answered for a key, when its lane began.

    Attributes:
        most_open: How many of its deliveries may be open; more than any key can have where no rule says that.
        latest_only: Whether a newer message takes the place of one that was never delivered.
    """

    most_open: int = 1 << 63
    latest_only: bool = False


class Lane:
    """The outstanding messages of one key, oldest first.

    Each message knows the next newer one, not the older one: a link less for each. So what is settled behind the head
    stays linked, and is passed over, until the head comes by or a sweep takes all of it out.

    Attributes:
        key: The key; None for the one-message lane of a keyless message.
        head: The oldest message.
        tail: The newest message, or a settled one behind it.
        gaps: How many settled messages may still be linked, at most; there are none before the head.
        swept: How many outstanding ones there were at the last sweep.
        fresh: The oldest message that was never delivered.
        back: Delivered messages that are not open now, oldest first; None or empty when there are none.
        spilled: The oldest spilled message; everything newer is spilled too, but for what has come back beside the log.
        open: How many are in flight.
        loaded: How many have, or will have, their payload in memory.
        holder: The consumer of the open ones.
        taker: The consumer that has room for the next one once that is loaded.
        owner: The consumer that the placement names, as of ``version``.
        group: The group that it is in; only set where lanes are served by groups.
        rule: What the rules have answered for its key; only set where lanes have rules.
        unit: The drain unit that it is in, as of ``version``; only set where a unit is larger than a key.
        version: Number of the placement that ``owner`` was read from.
        listed: The work list that this lane stands in, if any.
        sign: The message that stands there for the lane, because it stood there before when it was alone.
    """

    __slots__ = (
        "back", "fresh", "gaps", "group", "head", "holder", "key", "listed", "loaded", "open", "owner", "rule", "sign",
        "spilled", "swept", "tail", "taker", "unit", "version",
    )  # fmt: skip

    def __init__(self, key: bytes | None) -> None:
        self.key = key
        self.head: Entry | None = None
        self.tail: Entry | None = None
        self.fresh: Entry | None = None
        self.back: list[Entry] | None = None
        self.spilled: Entry | None = None
        self.open = 0
        self.loaded = 0
        self.gaps = 0
        self.swept = 0
        self.holder: Consumer | None = None
        self.taker: Consumer | None = None
        self.owner: Consumer | None = None
        self.group: Scope  # not set here, as the rule and the unit: most windows never need them
        self.rule: KeyRule
        self.unit: int
        self.version = -1
        self.listed: WorkList | ReadyList | None = None
        self.sign: Entry | None = None

    @property
    def candidate(self) -> Entry | None:
        """The oldest message that is not open: the only one that may go out next."""
        return self.back[0] if self.back else self.fresh

    @property
    def is_able(self) -> bool:
        """Whether the next message waits for nothing of its own: neither for an instant nor for an answer."""
        entry = self.candidate
        return entry is not None and (entry.state == QUEUED or (entry.state == SPILLED and entry.deadline is None))

    def append(self, entry: Entry) -> None:
        """Put a newly offered message at the end."""
        if self.tail is None:
            self.head = entry
        else:
            self.tail.after = entry
        self.tail = entry
        if self.fresh is None:
            self.fresh = entry

    def unlink(self, entry: Entry, outstanding: int) -> None:
        """Take a message out, wherever it stands, that is settled now.

        What is newer is looked at only from a pointer on that goes forward with it: so each message is passed over once
        for each of the three, and a message that none of them points at costs no look at others.

        Args:
            entry: The message.
            outstanding: How many messages are outstanding in all lanes, those beside the log too: more than that were
                swept only long ago.

        Complexity:
            O(1) amortised; O(log b) to find it among b messages of its key that have come back.
        """
        if self.spilled is entry:
            self.spilled = spilled_from(entry.after)
        if self.fresh is entry:
            self.fresh = live_from(entry.after)
        elif self.back:
            place = bisect_left(self.back, entry.offset, key=_offset_of)
            if place < len(self.back) and self.back[place] is entry:
                del self.back[place]
        if self.head is entry:
            self.head = live_from(entry.after)
            entry.after = None
            if self.head is None:
                self.tail = None
        else:
            self.gaps += 1
            if 2 * self.gaps > min(self.swept, outstanding) + SLACK:
                self._sweep()

    def _sweep(self) -> None:
        """Take out everything that is settled. O(messages), paid for by as many settlements or offers."""
        live, last = 0, self.head
        while last is not None:
            live += 1
            last.after = after = live_from(last.after)
            self.tail = last
            last = after
        self.gaps = 0
        self.swept = live

    def was_delivered(self, entry: Entry) -> bool:
        """Whether a message of this lane ever went out. O(1)."""
        return self.fresh is None or entry.offset < self.fresh.offset

    def take_back(self, entry: Entry) -> None:
        """Note that a delivered message is not open any more; it stands where it always stood."""
        if self.back is None:
            self.back = [entry]
        else:
            insort(self.back, entry, key=_offset_of)


def live_from(entry: Entry | None) -> Entry | None:
    """The oldest outstanding message of a lane from one on."""
    while entry is not None and entry.state == SETTLED:
        entry = entry.after
    return entry


def spilled_from(entry: Entry | None) -> Entry | None:
    """The oldest spilled message of a lane from one on: what has come back beside the log is never spilled."""
    while entry is not None and entry.state != SPILLED:
        entry = entry.after
    return entry


class Alone(Lane):
    """Stands for the lanes of messages each of which is the only one of its key, and at one consumer or ready for it.

    They need none, and on unique keys a lane would be a third of a message's memory and time. It never has a head, as
    each other lane has while something of it is outstanding. Its holder is set while that is connected.
    """

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(None)

    def was_delivered(self, entry: Entry) -> bool:
        """Whether a message that is alone ever went out: what comes back gets a lane. O(1)."""
        return entry.state == IN_FLIGHT


WorkList: TypeAlias = MutableMapping[Lane, int]
"""Lanes that wait for something, oldest first, each with its place in the sequence over all lists."""

ReadyList: TypeAlias = MutableMapping[Lane | Entry, int]
"""The same, and messages that wait alone: their places follow from their offsets, see `place_of`."""

LISTINGS: Final = 20
"""So many bits are between the places of two offsets: for the lanes that are listed between the two offers."""


def place_of(waiting: Lane | Entry, number: int) -> int:
    """The place of what stands in a work list, with this number, in the sequence over all lists."""
    return waiting.offset << LISTINGS if isinstance(waiting, Entry) else number


class Consumer:
    """What the window knows of one consumer; whoever composes the window may subclass it.

    Attributes:
        name: Its name.
        order: Its place in the order of joining.
        limit: Open deliveries and reservations it may have now; 0 while it must not get anything.
        free: ``limit`` less its open deliveries and reservations; negative after the limit was lowered below use.
        keyless: Whether it may get messages without a key.
        open: Its open deliveries by offset.
        reserved: Messages that are being loaded for it, by offset.
        ready: Lanes whose next message can go to it once it has room, and messages that are alone.
        noted: Whether the room index knows that its room has changed.
        alone: Stands for the lanes of keys of which a single message is outstanding, in flight at it or ready for it.
    """

    __slots__ = ("alone", "free", "keyless", "limit", "name", "noted", "open", "order", "ready", "reserved")

    def __init__(self, name: str, order: int, limit: int, *, keyless: bool = True) -> None:
        self.name = name
        self.order = order
        self.limit = self.free = limit
        self.keyless = keyless
        self.open: dict[int, Entry] = {}
        self.reserved: dict[int, Entry] = {}
        self.ready: WorkList | ReadyList = OrderedDict()
        self.noted = False
        self.alone = Alone()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r} {len(self.open)}/{self.limit}>"
