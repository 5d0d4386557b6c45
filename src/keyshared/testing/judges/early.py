"""What a history tells of a message before it tells that the message was published: logs of two sides, merged."""

from heapq import heappop, heappush
from typing import Final, NamedTuple

from keyshared.testing.judges.entries import Message, Seen

__all__ = ["EarlyBook", "Told"]

_REMEMBERED: Final = 100_000


class Told(NamedTuple):
    """What was told of the key of a message that is done.

    Attributes:
        first: The first delivery, or None if there was none.
        odd: A delivery with another key, that is not judged yet.
    """

    first: Seen | None = None
    odd: Seen | None = None


class EarlyBook:
    """The messages that were done before their publication was written down. Only some are remembered, the latest."""

    def __init__(self) -> None:
        self.forgotten = 0
        self._floor: int | None = None  # everything up to here is taken for done
        self.told: dict[int, Told] = {}  # empty: nothing is done early
        self._lowest: list[int] = []

    def __len__(self) -> int:
        return len(self.told) + len(self._lowest)

    def __contains__(self, offset: object) -> bool:
        return offset in self.told or (self._floor is not None and isinstance(offset, int) and offset <= self._floor)

    def done(self, offset: int, message: Message | None) -> None:
        """Remember that a message is done whose publication is not told yet."""
        self.told[offset] = Told() if message is None else Told(message.published, message.odd)
        heappush(self._lowest, offset)
        if len(self.told) > _REMEMBERED:
            self._floor = heappop(self._lowest)
            del self.told[self._floor]
            self.forgotten += 1

    def told_of(self, offset: int) -> Told:
        """What was told of the key of one that is done."""
        return self.told.get(offset, Told())

    def published(self, offset: int) -> None:
        """Forget what no publication can follow any more: offsets grow."""
        while self._lowest and self._lowest[0] <= offset:
            del self.told[heappop(self._lowest)]
