"""The two runners, behind one interface for the thread that polls Kafka."""

import asyncio
from asyncio import AbstractEventLoop
from collections.abc import Callable, Coroutine, Iterable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from threading import get_ident
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from keyshared.run import AsyncRunner, StoppedError, ThreadRunner, UnknownLogError
from keyshared.run.tasks import ask_loop
from keyshared_kafka.assignments import Row

if TYPE_CHECKING:
    from confluent_kafka import Message

    from keyshared.run.runner import Runner

__all__ = ["Adapter", "AsyncRunnerAdapter", "ThreadRunnerAdapter"]

Result = TypeVar("Result")


class Adapter(Protocol):
    """A runner, called by the thread that polls."""

    @property
    def runner(self) -> "Runner[Message[Any, Any]]":
        """The runner itself."""

    def call(self, function: "Callable[[Runner[Message[Any, Any]]], Result]") -> Result:
        """Call a function with the runner where that may be called; any thread and any handler may do so."""

    def add(self, log: str, start: int | None, token: str | None) -> None:
        """Begin with a partition."""

    def remove(self, logs: Sequence[str], within_ms: int) -> list[str]:
        """Remove partitions, all at once; return those whose handlers have not finished in time."""

    def lose(self, logs: Iterable[str]) -> None:
        """Forget partitions that belong to other members already."""

    def capacity(self, log: str) -> int:
        """Return how many messages the runner would take."""

    def submit(self, log: str, rows: Sequence[Row]) -> None:
        """Hand messages over for which there is capacity."""

    def stop(self) -> None:
        """Stop the runner, when all partitions are removed and no load goes on.

        Raises:
            BaseException: The error that has stopped the runner before.
        """


def _check_removed(runner: "Runner[Message[Any, Any]]", error: BaseException) -> None:
    """Raise why a log could not be removed, unless its runner removed it itself: `Adapter.stop` raises that error."""
    if error is not runner.error and not isinstance(error, StoppedError | UnknownLogError):
        raise error


def _unfinished(logs: Sequence[str], finished: Iterable[bool]) -> list[str]:
    return [log for log, has_finished in zip(logs, finished, strict=True) if not has_finished]


class ThreadRunnerAdapter:
    """A `ThreadRunner`."""

    def __init__(self, runner: "ThreadRunner[Message[Any, Any]]") -> None:
        self.runner = runner

    def call(self, function: "Callable[[Runner[Message[Any, Any]]], Result]") -> Result:
        return function(self.runner)

    def add(self, log: str, start: int | None, token: str | None) -> None:
        self.runner.add_log(log, start=start, resume_from=token)

    def remove(self, logs: Sequence[str], within_ms: int) -> list[str]:
        def remove(log: str) -> bool:
            try:
                return self.runner.remove_log(log, within_ms)
            except BaseException as error:  # noqa: BLE001  # of any kind, if it has stopped the runner
                _check_removed(self.runner, error)
                return False

        with ThreadPoolExecutor(len(logs)) as pool:  # each call waits, and the drains shall begin together
            return _unfinished(logs, list(pool.map(remove, logs)))

    def lose(self, logs: Iterable[str]) -> None:
        for log in logs:
            self.runner.lose_log(log)

    def capacity(self, log: str) -> int:
        return self.runner.room(log)

    def submit(self, log: str, rows: Sequence[Row]) -> None:
        self.runner.submit_many(log, rows)

    def stop(self) -> None:
        with suppress(StoppedError):  # of a load for a removed partition, which was ended with it
            self.runner.stop(0)


class AsyncRunnerAdapter:
    """An `AsyncRunner`, which lives in an event loop of another thread.

    Args:
        runner: The runner.
        loop: Its loop.
        thread: The thread that the loop runs in.
        pools: Executors of its calls; they end with it.
    """

    def __init__(
        self, runner: "AsyncRunner[Message[Any, Any]]", loop: AbstractEventLoop, thread: int, pools: Sequence[Executor]
    ) -> None:
        self.runner = runner
        self._loop = loop
        self._thread = thread
        self._pools = pools

    def call(self, function: "Callable[[Runner[Message[Any, Any]]], Result]") -> Result:
        call = partial(function, self.runner)
        if get_ident() == self._thread:
            return call()  # the loop cannot run it while its own thread waits
        return ask_loop(self._loop, call, without=call)

    def add(self, log: str, start: int | None, token: str | None) -> None:
        async def add() -> None:
            self.runner.add_log(log, start=start, resume_from=token)

        self._run(add())

    def remove(self, logs: Sequence[str], within_ms: int) -> list[str]:
        async def remove(log: str) -> bool:
            try:
                return await self.runner.remove_log(log, within_ms)
            except BaseException as error:  # noqa: BLE001  # as above
                _check_removed(self.runner, error)
                return False

        async def remove_all() -> list[bool]:
            return await asyncio.gather(*map(remove, logs))

        return _unfinished(logs, self._run(remove_all()))

    def lose(self, logs: Iterable[str]) -> None:
        async def lose() -> None:
            for log in logs:
                self.runner.lose_log(log)

        self._run(lose())

    def capacity(self, log: str) -> int:
        return self.runner.room(log)  # without a trip to the loop: only the caller makes it less

    def submit(self, log: str, rows: Sequence[Row]) -> None:
        self._run(self.runner.submit_many(log, rows))

    def stop(self) -> None:
        try:
            with suppress(StoppedError):  # as above
                self._run(self.runner.stop(0))
        finally:
            for pool in self._pools:
                pool.shutdown(wait=False)

    def _run(self, coroutine: Coroutine[Any, Any, Result]) -> Result:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()
