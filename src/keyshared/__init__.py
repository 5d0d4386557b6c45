"""Per-key ordered, multi-consumer dispatch: pure, sans-IO primitives and the dispatcher that composes them.

A first program needs these names. Everything else is in its package: `keyshared.placement`, `keyshared.leases`,
`keyshared.run`, `keyshared.router`, `keyshared.window`, `keyshared.effects`, `keyshared.errors`, ...

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
from typing import Final

from keyshared._core.machine import Machine
from keyshared.config import Backoff, DispatcherConfig, Poison, RetryPolicy
from keyshared.cursor import ContiguousCursor
from keyshared.dispatcher import KeySharedDispatcher
from keyshared.effects import CursorAdvanced, DeadLetter, Deliver, Effect, Load, Resumed
from keyshared.errors import KeySharedError
from keyshared.glob import KeyFilter
from keyshared.placement.range_map import HashRange, RangeMap
from keyshared.ring import HashRing

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
    "KeyFilter",
    "KeySharedDispatcher",
    "KeySharedError",
    "Load",
    "Poison",
    "RangeMap",
    "Resumed",
    "RetryPolicy",
]
