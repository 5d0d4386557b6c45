"""Many patterns at once: one pass over a key says whose patterns match.

A place of a pattern is how many of its characters have been read. For each place the table knows, one bit for each
pattern, who goes on there with which character, who goes on with any, where a star stands and where a pattern ends. A
pass over a key carries for each place the patterns that are there now. A character of the key costs a few operations
for each place where somebody is, however many patterns are there: usually two or three places.

What a pass costs is bounded by about what it would cost to ask the patterns alone: one that takes more steps is given
up, and each pattern is asked. So a key costs O(len(key)) for given patterns, whatever key and patterns are.
"""

from collections.abc import Iterator
from typing import Final

from keyshared.glob import Glob

__all__ = ["MAX_CHARACTERS", "MAX_PATTERNS", "MAX_STEPS_KNOWN", "GlobTable"]

MAX_PATTERNS: Final = 8_192
"""In one table, so that what is known of one character at one place takes at most a kibibyte."""

MAX_STEPS_KNOWN: Final = 16_384
"""Pairs of place and character in one table, after which it is full."""

MAX_CHARACTERS: Final = 256
"""Of a pattern in the rows; longer ones are asked alone."""

_FEW = 32  # patterns that are quicker asked alone
_STEPS_EACH = 2  # of a pass, which cost about what asking a pattern alone costs


class GlobTable:
    """The patterns of several consumers, each of whom is a power of two.

    Attributes:
        living: How many patterns it holds, those aside that are asked alone.
    """

    __slots__ = (
        "_alone", "_anys", "_dones", "_ends", "_globs", "_here", "_known", "_loops", "_masks", "_rows", "_whose",
        "living",
    )  # fmt: skip

    def __init__(self) -> None:
        # by place: who goes on with a character and with any character, who may stay there with any character, who is
        # at its end there, and who is whatever follows
        self._rows: list[dict[str, int]] = []
        self._anys: list[int] = []
        self._loops: list[int] = []
        self._ends: list[int] = []
        self._dones: list[int] = []
        self._whose: list[int] = []  # by pattern: its consumer
        self._masks: dict[int, int] = {}  # by consumer: its patterns
        self._globs: dict[int, list[Glob]] = {}  # the same patterns
        self._alone: dict[int, list[Glob]] = {}  # by consumer: patterns that are too long for rows
        self._here = 0  # patterns that were not dropped
        self._known = 0  # pairs of place and character
        self.living = 0

    @property
    def taken(self) -> int:
        """How many patterns the rows know, dropped ones included."""
        return len(self._whose)

    @property
    def is_full(self) -> bool:
        """Whether the next pattern belongs into another table."""
        return len(self._whose) >= MAX_PATTERNS or self._known >= MAX_STEPS_KNOWN

    def add(self, glob: Glob, consumer: int) -> None:
        """Take in a pattern whose characters are those of UTF-8. O(characters)."""
        chunks = glob.chunks
        if sum(map(len, chunks)) > MAX_CHARACTERS:
            self._alone.setdefault(consumer, []).append(glob)
            return
        self._globs.setdefault(consumer, []).append(glob)
        self._enter(chunks, consumer)

    def drop(self, consumer: int) -> None:
        """Forget the patterns of a consumer; the rows still know them. O(1)."""
        self._alone.pop(consumer, None)
        self._here ^= self._masks.pop(consumer, 0)
        self.living -= len(self._globs.pop(consumer, ()))

    def patterns(self) -> Iterator[tuple[Glob, int]]:
        """All patterns that it holds, each with its consumer."""
        for held in (self._globs, self._alone):
            for consumer, globs in held.items():
                yield from ((glob, consumer) for glob in globs)

    def takers(self, key: bytes) -> int:
        """The consumers of whose patterns one matches the key."""
        found = self._accepting(key) if self.living >= _FEW else None
        if found is None:
            found = _asked(self._globs, key)
        return found | _asked(self._alone, key)

    def _enter(self, chunks: list[list[str | None]], consumer: int) -> None:
        pattern = 1 << len(self._whose)
        place = 0
        self._reach(place)
        for number, chunk in enumerate(chunks):
            if number:
                self._loops[place] |= pattern
            for character in chunk:
                if character is None:
                    self._anys[place] |= pattern
                else:
                    row = self._rows[place]
                    self._known += character not in row
                    row[character] = row.get(character, 0) | pattern
                place += 1
                self._reach(place)
        self._ends[place] |= pattern
        self._dones[place] |= pattern & self._loops[place]
        self._whose.append(consumer)
        self._masks[consumer] = self._masks.get(consumer, 0) | pattern
        self._here |= pattern
        self.living += 1

    def _reach(self, place: int) -> None:
        if place == len(self._rows):
            self._rows.append({})
            for masks in (self._anys, self._loops, self._dones, self._ends):
                masks.append(0)

    def _accepting(self, key: bytes) -> int | None:
        """Return who accepts the key, found in one pass; None if it is quicker to ask each pattern."""
        text = key.decode(errors="surrogateescape")
        patience = _STEPS_EACH * self.living
        rows, anys, loops, dones = self._rows, self._anys, self._loops, self._dones
        found = 0
        here = {0: self._here}
        for character in text:
            if not here:
                break
            patience -= len(here)
            if patience < 0:
                return None
            done = 0
            after: dict[int, int] = {}
            for place, patterns in here.items():
                going = rows[place].get(character, 0) | anys[place] if anys[place] else rows[place].get(character)
                if going and (going := going & patterns):
                    onward = place + 1
                    after[onward] = after[onward] | going if onward in after else going
                    if dones[onward]:
                        done |= dones[onward] & going
                if loops[place] and (staying := loops[place] & patterns):
                    after[place] = after[place] | staying if place in after else staying
            here = after
            if done:  # whatever follows: nothing more is asked of these consumers
                accepting, others = self._consumers_of(done)
                found |= accepting
                here = {place: left for place, patterns in after.items() if (left := patterns & others)}
        matching = 0
        for place, patterns in here.items():
            matching |= patterns & self._ends[place]
        return found | self._consumers_of(matching)[0]

    def _consumers_of(self, patterns: int) -> tuple[int, int]:
        """Whose patterns these are, and all patterns of the others. O(those consumers)."""
        found, others = 0, -1
        while patterns:
            consumer = self._whose[(patterns & -patterns).bit_length() - 1]
            found |= consumer
            others &= ~self._masks[consumer]
            patterns &= others
        return found, others


def _asked(globs: dict[int, list[Glob]], key: bytes) -> int:
    """The consumers of whose patterns one matches, each pattern asked alone."""
    found = 0
    for consumer, own in globs.items():
        for glob in own:
            if glob._match(key):  # noqa: SLF001 - this is asked of nothing but bytes
                found |= consumer
                break
    return found
