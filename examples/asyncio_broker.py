"""A Key-Shared broker on asyncio: every input goes through `Broker.call`, every effect through one pump."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from keyshared import DispatcherConfig, HashRing, KeySharedDispatcher
from keyshared.effects import CursorAdvanced, DeadLetter, Deliver, Effect, Load, Resumed


class Broker:
    def __init__(self, log: Sequence[tuple[str, object]], config: DispatcherConfig) -> None:
        self.log, self.dispatcher = log, KeySharedDispatcher(HashRing(), config)
        self.effects: asyncio.Queue[Effect] = asyncio.Queue()
        self.inboxes: dict[str, asyncio.Queue[Deliver]] = {}
        self.committed: list[int] = []
        self.dead_letters: list[DeadLetter] = []
        self.notices: list[Effect] = []
        self.room, self.finished = asyncio.Event(), asyncio.Event()
        self.clock, self.timer = 0, asyncio.get_running_loop().call_soon(lambda: None)

    def call(self, method: Callable[..., list[Effect]], *args: object, not_before: int = 0) -> None:
        """Read the clock, call, enqueue: no await in between, so effects queue up in the order of the calls."""
        self.clock = max(self.clock, not_before, time.monotonic_ns() // 1_000_000)
        for effect in method(*args, now_ms=self.clock):
            self.effects.put_nowait(effect)
        self.timer.cancel()
        if (due := self.dispatcher.next_deadline_ms()) is not None:
            on_time = partial(self.call, self.dispatcher.handle_timeout, not_before=due)  # loops may fire early
            self.timer = asyncio.get_running_loop().call_later(max(0, due - self.clock) / 1000, on_time)

    async def pump(self) -> None:
        while True:
            effect = await self.effects.get()
            if self.dispatcher.is_current(effect):  # ignore an effect that was overtaken while it was queued
                await self.apply(effect)

    async def apply(self, effect: Effect) -> None:
        match effect:
            case Deliver():
                self.inboxes[effect.consumer].put_nowait(effect)
            case DeadLetter():
                self.dead_letters.append(effect)  # a real store is awaited here, and only then confirmed
                self.call(self.dispatcher.dead_lettered, effect.offset)
            case Load():
                self.call(self.dispatcher.loaded, effect.offset, self.log[effect.offset][1])
            case CursorAdvanced():
                self.committed.append(effect.safe_cursor)
                if effect.safe_cursor == len(self.log) - 1:
                    self.finished.set()
            case Resumed():
                self.room.set()
            case _:
                self.notices.append(effect)  # for logs and metrics; apply_effects.py names every kind

    async def read(self) -> None:
        for offset, (key, value) in enumerate(self.log):
            while self.dispatcher.free_slots == 0:
                self.room.clear()
                await self.room.wait()
            self.call(self.dispatcher.offer, offset, key, value)

    async def consume(self, name: str, handler: Callable[[Deliver], Awaitable[None]]) -> None:
        while True:
            delivery = await self.inboxes[name].get()
            try:
                await handler(delivery)
            except Exception:  # noqa: BLE001 - whatever it is, the message was not processed
                self.call(self.dispatcher.nack, *delivery.receipt)
            else:
                self.call(self.dispatcher.ack, *delivery.receipt)

    async def run(self, consumers: Sequence[str], handler: Callable[[Deliver], Awaitable[None]]) -> None:
        """Serve until everything in the log is settled; each consumer works on four messages at a time."""
        for name in consumers:
            self.inboxes[name] = asyncio.Queue()
            self.call(self.dispatcher.add_consumer, name)
        async with asyncio.TaskGroup() as group:
            works = [self.consume(name, handler) for name in consumers for _ in range(4)]
            tasks = [group.create_task(work) for work in (self.pump(), self.read(), *works)]
            await self.finished.wait()
            for task in tasks:
                task.cancel()
        self.timer.cancel()


async def main() -> None:
    broker = Broker([(f"order-{n % 5}", n) for n in range(50)], DispatcherConfig(window=10))
    await broker.run(["c1", "c2"], lambda _: asyncio.sleep(0.001))
    print(f"{len(broker.log)} messages settled, committed up to {broker.committed[-1]}")


if __name__ == "__main__":
    asyncio.run(main())
