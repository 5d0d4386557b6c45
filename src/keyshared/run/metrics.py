"""The figures of a runner under the names that docs/howto-health.md lists, for Prometheus and OpenTelemetry."""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from keyshared._checks import check_callable, check_extra
from keyshared.run.assignment import Assignment
from keyshared.run.values import RunnerStats

if TYPE_CHECKING:  # of the extra
    from opentelemetry.metrics import Meter, Observation
    from prometheus_client import Metric

__all__ = ["METRICS", "Description", "MetricRow", "PrometheusCollector", "observe_metrics", "rows_of"]

MetricRow: TypeAlias = tuple[str, tuple[tuple[str, str], ...], int | float]
"""A name, labels and a value."""

Metrics: TypeAlias = Callable[[], Iterable[MetricRow]]
"""Returns all figures of this moment, such as ``runner.metrics``."""


class Description(NamedTuple):
    """The text of a metric, and its labels.

    Attributes:
        text: In a few words.
        labels: Names of its labels.
    """

    text: str
    labels: tuple[str, ...] = ()


METRICS: Final = {
    "keyshared_up": Description("1 while the runner takes messages, 0 once it stops or an error has stopped it"),
    "keyshared_oldest_handler_seconds": Description("for how long the oldest handler runs", ("log",)),
    "keyshared_oldest_unfinished_seconds": Description("age of the oldest unfinished message", ("log",)),
    "keyshared_read_position": Description("the offset up to which the log was read", ("log",)),
    "keyshared_committed_position": Description("the offset that a restart reads from", ("log",)),
    "keyshared_unread": Description("messages of the log that were not read yet, by offsets", ("log",)),
    "keyshared_oldest_age_seconds": Description("age of the oldest outstanding message", ("log",)),
    "keyshared_blocked_age_seconds": Description("age of the oldest message that is at no handler", ("log",)),
    "keyshared_key_outstanding": Description("outstanding messages of one of the busiest keys", ("log", "key")),
    "keyshared_settled_total": Description("settled messages, by how they ended", ("log", "how")),
    "keyshared_deliveries_total": Description("deliveries that were made", ("log",)),
    "keyshared_failures_total": Description("deliveries that failed", ("log",)),
    "keyshared_outstanding": Description("messages that were read and are not done", ("log",)),
    "keyshared_blocked": Description("messages that wait for unblock or park", ("log",)),
    "keyshared_handlers_running": Description("handlers that run, or are about to"),
    "keyshared_held": Description("messages that were taken out of their log and have no worker yet"),
    "keyshared_handler_ends_total": Description("ends of handlers, by how they ended", ("how",)),
    "keyshared_handlers_overdue_total": Description("times that a handler ran for longer than allowed"),
    "keyshared_workers_replaced_total": Description("hung handlers whose place another worker has taken"),
    "keyshared_expired_total": Description("messages that their log lost before they were handled"),
    "keyshared_dead_letters_total": Description("dead letters that were written"),
    "keyshared_commits_total": Description("commits that were made"),
}
"""All names. One that ends in ``_total`` is a counter, any other a gauge."""

_ENDS: Final = ("done", "failed", "rejected", "postponed", "released", "late")


def rows_of(
    stats: RunnerStats, logs: Iterable[Assignment[Any]], busiest: int, *, is_up: bool, now_ms: int
) -> list[MetricRow]:
    """Return the figures of a runner and of the dispatchers of its logs, with those of so many keys of each."""
    rows: list[MetricRow] = [
        ("keyshared_up", (), int(is_up)),
        ("keyshared_handlers_running", (), stats.running),
        ("keyshared_held", (), stats.held),
        *(("keyshared_handler_ends_total", (("how", how),), getattr(stats, how)) for how in _ENDS),
        ("keyshared_handlers_overdue_total", (), stats.overdue),
        ("keyshared_workers_replaced_total", (), stats.replaced),
        ("keyshared_expired_total", (), stats.expired),
        ("keyshared_dead_letters_total", (), stats.dead_letters),
        ("keyshared_commits_total", (), stats.commits),
    ]
    for log in logs:
        label = (("log", log.name),)
        rows += [(name, label, value) for name, value in _of_log(log, stats, now_ms) if value is not None]
        health = log.dispatcher.health(busiest=busiest)
        rows += [(name, (*label, *labels), value) for name, labels, value in health.rows()]
    return rows


def _of_log(log: Assignment[Any], stats: RunnerStats, now_ms: int) -> Iterable[tuple[str, int | float | None]]:
    known = stats.logs[log.name]
    started = min((run.started_ms for run in log.runs if run.started_ms is not None), default=None)
    oldest, read = log.oldest_ms(now_ms=now_ms), log.read_position
    yield "keyshared_outstanding", known.outstanding
    yield "keyshared_blocked", known.blocked
    yield "keyshared_oldest_handler_seconds", None if started is None else (now_ms - started) / 1_000
    yield "keyshared_oldest_unfinished_seconds", None if oldest is None else oldest / 1_000
    yield "keyshared_read_position", read
    yield "keyshared_committed_position", log.committed
    yield "keyshared_unread", None if log.end is None or read is None else max(0, log.end - read)


class PrometheusCollector:
    """Reads the figures whenever Prometheus does; it keeps nothing, and nothing runs in between.

    ``REGISTRY.register(PrometheusCollector(runner.metrics))`` is all that is to be done.

    Args:
        metrics: Returns the figures, such as ``runner.metrics``. It is called by the thread that collects.

    Raises:
        ArgumentError: ``metrics`` cannot be called.
        MissingExtraError: ``prometheus_client`` is not installed.
    """

    def __init__(self, metrics: Metrics) -> None:
        check_callable("metrics", metrics, "nothing")
        check_extra("metrics", "prometheus_client")
        self._metrics = metrics

    def describe(self) -> "Iterable[Metric]":
        """Return the names without any figure: registering reads none."""
        return list(_families().values())

    def collect(self) -> "Iterable[Metric]":
        """Return the figures of this moment."""
        families = _families()
        for name, labels, value in self._metrics():
            families[name].add_metric([text for _, text in labels], value)
        return list(families.values())


def _families() -> dict[str, Any]:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily  # noqa: PLC0415 - of the extra

    families = {}
    for name, known in METRICS.items():
        kind = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
        families[name] = kind(name, known.text, labels=known.labels)
    return families


class _Reading:
    """One reading for all instruments of a collection: the first one that asks a second time begins the next."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._rows: dict[str, list[Observation]] = {}
        self._asked: set[str] = set(METRICS)

    def of(self, name: str) -> "Callable[[object], Iterable[Observation]]":
        """Return what an instrument calls for its figures."""

        def observations(_: object) -> "Iterable[Observation]":
            if name in self._asked:
                self._read()
            self._asked.add(name)
            return self._rows.get(name, ())

        return observations

    def _read(self) -> None:
        from opentelemetry.metrics import Observation  # noqa: PLC0415 - of the extra

        self._asked.clear()
        self._rows = {}
        for name, labels, value in self._metrics():
            self._rows.setdefault(name, []).append(Observation(value, dict(labels)))


def observe_metrics(meter: "Meter", metrics: Metrics) -> None:
    """Make instruments of OpenTelemetry that read the figures when these are collected; nothing runs in between.

    Args:
        meter: Makes the instruments.
        metrics: Returns the figures, such as ``runner.metrics``. It is called by the thread that collects.

    Raises:
        ArgumentError: ``metrics`` cannot be called.
        MissingExtraError: ``opentelemetry-api`` is not installed.
    """
    check_callable("metrics", metrics, "nothing")
    check_extra("metrics", "opentelemetry.metrics")
    reading = _Reading(metrics)
    for name, known in METRICS.items():
        create = meter.create_observable_counter if name.endswith("_total") else meter.create_observable_gauge
        unit = "s" if name.endswith("_seconds") else ""
        create(name, callbacks=[reading.of(name)], unit=unit, description=known.text)
