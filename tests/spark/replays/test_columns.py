"""The replay by columns, without Spark: what `replay_partition` gives row by row, in batches of bounded size."""

from collections.abc import Iterator, Sequence
from unittest.mock import patch

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st
from tests.properties.test_simulate_properties import arrivals, plans

from keyshared.hashing.named import key_bytes
from keyshared.simulate import Arrival, Fixed, Group, SimulatedConsumer
from keyshared.spark.replays import replay
from keyshared.spark.replays.partition import DeliveryRow, Message, SummaryRow, replay_partition
from keyshared.spark.replays.replay import _BATCH_ROWS, _BLOCK_ROWS, _Work, replay_batches, summary_fields
from keyshared.spark.replays.schemas import DELIVERY_SCHEMA

TYPES = {
    "topic_partition": pa.string(),
    "offset": pa.int64(),
    "key": pa.binary(),
    "at_ms": pa.int64(),
    "service_ms": pa.int64(),
    "not_before_ms": pa.int64(),
}


def batches(messages: Sequence[Message], rows: int) -> Iterator[pa.RecordBatch]:
    for first in range(0, len(messages), rows):
        columns = zip(*messages[first : first + rows], strict=True)
        yield pa.RecordBatch.from_arrays(list(map(pa.array, columns, TYPES.values())), names=list(TYPES))


def log_of(name: str, log: list[Arrival]) -> list[Message]:
    return [Message(name, each.offset, key_bytes(each.key), *each[2:]) for each in log]


@given(plans(), arrivals, arrivals, st.tuples(*[st.integers(1, 9)] * 3))
def test_columns_say_what_rows_say(
    plan: Group, first: list[Arrival], second: list[Arrival], sizes: tuple[int, int, int]
) -> None:
    messages = [*log_of("p", first), *log_of("q", second)]
    expected = list(replay_partition(messages, plan, points=5, hottest=2))
    read, block, most = sizes
    with patch.multiple(replay, _BLOCK_ROWS=block, _BATCH_ROWS=most):
        found = list(replay_batches(batches(messages, read), _Work(plan, 5, 2)))
    rows = [row for batch in found for row in batch.to_pylist()]
    told = [DeliveryRow(*(row[name] for name in DELIVERY_SCHEMA.names)) for row in rows if row["summaries"] is None]
    assert sorted(row for row in expected if isinstance(row, DeliveryRow)) == sorted(told)
    assert [summary_fields(row) for row in expected if isinstance(row, SummaryRow)] == [
        row["summaries"][0] for row in rows if row["summaries"] is not None
    ]


def test_a_long_topic_partition_comes_in_batches_while_it_is_read() -> None:
    messages = [Message("p", offset, b"k%d" % (offset % 50), offset) for offset in range(30_000)]
    read = 0

    def source() -> Iterator[pa.RecordBatch]:
        nonlocal read
        for batch in batches(messages, 1_000):
            read += batch.num_rows
            yield batch

    done = 0
    for batch in replay_batches(source(), _Work(Group(consumers=[SimulatedConsumer("a", Fixed(1))]), 5, 2)):
        assert batch.num_rows <= _BATCH_ROWS + _BLOCK_ROWS
        done += batch.num_rows
        assert read <= done + _BLOCK_ROWS + 2_000  # a batch that is being read, and one ahead of it
    assert len(messages) + 1 == done
