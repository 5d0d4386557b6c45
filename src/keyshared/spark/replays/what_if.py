"""A comparison of plans over one log: other placements, more or fewer consumers, slower ones, joins and leaves.

The log is shuffled, sorted and read once, and every plan is simulated while a topic-partition streams by. The result is
a row of figures for each plan and topic-partition; `replay` returns the deliveries themselves.
"""

from collections.abc import Iterable, Iterator, Mapping
from os import PathLike
from typing import Final, NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StringType, StructField, StructType

from keyshared._checks import check_int
from keyshared.simulate.group import Group
from keyshared.simulate.summary import DEFAULT_HOTTEST, DEFAULT_POINTS, Tally
from keyshared.spark.frames.kept import Kept
from keyshared.spark.pages.page import check_words, checked_target
from keyshared.spark.plans.ranking import BY, check_criterion
from keyshared.spark.replays.comparison import check_plans, what_if_partition
from keyshared.spark.replays.messages import packed_messages, read_messages
from keyshared.spark.replays.replay import summary_fields
from keyshared.spark.replays.schemas import SUMMARY_SCHEMA
from keyshared.spark.replays.what_if_figures import totals, what_if_report
from keyshared.spark.replays.what_if_report import html

__all__ = ["WHAT_IF_SCHEMA", "WhatIf", "what_if", "what_if_batches"]

WHAT_IF_SCHEMA: Final = StructType([StructField("plan", StringType(), nullable=False), *SUMMARY_SCHEMA.fields])
"""One row for each plan and topic-partition: the name of the plan, and the columns of `SUMMARY_SCHEMA`."""

_BATCH_ROWS: Final = 100  # a row has a hundred points of backlog


class WhatIf(Kept):
    """The frames of a comparison over one pass, which runs when the first of them is asked for rows.

    Close it, or use it as a context manager, to release the kept rows; the frames simulate again after that.

    Args:
        rows: With `WHAT_IF_SCHEMA`; kept from now on.
        plans: What was compared.
    """

    def __init__(self, rows: DataFrame, plans: Mapping[str, Group]) -> None:
        super().__init__(rows)
        self._plans = plans

    @property
    def summaries(self) -> DataFrame:
        """One row for each plan and topic-partition, see `WHAT_IF_SCHEMA`."""
        return self._rows.select("*")

    @property
    def totals(self) -> DataFrame:
        """One row for each plan: over all topic-partitions.

        ``plan``, ``topic_partitions``; sums of ``messages``, ``outstanding``, ``deliveries``, ``redeliveries``,
        ``acked``, ``late_acked``, ``dead_lettered`` and ``moved_keys``; and of the worst topic-partition
        ``wait_p50_ms``, ``wait_p99_ms``, ``wait_max_ms`` and ``largest_backlog``.
        """
        return self._rows.groupBy("plan").agg(*totals())

    @property
    def consumers(self) -> DataFrame:
        """One row for each plan, topic-partition and consumer: the load of each.

        ``plan``, ``topic_partition``, ``consumer``, ``deliveries``, ``acked``, ``failed``, ``lost``, ``busy_ms``,
        ``wait_p50_ms``, ``wait_p99_ms``, ``wait_max_ms``.
        """
        return self._rows.selectExpr("plan", "topic_partition", "inline(consumers)")

    @property
    def moved_keys(self) -> DataFrame:
        """One row for each plan, topic-partition and change of membership.

        ``plan``, ``topic_partition``, ``at_ms``, ``event``, ``consumer``, ``moved`` and ``keys``; none for plans that
        do not count.
        """
        return self._rows.selectExpr("plan", "topic_partition", "inline(moved_keys)")

    def report(
        self,
        path: str | PathLike[str],
        *,
        title: str = "What if",
        about: str = "",
        by: str = BY,
        hottest: int = DEFAULT_HOTTEST,
    ) -> None:
        """Write a page that shows the plans side by side: waits, backlog over time, load, moved keys, hot keys.

        Runs the comparison, if it has not run yet, and four jobs over its rows.

        Args:
            path: Where, on this machine; an older file is replaced.
            title: Headline.
            about: What log it is of, for the reader.
            by: What the best plan is found by: ``wait-p99``, ``wait-p50``, ``wait-max``, ``backlog`` or
                ``redeliveries``. A plan under which more messages are acked beats the others whatever it is.
            hottest: How many of the keys with most messages are shown.

        Raises:
            ArgumentError: ``path`` is in no folder, ``by`` is no criterion, or ``hottest`` no int of at least 0. No job
                was started.
            MissingExtraError: ``keyshared[demo]``, which draws pages, is not installed.

        Complexity:
            Four passes over the summaries. The driver gets what the page shows: for each plan a few rows for each
            consumer and change, and the backlog of one topic-partition.

        Example:
            >>> with what_if(log, {"ring": today, "split": tomorrow}) as compared:  # doctest: +SKIP
            ...     compared.report("plans.html", about="orders of May")
        """
        target = checked_target(path)
        check_words(title, about)
        check_int("hottest", hottest, 0)
        check_criterion(by)
        found = what_if_report(self._rows, self._plans, title=title, source=about, by=by, hottest=hottest)
        target.write_text(html(found), encoding="utf-8")


def what_if(
    df: DataFrame,
    plans: Mapping[str, Group],
    *,
    topic_partition: str = "topic_partition",
    key: str = "key",
    offset: str = "offset",
    at_ms: str | None = "at_ms",
    service_ms: str | None = None,
    not_before_ms: str | None = None,
    partitions: int | None = None,
    points: int = DEFAULT_POINTS,
    hottest: int = DEFAULT_HOTTEST,
) -> WhatIf:
    """Simulate what several plans would have made of one log, in one pass over it.

    Each row says what `replay` with that plan alone says in its summaries. The workers need keyshared installed.

    Args:
        df: The log, one row for each message. It is read twice, as by `replay`, whatever the number of plans.
        plans: Plans by name: the consumers, their service times, who joins and leaves when, the placement, and the
            dispatcher's configuration. They travel as pickled values.
        topic_partition: String column; no NULL.
        key: String or binary column; NULL for a message without a key.
        offset: Column of whole numbers; no NULL, unique within a topic-partition. Messages are offered in its order.
        at_ms: Column of whole milliseconds from 0, no NULL: when messages arrive on the virtual clock. None if no plan
            asks (`Pace.BACKLOG`).
        service_ms: Column of whole milliseconds from 0: how long a message takes, for `PerMessage`. None if service
            times are the plans' alone.
        not_before_ms: Column of whole milliseconds from 0, on the clock of ``at_ms``: before when a message is not
            delivered, and its key waits behind it. NULL, or None for the column: at once.
        partitions: How many Spark partitions there shall be, see `replay`.
        points: How many points of the backlog over time the summaries shall have, at most.
        hottest: How many of the keys with most messages they shall have.

    Returns:
        The frames; nothing has been simulated yet.

    Raises:
        ArgumentError: As `replay`; or ``plans`` is no mapping from names to plans, or empty. While it runs, errors of
            `Simulation` come as Spark's ``PythonException``, which names the plan and the topic-partition.

    Complexity:
        One shuffle and sort of the log, or none, see `replay`; then as `replay` for each plan. A worker's memory is
        that of all plans of one topic-partition.

    Example:
        >>> from keyshared.simulate import SimulatedConsumer, Fixed
        >>> workers = [SimulatedConsumer(name, Fixed(10), limit=1) for name in ("a", "b")]
        >>> log = spark.range(10).selectExpr("'p' as topic_partition", "id as offset", "'k' || id as key", "0 as at_ms")
        >>> with what_if(log, {"one": Group(consumers=workers[:1]), "two": Group(consumers=workers)}) as compared:
        ...     compared.totals.orderBy("plan").select("plan", "messages", "wait_max_ms").show()
        +----+--------+-----------+
        |plan|messages|wait_max_ms|
        +----+--------+-----------+
        | one|      10|         90|
        | two|      10|         60|
        +----+--------+-----------+
        <BLANKLINE>
    """
    work = _Work(plans, points, hottest)
    work.check()
    messages = packed_messages(
        df,
        topic_partition=topic_partition,
        key=key,
        offset=offset,
        at_ms=at_ms,
        service_ms=service_ms,
        not_before_ms=not_before_ms,
        partitions=partitions,
    )
    sent = work._replace(plans=dict(plans))  # what changes in the mapping later does not matter

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return what_if_batches(batches, *sent)

    return WhatIf(messages.mapInArrow(run, WHAT_IF_SCHEMA), sent.plans)


class _Work(NamedTuple):
    """All that travels to the workers."""

    plans: Mapping[str, Group]
    points: int
    hottest: int

    def check(self) -> None:
        check_plans(self.plans)
        Tally(points=self.points, hottest=self.hottest)  # says what is wrong with them


def what_if_batches(
    batches: Iterable[pa.RecordBatch],
    plans: Mapping[str, Group],
    points: int = DEFAULT_POINTS,
    hottest: int = DEFAULT_HOTTEST,
) -> Iterator[pa.RecordBatch]:
    """Compare plans over topic-partitions that arrive as Arrow batches, cut anywhere: the function for ``mapInArrow``.

    Args:
        batches: With the columns of `keyshared.spark.replays.messages.packed_messages`.
        plans: See `what_if_partition`.
        points: Likewise.
        hottest: Likewise.

    Yields:
        Rows of `WHAT_IF_SCHEMA`.

    Raises:
        ArgumentError: See `what_if_partition`.
        MisuseError: See `what_if_partition`.
    """
    schema = to_arrow_schema(WHAT_IF_SCHEMA)
    rows: list[dict[str, object]] = []
    for plan, summary in what_if_partition(read_messages(batches), plans, points=points, hottest=hottest):
        rows.append({"plan": plan, **summary_fields(summary)})
        if len(rows) == _BATCH_ROWS:
            yield pa.RecordBatch.from_pylist(rows, schema=schema)
            rows.clear()
    if rows:
        yield pa.RecordBatch.from_pylist(rows, schema=schema)
