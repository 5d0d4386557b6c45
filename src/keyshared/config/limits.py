"""Limits that have several numbers: those of a group of keys, of reading ahead, and of the sessions of keys."""

from dataclasses import dataclass
from typing import Final

from keyshared._checks import check_int, configuration
from keyshared.errors import ArgumentError

__all__ = [
    "DEFAULT_LOOK_AHEAD_PER_CONSUMER",
    "DEFAULT_LOOK_AHEAD_PER_SUBSCRIPTION",
    "NO_LOOK_AHEAD_LIMIT",
    "GroupLimits",
    "KeySessions",
    "LookAhead",
    "look_ahead_limit",
]

DEFAULT_LOOK_AHEAD_PER_CONSUMER: Final = 2_000  # Pulsar 4.0; 4 000 in 5.0
DEFAULT_LOOK_AHEAD_PER_SUBSCRIPTION: Final = 20_000  # Pulsar 4.0; 40 000 in 5.0
NO_LOOK_AHEAD_LIMIT: Final = (1 << 31) - 1  # Pulsar's greatest int


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLimits:
    """The limits of a group of keys.

    Args:
        weight: How many turns in a row its keys get at a consumer, before the next group has its turns.
        max_in_flight: Its open deliveries; None for no limit.
        per_second: How many of its deliveries may begin in a second, in the long run; None for no limit.
        burst: How many of them may begin at once, after a pause that was long enough. Only with ``per_second``.

    Raises:
        ConfigError: A field is out of range.

    Example:
        >>> GroupLimits(per_second=50, burst=10).weight
        1
    """

    weight: int = 1
    max_in_flight: int | None = None
    per_second: int | None = None
    burst: int = 1

    @configuration()
    def __post_init__(self) -> None:
        check_int("weight", self.weight, 1)
        for name, limit in (("max_in_flight", self.max_in_flight), ("per_second", self.per_second)):
            if limit is not None:
                check_int(name, limit, 1, ", or None for no limit")
        check_int("burst", self.burst, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeySessions:
    """How long a consumer may keep state for a key: the session of a key begins and ends at one consumer at a time.

    Args:
        linger_ms: How long the session goes on after the last delivery of the key has ended.
        flush_ms: How long a session that has to end waits for ``flushed()``; 0 asks for no flush, None waits for ever.

    Raises:
        ConfigError: A time is no int of at least 0.

    Example:
        >>> KeySessions(linger_ms=60_000, flush_ms=5_000)
        KeySessions(linger_ms=60000, flush_ms=5000)
    """

    linger_ms: int = 0
    flush_ms: int | None = 0

    @configuration()
    def __post_init__(self) -> None:
        check_int("linger_ms", self.linger_ms, 0)
        if self.flush_ms is not None:
            check_int("flush_ms", self.flush_ms, 0, ", or None for ever")


@dataclass(frozen=True, slots=True, kw_only=True)
class LookAhead:
    """How many messages may wait before the host stops reading, for as many consumers as are connected.

    Args:
        per_consumer: Waiting messages for each connected consumer; 0 for no such limit.
        per_subscription: Waiting messages of all together; 0 for no such limit. One of the two is a limit.

    Raises:
        ConfigError: A number is no int of at least 0, or both are 0.

    Source:
        Apache Pulsar 4.0, ``keySharedLookAheadMsgInReplayThresholdPerConsumer`` and ``...PerSubscription``; differs:
        every message that is outstanding and not open waits, and no batch exceeds the limit.

    Example:
        >>> [LookAhead(per_consumer=100, per_subscription=250).limit(consumers) for consumers in (1, 2, 3)]
        [100, 200, 250]
    """

    per_consumer: int = DEFAULT_LOOK_AHEAD_PER_CONSUMER
    per_subscription: int = DEFAULT_LOOK_AHEAD_PER_SUBSCRIPTION

    @configuration()
    def __post_init__(self) -> None:
        check_int("per_consumer", self.per_consumer, 0)
        check_int("per_subscription", self.per_subscription, 0)
        if not self.per_consumer and not self.per_subscription:
            raise ArgumentError("per_consumer", 0, "be above 0 if per_subscription is 0; look_ahead=None is no limit")

    def limit(self, consumers: int) -> int:
        """Return how many messages may wait for so many connected consumers: `look_ahead_limit` of these numbers."""
        return look_ahead_limit(consumers, per_consumer=self.per_consumer, per_subscription=self.per_subscription)


def look_ahead_limit(
    consumers: int,
    *,
    per_consumer: int,
    per_subscription: int,
    max_unacked_per_consumer: int = 0,
    max_unacked_per_subscription: int = 0,
) -> int:
    """Return how many messages may wait before Pulsar reads no further. A number of 0 or less is no limit.

    Args:
        consumers: How many consumers are connected.
        per_consumer: Waiting messages for each of them.
        per_subscription: Waiting messages of all together, however many they are.
        max_unacked_per_consumer: Open deliveries of each; used only where neither of the first two is a limit.
        max_unacked_per_subscription: Open deliveries of all together; likewise.

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
