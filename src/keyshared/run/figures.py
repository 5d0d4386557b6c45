"""The figures of a runner under the names that docs/howto-health.md lists, for exporters."""

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple, TypeAlias

from keyshared._checks import check_int
from keyshared._core.values import MetricRow
from keyshared.run.log import Log
from keyshared.run.values import BusyKey, RunnerStats

__all__ = ["FIGURES", "Figure", "Metrics", "busiest_keys", "rows_of"]

Metrics: TypeAlias = Callable[[], Iterable[MetricRow]]
"""Returns all figures of this moment, such as ``runner.metrics``."""


class Figure(NamedTuple):
    """What a name stands for.

    Attributes:
        says: In a few words.
        labels: Names of its labels.
    """

    says: str
    labels: tuple[str, ...] = ()


FIGURES: Final = {
    "keyshared_oldest_age_seconds": Figure("age of the oldest outstanding message", ("log",)),
    "keyshared_blocked_age_seconds": Figure("age of the oldest message that nobody works on", ("log",)),
    "keyshared_key_outstanding": Figure("outstanding messages of one of the busiest keys", ("log", "key")),
    "keyshared_settled_total": Figure("settled messages, by how they ended", ("log", "how")),
    "keyshared_deliveries_total": Figure("deliveries that were made", ("log",)),
    "keyshared_failures_total": Figure("deliveries that failed", ("log",)),
    "keyshared_outstanding": Figure("messages that are not done", ("log",)),
    "keyshared_handlers_running": Figure("handlers that run, or are about to"),
    "keyshared_held": Figure("messages that were taken out of their log and have no worker yet"),
    "keyshared_handler_ends_total": Figure("ends of handlers, by how they ended", ("how",)),
    "keyshared_handlers_overdue_total": Figure("times that a handler ran for longer than allowed"),
    "keyshared_letters_total": Figure("dead letters that were written"),
    "keyshared_commits_total": Figure("commits that were made"),
}
"""All names. One that ends in ``_total`` is a counter, any other a gauge."""

_ENDS: Final = ("done", "failed", "rejected", "put_off", "released", "late")


def busiest_keys(logs: Iterable[Log[Any]], most: int) -> list[BusyKey]:
    """Return the keys with the most messages that are not done."""
    check_int("most", most, 1)
    counts = Counter((log.name, each.key) for log in logs for each in log.dispatcher.outstanding())
    return [BusyKey(name, key, count) for (name, key), count in counts.most_common(most)]


def rows_of(stats: RunnerStats, logs: Iterable[Log[Any]], busiest: int) -> list[MetricRow]:
    """Return the figures of a runner and of the dispatchers of its logs, with those of so many keys of each."""
    rows: list[MetricRow] = [
        ("keyshared_handlers_running", (), stats.running),
        ("keyshared_held", (), stats.held),
        *(("keyshared_handler_ends_total", (("how", how),), getattr(stats, how)) for how in _ENDS),
        ("keyshared_handlers_overdue_total", (), stats.overdue),
        ("keyshared_letters_total", (), stats.letters),
        ("keyshared_commits_total", (), stats.commits),
        *(("keyshared_outstanding", (("log", log),), each.outstanding) for log, each in stats.logs.items()),
    ]
    for log in logs:
        health = log.dispatcher.health(busiest=busiest)
        rows += [(name, (("log", log.name), *labels), value) for name, labels, value in health.rows()]
    return rows
