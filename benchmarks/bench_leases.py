"""The life of a message in a lease queue, from offer over lease to ack, beside that of a message of the dispatcher."""

from collections import deque
from time import process_time_ns

from benchmarks._harness import Report, Scale, Timed, bound_of, turns
from benchmarks.bench_life import Keys, hot_keys, unique_keys

from keyshared.config import DispatcherConfig
from keyshared.dispatcher import KeySharedDispatcher
from keyshared.effects import Deliver
from keyshared.leases import Lease, LeaseConfig, LeaseQueue
from keyshared.ring import HashRing

WINDOW = 10_000
WAITING = 1_000
COUNT = 20_000
REPEATS = 3
BATCHES = (1, 10, 100)
PER_MS = 100  # messages that arrive in one millisecond: timers are at work

LIFE_BOUND = bound_of(pure=4.0, compiled=2.0)


def dispatcher_lives(keys: Keys, waiting: int) -> Timed:
    """Offer and ack, one by one; so many are in flight, or wait behind those of their key."""

    def once() -> tuple[int, int]:
        dispatcher = KeySharedDispatcher(HashRing(), DispatcherConfig(window=WINDOW, max_in_flight_per_consumer=WINDOW))
        dispatcher.add_consumer("c1")
        held: deque[Deliver] = deque()
        started = process_time_ns()
        for offset, key in enumerate(keys):
            held.extend(effect for effect in dispatcher.offer(offset, key, now_ms=offset // PER_MS))  # type: ignore[misc]  # there are no others
            if offset >= waiting:
                for effect in dispatcher.ack(*held.popleft().receipt):
                    if type(effect) is Deliver:
                        held.append(effect)
        return process_time_ns() - started, len(keys) - waiting

    return once


def lease_lives(keys: Keys, waiting: int, batch: int) -> Timed:
    """Offer one by one, lease in batches, ack one by one; so many wait, or are leased."""

    def once() -> tuple[int, int]:
        config = LeaseConfig(dispatcher=DispatcherConfig(window=WINDOW, max_in_flight_per_consumer=WINDOW))
        queue = LeaseQueue(HashRing(), config)
        queue.add_consumer("c1")
        started = process_time_ns()
        lived = 0
        for offset, key in enumerate(keys):
            queue.offer(offset, key, now_ms=offset // PER_MS)
            if offset >= waiting and offset % batch == 0:
                lived += work(queue, batch)
        return process_time_ns() - started, lived

    return once


def work(queue: LeaseQueue, batch: int) -> int:
    """Lease a batch and ack all of it."""
    lease = queue.consume("c1", batch).result
    assert isinstance(lease, Lease)
    for offset, lease_id in lease.handles:
        queue.ack(offset, lease_id)
    return len(lease.handles)


def run(scale: Scale) -> list[Report]:
    report = Report(
        "leases",
        ("unique ns", "unique ratio", "hot ns", "hot ratio"),
        [
            "offer, lease and ack of one message, one consumer; ratios to offer and ack of the dispatcher",
            f"{WAITING:,} messages wait; unique keys, and 100 hot ones",
        ],
    )
    count, repeats = scale.size(COUNT), scale.repeats(REPEATS)
    loads = {"unique": unique_keys(count), "hot": hot_keys(count)}
    waiting = scale.size(WAITING)
    cases: dict[tuple[str, str], Timed] = {}
    for load, keys in loads.items():
        cases["dispatcher", load] = dispatcher_lives(keys, waiting)
        for batch in BATCHES:
            cases[f"consume {batch}", load] = lease_lives(keys, waiting, batch)
    found = turns(cases, repeats)
    for case in dict.fromkeys(case for case, _ in cases):
        ratios = {load: found[case, load] / found["dispatcher", load] for load in loads}
        report.add(case, found[case, "unique"], ratios["unique"], found[case, "hot"], ratios["hot"])
    for load in loads:
        report.judge(
            f"consume 10 / dispatcher, {load}", found["consume 10", load] / found["dispatcher", load], LIFE_BOUND
        )
    return [report]
