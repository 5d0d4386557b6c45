"""How much may wait for one key, a consumer or in all when a message is let in: a part of the promise about bounds."""

from collections.abc import Iterator

from keyshared.testing.history import Connected, Owned, Published
from keyshared.testing.judges.books import Books
from keyshared.testing.judges.entries import Lane, LaneId, Message

__all__ = ["WaitingLimits"]


class WaitingLimits:
    """Finds what waits beside a message that is published, where that has a limit."""

    def __init__(self, books: Books) -> None:
        self._books = books
        self._per_key = books.guarantees.waiting_per_key
        self._per_consumer = books.guarantees.waiting_per_consumer
        self._look_ahead = books.guarantees.look_ahead
        limits = (self._per_key, self._per_consumer, self._look_ahead)
        self.are_claimed = any(limit is not None for limit in limits)
        self._places: dict[LaneId, tuple[str, int]] = {}  # whose a lane is, and how much of it is not open
        self._at: dict[str, int] = {}  # the same of all lanes of a consumer

    @property
    def is_kept(self) -> bool:
        """Whether `follow` has to see every change."""
        return self._per_consumer is not None

    def entries(self) -> int:
        """How much is kept."""
        return len(self._places) + len(self._at)

    def follow(self) -> None:
        """Take in what a happening has changed."""
        for lane in self._books.changed.values():
            self._count(lane)

    def exceeded(self, happening: Published) -> Iterator[tuple[str, list[Message]]]:
        """What is wrong with letting this message in, and the messages that prove it."""
        books = self._books
        if self._look_ahead is not None and Connected in books.kinds:
            yield from self._too_many(happening.offset, self._look_ahead(len(books.members)))
        lane_id = books.lane_id(happening.offset, happening.key)
        if not isinstance(lane_id, bytes):
            return
        offset, lane = happening.offset, books.lanes.get(lane_id)
        if self._per_key is not None and lane is not None and lane.size - lane.open >= self._per_key:
            waiting = [each for each in books.messages.values() if each.waits and each.lane is lane]
            if len(waiting) >= self._per_key:
                yield (
                    f"offset {offset} came while {len(waiting)} of its key wait, of which {self._per_key} may",
                    waiting,
                )
        owner = self._owner(lane_id)
        if owner is not None and self._per_consumer is not None and self._at.get(owner, 0) >= self._per_consumer:
            waiting = [each for each in books.messages.values() if each.waits and self._owner(each.lane.id) == owner]
            if len(waiting) >= self._per_consumer:
                text = (
                    f"offset {offset} came while {len(waiting)} wait for {owner!r}, of which {self._per_consumer} may"
                )
                yield text, waiting

    def _too_many(self, offset: int, most: int) -> Iterator[tuple[str, list[Message]]]:
        """The same for what waits in all, where more may be outstanding than open."""
        books = self._books
        if len(books.messages) - books.open < most:
            return
        waiting = [each for each in books.messages.values() if each.waits]
        if len(waiting) >= most:
            may = f"{most} may for {len(books.members)} consumers"
            yield f"offset {offset} came while {len(waiting)} wait, of which {may}", waiting

    def _owner(self, lane_id: LaneId) -> str | None:
        place = self._books.place_of(lane_id)
        owned = None if place is None or place.owned is None else place.owned.happening
        return owned.consumer if isinstance(owned, Owned) else None

    def _count(self, lane: Lane) -> None:
        owner, count = self._places.pop(lane.id, ("", 0))
        if count:
            self._at[owner] -= count
            if not self._at[owner]:
                del self._at[owner]
        now, waiting = self._owner(lane.id), lane.size - lane.open
        if now is not None and waiting:
            self._places[lane.id] = now, waiting
            self._at[now] = self._at.get(now, 0) + waiting
