"""A replay of every topic-partition of a log through the dispatcher and a simulated consumer group, in parallel.

One pass yields both results, the deliveries and the summaries: Python returns batches of a few thousand delivery rows,
or of one row with a summary. Rows are kept on disk, and `Replay.deliveries` and `Replay.summaries` are native views of
them.

Each topic-partition is one run of rows in one Spark partition, in offset order, and is read once, batch by batch. Its
result depends on nothing but its rows and the plan: neither on the number of partitions nor on the size of batches.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from os import PathLike
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import ArrayType, StructField, StructType

from keyshared._checks import check_int, check_kind, check_mapping, check_text
from keyshared.buckets.layout import BucketLayout
from keyshared.errors import ArgumentError, KeySharedError
from keyshared.simulate.group import Group
from keyshared.simulate.history import Row
from keyshared.simulate.simulation import Simulation
from keyshared.simulate.summary import DEFAULT_HOTTEST, DEFAULT_POINTS, Tally, Waits
from keyshared.spark.frames.checks import as_declared
from keyshared.spark.frames.kept import Kept
from keyshared.spark.keystats.bucket_figures import BUCKETS
from keyshared.spark.pages.clock import Clock
from keyshared.spark.pages.page import check_words, checked_target
from keyshared.spark.replays.columns import DeliveryColumns
from keyshared.spark.replays.messages import packed_messages, read_arrivals
from keyshared.spark.replays.partition import SummaryRow
from keyshared.spark.replays.replay_figures import replay_report
from keyshared.spark.replays.replay_report import html
from keyshared.spark.replays.schemas import DELIVERY_SCHEMA, SUMMARY_SCHEMA
from keyshared.testing._garbage import collector_at_rest

__all__ = ["Replay", "replay", "replay_batches", "summary_fields"]

_BATCH_ROWS: Final = 4_000  # deliveries: some hundred kilobytes, small beside a batch of Spark's
_BLOCK_ROWS: Final = 4000  # of the history, which are looked at together: fewer than they would be deliveries
_BLOCKS_AT_REST: Final = 8

_SCHEMA: Final = StructType(
    [
        StructField("summaries", ArrayType(SUMMARY_SCHEMA, containsNull=False), nullable=True),
        *(StructField(field.name, field.dataType, nullable=True) for field in DELIVERY_SCHEMA.fields),
    ]
)
"""A delivery, or a list of one summary."""


class Replay(Kept):
    """The frames of a replay over one pass, which runs when the first of them is asked for rows.

    Close it, or use it as a context manager, to release the kept rows; the frames replay again after that.

    Args:
        rows: Deliveries, and among them summaries, each in a row of its own; kept from now on.
        plan: What was replayed.
    """

    def __init__(self, rows: DataFrame, plan: Group) -> None:
        super().__init__(rows)
        self._plan = plan

    @property
    def deliveries(self) -> DataFrame:
        """One row for each delivery, see `DELIVERY_SCHEMA`."""
        rows = self._rows.filter("topic_partition is not null")
        return rows.select(*(as_declared(field) for field in DELIVERY_SCHEMA.fields))

    @property
    def summaries(self) -> DataFrame:
        """One row for each topic-partition, see `SUMMARY_SCHEMA`."""
        return self._rows.filter("summaries is not null").selectExpr("inline(summaries)")

    def report(
        self,
        path: str | PathLike[str],
        *,
        title: str = "Replay",
        about: str = "",
        violations: Mapping[str, int] | None = None,
        hottest: int = DEFAULT_HOTTEST,
        buckets: int | None = BUCKETS,
        enough_ms: int | None = None,
        epoch_ms: int | None = None,
    ) -> None:
        """Write a page about it: whether promises were kept, whether the group was enough, and who is the cause.

        Runs the replay, if it has not run yet, and up to 20 jobs over its rows.

        Args:
            path: Where, on this machine; an older file is replaced.
            title: Headline.
            about: What log it is of, for the reader.
            violations: Broken promises by id, zeros included, as `keyshared.spark.Audit.counts` gives them; None
                without an audit, and the page says so.
            hottest: How many of the keys with most messages are shown.
            buckets: With how many buckets boundaries of equal width are compared with balanced ones, for the consumers
                of the plan's beginning; None for no comparison.
            enough_ms: The wait that is enough for all but one delivery in a hundred, for the verdict and for who was
                behind; None for ten times the mean time that a delivery is open, and at least a minute.
            epoch_ms: Milliseconds since 1970 (UTC) at which the clock of ``at_ms`` is at 0, for times of the calendar:
                0 if ``at_ms`` are such milliseconds themselves. None for times that count from the start.

        Raises:
            ArgumentError: ``path`` is in no folder, ``title`` or ``about`` is no text, ``violations`` is empty or no
                counts, or ``hottest``, ``buckets``, ``enough_ms`` or ``epoch_ms`` is out of range. No job was started.
            MissingExtraError: ``keyshared[demo]``, which draws pages, is not installed.

        Complexity:
            Up to 20 passes over the deliveries or the summaries, three of which sort moments of deliveries. The
            driver gets what the page shows: O(consumers and changes of the plan, points of 40 topic-partitions, hot
            keys), and one row for each of 65,536 slots at
            most. The file stays below 3 MB for 200 consumers.

        Example:
            >>> with replay(log, plan) as result:  # doctest: +SKIP
            ...     result.report("replay.html", about="orders of May, by customer")
        """
        target = checked_target(path)
        check_words(title, about)
        check_int("hottest", hottest, 0)
        if violations is not None:
            _check_violations(violations)
        if enough_ms is not None:
            check_int("enough_ms", enough_ms, 0)
        if epoch_ms is not None:
            check_int("epoch_ms", epoch_ms)
            Clock(epoch_ms)  # says what is wrong with it
        if buckets is not None:
            BucketLayout.equal_width(buckets)  # says what is wrong with it
        found = replay_report(
            self.deliveries,
            self.summaries,
            self._plan,
            title=title,
            source=about,
            violations=None if violations is None else tuple(violations.items()),
            hottest=hottest,
            buckets=buckets,
            enough_ms=enough_ms,
            epoch_ms=epoch_ms,
        )
        target.write_text(html(found), encoding="utf-8")


def _check_violations(violations: object) -> None:
    counts = check_mapping("violations", violations)
    if not counts:
        raise ArgumentError("violations", violations, "name every promise that was checked")
    for promise, count in counts.items():
        check_text("violations", promise)
        check_int(f"violations[{promise!r}]", count, 0)


def replay(
    df: DataFrame,
    plan: Group,
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
) -> Replay:
    """Simulate what a group of consumers would have done with a log.

    Every topic-partition gets a dispatcher of its own and the whole group of the plan, on a virtual clock of its own.
    The workers need keyshared installed.

    Args:
        df: The log, one row for each message. It is read twice: once to look for rows that cannot be replayed and to
            count, once to replay; ``persist`` it if reading is dear. What is replayed is the second read, all of it:
            the first one only spreads the load.
        plan: The consumers, what happens to them, and the dispatcher's configuration. It travels as a pickled value.
        topic_partition: String column; no NULL.
        key: String or binary column; NULL for a message without a key.
        offset: Column of whole numbers; no NULL, unique within a topic-partition. Messages are offered in its order.
        at_ms: Column of whole milliseconds from 0, no NULL: when messages arrive on the virtual clock. None if the plan
            does not ask (`Pace.BACKLOG`).
        service_ms: Column of whole milliseconds from 0: how long a message takes, for `PerMessage`. None if service
            times are the plan's alone.
        not_before_ms: Column of whole milliseconds from 0, on the clock of ``at_ms``: before when a message is not
            delivered, and its key waits behind it. NULL, or None for the column: at once.
        partitions: How many Spark partitions there shall be. By default one for each topic-partition, and at most
            ``spark.sql.shuffle.partitions``: then topic-partitions share them so that all have about as many messages.
            A log of `load_log` or `as_log` has been put there already, and stays where it lies.
        points: How many points of the backlog over time the summaries shall have, at most.
        hottest: How many of the keys with most messages they shall have.

    Returns:
        The frames; the replay itself has not run yet.

    Raises:
        ArgumentError: A column is missing or of another type, or has NULL or negative values where it must not;
            ``partitions``, ``points`` or ``hottest`` is out of range; or ``plan`` is no `Group`. While it runs, errors
            of `Simulation` come as Spark's ``PythonException``, which names the topic-partition: offsets that are there
            twice, for example.

    Complexity:
        One shuffle and sort of the log, or none if it comes from `load_log` or `as_log` and nothing but columns was
        changed and rows filtered out since (on Spark Connect that cannot be seen); then O(log n) for each thing that
        happens in a topic-partition, n messages outstanding at once. A worker's memory is O(outstanding messages +
        keys), the driver's O(topic-partitions).

    Example:
        >>> from keyshared.simulate import SimulatedConsumer, Fixed
        >>> plan = Group(consumers=[SimulatedConsumer("a", Fixed(20)), SimulatedConsumer("b", Fixed(20))])
        >>> log = spark.range(5).selectExpr("'p' as topic_partition", "id as offset", "'k' as key", "id as at_ms")
        >>> with replay(log, plan) as result:
        ...     result.deliveries.filter("offset > 2").orderBy("offset").select("offset", "delivered_ms").collect()
        ...     result.summaries.select("messages", "wait_max_ms", "largest_backlog").collect()
        [Row(offset=3, delivered_ms=60), Row(offset=4, delivered_ms=80)]
        [Row(messages=5, wait_max_ms=76, largest_backlog=5)]
    """
    work = _Work(plan, points, hottest)
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

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return replay_batches(batches, work)

    return Replay(messages.mapInArrow(run, _SCHEMA), plan)


@dataclass(frozen=True, slots=True)
class _Work:
    """All that travels to the workers."""

    plan: Group
    points: int
    hottest: int

    def __post_init__(self) -> None:
        check_kind("plan", self.plan, Group)
        Tally(points=self.points, hottest=self.hottest)  # says what is wrong with them


def replay_batches(batches: Iterable[pa.RecordBatch], work: _Work) -> Iterator[pa.RecordBatch]:
    """Replay topic-partitions that arrive as Arrow batches, cut anywhere: the function for ``mapInArrow``.

    Args:
        batches: With the columns of `packed_messages`.
        work: What is to be replayed, and how much is to be told of it.

    Yields:
        Rows of deliveries, and after those of a topic-partition a row with its summary.
    """
    schema = to_arrow_schema(_SCHEMA)
    for topic_partition, arrivals in read_arrivals(batches):
        simulation = Simulation(work.plan, arrivals)
        tally = Tally(points=work.points, hottest=work.hottest)
        try:
            for columns in _deliveries(topic_partition, simulation, tally):
                no_summaries = pa.nulls(len(columns[0]), schema.field(0).type)
                yield pa.RecordBatch.from_arrays([no_summaries, *columns], schema=schema)
        except KeySharedError as error:
            error.add_note(f"in topic_partition {topic_partition!r}")
            raise
        state = simulation.state
        summary = SummaryRow(topic_partition, str(state.stop), state.outstanding, tally.summary())
        yield pa.RecordBatch.from_pylist([{"summaries": [summary_fields(summary)]}], schema=schema)


def _deliveries(topic_partition: str, history: Iterable[Row], tally: Tally) -> Iterator[list[pa.Array]]:
    """Fold a history into columns of deliveries and a tally, some thousand rows at a time."""
    found = DeliveryColumns(topic_partition)
    rows = iter(history)
    going_on = True
    while going_on:
        with collector_at_rest():  # until columns are made: then most rows are gone that it would have gone through
            going_on = _fold(rows, found, tally)
            columns = found.take() if len(found) >= _BATCH_ROWS else None
        if columns is not None:
            yield columns
    found.finish()
    if found:
        yield found.take()


def _fold(rows: Iterator[Row], found: DeliveryColumns, tally: Tally) -> bool:
    """Take rows until there is a batch of deliveries, or so many of them; False if they end."""
    for _ in range(_BLOCKS_AT_REST):
        block = list(islice(rows, _BLOCK_ROWS))
        if not block:
            return False
        tally.add_all(block)
        found.add_all(block)
        if len(found) >= _BATCH_ROWS:
            break
    return True


def summary_fields(row: SummaryRow) -> dict[str, object]:
    """Return figures as a row of `SUMMARY_SCHEMA`.

    Args:
        row: The figures of one topic-partition.

    Returns:
        The columns by name.
    """
    summary = row.summary
    return {
        **{name: getattr(summary, name) for name in SUMMARY_SCHEMA.names if hasattr(summary, name)},
        **_wait_fields(summary.wait),
        "topic_partition": row.topic_partition,
        "stop": row.stop,
        "outstanding": row.outstanding,
        "consumers": [
            {
                "consumer": name,
                "deliveries": each.deliveries,
                "acked": each.acked,
                "failed": each.failed,
                "lost": each.lost,
                "busy_ms": each.busy_ms,
                **_wait_fields(each.wait),
            }
            for name, each in summary.consumers.items()
        ],
        "backlog": [point._asdict() for point in summary.backlog],
        "hottest_keys": [{"key": key, "messages": messages} for key, messages in summary.hottest_keys],
        "moved_keys": [{**moved._asdict(), "event": moved.event.value} for moved in summary.moved_keys],
    }


def _wait_fields(waits: Waits) -> dict[str, int]:
    return {"wait_p50_ms": waits.p50_ms, "wait_p99_ms": waits.p99_ms, "wait_max_ms": waits.max_ms}
