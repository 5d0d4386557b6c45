"""The promises about what becomes of messages: safe-cursor and no-loss."""

# ruff: noqa: D102  # what each method is for is said once, at Judge

from collections.abc import Iterator, Mapping

from keyshared.testing.books import Books
from keyshared.testing.deliveries import NO_PUBLISHED
from keyshared.testing.entries import Lane, LaneId, Message, Seen, Standing, standing
from keyshared.testing.guarantees import Promise, Violation
from keyshared.testing.history import (
    Acked,
    AtRest,
    Committed,
    DeadLettered,
    Delivered,
    Dropped,
    Happening,
    Nacked,
    Published,
    Quiet,
    Settled,
    SettledBy,
    Skipped,
)
from keyshared.testing.judging import Judge, Judgement
from keyshared.testing.waiting import is_held, owner_of

__all__ = ["NoLoss", "SafeCursor"]


class SafeCursor(Judge):
    """The cursor never passes an outstanding offset and never moves back."""

    promise = Promise.SAFE_CURSOR

    def __init__(self, books: Books) -> None:
        super().__init__(books)
        self.blamed_front: int | None = None  # a cursor that lags is one violation, not one in each moment of quiet

    def judgements(self) -> Mapping[type[Happening], Judgement]:
        return {Committed: self._committed, Quiet: self._quiet, AtRest: self._quiet}

    def missing(self) -> str | None:
        if Published not in self.books.kinds:
            return NO_PUBLISHED
        return None if Committed in self.books.kinds else "the history tells of no Committed"

    def _committed(self, seen: Seen, happening: Committed) -> Iterator[Violation]:
        books, resume = self.books, happening.resume_offset
        before = books.committed
        if before is not None and resume < _resume(before):
            yield self.blame(f"cursor {resume} came after cursor {_resume(before)}", before, seen)
        last = books.last_published
        if last is None:
            return
        lowest = books.lowest()
        if lowest is not None and lowest.offset < resume:
            yield self.blame(f"cursor {resume} passed outstanding offset {lowest.offset}", lowest.since, seen)
        newest = _offset(last)
        if resume > newest + 1:
            yield self.blame(
                f"cursor {resume} passed offsets that follow {newest} and were never published", last, seen
            )

    def _quiet(self, seen: Seen, happening: Happening) -> Iterator[Violation]:  # noqa: ARG002  # one shape for all
        books, last = self.books, self.books.last_published
        if not self.guarantees.cursor_keeps_up or last is None or books.doubtful:
            return
        lowest = books.lowest()
        front = _offset(last) if lowest is None else lowest.previous
        cursor = None if books.committed is None else _resume(books.committed)
        if front is None or front == self.blamed_front or (cursor is not None and cursor > front):
            return
        self.blamed_front = front
        text = f"the cursor is {cursor}, though everything up to offset {front} is done"
        yield self.blame(text, books.committed, last if lowest is None else lowest.published, seen)


class NoLoss(Judge):
    """Every published offset gets exactly one terminal answer, by a policy that was chosen; else it is outstanding."""

    promise = Promise.NO_LOSS

    def __init__(self, books: Books) -> None:
        super().__init__(books)
        chosen = self.guarantees
        policies = {DeadLettered: chosen.may_dead_letter, Dropped: chosen.may_drop, Skipped: chosen.may_skip}
        self.policies = {kind for kind, is_chosen in policies.items() if is_chosen}

    def judgements(self) -> Mapping[type[Happening], Judgement]:
        return {
            Delivered: self._delivered,
            Acked: self._acked,
            Nacked: self._nacked,
            Settled: self._settled,
            DeadLettered: self._given_up,
            Dropped: self._given_up,
            Skipped: self._given_up,
            AtRest: self._at_rest,
        }

    def missing(self) -> str | None:
        if Published not in self.books.kinds:
            return NO_PUBLISHED
        if AtRest not in self.books.kinds:
            return "the history does not say AtRest, so what has no answer may still get one"
        return None

    def _delivered(self, seen: Seen, happening: Delivered) -> Iterator[Violation]:
        offset, last = happening.offset, self.books.last_published
        if last is None:
            return
        message = self.books.messages.get(offset)
        if message is None:
            state = "was never published" if offset > _offset(last) else "is done, or was never published"
            yield self.blame(f"offset {offset} went to {happening.consumer!r}, but it {state}", seen)
        elif message.published.happening.key != happening.key:  # type: ignore[union-attr]  # both kinds have a key
            yield self.blame(f"offset {offset} was delivered with another key than its own", message.published, seen)

    def _acked(self, seen: Seen, happening: Acked) -> Iterator[Violation]:
        message = self.books.messages.get(happening.offset)
        if message is None and happening.counted and self.books.last_published is not None:
            yield self._second_answer(seen, happening.offset)
        elif message is not None and happening.counted is False:
            yield from self._ignored(seen, happening, message)

    def _nacked(self, seen: Seen, happening: Nacked) -> Iterator[Violation]:
        message = self.books.messages.get(happening.offset)
        if message is not None and happening.counted is False:
            yield from self._ignored(seen, happening, message)

    def _ignored(self, seen: Seen, happening: Acked | Nacked, message: Message) -> Iterator[Violation]:
        if standing(message, happening.consumer, happening.attempt) is Standing.CURRENT:
            kind = type(happening).__name__
            text = (
                f"{kind} of {happening.consumer!r} names the open delivery of offset {message.offset} and did not count"
            )
            yield self.blame(text, message.since, seen)

    def _settled(self, seen: Seen, happening: Settled) -> Iterator[Violation]:
        message = self.books.messages.get(happening.offset)
        if message is None:
            yield self._second_answer(seen, happening.offset)
        elif happening.reason is SettledBy.NOBODY:
            yield self.blame(f"offset {message.offset} is done without any answer", message.since, seen)
        elif happening.reason is SettledBy.LATE_ACK and not message.noted:
            text = f"offset {message.offset} is done by a late ack, but no ack of an earlier delivery has come"
            yield self.blame(text, message.since, seen)

    def _given_up(self, seen: Seen, happening: DeadLettered | Dropped | Skipped) -> Iterator[Violation]:
        message = self.books.messages.get(happening.offset)
        if message is None:
            yield self._second_answer(seen, happening.offset)
        elif type(happening) not in self.policies:
            kind = type(happening).__name__
            yield self.blame(f"offset {message.offset} is {kind}, which no policy allows", message.published, seen)

    def _second_answer(self, seen: Seen, offset: int) -> Violation:
        kind = type(seen.happening).__name__
        return self.blame(f"{kind} answers for offset {offset}, which is done already, or was never published", seen)

    def _at_rest(self, seen: Seen, happening: AtRest) -> Iterator[Violation]:  # noqa: ARG002  # one shape for all
        books = self.books
        if books.last_published is None or not any(map(books.has_room, books.members.values())):
            return
        asked: set[LaneId] = set()
        for message in books.messages.values():
            lane = message.lane
            if message.is_open or message.doubtful or lane.id in asked:
                continue
            asked.add(lane.id)  # what is behind it waits for it
            if not lane.open and not is_held(message, books) and _takers(books, lane):
                text = (
                    f"offset {message.offset} will never be delivered again: nothing is under way, and it has no answer"
                )
                yield self.blame(text, message.since, seen)


def _resume(seen: Seen) -> int:
    happening = seen.happening
    assert isinstance(happening, Committed)
    return happening.resume_offset


def _offset(seen: Seen) -> int:
    happening = seen.happening
    assert isinstance(happening, Published)
    return happening.offset


def _takers(books: Books, lane: Lane) -> bool:
    """Whether somebody would get the next message of a lane, as far as is known."""
    place = books.place_of(lane.id)
    if place is None or place.owned is None:
        return all(map(books.has_room, books.members.values()))
    member = books.members.get(owner_of(place.owned) or "")
    return member is not None and books.has_room(member)
