"""pyrallel-consumer, keys of a Kafka partition in parallel: the driver plays the group, and tells of rebalances.

Each member is a whole `PyrallelConsumer`; the driver does what its main loop does, one pass after the other, and stands
in for the client of Kafka. The program without the kit runs everything on a broker. Needs Python 3.12.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from confluent_kafka import TopicPartition
from pyrallel_consumer.config import KafkaConfig
from pyrallel_consumer.consumer import PyrallelConsumer

from keyshared.testing import AsyncDriver, Claims, Delivery, Promise
from keyshared.testing.history import Event, Released
from keyshared.testing.machine import KeySharedMachine

TOPIC = "orders"
logging.getLogger("pyrallel_consumer").setLevel(logging.CRITICAL)  # it warns of each rebalance


class Record(NamedTuple):
    """A message as the client returns it."""

    at: int
    named: bytes

    def topic(self) -> str:
        return TOPIC

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return self.at

    def key(self) -> bytes:
        return self.named

    def value(self) -> bytes:
        return b""

    def error(self) -> None: ...


class Group:
    """Stands in for the client of Kafka, and keeps what is committed."""

    def __init__(self) -> None:
        self.next_offset = 0

    def committed(self, partitions: Sequence[Any], timeout: float) -> Sequence[Any]:
        return [TopicPartition(TOPIC, 0, self.next_offset)]

    def commit(self, offsets: Sequence[Any], asynchronous: bool) -> None:
        self.next_offset = offsets[0].offset


class Member:
    """A consumer of the group, with the handlers that it has begun."""

    def __init__(self, group: Group) -> None:
        self.may_end: dict[int, asyncio.Event] = {}
        self.begun: list[Any] = []
        self.consumer: Any = PyrallelConsumer(KafkaConfig(), self.handle, TOPIC)
        self.poller: Any = self.consumer._poller
        self.poller.consumer = group

    async def handle(self, item: Any) -> None:
        """Handle a message until the kit acks it."""
        self.begun.append((item, event := asyncio.Event()))
        await event.wait()

    def stop(self) -> None:
        """Cancel the handlers."""
        for task in self.consumer._execution_engine._in_flight_tasks:
            task.cancel()

    async def loop_once(self, records: Sequence[Record] = ()) -> None:
        """Do what the main loop of the consumer does with some records."""
        for _ in range(5):  # tasks begin and end meanwhile
            await asyncio.sleep(0)
        await self.poller._make_dispatch_support().dispatch_messages(list(records))
        await self.poller._work_manager.schedule()
        await self.poller._drain_completion_events_once()
        await self.poller._commit_ready_offsets()
        for _ in range(5):
            await asyncio.sleep(0)


class GroupDriver(AsyncDriver):
    """Members of a group share one partition; a rebalance revokes it, and assigns it from the commit on."""

    resumes_at_cursor = True

    async def open(self) -> None:
        self.group = Group()
        self.members: dict[str, Member] = {}
        self.owner: str | None = None
        self.log: list[bytes] = []
        self.position = 0
        self.attempts: Counter[int] = Counter()

    async def connect(self, consumer: str, filters: Sequence[str] = ()) -> None:  # takes no filters
        self.members[consumer] = Member(self.group)
        self._rebalance()

    async def disconnect(self, consumer: str) -> None:
        """The process dies, with its handlers."""
        member = self.members.pop(consumer)
        member.stop()
        self._rebalance()

    async def publish(self, key: bytes | None) -> int:
        self.log.append(key or b"")
        return len(self.log) - 1

    async def receive(self, consumer: str) -> Sequence[Delivery]:
        member = self.members[consumer]
        new = []
        if consumer == self.owner:
            new = [Record(at, self.log[at]) for at in range(self.position, len(self.log))]
            self.position = len(self.log)
        await member.loop_once(new)
        begun, member.begun = member.begun, []
        self.attempts.update(item.offset for item, _ in begun)
        return [Delivery(item.offset, item.key, self.attempts[item.offset], end) for item, end in begun]

    async def ack(self, consumer: str, delivery: Delivery) -> bool | None:
        end: Any = delivery.token
        end.set()
        return None

    async def cursor(self) -> int | None:
        return self.group.next_offset

    def revoke(self, consumer: str, place: Any) -> None:
        """Revoke the partition of a member."""
        self.members[consumer].poller._on_revoke(self.group, [place])

    def _rebalance(self) -> None:
        place = TopicPartition(TOPIC, 0, self.group.next_offset)
        if self.owner in self.members:
            self.revoke(self.owner, place)
        self.owner = min(self.members, default=None)
        self.position = self.group.next_offset
        if self.owner is not None:
            place = TopicPartition(TOPIC, 0, self.group.next_offset)
            self.members[self.owner].poller._on_assign(self.group, [place])


class GroupMachine(KeySharedMachine):
    """Keys in order, one handler each."""

    driver_class = GroupDriver
    claims = Claims(promises={Promise.ONE_HOLDER, Promise.KEY_ORDER, Promise.SAFE_CURSOR, Promise.NO_LOSS})


class StoppingDriver(GroupDriver):
    """The same; when its partition is revoked, a member cancels its handlers first."""

    async def open(self) -> None:
        await super().open()
        self.running: dict[str, list[Delivery]] = {}
        self.stopped: list[Event] = []

    async def receive(self, consumer: str) -> Sequence[Delivery]:
        new = await super().receive(consumer)
        self.running.setdefault(consumer, []).extend(new)
        return new

    def revoke(self, consumer: str, place: Any) -> None:
        for each in self.running.pop(consumer, []):
            end: Any = each.token
            if not end.is_set():
                self.stopped.append(Released(offset=each.offset, consumer=consumer, attempt=each.attempt))
        self.members[consumer].stop()
        super().revoke(consumer, place)

    async def notices(self) -> Sequence[Event]:
        stopped, self.stopped = self.stopped, []
        return stopped


class StoppingMachine(GroupMachine):
    """The same claims."""

    driver_class = StoppingDriver
