"""The library's own dispatcher and router as the kit tries them: each machine claims what its setting promises."""

from dataclasses import replace

from tests.kit.small_broker import SmallMachine

from keyshared.config import OnEvict
from keyshared.retry import Poison
from keyshared.testing import Guarantees, Promise
from keyshared.testing.drivers import DispatcherDriver, RouterDriver
from keyshared.testing.machine import KeySharedMachine
from keyshared.testing.strategies import keys

__all__ = ["MACHINES"]

SHOWN = SmallMachine.guarantees.promises


class DispatcherMachine(KeySharedMachine):
    """The dispatcher with one delivery of a key at a time, and messages without a key among the others."""

    driver_class = DispatcherDriver
    guarantees = Guarantees(promises=SHOWN, per_consumer=2, may_dead_letter=True, cursor_keeps_up=True)
    retry_ms = 10
    rest_ms = 100
    keys = keys(keyless=True)


class PipelinedDriver(DispatcherDriver):
    """Two of a key at once, and poison that blocks its key."""

    config = replace(DispatcherDriver.config, max_in_flight_per_key=2, poison=Poison.BLOCK)


class PipelinedMachine(DispatcherMachine):
    """The dispatcher with two deliveries of a key at a time."""

    driver_class = PipelinedDriver
    guarantees = replace(DispatcherMachine.guarantees, per_key=2)


class TotalOrderDriver(DispatcherDriver):
    """One lane for everything."""

    takes_filters = False
    config = replace(DispatcherDriver.config, ordering_required=True, poison=Poison.BLOCK, on_evict=OnEvict.REDELIVER)


class TotalOrderMachine(DispatcherMachine):
    """The dispatcher with the whole log in order."""

    driver_class = TotalOrderDriver
    guarantees = replace(DispatcherMachine.guarantees, total_order=True)


class RouterMachine(KeySharedMachine):
    """The router, which promises nothing but where messages go."""

    driver_class = RouterDriver
    guarantees = Guarantees(promises={Promise.AFFINITY, Promise.MINIMAL_MOVE})


MACHINES = (SmallMachine, DispatcherMachine, PipelinedMachine, TotalOrderMachine, RouterMachine)
