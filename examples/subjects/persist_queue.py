"""persist-queue's ``SQLiteAckQueue``: a FIFO queue on disk, of threads that ack and nack."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from persistqueue import Empty, SQLiteAckQueue

from keyshared.testing import Claims, Delivery, Driver, Promise
from keyshared.testing.machine import KeySharedMachine
from keyshared.testing.steps import LATE_ANSWERS


class AckQueueDriver(Driver):
    """Threads of one process share a queue; each has one item in hand. An answer names the item by its id."""

    def __init__(self) -> None:
        self.folder = TemporaryDirectory()
        self.attempts: Counter[int] = Counter()
        self.in_hand: dict[str, int | None] = {}
        self.queue = self._open()

    def connect(self, consumer: str, filters: Sequence[str] = ()) -> None:  # takes no filters
        self.in_hand[consumer] = None

    def disconnect(self, consumer: str) -> None:
        """The thread ends, and hands back what it had."""
        item = self.in_hand.pop(consumer)
        if item is not None:
            self.queue.nack(id=item)

    def publish(self, key: bytes | None) -> int:
        return int(self.queue.put(key or b""))

    def receive(self, consumer: str) -> Sequence[Delivery]:
        if self.in_hand[consumer] is not None:
            return []
        try:
            item = self.queue.get(block=False, raw=True)
        except Empty:
            return []
        offset = self.in_hand[consumer] = int(item["pqid"])
        self.attempts[offset] += 1
        return [Delivery(offset, item["data"], self.attempts[offset])]

    def ack(self, consumer: str, delivery: Delivery) -> bool | None:
        self.queue.ack(id=delivery.offset)
        return self._let_go(consumer, delivery)

    def nack(self, consumer: str, delivery: Delivery) -> bool | None:
        self.queue.nack(id=delivery.offset)
        return self._let_go(consumer, delivery)

    def restart(self) -> None:
        """The process dies; the next one opens the same file."""
        self.in_hand.clear()
        self.queue.close()
        self.queue = self._open()

    def close(self) -> None:
        self.queue.close()
        self.folder.cleanup()

    def _open(self) -> Any:  # the library has no types
        return SQLiteAckQueue(str(Path(self.folder.name)), multithreading=True)

    def _let_go(self, consumer: str, delivery: Delivery) -> bool | None:
        """Return whether that was the end of the delivery: the queue answers the same in any case."""
        if self.in_hand.get(consumer) != delivery.offset or self.attempts[delivery.offset] != delivery.attempt:
            return None
        self.in_hand[consumer] = None
        return True


class OneThreadMachine(KeySharedMachine):
    """One thread, and the order of the whole queue, which is what FIFO says."""

    driver_class = AckQueueDriver
    untried = LATE_ANSWERS
    max_consumers = 1
    claims = Claims(promises={Promise.KEY_ORDER, Promise.NO_LOSS}, total_order=True)


class ThreadsMachine(KeySharedMachine):
    """Three threads, asked to have an item of a key in one hand at a time."""

    driver_class = AckQueueDriver
    untried = LATE_ANSWERS
    claims = Claims(promises={Promise.ONE_HOLDER, Promise.KEY_ORDER, Promise.NO_LOSS})


class LateAnswerMachine(KeySharedMachine):
    """One thread that answers again for what it has acked or handed back."""

    driver_class = AckQueueDriver
    max_consumers = 1
    claims = Claims(promises={Promise.FENCE, Promise.ONE_HOLDER}, total_order=True)
