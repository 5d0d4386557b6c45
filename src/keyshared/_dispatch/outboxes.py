"""Which outbox a configuration asks for; the modules of others are not loaded."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from keyshared._dispatch.outbox import Outbox

if TYPE_CHECKING:
    from keyshared._dispatch.ledger import Ledger
    from keyshared._dispatch.waiting import WaitingCounts

__all__ = ["outbox_for"]


def outbox_for(ledger: "Ledger | None", counts: "WaitingCounts | None") -> Callable[..., Outbox]:
    """Return what makes the outbox: one that counts what waits, tells what is done, does both or neither."""
    if ledger is None:
        return Outbox if counts is None else counts.outbox
    from keyshared._dispatch.ledger import TellingOutbox  # noqa: PLC0415  # only those who ask load it

    if counts is None:
        return partial(TellingOutbox, ledger)
    from keyshared._dispatch.waiting import CountingOutbox  # noqa: PLC0415  # as above

    class CountingAndTelling(CountingOutbox, TellingOutbox):
        """Counts what the call hands out first, then tells what it has settled."""

    return partial(CountingAndTelling, counts, ledger)
