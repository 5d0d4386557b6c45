"""The driver of a queue that several processes share, each of which is paused (SIGSTOP) in the middle of a receive."""

import os
import signal
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import ClassVar

from tests.kit import shared_file
from tests.kit.process import Process
from tests.kit.shared_file import SharedFile

from keyshared.testing import Claims, Delivery, Driver, Promise
from keyshared.testing.driver import AnyDriver
from keyshared.testing.machine import KeySharedMachine
from keyshared.testing.steps import BeginReceive, Connect, Publish, Schedule

BETWEEN_LOOK_AND_CLAIM: Schedule = (Connect("c1"), Connect("c2"), BeginReceive("c1", 1), Publish(b"a"))


class PausedDriver(Driver):
    """Operates a process for each consumer that receives, and one that does all the rest and is never paused."""

    process_class: ClassVar[type[SharedFile]] = SharedFile

    def __init__(self) -> None:
        self.folder = TemporaryDirectory()
        self.receivers: dict[str, Process] = {}
        self.clerk = self.start()

    def start(self) -> Process:
        return Process(shared_file.__file__, self.process_class.__name__, str(Path(self.folder.name, "queue")))

    def connect(self, consumer: str, filters: Sequence[str] = ()) -> None:  # noqa: ARG002  # it takes none
        self.receivers[consumer] = self.start()

    def disconnect(self, consumer: str) -> None:
        """End its process, and say so in the file."""
        self.receivers.pop(consumer).stop()
        self.clerk.ask("leave", consumer)

    def publish(self, key: bytes | None) -> int:
        return int(self.clerk.ask("publish", (key or b"").hex()))

    def receive(self, consumer: str) -> Sequence[Delivery]:
        return self.deliveries(self.receivers[consumer].ask("receive", consumer))

    def begin_receive(self, consumer: str, statements: int) -> object:
        process = self.receivers[consumer]
        process.say("pause", statements)
        process.say("receive", consumer)
        os.waitpid(process.id, os.WUNTRACED)  # until it stands still
        return process

    def finish_receive(self, begun: object) -> Sequence[Delivery]:
        assert isinstance(begun, Process)
        os.kill(begun.id, signal.SIGCONT)
        return self.deliveries(begun.hear())

    def deliveries(self, answer: str) -> Sequence[Delivery]:
        if not answer:
            return []
        offset, key, attempt = answer.split(" ")
        return [Delivery(int(offset), bytes.fromhex(key), int(attempt))]

    def ack(self, consumer: str, delivery: Delivery) -> bool | None:
        return self.clerk.ask("ack", consumer, delivery.offset, delivery.attempt) == "1"

    def close(self) -> None:
        for process in (self.clerk, *self.receivers.values()):
            process.kill()
        self.folder.cleanup()


class PausedMachine(KeySharedMachine):
    """What it claims: whoever is paused, a key is at one consumer, in order, and nothing is lost."""

    driver_class: ClassVar[type[AnyDriver]] = PausedDriver
    claims = Claims(promises={Promise.ONE_HOLDER, Promise.KEY_ORDER, Promise.NO_LOSS}, per_consumer=1)


def paused(process: type[SharedFile]) -> type[PausedMachine]:
    """Make the machine that is to find the fault of a process."""
    driver = type(f"{process.__name__}Driver", (PausedDriver,), {"process_class": process})
    return type(f"{process.__name__}Machine", (PausedMachine,), {"driver_class": driver})
