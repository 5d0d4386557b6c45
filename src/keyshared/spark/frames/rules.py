"""What values must be, for every job that takes frames: one wording, checked on the very rows that are used.

Spark may read a frame anew for each computation, and find other rows then. So a job that counts first and works later
checks twice: once with `refuse`, for an error at the call that says how many rows are wrong, and once with `Rule.kept`,
natively and as a part of the work, for an error that names the first wrong row.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark user knows

from keyshared.errors import ArgumentError
from keyshared.spark.versions import is_utf8

__all__ = ["MAX_MS", "Rule", "count_wrong", "never_null", "place_of", "refuse", "text_for_python", "whole_ms"]

MAX_MS: Final = ((1 << 63) - 1) // 1_000
"""The greatest number of milliseconds that Spark can make a time of: its times count microseconds in 64 bits."""

_SHOWN: Final = 3


class Rule(NamedTuple):
    """One thing that must hold for a column in every row.

    Attributes:
        name: What the job calls the column.
        column: What the frame calls it.
        value: The column.
        wrong: True for a value that cannot be used, never NULL.
        what: What such a value is, as the end of the sentence "it must not be ...".
    """

    name: str
    column: str
    value: Column
    wrong: Column
    what: str

    def kept(self, place: Column) -> Column:
        """Return the column by its name in the job; a row with a value that cannot be used fails the job.

        Args:
            place: Which row it is, see `place_of`.
        """
        return F.when(self.wrong, F.raise_error(self.said(place))).otherwise(self.value).alias(self.name)

    def said(self, place: Column) -> Column:
        """Return the error text for a wrong row.

        Args:
            place: Which row it is, see `place_of`.
        """
        told = f"keyshared: column {self.column} must not be {self.what} in any row, and it is in "
        return F.concat(F.lit(told), place)


def never_null(name: str, column: str | None = None, value: Column | None = None) -> Rule:
    """Return the rule that a column has a value in every row.

    Args:
        name: What the job calls the column.
        column: What the frame calls it; None: the same.
        value: The column, if it is not the one of that name.
    """
    called = name if column is None else column
    found = F.col(called) if value is None else value
    return Rule(name, called, found, found.isNull(), "NULL")


def text_for_python(name: str, column: str | None = None, value: Column | None = None) -> Rule:
    """Return the rule for a text that Python reads, such as a topic-partition: it has a value, and is UTF-8.

    Args:
        name: What the job calls the column.
        column: What the frame calls it; None: the same.
        value: The string column, if it is not the one of that name.
    """
    rule = never_null(name, column, value)
    wrong = F.coalesce(~is_utf8(rule.value), F.lit(True))
    return rule._replace(wrong=wrong, what="NULL or a text that is not UTF-8")


def whole_ms(name: str, column: str, value: Column, *, optional: bool = False) -> Rule:
    """Return the rule for a number of milliseconds: from 0 to `MAX_MS`.

    Args:
        name: What the job calls the column.
        column: What the frame calls it.
        value: The column.
        optional: Whether NULL will do.
    """
    wrong = F.coalesce(~value.between(0, MAX_MS), F.lit(not optional))
    return Rule(name, column, value, wrong, f"{'' if optional else 'NULL, '}negative or above {MAX_MS}")


def place_of(columns: Mapping[str, Column | str]) -> Column:
    """Return a text that says which row it is, for errors.

    Args:
        columns: What shows it, by the names under which it is shown.
    """
    shown = [
        F.concat(F.lit(f"{name} "), F.coalesce(_text(F.col(value) if isinstance(value, str) else value), F.lit("NULL")))
        for name, value in columns.items()
    ]
    return F.concat_ws(", ", *shown)


def count_wrong(rules: Iterable[Rule]) -> list[Column]:
    """Return an aggregate for each rule: how many rows break it.

    Args:
        rules: The rules; the aggregates have their names with ``bad_`` before them.
    """
    return [F.count_if(rule.wrong).alias(f"bad_{rule.name}") for rule in rules]


def refuse(rows: DataFrame, rules: Sequence[Rule], counts: Mapping[str, int], place: Column) -> None:
    """Refuse a frame with rows that cannot be used, and show up to three of them.

    Args:
        rows: The rows that were counted.
        rules: What must hold.
        counts: What `count_wrong` has found, by the names of rules.
        place: Which row it is, see `place_of`.

    Raises:
        ArgumentError: A rule is broken, the first such one.
    """
    for rule in rules:
        if counts[rule.name]:
            found = rows.filter(rule.wrong).select(place.alias("place")).head(_SHOWN)
            # the source may have changed since it was counted
            shown = f", such as {'; '.join(example['place'] for example in found)}" if found else ""
            number = counts[rule.name]
            requirement = f"not be {rule.what} in any row, and it is in {number:,}{shown}"
            raise ArgumentError(f"column {rule.name}", rule.column, requirement)


def _text(value: Column) -> Column:
    return F.when(F.typeof(value) == "string", F.concat(F.lit("'"), value.cast("string"), F.lit("'"))).otherwise(
        value.cast("string")
    )
