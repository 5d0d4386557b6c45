"""The systems whose message lives are measured, behind one interface, and the loop that drives them.

Each subject hands the driver what it has to acknowledge later. The host's work on an answer (pick the deliveries out of
the effects, answer a `Load`, unpack a receipt) is part of a subject's cost, not of the driver's.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from time import process_time_ns
from typing import Any, Protocol

from benchmarks.floor import Floor

from keyshared.config import DispatcherConfig, DrainUnit
from keyshared.dispatcher import KeySharedDispatcher
from keyshared.effects import Deliver, Effect, Load
from keyshared.ring import HashRing
from keyshared.window import Entry, InFlightWindow, State

CONSUMERS = 8
NAMES = [f"consumer-{number}" for number in range(CONSUMERS)]
NULL_KEY: Any = ((),)
_IN_FLIGHT = int(State.IN_FLIGHT)
_LOADING = int(State.LOADING)

Taker = Callable[[Any], object]


class Subject(Protocol):
    """A system under test. By a handle it recognises a delivery."""

    @property
    def offer(self) -> Callable[[int, bytes], Any]: ...
    def ack(self, handle: Any) -> Any: ...  # noqa: ANN401 - as many shapes as systems
    def taker(self, hold: Callable[[Any], object], hold_all: Callable[[Iterable[Any]], object]) -> Taker:
        """Build the function that takes the handles out of an answer."""
        ...

    def safe_cursor(self) -> int | None: ...


class Null:
    """A subject that does nothing, in C: the driver's own cost remains, and that of the call which unpacks a handle."""

    def __init__(self, messages: int) -> None:
        # An offer is answered with its "key", which has to be NULL_KEY: one handle, and that is empty.
        self.offer = dict[int, Any]().get
        self.messages = messages

    def ack(self, handle: tuple[()]) -> tuple[()]:
        return handle

    def taker(self, hold: Callable[[Any], object], hold_all: Callable[[Iterable[Any]], object]) -> Taker:  # noqa: ARG002 - see Subject
        return hold_all

    def safe_cursor(self) -> int | None:
        return self.messages - 1


class FloorSubject:
    def __init__(self, limit: int) -> None:
        self.floor = Floor(CONSUMERS, limit)
        self.offer = self.floor.offer

    def ack(self, handle: tuple[int, bytes, int]) -> list[tuple[int, bytes, int]]:
        return self.floor.ack(handle[0])

    def taker(self, hold: Callable[[Any], object], hold_all: Callable[[Iterable[Any]], object]) -> Taker:  # noqa: ARG002 - see Subject
        return hold_all

    def safe_cursor(self) -> int | None:
        return self.floor.cursor


class WindowSubject:
    def __init__(self, capacity: int, limit: int, *, max_tracked: int, loaded_per_key: int, spills: bool) -> None:
        self.window = InFlightWindow(
            HashRing(NAMES), capacity=capacity, max_tracked=max_tracked, loaded_per_key=loaded_per_key
        )
        for name in NAMES:
            self.window.add(name, limit=limit)
        self.offer = self.window.offer
        self.spills = spills

    def ack(self, handle: Entry) -> list[Entry]:
        return self.window.settle(handle)

    def taker(self, hold: Callable[[Any], object], hold_all: Callable[[Iterable[Any]], object]) -> Taker:
        provide, wake = self.window.provide, self.window.wake

        def take(granted: list[Entry]) -> None:
            for entry in granted:
                if entry.state == _IN_FLIGHT:
                    hold(entry)
                elif entry.state == _LOADING:
                    provide(entry, None)
                    take(wake())

        return take if self.spills else hold_all

    def safe_cursor(self) -> int | None:
        return self.window.cursor.safe_cursor


class DispatcherSubject:
    def __init__(self, limit: int, config: DispatcherConfig) -> None:
        self.dispatcher = KeySharedDispatcher(HashRing(), config)
        for name in NAMES:
            self.dispatcher.add_consumer(name, limit=limit)
        self.offer = self.dispatcher.offer

    def ack(self, handle: Deliver) -> list[Effect]:
        return self.dispatcher.ack(*handle.receipt)

    def taker(self, hold: Callable[[Any], object], hold_all: Callable[[Iterable[Any]], object]) -> Taker:  # noqa: ARG002 - see Subject
        loaded = self.dispatcher.loaded

        def take(effects: list[Effect]) -> None:
            for effect in effects:
                if type(effect) is Deliver:
                    hold(effect)
                elif type(effect) is Load:
                    take(loaded(effect.offset))

        return take

    def safe_cursor(self) -> int | None:
        return self.dispatcher.safe_cursor


def null(messages: int) -> Subject:
    return Null(messages)


def floor(limit: int) -> Subject:
    return FloorSubject(limit)


def window(
    capacity: int, limit: int, *, max_tracked: int = 1_000_000, loaded_per_key: int = 1_000, spills: bool = False
) -> Subject:
    return WindowSubject(capacity, limit, max_tracked=max_tracked, loaded_per_key=loaded_per_key, spills=spills)


def dispatcher(
    capacity: int,
    limit: int,
    *,
    max_tracked: int = 1_000_000,
    loaded_per_key: int = 1_000,
    unit: DrainUnit = DrainUnit.KEY,
) -> Subject:
    config = DispatcherConfig(window=capacity, max_tracked=max_tracked, max_loaded_per_key=loaded_per_key, unit=unit)
    return DispatcherSubject(limit, config)


class Driver:
    """Keeps a constant number of messages outstanding, and acks deliveries in the order they came or in a given one.

    Args:
        subject: What is driven.
        keys: The key of each offset.
        picks: Without it, deliveries are acked in order; else the n-th ack is that of the delivery at ``picks[n]``
            modulo how many are held, so that no random numbers are drawn while time is taken.
    """

    def __init__(self, subject: Subject, keys: Sequence[bytes], picks: Sequence[int] | None = None) -> None:
        self.subject = subject
        self.offered = 0
        self._keys = keys
        self._held: deque[Any] | list[Any]
        if picks is None:
            queue: deque[Any] = deque()
            self._held = queue
            self._pop: Callable[[], Any] = queue.popleft
        else:
            self._held = []
            self._pop = _picker(self._held, picks)
        self._take = subject.taker(self._held.append, self._held.extend)

    def fill(self, count: int) -> None:
        """Offer messages without an ack."""
        offer, take, keys, first = self.subject.offer, self._take, self._keys, self.offered
        self.offered += count
        for offset in range(first, self.offered):
            take(offer(offset, keys[offset]))

    def steps(self, count: int) -> None:
        """Ack one delivery, offer one message, and so on."""
        offer, ack, take, pop = self.subject.offer, self.subject.ack, self._take, self._pop
        keys, first = self._keys, self.offered
        self.offered += count
        for offset in range(first, self.offered):
            take(ack(pop()))
            take(offer(offset, keys[offset]))

    def drain(self) -> None:
        """Ack until nothing is outstanding."""
        held, ack, take, pop = self._held, self.subject.ack, self._take, self._pop
        while held:
            take(ack(pop()))

    def live(self, outstanding: int) -> tuple[int, int]:
        """Run all messages from offer to ack; return nanoseconds and messages."""
        count = len(self._keys)
        filled = min(outstanding, count)
        started = process_time_ns()
        self.fill(filled)
        self.steps(count - filled)
        self.drain()
        return process_time_ns() - started, count

    def check_done(self) -> None:
        """Refuse a subject that has lost messages: its figures would be worth nothing."""
        if self.subject.safe_cursor() != self.offered - 1:
            raise AssertionError(f"{self.subject!r} stopped at {self.subject.safe_cursor()} of {self.offered}")


def _picker(held: list[Any], picks: Sequence[int]) -> Callable[[], Any]:
    following = iter(picks).__next__

    def pop() -> Any:  # noqa: ANN401 - as many shapes as systems
        index = following() % len(held)
        picked = held[index]
        held[index] = held[-1]
        held.pop()
        return picked

    return pop
