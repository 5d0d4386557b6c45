"""One process of a crash run: ``python -m tests.transports.worker DIARY PROGRAM ARGUMENT...``.

It runs a program of ``examples/transports`` with a handler that writes down when it starts and how it ends.
"""

import asyncio
import importlib
import os
import signal
import sys
import time
from collections.abc import Iterator
from inspect import iscoroutinefunction
from pathlib import Path
from typing import Any

from keyshared.run import Reject, RetryLater

SLOW, FAILS, LATER, REJECTED = (401, 7), (23, 3), (37, 5), (97, 11)


def is_one(kind: tuple[int, int], number: int) -> bool:
    every, first = kind
    return number % every == first


class Handler:
    """Handles a message ``key/number/place`` in some milliseconds; some of them fail at first, or always."""

    def __init__(self, diary: str) -> None:
        self._file = os.open(diary, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        self._tried = Path(f"{diary}.tried")  # of all processes: what fails in each of them would be given up
        self._tried.mkdir(exist_ok=True)

    def note(self, what: str, value: str = "-") -> None:
        os.write(self._file, f"{what} {os.getpid()} {value}\n".encode())

    def block(self, value: str) -> None:
        for seconds in self._handle(value):
            time.sleep(seconds)

    async def suspend(self, value: str) -> None:
        try:
            for seconds in self._handle(value):
                await asyncio.sleep(seconds)
        except asyncio.CancelledError:
            self.note("cancelled", value)  # before the connection is closed, and another process gets the message
            raise

    def _is_first(self, number: int) -> bool:
        try:
            self._tried.joinpath(str(number)).touch(exist_ok=False)
        except FileExistsError:
            return False
        return True

    def _handle(self, value: str) -> Iterator[float]:
        number = int(value.split("/")[1])
        self.note("start", value)
        yield 0.3 if is_one(SLOW, number) else 0.01
        is_first = self._is_first(number)
        if is_first and is_one(FAILS, number):
            self.note("fail", value)
            raise ValueError(value)
        if is_first and is_one(LATER, number):
            self.note("later", value)
            raise RetryLater(20)
        if is_one(REJECTED, number):
            self.note("reject", value)
            raise Reject(value)
        self.note("end", value)


def main(diary: str, name: str, *arguments: str) -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())  # until the program does so itself
    handler = Handler(diary)
    handler.note("ready")
    program: Any = importlib.import_module(f"examples.transports.{name}")
    world: Any = importlib.import_module(f"tests.transports.test_{name}")
    world.shorten(program)

    async def suspend(message: object) -> None:
        await handler.suspend(world.text_of(message))

    def block(message: object) -> None:
        handler.block(world.text_of(message))

    handle = suspend if iscoroutinefunction(program.charge) else block
    if iscoroutinefunction(consume := getattr(program, "consume", None)):
        asyncio.run(consume(*arguments, handle))
    elif consume is not None:
        consume(*arguments, handle)
    else:
        world.consume(program, handle, *arguments)
    handler.note("left")


if __name__ == "__main__":
    main(*sys.argv[1:])
