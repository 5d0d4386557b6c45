"""What the books of a history hold: messages, lanes, consumers, places of keys, and where each was seen."""

from collections.abc import Mapping
from enum import Enum, auto
from typing import Final, TypeAlias

from keyshared.testing.guarantees import Guarantees, Promise
from keyshared.testing.history import Delivered, Happening, Held, HoldReason, Published

__all__ = [
    "PERHAPS_OPEN",
    "REASONS",
    "SLACK",
    "Lane",
    "LaneId",
    "Member",
    "Message",
    "Place",
    "Seen",
    "Standing",
    "heir_of",
    "is_latest_only",
    "is_running",
    "is_same_delivery",
    "key_of",
    "may_be_done_by",
    "may_name_earlier",
    "standing",
]

LaneId: TypeAlias = bytes | int
SLACK: Final = 16  # a list with dead entries may be this much longer than twice what lives in it
REASONS: Final = 8  # of nacks that were only seen, for each message; where there are more, it may be any
_REMEMBERED_DELIVERIES: Final = 8  # of a message, beside the last one
_DECIDED_BY_SOMEBODY: Final = frozenset({HoldReason.BLOCKED, HoldReason.OTHER})


class Seen:
    """A happening, its position in the history, and the time as it is known there."""

    __slots__ = ("happening", "now", "position")  # every row makes one: a named tuple costs twice as much

    def __init__(self, position: int, happening: Happening, now: int | None) -> None:
        self.position = position
        self.happening = happening
        self.now = now


class Standing(Enum):
    """What an answer (an ack, a nack, ...) names."""

    CURRENT = auto()  # the open delivery
    UNSURE = auto()  # the last delivery, of which the history does not tell whether it is open
    STALE = auto()  # an earlier delivery than the open one
    LATE = auto()  # a delivery that has ended; none is surely open
    FORGED = auto()  # a delivery that never was
    UNKNOWN = auto()  # a message that is not outstanding


PERHAPS_OPEN: Final = (Standing.CURRENT, Standing.UNSURE)


class Place:
    """Where a key belongs, as far as it is known."""

    __slots__ = ("consumer", "last", "owned", "owner")

    def __init__(self) -> None:
        self.owned: Seen | None = None  # what says who owns it, by the system's own word
        self.owner: str | None = None  # who does, by that
        self.last: Seen | None = None  # its last delivery
        self.consumer: str | None = None  # to whom that was


class Lane:
    """The outstanding messages of one key, or one message that has none."""

    __slots__ = (
        *("doubtful", "holders", "id", "listed", "most_open", "nacked", "newest", "open", "place", "size"),
        *("turn", "turn_limit", "unclear", "unsure", "waits_since"),
    )

    def __init__(self, id: LaneId, guarantees: Guarantees, place: Place | None) -> None:  # noqa: A002  # the field's name
        self.id = id
        self.place = place  # None: nothing is known of its key, or it has none
        self.most_open = most_open(guarantees, id)  # None: any number
        self.turn_limit = 1 if guarantees.batches else self.most_open  # at which it waits for its next turn; or None
        self.size = 0  # and if it gets there again, the lane is over
        self.open = 0
        self.holders: dict[str, dict[int, Message]] = {}  # who has what open
        self.listed: list[int] = []  # heap of the offsets that are not open, and some that no longer belong here
        self.turn = 0  # how many happenings there were when it was last delivered from, or got below its limit
        self.waits_since = 0  # how many there were when something began to wait in it where nothing had waited
        self.unsure = 0  # how many may be open, or not
        self.nacked: dict[int, Message] | None = None  # those of a nack that was only seen; None: there was none
        self.unclear: dict[str, dict[int, Message]] | None = None  # what is open at whom, or done; likewise
        self.doubtful: dict[int, Message] | None = None  # which may be done, or not; None as long as there was none
        self.newest: Message | None = None  # of what was published, done or not


class Message:
    """An outstanding message.

    It is open, it waits, or it is done. Where the history does not decide that (an ack came, and nobody knows whether
    it counted, or a delivery may have expired), it may be several of them: ``unsure`` says that it may be open,
    ``doubtful`` that it may be done, and ``can_wait`` that it may wait.
    """

    __slots__ = (
        "asked",
        "attempt",
        "came_back",
        "can_wait",
        "consumer",
        "delivered",
        "doubtful",
        "earlier",
        "failed",
        "forgotten",
        "held",
        "is_listed",
        "is_open",
        "key",
        "lane",
        "named",
        "noted",
        "odd",
        "offset",
        "perhaps_named",
        "presumed",
        "previous",
        "published",
        "redriven",
        "since",
        "unsaid",
        "unsure",
    )

    def __init__(self, offset: int, key: bytes | None, lane: Lane, seen: Seen, previous: int | None) -> None:
        self.offset = offset
        self.key = key  # its own: as it was published, or as it was told first until then
        self.lane = lane
        self.published = seen  # or its first delivery, until the history tells of its publication; or what redrove it
        self.redriven = False  # it holds its key, and not the cursor
        self.previous = previous  # what was published before it, if anything
        self.since = seen  # what made it wait, or opened it
        self.is_open = False  # surely
        self.unsure = False
        self.presumed = False  # the system has not said that its last delivery has ended, or how
        self.unsaid: list[tuple[str | None, int | None]] | None = (
            None  # deliveries that ended without a row of their own
        )
        self.doubtful = False
        self.can_wait = True
        self.consumer: str | None = None  # of the last delivery
        self.attempt: int | None = None  # likewise
        self.delivered: Seen | None = None  # likewise
        self.earlier: list[tuple[str | None, int | None]] | None = None  # who had which attempt before
        self.forgotten = False  # whether there were more of them
        self.failed = 0  # deliveries that were nacked or have expired, since it was kept back for somebody to decide
        self.came_back = False
        self.held: Seen | None = None
        self.odd: Seen | None = None  # a delivery that tells of another key, and is not judged yet
        self.asked: Seen | None = None  # what asked that it shall not be delivered before some time
        self.named: Seen | None = None  # the last failure that named a reason
        self.perhaps_named: tuple[str, ...] = ()  # what nacks named since then that were only seen; see REASONS
        self.noted = False  # an ack came that did not count at once
        self.is_listed = False

    @property
    def waits(self) -> bool:
        """Whether it is surely neither open nor done."""
        return not (self.is_open or self.unsure or self.doubtful)

    @property
    def is_spilled(self) -> bool:
        """Whether its payload is not in memory."""
        happening = None if self.held is None else self.held.happening
        return isinstance(happening, Held) and happening.reason is HoldReason.SPILLED

    @property
    def is_kept_back(self) -> bool:
        """Whether it is held until somebody decides that it goes on."""
        happening = None if self.held is None else self.held.happening
        return isinstance(happening, Held) and happening.reason in _DECIDED_BY_SOMEBODY

    @property
    def may_be_older(self) -> bool:
        """Whether it may have been delivered before the history: neither its publication is told nor attempt 1."""
        return self.may_be_older_than(None)

    def may_be_older_than(self, attempt: int | None) -> bool:
        """Whether this attempt, or any, may have been made before the first one that is told."""
        first = self.published.happening
        return isinstance(first, Delivered) and first.attempt != 1 and _may_be_before(attempt, first.attempt)

    def remember_delivery(self) -> None:
        """Another delivery is about to replace the last one; late answers may name that."""
        last = (self.consumer, self.attempt)
        if self.earlier is None:
            self.earlier = []
        elif last in self.earlier:
            return
        elif len(self.earlier) == _REMEMBERED_DELIVERIES:
            del self.earlier[0]
            self.forgotten = True
        self.earlier.append(last)

    def name_perhaps(self, reason: str | None) -> None:
        """Remember what a nack says of which nobody knows whether it counted."""
        if reason is not None and reason not in self.perhaps_named and len(self.perhaps_named) <= REASONS:
            self.perhaps_named += (reason,)

    def leave_unsaid(self) -> None:
        """Remember that no row of its own has told how the last delivery ended: one may still follow."""
        self.unsaid = [*(self.unsaid or ()), (self.consumer, self.attempt)][-_REMEMBERED_DELIVERIES:]

    def unsaid_of(self, consumer: str, attempt: int | None) -> tuple[str | None, int | None] | None:
        """Return the delivery that this may be, if it ended without a row of its own."""
        return next((each for each in self.unsaid or () if each[0] == consumer and _same(attempt, each[1])), None)

    def had(self, consumer: str, attempt: int | None) -> bool:
        """Whether an earlier delivery than the last one was this. What is forgotten, or was never told, is believed."""
        if any(name == consumer and _same(attempt, number) for name, number in self.earlier or ()):
            return True
        return self.may_be_older_than(attempt) or (self.forgotten and _may_be_before(attempt, self.attempt))


class Member:
    """A connected consumer."""

    __slots__ = ("connected", "limit", "limited", "name", "room_since", "suspended")

    def __init__(self, name: str, limit: int | None, seen: Seen) -> None:
        self.name = name
        self.limit = limit  # how many deliveries it may have open; None: any number
        self.connected = seen
        self.limited = seen  # what says the limit
        self.suspended: Seen | None = None
        self.room_since: Seen | None = None


def standing(message: Message | None, consumer: str, attempt: int | None) -> Standing:
    """What an answer names."""
    if message is None:
        return Standing.UNKNOWN
    if message.delivered is None:
        return Standing.FORGED
    if consumer == message.consumer and _same(attempt, message.attempt):
        if message.is_open:
            return Standing.CURRENT
        return Standing.UNSURE if message.unsure or message.presumed else Standing.LATE
    if not message.had(consumer, attempt):
        return Standing.FORGED
    return Standing.STALE if message.is_open else Standing.LATE


def may_name_earlier(message: Message, consumer: str, attempt: int | None) -> bool:
    """Whether an answer that fits the last delivery may be of an earlier one: a number is missing that would tell."""
    return (attempt is None or message.attempt is None) and message.had(consumer, attempt)


def may_be_done_by(message: Message, found: Standing, guarantees: Guarantees) -> bool:
    """Whether an ack may end its message, if nobody says whether it counted.

    Behind a fence an ack of an earlier delivery changes nothing for the last one, if that is open.
    """
    if found in PERHAPS_OPEN:
        return True
    is_fenced = Promise.FENCE in guarantees.promises
    if found is Standing.LATE:
        return message.can_wait or not is_fenced
    return found is Standing.STALE and not is_fenced


def is_same_delivery(one: tuple[str, int | None], other: tuple[str, int | None]) -> bool:
    """Whether two pairs of a consumer and an attempt may be of one delivery."""
    return one[0] == other[0] and _same(one[1], other[1])


def _same(attempt: int | None, other: int | None) -> bool:
    """Whether two numbers may be of one delivery; systems that number none leave them out."""
    return attempt is None or other is None or attempt == other


def _may_be_before(attempt: int | None, other: int | None) -> bool:
    """Whether the first of two numbers may be of an earlier delivery."""
    return attempt is None or other is None or attempt < other


def was_delivered(message: Message) -> bool:
    """Whether a message has been at a consumer, or has come back from the dead-letter store."""
    return message.delivered is not None or message.redriven


def heir_of(message: Message, outstanding: Mapping[int, Message]) -> Message | None:
    """Return the newest message of the key, if that is a newer one and not done."""
    newest = message.lane.newest
    if newest is None or newest.offset <= message.offset or outstanding.get(newest.offset) is not newest:
        return None
    return newest


def is_running(lease: tuple[int, Message, Seen]) -> bool:
    """Whether a delivery with a deadline is still the last one of its message, and not surely over."""
    _, message, seen = lease
    return (message.is_open or message.unsure) and message.delivered is seen


def most_open(guarantees: Guarantees, lane: LaneId) -> int | None:
    """How many deliveries of a lane may be open; None for any number."""
    if guarantees.limit_of is None or not isinstance(lane, bytes):
        return guarantees.per_key
    limit = guarantees.limit_of(lane)
    return limit if guarantees.per_key is None else min(limit, guarantees.per_key)


def is_latest_only(guarantees: Guarantees, lane: LaneId) -> bool:
    """Whether of a lane only the latest message counts."""
    claimed = guarantees.latest_only
    return claimed if isinstance(claimed, bool) else isinstance(lane, bytes) and claimed(lane)


def key_of(seen: Seen) -> bytes | None:
    """Return the key that a publication or a delivery tells of."""
    happening = seen.happening
    assert isinstance(happening, Published | Delivered)
    return happening.key
