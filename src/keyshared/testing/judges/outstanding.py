"""Which outstanding message is the oldest, for a cursor that waits for it."""

from collections.abc import Mapping
from heapq import heappop, heappush

from keyshared.testing.judges.entries import SLACK, Message

__all__ = ["OldestFirst"]


class OldestFirst:
    """The offsets of messages, as a heap of which most is dead: cleaned when the dead outnumber the living.

    Args:
        messages: What is outstanding, by offset: who is alive. A doubtful or redriven message does not hold the cursor.
    """

    def __init__(self, messages: Mapping[int, Message]) -> None:
        self._messages = messages
        self._heap: list[int] = []

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, offset: int) -> None:
        """Add a message that is outstanding."""
        heappush(self._heap, offset)
        if len(self._heap) > 2 * len(self._messages) + SLACK:
            self._heap = sorted(filter(self._holds_the_cursor, set(self._heap)))

    def first(self) -> Message | None:
        """Return the oldest message that is surely outstanding."""
        heap, messages = self._heap, self._messages
        while heap:
            message = messages.get(heap[0])
            if message is not None and not (message.doubtful or message.redriven):
                return message
            heappop(heap)
        return None

    def _holds_the_cursor(self, offset: int) -> bool:
        message = self._messages.get(offset)
        return message is not None and not (message.doubtful or message.redriven)
