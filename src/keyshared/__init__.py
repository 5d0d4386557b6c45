"""Per-key ordered, multi-consumer dispatch: pure, sans-IO primitives and the dispatcher that composes them."""

from keyshared.config import DispatcherConfig, OnEvict, Unmatched
from keyshared.cursor import ContiguousCursor
from keyshared.dispatcher import KeySharedDispatcher
from keyshared.glob import Glob, KeyFilter
from keyshared.ranges import HashRange, RangeMap
from keyshared.retry import Backoff, Poison, RetryPolicy
from keyshared.ring import HashRing
from keyshared.window import InFlightWindow

__version__ = "0.1.0"

__all__ = [
    "Backoff",
    "ContiguousCursor",
    "DispatcherConfig",
    "Glob",
    "HashRange",
    "HashRing",
    "InFlightWindow",
    "KeyFilter",
    "KeySharedDispatcher",
    "OnEvict",
    "Poison",
    "RangeMap",
    "RetryPolicy",
    "Unmatched",
]
