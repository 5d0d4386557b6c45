"""Kafka, any number of processes in a group: ``kafka_consumer.py BOOTSTRAP TOPIC``."""

import logging
import sys
import time
from collections.abc import Callable

from confluent_kafka import Message

from keyshared_kafka import ParallelConsumer, Reject


def charge(message: Message) -> None:
    time.sleep(0.05)  # a slow service
    if not message.value().isdigit():
        raise Reject("the amount is no number")
    print(f"{message.key().decode()} {message.value().decode()}\n", end="", flush=True)  # 64 threads: each a whole line


def consume(bootstrap: str, topic: str, handle: Callable[[Message], object] = charge) -> None:
    options = {
        "bootstrap.servers": bootstrap,
        "group.id": "billing",
        "auto.offset.reset": "earliest",
        "session.timeout.ms": 6_000,  # so long after a death the others take over; 45 s if it is not set
    }
    ParallelConsumer(options, [topic], handle, workers=64, retries=5, dead_letters=f"{topic}.dlq", drain_s=10).run()


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")  # who waits, who begins where
    consume(sys.argv[1], sys.argv[2])
