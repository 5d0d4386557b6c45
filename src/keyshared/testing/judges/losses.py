"""A message that is lost was not overtaken: of what newer ones of its key do then, only the loss is told."""

from collections.abc import Iterable
from typing import TypeAlias

from keyshared.testing.guarantees import Promise, Violation

__all__ = ["Victim", "loss_of", "overtaken_in", "without_overtaken_losses"]

Victim: TypeAlias = tuple[int, int]
"""A message, and the row since which it waits: it may be delivered once more, and be lost only then."""


def overtaken_in(violation: Violation) -> Victim | None:
    """Return the message that was overtaken; None if the violation is of something else."""
    return _victim(violation) if violation.promise is Promise.KEY_ORDER else None


def loss_of(violation: Violation) -> Victim | None:
    """Return the message that will never be delivered again; None if the violation is of something else."""
    return _victim(violation) if violation.promise is Promise.NO_LOSS else None


def without_overtaken_losses(found: Iterable[Violation]) -> list[Violation]:
    """Leave out that something was overtaken that is lost."""
    violations = list(found)
    lost = {loss_of(violation) for violation in violations} - {None}
    return [violation for violation in violations if overtaken_in(violation) not in lost]


def _victim(violation: Violation) -> Victim | None:
    return None if violation.offset is None else (violation.offset, violation.proof[0])
