"""A FastAPI service that consumes Kafka, and ends with its consumer: ``kafka_service.py BOOTSTRAP TOPIC PORT``."""

import asyncio
import logging
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import uvicorn
from confluent_kafka import Message
from examples.transports.operator_door import door
from fastapi import FastAPI

from keyshared_kafka import ParallelConsumer


async def charge(message: Message) -> None:
    print("charged", int(message.value()), flush=True)  # no number: tried again, and at last the consumer stops


def service(bootstrap: str, topic: str, handle: Callable[[Message], Awaitable[object]] = charge) -> FastAPI:
    options = {"bootstrap.servers": bootstrap, "group.id": "billing", "auto.offset.reset": "earliest"}
    consumer = ParallelConsumer(options, [topic], handle, workers=200, retries=2)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        consuming = asyncio.create_task(consumer.run_async())
        consuming.add_done_callback(lambda _: signal.raise_signal(signal.SIGTERM))  # the service ends with its consumer
        yield
        consumer.stop()
        await consuming  # raises the error that has stopped it

    app = FastAPI(lifespan=lifespan)
    app.mount("/operator", door(consumer, consumer.metrics))
    return app


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    uvicorn.run(service(sys.argv[1], sys.argv[2]), port=int(sys.argv[3]))
