"""One member of the crash runs: ``python -m tests.worker BOOTSTRAP GROUP TOPIC DIARY STRATEGY BATCH SLOW_S``."""

import os
import sys
import time
from typing import Any

from keyshared_kafka import ParallelConsumer, PartlyDone, Reject, RetryLater, RetryPolicy

SESSION_MS = 4_000  # the mock lets a group wait for 3 s before its first assignment, and counts them


def main(bootstrap: str, group: str, topic: str, diary: str, *how: str) -> None:
    strategy, batch, slow_s = how
    file = os.open(diary, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    tried: set[bytes] = set()

    def note(what: str, value: str) -> None:
        os.write(file, f"{what} {os.getpid()} {value}\n".encode())

    def handle(message: Any) -> None:
        value = message.value().decode()
        number = int(value.split("/")[1])
        note("start", value)
        time.sleep(float(slow_s) or (0.2 if number % 401 == 7 else 0.01))
        is_first = message.value() not in tried and not float(slow_s)
        tried.add(message.value())
        if is_first and number % 23 == 3:
            note("fail", value)
            raise ValueError(value)
        if is_first and number % 37 == 5:
            note("fail", value)
            raise RetryLater(20)
        if number % 97 == 11:
            note("reject", value)
            raise Reject(value)
        note("end", value)

    def handle_all(messages: list[Any]) -> None:
        for done, message in enumerate(messages):
            try:
                handle(message)
            except Exception as error:
                raise PartlyDone(done, error) from error

    ParallelConsumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "session.timeout.ms": SESSION_MS,
            "heartbeat.interval.ms": 200,
            "partition.assignment.strategy": strategy,
            "log_level": 0,
        },
        [topic],
        handle_all if batch else handle,
        workers=16,
        batch=int(batch) if batch else None,
        retries=RetryPolicy(base_delay_ms=20),
        dead_letters=f"{topic}.dead",
        drain_s=30 if float(slow_s) else 5,
        commit_every_s=0.05,
    ).run()
    note("left", "-")


if __name__ == "__main__":
    main(*sys.argv[1:])
