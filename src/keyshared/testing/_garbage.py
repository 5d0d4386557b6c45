"""Python's garbage collector, out of the way of work that makes thousands of objects, none of them garbage yet."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["collector_at_rest"]


@contextmanager
def collector_at_rest() -> Iterator[None]:
    """Keep the garbage collector from going through the same new objects again and again; it goes through them later.

    For a bounded piece of work: what refers to itself is not freed meanwhile.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
