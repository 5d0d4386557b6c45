"""Per-key ordered, multi-consumer dispatch: pure, sans-IO primitives and the dispatcher that composes them.

A first program needs these names. Everything else is in its package: `keyshared.placement`, `keyshared.leases`,
`keyshared.effects`, `keyshared.errors`, ...

>>> from keyshared import HashRing, KeySharedDispatcher
>>> dispatcher = KeySharedDispatcher(HashRing())
>>> dispatcher.add_consumer("c1")
[]
>>> dispatcher.offer(0, "order-1", "created")
[Deliver(offset=0, key=b'order-1', consumer='c1', attempt=1, failures=0, item='created')]
>>> dispatcher.ack(0, "c1", 1)
[CursorAdvanced(safe_cursor=0)]
"""

from types import FunctionType
from typing import TYPE_CHECKING, Final

from keyshared._core.machine import Machine
from keyshared.config import Backoff, DispatcherConfig, Poison, RetryPolicy
from keyshared.cursor import ContiguousCursor
from keyshared.dispatcher import KeySharedDispatcher
from keyshared.effects import CursorAdvanced, DeadLetter, Deliver, Effect, Load, Resumed
from keyshared.errors import KeySharedError
from keyshared.glob import KeyFilter
from keyshared.placement.range_map import HashRange, RangeMap
from keyshared.ring import HashRing
from keyshared.router import KeyRouter
from keyshared.window import InFlightWindow

if TYPE_CHECKING:
    from keyshared.leases import LeaseConfig, LeaseQueue

__version__ = "0.2.0"

COMPILED: Final = not isinstance(Machine.offer, FunctionType)
"""Whether this is the build whose hot modules are compiled."""

__all__ = [
    "COMPILED",
    "Backoff",
    "ContiguousCursor",
    "CursorAdvanced",
    "DeadLetter",
    "Deliver",
    "DispatcherConfig",
    "Effect",
    "HashRange",
    "HashRing",
    "InFlightWindow",
    "KeyFilter",
    "KeyRouter",
    "KeySharedDispatcher",
    "KeySharedError",
    "LeaseConfig",
    "LeaseQueue",
    "Load",
    "Poison",
    "RangeMap",
    "Resumed",
    "RetryPolicy",
]

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        if name in {"LeaseConfig", "LeaseQueue"}:  # who leases nothing saves a seventh of the import
            from keyshared import leases  # noqa: PLC0415

            return getattr(leases, name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
