"""Write what the kit finds into docs/prove-your-broker.md and docs/verification.md, or --check that it is current.

Writing searches every broken broker, and the pool of the page itself, and shortens what it finds: a minute, and the
same figures each time with this version of the repository. Checking compares names and promises only.
"""

import argparse
import re
import sys
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.kit.all_faults import FAULTS  # noqa: E402  # found only now
from tests.kit.fault import Fault  # noqa: E402  # likewise
from tests.kit.paused_broker import BETWEEN_LOOK_AND_CLAIM, paused  # noqa: E402  # likewise
from tests.kit.shared_file import LooksBeforeItClaims  # noqa: E402  # likewise

from keyshared.testing import Claims  # noqa: E402  # likewise
from keyshared.testing.find import (  # noqa: E402  # likewise
    Finding,
    find_violation,
    run_schedule,  # likewise
)
from keyshared.testing.machine import KeySharedMachine  # noqa: E402  # likewise

PAGE: Final = ROOT / "docs" / "prove-your-broker.md"
TABLE_PAGE: Final = ROOT / "docs" / "verification.md"
BEGIN: Final = "<!-- drawn by tools/draw_kit_table.py: {} -->\n"
END: Final = "<!-- end -->"
SAMPLED: Final = "one-holder"
BLOCK: Final = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
HEAD: Final = "| fault | what is wrong | seen in | promise | tries | steps |\n|---|---|---|---|---|---|\n"


def cut(page: str, name: str) -> tuple[str, str, str]:
    """Return a drawn part of the page, what is before it, and what is after."""
    before, begin, rest = page.partition(BEGIN.format(name))
    drawn, end, after = rest.partition(END)
    if not begin or not end:
        raise SystemExit(f"the page has no place for the {name}")
    return before + begin, drawn, end + after


def rows(table: str) -> list[tuple[str, str]]:
    """Return the names and promises of a drawn table."""
    lines = [line.split("|") for line in table.splitlines() if line.startswith("| `")]
    return [(cells[1].strip().strip("`"), cells[4].strip()) for cells in lines]


def is_current(page: str, table_page: str) -> bool:
    """Check that every fault has its row, with a promise that it breaks, and that the samples show their promise."""
    drawn = rows(cut(table_page, "table")[1])
    named = [name for name, _ in drawn] == [fault.name for fault in FAULTS]
    promised = all(promise in fault.promises for (_, promise), fault in zip(drawn, FAULTS, strict=False))
    sampled = all(f"\n{SAMPLED}: " in cut(page, sample)[1] for sample in ("sample", "paused"))
    return named and promised and sampled


def find(machine: type[KeySharedMachine]) -> Finding:
    """Find the violation that a broken broker must show."""
    found = find_violation(machine)
    if found is None:
        raise SystemExit(f"the kit does not find what is wrong with {machine.__name__}")
    return found


def draw_row(fault: Fault) -> str:
    """Return the row of a fault, with the violation that the kit finds."""
    found = find(fault.machine)
    text = (fault.broker.__doc__ or "").partition("\n")[0]
    cells = (f"`{fault.name}`", text, fault.seen_in, found.what, found.tries, found.steps)
    return f"| {' | '.join(map(str, cells))} |\n"


def draw_sample(page: str) -> str:
    """Run the blocks of the page, and print what is found where its pool has to break one promise."""
    names: dict[str, Any] = {}
    for block in BLOCK.findall(page):
        exec(block, names)  # noqa: S102  # our own page, which the tests run too
    claims = Claims(promises={SAMPLED}, per_consumer=1)
    found = find(type("Claiming", (names["LanePoolMachine"],), {"claims": claims}))
    return f"```text\n{found}\n```\n"


def draw_pause() -> str:
    """Run the schedule in which a process is paused: the machine would start hundreds of processes to find it."""
    machine = paused(LooksBeforeItClaims)
    run = run_schedule(machine.driver_class, BETWEEN_LOOK_AND_CLAIM, machine.claims)
    return "\n".join(["```text", *map(repr, run.taken), str(run.violation), "```\n"])


def main() -> int:
    """Draw or check."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a fault or a promise is missing")
    page, table_page = PAGE.read_text("utf-8"), TABLE_PAGE.read_text("utf-8")
    if parser.parse_args().check:
        return 0 if is_current(page, table_page) else 1
    before, _, after = cut(page, "sample")
    page = before + draw_sample(page) + after
    before, _, after = cut(page, "paused")
    page = before + draw_pause() + after
    PAGE.write_text(page, "utf-8")
    before, _, after = cut(table_page, "table")
    TABLE_PAGE.write_text(before + HEAD + "".join(map(draw_row, FAULTS)) + after, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
