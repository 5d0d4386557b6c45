"""What the books of a history hold: messages, lanes, consumers, places of keys, and where each was seen."""

from collections.abc import Callable
from enum import Enum, auto
from heapq import heappop, heappush
from typing import Final, NamedTuple, TypeAlias

from keyshared.testing.history import Happening, Held, HoldReason

__all__ = ["SLACK", "Lane", "LaneId", "LazyHeap", "Member", "Message", "Place", "Seen", "Standing", "standing"]

LaneId: TypeAlias = bytes | int
SLACK: Final = 16  # a list with dead entries may be this much longer than twice what lives in it


class Seen(NamedTuple):
    """A happening, its position in the history, and the time as it is known there."""

    position: int
    happening: Happening
    now: int | None


class Standing(Enum):
    """What an answer (an ack, a nack, ...) names."""

    CURRENT = auto()  # the open delivery
    STALE = auto()  # not the delivery that is open
    LATE = auto()  # a delivery that has ended; none is open
    FORGED = auto()  # a delivery that never was
    UNKNOWN = auto()  # a message that is not outstanding


class Lane:
    """The outstanding messages of one key, or one message that has none."""

    __slots__ = ("holders", "id", "listed", "open", "size")

    def __init__(self, id: LaneId) -> None:  # noqa: A002  # the field's name
        self.id = id
        self.size = 0
        self.open = 0
        self.holders: dict[str, dict[int, Message]] = {}  # who has what open
        self.listed: list[int] = []  # heap of the offsets that are not open, and some that no longer belong here


class Message:
    """An outstanding message."""

    __slots__ = (
        "attempt",
        "came_back",
        "consumer",
        "delivered",
        "doubtful",
        "held",
        "is_listed",
        "is_open",
        "lane",
        "noted",
        "offset",
        "presumed",
        "previous",
        "published",
        "since",
    )

    def __init__(self, offset: int, lane: Lane, seen: Seen, previous: int | None) -> None:
        self.offset = offset
        self.lane = lane
        self.published = seen
        self.previous = previous  # what was published before it, if anything
        self.since = seen  # what made it wait, or opened it
        self.is_open = False
        self.consumer: str | None = None  # of the last delivery
        self.attempt: int | None = None  # likewise
        self.delivered: Seen | None = None  # likewise
        self.came_back = False
        self.presumed = False  # its last delivery may have expired; nobody said so
        self.held: Seen | None = None
        self.noted = False  # an ack came that did not count at once
        self.doubtful = False  # an ack came of which nobody knows whether it counted
        self.is_listed = False

    @property
    def is_spilled(self) -> bool:
        """Whether its payload is not in memory."""
        happening = None if self.held is None else self.held.happening
        return isinstance(happening, Held) and happening.reason is HoldReason.SPILLED


class Member:
    """A connected consumer."""

    __slots__ = ("connected", "limit", "limited", "name", "room_since", "suspended")

    def __init__(self, name: str, limit: int | None, seen: Seen) -> None:
        self.name = name
        self.limit = limit
        self.connected = seen
        self.limited = seen  # what says the limit
        self.suspended: Seen | None = None
        self.room_since: Seen | None = None


class Place:
    """Where a key belongs, as far as it is known."""

    __slots__ = ("last", "owned")

    def __init__(self) -> None:
        self.owned: Seen | None = None  # by the system's own word
        self.last: Seen | None = None  # its last delivery


class LazyHeap:
    """A heap of which most is dead: cleaned when the dead outnumber the living."""

    __slots__ = ("_heap", "_is_alive")

    def __init__(self, is_alive: Callable[[int], bool]) -> None:
        self._heap: list[int] = []
        self._is_alive = is_alive

    def __len__(self) -> int:
        return len(self._heap)

    def push(self, value: int, living: int) -> None:
        """Add a value; ``living`` is how many can be alive."""
        heappush(self._heap, value)
        if len(self._heap) > 2 * living + SLACK:
            self._heap = sorted(filter(self._is_alive, set(self._heap)))

    def first(self) -> int | None:
        """The lowest that is alive."""
        while self._heap and not self._is_alive(self._heap[0]):
            heappop(self._heap)
        return self._heap[0] if self._heap else None


def standing(message: Message | None, consumer: str, attempt: int | None) -> Standing:
    """What an answer names."""
    if message is None:
        return Standing.UNKNOWN
    same_attempt = attempt is None or message.attempt is None or attempt == message.attempt
    if message.is_open:
        return Standing.CURRENT if same_attempt and consumer == message.consumer else Standing.STALE
    if message.delivered is None:
        return Standing.FORGED
    if attempt is None or message.attempt is None:
        return Standing.LATE
    never = attempt > message.attempt or (same_attempt and consumer != message.consumer)
    return Standing.FORGED if never else Standing.LATE
