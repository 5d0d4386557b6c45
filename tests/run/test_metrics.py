"""The figures of a runner: their names, and what Prometheus and OpenTelemetry get of them."""

import re
from pathlib import Path
from typing import Any

import pytest

from keyshared import RetryPolicy
from keyshared.errors import ArgumentError
from keyshared.run import PrometheusCollector, Reject, RunnerConfig, ThreadRunner, observe_metrics
from keyshared.run.metrics import METRICS

PAGE = Path(__file__).parents[2] / "docs" / "howto-health.md"


@pytest.fixture
def runner() -> ThreadRunner[str]:
    """Two messages are done, one was rejected, and one waits for its retry with another one behind it."""

    def handle(message: str) -> None:
        if message == "bad":
            raise Reject("bad")
        if message == "fails":
            raise ValueError(message)

    config = RunnerConfig(measure=True, retry=RetryPolicy(base_delay_ms=10**6))
    runner = ThreadRunner(handle, dead_letter=lambda _: None, commit=lambda *_: None, config=config)
    runner.add_log("orders")
    rows = [("a", "good"), ("b", "bad"), ("a", "good"), ("c", "fails"), ("c", "behind it")]
    runner.submit_many("orders", [(offset, *row) for offset, row in enumerate(rows)])
    runner.set_log_end("orders", 100)
    while runner.drain(within_ms=10) or runner.stats().logs["orders"].outstanding > 2:
        pass
    return runner


IDLE = METRICS.keys() - {"keyshared_oldest_handler_seconds"}  # no handler runs


def test_every_figure_has_a_name_with_its_labels_and_the_health_page_lists_it(runner: ThreadRunner[str]) -> None:
    rows = runner.metrics(busiest=2)
    runner.stop(within_ms=0)
    assert {name for name, _, _ in rows} == IDLE
    for name, labels, _ in rows:
        assert tuple(label for label, _ in labels) == METRICS[name].labels
    assert {*re.findall(r"^\| `(keyshared_\w+)`", PAGE.read_text(), re.MULTILINE)} == METRICS.keys()


def test_figures_count_what_has_happened_and_say_where(runner: ThreadRunner[str]) -> None:
    figures = {(name, *(said for _, said in labels)): value for name, labels, value in runner.metrics(busiest=1)}
    runner.stop(within_ms=0)
    assert figures["keyshared_handler_ends_total", "done"] == 2
    assert figures["keyshared_handler_ends_total", "rejected"] == 1
    assert figures["keyshared_handler_ends_total", "failed"] == 1
    assert figures["keyshared_settled_total", "orders", "acked"] == 2
    assert figures["keyshared_settled_total", "orders", "dead_lettered"] == 1
    assert figures["keyshared_key_outstanding", "orders", "c"] == 2
    assert figures["keyshared_outstanding", "orders"] == 2
    assert figures["keyshared_dead_letters_total",] == 1
    assert figures["keyshared_handlers_running",] == 0
    assert figures["keyshared_up",] == 1
    assert figures["keyshared_read_position", "orders"] == 5
    assert figures["keyshared_committed_position", "orders"] in {0, 3}  # as late as commits are made
    assert figures["keyshared_unread", "orders"] == 95


def test_without_measuring_there_are_no_ages() -> None:
    with ThreadRunner[int](lambda _: None) as runner:
        runner.add_log("orders")
        names = {name for name, _, _ in runner.metrics()}
    assert "keyshared_outstanding" in names
    assert not {name for name in names if name.endswith("_seconds") or name.startswith("keyshared_settled")}


def test_prometheus_reads_the_figures_when_it_collects(runner: ThreadRunner[str]) -> None:
    client = pytest.importorskip("prometheus_client", reason="the extra keyshared[metrics] is not installed")
    registry = client.CollectorRegistry()
    asked: list[int] = []

    def metrics() -> Any:
        asked.append(1)
        return runner.metrics(busiest=1)

    registry.register(PrometheusCollector(metrics))
    assert asked == [], "registering reads nothing"
    text = client.generate_latest(registry).decode()
    runner.stop(within_ms=0)
    assert asked == [1]
    assert "# TYPE keyshared_handler_ends_total counter" in text
    assert 'keyshared_handler_ends_total{how="done"} 2.0' in text
    assert 'keyshared_key_outstanding{key="c",log="orders"} 2.0' in text
    assert "# TYPE keyshared_oldest_age_seconds gauge" in text


def test_open_telemetry_reads_the_figures_once_for_each_collection(runner: ThreadRunner[str]) -> None:
    metrics_of = pytest.importorskip("opentelemetry.sdk.metrics", reason="opentelemetry-sdk is not installed")
    export = pytest.importorskip("opentelemetry.sdk.metrics.export")
    reader = export.InMemoryMetricReader()
    provider = metrics_of.MeterProvider([reader])
    asked: list[int] = []

    def metrics() -> Any:
        asked.append(1)
        return runner.metrics(busiest=1)

    observe_metrics(provider.get_meter("billing"), metrics)
    reader.get_metrics_data()
    assert len(asked) == 1
    (resource,) = reader.get_metrics_data().resource_metrics
    assert len(asked) == 2
    (scope,) = resource.scope_metrics
    found = {
        (metric.name, *(value for _, value in sorted(point.attributes.items()))): point.value
        for metric in scope.metrics
        for point in metric.data.data_points
    }
    runner.stop(within_ms=0)
    assert found["keyshared_handler_ends_total", "done"] == 2
    assert found["keyshared_key_outstanding", "c", "orders"] == 2
    assert {name for name, *_ in found} == IDLE
    provider.shutdown()


def test_what_cannot_be_called_is_refused() -> None:
    nothing: Any = 3
    with pytest.raises(ArgumentError, match="metrics"):
        PrometheusCollector(nothing)
    with pytest.raises(ArgumentError, match="metrics"):
        observe_metrics(nothing, nothing)
