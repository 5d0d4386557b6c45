"""How long a simulated consumer works on a message, and what it answers: distributions as data, drawn without chance.

Nothing here draws a random number. A sample is chosen by a hash of the seed, the message's offset and the attempt, so
the same message takes the same time in every run, on every platform, in whatever order messages happen to be worked on;
and two plans that are compared see the same luck.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from fractions import Fraction
from typing import Any, Final, Protocol, TypeVar

from xxhash import xxh64_intdigest

from keyshared._arguments import check_reason
from keyshared._checks import check_enum, check_int, check_number, check_several, configuration
from keyshared.errors import ArgumentError
from keyshared.hashing.named import required_key_bytes

__all__ = [
    "Answer",
    "AnswerModel",
    "FailFirst",
    "Fixed",
    "PerMessage",
    "Poisoned",
    "Sampled",
    "SampledAnswers",
    "Scaled",
    "ServiceTime",
    "draw",
]

_SEEDS: Final = 1 << 64
_Sample = TypeVar("_Sample")


class Answer(StrEnum):
    """What a consumer says when it has worked on a message."""

    ACK = "ack"
    NACK = "nack"
    REJECT = "reject"  # it can never work: poison at once
    POSTPONE = "postpone"  # not now: given back for the ``postpone_ms`` of the consumer, and no failure
    SILENT = "silent"  # no answer at all: the ack timeout, if there is one, ends the delivery


class ServiceTime(Protocol):
    """How long consumers work on messages. A value: immutable, and picklable if it is to travel."""

    def duration_ms(self, offset: int, attempt: int, own_ms: int | None) -> int:
        """Return how long one delivery takes.

        Args:
            offset: The message.
            attempt: Which delivery of it.
            own_ms: The service time that the message itself brought, if it did.

        Returns:
            Whole milliseconds, at least 0.
        """
        ...


class AnswerModel(Protocol):
    """What consumers answer. A value: immutable, and picklable if it is to travel.

    Attributes:
        reason: What consumers say with a nack or a reject of this model; None for nothing.
    """

    @property
    def reason(self) -> str | None: ...  # noqa: D102  # above

    def answer(self, offset: int, key: bytes | None, attempt: int) -> Answer:
        """Return how one delivery ends.

        Args:
            offset: The message.
            key: Its key.
            attempt: Which delivery of it.

        Returns:
            The answer.
        """
        ...


def draw(samples: Sequence[_Sample], purpose: str, seed: int, offset: int, attempt: int) -> _Sample:
    """Choose a sample for one delivery: the same one every time.

    The index is ``xxh64(f"{purpose}:{offset}:{attempt}", seed) % len(samples)``: the hash of the text's UTF-8 bytes,
    read as an unsigned number.

    Args:
        samples: What to choose from; repeat one to make it more likely.
        purpose: What the sample is for, so that one seed can serve several draws that do not depend on each other.
        seed: From 0 to 2**64 - 1.
        offset: The message.
        attempt: Which delivery of it.

    Returns:
        One of the samples.

    Raises:
        ArgumentError: There are no samples, or offset and attempt are no ints.

    Example:
        >>> [draw("abc", "letters", 7, offset, 1) for offset in range(6)]
        ['c', 'b', 'c', 'a', 'c', 'b']
    """
    try:
        drawn = f"{purpose:s}:{offset:d}:{attempt:d}".encode()
    except ValueError:
        raise ArgumentError("offset and attempt", (offset, attempt), "be ints of at most 4,300 digits") from None
    try:
        return samples[xxh64_intdigest(drawn, seed) % len(samples)]
    except (ZeroDivisionError, KeyError):
        raise ArgumentError("samples", samples, "be a sequence of at least one value") from None


@dataclass(frozen=True, slots=True)
class Fixed:
    """Every message takes equally long.

    Args:
        ms: How long.

    Raises:
        ConfigError: It is negative or no int.

    Example:
        >>> Fixed(5).duration_ms(offset=0, attempt=1, own_ms=None)
        5
    """

    ms: int

    @configuration()
    def __post_init__(self) -> None:
        _check_ms("ms", self.ms)

    def duration_ms(self, offset: int, attempt: int, own_ms: int | None) -> int:  # noqa: ARG002 - of the protocol
        """See `ServiceTime.duration_ms`."""
        return self.ms


@dataclass(frozen=True, slots=True)
class PerMessage:
    """Every message takes as long as its own ``service_ms`` says.

    Args:
        default_ms: For messages that say nothing; None makes that an error.

    Raises:
        ConfigError: The default is negative or no int.

    Example:
        >>> PerMessage(default_ms=2).duration_ms(offset=0, attempt=1, own_ms=30)
        30
    """

    default_ms: int | None = None

    @configuration()
    def __post_init__(self) -> None:
        if self.default_ms is not None:
            _check_ms("default_ms", self.default_ms)

    def duration_ms(self, offset: int, attempt: int, own_ms: int | None) -> int:  # noqa: ARG002 - of the protocol
        """See `ServiceTime.duration_ms`.

        Raises:
            ArgumentError: Neither the message nor the default says anything.
        """
        if own_ms is not None:
            return own_ms
        if self.default_ms is None:
            requirement = f"be given with every message, so with offset {offset} too, or default_ms must be"
            raise ArgumentError("service_ms", None, requirement)
        return self.default_ms


@dataclass(frozen=True, slots=True)
class Sampled:
    """Service times out of a list, such as ones that were measured: each delivery draws one, see `draw`.

    Args:
        samples: Milliseconds; kept as a tuple.
        seed: Another seed is another draw.

    Raises:
        ConfigError: There are no samples, one is negative or no int, or the seed is not one of 64 bits.

    Example:
        >>> times = Sampled([1, 1, 1, 500], seed=3)
        >>> sum(times.duration_ms(offset, 1, None) == 500 for offset in range(1000))
        259
    """

    samples: Sequence[int]
    seed: int = 0

    @configuration()
    def __post_init__(self) -> None:
        object.__setattr__(self, "samples", _checked_samples(self.samples))
        for sample in self.samples:
            _check_ms("samples", sample)
        _check_seed(self.seed)

    def duration_ms(self, offset: int, attempt: int, own_ms: int | None) -> int:  # noqa: ARG002 - of the protocol
        """See `ServiceTime.duration_ms`."""
        return draw(self.samples, "service", self.seed, offset, attempt)


@dataclass(frozen=True, slots=True)
class Scaled:
    """Another model, faster or slower: what makes one consumer slow.

    Args:
        model: What is scaled.
        factor: By how much; taken exactly, and the product is rounded up to whole milliseconds.

    Raises:
        ConfigError: The model has no ``duration_ms``, or the factor is negative or no finite number.

    Example:
        >>> Scaled(Fixed(5), 1.5).duration_ms(offset=0, attempt=1, own_ms=None)
        8
    """

    model: ServiceTime
    factor: int | float | Fraction
    _ratio: tuple[int, int] = field(init=False, repr=False, compare=False)

    @configuration()
    def __post_init__(self) -> None:
        check_service("model", self.model)
        check_number("factor", self.factor)
        object.__setattr__(self, "_ratio", self.factor.as_integer_ratio())

    def duration_ms(self, offset: int, attempt: int, own_ms: int | None) -> int:
        """See `ServiceTime.duration_ms`."""
        numerator, denominator = self._ratio
        return -(-self.model.duration_ms(offset, attempt, own_ms) * numerator // denominator)


@dataclass(frozen=True, slots=True)
class Poisoned:
    """Messages that nobody ever manages to work on.

    Args:
        keys: Every message with one of these keys; kept as a frozenset of bytes.
        offsets: These messages; kept as a frozenset.
        reply: What consumers answer to them.
        reason: What they say with it, if it is a nack or a reject.

    Raises:
        ConfigError: ``keys`` is a single text, ``offsets`` holds something that is no int, the reply is an ack, or the
            reason is no text.
        KeyTypeError: One of ``keys`` is no key.

    Example:
        >>> Poisoned(["order-1"]).answer(offset=7, key=b"order-1", attempt=2)
        <Answer.NACK: 'nack'>
    """

    keys: Collection[str | bytes] = ()
    offsets: Collection[int] = ()
    reply: Answer = Answer.NACK
    reason: str | None = None

    @configuration()
    def __post_init__(self) -> None:
        check_several("keys", self.keys, "keys")
        object.__setattr__(self, "keys", frozenset(required_key_bytes(key) for key in self.keys))
        object.__setattr__(self, "offsets", frozenset(self.offsets))
        for offset in self.offsets:
            check_int("offsets", offset)
        _check_reply(self.reply, self.reason)

    def answer(self, offset: int, key: bytes | None, attempt: int) -> Answer:  # noqa: ARG002 - of the protocol
        """See `AnswerModel.answer`."""
        return self.reply if key in self.keys or offset in self.offsets else Answer.ACK


@dataclass(frozen=True, slots=True)
class FailFirst:
    """The first deliveries of every message fail, later ones do not: a fault that heals.

    Args:
        attempts: How many.
        reply: What consumers answer to them.
        reason: What they say with it, if it is a nack or a reject.

    Raises:
        ConfigError: ``attempts`` is negative or no int, the reply is an ack, or the reason is no text.

    Example:
        >>> [str(FailFirst(1).answer(0, None, attempt)) for attempt in (1, 2)]
        ['nack', 'ack']
    """

    attempts: int
    reply: Answer = Answer.NACK
    reason: str | None = None

    @configuration()
    def __post_init__(self) -> None:
        check_int("attempts", self.attempts, 0)
        _check_reply(self.reply, self.reason)

    def answer(self, offset: int, key: bytes | None, attempt: int) -> Answer:  # noqa: ARG002 - of the protocol
        """See `AnswerModel.answer`."""
        return self.reply if attempt <= self.attempts else Answer.ACK


@dataclass(frozen=True, slots=True)
class SampledAnswers:
    """Answers out of a list, each as likely as it is often in there: each delivery draws one, see `draw`.

    Args:
        samples: Such as ``[Answer.ACK] * 99 + [Answer.NACK]``; kept as a tuple.
        seed: Another seed is another draw.
        reason: What consumers say with each nack and reject.

    Raises:
        ConfigError: There are no samples, one is no `Answer`, the seed is not one of 64 bits, or the reason is no text.

    Example:
        >>> answers = SampledAnswers([Answer.ACK] * 9 + [Answer.NACK], seed=1)
        >>> [offset for offset in range(30) if answers.answer(offset, None, 1) is Answer.NACK]
        [3, 10, 12]
    """

    samples: Sequence[Answer]
    seed: int = 0
    reason: str | None = None

    @configuration()
    def __post_init__(self) -> None:
        object.__setattr__(self, "samples", _checked_samples(self.samples))
        for sample in self.samples:
            check_enum("samples", sample, Answer)
        _check_seed(self.seed)
        check_reason(self.reason)

    def answer(self, offset: int, key: bytes | None, attempt: int) -> Answer:  # noqa: ARG002 - of the protocol
        """See `AnswerModel.answer`."""
        return draw(self.samples, "answer", self.seed, offset, attempt)


def check_service(parameter: str, model: object) -> None:
    """Refuse what is no `ServiceTime`."""
    if not callable(getattr(model, "duration_ms", None)) or isinstance(model, type):
        raise ArgumentError(parameter, model, "be a service time such as Fixed(5), with a method duration_ms")


def _checked_samples(samples: object) -> tuple[Any, ...]:
    if isinstance(samples, str | bytes) or not isinstance(samples, Sequence) or not samples:
        raise ArgumentError("samples", samples, "be a sequence of at least one sample")
    return tuple(samples)


def _check_reply(reply: object, reason: object) -> None:
    check_enum("reply", reply, Answer, Answer.NACK, Answer.REJECT, Answer.POSTPONE, Answer.SILENT)
    check_reason(reason)


def _check_ms(parameter: str, value: object) -> None:
    check_int(parameter, value, 0, ", in milliseconds")


def _check_seed(seed: object) -> None:
    check_int("seed", seed, 0, most=_SEEDS - 1)
