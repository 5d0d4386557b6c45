"""What a history tells of a message before it tells that the message was published: logs of two sides, merged."""

from collections import OrderedDict
from heapq import heappop, heappush
from typing import Final, NamedTuple

from keyshared.testing.judges.entries import Message, Seen

__all__ = ["EarlyBook", "Told"]

_REMEMBERED: Final = 100_000


class Told(NamedTuple):
    """What was told of a message that is done.

    Attributes:
        first: The first delivery, or None if there was none.
        odd: A delivery with another key, that is not judged yet.
        ended: What has ended it.
    """

    first: Seen | None = None
    odd: Seen | None = None
    ended: Seen | None = None

    @property
    def since(self) -> Seen | None:
        """What told of it first."""
        return self.first or self.ended


class EarlyBook:
    """The messages that were done before their publication was written down. Only some are remembered, the latest.

    What is lower than the first publication may be older than the history, so that none follows. What is forgotten of
    that may be told anew.
    """

    def __init__(self) -> None:
        self.forgotten = 0
        self._floor: int | None = None  # everything up to here is taken for done, from the first publication on
        self._first: int | None = None
        self.told: dict[int, Told] = {}  # which a publication may follow; empty: nothing is done early
        self._lowest: list[int] = []
        self._older: OrderedDict[int, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self.told) + len(self._lowest) + len(self._older)

    def __contains__(self, offset: object) -> bool:
        if offset in self.told or offset in self._older:
            return True
        if self._floor is None or not isinstance(offset, int) or offset > self._floor:
            return False
        return self._first is None or offset >= self._first

    def done(self, offset: int, message: Message | None, ended: Seen, *, is_older: bool) -> None:
        """Remember that a message is done whose publication is not told yet."""
        if is_older:
            self._remember_older(offset)
            return
        first, odd = (None, None) if message is None else (message.published, message.odd)
        self.told[offset] = Told(first, odd, ended)
        heappush(self._lowest, offset)
        if len(self.told) > _REMEMBERED:
            lowest = heappop(self._lowest)
            del self.told[lowest]
            self._floor = lowest if self._floor is None else max(self._floor, lowest)  # one may be done only now
            self.forgotten += 1

    def told_of(self, offset: int) -> Told:
        """What was told of one that is done."""
        return self.told.get(offset, Told())

    def published(self, offset: int, *, is_first: bool) -> None:
        """Forget what no publication can follow any more: offsets grow."""
        if is_first:
            self._first = offset
        while self._lowest and self._lowest[0] <= offset:
            lowest = heappop(self._lowest)
            del self.told[lowest]
            if is_first and lowest < offset:
                self._remember_older(lowest)

    def _remember_older(self, offset: int) -> None:
        self._older[offset] = None
        if len(self._older) > _REMEMBERED:
            self._older.popitem(last=False)
