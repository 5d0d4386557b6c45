"""One member of the crash runs: ``python -m tests.worker BOOTSTRAP GROUP TOPIC DIARY STRATEGY KIND SLOW_S``."""

import asyncio
import os
import sys
import time
from collections.abc import Iterator
from multiprocessing import parent_process
from pathlib import Path
from typing import Any

from keyshared_kafka import ParallelConsumer, PartlyDone, Reject, RetryLater, RetryPolicy

SESSION_MS = 4_000  # the mock lets a group wait for 3 s before its first assignment, and counts them
DIARY = "KEYSHARED_DIARY"
SLOW_S = "KEYSHARED_SLOW_S"


def note(what: str, value: str) -> None:
    """Write a line under the number of the member, also in a process that it has started for its handlers."""
    parent = parent_process()
    file = os.open(os.environ[DIARY], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, f"{what} {os.getpid() if parent is None else parent.pid} {value}\n".encode())
    os.close(file)


def is_first(number: int) -> bool:
    """Return whether no process has tried this message before: one that fails in each of them would be given up."""
    tried = Path(os.environ[DIARY] + ".tried")
    tried.mkdir(exist_ok=True)
    try:
        tried.joinpath(str(number)).touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def steps(message: Any) -> Iterator[float]:
    """Handle a message; yield how long to sleep."""
    value, slow_s = message.value().decode(), float(os.environ[SLOW_S])
    number = int(value.split("/")[1])
    note("start", value)
    yield slow_s or (0.2 if number % 401 == 7 else 0.01)
    if not slow_s and (number % 23 == 3 or number % 37 == 5) and is_first(number):
        note("fail", value)
        raise ValueError(value) if number % 23 == 3 else RetryLater(20)
    if number % 97 == 11:
        note("reject", value)
        raise Reject(value)
    note("end", value)


def handle(message: Any) -> None:
    for seconds in steps(message):
        time.sleep(seconds)


def handle_all(messages: list[Any]) -> None:
    for done, message in enumerate(messages):
        try:
            handle(message)
        except Exception as error:
            raise PartlyDone(done, error) from error


async def handle_in_loop(message: Any) -> None:
    for seconds in steps(message):
        await asyncio.sleep(seconds)


KINDS: dict[str, dict[str, Any]] = {
    "threads": {"handle": handle},
    "batches": {"handle": handle_all, "batch": 20},
    "asyncio": {"handle": handle_in_loop},
    "processes": {"handle": handle, "processes": True, "workers": 8},
}


def main(bootstrap: str, group: str, topic: str, diary: str, *how: str) -> None:
    strategy, kind, slow_s = how
    os.environ |= {DIARY: diary, SLOW_S: slow_s}
    drain_s = 30 if float(slow_s) else 5
    options = {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "auto.offset.reset": "earliest",
        "session.timeout.ms": SESSION_MS,
        "heartbeat.interval.ms": 200,
        "max.poll.interval.ms": 1_000 * (drain_s + 5),  # so long tansu waits for a member that dies in a rebalance
        "partition.assignment.strategy": strategy,
        "log_level": 0,
    }
    settings: dict[str, Any] = {"workers": 16, "drain_s": drain_s, "commit_every_s": 0.05}
    settings |= {"retries": RetryPolicy(base_delay_ms=20), "dead_letters": f"{topic}.dead"}
    ParallelConsumer(options, [topic], **{**settings, **KINDS[kind]}).run()
    note("left", "-")


if __name__ == "__main__":
    main(*sys.argv[1:])
