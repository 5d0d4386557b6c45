"""RabbitMQ, one process at a time on a queue, the others stand by: ``rabbitmq.py AMQP_URL QUEUE``."""

import asyncio
import sys
from collections.abc import Awaitable, Callable

from aio_pika import ExchangeType, Message, connect  # no connect_robust: it goes on with what others have by now
from aio_pika.abc import AbstractIncomingMessage as Incoming

from keyshared.run import AsyncRunner, DeadLetter, Reject, RunnerConfig

CONFIG = RunnerConfig(workers=100, window=1_000, timeout_ms=60_000)


async def charge(message: Incoming) -> None:
    if not message.body.isdigit():
        raise Reject("the amount is no number")
    print("charged", int(message.body), flush=True)


async def serve(url: str, name: str, handle: Callable[[Incoming], Awaitable[object]]) -> None:
    async with await connect(url) as connection, connection.channel(on_return_raises=True) as channel:
        await channel.set_qos(CONFIG.window)
        dead = await channel.declare_exchange(f"{name}.dead", ExchangeType.FANOUT, durable=True)
        await (await channel.declare_queue(f"{name}.dead", durable=True)).bind(dead)
        queue = await channel.declare_queue(name, durable=True, arguments={"x-single-active-consumer": True})

        async def work(message: Incoming) -> None:
            await handle(message)
            await message.ack()  # the next message of its key begins after this

        async def give_up(letter: DeadLetter[Incoming]) -> None:
            headers = {**letter.message.headers, "x-error": repr(letter.error)}
            await dead.publish(Message(letter.message.body, headers=headers, delivery_mode=2), name)
            await letter.message.ack()  # the broker has confirmed the letter

        inbox: asyncio.Queue[Incoming | None] = asyncio.Queue()
        channel.close_callbacks.add(lambda *_: inbox.put_nowait(None))
        runner = AsyncRunner(work, dead_letter=give_up, config=CONFIG)
        async with runner.stopping_on_signals():  # SIGTERM: what has begun ends and is acked; another one gets the rest
            runner.add_log(name)
            await queue.consume(inbox.put)  # and never cancel it: the next process would begin beside handlers here
            while (message := await inbox.get()) is not None:
                await runner.submit(name, message.delivery_tag, message.headers.get("key"), message)
            raise ConnectionError("the broker is gone; what was not acked comes again")


def consume(url: str, name: str, handle: Callable[[Incoming], Awaitable[object]] = charge) -> None:
    asyncio.run(serve(url, name, handle))


if __name__ == "__main__":
    consume(sys.argv[1], sys.argv[2])
