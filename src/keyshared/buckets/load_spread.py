"""Dealing buckets by their load instead of their number: where a hot bucket counts for what it is.

Finding the best deal is a packing problem; this is the greedy one. Dealt at once and with equal weights, its heaviest
consumer is above the mean by less than the heaviest bucket. A join still moves buckets to the newcomer only, a leave
the leaver's only, and a bucket of a consumer that stays moves only if that makes the heavier of the two lighter.
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from math import lcm
from typing import TypeAlias

from keyshared.placement.range_map import Weight

__all__ = ["LoadSpread", "Owners", "whole_numbers"]

Owners: TypeAlias = tuple[str | None, ...]
"""The owner of each bucket."""


def whole_numbers(values: Iterable[Weight]) -> list[int]:
    """Scale finite numbers to ints in the same proportions; floats are taken exactly.

    Example:
        >>> whole_numbers([0.5, 2])
        [1, 4]
    """
    exact = [Fraction(value) for value in values]
    common = lcm(*(value.denominator for value in exact))
    return [value.numerator * (common // value.denominator) for value in exact]


@dataclass(frozen=True, slots=True)
class LoadSpread:
    """Deals buckets by load, one of at least 0 for each bucket, starting from the present owners."""

    loads: tuple[int, ...]

    def __call__(self, owners: Owners, weights: Mapping[str, Weight], changed: str | None) -> Owners:
        """Return the owner of each bucket after a change.

        Args:
            owners: The owner of each bucket so far; those of None or of a consumer that is gone are dealt.
            weights: All consumers with their weights, in join order.
            changed: The consumer that joined or got another weight; None for a leave.
        """
        if not weights:
            return (None,) * len(owners)
        table = _Table(self.loads, owners, weights)
        table.deal([bucket for bucket, owner in enumerate(owners) if owner not in weights])
        if changed is not None and not table.relieve_others(changed):
            table.relieve(changed)
        return tuple(table.owners)


class _Table:
    """The buckets of each consumer while they are dealt. A consumer's burden is its load by its weight.

    Buckets without load are dealt by number when their owner leaves, and never move otherwise.
    """

    def __init__(self, loads: Sequence[int], owners: Owners, weights: Mapping[str, Weight]) -> None:
        self.loads = loads
        self.owners = list(owners)
        self.weights = dict(zip(weights, whole_numbers(weights.values()), strict=True))
        self.held: dict[str, list[tuple[int, int]]] = {name: [] for name in weights}  # (load, -bucket), ascending
        for bucket, owner in enumerate(owners):
            if owner in self.held:
                self.held[owner].append((loads[bucket], -bucket))
        for held in self.held.values():
            held.sort()
        self.burdens = {name: sum(load for load, _ in held) for name, held in self.held.items()}

    def deal(self, free: Sequence[int]) -> None:
        """Assign each bucket, the heaviest first, to the consumer that is lightest with it; ties by joining."""
        for bucket in sorted(free, key=lambda bucket: -self.loads[bucket]):
            load = self.loads[bucket]
            heaviness = partial(self._burden, more=load) if load else self._number
            self._give(bucket, min(self.held, key=heaviness))

    def relieve_others(self, receiver: str) -> bool:
        """Move buckets from the others to one consumer, the heaviest first; return whether anything moved."""
        donors = [name for name in self.held if name != receiver]
        moved = False
        while donors:
            donor = max(donors, key=self._burden)
            if self._move(donor, receiver):
                moved = True
            else:
                donors.remove(donor)  # for good: the receiver only gets heavier, and the donor lighter
        return moved

    def relieve(self, donor: str) -> None:
        """Move buckets from one consumer to the others, the lightest first."""
        receivers = [name for name in self.held if name != donor]
        while receivers:
            receiver = min(receivers, key=self._burden)
            if not self._move(donor, receiver):
                receivers.remove(receiver)

    def _move(self, donor: str, receiver: str) -> bool:
        """Move the heaviest bucket that leaves the receiver lighter than the donor is now, if there is one."""
        held = self.held[donor]
        # (burden of receiver + load) / its weight < burden of donor / its weight, solved for the load
        above = self.burdens[donor] * self.weights[receiver] - self.burdens[receiver] * self.weights[donor]
        most = -(-above // self.weights[donor]) - 1
        index = bisect_left(held, (most + 1,)) - 1
        if index < 0 or not held[index][0]:
            return False
        load = held[index][0]
        index = bisect_left(held, (load,))  # of equal ones the highest, as the other spread gives them
        bucket = -held.pop(index)[1]
        self.burdens[donor] -= load
        self._give(bucket, receiver)
        return True

    def _give(self, bucket: int, receiver: str) -> None:
        load = self.loads[bucket]
        self.owners[bucket] = receiver
        self.burdens[receiver] += load
        held = self.held[receiver]
        held.insert(bisect_left(held, (load, -bucket)), (load, -bucket))

    def _number(self, name: str) -> Fraction:
        return Fraction(len(self.held[name]) + 1, self.weights[name])

    def _burden(self, name: str, more: int = 0) -> Fraction:
        return Fraction(self.burdens[name] + more, self.weights[name])
