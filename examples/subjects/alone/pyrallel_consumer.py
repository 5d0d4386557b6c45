"""What the kit finds in pyrallel-consumer, with pyrallel-consumer alone, on a broker."""

import asyncio
from collections import Counter
from itertools import count
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from examples.subjects.servers import tansu_address
from pyrallel_consumer.config import KafkaConfig
from pyrallel_consumer.consumer import PyrallelConsumer

PATIENCE_S = 90
KEYS = 8
TOPICS = count()


def a_key_has_two_handlers_after_a_rebalance() -> None:
    """A handler is at work while a second consumer joins the group: another handler of its key begins."""
    asyncio.run(_run())


async def _run() -> None:
    topic = f"orders-{next(TOPICS)}"
    admin = AdminClient({"bootstrap.servers": tansu_address()})
    admin.create_topics([NewTopic(topic, 4, 1)])[topic].result(PATIENCE_S)
    producer = Producer({"bootstrap.servers": tansu_address()})
    for number in range(KEYS):
        producer.produce(topic, key=f"customer-{number}", value=b"")
    assert producer.flush(PATIENCE_S) == 0
    at_work: Counter[bytes] = Counter()
    all_begun, twice, may_end = (asyncio.Event() for _ in range(3))

    async def handle(item: Any) -> None:
        at_work[item.key] += 1
        if len(at_work) == KEYS:
            all_begun.set()
        if at_work[item.key] == 2:
            twice.set()
        try:
            await may_end.wait()
        finally:
            at_work[item.key] -= 1

    config = KafkaConfig()
    config.BOOTSTRAP_SERVERS = [tansu_address()]
    config.SESSION_TIMEOUT_MS = 6_000
    config.parallel_consumer.execution.async_config.task_timeout_ms = 1_000 * PATIENCE_S  # no handler takes too long
    first, second = (PyrallelConsumer(config, handle, topic) for _ in range(2))
    async with asyncio.timeout(PATIENCE_S):
        await first.start()
        await all_begun.wait()
        assert set(at_work.values()) == {1}
        await second.start()
        await twice.wait()
    may_end.set()
    await asyncio.gather(first.stop(), second.stop(), return_exceptions=True)
