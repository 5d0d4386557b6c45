"""Random schedules over every pair of features, judged from the contract alone; each is the same in every run."""

import pytest
from tests.properties.attacking import PAIRS, Attack

STEPS = 100


@pytest.mark.parametrize("first", range(0, 200, 20))
def test_nothing_is_found_in_the_real_dispatcher(first: int) -> None:
    for seed in range(first, first + 20):
        Attack(seed, PAIRS[seed % len(PAIRS)], STEPS).run()


def test_two_runs_of_a_schedule_give_the_same_effects() -> None:
    for seed in range(20):
        runs = [Attack(seed, PAIRS[7 * seed], STEPS) for _ in range(2)]
        for attack in runs:
            attack.run()
        assert runs[0].told == runs[1].told
