"""A driver of keyshared's own lease queue: a broker that is asked, under the kit."""

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from tests.leasing import lease_config

from keyshared.effects import DeadLetter, Effect, Load, Released, ReleaseReason
from keyshared.leases.config import LeaseConfig
from keyshared.leases.lease import InvalidHandle, InvalidReservation, LeaseAnswer, NothingToLease
from keyshared.leases.queue import LeaseQueue
from keyshared.ring import HashRing
from keyshared.testing import history as past
from keyshared.testing.dispatcher import owners_told, told_of
from keyshared.testing.driver import Delivery, Driver
from keyshared.testing.history import Event

__all__ = ["LeaseQueueDriver"]


class LeaseQueueDriver(Driver):
    """Operates a `LeaseQueue`, or anything of its surface, with a log beside it; each lease takes both phases.

    The number of a delivery is the id of its lease: that is what fences it.

    Attributes:
        queue_class: What is operated.
        config: Limits, times and policies.
        nack_delay_ms: How long a message waits after a nack.
    """

    queue_class: ClassVar[Any] = LeaseQueue
    nack_delay_ms: ClassVar[int] = 10
    config: ClassVar[LeaseConfig] = lease_config(
        ack_timeout_ms=100,
        max_delivery_attempts=3,
        max_in_flight_per_consumer=2,
        window=32,
        max_tracked=64,
        max_loaded_per_key=2,
        start=0,
    )

    def __init__(self) -> None:
        self.queue = self.queue_class(self.make_placement(), self.config)
        self.log: list[bytes | None] = []
        self.offered = 0
        self.consumers: dict[str, None] = {}
        self.leased: dict[int, int] = {}  # the latest lease of each message
        self.told: list[Event] = []
        self.owners: dict[bytes, str | None] = {}
        self.todo: deque[Effect] = deque()
        self.now = 0
        self.epoch = 0

    def make_placement(self) -> Any:  # whatever the queue takes
        """Make the placement, with nobody in it; None where the whole queue is one line."""
        return None if self.config.dispatcher.ordering_required else HashRing()

    def connect(self, consumer: str, filters: Sequence[str] = ()) -> None:  # noqa: ARG002  # a queue has none
        """Add a consumer that may ask."""
        self._apply(self.queue.add_consumer(consumer))
        self.consumers[consumer] = None

    def disconnect(self, consumer: str) -> None:
        """Leave at once; its leases end."""
        self._apply(self.queue.remove_consumer(consumer))
        del self.consumers[consumer]

    def publish(self, key: bytes | None) -> int:
        """Append to the log; it is offered when there is a slot."""
        self.log.append(key)
        self._apply(LeaseAnswer(None, []))
        return len(self.log) - 1

    def receive(self, consumer: str) -> Sequence[Delivery]:
        """Ask for as much as the consumer may have."""
        return self.receive_some(consumer, self.config.dispatcher.max_in_flight_per_consumer)

    def receive_some(self, consumer: str, most: int) -> Sequence[Delivery]:
        """Ask until there is nothing; what was read again for the consumer can be leased after that."""
        deliveries: list[Delivery] = []
        while len(deliveries) < most:
            reserved, effects = self.queue.reserve(consumer, most - len(deliveries))
            self._apply(LeaseAnswer(None, effects))
            if isinstance(reserved, NothingToLease):
                if any(isinstance(effect, Load) for effect in effects):
                    continue
                break
            deliveries += self.lease(reserved.id)
        return deliveries

    def lease(self, reservation_id: int) -> list[Delivery]:
        """Commit what was reserved. A host that stores leases writes this one down before, or else aborts."""
        lease, effects = self.queue.commit(reservation_id)
        self._apply(LeaseAnswer(None, effects))
        if isinstance(lease, InvalidReservation):
            return []
        self.leased |= dict.fromkeys(lease.offsets, lease.id)
        return [Delivery(message.offset, message.key, lease.id) for message in lease]

    def ack(self, consumer: str, delivery: Delivery) -> bool | None:  # noqa: ARG002  # a handle says it all
        """Settle under the id of the lease."""
        return self._answer(self.queue.ack(delivery.offset, delivery.attempt))

    def nack(self, consumer: str, delivery: Delivery) -> bool | None:  # noqa: ARG002  # likewise
        """Return it under the id of the lease."""
        return self._answer(self.queue.nack(delivery.offset, delivery.attempt, delay_ms=self.nack_delay_ms))

    def advance(self, ms: int) -> None:
        """Pass time in one step."""
        self.now += ms
        self._apply(self.queue.handle_timeout(now_ms=self.now))

    def cursor(self) -> int | None:
        """Return the trim cursor."""
        keep_from: int | None = self.queue.resume_offset
        return keep_from

    def restart(self) -> None:
        """Restore a snapshot; the sessions are lost, so everybody is removed."""
        self.epoch += 1
        placement = None if self.config.dispatcher.ordering_required else self.queue.placement
        items: Mapping[int, object] = dict(enumerate(self.log))
        self.queue = self.queue_class.restore(
            self.queue.snapshot(), placement, self.config, now_ms=self.now, epoch=self.epoch, items=items
        )
        for name in list(self.consumers):
            self.disconnect(name)

    def notices(self) -> Sequence[Event]:
        """Return who owns which key, and what was settled, held or expired."""
        told: list[Event] = []
        if not self.config.dispatcher.ordering_required:  # a line is nobody's until somebody asks
            told += owners_told(self.queue.placement, self.log, self.owners)
        told += self.told
        self.told.clear()
        return told

    def _answer(self, outcome: LeaseAnswer[InvalidHandle | None, Any]) -> bool:
        self._apply(outcome)
        return outcome.result is None

    def _apply(self, outcome: LeaseAnswer[Any, Any]) -> None:
        """Act on the effects of a call, and read on."""
        self.todo += outcome.effects
        while self.todo or (self.offered < len(self.log) and self.queue.free_slots):
            if self.todo:
                self._act(self.todo.popleft())
                continue
            offset = self.offered
            self.offered += 1
            self.todo += self.queue.offer(offset, self.log[offset], offset).effects

    def _act(self, effect: Effect) -> None:
        match effect:
            case Load(offset):
                self.todo += self.queue.loaded(offset, offset).effects
            case DeadLetter(offset):
                self.told.append(past.DeadLettered(offset=offset))  # written; and now it may say that it is settled
                self.todo += self.queue.dead_lettered(offset).effects
            case Released(offset, consumer, _, reason):
                kind = past.Expired if reason is ReleaseReason.ACK_TIMEOUT else past.Released
                self.told.append(kind(offset=offset, consumer=consumer, attempt=self.leased[offset]))
            case _:
                self.told += told_of(effect)
