"""What people use today to handle messages in order by key, beside the runners, in one run.

Each peer gets the same messages and the same handler: (a) one that does nothing, for what a message costs; (b) one that
waits where the key is slow, for how long the others of a skewed log wait. What a peer does not do stands in
the notes. `pyrallel-consumer`, which needs Python 3.12 and Kafka, is measured in bench_transports where it can be had.
"""

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from importlib.metadata import version
from queue import Queue
from time import process_time_ns
from zlib import crc32

from asyncio_keyed_lock import AsyncioKeyedLock
from benchmarks._harness import Report, Scale, Timed, turns

from keyshared.run import AsyncRunner, RunnerConfig, ThreadRunner

MESSAGES = 20_000
KEYS = 1_000
SLOW_KEYS = 3  # of a thousand: an account that is locked, a customer far away
SLOW_S = 0.2
QUICK_S = 0.0005
WORKERS = 16
ROOM = 256  # of each lane's queue
REPEATS = 3
SKEWED_BOUND = 0.5

Log = Sequence[tuple[int, str]]
Handler = Callable[[str], Awaitable[None]]


def log(count: int) -> Log:
    return [(offset, f"customer-{offset * 7919 % KEYS}") for offset in range(count)]


def lane_of(key: str) -> int:
    return crc32(key.encode()) % WORKERS


# coroutines


async def by_runner(messages: Log, handle: Handler) -> None:
    async with AsyncRunner(handle, config=RunnerConfig(workers=WORKERS)) as runner:
        runner.add_log("log", start=0)
        for offset, key in messages:
            await runner.submit("log", offset, key, key)
        await runner.drain()


async def by_lanes(messages: Log, handle: Handler) -> None:
    """Hand each message to the lane of its key's hash: a bounded queue and a worker each."""

    async def work(queue: "asyncio.Queue[str]") -> None:
        while True:
            key = await queue.get()
            await handle(key)
            queue.task_done()

    queues: list[asyncio.Queue[str]] = [asyncio.Queue(ROOM) for _ in range(WORKERS)]
    tasks = [asyncio.create_task(work(queue)) for queue in queues]
    for _, key in messages:
        await queues[lane_of(key)].put(key)
    for queue in queues:
        await queue.join()
    for task in tasks:
        task.cancel()


async def by_lock(messages: Log, handle: Handler) -> None:
    """Start a task for each message, at most so many at once, and let a lock of its key put them in order."""
    lock, room = AsyncioKeyedLock(), asyncio.Semaphore(ROOM)

    async def one(key: str) -> None:
        async with lock(key):
            await handle(key)
        room.release()

    async with asyncio.TaskGroup() as group:
        for _, key in messages:
            await room.acquire()
            group.create_task(one(key))


ASYNC = {"AsyncRunner": by_runner, "crc32 % n lanes": by_lanes, "asyncio-keyed-lock": by_lock}


async def nothing(_: str) -> None:
    """Handle in no time."""


def async_cost(peer: Callable[[Log, Handler], Awaitable[None]], messages: Log) -> Timed:
    def once() -> tuple[int, int]:
        async def main() -> None:
            await peer(messages, nothing)

        started = process_time_ns()
        asyncio.run(main())
        return process_time_ns() - started, len(messages)

    return once


def others_wait(peer: Callable[[Log, Handler], Awaitable[None]], messages: Log) -> Timed:
    """Time until 99 % of the messages of keys that are not slow are done."""
    slow = {f"customer-{number}" for number in range(SLOW_KEYS)}

    def once() -> tuple[int, int]:
        ends: list[float] = []

        async def handle(key: str) -> None:
            await asyncio.sleep(SLOW_S if key in slow else QUICK_S)
            if key not in slow:
                ends.append(time.perf_counter())

        async def main() -> None:
            await peer(messages, handle)

        started = time.perf_counter()
        asyncio.run(main())
        return int((ends[len(ends) * 99 // 100] - started) * 1e9), 1

    return once


# threads


def thread_runner(messages: Log) -> None:
    with ThreadRunner(lambda _: None, config=RunnerConfig(workers=WORKERS)) as runner:
        runner.add_log("log", start=0)
        for offset, key in messages:
            runner.submit("log", offset, key, key)
        runner.drain()


def by_queues(messages: Log, count: int) -> None:
    """Share so many bounded queues among the workers, and put each message where its key's hash says."""

    def work(queue: "Queue[str | None]") -> None:
        while queue.get() is not None:
            pass

    queues: list[Queue[str | None]] = [Queue(ROOM) for _ in range(count)]
    threads = [threading.Thread(target=work, args=(queues[number % count],)) for number in range(WORKERS)]
    for thread in threads:
        thread.start()
    for _, key in messages:
        queues[lane_of(key) % count].put(key)
    for number in range(WORKERS):
        queues[number % count].put(None)
    for thread in threads:
        thread.join()


THREADS: dict[str, Callable[[Log], None]] = {
    "ThreadRunner": thread_runner,
    "crc32 % n lanes": partial(by_queues, count=WORKERS),
    "one queue, no order": partial(by_queues, count=1),  # the least that threads cost
}


def thread_cost(peer: Callable[[Log], None], messages: Log) -> Timed:
    def once() -> tuple[int, int]:
        started = process_time_ns()
        peer(messages)
        return process_time_ns() - started, len(messages)

    return once


def run(scale: Scale) -> list[Report]:
    messages = log(scale.size(MESSAGES))
    lock = f"asyncio-keyed-lock {version('asyncio-keyed-lock')}"
    cost = Report(
        "peers",
        ("us/message", "ratio"),
        [
            f"{len(messages)} messages of {KEYS} keys, {WORKERS} workers, a handler that does nothing; ratio to lanes",
            "lanes: a slow key stops its lane, a failure is lost, no position to restart from",
            f"{lock}: a task for each message; hot keys take all the room; no retry, no position, no drain",
        ],
    )
    for kind, peers in (
        ("asyncio", {name: async_cost(peer, messages) for name, peer in ASYNC.items()}),
        ("threads", {name: thread_cost(peer, messages) for name, peer in THREADS.items()}),
    ):
        found = turns(peers, scale.repeats(REPEATS))
        for name, nanoseconds in found.items():
            cost.add(f"{kind}: {name}", nanoseconds / 1e3, nanoseconds / found["crc32 % n lanes"])
    skewed = Report(
        "peers, slow keys",
        ("ms", "ratio"),
        [
            f"{SLOW_KEYS} of {KEYS} keys take {SLOW_S * 1e3:g} ms, the others {QUICK_S * 1e3:g} ms; wall time",
            "until 99 % of the others are done",
        ],
    )
    few = messages[: len(messages) // 2]
    waits = turns({name: others_wait(peer, few) for name, peer in ASYNC.items()}, scale.repeats(REPEATS))
    for name, nanoseconds in waits.items():
        skewed.add(name, nanoseconds / 1e6, nanoseconds / waits["crc32 % n lanes"])
    ratio = waits["AsyncRunner"] / waits["crc32 % n lanes"]
    skewed.judge("AsyncRunner / lanes, until 99 % of the others are done", ratio, SKEWED_BOUND)
    return [cost, skewed]
