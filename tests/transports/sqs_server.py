"""A moto server: ``python -m tests.transports.sqs_server PORT``.

When two messages of a group come to light again at once, moto hands out the newer one: it looks at them one by one, and
takes the newer one for hidden when it looks at the older one. SQS does not. So what is visible again is told first.
"""

import sys
import time
from collections.abc import Callable
from threading import Lock
from typing import Any

ONE_AT_A_TIME = Lock()


def in_order(receive: Callable[..., Any]) -> Callable[..., Any]:
    def receive_in_order(self: Any, name: str, count: int, wait_s: int, *more: Any, **named: Any) -> Any:
        until = time.monotonic() + wait_s
        while True:
            with ONE_AT_A_TIME:
                pending = self.get_queue(name).pending_messages
                pending.difference_update([message for message in pending if message.visible])
                found = receive(self, name, count, 0, *more, **named)
            if found or time.monotonic() > until:
                return found
            time.sleep(0.05)

    return receive_in_order


def one_by_one(call: Callable[..., Any]) -> Callable[..., Any]:
    def locked(*arguments: Any, **named: Any) -> Any:
        with ONE_AT_A_TIME:
            return call(*arguments, **named)

    return locked


def main(port: str) -> None:
    from moto import server  # noqa: PLC0415  # only here it is sure to be installed
    from moto.sqs import models  # noqa: PLC0415  # as above

    backend = models.SQSBackend
    models.unix_time, models.unix_time_millis = time.time, lambda: time.time() * 1_000  # theirs cost half of all time
    backend.receive_message = in_order(backend.receive_message)
    for name in ("send_message", "delete_message", "change_message_visibility"):
        setattr(backend, name, one_by_one(getattr(backend, name)))
    server.main(["-H", "127.0.0.1", "-p", port])


if __name__ == "__main__":
    main(sys.argv[1])
