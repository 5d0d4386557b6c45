"""Write what the kit finds in the two samples of docs/prove-your-broker.md, or --check that they show their promise."""

import argparse
import re
import sys
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.kit.paused_broker import BETWEEN_LOOK_AND_CLAIM, paused  # noqa: E402  # found only now
from tests.kit.shared_file import LooksBeforeItClaims  # noqa: E402  # likewise

from keyshared.testing import Claims  # noqa: E402  # likewise
from keyshared.testing.find import find_violation, run_schedule  # noqa: E402  # likewise

PAGE: Final = ROOT / "docs" / "prove-your-broker.md"
BEGIN: Final = "<!-- drawn by tools/draw_kit_samples.py: {} -->\n"
END: Final = "<!-- end -->"
SAMPLED: Final = "one-holder"
BLOCK: Final = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def cut(page: str, name: str) -> tuple[str, str, str]:
    """Return a drawn part of the page, what is before it, and what is after."""
    before, begin, rest = page.partition(BEGIN.format(name))
    drawn, end, after = rest.partition(END)
    if not begin or not end:
        raise SystemExit(f"the page has no place for the {name}")
    return before + begin, drawn, end + after


def is_current(page: str) -> bool:
    """Check that each sample shows its promise."""
    return all(f"\n{SAMPLED}: " in cut(page, sample)[1] for sample in ("sample", "paused"))


def draw_sample(page: str) -> str:
    """Run the blocks of the page, and print what is found where its pool has to break one promise."""
    names: dict[str, Any] = {}
    for block in BLOCK.findall(page):
        exec(block, names)  # noqa: S102  # our own page, which the tests run too
    claims = Claims(promises={SAMPLED}, per_consumer=1)
    found = find_violation(type("Claiming", (names["LanePoolMachine"],), {"claims": claims}))
    if found is None:
        raise SystemExit("the kit does not find what is wrong with the pool of the page")
    return f"```text\n{found}\n```\n"


def draw_pause() -> str:
    """Run the schedule in which a process is paused: the machine would start hundreds of processes to find it."""
    run = run_schedule(paused(LooksBeforeItClaims), BETWEEN_LOOK_AND_CLAIM)
    return "\n".join(["```text", *map(repr, run.taken), str(run.violation), "```\n"])


def main() -> int:
    """Draw or check."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a sample shows another promise")
    only_check = parser.parse_args().check
    page = PAGE.read_text("utf-8")
    if only_check:
        return 0 if is_current(page) else 1
    before, _, after = cut(page, "sample")
    page = before + draw_sample(page) + after
    before, _, after = cut(page, "paused")
    PAGE.write_text(before + draw_pause() + after, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
