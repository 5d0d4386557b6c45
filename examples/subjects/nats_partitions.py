"""NATS JetStream: one durable consumer that workers share, and one for each partition of the subjects.

JetStream's clock cannot be stopped. So AckWait is an hour, and when the kit's time has come the driver naks what nobody
has acked, which puts it where a timeout would: among what is to be delivered again.
"""

import json
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, ClassVar

import nats
from examples.subjects.servers import PARTITIONS, PATIENCE_S, nats_address

from keyshared.testing import AsyncDriver, Claims, Delivery, Promise
from keyshared.testing.machine import KeySharedMachine
from keyshared.testing.steps import LATE_ANSWERS

ACK_WAIT_MS = 100
ONE_NOW = json.dumps({"batch": 1, "no_wait": True}).encode()
ONE_SOON = json.dumps({"batch": 1, "expires": 5_000_000}).encode()  # within nanoseconds
SILENCE_S = 10


class SharedConsumerDriver(AsyncDriver):
    """All workers pull from the same consumers, each message from whichever has one."""

    partitions: ClassVar[Sequence[str]] = ("*",)
    at_once: ClassVar[int] = 1_000  # MaxAckPending: how many messages of a consumer may wait for an ack

    async def open(self) -> None:
        self.client: Any = await nats.connect(nats_address())
        self.streams = self.client.jetstream()
        if "orders" in [each.config.name for each in await self.streams.streams_info()]:
            await self.streams.delete_stream("orders")
        await self.streams.add_stream(name="orders", subjects=["orders.*.*"], storage="memory")
        for number, partition in enumerate(self.partitions):
            limits = {"ack_wait": 3_600, "max_ack_pending": self.at_once, "filter_subject": f"orders.{partition}.*"}
            await self.streams.add_consumer("orders", durable_name=f"c{number}", ack_policy="explicit", **limits)
        self.now = 0
        self.pending: dict[int, tuple[int, Any]] = {}  # until when what nobody has acked is waited for

    async def connect(self, consumer: str, filters: Sequence[str] = ()) -> None: ...

    async def disconnect(self, consumer: str) -> None:
        """The process dies: what it had is waited for until its time is over."""

    async def publish(self, key: bytes | None) -> int:
        return int((await self.streams.publish(f"orders.k{(key or b'').hex()}", b"")).seq)

    async def receive(self, consumer: str) -> Sequence[Delivery]:  # JetStream does not know who asks
        new = []
        for number in range(len(self.partitions)):
            # Asked at its limit not to wait, the server would not answer at all.
            is_full = (await self.streams.consumer_info("orders", f"c{number}")).num_ack_pending >= self.at_once
            asked = f"$JS.API.CONSUMER.MSG.NEXT.orders.c{number}"
            message = await (self._ask_soon(asked) if is_full else self._ask(asked, ONE_NOW, old_style=True))
            if message.reply:  # else it says that there is none
                about = message.metadata
                offset, key = about.sequence.stream, bytes.fromhex(message.subject.split(".")[2][1:])
                self.pending[offset] = (self.now + ACK_WAIT_MS, message)
                new.append(Delivery(offset, key, about.num_delivered, message))
        return new

    async def ack(self, consumer: str, delivery: Delivery) -> bool | None:  # as above
        before = await self._unacked()
        await self._ask(delivery.token.reply, b"+ACK")  # type: ignore[attr-defined]
        self._forget(delivery)
        return await self._unacked() < before

    async def nack(self, consumer: str, delivery: Delivery) -> bool | None:  # as above
        await self._ask(delivery.token.reply, b"-NAK")  # type: ignore[attr-defined]
        self._forget(delivery)
        return None  # JetStream confirms whatever is said

    async def advance(self, ms: int) -> None:
        self.now += ms
        for offset, (until_ms, message) in sorted(self.pending.items()):
            if until_ms <= self.now:
                del self.pending[offset]
                await self._ask(message.reply, b"-NAK")

    async def close(self) -> None:
        await self.client.close()

    async def _ask(self, subject: str, what: bytes, *, old_style: bool = False) -> Any:  # as nats-py
        return await self.client.request(subject, what, timeout=PATIENCE_S, old_style=old_style)

    async def _ask_soon(self, subject: str) -> Any:  # as above
        """Once in thousands of times such a request expires without an answer. It is over then, so ask again."""
        for _ in range(int(PATIENCE_S // SILENCE_S)):
            with suppress(nats.errors.TimeoutError):
                return await self.client.request(subject, ONE_SOON, timeout=SILENCE_S, old_style=True)
        raise nats.errors.TimeoutError

    async def _unacked(self) -> int:
        infos = [await self.streams.consumer_info("orders", f"c{number}") for number in range(len(self.partitions))]
        return sum(info.num_ack_pending + info.num_pending for info in infos)

    def _forget(self, delivery: Delivery) -> None:
        if delivery.offset in self.pending and self.pending[delivery.offset][1] is delivery.token:
            del self.pending[delivery.offset]


class SharedConsumerMachine(KeySharedMachine):
    """The shared pull consumer of the manual, asked for an order of keys that nobody promises."""

    driver_class = SharedConsumerDriver
    untried = LATE_ANSWERS
    claims = Claims(promises={Promise.ONE_HOLDER, Promise.KEY_ORDER, Promise.NO_LOSS}, ack_timeout_ms=ACK_WAIT_MS)
    rest_ms = ACK_WAIT_MS


class PartitionDriver(SharedConsumerDriver):
    """A consumer for each partition with MaxAckPending 1: one message of a partition is with a worker at a time."""

    partitions = tuple(str(number) for number in range(PARTITIONS))
    at_once = 1


class PartitionMachine(SharedConsumerMachine):
    """The claims that MaxAckPending 1 makes for a partition."""

    driver_class = PartitionDriver


class LateAckMachine(KeySharedMachine):
    """The same, asked whether a late ack counts while another worker has the message."""

    driver_class = PartitionDriver
    claims = Claims(promises={Promise.FENCE}, ack_timeout_ms=ACK_WAIT_MS)
    rest_ms = ACK_WAIT_MS
