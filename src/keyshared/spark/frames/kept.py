"""What a job keeps between the frames that it returns: the rows that came out of Python, until they are released."""

from types import TracebackType
from typing import Self

from pyspark import StorageLevel
from pyspark.sql import DataFrame

__all__ = ["Kept"]


class Kept:
    """Rows that several frames are views of: computed when the first of them is asked, and kept from then on.

    Close it, or use it as a context manager, to release the kept rows; the frames compute them again after that.

    Args:
        rows: What is kept: on disk. In memory it would grow with the log until a small heap is full, and would take
            what sorting needs.
    """

    def __init__(self, rows: DataFrame) -> None:
        self._rows = rows.persist(StorageLevel.DISK_ONLY)

    def close(self) -> None:
        """Release what is kept; closing twice is fine."""
        self._rows.unpersist()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
