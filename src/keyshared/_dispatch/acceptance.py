"""Which consumers accept a key: one question about all of them, and the answer is kept while it may be asked again.

A filter knows whether one consumer accepts a key. To ask every consumer costs as much as there are patterns. Here the
patterns of all are together: exact ones in a dict, short prefixes in another, which is asked for each length that
occurs, and the rest in tables that are read in one pass (`GlobTable`).

An answer is a number with one bit for each consumer.
"""

from bisect import insort
from collections import Counter
from collections.abc import Container
from typing import Final

from keyshared._dispatch.glob_table import GlobTable
from keyshared.errors import InvariantError
from keyshared.glob import Glob, KeyFilter

__all__ = ["KEPT_BYTES", "Acceptance"]

KEPT_BYTES: Final = 262_144
"""Of keys whose answers are kept, before those of which nothing is outstanding are forgotten."""

_KEPT_EACH: Final = 128  # what an answer takes besides the bytes of its key

_LONGEST_PREFIX: Final = 64  # of those that are looked up; each length is one look-up

_RECOUNTED: Final = 50  # answers; each costs as much as there are patterns


class Acceptance:
    """What the patterns of all consumers say of a key.

    Attributes:
        filters: The filter of everyone who is known, by name.
        bits: The bit of everyone who is known, by name.
    """

    __slots__ = (
        "_everyone",
        "_exact",
        "_free",
        "_kept",
        "_lengths",
        "_outstanding",
        "_prefixes",
        "_prefixes_of",
        "_room",
        "_selective",
        "_tables",
        "bits",
        "filters",
    )

    def __init__(self) -> None:
        self.filters: dict[str, KeyFilter] = {}
        self.bits: dict[str, int] = {}
        self._free: list[int] = []  # bits that were somebody's and are nobody's
        self._everyone = 0  # who accepts every key
        self._selective = 0  # who does not
        self._exact: dict[bytes, int] = {}
        self._prefixes: dict[bytes, int] = {}
        self._prefixes_of: Counter[int] = Counter()  # how many of them have a length
        self._lengths: list[int] = []  # those lengths, growing
        self._tables: list[GlobTable] = []
        # Answers about selective consumers, as of the last time that patterns were added; who has left is masked.
        self._kept: dict[bytes, int] = {}
        self._room = KEPT_BYTES
        self._outstanding: Container[bytes] = ()

    def keep_for(self, outstanding: Container[bytes]) -> None:
        """Keep the answers about these keys for as long as they are in there; about others only some."""
        self._outstanding = outstanding

    def of(self, key: bytes) -> int:
        """Return who accepts the key.

        Complexity:
            O(len(key)) for given patterns, whatever key and patterns; O(1) while the answer is kept.
        """
        if not self._selective:
            return self._everyone
        if not self._tables:  # found as quickly as kept
            return self._looked_up(key) | self._everyone
        found = self._kept.get(key)
        if found is None:
            found = self._looked_up(key)
            for table in self._tables:
                found |= table.takers(key)
            self._keep(key, found)
        return found & self._selective | self._everyone

    def add(self, name: str, accepts: KeyFilter) -> None:
        """Take in what a consumer accepts, in place of what it accepted so far. O(its patterns)."""
        self.drop(name)
        bit = self._free.pop() if self._free else 1 << len(self.bits)
        self.filters[name] = accepts
        self.bits[name] = bit
        if accepts.accepts_all:
            self._everyone |= bit
            return
        self._selective |= bit
        self._kept = {}
        self._room = KEPT_BYTES
        for glob in accepts.globs:
            exact, prefix = glob.exact, _short_prefix(glob)
            if exact is not None:
                self._exact[exact] = self._exact.get(exact, 0) | bit
            elif prefix is not None:
                self._add_prefix(prefix, bit)
            else:
                self._add_general(glob, bit)

    def drop(self, name: str) -> None:
        """Forget a consumer, if it is known. O(its patterns), amortised."""
        accepts = self.filters.pop(name, None)
        if accepts is None:
            return
        bit = self.bits.pop(name)
        self._free.append(bit)
        if accepts.accepts_all:
            self._everyone ^= bit
            return
        self._selective ^= bit
        for glob in accepts.globs:
            exact, prefix = glob.exact, _short_prefix(glob)
            if exact is not None:
                _take_out(self._exact, exact, bit)
            elif prefix is not None:
                self._drop_prefix(prefix, bit)
        for table in self._tables:
            table.drop(bit)
        if sum(table.taken for table in self._tables) > 2 * sum(table.living for table in self._tables):
            self._renew_tables()

    def check_invariants(self) -> None:
        """Raise `InvariantError` if a kept answer is not that of the patterns. For tests; of the latest ones only."""
        for key in list(self._kept)[-_RECOUNTED:]:
            accepting = sum(bit for name, bit in self.bits.items() if self.filters[name].accepts(key))
            if self.of(key) != accepting:
                raise InvariantError(f"who accepts {key!r} is whoever has a pattern that matches it")

    def _looked_up(self, key: bytes) -> int:
        found = self._exact.get(key, 0)
        for length in self._lengths:
            if length > len(key):
                break
            found |= self._prefixes.get(key[:length], 0)
        return found

    def _keep(self, key: bytes, found: int) -> None:
        needed = len(key) + _KEPT_EACH
        if needed > self._room:
            self._kept = {known: found for known, found in self._kept.items() if known in self._outstanding}
            self._room = max(KEPT_BYTES, sum(map(len, self._kept)) + _KEPT_EACH * len(self._kept))
        self._room -= needed
        self._kept[key] = found

    def _add_prefix(self, prefix: bytes, bit: int) -> None:
        if prefix not in self._prefixes:
            self._prefixes_of[len(prefix)] += 1
            if self._prefixes_of[len(prefix)] == 1:
                insort(self._lengths, len(prefix))
        self._prefixes[prefix] = self._prefixes.get(prefix, 0) | bit

    def _drop_prefix(self, prefix: bytes, bit: int) -> None:
        if _take_out(self._prefixes, prefix, bit):
            self._prefixes_of[len(prefix)] -= 1
            if not self._prefixes_of[len(prefix)]:
                self._lengths.remove(len(prefix))

    def _add_general(self, glob: Glob, bit: int) -> None:
        if not self._tables or self._tables[-1].is_full:
            self._tables.append(GlobTable())
        self._tables[-1].add(glob, bit)

    def _renew_tables(self) -> None:
        """Make room of what was dropped."""
        living = [pattern for table in self._tables for pattern in table.patterns()]
        self._tables = []
        for glob, bit in living:
            self._add_general(glob, bit)


def _short_prefix(glob: Glob) -> bytes | None:
    """The prefix that a pattern asks for, if that is all and it is to be looked up."""
    prefix = glob.prefix
    return None if prefix is None or len(prefix) > _LONGEST_PREFIX else prefix


def _take_out(takers: dict[bytes, int], text: bytes, bit: int) -> bool:
    """Whether nobody is left who accepts this text."""
    takers[text] ^= bit
    if takers[text]:
        return False
    del takers[text]
    return True
