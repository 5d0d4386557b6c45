"""The driver of a broker in a process of its own, which is killed in the middle of what it does."""

import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, ClassVar

from tests.kit import file_broker
from tests.kit.file_broker import FileBroker

from keyshared.testing import Delivery, Driver, Guarantees, KilledError, Promise
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
        command = [sys.executable, "-I", "-S", file_broker.__file__, self.broker_class.__name__, path]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    @property
    def pipes(self) -> tuple[IO[str], IO[str]]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        return self.process.stdin, self.process.stdout

    def ask(self, *words: object) -> str:
        _, from_it = self.pipes
        try:
            self.say(*words)
        except BrokenPipeError:
            raise KilledError from None
        answer = from_it.readline()
        if not answer.endswith("\n"):
            raise KilledError
        return answer.rstrip("\n")

    def say(self, *words: object) -> None:
        to_it, _ = self.pipes
        to_it.write(" ".join(map(str, words)) + "\n")
        to_it.flush()

    def connect(self, consumer: str, filters: Sequence[str] = ()) -> None: ...

    def disconnect(self, consumer: str) -> None:
        self.ask("leave", consumer)

    def publish(self, key: bytes | None) -> int:
        return int(self.ask("publish", (key or b"").hex()))

    def receive(self, consumer: str) -> Sequence[Delivery]:
        answer = self.ask("receive", consumer)
        if not answer:
            return []
        offset, key, attempt = answer.split(" ")
        return [Delivery(int(offset), bytes.fromhex(key), int(attempt))]

    def ack(self, consumer: str, delivery: Delivery) -> bool | None:
        return self.ask("ack", consumer, delivery.offset, delivery.attempt) == "1"

    def kill_at(self, statement: int) -> None:
        self.say("die", statement)

    def restart(self) -> None:
        """End its input: it does what it has begun, or dies in the middle of it. What it holds in memory is lost."""
        self.stop()
        self.start()

    def stop(self) -> None:
        for pipe in self.pipes:
            with suppress(BrokenPipeError):  # it is dead, and has not read everything
                pipe.close()
        self.process.wait()

    def close(self) -> None:
        self.stop()
        self.folder.cleanup()


class KilledMachine(KeySharedMachine):
    """What it claims: nothing that was answered for is lost or comes again, also if it is killed."""

    driver_class: ClassVar[type[AnyDriver]] = KilledDriver
    guarantees = Guarantees(
        promises={Promise.ONE_HOLDER, Promise.KEY_ORDER, Promise.NO_LOSS, Promise.FENCE}, per_consumer=1
    )


def broken(broker: type[FileBroker]) -> type[KilledMachine]:
    """Make the machine that is to find the fault of a broker."""
    driver = type(f"{broker.__name__}Driver", (KilledDriver,), {"broker_class": broker})
    return type(f"{broker.__name__}Machine", (KilledMachine,), {"driver_class": driver})
