"""What is recorded of a dispatcher that is driven: the call, its effects, and what it says of itself afterwards."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from keyshared.effects import BlockReason, Effect

__all__ = ["Call", "Queries", "Step"]


class Call(NamedTuple):
    """One call of the dispatcher."""

    name: str
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = {}

    @property
    def is_out_of_turn(self) -> bool:
        """Whether the host asks for one message whatever waits before it: its own choice, which no history tells."""
        return self.name == "pull" and self.kwargs.get("only") is not None

    def __repr__(self) -> str:
        named = [f"{name}={value!r}" for name, value in self.kwargs.items()]
        return f"{self.name}({', '.join([*map(repr, self.args), *named])})"


@dataclass(frozen=True, kw_only=True)
class Queries:
    """What the dispatcher says about itself after a call."""

    free_slots: int
    next_deadline: int | None
    reasons: Mapping[int, BlockReason | None]  # of every offset offered so far
    blockings: Mapping[int, Any] = field(compare=False)  # the same, in the words of who was asked
    obligations: frozenset[Effect]
    owners: Mapping[bytes, str | None]


class Step(NamedTuple):
    """A call that did not raise, its effects, and the state it left behind."""

    call: Call
    effects: Sequence[Effect]
    after: Queries
    now: int = 0
