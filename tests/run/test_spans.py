"""Spans of handlers: what they say, and what they are linked to."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from keyshared import RetryPolicy
from keyshared.errors import ArgumentError
from keyshared.run import AsyncRunner, DeadLetter, PartlyDone, Reject, RetryLater, RunnerConfig, Spans, ThreadRunner
from keyshared.run.reports import Timeline

trace = pytest.importorskip("opentelemetry.trace")
sdk = pytest.importorskip("opentelemetry.sdk.trace")
memory = pytest.importorskip("opentelemetry.sdk.trace.export.in_memory_span_exporter")

PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
CONFIG = RunnerConfig(workers=2, retry=RetryPolicy(max_redeliveries=1, base_delay_ms=5))


class Exported:
    def __init__(self) -> None:
        self.exporter = memory.InMemorySpanExporter()
        provider = sdk.TracerProvider()
        provider.add_span_processor(sdk.export.SimpleSpanProcessor(self.exporter))
        self.tracer = provider.get_tracer("test")

    def spans(self) -> list[Any]:
        return sorted(self.exporter.get_finished_spans(), key=lambda span: span.start_time)


@pytest.fixture
def exported() -> Exported:
    pytest.importorskip("opentelemetry.sdk.trace.export")
    return Exported()


def headers(message: dict[str, str]) -> dict[str, str]:
    return message


def in_threads(handle: Any, spans: Spans, rows: list[Any], config: RunnerConfig, **more: Any) -> None:
    with ThreadRunner(handle, dead_letter=bury, spans=spans, config=config, **more) as runner:
        runner.add_log("orders", start=0)
        runner.submit_many("orders", rows)
        runner.drain()


def in_a_loop(handle: Any, spans: Spans, rows: list[Any], config: RunnerConfig, **more: Any) -> None:
    async def handle_in_loop(message: Any) -> None:
        handle(message)

    async def serve(function: Any) -> None:
        async with AsyncRunner(function, dead_letter=bury, spans=spans, config=config, **more) as runner:
            runner.add_log("orders", start=0)
            await runner.submit_many("orders", rows)
            await runner.drain()

    asyncio.run(serve(handle if more else handle_in_loop))


def in_threads_of_a_loop(handle: Any, spans: Spans, rows: list[Any], config: RunnerConfig) -> None:
    async def serve() -> None:
        async with AsyncRunner(handle, dead_letter=bury, spans=spans, config=config) as runner:
            runner.add_log("orders", start=0)
            await runner.submit_many("orders", rows)
            await runner.drain()

    asyncio.run(serve())


def in_executors(handle: Any, spans: Spans, rows: list[Any], config: RunnerConfig) -> None:
    in_threads(handle, spans, rows, config, executor=lambda: ThreadPoolExecutor(1))


def in_executors_of_a_loop(handle: Any, spans: Spans, rows: list[Any], config: RunnerConfig) -> None:
    in_a_loop(handle, spans, rows, config, executor=lambda: ThreadPoolExecutor(1))


def bury(_letter: DeadLetter[Any]) -> None: ...


RUNNERS = [in_threads, in_a_loop, in_threads_of_a_loop, in_executors, in_executors_of_a_loop]


@pytest.mark.parametrize("run", RUNNERS)
def test_each_run_of_a_handler_has_a_span_that_says_how_it_has_ended(
    run: Callable[..., None], exported: Exported
) -> None:
    tried: list[str] = []

    def handle(message: str) -> None:
        tried.append(message)
        if message == "rejected":
            raise Reject("no such customer")
        if message == "later" and tried.count("later") == 1:
            raise RetryLater(5)
        if message == "failed" and tried.count("failed") == 1:
            raise SystemExit(1)

    rows = [(number, f"key-{number}", each) for number, each in enumerate(("done", "rejected", "later", "failed"))]
    run(handle, Spans(tracer=exported.tracer), rows, CONFIG)
    found: dict[int, list[Any]] = {}
    for span in exported.spans():
        found.setdefault(span.attributes["keyshared.offset"], []).append(span)
    outcomes = {offset: [each.attributes["keyshared.outcome"] for each in spans] for offset, spans in found.items()}
    assert outcomes == {0: ["done"], 1: ["rejected"], 2: ["postponed", "done"], 3: ["failed", "done"]}
    (rejected,), (_, again) = found[1], found[3]
    assert rejected.name == "process orders"
    assert rejected.kind is trace.SpanKind.CONSUMER
    assert (rejected.attributes["keyshared.log"], rejected.attributes["keyshared.key"]) == ("orders", "key-1")
    assert rejected.status.status_code is trace.StatusCode.ERROR
    assert rejected.status.description == "Reject: no such customer"
    assert rejected.events[0].name == "exception"
    assert found[2][0].status.status_code is trace.StatusCode.UNSET
    assert (again.attributes["keyshared.attempt"], again.attributes["keyshared.failures"]) == (2, 1)
    assert again.attributes["keyshared.wait_for_retry_ms"] >= 5
    assert rejected.attributes["keyshared.wait_for_key_ms"] == 0
    assert rejected.attributes["keyshared.wait_for_worker_ms"] >= 0


def test_a_span_is_linked_to_the_context_of_each_producer_of_its_batch(exported: Exported) -> None:
    rows = [(0, "a", {"traceparent": PARENT}), (1, "a", {}), (2, None, {"traceparent": "nonsense"})]
    spans = Spans(headers=headers, tracer=exported.tracer)

    def handle(messages: list[Any]) -> None:
        if len(messages) == 2:
            raise PartlyDone(1, ValueError("the second one"))

    in_threads(handle, spans, rows, RunnerConfig(batch=2, workers=1, retry=CONFIG.retry))
    linked = [span for span in exported.spans() if span.links]
    (span,) = linked
    assert span.attributes["keyshared.messages"] == 2
    assert span.attributes["keyshared.outcome"] == "failed"
    (link,) = span.links
    assert trace.format_trace_id(link.context.trace_id) == PARENT.split("-")[1]


def test_the_span_is_current_within_the_handler_and_none_is_after_it(exported: Exported) -> None:
    seen: list[str] = []

    def handle(_message: object) -> None:
        seen.append(trace.get_current_span().name)

    in_threads(handle, Spans(tracer=exported.tracer), [(0, "a", 1)], CONFIG)
    in_a_loop(handle, Spans(tracer=exported.tracer), [(0, "a", 1)], CONFIG)
    assert seen == ["process orders"] * 2
    assert not trace.get_current_span().get_span_context().is_valid


def test_a_coroutine_that_is_cancelled_has_a_span_that_says_so(exported: Exported) -> None:
    began = asyncio.Event()

    async def handle(_message: object) -> None:
        began.set()
        await asyncio.sleep(60)

    async def serve() -> None:
        async with AsyncRunner[int](handle, spans=Spans(tracer=exported.tracer), config=CONFIG) as runner:
            runner.add_log("orders", start=0)
            await runner.submit("orders", 0, "a", 1)
            await began.wait()
            await runner.stop(0)

    asyncio.run(serve())
    assert [span.attributes["keyshared.outcome"] for span in exported.spans()] == ["cancelled"]


def test_the_time_that_a_message_waits_for_its_key_is_told_apart(exported: Exported) -> None:
    go = threading.Event()

    def handle(message: str) -> None:
        if message == "first":
            go.wait(60)

    with ThreadRunner(handle, spans=Spans(tracer=exported.tracer), config=CONFIG) as runner:
        runner.add_log("orders", start=0)
        runner.submit_many("orders", [(0, "a", "first"), (1, "a", "second"), (2, "b", "other")])
        while not exported.spans():
            pass
        go.set()
        runner.drain()
    waits = {
        span.attributes["keyshared.offset"]: span.attributes["keyshared.wait_for_key_ms"] for span in exported.spans()
    }
    ran_ms = next(
        (span.end_time - span.start_time) // 1_000_000
        for span in exported.spans()
        if span.attributes["keyshared.offset"] == 0
    )
    assert waits[2] == 0
    assert waits[1] >= ran_ms


def test_a_timeline_forgets_the_oldest_times(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("keyshared.run.reports._MOST", 2)
    timeline = Timeline()
    for number, key in enumerate((b"a", b"b", b"c", None)):
        timeline.submitted(number, now_ms=10)
        timeline.freed(key, now_ms=15)
    assert timeline.waits(0, b"a", now_ms=20) == {}
    assert timeline.waits(1, b"c", now_ms=20) == {"keyshared.wait_for_retry_ms": 5}
    assert timeline.waits(2, b"a", now_ms=20) == {"keyshared.wait_for_key_ms": 0, "keyshared.wait_for_worker_ms": 10}
    assert timeline.waits(3, None, now_ms=20) == {"keyshared.wait_for_key_ms": 0, "keyshared.wait_for_worker_ms": 10}
    assert timeline.waits(3, None, now_ms=20) == {}, "each is asked for once"


def without_arguments() -> dict[str, str]:
    return {}


def test_wrong_arguments_are_refused() -> None:
    with pytest.raises(ArgumentError, match=r"^headers"):
        Spans(headers=without_arguments)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match=r"^spans"):
        ThreadRunner(print, spans=print)  # type: ignore[arg-type]
