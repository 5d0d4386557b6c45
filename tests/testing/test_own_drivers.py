"""The drivers of the library's own parts, in few tries; `tests/properties/kit` tries them at length."""

import pytest
from hypothesis import Phase, find, settings
from tests.kit.own_machines import MACHINES

from keyshared.testing import Driver
from keyshared.testing.find import BUDGET, search
from keyshared.testing.machine import KeySharedMachine
from keyshared.testing.steps import Connect
from keyshared.testing.strategies import schedules

FEW = BUDGET._replace(tries=30, seed=7)


@pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: machine.__name__)
def test_nothing_is_found_in_a_part_of_the_library(machine: type[KeySharedMachine]) -> None:
    assert search(machine, FEW).finding is None


def test_a_schedule_is_drawn() -> None:
    few = settings(database=None, phases=[Phase.generate])
    assert isinstance(find(schedules(most=3), bool, settings=few)[0], Connect)
    assert len(find(schedules(Driver, most=1), bool, settings=few)) == 1
