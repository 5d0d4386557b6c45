"""The processor of the stream, on Spark's own tester: no session, no Java."""

from collections.abc import Iterable
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.command_logs import Log, pieces_of, ring, written_log

from keyshared.config import DispatcherConfig
from keyshared.errors import ArgumentError
from keyshared.journal import Command, Journal, OutcomeRow
from keyshared.ring import HashRing

pyspark = pytest.importorskip("pyspark")
import pandas as pd  # noqa: E402 - comes with pyspark
import pyarrow as pa  # noqa: E402 - as above
from pyspark.sql import Row  # noqa: E402 - needs pyspark
from pyspark.sql.pandas.types import to_arrow_schema  # noqa: E402 - needs pyspark
from tests.spark.since import TESTER, module_needs  # noqa: E402 - needs pyspark
from tests.spark.stream_jobs import plain  # noqa: E402 - needs pyspark

module_needs(TESTER)
from pyspark.sql.streaming.stateful_processor import StatefulProcessor  # noqa: E402 - needs pyspark
from pyspark.sql.streaming.tws_tester import TwsTester  # noqa: E402 - needs pyspark

from keyshared.spark.streams.dispatch import COMMAND_SCHEMA  # noqa: E402 - needs pyspark
from keyshared.spark.streams.frames import _OfFrames  # noqa: E402 - needs pyspark
from keyshared.spark.streams.partition import dispatch_partition  # noqa: E402 - needs pyspark
from keyshared.spark.streams.rows import PACKED_SCHEMA, pack_batches, unpacked  # noqa: E402 - needs pyspark
from keyshared.spark.streams.state import DispatchProcessor  # noqa: E402 - needs pyspark

pytestmark = pytest.mark.spark

SECOND = DispatcherConfig(ack_timeout_ms=1_000)
JOINED = Command(0, 0, "add_consumer", consumer="c1")
HUGE = (1 << 53) + 1  # no float is that number

PackedRow: Any = Row(*PACKED_SCHEMA.names)
StreamedRow: Any = Row("topic_partition", *OutcomeRow._fields)


def stream_of(processor: StatefulProcessor) -> Any:
    # no row is ever late: stream_dispatch takes the column away by which Spark would tell
    return TwsTester(processor, timeMode="EventTime", eventTimeExtractor=lambda _: 1 << 62)


def fed(stream: Any, commands: list[Command], topic_partition: str = "p") -> list[Row]:
    return unbundled(given_back(stream, commands, topic_partition))


def given_back(stream: Any, commands: list[Command], topic_partition: str = "p") -> list[Row]:
    """Give commands in two rows, as they come from two tasks."""
    pieces = [piece for piece in (commands[:2], commands[2:]) if piece]
    rows_back: list[Row] = stream.test(topic_partition, [packed(topic_partition, piece) for piece in pieces])
    return rows_back


def packed(topic_partition: str, commands: list[Command]) -> Row:
    schema = to_arrow_schema(COMMAND_SCHEMA)
    columns = zip(*((topic_partition, *plain(command)) for command in commands), strict=True)
    arrays = [pa.array(values, field.type) for values, field in zip(columns, schema, strict=True)]
    (batch,) = pack_batches([pa.record_batch(arrays, schema=schema)])
    row: Row = PackedRow(*(column[0].as_py() for column in batch.columns))
    return row


def passed(stream: Any, watermark: int) -> list[Row]:
    return unbundled(stream.setWatermark(watermark))


def unbundled(rows: list[Row]) -> list[Row]:
    return [StreamedRow(row.topic_partition, *outcome) for row in rows for outcome in zip(*row[1:-1], strict=True)]


def told(rows: list[Row]) -> list[OutcomeRow]:
    return [OutcomeRow(*row[1:]) for row in rows]


def streamed(log: Log, rng: Random, kind: type[DispatchProcessor] = DispatchProcessor) -> list[OutcomeRow]:
    """The log in micro-batches cut anywhere, while the watermark follows the commands that are still to come."""
    stream, watermark = stream_of(kind(ring(), log.config)), 0
    outcomes: list[OutcomeRow] = []
    left = set(log.commands)
    for piece in pieces_of(rng, log.commands):
        outcomes += told(fed(stream, piece))
        left -= set(piece)
        earliest = min((command.at_ms for command in left), default=0)
        if earliest > watermark and rng.choice([True, False]):
            watermark = earliest
            outcomes += told(passed(stream, watermark))
    return outcomes


def whole(log: Log) -> list[OutcomeRow]:
    return [
        OutcomeRow(*row[1:])
        for row in dispatch_partition((("p", 0, *c) for c in log.commands), ring(), config=log.config)
    ]


@given(st.integers(0, 1 << 32))  # a seed: to draw every choice would cost many times what is tested
def test_micro_batches_cut_anywhere_give_the_rows_of_one_batch(seed: int) -> None:
    rng = Random(seed)
    log = written_log(rng, 30)

    assert whole(log) == streamed(log, rng)


@given(st.integers(0, 1 << 32))  # as above
def test_from_an_older_state_the_same_rows_come_again_under_the_same_names_however_they_are_cut(seed: int) -> None:
    """What a restart from an older checkpoint does: the state of a moment, and all that came after it once more."""
    rng = Random(seed)
    log = written_log(rng, 30)
    cut = rng.randrange(1, len(log.commands))
    stream = stream_of(DispatchProcessor(ring(), log.config))
    before = told(fed(stream, log.commands[:cut]))
    older = stream.peekValueState("journal", "p")
    once = told(fed(stream, log.commands[cut:]))

    again = stream_of(DispatchProcessor(ring(), log.config))
    again.updateValueState("journal", "p", older)
    rows = [row for piece in pieces_of(rng, log.commands[cut:]) for row in told(fed(again, piece))]
    assert once == rows
    assert [*range(len(before) + len(rows))] == [row.position for row in (*before, *rows)]


class Forgetful(DispatchProcessor):
    """Every micro-batch is its first."""

    def _opened(self) -> tuple[Journal, int | None]:
        return Journal(self._placement, self._config), None


class Silent(DispatchProcessor):
    """Looks at what is due only when rows come."""

    def handleExpiredTimer(self, *_: Any, **__: Any) -> Any:  # noqa: N802  # Spark's name
        return iter([])


class Unsorted(DispatchProcessor):
    """Takes rows as they come."""

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Any:  # noqa: N802, N803  # Spark's names
        for row in rows:
            for command in unpacked(row.packed):
                alone = packed(row.topic_partition, [Command(*command)])
                yield from super().handleInputRows(key, iter([alone]), timerValues)


class Repeating(DispatchProcessor):
    """Does not remember what has been there."""

    def _opened(self) -> tuple[Journal, int | None]:
        journal, timer = super()._opened()
        journal._sequence, journal._seen = None, []
        return journal, timer


@pytest.mark.parametrize("broken", [Forgetful, Unsorted, Repeating], ids=lambda kind: kind.__name__)
def test_a_processor_that_is_broken_is_caught(broken: type[DispatchProcessor]) -> None:
    def differs(seed: int) -> bool:
        log = written_log(Random(seed), 25)
        return streamed(log, Random(seed), broken) != whole(log)

    assert any(differs(seed) for seed in range(20))


def timed_out(kind: type[DispatchProcessor]) -> list[tuple[int, str]]:
    stream = stream_of(kind(HashRing(), SECOND))
    fed(stream, [JOINED, Command(1, 500, "offer", offset=0)])
    fed(stream, [JOINED], "q")
    assert [] == passed(stream, 1_499)
    return [(row.at_ms, row.effect) for row in passed(stream, 9_000) if row.topic_partition == "p"]


def test_the_watermark_makes_due_what_no_command_would_and_each_at_its_own_instant() -> None:
    expected = [(1_500, "released"), (2_500, "deliver"), (3_500, "released"), (5_500, "deliver")]

    assert expected == timed_out(DispatchProcessor)[:4]
    assert [] == timed_out(Silent)


def test_one_timer_is_set_and_it_is_the_next_deadline() -> None:
    stream = stream_of(DispatchProcessor(HashRing(), SECOND))

    def timers() -> list[int]:
        return list(stream.handle._timers.listTimers("p"))

    fed(stream, [JOINED, Command(1, 500, "offer", offset=0, key=b"a")])
    assert [1_500] == timers()
    fed(stream, [Command(2, 600, "offer", offset=1, key=b"b"), Command(3, 700, "ack", 0, consumer="c1", attempt=1)])
    assert [1_600] == timers()
    stream.setWatermark(2_000)
    assert [2_600] == timers()
    fed(stream, [Command(4, 2_100, "gone", 1)])
    assert [] == timers()


def seen(rows: list[Row]) -> list[tuple[int, str]]:
    return [(row.at_ms, row.effect) for row in rows]


def test_a_command_that_lags_acts_at_its_own_time_if_nothing_was_due_since() -> None:
    stream = stream_of(DispatchProcessor(HashRing(), SECOND))
    fed(stream, [JOINED])
    stream.setWatermark(1_400)

    assert [(500, "deliver")] == seen(fed(stream, [Command(1, 500, "offer", offset=0)]))


def test_else_it_acts_at_the_instant_that_was_reached() -> None:
    stream = stream_of(DispatchProcessor(HashRing(), SECOND))
    fed(stream, [JOINED, Command(1, 500, "offer", offset=0, key=b"a")])
    assert [(1_500, "released")] == seen(passed(stream, 1_500))

    late = Command(2, 700, "offer", offset=1, key=b"b")
    assert [(1_500, "deliver")] == seen(fed(stream, [late]))


def test_what_comes_once_more_is_counted_beside_the_outcomes_and_what_is_late_once() -> None:
    stream = stream_of(DispatchProcessor(HashRing(), SECOND))
    first = [JOINED, Command(2, 500, "offer", offset=0, key=b"a")]
    late = Command(1, 400, "handle_timeout")

    def counted(commands: list[Command]) -> tuple[int, list[str]]:
        rows = given_back(stream, commands)
        return sum(row.duplicate for row in rows), [row.effect for row in unbundled(rows)]

    assert (0, ["deliver"]) == counted(first)
    assert (2, []) == counted(first)
    assert (1, ["late"]) == counted([late, JOINED])
    assert (1, []) == counted([late])
    again = Command(3, 600, "ack", 0, consumer="c1", attempt=1)
    assert (2, ["cursor_advanced"]) == counted([again, again, again])


def test_pandas_frames_carry_the_same_rows() -> None:
    by_rows = stream_of(DispatchProcessor(HashRing(), SECOND))
    by_frames = stream_of(_OfFrames(DispatchProcessor(HashRing(), SECOND)))

    for commands in ([JOINED, Command(1, 500, "offer", offset=HUGE, key=b"a"), JOINED], [Command(2, 600, "nonsense")]):
        row = packed("p", commands)
        frame = by_frames.testInPandas("p", pd.DataFrame([row], columns=PACKED_SCHEMA.names))
        assert in_tuples(by_rows.test("p", [row])) == in_tuples(frame.itertuples(index=False))
    timed_out = by_rows.setWatermark(2_000)
    assert ["released"] == [row.effect for row in unbundled(timed_out)]
    assert in_tuples(timed_out) == in_tuples(by_frames.setWatermark(2_000).itertuples(index=False))


def in_tuples(rows: Iterable[Iterable[Any]]) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in rows]


def test_topic_partitions_have_nothing_in_common() -> None:
    stream = stream_of(DispatchProcessor(HashRing(), SECOND))
    fed(stream, [JOINED, Command(1, 1, "offer", offset=0, key=b"a")])

    assert [] == fed(stream, [Command(2, 2, "offer", offset=0, key=b"a")], "q")
    (joined,) = fed(stream, [Command(3, 3, "add_consumer", consumer="c2")], "q")
    assert ("q", 0, "c2") == (joined.topic_partition, joined.position, joined.consumer)
    (more,) = fed(stream, [Command(4, 4, "offer", offset=1, key=b"b")])
    assert ("p", 1, "c1") == (more.topic_partition, more.position, more.consumer)


def test_the_state_is_bytes_of_the_journal_and_no_live_object() -> None:
    stream = stream_of(DispatchProcessor(HashRing(), SECOND))
    fed(stream, [JOINED, Command(1, 1, "offer", offset=0, key=b"a")])
    state, timer = stream.peekValueState("journal", "p")

    assert bytes is type(state)
    assert 1_001 == timer == Journal.from_bytes(state, HashRing(), SECOND).next_deadline_ms()


def test_a_ring_that_cannot_be_kept_is_refused_before_anything_runs() -> None:
    with pytest.raises(ArgumentError, match="placement"):
        DispatchProcessor(HashRing(["c1"]), None)
