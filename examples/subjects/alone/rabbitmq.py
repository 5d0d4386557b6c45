"""What the kit finds in RabbitMQ, and what it has no step for, with aio-pika alone."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import uuid4

import aio_pika
from aio_pika.exceptions import AMQPConnectionError, ChannelNotFoundEntity
from examples.subjects.servers import rabbit_address


def a_quorum_queue_has_two_active_consumers_after_a_cancel() -> None:
    """A worker cancels and finishes what it has; the next one is handed the next message at once."""

    async def run(old: Any, new: Any, queue: Any) -> None:
        at_old, tag = await _consume(old, queue)
        at_new, _ = await _consume(new, queue)
        await _publish(old, queue, "0", "1")
        await _until(lambda: len(at_old) == 1)
        await queue.cancel(tag)
        await _until(lambda: len(at_new) == 1)
        assert (at_old[0].body, at_new[0].body) == (b"0", b"1")
        assert not at_old[0].processed  # the first one is at work still

    _with_two_channels(run, "quorum")


def a_crash_after_a_cancel_puts_messages_out_of_order() -> None:
    """The same worker dies before it has finished: its message comes back behind a newer one."""

    async def run(old: Any, new: Any, queue: Any) -> None:
        at_old, tag = await _consume(old, queue)
        at_new, _ = await _consume(new, queue)
        await _publish(new, queue, "0", "1")
        await _until(lambda: len(at_old) == 1)
        await queue.cancel(tag)
        await _until(lambda: len(at_new) == 1)
        await old.close()
        await at_new[0].ack()
        await _until(lambda: len(at_new) == 2)
        assert [each.body for each in at_new] == [b"1", b"0"]

    _with_two_channels(run, "quorum")


def a_classic_queue_stands_still_after_a_cancel_and_dies_of_the_next_message() -> None:
    """A worker cancels and finishes what it has; nobody wakes the next one, and the process of the queue ends."""

    async def run(old: Any, new: Any, queue: Any) -> None:
        at_old, tag = await _consume(old, queue)
        at_new, _ = await _consume(new, queue)
        await _publish(old, queue, "0", "1")
        await _until(lambda: len(at_old) == 1)
        await queue.cancel(tag)
        await at_old[0].ack()
        await asyncio.sleep(1)
        assert at_new == []  # though a message waits, and its worker has nothing to do
        assert await _count(queue) == (1, 1)
        await _publish(old, queue, "2")
        async with asyncio.timeout(60):
            while await _count(queue) != (0, 0):  # its process has ended: it begins anew without them, or not at all
                pass
        assert at_new == []

    _with_two_channels(run, "classic")


def a_new_queue_takes_a_key_away_from_an_old_one() -> None:
    """A queue is bound to a consistent-hash exchange: the next message of a key goes there, and overtakes."""

    async def run(channel: Any, _: Any, first: Any) -> None:
        orders = await channel.declare_exchange("orders-alone", "x-consistent-hash", auto_delete=True)
        await first.bind(orders, routing_key="1")
        keys = [f"customer-{number}" for number in range(100)]
        for key in keys:
            await orders.publish(aio_pika.Message(b"older"), key)
        second = await channel.declare_queue("lane-alone", auto_delete=True)
        await second.bind(orders, routing_key="1")
        for key in keys:
            await orders.publish(aio_pika.Message(b"newer"), key)
        message = await second.get(no_ack=True)
        assert message.body == b"newer"  # while the older one of its key waits in the first queue
        await second.delete(if_unused=False, if_empty=False)

    _with_two_channels(run, "classic")


def _with_two_channels(run: Callable[[Any, Any, Any], Awaitable[None]], queue_type: str) -> None:
    async def main() -> None:
        async with await aio_pika.connect(rabbit_address()) as one, await aio_pika.connect(rabbit_address()) as other:
            old, new = await one.channel(), await other.channel()
            arguments = {"x-single-active-consumer": True, "x-queue-type": queue_type}
            await run(old, new, await old.declare_queue(uuid4().hex, durable=True, arguments=arguments))

    asyncio.run(main())


async def _consume(channel: Any, queue: Any) -> tuple[list[Any], str]:
    messages: list[Any] = []

    async def take(message: Any) -> None:
        messages.append(message)

    await channel.set_qos(prefetch_count=1)
    return messages, await (await channel.get_queue(queue.name, ensure=False)).consume(take)


async def _publish(channel: Any, queue: Any, *bodies: str) -> None:
    for body in bodies:
        await channel.default_exchange.publish(aio_pika.Message(body.encode()), queue.name)


async def _count(queue: Any) -> tuple[int, int]:
    """Return the messages that wait in a queue and its active consumers; none of either if its process is gone."""
    async with await aio_pika.connect(rabbit_address()) as connection:
        try:
            found = await (await connection.channel()).declare_queue(queue.name, passive=True)
        except (AMQPConnectionError, ChannelNotFoundEntity):
            return 0, 0
        return found.declaration_result.message_count, found.declaration_result.consumer_count


async def _until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not is_so():  # noqa: ASYNC110  # a callback of the client makes it so
            await asyncio.sleep(0.01)
