"""What holds up the first attempt of a task, until Spark ends it in favour of a copy of it, or its executor is killed.

A module of its own, because workers import what they are sent by name.
"""

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa
from pyspark import TaskContext

from keyshared.simulate import ServiceTime

HELD: Final = 0  # the Spark partition
_LONGEST_S: Final = 120


def hold() -> None:
    """Wait to be killed, in the first attempt; in a copy go on."""
    task = TaskContext.get()
    assert task is not None
    if task.partitionId() == HELD and task.attemptNumber() == 0:
        time.sleep(_LONGEST_S)
        raise TimeoutError("Spark started no copy of this task")


@dataclass(frozen=True)
class HeldServiceTime:
    """A service time that holds up a replay when it comes to an offset."""

    model: ServiceTime
    offset: int

    def duration_ms(self, offset: int, attempt: int, own_ms: int | None) -> int:
        if offset >= self.offset:
            hold()
        return self.model.duration_ms(offset, attempt, own_ms)


@dataclass(frozen=True)
class HeldOnce:
    """A service time that holds up the first task that comes to an offset, and writes into a file whose that is."""

    model: ServiceTime
    offset: int
    file: Path

    def duration_ms(self, offset: int, attempt: int, own_ms: int | None) -> int:
        if offset >= self.offset and not self.file.exists():
            self._hold()
        return self.model.duration_ms(offset, attempt, own_ms)

    def _hold(self) -> None:
        try:
            with self.file.open("x") as file:
                file.write(f"{os.getpid()}\n")
        except FileExistsError:  # by a task at the other executor, meanwhile
            return
        time.sleep(_LONGEST_S)
        raise TimeoutError("nobody has killed this executor")


def held_batches(batches: Iterator[pa.RecordBatch], after: int) -> Iterator[pa.RecordBatch]:
    """Let this many rows through, then hold up what comes after them; with `partial` for ``mapInArrow``."""
    through = 0
    for batch in batches:
        yield batch
        through += batch.num_rows
        if through >= after:
            hold()
