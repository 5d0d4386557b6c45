"""Forks Spark's Python workers from a process that has imported what they need: by itself each takes 0.7 s to do so.

Spark runs it as a program (``spark.python.daemon.module``). A worker dies with each job that fails, so a run of the
tests begins about fifty.
"""

import pandas  # noqa: F401, ICN001 - for the workers
import pyarrow.compute  # noqa: F401 - as above
from pyspark.daemon import manager

import keyshared.spark  # noqa: F401 - as above

if __name__ == "__main__":
    manager()
