"""Results as tables: one call that writes what a job has found, and one that reads it back."""

import os
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import Final, TypeAlias

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark user knows
from pyspark.sql.types import BinaryType, DataType, DecimalType, IntegralType, StringType, StructType

from keyshared._checks import check_kind
from keyshared.errors import ArgumentError
from keyshared.spark.audits.audit import Audit
from keyshared.spark.frames.checks import quoted
from keyshared.spark.replays.replay import Replay
from keyshared.spark.replays.what_if import WhatIf
from keyshared.spark.results.catalogue import MANIFEST, RESULT_TABLES, RUN
from keyshared.spark.results.place import check_prefix, checked_place
from keyshared.spark.results.reads import sources_of
from keyshared.spark.results.runs import MANIFEST_SCHEMA, check_versions, manifest_rows, new_run, saved_in

__all__ = ["Results", "load_results", "save_results"]

Results: TypeAlias = Replay | WhatIf | Audit | Mapping[str, DataFrame]
"""What can be saved: what a job gives, or frames by the names of their tables."""

_MODES: Final = ("error", "append", "overwrite")
_SCHEMAS: Final = {MANIFEST: MANIFEST_SCHEMA, **{name: table.schema for name, table in RESULT_TABLES.items()}}


def save_results(
    results: Results,
    path: str | os.PathLike[str] | None = None,
    *,
    prefix: str | None = None,
    format: str = "parquet",  # noqa: A002 - as Spark calls it
    mode: str = "error",
    options: Mapping[str, str] | None = None,
) -> str:
    """Write what a job has found as tables with known columns; runs the job, if it has not run yet.

    Each table gets a column ``run`` before its own and is partitioned by it. When all of them are written, the run is
    entered into one more table, ``keyshared_runs``, with the version of each table's columns: what does not stand
    there was cut short, and `load_results` does not see it.

    Args:
        results: What `replay`, `what_if` or `audit` gave, or frames by the names of `RESULT_TABLES`, such as
            ``{"histogram": key_histogram(log)}``.
        path: A folder of its own, on any file system of Spark's; each table is a folder below it. No pattern.
        prefix: Instead of a folder, what the names of tables begin with: ``lake.db.may`` makes
            ``lake.db.may_deliveries``. It does not end in ``_plan`` or ``_order``.
        format: ``parquet``, ``delta`` or ``iceberg``; the latter needs ``prefix``.
        mode: ``error``: nothing may be there yet; ``append``: one more run beside those that are there; ``overwrite``:
            instead of them. The place is emptied first, so ``results`` must not be read from it.
        options: Of Spark's writer, such as ``compression``; none that says what is replaced, or where it goes.

    Returns:
        The name of the run. Names of later runs come later in the alphabet.

    Raises:
        ArgumentError: ``results`` is none, a table is unknown or has other columns; ``format`` or ``mode`` is unknown,
            or the session lacks the format's package; the place is no folder or name, holds results and ``mode`` is
            ``error``, holds something else, or tables of another version; or ``overwrite`` would empty what ``results``
            are read from. Nothing was changed, and no job was started but the one that reads ``keyshared_runs`` for
            ``append``.

    Complexity:
        A pass over each frame, and a small job for the entry; ``overwrite`` and the first run have one more for each
        table that is emptied. Nothing comes to the driver.

    Example:
        >>> from keyshared.spark import key_histogram
        >>> counted = key_histogram(spark.createDataFrame([("order-1",), ("order-1",)], "key string"))
        >>> run = save_results({"histogram": counted}, folder)
        >>> load_results(spark, folder, run=run)["histogram"].select("slot", "messages", "hot_key").collect()
        [Row(slot=50421, messages=2, hot_key=b'order-1')]
    """
    if mode not in _MODES:
        raise ArgumentError("mode", mode, f"be one of {', '.join(_MODES)}")
    frames = {name: _declared(name, frame) for name, frame in _tables_of(results).items()}
    spark = next(iter(frames.values())).sparkSession
    place = checked_place(spark, path, prefix, format, options)
    check_prefix(prefix)
    there = place.holds()
    if there == "something else":
        raise place.refusal("hold nothing, or what save_results has written: anything else is left alone")
    if there == "results" and mode == "error":
        raise place.refusal("hold no results yet; mode='append' adds a run, mode='overwrite' replaces what is there")
    if there == "results" and mode == "append":
        check_versions([each for each in saved_in(place) if each.table in frames])
    else:
        _check_read_elsewhere(frames, place.sources() if there == "results" else set())
        place.clear(_SCHEMAS if there == "results" else {MANIFEST: MANIFEST_SCHEMA})
    run = new_run()
    for name, frame in frames.items():
        place.append(name, frame, run)
    place.append(MANIFEST, manifest_rows(spark, frames), run)
    return run


def load_results(
    spark: SparkSession,
    path: str | os.PathLike[str] | None = None,
    *,
    prefix: str | None = None,
    format: str = "parquet",  # noqa: A002 - as Spark calls it
    run: str | None = None,
    options: Mapping[str, str] | None = None,
) -> dict[str, DataFrame]:
    """Read results that `save_results` has written; runs a small job, which reads what runs there are.

    Args:
        spark: The session.
        path: The folder.
        prefix: Or what the names of tables begin with.
        format: As it was saved.
        run: Only this one. None: all that were there in whole at the call.
        options: Of Spark's reader.

    Returns:
        Lazy frames by the names of their tables: ``run``, and the columns of `RESULT_TABLES`.

    Raises:
        ArgumentError: No results were saved there in whole, or none of that run; a table is of another version; or
            ``format`` or the place cannot be. What was saved as Delta is no Parquet.

    Complexity:
        A run is a partition: only its files are read.

    Example:
        >>> run = save_results({"histogram": key_histogram(log)}, "lake/may", mode="append")  # doctest: +SKIP
        >>> collect_histogram(load_results(spark, "lake/may", run=run)["histogram"])  # doctest: +SKIP
    """
    place = checked_place(spark, path, prefix, format, options)
    saved = saved_in(place) if place.holds() == "results" else []
    if not saved:
        raise place.refusal("hold results of save_results, and none were saved there in whole")
    if run is not None:
        runs = dict.fromkeys(each.run for each in saved)
        saved = [each for each in saved if each.run == run]
        if not saved:
            raise ArgumentError(
                "run", run, f"be one that was saved in whole; the last ones are {', '.join([*runs][-3:])}"
            )
    check_versions(saved)
    runs_of: dict[str, list[str]] = {}
    for each in saved:
        runs_of.setdefault(each.table, []).append(each.run)
    return {
        table: place.read(table, RESULT_TABLES[table].schema).filter(F.col(RUN).isin(runs))
        for table, runs in runs_of.items()
    }


def _check_read_elsewhere(frames: Mapping[str, DataFrame], emptied: AbstractSet[str]) -> None:
    """Refuse to empty what is still to be read: frames are lazy."""
    for name, frame in frames.items():
        if emptied and emptied & sources_of(frame):
            requirement = (
                "be read from another place than the one that overwrite empties first; "
                "save with mode='append', or to another place"
            )
            raise ArgumentError("results", name, requirement)


def _tables_of(results: object) -> Mapping[str, DataFrame]:
    if isinstance(results, Replay):
        return {"deliveries": results.deliveries, "summaries": results.summaries}
    if isinstance(results, Audit):
        return {"violations": results.violations, "verdicts": results.verdicts}
    if isinstance(results, WhatIf):
        names = ("summaries", "totals", "consumers", "moved_keys")
        return {f"plan_{name}": getattr(results, name) for name in names}
    if not isinstance(results, Mapping) or not results:
        requirement = "be what replay, what_if or audit gave, or frames by the names of RESULT_TABLES"
        raise ArgumentError("results", results, requirement)
    return results


def _declared(name: str, frame: DataFrame) -> DataFrame:
    """Return the frame with the columns that its table has; fails if these are others."""
    if name not in RESULT_TABLES:
        raise ArgumentError("results", name, f"be one of {', '.join(RESULT_TABLES)}")
    check_kind(f"results[{name!r}]", frame, DataFrame)
    if frame.isStreaming:
        raise ArgumentError(f"results[{name!r}]", frame, "be a batch; save each one of a stream within foreachBatch")
    wanted = RESULT_TABLES[name].schema
    found = frame.schema
    if sorted(found.names) != sorted(wanted.names):
        missing = [each for each in wanted.names if each not in found.names]
        others = [each for each in found.names if each not in wanted.names]
        told = f"be {', '.join(wanted.names)} (missing {missing}, and not of the table {others})"
        raise ArgumentError(f"columns of {name}", found.names, told)
    return frame.select(*(_as_wanted(name, found, each.name, each.dataType) for each in wanted.fields))


def _as_wanted(table: str, schema: StructType, column: str, wanted: DataType) -> Column:
    found = schema[column].dataType
    if found.simpleString() == wanted.simpleString():
        return F.col(quoted(column))
    if isinstance(wanted, BinaryType) and found == StringType():
        return F.col(quoted(column)).cast(wanted).alias(column)
    if isinstance(wanted, DecimalType) and _fits(found, wanted):
        return F.col(quoted(column)).cast(wanted).alias(column)
    told = f"be {wanted.simpleString()}, and it is {found.simpleString()}; cast it first"
    raise ArgumentError(f"column of {table}", column, told)


def _fits(found: DataType, wanted: DecimalType) -> bool:
    if isinstance(found, DecimalType):
        whole = found.precision - found.scale
        return found.scale <= wanted.scale and whole <= wanted.precision - wanted.scale
    return isinstance(found, IntegralType)
