"""One contestant of bench_transports, in a process of its own: ``python -m benchmarks._transports JSON``.

All of them get the same messages. A message's value is how many milliseconds its handler takes; ``0`` returns at once
and ``-1`` does not return. Each writes down when a handler has ended, and stops when that has happened often enough.
Standard output then gets one line of JSON: the processor time of this process, and for each end the time, the
partition and the offset.
"""

import asyncio
import json
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path
from queue import Queue
from typing import Any, Final, NamedTuple
from zlib import crc32

from confluent_kafka import Consumer

POLL: Final = 1_000
LANE: Final = 100  # messages in the queue of a lane


class Task(NamedTuple):
    """What a contestant is to do.

    Attributes:
        contestant: A name in ``CONTESTANTS``.
        bootstrap: Of the cluster.
        group: Its group, new.
        topic: The messages.
        messages: How many ends there are to be.
        workers: Handlers at once.
        is_empty: Whether handlers do nothing but note their end.
        diary: File to note ends in as well.
        keeps: Whether ends are kept, or only counted.
    """

    contestant: str
    bootstrap: str
    group: str
    topic: str
    messages: int
    workers: int
    is_empty: bool = False
    diary: str = ""
    keeps: bool = True


class Ends:
    """When handlers have ended, and that all have."""

    def __init__(self, task: Task) -> None:
        self.seen: list[tuple[float, int, int]] = []
        self._messages = task.messages
        self._keeps = task.keeps
        self._counts = count(1)
        self._all = threading.Event()
        self.rss_kb: list[int] = []
        self._file = os.open(task.diary, os.O_WRONLY | os.O_APPEND | os.O_CREAT) if task.diary else None

    def note(self, partition: int, offset: int) -> None:
        now, number = time.monotonic(), next(self._counts)
        if self._keeps:
            self.seen.append((now, partition, offset))
        if self._file is not None:
            os.write(self._file, f"{now} {partition}/{offset}\n".encode())
        if number % max(1, self._messages // 5) == 0:
            self.rss_kb.append(_rss_kb())
        if number == self._messages:
            self._all.set()

    def wait(self) -> None:
        self._all.wait()


def _rss_kb() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") // 1024


def handler(task: Task, ends: Ends) -> Callable[[Any], None]:
    if task.is_empty:
        return lambda message: ends.note(message.partition(), message.offset())

    def handle(message: Any) -> None:
        _sleep(int(message.value()))
        ends.note(message.partition(), message.offset())

    return handle


def _sleep(took_ms: int) -> None:
    if took_ms:
        time.sleep(took_ms / 1_000 if took_ms > 0 else 10**6)


async def _sleep_in_loop(took_ms: int) -> None:
    if took_ms:
        await asyncio.sleep(took_ms / 1_000 if took_ms > 0 else 10**6)


def options(task: Task, **more: Any) -> dict[str, Any]:
    return {
        "bootstrap.servers": task.bootstrap,
        "group.id": task.group,
        "auto.offset.reset": "earliest",
        "log_level": 0,
        **more,
    }


def sequential(task: Task, ends: Ends) -> None:
    """One handler after another."""
    handle = handler(task, ends)
    _poll(task, ends, lambda messages: [handle(message) for message in messages])


def by_partition(task: Task, ends: Ends) -> None:
    """One thread for each partition."""
    _lanes(task, ends, 4, lambda message: message.partition())


def lanes(task: Task, ends: Ends) -> None:
    """As many threads as workers, a key always in the same: what everybody writes by hand."""
    _lanes(task, ends, task.workers, lambda message: crc32(message.key()))


def _lanes(task: Task, ends: Ends, many: int, number: Callable[[Any], int]) -> None:
    handle = handler(task, ends)
    queues: list[Queue[Any]] = [Queue(LANE) for _ in range(many)]

    def work(queue: Queue[Any]) -> None:
        while True:
            handle(queue.get())

    for queue in queues:
        threading.Thread(target=work, args=(queue,), daemon=True).start()

    def take(messages: list[Any]) -> None:
        for message in messages:
            queues[number(message) % many].put(message)

    _poll(task, ends, take)


def _poll(task: Task, ends: Ends, take: Callable[[list[Any]], object]) -> None:
    """Poll as these programs do: the client commits what was read every second, done or not."""
    consumer = Consumer(options(task, **{"auto.commit.interval.ms": 1_000}))
    consumer.subscribe([task.topic])

    def read() -> None:
        while True:
            take(consumer.consume(POLL, 0.1))

    threading.Thread(target=read, daemon=True).start()
    ends.wait()


def pyrallel(task: Task, ends: Ends, limit: int | None = None) -> None:
    """The other one for Python, as it comes, or with the limit that suits it best."""
    from pyrallel_consumer import PyrallelConsumer  # noqa: PLC0415 - a rival that is not always there
    from pyrallel_consumer.config import KafkaConfig  # noqa: PLC0415 - as above

    logging.disable(logging.WARNING)

    async def handle(item: Any) -> None:
        if not task.is_empty:
            await _sleep_in_loop(int(item.payload))
        ends.note(item.tp.partition, item.offset)

    async def live() -> None:
        config = KafkaConfig(BOOTSTRAP_SERVERS=[task.bootstrap], CONSUMER_GROUP=task.group)
        if limit is not None:
            config.parallel_consumer.execution.max_in_flight = limit
        consumer = PyrallelConsumer(config, handle, task.topic)
        await consumer.start()
        await asyncio.to_thread(ends.wait)

    asyncio.run(live())


def pyrallel_limited(task: Task, ends: Ends) -> None:
    pyrallel(task, ends, task.workers)


def ours(task: Task, ends: Ends, handle: Any, **settings: Any) -> None:
    from keyshared_kafka import ParallelConsumer  # noqa: PLC0415 - the rivals run without it

    consumer = ParallelConsumer(options(task), [task.topic], handle, workers=task.workers, drain_s=0, **settings)
    threading.Thread(target=consumer.run, daemon=True).start()
    ends.wait()


def in_threads(task: Task, ends: Ends) -> None:
    ours(task, ends, handler(task, ends))


def in_batches(task: Task, ends: Ends) -> None:
    handle = handler(task, ends)

    def handle_all(messages: list[Any]) -> None:
        for message in messages:
            handle(message)

    ours(task, ends, handle_all, batch=50)


def in_tasks(task: Task, ends: Ends) -> None:
    async def handle(message: Any) -> None:
        if not task.is_empty:
            await _sleep_in_loop(int(message.value()))
        ends.note(message.partition(), message.offset())

    ours(task, ends, handle)


def sleep_elsewhere(message: Any) -> None:
    """The handler of processes."""
    _sleep(int(message.value()))


def in_processes(task: Task, ends: Ends) -> None:
    """Ends are noted where the answers come in: what happens in other processes is not seen here."""
    from keyshared_kafka import Hooks  # noqa: PLC0415 - the rivals run without it

    def ended(log: str, offsets: Sequence[int], *_: object) -> None:
        ends.note(int(log.rpartition("-")[2]), offsets[0])

    ours(task, ends, sleep_elsewhere, processes=True, hooks=Hooks(ended=ended))


CONTESTANTS: Final[dict[str, Callable[[Task, Ends], None]]] = {
    "sequential loop": sequential,
    "a thread for each partition": by_partition,
    "crc32 % n lanes": lanes,
    "pyrallel, default": pyrallel,
    "pyrallel, its best limit": pyrallel_limited,
    "keyshared, threads": in_threads,
    "keyshared, batches of 50": in_batches,
    "keyshared, asyncio": in_tasks,
    "keyshared, processes": in_processes,
}


def main(argument: str) -> None:
    task = Task(**json.loads(argument))
    ends = Ends(task)
    began = time.process_time()
    CONTESTANTS[task.contestant](task, ends)
    processor_s = time.process_time() - began
    print(json.dumps({"processor_s": processor_s, "ends": ends.seen, "rss_kb": ends.rss_kb}), flush=True)
    os._exit(0)  # what the rivals leave behind has nothing to say any more


if __name__ == "__main__":
    main(sys.argv[1])
