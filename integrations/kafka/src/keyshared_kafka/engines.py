"""The two runners, as one thread that reads Kafka sees them."""

import asyncio
from asyncio import AbstractEventLoop
from collections.abc import Callable, Coroutine, Iterable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from threading import get_ident
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from keyshared.run import AsyncRunner, StoppedError, ThreadRunner, UnknownLogError
from keyshared.run.loops import ask_loop
from keyshared_kafka.stays import Row

if TYPE_CHECKING:
    from confluent_kafka import Message

    from keyshared.run.host import Host

__all__ = ["Engine", "Tasks", "Threads"]

Answer = TypeVar("Answer")


class Engine(Protocol):
    """Runs handlers; called by the thread that reads."""

    @property
    def runner(self) -> "Host[Message[Any, Any]]":
        """The runner itself."""

    def ask(self, question: "Callable[[Host[Message[Any, Any]]], Answer]") -> Answer:
        """Ask the runner something; may be called from any thread, and from a handler."""

    def add(self, log: str, start: int | None, token: str | None) -> None:
        """Begin with a partition."""

    def remove(self, logs: Sequence[str], within_ms: int) -> bool:
        """End with partitions, all at once; return whether all their handlers have finished in time."""

    def lose(self, logs: Iterable[str]) -> None:
        """Forget partitions that belong to others already."""

    def room(self, log: str) -> int:
        """How many messages would be taken."""

    def give(self, log: str, rows: Sequence[Row]) -> None:
        """Hand messages over for which there is room."""

    def stop(self) -> None:
        """End, when all partitions have left and no load goes on.

        Raises:
            BaseException: What has stopped the runner before, if that was an error.
        """


def _check_let_go(runner: "Host[Message[Any, Any]]", error: BaseException) -> None:
    """Raise why a log could not leave, unless its runner let it go by itself, stopped by what `Engine.stop` raises."""
    if error is not runner.error and not isinstance(error, StoppedError | UnknownLogError):
        raise error


class Threads:
    """A `ThreadRunner`."""

    def __init__(self, runner: "ThreadRunner[Message[Any, Any]]") -> None:
        self.runner = runner

    def ask(self, question: "Callable[[Host[Message[Any, Any]]], Answer]") -> Answer:
        return question(self.runner)

    def add(self, log: str, start: int | None, token: str | None) -> None:
        self.runner.add_log(log, start=start, resume_from=token)

    def remove(self, logs: Sequence[str], within_ms: int) -> bool:
        def remove(log: str) -> bool:
            try:
                return self.runner.remove_log(log, within_ms)
            except BaseException as error:  # noqa: BLE001  # whatever has stopped the runner
                _check_let_go(self.runner, error)
                return False

        with ThreadPoolExecutor(len(logs)) as pool:  # each call waits, and all shall begin to leave at once
            return all(list(pool.map(remove, logs)))  # before any False counts

    def lose(self, logs: Iterable[str]) -> None:
        for log in logs:
            self.runner.lose_log(log)

    def room(self, log: str) -> int:
        return self.runner.room(log)

    def give(self, log: str, rows: Sequence[Row]) -> None:
        self.runner.submit_many(log, rows)

    def stop(self) -> None:
        with suppress(StoppedError):  # of a load for a partition that has left: it was ended because nobody wants it
            self.runner.stop(0)


class Tasks:
    """An `AsyncRunner`, which lives in an event loop of another thread.

    Args:
        runner: The runner.
        loop: Its loop.
        thread: The thread that the loop runs in.
        pools: What else it needs; they end with it.
    """

    def __init__(
        self, runner: "AsyncRunner[Message[Any, Any]]", loop: AbstractEventLoop, thread: int, pools: Sequence[Executor]
    ) -> None:
        self.runner = runner
        self._loop = loop
        self._thread = thread
        self._pools = pools

    def ask(self, question: "Callable[[Host[Message[Any, Any]]], Answer]") -> Answer:
        ask = partial(question, self.runner)
        if get_ident() == self._thread:
            return ask()  # a loop cannot answer while its own thread waits
        return ask_loop(self._loop, ask, without=ask)

    def add(self, log: str, start: int | None, token: str | None) -> None:
        async def add() -> None:
            self.runner.add_log(log, start=start, resume_from=token)

        self._call(add())

    def remove(self, logs: Sequence[str], within_ms: int) -> bool:
        async def remove(log: str) -> bool:
            try:
                return await self.runner.remove_log(log, within_ms)
            except BaseException as error:  # noqa: BLE001  # whatever has stopped the runner
                _check_let_go(self.runner, error)
                return False

        async def remove_all() -> bool:
            return all(await asyncio.gather(*map(remove, logs)))

        return self._call(remove_all())

    def lose(self, logs: Iterable[str]) -> None:
        async def lose() -> None:
            for log in logs:
                self.runner.lose_log(log)

        self._call(lose())

    def room(self, log: str) -> int:
        return self.runner.room(log)  # without a trip to the loop: nobody but the caller makes it less

    def give(self, log: str, rows: Sequence[Row]) -> None:
        self._call(self.runner.submit_many(log, rows))

    def stop(self) -> None:
        try:
            with suppress(StoppedError):  # as above
                self._call(self.runner.stop(0))
        finally:
            for pool in self._pools:
                pool.shutdown(wait=False)

    def _call(self, coroutine: Coroutine[Any, Any, Answer]) -> Answer:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()
