"""Which ledger and which outbox a configuration asks for; the modules of others are not loaded."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from keyshared._dispatch.outbox import Outbox
from keyshared.config import DispatcherConfig
from keyshared.window import InFlightWindow

if TYPE_CHECKING:
    from keyshared._dispatch.ledger import Ledger
    from keyshared._dispatch.measure import HealthRoom
    from keyshared._dispatch.waiting import WaitingCounts

__all__ = ["ledger_for", "outbox_for"]


def ledger_for(config: DispatcherConfig, window: InFlightWindow) -> "Ledger | None":
    """Return what notes how messages end, if a configuration asks for that."""
    if config.measure:
        from keyshared._dispatch.measure import MeasuringLedger  # noqa: PLC0415  # only those who ask load it

        return MeasuringLedger(window)
    if config.tell_settled:
        from keyshared._dispatch.ledger import Ledger  # noqa: PLC0415  # as above

        return Ledger(window)
    return None


def outbox_for(
    config: DispatcherConfig, ledger: "Ledger | None", counts: "WaitingCounts | None", health: "HealthRoom | None"
) -> Callable[..., Outbox]:
    """Return what makes the outbox: it may tell what is done, count what waits, measure, look ahead, or none of it."""
    kind: Any = Outbox  # one class or another, which take different things first
    firsts: list[object] = []
    if ledger is not None:
        from keyshared._dispatch.ledger import TellingOutbox  # noqa: PLC0415  # only those who ask load it

        kind, firsts = TellingOutbox, [ledger]
    if counts is not None:
        from keyshared._dispatch.waiting import counting  # noqa: PLC0415  # as above

        kind, firsts = counting(kind), [counts, *firsts]
    if health is not None:
        from keyshared._dispatch.measure import measuring  # noqa: PLC0415  # as above

        kind, firsts = measuring(kind), [health, *firsts]
    if config.look_ahead is not None:
        from keyshared._dispatch.look_ahead import PausingOutbox  # noqa: PLC0415  # as above
        from keyshared._window.kinds import one_kind  # noqa: PLC0415  # as above

        kind = one_kind(PausingOutbox, kind)
    return partial(kind, *firsts)
