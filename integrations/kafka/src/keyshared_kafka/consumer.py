"""The consumer: a member of a group whose messages are handled by many workers, each key in order."""

import asyncio
import signal
from asyncio import AbstractEventLoop, CancelledError, get_running_loop, wrap_future
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from threading import Event, get_ident
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from keyshared._checks import check_int, check_kind, check_mapping, configuration
from keyshared.config import GroupLimits, Poison, RetryPolicy, Rules
from keyshared.errors import ConfigError
from keyshared.run import (
    AsyncRunner,
    DeadLetter,
    Hooks,
    RunnerConfig,
    StoppedError,
    ThreadRunner,
    UnknownLogError,
    Verbs,
)
from keyshared.run.functions import check_function, is_coroutine_function
from keyshared.run.metrics import MetricRow
from keyshared.run.reports import cause
from keyshared.run.signals import listening
from keyshared_kafka.adapters import Adapter, AsyncRunnerAdapter, ThreadRunnerAdapter
from keyshared_kafka.dead_letters import DeadLetterTopic
from keyshared_kafka.errors import NotBegunError, UnknownPartitionError
from keyshared_kafka.member import Member
from keyshared_kafka.processes import check_processes, make_process
from keyshared_kafka.reader import Reader
from keyshared_kafka.records import logger
from keyshared_kafka.redrive import DeadLetterReader
from keyshared_kafka.settings import (
    KeyOf,
    NotBefore,
    check_dead_letters,
    consumer_options,
    key_of,
    letter_options,
    make_spans,
    options_of,
    reader_options,
    topics_of,
)
from keyshared_kafka.stats import ConsumerStats, stats_of

if TYPE_CHECKING:
    from confluent_kafka import Message

    from keyshared.run.engine import Engine

__all__ = ["ParallelConsumer"]

DEFAULT_WORKERS: Final = 16
DEFAULT_RETRIES: Final = 5
DEFAULT_WINDOW: Final = 10_000
DEFAULT_SLOW_S: Final = 60
DEFAULT_METADATA_BYTES: Final = 4_096
LEAST_METADATA_BYTES: Final = 64  # any position fits

Result = TypeVar("Result")
MakeAdapter: TypeAlias = "Callable[[Member, DeadLetterTopic | None, Reader], Adapter]"
Handler: TypeAlias = (
    "Callable[[Message[Any, Any]], object | Awaitable[object]]"
    " | Callable[[list[Message[Any, Any]]], object | Awaitable[object]]"
)


class ParallelConsumer(Verbs):
    """Consumes topics with many workers: one message of a key at a time, in order, different keys at once.

    A message is done when its handler returns. A handler that raises `Reject` gives its message up, and `RetryLater`
    postpones it. Any other exception is a failure: the message is redelivered after a delay, and goes to the dead
    letters when its retries are exhausted. Every tenth of a second the consumer commits the position below which all
    messages are done, and which messages above it are done. So after a crash only those messages are redelivered that
    were in flight, or done since the last commit.

    The calls of `keyshared.run.Verbs` (``stuck``, ``park``, ``pause_key``, ``set_group``, ...) may come from any thread
    and any handler. They name a partition by topic and number: ``orders-0``.

    Args:
        options: librdkafka configuration, passed through; ``group.id`` and ``bootstrap.servers`` are required. Options
            that would let the client commit by itself are refused.
        topics: Topics to subscribe to; one that begins with ``^`` is a pattern.
        handle: Called with each `confluent_kafka.Message`: a thread-safe function, or a coroutine function.
        workers: Handlers that run at once.
        batch: How many messages ``handle`` gets at once: a list of up to that many consecutive messages of one key.
            None: it gets one message, and no list. `PartlyDone` says how many are done when a handler raises.
        order: ``"key"``; ``"partition"``; ``"none"``; or a function of a message that returns the key by which it is
            ordered: bytes or str (a number: ``str(number)``), or None. Messages without a key are handled in any order.
        retries: How often a failed message is tried again, or a policy that also sets the delays. 0: never.
        dead_letters: Topic for messages that are given up, none of ``topics``. Without it such a message stops the
            consumer with the error of its handler, unless ``poison`` lets messages be dropped or blocked.
        poison: What is done with a message that is given up, and with its key.
        archive_blocked: With ``Poison.BLOCK``: whether the message is written to ``dead_letters`` first.
        quarantine: With ``Poison.DEAD_LETTER``: whether the newer messages of its key follow it, until ``unblock``.
        drain_s: How long handlers may finish when a partition is revoked, or when the consumer stops.
        timeout_s: How long a handler may run; None for ever. A coroutine is cancelled then. A thread cannot be
            cancelled: its key waits for it, and another thread takes its place. A process is killed.
        slow_s: A handler that runs for so long is logged at WARNING, and again each time that it has run twice as long.
            None for no such records.
        processes: Whether each worker is a process, for handlers that compute. ``handle`` must be picklable then.
        window: Messages in memory.
        commit_every_s: The greatest age of a commit; messages that were done since the last one are redelivered after
            a crash.
        metadata_bytes: The broker's ``offset.metadata.max.bytes``.
        measure: Whether ages and counts of messages are kept for `metrics`.
        producer: librdkafka configuration of the producer of dead letters, beside that of the connection.
        hooks: Functions that are called when something has happened; partitions are named as ``orders-0``.
        rules: Functions of a key: its group (a tenant, say), how many of its messages may be handled at once, whether
            only its latest message counts.
        groups: Limits of groups by name. All limits count for each partition by itself.
        group: Limits of every other group.
        max_in_flight: Messages of one partition that are handled at once; None for no limit but ``workers``.
        max_in_flight_per_key: Messages of one key that are handled at once; above 1 their order is not kept.
        latest_only: Whether a message that waits for its first handler is given up when a newer one of its key comes.
        not_before: A function of a message that returns the earliest time of its handler, in milliseconds since 1970,
            or None. Its key waits until then.
        spans: Whether each run of a handler gets an OpenTelemetry span, linked to the context that the producer has
            sent in the headers of the message.
        redrive: Whether dead letters may be handled again with ``redrive`` and `read_dead_letters`.

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
        slow_s: float | None = DEFAULT_SLOW_S,
        processes: bool = False,
        window: int = DEFAULT_WINDOW,
        commit_every_s: float = 0.1,
        metadata_bytes: int = DEFAULT_METADATA_BYTES,
        measure: bool = False,
        producer: Mapping[str, Any] | None = None,
        hooks: Hooks | None = None,
        rules: Rules | None = None,
        groups: Mapping[str, GroupLimits] | None = None,
        group: GroupLimits | None = None,
        max_in_flight: int | None = None,
        max_in_flight_per_key: int = 1,
        latest_only: bool = False,
        not_before: "NotBefore | None" = None,
        redrive: bool = False,
        spans: bool = False,
    ) -> None:
        with configuration():
            check_function("handle", handle, "a message", is_awaited=True, arguments=1)
            if not_before is not None:
                check_function("not_before", not_before, "a message", is_awaited=False, arguments=1)
        self._is_async = is_coroutine_function(handle)
        check_processes(processes, handle, is_async=self._is_async)
        options = options_of("options", options)
        self._topics = topics_of(topics)
        needed_by = "archive_blocked" if archive_blocked else "quarantine" if quarantine else None
        check_dead_letters(dead_letters, needed_by, self._topics, options)
        self._drain_ms = _milliseconds("drain_s", drain_s)
        with configuration():
            self._config = RunnerConfig(
                workers=workers,
                batch=batch,
                timeout_ms=None
                if timeout_s is None
                else _milliseconds("timeout_s", timeout_s, 1, ", or None for ever"),
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
                slow_ms=None if slow_s is None else _milliseconds("slow_s", slow_s, 1, ", or None for no records"),
                rules=rules,
                group=GroupLimits() if group is None else group,
                max_in_flight=max_in_flight,
                max_in_flight_per_key=max_in_flight_per_key,
                latest_only=latest_only,
                redrive=redrive,
            )
            self._hooks = None if hooks is None else check_kind("hooks", hooks, Hooks)
            self._groups = _checked_groups(groups, rules)
        self._options = consumer_options(options, window, self._drain_ms)
        self._reader_options = reader_options(options)
        self._letter_options = letter_options(options, {} if producer is None else options_of("producer", producer))
        self._handle = handle
        self._key_of = key_of(order)
        self._not_before = not_before
        self._dead_letters = dead_letters
        self._processes = processes
        self._spans = make_spans(spans)
        self._asked_to_stop = Event()
        self._running: tuple[Adapter, Member] | None = None

    def run(self) -> None:
        """Consume until `stop` is called or the process gets SIGTERM or SIGINT; then finish, commit and leave.

        SIGUSR1 logs what is stuck.

        Raises:
            StoppedError: It has run before.
            BaseException: The error that has stopped the consumer: the connection failed for good, a dead letter could
                not be written, a hook raised.
        """
        with listening((signal.SIGTERM, signal.SIGINT), self.stop, self._report_stuck):
            if self._is_async:
                asyncio.run(self.run_async())
                return
            self._consume(self._with_threads)

    async def run_async(self) -> None:
        """Consume inside an event loop, where coroutine handlers run. As `run`, but it installs no signal handlers.

        When the call is cancelled, the consumer finishes, commits and leaves first.
        """
        loop, thread = get_running_loop(), get_ident()
        make = self._with_threads

        def with_tasks(member: Member, letters: DeadLetterTopic | None, reader: Reader) -> Adapter:
            return self._with_tasks(member, letters, reader, loop, thread)

        if self._is_async:
            make = with_tasks
        pool = ThreadPoolExecutor(1, "keyshared-kafka")
        consuming = loop.run_in_executor(pool, self._consume, make)
        pool.shutdown(wait=False)  # to wait for that call here would stop the loop, which it needs
        cancelled: CancelledError | None = None
        while not consuming.done():
            try:
                await asyncio.wait([consuming])
            except CancelledError as error:  # perhaps not the first one
                cancelled = error
                self.stop()
        consuming.result()
        if cancelled is not None:
            raise cancelled

    def stop(self) -> None:
        """Ask the consumer to finish, commit and leave. Returns at once; any thread and any handler may call this."""
        self._asked_to_stop.set()

    def stats(self) -> ConsumerStats:
        """Return the figures of this moment, or those of the end if the consumer has ended.

        Raises:
            NotBegunError: The consumer has not begun to run.
        """
        adapter, member = self._begun()
        return adapter.call(lambda runner: stats_of(runner.stats(), member.assignments()))

    def metrics(self, busiest: int = 0) -> list[MetricRow]:
        """Return the figures of this moment under the names of keyshared's page on health; none before `run`.

        ``REGISTRY.register(PrometheusCollector(consumer.metrics))`` exports them (`keyshared.run`). Any thread may call
        this.

        Args:
            busiest: How many keys of each partition there are figures for; each is a label.
        """
        return [] if self._running is None else self._running[0].runner.metrics(busiest)

    def read_dead_letters(self, log: str, key: bytes | str | None) -> "list[DeadLetter[Message[Any, Any]]]":
        """Read the dead letters of a partition and a key from their topic, by offset, for ``redrive``.

        A dead letter stays in its topic when it was handled again, and is returned again. Reads the whole topic.

        Raises:
            ConfigError: The consumer has no topic of dead letters.
            KafkaException: The topic cannot be read.
        """
        if self._dead_letters is None:
            raise ConfigError("dead_letters", None, "name a topic, or there are no dead letters")
        group = str(self._options["group.id"])
        return DeadLetterReader(self._reader_options, self._dead_letters, group, self._key_of).read(log, key)

    def _control(self, act: "Callable[[Engine[Any]], Result]") -> Result:
        try:
            return self._begun()[0].runner._control(act)
        except UnknownLogError as error:
            raise UnknownPartitionError(error.log) from None

    def _report_stuck(self) -> None:
        if self._running is not None:
            self._running[0].runner._report_stuck()

    def _begun(self) -> tuple[Adapter, Member]:
        if self._running is None:
            raise NotBegunError
        return self._running

    def _consume(self, make: "MakeAdapter") -> None:
        """Consume from the first poll to the last commit, in this thread."""
        if self._running is not None:
            raise StoppedError
        group, topic = str(self._options["group.id"]), self._dead_letters
        letters = None if topic is None else DeadLetterTopic(topic, group, self._letter_options)
        reader = Reader(self._reader_options)
        member = Member(self._options, self._topics, self._key_of, self._not_before, self._config)
        adapter = make(member, letters, reader)
        for name, limits in self._groups.items():
            adapter.runner.set_group(name, **limits)
        self._running = adapter, member
        try:
            member.consume(adapter, self._asked_to_stop, self._drain_ms)
        except BaseException as error:
            if error is not adapter.runner.error:  # of which the runner has written a record
                _log_death(group, error)
            raise
        finally:
            if letters is not None:
                letters.close()
            reader.close()
            adapter.stop()

    def _with_threads(self, member: Member, letters: DeadLetterTopic | None, reader: Reader) -> Adapter:
        return ThreadRunnerAdapter(
            ThreadRunner(
                self._handle,
                commit=member.commit,
                dead_letter=None if letters is None else letters.write,
                load=reader.load,
                executor=make_process if self._processes else None,
                hooks=self._hooks,
                config=self._config,
                logger=logger,
                spans=self._spans,
            )
        )

    def _with_tasks(
        self, member: Member, letters: DeadLetterTopic | None, reader: Reader, loop: AbstractEventLoop, thread: int
    ) -> Adapter:
        # Threads of our own: handlers may use up those of the loop.
        loads, writes = ThreadPoolExecutor(1, "keyshared-loads"), ThreadPoolExecutor(1, "keyshared-letters")

        async def load(log: str, offsets: Sequence[int]) -> "dict[int, Message[Any, Any] | None]":
            return await loop.run_in_executor(loads, reader.load, log, offsets)

        async def write(letter: "DeadLetter[Message[Any, Any]]") -> None:
            if letters is not None:
                await loop.run_in_executor(writes, letters.write, letter)

        async def commit(log: str, position: int, token: str) -> None:
            future = member.commit(log, position, token)
            if future is not None:
                await wrap_future(future)

        runner = AsyncRunner(
            self._handle,
            commit=commit,
            dead_letter=None if letters is None else write,
            load=load,
            hooks=self._hooks,
            config=self._config,
            logger=logger,
            spans=self._spans,
        )
        return AsyncRunnerAdapter(runner, loop, thread, (loads, writes))


def _checked_groups(groups: object, rules: Rules | None) -> dict[str, dict[str, Any]]:
    """Return the arguments of ``set_group`` by group."""
    known = {} if groups is None else check_mapping("groups", groups)
    if known and (rules is None or rules.group_of is None):
        raise ConfigError("groups", groups, "be left out without rules that have a group_of")
    for name, limits in known.items():
        check_kind("a name in groups", name, str)
        check_kind("a value in groups", limits, GroupLimits)
    return {name: asdict(limits) for name, limits in known.items()}


def _log_death(group: str, error: BaseException) -> None:
    """Write the one record that says why the consumer ends, and note it on the error."""
    notes = "; ".join(getattr(error, "__notes__", ()))
    text = f"the consumer of group {group} stops because of an error: {cause(error)}{f' ({notes})' if notes else ''}"
    fields = {"event": "stopped_by_error", "group": group, "reason": cause(error)}
    logger.error("%s", text, exc_info=error, extra={"keyshared": fields})
    error.add_note(f"keyshared: the consumer of group {group} stopped because of this error")


def _retries(retries: object) -> int:
    return check_int("retries", retries, 0, " or a RetryPolicy")


def _milliseconds(name: str, seconds: object, least: int = 0, alternative: str = "") -> int:
    """Return whole milliseconds, at least so many."""
    known = isinstance(seconds, int | float) and not isinstance(seconds, bool)
    if not known or not least <= seconds * 1_000 < float("inf"):  # type: ignore[operator]
        raise ConfigError(name, seconds, f"be a finite number of seconds of at least {least / 1_000:g}{alternative}")
    return round(seconds * 1_000)  # type: ignore[operator]
