"""Which outbox a configuration asks for; the modules of others are not loaded."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from keyshared._dispatch.outbox import Outbox

if TYPE_CHECKING:
    from keyshared._dispatch.ledger import Ledger
    from keyshared._dispatch.waiting import WaitingCounts

__all__ = ["outbox_for"]


def outbox_for(ledger: "Ledger | None", counts: "WaitingCounts | None") -> Callable[..., Outbox]:
    """Return what makes the outbox: one that tells what is done, counts what waits, does both or neither."""
    kind: Any = Outbox  # one class or another, which take different things first
    firsts: list[object] = []
    if ledger is not None:
        from keyshared._dispatch.ledger import TellingOutbox  # noqa: PLC0415  # only those who ask load it

        kind, firsts = TellingOutbox, [ledger]
    if counts is not None:
        from keyshared._dispatch.waiting import counting  # noqa: PLC0415  # as above

        kind, firsts = counting(kind), [counts, *firsts]
    return partial(kind, *firsts)
