"""How far ahead of its consumers a subscription is read, as Pulsar computes it."""

from dataclasses import dataclass
from typing import Final

from keyshared._checks import check_int, configuration

__all__ = [
    "DEFAULT_LOOK_AHEAD_PER_CONSUMER",
    "DEFAULT_LOOK_AHEAD_PER_SUBSCRIPTION",
    "NO_LOOK_AHEAD_LIMIT",
    "LookAhead",
    "look_ahead_limit",
]

DEFAULT_LOOK_AHEAD_PER_CONSUMER: Final = 2_000  # Pulsar 4.0; 4 000 in 5.0
DEFAULT_LOOK_AHEAD_PER_SUBSCRIPTION: Final = 20_000  # Pulsar 4.0; 40 000 in 5.0
NO_LOOK_AHEAD_LIMIT: Final = (1 << 31) - 1  # Pulsar's greatest int


def look_ahead_limit(
    consumers: int,
    *,
    per_consumer: int,
    per_subscription: int,
    max_unacked_per_consumer: int = 0,
    max_unacked_per_subscription: int = 0,
) -> int:
    """Return how many messages may wait before nothing more is read. A number of 0 or less is no limit.

    Args:
        consumers: How many consumers are connected.
        per_consumer: Waiting messages for each of them.
        per_subscription: Waiting messages of all together, however many they are.
        max_unacked_per_consumer: What each may have open; asked only where neither of the first two is a limit.
        max_unacked_per_subscription: What all may have open together; likewise.

    Returns:
        ``per_consumer`` times ``consumers``, at most ``per_subscription``; without both, the same of the two unacked
        limits; without any, `NO_LOOK_AHEAD_LIMIT`, which nothing exceeds.

    Raises:
        ArgumentError: A number is no int, or ``consumers`` is below 0.

    Source:
        Apache Pulsar 4.0, ``PersistentStickyKeyDispatcherMultipleConsumers.getEffectiveLookAheadLimit``.

    Example:
        >>> [look_ahead_limit(n, per_consumer=2_000, per_subscription=20_000) for n in (1, 5, 100)]
        [2000, 10000, 20000]
        >>> look_ahead_limit(100, per_consumer=0, per_subscription=0, max_unacked_per_consumer=22)
        2200
    """
    check_int("consumers", consumers, 0)
    numbers = {
        "per_consumer": per_consumer,
        "per_subscription": per_subscription,
        "max_unacked_per_consumer": max_unacked_per_consumer,
        "max_unacked_per_subscription": max_unacked_per_subscription,
    }
    for name, number in numbers.items():
        check_int(name, number)
    if per_consumer <= 0 and per_subscription <= 0:
        per_consumer, per_subscription = max_unacked_per_consumer, max_unacked_per_subscription
    of_all = per_consumer * consumers if per_consumer > 0 else NO_LOOK_AHEAD_LIMIT
    most = per_subscription if per_subscription > 0 else NO_LOOK_AHEAD_LIMIT
    return min(of_all, most, NO_LOOK_AHEAD_LIMIT)


@dataclass(frozen=True, slots=True, kw_only=True)
class LookAhead:
    """How many messages may wait before a host stops reading, for as many consumers as are connected.

    Args:
        per_consumer: Waiting messages for each connected consumer; 0 for no such limit.
        per_subscription: Waiting messages of all together; 0 for no such limit.
        max_unacked_per_subscription: Where both are 0, as many messages may wait as may be open: this many, and
            ``max_in_flight_per_consumer`` for each consumer. 0 for no limit of all together.

    Raises:
        ConfigError: A number is no int of at least 0.

    Source:
        Apache Pulsar 4.0, ``keySharedLookAheadMsgInReplayThresholdPerConsumer`` and ``...PerSubscription``; differs:
        what waits is all that is outstanding and not open, and the limit is never exceeded by a batch.

    Example:
        >>> LookAhead(per_consumer=100).limit(3, max_unacked_per_consumer=1_000)
        300
    """

    per_consumer: int = DEFAULT_LOOK_AHEAD_PER_CONSUMER
    per_subscription: int = DEFAULT_LOOK_AHEAD_PER_SUBSCRIPTION
    max_unacked_per_subscription: int = 0

    @configuration()
    def __post_init__(self) -> None:
        for name in ("per_consumer", "per_subscription", "max_unacked_per_subscription"):
            check_int(name, getattr(self, name), 0)

    def limit(self, consumers: int, *, max_unacked_per_consumer: int) -> int:
        """Return `look_ahead_limit` of these numbers."""
        return look_ahead_limit(
            consumers,
            per_consumer=self.per_consumer,
            per_subscription=self.per_subscription,
            max_unacked_per_consumer=max_unacked_per_consumer,
            max_unacked_per_subscription=self.max_unacked_per_subscription,
        )
