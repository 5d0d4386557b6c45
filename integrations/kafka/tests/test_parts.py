"""The parts alone: what no mock cluster can show, such as gaps, logs that were cut, and refused commits."""

import asyncio
import logging
import os
import pickle
import re
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition

from keyshared.cursor import ContiguousCursor
from keyshared.errors import ConfigError, KeyTypeError
from keyshared.run import AsyncRunner, DeadLetter, RunnerConfig, StoppedError, ThreadRunner
from keyshared_kafka import (
    NotBegunError,
    ParallelConsumer,
    Poison,
    UnknownPartitionError,
)
from keyshared_kafka.adapters import Adapter, AsyncRunnerAdapter, ThreadRunnerAdapter
from keyshared_kafka.assignments import Assignment, token_of
from keyshared_kafka.commits import Commits
from keyshared_kafka.dead_letters import headers_of
from keyshared_kafka.member import Member
from keyshared_kafka.settings import key_of, letter_options
from tests.running import until
from tests.test_crashes import environment

GROUP = {"group.id": "billing"}
OPTIONS = {**GROUP, "bootstrap.servers": "localhost:9092"}
ONE_ATTEMPT = RunnerConfig(call_attempts=1)
UNASSIGNED: Any = SimpleNamespace(assignments=list)  # a member


class Client:
    """A consumer that answers as it is told, and keeps what it is asked."""

    def __init__(self, *answers: int) -> None:
        self.answers = list(answers)
        self.commits: list[tuple[int, str | None]] = []
        self.end = 0
        self.unknown = ""
        self.keeps_metadata = True
        self.read_backs = 0
        self.paused: list[int] = []

    def commit(self, offsets: list[TopicPartition], asynchronous: bool) -> list[TopicPartition]:  # noqa: ARG002
        code = self.answers.pop(0) if self.answers else 0
        if code:
            raise KafkaException(KafkaError(code))
        known = [place for place in offsets if place.topic != self.unknown]
        self.commits += [(place.offset, place.metadata) for place in known]
        unknown: list[Any] = [
            SimpleNamespace(
                topic=place.topic, partition=place.partition, error=KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)
            )
            for place in offsets
            if place.topic == self.unknown
        ]
        return known + unknown

    def committed(self, places: list[TopicPartition], _: float) -> list[TopicPartition]:
        self.read_backs += 1
        code = self.answers.pop(0) if self.answers else 0
        if code:
            raise KafkaException(KafkaError(code))
        metadata = self.commits[-1][1] or "" if self.keeps_metadata else ""
        return [TopicPartition(place.topic, place.partition, 0, metadata) for place in places]

    def pause(self, places: list[TopicPartition]) -> None:
        self.paused += [place.partition for place in places]

    def get_watermark_offsets(self, *_: object, **__: object) -> tuple[int, int]:
        return 0, self.end


@pytest.mark.parametrize(
    ("options", "settings"),
    [
        ({}, {}),
        ({**OPTIONS, "enable.auto.commit": True}, {}),
        ({**OPTIONS, "max.poll.interval.ms": 10_000}, {"drain_s": 10}),
        (OPTIONS, {"workers": 0}),
        (OPTIONS, {"batch": 0}),
        (OPTIONS, {"hooks": print}),
        (OPTIONS, {"retries": -1}),
        (OPTIONS, {"retries": "five"}),
        (OPTIONS, {"order": "value"}),
        (OPTIONS, {"drain_s": -1}),
        (OPTIONS, {"timeout_s": "long"}),
        (OPTIONS, {"quarantine": True}),
        (OPTIONS, {"poison": Poison.BLOCK, "archive_blocked": True}),
    ],
)
def test_nonsense_is_refused_before_anything_connects(options: dict[str, Any], settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        ParallelConsumer(options, ["orders"], print, **settings)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("metadata_bytes", 10),
        ("timeout_s", 0),
        ("timeout_s", 0.0001),
        ("drain_s", float("inf")),
        ("drain_s", float("nan")),
        ("commit_every_s", 1e306),
        ("window", None),
        ("window", "many"),
        ("options", None),
        ("options", [("group.id", "billing")]),
        ("topics", None),
        ("topics", []),
        ("topics", b"orders"),
        ("topics", ["orders", None]),
        ("topics", [b"orders"]),
        ("topics", [""]),
        ("dead_letters", 5),
        ("dead_letters", print),
        ("dead_letters", ""),
        ("poison", "drop"),
        ("poison", None),
        ("processes", 4),
        ("processes", None),
        ("producer", 5),
        ("producer", []),
    ],
)
def test_an_error_names_the_setting_that_was_given(name: str, value: Any) -> None:
    arguments: dict[str, Any] = {"options": OPTIONS, "topics": ["orders"], "handle": print}
    with pytest.raises(ConfigError, match=f"^{name} is") as raised:
        ParallelConsumer(**{**arguments, name: value})
    assert raised.value.parameter == name


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"group.id": "billing", 5: "five"}, "a name in options is 5; it must be a str"),
        (GROUP, "bootstrap.servers is None; it must name at least one broker, for example 'localhost:9092'"),
        ({**GROUP, "bootstrap.servers": ""}, "bootstrap.servers is ''; it must name at least one broker"),
        ({**OPTIONS, "max.poll.interval.ms": "soon"}, "max.poll.interval.ms is 'soon'; it must be a whole number"),
        ({**OPTIONS, "max.poll.interval.ms": None}, "max.poll.interval.ms is None; it must be a whole number"),
    ],
)
def test_an_error_names_the_option_that_was_given(options: Any, text: str) -> None:
    with pytest.raises(ConfigError, match=f"^{re.escape(text)}"):
        ParallelConsumer(options, ["orders"], print)


def test_brokers_have_a_second_name_and_an_interval_may_be_a_text() -> None:
    ParallelConsumer({**GROUP, "metadata.broker.list": "localhost:9092", "max.poll.interval.ms": "60000"}, ["a"], print)


@pytest.mark.parametrize(
    ("topics", "says"),
    [
        (["orders", "orders.dlq"], "none of topics"),
        (["orders", "^orders.*"], "not match '^orders.*', which is consumed; take another name, or exclude this one"),
        (["^orders"], "not match '^orders', which is consumed"),
        ([r"^(orders|bills)\.dlq$"], r"not match '^(orders|bills)\\.dlq$', which is consumed"),
    ],
)
def test_dead_letters_that_would_be_consumed_again_are_refused(topics: list[str], says: str) -> None:
    with pytest.raises(ConfigError, match=f"^dead_letters is 'orders.dlq'; it must .*{re.escape(says)}"):
        ParallelConsumer(OPTIONS, topics, print, dead_letters="orders.dlq")


@pytest.mark.parametrize(
    "topic",
    [
        "orders",
        "^orders$",
        "orders.*",  # no pattern, as it does not begin like one
        "^[[:alpha:]]*.dlq$",  # of these Python knows nothing
        "^orders(",
        "^(orders.dlq){99999999999}",
    ],
)
def test_dead_letters_that_are_not_known_to_be_consumed_are_let_pass(topic: str) -> None:
    ParallelConsumer(OPTIONS, [topic], print, dead_letters="orders.dlq")


def test_dead_letters_that_an_option_excludes_are_not_consumed_and_their_writer_does_not_know_that_option() -> None:
    options = {**OPTIONS, "topic.blacklist": r"^bills,^orders\.dlq$"}
    consumer = ParallelConsumer(options, ["^orders"], print, dead_letters="orders.dlq")
    assert "topic.blacklist" in consumer._options
    assert "topic.blacklist" not in consumer._letter_options
    with pytest.raises(ConfigError):
        ParallelConsumer({**OPTIONS, "topic.blacklist": "^bills,"}, ["^orders"], print, dead_letters="orders.dlq")


def test_a_handler_that_cannot_travel_to_a_process_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"^handle is <function .*; it must be picklable .*; pickle says .*lambda"):
        ParallelConsumer(OPTIONS, ["orders"], lambda message: message, processes=True)
    ParallelConsumer(OPTIONS, ["orders"], print, processes=True)


async def handle_in_a_loop(_message: object) -> None: ...


def test_a_coroutine_function_takes_no_processes() -> None:
    with pytest.raises(ConfigError, match=r"^processes is True; it must be False with a coroutine function"):
        ParallelConsumer(OPTIONS, ["orders"], handle_in_a_loop, processes=True)


@pytest.mark.parametrize(
    ("ask", "arguments"),
    [("stats", ()), ("busiest_keys", ()), ("why_blocked", ("orders-0", 7)), ("unblock", ("orders-0", "a"))],
)
def test_a_consumer_that_has_not_begun_says_so(ask: str, arguments: tuple[object, ...]) -> None:
    consumer = ParallelConsumer(OPTIONS, ["orders"], print)
    with pytest.raises(NotBegunError, match=r"has not begun to run; call run\(\) or run_async\(\) first"):
        getattr(consumer, ask)(*arguments)
    assert consumer.metrics() == [], "what exports them may be there before"


def test_a_partition_that_another_member_owns_is_named() -> None:
    consumer = ParallelConsumer(OPTIONS, ["orders"], print)
    with ThreadRunner[Any](print, commit=lambda *_: None, dead_letter=print) as runner:
        consumer._running = ThreadRunnerAdapter(runner), UNASSIGNED
        runner.add_log("orders-0", start=0)
        assert consumer.why_blocked("orders-0", 7) is None
        assert not consumer.unblock("orders-0", "a")
        with pytest.raises(UnknownPartitionError):
            consumer.why_blocked("orders-99", 7)
        with pytest.raises(UnknownPartitionError, match="does not own partition 'orders-99'") as told:
            consumer.unblock("orders-99", "a")
    again = pickle.loads(pickle.dumps(told.value))
    assert (again.log, str(again)) == ("orders-99", str(told.value))


def test_a_signal_stops_it_from_another_thread_as_its_handler_may_have_interrupted_whoever_has_a_lock(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    consumer = ParallelConsumer(OPTIONS, ["orders"], print)
    told: list[threading.Thread] = []

    def live(_make: object) -> None:
        signal.raise_signal(signal.SIGTERM)
        until(lambda: len(told) > 0)

    monkeypatch.setattr(consumer, "_consume", live)
    monkeypatch.setattr(consumer, "stop", lambda: told.append(threading.current_thread()))
    before = signal.getsignal(signal.SIGTERM)
    consumer.run()
    assert told[0] is not threading.main_thread()
    assert signal.getsignal(signal.SIGTERM) is before


def test_one_topic_is_a_list_of_one_and_a_handler_can_be_called() -> None:
    with pytest.raises(ConfigError):
        ParallelConsumer(OPTIONS, "orders", print)
    with pytest.raises(ConfigError):
        ParallelConsumer(OPTIONS, ["orders"], None)  # type: ignore[arg-type]


def test_a_handler_that_yields_is_refused_before_anything_starts() -> None:
    def handle(message: object) -> Any:
        yield message

    with pytest.raises(ConfigError, match=r"^handle is .*; it must be a function that does its work when it is called"):
        ParallelConsumer(OPTIONS, ["orders"], handle)


async def unheard(*_: object) -> None: ...


@pytest.mark.parametrize("ends", ["with tasks", "with threads"])
def test_a_partition_is_not_here_when_all_has_ended(ends: str) -> None:
    consumer = ParallelConsumer(OPTIONS, ["orders"], print)

    async def serve() -> None:
        async with AsyncRunner[Any](unheard) as runner:
            runner.add_log("orders-0", start=0)
            adapter = AsyncRunnerAdapter(runner, asyncio.get_running_loop(), threading.get_ident(), ())
            consumer._running = adapter, UNASSIGNED

    if ends == "with tasks":
        asyncio.run(serve())
    else:
        with ThreadRunner[Any](print) as runner:
            runner.add_log("orders-0", start=0)
            consumer._running = ThreadRunnerAdapter(runner), UNASSIGNED
    assert consumer.stats().partitions == {}
    assert consumer.stuck() == []
    with pytest.raises(StoppedError):
        consumer.why_blocked("orders-0", 7)


def test_whoever_asks_a_loop_that_ends_is_answered() -> None:
    for _ in range(20):
        ended, adapter = threading.Event(), list[AsyncRunnerAdapter]()

        async def serve(adapter: list[AsyncRunnerAdapter] = adapter) -> None:
            async with AsyncRunner[Any](unheard) as runner:
                runner.add_log("orders-0", start=0)
                adapter.append(AsyncRunnerAdapter(runner, asyncio.get_running_loop(), threading.get_ident(), ()))
                await asyncio.sleep(0.01)

        def export(ended: threading.Event = ended, adapter: list[AsyncRunnerAdapter] = adapter) -> None:
            while not ended.is_set():
                if adapter:
                    adapter[0].call(lambda runner: runner.metrics())

        exporters = [threading.Thread(target=export, daemon=True) for _ in range(3)]
        for exporter in exporters:
            exporter.start()
        asyncio.run(serve())
        ended.set()
        for exporter in exporters:
            exporter.join(10)
        assert not any(exporter.is_alive() for exporter in exporters)


@pytest.mark.parametrize("kind", ["threads", "tasks"])
def test_a_partition_whose_last_commit_fails_has_not_left_and_what_failed_is_raised_at_the_end(kind: str) -> None:
    is_away = threading.Event()

    def fail(*_: object) -> None:
        if is_away.is_set():
            raise OSError("the broker is away")

    def leave(adapter: Adapter) -> tuple[list[str], list[str]]:
        adapter.add("orders-0", 0, None)
        adapter.add("orders-1", 0, None)
        adapter.submit("orders-0", [(0, "a", cast("Any", 0))])
        until(lambda: adapter.call(lambda runner: runner.stats().done) == 1)
        is_away.set()
        return adapter.remove(["orders-0", "orders-1"], 1_000), adapter.remove(["orders-2"], 0)

    if kind == "threads":
        threads = ThreadRunnerAdapter(ThreadRunner(print, commit=fail, config=ONE_ATTEMPT))
        assert leave(threads) == (["orders-0", "orders-1"], ["orders-2"])
        with pytest.raises(OSError, match="the broker is away"):
            threads.stop()
        return

    async def serve() -> None:
        loop = asyncio.get_running_loop()
        adapter = AsyncRunnerAdapter(
            AsyncRunner(unheard, commit=fail, config=ONE_ATTEMPT), loop, threading.get_ident(), ()
        )
        assert await asyncio.to_thread(leave, adapter) == (["orders-0", "orders-1"], ["orders-2"])
        with pytest.raises(OSError, match="the broker is away"):
            await asyncio.to_thread(adapter.stop)

    asyncio.run(serve())


def test_options_of_the_connection_reach_the_writer_of_dead_letters_and_those_of_a_consumer_do_not() -> None:
    given = {**GROUP, "security.protocol": "SSL", "auto.offset.reset": "latest", "fetch.min.bytes": 1}
    options = letter_options(given, {"linger.ms": 5})
    assert options["security.protocol"] == "SSL"
    assert options["linger.ms"] == 5
    assert not options.keys() & {"group.id", "auto.offset.reset", "fetch.min.bytes"}


def test_what_a_message_is_ordered_by() -> None:
    message: Any = Message("orders", 0, 7, b"k", b"v")
    assert [key_of(order)(message) for order in ("key", "none")] == [b"k", None]
    assert key_of("partition")(message) is not None
    assert key_of(lambda each: each.value())(message) == b"v"


def test_the_end_of_a_log_is_committed_over_offsets_that_hold_no_message() -> None:
    assignment = Assignment("orders", 0, 5)
    assert not assignment.lags()
    assignment.position, assignment.end = 8, 10
    assert (assignment.offset_to_commit(7), assignment.offset_to_commit(8)) == (7, 10)
    assert not assignment.lags()
    assignment.committed = 8
    assert assignment.lags()
    assignment.committed = 10
    assert assignment.offset_to_commit(8) == 10  # never back
    assignment.position, assignment.end = 12, 12
    assert assignment.offset_to_commit(11) == 11


def test_an_empty_log_is_committed_at_its_end() -> None:
    assignment = Assignment("orders", 0, None)
    assignment.end = 0
    assert assignment.lags()
    assert assignment.offset_to_commit(-1) == 0


def test_a_token_counts_at_or_below_its_offset_only(caplog: pytest.LogCaptureFixture) -> None:
    text = ContiguousCursor(start=7).to_token().text
    assert token_of(TopicPartition("orders", 0, 7, text)) == text
    assert token_of(TopicPartition("orders", 0, 9, text)) == text  # lifted over a gap
    assert token_of(TopicPartition("orders", 0, 0, "")) is None
    assert not caplog.records
    assert token_of(TopicPartition("orders", 0, 3, text)) is None  # set back by hand
    assert token_of(TopicPartition("orders", 0, 7, text[:-1])) is None
    assert [record.levelno for record in caplog.records] == [logging.WARNING] * 2


def test_a_refused_commit_is_sent_again_unless_something_newer_is_wanted() -> None:
    commits, assignment, client = Commits(0), Assignment("orders", 0, 0), Client()
    commits.put(assignment, 1, "one")
    commits.send(client, [assignment])  # type: ignore[arg-type]
    commits.put(assignment, 2, "two")
    commits.send(client, [assignment])  # type: ignore[arg-type]  # one at a time
    assert client.commits == [(1, "one")]
    commits.answered(KafkaError(KafkaError.REBALANCE_IN_PROGRESS), [])
    commits.send(client, [assignment])  # type: ignore[arg-type]
    assert client.commits == [(1, "one"), (2, "two")]
    commits.answered(None, [TopicPartition("orders", 0, 2)])
    assert assignment.committed == 2


def test_a_runner_is_told_of_its_commit_when_the_broker_has_confirmed_it_or_nothing_newer_will_be() -> None:
    commits, assignment, client = Commits(0), Assignment("orders", 0, 0), Client(KafkaError.REBALANCE_IN_PROGRESS)
    first = commits.put(assignment, 1, "one")
    commits.commit_now(client, [assignment], 0)  # type: ignore[arg-type]
    assert not first.done(), "it was refused"
    commits.send(client, [])  # type: ignore[arg-type]
    second = commits.put(assignment, 2, "two")
    commits.answered(None, [TopicPartition("orders", 0, 1)])
    assert not first.done(), "a newer one is wanted, and covers it"
    commits.commit_now(client, [assignment], 0)  # type: ignore[arg-type]
    assert (first.result(0), second.result(0)) == (None, None)
    third = commits.put(assignment, 3, "three")
    commits.release([assignment])
    assert third.done()
    assert commits.put(assignment, 4, "four").done(), "the partition is drained"
    commits.commit_now(client, [assignment], 0)  # type: ignore[arg-type]
    assert client.commits[-1] == (4, "four")


def test_a_commit_over_the_end_of_a_log_keeps_the_token() -> None:
    commits, assignment, client = Commits(0), Assignment("orders", 0, None), Client()
    commits.put(assignment, 5, "token")
    assignment.position = 5
    commits.commit_now(client, [assignment], 0)  # type: ignore[arg-type]
    assignment.end = 9
    commits.send(client, [assignment])  # type: ignore[arg-type]
    assert client.commits == [(5, "token"), (9, "token")]


def test_a_commit_that_will_not_pass_stops_the_consumer() -> None:
    commits, assignment = Commits(0), Assignment("orders", 0, 0)
    commits.put(assignment, 1, "one")
    commits.send(Client(), [assignment])  # type: ignore[arg-type]
    with pytest.raises(KafkaException):
        commits.answered(KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED), [])


def test_a_topic_that_was_deleted_costs_its_commit_alone_and_one_line_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    commits, client, deleted, assignment = Commits(0), Client(), Assignment("deleted", 0, 0), Assignment("orders", 0, 0)
    client.unknown = "deleted"
    deleted.end = 3
    for position in (1, 2):
        commits.put(deleted, position, "gone")
        commits.put(assignment, position, "here")
        assert commits.commit_now(client, [deleted, assignment], 0)  # type: ignore[arg-type]
    assert (client.commits, assignment.committed, deleted.committed) == ([(1, "here"), (2, "here")], 2, 0)
    assert caplog.text.count("deleted-0: commit refused") == 1
    assert not deleted.lags(), "or it would be tried for ever"
    client.unknown = ""
    commits.put(deleted, 2, "back")
    assert commits.commit_now(client, [deleted], 0)  # type: ignore[arg-type]
    assert deleted.committed == 3, "its end"


def test_what_a_broker_does_not_know_is_tried_again_after_a_while_and_before_it_is_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    commits, client, assignment = Commits(0), Client(), Assignment("orders", 0, 0)
    now = [100.0]
    asked: list[list[TopicPartition]] = []

    def turns(number: int) -> int:
        before = len(asked)
        for _ in range(number):
            commits.send(client, [assignment])  # type: ignore[arg-type]
            if len(asked) > before:
                commits.answered(None, asked[-1])
        return len(asked) - before

    def asking(offsets: list[TopicPartition], asynchronous: bool) -> list[TopicPartition]:
        asked.append(Client.commit(client, offsets, asynchronous))
        return asked[-1]

    monkeypatch.setattr("keyshared_kafka.commits.monotonic", lambda: now[0])
    monkeypatch.setattr(client, "commit", asking)
    client.unknown = "orders"
    commits.put(assignment, 1, "done")
    assert turns(9) == 1
    now[0] += 5
    assert turns(9) == 1
    assert not commits.is_pending(), "nobody waits for it"
    commits.hurry()
    assert turns(9) == 1
    client.unknown = ""
    assert commits.commit_now(client, [assignment], 0)  # type: ignore[arg-type]
    assert (client.commits, assignment.committed) == ([(1, "done")], 1)
    now[0] += 5
    assert turns(9) == 0


def test_what_will_not_pass_is_raised_when_all_partitions_have_been_looked_at() -> None:
    commits, assignments = Commits(0), [Assignment("orders", at, 0) for at in range(3)]
    for assignment in assignments:
        commits.put(assignment, 1, "one")
    commits.send(Client(), assignments)  # type: ignore[arg-type]
    codes = (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.NO_ERROR, KafkaError.REBALANCE_IN_PROGRESS)
    answers: Any = [
        SimpleNamespace(topic="orders", partition=at, error=KafkaError(code) if code else None)
        for at, code in enumerate(codes)
    ]
    with pytest.raises(KafkaException):
        commits.answered(None, answers)
    client = Client()
    commits.commit_now(client, assignments, 0)  # type: ignore[arg-type]
    assert ([assignment.committed for assignment in assignments], len(client.commits)) == ([0, 1, 1], 1)


def test_a_commit_that_is_on_its_way_when_its_partition_leaves_is_made_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    commits, assignment, client = Commits(0), Assignment("orders", 0, 0), Client()
    commits.put(assignment, 5, "five")
    commits.send(client, [assignment])  # type: ignore[arg-type]
    assert commits.is_pending()
    assert commits.commit_now(client, [assignment], 0)  # type: ignore[arg-type]
    assert client.commits == [(5, "five")] * 2
    assignment.is_gone = True
    commits.answered(KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED), [])  # of the first: it says nothing any more
    assert not commits.is_pending()
    assert not caplog.records


def test_a_commit_that_was_not_answered_at_the_end_is_kept_as_one_that_was_refused() -> None:
    commits, assignment = Commits(60), Assignment("orders", 0, 0)
    commits.put(assignment, 5, "five")
    commits.send(Client(), [assignment])  # type: ignore[arg-type]
    commits.keep_refused([assignment])
    assignment.is_gone = True
    commits.answered(KafkaError(KafkaError._TIMED_OUT), [])
    again, client = Assignment("orders", 0, 2), Client()
    assert commits.resume(again, None) == "five"
    commits.hurry()  # the last commits wait for no period
    commits.send(client, [again])  # type: ignore[arg-type]
    assert client.commits == [(5, "five")]


def test_the_last_commit_is_tried_again() -> None:
    busy = KafkaError.REBALANCE_IN_PROGRESS
    commits, assignment = Commits(0), Assignment("orders", 0, 0)
    commits.put(assignment, 1, "one")
    client = Client(busy, busy)
    assert commits.commit_now(client, [assignment], 5)  # type: ignore[arg-type]
    assert (client.commits, assignment.committed) == ([(1, "one")], 1)
    commits.put(assignment, 2, "two")
    assert not commits.commit_now(Client(busy), [assignment], 0)  # type: ignore[arg-type]


def refused(position: int, token: str) -> Commits:
    """What is left of a partition whose last commit was refused."""
    commits, assignment = Commits(0), Assignment("orders", 0, 0)
    commits.put(assignment, position, token)
    assert not commits.commit_now(Client(KafkaError.REBALANCE_IN_PROGRESS), [assignment], 0)  # type: ignore[arg-type]
    commits.keep_refused([assignment])
    assignment.is_gone = True
    return commits


@pytest.mark.parametrize(
    ("committed", "token", "begins"),
    [
        (2, "abc", (5, "abcd")),
        (5, "abc", (5, "abcd")),
        (5, "abcdef", (5, "abcdef")),  # whoever had it in between has done more
        (6, None, (6, None)),
        (None, None, (5, "abcd")),
    ],
)
def test_a_partition_that_comes_back_goes_on_behind_the_commit_that_was_refused(
    committed: int | None, token: str | None, begins: tuple[int, str | None]
) -> None:
    commits, client = refused(5, "abcd"), Client()
    assignment = Assignment("orders", 0, committed)
    assert (commits.resume(assignment, token), assignment.position) == (begins[1], begins[0])
    commits.commit_now(client, [assignment], 0)  # type: ignore[arg-type]
    assert client.commits == ([begins] if begins[1] == "abcd" else [])


def test_what_was_refused_for_a_partition_that_does_not_come_back_is_given_up(caplog: pytest.LogCaptureFixture) -> None:
    commits = refused(5, "abcd")
    commits.forget_refused()
    assert "will be redelivered" in caplog.text
    assert not commits.is_pending()
    assert commits.resume(Assignment("orders", 0, 2), None) is None


def test_a_token_that_is_too_long_for_the_broker_is_left_out() -> None:
    commits, assignment, client = Commits(0), Assignment("orders", 0, 0), Client(KafkaError.OFFSET_METADATA_TOO_LARGE)
    commits.put(assignment, 1, "long")
    commits.commit_now(client, [assignment], 5)  # type: ignore[arg-type]
    assert client.commits == [(1, "")]


@pytest.mark.parametrize("keeps_metadata", [True, False])
def test_the_first_commit_is_read_back_once(keeps_metadata: bool, caplog: pytest.LogCaptureFixture) -> None:
    commits, assignment, client = Commits(0), Assignment("orders", 0, 0), Client()
    client.keeps_metadata = keeps_metadata
    for position in range(1, 4):
        commits.put(assignment, position, "token")
        commits.commit_now(client, [assignment], 0)  # type: ignore[arg-type]
        commits.send(client, [assignment])  # type: ignore[arg-type]
    assert client.read_backs == 1
    assert caplog.text.count("orders-0: the broker keeps no metadata of commits") == (not keeps_metadata)


def test_a_broker_that_is_away_is_asked_for_another_commit_and_never_for_one_of_a_partition_that_is_gone() -> None:
    commits, assignment, gone, client = Commits(0), Assignment("orders", 0, 0), Assignment("orders", 1, 0), Client()
    for each, answers in ((gone, [0]), (assignment, [0, KafkaError._TRANSPORT]), (assignment, [])):
        client.answers = list(answers)
        commits.put(each, 1, "token")
        commits.commit_now(client, [each], 0)  # type: ignore[arg-type]
        gone.is_gone = True
        commits.send(client, [])  # type: ignore[arg-type]
    assert client.read_backs == 2


def test_nothing_is_committed_for_a_partition_that_is_lost() -> None:
    commits, assignment, client = Commits(0), Assignment("orders", 0, 0), Client()
    commits.put(assignment, 1, "one")
    assignment.is_gone = True
    commits.send(client, [])  # type: ignore[arg-type]
    commits.put(assignment, 1, "one")
    commits.commit_now(client, [assignment], 5)  # type: ignore[arg-type]
    assert client.commits == []


def member_at(position: int, end: int) -> tuple[Member, list[tuple[str, object]]]:
    told: list[tuple[str, object]] = []
    member = Member({**GROUP, "log_level": 0}, ["orders"], key_of("key"), None, RunnerConfig())
    member._consumer.close()
    member._consumer = Client()  # type: ignore[assignment]
    member._consumer.end = end  # type: ignore[attr-defined]
    member._adapter = SimpleNamespace(
        lose=lambda names: told.append(("lose", names)), add=lambda *log: told.append(("add", log))
    )
    assignment = Assignment("orders", 0, position)
    member._assigned[assignment.name] = assignment
    return member, told


def test_messages_that_come_again_are_passed_over_while_the_log_still_has_them() -> None:
    member, told = member_at(10, end=12)
    member._receive(Message("orders", 0, 8, b"k", b"v"))
    assert told == []
    assert not member._assigned["orders-0"].backlog
    member._receive(Message("orders", 0, 11, b"k", b"v"))
    assert [row[0] for row in member._assigned["orders-0"].backlog] == [11]


def test_a_log_that_was_cut_below_its_reader_begins_anew(caplog: pytest.LogCaptureFixture) -> None:
    member, told = member_at(10, end=4)
    old = member._assigned["orders-0"]
    member._receive(Message("orders", 0, 3, b"k", b"v"))
    assert told == [("lose", ["orders-0"]), ("add", ("orders-0", 3, None))]
    assert old.is_gone
    assert member._assigned["orders-0"].position == 4
    assert "was truncated" in caplog.text


def test_a_partition_whose_handlers_work_on_keeps_no_other_from_leaving(monkeypatch: pytest.MonkeyPatch) -> None:
    left: list[str] = []

    def remove_log(log: str, _: int) -> bool:
        time.sleep(0.01)
        left.append(log)
        return False

    monkeypatch.setattr("keyshared_kafka.adapters.ThreadPoolExecutor", lambda _: ThreadPoolExecutor(1))  # begins late
    logs = [f"orders-{partition}" for partition in range(10)]
    runner: Any = SimpleNamespace(remove_log=remove_log, stats=lambda: SimpleNamespace(logs=logs))
    assert ThreadRunnerAdapter(runner).remove(logs, 0) == logs
    assert left == logs


def test_a_batch_may_be_longer_than_what_is_kept_of_a_key_otherwise() -> None:
    consumer = ParallelConsumer(OPTIONS, ["orders"], print, batch=50, window=400)
    assert consumer._config.max_loaded_per_key == 50
    with pytest.raises(ConfigError, match="batch is 'many'"):
        ParallelConsumer(OPTIONS, ["orders"], print, batch=cast("Any", "many"))


def test_the_end_of_a_log_is_asked_for_at_each_step_back_and_only_then() -> None:
    member, told = member_at(10, end=12)
    client: Any = member._consumer
    for offset in (7, 8, 9):
        member._receive(Message("orders", 0, offset, b"k", b"v"))
        client.end = 0  # so that it would begin anew if it asked while it goes forward
    assert told == []
    client.end = 6
    member._receive(Message("orders", 0, 5, b"k", b"new"))
    member._receive(Message("orders", 0, 6, b"k", b"new"))
    assert told == [("lose", ["orders-0"]), ("add", ("orders-0", 5, None))]
    assert [row[0] for row in member._assigned["orders-0"].backlog] == [5, 6]


def test_an_error_of_the_function_of_order_names_the_message_and_is_raised_when_those_before_are_done(
    caplog: pytest.LogCaptureFixture,
) -> None:
    member, _ = member_at(0, end=0)
    (assignment,), client = member.assignments(), cast("Any", member._consumer)
    member._key_of = key_of(lambda message: message.key() if message.value() else cast("Any", None)["customer"])
    for offset, value in enumerate((b"v", b"v", b"", b"v")):
        member._receive(Message("orders", 0, offset, b"k", value))
    assert "orders-0[2]: cannot be ordered (TypeError" in caplog.text
    assert ([row[0] for row in assignment.backlog], assignment.position, client.paused) == ([0, 1], 2, [0])
    member._raise_if_unreadable()
    assignment.backlog.clear()
    member._raise_if_unreadable()
    assignment.committed = 2
    with pytest.raises(TypeError) as raised:
        member._raise_if_unreadable()
    assert raised.value.__notes__ == ["raised by the function of order for orders-0[2], key b'k'"]


@pytest.mark.parametrize("key", [7, bytearray(b"k"), "\ud800", ("k",)])
def test_what_the_function_of_order_returns_and_is_no_key_is_told_with_its_message(key: Any) -> None:
    member, _ = member_at(0, end=0)
    member._key_of = key_of(lambda _: key)
    member._receive(Message("orders", 0, 8, b"k", b"v"))
    with pytest.raises(KeyTypeError) as raised:
        member._raise_if_unreadable()
    (note,) = raised.value.__notes__
    assert note.startswith("returned by the function of order for orders-0[8]; let it return bytes, str or None")
    assert not member._assigned["orders-0"].backlog


@pytest.mark.parametrize(("returned", "key"), [(b"k", b"k"), ("käse", "käse".encode()), (None, None)])
def test_what_the_function_of_order_may_return(returned: bytes | str | None, key: bytes | None) -> None:
    member, _ = member_at(0, end=0)
    member._key_of = key_of(lambda _: returned)
    member._receive(Message("orders", 0, 8, b"other", b"v"))
    assert [row[1] for row in member._assigned["orders-0"].backlog] == [key]


class MuteError(Exception):
    def __str__(self) -> str:
        raise RuntimeError


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ValueError("no customer \ud800"), b"ValueError: no customer \\ud800"),
        (MuteError(), b"MuteError"),
        (None, b"an older message of its key is a dead letter"),
    ],
)
def test_a_dead_letter_can_be_written_whatever_its_error_says(error: Exception | None, reason: bytes) -> None:
    letter = DeadLetter("orders-0", 7, None, Message("orders", 0, 7), 2, error)
    headers: Any = dict(headers_of(letter, "billing"))
    assert headers["keyshared.reason"] == reason


def test_a_message_of_a_partition_that_left_is_passed_over() -> None:
    member, _ = member_at(0, end=0)
    member._receive(Message("orders", 3, 8, b"k", b"v"))
    assert list(member._assigned) == ["orders-0"]


def test_an_error_that_may_hide_a_skipped_message_stops_the_consumer() -> None:
    member, _ = member_at(0, end=0)
    member._receive(Message("orders", 0, 8, error=KafkaError(KafkaError._TRANSPORT)))
    with pytest.raises(KafkaException):
        member._receive(Message("orders", 0, 8, error=KafkaError(KafkaError._BAD_MSG)))


PARENT = """
import time
from keyshared_kafka.processes import make_process
print(make_process().submit(__import__("os").getpid).result(), flush=True)
time.sleep(1_000)
"""


def test_the_process_of_a_worker_does_not_outlive_a_consumer_that_is_killed() -> None:
    parent = subprocess.Popen([sys.executable, "-W", "ignore", "-c", PARENT], stdout=subprocess.PIPE, env=environment())
    assert parent.stdout is not None
    assert parent.stdout.readline().strip().isdigit(), "the worker has answered"
    parent.kill()
    parent.communicate(timeout=30)  # the pipe ends when the last process that has it ends, and the worker is one


ASKED_TO_STOP = """
import signal, time
from keyshared_kafka.processes import make_process
def handle(seconds):
    print("begins", flush=True)
    time.sleep(seconds)
    return "ends"
if __name__ == "__main__":
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: None)
    print(make_process().submit(handle, 1).result(), flush=True)
"""


ENDS_ITS_OWN = """
import os, signal, subprocess, sys
from multiprocessing import get_context
from keyshared_kafka.processes import make_process
def work(begun):
    begun.set()
    signal.pause()
def handle(_):
    program = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    program.terminate()
    context = get_context("fork")
    begun = context.Event()
    forked = context.Process(target=work, args=(begun,))
    forked.start()
    begun.wait(30)
    forked.terminate()
    forked.join(30)
    return program.wait(30), forked.exitcode
if __name__ == "__main__":
    print(*make_process().submit(handle, 0).result(), flush=True)
"""


def test_what_a_handler_in_a_process_starts_ends_when_it_is_told_to(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(ENDS_ITS_OWN)
    command = [sys.executable, "-W", "ignore", str(program)]
    told = subprocess.run(command, capture_output=True, text=True, env=environment(), timeout=60, check=True)
    assert told.stdout.strip() == "-15 -15"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_handler_in_a_process_finishes_when_a_terminal_or_a_service_manager_tells_all_processes_to_stop(
    number: signal.Signals, tmp_path: Path
) -> None:
    program = tmp_path / "program.py"
    program.write_text(ASKED_TO_STOP)
    command = [sys.executable, "-W", "ignore", str(program)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment(), start_new_session=True) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"begins\n"
        os.killpg(parent.pid, number)
        assert parent.communicate(timeout=30)[0] == b"ends\n"
