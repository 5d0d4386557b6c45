"""Ranges that consumers declare for themselves, each slot to one of them at most.

Nothing moves by itself: slots without a declaration are holes, and a slot that has an owner is refused to others.
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Self, TypeAlias

from keyshared._checks import check_mapping, configuration
from keyshared.errors import (
    ArgumentError,
    InvariantError,
    RangeOverlapError,
)
from keyshared.hashing import DEFAULT_SLOT_BITS, XXH64_SEED_42, KeyHash, pulsar_range_hash
from keyshared.placement.protocol import PlacementBuilder, check_unit_weight, find_consumer
from keyshared.placement.range_map import HashRange, Moved, RangeMap, Weight, check_space

__all__ = ["Declared", "ExclusiveRanges"]

Declared: TypeAlias = Iterable[HashRange | tuple[int, int]]
"""Ranges as a consumer declares them: `HashRange`, or pairs of first slot and one past the last."""

_Span: TypeAlias = tuple[int, int]


class ExclusiveRanges(PlacementBuilder):
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

    __slots__ = ("_spans",)

    _NO_WEIGHTS = "an exclusive consumer owns what it declared"
    _consumers: dict[str, tuple[_Span, ...]]

    def __init__(
        self,
        declared: Mapping[str, Declared] | None = None,
        *,
        key_hash: KeyHash = XXH64_SEED_42,
        slot_bits: int = DEFAULT_SLOT_BITS,
    ) -> None:
        with configuration():
            check_space(key_hash, slot_bits)
        self._key_hash = key_hash
        self._slot_bits = slot_bits
        self._consumers = {}
        self._spans: list[tuple[int, int, str]] = []  # sorted and disjoint
        self._ranges = None
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

    def remove(self, name: str) -> list[Moved]:
        """Remove a consumer; its ranges become holes. As `Placement.remove`."""
        find_consumer(self._consumers, name)
        before = self.ranges
        del self._consumers[name]
        self._spans = [span for span in self._spans if span[2] != name]
        return self._changed(before)

    def check_invariants(self) -> None:
        """Raise `InvariantError` unless the ranges are disjoint, in order and as declared; for tests. O(n log n)."""
        if sorted((start, stop, name) for name, own in self._consumers.items() for start, stop in own) != self._spans:
            raise InvariantError("the ranges are those that were declared, in order")
        if any(after[0] < before[1] for before, after in pairwise(self._spans)):
            raise InvariantError("no slot is declared twice")
        super().check_invariants()

    def _take(self, name: str, ranges: Declared) -> None:
        self._check_newcomer(name)
        own = self._checked_spans(name, ranges)
        for span in own:
            self._check_free(name, span)
        self._consumers[name] = tuple(own)
        self._spans = sorted([*self._spans, *((start, stop, name) for start, stop in own)])
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

    def _check_free(self, name: str, span: _Span) -> None:
        """Look at the lower neighbour of a range first, so that the consumer named in a conflict is always the same."""
        start, stop = span
        index = bisect_left(self._spans, (start + 1,))
        for other_start, other_stop, owner in self._spans[max(index - 1, 0) : index + 1]:
            if max(start, other_start) < min(stop, other_stop):
                raise RangeOverlapError(name, span, owner, (other_start, other_stop))

    def _build(self) -> RangeMap:
        assigned = [(HashRange(start, stop), name) for start, stop, name in self._spans]
        return RangeMap(assigned, key_hash=self._key_hash, slot_bits=self._slot_bits)

    def _identity(self) -> object:
        return list(self._consumers.items())

    def __repr__(self) -> str:
        return f"<ExclusiveRanges of {len(self._consumers)} consumers in {len(self._spans)} ranges>"


def _span(name: str, given: object) -> _Span:
    if isinstance(given, HashRange):
        return given.start, given.stop
    if isinstance(given, tuple) and len(given) == 2 and all(type(bound) is int for bound in given):  # noqa: PLR2004
        return given
    raise ArgumentError(f"range of {name!r}", given, "be a HashRange, or two ints: first slot, and one past the last")
