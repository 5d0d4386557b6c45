"""What a dispatcher is told once: its limits, its times, and what becomes of a message that failed."""

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
    Unmatched,
)
from keyshared.config.groups import GroupLimits
from keyshared.config.look_ahead import (
    DEFAULT_LOOK_AHEAD_PER_CONSUMER,
    DEFAULT_LOOK_AHEAD_PER_SUBSCRIPTION,
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
    Then,
)
from keyshared.config.rules import Rules
from keyshared.config.sessions import KeySessions

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
    "Then",
    "Unmatched",
    "look_ahead_limit",
]
