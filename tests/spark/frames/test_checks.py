"""Names of columns are read as Spark reads them, and what is missing or mistyped is named before any job."""

from typing import TYPE_CHECKING

import pytest

from keyshared.errors import ArgumentError

pyspark = pytest.importorskip("pyspark")
from pyspark.sql import functions as F  # noqa: E402, N812 - needs pyspark

from keyshared.spark.frames.checks import check_columns, check_key, check_new, type_of  # noqa: E402 - needs pyspark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

SCHEMA = """event struct<user: struct<id: string, n: int>, `a.b`: binary>, headers map<string, struct<v: string>>,
    byNumber map<int, string>, list array<string>, `x.y` string, `q``t` string, plain bigint"""


@pytest.fixture
def wide(spark: "SparkSession") -> "DataFrame":
    return spark.createDataFrame([], SCHEMA)


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("plain", "bigint"),
        ("PLAIN", "bigint"),
        ("event.user.id", "string"),
        ("Event.USER.Id", "string"),
        ("event.`a.b`", "binary"),
        ("`event`.user.n", "int"),
        ("headers.anything.v", "string"),
        ("headers.`any.thing`.v", "string"),
        ("`x.y`", "string"),
        ("`q``t`", "string"),
    ],
)
def test_a_path_that_spark_resolves_has_the_type_that_spark_finds(wide: "DataFrame", path: str, kind: str) -> None:
    assert kind == type_of(wide, path).simpleString() == wide.select(F.col(path)).schema[0].dataType.simpleString()


@pytest.mark.parametrize(
    "path",
    ["", "nope", "x.y", "event.nope", "event.", ".event", "event..user", "plain.x", "q`t", "`plain", "list.x", 7],
)
def test_any_other_path_is_no_column(wide: "DataFrame", path: str) -> None:
    with pytest.raises(ArgumentError, match="it must be a column of the frame"):
        type_of(wide, path)


def test_a_name_with_a_dot_in_it_is_refused_with_its_backticks(wide: "DataFrame") -> None:
    with pytest.raises(ArgumentError, match=r"plain\); in backticks it is one: `x\.y`$"):
        type_of(wide, "x.y")
    with pytest.raises(ArgumentError, match=r"plain\); in backticks it is one: `q``t`$"):
        type_of(wide, "q`t")


def test_a_map_with_other_keys_than_texts_has_no_fields(wide: "DataFrame") -> None:
    with pytest.raises(ArgumentError, match="it must be a column of the frame"):
        type_of(wide, "byNumber.1")


def test_what_is_wrong_is_said_with_the_column_and_what_was_found(wide: "DataFrame") -> None:
    with pytest.raises(ArgumentError, match=r"'event\.user\.n'; it must be string or binary, and it is int; cast it"):
        check_key(wide, "event.user.n")
    with pytest.raises(ArgumentError, match="'plain'; it must be string, and it is long; cast it first"):
        check_columns(wide, {"`x.y`": ("string",), "plain": ("string",)})
    with pytest.raises(ArgumentError, match="into is 'Plain'; it must be the name of a new column"):
        check_new(wide, "Plain")
