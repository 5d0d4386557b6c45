"""`offer_many` and `ack_many` against single calls and the floor: what is done for a message, not its host."""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import process_time_ns
from typing import Any

from benchmarks._harness import Report, Scale, Timed, turns
from benchmarks.bench_life import Keys, hot_keys, unique_keys
from benchmarks.floor import Floor

import keyshared
from keyshared.dispatcher import KeySharedDispatcher
from keyshared.effects import Deliver
from keyshared.ring import HashRing

BATCH = 100
MESSAGES = 20_000
REPEATS = 7
SINGLE_BOUND = 0.7  # of the pure build, whose single calls are dear
FLOOR_BOUND = 1.5  # of the compiled one


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
    """Offers and acks a hundred messages at a time, by one call or by a hundred; only the calls are timed."""

    def __init__(
        self, load: Load, keys: Keys, subject: KeySharedDispatcher[object] | Floor, *, in_batches: bool
    ) -> None:
        self.subject = subject
        self.keys = keys
        self.outstanding = load.outstanding
        self.in_batches = in_batches
        self.held: deque[tuple[Any, ...]] = deque()
        self.spent = 0

    def run(self) -> None:
        for first in range(0, len(self.keys), BATCH):
            self.call("offer", list(enumerate(self.keys[first : first + BATCH], start=first)))
            if first >= self.outstanding:
                self.ack_some()
        while self.held:
            self.ack_some()
        floor = self.subject
        cursor = floor.cursor if isinstance(floor, Floor) else floor.safe_cursor
        if cursor != len(self.keys) - 1:
            raise AssertionError(f"stopped at {cursor} of {len(self.keys)}")

    def ack_some(self) -> None:
        self.call("ack", [self.held.popleft() for _ in range(min(BATCH, len(self.held)))])

    def call(self, name: str, given: Sequence[tuple[Any, ...]]) -> None:
        """Offer or ack, and hold what is delivered by what an ack takes."""
        if self.in_batches:
            several = getattr(self.subject, f"{name}_many")
            messages = [(*message, None) for message in given] if name == "offer" else given
            started = process_time_ns()
            answers = [several(messages)]
        else:
            one = getattr(self.subject, name)
            started = process_time_ns()
            answers = [one(*arguments) for arguments in given]
        self.spent += process_time_ns() - started
        is_floor = isinstance(self.subject, Floor)
        for answer in answers:
            self.held.extend(
                each[:1] if is_floor else each.receipt for each in answer if is_floor or type(each) is Deliver
            )


def dispatcher(load: Load) -> KeySharedDispatcher[object]:
    made = KeySharedDispatcher[object](HashRing())
    for number in range(load.consumers):
        made.add_consumer(f"consumer-{number}", limit=load.limit)
    return made


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
            "floor": _timed(lambda: Host(load, keys, Floor(load.consumers, load.limit), in_batches=False)),  # noqa: B023
            "single": _timed(lambda: Host(load, keys, dispatcher(load), in_batches=False)),  # noqa: B023
            "batch": _timed(lambda: Host(load, keys, dispatcher(load), in_batches=True)),  # noqa: B023
        }
        found = turns(cases, scale.repeats(REPEATS))
        to_single, to_floor = (found["batch"] / found[other] for other in ("single", "floor"))
        report.add(load.name, *found.values(), to_single, to_floor)
        if keyshared.COMPILED:
            report.judge(f"batch / floor, {load.name}", to_floor, FLOOR_BOUND)
        else:
            report.judge(f"batch / single, {load.name}", to_single, SINGLE_BOUND)
    return [report]


def _timed(make: Callable[[], Host]) -> Timed:
    def once() -> tuple[int, int]:
        host = make()
        host.run()
        return host.spent, len(host.keys)

    return once
