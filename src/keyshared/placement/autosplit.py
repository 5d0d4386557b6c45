"""Ranges that split: a newcomer takes half of the widest range, and a neighbour absorbs the range of a leaver.

Every consumer has exactly one range. The ranges depend on the whole history of joins and leaves and are never evened
out. `HashRing` depends on the present consumers only, spreads a leaver's slots over all, and is the better default.
"""

from bisect import insort
from collections.abc import Iterable
from itertools import pairwise
from typing import Self

from keyshared._checks import check_several
from keyshared.errors import InvariantError, MisuseError
from keyshared.hashing import DEFAULT_SLOT_BITS, XXH64_SEED_42, KeyHash, pulsar_range_hash
from keyshared.placement.protocol import PlacementBuilder, check_unit_weight, find_consumer
from keyshared.placement.range_map import Moved, RangeMap, Weight

__all__ = ["AutoSplit"]


class AutoSplit(PlacementBuilder):
    """Ranges that split at a join and are absorbed at a leave; its value is `ranges`.

    The newcomer gets the lower half of the widest range; of equally wide ones the lowest is split; of an odd width the
    newcomer gets the greater part. What a leaver had goes to its upper neighbour, and the topmost range to its lower
    one. So a change touches two consumers at most. Weights other than 1 are refused.

    The ranges depend on earlier leaves, too. To restore a dispatcher's snapshot, keep its ``placement`` with it; it
    pickles.

    Args:
        consumers: The consumers from the start, in join order.
        key_hash: Which hash turns a key into a slot.
        slot_bits: There are ``2**slot_bits`` slots, and at most as many consumers.

    Raises:
        ArgumentError: A value that can never work; a `ConfigError` if it is a setting.
        ConsumerExistsError: A name is given twice.
        MisuseError: There are more consumers than slots.

    Complexity:
        O(n) for a join or a leave, n consumers; O(log n) to find an owner.

    Source:
        Pulsar's auto-split selector; differs: ranges are half-open, so that halves are exact (see `pulsar`).

    Example:
        >>> AutoSplit(["a", "b"]).add("c")
        [Moved(start=0, stop=16384, old='b', new='c')]
    """

    __slots__ = ("_bounds", "_first_slot")

    _NO_WEIGHTS = "half of the widest range goes to the consumer that joins, so shares follow the order of joins"
    _consumers: dict[str, None]

    def __init__(
        self,
        consumers: Iterable[str] = (),
        *,
        key_hash: KeyHash = XXH64_SEED_42,
        slot_bits: int = DEFAULT_SLOT_BITS,
    ) -> None:
        self._start(consumers, key_hash, slot_bits, first_slot=0)

    @classmethod
    def pulsar(cls, consumers: Iterable[str] = (), *, range_size: int = 1 << DEFAULT_SLOT_BITS) -> Self:
        """Build ranges that are exactly those of Pulsar's auto-split selector.

        Pulsar's bounds are inclusive and its topmost one is ``range_size``, one past the last slot. Its slot 0 never
        occurs. So its ranges lie one slot higher than halves of the slots would: 0 to 32,768 and 32,769 to 65,535.

        Args:
            consumers: The consumers from the start, in join order.
            range_size: Number of slots with slot 0; Pulsar has 65,536.

        Returns:
            The ranges. As many consumers as ``range_size`` fit in, as in Pulsar; the topmost then has no slot at all.

        Raises:
            ArgumentError: ``range_size`` is not a power of two from 2 to 65,536, or a name can never work.
            ConsumerExistsError: A name is given twice.
            MisuseError: There are more consumers than slots.
            MissingExtraError: ``keyshared[pulsar]`` is not installed.

        Source:
            Pulsar 4 with ``subscriptionKeySharedUseConsistentHashing=false``.

        Example:
            >>> AutoSplit.pulsar(["a", "b"]).ranges.ranges_of("b")
            (HashRange(start=0, stop=32769),)
        """
        placement = cls.__new__(cls)
        key_hash = pulsar_range_hash(range_size)
        placement._start(consumers, key_hash, key_hash.bits, first_slot=1)
        return placement

    def _start(self, consumers: Iterable[str], key_hash: KeyHash, slot_bits: int, *, first_slot: int) -> None:
        self._set_space(key_hash, slot_bits)
        self._first_slot = first_slot  # the slot at which the lowest range begins to count
        self._bounds: list[tuple[int, str]] = []  # sorted; the first range begins at 0, the last one ends at the size
        check_several("consumers", consumers, "names")
        for name in consumers:
            self._join(name)

    def add(self, name: str, *, weight: Weight = 1) -> list[Moved]:
        """Add a consumer: it gets the lower half of the widest range. As `Placement.add`; the weight is 1.

        Raises:
            MisuseError: No range is wide enough to be split.
        """
        check_unit_weight(weight, self._NO_WEIGHTS)
        before = self.ranges
        self._join(name)
        return self._changed(before)

    def remove(self, name: str) -> list[Moved]:
        """Remove a consumer: its upper neighbour absorbs its range, or the lower one if it was the topmost."""
        find_consumer(self._consumers, name)
        before = self.ranges
        del self._consumers[name]
        index = next(index for index, (_, owner) in enumerate(self._bounds) if owner == name)
        bound, _ = self._bounds.pop(index)
        if index == len(self._bounds) and self._bounds:
            _, heir = self._bounds.pop()
            self._bounds.append((bound, heir))
        return self._changed(before)

    def check_invariants(self) -> None:
        """Raise `InvariantError` unless every consumer has one range and they tile the space; for tests. O(n log n)."""
        if sorted(name for _, name in self._bounds) != sorted(self._consumers):
            raise InvariantError("every consumer has one bound")
        bounds = [0, *(bound for bound, _ in self._bounds)]
        if any(bound <= below for below, bound in pairwise(bounds)):
            raise InvariantError("no range is empty, and bounds are in order")
        if self._bounds and bounds[-1] != 1 << self._slot_bits:
            raise InvariantError("the topmost range ends at the size of the space")
        super().check_invariants()

    def _join(self, name: str) -> None:
        self._check_newcomer(name)
        bound = self._split() if self._bounds else 1 << self._slot_bits
        self._consumers[name] = None
        insort(self._bounds, (bound, name))
        self._ranges = None

    def _split(self) -> int:
        """Return the bound of the lower part of the widest range, the lowest one of equals."""
        widest = split = below = 0
        for bound, _ in self._bounds:
            width = bound - below
            if width > widest:
                widest, split = width, bound - width // 2
            below = bound
        if widest <= 1:
            consumers = len(self._bounds)
            raise MisuseError(f"no range can be split: {consumers} consumers have one slot each; use more slot_bits")
        return split

    def _build(self) -> RangeMap:
        size = 1 << self._slot_bits
        stops: list[int] = []
        owners: list[str | None] = []
        for bound, name in self._bounds:
            stop = min(bound + self._first_slot, size)
            if not stops or stop > stops[-1]:  # else it is Pulsar's topmost range of width 1, which has no slot
                stops.append(stop)
                owners.append(name)
        if not stops:
            stops, owners = [size], [None]
        return RangeMap.from_stops(stops, owners, key_hash=self._key_hash, slot_bits=self._slot_bits)

    def _identity(self) -> object:
        return self._bounds, self.consumers, self._first_slot

    def __repr__(self) -> str:
        return f"<AutoSplit of {len(self._consumers)} consumers over 2**{self._slot_bits} slots>"
