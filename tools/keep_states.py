"""Keep what this version stores: ``python tools/keep_states.py 0.2`` before it is released.

Journals with their commands and outcomes, leases, and everything else that has a format go to tests/compatibility/kept.
What an earlier version has written there is never changed: later versions must read it.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.compatibility.journals import journal  # noqa: E402  # found only now
from tests.compatibility.leases import leases  # noqa: E402  # likewise
from tests.compatibility.states import STATES  # noqa: E402  # likewise

KEPT: Final = ROOT / "tests" / "compatibility" / "kept"
JOURNALS: Final = 24
LEASES: Final = 10


def main(version: str) -> None:
    """Write the files of a version."""
    states = {name: state.write(state.make()) for name, state in STATES.items()}
    files: dict[str, Any] = {
        "journals": [journal(seed) for seed in range(JOURNALS)],
        "leases": [leases(seed) for seed in range(LEASES)],
        "states": states,
    }
    folder = KEPT / version
    folder.mkdir(parents=True)
    for name, content in files.items():
        (folder / f"{name}.json").write_text(json.dumps(content, separators=(",", ":")) + "\n", "utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("version", help="the minor version, such as 0.2; its folder must not be there yet")
    main(parser.parse_args().version)
