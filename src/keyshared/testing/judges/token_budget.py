"""The promise about the length of what a restart has to know: token-budget."""

from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from operator import itemgetter

from keyshared.testing.guarantees import Promise, Violation
from keyshared.testing.history import AtRest, Delivered, Happening, Held, HoldReason, Published, Quiet
from keyshared.testing.judges.books import Books
from keyshared.testing.judges.delivery_promises import NO_PUBLISHED
from keyshared.testing.judges.entries import Message, Seen
from keyshared.testing.judges.judge import Judge, Judgement

__all__ = ["TokenBudget"]


class TokenBudget(Judge):
    """Above three quarters of the bytes of a token only the lowest outstanding message goes out, until one half.

    Several answers may come in one call, and be told before all that they made possible. So what is judged is a token
    that was too long when the system was quiet, and has not been at one half since.
    """

    promise = Promise.TOKEN_BUDGET

    def __init__(self, books: Books) -> None:
        super().__init__(books)
        self.text = _TokenText()
        self.full: Seen | None = None  # the moment of quiet since which it is too long
        self.held: dict[int, None] = {}  # what the system has held back because the token is full, and perhaps does

    def judgements(self) -> Mapping[type[Happening], Judgement]:
        if self.guarantees.token_bytes is None:
            return {}
        return {Delivered: self._delivered, Quiet: self._quiet, AtRest: self._quiet}

    @property
    def looks(self) -> bool:
        return self.guarantees.token_bytes is not None

    def after(self, seen: Seen) -> None:
        budget, happening = self.guarantees.token_bytes, seen.happening
        assert budget is not None
        for offset in self.books.ended:
            self.text.end(offset)
        if isinstance(happening, Published):
            self.text.publish(happening.offset, is_over=happening.offset not in self.books.messages)
        if isinstance(happening, Held) and happening.reason is HoldReason.TOKEN_FULL:
            self.held[happening.offset] = None
        if self.books.doubtful or 2 * self.text.length <= budget:
            self.full = None
        elif isinstance(happening, Quiet | AtRest) and 4 * self.text.length > 3 * budget:
            self.full = self.full or seen

    def missing(self) -> str | None:
        if self.guarantees.token_bytes is None:
            return "the guarantees claim no token_bytes"
        if Published not in self.books.kinds:
            return NO_PUBLISHED
        return None if self.books.kinds & {Quiet, AtRest} else "the history never says Quiet"

    def entries(self) -> int:
        return len(self.text.outstanding) + len(self.text.stretches) + len(self.held)

    def _delivered(self, seen: Seen, happening: Delivered, message: Message | None) -> Iterable[Violation]:
        lowest = self.text.lowest
        if self.full is None or message is None or lowest is None:
            return ()
        if happening.offset <= lowest or happening.offset not in self.text.outstanding:
            return ()
        bytes_ = f"the token has {self.text.length} bytes of {self.guarantees.token_bytes}"
        text = f"offset {happening.offset} went out while {bytes_} and offset {lowest} is outstanding"
        return (self.blame(text, self.books.messages[lowest].since, self.full, seen),)

    def _quiet(self, seen: Seen, happening: Happening) -> Iterator[Violation]:  # noqa: ARG002  # one shape for all
        books, budget, lowest = self.books, self.guarantees.token_bytes, self.text.lowest
        assert budget is not None
        held = {offset: each for offset in self.held if (each := _held_for_it(books.messages.get(offset)))}
        self.held = dict.fromkeys(held)
        if books.doubtful or not books.log_is_told:
            return
        for offset, since in held.items():
            if offset == lowest or 2 * self.text.length <= budget:
                del self.held[offset]  # once, until it is held anew
                what = "is the lowest one" if offset == lowest else f"needs {self.text.length} bytes of {budget}"
                yield self.blame(f"offset {offset} is held back for the token, and {what}", since, seen)


def _held_for_it(message: Message | None) -> Seen | None:
    """Since when a message is held back because the token is full; None if it is not."""
    held = None if message is None or message.held is None else message.held.happening
    is_held = isinstance(held, Held) and held.reason is HoldReason.TOKEN_FULL
    return message.held if message is not None and is_held else None


class _TokenText:
    """What a token would say, in the form of docs/howto-restart.md, and how long that is. O(stretches) for a change."""

    def __init__(self) -> None:
        self.outstanding: OrderedDict[int, int | None] = OrderedDict()  # and what was published before each
        self.last: int | None = None
        self.stretches: list[tuple[int, int]] = []  # settled ones above the lowest outstanding message
        self.length = 0

    @property
    def lowest(self) -> int | None:
        return next(iter(self.outstanding), None)

    def publish(self, offset: int, *, is_over: bool) -> None:
        before, self.last = self.last, offset
        self.outstanding[offset] = before
        if is_over:
            self.end(offset)
        self._measure()

    def end(self, offset: int) -> None:
        if offset not in self.outstanding:
            return
        before, lowest = self.outstanding.pop(offset), self.lowest
        if lowest is not None and before is not None and lowest < offset:
            start, stop = before + 1, offset + 1
            first = bisect_left(self.stretches, start, key=itemgetter(1))
            last = bisect_right(self.stretches, stop, key=itemgetter(0))
            joined = [(start, stop), *self.stretches[first:last]]
            self.stretches[first:last] = [(min(one[0] for one in joined), max(one[1] for one in joined))]
        elif lowest is None:
            self.stretches = []
        else:
            self.stretches = [stretch for stretch in self.stretches if stretch[0] > lowest]
        self._measure()

    def _measure(self) -> None:
        lowest = self.lowest
        assert self.last is not None
        resume, safe = (self.last + 1, self.last) if lowest is None else (lowest, self.outstanding[lowest])
        numbers = [1 + (2 * resume if resume >= 0 else -2 * resume - 1), 0 if safe is None else resume - safe]
        below = resume
        for start, stop in self.stretches:
            numbers += [start - below - 1, stop - start - 1]
            below = stop
        size = sum(max(1, (number.bit_length() + 6) // 7) for number in numbers)
        self.length = 5 + (4 * (size + 4) + 2) // 3
