"""A Key-Shared broker on threads: one lock around clock, call and enqueue, one thread that applies effects."""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from queue import Empty, SimpleQueue
from threading import Event, Lock, Thread

from keyshared import DispatcherConfig, HashRing, KeySharedDispatcher
from keyshared.effects import CursorAdvanced, DeadLetter, Deliver, Effect, Load, Resumed


class Broker:
    def __init__(
        self, log: Sequence[tuple[str, object]], config: DispatcherConfig, handler: Callable[[Deliver], None]
    ) -> None:
        self.log, self.handler = log, handler
        self.dispatcher, self.lock = KeySharedDispatcher(HashRing(), config), Lock()
        self.calls: SimpleQueue[list[Effect]] = SimpleQueue()
        self.pools: dict[str, ThreadPoolExecutor] = {}
        self.committed: list[int] = []
        self.dead_letters: list[DeadLetter] = []
        self.notices: list[Effect] = []
        self.room, self.finished, self.clock = Event(), False, 0

    def call(self, method: Callable[..., list[Effect]], *args: object, not_before: int = 0) -> None:
        with self.lock:  # clock, call and enqueue in one piece: effects queue up in the order of the calls
            self.clock = max(self.clock, not_before, time.monotonic_ns() // 1_000_000)
            self.calls.put(method(*args, now_ms=self.clock))  # an empty list too: the deadline may be a new one

    def pump(self) -> None:
        while not self.finished:
            with self.lock:
                due = self.dispatcher.next_deadline_ms()
            wait = None if due is None else max(0, due - time.monotonic_ns() // 1_000_000) / 1000
            if due is not None and wait == 0:
                self.call(self.dispatcher.handle_timeout, not_before=due)
            try:
                effects = self.calls.get(timeout=wait)
            except Empty:
                continue
            for effect in effects:
                with self.lock:
                    current = self.dispatcher.is_current(effect)
                if current:  # ignore an effect that was overtaken while it was queued
                    self.apply(effect)

    def apply(self, effect: Effect) -> None:
        match effect:
            case Deliver():
                self.pools[effect.consumer].submit(self.work, effect)
            case DeadLetter():
                self.dead_letters.append(effect)  # a real store is written here, and only then confirmed
                self.call(self.dispatcher.dead_lettered, effect.offset)
            case Load():
                self.call(self.dispatcher.loaded, effect.offset, self.log[effect.offset][1])
            case CursorAdvanced():
                self.committed.append(effect.safe_cursor)
                self.finished = effect.safe_cursor == len(self.log) - 1
            case Resumed():
                self.room.set()
            case _:
                self.notices.append(effect)  # for logs and metrics; apply_effects.py names every kind

    def read(self) -> None:
        for offset, (key, value) in enumerate(self.log):
            while self.is_full():
                self.room.wait()
            self.call(self.dispatcher.offer, offset, key, value)

    def is_full(self) -> bool:
        self.room.clear()  # cleared before looking, so that no Resumed is overlooked
        with self.lock:
            return self.dispatcher.free_slots == 0

    def work(self, delivery: Deliver) -> None:
        try:
            self.handler(delivery)
        except Exception:  # noqa: BLE001 - whatever it is, the message was not processed
            self.call(self.dispatcher.nack, *delivery.receipt)
        else:
            self.call(self.dispatcher.ack, *delivery.receipt)

    def run(self, consumers: Sequence[str]) -> None:
        """Serve until everything in the log is settled; each consumer works on four messages at a time."""
        for name in consumers:
            self.pools[name] = ThreadPoolExecutor(max_workers=4)
            self.call(self.dispatcher.add_consumer, name)
        reader = Thread(target=self.read)
        reader.start()
        self.pump()
        reader.join()
        for pool in self.pools.values():
            pool.shutdown()


if __name__ == "__main__":
    broker = Broker(
        [(f"order-{n % 5}", n) for n in range(50)], DispatcherConfig(window=10), lambda _: time.sleep(0.001)
    )
    broker.run(["c1", "c2"])
    print(f"{len(broker.log)} messages settled, committed up to {broker.committed[-1]}")
