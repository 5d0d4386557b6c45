"""``python -m examples.airports``: the demo over 3,000,000 flights and few keys, some of them hot.

It makes a log of the flights and runs ``keyshared-replay`` on it, as on any log of one's own. Start it in the folder
above ``examples``, with keyshared[demo] installed.
"""

import argparse
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from examples.airports.flights import KEYS, write_airport_log

from keyshared.errors import KeySharedError

QUERY: Final = """
SELECT partition, {key} AS key, date AS timestamp, distance AS work,
       row_number() OVER (PARTITION BY partition ORDER BY date, {key}, distance, delay) AS offset
FROM parquet.`{log}`
""".strip()  # the file has no offsets, so the query numbers the flights


def main(argv: Sequence[str] | None = None) -> int:
    """Run the demo on these flights and return its exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m examples.airports",
        description="Simulate a group over the 3,000,000 flights within the United States of January to June 2001. npm "
        "fetches them (18 MB).",
        epilog="All other options go to keyshared-replay, which lists them with --help.",
        allow_abbrev=False,
    )
    parser.add_argument("--key", choices=KEYS, default=KEYS[0], help="few keys and hot ones, or many (airport)")
    parser.add_argument(
        "--data", type=Path, default=Path("demo-output"), metavar="DIR", help="where the flights are kept (demo-output)"
    )
    options, others = parser.parse_known_args(argv)
    try:
        options.data.mkdir(parents=True, exist_ok=True)
        log = write_airport_log(options.data, key=options.key)
    except (KeySharedError, OSError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    query = QUERY.format(key=options.key, log=log.resolve().as_uri())
    demo = [sys.executable, "-m", "keyshared.spark.cli", "--log", query, "--topic-partition", "partition"]
    return subprocess.run([*demo, *others], check=False).returncode  # noqa: S603 - the command, with what the user typed


if __name__ == "__main__":
    sys.exit(main())
