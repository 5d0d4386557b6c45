"""Which consumer owns which bucket: balanced spreads, and what a change moves.

How many buckets a consumer owns depends on weights and join order only: seats in a parliament by the method of
Sainte-Lague, except that every consumer gets a first bucket before any gets a second one. By such a *divisor method* no
other consumer gains a bucket when one joins, or loses one when one leaves; rounding by largest remainders (the Alabama
paradox) could not keep that. Which buckets it owns follows from the present owners: a change moves only what it must.
"""

from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from heapq import heapify, heapreplace
from math import lcm
from typing import Final, Self, TypeAlias

from keyshared._checks import check_kind, check_number, check_several, configuration, java_order, require
from keyshared.buckets.boundaries import check_ranges
from keyshared.buckets.layout import BUCKET_HASH, HASH_STOP, BucketLayout
from keyshared.buckets.load_spread import LoadSpread, Owners, whole_numbers
from keyshared.errors import ArgumentError, ConsumerExistsError
from keyshared.hashing import KeyHash
from keyshared.placement.protocol import check_name, find_consumer
from keyshared.placement.range_map import Moved, RangeMap, Weight, check_space

__all__ = ["BucketPlacement"]

_SLOT_BITS: Final = HASH_STOP.bit_length() - 1

_Spread: TypeAlias = Callable[[Owners, Mapping[str, Weight], str | None], Owners]


class BucketPlacement:
    """Spreads the buckets of a layout over consumers, balanced and move-minimal; its value is `ranges`.

    With equal weights the counts differ by one at most. With others, each count is the consumer's weight divided by one
    number common to all, rounded to the nearest, and at least 1 if there are enough buckets. Ties, and the buckets if
    there are too few, go to the consumers that joined first.

    A join moves buckets to the newcomer only, and no more than it must get; a leave moves the leaver's only. *Which*
    buckets move follows from the calls made so far: the losers give their highest ones, and the gainers, in join order,
    take the lowest that are free. So the same calls give the same placement everywhere, but other orders of joining
    give others; after a restart rebuild it by `from_ranges`.

    Args:
        layout: The buckets.
        consumers: The consumers from the start: names, or a mapping from names to weights.
        key_hash: The hash of a dispatcher's keys: bucket keys by default. Its slot of 16 bits has to be the bucket hash
            of the key; that of `XXH64_SEED_42` is the other half, which finds the segment.

    Raises:
        ArgumentError: A value that can never work; a `ConfigError` if it is a setting.
        ConsumerExistsError: A name is given twice.

    Complexity:
        O(n + k log k) for each change, n buckets and k consumers.

    Source:
        PIP-486 asks for the least movement; differs: the published spread moves up to four times as many buckets (see
        `pulsar`).

    Example:
        >>> placement = BucketPlacement(BucketLayout.equal_width(8), ["a", "b"])
        >>> [placement.owner(bucket) for bucket in range(8)]
        ['a', 'a', 'a', 'a', 'b', 'b', 'b', 'b']
        >>> placement.add("c")
        [Moved(start=24576, stop=32768, old='a', new='c'), Moved(start=57344, stop=65536, old='b', new='c')]
    """

    __slots__ = ("_key_hash", "_layout", "_owners", "_ranges", "_spread", "_weights")

    _weights: dict[str, Weight]
    _owners: Owners
    _ranges: RangeMap | None

    def __init__(
        self,
        layout: BucketLayout,
        consumers: Iterable[str] | Mapping[str, Weight] = (),
        *,
        key_hash: KeyHash = BUCKET_HASH,
    ) -> None:
        self._start(layout, consumers, key_hash, _move_minimal)

    @classmethod
    def by_load(
        cls,
        layout: BucketLayout,
        loads: Iterable[int | Fraction],
        consumers: Iterable[str] | Mapping[str, Weight] = (),
        *,
        key_hash: KeyHash = BUCKET_HASH,
    ) -> Self:
        """Build a spread that evens out loads instead of numbers of buckets; for layouts with hot buckets.

        A join moves buckets to the newcomer only, a leave the leaver's only; how many, the loads decide: a bucket moves
        if the heavier of the two consumers gets lighter by it, the heaviest such bucket first. Consumers that were
        there from the start are above the mean by less than the heaviest bucket, as far as their weights are equal.

        Args:
            layout: The buckets.
            loads: An int or a Fraction of at least 0 for each bucket, as `keyshared.buckets.bucket_loads` returns them.
                With new statistics build a new placement by `from_ranges`.
            consumers: As in the constructor.
            key_hash: As in the constructor.

        Complexity:
            O(n log n + m k) for each change, n buckets, m of them moved, k consumers.

        Example:
            >>> placement = BucketPlacement.by_load(BucketLayout.equal_width(4), [9, 1, 1, 1], ["a", "b"])
            >>> [placement.owner(bucket) for bucket in range(4)]
            ['a', 'b', 'b', 'b']
        """
        placement = cls.__new__(cls)
        placement._start(layout, consumers, key_hash, _checked_loads(layout, loads))
        return placement

    @classmethod
    def pulsar(cls, layout: BucketLayout, consumers: Iterable[str] = (), *, key_hash: KeyHash = BUCKET_HASH) -> Self:
        """Build the spread of Pulsar's broker, in which every weight is 1; for owners that must equal its own.

        Consumer ``j`` of ``k``, in the order of their names, owns buckets ``j * n // k`` up to ``(j + 1) * n // k``.
        Nothing depends on history, but a change shifts buckets between consumers that neither joined nor left. Where
        Pulsar has several consumers of one name, add the consumer id to the name so that the texts sort as the pairs
        do.

        Source:
            Pulsar's EntryBucketConsumerSelector (PIP-486); names sort as Java sorts them, by UTF-16 code units.

        Example:
            >>> placement = BucketPlacement.pulsar(BucketLayout.equal_width(8), ["b", "c"])
            >>> sum(move.old is not None for move in placement.add("a"))
            2
            >>> [placement.owner(bucket) for bucket in range(8)]
            ['a', 'a', 'b', 'b', 'b', 'c', 'c', 'c']
        """
        placement = cls.__new__(cls)
        placement._start(layout, consumers, key_hash, _by_name)
        return placement

    @classmethod
    def from_ranges(
        cls,
        layout: BucketLayout,
        ranges: RangeMap,
        consumers: Iterable[str] | Mapping[str, Weight] | None = None,
        *,
        loads: Iterable[int | Fraction] | None = None,
    ) -> Self:
        """Restore a placement after a restart from its value, with the hash of the ranges. O(n + r + k).

        Args:
            layout: The buckets.
            ranges: The owners. They may be unbalanced; the next change puts that right.
            consumers: All in join order, with their weights, also those that own nothing. Left out, it is the owners in
                the order of their names.
            loads: As in `by_load`; left out, numbers of buckets are evened out.

        Raises:
            ArgumentError: Two consumers own parts of one bucket, or an owner is missing in ``consumers``.

        Example:
            >>> layout = BucketLayout.equal_width(8)
            >>> old = BucketPlacement(layout, ["b", "a"])
            >>> BucketPlacement.from_ranges(layout, old.ranges, old.consumers) == old
            True
        """
        placement = cls.__new__(cls)
        spread = _move_minimal if loads is None else _checked_loads(layout, loads)
        placement._start(layout, (), check_ranges(ranges).key_hash, spread)
        placement._weights = _checked_consumers(ranges.owners if consumers is None else consumers)
        owners = tuple(ranges.owner(piece.start) for piece in layout.ranges)
        missing = set(ranges.owners) - placement._weights.keys()
        if missing:
            raise ArgumentError("consumers", tuple(placement._weights), f"name every owner, also {min(missing)!r}")
        placement._owners = owners
        if placement.ranges != ranges:
            raise ArgumentError("ranges", ranges, "give every bucket of the layout to one consumer")
        return placement

    def _start(
        self,
        layout: BucketLayout,
        consumers: Iterable[str] | Mapping[str, Weight],
        key_hash: KeyHash,
        spread: _Spread,
    ) -> None:
        with configuration():
            check_space(key_hash, _SLOT_BITS)
        self._layout = _checked_layout(layout)
        self._key_hash = key_hash
        self._spread = spread
        self._weights = _checked_consumers(consumers)
        self._owners = spread((None,) * len(layout), self._weights, None)
        self._ranges = None

    def add(self, name: str, *, weight: Weight = 1) -> list[Moved]:
        """Add a consumer; buckets move to it only (`pulsar`: also between others). Returns what moved, in slot order.

        Raises:
            ConsumerExistsError: The name is there already.
        """
        check_name(name)
        if name in self._weights:
            raise ConsumerExistsError(name)
        return self._change({**self._weights, name: _checked_weight(weight)}, name)

    def remove(self, name: str) -> list[Moved]:
        """Remove a consumer; only its own buckets move (`pulsar`: also others). Returns what moved, in slot order.

        Raises:
            UnknownConsumerError: There is no such consumer.
        """
        find_consumer(self._weights, name)
        return self._change({other: weight for other, weight in self._weights.items() if other != name}, None)

    def set_weight(self, name: str, weight: Weight) -> list[Moved]:
        """Change a consumer's weight; buckets move only to it if the weight grows, only from it if it shrinks.

        By load, buckets move only to it or only from it, by what its load calls for. Returns what moved, in slot order.

        Raises:
            UnknownConsumerError: There is no such consumer.
        """
        find_consumer(self._weights, name)
        return self._change({**self._weights, name: _checked_weight(weight)}, name)

    @property
    def layout(self) -> BucketLayout:
        """The buckets."""
        return self._layout

    @property
    def ranges(self) -> RangeMap:
        """The owner of each slot; the same object until something changes. Without consumers it is one hole."""
        if self._ranges is None:
            stops = (*self._layout.splits, HASH_STOP)
            self._ranges = RangeMap.from_stops(stops, self._owners, key_hash=self._key_hash, slot_bits=_SLOT_BITS)
        return self._ranges

    @property
    def consumers(self) -> tuple[str, ...]:
        """All consumers in join order, also those that own nothing."""
        return tuple(self._weights)

    def weight_of(self, name: str) -> Weight:
        """Return a consumer's weight, or raise UnknownConsumerError."""
        find_consumer(self._weights, name)
        return self._weights[name]

    def owner(self, bucket: int) -> str | None:
        """Return the owner of a bucket; None without consumers."""
        self._layout.range_of(bucket)  # checks it
        return self._owners[bucket]

    def buckets_of(self, name: str) -> tuple[int, ...]:
        """List a consumer's buckets in order, or raise UnknownConsumerError."""
        find_consumer(self._weights, name)
        return tuple(bucket for bucket, owner in enumerate(self._owners) if owner == name)

    def copy(self) -> Self:
        """Copy the placement: the same consumers, and nothing shared that can change."""
        twin = type(self).__new__(type(self))
        twin._layout, twin._key_hash, twin._spread = self._layout, self._key_hash, self._spread
        twin._weights, twin._owners, twin._ranges = dict(self._weights), self._owners, self._ranges
        return twin

    def check_invariants(self) -> None:
        """Check that every bucket has an owner that is there; an InvariantError is a bug in this library."""
        there = self._weights.keys() | {None}
        require(len(self._owners) == len(self._layout), "every bucket has a place for its owner")
        require(there >= set(self._owners), "buckets belong to consumers that are there")
        owners = tuple(self.ranges.owner(start) for start in self._layout.starts)
        require(owners == self._owners, "the ranges are those of the buckets")

    def _change(self, weights: dict[str, Weight], changed: str | None) -> list[Moved]:
        owners = self._spread(self._owners, weights, changed)  # may refuse the weights: nothing has changed yet
        before = self.ranges
        self._weights = weights
        if owners != self._owners:
            self._owners = owners
            self._ranges = None
        return before.moved(self.ranges)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, BucketPlacement):
            return NotImplemented
        return (
            (self._layout, self._key_hash, self._spread, self._owners)
            == (other._layout, other._key_hash, other._spread, other._owners)
        ) and list(self._weights.items()) == list(other._weights.items())

    __hash__ = None  # type: ignore[assignment]  # a builder changes

    def __repr__(self) -> str:
        return f"<BucketPlacement of {len(self._layout)} buckets over {len(self._weights)} consumers>"


def _move_minimal(owners: Owners, weights: Mapping[str, Weight], _changed: str | None) -> Owners:
    """Bring every consumer to its number of buckets with as few moves as possible."""
    if not weights:
        return (None,) * len(owners)
    lacking = _quotas(weights, len(owners))  # negative for a consumer that owns too many
    for owner in owners:
        if owner in lacking:
            lacking[owner] -= 1
    spread = list(owners)
    free: list[int] = []
    for bucket in reversed(range(len(owners))):
        owner = owners[bucket]
        if owner not in lacking:
            free.append(bucket)
        elif lacking[owner] < 0:
            free.append(bucket)
            lacking[owner] += 1
    for name, short in lacking.items():
        for _ in range(short):
            spread[free.pop()] = name
    return tuple(spread)


def _by_name(owners: Owners, weights: Mapping[str, Weight], _changed: str | None) -> Owners:
    """Cut the buckets into as many even runs as there are consumers, and deal them out by name."""
    uneven = next((weight for weight in weights.values() if weight != 1), 1)
    if uneven != 1:
        raise ArgumentError("weight", uneven, "be 1: Pulsar's spread knows no weights")
    n, k = len(owners), len(weights)
    names = sorted(weights, key=java_order)
    dealt: list[str | None] = [name for j, name in enumerate(names) for _ in range(j * n // k, (j + 1) * n // k)]
    return tuple(dealt) if names else (None,) * n


def _quotas(weights: Mapping[str, Weight], seats: int) -> dict[str, int]:
    """Return each consumer's number of buckets: one each in join order, then to the one with least for its weight.

    The next seat is worth ``w / (2 * held + 1)`` to a consumer (Sainte-Lague). Most seats are dealt at once: with
    ``seats - k`` for the sum of weights, rounding every share to the nearest never deals too many.
    """
    if len(weights) >= seats:
        return {name: int(place < seats) for place, name in enumerate(weights)}
    shares = whole_numbers(weights.values())
    total, base = sum(shares), seats - len(shares)
    held = [max(1, (2 * share * base + total) // (2 * total)) for share in shares]
    common = lcm(*shares)
    # (2 * held + 1) / share, over one denominator: exact, and quicker than fractions
    steps = [common // share for share in shares]
    waiting = [((2 * count + 1) * step, place) for place, (count, step) in enumerate(zip(held, steps, strict=True))]
    heapify(waiting)
    for _ in range(seats - sum(held)):
        price, place = waiting[0]
        held[place] += 1
        heapreplace(waiting, (price + 2 * steps[place], place))
    return dict(zip(weights, held, strict=True))


def _checked_loads(layout: BucketLayout, loads: Iterable[int | Fraction]) -> LoadSpread:
    given = tuple(check_several("loads", loads, "loads"))
    n = len(_checked_layout(layout))
    if len(given) != n:
        raise ArgumentError("loads", len(given), f"be as many as buckets ({n})")
    for load in given:
        if type(load) not in {int, Fraction} or load < 0:
            raise ArgumentError("load", load, "be an int or a Fraction of at least 0")
    # nothing known: then every bucket counts the same
    return LoadSpread(tuple(whole_numbers(given)) if any(given) else (1,) * n)


@configuration()
def _checked_layout(layout: object) -> BucketLayout:
    return check_kind("layout", layout, BucketLayout)


def _checked_consumers(consumers: Iterable[str] | Mapping[str, Weight]) -> dict[str, Weight]:
    check_several("consumers", consumers, "names")
    weights: dict[str, Weight] = {}
    for name, weight in consumers.items() if isinstance(consumers, Mapping) else ((name, 1) for name in consumers):
        check_name(name)
        if name in weights:
            raise ConsumerExistsError(name)
        weights[name] = _checked_weight(weight)
    return weights


def _checked_weight(weight: object) -> Weight:
    checked: Weight = check_number("weight", weight, above=True)
    return checked
