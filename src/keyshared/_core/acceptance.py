"""Which consumers accept a key: one lookup for the patterns of all of them.

Exact patterns are in one dict, prefixes in another, which is read for each length that occurs. Other patterns are tried
in turn, behind a bounded memory of answers. An answer is a number with one bit for each consumer.
"""

from bisect import insort
from typing import Final

from keyshared._checks import require
from keyshared.glob import Glob, KeyFilter

__all__ = ["KEPT_BYTES", "Acceptance"]

KEPT_BYTES: Final = 262_144
"""Of answers that are kept; then all of them are forgotten."""

_KEPT_EACH: Final = 128  # bytes of an answer besides those of its key
_LONGEST_PREFIX: Final = 64  # each length is one look-up; longer prefixes are tried in turn


class Acceptance:
    """What the patterns of all consumers say of a key.

    Attributes:
        filters: The filter of each known consumer, by name.
        bits: The bit of each known consumer, by name.
    """

    __slots__ = (
        *("_everyone", "_exact", "_free", "_general", "_kept", "_lengths", "_prefixes", "_room", "_selective"),
        *("bits", "filters"),
    )

    def __init__(self) -> None:
        self.filters: dict[str, KeyFilter] = {}
        self.bits: dict[str, int] = {}
        self._free: list[int] = []  # bits of consumers that are not known any more
        self._everyone = 0  # the consumers that accept every key
        self._selective = 0  # the others
        self._exact: dict[bytes, int] = {}
        self._prefixes: dict[bytes, int] = {}
        self._lengths: list[int] = []  # of prefixes, growing, each once
        self._general: list[tuple[Glob, int]] = []
        self._kept: dict[bytes, int] = {}
        self._room = KEPT_BYTES

    def of(self, key: bytes) -> int:
        """Return the consumers that accept a key.

        Complexity:
            O(len(key)) for exact patterns and prefixes, and while the answer is kept; else every pattern is tried.
        """
        if not self._selective:
            return self._everyone
        if not self._general:  # looked up as quickly as kept
            return self._looked_up(key) | self._everyone
        found = self._kept.get(key)
        if found is None:
            found = self._looked_up(key) | self._everyone
            for glob, bit in self._general:
                if not found & bit and glob.matches(key):
                    found |= bit
            self._keep(key, found)
        return found & (self._selective | self._everyone)  # the answer may know consumers that have left

    def add(self, name: str, accepts: KeyFilter) -> None:
        """Add what a consumer accepts, in place of what it accepted so far. O(its patterns)."""
        self.drop(name)
        bit = self._free.pop() if self._free else 1 << len(self.bits)
        self.filters[name] = accepts
        self.bits[name] = bit
        self._forget()
        if accepts.accepts_all:
            self._everyone |= bit
            return
        self._selective |= bit
        for glob in accepts.globs:
            known = self._dict_of(glob)
            if known is None:
                self._general.append((glob, bit))
                continue
            texts, text = known
            if texts is self._prefixes and text not in texts and len(text) not in self._lengths:
                insort(self._lengths, len(text))
            texts[text] = texts.get(text, 0) | bit

    def drop(self, name: str) -> None:
        """Forget a consumer, if it is known. O(its patterns + general patterns)."""
        accepts = self.filters.pop(name, None)
        if accepts is None:
            return
        bit = self.bits.pop(name)
        self._free.append(bit)
        self._everyone &= ~bit
        self._selective &= ~bit
        self._general = [(glob, other) for glob, other in self._general if other != bit]
        if accepts.accepts_all:
            return
        for glob in accepts.globs:
            known = self._dict_of(glob)
            if known is not None and known[1] in known[0]:
                texts, text = known
                texts[text] &= ~bit
                if not texts[text]:
                    del texts[text]
        self._lengths = sorted(set(map(len, self._prefixes)))

    def check_invariants(self) -> None:
        """Raise `InvariantError` if a kept answer is not that of the patterns. For tests; O(answers)."""
        for key in self._kept:
            accepting = sum(bit for name, bit in self.bits.items() if self.filters[name].accepts(key))
            require(self.of(key) == accepting, f"the answer for {key!r} is what the patterns say")

    def _dict_of(self, glob: Glob) -> tuple[dict[bytes, int], bytes] | None:
        """Return where a pattern is looked up, and under what; None for one that has to be tried."""
        if glob.exact is not None:
            return self._exact, glob.exact
        if glob.prefix is not None and len(glob.prefix) <= _LONGEST_PREFIX:
            return self._prefixes, glob.prefix
        return None

    def _looked_up(self, key: bytes) -> int:
        found = self._exact.get(key, 0)
        for length in self._lengths:
            if length > len(key):
                break
            found |= self._prefixes.get(key[:length], 0)
        return found

    def _keep(self, key: bytes, found: int) -> None:
        self._room -= len(key) + _KEPT_EACH
        if self._room < 0:
            self._forget()
        self._kept[key] = found

    def _forget(self) -> None:
        self._kept = {}
        self._room = KEPT_BYTES
