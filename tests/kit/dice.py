"""Searches of systems that are too slow for as many tries as some dice need."""

from keyshared.testing.find import BUDGET, Budget, Finding, find_violation
from keyshared.testing.machine import KeySharedMachine

__all__ = ["find_by_some_dice"]

_DICE = range(10)


def find_by_some_dice(machine: type[KeySharedMachine], budget: Budget = BUDGET) -> Finding | None:
    """Search with one dice after the other, a hundred tries each, until one of them finds something."""
    tries = (find_violation(machine, budget._replace(tries=100, seed=dice)) for dice in _DICE)
    return next(filter(None, tries), None)
