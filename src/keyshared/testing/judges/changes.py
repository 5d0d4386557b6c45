"""What the books remember of the past: where keys belonged, and how that may have changed."""

from collections import OrderedDict
from typing import Final, TypeAlias

from keyshared.testing.history import Happening
from keyshared.testing.judges.entries import Member, Place, Seen

__all__ = ["Changes", "Places"]

_Change: TypeAlias = tuple[type[Happening], str]
_REMEMBERED_LEAVERS: Final = 1_000


class Places:
    """Where keys belong. Of keys that have nothing outstanding only some are remembered, the latest ones."""

    def __init__(self, remembered: int) -> None:
        self.forgotten = 0
        self._remembered = remembered
        self._places: dict[bytes, Place] = {}
        self._idle: OrderedDict[bytes, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._places) + len(self._idle)

    def get(self, key: bytes) -> Place | None:
        """What is known of a key."""
        return self._places.get(key)

    def note(self, key: bytes, *, is_idle: bool) -> Place:
        """The place of a key, to write something down about it."""
        place = self._places.get(key)
        if place is None:
            place = self._places[key] = Place()
            if is_idle:
                self.rest(key)
        return place

    def wake(self, key: bytes) -> Place | None:
        """A key has something outstanding: return what is known of it."""
        place = self._places.get(key)
        if place is not None:
            self._idle.pop(key, None)
        return place

    def rest(self, key: bytes) -> None:
        """A key that is known has nothing outstanding any more."""
        self._idle[key] = None
        if len(self._idle) > self._remembered:
            oldest, _ = self._idle.popitem(last=False)
            del self._places[oldest]
            self.forgotten += 1


class Changes:
    """Joins, leaves and changes by hand: what may have moved keys."""

    def __init__(self) -> None:
        self.last: Seen | None = None
        self.by_hand: Seen | None = None
        self.leavers: OrderedDict[str, Seen] = OrderedDict()
        self.latest_join_of_a_leaver = -1
        self.block: dict[_Change, Seen] = {}  # the latest ones, which follow each other
        self.in_block = False  # whether nothing but `Owned` and ends of deliveries has followed them
        self._block_is_told = False  # whether an `Owned` has followed them

    def __len__(self) -> int:
        return len(self.leavers) + len(self.block)

    def join(self, name: str, before: Member | None, seen: Seen) -> None:
        """Note that a consumer is connected; if one of its name was, that session is over."""
        self._end_session(before)
        self.leavers.pop(name, None)
        self._note(name, seen)

    def leave(self, name: str, member: Member | None, seen: Seen) -> None:
        """Note that a consumer is gone; it was connected if it is a member."""
        self._end_session(member)
        self.leavers[name] = seen
        self.leavers.move_to_end(name)
        if len(self.leavers) > _REMEMBERED_LEAVERS:
            self.leavers.popitem(last=False)
        self._note(name, seen)

    def change_by_hand(self, seen: Seen) -> None:
        """Keys may have moved for another reason."""
        self.by_hand = seen
        self._note("", seen)

    def tell(self) -> None:
        """The system says where keys are now: the next change is another one."""
        self._block_is_told = True

    def _end_session(self, member: Member | None) -> None:
        if member is not None:
            self.latest_join_of_a_leaver = max(self.latest_join_of_a_leaver, member.connected.position)

    def _note(self, name: str, seen: Seen) -> None:
        self.last = seen
        if self._block_is_told or not self.in_block:
            self.block.clear()
        self.in_block, self._block_is_told = True, False
        self.block[type(seen.happening), name] = seen
