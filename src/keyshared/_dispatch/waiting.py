"""How many messages may wait for one key or one consumer: what bounds them where nothing is spilled."""

from collections import Counter
from collections.abc import Iterable
from functools import cache
from typing import Any

from keyshared._checks import require
from keyshared._dispatch.outbox import Outbox
from keyshared._dispatch.routing import Routing
from keyshared._window.lanes import IN_FLIGHT, Entry, Lane
from keyshared.config import DispatcherConfig
from keyshared.effects import Effect
from keyshared.errors import ConsumerFullError, KeyFullError
from keyshared.window import InFlightWindow

__all__ = ["WaitingCounts", "WaitingLimits", "counting"]


class WaitingCounts:
    """How many messages wait for each consumer: those that are not open, by the owner of their key.

    Counted as they come and go, because a scan for each offer would cost more than the limit saves; after a change of
    placement they are counted anew. A message without a key waits for nobody.
    """

    __slots__ = ("_asked", "_counts", "_one_lane", "_routing", "_window")

    def __init__(self, config: DispatcherConfig, routing: Routing, window: InFlightWindow) -> None:
        self._one_lane = config.ordering_required
        self._routing = routing
        self._window = window
        self.recount()

    def of(self, name: str) -> int:
        """How many wait for the consumer of that name."""
        return self._counts[name]

    def begin(self, key: bytes | None) -> None:
        """Count a message of the key that was offered, or put back."""
        self._count(key, 1)

    def end(self, key: bytes | None) -> None:
        """Count a message of the key that was settled and was not open."""
        self._count(key, -1)

    def see(self, granted: Iterable[Entry]) -> None:
        """Count the deliveries of a call; all anew if it has changed who owns what."""
        if self._routing.owner is not self._asked:
            self.recount()
            return
        for entry in granted:
            if entry.state == IN_FLIGHT and (self._one_lane or entry.key is not None):
                self._counts[entry.consumer.name] -= 1  # type: ignore[union-attr]  # its owner has it now

    def recount(self) -> None:
        """Count all that waits. O(outstanding)."""
        self._asked = self._routing.owner
        self._counts = self._recounted()

    def check_invariants(self) -> None:
        """Raise `InvariantError` if something else is counted than waits. For tests; O(outstanding)."""
        require(+self._counts == self._recounted(), "what waits is counted for each consumer")

    def _recounted(self) -> Counter[str]:
        waiting = (entry for entry in self._window.outstanding() if entry.state != IN_FLIGHT)
        owners = (self._owner(entry.key) for entry in waiting)
        return Counter(owner for owner in owners if owner is not None)

    def _count(self, key: bytes | None, change: int) -> None:
        owner = self._owner(key)
        if owner is not None:
            self._counts[owner] += change

    def _owner(self, key: bytes | None) -> str | None:
        if key is None and not self._one_lane:
            return None
        return self._routing.owner(b"" if key is None else key)


class WaitingLimits:
    """What may still be offered of a key before too much of it, or of its consumer, waits.

    Attributes:
        counts: What waits for each consumer; None if that has no limit.
    """

    __slots__ = ("_one_lane", "_per_consumer", "_per_key", "_routing", "_window", "counts")

    def __init__(self, config: DispatcherConfig, routing: Routing, window: InFlightWindow) -> None:
        self._per_key = config.max_waiting_per_key
        self._per_consumer = config.max_waiting_per_consumer
        self._one_lane = config.ordering_required
        self._routing = routing
        self._window = window
        self.counts = None if self._per_consumer is None else WaitingCounts(config, routing, window)

    def room_for(self, key: bytes | None) -> int:
        """How many messages of the key may begin to wait; without a key, what the window has. O(log vnodes)."""
        room = self._window.free_slots
        lane_key = b"" if self._one_lane else key
        if lane_key is None:
            return room
        if self._per_key is not None:
            room = min(room, self._per_key - self._waiting_of(lane_key))
        if self.counts is not None and self._per_consumer is not None:
            owner = self._routing.owner(lane_key)
            if owner is not None:
                room = min(room, self._per_consumer - self.counts.of(owner))
        return max(0, room)

    def check(self, keys: Iterable[bytes | None]) -> None:
        """Raise unless that many messages of these keys may begin to wait."""
        lane_keys = [b"" if self._one_lane else key for key in keys]
        new = Counter(lane_key for lane_key in lane_keys if lane_key is not None)
        if self._per_key is not None:
            for lane_key, more in new.items():
                if self._waiting_of(lane_key) + more > self._per_key:
                    raise KeyFullError(lane_key, self._per_key)
        if self.counts is not None and self._per_consumer is not None:
            owners: Counter[str] = Counter()
            for lane_key, more in new.items():
                owner = self._routing.owner(lane_key)
                if owner is None:
                    continue
                owners[owner] += more
                if self.counts.of(owner) + owners[owner] > self._per_consumer:
                    raise ConsumerFullError(owner, self._per_consumer)

    def admit(self, key: bytes | None) -> None:
        """Count one message of the key, or raise."""
        self.check([key])
        if self.counts is not None:
            self.counts.begin(key)

    def _waiting_of(self, lane_key: bytes) -> int:
        lane = self._window.lanes.get(lane_key)
        if isinstance(lane, Lane):
            return lane.loaded - lane.open
        return int(lane is not None and lane.state != IN_FLIGHT)


@cache
def counting(outbox: type[Outbox]) -> type[Outbox]:
    """Return the kind of outbox that counts, besides what it does, what no longer waits: every delivery comes by it."""

    class CountingOutbox(outbox):  # type: ignore[misc, valid-type]  # whichever kind it is
        __slots__ = ("_counts",)

        tells_once = False  # what goes out and is settled within a batch does not wait either

        def __init__(self, counts: WaitingCounts, *others: Any, **settings: Any) -> None:  # noqa: ANN401  # as an outbox
            super().__init__(*others, **settings)
            self._counts = counts

        def resume(self, *, paused: bool) -> None:
            """Count what another life left waiting, too."""
            self._counts.recount()
            super().resume(paused=paused)

        def finish(self, out: list[Effect], granted: list[Entry], now: int) -> list[Effect[Any]]:
            """Count the deliveries, and add obligations and state to the notices."""
            self._counts.see(granted)
            return super().finish(out, granted, now)  # type: ignore[no-any-return]  # mypy does not know the base

        def finish_offer(self, granted: list[Entry], now: int) -> list[Effect[Any]]:
            """The same for an offer."""
            return self.finish([], granted, now)

        def check_invariants(self) -> None:
            """Raise `InvariantError` if the counts, or what was reported, are wrong. For tests; O(outstanding)."""
            super().check_invariants()
            self._counts.check_invariants()

    return CountingOutbox
