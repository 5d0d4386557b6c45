"""What the tests need of Spark's versions; `keyshared.spark.versions` knows the rest."""

from typing import Final

import pyspark
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from keyshared.spark.versions import Since

__all__ = ["COLLATIONS", "JOB_FAILED", "LITERAL_ROWS", "TESTER", "module_needs", "only_since"]

LITERAL_ROWS: Final = Since("pyspark.sql.conversion", 4, 1)
"""It makes Arrow of rows."""

COLLATIONS: Final = Since("a text with a collation", 4, 0)
"""It is hashed by its collation key."""

TESTER: Final = Since("pyspark.sql.streaming.tws_tester", 4, 2)
"""Spark's own tester of processors."""

JOB_FAILED: Final = (PySparkException, Py4JJavaError)
"""What a job raises in which a native expression fails: before Spark 4.0 the error of the JVM as it stands."""


def only_since(since: Since) -> pytest.MarkDecorator:
    """Pass a test over where Spark is too old for it.

    Args:
        since: What it needs.
    """
    return pytest.mark.skipif(not since.is_here, reason=_reason(since))


def module_needs(since: Since) -> None:
    """Pass a file over where Spark is too old for it, before the file imports what is not there.

    Args:
        since: What it needs.
    """
    if not since.is_here:
        pytest.skip(_reason(since), allow_module_level=True)


def _reason(since: Since) -> str:
    return f"{since.what} came with Spark {since.version}, and this is {pyspark.__version__}"
