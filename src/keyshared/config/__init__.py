"""The settings of a dispatcher: limits, times, and what becomes of a message that failed.

>>> config = DispatcherConfig(window=100, ack_timeout_ms=5_000, poison=Poison.BLOCK)
>>> DispatcherConfig.from_json(config.to_json()) == config
True
"""

from keyshared.config.dispatcher import (
    DEFAULT_ACK_TIMEOUT_MS,
    DEFAULT_INACTIVE_GRACE_MS,
    DEFAULT_MAX_IN_FLIGHT_PER_CONSUMER,
    DEFAULT_MAX_IN_FLIGHT_PER_KEY,
    DEFAULT_MAX_LOADED_PER_KEY,
    DEFAULT_MAX_TRACKED,
    DEFAULT_WINDOW,
    DispatcherConfig,
    DrainUnit,
    OnEvict,
    Rules,
    Unmatched,
)
from keyshared.config.limits import (
    DEFAULT_LOOK_AHEAD_PER_CONSUMER,
    DEFAULT_LOOK_AHEAD_PER_SUBSCRIPTION,
    GroupLimits,
    KeySessions,
    LookAhead,
    look_ahead_limit,
)
from keyshared.config.retry import (
    DEFAULT_BASE_DELAY_MS,
    DEFAULT_MAX_DELAY_MS,
    DEFAULT_MAX_REDELIVERIES,
    Backoff,
    Poison,
    RetryPolicy,
)

__all__ = [
    "DEFAULT_ACK_TIMEOUT_MS",
    "DEFAULT_BASE_DELAY_MS",
    "DEFAULT_INACTIVE_GRACE_MS",
    "DEFAULT_LOOK_AHEAD_PER_CONSUMER",
    "DEFAULT_LOOK_AHEAD_PER_SUBSCRIPTION",
    "DEFAULT_MAX_DELAY_MS",
    "DEFAULT_MAX_IN_FLIGHT_PER_CONSUMER",
    "DEFAULT_MAX_IN_FLIGHT_PER_KEY",
    "DEFAULT_MAX_LOADED_PER_KEY",
    "DEFAULT_MAX_REDELIVERIES",
    "DEFAULT_MAX_TRACKED",
    "DEFAULT_WINDOW",
    "Backoff",
    "DispatcherConfig",
    "DrainUnit",
    "GroupLimits",
    "KeySessions",
    "LookAhead",
    "OnEvict",
    "Poison",
    "RetryPolicy",
    "Rules",
    "Unmatched",
    "look_ahead_limit",
]
