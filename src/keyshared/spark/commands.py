"""The commands of a simulated group: a log goes in, and what `stream_dispatch` reads comes out.

A stream of commands is tried, loaded and measured with them, and no sequence or attempt is written by hand.
"""

from collections.abc import Iterator
from itertools import count
from typing import Any, Final

from pyspark.sql import DataFrame

from keyshared._checks import check_kind
from keyshared.errors import ArgumentError
from keyshared.journal import Command
from keyshared.simulate import Group
from keyshared.simulate.engine import Engine
from keyshared.simulate.history import History
from keyshared.spark.log_columns import KAFKA_COLUMNS, LogColumns, arrivals_of
from keyshared.spark.rows import Rows, by_partition
from keyshared.spark.stream import COMMAND_COLUMNS

__all__ = ["command_rows", "simulate_commands"]

_STEPS: Final = 8  # few, so that rows are read as they are needed


def simulate_commands(
    df: DataFrame,
    group: Group,
    columns: LogColumns = KAFKA_COLUMNS,
    *,
    tasks: int | None = None,
) -> DataFrame:
    """Simulate a group as `simulate` does, and keep what it asks of the dispatcher of each topic-partition.

    `stream_dispatch` with the group's placement and configuration makes the same deliveries of them; or nearly the same
    where messages are spilled, because a stream reads them again at once, before anything else of that instant.

    Args:
        df: As in `simulate`.
        group: The consumers and what happens to them; without rules, since a stream has none.
        columns: The columns of the log.
        tasks: As in `by_partition`.

    Returns:
        The columns of the topic-partition, then `COMMAND_COLUMNS`. Sequences grow by one in a topic-partition, from 0.

    Raises:
        ArgumentError: As in `simulate`, or the group has rules.

    Example:
        >>> from keyshared.simulate import Fixed, SimulatedConsumer
        >>> group = Group(consumers=[SimulatedConsumer("ann", Fixed(20))])
        >>> log = spark.range(1).selectExpr("'t' topic", "0 partition", "id as offset", "'k' as key", "id as timestamp")
        >>> commands = simulate_commands(log, group)
        >>> commands.select("sequence", "at_ms", "command", "consumer", "attempt").orderBy("sequence").tail(1)
        [Row(sequence=2, at_ms=20, command='ack', consumer='ann', attempt=1)]
        >>> from keyshared.spark import stream_dispatch
        >>> stream_dispatch(commands, group.placement, config=group.config).select("effect", "offset").collect()
        [Row(effect='deliver', offset=0), Row(effect='cursor_advanced', offset=0)]
    """
    check_kind("group", group, Group)
    if group.rules is not None:
        raise ArgumentError("group", group, "have no rules: functions do not fit into the rows of a stream")
    rows, read, zero = check_kind("columns", columns, LogColumns).select(df, [group])
    return by_partition(
        rows,
        "offset",
        read,
        COMMAND_COLUMNS,
        lambda each: command_rows(each, group, start=zero),
        topic_partition=columns.names,
        tasks=tasks,
    )


def command_rows(rows: Rows, group: Group, *, start: int = 0) -> Iterator[tuple[Any, ...]]:
    """Simulate a group over the rows of one topic-partition: the work of `simulate_commands`.

    Args:
        rows: As in `simulate_rows`.
        group: The consumers.
        start: The time at which the clock of the group is at 0.

    Yields:
        The columns of `COMMAND_COLUMNS`, on the clock of the rows.

    Example:
        >>> from keyshared.simulate import Fixed, SimulatedConsumer
        >>> group = Group(consumers=[SimulatedConsumer("a", Fixed(20))])
        >>> [row[:4] for row in command_rows(iter([(7, b"k", 1_000)]), group, start=1_000)]
        [(0, 1000, 'add_consumer', None), (1, 1000, 'offer', 7), (2, 1020, 'ack', 7)]
    """
    noted = list[Command]()
    engine = Engine(group, arrivals_of(rows, start), _NoHistory(), noted.append)
    sequence = count()
    engine.begin()
    while engine.stop is None:
        engine.run(_STEPS)
        yield from (command._replace(sequence=next(sequence), at_ms=command.at_ms + start) for command in noted)
        noted.clear()


class _NoHistory(History):
    """Keeps no rows: the calls are all that is wanted."""

    def _add(self, fields: tuple[Any, ...]) -> None:
        pass
