"""The real systems of the gallery under the kit: they still do what their pages say. `make nightly` only."""

import sys
from dataclasses import replace
from importlib import import_module

import pytest
from examples.subjects.exhibits import EXHIBITS, Exhibit
from tools.draw_gallery import BUDGET, Program, Row, cut, machines, page_of, program_of, programs, rows
from tools.find_servers import SERVERS, locate

from keyshared.testing.find import Budget, Finding, run_schedule, search
from keyshared.testing.machine import KeySharedMachine


def name_of(part: Exhibit | Row | Program | str) -> str:
    match part:
        case Exhibit():
            return part.page
        case Row():
            return f"{part.machine}.{part.promise}"
        case Program():
            return part.name
        case str():
            return part


FIRST = BUDGET._replace(shortens=False)  # shortening costs more than finding
FEW = FIRST._replace(tries=50)  # where nothing is found, each of them is made
ROWS = [(exhibit, row) for exhibit in EXHIBITS for row in rows(cut(page_of(exhibit))[1])]
BROKEN = [(exhibit, row) for exhibit, row in ROWS if row.schedule is not None]
HOLDING = list(dict.fromkeys((exhibit, row.machine) for exhibit, row in ROWS if row.schedule is None))

pytestmark = pytest.mark.slow
broken = pytest.mark.parametrize(("exhibit", "row"), BROKEN, ids=name_of)


@pytest.fixture(autouse=True)
def _what_not_everybody_has(request: pytest.FixtureRequest) -> None:
    exhibit = request.getfixturevalue("exhibit")
    if sys.version_info < exhibit.python:
        pytest.skip(f"it takes Python {exhibit.python}")
    for name in exhibit.servers:
        if SERVERS[name].is_optional and locate(name) is None:
            pytest.skip(f"there is no {name}; type: make servers")


def machine_of(exhibit: Exhibit, name: str) -> type[KeySharedMachine]:
    return next(machine for machine in machines(exhibit) if machine.__name__ == name)


def claiming(machine: type[KeySharedMachine], promises: set[str]) -> type[KeySharedMachine]:
    claims = replace(machine.claims, promises=promises)
    return type(machine.__name__, (machine,), {"claims": claims})


def find_broken_promise(machine: type[KeySharedMachine], budget: Budget) -> Finding | None:
    """Search on behind exceptions, which are findings too."""
    known: frozenset[tuple[type[Exception], str]] = frozenset()
    while True:
        finding = search(machine, budget, known=known).finding
        if finding is None or finding.raised is None:
            return finding
        known |= {finding.raised.kind}


@pytest.mark.parametrize("exhibit", EXHIBITS, ids=name_of)
def test_a_page_names_every_machine_and_every_promise_that_it_claims(exhibit: Exhibit) -> None:
    named = {(row.machine, row.promise) for row in rows(cut(page_of(exhibit))[1])}
    assert named == {(each.__name__, str(promise)) for each in machines(exhibit) for promise in each.claims.promises}


@broken
def test_a_schedule_of_the_page_still_breaks_its_promise(exhibit: Exhibit, row: Row) -> None:
    machine = claiming(machine_of(exhibit, row.machine), {row.promise})
    run = run_schedule(machine, row.schedule or ())
    assert run.violation is not None, run.history
    assert run.violation.promise == row.promise


@broken
def test_the_kit_finds_what_the_page_says(exhibit: Exhibit, row: Row) -> None:
    # Which of several broken promises shows first is chance; so the one that the page names is claimed alone.
    machine = claiming(machine_of(exhibit, row.machine), {row.promise})
    seeds = (find_broken_promise(machine, FIRST._replace(tries=100, seed=seed)) for seed in range(10))
    finding = next(filter(None, seeds), None)
    assert finding is not None
    assert finding.what == row.promise


@pytest.mark.parametrize(("exhibit", "name"), HOLDING, ids=name_of)
def test_nothing_is_found_where_the_page_says_nothing(exhibit: Exhibit, name: str) -> None:
    kept = {row.promise for _, row in ROWS if (_, row.machine) == (exhibit, name) and row.schedule is None}
    assert kept
    finding = find_broken_promise(claiming(machine_of(exhibit, name), kept), FEW)
    assert finding is None, finding


@pytest.mark.parametrize(
    ("exhibit", "program"),
    [(exhibit, program) for exhibit in EXHIBITS for program in programs(exhibit)],
    ids=name_of,
)
def test_a_program_shows_the_fault_without_the_kit(exhibit: Exhibit, program: Program) -> None:
    module = import_module(f"examples.subjects.alone.{program_of(exhibit).stem}")
    getattr(module, program.name)()  # it asserts what it shows
