"""What differs between versions of Spark: known here, and nowhere else.

What counts is the version of the package ``pyspark``: the Spark that runs is of the same one, and a Spark Connect
server of that one or a later one.
"""

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyspark
from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark user knows

from keyshared.errors import TooOldError

__all__ = [
    "ARROW_FRAMES",
    "ARROW_FUNCTIONS",
    "BATCH",
    "BY_ID",
    "CLASSIC",
    "STATE_IN_ROWS",
    "STREAMS",
    "UTF8_CHECK",
    "VERSION",
    "Since",
    "array_function",
    "condition_of",
    "datasets",
    "is_utf8",
    "needs",
]

VERSION: tuple[int, int] = (int(pyspark.__version__.split(".")[0]), int(pyspark.__version__.split(".")[1]))
"""Which Spark this is."""


class Since(NamedTuple):
    """Something of Spark, and the version that it came with.

    Attributes:
        what: Its name.
        major: The first number of the version.
        minor: The second number.
    """

    what: str
    major: int
    minor: int

    @property
    def version(self) -> str:
        """The version as it is written."""
        return f"{self.major}.{self.minor}"

    @property
    def is_here(self) -> bool:
        """Whether this Spark has it."""
        return (self.major, self.minor) <= VERSION


BATCH: Final = Since("call_function", 3, 5)
"""What came with 3.5 stands in all jobs (``count_if``, ``try_sum``), so an older Spark can do none of them."""

ARROW_FRAMES: Final = Since("createDataFrame of an Arrow table", 4, 0)
"""And ``toArrow``, which makes one."""

CLASSIC: Final = Since("org.apache.spark.sql.classic", 4, 0)
"""The package with the classes of a session that is no Connect client."""

ARROW_FUNCTIONS: Final = Since("arrow_udf", 4, 1)
"""A function from Arrow array to Arrow array."""

BY_ID: Final = Since("repartitionById", 4, 1)
"""A row goes to the partition whose number it has."""

UTF8_CHECK: Final = Since("is_valid_utf8", 4, 0)
"""Tells whether the bytes of a text are UTF-8. Spark makes any bytes a text, by a cast."""

STREAMS: Final = Since("transformWithStateInPandas", 4, 0)
"""State of a stream in Python. Rows go there and back in pandas frames, and not through Spark Connect."""

STATE_IN_ROWS: Final = Since("transformWithState", 4, 1)
"""The same with rows as they are, and through Spark Connect."""


def needs(since: Since, what: str, instead: str) -> None:
    """Check that this Spark is new enough.

    Args:
        since: What has to be there.
        what: What was asked for, for the error.
        instead: What to do about it, for the error.

    Raises:
        TooOldError: It is not.
    """
    if not since.is_here:
        raise TooOldError(what, "pyspark", since.version, pyspark.__version__, instead)


def condition_of(error: Any) -> str | None:  # noqa: ANN401 - its stubs are those of the newest version
    """Return the name that Spark has for what is wrong, such as ``PATH_NOT_FOUND``.

    Args:
        error: What pyspark has raised.
    """
    asked = getattr(error, "getCondition", None) or error.getErrorClass  # renamed in 4.0
    return None if (name := asked()) is None else str(name)


def datasets(spark_jvm: Any) -> Any:  # noqa: ANN401 - objects of the JVM
    """Return the JVM's companion of frames.

    Args:
        spark_jvm: The package ``org.apache.spark``.
    """
    return spark_jvm.sql.classic.Dataset if CLASSIC.is_here else spark_jvm.sql.Dataset


def is_utf8(text: Column) -> Column:
    """Return whether a text is one to Python, too; NULL for NULL.

    Args:
        text: A string column. Before Spark 4.0 it goes through another charset and back, which replaces what is none.
    """
    if UTF8_CHECK.is_here:
        return F.is_valid_utf8(text)
    return F.decode(F.encode(text, "UTF-16BE"), "UTF-16BE") == text


def array_function(function: Callable[[pa.Array], pa.Array], kind: str) -> Callable[[Column], Column]:
    """Make a function of columns from one of Arrow arrays: they come a batch at a time.

    Args:
        function: From one array to one as long.
        kind: Of what comes out, as Spark writes it: ``bigint``.

    Returns:
        The function. Before Spark 4.1 the arrays are made of pandas series, and back: that costs a copy.
    """
    if not ARROW_FUNCTIONS.is_here:
        return _series_function(function, kind)
    from pyspark.sql.pandas.functions import arrow_udf  # noqa: PLC0415 - not there in older versions

    # pyspark reads the kind of function from the hints, and warns if it is told besides
    made: Callable[[Column], Column] = arrow_udf(function, kind)  # type: ignore[call-overload]  # not in its stubs
    return made


def _series_function(function: Callable[[pa.Array], pa.Array], kind: str) -> Callable[[Column], Column]:
    import pandas as pd  # noqa: PLC0415 - takes half a second, and newer versions need none of it
    from pyspark.sql.pandas.functions import pandas_udf  # noqa: PLC0415 - only for this

    def of_series(values: pd.Series) -> pd.Series:
        array = pa.array(values, from_pandas=True)
        # without any value the type is lost
        found = function(array.cast(pa.string()) if array.type == pa.null() else array)
        return pd.Series(found.to_pylist(), dtype=object)  # as floats they would lose digits

    of_series.__name__ = function.__name__
    made: Callable[[Column], Column] = pandas_udf(of_series, kind)  # type: ignore[call-overload]  # as above
    return made
