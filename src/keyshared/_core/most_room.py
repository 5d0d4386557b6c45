"""Which consumer has most capacity, at no cost until a message without a key asks.

On the hot path a change of capacity is only noted. A query first brings the noted consumers into the heap. An entry of
the heap is stale if the capacity of its consumer is not what the entry says; every consumer has one that is not.
"""

from collections.abc import Iterable
from heapq import heapify, heappop, heappush
from typing import TypeAlias

from keyshared._checks import require
from keyshared._core.records import Consumer

__all__ = ["MostRoom"]

_Ranked: TypeAlias = tuple[int, int, int, Consumer]
"""Its capacity, negative; its place in the order of joining; a number, so that no two entries compare further."""


class MostRoom:
    """Finds the consumer with most capacity among those that take keyless messages; the earliest joined on a tie."""

    __slots__ = ("_consumers", "_dirty", "_heap", "_pushed")

    def __init__(self) -> None:
        self._consumers: dict[Consumer, None] = {}
        self._heap: list[_Ranked] = []
        self._dirty: list[Consumer] = []
        self._pushed = 0

    def add(self, consumer: Consumer) -> None:
        """Add a consumer. O(1)."""
        self._consumers[consumer] = None
        self.note(consumer)

    def discard(self, consumer: Consumer) -> None:
        """Forget a consumer. O(1)."""
        self._consumers.pop(consumer, None)

    def note(self, consumer: Consumer) -> None:
        """Note that the capacity of a consumer has changed. O(1)."""
        if not consumer.dirty:
            consumer.dirty = True
            self._dirty.append(consumer)
            if len(self._dirty) > 2 * len(self._consumers) + 64:
                self._bring_in()  # or consumers that have left would be kept until the next query

    def roomiest(self) -> Consumer | None:
        """Return the consumer with most capacity, None if none has any. O(log n) amortised over the notes."""
        self._bring_in()
        heap = self._heap
        while heap:
            room, _, _, consumer = heap[0]
            if consumer in self._consumers and consumer.free == -room:
                return consumer if room < 0 else None
            heappop(heap)
        return None

    def check_invariants(self, consumers: Iterable[Consumer]) -> None:
        """Raise `InvariantError` unless exactly these take part, and each is noted or has its capacity known. O(n)."""
        require(set(self._consumers) == set(consumers), "consumers that take keyless messages take part")
        noted, known = set(self._dirty), {(consumer, -room) for room, _, _, consumer in self._heap}
        for consumer in self._consumers:
            require(consumer.dirty == (consumer in noted), f"{consumer.name!r} waits to be brought in if it is dirty")
            require(consumer.dirty or (consumer, consumer.free) in known, f"the capacity of {consumer.name!r} is known")

    def _bring_in(self) -> None:
        dirty, self._dirty = self._dirty, []
        for consumer in dirty:
            consumer.dirty = False
            if consumer in self._consumers:
                heappush(self._heap, self._ranked(consumer))
        if len(self._heap) > 4 * len(self._consumers) + 64:
            self._heap = [self._ranked(consumer) for consumer in self._consumers]
            heapify(self._heap)

    def _ranked(self, consumer: Consumer) -> _Ranked:
        self._pushed += 1
        return -consumer.free, consumer.order, self._pushed, consumer
