"""Consistent hashing with virtual nodes: a builder of placements in which a change moves as little as it can.

Every consumer has points (virtual nodes) on the circle of hashes, and owns the slots from the point before (exclusive)
up to its own. A point is the full hash of a text made of the consumer's name and the number of the virtual node; its
slot is the top bits of that hash.

Ties: of the points in one slot the one with the lowest full hash owns it, then the one of the smaller name. So no name
is favoured, the order of joins does not matter, and a join moves slots to the newcomer only.

With filters one corner is left: of the points in one slot `RangeMap.walk` sees only the owner's. When the owner of such
a slot joins or leaves, keys that the filters keep from it may move between other consumers. 10 consumers of 100 points
have about 8 such slots in 65,536, and none to speak of with ``slot_bits=32``.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from itertools import count, islice
from typing import Final, Self, TypeAlias

from keyshared._checks import check_int, check_number, check_several, configuration
from keyshared.errors import ArgumentError, ConsumerExistsError, InvariantError
from keyshared.hashing.named import DANUBE_32, DEFAULT_SLOT_BITS, XXH64_SEED_42, KeyHash, pulsar_ring_hash
from keyshared.placement.protocol import find_consumer
from keyshared.placement.ranges import Moved, RangeMap, Weight, check_space
from keyshared.placement.ring_rules import DANUBE_RULES, DEFAULT_RULES, RingRules, pulsar_rules

__all__ = ["DEFAULT_VNODES", "HashRing"]

DEFAULT_VNODES: Final = 100  # Danube and Pulsar 100; ketama 40 x weight x 4; uhashring 160
_MOST_VNODES: Final = 1_000_000
_DANUBE_BITS: Final = 32

_Point: TypeAlias = tuple[int, int, str]  # full hash, rank among equal hashes, name


_DANUBE_ID_BITS: Final = 64


def _decimal(consumer_id: object) -> str:
    if type(consumer_id) is not int or consumer_id >> _DANUBE_ID_BITS:
        raise ArgumentError("consumer id", consumer_id, "be an int, or its decimal digits")
    return str(consumer_id)


@dataclass(frozen=True, slots=True)
class _Member:
    weight: Weight
    vnodes: int
    rank: int  # among equal hashes
    index: int  # among those whose points are made of the same name


class HashRing:
    """Consistent hashing with virtual nodes and weights; its value is `ranges`.

    Args:
        consumers: The consumers from the start: names, or a mapping from names to weights.
        vnodes: Points of a consumer of weight 1. More make shares more even and joins dearer.
        slot_bits: There are ``2**slot_bits`` slots. Many more than points, or some points own nothing.
        key_hash: Places keys and points.

    Raises:
        ArgumentError: A value that can never work; a `ConfigError` if it is a setting.
        ConsumerExistsError: A name is given twice.

    Complexity:
        O(p log p) to build, p points; the value is built when it is asked for.

    Source:
        Karger et al. 1997; Danube "Key-Shared Dispatch Architecture", Consistent Hashing; differs: ties do not depend
        on the order of joins, and consumers have weights.

    Example:
        >>> ring = HashRing(["a", "b"])
        >>> ring.owner("order-1")
        'a'
        >>> {(move.old, move.new) for move in ring.remove("b")}
        {('b', 'a')}
    """

    __slots__ = ("_key_hash", "_members", "_points", "_ranges", "_rules", "_slot_bits", "_vnodes")

    _members: dict[str, _Member]
    _points: list[_Point]
    _ranges: RangeMap | None

    def __init__(
        self,
        consumers: Iterable[str] | Mapping[str, Weight] = (),
        *,
        vnodes: int = DEFAULT_VNODES,
        slot_bits: int = DEFAULT_SLOT_BITS,
        key_hash: KeyHash = XXH64_SEED_42,
    ) -> None:
        self._start(consumers, vnodes, slot_bits, key_hash, DEFAULT_RULES)

    @classmethod
    def danube(cls, consumer_ids: Iterable[int | str] = (), *, vnodes: int = DEFAULT_VNODES) -> Self:
        """Build a ring that answers exactly what Danube v0.15.1 answers.

        Consumers are named by the decimal digits of their id. Ties are Danube's: of equal points the consumer that
        joined first owns the slots before, and the one that joined last owns the very slot of the point.

        Args:
            consumer_ids: The ids in join order.
            vnodes: Points of a consumer; Danube has 100.

        Raises:
            ArgumentError: An id is not an unsigned 64-bit number.
            ConsumerExistsError: An id is given twice (Danube takes it, as a second consumer with the same points).

        Source:
            Danube v0.15.1; the winner of a slot equal to a repeated point is what its build (rustc 1.95) does, the
            language leaves it open.

        Example:
            >>> HashRing.danube([1, 2, 3]).owner("payment")
            '2'
        """
        ring = cls.__new__(cls)
        names = [i if isinstance(i, str) else _decimal(i) for i in consumer_ids]
        ring._start(names, vnodes, _DANUBE_BITS, DANUBE_32, DANUBE_RULES)
        return ring

    @classmethod
    def pulsar(
        cls,
        names: Iterable[str] | Mapping[str, Weight] = (),
        *,
        points: int = DEFAULT_VNODES,
        separator: str | None = None,
        range_size: int = 1 << DEFAULT_SLOT_BITS,
    ) -> Self:
        """Build a ring that answers exactly what Pulsar's consistent-hashing selector answers.

        The first consumer keeps a contested point, and the one that has waited longest inherits it. So the order of
        joins matters, and a consumer may own nothing.

        Pulsar lets several consumers have one name and numbers them: the lowest number that is free, so that a consumer
        that leaves and comes straight back has its points again. Here a name is one session; with a ``separator``, what
        follows its last occurrence tells sessions of one Pulsar name apart and takes no part in the points: with
        ``"#"``, ``w#1`` and ``w#2`` are two consumers that Pulsar calls ``w``.

        Args:
            names: In join order; or a mapping from names to weights. Pulsar knows no weights: it is exact where all are
                1. Here a weight multiplies the points, as in any `HashRing`.
            points: Points of a consumer; Pulsar has 100.
            separator: See above; None takes names as they are.
            range_size: Number of slots with slot 0, which never occurs.

        Raises:
            ArgumentError: A value that can never work; a `ConfigError` if it is a setting.
            ConsumerExistsError: A name is given twice.
            MissingExtraError: ``keyshared[pulsar]`` is not installed.

        Source:
            Pulsar 4, consistent hashing with 100 points by default.

        Example:
            >>> HashRing.pulsar(["w#1", "w#2", "x"], separator="#").owner("order-1")
            'w#1'
        """
        ring = cls.__new__(cls)
        key_hash = pulsar_ring_hash(range_size)
        ring._start(names, points, key_hash.bits, key_hash, pulsar_rules(separator))
        return ring

    def _start(
        self,
        consumers: Iterable[str] | Mapping[str, Weight],
        vnodes: int,
        slot_bits: int,
        key_hash: KeyHash,
        rules: RingRules,
    ) -> None:
        with configuration():
            check_space(key_hash, slot_bits)
            check_int("vnodes", vnodes, 1, most=_MOST_VNODES)
        check_several("consumers", consumers, "names")
        self._vnodes = vnodes
        self._slot_bits = slot_bits
        self._key_hash = key_hash
        self._rules = rules
        self._members = {}
        self._points = []
        self._ranges = None
        given = consumers.items() if isinstance(consumers, Mapping) else ((name, 1) for name in consumers)
        for name, weight in given:
            member = self._new_member(name, weight)
            self._members[name] = member
            self._points += self._points_of(name, member, 0, member.vnodes)
        self._points.sort()

    def add(self, name: str, *, weight: Weight = 1) -> list[Moved]:
        """Add a consumer; slots move to it only.

        Args:
            name: The consumer that joins.
            weight: Its number of points is ``vnodes * weight``, rounded half up, and at least 1.

        Returns:
            What changed owners, in slot order.

        Raises:
            ConsumerExistsError: The name is there already.
            ArgumentError: The name is empty or no text; the weight is not positive and finite, or gives too many
                points.

        Complexity:
            O(v log v + p), v points of the consumer and p of all.

        Example:
            >>> ring = HashRing(["a"])
            >>> {move.new for move in ring.add("b", weight=0.5)}
            {'b'}
        """
        member = self._new_member(name, weight)
        before = self.ranges
        self._members[name] = member
        self._insert(self._points_of(name, member, 0, member.vnodes))
        return before.moved(self.ranges)

    def remove(self, name: str) -> list[Moved]:
        """Remove a consumer; only its own slots move.

        Returns:
            What changed owners, in slot order.

        Raises:
            UnknownConsumerError: There is no such consumer.

        Complexity:
            O(p), p points of all.
        """
        find_consumer(self._members, name)
        before = self.ranges
        del self._members[name]
        self._points = [point for point in self._points if point[2] != name]
        self._ranges = None
        return before.moved(self.ranges)

    def set_weight(self, name: str, weight: Weight) -> list[Moved]:
        """Change a consumer's weight; slots move only to it if the weight grows, only from it if it shrinks.

        Args:
            name: The consumer.
            weight: As in `add`.

        Returns:
            What changed owners, in slot order; nothing if the number of points stays the same.

        Raises:
            UnknownConsumerError: There is no such consumer.
            ArgumentError: The weight is not positive and finite or gives too many points.

        Complexity:
            O(d log d + p), d points of difference and p of all.
        """
        member = find_consumer(self._members, name)
        vnodes = self._vnodes_of(weight)
        before = self.ranges
        self._members[name] = _Member(weight, vnodes, member.rank, member.index)
        if vnodes == member.vnodes:
            return []
        if vnodes > member.vnodes:
            self._insert(self._points_of(name, member, member.vnodes, vnodes))
        else:
            self._discard(self._points_of(name, member, vnodes, member.vnodes))
        return before.moved(self.ranges)

    @property
    def ranges(self) -> RangeMap:
        """Who owns which slot now; the same object until something changes. An empty ring is one hole."""
        if self._ranges is None:
            self._ranges = self._build()
        return self._ranges

    @property
    def consumers(self) -> tuple[str, ...]:
        """Everyone on the ring, in join order."""
        return tuple(self._members)

    @property
    def points(self) -> tuple[tuple[int, str], ...]:
        """Every virtual node as ``(full hash, consumer)``, in ring order; equal hashes in the order of their claims."""
        return tuple((point, name) for point, _, name in self._points)

    @property
    def separator(self) -> str | None:
        """What ends the part of a name that points are made of, see `pulsar`; with one, who was here before matters."""
        return self._rules.separator

    def weight_of(self, name: str) -> Weight:
        """Return a consumer's weight.

        Raises:
            UnknownConsumerError: There is no such consumer.
        """
        return find_consumer(self._members, name).weight

    def owner(self, key: str | bytes) -> str | None:
        """Return the owner of a key; see `RangeMap.owner_of`, which is quicker for many keys.

        Returns:
            Who owns it; None if the ring is empty.

        Raises:
            KeyTypeError: See `key_bytes`.
            ArgumentError: The key is None.
        """
        return self.ranges.owner_of(key)

    def owners(self, key: str | bytes, n: int) -> list[str]:
        """Return a key's preference list: its owner, then the consumers that stand in for it, in that order.

        Returns:
            Distinct consumers; fewer than ``n`` if fewer own something.

        Raises:
            ArgumentError: ``n`` is not an int of at least 0, or the key is None.
            KeyTypeError: See `key_bytes`.

        Example:
            >>> HashRing(["a", "b", "c"]).owners("order-1", 2)
            ['a', 'b']
        """
        check_int("n", n, 0)
        return list(islice(self.ranges.walk(self.ranges.slot_of(key)), min(n, len(self.consumers))))

    def copy(self) -> Self:
        """Copy the ring: the same consumers, and nothing shared that can change."""
        twin = type(self).__new__(type(self))
        twin._vnodes, twin._slot_bits = self._vnodes, self._slot_bits
        twin._key_hash, twin._rules = self._key_hash, self._rules
        twin._members, twin._points = dict(self._members), list(self._points)
        twin._ranges = self._ranges
        return twin

    def check_invariants(self) -> None:
        """Check that the points are those of the members, and the value that of the points.

        Raises:
            InvariantError: They are not; a bug in this library.

        Complexity:
            O(p log p), p points: everything is built again.
        """
        fresh = [point for name, m in self._members.items() for point in self._points_of(name, m, 0, m.vnodes)]
        if sorted(fresh) != self._points:
            raise InvariantError("the points are those of the members, in order")
        if any(m.vnodes != self._vnodes_of(m.weight) for m in self._members.values()):
            raise InvariantError("weights say how many points there are")
        numbered = {(self._rules.point_name(name), m.index) for name, m in self._members.items()}
        if len(numbered) != len(self._members):
            raise InvariantError("those whose points are made of one name have different numbers")
        self.ranges.check_invariants()
        if self.ranges != self._build():
            raise InvariantError("the ranges are those of the points")

    def _new_member(self, name: str, weight: Weight) -> _Member:
        self._rules.check_name(name)
        if name in self._members:
            raise ConsumerExistsError(name)
        rank = 0
        if self._rules.ties_by_join and self._members:
            rank = next(reversed(self._members.values())).rank + 1
        return _Member(weight, self._vnodes_of(weight), rank, self._free_index(name))

    def _free_index(self, name: str) -> int:
        """Return the lowest number that no consumer has whose points are made of the same name."""
        if self._rules.separator is None:
            return 0  # names are unique
        point_name = self._rules.point_name(name)
        taken = {m.index for other, m in self._members.items() if self._rules.point_name(other) == point_name}
        return next(index for index in count() if index not in taken)

    def _vnodes_of(self, weight: object) -> int:
        # fractions, because products of floats are rounded, and half a point must be half a point everywhere
        exact = Fraction(check_number("weight", weight, above=True))
        vnodes = max(1, (2 * self._vnodes * exact + 1) // 2)
        if vnodes > _MOST_VNODES:
            raise ArgumentError("weight", weight, f"give at most {_MOST_VNODES} points ({self._vnodes} for weight 1)")
        return vnodes

    def _points_of(self, name: str, member: _Member, start: int, stop: int) -> Iterator[_Point]:
        text, function = self._rules.point_text, self._key_hash.function
        point_name, index, rank = self._rules.point_name(name), member.index, member.rank
        return ((function(text(point_name, index, vnode)), rank, name) for vnode in range(start, stop))

    def _insert(self, points: Iterable[_Point]) -> None:
        # two sorted runs are what Python's sort merges in one linear pass, quicker than bisecting point by point
        self._points += sorted(points)
        self._points.sort()
        self._ranges = None

    def _discard(self, points: Iterable[_Point]) -> None:
        doomed: dict[_Point, int] = {}
        for point in points:  # counted: two virtual nodes of one consumer may be one point
            doomed[point] = doomed.get(point, 0) + 1
        kept = []
        for point in self._points:
            if doomed.get(point):
                doomed[point] -= 1
            else:
                kept.append(point)
        self._points = kept
        self._ranges = None

    def _build(self) -> RangeMap:
        shift = self._key_hash.bits - self._slot_bits
        exact = self._rules.latest_owns_exact
        stops: list[int] = []
        owners: list[str | None] = []
        last = -1
        for point, _, name in self._points:
            slot = point >> shift
            if slot != last:
                stops.append(slot + 1)
                owners.append(name)
                last = slot
            elif exact and slot == (stops[-2] if len(stops) > 1 else 0):
                owners[-1] = name  # the run before has no other slot than the point's own
            elif exact:
                stops[-1] = slot
                stops.append(slot + 1)
                owners.append(name)
        size = 1 << self._slot_bits
        if last != size - 1:
            stops.append(size)
            owners.append(self._points[0][2] if owners else None)  # beyond the last point the circle begins again
        return RangeMap.from_stops(stops, owners, key_hash=self._key_hash, slot_bits=self._slot_bits)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, HashRing):
            return NotImplemented
        mine, theirs = (
            (
                ring._vnodes,
                ring._slot_bits,
                ring._key_hash,
                ring._rules,
                {n: (m.vnodes, m.index) for n, m in ring._members.items()},
            )
            for ring in (self, other)
        )
        return mine == theirs and (not self._rules.ties_by_join or self.consumers == other.consumers)

    __hash__ = None  # type: ignore[assignment]  # a builder changes

    def __repr__(self) -> str:
        return f"<HashRing of {len(self._members)} consumers with {len(self._points)} points>"
