"""The promises about what hosts and consumers ask for: not-early and reason-travels."""

from collections.abc import Iterable, Iterator, Mapping

from keyshared.testing.guarantees import Promise, Violation
from keyshared.testing.history import DeadLettered, Delivered, Happening, Nacked, Published, Released
from keyshared.testing.judges.books import Books
from keyshared.testing.judges.delivery_promises import NO_DELIVERY
from keyshared.testing.judges.entries import REASONS, Message, Seen
from keyshared.testing.judges.judge import Judge, Judgement

__all__ = ["NotEarly", "ReasonTravels"]


class NotEarly(Judge):
    """Nobody gets a message before the time for which somebody asked."""

    promise = Promise.NOT_EARLY

    def __init__(self, books: Books) -> None:
        super().__init__(books)
        self.untimed = False  # somebody asked for a time, and nobody tells what time it is

    def judgements(self) -> Mapping[type[Happening], Judgement]:
        return {Delivered: self._delivered, Published: self._published}

    def missing(self) -> str | None:
        if Delivered not in self.books.kinds:
            return NO_DELIVERY
        return "the history has no times" if self.untimed else None

    def _delivered(self, seen: Seen, happening: Delivered, message: Message | None) -> Iterable[Violation]:
        asked = None if message is None else message.asked
        return () if asked is None else self._asked(seen, happening, asked)

    def _published(self, seen: Seen, happening: Published, message: Message | None) -> Iterable[Violation]:
        if happening.until_ms is None:
            return ()
        first = self.books.early.told_of(happening.offset).first if message is None else message.published
        if first is None:
            return ()
        assert isinstance(first.happening, Delivered)
        return self._asked(first, first.happening, seen)

    def _asked(self, seen: Seen, happening: Delivered, asked: Seen) -> Iterator[Violation]:
        if seen.now is None:
            self.untimed = True
        elif seen.now < _until(asked) - self.guarantees.tolerance_ms:
            text = f"offset {happening.offset} went to {happening.consumer!r} at {seen.now}, before {_until(asked)}"
            yield self.blame(text, asked, seen)


class ReasonTravels(Judge):
    """The dead letter of a message says what its last failure said that named a reason."""

    promise = Promise.REASON_TRAVELS

    def judgements(self) -> Mapping[type[Happening], Judgement]:
        return {DeadLettered: self._dead_lettered}

    def missing(self) -> str | None:
        return None if Delivered in self.books.kinds else NO_DELIVERY

    def _dead_lettered(self, seen: Seen, happening: DeadLettered, message: Message | None) -> Iterator[Violation]:
        if message is None or (message.named is None and type(message.published.happening) is Delivered):
            return  # what was said before the history began it does not tell
        if len(message.perhaps_named) > REASONS:
            return  # not all of them are remembered
        said = None if message.named is None else _reason(message.named)
        if happening.reason != said and happening.reason not in message.perhaps_named:
            text = f"the dead letter of offset {message.offset} says {happening.reason!r}, and its failure {said!r}"
            yield self.blame(text, message.named or message.published, seen)


def _until(asked: Seen) -> int:
    happening = asked.happening
    assert isinstance(happening, Published | Released)
    assert happening.until_ms is not None
    return happening.until_ms


def _reason(named: Seen) -> str | None:
    happening = named.happening
    assert isinstance(happening, Nacked)
    return happening.reason
