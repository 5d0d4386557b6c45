"""How much work a call does, counted and not timed: what it calls, in Python and in C, resumed generators included."""

import sys
from collections.abc import Callable
from types import FrameType

from keyshared.testing.files import collector_at_rest

__all__ = ["work_of"]


def work_of(call: Callable[[], object]) -> int:
    """Count the calls that a call makes. The same call always makes as many."""
    count = 0

    def note(_frame: FrameType, event: str, _arg: object) -> None:
        nonlocal count
        count += event in {"call", "c_call"}

    before = sys.getprofile()
    with collector_at_rest():  # Hypothesis has a function called at each collection
        sys.setprofile(note)
        try:
            call()
        finally:
            sys.setprofile(before)
    return count
