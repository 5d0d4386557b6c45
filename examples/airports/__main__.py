"""``python -m examples.airports``: the demo over 3,000,000 flights and few keys, some of them hot.

It makes a log of the flights and runs ``python -m keyshared.spark.demo`` on it, as on any log of one's own. Start it in
the folder above ``examples``, with keyshared[demo] installed.
"""

import argparse
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from examples.airports.flights import KEYS, write_airport_log

from keyshared.errors import KeySharedError


def main(argv: Sequence[str] | None = None) -> int:
    """Run the demo on these flights and return its exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m examples.airports",
        description="Replay the 3,000,000 flights within the United States of January to June 2001. npm fetches them "
        "(18 MB).",
        epilog="All other options go to python -m keyshared.spark.demo, which tells them with --help.",
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
    columns = ["--key", options.key, "--partition", "partition", "--order", "date", "--service", "distance"]
    demo = [sys.executable, "-m", "keyshared.spark.demo", "--input", log.resolve().as_uri(), *columns]
    return subprocess.run([*demo, *others], check=False).returncode  # noqa: S603 - the demo, with what the user typed


if __name__ == "__main__":
    sys.exit(main())
