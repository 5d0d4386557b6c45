"""How a trial ends when all steps are taken, and how a finding explains that."""

from collections.abc import Iterable
from typing import Final

from keyshared.testing.history import Connected, Happening

__all__ = ["HEALER", "explain_end"]

HEALER: Final = "healer"
_THE_END: Final = "then everybody answers whatever comes, and time passes, until nothing comes any more"


def explain_end(history: Iterable[Happening]) -> str:
    """Return a line that says what has happened after the last step.

    Args:
        history: All of it.
    """
    joined = any(isinstance(each, Connected) and each.consumer == HEALER for each in history)
    return (
        f"({_THE_END}; {HEALER!r} is the kit's own consumer for this, and takes all keys)"
        if joined
        else f"({_THE_END})"
    )
