"""A moto server: ``python -m tests.transports.sqs_server PORT``.

When two messages of a group come to light again at once, moto hands out the newer one: it looks at them one by one, and
takes the newer one for hidden when it looks at the older one. SQS does not. So what is visible again is told first.
"""

import sys
import time
from threading import Lock
from typing import Any

from moto.server import main
from moto.sqs import models
from moto.sqs.models import SQSBackend

one_at_a_time = Lock()
receive = SQSBackend.receive_message


def receive_in_order(
    self: Any, queue_name: str, count: int, wait_seconds_timeout: int, *more: Any, **named: Any
) -> Any:
    until = time.monotonic() + wait_seconds_timeout
    while True:
        with one_at_a_time:
            pending = self.get_queue(queue_name).pending_messages
            pending.difference_update([message for message in pending if message.visible])
            found = receive(self, queue_name, count, 0, *more, **named)
        if found or time.monotonic() > until:
            return found
        time.sleep(0.05)


def one_by_one(name: str) -> None:
    call = getattr(SQSBackend, name)

    def locked(*arguments: Any, **named: Any) -> Any:
        with one_at_a_time:
            return call(*arguments, **named)

    setattr(SQSBackend, name, locked)


if __name__ == "__main__":
    models.unix_time, models.unix_time_millis = time.time, lambda: time.time() * 1_000  # theirs cost half of all time
    SQSBackend.receive_message = receive_in_order
    for each in ("send_message", "delete_message", "change_message_visibility"):
        one_by_one(each)
    main(["-H", "127.0.0.1", "-p", sys.argv[1]])
