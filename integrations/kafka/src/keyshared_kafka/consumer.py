"""The consumer: a member of a group whose messages are handled by many workers, each key in order."""

import asyncio
import signal
from asyncio import AbstractEventLoop, CancelledError, get_running_loop
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Event, get_ident
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from keyshared._checks import check_int, check_kind, configuration
from keyshared._core.values import MetricRow
from keyshared.config import Poison, RetryPolicy
from keyshared.dispatcher import Blocking
from keyshared.errors import ConfigError
from keyshared.run import (
    AsyncRunner,
    BusyKey,
    EventLoopError,
    Hooks,
    Letter,
    RunnerConfig,
    RunnerStats,
    StoppedError,
    ThreadRunner,
    UnknownLogError,
)
from keyshared.run.answers import check_function, is_coroutine_function
from keyshared.run.signals import listening
from keyshared_kafka.engines import Engine, Tasks, Threads
from keyshared_kafka.errors import NotBegunError, UnknownPartitionError
from keyshared_kafka.letters import Letters
from keyshared_kafka.member import Member
from keyshared_kafka.processes import check_processes, make_process
from keyshared_kafka.reader import Reader
from keyshared_kafka.records import with_records
from keyshared_kafka.settings import (
    KeyOf,
    check_dead_letters,
    consumer_options,
    key_of,
    letter_options,
    options_of,
    reader_options,
    topics_of,
)
from keyshared_kafka.stays import name_of

if TYPE_CHECKING:
    from confluent_kafka import Message

    from keyshared.run.host import Host

__all__ = ["ParallelConsumer"]

DEFAULT_WORKERS: Final = 16
DEFAULT_RETRIES: Final = 5
DEFAULT_WINDOW: Final = 10_000
DEFAULT_METADATA_BYTES: Final = 4_096
LEAST_METADATA_BYTES: Final = 64  # any position fits

Answer = TypeVar("Answer")
Handler: TypeAlias = (
    "Callable[[Message[Any, Any]], object | Awaitable[object]]"
    " | Callable[[list[Message[Any, Any]]], object | Awaitable[object]]"
)


class ParallelConsumer:
    """Consumes topics with many workers: one message of a key at a time, in order, different keys at once.

    A handler that returns has done its message. One that raises `Reject` gives it up, `RetryLater` puts it off, any
    other exception is a failure: the message comes again after a delay, and at last goes to the dead letters. Every
    tenth of a second the consumer commits how far all is done, and what is done above that. So a crash redoes what
    was in flight, and what was done since the last commit.

    Args:
        options: Of the client, as librdkafka has them; ``group.id`` and ``bootstrap.servers`` are needed. All pass
            through, except those that would let the client commit by itself.
        topics: Names; one that begins with ``^`` is a pattern.
        handle: Called with each `confluent_kafka.Message`: a function, called in threads and safe for that, or a
            coroutine function.
        workers: Handlers that run at once.
        batch: How many messages ``handle`` gets at once: a list of up to that many consecutive ones of one key. None:
            it gets a message, and no list. `PartlyDone` says how far a handler has come when it raises.
        order: ``"key"``; ``"partition"``; ``"none"``; or a function of a message that returns what it is ordered by,
            bytes or str (a number: ``str(number)``), or None for nothing. Messages without a key are handled in any
            order.
        retries: How often a message that failed is tried again, or a policy that also says how late. 0: never.
        dead_letters: Topic for messages that are given up, none of ``topics``. Without it such a message stops the
            consumer with the error of its handler, unless ``poison`` says that nothing is to be written.
        poison: What becomes of a message that is given up, and of its key.
        archive_blocked: Whether a message goes to the dead letters before it is blocked. Only with ``Poison.BLOCK``.
        quarantine: Whether the newer messages of its key follow a dead letter until the key is unblocked.
        drain_s: How long handlers may finish when a partition leaves, or when the consumer stops.
        timeout_s: How long a handler may run; None for ever. A coroutine is cancelled then. A thread cannot be: its key
            waits for it, and ``hooks.overdue`` is called.
        processes: Whether each worker is a process, for handlers that compute. ``handle`` has to be picklable then.
        window: Messages in memory.
        commit_every_s: How old a commit may be: a crash redoes what was done in that time, besides what was in flight.
        metadata_bytes: The broker's ``offset.metadata.max.bytes``.
        measure: Whether ages and counts of messages are kept for `metrics`.
        producer: Options of the client that writes dead letters, beside those of the connection.
        hooks: Functions that are told what happens, for metrics; partitions are named as ``orders-0``.

    Raises:
        ConfigError: An argument can never work.

    Example:
        >>> options = {"bootstrap.servers": "localhost:9092", "group.id": "billing"}
        >>> consumer = ParallelConsumer(options, ["orders"], print, workers=64, dead_letters="dead")
        >>> ParallelConsumer({}, ["orders"], print)
        Traceback (most recent call last):
        ...
        keyshared.errors.ConfigError: group.id is None; it must name the consumer group
    """

    def __init__(
        self,
        options: Mapping[str, Any],
        topics: Sequence[str],
        handle: "Handler",
        *,
        workers: int = DEFAULT_WORKERS,
        batch: int | None = None,
        order: "str | KeyOf" = "key",
        retries: int | RetryPolicy = DEFAULT_RETRIES,
        dead_letters: str | None = None,
        poison: Poison = Poison.DEAD_LETTER,
        archive_blocked: bool = False,
        quarantine: bool = False,
        drain_s: float = 10,
        timeout_s: float | None = None,
        processes: bool = False,
        window: int = DEFAULT_WINDOW,
        commit_every_s: float = 0.1,
        metadata_bytes: int = DEFAULT_METADATA_BYTES,
        measure: bool = False,
        producer: Mapping[str, Any] | None = None,
        hooks: Hooks | None = None,
    ) -> None:
        with configuration():
            check_function("handle", handle, "a message", is_awaited=True)
        self._is_async = is_coroutine_function(handle)
        check_processes(processes, handle, is_async=self._is_async)
        options = options_of("options", options)
        self._topics = topics_of(topics)
        check_dead_letters(dead_letters, self._topics, options)
        with configuration():
            check_kind("poison", poison, Poison, ", such as Poison.DROP")
        if dead_letters is None and (archive_blocked or quarantine):
            raise ConfigError("dead_letters", None, "name a topic with archive_blocked or quarantine")
        self._drain_ms = _milliseconds("drain_s", drain_s)
        timeout_ms = None if timeout_s is None else _milliseconds("timeout_s", timeout_s, 1, ", or None for ever")
        with configuration():
            self._config = RunnerConfig(
                workers=workers,
                batch=batch,
                timeout_ms=timeout_ms,
                window=check_int("window", window, 1),
                max_tracked=10 * window,
                max_loaded_per_key=max(1, window // 10, batch if type(batch) is int else 0),
                retry=retries if isinstance(retries, RetryPolicy) else RetryPolicy(max_redeliveries=_retries(retries)),
                poison=poison,
                archive_blocked=archive_blocked,
                quarantine=quarantine,
                commit_every_ms=_milliseconds("commit_every_s", commit_every_s) // 2,  # and the member takes the rest
                token_bytes=check_int("metadata_bytes", metadata_bytes, LEAST_METADATA_BYTES),
                stop_ms=self._drain_ms,
                measure=measure,
            )
            self._hooks = with_records(None if hooks is None else check_kind("hooks", hooks, Hooks))
        self._options = consumer_options(options, window, self._drain_ms)
        self._reader_options = reader_options(options)
        self._letter_options = letter_options(options, {} if producer is None else options_of("producer", producer))
        self._handle = handle
        self._key_of = key_of(order)
        self._dead_letters = dead_letters
        self._processes = processes
        self._asked_to_stop = Event()
        self._engine: Engine | None = None

    def run(self) -> None:
        """Consume until `stop` is called or the process gets SIGTERM or SIGINT; then finish, commit and leave.

        Raises:
            StoppedError: It has run before.
            BaseException: What went wrong: the connection for good, a dead letter that could not be written, a hook.
        """
        with listening((signal.SIGTERM, signal.SIGINT), self.stop):
            if self._is_async:
                asyncio.run(self.run_async())
                return
            self._live(self._with_threads)

    async def run_async(self) -> None:
        """As `run`, inside an event loop, where coroutine handlers run. Installs no handlers of signals.

        When it is cancelled it finishes, commits and leaves first.
        """
        loop, thread = get_running_loop(), get_ident()
        make = self._with_threads

        def with_tasks(member: Member, letters: Letters | None, reader: Reader) -> Engine:
            return self._with_tasks(member, letters, reader, loop, thread)

        if self._is_async:
            make = with_tasks
        pool = ThreadPoolExecutor(1, "keyshared-kafka")
        living = loop.run_in_executor(pool, self._live, make)
        pool.shutdown(wait=False)  # after that call; waiting for it here would stop the loop, which it needs
        cancelled: CancelledError | None = None
        while not living.done():
            try:
                await asyncio.wait([living])
            except CancelledError as error:  # perhaps not the first one
                cancelled = error
                self.stop()
        living.result()
        if cancelled is not None:
            raise cancelled

    def stop(self) -> None:
        """Ask it to finish, commit and leave. Returns at once; may be called from any thread, and from a handler."""
        self._asked_to_stop.set()

    def stats(self) -> RunnerStats:
        """Return the figures of this moment.

        When it has ended, they are those of its end.

        Raises:
            NotBegunError: It has not begun to run.
        """
        return self._begun().ask(lambda runner: runner.stats())

    def metrics(self, busiest: int = 0) -> list[MetricRow]:
        """Return the figures of this moment under the names of keyshared's page on health; none before it runs.

        ``REGISTRY.register(PrometheusCollector(consumer.metrics))`` exports them (`keyshared.run`). May be called from
        any thread.

        Args:
            busiest: How many keys of each partition there are figures for; each is a label.
        """
        engine = self._engine
        return [] if engine is None else engine.ask(lambda runner: runner.metrics(busiest))

    def why_blocked(self, topic: str, partition: int, offset: int) -> Blocking | None:
        """Return what a message waits for; None if it is at a handler, or done.

        Raises:
            NotBegunError: It has not begun to run.
            UnknownPartitionError: The partition is not here, or no more.
        """
        return self._ask_of(topic, partition, lambda runner, log: runner.why_blocked(log, offset))

    def busiest_keys(self, most: int = 10) -> list[BusyKey]:
        """Return the keys with the most messages that are not done; none when it has ended.

        Raises:
            NotBegunError: It has not begun to run.
        """
        return self._begun().ask(lambda runner: runner.busiest_keys(most))

    def unblock(self, topic: str, partition: int, key: bytes | str) -> bool:
        """Try the blocked messages of a key again (`Poison.BLOCK`), and end its quarantine.

        Returns:
            Whether a message of the key was blocked, or the key in quarantine.

        Raises:
            NotBegunError: It has not begun to run.
            UnknownPartitionError: The partition is not here, or no more.
        """
        return self._ask_of(topic, partition, lambda runner, log: runner.unblock(log, key))

    def _begun(self) -> Engine:
        if self._engine is None:
            raise NotBegunError
        return self._engine

    def _ask_of(
        self, topic: str, partition: int, question: "Callable[[Host[Message[Any, Any]], str], Answer]"
    ) -> Answer:
        log = name_of(topic, partition)
        try:
            return self._begun().ask(lambda runner: question(runner, log))
        except (EventLoopError, StoppedError, UnknownLogError):  # when it has ended it has no partition either
            raise UnknownPartitionError(topic, partition) from None

    def _live(self, make: "Callable[[Member, Letters | None, Reader], Engine]") -> None:
        """Consume from the first poll to the last commit, in this thread."""
        if self._engine is not None:
            raise StoppedError
        group = str(self._options["group.id"])
        letters = None if self._dead_letters is None else Letters(self._dead_letters, group, self._letter_options)
        reader = Reader(self._reader_options)
        member = Member(self._options, self._topics, self._key_of, self._config)
        self._engine = engine = make(member, letters, reader)
        try:
            member.consume(engine, self._asked_to_stop, self._drain_ms)
        finally:
            if letters is not None:
                letters.close()
            reader.close()
            engine.stop()

    def _with_threads(self, member: Member, letters: Letters | None, reader: Reader) -> Engine:
        return Threads(
            ThreadRunner(
                self._handle,
                commit=member.commit,
                dead_letter=None if letters is None else letters.write,
                load=reader.load,
                executor=make_process if self._processes else None,
                hooks=self._hooks,
                config=self._config,
            )
        )

    def _with_tasks(
        self, member: Member, letters: Letters | None, reader: Reader, loop: AbstractEventLoop, thread: int
    ) -> Engine:
        # Threads of our own: handlers may have all those of the loop.
        loads, writes = ThreadPoolExecutor(1, "keyshared-loads"), ThreadPoolExecutor(1, "keyshared-letters")

        async def load(log: str, offsets: Sequence[int]) -> "dict[int, Message[Any, Any] | None]":
            return await loop.run_in_executor(loads, reader.load, log, offsets)

        async def write(letter: "Letter[Message[Any, Any]]") -> None:
            if letters is not None:
                await loop.run_in_executor(writes, letters.write, letter)

        runner = AsyncRunner(
            self._handle,
            commit=member.commit,
            dead_letter=None if letters is None else write,
            load=load,
            hooks=self._hooks,
            config=self._config,
        )
        return Tasks(runner, loop, thread, (loads, writes))


def _retries(retries: object) -> int:
    return check_int("retries", retries, 0, " or a RetryPolicy")


def _milliseconds(name: str, seconds: object, least: int = 0, alternative: str = "") -> int:
    """Return whole milliseconds, at least so many."""
    known = isinstance(seconds, int | float) and not isinstance(seconds, bool)
    if not known or not least <= seconds * 1_000 < float("inf"):  # type: ignore[operator]
        raise ConfigError(name, seconds, f"be a finite number of seconds of at least {least / 1_000:g}{alternative}")
    return round(seconds * 1_000)  # type: ignore[operator]
