"""A lease queue whose owners can be read off the keys: a range is a span of first letters."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import wraps
from typing import Any, Final

from tests.alphabet import FIRST_LETTER

from keyshared.config import DispatcherConfig, Rules
from keyshared.effects import Effect
from keyshared.leases import Lease, LeaseAnswer, LeaseConfig, LeaseQueue, Reservation
from keyshared.placement import HashRange
from keyshared.placement.assigned import AssignedRanges

__all__ = [
    "WatchedQueue",
    "assigned",
    "count_held",
    "count_leased",
    "count_reserved",
    "fill",
    "lease",
    "lease_config",
    "letters",
    "queue",
    "reserve",
    "with_settings",
]

OWN: Final = {"reservation_timeout_ms", "max_delivery_attempts", "max_in_flight"}
"""The settings that only leases have."""

_INPUTS: Final = (
    "offer", "add_consumer", "remove_consumer", "set_placement", "reserve", "commit", "abort", "consume", "ack",
    "ack_many", "ack_through", "nack", "reject", "release",
    "extend", "set_group", "pause_group", "resume_group",
    "dead_lettered", "loaded", "park", "unblock_offset", "unblock", "redrive", "gone", "truncate",
    "handle_timeout",
)  # fmt: skip


def letters(spans: Mapping[str, str] | None = None) -> AssignedRanges:
    """Ranges assigned by hand, of first letters: ``letters({"a-f": "ann"})``."""
    ranges = AssignedRanges(key_hash=FIRST_LETTER, slot_bits=8)
    for span, owner in (spans or {}).items():
        ranges = assigned(ranges, span, owner)
    return ranges


def assigned(ranges: AssignedRanges, span: str, owner: str) -> AssignedRanges:
    """The same with one more assignment; both letters are included."""
    ranges = ranges.copy()
    ranges.assign(HashRange(ord(span[0]), ord(span[-1]) + 1), owner)
    return ranges


class WatchedQueue(LeaseQueue):
    """The real thing, looked over by itself after every call that returned or raised."""


def _watched(call: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(call)
    def watched(self: WatchedQueue, *args: Any, **kwargs: Any) -> Any:
        try:
            return call(self, *args, **kwargs)
        finally:
            self.check_invariants()

    return watched


for _name in _INPUTS:
    setattr(WatchedQueue, _name, _watched(getattr(LeaseQueue, _name)))


def lease_config(**settings: Any) -> LeaseConfig:
    """A configuration of settings of leases and of the dispatcher below."""
    own = {name: settings.pop(name) for name in OWN & settings.keys()}
    return LeaseConfig(dispatcher=DispatcherConfig(**settings), **own)


def with_settings(config: LeaseConfig, **settings: Any) -> LeaseConfig:
    """The same with other settings of the dispatcher."""
    return replace(config, dispatcher=replace(config.dispatcher, **settings))


def queue(
    *consumers: str, ranges: AssignedRanges | None = None, rules: Rules | None = None, **config: Any
) -> WatchedQueue:
    """A queue with these consumers; without letters the first one has all. Leases run 100 ms, reservations 10."""
    chosen = lease_config(**{"ack_timeout_ms": 100, "reservation_timeout_ms": 10, **config})
    if chosen.dispatcher.ordering_required:
        made = WatchedQueue(None, chosen, rules=rules)
    else:
        made = WatchedQueue(letters({"a-z": consumers[0]}) if ranges is None else ranges, chosen, rules=rules)
    for name in consumers:
        assert LeaseAnswer(None, []) == made.add_consumer(name)
    return made


def count_leased(made: LeaseQueue) -> int:
    """Messages in leases."""
    return sum(len(each.messages) for each in made.leases())


def count_reserved(made: LeaseQueue) -> int:
    """Messages in reservations."""
    return sum(len(each.messages) for each in made.reservations())


def count_held(made: LeaseQueue) -> dict[str, int]:
    """Messages that each consumer holds, draining ones included."""
    return {name: consumer.in_flight for name, consumer in made.stats().consumers.items()}


def fill(made: LeaseQueue, *keys: str | None, start: int = 0) -> list[Effect]:
    """Offer these keys one by one as consecutive messages."""
    return [effect for offset, key in enumerate(keys, start) for effect in made.offer(offset, key).effects]


def lease(made: LeaseQueue, consumer: str, most: int = 10, *, now_ms: int | None = None) -> Lease:
    """What the consumer gets; it has to get something."""
    result = made.consume(consumer, most, now_ms=now_ms).result
    assert isinstance(result, Lease), result
    return result


def reserve(made: LeaseQueue, consumer: str, most: int = 10, *, now_ms: int | None = None) -> Reservation:
    """What the consumer may commit; there has to be something."""
    result = made.reserve(consumer, most, now_ms=now_ms).result
    assert isinstance(result, Reservation), result
    return result
