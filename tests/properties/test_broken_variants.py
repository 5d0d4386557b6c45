"""The judge of the contract catches every broken dispatcher by its promise."""

import json
from pathlib import Path

import pytest
from tests.broken import BROKEN, Fault
from tests.properties.attacking import PAIRS, Attack
from tests.properties.contract_judge import Broken as Finding

from keyshared.errors import KeySharedError
from keyshared.testing import Promise

pytestmark = pytest.mark.interpreted("replaces classes of the core")

SCHEDULES = 500  # a search ends with the first that shows what is looked for
STEPS = 100
FOUND_AT: dict[str, int] = json.loads((Path(__file__).parent / "found_at.json").read_text("ascii"))
"""Which schedule showed each fault last: it is tried first. Running this module as a program writes it."""
FAULTS = [(promise, fault) for promise, faults in BROKEN.items() for fault in faults]


def pairs_of(fault: Fault) -> list[tuple[str, str]]:
    """Return the pairs of features that are tried, those with all features that show the fault first."""
    wanted = [pair for pair in PAIRS if set(pair) >= set(fault.features[:2])] if len(fault.features) > 1 else []
    return [*wanted * 5, *(pair for pair in PAIRS if not fault.features or set(pair) & set(fault.features))]


def found_at(fault: Fault, promise: Promise) -> int | None:
    """Return the number of a schedule that shows that the broken dispatcher does not hold the promise."""
    pairs = pairs_of(fault)
    seeds: list[int] = [FOUND_AT.get(fault.broken.__name__, 0), *range(SCHEDULES)]
    for seed in seeds:
        attack = Attack(seed, pairs[seed % len(pairs)], STEPS, fault.broken, judged=promise.value)
        try:
            attack.run()
        except Finding:
            return seed
        except (KeySharedError, AssertionError, LookupError, AttributeError, TypeError, StopIteration):
            continue  # the fault has left the dispatcher, or the books of the judge, in pieces
        if promise is Promise.DETERMINISM and differs(seed, pairs[seed % len(pairs)], fault):
            return seed
    return None


def differs(seed: int, pair: tuple[str, str], fault: Fault) -> bool:
    """Return whether two runs of one schedule give different effects."""
    runs = []
    for _ in range(2):
        attack = Attack(seed, pair, STEPS, fault.broken, judged=Promise.DETERMINISM.value)
        attack.run()
        runs.append(attack.told)
    return runs[0] != runs[1]


@pytest.mark.parametrize(
    ("promise", "fault"), FAULTS, ids=lambda value: value.broken.__name__ if isinstance(value, Fault) else str(value)
)
def test_a_broken_dispatcher_is_caught_by_its_promise(promise: Promise, fault: Fault) -> None:
    assert found_at(fault, promise) is not None


def test_every_promise_has_a_broken_dispatcher() -> None:
    assert set(Promise) == set(BROKEN)


if __name__ == "__main__":
    numbers = {fault.broken.__name__: found_at(fault, promise) for promise, fault in FAULTS}
    text = json.dumps({name: number for name, number in numbers.items() if number}, indent=1, sort_keys=True)
    (Path(__file__).parent / "found_at.json").write_text(text + "\n", "ascii")
