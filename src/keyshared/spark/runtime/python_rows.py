"""Rows that Python workers have given back, while their tasks still run."""

from collections.abc import Iterator
from typing import Any, Final

from pyspark.sql import SparkSession

__all__ = ["PythonRows"]

_OF_PYTHON: Final = "data returned from Python workers"  # only plan nodes that run Python have this metric
_ROWS: Final = "number of output rows"
_LATEST: Final = 5  # executions that are looked at: what runs is among the newest


class PythonRows:
    """Asks Spark's store of SQL metrics, to which executors report with each of their heartbeats.

    The figures of stages are no help: on a local master Spark fills them when a task ends, and what a task has read
    says little of a Python function that reads ahead.

    Args:
        spark: A classic session; Connect has no such store.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._known: dict[tuple[int, int], list[int]] = {}  # counters by execution and state of its plan

    def look(self) -> dict[int, int]:
        """Return the rows by counter, one for each plan node that runs Python in a query that is running.

        Raises:
            PySparkException, Py4JError, OSError, AttributeError, TypeError, ValueError: This Spark does not answer, or
                otherwise.

        Complexity:
            O(nodes of the plans) calls of the JVM when a plan is new or has changed, else O(counters).
        """
        store = self._spark._jsparkSession.sharedState().statusStore()  # noqa: SLF001 - no public way tells rows
        first = max(0, store.executionsCount() - _LATEST)
        known, self._known = self._known, {}  # plans that are over are forgotten
        rows: dict[int, int] = {}
        for execution in _each(store.executionsList(first, _LATEST)):
            if execution.completionTime().isEmpty():
                number = execution.executionId()
                plan = number, execution.metrics().hashCode()  # adaptive execution changes plans that are running
                counters = known[plan] if plan in known else list(_counters(store.planGraph(number)))
                self._known[plan] = counters
                rows |= _values(store, number, counters)
        return rows


def _values(store: Any, execution: int, counters: list[int]) -> dict[int, int]:  # noqa: ANN401 - an object of the JVM
    if not counters:
        return {}
    texts = store.executionMetrics(execution)
    found = {counter: texts.get(counter) for counter in counters}
    return {counter: int(text.get().replace(",", "")) for counter, text in found.items() if text.isDefined()}


def _counters(graph: Any) -> Iterator[int]:  # noqa: ANN401 - an object of the JVM
    for node in _each(graph.allNodes()):
        metrics = {metric.name(): metric.accumulatorId() for metric in _each(node.metrics())}
        if _OF_PYTHON in metrics and _ROWS in metrics:
            yield metrics[_ROWS]


def _each(sequence: Any) -> Iterator[Any]:  # noqa: ANN401 - objects of the JVM
    return (sequence.apply(index) for index in range(sequence.size()))
