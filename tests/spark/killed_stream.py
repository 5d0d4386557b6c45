"""A stream over a folder of commands into a folder of outcomes, in a process that its test kills.

Arguments: the folder, and the delay of `stream_dispatch`.
"""

import sys
from pathlib import Path
from typing import Final

from tests.command_logs import ring

from keyshared.config import Backoff, DispatcherConfig, Poison, RetryPolicy
from keyshared.spark.session import local_session
from keyshared.spark.stream import COMMAND_COLUMNS, STATE_STORE_SETTINGS, stream_dispatch

CONFIG: Final = DispatcherConfig(
    window=4,
    max_tracked=6,
    max_in_flight_per_consumer=2,
    ack_timeout_ms=10,
    retry=RetryPolicy(max_redeliveries=1, base_delay_ms=5, backoff=Backoff.FIXED),
    poison=Poison.DEAD_LETTER,
    inactive_grace_ms=12,
    drain_timeout_ms=4,
)
NAMES: Final = "topic string, partition int"
SCHEMA: Final = f"{NAMES}, {COMMAND_COLUMNS}"


def main(folder: str, delay_ms: str) -> None:
    """Run the stream to the end of its source."""
    settings = {**STATE_STORE_SETTINGS, "spark.sql.shuffle.partitions": "2"}
    spark = local_session("killed", master="local[2]", log=Path(folder, "spark.log"), settings=settings)
    stream = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(f"{folder}/in")
    outcomes = stream_dispatch(stream, ring(), config=CONFIG, delay_ms=int(delay_ms))
    writer = outcomes.writeStream.option("path", f"{folder}/out").option("checkpointLocation", f"{folder}/checkpoint")
    writer.trigger(availableNow=True).start().awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
