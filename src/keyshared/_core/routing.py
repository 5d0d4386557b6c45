"""Who gets a key: a placement, seen through the key filters of its consumers.

Which consumers accept a key is one lookup for the patterns of all of them. Exact patterns are in one dict, prefixes in
another, which is read for each length that occurs. Other patterns are tried in turn, behind a bounded memory of
answers. An answer is a number with one bit for each consumer.
"""

from bisect import insort
from collections.abc import Callable, Iterable
from typing import Final, TypeAlias

from keyshared._checks import require
from keyshared.glob import Glob, KeyFilter
from keyshared.hashing import KEY_HASHES
from keyshared.placement.protocol import Placement
from keyshared.placement.range_map import RangeMap, Weight

__all__ = ["KEPT_BYTES", "Acceptance", "OwnerLookup", "Routing"]

OwnerLookup: TypeAlias = Callable[[bytes], str | None]
"""Bytes of a key to the name of its owner, or None."""

_FIRST_LOOKUPS: Final = 8  # for each consumer after a change, before the quickest way to find owners is prepared

KEPT_BYTES: Final = 262_144
"""Of answers that are kept; then all of them are forgotten."""

_KEPT_EACH: Final = 128  # bytes of an answer besides those of its key


class Acceptance:
    """The answers of all consumers' patterns about a key.

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
        if glob.prefix is not None:
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


class Routing:
    """Joins a placement with filters: the owner of a key is the first consumer, clockwise, whose filter accepts it.

    A name that the placement knows but that never joined here owns its keys all the same, and nobody answers for it:
    its keys wait. So do the keys of a hole.

    Attributes:
        owner: Gives the name of a key's owner now, or None. O(log vnodes), with filters O(log vnodes + vnodes passed)
            and what `Acceptance.of` costs. A new function after every change: look it up each time.
        filters: The filter of everyone who joined.
        acceptance: What the filters say of a key; also those of who has left, until `forget`.

    Args:
        placement: Where keys go; copied, so that later changes of the caller's object have no effect here.
    """

    __slots__ = (
        *("_away", "_first", "_placement", "_ranges", "_selective", "_strangers"),
        *("acceptance", "filters", "owner"),
    )

    def __init__(self, placement: Placement) -> None:
        self.filters: dict[str, KeyFilter] = {}
        self.acceptance = Acceptance()
        self._away: dict[str, None] = {}
        self._selective = 0  # how many of those who joined do not take every key
        self._first = 0  # how many more lookups are among the first after a change
        self._placement = placement.copy()
        self._strangers = dict.fromkeys(self._placement.consumers)  # whom the placement knows, and who never joined
        self._ranges = self._placement.ranges
        self.owner: OwnerLookup = self._owner

    @property
    def ranges(self) -> RangeMap:
        """The owner of each slot now, filters aside."""
        return self._ranges

    def placement_copy(self) -> Placement:
        """The placement as it is now, to be changed or kept by the caller."""
        return self._placement.copy()

    def anyone_accepts(self, key: bytes) -> bool:
        """Whether anybody who joined accepts the key."""
        accepting, bits = self.acceptance.of(key), self.acceptance.bits
        return any(accepting & bits[name] for name in self.filters)

    def is_unowned(self, key: bytes) -> bool:
        """Whether the key belongs to nobody, and no stranger is waited for.

        Its slot is a hole, or those whose filters accept it own nothing: neither ends by itself.
        """
        if self.owner(key) is not None:
            return False
        slot = self._ranges.slot_of(key)
        return self._ranges.owner(slot) is None or all(name in self.filters for name in self._ranges.walk(slot))

    def _owner(self, key: bytes) -> str | None:
        slot = self._ranges.slot_of(key)
        if self._ranges.owner(slot) is None:
            return None
        accepting, bits = self.acceptance.of(key), self.acceptance.bits
        for name in self._ranges.walk(slot):
            if name not in self.filters:
                return None
            if accepting & bits[name] and name not in self._away:
                return name
        return None

    def join(self, name: str, accepts: KeyFilter, weight: Weight | None) -> None:
        """Add a consumer; one that the placement already names keeps its place there."""
        _join(self._placement, name, weight, is_there=name in self._strangers)
        self._strangers.pop(name, None)
        self.set_filter(name, accepts)

    def leave(self, name: str) -> None:
        """Move a consumer's keys to the others. What it accepts is known until `forget`."""
        self._placement.remove(name)
        self._selective -= self._is_selective(name)
        del self.filters[name]
        self._away.pop(name, None)
        self._refresh()

    def forget(self, name: str) -> None:
        """Forget what a consumer accepted that has left."""
        if name not in self.filters:
            self.acceptance.drop(name)

    def set_filter(self, name: str, accepts: KeyFilter) -> None:
        """Replace what a consumer accepts."""
        before = self._is_selective(name)
        self.filters[name] = accepts
        self.acceptance.add(name, accepts)
        self._selective += self._is_selective(name) - before
        self._refresh()

    def set_away(self, name: str, *, away: bool) -> None:
        """Pass a consumer over, as if it accepted nothing, or let it have its keys again."""
        before = self._is_selective(name)
        if away:
            self._away[name] = None
        else:
            self._away.pop(name, None)
        self._selective += self._is_selective(name) - before
        self._refresh()

    def set_weight(self, name: str, weight: Weight) -> None:
        """Change a consumer's share."""
        self._placement.set_weight(name, weight)
        self._refresh()

    @property
    def refuses_keys(self) -> bool:
        """Whether the hash of the placement may refuse a key: none of the library's named ones does."""
        return self._ranges.key_hash.name not in KEY_HASHES

    @property
    def connected(self) -> int:
        """How many consumers are connected: a consumer that drains is not."""
        return len(self.filters)

    def check_slot(self, key: bytes) -> None:
        """Raise `ArgumentError` if the hash of the placement refuses a key."""
        self._ranges.slot_of(key)

    def replace(
        self, placement: Placement, members: Iterable[tuple[str, Weight | None]], keys: Iterable[bytes] = ()
    ) -> None:
        """Take another placement, if its hash has a slot for these keys; those members join it in the given order."""
        fresh = placement.copy()
        strangers = dict.fromkeys(fresh.consumers)
        for name, weight in members:
            _join(fresh, name, weight, is_there=name in strangers)
            strangers.pop(name, None)
        if fresh.ranges.key_hash != self._ranges.key_hash:
            for key in keys:
                fresh.ranges.slot_of(key)
        self._placement = fresh
        self._strangers = strangers
        self._refresh()

    def check_invariants(self) -> None:
        """Raise `InvariantError` if the count of selective consumers, or what is kept of filters, has drifted."""
        require(self._selective == sum(map(self._is_selective, self.filters)), "routing counts the selective consumers")
        require(all(name in self.filters for name in self._away), "only those who joined can be away")
        same = all(self.acceptance.filters.get(name) is accepts for name, accepts in self.filters.items())
        require(same, "keys are compared with the filters of now")
        self.acceptance.check_invariants()
        strangers = set(self._placement.consumers) - self.filters.keys()
        require(self._strangers.keys() == strangers, "routing knows for whom of the placement it still waits")

    def _refresh(self) -> None:
        """Choose how owners are found: where nobody is selective and everybody is here, the placement alone says it."""
        self._ranges = self._placement.ranges
        self._first = _FIRST_LOOKUPS * len(self.filters)
        plain = not self._selective and not self._strangers
        self.owner = self._first_owner if plain else self._owner

    def _first_owner(self, key: bytes) -> str | None:
        self._first -= 1
        if self._first < 0:
            self.owner = self._ranges.finder()
        return self._ranges.owner_of(key)

    def _is_selective(self, name: str) -> bool:
        accepts = self.filters.get(name)
        return accepts is not None and (name in self._away or not accepts.accepts_all)


def _join(placement: Placement, name: str, weight: Weight | None, *, is_there: bool) -> None:
    if not is_there:
        placement.add(name, weight=1 if weight is None else weight)
    elif weight is not None:
        placement.set_weight(name, weight)
