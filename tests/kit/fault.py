"""A fault on purpose: a broker, what it breaks, and where it was seen."""

from typing import NamedTuple

from tests.kit.small_broker import SmallBroker, SmallDriver, SmallMachine

from keyshared.testing import Promise
from keyshared.testing.machine import KeySharedMachine

__all__ = ["Fault"]


class Fault(NamedTuple):
    """A small broker with one fault."""

    broker: type[SmallBroker]
    promise: Promise
    seen_in: str
    or_else: Promise | None = None  # what it breaks too, if the schedule shows that first

    @property
    def promises(self) -> set[Promise]:
        """What may be named: nothing else would be right."""
        return {self.promise, self.or_else or self.promise}

    @property
    def name(self) -> str:
        """Of the broker's class."""
        return self.broker.__name__

    @property
    def machine(self) -> type[KeySharedMachine]:
        """What is to find the fault."""
        driver = type(f"{self.name}Driver", (SmallDriver,), {"broker_class": self.broker})
        return type(f"{self.name}Machine", (SmallMachine,), {"driver_class": driver})
