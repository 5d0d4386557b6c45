"""What the tests need of Spark's versions; `keyshared.spark.versions` knows the rest."""

from typing import Final

import pyspark
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from keyshared.spark.versions import Since

__all__ = ["JOB_FAILED", "LITERAL_ROWS", "TESTER", "module_needs", "only_since"]

LITERAL_ROWS: Final = Since(4, 1)
"""``pyspark.sql.conversion`` makes Arrow of rows."""

TESTER: Final = Since(4, 2)
"""Spark's own tester of processors."""

JOB_FAILED: Final = (PySparkException, Py4JJavaError)
"""What a job raises in which a native expression fails: before Spark 4.0 the error of the JVM as it stands."""


def only_since(since: Since, what: str) -> pytest.MarkDecorator:
    """Pass a test over where Spark is too old for it.

    Args:
        since: What it needs.
        what: What that is, for who reads why it was passed over.
    """
    return pytest.mark.skipif(not since.is_here, reason=_reason(since, what))


def module_needs(since: Since, what: str) -> None:
    """Pass a file over where Spark is too old for it; before it imports what is not there.

    Args:
        since: What it needs.
        what: What that is, for who reads why it was passed over.
    """
    if not since.is_here:
        pytest.skip(_reason(since, what), allow_module_level=True)


def _reason(since: Since, what: str) -> str:
    return f"{what} needs Spark {since.major}.{since.minor}, and this is {pyspark.__version__}"
