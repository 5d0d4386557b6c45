"""Each promise with a small history that keeps it and one that breaks it, and the exact proof of that."""

import pytest
from tests.testing.checks.delivery_cases import DELIVERY_CASES
from tests.testing.checks.events import Case, published
from tests.testing.checks.outcome_cases import OUTCOME_CASES

from keyshared.testing import Claims, Promise, Violation, check_history

CASES = [*DELIVERY_CASES, *OUTCOME_CASES]


def judged(case: Case) -> list[Violation]:
    return [violation for violation in check_history(case.history, case.claims) if violation.promise == case.promise]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.promise}: {case.name}")
def test_a_promise_is_judged_with_its_proof(case: Case) -> None:
    assert ([] if case.proof is None else [case.proof]) == [violation.proof for violation in judged(case)]


@pytest.mark.parametrize(
    "case", [case for case in CASES if case.proof], ids=lambda case: f"{case.promise}: {case.name}"
)
def test_a_proof_shows_the_events_that_it_names(case: Case) -> None:
    (violation,) = judged(case)
    lines = violation.excerpt.splitlines()
    assert [f"#{position} {type(case.history[position]).__name__}" for position in violation.proof] == [
        line.partition("(")[0] for line in lines
    ]
    assert str(violation).startswith(f"{case.promise}: {violation.explanation}\n#")


@pytest.mark.parametrize(
    "case", [case for case in CASES if case.proof], ids=lambda case: f"{case.promise}: {case.name}"
)
def test_a_promise_that_is_not_claimed_is_not_judged(case: Case) -> None:
    claims = {name: getattr(case.claims, name) for name in case.claims.__slots__}
    others = Claims(**(claims | {"promises": set(Promise) - {case.promise}}))
    assert [] == judged(case._replace(claims=others))


def test_every_judged_promise_has_a_good_and_a_bad_history() -> None:
    judgeable = {str(promise) for promise in Claims().promises}
    assert judgeable == {case.promise for case in CASES if case.proof}
    assert judgeable == {case.promise for case in CASES if not case.proof}


@pytest.mark.parametrize(("most", "left_out"), [(7, 0), (8, 1), (19, 12)])
def test_a_long_proof_is_shown_in_part(most: int, left_out: int) -> None:
    (violation,) = check_history([published(offset) for offset in range(most + 1)], Claims(max_tracked=most))
    assert tuple(range(most + 1)) == violation.proof
    shown = [f"#{offset} Published(offset={offset}, key=b'k')" for offset in violation.proof]
    middle = [f"... and {left_out} more"] if left_out else []
    assert [*shown[:4], *middle, *shown[-4:]] == violation.excerpt.splitlines()
