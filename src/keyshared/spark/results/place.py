"""Where saved results lie: in folders below a path, or in tables of a catalog whose names begin alike."""

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final, Literal, NamedTuple

from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, DataFrameWriter, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark user knows
from pyspark.sql.types import StringType, StructField, StructType

from keyshared._checks import check_mapping
from keyshared.errors import ArgumentError
from keyshared.spark.logs.snapshots import NO_SOURCE, session_with
from keyshared.spark.results.catalogue import MANIFEST, RESULT_TABLES, RUN
from keyshared.spark.results.reads import sources_of
from keyshared.spark.runtime.session import reason
from keyshared.spark.versions import condition_of

__all__ = ["FORMATS", "Place", "check_folder", "check_prefix", "checked_place"]

FORMATS: Final = ("parquet", "delta", "iceberg")
"""What results are saved as."""

_PREFIX: Final = re.compile(r"(?:\w+\.)*\w+", re.ASCII)
_STATIC: Final = {"partitionOverwriteMode": "static"}  # whatever the session says: no partition stays
_WHOLLY: Final = {"parquet": _STATIC, "delta": {**_STATIC, "overwriteSchema": "true"}}
_NOT_THERE: Final = "PATH_NOT_FOUND"
_PATTERN: Final = re.compile(r"[*?\[\]{}\\]")  # Spark would look elsewhere than it writes
# tables of may_plan would be called as some of may, and emptied with these
_SHARED: Final = tuple(
    sorted({one.removesuffix(other) for one in RESULT_TABLES for other in RESULT_TABLES if one.endswith(f"_{other}")})
)
# of the formats' writers: what they say is replaced, or where it goes
_REFUSED: Final = ("partitionOverwriteMode", "replaceWhere", "overwrite-mode", "path")


class Place(NamedTuple):
    """A place for tables of results.

    Attributes:
        spark: The session.
        path: The folder; None if the tables have names.
        prefix: What the names of the tables begin with; None if they lie in a folder.
        format: One of `FORMATS`.
        options: Of Spark's writer or reader.
    """

    spark: SparkSession
    path: str | None
    prefix: str | None
    format: str
    options: Mapping[str, str]

    def refusal(self, requirement: str) -> ArgumentError:
        """Return the error for a place that will not do.

        Args:
            requirement: What it must be.
        """
        if self.path is None:
            return ArgumentError("prefix", self.prefix, requirement)
        return ArgumentError("path", self.path, requirement)

    def holds(self) -> Literal["nothing", "results", "something else"]:
        """Return what is there; starts no job."""
        with self._asked():
            if self._has(MANIFEST):
                self._refuse_delta()
                return "results"
            there = any(map(self._has, RESULT_TABLES)) if self.path is None else bool(self._files(self.path))
            return "something else" if there else "nothing"

    def sources(self) -> set[str]:
        """Return all that a frame may read here, as `sources_of` names it; starts no job."""
        with self._asked():
            return {source for table in (MANIFEST, *RESULT_TABLES) if self._has(table) for source in self._read(table)}

    def clear(self, schemas: Mapping[str, StructType]) -> None:
        """Leave empty tables, the manifest first: from then on nothing counts as saved.

        Args:
            schemas: Of the tables, without ``run``; those that are not there stay so, except for the manifest.
        """
        for table, schema in schemas.items():
            with self._asked():
                if table != MANIFEST and not self._has(table):
                    continue
                empty = self.spark.createDataFrame([], _with_run(schema))
                self._write(empty.write.mode("overwrite").options(**_WHOLLY.get(self.format, {})), table)

    def append(self, table: str, rows: DataFrame, run: str) -> None:
        """Write the rows of a run.

        Args:
            table: Of results, or the manifest.
            rows: Without ``run``.
            run: Which one.
        """
        if self.path is not None and self.format == "parquet":
            # a folder of its own: what has no rows leaves a file with the columns, and runs do not meet
            rows.write.options(**self.options).parquet(f"{self._folder(table)}/{RUN}={run}")
        else:
            self._write(rows.select(F.lit(run).alias(RUN), "*").write.mode("append"), table)

    def read(self, table: str, schema: StructType) -> DataFrame:
        """Read a table, all runs of it.

        Args:
            table: Of results, or the manifest.
            schema: Its columns, without ``run``.

        Returns:
            ``run``, and the columns.
        """
        reader = self.spark.read.options(**self.options)
        with self._asked():
            if self.path is None:
                rows = reader.table(self._name(table))
            else:
                known = reader.schema(_with_run(schema)) if self.format == "parquet" else reader
                rows = known.format(self.format).load(self._folder(table))
            return rows.select(RUN, *schema.names)

    def _read(self, table: str) -> set[str]:
        reader = self.spark.read.options(**self.options)
        if self.path is None:
            return sources_of(reader.table(self._name(table)))
        if self.format == "parquet":  # to ask for its columns would be a job
            return set(self._files(self._folder(table)) or ())
        return sources_of(reader.format(self.format).load(self._folder(table)))

    def _write(self, writer: DataFrameWriter, table: str) -> None:
        writer = writer.format(self.format).options(**self.options).partitionBy(RUN)
        if self.path is None:
            writer.saveAsTable(self._name(table))
        else:
            writer.save(self._folder(table))

    def _has(self, table: str) -> bool:
        if self.path is None:
            return self.spark.catalog.tableExists(self._name(table))
        return self._files(self._folder(table)) is not None

    def _files(self, folder: str) -> list[str] | None:
        """Return the files below a folder that Spark would read, None if there is no such folder."""
        found = self.spark.read.format("binaryFile").option("recursiveFileLookup", "true")
        try:
            return found.load(folder).inputFiles()
        except AnalysisException as error:
            if condition_of(error) == _NOT_THERE:
                return None
            raise

    def _refuse_delta(self) -> None:
        """Refuse to take the files of a Delta table for one of Parquet: some of them count no more."""
        if self.path is None or self.format != "parquet":
            return
        if self._files(f"{self._folder(MANIFEST)}/_delta_log") is not None:
            raise ArgumentError("format", self.format, "be delta, as which the results there were saved")

    def _folder(self, table: str) -> str:
        return f"{(self.path or '').rstrip('/')}/{table}"

    def _name(self, table: str) -> str:
        return f"{self.prefix}_{table}"

    @contextmanager
    def _asked(self) -> Iterator[None]:
        """Raise what Spark finds wrong with the place itself as an error of the argument."""
        try:
            yield
        except (PySparkException, Py4JJavaError) as error:
            told = condition_of(error) if isinstance(error, AnalysisException) else reason(error)
            if NO_SOURCE in (told or ""):
                raise ArgumentError("format", self.format, session_with(self.format, self.spark.version)) from error
            raise self.refusal(f"be a place where Spark can read and write {self.format} ({told})") from error


def checked_place(
    spark: SparkSession,
    path: object,
    prefix: object,
    format: object,  # noqa: A002 - as Spark calls it
    options: object,
) -> Place:
    """Check where results are to be saved or loaded, as far as that can be seen without looking there.

    Args:
        spark: The session.
        path: A folder, or None.
        prefix: What the names of tables begin with, or None.
        format: What it is to be.
        options: Of Spark's writer or reader, or None.

    Returns:
        The place.

    Raises:
        ArgumentError: There is no such format, not just one of ``path`` and ``prefix``, or one that cannot be; or an
            option says what is replaced, or where it goes.

    Example:
        >>> checked_place(spark, "lake/may", None, "orc", None)
        Traceback (most recent call last):
        ...
        keyshared.errors.ArgumentError: format is 'orc'; it must be one of parquet, delta, iceberg
    """
    if not isinstance(format, str) or format.casefold() not in FORMATS:
        raise ArgumentError("format", format, f"be one of {', '.join(FORMATS)}")
    if (path is None) == (prefix is None):
        raise ArgumentError(
            "path", path, "be a folder, or else prefix the beginning of tables' names; give one of them"
        )
    if prefix is not None and not (isinstance(prefix, str) and _PREFIX.fullmatch(prefix)):
        requirement = "be the beginning of tables' names, such as lake.db.may, of ASCII letters, digits and _"
        raise ArgumentError("prefix", prefix, requirement)
    folder = os.fspath(path) if isinstance(path, os.PathLike) else path
    if folder is not None and not (isinstance(folder, str) and folder.strip("/ ")):
        raise ArgumentError("path", path, "be a folder of its own")
    if folder is not None:
        check_folder("path", folder)
    if folder is not None and format.casefold() == "iceberg":
        raise ArgumentError("path", path, "be left out for iceberg, whose tables stand in a catalog: give prefix")
    given = {} if options is None else dict(check_mapping("options", options))
    refused = {name.casefold() for name in _REFUSED}
    for name in given:
        if isinstance(name, str) and name.casefold() in refused:
            raise ArgumentError("options", name, f"be none of {', '.join(_REFUSED)}: mode and place say this here")
    return Place(spark, folder, prefix, format.casefold(), given)


def check_folder(parameter: str, folder: str) -> None:
    r"""Check that a folder is one and the same to whoever looks there and to whoever writes.

    Args:
        parameter: Who names it, for the error.
        folder: Its path.

    Raises:
        ArgumentError: Spark would take it for a pattern.

    Example:
        >>> check_folder("path", "a[1]")
        Traceback (most recent call last):
        ...
        keyshared.errors.ArgumentError: path is 'a[1]'; it must have none of * ? [ ] { } \: to Spark it is a pattern
    """
    if _PATTERN.search(folder):
        raise ArgumentError(parameter, folder, r"have none of * ? [ ] { } \: to Spark it is a pattern")


def check_prefix(prefix: str | None) -> None:
    """Check that no table is to be written whose name another prefix has for a table of its own.

    Args:
        prefix: What the names of tables begin with, or None.

    Raises:
        ArgumentError: It ends as the names of some tables begin.

    Example:
        >>> check_prefix("lake.db.may_plan")
        Traceback (most recent call last):
        ...
        keyshared.errors.ArgumentError: prefix is 'lake.db.may_plan'; it must not end in _order or _plan: some of its \
tables would be called as tables of the prefix without that
    """
    if prefix is not None and f"{prefix.casefold()}_".endswith(tuple(f"_{shared}" for shared in _SHARED)):
        ends = " or ".join(f"_{shared.removesuffix('_')}" for shared in _SHARED)
        told = f"not end in {ends}: some of its tables would be called as tables of the prefix without that"
        raise ArgumentError("prefix", prefix, told)


def _with_run(schema: StructType) -> StructType:
    return StructType([StructField(RUN, StringType(), nullable=False), *schema.fields])
