"""How long a simulated consumer works on a message, and what it answers: distributions as data.

No random number is drawn. Of n samples ``xxh64(f"{purpose}:{offset}:{attempt}", seed) % n`` chooses one, where the
purpose is "service" or "answer": the same message takes the same time in every run, on every platform and in every
order, also in two groups that are compared.

All models are immutable, picklable values. A field that can never work raises `ConfigError`.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from fractions import Fraction
from typing import Any, Final, Protocol, TypeVar

from xxhash import xxh64_intdigest

from keyshared._arguments import check_reason
from keyshared._checks import check_enum, check_int, check_members, check_number, check_several, configuration
from keyshared.errors import ArgumentError
from keyshared.hashing import required_key_bytes

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
]

_SEEDS: Final = 1 << 64
_Sample = TypeVar("_Sample")


class Answer(StrEnum):
    """The answer of a consumer that has worked on a message."""

    ACK = "ack"
    NACK = "nack"
    REJECT = "reject"  # it can never work: poison at once
    POSTPONE = "postpone"  # not now: given back for the ``postpone_ms`` of the consumer, and no failure
    SILENT = "silent"  # no answer at all: the ack timeout, if there is one, ends the delivery


class ServiceTime(Protocol):
    """How long consumers work on messages."""

    def duration_ms(self, offset: int, attempt: int, own_ms: int | None) -> int:
        """Return how long one delivery takes, in whole milliseconds; ``own_ms`` is the message's own service time."""
        ...


class AnswerModel(Protocol):
    """A model of the answers of consumers."""

    @property
    def reason(self) -> str | None:
        """The reason of each nack and reject of this model; None for none."""
        ...

    def answer(self, offset: int, key: bytes | None, attempt: int) -> Answer:
        """Return how one delivery of a message ends."""
        ...


@dataclass(frozen=True, slots=True)
class Fixed:
    """Every message takes ``ms`` milliseconds.

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
    """Every message takes its own ``service_ms``; without one ``default_ms``, or if that is None an `ArgumentError`.

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
        """See `ServiceTime.duration_ms`; an ArgumentError if there is neither a service time nor a default."""
        if own_ms is not None:
            return own_ms
        if self.default_ms is None:
            requirement = f"be given with every message, so with offset {offset} too, or default_ms must be"
            raise ArgumentError("service_ms", None, requirement)
        return self.default_ms


@dataclass(frozen=True, slots=True)
class Sampled:
    """Service times out of a list, such as ones that were measured: each delivery draws one.

    Args:
        samples: Milliseconds, at least one; kept as a tuple.
        seed: An int of 64 bits; another seed is another draw.

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
        return _draw(self.samples, "service", self.seed, offset, attempt)


@dataclass(frozen=True, slots=True)
class Scaled:
    """Another model, faster or slower by an exact factor of at least 0; rounded up to whole milliseconds.

    Example:
        >>> Scaled(Fixed(5), 1.5).duration_ms(offset=0, attempt=1, own_ms=None)
        8
    """

    model: ServiceTime
    factor: int | float | Fraction
    _ratio: tuple[int, int] = field(init=False, repr=False, compare=False)

    @configuration()
    def __post_init__(self) -> None:
        check_members("model", self.model, ServiceTime)
        check_number("factor", self.factor)
        object.__setattr__(self, "_ratio", self.factor.as_integer_ratio())

    def duration_ms(self, offset: int, attempt: int, own_ms: int | None) -> int:
        """See `ServiceTime.duration_ms`."""
        numerator, denominator = self._ratio
        return -(-self.model.duration_ms(offset, attempt, own_ms) * numerator // denominator)


@dataclass(frozen=True, slots=True)
class Poisoned:
    """Messages that always fail.

    Args:
        keys: Every message with one of these keys; kept as a frozenset of bytes.
        offsets: These messages; kept as a frozenset.
        reply: What consumers answer to them; no ack.
        reason: The reason of a nack or reject.

    Raises:
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
        attempts: How many, at least 0.
        reply: What consumers answer to them; no ack.
        reason: The reason of a nack or reject.

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
    """Answers out of a list, each as likely as it is often in there: each delivery draws one.

    Args:
        samples: Such as ``[Answer.ACK] * 99 + [Answer.NACK]``; kept as a tuple.
        seed: An int of 64 bits; another seed is another draw.
        reason: The reason of each nack and reject.

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
        return _draw(self.samples, "answer", self.seed, offset, attempt)


def _draw(samples: Sequence[_Sample], purpose: str, seed: int, offset: int, attempt: int) -> _Sample:
    """Choose a sample for one delivery: the same one every time."""
    return samples[xxh64_intdigest(f"{purpose}:{offset}:{attempt}".encode(), seed) % len(samples)]


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
