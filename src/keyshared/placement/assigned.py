"""Ranges of slots that are assigned by hand, or that consumers declare for themselves.

In `AssignedRanges` the latest assignment of a slot counts: the placement of Celeriant's sticky routing. Celeriant's
identity of a consumer is a group and an id; here a consumer is one name, which `member_name` makes of the two. In
`ExclusiveRanges` nothing moves by itself: a slot that has an owner is refused to others, as in Pulsar's sticky mode.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping
from enum import StrEnum
from itertools import pairwise
from operator import itemgetter
from typing import Final, Self, TypeAlias

from keyshared._checks import (
    check_bool,
    check_enum,
    check_kind,
    check_mapping,
    check_members,
    checked_rows,
    configuration,
)
from keyshared.errors import ArgumentError, InvariantError, RangeOverlapError, UnownedSlotError
from keyshared.hashing import CELERIANT_LE, DEFAULT_SLOT_BITS, XXH64_SEED_42, KeyHash, pulsar_range_hash
from keyshared.placement.protocol import Placement, PlacementBuilder, check_name, check_unit_weight, find_consumer
from keyshared.placement.range_map import HashRange, Moved, RangeMap, Weight

__all__ = ["AssignedRanges", "Declared", "ExclusiveRanges", "Unowned", "member_name"]

Declared: TypeAlias = Iterable[HashRange | tuple[int, int]]
"""Ranges as a consumer declares them: `HashRange`, or pairs of first slot and one past the last."""

_Span: TypeAlias = tuple[int, int]
_Piece: TypeAlias = tuple[int, int, str]  # start, stop, owner
_START: Final = itemgetter(0)
_STOP: Final = itemgetter(1)


class Unowned(StrEnum):
    """The result of a lookup of a slot without an owner."""

    HOLD = "hold"  # None: its messages wait until it has an owner (Celeriant)
    ERROR = "error"  # it raises


def member_name(group: str, consumer: str) -> str:
    """Return the one name of a consumer that is known by its group and its id.

    The group comes first, with ``%`` written as ``%25`` and ``/`` as ``%2F``; then a ``/``; then the id as it is. So
    the first ``/`` divides the two, and different pairs have different names whatever they contain.

    Args:
        group: Name of the consumer group.
        consumer: Name of the consumer in it.

    Raises:
        ArgumentError: One of them is no text, is empty, or holds a lone surrogate.

    Source:
        Celeriant's drain check compares consumer ids without their group, so that equal ids in two groups are taken for
        one consumer.

    Example:
        >>> member_name("billing", "c/1"), member_name("billing/c", "1")
        ('billing/c/1', 'billing%2Fc/1')
    """
    check_name(group, "group")
    check_name(consumer, "consumer")
    return f"{group.replace('%', '%25').replace('/', '%2F')}/{consumer}"


class _Pieces(PlacementBuilder):
    """A builder whose consumers own pieces of the space that are disjoint and in order."""

    __slots__ = ("_pieces",)

    _pieces: list[_Piece]
    _consumers: dict[str, None]

    def remove(self, name: str) -> list[Moved]:
        """Remove a consumer and take every range back from it; as `Placement.remove`."""
        find_consumer(self._consumers, name)
        before = self.ranges
        self._drop(name)
        return self._changed(before)

    def _drop(self, name: str) -> None:
        del self._consumers[name]
        self._pieces = [piece for piece in self._pieces if piece[2] != name]

    def check_invariants(self) -> None:
        """Raise `InvariantError` unless the ranges are disjoint, in order and of consumers; for tests. O(n log n)."""
        for start, stop, owner in self._pieces:
            if not 0 <= start < stop <= 1 << self._slot_bits or owner not in self._consumers:
                raise InvariantError(f"the range at {start} has slots and is a consumer's")
        if any(after[0] < before[1] for before, after in pairwise(self._pieces)):
            raise InvariantError("ranges are disjoint and in order")
        super().check_invariants()

    def _touched(self, start: int, stop: int) -> slice:
        """Return which pieces share a slot with a range. O(log n)."""
        first = bisect_right(self._pieces, start, key=_STOP)
        return slice(first, bisect_left(self._pieces, stop, first, key=_START))

    def _build(self) -> RangeMap:
        pieces = [(HashRange(start, stop), owner) for start, stop, owner in self._pieces]
        return RangeMap(pieces, key_hash=self._key_hash, slot_bits=self._slot_bits)


class AssignedRanges(_Pieces):
    """Ranges of slots assigned by hand; its value is `ranges`.

    Every slot has the owner that was assigned last. What an assignment cuts through is split, what it covers is
    replaced; `assignments` lists the ranges. The fallback decides who owns a slot without an assignment;
    without a fallback the slot is a hole, and its keys wait.

    A consumer that joins with `add` takes part in the fallback; without one it owns nothing until it is assigned
    something. A consumer that is only named by an assignment takes no part in the fallback, and when the last of its
    ranges is gone it owns nothing; `remove` and `add` it to let it take part. A consumer that is removed loses
    everything.

    Args:
        assignments: Ranges and their owners, assigned one after the other.
        unowned: What `owner` does about slots that are left.
        fallback: Owns what is not assigned; copied, and its consumers are consumers here.
        strict_overlap: Refuse a range that only partly overlaps an assigned one. Equal bounds, a part of an assigned
            range, and a range that covers assigned ones as a whole are accepted.
        key_hash: Which hash turns a key into a slot.
        slot_bits: There are ``2**slot_bits`` slots.

    Raises:
        ArgumentError: A value that can never work, or a fallback of another hash or number of slots.
        RangeOverlapError: Two assignments overlap partly, with ``strict_overlap``.

    Complexity:
        O(log n) for each assignment that is given, and for each that it cuts or covers. O(n log n) to build the value,
        n ranges and runs of the fallback; it is built when it is read.

    Source:
        Celeriant's AssignRange; differs: assignments do not pile up, slots without an owner are shown, and what moved
        is returned.

    Example:
        >>> placement = AssignedRanges([(HashRange(0, 32768), "a")])
        >>> placement.assign(HashRange(16384, 65536), "b")
        [Moved(start=16384, stop=32768, old='a', new='b'), Moved(start=32768, stop=65536, old=None, new='b')]
        >>> placement.owner("order-1")
        'b'
    """

    __slots__ = ("_fallback", "_strict", "_unowned")

    _NO_WEIGHTS = "a consumer owns what it is assigned"

    def __init__(
        self,
        assignments: Iterable[tuple[HashRange, str]] = (),
        *,
        unowned: Unowned = Unowned.HOLD,
        fallback: Placement | None = None,
        strict_overlap: bool = False,
        key_hash: KeyHash = XXH64_SEED_42,
        slot_bits: int = DEFAULT_SLOT_BITS,
    ) -> None:
        with configuration():
            check_enum("unowned", unowned, Unowned)
            check_bool("strict_overlap", strict_overlap)
        self._set_space(key_hash, slot_bits)
        self._unowned = unowned
        self._strict = strict_overlap
        self._pieces = []
        self._fallback: Placement | None = None
        if fallback is not None:
            check_members("fallback", fallback, Placement)
            below = fallback.ranges
            if (below.key_hash, below.slot_bits) != (key_hash, slot_bits):
                raise ArgumentError("fallback", fallback, f"have 2**{slot_bits} slots of hash {key_hash.name}")
            self._fallback = fallback.copy()
            self._consumers = dict.fromkeys(fallback.consumers)
        for piece, owner in checked_rows("assignment", assignments, 2, "a HashRange and its owner"):
            self._put(piece, owner)

    @classmethod
    def celeriant(cls, assignments: Iterable[tuple[HashRange, str]] = (), *, key_hash: KeyHash = CELERIANT_LE) -> Self:
        """Build ranges over Celeriant's slots that refuse partial overlaps, as its AssignRange does.

        Args:
            assignments: Ranges and their owners, assigned one after the other; `member_name` makes an owner of a group
                and a consumer, `HashRange.inclusive` reads the bounds.
            key_hash: `CELERIANT_LE` or `CELERIANT_BE`; keys are the bytes that `partition_key_bytes` gives.

        Returns:
            The ranges. Slots without an owner hold what falls into them, as in Celeriant.

        Raises:
            ArgumentError: A value that can never work; a `ConfigError` if it is a setting.
            RangeOverlapError: Two assignments overlap partly.
            MissingExtraError: ``keyshared[celeriant]`` is not installed.

        Example:
            >>> from keyshared.hashing import partition_key_bytes
            >>> placement = AssignedRanges.celeriant([(HashRange.inclusive(0, 0xFFFF), member_name("g", "c1"))])
            >>> placement.owner(partition_key_bytes(42))
            'g/c1'
        """
        return cls(assignments, strict_overlap=True, key_hash=key_hash)

    @classmethod
    def sole_owner(cls, owner: str | None = None) -> Self:
        """Build a placement in which one named consumer owns every key, or no consumer owns any.

        Consumers that join are on standby, until another placement names one of them.

        Args:
            owner: The owner of every key; None for no owner.

        Raises:
            ArgumentError: The owner is no name.

        Source:
            Pulsar's exclusive and failover subscriptions, Celeriant's ordering_required.

        Example:
            >>> placement = AssignedRanges.sole_owner("a")
            >>> placement.add("b")
            []
            >>> placement.owner("any key")
            'a'
        """
        everything = HashRange(0, 2)  # the narrowest space there is
        return cls([] if owner is None else [(everything, owner)], slot_bits=1)

    def assign(self, piece: HashRange, owner: str) -> list[Moved]:
        """Assign a range to a consumer; the previous owners of its slots lose them.

        Args:
            piece: The slots; `HashRange.inclusive` reads bounds as Celeriant writes them.
            owner: The new owner; need not have been added.

        Returns:
            What changed owners, in slot order; nothing if the consumer owned all of it. O(n log n).

        Raises:
            ArgumentError: Not a range of this space, or the owner is no name.
            RangeOverlapError: It overlaps an assigned range only partly, with ``strict_overlap``.
        """
        before = self.ranges
        self._put(piece, owner)
        return self._changed(before)

    def release(self, piece: HashRange) -> list[Moved]:
        """Take a range back from the consumers that it is assigned to; slots without an assignment stay as they are.

        Args:
            piece: The slots. A range that they cut through is split, also with ``strict_overlap``: no other consumer
                gets anything by it.

        Returns:
            What changed owners, in slot order.

        Raises:
            ArgumentError: Not a range of this space.

        Example:
            >>> AssignedRanges([(HashRange(0, 10), "a")]).release(HashRange(5, 20))
            [Moved(start=5, stop=10, old='a', new=None)]
        """
        self._check_piece(piece)
        before = self.ranges
        self._replace(piece, [])
        return self._changed(before)

    def add(self, name: str, *, weight: Weight = 1) -> list[Moved]:
        """Add a consumer: to the fallback, or else without any slots and with the weight 1; as `Placement.add`."""
        self._check_newcomer(name)
        before = self.ranges
        if self._fallback is None:
            check_unit_weight(weight, self._NO_WEIGHTS)
        else:
            self._fallback.add(name, weight=weight)
        self._consumers[name] = None
        return self._changed(before)

    def set_weight(self, name: str, weight: Weight) -> list[Moved]:
        """Change a consumer's weight in the fallback; 1 is the only weight outside it. As `Placement.set_weight`."""
        find_consumer(self._consumers, name)
        if self._fallback is None or name not in self._fallback.consumers:
            check_unit_weight(weight, self._NO_WEIGHTS)
            return []
        before = self.ranges
        self._fallback.set_weight(name, weight)
        return self._changed(before)

    @property
    def assignments(self) -> tuple[tuple[HashRange, str], ...]:
        """The ranges in slot order: split where later ones cut them, never joined by themselves."""
        return tuple((HashRange(start, stop), owner) for start, stop, owner in self._pieces)

    def unowned(self) -> tuple[HashRange, ...]:
        """List the slots without an owner in the assignments and in the fallback.

        Example:
            >>> AssignedRanges([(HashRange(0, 65000), "a")]).unowned()
            (HashRange(start=65000, stop=65536),)
        """
        return self.ranges.ranges_of(None)

    def owner(self, key: str | bytes) -> str | None:
        """Return the owner of a key; None for a hole if the policy is to hold.

        Raises:
            UnownedSlotError: The slot is a hole, and the policy is to raise.
            KeyTypeError: See `key_bytes`; `ArgumentError` for None.
        """
        ranges = self.ranges
        slot = ranges.slot_of(key)
        owner = ranges.owner(slot)
        if owner is None and self._unowned is Unowned.ERROR:
            raise UnownedSlotError(slot)
        return owner

    def check_invariants(self) -> None:
        """Raise `InvariantError` unless ranges are disjoint, in order and of consumers; for tests. O(n log n)."""
        if self._fallback is not None and not self._consumers.keys() >= set(self._fallback.consumers):
            raise InvariantError("consumers of the fallback are consumers here")
        super().check_invariants()

    def _drop(self, name: str) -> None:
        super()._drop(name)
        if self._fallback is not None and name in self._fallback.consumers:
            self._fallback.remove(name)

    def _put(self, piece: HashRange, owner: str) -> None:
        self._check_piece(piece)
        check_name(owner, "owner")
        if self._strict:
            self._check_overlap(piece, owner)
        self._replace(piece, [(piece.start, piece.stop, owner)])
        self._consumers.setdefault(owner)
        self._ranges = None

    def _replace(self, piece: HashRange, new: list[_Piece]) -> None:
        """Put other assignments where the piece is; what it cuts through is split. O(log n + those it touches)."""
        where = self._touched(piece.start, piece.stop)
        touched = self._pieces[where]
        below = [(start, piece.start, owner) for start, _, owner in touched[:1] if start < piece.start]
        above = [(piece.stop, stop, owner) for _, stop, owner in touched[-1:] if stop > piece.stop]
        self._pieces[where] = [*below, *new, *above]

    def _build(self) -> RangeMap:
        assigned = super()._build()
        if self._fallback is None:
            return assigned
        below = self._fallback.ranges
        # between two neighbouring cuts nothing changes in either map, so the last slot speaks for all of them
        cuts = sorted({stop for ranges in (assigned, below) for _, stop, _ in ranges.runs})
        owners = [assigned.owner(cut - 1) or below.owner(cut - 1) for cut in cuts]
        return RangeMap.from_stops(cuts, owners, key_hash=self._key_hash, slot_bits=self._slot_bits)

    def _check_piece(self, piece: object) -> None:
        piece = check_kind("range", piece, HashRange)
        if piece.stop > 1 << self._slot_bits:
            raise ArgumentError("stop", piece.stop, f"be at most {1 << self._slot_bits}, the number of slots")

    def _check_overlap(self, piece: HashRange, consumer: str) -> None:
        for start, stop, owner in self._pieces[self._touched(piece.start, piece.stop)]:
            nested = (start <= piece.start and piece.stop <= stop) or (piece.start <= start and stop <= piece.stop)
            if not nested:
                raise RangeOverlapError(consumer, (piece.start, piece.stop), owner, (start, stop))

    def _identity(self) -> object:
        return self._pieces, self.consumers, self._fallback, self._unowned, self._strict

    def __repr__(self) -> str:
        return f"<AssignedRanges of {len(self._pieces)} ranges to {len(self._consumers)} consumers>"


class ExclusiveRanges(_Pieces):
    """Ranges that consumers declare for themselves; its value is `ranges`.

    A consumer joins with `declare`. `add`, which cannot say which ranges, raises: a consumer that joined without any
    would silently get nothing for ever. In a dispatcher this means: give it a placement that names the consumer
    (`set_placement`), then ``add_consumer``, which keeps the place that the placement has for it. A consumer that was
    removed or evicted has to declare again in the same way; `set_inactive` keeps the ranges of one that is only away.

    Args:
        declared: Names and their ranges, in join order.
        key_hash: Which hash turns a key into a slot.
        slot_bits: There are ``2**slot_bits`` slots.

    Raises:
        ArgumentError: A value that can never work; a `ConfigError` if it is a setting.
        RangeOverlapError: Two consumers declare one slot.

    Complexity:
        O(n + r log n) to declare, r ranges of the consumer and n of all.

    Source:
        Pulsar's sticky mode; differs: ranges outside the space are always refused (Pulsar's client refuses them, its
        broker would take them), and of a conflict both ranges are named.

    Example:
        >>> placement = ExclusiveRanges({"a": [(0, 100)]})
        >>> placement.declare("b", [HashRange(200, 300), HashRange(100, 150)])
        [Moved(start=100, stop=150, old=None, new='b'), Moved(start=200, stop=300, old=None, new='b')]
        >>> placement.ranges.ranges_of(None)
        (HashRange(start=150, stop=200), HashRange(start=300, stop=65536))
    """

    __slots__ = ()

    _NO_WEIGHTS = "an exclusive consumer owns what it declared"

    def __init__(
        self,
        declared: Mapping[str, Declared] | None = None,
        *,
        key_hash: KeyHash = XXH64_SEED_42,
        slot_bits: int = DEFAULT_SLOT_BITS,
    ) -> None:
        self._set_space(key_hash, slot_bits)
        self._pieces = []
        for name, ranges in check_mapping("declared", {} if declared is None else declared).items():
            self._take(name, ranges)

    @classmethod
    def pulsar(
        cls, declared: Mapping[str, Declared] | None = None, *, range_size: int = 1 << DEFAULT_SLOT_BITS
    ) -> Self:
        """Build ranges over Pulsar's slots, as its sticky mode does.

        Args:
            declared: Names and their ranges, half-open; `HashRange.inclusive` reads Pulsar's.
            range_size: Number of slots with slot 0, which never occurs; Pulsar has 65,536.

        Raises:
            ArgumentError: As the constructor, or ``range_size`` is not a power of two from 2 to 65,536.
            RangeOverlapError: Two consumers declare one slot.
            MissingExtraError: ``keyshared[pulsar]`` is not installed.

        Source:
            Pulsar 4, ``KeySharedPolicy.stickyHashRange()``.

        Example:
            >>> ExclusiveRanges.pulsar({"a": [HashRange.inclusive(0, 32767)]}).owner("order-2")
            'a'
        """
        key_hash = pulsar_range_hash(range_size)
        return cls(declared, key_hash=key_hash, slot_bits=key_hash.bits)

    def declare(self, name: str, ranges: Declared) -> list[Moved]:
        """Add a consumer with its ranges: all of them, or it raises and nothing has changed.

        Args:
            name: The consumer that joins.
            ranges: What it declares, in any order.

        Returns:
            What changed owners, in slot order: from no owner to it.

        Raises:
            ConsumerExistsError: The name is there already; remove it first to declare again.
            ArgumentError: The name can never work; no ranges, or an empty list of them; a range that is empty, turned
                round or beyond the space; or two of its ranges overlap. The first of these that is true is reported.
            RangeOverlapError: Another consumer has a slot of it. Whether that consumer is still alive is for the host
                to find out; if it is not, remove it and declare again.
        """
        before = self.ranges
        self._take(name, ranges)
        return self._changed(before)

    def add(self, name: str, *, weight: Weight = 1) -> list[Moved]:
        """Raise `ArgumentError`: an exclusive consumer must say what it owns, see `declare`."""
        self._check_newcomer(name)
        check_unit_weight(weight, self._NO_WEIGHTS)
        raise ArgumentError(f"ranges of {name!r}", None, "be declared: call declare() before it joins a dispatcher")

    def _take(self, name: str, ranges: Declared) -> None:
        self._check_newcomer(name)
        own = self._checked_spans(name, ranges)
        for span in own:
            for start, stop, owner in self._pieces[self._touched(*span)]:
                raise RangeOverlapError(name, span, owner, (start, stop))
        self._consumers[name] = None
        self._pieces = sorted([*self._pieces, *((start, stop, name) for start, stop in own)])
        self._ranges = None

    def _checked_spans(self, name: str, ranges: object) -> list[_Span]:
        """Return the consumer's ranges by their start; faults come in the order in which Pulsar looks for them."""
        if ranges is None or isinstance(ranges, str | bytes) or not isinstance(ranges, Iterable):
            raise ArgumentError(f"ranges of {name!r}", ranges, "be given: an exclusive consumer declares what it owns")
        own = sorted(_span(name, each) for each in ranges)
        if not own:
            raise ArgumentError(f"ranges of {name!r}", [], "hold at least one range")
        for (start, stop), after in zip(own, [*own[1:], None], strict=True):
            if start >= stop:
                raise ArgumentError(f"range of {name!r}", (start, stop), "end after it starts")
            if after is not None and max(start, after[0]) < min(stop, after[1]):
                raise ArgumentError(f"range of {name!r}", after, f"not overlap its own {(start, stop)}")
        if own[0][0] < 0 or own[-1][1] > 1 << self._slot_bits:
            outside = own[0] if own[0][0] < 0 else own[-1]
            raise ArgumentError(f"range of {name!r}", outside, f"lie within the {1 << self._slot_bits} slots")
        return own

    def _identity(self) -> object:
        return self._pieces, self.consumers

    def __repr__(self) -> str:
        return f"<ExclusiveRanges of {len(self._consumers)} consumers in {len(self._pieces)} ranges>"


def _span(name: str, given: object) -> _Span:
    if isinstance(given, HashRange):
        return given.start, given.stop
    if isinstance(given, tuple) and len(given) == 2 and all(type(bound) is int for bound in given):  # noqa: PLR2004
        return given
    raise ArgumentError(f"range of {name!r}", given, "be a HashRange, or two ints: first slot, and one past the last")
