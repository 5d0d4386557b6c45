"""`offer_many` and `ack_many` against single calls and the floor: what is done for a message, not its host."""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from time import process_time_ns

from benchmarks._harness import Report, Scale, Timed, turns
from benchmarks.bench_life import Keys, hot_keys, unique_keys
from benchmarks.floor import Delivery, Floor

import keyshared
from keyshared.dispatcher import KeySharedDispatcher
from keyshared.effects import Deliver, Effect
from keyshared.ring import HashRing

BATCH = 100
MESSAGES = 20_000
REPEATS = 7
SINGLE_BOUND = 0.7  # of the pure build, whose single calls are dear
FLOOR_BOUND = 1.5  # of the compiled one

Receipts = Sequence[tuple[int, str, int]]


@dataclass(frozen=True)
class Load:
    """What is sent to whom, and how much of it is outstanding."""

    name: str
    keys: Callable[[int], Keys]
    consumers: int = 8
    limit: int = 10_000
    outstanding: int = 1_000


LOADS = (
    Load("unique keys", unique_keys),
    Load("100 hot keys", hot_keys),
    Load("one consumer", unique_keys, consumers=1),
    Load("50 consumers", unique_keys, consumers=50),
    Load("waiting", unique_keys, limit=50, outstanding=3_000),
)


class Host:
    """Offers and acks a hundred messages at a time, in one call or in a hundred; only the calls are timed."""

    def __init__(self, load: Load, keys: Keys, *, in_batches: bool) -> None:
        self.dispatcher = KeySharedDispatcher(HashRing())
        for number in range(load.consumers):
            self.dispatcher.add_consumer(f"consumer-{number}", limit=load.limit)
        self.keys = keys
        self.outstanding = load.outstanding
        self.held: deque[tuple[int, str, int]] = deque()
        self.offer = self.offer_batch if in_batches else self.offer_each
        self.ack = self.ack_batch if in_batches else self.ack_each
        self.spent = 0

    def run(self) -> None:
        for first in range(0, len(self.keys), BATCH):
            self.take(self.offer(first, self.keys[first : first + BATCH]))
            if first >= self.outstanding:
                self.ack_some()
        while self.held:
            self.ack_some()
        if self.dispatcher.safe_cursor != len(self.keys) - 1:
            raise AssertionError(f"stopped at {self.dispatcher.safe_cursor} of {len(self.keys)}")

    def ack_some(self) -> None:
        self.take(self.ack([self.held.popleft() for _ in range(min(BATCH, len(self.held)))]))

    def take(self, effects: Sequence[Effect]) -> None:
        self.held.extend(effect.receipt for effect in effects if isinstance(effect, Deliver))

    def offer_each(self, first: int, keys: Keys) -> list[Effect]:
        offer = self.dispatcher.offer
        started = process_time_ns()
        answers = [offer(offset, key) for offset, key in enumerate(keys, start=first)]
        self.spent += process_time_ns() - started
        return [effect for answer in answers for effect in answer]

    def offer_batch(self, first: int, keys: Keys) -> list[Effect]:
        messages = [(offset, key, None) for offset, key in enumerate(keys, start=first)]
        started = process_time_ns()
        effects = self.dispatcher.offer_many(messages)
        self.spent += process_time_ns() - started
        return effects

    def ack_each(self, receipts: Receipts) -> list[Effect]:
        ack = self.dispatcher.ack
        started = process_time_ns()
        answers = [ack(*receipt) for receipt in receipts]
        self.spent += process_time_ns() - started
        return [effect for answer in answers for effect in answer]

    def ack_batch(self, receipts: Receipts) -> list[Effect]:
        started = process_time_ns()
        effects = self.dispatcher.ack_many(receipts)
        self.spent += process_time_ns() - started
        return effects


class FloorHost:
    """Does with a floor what a `Host` does with a dispatcher, in single calls: it has no others."""

    def __init__(self, load: Load, keys: Keys) -> None:
        self.floor = Floor(load.consumers, load.limit)
        self.keys = keys
        self.outstanding = load.outstanding
        self.held: deque[int] = deque()
        self.spent = 0

    def run(self) -> None:
        for first in range(0, len(self.keys), BATCH):
            self.call(self.floor.offer, list(enumerate(self.keys[first : first + BATCH], start=first)))
            if first >= self.outstanding:
                self.ack_some()
        while self.held:
            self.ack_some()
        if self.floor.cursor != len(self.keys) - 1:
            raise AssertionError(f"stopped at {self.floor.cursor} of {len(self.keys)}")

    def ack_some(self) -> None:
        self.call(self.floor.ack, [(self.held.popleft(),) for _ in range(min(BATCH, len(self.held)))])

    def call(self, call: Callable[..., list[Delivery]], given: Sequence[tuple[object, ...]]) -> None:
        started = process_time_ns()
        answers = [call(*arguments) for arguments in given]
        self.spent += process_time_ns() - started
        self.held.extend(delivery[0] for answer in answers for delivery in answer)


def run(scale: Scale) -> list[Report]:
    report = Report(
        "batches",
        ("floor ns", "single ns", "batch ns", "batch/single", "batch/floor"),
        [f"offer and ack of one message by single calls and by calls for {BATCH}; each has one instant"],
    )
    for load in LOADS:
        keys = load.keys(scale.size(MESSAGES))
        for key in keys:
            hash(key)  # kept by the object: else the first host would pay for all
        cases = {
            "floor": _timed(partial(FloorHost, load, keys)),
            "single": _timed(partial(Host, load, keys, in_batches=False)),
            "batch": _timed(partial(Host, load, keys, in_batches=True)),
        }
        found = turns(cases, scale.repeats(REPEATS))
        to_single, to_floor = (found["batch"] / found[other] for other in ("single", "floor"))
        report.add(load.name, *found.values(), to_single, to_floor)
        if keyshared.COMPILED:
            report.judge(f"batch / floor, {load.name}", to_floor, FLOOR_BOUND)
        else:
            report.judge(f"batch / single, {load.name}", to_single, SINGLE_BOUND)
    return [report]


def _timed(make: Callable[[], Host | FloorHost]) -> Timed:
    def once() -> tuple[int, int]:
        host = make()
        host.run()
        return host.spent, len(host.keys)

    return once
