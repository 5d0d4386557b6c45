"""The promise about what is said of messages that are done: settled-once."""

from collections.abc import Iterator, Mapping

from keyshared.testing.guarantees import Promise, Violation
from keyshared.testing.history import AtRest, Done, Happening, Quiet
from keyshared.testing.judges.books import Books
from keyshared.testing.judges.entries import Message, Seen
from keyshared.testing.judges.judge import Judge, Judgement

__all__ = ["SettledOnce"]


class SettledOnce(Judge):
    """Of each message it is said once that it is done: not before it is, and not later than the system is quiet."""

    promise = Promise.SETTLED_ONCE

    def __init__(self, books: Books) -> None:
        super().__init__(books)
        self.untold: dict[int, Seen] = {}  # what is done, and was not said to be
        self.has_older = False  # something was said to be done that may have ended before the history began

    def judgements(self) -> Mapping[type[Happening], Judgement]:
        return {Done: self._done, Quiet: self._quiet, AtRest: self._quiet} if self.guarantees.tells_done else {}

    @property
    def looks(self) -> bool:
        return self.guarantees.tells_done

    def after(self, seen: Seen) -> None:
        if type(seen.happening) is not Done:
            self.untold.update(dict.fromkeys(self.books.ended, seen))

    def missing(self) -> str | None:
        if not self.guarantees.tells_done:
            return "the guarantees do not claim tells_done"
        reasons = {
            "the history never says Quiet or AtRest, so what is done may still be told": (
                not {Quiet, AtRest} & self.books.kinds
            ),
            "what is said to be done, and was not told of, may have ended before the history began": self.has_older,
        }
        return "; ".join(reason for reason, holds in reasons.items() if holds) or None

    def entries(self) -> int:
        return len(self.untold)

    def _done(self, seen: Seen, happening: Done, message: Message | None) -> Iterator[Violation]:
        offset = happening.offset
        if self.untold.pop(offset, None) is not None or (message is not None and message.doubtful):
            return
        if message is None and self._may_have_ended_before(offset):
            self.has_older = True
        elif message is None:
            yield self.blame(f"offset {offset} is said to be done, and that was said before, or is not so", seen)
        else:
            yield self.blame(f"offset {offset} is said to be done, and is outstanding", message.since, seen)

    def _may_have_ended_before(self, offset: int) -> bool:
        """Whether the end of a message of which nothing was told may be older than the history."""
        books = self.books
        return (books.is_older(offset) or not books.log_is_told) and offset not in books.early

    def _quiet(self, seen: Seen, happening: Happening) -> Iterator[Violation]:  # noqa: ARG002  # one shape for all
        untold, self.untold = self.untold, {}
        for offset in sorted(untold):
            yield self.blame(f"offset {offset} is done, and nobody was told", untold[offset], seen)
