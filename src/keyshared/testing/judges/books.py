"""What a history says about now: which messages are outstanding, who has them, who is there, who owns what.

All promises are judged on these books. They believe the history; whether it may be so is the promises' business.
"""

from collections.abc import Iterator
from heapq import heappop
from typing import Final, TypeAlias

from keyshared.testing.guarantees import Guarantees
from keyshared.testing.history import Delivered, Happening
from keyshared.testing.judges.changes import Changes, Places
from keyshared.testing.judges.early import EarlyBook
from keyshared.testing.judges.entries import Lane, LaneId, Member, Message, Place, Seen
from keyshared.testing.judges.outstanding import OldestFirst
from keyshared.testing.judges.unit_book import UnitBook

__all__ = ["Books"]

_Kind: TypeAlias = type[Happening]
_WHOLE_LOG: Final = b""


class Books:
    """What is known by now. A `Bookkeeper` writes, happening by happening; judges read before and after each."""

    def __init__(self, guarantees: Guarantees, remembered_keys: int) -> None:
        self.guarantees = guarantees
        self.position = 0
        self.now: int | None = None
        self.kinds: set[_Kind] = set()  # what the history has told of so far
        self.messages: dict[int, Message] = {}
        self.lanes: dict[LaneId, Lane] = {}
        self.changed: dict[LaneId, Lane] = {}  # lanes that this happening may have made ready, or unready
        self.ended: list[int] = []  # what this happening has ended
        self.members: dict[str, Member] = {}
        self.open_at: dict[str, dict[int, Message]] = {}
        self.unsure_at: dict[str, dict[int, Message]] = {}  # what may be open there, or not
        self.units = UnitBook(guarantees.unit_of)
        self.unsure_units = UnitBook(guarantees.unit_of)
        self.early = EarlyBook()
        self.open = self.spilled = self.loading = self.doubtful = 0
        self.ambiguous = 0  # acks that may be of an earlier delivery: a number is missing that would tell
        self.last_published: Seen | None = None
        self.last_offset: int | None = None  # which that was
        self.first_offset: int | None = None  # the lowest that was published
        self.has_older = False  # something lower was told of
        self.redriven_to: int | None = None  # the greatest offset that has come back
        self.log_is_told = False  # what was published, which many promises need
        self.committed: Seen | None = None
        self.resume_offset: int | None = None  # which that was
        self.changes = Changes()
        self.places = Places(remembered_keys)
        self.oldest_first = OldestFirst(self.messages)

    def lane_id(self, offset: int, key: bytes | None) -> LaneId:
        """Which lane a message is in: its key's, or its own if it has none."""
        if self.guarantees.total_order:
            return _WHOLE_LOG
        return offset if key is None else key

    def lane_of(self, message: Message | None, offset: int, key: bytes | None) -> Lane | None:
        """Where a message belongs, as far as is told if it is not outstanding; None if nothing else is there."""
        return self.lanes.get(self.lane_id(offset, key)) if message is None else message.lane

    def place_of(self, lane_id: LaneId) -> Place | None:
        """Where a lane belongs, None for a message without a key."""
        return self.places.get(lane_id) if isinstance(lane_id, bytes) else None

    def oldest_waiting(self, lane: Lane) -> Message | None:
        """The oldest message of a lane that holds the others: not open, and surely outstanding."""
        listed = lane.listed
        while listed:
            message = self.messages.get(listed[0])
            if message is not None:
                # `holds_its_key` without a call: this is asked for nearly every happening
                if not (message.is_open or message.unsure or message.doubtful) and (
                    not message.came_back or self.guarantees.nack_holds_key
                ):
                    return message
                message.is_listed = False
            heappop(listed)
        return None

    def perhaps_nacked(self, lane: Lane) -> list[Message]:
        """What holds a lane if its nack, which was only seen, has counted, oldest first: O(such nacks of the lane)."""
        nacked = lane.nacked or {}
        found = [each for each in nacked.values() if not each.doubtful and self.holds_its_key(each)]
        return sorted(found, key=lambda message: message.offset)

    def lowest(self) -> Message | None:
        """The oldest message that is surely outstanding."""
        return self.oldest_first.first()

    def has_room(self, member: Member) -> bool:
        """Whether a consumer may get one more, even if everything that is being loaded is for it."""
        if member.suspended is not None:
            return False
        return member.limit is None or self.busy(member.name) + self.loading < member.limit

    def busy(self, name: str) -> int:
        """How many deliveries a consumer may have open, as far as is known."""
        return len(self.open_at.get(name, ())) + len(self.unsure_at.get(name, ()))

    def units_are_free(self, lane_id: LaneId, owner: str | None) -> bool:
        """Whether nobody else than the owner surely or perhaps has something of a lane's unit open."""
        both = (self.units, self.unsure_units)
        return all(units.open_besides(lane_id, owner) is None for units in both)

    def waiting_in_memory(self) -> list[Message]:
        """The messages that surely wait, and in memory: O(outstanding messages)."""
        return [message for message in self.messages.values() if message.waits and not message.is_spilled]

    def tracked(self) -> Iterator[Message]:
        """The messages that are surely outstanding."""
        return (message for message in self.messages.values() if not message.doubtful)

    def in_memory(self) -> int:
        """How many of them are not spilled. O(outstanding messages) if any is spilled and any doubtful, else O(1)."""
        both = 0
        if self.spilled and self.doubtful:
            both = sum(message.doubtful and message.is_spilled for message in self.messages.values())
        return len(self.messages) - self.doubtful - self.spilled + both

    def is_over(self, offset: int) -> bool:
        """Whether an offset that is not outstanding is done, or was never published; else it is not told of yet."""
        first, last = self.first_offset, self.last_offset
        return (last is not None and first is not None and first <= offset <= last) or offset in self.early

    def is_older(self, offset: int) -> bool:
        """Whether an offset is lower than all that was published: it may be older than the history."""
        return self.first_offset is not None and offset < self.first_offset

    def why_unclear(self) -> str | None:
        """What keeps the checker from knowing which messages are done, if anything does."""
        reason = "acks without a number may be of an earlier delivery, so that their messages may be done or still open"
        return f"{self.ambiguous} {reason}" if self.ambiguous else None

    def told_early(self) -> dict[int, Seen]:
        """What has told first of each message that is not published yet: O(outstanding and early messages)."""
        outstanding = {
            offset: message.published
            for offset, message in self.messages.items()
            if type(message.published.happening) is Delivered
        }
        return outstanding | {offset: told.since for offset, told in self.early.told.items() if told.since is not None}

    def entries(self) -> int:
        """How much is kept, in entries of all books."""
        lanes = sum(1 + len(lane.listed) + len(lane.holders) for lane in self.lanes.values())
        lanes += self.doubtful
        people = len(self.members) + len(self.open_at) + len(self.changes) + len(self.units)
        unsure = len(self.unsure_units) + sum(1 + len(each) for each in self.unsure_at.values())
        messages = len(self.messages) + sum(len(each.earlier or ()) for each in self.messages.values())
        others = len(self.places) + len(self.early) + self.open + len(self.oldest_first)
        return lanes + people + unsure + messages + others

    def holds_its_key(self, message: Message) -> bool:
        """Whether newer messages of its key wait for a message that waits."""
        return not message.came_back or self.guarantees.nack_holds_key

    def may_be_passed(self, message: Message) -> bool:
        """Whether a message that waits lets newer ones of its key pass."""
        return message.came_back and not self.guarantees.nack_holds_key
