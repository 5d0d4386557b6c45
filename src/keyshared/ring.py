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

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import count, filterfalse, islice, repeat
from typing import Any, Final, Self

from keyshared._checks import check_int, check_number, check_several, configuration
from keyshared.errors import ArgumentError, ConsumerExistsError, InvariantError
from keyshared.hashing import DANUBE_32, DEFAULT_SLOT_BITS, XXH64_SEED_42, KeyHash, pulsar_ring_hash
from keyshared.placement.protocol import PlacementBuilder, check_name, find_consumer
from keyshared.placement.range_map import Moved, RangeMap, Weight
from keyshared.placement.ring_points import Point, RingMoves, RingPoints, RingRanges

__all__ = ["DEFAULT_VNODES", "HashRing"]

DEFAULT_VNODES: Final = 100  # Danube and Pulsar 100; ketama 40 x weight x 4; uhashring 160
_MOST_VNODES: Final = 1_000_000
_DANUBE_BITS: Final = 32
_U64_STOP: Final = 1 << 64


@dataclass(frozen=True, slots=True)
class RingRules:
    """The rules of one kind of ring, as a value.

    Attributes:
        point_text: What is hashed for a point: of the name, its number among those with equal points, and which point.
        check_name: Raises `ArgumentError` for a name that cannot be on this ring.
        ties_by_join: A repeated point belongs to the consumer that joined first; otherwise to the smaller name.
        latest_owns_exact: The very slot of a repeated point belongs to the consumer that joined last.
        separator: Ends the part of a name that points are made of; None if names are whole.
    """

    point_text: Callable[[str, int, int], bytes]
    check_name: Callable[[object], None]
    ties_by_join: bool
    latest_owns_exact: bool
    separator: str | None = None

    def point_name(self, name: str) -> str:
        """Return the part of a consumer's name that its points are made of.

        Returns:
            The part before the last separator; the whole name if there is none, or nothing before it.
        """
        if self.separator is None:
            return name
        return name.rpartition(self.separator)[0] or name


def _default_point_text(name: str, _: int, vnode: int) -> bytes:
    # the last NUL ends the name whatever the name holds: "a" + "11" and "a1" + "1" are not one point
    return b"%b\0%d" % (name.encode(), vnode)


def _danube_point_text(name: str, _: int, vnode: int) -> bytes:
    return b"%b-%d" % (name.encode(), vnode)


def _pulsar_point_text(name: str, index: int, vnode: int) -> bytes:
    return b"%b\0%d\0%d" % (name.encode(), index, vnode)


def _check_danube_id(name: object) -> None:
    decimal = isinstance(name, str) and name.isascii() and name.isdecimal() and str(int(name[:20])) == name
    if not decimal or int(str(name)) >= _U64_STOP:
        raise ArgumentError("name", name, "be a consumer id of Danube: the decimal digits of an unsigned 64-bit number")


DEFAULT_RULES: Final = RingRules(_default_point_text, check_name, ties_by_join=False, latest_owns_exact=False)
"""Ties do not depend on the order of joins."""

DANUBE_RULES: Final = RingRules(_danube_point_text, _check_danube_id, ties_by_join=True, latest_owns_exact=True)
"""Danube v0.15.1."""


@configuration()
def pulsar_rules(separator: str | None) -> RingRules:
    """Return the rules of Pulsar's selector: the first keeps a contested point, and equal names are numbered."""
    if separator is not None:
        check_name(separator, "separator")
    return RingRules(_pulsar_point_text, check_name, ties_by_join=True, latest_owns_exact=False, separator=separator)


@dataclass(frozen=True, slots=True)
class _Member:
    weight: Weight
    vnodes: int
    rank: int  # among equal hashes
    index: int  # among those whose points are made of the same name


class HashRing(PlacementBuilder):
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
        O(p log p) to build, p points; O(v log p) for each join and leave, v points of the consumer. The moves are
        worked out when they are read, and the runs of the value after many lookups.

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

    __slots__ = ("_numbers", "_points", "_rules", "_vnodes")

    _consumers: dict[str, _Member]
    _numbers: set[tuple[str, int]]  # taken by consumers whose points are made of one name
    _points: RingPoints

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
        """Build a ring with exactly the owners of Danube v0.15.1.

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
        names: list[Any] = [str(i) if type(i) is int and i < _U64_STOP else i for i in consumer_ids]
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
        """Build a ring with exactly the owners of Pulsar's consistent-hashing selector.

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
        self._set_space(key_hash, slot_bits)
        with configuration():
            check_int("vnodes", vnodes, 1, most=_MOST_VNODES)
        check_several("consumers", consumers, "names")
        self._vnodes = vnodes
        self._rules = rules
        self._numbers = set()
        points: list[Point] = []
        given = consumers.items() if isinstance(consumers, Mapping) else ((name, 1) for name in consumers)
        for name, weight in given:
            member = self._new_member(name, weight)
            self._enter(name, member)
            points += self._points_of(name, member, 0, member.vnodes)
        self._points = RingPoints(points, key_hash.bits, slot_bits, latest_owns_exact=rules.latest_owns_exact)

    def add(self, name: str, *, weight: Weight = 1) -> Sequence[Moved]:
        """Add a consumer; slots move to it only.

        Args:
            name: The consumer that joins.
            weight: Its number of points is ``vnodes * weight``, rounded half up, and at least 1.

        Returns:
            What changed owners, in slot order; worked out when it is first read. O(v log p), v points of the consumer
            and p of all.

        Raises:
            ConsumerExistsError: The name is there already.
            ArgumentError: The name or the weight can never work, or the function of the hash raises for the name.

        Example:
            >>> ring = HashRing(["a"])
            >>> {move.new for move in ring.add("b", weight=0.5)}
            {'b'}
        """
        member = self._new_member(name, weight)
        points = self._points_of(name, member, 0, member.vnodes)  # first: the function of the hash may raise
        self._enter(name, member)
        return self._change(points, join=True)

    def remove(self, name: str) -> Sequence[Moved]:
        """Remove a consumer; only its own slots move. Cost as `add`; raises `UnknownConsumerError`."""
        member = find_consumer(self._consumers, name)
        del self._consumers[name]
        self._numbers.remove((self._rules.point_name(name), member.index))
        return self._change(self._points_of(name, member, 0, member.vnodes), join=False)

    def set_weight(self, name: str, weight: Weight) -> Sequence[Moved]:
        """Change a consumer's weight; slots move only to it if the weight grows, only from it if it shrinks.

        Returns and costs as `add`; nothing moves if the number of points stays the same. Raises
        `UnknownConsumerError`, or `ArgumentError` for a weight that can never work.
        """
        member = find_consumer(self._consumers, name)
        vnodes = self._vnodes_of(weight)
        few, many = sorted((vnodes, member.vnodes))
        points = self._points_of(name, member, few, many)  # first: the function of the hash may raise
        self._consumers[name] = _Member(weight, vnodes, member.rank, member.index)
        return self._change(points, join=vnodes == many) if points else []

    @property
    def points(self) -> tuple[tuple[int, str], ...]:
        """Every virtual node as ``(full hash, consumer)``, in ring order; equal hashes in the order of their claims."""
        return tuple((point, name) for point, _, name in self._points)

    @property
    def separator(self) -> str | None:
        """The text that ends the part of a name that points are made of, see `pulsar`; None if names are whole."""
        return self._rules.separator

    def weight_of(self, name: str) -> Weight:
        """Return a consumer's weight.

        Raises:
            UnknownConsumerError: There is no such consumer.
        """
        return find_consumer(self._consumers, name).weight

    def owners(self, key: str | bytes, n: int) -> list[str]:
        """Return a key's preference list: its owner, then the consumers that replace it one after the other.

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
        return list(islice(self.ranges.walk(self.ranges.slot_of(key)), min(n, len(self._consumers))))

    def check_invariants(self) -> None:
        """Raise `InvariantError` unless points and value are those of the consumers; for tests. O(p log p)."""
        fresh = [point for name, m in self._consumers.items() for point in self._points_of(name, m, 0, m.vnodes)]
        if sorted(fresh) != list(self._points):
            raise InvariantError("the points are those of the members, in order")
        if any(m.vnodes != self._vnodes_of(m.weight) for m in self._consumers.values()):
            raise InvariantError("weights say how many points there are")
        numbered = {(self._rules.point_name(name), m.index) for name, m in self._consumers.items()}
        if len(numbered) != len(self._consumers) or numbered != self._numbers:
            raise InvariantError("those whose points are made of one name have different numbers, which are taken")
        self._points.check_invariants()
        super().check_invariants()

    def _new_member(self, name: str, weight: Weight) -> _Member:
        self._rules.check_name(name)
        if name in self._consumers:
            raise ConsumerExistsError(name)
        rank = 0
        if self._rules.ties_by_join and self._consumers:
            rank = next(reversed(self._consumers.values())).rank + 1
        return _Member(weight, self._vnodes_of(weight), rank, self._free_index(name))

    def _free_index(self, name: str) -> int:
        """Return the lowest number that no consumer has whose points are made of the same name."""
        numbered = zip(repeat(self._rules.point_name(name)), count())
        _, index = next(filterfalse(self._numbers.__contains__, numbered))
        return index

    def _enter(self, name: str, member: _Member) -> None:
        self._consumers[name] = member
        self._numbers.add((self._rules.point_name(name), member.index))

    def _change(self, points: list[Point], *, join: bool) -> Sequence[Moved]:
        before = self._points
        self._points = before.including(points) if join else before.excluding(points)
        self._ranges = None
        return RingMoves(before, self._points, points)

    def _build(self) -> RangeMap:
        return RingRanges(self._points, self._key_hash, self._slot_bits)

    def _vnodes_of(self, weight: object) -> int:
        # fractions, because products of floats are rounded, and half a point must be half a point everywhere
        exact = Fraction(check_number("weight", weight, above=True))
        vnodes = max(1, (2 * self._vnodes * exact + 1) // 2)
        if vnodes > _MOST_VNODES:
            raise ArgumentError("weight", weight, f"give at most {_MOST_VNODES} points ({self._vnodes} for weight 1)")
        return vnodes

    def _points_of(self, name: str, member: _Member, start: int, stop: int) -> list[Point]:
        text, function = self._rules.point_text, self._key_hash.checked()
        point_name, index, rank = self._rules.point_name(name), member.index, member.rank
        return [(function(text(point_name, index, vnode)), rank, name) for vnode in range(start, stop)]

    def _identity(self) -> object:
        members = {name: (member.vnodes, member.index) for name, member in self._consumers.items()}
        return self._vnodes, self._rules, members, self._rules.ties_by_join and self.consumers

    def __repr__(self) -> str:
        return f"<HashRing of {len(self._consumers)} consumers with {len(self._points)} points>"
