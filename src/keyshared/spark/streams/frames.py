"""A stateful processor of rows, also where Spark has only one of pandas frames.

Only `keyshared.spark.streams.dispatch` imports this module, and only for a stream: it needs Spark 4.0 and protobuf.
"""

from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame, Row
from pyspark.sql.streaming.stateful_processor import (
    ExpiredTimerInfo,
    StatefulProcessor,
    StatefulProcessorHandle,
    TimerValues,
)
from pyspark.sql.types import StructType

from keyshared.spark.versions import STATE_IN_ROWS, STREAMS, needs

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pandas as pd

__all__ = ["transform_with_state"]


def transform_with_state(grouped: Any, processor: StatefulProcessor, schema: StructType) -> DataFrame:  # noqa: ANN401
    """Run a stateful processor over each group of a stream, in event time.

    Before Spark 4.1 rows go through pandas frames. These make floats of whole numbers where some are NULL, also within
    arrays: so what comes in may have neither. What goes out may have arrays of anything, made of Python's own values.

    Args:
        grouped: The stream, grouped; its type is another one through Spark Connect.
        processor: It takes rows and gives rows.
        schema: Of the rows that it gives.

    Returns:
        These rows, for the output mode append.

    Raises:
        TooOldError: The stream is one of Spark Connect, and Spark is older than 4.1.
    """
    if STATE_IN_ROWS.is_here:
        transform = grouped.transformWithState
    else:
        if not hasattr(grouped, STREAMS.what):  # through Spark Connect
            needs(STATE_IN_ROWS, "a streaming frame of Spark Connect", "dispatch batch frames, or upgrade Spark")
        transform, processor = grouped.transformWithStateInPandas, _OfFrames(processor)
    rows: DataFrame = transform(
        statefulProcessor=processor, outputStructType=schema, outputMode="append", timeMode="eventTime"
    )
    return rows


class _OfFrames(StatefulProcessor):
    """Takes the rows out of frames for another processor, and puts each row that it gives into a frame."""

    # Spark passes all arguments by keyword, so their names are not ours to choose.

    def __init__(self, processor: StatefulProcessor) -> None:
        self._processor: Any = processor  # pyspark has one type for rows and frames

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._processor.init(handle)

    def handleInputRows(
        self, key: tuple[str], rows: "Iterator[Any]", timerValues: TimerValues
    ) -> "Iterator[pd.DataFrame]":
        taken = (row for frame in rows for row in frame.itertuples(index=False, name=None))
        return map(_frame_of, self._processor.handleInputRows(key, taken, timerValues))

    def handleExpiredTimer(
        self, key: tuple[str], timerValues: TimerValues, expiredTimerInfo: ExpiredTimerInfo
    ) -> "Iterator[pd.DataFrame]":
        return map(_frame_of, self._processor.handleExpiredTimer(key, timerValues, expiredTimerInfo))

    def close(self) -> None:
        self._processor.close()


def _frame_of(row: Row) -> "pd.DataFrame":
    import pandas as pd  # noqa: PLC0415 - takes half a second, and newer versions need none of it

    return pd.DataFrame([tuple(row)], columns=row.__fields__)
