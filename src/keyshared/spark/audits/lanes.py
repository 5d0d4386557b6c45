"""The exact audit of one lane: all deliveries of one key in one topic-partition. Plain Python; needs no Spark.

The history is replayed event by event. At every delivery three questions are asked: is the key open at another consumer
(one-holder), is an older message of the key neither open nor settled (key-order), and may this attempt exist at all
(fence, no-loss)? At every settlement two: is it the first one (no-loss), and is no newer attempt open (fence)? Works
for any per-key limit, and for logs of any origin.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from heapq import heapify, heappop, heappush
from operator import attrgetter
from typing import Final, NamedTuple

from keyshared.errors import ArgumentError

__all__ = ["Attempt", "Finding", "audit_lane"]

_END: Final = 0  # at one position, ends come before settlements and those before starts: deliveries are half-open
_SETTLE: Final = 1
_START: Final = 2


class Attempt(NamedTuple):
    """One delivery, as far as the order of things goes.

    Attributes:
        offset: The message.
        consumer: Who got it.
        attempt: Which delivery of the message this was.
        sequence: Position of the delivery in the history.
        end_sequence: Position of its end, None while it is open.
        settled_sequence: Position at which it settled its message, None if it did not.
    """

    offset: int
    consumer: str
    attempt: int
    sequence: int
    end_sequence: int | None
    settled_sequence: int | None


class Finding(NamedTuple):
    """A broken promise.

    Attributes:
        promise: Its stable id.
        offset: The message that should not have gone out, or should not have been settled.
        other_offset: The message that proves it, None if it is the same one.
        sequence: Where in the history.
        explanation: The proof as a sentence.
    """

    promise: str
    offset: int
    other_offset: int | None
    sequence: int
    explanation: str


def audit_lane(attempts: Iterable[Attempt]) -> list[Finding]:
    """Find every delivery of a lane that broke a promise.

    Args:
        attempts: All deliveries of one key in one topic-partition, in any order.

    Returns:
        Findings in the order in which they happened; at most one of each promise for a delivery, and for a settlement.

    Raises:
        ArgumentError: A delivery that ends before it starts, or settles its message before it ends.

    Complexity:
        O(n log n), n deliveries; proving a one-holder or fence violation also looks at what is open then.

    Example:
        >>> early = Attempt(2, "b", 1, 1, None, None)
        >>> [f.promise for f in audit_lane([Attempt(1, "a", 1, 0, None, None), early])]
        ['one-holder']
    """
    rows = sorted(attempts, key=lambda row: (row.sequence, row.offset, row.attempt))
    lane = _Lane(rows)
    findings: list[Finding] = []
    for position, kind, index in sorted(_events(rows)):
        row = rows[index]
        if kind == _START:
            findings += lane.start(index, row)
        elif kind == _END:
            lane.end(index, row)
        else:
            findings += lane.settle(index, position, row)
    return findings


def _events(rows: list[Attempt]) -> Iterator[tuple[int, int, int]]:
    for index, row in enumerate(rows):
        yield row.sequence, _START, index
        if row.end_sequence is not None:
            if row.end_sequence <= row.sequence:
                raise ArgumentError(
                    "end_sequence", row.end_sequence, f"be greater than the delivery's own {row.sequence}"
                )
            yield row.end_sequence, _END, index
        if row.settled_sequence is not None:
            if row.end_sequence is None or row.settled_sequence < row.end_sequence:
                requirement = f"not be before the delivery's end ({row.end_sequence})"
                raise ArgumentError("settled_sequence", row.settled_sequence, requirement)
            yield row.settled_sequence, _SETTLE, index


class _Lane:
    """What is open, settled and held at one moment."""

    def __init__(self, rows: list[Attempt]) -> None:
        self._open: dict[int, Attempt] = {}  # by index of the row
        self._open_at: Counter[str] = Counter()
        self._open_of: Counter[int] = Counter()
        self._settled: set[int] = set()
        self._last_attempt: dict[int, int] = {}
        # offsets that are neither open nor settled, and some that no longer belong here: those are dropped when met.
        # What is delivered later was offered before anything newer was, so it is held from the beginning
        self._held = [row.offset for row in rows]
        heapify(self._held)

    def start(self, index: int, row: Attempt) -> Iterator[Finding]:
        yield from self._check_attempt(row)
        yield from self._check_holder(row)
        self._open[index] = row
        self._open_at[row.consumer] += 1
        self._open_of[row.offset] += 1
        self._last_attempt[row.offset] = row.attempt
        oldest = self._oldest_held()
        if oldest is not None and oldest < row.offset:
            text = f"{row.offset} went to {row.consumer!r} while older {oldest} was neither out nor settled"
            yield Finding("key-order", row.offset, oldest, row.sequence, text)

    def end(self, index: int, row: Attempt) -> None:
        del self._open[index]
        self._open_at[row.consumer] -= 1
        if not self._open_at[row.consumer]:
            del self._open_at[row.consumer]
        self._open_of[row.offset] -= 1
        heappush(self._held, row.offset)

    def settle(self, index: int, position: int, row: Attempt) -> Iterator[Finding]:
        if row.offset in self._settled:
            text = f"{row.offset} was settled once more, by attempt {row.attempt} at {row.consumer!r}"
            yield Finding("no-loss", row.offset, None, position, text)
        self._settled.add(row.offset)
        if self._open_of[row.offset]:
            newer = (other for at, other in self._open.items() if at > index and other.offset == row.offset)
            if (other := next(newer, None)) is not None:
                text = f"{row.offset} was settled by attempt {row.attempt} while attempt {other.attempt} was open"
                yield Finding("fence", row.offset, None, position, text)

    def _check_attempt(self, row: Attempt) -> Iterator[Finding]:
        if row.offset in self._settled:
            text = f"{row.offset} went to {row.consumer!r} although it had been settled"
            yield Finding("no-loss", row.offset, None, row.sequence, text)
        last = self._last_attempt.get(row.offset)
        if last is None:
            return
        if row.attempt <= last:
            text = f"attempt {row.attempt} of {row.offset} came after attempt {last}"
            yield Finding("fence", row.offset, None, row.sequence, text)
        elif self._open_of[row.offset]:
            text = f"attempt {row.attempt} of {row.offset} began while attempt {last} was open"
            yield Finding("fence", row.offset, None, row.sequence, text)

    def _check_holder(self, row: Attempt) -> Iterator[Finding]:
        if len(self._open_at) - (row.consumer in self._open_at) == 0:
            return
        others = (open_row for open_row in self._open.values() if open_row.consumer != row.consumer)
        other = min(others, key=attrgetter("offset", "sequence"))
        text = (
            f"{row.offset} went to {row.consumer!r} while {other.offset} of the same key was open at {other.consumer!r}"
        )
        yield Finding("one-holder", row.offset, other.offset, row.sequence, text)

    def _oldest_held(self) -> int | None:
        held = self._held
        while held and (self._open_of[held[0]] or held[0] in self._settled):
            heappop(held)
        return held[0] if held else None
