"""A program that compares what the small jobs answer on two versions of Spark.

``python -m tests.spark.same_answers FILE`` writes the answers of the Spark that runs it. If the file is there already,
it compares them with what another Spark has written, and fails on a difference.
"""

import json
import re
import sys
from pathlib import Path
from typing import Final

from tests.spark import everywhere

from keyshared.spark.versions import STREAMS

OF_STREAMS: Final = {"streams", "micro-batches"}
OWN_WORDS: Final = {"refusals", "failures"}
"""They quote Spark, and each version has words of its own."""

LEFT_OUT: Final = OWN_WORDS if STREAMS.is_here else OWN_WORDS | OF_STREAMS
JOBS: Final = {name: job for name, job in everywhere.JOBS.items() if name not in LEFT_OUT}
_BYTES: Final = re.compile(r"bytearray\((b'.*?'|b\".*?\")\)")  # before 4.1 collect() makes these of binary


def main(file: Path) -> str | None:
    """Write the answers, or return what differs."""
    spark = everywhere.session("local[2]")
    try:
        told = everywhere.answers(spark, JOBS)
    finally:
        spark.stop()
    found = {name: sorted(_BYTES.sub(r"\1", answer) for answer in answers) for name, answers in told.items()}
    if not file.exists():
        file.write_text(json.dumps(found), "utf-8")
        return None
    expected = json.loads(file.read_text("utf-8"))
    differing = [name for name in JOBS if found[name] != expected[name]]
    return f"other answers than in {file}: {', '.join(differing)}" if differing else None


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
