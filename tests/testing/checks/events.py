"""Events in short, and a history with what must be found in it."""

from collections.abc import Sequence
from typing import NamedTuple

from keyshared.testing import Claims, Promise
from keyshared.testing.history import (
    Acked,
    Connected,
    Delivered,
    Event,
    Gone,
    Held,
    HoldReason,
    Nacked,
    Owned,
    Published,
    Released,
)

__all__ = [
    "K2",
    "PAIRS",
    "UNITS",
    "A",
    "B",
    "Case",
    "K",
    "L",
    "acked",
    "connected",
    "delivered",
    "gone",
    "held",
    "nacked",
    "owned",
    "published",
    "released",
]

K, L = b"k", b"l"


def published(offset: int, key: bytes | None = K, at_ms: int | None = None) -> Published:
    return Published(offset=offset, key=key, at_ms=at_ms)


def delivered(
    offset: int, consumer: str = "a", attempt: int | None = 1, key: bytes | None = K, at_ms: int | None = None
) -> Delivered:
    return Delivered(offset=offset, key=key, consumer=consumer, attempt=attempt, at_ms=at_ms)


def acked(offset: int, consumer: str = "a", attempt: int | None = 1, *, counted: bool | None = None) -> Acked:
    return Acked(offset=offset, consumer=consumer, attempt=attempt, counted=counted)


def nacked(offset: int, consumer: str = "a", attempt: int | None = 1, *, counted: bool | None = True) -> Nacked:
    return Nacked(offset=offset, consumer=consumer, attempt=attempt, counted=counted)


def released(offset: int, consumer: str = "a", attempt: int | None = 1) -> Released:
    return Released(offset=offset, consumer=consumer, attempt=attempt)


def held(offset: int, reason: HoldReason = HoldReason.OTHER, until_ms: int | None = None) -> Held:
    return Held(offset=offset, reason=reason, until_ms=until_ms)


def owned(consumer: str | None, key: bytes = K, at_ms: int | None = None) -> Owned:
    return Owned(key=key, consumer=consumer, at_ms=at_ms)


def connected(consumer: str, limit: int | None = None, at_ms: int | None = None) -> Connected:
    return Connected(consumer=consumer, limit=limit, at_ms=at_ms)


def gone(consumer: str, *, drains: bool = False) -> Gone:
    return Gone(consumer=consumer, drains=drains)


class Case(NamedTuple):
    """A history and what must be found in it."""

    name: str
    promise: Promise
    history: Sequence[Event]
    proof: tuple[int, ...] | None = None
    claims: Claims = Claims()  # frozen


A, B = connected("a"), connected("b")
PAIRS = Claims(per_key=2)
UNITS = Claims(unit_of=lambda key: key[:1])
K2 = b"k2"
