"""The library's lease queue and window with one fault each: what their drivers have to show."""

from typing import Any, NamedTuple

from tests.broken import (
    AckThroughSkipsOne,
    FirstDeliveryIsEarly,
    NeverGivesUp,
    NewerPassesThePostponed,
    NewestKeyFirst,
    PostponedGoesAtOnce,
)
from tests.kit.own_machines import (
    BatchingDriver,
    BatchingMachine,
    BatchingQueueMachine,
    DispatcherMachine,
    LatestQueueMachine,
    LeaseQueueMachine,
    TableQueueMachine,
    TellingQueueMachine,
    WindowMachine,
)
from tests.kit.window_driver import WindowDriver

from keyshared.config import Rules
from keyshared.effects import Done, Ignored
from keyshared.leases import InvalidHandle, LeaseAnswer, LeaseQueue, NothingToLease, Reservation
from keyshared.placement import Placement
from keyshared.testing import Promise
from keyshared.testing.dispatcher import DispatcherDriver
from keyshared.testing.machine import KeySharedMachine
from keyshared.testing.steps import Restart
from keyshared.window import Entry, InFlightWindow

__all__ = ["OWN_FAULTS", "OwnFault"]


class OwnFault(NamedTuple):
    """A machine of a broken part of the library, and the promises that it breaks: one of them shows first."""

    machine: type[KeySharedMachine]
    promises: frozenset[Promise]


class TakesOldLeases(LeaseQueue):
    """An ack names a message: one of a lease that has ended settles what somebody else has leased since."""

    def ack(
        self, offset: int, lease_id: int, *, now_ms: int | None = None
    ) -> LeaseAnswer[InvalidHandle | None, object]:
        current = next((lease.id for lease in self.leases() if offset in lease.offsets), lease_id)
        return super().ack(offset, current, now_ms=now_ms)


class StealsWork(LeaseQueue):
    """Who has nothing to do gets what belongs to another."""

    def reserve(
        self, consumer: str, most: int = 1, *, per_key: int | None = None, now_ms: int | None = None
    ) -> LeaseAnswer[Reservation | NothingToLease, object]:
        reserved = super().reserve(consumer, most, per_key=per_key, now_ms=now_ms)
        for other in self.stats().consumers if isinstance(reserved.result, NothingToLease) else ():
            stolen = super().reserve(other, most)
            if isinstance(stolen.result, Reservation):
                return LeaseAnswer(stolen.result, reserved.effects + stolen.effects)
        return reserved


class TrimsOneTooFar(LeaseQueue):
    """The trim cursor takes the lowest outstanding message along."""

    @property
    def resume_offset(self) -> int | None:
        resume_offset = super().resume_offset
        return None if resume_offset is None else resume_offset + 1


class TellsOnlyOfAnswers(LeaseQueue):
    """Says of what consumers settle that it is done, and forgets what ends in the dead-letter store."""

    def dead_lettered(self, offset: int, *, now_ms: int | None = None) -> LeaseAnswer[Ignored | None, object]:
        result, effects = super().dead_lettered(offset, now_ms=now_ms)
        return LeaseAnswer(result, [effect for effect in effects if not isinstance(effect, Done)])


class BeginsTheSameEpochAnew(LeaseQueue):
    """Leases of every life of a queue have the same ids."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{**kwargs, "epoch": 0})


class LeasesASecondBatch(LeaseQueue):
    """What comes later of a key is leased beside a batch that is not full, or not done."""

    def _begin(self, placement: Placement, rules: Rules | None) -> None:
        super()._begin(placement, rules)
        self._machine.window.rule.turn = self.config.dispatcher.batch_per_key


class LeasesAllOfThem(LeaseQueue):
    """Only the latest message of a key counts, and the older ones are leased all the same."""

    def _begin(self, placement: Placement, rules: Rules | None) -> None:
        super()._begin(placement, rules)
        self._machine._has_latest = False


class SettlesWithoutWaking(InFlightWindow):
    """What an ack makes possible waits for the next change."""

    def settle(self, entry: Entry) -> list[Entry]:
        self.remove(entry)
        return []


class _OneLifeQueueMachine(BatchingQueueMachine):
    """The lease queue with batches of a key, without restarts: a restore refuses what a fault leaves behind."""

    untried = frozenset({Restart})


class _OneLifeMachine(DispatcherMachine):
    """The dispatcher without restarts, likewise."""

    untried = frozenset({Restart})


def _queue(
    broken: type[LeaseQueue], *promises: Promise, machine: type[KeySharedMachine] = LeaseQueueMachine
) -> OwnFault:
    return _fault(broken, machine, machine.driver_class, "queue_class", *promises)


def _fault(
    broken: type,
    machine: type[KeySharedMachine],
    driver: type,
    what: str,
    *promises: Promise,
) -> OwnFault:
    operated = type(f"{broken.__name__}Driver", (driver,), {what: broken})
    return OwnFault(type(f"{broken.__name__}Machine", (machine,), {"driver_class": operated}), frozenset(promises))


AN_ACK_IS_LOST = (Promise.WHOLE_BATCH, Promise.NO_LOSS, Promise.PROGRESS, Promise.SAFE_CURSOR, Promise.FENCE)
OWN_FAULTS = (
    _queue(TakesOldLeases, Promise.FENCE),
    _queue(StealsWork, Promise.AFFINITY, Promise.BOUNDS),
    _queue(TrimsOneTooFar, Promise.SAFE_CURSOR),
    _queue(TellsOnlyOfAnswers, Promise.SETTLED_ONCE, machine=TellingQueueMachine),
    _queue(BeginsTheSameEpochAnew, Promise.FENCE, machine=TableQueueMachine),
    _queue(LeasesASecondBatch, Promise.WHOLE_BATCH, Promise.FAIRNESS, machine=_OneLifeQueueMachine),
    _queue(LeasesAllOfThem, Promise.LATEST_ONLY, machine=LatestQueueMachine),
    _fault(NewestKeyFirst, DispatcherMachine, DispatcherDriver, "dispatcher_class", Promise.FAIRNESS),
    _fault(NeverGivesUp, DispatcherMachine, DispatcherDriver, "dispatcher_class", Promise.ATTEMPTS),
    _fault(PostponedGoesAtOnce, DispatcherMachine, DispatcherDriver, "dispatcher_class", Promise.NOT_EARLY),
    _fault(FirstDeliveryIsEarly, DispatcherMachine, DispatcherDriver, "dispatcher_class", Promise.NOT_EARLY),
    _fault(
        NewerPassesThePostponed,
        _OneLifeMachine,
        DispatcherDriver,
        "dispatcher_class",
        Promise.KEY_ORDER,
        Promise.NO_LOSS,
        Promise.PROGRESS,  # where nothing newer comes, nobody wakes what was postponed
    ),
    _fault(AckThroughSkipsOne, BatchingMachine, BatchingDriver, "dispatcher_class", *AN_ACK_IS_LOST),
    _fault(SettlesWithoutWaking, WindowMachine, WindowDriver, "window_class", Promise.PROGRESS),
)
