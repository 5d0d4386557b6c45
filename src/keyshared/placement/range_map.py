"""The placement value: the owner of each slot, half-open ranges of slots, and what a change of owners moved.

Every way to build a placement (a consistent ring, split ranges, ranges assigned by hand, buckets) ends in the same
immutable `RangeMap`. Looking up an owner, listing shares and telling two placements apart are written once, here.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from operator import itemgetter
from typing import Final, NamedTuple, Self, TypeAlias

from xxhash import xxh64_intdigest

from keyshared._checks import (
    check_int,
    check_kind,
    check_several,
    check_text,
    checked_kinds,
    checked_rows,
    checked_state,
)
from keyshared.errors import ArgumentError, InvariantError, SnapshotError, shown
from keyshared.hashing import (
    DEFAULT_SLOT_BITS,
    KEY_HASHES,
    MAX_SLOT_BITS,
    XXH64_SEED_42,
    KeyHash,
    key_hash_named,
    required_key_bytes,
)

__all__ = ["HashRange", "Moved", "RangeMap", "Weight", "check_space", "gained", "lost"]

Weight: TypeAlias = int | float | Fraction
"""A consumer's share relative to the others': positive and finite. Floats are taken exactly as they are."""

_FORMAT_VERSION: Final = 1
_FIELDS: Final = ("hash", "slot_bits", "owners", "stops", "runs")


@dataclass(frozen=True, slots=True, order=True)
class HashRange:
    """A run of slots, half-open like Python's ``range``.

    Attributes:
        start: First slot.
        stop: One past the last slot.

    Raises:
        ArgumentError: Not ints, negative, or empty.

    Source:
        PIP-486 ranges are half-open as well; PIP-379's and Celeriant's are inclusive and are converted at the edge.

    Example:
        >>> 9 in HashRange(0, 10), 10 in HashRange(0, 10), len(HashRange(0, 10))
        (True, False, 10)
    """

    start: int
    stop: int

    def __post_init__(self) -> None:
        check_int("start", self.start, 0)
        if type(self.stop) is not int or self.stop <= self.start:
            raise ArgumentError("stop", self.stop, f"be an int greater than start ({shown(self.start)})")

    @classmethod
    def inclusive(cls, first: int, last: int) -> Self:
        """Read a range that names its last slot, as Pulsar and Celeriant write them.

        Raises:
            ArgumentError: Not ints, negative, or the last one comes before the first.

        Example:
            >>> HashRange.inclusive(0, 0xFFFF)
            HashRange(start=0, stop=65536)
        """
        check_int("last", last)
        return cls(first, last + 1)

    def __contains__(self, slot: object) -> bool:
        return isinstance(slot, int) and self.start <= slot < self.stop

    def __len__(self) -> int:
        return self.stop - self.start


class Moved(NamedTuple):
    """A run of slots whose owner is not the same in two placements.

    Attributes:
        start: First slot.
        stop: One past the last slot.
        old: The owner before, or None for a hole.
        new: The owner now, or None for a hole.
    """

    start: int
    stop: int
    old: str | None
    new: str | None


def gained(moves: Iterable[Moved]) -> dict[str, tuple[HashRange, ...]]:
    """List what every consumer gained by a change, as placements and `RangeMap.moved` return it.

    Returns:
        Ranges by consumer, in slot order and as long as can be; only consumers that gained something, in the order of
        the first slot that they gained.

    Raises:
        ArgumentError: One of them is no move.

    Example:
        >>> gained([Moved(0, 5, "a", "c"), Moved(5, 9, "b", "c")])
        {'c': (HashRange(start=0, stop=9),)}
    """
    return _joined((move.new, move.start, move.stop) for move in _checked_moves(moves))


def lost(moves: Iterable[Moved]) -> dict[str, tuple[HashRange, ...]]:
    """List what every consumer lost by a change, the counterpart of `gained`.

    Example:
        >>> lost([Moved(0, 5, "a", "c"), Moved(5, 9, "b", "c")])
        {'a': (HashRange(start=0, stop=5),), 'b': (HashRange(start=5, stop=9),)}
    """
    return _joined((move.old, move.start, move.stop) for move in _checked_moves(moves))


def _checked_moves(moves: Iterable[Moved]) -> Iterable[Moved]:
    return checked_kinds("move", check_several("moves", moves, "moves"), Moved)


def _joined(spans: Iterable[tuple[str | None, int, int]]) -> dict[str, tuple[HashRange, ...]]:
    """Gather ranges by consumer, touching ones joined; holes are left out."""
    found: dict[str, list[HashRange]] = {}
    for name, start, stop in spans:
        if name is None:
            continue
        own = found.setdefault(name, [])
        if own and own[-1].stop == start:
            start = own.pop().start  # noqa: PLW2901 - the range goes on
        own.append(HashRange(start, stop))
    return {name: tuple(own) for name, own in found.items()}


def check_space(key_hash: object, slot_bits: object) -> None:
    """Raise `ArgumentError` unless a hash has that many slot bits, from 1 to 32.

    Raises `MissingExtraError` if the hash needs a package that is not installed.
    """
    key_hash = check_kind("key_hash", key_hash, KeyHash)
    most = min(MAX_SLOT_BITS, key_hash.bits)
    check_int("slot_bits", slot_bits, 1, f" with hash {key_hash.name}", most=most)
    if key_hash.name in KEY_HASHES:
        key_hash.function(b"")  # a hash whose package is missing raises here, not at some message in the middle of work


class RangeMap:
    """The owner of each slot: an immutable value.

    Slots without an owner are holes; their owner is None. Neighbouring ranges of one owner are one run, so two maps
    with the same owners are equal however they were built. The slots form a circle for `walk`; runs are never joined
    over its seam.

    Args:
        assignments: Ranges and their owners, in any order.
        key_hash: Which hash turns a key into a slot.
        slot_bits: There are ``2**slot_bits`` slots.

    Raises:
        ArgumentError: Two ranges overlap, a range leaves the space, an owner is no non-empty str, or the hash is
            narrower than the space.

    Complexity:
        O(n log n), n ranges.

    Example:
        >>> halves = RangeMap([(HashRange(0, 32768), "a"), (HashRange(32768, 65536), "b")])
        >>> halves.owner(40_000)
        'b'
        >>> halves.owner_of("order-1")
        'b'
    """

    __slots__ = ("_function", "_key_hash", "_owners", "_runs", "_shift", "_slot_bits", "_stops")

    _stops: tuple[int, ...]
    _runs: tuple[str | None, ...]
    _owners: tuple[str, ...]

    def __init__(
        self,
        assignments: Iterable[tuple[HashRange, str]] = (),
        *,
        key_hash: KeyHash = XXH64_SEED_42,
        slot_bits: int = DEFAULT_SLOT_BITS,
    ) -> None:
        check_space(key_hash, slot_bits)
        stops: list[int] = []
        runs: list[str | None] = []
        end = 0
        for piece, owner in sorted(_checked(assignments), key=itemgetter(0)):
            if piece.start < end:
                raise ArgumentError("range", piece, f"not overlap another one, which ends at {end}")
            if piece.start > end:
                stops.append(piece.start)
                runs.append(None)
            stops.append(piece.stop)
            runs.append(owner)
            end = piece.stop
        if end > 1 << slot_bits:
            raise ArgumentError("stop", end, f"be at most {1 << slot_bits}, the number of slots")
        if end < 1 << slot_bits:
            stops.append(1 << slot_bits)
            runs.append(None)
        self._fill(stops, runs, key_hash, slot_bits)

    @classmethod
    def from_stops(
        cls,
        stops: Sequence[int],
        owners: Sequence[str | None],
        *,
        key_hash: KeyHash = XXH64_SEED_42,
        slot_bits: int = DEFAULT_SLOT_BITS,
    ) -> "RangeMap":
        """Build a map from runs that tile the space: run ``i`` ends before ``stops[i]`` and belongs to ``owners[i]``.

        Args:
            stops: Grow strictly; the last one is ``2**slot_bits``.
            owners: As many; None is a hole.
            key_hash: Which hash turns a key into a slot.
            slot_bits: There are ``2**slot_bits`` slots.

        Raises:
            ArgumentError: The runs do not tile the space, or an owner is no non-empty str.

        Example:
            >>> RangeMap.from_stops([10, 65536], ["a", None]).ranges_of("a")
            (HashRange(start=0, stop=10),)
        """
        check_space(key_hash, slot_bits)
        stops = list(check_several("stops", stops, "slots"))
        owners = list(check_several("owners", owners, "names"))
        if len(stops) != len(owners):
            raise ArgumentError("owners", len(owners), f"be as many as stops ({len(stops)})")
        end = 0
        for stop in stops:
            if type(stop) is not int or stop <= end:
                raise ArgumentError("stop", stop, f"be an int greater than the one before it ({end})")
            end = stop
        if end != 1 << slot_bits:
            raise ArgumentError("last stop", end, f"be {1 << slot_bits}, the number of slots")
        for owner in owners:
            if owner is not None:
                check_text("owner", owner)
        built = cls.__new__(cls)
        built._fill(stops, owners, key_hash, slot_bits)
        return built

    def _fill(self, stops: Sequence[int], owners: Sequence[str | None], key_hash: KeyHash, slot_bits: int) -> None:
        """Take over runs that are known to tile the space, and join neighbours of one owner."""
        names: dict[str, str] = {}
        kept: list[int] = []
        runs: list[str | None] = []
        last: str | None = ""  # no owner is called that
        for stop, owner in zip(stops, owners, strict=True):
            if owner == last:
                kept[-1] = stop
                continue
            kept.append(stop)
            # one object per name: pickles stay small, comparisons of names stay quick
            runs.append(None if owner is None else names.setdefault(owner, owner))
            last = owner
        self._runs = tuple(runs)
        self._owners = tuple(sorted(names))
        self._set_space(key_hash, slot_bits)
        self._stops = tuple(kept)  # the last field: where runs are derived later, these say that they are there

    def _set_space(self, key_hash: KeyHash, slot_bits: int) -> None:
        self._key_hash = key_hash
        self._slot_bits = slot_bits
        self._function = key_hash.checked()
        self._shift = key_hash.bits - slot_bits

    def _derive(self) -> None:
        """Bring the runs to hand, where they are not yet."""

    @property
    def key_hash(self) -> KeyHash:
        """The hash that turns a key into a slot."""
        return self._key_hash

    @property
    def slot_bits(self) -> int:
        """There are ``2**slot_bits`` slots."""
        return self._slot_bits

    @property
    def owners(self) -> tuple[str, ...]:
        """Every owner of at least one slot, in the order of their names."""
        self._derive()
        return self._owners

    @property
    def runs(self) -> Iterator[tuple[int, int, str | None]]:
        """The whole space as ``(start, stop, owner)`` in slot order, holes included."""
        self._derive()
        return zip((0, *self._stops), self._stops, self._runs, strict=False)

    def slot_of(self, key: str | bytes) -> int:
        """Return the slot of a key, an int in ``range(2**slot_bits)``.

        Raises:
            KeyTypeError: See `key_bytes`.
            ArgumentError: The key is None, or the function of the hash raises for it, or returns no slot.
        """
        data: bytes = key if key.__class__ is bytes else required_key_bytes(key)
        return self._function(data) >> self._shift

    def owner(self, slot: int) -> str | None:
        """Return the owner of a slot, None in a hole; raises `ArgumentError` if there is no such slot.

        O(log n), n runs.
        """
        return self._runs[bisect_right(self._stops, self._checked_slot(slot))]

    def run_at(self, slot: int) -> tuple[int, int]:
        """Return the run that a slot is in, the longest stretch with one owner: its first slot, and one past its last.

        O(log n), n runs. Raises `ArgumentError` if there is no such slot.

        Example:
            >>> RangeMap.from_stops([10, 30, 65536], ["a", "b", "c"]).run_at(12)
            (10, 30)
        """
        index = bisect_right(self._stops, self._checked_slot(slot))
        return self._stops[index - 1] if index else 0, self._stops[index]

    def owner_of(self, key: str | bytes) -> str | None:
        """Return the owner of a key, None in a hole. Raises as `slot_of`. O(len(key) + log n), n runs."""
        # slot_of() and owner() written out: the calls that this saves are a third of a lookup
        data: bytes = key if key.__class__ is bytes else required_key_bytes(key)
        return self._runs[bisect_right(self._stops, self._function(data) >> self._shift)]

    def finder(self) -> Callable[[bytes], str | None]:
        """Return `owner_of` as a function of ``bytes`` only, which takes half the time for millions of keys.

        Returns:
            A function of the bytes of a key to the name of its owner, or None in a hole.

        Example:
            >>> RangeMap.from_stops([32768, 65536], ["a", "b"]).finder()(b"order-1")
            'b'
        """
        self._derive()
        runs, stops, shift, function = self._runs, self._stops, self._shift, self._function
        if self._key_hash is XXH64_SEED_42:  # its C function at once: a call less
            return lambda key: runs[bisect_right(stops, xxh64_intdigest(key, 42) >> shift)]
        return lambda key: runs[bisect_right(stops, function(key) >> shift)]

    def walk(self, slot: int) -> Iterator[str]:
        """Go clockwise from a slot and yield every owner once, the slot's own first.

        The first one that accepts a key gets it. Lazy: O(log n) to start, then O(runs passed). Raises `ArgumentError`
        if there is no such slot.

        Example:
            >>> thirds = RangeMap.from_stops([10, 20, 30, 65536], ["a", "b", "a", "c"])
            >>> list(thirds.walk(15))
            ['b', 'a', 'c']
        """
        return self._walk_from(bisect_right(self._stops, self._checked_slot(slot)))

    def _walk_from(self, index: int) -> Iterator[str]:
        runs = self._runs
        owner = runs[index]
        missing = len(self._owners)
        if owner is not None:
            yield owner  # mostly the only one that is read, so nothing is set up before it
            missing -= 1
        seen = {owner, None}
        while missing:
            index = (index + 1) % len(runs)
            owner = runs[index]
            if owner is not None and owner not in seen:
                yield owner
                seen.add(owner)
                missing -= 1

    def ranges_of(self, owner: str | None) -> tuple[HashRange, ...]:
        """List the ranges of an owner, or the holes for None.

        Returns:
            Their ranges in slot order; none for a name that owns nothing.
        """
        return tuple(HashRange(start, stop) for start, stop, name in self.runs if name == owner)

    def shares(self) -> dict[str | None, Fraction]:
        """Return the part of the space that each consumer owns.

        Returns:
            Exact shares by owner in the order of `owners`, then that of the holes under None, if any. They add up to 1.

        Example:
            >>> RangeMap([(HashRange(0, 16384), "a")]).shares()
            {'a': Fraction(1, 4), None: Fraction(3, 4)}
        """
        slots: dict[str | None, int] = dict.fromkeys((*self.owners, None), 0)
        for start, stop, owner in self.runs:
            slots[owner] += stop - start
        return {owner: Fraction(n, 1 << self._slot_bits) for owner, n in slots.items() if n}

    def moved(self, after: "RangeMap") -> list[Moved]:
        """List every slot whose owner is another one in a later map.

        Returns:
            The longest runs with one old and one new owner, in slot order; empty if the maps are equal. O(n), n runs.

        Raises:
            ArgumentError: The maps are of different hashes or spaces.

        Source:
            PIP-379's diff of snapshots; differs: segments are exact also next to holes.

        Example:
            >>> RangeMap.from_stops([65536], ["a"]).moved(RangeMap.from_stops([100, 65536], ["b", "a"]))
            [Moved(start=0, stop=100, old='a', new='b')]
        """
        self._check_same_space(after)
        self._derive()
        after._derive()
        segments: list[Moved] = []
        mine, other = zip(self._stops, self._runs, strict=True), zip(after._stops, after._runs, strict=True)
        old_stop = new_stop = start = 0
        old: str | None = None
        new: str | None = None
        size = 1 << self._slot_bits
        while start < size:
            if old_stop == start:
                old_stop, old = next(mine)
            if new_stop == start:
                new_stop, new = next(other)
            stop = min(old_stop, new_stop)
            if old != new:
                segments.append(Moved(start, stop, old, new))
            start = stop
        return segments

    def to_json(self) -> dict[str, object]:
        """Return the map as plain data that JSON can hold: owners are named once, runs refer to them or to None."""
        index = {name: i for i, name in enumerate(self.owners)}
        return {
            "version": _FORMAT_VERSION,
            "hash": self._key_hash.name,
            "slot_bits": self._slot_bits,
            "owners": list(self._owners),
            "stops": list(self._stops),
            "runs": [None if owner is None else index[owner] for owner in self._runs],
        }

    @classmethod
    def from_json(cls, data: object, *, key_hash: KeyHash | None = None) -> "RangeMap":
        """Read what `to_json` wrote; anything else is refused.

        Args:
            data: The data.
            key_hash: The hash, if it is not one of `KEY_HASHES`; it must have the name that the data says.

        Raises:
            SnapshotError: The data is cut or damaged, of another version or hash, or not as `to_json` writes it.

        Example:
            >>> RangeMap.from_json(RangeMap().to_json()) == RangeMap()
            True
        """
        state = checked_state("range map", data, _FORMAT_VERSION, *_FIELDS)
        try:
            found = key_hash_named(state["hash"]) if key_hash is None else key_hash
            owners = [None if index is None else state["owners"][index] for index in state["runs"]]
            built = cls.from_stops(state["stops"], owners, key_hash=found, slot_bits=state["slot_bits"])
        except ArgumentError as error:
            raise SnapshotError(*error.args) from error
        except (TypeError, LookupError) as error:
            raise SnapshotError("runs", state["runs"], "be a list of None and places in the list of owners") from error
        for name, written in built.to_json().items():
            if repr(written) != repr(state[name]):  # to_json() never wrote this: a map has one form
                raise SnapshotError(name, state[name], f"be {written!r}, as to_json() writes it")
        return built

    def check_invariants(self) -> None:
        """Check what must always be true of a map; for tests and for the suspicious.

        Raises:
            InvariantError: Something is not; a bug in this library.
        """
        self._derive()
        end = 0
        for stop in self._stops:
            if stop <= end:
                raise InvariantError(f"stops grow strictly ({end}, {stop})")
            end = stop
        if end != 1 << self._slot_bits:
            raise InvariantError(f"the runs tile {1 << self._slot_bits} slots, not {end}")
        if len(self._runs) != len(self._stops):
            raise InvariantError("every run has an owner or is a hole")
        if any(a == b for a, b in zip(self._runs, self._runs[1:], strict=False)):
            raise InvariantError("neighbouring runs have different owners")
        if self._owners != tuple(sorted({name for name in self._runs if name is not None})):
            raise InvariantError("owners are the names of the runs")

    @property
    def _space(self) -> tuple[KeyHash, int]:
        return self._key_hash, self._slot_bits

    @property
    def _space_text(self) -> str:
        return f"2**{self._slot_bits} slots of hash {self._key_hash.name}"

    def _check_same_space(self, other: object) -> None:
        if not isinstance(other, RangeMap) or self._space != other._space:
            raise ArgumentError("after", other, f"be a RangeMap over {self._space_text}")

    def _checked_slot(self, slot: int) -> int:
        return check_int("slot", slot, 0, most=(1 << self._slot_bits) - 1)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, RangeMap):
            return NotImplemented
        self._derive()
        other._derive()
        return self._space == other._space and self._stops == other._stops and self._runs == other._runs

    def __hash__(self) -> int:
        self._derive()
        return hash((self._space, self._stops, self._runs))

    def __repr__(self) -> str:
        return f"<RangeMap of {len(self.owners)} owners in {len(self._runs)} runs over {self._space_text}>"

    def __reduce__(self) -> tuple[object, ...]:
        self._derive()
        rebuild = partial(RangeMap.from_stops, key_hash=self._key_hash, slot_bits=self._slot_bits)
        return rebuild, (self._stops, self._runs)


def _checked(assignments: Iterable[tuple[HashRange, str]]) -> Iterator[tuple[HashRange, str]]:
    given = check_several("assignments", assignments, "pairs of a HashRange and its owner")
    for piece, owner in checked_rows("assignment", given, 2, "a HashRange and its owner"):
        check_kind("range", piece, HashRange)
        check_text("owner", owner)
        yield piece, owner
