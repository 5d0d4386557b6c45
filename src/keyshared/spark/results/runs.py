"""Runs: what was saved by one call, and what of it stands in whole."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final, NamedTuple
from uuid import uuid4

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark user knows
from pyspark.sql.types import IntegerType, StringType, StructField, StructType, TimestampType

from keyshared.errors import ArgumentError
from keyshared.spark.results.catalogue import MANIFEST, RESULT_TABLES, RUN
from keyshared.spark.results.place import Place

__all__ = ["MANIFEST_SCHEMA", "Saved", "check_versions", "manifest_rows", "new_run", "saved_in"]

MANIFEST_SCHEMA: Final = StructType(
    [
        StructField("table_name", StringType(), nullable=False),
        StructField("schema_version", IntegerType(), nullable=False),
        StructField("saved_at", TimestampType(), nullable=False),
    ]
)
"""One row for each run and table, besides ``run``: written last, so what it names is there in whole."""


class Saved(NamedTuple):
    """A table of a run.

    Attributes:
        run: The run.
        table: Name of the table.
        version: Of its columns.
    """

    run: str
    table: str
    version: int


def new_run() -> str:
    """Return a name that no other run has; later ones come later in the alphabet."""
    return f"{datetime.now(UTC):%Y%m%dT%H%M%S%fZ}-{uuid4().hex[:8]}"


def saved_in(place: Place) -> list[Saved]:
    """Return what the manifest says, in order; runs a small job.

    Args:
        place: Where results are.
    """
    rows = place.read(MANIFEST, MANIFEST_SCHEMA).select(RUN, "table_name", "schema_version").collect()
    return sorted(Saved(*row) for row in rows)


def check_versions(saved: Sequence[Saved]) -> None:
    """Check that this version of keyshared knows the columns.

    Args:
        saved: Tables, those of all runs that are read or added to.

    Raises:
        ArgumentError: A table is unknown, or has another version.
    """
    for each in saved:
        known = RESULT_TABLES.get(each.table)
        if known is None:
            tables = ", ".join(RESULT_TABLES)
            requirement = f"be one of {tables}: run {each.run} was saved by a later version of keyshared"
            raise ArgumentError("table_name", each.table, requirement)
        if known.version != each.version:
            requirement = (
                f"be {known.version}: {each.table} of run {each.run} was saved by another version of keyshared; "
                "load it with that one, or save the results anew elsewhere"
            )
            raise ArgumentError("schema_version", each.version, requirement)


def manifest_rows(spark: SparkSession, tables: Mapping[str, object]) -> DataFrame:
    """Return the rows of the manifest for a run, in one Spark partition: one file, there in whole or not at all.

    Args:
        spark: The session.
        tables: What was saved, by name.
    """
    return spark.range(0, 1, 1, 1).select(F.inline(F.array(*_entries(tables))))


def _entries(tables: Mapping[str, object]) -> Iterator[Column]:
    for table in tables:
        values = (F.lit(table), F.lit(RESULT_TABLES[table].version), F.current_timestamp())
        fields = zip(values, MANIFEST_SCHEMA.fields, strict=True)
        yield F.struct(*(value.cast(field.dataType).alias(field.name) for value, field in fields))
