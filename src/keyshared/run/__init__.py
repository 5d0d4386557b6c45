"""Runs handlers: keeps the order of keys, retries, commits and stops as the dispatcher decides, by threads or asyncio.

`ThreadRunner` and `AsyncRunner` do the same; take the one that your handlers are written for.
"""

from keyshared.run.errors import (
    CalledFromHookError,
    CrashedError,
    EventLoopError,
    HungWorkersError,
    PartlyDone,
    Reject,
    RetryLater,
    RoomError,
    StoppedError,
    UnknownLogError,
)
from keyshared.run.functions import NotAwaitedError
from keyshared.run.metrics import PrometheusCollector, observe_metrics
from keyshared.run.operator_calls import Verbs
from keyshared.run.reports import Stuck
from keyshared.run.spans import Spans
from keyshared.run.tasks import AsyncRunner
from keyshared.run.threads import ThreadRunner
from keyshared.run.values import BusyKey, DeadLetter, Hooks, RunnerConfig, RunnerStats

__all__ = [
    "AsyncRunner",
    "BusyKey",
    "CalledFromHookError",
    "CrashedError",
    "DeadLetter",
    "EventLoopError",
    "Hooks",
    "HungWorkersError",
    "NotAwaitedError",
    "PartlyDone",
    "PrometheusCollector",
    "Reject",
    "RetryLater",
    "RoomError",
    "RunnerConfig",
    "RunnerStats",
    "Spans",
    "StoppedError",
    "Stuck",
    "ThreadRunner",
    "UnknownLogError",
    "Verbs",
    "observe_metrics",
]
