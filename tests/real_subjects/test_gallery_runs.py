"""The real systems of the gallery under the kit: they still do what their pages say. `make nightly` only."""

from dataclasses import replace
from importlib import import_module

import pytest
from examples.subjects.exhibits import EXHIBITS, Exhibit
from hypothesis import Phase, settings
from tests.kit.dice import find_by_some_dice
from tools.draw_gallery import BUDGET, Program, Row, cut, machines, page_of, program_of, programs, rows
from tools.find_servers import SERVERS, locate

from keyshared.testing.machine import KeySharedMachine
from keyshared.testing.replay import run_schedule
from keyshared.testing.trial import find_violation


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


FIRST = settings(BUDGET, phases=(Phase.generate,))  # shortening costs more than finding
FEW = settings(FIRST, max_examples=50)  # where nothing is found, each of them is made
ROWS = [(exhibit, row) for exhibit in EXHIBITS for row in rows(cut(page_of(exhibit))[1])]
BROKEN = [(exhibit, row) for exhibit, row in ROWS if row.schedule is not None]
TRIED = list(dict.fromkeys((exhibit, row.machine) for exhibit, row in ROWS))

pytestmark = pytest.mark.slow
broken = pytest.mark.parametrize(("exhibit", "row"), BROKEN, ids=name_of)


@pytest.fixture(autouse=True)
def _servers_that_not_everybody_has(request: pytest.FixtureRequest) -> None:
    for name in request.getfixturevalue("exhibit").servers:
        if SERVERS[name].is_optional and locate(name) is None:
            pytest.skip(f"there is no {name}; type: make servers")


def machine_of(exhibit: Exhibit, name: str) -> type[KeySharedMachine]:
    return next(machine for machine in machines(exhibit) if machine.__name__ == name)


def claiming(machine: type[KeySharedMachine], promises: set[str]) -> type[KeySharedMachine]:
    claims = replace(machine.guarantees, promises=promises)
    return type(machine.__name__, (machine,), {"guarantees": claims})


@pytest.mark.parametrize("exhibit", EXHIBITS, ids=name_of)
def test_a_page_names_every_machine_and_every_promise_that_it_claims(exhibit: Exhibit) -> None:
    named = {(row.machine, row.promise) for row in rows(cut(page_of(exhibit))[1])}
    assert named == {
        (each.__name__, str(promise)) for each in machines(exhibit) for promise in each.guarantees.promises
    }


@broken
def test_a_schedule_of_the_page_still_breaks_its_promise(exhibit: Exhibit, row: Row) -> None:
    machine = claiming(machine_of(exhibit, row.machine), {row.promise})
    world = machine.world()
    replay = run_schedule(
        machine.driver_class,
        row.schedule or (),
        world.guarantees,
        max_outstanding=world.max_outstanding,
        retry_ms=world.retry_ms,
        rest_ms=world.rest_ms,
    )
    assert replay.violation is not None, replay.history
    assert replay.violation.promise == row.promise


@broken
def test_the_kit_finds_what_the_page_says(exhibit: Exhibit, row: Row) -> None:
    # Which of several broken promises shows first is chance; so the one that the page names is claimed alone.
    machine = claiming(machine_of(exhibit, row.machine), {row.promise})
    finding = find_by_some_dice(machine, FIRST)
    assert finding is not None
    assert finding.violation.promise == row.promise


@pytest.mark.parametrize(("exhibit", "name"), TRIED, ids=name_of)
def test_nothing_is_found_where_the_page_says_nothing(exhibit: Exhibit, name: str) -> None:
    kept = {row.promise for _, row in ROWS if (_, row.machine) == (exhibit, name) and row.schedule is None}
    finding = find_violation(claiming(machine_of(exhibit, name), kept), FEW) if kept else None
    assert finding is None, finding


@pytest.mark.parametrize(
    ("exhibit", "program"),
    [(exhibit, program) for exhibit in EXHIBITS for program in programs(exhibit)],
    ids=name_of,
)
def test_a_program_shows_the_fault_without_the_kit(exhibit: Exhibit, program: Program) -> None:
    module = import_module(f"examples.subjects.alone.{program_of(exhibit).stem}")
    getattr(module, program.name)()  # it asserts what it shows
