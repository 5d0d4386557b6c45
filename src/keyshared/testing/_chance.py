"""A system may do something else when the same steps are taken again: say so, as Hypothesis cannot know why."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from hypothesis.errors import FlakyStrategyDefinition

__all__ = ["explaining_chance"]

_EXPLANATION: Final = (
    "The system did something else when the same steps were taken again: who gets a message is chance, or it goes on by"
    " itself between two steps. The machine draws each step by what has happened, so it cannot go on. That is no fault"
    " of the system. Use find_violation, or draw schedules first: docs/prove-your-broker.md#when-chance-decides"
)


@contextmanager
def explaining_chance() -> Iterator[None]:
    """Explain in plain words what it means that data were drawn inconsistently."""
    try:
        yield
    except FlakyStrategyDefinition as error:
        error.add_note(_EXPLANATION)
        raise
