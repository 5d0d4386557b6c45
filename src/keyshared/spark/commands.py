"""The commands of a simulated group: a log goes in, and what `stream_dispatch` reads comes out.

A stream of commands is tried, loaded and measured with them, and no sequence or attempt is written by hand.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from pyspark.sql import DataFrame

from keyshared._checks import check_kind
from keyshared.dispatcher import KeySharedDispatcher
from keyshared.errors import ArgumentError
from keyshared.journal import Command
from keyshared.simulate import Group
from keyshared.simulate.engine import Engine
from keyshared.simulate.history import History
from keyshared.spark.deliveries import arrivals_of, log_rows
from keyshared.spark.rows import TOPIC_PARTITION, Rows, by_partition, names_of
from keyshared.spark.stream import COMMAND_COLUMNS

__all__ = ["command_rows", "simulate_commands"]

_STEPS: Final = 8  # few, so that rows are read as they are needed
_RECEIPT: Final = ("offset", "consumer", "attempt")
_NOTED: Final = {
    "offer": ("offset", "key"),
    **dict.fromkeys(("ack", "ack_through", "nack", "reject", "release"), _RECEIPT),
    "dead_lettered": ("offset",),
    "redrive": ("key", "letters"),
    "unblock": ("key",),
    "flushed": ("key", "attempt"),
    **dict.fromkeys(("add_consumer", "remove_consumer", "set_inactive", "set_active"), ("consumer",)),
    "set_limit": ("consumer", "limit"),
    "set_weight": ("consumer", "weight"),
    "handle_timeout": (),
}
"""The calls that become commands, with the fields of their positional arguments."""
_DURATIONS: Final = ("delay_ms", "drain_ms")


def simulate_commands(
    df: DataFrame,
    group: Group,
    *,
    topic_partition: str | Sequence[str] = TOPIC_PARTITION,
    offset: str = "offset",
    key: str = "key",
    time: str | None = "timestamp",
    service_ms: str | None = None,
    not_before: str | None = None,
    start: int | None = None,
    tasks: int | None = None,
) -> DataFrame:
    """Simulate a group as `simulate` does, and keep what it asks of the dispatcher of each topic-partition.

    `stream_dispatch` with the group's placement and configuration makes the same deliveries of them; or nearly the same
    where messages are spilled, because a stream reads them again at once, before anything else of that instant.

    Args:
        df: As in `simulate`, and so are the other arguments.
        group: The consumers and what happens to them; without rules, since a stream has none.
        topic_partition: See there.
        offset: See there.
        key: See there.
        time: See there.
        service_ms: See there.
        not_before: See there.
        start: See there.
        tasks: See there.

    Returns:
        The columns of ``topic_partition``, then `COMMAND_COLUMNS`. Sequences grow by one in a topic-partition, from 0.

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
    names = names_of(topic_partition)
    rows, zero = log_rows(
        df, [group], names, offset=offset, key=key, time=time, service_ms=service_ms, not_before=not_before, start=start
    )
    return by_partition(
        rows,
        "offset",
        [name for name in rows.columns if name not in names],
        COMMAND_COLUMNS,
        lambda each: command_rows(each, group, start=zero),
        topic_partition=names,
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
    engine = Engine(group, arrivals_of(rows, start), _NoHistory(), deadlines_first=True)
    noted = _NotedDispatcher(engine.host.dispatcher, start)
    engine.host.dispatcher = noted  # type: ignore[assignment]  # it answers what a dispatcher answers
    engine.begin()
    while engine.stop is None:
        engine.run(_STEPS)
        yield from noted.commands
        noted.commands.clear()
    yield from noted.commands


class _NotedDispatcher:
    """Passes calls on to a dispatcher, and notes as commands those that changed it."""

    def __init__(self, dispatcher: KeySharedDispatcher, start: int) -> None:
        self._dispatcher = dispatcher
        self._start = start
        self._sequence = 0
        self.commands: list[Command] = []

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401  # any member of the dispatcher
        found = getattr(self._dispatcher, name)
        return self._noting(name, found) if name in _NOTED else found

    def _noting(self, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, now_ms: int, **options: Any) -> Any:  # noqa: ANN401
            effects = method(*args, now_ms=now_ms, **options)
            fields = dict(zip(_NOTED[name], args, strict=False)) | options
            if (later := fields.pop("not_before_ms", None)) is not None:
                fields["duration_ms"] = later - now_ms
            for duration in _DURATIONS:
                if duration in fields:
                    fields["duration_ms"] = fields.pop(duration)
            if "letters" in fields:
                fields["letters"] = [letter[:2] for letter in fields["letters"]]
            self.commands.append(Command(self._sequence, now_ms + self._start, name, **fields))
            self._sequence += 1
            return effects

        return call


class _NoHistory(History):
    """Keeps no rows: the calls are all that is wanted."""

    def _add(self, fields: tuple[Any, ...]) -> None:
        pass
