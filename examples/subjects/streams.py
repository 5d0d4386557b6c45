"""Redis Streams with a consumer group, and three ways to hand a key's messages to one worker at a time."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, ClassVar
from zlib import crc32

import redis
from examples.subjects.servers import redis_socket

from keyshared.effects import DeadLetter, Dropped, Effect, Settled, Skipped
from keyshared.testing import Delivery, Driver, Guarantees, Promise
from keyshared.testing.adapters.dispatcher import DispatcherDriver
from keyshared.testing.history import Expired, Happening, Released
from keyshared.testing.machine import KeySharedMachine

GROUP = "workers"
FRONT = "front"
LOG = "log-0"
EPOCH = "epoch"
LATER = "later"  # by offset: before when it is not delivered
ATTEMPTS = 1_000  # more than a message ever has in one life of the front
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
            self.redis.xgroup_create(_stream(lane), GROUP, id="0", mkstream=True)
        self.offsets: dict[tuple[str, bytes], int] = {}
        self.length = 0
        self.members: list[str] = []
        self.claimed: dict[str, set[str]] = {}

    def connect(self, consumer: str, filters: Sequence[str] = ()) -> None:  # noqa: ARG002  # takes no filters
        self.members = sorted([*self.members, consumer])

    def disconnect(self, consumer: str) -> None:
        """The process dies. Redis notices nothing: its entries stay pending until somebody claims them."""
        self.members.remove(consumer)

    def publish(self, key: bytes | None) -> int:
        stream = _stream(crc32(key or b"") % self.lanes)
        entry_id = self.redis.xadd(stream, {"key": key or b""})
        offset = self.length
        self.offsets[stream, entry_id] = offset
        self.length += 1
        return offset

    def receive(self, consumer: str) -> Sequence[Delivery]:
        return [delivery for lane in self.lanes_of(consumer) for delivery in self._read(_stream(lane), consumer)]

    def lanes_of(self, consumer: str) -> Sequence[int]:  # noqa: ARG002  # here everybody reads everything
        """Return the streams that a consumer reads."""
        return range(self.lanes)

    def ack(self, consumer: str, delivery: Delivery) -> bool | None:  # noqa: ARG002  # XACK does not ask who acks
        stream, entry_id = _token(delivery)
        return bool(self.redis.xack(stream, GROUP, entry_id))

    def advance(self, ms: int) -> None:
        """Age everything that is pending: XCLAIM to its own consumer can set how long an entry was idle."""
        for lane in range(self.lanes):
            stream = _stream(lane)
            for entry in self._pending(stream):
                idle = entry["time_since_delivered"] + ms * IDLE_MS_PER_MS
                self.redis.xclaim(
                    stream, GROUP, entry["consumer"], 0, [entry["message_id"]], idle=idle, justid=True, force=True
                )

    def close(self) -> None:
        self.redis.close()

    def _read(self, stream: str, consumer: str) -> Iterator[Delivery]:
        """Claim what is idle for too long; if the consumer then has nothing in hand, read the next entry."""
        idle = CLAIM_AFTER_MS * IDLE_MS_PER_MS
        claimed = self.redis.xautoclaim(stream, GROUP, consumer, idle, start_id="0-0", count=1)[1]
        in_hand = [entry for entry in self._pending(stream) if entry["consumer"] == consumer.encode()]
        new = [] if claimed or in_hand else self.redis.xreadgroup(GROUP, consumer, {stream: ">"}, count=1)
        for entry_id, fields in [*claimed, *(entry for _, entries in new for entry in entries)]:
            pending = self.redis.xpending_range(stream, GROUP, entry_id, entry_id, 1)[0]
            offset = self.offsets[stream, entry_id]
            yield Delivery(offset, fields[b"key"], pending["times_delivered"], (stream, entry_id))

    def _pending(self, stream: str) -> Any:  # noqa: ANN401  # as redis-py answers
        return self.redis.xpending_range(stream, GROUP, "-", "+", 1_000)


class GroupMachine(KeySharedMachine):
    """What the tutorials' group promises if one reads it as Key-Shared."""

    driver_class = GroupDriver
    guarantees = Guarantees(promises=ORDERED, ack_timeout_ms=CLAIM_AFTER_MS)
    rest_ms = CLAIM_AFTER_MS


class LateAckMachine(GroupMachine):
    """The same group, asked whether a late ack can end what another consumer has in hand by now."""

    guarantees = Guarantees(promises={Promise.FENCE}, ack_timeout_ms=CLAIM_AFTER_MS)


class LaneDriver(GroupDriver):
    """``crc32(key) % 4`` streams, dealt out to the consumers in turn: one lane, one reader, one entry in hand."""

    lanes = 4

    def lanes_of(self, consumer: str) -> Sequence[int]:
        place = self.members.index(consumer)
        return range(place, self.lanes, len(self.members))


class LaneMachine(GroupMachine):
    """The promises of its author."""

    driver_class = LaneDriver


class PatientLaneDriver(LaneDriver):
    """The lanes put right: a new reader waits until nothing of the lane is in other hands, idle entries first."""

    def _read(self, stream: str, consumer: str) -> Iterator[Delivery]:
        idle = CLAIM_AFTER_MS * IDLE_MS_PER_MS
        others = [entry for entry in self._pending(stream) if entry["consumer"] != consumer.encode()]
        if all(entry["time_since_delivered"] >= idle for entry in others):
            yield from super()._read(stream, consumer)


class PatientLaneMachine(GroupMachine):
    """The same claims."""

    driver_class = PatientLaneDriver


class FrontDriver(DispatcherDriver):
    """One process reads the group and has keyshared's dispatcher hand the entries out; what is done is acked in Redis.

    After a crash it reads what is pending once more, with an empty dispatcher: Redis is all that it remembers.
    """

    def __init__(self) -> None:
        super().__init__()
        self.redis: Any = redis.Redis(unix_socket_path=redis_socket())
        self.redis.flushall()
        self.redis.xgroup_create(LOG, GROUP, id="0", mkstream=True)
        self.ids: list[bytes] = []
        self.epoch = self.redis.incr(EPOCH)

    def publish(self, key: bytes | None) -> int:
        """XADD; the front reads at once."""
        offset = len(self.ids)
        self.ids.append(self.redis.xadd(LOG, {"key": key or b""}))
        if offset in self.earliest:
            self._later(offset, self.earliest[offset])
        for _, fields in self._read(">"):
            super().publish(fields[b"key"])
        return offset

    def receive(self, consumer: str) -> Sequence[Delivery]:
        """Number attempts across crashes."""
        return [replace(each, attempt=self._across(each.attempt)) for each in super().receive(consumer)]

    def ack(self, consumer: str, delivery: Delivery) -> bool | None:
        """XACK exactly what the dispatcher counts."""
        here = self._here(delivery)
        if here is None or not super().ack(consumer, here):
            return False
        self._done(delivery.offset)
        return True

    def nack(self, consumer: str, delivery: Delivery) -> bool | None:
        """Nack at the dispatcher; Redis has no nack."""
        here = self._here(delivery)
        return False if here is None else super().nack(consumer, here)

    def postpone(self, consumer: str, delivery: Delivery, ms: int) -> bool | None:
        """Release at the dispatcher, for later; Redis keeps until when."""
        here = self._here(delivery)
        if here is None or not super().postpone(consumer, here, ms):
            return False
        self._later(delivery.offset, self.now + ms)
        return True

    def ack_through(self, consumer: str, delivery: Delivery) -> bool | None:
        """Ack it: nothing else of its key is open."""
        return self.ack(consumer, delivery)

    def cursor(self) -> int | None:
        """Return no cursor: Redis keeps what is pending only."""
        return None

    def restart(self) -> None:
        """Begin with an empty dispatcher and offer it what is pending, not before its time."""
        self.epoch = self.redis.incr(EPOCH)
        self.dispatcher = self.dispatcher_class(self.make_placement(), self.config)
        self.inboxes.clear()
        for entry_id, fields in self._read("0"):
            offset = self.ids.index(entry_id)
            before = self.redis.hget(LATER, offset)
            effects = self.dispatcher.offer(
                offset, fields[b"key"], offset, not_before_ms=before and int(before), now_ms=self.now
            )
            for effect in effects:
                self._act(effect)

    def notices(self) -> Sequence[Happening]:
        """Number attempts here too."""
        return [
            replace(each, attempt=self._across(each.attempt)) if isinstance(each, Expired | Released) else each
            for each in super().notices()
        ]

    def close(self) -> None:
        """Hang up."""
        self.redis.close()

    def _read(self, start: str) -> list[tuple[bytes, dict[bytes, bytes]]]:
        return [entry for _, entries in self.redis.xreadgroup(GROUP, FRONT, {LOG: start}) for entry in entries]

    def _act(self, effect: Effect) -> None:
        match effect:
            case DeadLetter(offset):
                self.redis.xadd("dead-letters", {"offset": offset})
                self._done(offset)
            case Settled(offset) | Dropped(offset) | Skipped(offset):
                self._done(offset)
            case _:
                pass  # nothing of it is in Redis
        super()._act(effect)

    def _later(self, offset: int, at_ms: int) -> None:
        self.redis.hset(LATER, offset, at_ms)

    def _done(self, offset: int) -> None:
        self.redis.xack(LOG, GROUP, self.ids[offset])

    def _across(self, attempt: int | None) -> int:
        assert attempt is not None
        return self.epoch * ATTEMPTS + attempt

    def _here(self, delivery: Delivery) -> Delivery | None:
        """Return the delivery as this dispatcher numbered it; None: an earlier one numbered it."""
        assert delivery.attempt is not None
        epoch, attempt = divmod(delivery.attempt, ATTEMPTS)
        return replace(delivery, attempt=attempt) if epoch == self.epoch else None


class FrontMachine(KeySharedMachine):
    """Everything that the kit can judge, over the same Redis."""

    driver_class = FrontDriver
    guarantees = Guarantees(per_consumer=2, may_dead_letter=True)
    retry_ms = 10
    rest_ms = 100


def _stream(lane: int) -> str:
    return f"log-{lane}"


def _token(delivery: Delivery) -> tuple[str, bytes]:
    assert isinstance(delivery.token, tuple)
    stream, entry_id = delivery.token
    return stream, entry_id
