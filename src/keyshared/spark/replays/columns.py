"""Deliveries as Arrow columns: what `keyshared.spark.replays.partition` gives row by row, in blocks of rows.

The fold only puts together which row of the history began a delivery and which one ended it. Their fields become
columns afterwards, many deliveries at once, without an object for each.
"""

from collections.abc import Iterable
from typing import Final, cast

import pyarrow as pa
import pyarrow.compute as pc

from keyshared.simulate.history import Event, Row
from keyshared.spark.replays.partition import ENDS, OPEN, SETTLING, outcome_of

__all__ = ["DeliveryColumns"]

_NO_ROW: Final = cast("Row", (None,) * len(Row._fields))
_DELIVERED: Final = Event.DELIVERED
_ACKED: Final = Event.ACKED
_ACK: Final = Event.ACKED.value


class DeliveryColumns:
    """Folds the history of a topic-partition into deliveries.

    Args:
        topic_partition: Whose history it is.

    Complexity:
        O(1) for each row; memory O(outstanding messages + deliveries that were not taken).
    """

    def __init__(self, topic_partition: str) -> None:
        self._topic_partition = topic_partition
        self._open: dict[int, Row] = {}  # the last delivery of each outstanding message
        self._ended: dict[int, Row] = {}  # and its end, if there was one
        self._starts: list[Row] = []
        self._ends: list[Row] = []
        self._rare: dict[int, tuple[str, int | None]] = {}  # outcome and settlement of what did not end by an ack

    def __len__(self) -> int:
        return len(self._starts)

    def add_all(self, rows: Iterable[Row]) -> None:
        """Take the next rows of the history.

        Args:
            rows: In their order.
        """
        last, starts, ends = self._open, self._starts, self._ends
        for row in rows:
            event = row[2]
            if event is _DELIVERED:
                offset: int = row[3]  # type: ignore[assignment]  # a delivery names its message
                if offset in last:
                    self._end(offset, None)
                last[offset] = row
            elif event is _ACKED:
                starts.append(last.pop(row[3]))  # type: ignore[arg-type]  # as above
                ends.append(row)
            elif event in ENDS:
                self._ended[row.offset] = row  # type: ignore[index]  # as above
            elif event in SETTLING and row.offset in last:
                # what was never delivered has no row: skipped, or the dead letter of a quarantined key
                self._end(row.offset, row.sequence)

    def finish(self) -> None:
        """End the history: what is still outstanding has had its last delivery."""
        for offset in list(self._open):
            self._end(offset, None)

    def take(self) -> list[pa.Array]:
        """Return the columns of `DELIVERY_SCHEMA` for what has been found since the last time, in its order."""
        count = len(self._starts)
        sequences, delivered, _, offsets, keys, consumers, attempts, _, available, *_ = zip(*self._starts, strict=True)
        end_sequence = pa.array([row[0] for row in self._ends], pa.int64())
        delivered_ms = pa.array(delivered, pa.int64())
        outcome, settled = pa.repeat(_ACK, count), end_sequence
        if self._rare:
            told = [self._rare.get(place, (_ACK, row[0])) for place, row in enumerate(self._ends)]
            outcome, settled = (pa.array(*each) for each in zip(zip(*told, strict=True), _TYPES, strict=True))
        columns = [
            pa.repeat(self._topic_partition, count),
            pa.array(offsets, pa.int64()),
            pa.array(keys, pa.binary()),
            pa.array(consumers, pa.string()),
            pa.array(attempts, pa.int32()),
            delivered_ms,
            pa.array([row[1] for row in self._ends], pa.int64()),
            outcome,
            pc.subtract(delivered_ms, pa.array(available, pa.int64())),
            pa.array(sequences, pa.int64()),
            end_sequence,
            settled,
        ]
        self._starts.clear()
        self._ends.clear()
        self._rare.clear()
        return columns

    def _end(self, offset: int, settled_sequence: int | None) -> None:
        """Note the last delivery of a message that no ack has ended."""
        end = self._ended.pop(offset, None)
        self._rare[len(self._starts)] = OPEN if end is None else outcome_of(end), settled_sequence
        self._starts.append(self._open.pop(offset))
        self._ends.append(_NO_ROW if end is None else end)


_TYPES: Final = (pa.string(), pa.int64())
