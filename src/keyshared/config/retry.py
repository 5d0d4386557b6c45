"""What happens to a message that failed: when it is tried again, and what becomes of it when it is given up."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar, Final

from keyshared._checks import check_bool, check_enum, check_int, configuration
from keyshared.errors import ArgumentError

__all__ = [
    "DEFAULT_BASE_DELAY_MS",
    "DEFAULT_MAX_DELAY_MS",
    "DEFAULT_MAX_REDELIVERIES",
    "Backoff",
    "Poison",
    "RetryPolicy",
    "Then",
]

DEFAULT_MAX_REDELIVERIES: Final = (
    5  # Danube 5; Pulsar's DLQ leaves it to the user, 3 in its docs; SQS consoles propose 10
)
DEFAULT_BASE_DELAY_MS: Final = 1_000  # Danube 1 s, Pulsar's MultiplierRedeliveryBackoff 1 s
DEFAULT_MAX_DELAY_MS: Final = 60_000  # Danube 60 s, Pulsar's MultiplierRedeliveryBackoff 60 s
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
        max_redeliveries: Failures that are answered with another delivery, so r allows r + 1 deliveries; None for ever.
        base_delay_ms: Delay after the first failure.
        max_delay_ms: No delay is longer, a requested one neither; below the base it wins.
        backoff: How the delay grows.

    Raises:
        ConfigError: A number is negative or no int, or ``backoff`` is no `Backoff`.

    Source:
        Danube's FailurePolicy (``max_redelivery_count``, ``base_redelivery_delay_ms``, ``max_redelivery_delay_ms``);
        differs: counts failures, not deliveries, so that a delivery that was taken back does not use up a retry.

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
        check_int("base_delay_ms", self.base_delay_ms, 0)
        check_int("max_delay_ms", self.max_delay_ms, 0)
        check_enum("backoff", self.backoff, Backoff)

    def delay_ms(self, failures: int, requested_ms: int | None = None) -> int | None:
        """How long a message that has failed waits for its next delivery.

        Args:
            failures: How often it has failed, this time included.
            requested_ms: What the consumer asked for; makes the delay longer, never shorter.

        Returns:
            Milliseconds, 0 for at once, or None if the message is exhausted.

        Raises:
            ArgumentError: A number is negative or no int.

        Complexity:
            O(1).
        """
        check_int("failures", failures, 0)
        if requested_ms is not None:
            check_int("requested_ms", requested_ms, 0)
        if self.max_redeliveries is not None and failures > self.max_redeliveries:
            return None
        delay = self.base_delay_ms
        if self.backoff is Backoff.EXPONENTIAL:
            delay <<= min(max(failures, 1) - 1, _MAX_DOUBLINGS)
        return min(max(delay, requested_ms or 0), self.max_delay_ms)


class Then(StrEnum):
    """What becomes of a poison message (and of its key) in the end."""

    SETTLE = "settle"
    BLOCK = "block"
    QUARANTINE = "quarantine"


@dataclass(frozen=True, slots=True, repr=False)
class Poison:
    """What is done with a message whose retries are exhausted. What waits behind it is never thrown away.

    | value | archived | the message then | newer messages of its key |
    |---|---|---|---|
    | `DROP` | no | is settled; lost, and reported as such | go on |
    | `DEAD_LETTER` | yes | is settled once the write is confirmed | wait for the confirmation, then go on |
    | `BLOCK` | no | stays outstanding until it is unblocked or parked | wait for that |
    | `BLOCK_AND_DEAD_LETTER` | yes | as `BLOCK`, from the confirmed write on | wait for that |
    | `QUARANTINE` | yes | is settled once the write is confirmed | follow it there, in order, until unblocked |

    Args:
        archive: Whether a copy goes to the dead letters.
        then: What happens afterwards.

    Raises:
        ConfigError: ``then`` is no `Then`, ``archive`` no bool, or the pair is quarantine without an archive.

    Source:
        Danube's poison policies Drop, DeadLetter and Block; differs: nothing that queues behind the message is lost.

    Example:
        >>> Poison.DEAD_LETTER
        Poison.DEAD_LETTER
        >>> Poison(archive=True, then=Then.SETTLE) == Poison.DEAD_LETTER
        True
    """

    archive: bool
    then: Then

    DROP: ClassVar["Poison"]
    DEAD_LETTER: ClassVar["Poison"]
    BLOCK: ClassVar["Poison"]
    BLOCK_AND_DEAD_LETTER: ClassVar["Poison"]
    QUARANTINE: ClassVar["Poison"]

    @configuration()
    def __post_init__(self) -> None:
        check_bool("archive", self.archive)
        check_enum("then", self.then, Then)
        if self.then is Then.QUARANTINE and not self.archive:
            raise ArgumentError("archive", self.archive, "be True with Then.QUARANTINE: the key has to go somewhere")

    @property
    def name(self) -> str:
        """Name of its constant, such as ``"DEAD_LETTER"``."""
        return _POISON_NAMES[self]

    @classmethod
    @configuration()
    def from_name(cls, name: str) -> "Poison":
        """The policy of that `name`.

        Args:
            name: Such as ``"DEAD_LETTER"``.

        Returns:
            The policy.

        Raises:
            ConfigError: No policy has it.

        Example:
            >>> Poison.from_name("BLOCK")
            Poison.BLOCK
        """
        for poison, known in _POISON_NAMES.items():
            if known == name:
                return poison
        raise ArgumentError("poison", name, f"be one of {', '.join(_POISON_NAMES.values())}")

    def __repr__(self) -> str:
        return f"Poison.{self.name}"

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:  # noqa: ANN401, ARG002 - IPython's signature
        """Print the name: Hypothesis would print the constants of this class within each other, screen after screen."""
        printer.text(repr(self))


Poison.DROP = Poison(archive=False, then=Then.SETTLE)
Poison.DEAD_LETTER = Poison(archive=True, then=Then.SETTLE)
Poison.BLOCK = Poison(archive=False, then=Then.BLOCK)
Poison.BLOCK_AND_DEAD_LETTER = Poison(archive=True, then=Then.BLOCK)
Poison.QUARANTINE = Poison(archive=True, then=Then.QUARANTINE)

_POISON_NAMES: Final = {
    Poison.DROP: "DROP",
    Poison.DEAD_LETTER: "DEAD_LETTER",
    Poison.BLOCK: "BLOCK",
    Poison.BLOCK_AND_DEAD_LETTER: "BLOCK_AND_DEAD_LETTER",
    Poison.QUARANTINE: "QUARANTINE",
}
