"""A Key-Shared broker that is asked: consumers pull batches, nothing runs in the background."""

import time
from collections import deque
from collections.abc import Iterator, Sequence
from threading import Lock

from keyshared import DispatcherConfig, HashRing, KeySharedDispatcher
from keyshared.dispatcher import Receipt
from keyshared.effects import CursorAdvanced, DeadLetter, Deliver, Effect, Load


class PullBroker:
    """Every request is one critical section: it reads the clock, calls, and applies the effects before it answers.

    With a limit of 0 the dispatcher never pushes: what may go out waits in the consumer's ready list until a pull.
    """

    def __init__(self, log: Sequence[tuple[str, object]], config: DispatcherConfig) -> None:
        self.log, self.dispatcher, self.lock = log, KeySharedDispatcher(HashRing(), config), Lock()
        self.unread: Iterator[tuple[int, tuple[str, object]]] = iter(enumerate(log))
        self.committed: list[int] = []
        self.dead_letters: list[DeadLetter] = []
        self.notices: list[Effect] = []

    def join(self, consumer: str) -> None:
        with self.lock:
            self._apply(self.dispatcher.add_consumer(consumer, limit=0, now_ms=self._now()))

    def leave(self, consumer: str) -> None:
        """Disconnect a consumer: what it has pulled and not settled goes to the others."""
        with self.lock:
            self._apply(self.dispatcher.remove_consumer(consumer, now_ms=self._now()))

    def pull(self, consumer: str, most: int) -> list[Deliver]:
        with self.lock:
            self._apply(self.dispatcher.handle_timeout(now_ms=self._now()))  # free if nothing is due
            self._read_on()
            batch = self._apply(self.dispatcher.pull(consumer, most))
            if len(batch) < most:  # the payloads that had to be read again are there now
                batch += self._apply(self.dispatcher.pull(consumer, most - len(batch)))
            return batch

    def settle(self, acks: Sequence[Receipt] = (), nacks: Sequence[Receipt] = ()) -> None:
        with self.lock:
            now = self._now()
            self._apply(self.dispatcher.ack_many(acks, now_ms=now))
            for receipt in nacks:
                self._apply(self.dispatcher.nack(*receipt, now_ms=now))

    def done(self) -> bool:
        return self.committed[-1:] == [len(self.log) - 1]

    def _read_on(self) -> None:
        while self.dispatcher.free_slots and (message := next(self.unread, None)):
            offset, (key, value) = message
            self._apply(self.dispatcher.offer(offset, key, value))

    def _apply(self, effects: list[Effect]) -> list[Deliver]:
        """Act on effects in order, those of the answers last; hand back the deliveries."""
        deliveries: list[Deliver] = []
        todo = deque(effects)
        while todo:
            match effect := todo.popleft():
                case Deliver():
                    deliveries.append(effect)
                case Load():
                    todo.extend(self.dispatcher.loaded(effect.offset, self.log[effect.offset][1]))
                case DeadLetter():
                    self.dead_letters.append(effect)
                    todo.extend(self.dispatcher.dead_lettered(effect.offset))
                case CursorAdvanced():
                    self.committed.append(effect.safe_cursor)
                case _:
                    self.notices.append(effect)
        return deliveries

    def _now(self) -> int:
        return time.monotonic_ns() // 1_000_000  # read under the lock, so it never goes back


if __name__ == "__main__":
    broker = PullBroker([(f"order-{n % 5}", n) for n in range(50)], DispatcherConfig(window=10))
    broker.join("c1")
    while not broker.done():
        broker.settle(acks=[delivery.receipt for delivery in broker.pull("c1", most=3)])
    print(f"{len(broker.log)} messages settled, committed up to {broker.committed[-1]}")
