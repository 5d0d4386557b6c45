"""What the kit finds in leasedkeyq with ``if_in_flight="buffer"``, with leasedkeyq alone."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from leasedkeyq import LeasedKeyQueue


def the_second_lease_of_a_key_cannot_be_acked() -> None:
    """An item is put while its key is leased: it is leased too, and its lease does not end."""

    async def run(queue: Any, lease: Any) -> None:
        _, item, second = await queue.get()
        assert item == "newer"
        await queue.ack(lease)
        with pytest.raises(KeyError):
            await queue.ack(second)

    asyncio.run(_with_both_items(run))


def a_released_item_is_gone() -> None:
    """Its lease is released while a newer item of its key waits."""

    async def run(queue: Any, lease: Any) -> None:
        await queue.release(lease, requeue_front=True)
        assert await queue.qsize() == 1
        assert (await queue.get())[1] == "newer"

    asyncio.run(_with_both_items(run))


async def _with_both_items(run: Callable[[Any, Any], Awaitable[None]]) -> None:
    queue: Any = LeasedKeyQueue()
    await queue.put("order-7", "older")
    _, _, lease = await queue.get()
    await queue.put("order-7", "newer", if_in_flight="buffer")
    await run(queue, lease)
