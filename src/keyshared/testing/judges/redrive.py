"""The promise about dead letters that come back: redrive-order."""

from collections.abc import Iterable, Iterator, Mapping

from keyshared.testing.guarantees import Promise, Violation
from keyshared.testing.history import Delivered, Happening, Redriven
from keyshared.testing.judges.entries import Message, Seen
from keyshared.testing.judges.judge import Judge, Judgement

__all__ = ["RedriveOrder"]


class RedriveOrder(Judge):
    """A message that was redriven waits once, and nothing newer of its key goes out before it."""

    promise = Promise.REDRIVE_ORDER

    def judgements(self) -> Mapping[type[Happening], Judgement]:
        return {Delivered: self._delivered, Redriven: self._redriven}

    def missing(self) -> str | None:
        return None if Redriven in self.books.kinds else "the history tells of no Redriven"

    def _redriven(self, seen: Seen, happening: Redriven, message: Message | None) -> Iterator[Violation]:
        if message is not None and not message.doubtful:
            text = f"offset {happening.offset} was redriven, though it was outstanding"
            yield self.blame(text, message.since, seen)

    def _delivered(self, seen: Seen, happening: Delivered, message: Message | None) -> Iterable[Violation]:
        books, offset = self.books, happening.offset
        lane = books.lane_of(message, offset, happening.key)
        older = None if lane is None or not lane.listed else books.oldest_waiting(lane)
        if older is None or not older.redriven or older.offset >= offset:
            return ()
        text = f"offset {offset} overtook offset {older.offset} of its key, which was redriven and waits"
        return (self.blame(text, older.since, seen),)
