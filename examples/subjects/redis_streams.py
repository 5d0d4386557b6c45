"""Redis Streams with one consumer group, as the tutorials use it: XREADGROUP, XACK, and XAUTOCLAIM for what is idle."""

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar
from zlib import crc32

import redis
from examples.subjects.servers import redis_socket

from keyshared.testing import Claims, Delivery, Driver, Promise
from keyshared.testing.machine import KeySharedMachine

GROUP = "workers"
CLAIM_AFTER_MS = 100
# The kit's clock stands still between steps, Redis' does not: a millisecond of the kit is a second there, so that what
# passes in between does not matter.
IDLE_MS_PER_MS = 1_000

ORDERED = frozenset({Promise.ONE_HOLDER, Promise.KEY_ORDER, Promise.NO_LOSS})


class GroupDriver(Driver):
    """One stream, one group, a few consumers: each reads one entry, acks it, and claims what others have left idle."""

    lanes: ClassVar[int] = 1

    def __init__(self) -> None:
        self.redis: Any = redis.Redis(unix_socket_path=redis_socket())
        self.redis.flushall()
        for lane in range(self.lanes):
            self.redis.xgroup_create(stream_of(lane), GROUP, id="0", mkstream=True)
        self.offsets: dict[tuple[str, bytes], int] = {}
        self.length = 0
        self.members: list[str] = []

    def connect(self, consumer: str, filters: Sequence[str] = ()) -> None:  # takes no filters
        self.members = sorted([*self.members, consumer])

    def disconnect(self, consumer: str) -> None:
        """The process dies. Redis notices nothing: its entries stay pending until somebody claims them."""
        self.members.remove(consumer)

    def publish(self, key: bytes | None) -> int:
        stream = stream_of(crc32(key or b"") % self.lanes)
        entry_id = self.redis.xadd(stream, {"key": key or b""})
        offset = self.length
        self.offsets[stream, entry_id] = offset
        self.length += 1
        return offset

    def receive(self, consumer: str) -> Sequence[Delivery]:
        return [delivery for lane in self.lanes_of(consumer) for delivery in self.read(stream_of(lane), consumer)]

    def lanes_of(self, consumer: str) -> Sequence[int]:  # here everybody reads everything
        """Return the streams that a consumer reads."""
        return range(self.lanes)

    def ack(self, consumer: str, delivery: Delivery) -> bool | None:  # XACK does not ask who acks
        stream, entry_id = _token(delivery)
        return bool(self.redis.xack(stream, GROUP, entry_id))

    def advance(self, ms: int) -> None:
        """Age everything that is pending: XCLAIM to its own consumer can set how long an entry was idle."""
        for lane in range(self.lanes):
            stream = stream_of(lane)
            for entry in self.pending(stream):
                idle = entry["time_since_delivered"] + ms * IDLE_MS_PER_MS
                self.redis.xclaim(
                    stream, GROUP, entry["consumer"], 0, [entry["message_id"]], idle=idle, justid=True, force=True
                )

    def close(self) -> None:
        self.redis.close()

    def read(self, stream: str, consumer: str) -> Iterator[Delivery]:
        """Claim what is idle for too long; if the consumer then has nothing in hand, read the next entry."""
        idle = CLAIM_AFTER_MS * IDLE_MS_PER_MS
        claimed = self.redis.xautoclaim(stream, GROUP, consumer, idle, start_id="0-0", count=1)[1]
        in_hand = [entry for entry in self.pending(stream) if entry["consumer"] == consumer.encode()]
        new = [] if claimed or in_hand else self.redis.xreadgroup(GROUP, consumer, {stream: ">"}, count=1)
        for entry_id, fields in [*claimed, *(entry for _, entries in new for entry in entries)]:
            pending = self.redis.xpending_range(stream, GROUP, entry_id, entry_id, 1)[0]
            offset = self.offsets[stream, entry_id]
            yield Delivery(offset, fields[b"key"], pending["times_delivered"], (stream, entry_id))

    def pending(self, stream: str) -> Any:  # as redis-py answers
        return self.redis.xpending_range(stream, GROUP, "-", "+", 1_000)


class GroupMachine(KeySharedMachine):
    """What the tutorials' group promises if one reads it as Key-Shared."""

    driver_class = GroupDriver
    claims = Claims(promises=ORDERED, ack_timeout_ms=CLAIM_AFTER_MS)
    rest_ms = CLAIM_AFTER_MS


class LateAckMachine(GroupMachine):
    """The same group, asked whether a late ack can end what another consumer has in hand by now."""

    claims = Claims(promises={Promise.FENCE}, ack_timeout_ms=CLAIM_AFTER_MS)


def stream_of(lane: int) -> str:
    return f"log-{lane}"


def _token(delivery: Delivery) -> tuple[str, bytes]:
    assert isinstance(delivery.token, tuple)
    stream, entry_id = delivery.token
    return stream, entry_id
