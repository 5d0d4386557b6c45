"""The promises about what becomes of messages: safe-cursor, no-loss and attempts."""

from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator, Mapping
from itertools import takewhile
from typing import Final, NamedTuple, TypeAlias

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
from keyshared.testing.judges.books import Books
from keyshared.testing.judges.delivery_promises import NO_DELIVERY, NO_PUBLISHED
from keyshared.testing.judges.early import Told
from keyshared.testing.judges.entries import (
    LaneId,
    Message,
    Seen,
    Standing,
    is_latest_only,
    is_same_delivery,
    key_of,
    may_be_done_by,
    may_name_earlier,
    standing,
)
from keyshared.testing.judges.judge import Judge, Judgement
from keyshared.testing.judges.waiting_promises import takers, waits_for_held

__all__ = ["Attempts", "NoLoss", "SafeCursor"]

NOT_BEFORE_PUBLISHED: Final = "what stands before the first Published is not judged"

_REMEMBERED_GAPS: Final = 1_000
_REMEMBERED_ACKS: Final = 1_000  # messages
_REMEMBERED_OF_ONE: Final = 9  # deliveries: as many as are remembered of a message

_Deliveries: TypeAlias = tuple[tuple[str, int | None], ...]


class _Beyond(NamedTuple):
    """A cursor beyond what was published by then: behind a gap of the log, or what was told early, or too far."""

    cursor: int
    seen: Seen


class SafeCursor(Judge):
    """The cursor never passes an outstanding offset and never moves back."""

    promise = Promise.SAFE_CURSOR

    def __init__(self, books: Books) -> None:
        super().__init__(books)
        self.blamed_front: int | None = None  # a cursor that lags is one violation, not one in each moment of quiet
        self.beyond: deque[_Beyond] = deque(maxlen=_REMEMBERED_GAPS)  # what is published next decides
        self.first_cursor: int | None = None  # the greatest one before the first publication
        self.has_early = False  # it has passed something that is published

    def judgements(self) -> Mapping[type[Happening], Judgement]:
        return {
            Published: self._published,
            Committed: self._committed,
            Quiet: self._quiet,
            AtRest: self._quiet,
        }

    def entries(self) -> int:
        return len(self.beyond)

    def missing(self) -> str | None:
        if Published not in self.books.kinds:
            return NO_PUBLISHED
        if Committed not in self.books.kinds:
            return "the history tells of no Committed"
        return NOT_BEFORE_PUBLISHED if self.has_early else None

    def _committed(self, seen: Seen, happening: Committed) -> Iterable[Violation]:
        books, resume = self.books, happening.resume_offset
        found: list[Violation] = []
        if books.resume_offset is not None and resume < books.resume_offset:
            text = f"cursor {resume} came after cursor {books.resume_offset}"
            found.append(self.blame(text, books.committed, seen))
        published = books.last_offset
        if published is None:
            self.first_cursor = resume if self.first_cursor is None else max(resume, self.first_cursor)
            return found
        lowest = books.lowest()
        if lowest is not None and lowest.offset < resume:
            text = f"cursor {resume} passed outstanding offset {lowest.offset}"
            found.append(self.blame(text, lowest.since, seen))
        if resume > published + 1 and (not self.beyond or self.beyond[-1].cursor < resume):
            self.beyond.append(_Beyond(resume, seen))
        return found

    def _published(self, seen: Seen, happening: Published, message: Message | None) -> Iterable[Violation]:
        if self.first_cursor is not None:
            self.has_early |= happening.offset < self.first_cursor
        return self._passed(seen, happening.offset, message) if self.beyond else ()

    def _passed(self, seen: Seen, offset: int, message: Message | None) -> Iterator[Violation]:
        """A cursor may stand behind a gap of the log, but not behind what is told of only then."""
        since = self._first_told(seen, offset, message)
        then = takewhile(lambda each: each.seen.position < since, self.beyond)
        passed = next((each for each in then if offset < each.cursor), None)
        if passed is not None:
            text = f"cursor {passed.cursor} passed offset {offset}, which was published only then"
            yield self.blame(text, passed.seen, seen)
        while self.beyond and (self.beyond[0].cursor <= offset + 1 or self.beyond[0] is passed):
            self.beyond.popleft()

    def _first_told(self, seen: Seen, offset: int, message: Message | None) -> int:
        """In which row a message was told of first that is published now; what was forgotten was told before all."""
        early = self.books.early
        first = early.told_of(offset).since if message is None else message.published
        if first is None and offset in early:
            return -1
        return (first or seen).position

    def _quiet(self, seen: Seen, happening: Happening) -> Iterable[Violation]:  # noqa: ARG002  # one shape for all
        books = self.books
        if not self.guarantees.cursor_keeps_up or books.last_published is None or books.doubtful:
            return ()
        lowest, cursor = books.lowest(), books.resume_offset
        front = books.last_offset if lowest is None else lowest.previous
        if front is None or front == self.blamed_front or (cursor is not None and cursor > front):
            return ()
        self.blamed_front = front
        text = f"the cursor is {cursor}, though everything up to offset {front} is done"
        follows = books.last_published if lowest is None else lowest.published
        return (self.blame(text, books.committed, follows, seen),)


class NoLoss(Judge):
    """Every published offset gets exactly one terminal answer, by a policy that was chosen; else it is outstanding."""

    promise = Promise.NO_LOSS

    def __init__(self, books: Books) -> None:
        super().__init__(books)
        chosen = self.guarantees
        policies = {DeadLettered: chosen.may_dead_letter, Dropped: chosen.may_drop, Skipped: chosen.may_skip}
        self.policies = {kind for kind, is_chosen in policies.items() if is_chosen}
        self.unpublished: dict[int, Seen] = {}  # what the history has told of, and not yet of its publication
        self.acked: OrderedDict[int, _Deliveries] = OrderedDict()  # acks that were only seen, and may have counted
        self.has_older = False
        self.has_early = False  # something came before the first publication that would be judged behind it
        self.has_forgotten = False  # some of those acks
        self.unmatched = 0  # acks that counted, and may have been of those

    def judgements(self) -> Mapping[type[Happening], Judgement]:
        return {
            Published: self._published,
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
        count = self.books.early.forgotten
        reasons = {
            "the history does not say AtRest, so what has no answer may still get one": AtRest not in self.books.kinds,
            f"{count} messages that were done before their Published were forgotten": count,
            NOT_BEFORE_PUBLISHED: self.has_early,
            "offsets below the first Published are taken for older than the history": self.has_older,
            (
                f"{self.unmatched} acks that counted, of what was done, may be what the system says of acks before; "
                f"only the last {_REMEMBERED_ACKS:,} of these are remembered"
            ): self.unmatched,
            self.books.why_unclear(): self.books.ambiguous,
        }
        return "; ".join(reason for reason, holds in reasons.items() if reason and holds) or None

    def entries(self) -> int:
        return len(self.unpublished) + len(self.acked)

    def finish(self) -> Iterator[Violation]:
        for offset in sorted(self.unpublished):
            yield self._blame_unpublished(offset)

    def _published(self, seen: Seen, happening: Published, message: Message | None) -> Iterable[Violation]:
        books = self.books
        if not books.log_is_told:
            self._expect_all(happening.offset)
        if message is None and not self.unpublished and not books.early.told:
            return ()  # nothing was told of it before, as nearly always
        return self._published_late(seen, happening, message)

    def _expect_all(self, first: int) -> None:
        """The first publication says what may be older than the history of all that was told of before it."""
        for offset, told in self.books.told_early().items():
            if offset < first:
                self.has_older = True
            else:
                self.unpublished[offset] = told

    def _published_late(self, seen: Seen, happening: Published, message: Message | None) -> Iterator[Violation]:
        offset = happening.offset
        if self.unpublished:
            self.unpublished.pop(offset, None)
            for other in sorted(other for other in self.unpublished if other < offset):
                yield self._blame_unpublished(other, seen)
        told = self.books.early.told_of(offset) if message is None else Told(message.published, message.odd)
        first = None if told.first is None or key_of(told.first) == happening.key else told.first
        if first is not None or told.odd is not None:
            text = f"offset {offset} was delivered with another key than it was published with"
            yield self.blame(text, first, told.odd, seen)

    def _blame_unpublished(self, offset: int, seen: Seen | None = None) -> Violation:
        told = self.unpublished.pop(offset)
        kind = type(told.happening).__name__
        return self.blame(f"{kind} tells of offset {offset}, which was never published", told, seen)

    def _delivered(self, seen: Seen, happening: Delivered, message: Message | None) -> Iterable[Violation]:
        if message is not None and message.doubtful:  # no call where nothing is in doubt, as nearly always
            self._forget_acks(message)
        if message is not None and message.key == happening.key:
            return ()
        if not self.books.log_is_told:
            self.has_early |= message is None and self.books.is_over(happening.offset)
            return ()
        return self._unexpected(seen, happening, message)

    def _unexpected(self, seen: Seen, happening: Delivered, message: Message | None) -> Iterator[Violation]:
        offset = happening.offset
        if message is not None:
            yield self.blame(f"offset {offset} was delivered with another key than its own", message.published, seen)
        elif self.books.is_over(offset):
            text = f"offset {offset} went to {happening.consumer!r}, but it is done, or was never published"
            yield self.blame(text, seen)
        else:
            self._expect(offset, seen)

    def _expect(self, offset: int, seen: Seen) -> None:
        """Expect that something is published which was told of; not if it may be older than the history."""
        if self.books.is_older(offset):
            self.has_older = True
        else:
            self.unpublished.setdefault(offset, seen)

    def _acked(self, seen: Seen, happening: Acked, message: Message | None) -> Iterable[Violation]:
        if message is None:
            return self._unasked_ack(seen, happening) if happening.counted else ()
        if happening.counted is False:
            return self._ignored(seen, happening, message)
        if happening.counted:
            self._forget_acks(message)
        else:
            self._note_only_seen(happening, message)
        return ()

    def _note_only_seen(self, happening: Acked, message: Message) -> None:
        named = happening.consumer, happening.attempt
        if not may_be_done_by(message, standing(message, *named), self.guarantees):
            return
        before = self.acked.get(happening.offset, ())
        if named in before:
            return
        self.acked[happening.offset] = (*before, named)[-_REMEMBERED_OF_ONE:]
        self.has_forgotten |= len(before) == _REMEMBERED_OF_ONE
        if len(self.acked) > _REMEMBERED_ACKS:
            self.acked.popitem(last=False)
            self.has_forgotten = True

    def _forget_acks(self, message: Message) -> None:
        """Acks that were only seen have not ended a message that is told to end otherwise, or goes on."""
        if message.doubtful:
            self.acked.pop(message.offset, None)

    def _unasked_ack(self, seen: Seen, happening: Acked) -> Iterable[Violation]:
        """A system may say that the ack has counted which somebody has seen: once."""
        named = happening.consumer, happening.attempt
        if any(is_same_delivery(each, named) for each in self.acked.get(happening.offset, ())):
            del self.acked[happening.offset]
            return ()
        if self.has_forgotten and self.books.is_over(happening.offset):
            self.unmatched += 1  # it may name one that was forgotten
            return ()
        return self._unasked(seen, happening.offset)

    def _nacked(self, seen: Seen, happening: Nacked, message: Message | None) -> Iterable[Violation]:
        if message is None or happening.counted is not False:
            return ()
        return self._ignored(seen, happening, message)

    def _ignored(self, seen: Seen, happening: Acked | Nacked, message: Message) -> Iterator[Violation]:
        named = happening.consumer, happening.attempt
        if standing(message, *named) is not Standing.CURRENT or may_name_earlier(message, *named):
            return
        if self.books.log_is_told:
            verb = "acked" if isinstance(happening, Acked) else "nacked"
            text = f"{happening.consumer!r} {verb} its open delivery of offset {message.offset}, which did not count"
            yield self.blame(text, message.since, seen)

    def _settled(self, seen: Seen, happening: Settled, message: Message | None) -> Iterator[Violation]:
        yield from self._end(seen, happening.offset, message)
        if happening.reason is SettledBy.NOBODY:
            text = f"offset {happening.offset} is done without any answer"
            yield from self._against(text, None if message is None else message.since, seen)
        elif happening.reason is SettledBy.SUPERSEDED and not self._may_supersede(message):
            text = f"offset {happening.offset} is superseded, which no policy allows"
            yield from self._against(text, None if message is None else message.published, seen)
        elif happening.reason is SettledBy.LATE_ACK and message is not None and not self._may_be_acked_late(message):
            text = f"offset {message.offset} is done by a late ack, but no ack of an earlier delivery has come"
            yield from self._against(text, message.since, seen)

    def _may_be_acked_late(self, message: Message) -> bool:
        """Whether an ack of an earlier delivery has come, or may have before the history began."""
        return message.noted or message.may_be_older

    def _may_supersede(self, message: Message | None) -> bool:
        """Whether a policy gives up a message for a newer one; of a key that is not told, one may do that."""
        claimed = self.guarantees.latest_only
        return bool(claimed) if message is None else is_latest_only(self.guarantees, message.lane.id)

    def _given_up(
        self, seen: Seen, happening: DeadLettered | Dropped | Skipped, message: Message | None
    ) -> Iterator[Violation]:
        yield from self._end(seen, happening.offset, message)
        if type(happening) not in self.policies:
            text = f"offset {happening.offset} is {type(happening).__name__}, which no policy allows"
            yield from self._against(text, None if message is None else message.published, seen)

    def _against(self, text: str, since: Seen | None, seen: Seen) -> Iterator[Violation]:
        """Blame an end of an outstanding message, or of one of which nothing else has been told yet."""
        happening = seen.happening
        assert isinstance(happening, Settled | DeadLettered | Dropped | Skipped)
        self.has_early |= not self.books.log_is_told
        if self.books.log_is_told and (since is not None or not self.books.is_over(happening.offset)):
            yield self.blame(text, since, seen)

    def _end(self, seen: Seen, offset: int, message: Message | None) -> Iterator[Violation]:
        """The system tells how a message has ended; of one that is outstanding that is the first word."""
        if message is None:
            yield from self._unasked(seen, offset)
        else:
            self._forget_acks(message)

    def _unasked(self, seen: Seen, offset: int) -> Iterator[Violation]:
        """An end of a message that is not outstanding: of one that is done, or of one that is not told of yet."""
        if not self.books.log_is_told:
            self.has_early |= self.books.is_over(offset)
            return
        if self.books.is_over(offset):
            how = "an ack counted" if isinstance(seen.happening, Acked) else f"it is {type(seen.happening).__name__}"
            text = f"offset {offset} is done already, or was never published, and {how}"
            yield self.blame(text, seen)
        else:
            self._expect(offset, seen)

    def _at_rest(self, seen: Seen, happening: AtRest) -> Iterator[Violation]:  # noqa: ARG002  # one shape for all
        books = self.books
        if not books.log_is_told:
            return
        for offset in sorted(self.unpublished):
            yield self._blame_unpublished(offset, seen)
        oldest: dict[LaneId, Message] = {}  # what is behind it waits for it
        for offset in sorted(books.messages):
            message = books.messages[offset]
            if message.waits:
                oldest.setdefault(message.lane.id, message)
        for message in oldest.values():
            if self._is_stuck(message):
                text = (
                    f"offset {message.offset} will never be delivered again: nothing is under way, and it has no answer"
                )
                yield self.blame(text, message.since, seen, offset=message.offset)

    def _is_stuck(self, message: Message) -> bool:
        """Whether the oldest message of a lane waits for nothing."""
        lane = message.lane
        if lane.open or lane.unsure or waits_for_held(message, self.books):
            return False
        return bool(takers(lane, self.books))


class Attempts(Judge):
    """A message that has failed so many times is not delivered again, and does not wait as if it were."""

    promise = Promise.ATTEMPTS

    def judgements(self) -> Mapping[type[Happening], Judgement]:
        if self.guarantees.max_attempts is None:
            return {}
        return {Delivered: self._delivered, AtRest: self._at_rest}

    def missing(self) -> str | None:
        if self.guarantees.max_attempts is None:
            return "the guarantees claim no max_attempts"
        return None if Delivered in self.books.kinds else NO_DELIVERY

    def _delivered(self, seen: Seen, happening: Delivered, message: Message | None) -> Iterator[Violation]:
        if message is not None and self._is_spent(message):
            text = (
                f"offset {message.offset} has failed {message.failed} times, and went to {happening.consumer!r} again"
            )
            yield self.blame(text, message.delivered, message.since, seen)

    def _at_rest(self, seen: Seen, happening: AtRest) -> Iterator[Violation]:  # noqa: ARG002  # one shape for all
        for message in self.books.messages.values():
            if message.waits and message.held is None and self._is_spent(message):
                text = f"offset {message.offset} has failed {message.failed} times, and has no answer"
                yield self.blame(text, message.delivered, message.since, seen)

    def _is_spent(self, message: Message) -> bool:
        most = self.guarantees.max_attempts
        return most is not None and message.failed >= most and not message.is_kept_back
