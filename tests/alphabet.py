"""A subscription whose every owner can be read off the names, so that a test needs no hash to be understood.

A consumer stands on the alphabet at its first letter, and a key belongs to the first consumer at or after the key's
first letter: with ann, bob and cat, key ``a1`` is ann's and ``b1`` is bob's; without ann, ``a1`` is bob's too; behind
the last letter it starts again.
"""

from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any, Final, Self

from keyshared.config import DispatcherConfig, Rules
from keyshared.dispatcher import KeySharedDispatcher
from keyshared.effects import CursorAdvanced, Deliver, Effect, Released
from keyshared.errors import ArgumentError, ConsumerExistsError, UnknownConsumerError
from keyshared.hashing import KeyHash
from keyshared.placement import Moved, RangeMap, Weight

__all__ = ["AlphabetRing", "Watched", "advanced", "deliver", "delivered", "fill", "subscription", "then"]

_INPUTS: Final = (
    "offer", "offer_many", "ack", "ack_many", "nack", "reject", "release", "extend", "handle_timeout",
    "dead_lettered", "flushed", "loaded", "unblock", "unblock_offset", "park", "gone", "truncate",
    "add_consumer", "remove_consumer", "set_inactive", "set_active", "set_limit", "pull", "set_filters", "set_weight",
    "set_placement", "redrive", "set_group", "pause_group", "resume_group",
)  # fmt: skip


def _first_byte(data: bytes) -> int:
    return data[0] if data else 0


FIRST_LETTER: Final = KeyHash("first letter", 8, _first_byte)


class AlphabetRing:
    """A placement: each consumer has its first letter, and a following one where nobody stands per further weight."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._weights: dict[str, Weight] = dict.fromkeys(names, 1)
        self.ranges = self._built()

    @property
    def consumers(self) -> tuple[str, ...]:
        """Everyone, in join order."""
        return tuple(self._weights)

    def add(self, name: str, *, weight: Weight = 1) -> list[Moved]:
        """Join."""
        if not name:
            raise ArgumentError("name", name, "be a non-empty str")
        if name in self._weights:
            raise ConsumerExistsError(name)
        return self._changed({**self._weights, name: weight})

    def remove(self, name: str) -> list[Moved]:
        """Leave."""
        if name not in self._weights:
            raise UnknownConsumerError(name)
        return self._changed({other: weight for other, weight in self._weights.items() if other != name})

    def set_weight(self, name: str, weight: Weight) -> list[Moved]:
        """Own as many letters."""
        if name not in self._weights:
            raise UnknownConsumerError(name)
        return self._changed({**self._weights, name: weight})

    def copy(self) -> Self:
        """An independent placement with the same names."""
        twin = type(self)()
        twin._weights, twin.ranges = dict(self._weights), self.ranges
        return twin

    def _changed(self, weights: dict[str, Weight]) -> list[Moved]:
        before, self._weights = self.ranges, weights
        self.ranges = self._built()
        return before.moved(self.ranges)

    def _built(self) -> RangeMap:
        points: dict[int, str] = {}
        for step in range(max((int(weight) for weight in self._weights.values()), default=0)):
            for name, weight in sorted(self._weights.items()):
                if step < weight:
                    points.setdefault(ord(name[0]) + step, name)
        stops = [point + 1 for point in sorted(points)]
        owners: list[str | None] = [points[point] for point in sorted(points)]
        return RangeMap.from_stops(
            [*stops, 256], [*owners, owners[0] if owners else None], key_hash=FIRST_LETTER, slot_bits=8
        )


class Watched(KeySharedDispatcher):
    """The real thing, looked over by itself after every call that returned or raised."""


def _watched(call: Callable[..., list[Effect]]) -> Callable[..., list[Effect]]:
    @wraps(call, assigned=["__name__", "__qualname__"])  # the examples of its docstring run where they stand
    def watched(self: Watched, *args: Any, **kwargs: Any) -> list[Effect]:
        try:
            return call(self, *args, **kwargs)
        finally:
            self.check_invariants()

    return watched


for _name in _INPUTS:
    setattr(Watched, _name, _watched(getattr(KeySharedDispatcher, _name)))


def subscription(*consumers: str, rules: Rules | None = None, **config: Any) -> Watched:
    """A dispatcher over the alphabet with these consumers, rules and fields of its configuration."""
    dispatcher = Watched(AlphabetRing(), DispatcherConfig(**config), rules=rules)
    for name in consumers:
        assert [] == dispatcher.add_consumer(name)
    return dispatcher


def fill(dispatcher: KeySharedDispatcher, *keys: str | None, start: int = 0) -> list[Effect]:
    """Offer these keys one by one at consecutive offsets; all effects in the order they came."""
    return [effect for offset, key in enumerate(keys, start) for effect in dispatcher.offer(offset, key)]


def deliver(
    offset: int, key: str | None, consumer: str, attempt: int = 1, *, failures: int = 0, item: object = None
) -> Deliver:
    """The effect, with what it mostly is left out."""
    return Deliver(offset, None if key is None else key.encode(), consumer, attempt, failures, item)


def advanced(safe_cursor: int) -> CursorAdvanced:
    """The effect."""
    return CursorAdvanced(safe_cursor)


def delivered(effects: Iterable[Effect]) -> list[tuple[int, str]]:
    """Which offset went to whom, where a test is about nothing else."""
    return [(effect.offset, effect.consumer) for effect in effects if isinstance(effect, Deliver)]


def then(effects: Iterable[Effect]) -> list[Effect]:
    """What comes of a nack, reject or release besides that the delivery has ended."""
    ended, *others = effects
    assert isinstance(ended, Released)
    return others
