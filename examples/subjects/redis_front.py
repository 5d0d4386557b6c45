"""Redis Streams behind keyshared's dispatcher: one process reads the group and hands its entries out."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import redis
from examples.subjects.servers import redis_socket

from keyshared.effects import DeadLetter, Dropped, Effect, Settled, Skipped
from keyshared.testing import Claims, Delivery
from keyshared.testing.dispatcher import DispatcherDriver
from keyshared.testing.history import Event, Expired, Released
from keyshared.testing.machine import KeySharedMachine

GROUP = "workers"
FRONT = "front"
LOG = "log"
EPOCH = "epoch"
LATER = "later"  # by offset: before when it is not delivered
ATTEMPTS = 1_000  # more than a message ever has in one life of the front


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

    def notices(self) -> Sequence[Event]:
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
    claims = Claims(per_consumer=2, may_dead_letter=True)
    retry_ms = 10
    rest_ms = 100
