"""Run the real systems of the gallery, and write what is found into the pages that are named, or into all.

Needs the systems: ``make servers``. Each machine is tried for what it claims; what breaks is shortened. Then the map of
the gallery is drawn from the pages, which needs nothing.
"""

import argparse
import ast
import re
import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from examples.subjects.exhibits import EXHIBITS, Exhibit  # noqa: E402  # found only now

from keyshared.testing import steps  # noqa: E402  # likewise
from keyshared.testing.find import BUDGET as USUAL  # noqa: E402  # likewise
from keyshared.testing.find import Budget, Finding, find_violations  # noqa: E402  # likewise
from keyshared.testing.machine import KeySharedMachine  # noqa: E402  # likewise
from keyshared.testing.steps import Schedule  # noqa: E402  # likewise

GALLERY: Final = ROOT / "docs" / "gallery"
SUBJECTS: Final = ROOT / "examples" / "subjects"
BEGIN: Final = "<!-- drawn by tools/draw_gallery.py -->\n"
END: Final = "<!-- end -->"
NOTHING: Final = "nothing"
TRIES: Final = 300  # with fewer, some dice find nothing where others do
BUDGET: Final = USUAL._replace(tries=TRIES, steps=30)
ROW: Final = re.compile(r"^\| `(\w+)` \| .* \| ([\w, -]+) \| (\w+) \|$", re.MULTILINE)
WAY: Final = re.compile(r"^### `(\w+)` breaks ([\w-]+)\n\n```text\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class Row(NamedTuple):
    """What a page says of a machine and a promise that it claims.

    Attributes:
        machine: Name of the machine.
        promise: The promise.
        schedule: The shortest way to break it; None: nothing was found.
    """

    machine: str
    promise: str
    schedule: Schedule | None


class Program(NamedTuple):
    """A function that shows a fault without the kit: its name, its docstring's first line, its source."""

    name: str
    about: str
    source: str


# --- pages ------------------------------------------------------------------------------------------------------------


def cut(page: Path) -> tuple[str, str, str]:
    """Return the drawn part of a page, with what is before it and what is after."""
    before, begin, rest = page.read_text("utf-8").partition(BEGIN)
    drawn, end, after = rest.partition(END)
    if not begin or not end:
        raise SystemExit(f"{page.name} has no place for what is drawn")
    return before + begin, drawn, end + after


def page_of(exhibit: Exhibit) -> Path:
    """Return the page of a system."""
    return GALLERY / f"{exhibit.page}.md"


def rows(drawn: str) -> list[Row]:
    """Return what the drawn part of a page says, with the schedules that it shows."""
    ways = {(machine, promise): schedule_of(text, promise) for machine, promise, text in WAY.findall(drawn)}
    return [
        Row(machine, promise, None if found == NOTHING else ways[machine, promise])
        for machine, promises, found in ROW.findall(drawn)
        for promise in promises.split(", ")
    ]


def schedule_of(text: str, promise: str) -> Schedule:
    """Return the steps that stand before the broken promise, each in a line as it is printed."""
    lines = text.partition(f"{promise}: ")[0].splitlines()
    steps_of = [line for line in lines if not line.startswith("(")]  # in brackets it is said what the end is
    calls = [ast.parse(line, mode="eval").body for line in steps_of]
    return tuple(
        getattr(steps, ast.unparse(call.func))(
            **{each.arg: ast.literal_eval(each.value) for each in call.keywords if each.arg}
        )
        for call in calls
        if isinstance(call, ast.Call)
    )


def program_of(exhibit: Exhibit) -> Path:
    """Return the file with the programs that need no kit."""
    return SUBJECTS / "alone" / f"{exhibit.page.replace('-', '_')}.py"


def programs(exhibit: Exhibit) -> list[Program]:
    """Return the programs of a system, in their order."""
    source = program_of(exhibit).read_text("utf-8")
    lines = source.splitlines()
    return [
        Program(
            each.name,
            (ast.get_docstring(each) or "").partition("\n")[0],
            "\n".join(lines[each.lineno - 1 : each.end_lineno]),  # with a comment behind the last statement
        )
        for each in ast.parse(source).body
        if isinstance(each, ast.FunctionDef) and not each.name.startswith("_")
    ]


# --- runs -------------------------------------------------------------------------------------------------------------


def machines(exhibit: Exhibit) -> list[type[KeySharedMachine]]:
    """Return the machines of a system: all that its modules define."""
    modules = [import_module(f"examples.subjects.{name}") for name in exhibit.modules]
    return [
        each
        for module in modules
        for each in vars(module).values()
        if isinstance(each, type) and issubclass(each, KeySharedMachine) and each.__module__ == module.__name__
    ]


def versions(exhibit: Exhibit) -> Iterable[str]:
    """Return what is run, with its version."""
    if exhibit.servers:
        from examples.subjects.servers import version_of  # noqa: PLC0415  # it wants their clients

        yield from (f"{name} {version_of(name)}" for name in exhibit.servers)
    yield from (f"{name} {version(name)}" for name in exhibit.packages)


def draw(exhibit: Exhibit, budget: Budget) -> str:
    """Run the machines of a system, and return the drawn part of its page."""
    tried = [(machine, find_violations(machine, budget)) for machine in machines(exhibit)]
    named = ", ".join(versions(exhibit))
    table = "".join(draw_rows(machine, found) for machine, found in tried)
    ways = "".join(draw_ways(machine, found) for machine, found in tried)
    return (
        (f"Run on {datetime.now(UTC):%Y-%m-%d} with {named}.\n\n" if named else "")
        + "| machine | the system | claimed | found |\n|---|---|---|---|\n"
        + f"{table}\n{ways}{draw_programs(exhibit)}"
    )


def draw_ways(machine: type[KeySharedMachine], found: Sequence[Finding]) -> str:
    """Return each finding under its heading; of the exceptions of one kind the first."""
    heads: dict[str, Finding] = {}
    for each in found:
        breaks = f"breaks {each.what}" if each.raised is None else f"raises {type(each.raised.error).__name__}"
        heads.setdefault(f"### `{machine.__name__}` {breaks}", each)
    return "".join(f"{head}\n\n```text\n{each}\n```\n\n" for head, each in heads.items())


def draw_rows(machine: type[KeySharedMachine], found: Sequence[Finding]) -> str:
    """Return a row for the promises that a machine claims and that are broken, and one for the others."""
    about = (machine.driver_class.__doc__ or "").partition("\n")[0].replace("``", "`")
    claimed = {str(promise) for promise in machine.claims.promises}
    broken = {each.what for each in found if each.raised is None}
    parts = {"breaks": sorted(broken), NOTHING: sorted(claimed - broken)}
    return "".join(
        f"| `{machine.__name__}` | {about} | {', '.join(promises)} | {said} |\n"
        for said, promises in parts.items()
        if promises
    )


def draw_programs(exhibit: Exhibit) -> str:
    """Return the programs that show the same without the kit."""
    name = program_of(exhibit).name
    place = f"examples/subjects/alone/{name}"
    head = f"### Without the kit\n\nRun every night: [`{place}`](../../{place})\n\n"
    return head + "".join(f"```py\n{each.source}\n```\n\n" for each in programs(exhibit))


def draw_index() -> str:
    """Return the table of the gallery, from its pages."""
    lines = [
        "| system | run with | broken by a machine that claims it | machines that nothing was found in |",
        "|---|---|---|---|",
    ]
    for exhibit in EXHIBITS:
        drawn = cut(page_of(exhibit))[1]
        said = rows(drawn)
        named = re.match(r"Run (?:on [\d-]+ )?with (.*)\.\n", drawn)
        broken = sorted({row.promise for row in said if row.schedule is not None})
        faulty = {row.machine for row in said if row.schedule is not None}
        right = list(dict.fromkeys(f"`{row.machine}`" for row in said if row.machine not in faulty))
        cells = (
            f"[{exhibit.title}]({exhibit.page}.md)",
            named[1] if named else "",
            ", ".join(broken),
            ", ".join(right),
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def write(page: Path, drawn: str) -> None:
    """Put a drawn part into its page."""
    before, _, after = cut(page)
    page.write_text(before + drawn + after, "utf-8")


def main() -> int:
    """Draw the pages that are named, or all, and the map."""
    parser = argparse.ArgumentParser(description=__doc__)
    known = [exhibit.page for exhibit in EXHIBITS]
    parser.add_argument("pages", nargs="*", metavar="PAGE", help=f"of {', '.join(known)}; default: all")
    parser.add_argument("--tries", type=int, default=TRIES, help="tries of each machine (default: %(default)s)")
    parser.add_argument("--map-only", action="store_true", help="run nothing, and draw the map from the pages")
    asked = parser.parse_args()
    unknown = set(asked.pages) - set(known)
    if unknown:
        parser.error(f"no such page: {', '.join(sorted(unknown))}")
    for exhibit in EXHIBITS if not asked.map_only else ():
        if asked.pages and exhibit.page not in asked.pages:
            continue
        if sys.version_info < exhibit.python:
            print(f"{exhibit.page} stays as it is: it takes Python {exhibit.python}", file=sys.stderr)
        else:
            print(f"{exhibit.page} ...", file=sys.stderr, flush=True)
            write(page_of(exhibit), draw(exhibit, BUDGET._replace(tries=asked.tries)))
    write(GALLERY / "index.md", draw_index())
    return 0


if __name__ == "__main__":
    sys.exit(main())
