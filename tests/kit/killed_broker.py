"""The driver of a broker in a process of its own, which is killed in the middle of what it does."""

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import ClassVar

from tests.kit import file_broker
from tests.kit.file_broker import FileBroker
from tests.kit.process import Process

from keyshared.testing import Claims, Delivery, Driver, Promise
from keyshared.testing.driver import AnyDriver
from keyshared.testing.machine import KeySharedMachine


class KilledDriver(Driver):
    """Operates the process of a broker, and kills it."""

    broker_class: ClassVar[type[FileBroker]] = FileBroker

    def __init__(self) -> None:
        self.folder = TemporaryDirectory()
        self.start()

    def start(self) -> None:
        path = str(Path(self.folder.name, "log"))
        self.process = Process(file_broker.__file__, self.broker_class.__name__, path)

    def connect(self, consumer: str, filters: Sequence[str] = ()) -> None: ...

    def disconnect(self, consumer: str) -> None:
        self.process.ask("leave", consumer)

    def publish(self, key: bytes | None) -> int:
        return int(self.process.ask("publish", (key or b"").hex()))

    def receive(self, consumer: str) -> Sequence[Delivery]:
        answer = self.process.ask("receive", consumer)
        if not answer:
            return []
        offset, key, attempt = answer.split(" ")
        return [Delivery(int(offset), bytes.fromhex(key), int(attempt))]

    def ack(self, consumer: str, delivery: Delivery) -> bool | None:
        return self.process.ask("ack", consumer, delivery.offset, delivery.attempt) == "1"

    def kill_at(self, statement: int) -> None:
        self.process.say("die", statement)

    def restart(self) -> None:
        """End its input: it does what it has begun, or dies in the middle of it. What it holds in memory is lost."""
        self.process.stop()
        self.start()

    def close(self) -> None:
        self.process.stop()
        self.folder.cleanup()


class KilledMachine(KeySharedMachine):
    """What it claims: nothing that was answered for is lost or comes again, also if it is killed."""

    driver_class: ClassVar[type[AnyDriver]] = KilledDriver
    claims = Claims(promises={Promise.ONE_HOLDER, Promise.KEY_ORDER, Promise.NO_LOSS, Promise.FENCE}, per_consumer=1)


def broken(broker: type[FileBroker]) -> type[KilledMachine]:
    """Make the machine that is to find the fault of a broker."""
    driver = type(f"{broker.__name__}Driver", (KilledDriver,), {"broker_class": broker})
    return type(f"{broker.__name__}Machine", (KilledMachine,), {"driver_class": driver})
