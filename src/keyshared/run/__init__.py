"""Runs handlers: keeps the order of keys, retries, commits and stops as the dispatcher says, with threads or asyncio.

`ThreadRunner` and `AsyncRunner` do the same; take the one that your handlers are written for.
"""

from keyshared.run.answers import NotAwaitedError
from keyshared.run.exporters import PrometheusCollector, observe_metrics
from keyshared.run.tasks import AsyncRunner
from keyshared.run.threads import ThreadRunner
from keyshared.run.values import (
    BusyKey,
    CalledFromHookError,
    EventLoopError,
    Hooks,
    Letter,
    PartlyDone,
    Reject,
    RetryLater,
    RunnerConfig,
    RunnerStats,
    StoppedError,
    UnknownLogError,
)

__all__ = [
    "AsyncRunner",
    "BusyKey",
    "CalledFromHookError",
    "EventLoopError",
    "Hooks",
    "Letter",
    "NotAwaitedError",
    "PartlyDone",
    "PrometheusCollector",
    "Reject",
    "RetryLater",
    "RunnerConfig",
    "RunnerStats",
    "StoppedError",
    "ThreadRunner",
    "UnknownLogError",
    "observe_metrics",
]
