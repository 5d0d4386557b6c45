"""A member whose first message is never done: ``python -m tests.hanging BOOTSTRAP GROUP TOPIC``."""

import sys
import time
from typing import Any

from keyshared_kafka import ParallelConsumer


def main(bootstrap: str, group: str, topic: str) -> None:
    def handle(message: Any) -> None:
        if message.value() == b"head":
            time.sleep(10**6)

    options = {"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest", "log_level": 0}
    ParallelConsumer(options, [topic], handle).run()


if __name__ == "__main__":
    main(*sys.argv[1:])
