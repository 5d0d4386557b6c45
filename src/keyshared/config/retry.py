"""When a failed message is delivered again, and what becomes of it when its retries are exhausted."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from keyshared._checks import check_enum, check_int, configuration

__all__ = [
    "DEFAULT_BASE_DELAY_MS",
    "DEFAULT_MAX_DELAY_MS",
    "DEFAULT_MAX_REDELIVERIES",
    "Backoff",
    "Poison",
    "RetryPolicy",
]

DEFAULT_MAX_REDELIVERIES: Final = (
    5  # Danube 5; Pulsar's DLQ leaves it to the user, 3 in its docs; SQS consoles propose 10
)
DEFAULT_BASE_DELAY_MS: Final = 1_000  # Danube 1 s, Pulsar's MultiplierRedeliveryBackoff 1 s
DEFAULT_MAX_DELAY_MS: Final = 60_000  # Danube 60 s, Pulsar's MultiplierRedeliveryBackoff 60 s
_MOST_MS: Final = (1 << 64) - 1  # Danube's type of a delay
_MAX_DOUBLINGS: Final = 63  # Danube's; keeps the delay a number of two words however often a message fails


class Backoff(StrEnum):
    """How the delay grows with the failures."""

    FIXED = "fixed"  # always the base delay
    EXPONENTIAL = "exponential"  # doubles with every failure after the first


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """How often and how late a failed message is delivered again.

    There is no jitter: the library draws no random numbers, and a failed message holds its key back meanwhile, so the
    retries of one key never come as a herd.

    Args:
        max_redeliveries: Failures that are followed by another delivery, so r allows r + 1 deliveries; None for ever.
        base_delay_ms: Delay after the first failure.
        max_delay_ms: Upper bound of every delay, requested ones too; overrides a larger base.
        backoff: How the delay grows.

    Raises:
        ConfigError: A number is negative or no int, or ``backoff`` is no `Backoff`.

    Source:
        Danube's FailurePolicy (``max_redelivery_count``, ``base_redelivery_delay_ms``, ``max_redelivery_delay_ms``);
        differs: counts failures, not deliveries, so a delivery that was taken back uses up no retry.

    Example:
        >>> policy = RetryPolicy(max_redeliveries=3)
        >>> [policy.delay_ms(failures) for failures in (1, 2, 3, 4)]
        [1000, 2000, 4000, None]
    """

    max_redeliveries: int | None = DEFAULT_MAX_REDELIVERIES
    base_delay_ms: int = DEFAULT_BASE_DELAY_MS
    max_delay_ms: int = DEFAULT_MAX_DELAY_MS
    backoff: Backoff = Backoff.EXPONENTIAL

    @configuration()
    def __post_init__(self) -> None:
        if self.max_redeliveries is not None:
            check_int("max_redeliveries", self.max_redeliveries, 0, ", or None for no limit")
        check_int("base_delay_ms", self.base_delay_ms, 0, most=_MOST_MS)
        check_int("max_delay_ms", self.max_delay_ms, 0, most=_MOST_MS)
        check_enum("backoff", self.backoff, Backoff)

    def delay_ms(self, failures: int, requested_ms: int | None = None) -> int | None:
        """Return how long a message that has failed waits for its next delivery.

        Args:
            failures: How often it has failed, this time included.
            requested_ms: The delay that the consumer asked for; makes the delay longer, never shorter.

        Returns:
            Milliseconds, 0 for at once, or None if the retries are exhausted.

        Raises:
            ArgumentError: A number is negative or no int.
        """
        check_int("failures", failures, 0)
        if requested_ms is not None:
            check_int("requested_ms", requested_ms, 0, most=_MOST_MS)
        return self.delay_after(failures, requested_ms)

    def delay_after(self, failures: int, requested_ms: int | None) -> int | None:
        """Return `delay_ms` of numbers that are known to be valid."""
        if self.max_redeliveries is not None and failures > self.max_redeliveries:
            return None
        delay = self.base_delay_ms
        if self.backoff is Backoff.EXPONENTIAL:
            delay <<= min(max(failures, 1) - 1, _MAX_DOUBLINGS)
        return min(max(delay, requested_ms or 0), self.max_delay_ms)


class Poison(StrEnum):
    """The policy for a message whose retries are exhausted. The messages behind it are never thrown away.

    | value | the message | newer messages of its key |
    |---|---|---|
    | `DROP` | is settled; lost, and reported as such | go on |
    | `DEAD_LETTER` | goes to the dead letters, and is settled once the write is confirmed | wait for that, then go on |
    | `BLOCK` | stays outstanding until it is unblocked or parked | wait for that |

    Two settings of `DispatcherConfig` say more: with ``quarantine`` the newer messages of a dead letter's key follow it
    to the dead letters, in order, until the key is unblocked; with ``archive_blocked`` a blocked message is copied to
    the dead letters first.

    Source:
        Danube's poison policies Drop, DeadLetter and Block; differs: no message that waits behind is lost.
    """

    DROP = "drop"
    DEAD_LETTER = "dead_letter"
    BLOCK = "block"
