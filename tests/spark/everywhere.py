"""A program that runs every small job on a session of its own.

``python -m tests.spark.everywhere MASTER FILE`` writes the answers as JSON. If the file is there already, it compares
them with those of another Spark or master instead, and fails on a difference.
"""

import json
import sys
from pathlib import Path
from typing import Final

from tests.spark.settings import QUICK
from tests.spark.small_jobs import answers

from keyshared.spark.session import local_session

__all__ = ["main"]

_SHUFFLED: Final = {"spark.sql.shuffle.partitions": "3"}


def main(master: str, file: str) -> str | None:
    """Write or compare the answers, and return the difference."""
    remote = master.startswith("sc://")
    executors = {} if remote else {"spark.executor.extraJavaOptions": QUICK}
    spark = local_session("everywhere", master=master, jvm_options=QUICK, settings=_SHUFFLED | executors)
    try:
        found = answers(spark)
    finally:
        spark.stop()
    path = Path(file)
    if not path.exists():
        path.write_text(json.dumps(found), "utf-8")
        return None
    expected = json.loads(path.read_text("utf-8"))
    differing = [name for name, rows in found.items() if rows != expected[name]]
    return f"other answers than in {file}: {', '.join(differing)}" if differing else None


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
