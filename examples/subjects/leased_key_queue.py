"""leasedkeyq, a queue in memory for asyncio: leases of keyed items, with the policies for a key that is in flight."""

from collections import Counter
from collections.abc import Sequence
from typing import Any, ClassVar, Literal

from leasedkeyq import InvalidLeaseError, LeaseAlreadyAcknowledgedError, LeasedKeyQueue

from keyshared.testing import AsyncDriver, Claims, Delivery, Promise
from keyshared.testing.history import Event, Settled, SettledBy
from keyshared.testing.machine import KeySharedMachine


class UpdateDriver(AsyncDriver):
    """A consumer leases one item. A put of a leased key updates the item (`update`, the default)."""

    policy: ClassVar[Literal["update", "buffer"]] = "update"

    async def open(self) -> None:
        self.queue: Any = LeasedKeyQueue[bytes, int]()
        self.published = 0
        self.attempts: Counter[int] = Counter()
        self.leased: dict[str, Delivery] = {}
        self.replaced: list[int] = []

    async def connect(self, consumer: str, filters: Sequence[str] = ()) -> None: ...

    async def disconnect(self, consumer: str) -> None:
        """The consumer ends, and releases what it has."""
        if consumer in self.leased:
            await self.queue.release(self.leased.pop(consumer).token, requeue_front=True)

    async def publish(self, key: bytes | None) -> int:
        older = await self.queue.peek(key)
        if older is not None:
            self.replaced.append(older)  # a key has one item that is available: a newer value replaces it
        await self.queue.put(key, self.published, if_in_flight=self.policy)
        self.published += 1
        return self.published - 1

    async def receive(self, consumer: str) -> Sequence[Delivery]:
        if consumer in self.leased or not await self.queue.qsize():
            return []
        key, offset, lease = await self.queue.get()
        self.attempts[offset] += 1
        self.leased[consumer] = Delivery(offset, key, self.attempts[offset], lease)
        return [self.leased[consumer]]

    async def ack(self, consumer: str, delivery: Delivery) -> bool | None:
        try:
            await self.queue.ack(delivery.token)
        except (InvalidLeaseError, LeaseAlreadyAcknowledgedError):
            return False
        del self.leased[consumer]
        return True

    async def nack(self, consumer: str, delivery: Delivery) -> bool | None:
        try:
            await self.queue.release(delivery.token, requeue_front=True)
        except (InvalidLeaseError, LeaseAlreadyAcknowledgedError):
            return False
        del self.leased[consumer]
        return True

    async def notices(self) -> Sequence[Event]:
        replaced, self.replaced = self.replaced, []
        return [Settled(offset=offset, reason=SettledBy.SUPERSEDED) for offset in replaced]


class BufferDriver(UpdateDriver):
    """The same; a put of a leased key makes a second item (`buffer`)."""

    policy = "buffer"


class UpdateMachine(KeySharedMachine):
    """Leases that exclude each other."""

    driver_class = UpdateDriver
    claims = Claims(promises={Promise.ONE_HOLDER, Promise.FENCE})


class BufferMachine(KeySharedMachine):
    """Leases that exclude each other, and no item is lost."""

    driver_class = BufferDriver
    claims = Claims(promises={Promise.ONE_HOLDER, Promise.NO_LOSS}, latest_only=True)
