"""The promise about what a system counts of itself: health-adds-up."""

from collections.abc import Iterator, Mapping

from keyshared.testing.guarantees import Promise, Violation
from keyshared.testing.history import Happening, Measured
from keyshared.testing.judges.books import Books
from keyshared.testing.judges.entries import Seen
from keyshared.testing.judges.judge import Judge, Judgement

__all__ = ["HealthAddsUp"]


class HealthAddsUp(Judge):
    """What a system counts as done grows by what is done: not by more, not by less, and not back over a restart."""

    promise = Promise.HEALTH_ADDS_UP

    def __init__(self, books: Books) -> None:
        super().__init__(books)
        self.last: Seen | None = None  # when it said last how many there are
        self.ended = 0  # since then
        self.doubtful = 0  # how many may have ended before that

    def judgements(self) -> Mapping[type[Happening], Judgement]:
        return {Measured: self._measured} if self.guarantees.measures else {}

    @property
    def looks(self) -> bool:
        return self.guarantees.measures

    def after(self, seen: Seen) -> None:  # noqa: ARG002  # one shape for all
        self.ended += len(self.books.ended)

    def missing(self) -> str | None:
        if not self.guarantees.measures:
            return "the guarantees do not claim measures"
        return None if Measured in self.books.kinds else "the history tells of no Measured"

    def _measured(self, seen: Seen, happening: Measured) -> Iterator[Violation]:
        last, ended, doubtful = self.last, self.ended, self.doubtful
        self.last, self.ended, self.doubtful = seen, 0, self.books.doubtful
        before = None if last is None else last.happening
        if not isinstance(before, Measured):
            return
        more = happening.count - before.count
        if not ended - doubtful <= more <= ended + self.doubtful:
            text = f"{more} messages more are counted as done than before, and {ended} are done since then"
            yield self.blame(text, last, seen)
