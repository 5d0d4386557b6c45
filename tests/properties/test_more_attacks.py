"""Schedules of every pair of features beyond those of `tests/dispatcher/test_attack.py`, judged from the contract."""

import pytest
from tests.properties.attacking import PAIRS, Attack

STEPS = 120


@pytest.mark.parametrize("first", range(200, 1_000, 100))
def test_nothing_is_found_in_the_real_dispatcher(first: int) -> None:
    ran = sum(Attack(seed, PAIRS[seed % len(PAIRS)], STEPS).run() for seed in range(first, first + 100))
    assert ran > 50, "not all pairs of features can be had together"
