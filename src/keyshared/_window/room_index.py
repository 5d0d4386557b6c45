"""Who has most room: an index over consumers that costs nothing until somebody asks.

Only keyless messages ask. So a change of room is only noted on the hot path (`RoomIndex.note`), and a query first
brings the noted ones into the heap. An entry of the heap is stale if its consumer's room is not what the entry says;
every consumer has one that is not.
"""

from collections.abc import Iterable
from heapq import heapify, heappop, heappush
from typing import TypeAlias

from keyshared._checks import require
from keyshared._window.lanes import Consumer

__all__ = ["RoomIndex"]

_Ranked: TypeAlias = tuple[int, int, int, Consumer]
"""Its room, negative; its place in the order of joining; a number of its own, because embedders number as they like."""


class RoomIndex:
    """Finds the consumer with most room among those that take keyless messages; the earliest joined one on a tie."""

    __slots__ = ("_changed", "_consumers", "_heap", "_pushed")

    def __init__(self) -> None:
        self._consumers: dict[Consumer, None] = {}
        self._heap: list[_Ranked] = []
        self._changed: list[Consumer] = []
        self._pushed = 0

    def add(self, consumer: Consumer) -> None:
        """Add a consumer. O(1)."""
        self._consumers[consumer] = None
        self.note(consumer)

    def discard(self, consumer: Consumer) -> None:
        """Forget a consumer. O(1)."""
        self._consumers.pop(consumer, None)

    def note(self, consumer: Consumer) -> None:
        """Note that a consumer's room has changed. O(1)."""
        if not consumer.noted:
            consumer.noted = True
            self._changed.append(consumer)
            if len(self._changed) > 2 * len(self._consumers) + 64:
                self._bring_in()  # or those who have left would be kept until somebody asks

    def roomiest(self) -> Consumer | None:
        """The consumer with most room, or None if none has any. O(log n) amortised over the notes."""
        self._bring_in()
        heap = self._heap
        while heap:
            room, _, _, consumer = heap[0]
            if consumer in self._consumers and consumer.free == -room:
                return consumer if room < 0 else None
            heappop(heap)
        return None

    def check_invariants(self, consumers: Iterable[Consumer]) -> None:
        """Raise `InvariantError` unless exactly these take part, and each is noted or has its room known. O(n)."""
        require(set(self._consumers) == set(consumers), "those who take keyless messages take part")
        noted, known = set(self._changed), {(consumer, -room) for room, _, _, consumer in self._heap}
        for consumer in self._consumers:
            require(consumer.noted == (consumer in noted), f"{consumer.name!r} waits to be brought in if it is noted")
            require(consumer.noted or (consumer, consumer.free) in known, f"the room of {consumer.name!r} is known")

    def _bring_in(self) -> None:
        changed, self._changed = self._changed, []
        for consumer in changed:
            consumer.noted = False
            if consumer in self._consumers:
                heappush(self._heap, self._ranked(consumer))
        if len(self._heap) > 4 * len(self._consumers) + 64:
            self._heap = [self._ranked(consumer) for consumer in self._consumers]
            heapify(self._heap)

    def _ranked(self, consumer: Consumer) -> _Ranked:
        self._pushed += 1
        return -consumer.free, consumer.order, self._pushed, consumer
