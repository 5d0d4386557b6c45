"""RabbitMQ: queues with a single active consumer behind a consistent-hash exchange."""

from collections import Counter
from collections.abc import Sequence
from itertools import count
from typing import Any

import aio_pika
from aio_pika.exceptions import ChannelInvalidStateError, MessageProcessError
from examples.subjects.servers import rabbit_address

from keyshared.testing import AsyncDriver, Claims, Delivery, Promise
from keyshared.testing.machine import KeySharedMachine

LANES = 2
MOST_LANES = 4


class LaneDriver(AsyncDriver):
    """Two queues share the keys. Every worker consumes both, with one message of each in hand; one is active."""

    async def open(self) -> None:
        self.publisher: Any = await aio_pika.connect(rabbit_address())
        self.main = await self.publisher.channel()
        await self.main.exchange_delete("orders")
        self.orders = await self.main.declare_exchange("orders", "x-consistent-hash", durable=True)
        self.offsets = count()
        self.attempts: Counter[int] = Counter()
        self.connections: dict[str, Any] = {}
        self.channels: dict[str, dict[str, Any]] = {}  # by worker and queue
        self.inboxes: dict[str, list[Delivery]] = {}
        self.lanes: list[str] = []
        for _ in range(LANES):
            await self.add_lane()

    async def add_lane(self) -> None:
        """Begin with an empty queue, and let it have its share of the keys."""
        name = f"lane-{len(self.lanes)}"
        await self.main.queue_delete(name)
        arguments = {"x-single-active-consumer": True}
        queue = await self.main.declare_queue(name, durable=True, arguments=arguments)
        await queue.bind(self.orders, routing_key="1")
        self.lanes.append(name)

    async def connect(self, consumer: str, filters: Sequence[str] = ()) -> None:  # takes no filters
        self.connections[consumer] = await aio_pika.connect(rabbit_address())
        self.inboxes[consumer], self.channels[consumer] = [], {}
        for lane in self.lanes:
            await self.consume(consumer, lane)

    async def consume(self, consumer: str, lane: str) -> None:
        """Let a worker take part in a queue, with a channel of its own for that."""

        async def take(message: Any) -> None:  # as aio_pika has it
            offset = int(message.body)
            self.attempts[offset] += 1
            key = bytes.fromhex(message.routing_key)
            self.inboxes[consumer].append(Delivery(offset, key, self.attempts[offset], message))

        channel = self.channels[consumer][lane] = await self.connections[consumer].channel()
        await channel.set_qos(prefetch_count=1)
        await (await channel.get_queue(lane, ensure=False)).consume(take, consumer_tag=consumer)

    async def disconnect(self, consumer: str) -> None:
        """The connection is cut; RabbitMQ puts back what it had."""
        del self.channels[consumer]
        await self.connections.pop(consumer).close()
        for lane in self.lanes:
            while await self.consumers_of(lane) > len(self.channels):
                pass  # it sees that within milliseconds

    async def consumers_of(self, lane: str) -> int:
        """Return how many consumers RabbitMQ counts at a queue."""
        return int((await self.main.declare_queue(lane, passive=True)).declaration_result.consumer_count)

    async def publish(self, key: bytes | None) -> int:
        offset = next(self.offsets)
        letter = aio_pika.Message(str(offset).encode())
        await self.orders.publish(letter, routing_key=(key or b"").hex(), mandatory=False)
        return offset

    async def receive(self, consumer: str) -> Sequence[Delivery]:
        for lane, channel in self.channels[consumer].items():
            await self._settle(lane, channel)
        inbox = self.inboxes[consumer]
        new, inbox[:] = list(inbox), []
        return new

    async def ack(self, consumer: str, delivery: Delivery) -> bool | None:
        return await self._answer(consumer, delivery, "ack")

    async def nack(self, consumer: str, delivery: Delivery) -> bool | None:
        return await self._answer(consumer, delivery, "nack")

    async def close(self) -> None:
        for connection in (*self.connections.values(), self.publisher):
            await connection.close()

    async def _answer(self, consumer: str, delivery: Delivery, verb: str) -> bool:
        message: Any = delivery.token
        try:
            await getattr(message, verb)()
        except (ChannelInvalidStateError, MessageProcessError):
            return False  # the client itself refuses
        for lane, channel in self.channels[consumer].items():
            await self._settle(lane, channel)
        return True

    async def _settle(self, lane: str, channel: Any) -> None:  # as aio_pika has it
        """Ask the queue twice, through the channel: what it had to say on that channel is then said."""
        for _ in range(2):
            await channel.declare_queue(lane, passive=True)


class LaneMachine(KeySharedMachine):
    """What the manual says of a single active consumer, for keys that share the queue of their hash."""

    driver_class = LaneDriver
    claims = Claims(promises={Promise.ONE_HOLDER, Promise.KEY_ORDER, Promise.NO_LOSS, Promise.FENCE})


class CancelDriver(LaneDriver):
    """A worker that leaves cancels first, so that nothing new comes, and closes its connection afterwards."""

    async def disconnect(self, consumer: str) -> None:
        for lane, channel in self.channels[consumer].items():
            await (await channel.get_queue(lane, ensure=False)).cancel(consumer)
            for channels in self.channels.values():
                await self._settle(lane, channels[lane])
        await super().disconnect(consumer)


class CancelMachine(LaneMachine):
    """The same claims of workers that leave politely."""

    driver_class = CancelDriver


class GrowingDriver(LaneDriver):
    """With every worker that joins comes one more queue, up to four; all workers consume it."""

    async def connect(self, consumer: str, filters: Sequence[str] = ()) -> None:
        if len(self.lanes) < MOST_LANES:
            await self.add_lane()
            for other in self.channels:
                await self.consume(other, self.lanes[-1])
        await super().connect(consumer, filters)


class GrowingMachine(LaneMachine):
    """Asked whether the order of keys survives when the hash is given more queues."""

    driver_class = GrowingDriver
    claims = Claims(promises={Promise.KEY_ORDER})
