"""The promise about handlers that get several messages of a key at once: whole-batch."""

from collections.abc import Iterator, Mapping

from keyshared.testing.guarantees import Promise, Violation
from keyshared.testing.history import Acked, Delivered, Happening, Published
from keyshared.testing.judges.books import Books
from keyshared.testing.judges.delivery_promises import NO_DELIVERY
from keyshared.testing.judges.entries import LaneId, Message, Seen, Standing, may_name_earlier, standing
from keyshared.testing.judges.judge import Judge, Judgement

__all__ = ["WholeBatch"]


class WholeBatch(Judge):
    """A batch goes out in one turn, nothing goes out beside it, and what is newer than a failure comes back with it."""

    promise = Promise.WHOLE_BATCH

    def __init__(self, books: Books) -> None:
        super().__init__(books)
        self.turn: LaneId | None = None  # of which lane a message has just gone out

    def judgements(self) -> Mapping[type[Happening], Judgement]:
        return {Delivered: self._delivered, Acked: self._acked} if self.guarantees.batches else {}

    @property
    def looks(self) -> bool:
        return self.guarantees.batches

    def after(self, seen: Seen) -> None:
        """Notice when a turn is over: when anything else happens than the next delivery of it."""
        happening = seen.happening
        message = self.books.messages.get(happening.offset) if isinstance(happening, Delivered) else None
        self.turn = None if message is None else message.lane.id

    def missing(self) -> str | None:
        if not self.guarantees.batches:
            return "the guarantees claim no batches"
        if Delivered not in self.books.kinds:
            return NO_DELIVERY
        told = Published in self.books.kinds
        return None if told else "without Published nobody can tell which older messages wait when one is acked"

    def _delivered(self, seen: Seen, happening: Delivered, message: Message | None) -> Iterator[Violation]:
        books, offset = self.books, happening.offset
        lane = books.lane_of(message, offset, happening.key)
        if lane is None or lane.id == self.turn:
            return
        beside = next((each for held in lane.holders.values() for each in held.values() if each is not message), None)
        if beside is not None:
            text = f"offset {offset} went out while offset {beside.offset} was left of the batch before it"
            yield self.blame(text, beside.since, seen)

    def _acked(self, seen: Seen, happening: Acked, message: Message | None) -> Iterator[Violation]:
        books = self.books
        if message is None or happening.counted is False or not books.log_is_told or not message.lane.listed:
            return
        named = happening.consumer, happening.attempt
        if standing(message, *named) is not Standing.CURRENT or may_name_earlier(message, *named):
            return
        older = books.oldest_waiting(message.lane)
        has_failed = older is not None and not (older.redriven and older.delivered is None)
        if older is not None and has_failed and older.offset < message.offset:
            text = f"offset {message.offset} stayed open and was acked, although offset {older.offset} came back"
            yield self.blame(text, older.since, seen)
