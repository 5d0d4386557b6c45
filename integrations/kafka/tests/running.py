"""A consumer that runs while a test looks at it."""

import threading
import time
from collections.abc import Callable
from typing import Self

from keyshared_kafka import ParallelConsumer


def until(is_so: Callable[[], bool], within_s: float = 30) -> None:
    end = time.monotonic() + within_s
    while not is_so():
        assert time.monotonic() < end, "it did not come to that in time"
        time.sleep(0.02)


class Running:
    """A consumer in a thread, stopped at the end of the block."""

    def __init__(self, consumer: ParallelConsumer) -> None:
        self.consumer = consumer
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        try:
            self.consumer.run()
        except BaseException as error:  # noqa: BLE001 - the test looks at it
            self.error = error

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.consumer.stop()
        self._thread.join(30)
        assert not self._thread.is_alive()

    def wait(self) -> None:
        self._thread.join(30)
