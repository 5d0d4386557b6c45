"""A member that dies of one message: ``python -m tests.killed BOOTSTRAP GROUP TOPIC``."""

import os
import signal
import sys
from typing import Any

from keyshared_kafka import ParallelConsumer, RetryPolicy

REDELIVERIES = 3


def main(bootstrap: str, group: str, topic: str) -> None:
    def handle(message: Any) -> None:
        if message.value() == b"killer":
            os.kill(os.getpid(), signal.SIGKILL)

    options = {"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest", "log_level": 0}
    retries = RetryPolicy(max_redeliveries=REDELIVERIES, base_delay_ms=20)
    ParallelConsumer(options, [topic], handle, retries=retries, dead_letters=topic + ".dead").run()


if __name__ == "__main__":
    main(*sys.argv[1:])
