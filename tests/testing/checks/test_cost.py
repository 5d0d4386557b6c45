"""What a broken system costs its judge: counted in steps and in proofs, not in time."""

from collections.abc import Iterable
from typing import Any, Final

import pytest
from tests.steps import steps_of

from keyshared.testing import Checker, Claims, Promise
from keyshared.testing.history import (
    Connected,
    Delivered,
    Event,
    Published,
)

FEW: Final = 20
MANY: Final = 320


def published(count: int) -> list[Event]:
    return [Connected(consumer="c"), *(Published(offset=offset, key=b"k") for offset in range(count))]


def opened(count: int) -> list[Event]:
    """All of a key are open at once."""
    return published(count) + [Delivered(offset=offset, key=b"k", consumer="c", attempt=1) for offset in range(count)]


HISTORIES: Final[dict[str, Any]] = {
    "per_key": (opened, {}, 1),
    "per_consumer": (opened, {"per_key": None, "per_consumer": 1}, 2),  # and what says the limit
    "open_at_once": (opened, {"per_key": None, "open_at_once": 3}, 3),
    "max_tracked": (published, {"max_tracked": 2}, 2),
}


def violations(history: Iterable[Event], claims: dict[str, Any]) -> list[Any]:
    """What a checker finds at once, without its end."""
    checker = Checker(Claims(promises={Promise.BOUNDS}, **claims))
    return [violation for event in history for violation in checker.feed(event)]


@pytest.mark.no_cover
@pytest.mark.parametrize("limit", HISTORIES)
def test_an_event_that_breaks_a_limit_takes_no_more_steps_the_more_of_them_there_were(limit: str) -> None:
    make, claims, _ = HISTORIES[limit]
    few, many = (steps_of(violations, make(count), claims) / count for count in (FEW, MANY))

    assert many < 1.5 * few


@pytest.mark.parametrize("limit", HISTORIES)
def test_a_proof_has_as_many_messages_as_the_limit_allows_and_the_one_too_many(limit: str) -> None:
    make, claims, most = HISTORIES[limit]
    found = violations(make(FEW), claims)

    assert len(found) >= FEW - most - 1
    assert most + 1 == max(len(violation.proof) for violation in found)


def test_the_explanation_counts_all_that_are_open_however_few_prove_it() -> None:
    last = violations(opened(20), {})[-1]

    assert "offset 19 is open delivery 20 of its key, of which 1 may be open" == last.explanation
    assert (21, 40) == last.proof


def test_of_a_long_proof_only_what_is_shown_is_described() -> None:
    (few, many) = (_blame(count) for count in (FEW, MANY))

    assert "... and 13 more" in few[1].excerpt
    assert 9 == len(many[1].excerpt.splitlines())
    assert many[0] < 4 * few[0]  # what is left is one step or so for each


def _blame(count: int) -> tuple[int, Any]:
    """A violation of a limit of that many, and what it took."""
    checker = Checker(Claims(promises={Promise.BOUNDS}, per_key=count))
    history = opened(count + 1)
    for event in history[:-1]:
        assert [] == list(checker.feed(event))
    found: list[Any] = []
    steps = steps_of(lambda: found.extend(checker.feed(history[-1])))
    return steps, found[0]
