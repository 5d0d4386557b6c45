"""What the kit finds in NATS JetStream, with nats-py alone."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import nats
from examples.subjects.servers import nats_address


def two_workers_have_a_subject_at_once() -> None:
    """A consumer that workers share hands out messages one by one, whatever their subject."""

    async def run(streams: Any) -> None:
        await streams.add_consumer("alone", durable_name="workers", ack_policy="explicit")
        one = await streams.pull_subscribe("alone.customer-7", durable="workers")
        other = await streams.pull_subscribe("alone.customer-7", durable="workers")
        (first,), (second,) = await one.fetch(1, timeout=60), await other.fetch(1, timeout=60)
        assert (first.data, second.data) == (b"0", b"1")

    _with_stream(run)


def a_late_ack_ends_what_another_worker_has() -> None:
    """An ack names a delivery in its subject; the server counts the ack of an earlier one all the same."""

    async def run(streams: Any) -> None:
        await streams.add_consumer(
            "alone", durable_name="workers", ack_policy="explicit", ack_wait=1, max_ack_pending=1
        )
        one = await streams.pull_subscribe("alone.customer-7", durable="workers")
        other = await streams.pull_subscribe("alone.customer-7", durable="workers")
        (slow,) = await one.fetch(1, timeout=60)
        (quick,) = await other.fetch(1, timeout=60)  # comes when the second of AckWait is over
        assert slow.data == quick.data == b"0"
        assert (slow.metadata.num_delivered, quick.metadata.num_delivered) == (1, 2)
        await slow.ack_sync(timeout=60)
        (newer,) = await one.fetch(1, timeout=60)
        assert newer.data == b"1"  # while the other worker is at work on 0

    _with_stream(run)


def _with_stream(run: Callable[[Any], Awaitable[None]]) -> None:
    async def main() -> None:
        client = await nats.connect(nats_address())
        streams = client.jetstream()
        await streams.add_stream(name="alone", subjects=["alone.*"], storage="memory")
        try:
            for body in (b"0", b"1"):
                await streams.publish("alone.customer-7", body)
            await run(streams)
        finally:
            await streams.delete_stream("alone")
            await client.close()

    asyncio.run(main())
