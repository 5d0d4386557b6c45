"""What the library itself offers as the kit tries it: each machine claims what its setting promises."""

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

from tests.kit.asked_broker import AskedMachine, GroupedMachine
from tests.kit.jittery_broker import JitteryMachine
from tests.kit.later_broker import LaterMachine
from tests.kit.lease_driver import LeaseQueueDriver
from tests.kit.mortal_broker import MortalMachine
from tests.kit.small_broker import SmallMachine
from tests.kit.window_driver import WindowDriver
from tests.leasing import with_settings

from keyshared.config import KeySessions, OnEvict, Poison
from keyshared.effects import Done, Effect
from keyshared.leases import LeaseAnswer, Reservation
from keyshared.ring import HashRing
from keyshared.router import KeyRouter
from keyshared.testing import Claims, Delivery, Promise
from keyshared.testing import history as h
from keyshared.testing.dispatcher import DispatcherDriver
from keyshared.testing.draw import KEYS
from keyshared.testing.driver import AnyDriver, Driver
from keyshared.testing.machine import KeySharedMachine
from keyshared.testing.steps import StopReading

__all__ = [
    "MACHINES",
    "BatchingDriver",
    "BatchingMachine",
    "DispatcherMachine",
    "LatestQueueMachine",
    "LeaseQueueMachine",
    "TableQueueMachine",
    "WindowMachine",
]

SHOWN = SmallMachine.claims.promises | {Promise.FAIRNESS, Promise.ATTEMPTS}


class DispatcherMachine(KeySharedMachine):
    """The dispatcher with one delivery of a key at a time, and messages without a key among the others."""

    driver_class: ClassVar[type[AnyDriver]] = DispatcherDriver
    claims = Claims(
        promises=SHOWN, per_consumer=2, fairness=0, max_attempts=3, may_dead_letter=True, cursor_keeps_up=True
    )
    retry_ms = 10
    rest_ms = 100
    keys = (*KEYS, None)


class PipelinedDriver(DispatcherDriver):
    """Two of a key at once, and poison that blocks its key."""

    config = replace(DispatcherDriver.config, max_in_flight_per_key=2, poison=Poison.BLOCK)


class PipelinedMachine(DispatcherMachine):
    """The dispatcher with two deliveries of a key at a time."""

    driver_class = PipelinedDriver
    claims = replace(DispatcherMachine.claims, per_key=2)


class TellingDriver(DispatcherDriver):
    """Says of each message that it is done."""

    config = replace(DispatcherDriver.config, tell_settled=True)


class TellingMachine(DispatcherMachine):
    """The dispatcher that tells its transport how each message ended."""

    driver_class = TellingDriver
    claims = replace(DispatcherMachine.claims, promises=SHOWN | {Promise.SETTLED_ONCE}, tells_done=True)


class BatchingDriver(DispatcherDriver):
    """Two of a key as a batch."""

    config = replace(DispatcherDriver.config, batch_per_key=2)


class BatchingMachine(DispatcherMachine):
    """The dispatcher with batches of a key."""

    driver_class = BatchingDriver
    claims = replace(DispatcherMachine.claims, promises=SHOWN | {Promise.WHOLE_BATCH}, per_key=2, batches=True)


class KeepingDriver(DispatcherDriver):
    """Keeps something for each key, and flushes it when it is asked to."""

    config = replace(DispatcherDriver.config, sessions=KeySessions(flush_ms=None))


class KeepingMachine(DispatcherMachine):
    """The dispatcher with sessions of keys."""

    driver_class = KeepingDriver
    claims = replace(DispatcherMachine.claims, promises=SHOWN | {Promise.ONE_SESSION}, sessions=True)


class LatestDriver(DispatcherDriver):
    """Of each key only the latest message."""

    config = replace(DispatcherDriver.config, latest_only=True)


class LatestMachine(DispatcherMachine):
    """The dispatcher for which only the latest message of a key counts."""

    driver_class = LatestDriver
    claims = replace(DispatcherMachine.claims, promises=SHOWN | {Promise.LATEST_ONLY}, latest_only=True)
    # What lies in an inbox is out, and the history cannot know it.
    untried = frozenset({StopReading})


class TotalOrderDriver(DispatcherDriver):
    """One lane for everything."""

    takes_filters = False
    config = replace(DispatcherDriver.config, ordering_required=True, poison=Poison.BLOCK, on_evict=OnEvict.REDELIVER)


class TotalOrderMachine(DispatcherMachine):
    """The dispatcher with the whole log in order."""

    driver_class = TotalOrderDriver
    claims = replace(DispatcherMachine.claims, total_order=True)


class RouterDriver(Driver):
    """Operates a `KeyRouter`: no acks count and nothing is tracked, so it can claim only where messages go."""

    def __init__(self) -> None:
        self.router = KeyRouter(HashRing())
        self.inboxes: dict[str, list[Delivery]] = {}
        self.length = 0

    def connect(self, consumer: str, filters: Sequence[str] = ()) -> None:
        """Join."""
        self.inboxes[consumer] = []
        self.router.add_consumer(consumer, filters=filters)

    def disconnect(self, consumer: str) -> None:
        """Leave, with everything unread."""
        self.router.remove_consumer(consumer)
        del self.inboxes[consumer]

    def publish(self, key: bytes | None) -> int:
        """Send it where it goes now, or drop it."""
        offset = self.length
        self.length += 1
        consumer = self.router.route(key)
        if consumer is not None:
            self.inboxes[consumer].append(Delivery(offset, key))
        return offset

    def receive(self, consumer: str) -> Sequence[Delivery]:
        """Empty the inbox."""
        deliveries, self.inboxes[consumer] = self.inboxes[consumer], []
        return deliveries

    def ack(self, consumer: str, delivery: Delivery) -> bool | None:  # noqa: ARG002  # nobody listens
        """Do nothing."""
        return None


class RouterMachine(KeySharedMachine):
    """The router, which promises nothing but where messages go."""

    driver_class = RouterDriver
    claims = Claims(promises={Promise.AFFINITY, Promise.MINIMAL_MOVE})


class LeaseQueueMachine(DispatcherMachine):
    """The lease queue, asked for as much as each consumer may have."""

    driver_class = LeaseQueueDriver


class AbortingDriver(LeaseQueueDriver):
    """Gives everything back once before it leases it: as if the write of the lease had failed."""

    def receive(self, consumer: str) -> Sequence[Delivery]:
        reserved, effects = self.queue.reserve(consumer, 1)
        self._apply(LeaseAnswer(None, effects))
        if isinstance(reserved, Reservation):
            self._apply(self.queue.abort(reserved.id))
        return super().receive(consumer)


class AbortingMachine(LeaseQueueMachine):
    """The lease queue of a host whose writes fail half of the time."""

    driver_class = AbortingDriver
    claims = replace(LeaseQueueMachine.claims, fairness=None)  # what is given back has lost its place


class LineDriver(LeaseQueueDriver):
    """One line for whoever asks first."""

    config = with_settings(LeaseQueueDriver.config, ordering_required=True, poison=Poison.BLOCK)


class LineMachine(LeaseQueueMachine):
    """The lease queue with the whole queue in order; nobody owns anything."""

    driver_class = LineDriver
    claims = replace(
        LeaseQueueMachine.claims,
        promises=SHOWN - {Promise.AFFINITY, Promise.MINIMAL_MOVE},
        total_order=True,
    )


class TellingQueueDriver(LeaseQueueDriver):
    """Says of each message that it is done."""

    config = with_settings(LeaseQueueDriver.config, tell_settled=True)


class TellingQueueMachine(LeaseQueueMachine):
    """The lease queue that tells its transport how each message ended."""

    driver_class = TellingQueueDriver
    claims = replace(LeaseQueueMachine.claims, promises=SHOWN | {Promise.SETTLED_ONCE}, tells_done=True)


class TableQueueDriver(TellingQueueDriver):
    """Keeps a table of messages and no snapshot: a row goes when its message is done."""

    def __init__(self) -> None:
        super().__init__()
        self.done: set[int] = set()

    def restart(self) -> None:
        """Begin anew with the rows that are left, in order; nobody knows who had what."""
        self.epoch += 1
        for lease in self.queue.leases():
            self.told += [h.Released(offset=each, consumer=lease.consumer, attempt=lease.id) for each in lease.offsets]
        config = with_settings(self.config, start=self.queue.resume_offset)
        self.queue = self.queue_class(self.make_placement(), config, epoch=self.epoch)
        self.consumers.clear()
        for offset in range(self.offered):
            if offset not in self.done:
                self.todo += self.queue.offer(offset, self.log[offset], offset, now_ms=self.now).effects
        self._apply(LeaseAnswer(None, []))

    def _act(self, effect: Effect) -> None:
        if isinstance(effect, Done):
            self.done.add(effect.offset)
        super()._act(effect)


class TableQueueMachine(LeaseQueueMachine):
    """The lease queue of a host that keeps messages and an epoch, and nothing else."""

    driver_class = TableQueueDriver
    claims = replace(
        LeaseQueueMachine.claims,
        promises=(SHOWN | {Promise.SETTLED_ONCE}) - {Promise.ATTEMPTS},  # deliveries are counted anew
        max_attempts=None,
        cursor_keeps_up=False,  # a row that went above the cursor is a gap: the next new message shows how far it goes
        tells_done=True,
    )


class BatchingQueueDriver(LeaseQueueDriver):
    """Two of a key as a batch."""

    config = with_settings(LeaseQueueDriver.config, batch_per_key=2)


class BatchingQueueMachine(LeaseQueueMachine):
    """The lease queue with batches of a key."""

    driver_class = BatchingQueueDriver
    claims = replace(LeaseQueueMachine.claims, promises=SHOWN | {Promise.WHOLE_BATCH}, per_key=2, batches=True)


class LatestQueueDriver(LeaseQueueDriver):
    """Of each key only the latest message."""

    config = with_settings(LeaseQueueDriver.config, latest_only=True)


class LatestQueueMachine(LeaseQueueMachine):
    """The lease queue for which only the latest message of a key counts."""

    driver_class = LatestQueueDriver
    claims = replace(LeaseQueueMachine.claims, promises=SHOWN | {Promise.LATEST_ONLY}, latest_only=True)


class WindowMachine(DispatcherMachine):
    """The bare window, with retries around it and nothing stored but its cursor."""

    driver_class = WindowDriver
    claims = replace(DispatcherMachine.claims, max_attempts=None)  # how often to retry is its host's affair


class PipelinedWindowDriver(WindowDriver):
    """Two of a key at once."""

    per_key = 2


class PipelinedWindowMachine(WindowMachine):
    """The bare window with two deliveries of a key at a time."""

    driver_class = PipelinedWindowDriver
    claims = replace(WindowMachine.claims, per_key=2)


MACHINES = (
    SmallMachine,
    LaterMachine,
    JitteryMachine,
    MortalMachine,
    AskedMachine,
    GroupedMachine,
    DispatcherMachine,
    PipelinedMachine,
    TellingMachine,
    BatchingMachine,
    KeepingMachine,
    LatestMachine,
    TotalOrderMachine,
    RouterMachine,
    LeaseQueueMachine,
    AbortingMachine,
    LineMachine,
    TellingQueueMachine,
    TableQueueMachine,
    BatchingQueueMachine,
    LatestQueueMachine,
    WindowMachine,
    PipelinedWindowMachine,
)
