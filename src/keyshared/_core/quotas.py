"""Limits that lanes share: how much of a group of keys, or of the whole subscription, may be open, and how fast.

A quota that has no capacity does not remember the lanes that it turned away, which stay where they wait. It remembers
the consumers for which something of it would have gone out, in that order. When it has capacity again, these get one
turn each, and then again; no other consumer gets anything of it before.
"""

from collections import OrderedDict
from typing import Final, Generic, TypeVar

__all__ = ["Clock", "Quota", "TokenBucket"]

_PERMIT: Final = 1_000
"""Permits are counted in thousandths, so that a millisecond brings a whole number of them."""

Taker = TypeVar("Taker")


class Clock:
    """The instant of the call that goes on, shared by all that depends on it."""

    __slots__ = ("now",)

    def __init__(self) -> None:
        self.now = 0


class TokenBucket:
    """The permits of a quota: each delivery takes one, and time brings them back.

    Attributes:
        per_second: How many permits a second brings.
        burst: How many permits it holds at most.
    """

    __slots__ = ("_clock", "_filled_at", "_level", "burst", "per_second")

    def __init__(self, clock: Clock, per_second: int, burst: int) -> None:
        self._clock = clock
        self.per_second = per_second
        self.burst = burst
        self._level = burst * _PERMIT
        self._filled_at = clock.now

    def fill(self) -> int:
        """Add what time has brought; return the level in thousandths of a permit."""
        now = self._clock.now
        if now != self._filled_at:
            self._level = min(self.burst * _PERMIT, self._level + self.per_second * (now - self._filled_at))
            self._filled_at = now
        return self._level

    def set_level(self, level: int) -> None:
        """Set the level as far as it fits."""
        self._filled_at = self._clock.now
        self._level = min(self.burst * _PERMIT, level)

    def take(self) -> None:
        """Take one permit out."""
        self._level = self.fill() - _PERMIT

    @property
    def permits(self) -> int:
        """Whole permits that are there."""
        return self.fill() // _PERMIT

    @property
    def is_full(self) -> bool:
        """Whether time brings nothing more."""
        return self.fill() == self.burst * _PERMIT

    @property
    def next_permit_at(self) -> int:
        """When it has a whole permit."""
        return self._clock.now + max(0, -((self.fill() - _PERMIT) // self.per_second))


class Quota(Generic[Taker]):
    """A limit of open deliveries that lanes share.

    Attributes:
        name: Name of the group; empty for the group without a name, and for the subscription.
        limit: How many of its deliveries may be open; None for any number.
        weight: How many turns in a row its lanes get at a consumer.
        rate: Its permits; None if it needs none.
        open: Its open deliveries.
        paused: Whether nothing of it may go out.
        lanes: How many lanes it has.
        waiting: The consumers that it remembers, in the order in which they are to be served.
        granted: The remembered consumer whose turn it is.
        deadline: When it has a permit again, while a consumer waits for one.
        is_set: Whether limits were set for it by name.
    """

    __slots__ = (
        *("deadline", "granted", "is_set", "lanes", "limit", "name", "open", "paused", "rate", "waiting", "weight"),
    )

    def __init__(self, name: str = "", limit: int | None = None) -> None:
        self.name = name
        self.limit = limit
        self.weight = 1
        self.rate: TokenBucket | None = None
        self.open = 0
        self.paused = False
        self.lanes = 0
        self.waiting: OrderedDict[Taker, None] = OrderedDict()
        self.granted: Taker | None = None
        self.deadline: int | None = None
        self.is_set = False

    @property
    def has_room(self) -> bool:
        """Whether another delivery of it may begin."""
        return (
            not self.paused
            and (self.limit is None or self.open < self.limit)
            and (self.rate is None or self.rate.fill() >= _PERMIT)
        )

    def admits(self, consumer: Taker) -> bool:
        """Return whether something of it may go to this consumer now: no other one waits for it."""
        return self.has_room and (not self.waiting or self.granted is consumer)

    def opened(self) -> None:
        """Count a delivery that begins."""
        self.open += 1
        if self.rate is not None:
            self.rate.take()

    @property
    def is_idle(self) -> bool:
        """Whether nothing but its permits tells it from a new quota of this name."""
        return not (self.is_set or self.paused or self.lanes)

    @property
    def is_as_new(self) -> bool:
        """Whether a new quota of this name would be the same."""
        return self.is_idle and (self.rate is None or self.rate.is_full)
