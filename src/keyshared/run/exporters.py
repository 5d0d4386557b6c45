"""The figures of a runner for Prometheus and OpenTelemetry, by their own libraries (``keyshared[metrics]``)."""

from typing import TYPE_CHECKING, Any

from keyshared._checks import check_callable, check_extra
from keyshared.run.figures import FIGURES, Metrics

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from opentelemetry.metrics import Meter, Observation
    from prometheus_client import Metric

__all__ = ["PrometheusCollector", "observe_metrics"]


class PrometheusCollector:
    """Reads the figures whenever Prometheus does; nothing is kept, and nothing runs in between.

    ``REGISTRY.register(PrometheusCollector(runner.metrics))`` is all that is to be done.

    Args:
        metrics: Returns the figures, such as ``runner.metrics``. It is called by whichever thread collects.

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
            families[name].add_metric([said for _, said in labels], value)
        return list(families.values())


def _families() -> dict[str, Any]:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily  # noqa: PLC0415 - of the extra

    families = {}
    for name, figure in FIGURES.items():
        kind = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
        families[name] = kind(name, figure.says, labels=figure.labels)
    return families


class _Reading:
    """One reading for all instruments of a collection: whichever is asked for the second time begins the next."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._rows: dict[str, list[Observation]] = {}
        self._asked: set[str] = set(FIGURES)

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
        metrics: Returns the figures, such as ``runner.metrics``. It is called by whichever thread collects.

    Raises:
        ArgumentError: ``metrics`` cannot be called.
        MissingExtraError: ``opentelemetry-api`` is not installed.
    """
    check_callable("metrics", metrics, "nothing")
    check_extra("metrics", "opentelemetry.metrics")
    reading = _Reading(metrics)
    for name, figure in FIGURES.items():
        create = meter.create_observable_counter if name.endswith("_total") else meter.create_observable_gauge
        create(
            name, callbacks=[reading.of(name)], unit="s" if name.endswith("_seconds") else "", description=figure.says
        )
