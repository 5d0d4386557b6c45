"""Searches of systems that are too slow for as many tries as some dice need."""

from hypothesis import seed, settings

from keyshared.testing.machine import KeySharedMachine
from keyshared.testing.trial import Finding, find_violation

__all__ = ["find_by_some_dice"]

_DICE = range(1, 11)  # some find at once what others do not find in a thousand tries


def find_by_some_dice(machine: type[KeySharedMachine], budget: settings) -> Finding | None:
    """Search with one dice after the other, a hundred tries each, until one of them finds something."""
    tries = (find_violation(seed(dice)(machine), settings(budget, max_examples=100)) for dice in _DICE)
    return next(filter(None, tries), None)
