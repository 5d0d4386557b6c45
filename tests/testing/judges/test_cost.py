"""What a broken system costs its judge: counted in steps and in proofs, not in time."""

from collections.abc import Iterable
from typing import Any, Final

import pytest
from tests.steps import steps_of

from keyshared.testing import Checker, Guarantees, Promise
from keyshared.testing.history import (
    Acked,
    Connected,
    Delivered,
    Happening,
    Held,
    HoldReason,
    Nacked,
    Published,
    Quiet,
)

FEW: Final = 20
MANY: Final = 320


def published(count: int) -> list[Happening]:
    return [Connected(consumer="c"), *(Published(offset=offset, key=b"k") for offset in range(count))]


def opened(count: int) -> list[Happening]:
    """All of a key are open at once."""
    return published(count) + [Delivered(offset=offset, key=b"k", consumer="c", attempt=1) for offset in range(count)]


def spilled(count: int) -> list[Happening]:
    """All are spilled, and loaded one after the other."""
    held = [Held(offset=offset, reason=HoldReason.SPILLED) for offset in range(count)]
    loading = [Held(offset=offset, reason=HoldReason.LOADING) for offset in range(count)]
    pairs = zip(published(count)[1:], held, strict=True)
    return [happening for pair in pairs for happening in pair] + [*loading]


HISTORIES: Final[dict[str, Any]] = {
    "per_key": (opened, {}, 1),
    "per_consumer": (opened, {"per_key": None, "per_consumer": 1}, 2),  # and what says the limit
    "open_at_once": (opened, {"per_key": None, "open_at_once": 3}, 3),
    "max_tracked": (published, {"max_tracked": 2}, 2),
    "window": (published, {"window": 2, "spills": False}, 3),
    "loaded": (spilled, {"window": 2}, 3),
}


def violations(history: Iterable[Happening], claims: dict[str, Any]) -> list[Any]:
    """What a checker finds at once, without its end."""
    checker = Checker(Guarantees(promises={Promise.BOUNDS}, **claims))
    return [violation for happening in history for violation in checker.feed(happening)]


@pytest.mark.no_cover
@pytest.mark.parametrize("limit", HISTORIES)
def test_a_happening_that_breaks_a_limit_takes_no_more_steps_the_more_of_them_there_were(limit: str) -> None:
    make, claims, _ = HISTORIES[limit]
    few, many = (steps_of(violations, make(count), claims) / count for count in (FEW, MANY))

    assert many < 1.5 * few


def only_nacked(count: int, *after: Happening) -> list[Happening]:
    """A message of each key whose nack was only seen, one that waits behind it, and then something else."""
    history: list[Happening] = [Connected(consumer="c")]
    for number in range(count):
        offset, key = 2 * number, b"%d" % number
        history += [Published(offset=each, key=key) for each in (offset, offset + 1)]
        history.append(Delivered(offset=offset, key=key, consumer="c", attempt=1))
        history += [Nacked(offset=offset, consumer="c", attempt=1), *after]
    return history


def passed(count: int) -> list[Happening]:
    """Then the next message of each key goes out."""
    history = only_nacked(count)
    for number in range(count):
        history.append(Delivered(offset=2 * number + 1, key=b"%d" % number, consumer="c", attempt=1))
    return history


def judge_all(history: Iterable[Happening], **claims: Any) -> None:
    checker = Checker(Guarantees(promises={Promise.KEY_ORDER, Promise.PROGRESS}, per_key=None, **claims))
    assert not [violation for happening in history for violation in checker.feed(happening)]


@pytest.mark.no_cover
@pytest.mark.parametrize("timeout", [None, 10])
def test_quiet_takes_no_more_steps_the_more_nacks_were_only_seen(timeout: int | None) -> None:
    few, many = (
        steps_of(judge_all, only_nacked(count, Quiet(at_ms=0)), ack_timeout_ms=timeout) / count for count in (FEW, MANY)
    )

    assert many < 1.5 * few


@pytest.mark.no_cover
def test_a_delivery_takes_no_more_steps_the_more_nacks_of_other_keys_were_only_seen() -> None:
    few, many = (steps_of(judge_all, passed(count)) / count for count in (FEW, MANY))

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


def test_what_is_spilled_and_may_be_done_is_left_out_once_of_what_is_in_memory() -> None:
    history: list[Happening] = [
        Published(offset=0, key=b"a"),
        Delivered(offset=0, key=b"a", consumer="c", attempt=1),
        Nacked(offset=0, consumer="c", attempt=1),
        Acked(offset=0, consumer="c", attempt=1),
        Held(offset=0, reason=HoldReason.SPILLED),
        Published(offset=1, key=b"b"),
        Published(offset=2, key=b"c"),
    ]
    (found,) = violations(history, {"window": 1})

    assert ("2 messages are in memory; the window is 1", (5, 6)) == (found.explanation, found.proof)


def test_of_a_long_proof_only_what_is_shown_is_described() -> None:
    (few, many) = (_blame(count) for count in (FEW, MANY))

    assert "... and 13 more" in few[1].excerpt
    assert 9 == len(many[1].excerpt.splitlines())
    assert many[0] < 4 * few[0]  # what is left is one step or so for each


def _blame(count: int) -> tuple[int, Any]:
    """A violation of a limit of that many, and what it took."""
    checker = Checker(Guarantees(promises={Promise.BOUNDS}, per_key=count))
    history = opened(count + 1)
    for happening in history[:-1]:
        assert [] == list(checker.feed(happening))
    found: list[Any] = []
    steps = steps_of(lambda: found.extend(checker.feed(history[-1])))
    return steps, found[0]
