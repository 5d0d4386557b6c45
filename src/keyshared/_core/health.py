"""Reports for an operator: one `Done` for each message, if it is asked for; ages and counts for monitoring.

When messages were offered is kept as marks, one for each second with an offer.
"""

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from itertools import pairwise
from operator import itemgetter
from typing import Final

from keyshared._checks import require
from keyshared._core.feature import Feature
from keyshared._core.reader import Reader
from keyshared._core.records import Entry
from keyshared._core.window import Window
from keyshared.effects import Done, Effect, Ending

__all__ = ["Measure", "TellSettled"]

_SECOND: Final = 1_000
_offset_of: Final = itemgetter(0)


class Measure(Feature):
    """Counts deliveries, failures and endings, and knows how old an outstanding message is.

    Attributes:
        made: How many deliveries were made.
        failed: How many of them failed.
    """

    name = "health"

    def __init__(self, window: Window) -> None:
        self._cursor = window.cursor
        self._last = window.cursor.last
        self._marks: list[tuple[int, int]] = []  # from which offset on, and when at the earliest, by both
        self._ended = dict.fromkeys(Ending, 0)
        self.made = 0
        self.failed = 0

    def delivered(self, number: int) -> None:
        """Count deliveries."""
        self.made += number

    def failed_one(self) -> None:
        """Count a failure."""
        self.failed += 1

    def settled(self, entry: Entry, how: Ending) -> None:
        """Count a message that is settled."""
        self._ended[how] += 1

    def skipped(self, offset: int, key: bytes | None, how: Ending) -> None:
        """Count a message that was never outstanding."""
        self._ended[how] += 1

    @property
    def ended(self) -> Mapping[Ending, int]:
        """How many messages were settled, by how they ended."""
        return {how: number for how, number in self._ended.items() if number}

    def age_of(self, offset: int, now: int) -> int:
        """Return how long ago an outstanding message was offered, at most a second more. O(log n)."""
        return now - self._marks[bisect_right(self._marks, offset, key=_offset_of) - 1][1]

    def finish(self, now: int) -> Iterable[Effect]:
        """Note the time of what was offered in this call, and forget what the position has passed."""
        cursor, marks = self._cursor, self._marks
        if not cursor.outstanding:
            marks.clear()
        elif not marks:
            marks.append((cursor.resume_offset or 0, now))
        elif cursor.last != self._last and now - marks[-1][1] >= _SECOND:
            marks.append((cursor.last or 0, now))
        self._last = cursor.last
        if len(marks) > 1:
            passed = bisect_right(marks, cursor.resume_offset or 0, key=_offset_of) - 1
            del marks[:passed]
        return ()

    def dump(self, now: int) -> object:
        """Return the counts, and the marks with their ages."""
        return {
            "ended": {how.value: number for how, number in self.ended.items()},
            "delivered": self.made,
            "failed": self.failed,
            "marks": [[offset, now - since] for offset, since in self._marks],
        }

    def load(self, row: Reader, now: int) -> None:
        """Go on counting, and grow older, from where the snapshot was taken."""
        for name, number in row.field("ended").fields().items():
            self._ended[Ending(name)] = number.count()
        self.made = row.field("delivered").count()
        self.failed = row.field("failed").count()
        rows = [mark.items(2) for mark in row.field("marks").items()]
        self._marks = [(offset.integer(), now - age.count()) for offset, age in rows]
        self._last = self._cursor.last

    def check_invariants(self) -> None:
        """Raise `InvariantError` unless every outstanding message has an age, and none has two. For tests; O(n)."""
        cursor, marks = self._cursor, self._marks
        require(bool(marks) == bool(cursor.outstanding), "there are times exactly while something is outstanding")
        if marks:
            first, last = cursor.resume_offset or 0, cursor.last or 0
            require(marks[0][0] <= first and marks[-1][0] <= last, "what is outstanding has an age")
            require(all(offset > first for offset, _ in marks[1:]), "times that are passed are forgotten")
        pairs = pairwise(marks)
        rises = all(offset < later and since + _SECOND <= then for (offset, since), (later, then) in pairs)
        require(rises, "times of offers grow with their offsets")


class TellSettled(Feature):
    """Notes what is settled, and tells it at the end of the call."""

    def __init__(self) -> None:
        self._done: list[Effect] = []

    def settled(self, entry: Entry, how: Ending) -> None:
        """Note that a message is settled."""
        self._done.append(Done(entry.offset, entry.key, how))

    def skipped(self, offset: int, key: bytes | None, how: Ending) -> None:
        """Note that an offered message is settled already."""
        self._done.append(Done(offset, key, how))

    def finish(self, now: int) -> Iterable[Effect]:
        """Return what was settled, in that order."""
        done = self._done
        if done:
            self._done = []
        return done
