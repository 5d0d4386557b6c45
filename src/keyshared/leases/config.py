"""Settings of a lease queue: what only leases have, and the settings of the dispatcher below."""

from dataclasses import dataclass, field, replace
from typing import Final

from keyshared._checks import check_int, check_kind, configuration
from keyshared.config import Backoff, DispatcherConfig, RetryPolicy
from keyshared.errors import ArgumentError

__all__ = ["DEFAULT_MAX_DELIVERY_ATTEMPTS", "DEFAULT_RESERVATION_TIMEOUT_MS", "LeaseConfig"]

DEFAULT_RESERVATION_TIMEOUT_MS: Final = 5_000  # a write of one record to a replicated log, with a retry or two
DEFAULT_MAX_DELIVERY_ATTEMPTS: Final = 5  # Pulsar's docs 3, SQS consoles 10, NATS unlimited; Danube 5 redeliveries

_NO_LIMIT: Final = (1 << 63) - 1  # a consumer's own delay counts as it was asked for
_NOT_OF_LEASES: Final = {
    "retry": "max_delivery_attempts counts deliveries, and each nack names its delay",
    "max_in_flight": "set LeaseConfig.max_in_flight, which is answered and not waited for",
    "on_evict": "no consumer is evicted",
    "unmatched": "consumers of leases have no filters",
    "inactive_grace_ms": "consumers of leases are never inactive",
    "drain_timeout_ms": "a lease ends by itself",
    "look_ahead": "set max_tracked",
    "sessions": "the lease is the session",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseConfig:
    """Settings of a `LeaseQueue`.

    Args:
        dispatcher: Limits, times and policies of the dispatcher below. Its ``ack_timeout_ms``, which may not be None,
            is how long a lease keeps its messages from others unless it is extended (the visibility timeout of SQS).
            What it says of open deliveries holds for messages that are leased or reserved. With ``ordering_required``
            at most one consumer holds anything. These settings have no meaning for leases and keep their defaults:
            ``retry``, ``max_in_flight``, ``on_evict``, ``unmatched``, ``inactive_grace_ms``, ``drain_timeout_ms``,
            ``look_ahead`` and ``sessions``.
        reservation_timeout_ms: How long a reservation waits for its commit; never longer than ``ack_timeout_ms``.
        max_delivery_attempts: Deliveries after which a message is poison if none was acked; None for no limit.
        max_in_flight: Messages that are leased or reserved at once; None for no limit.

    Raises:
        ConfigError: A field is out of range, or a setting of the dispatcher has no meaning for leases.

    Source:
        Celeriant's QueueConfig; differs: its ``dlq_strategy`` Skip, Block and BlockAndDlq is `Poison` ``DEAD_LETTER``,
        ``BLOCK``, and ``BLOCK`` with ``archive_blocked``; and exactly ``max_delivery_attempts`` deliveries are made,
        not one more.

    Example:
        >>> LeaseConfig(dispatcher=DispatcherConfig(ack_timeout_ms=60_000)).max_delivery_attempts
        5
    """

    dispatcher: DispatcherConfig = field(default_factory=DispatcherConfig)
    reservation_timeout_ms: int = DEFAULT_RESERVATION_TIMEOUT_MS
    max_delivery_attempts: int | None = DEFAULT_MAX_DELIVERY_ATTEMPTS
    max_in_flight: int | None = None

    @configuration()
    def __post_init__(self) -> None:
        check_kind("dispatcher", self.dispatcher, DispatcherConfig)
        check_int("reservation_timeout_ms", self.reservation_timeout_ms, 1)
        for name in ("max_delivery_attempts", "max_in_flight"):
            if getattr(self, name) is not None:
                check_int(name, getattr(self, name), 1, ", or None for no limit")
        check_int("dispatcher.ack_timeout_ms", self.dispatcher.ack_timeout_ms, 1)
        for name, why in _NOT_OF_LEASES.items():
            value = getattr(self.dispatcher, name)
            if value != getattr(_DEFAULTS, name):
                raise ArgumentError(f"dispatcher.{name}", value, f"be its default in a lease queue: {why}")

    def for_dispatcher(self) -> DispatcherConfig:
        """Return the configuration of the dispatcher below: only failed deliveries count, and none delays by itself."""
        retries = None if self.max_delivery_attempts is None else self.max_delivery_attempts - 1
        retry = RetryPolicy(max_redeliveries=retries, base_delay_ms=0, max_delay_ms=_NO_LIMIT, backoff=Backoff.FIXED)
        return replace(self.dispatcher, retry=retry, inactive_grace_ms=None)


_DEFAULTS: Final = DispatcherConfig()
