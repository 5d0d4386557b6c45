"""A source that is another one whenever it is read: each read has the rows of the one before, and more of them."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import Row, StructType

__all__ = ["growing", "reads_of"]


class Growing(DataSource):
    """Its rows are Python's own notation in the files 0, 1, 2, ... of a folder: one file for each read."""

    @classmethod
    def name(cls) -> str:
        return "growing"

    def reader(self, schema: StructType) -> DataSourceReader:
        return _Reader(Path(self.options["path"]), schema)


class _Reader(DataSourceReader):
    def __init__(self, folder: Path, schema: StructType) -> None:
        self.folder = folder
        self.schema = schema

    def read(self, _: InputPartition) -> Iterator[Any]:
        number = reads_of(self.folder)
        (self.folder / f"read-{number}").touch()
        files = sorted(int(file.name) for file in self.folder.iterdir() if file.name.isdigit())
        text = (self.folder / str(min(number, files[-1]))).read_text()
        return (Row(*row) for row in eval(text))  # noqa: S307 - written by `growing`


def growing(spark: SparkSession, folder: Path, schema: str, reads: Sequence[Sequence[tuple[Any, ...]]]) -> DataFrame:
    """Make a frame that has these rows when it is read first, these when it is read once more, and so on.

    Args:
        spark: The session.
        folder: A new folder for the rows.
        schema: Of the rows.
        reads: Rows by read; the last ones stay.
    """
    folder.mkdir(parents=True)
    for number, rows in enumerate(reads):
        (folder / str(number)).write_text(repr([tuple(row) for row in rows]))
    spark.dataSource.register(Growing)
    return spark.read.format("growing").option("path", str(folder)).schema(schema).load()


def reads_of(folder: Path) -> int:
    """Count how often a frame was read."""
    return sum(1 for file in folder.iterdir() if file.name.startswith("read-"))
