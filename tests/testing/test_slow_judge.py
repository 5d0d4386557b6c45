"""The checker and the slow judge say the same of tiny histories, however weird; where they do not, one is at fault.

A failure is printed as `tiny(seed)`, and as the shortest history on which the two still differ.
"""

from collections import Counter
from random import Random, SystemRandom

import pytest
from tests.testing.slow_judge import contradicts, found_in, found_in_all
from tests.testing.tiny_histories import difference, differences, tiny

from keyshared.testing import Checker, Claims, HistoryError, Promise, check_history
from keyshared.testing.claims import JUDGED
from keyshared.testing.history import Acked, AtRest, Connected, Delivered, Event, Nacked, Published

A_NIGHT = 100_000


@pytest.mark.no_cover
def test_the_checker_agrees_with_the_slow_judge_on_tiny_histories() -> None:
    assert [] == list(differences(range(2_500)))


@pytest.mark.slow
def test_the_checker_agrees_with_the_slow_judge_all_night() -> None:
    first = SystemRandom().randrange(10**9)  # other dice each night
    assert [] == list(differences(range(first, first + A_NIGHT)))


@pytest.mark.no_cover
def test_tiny_histories_break_every_promise_and_keep_it() -> None:
    broken, kept, unclear = Counter[Promise](), Counter[Promise](), 0
    for seed in range(2_500):
        claims, history = tiny(seed)
        if not contradicts(history):
            found = {promise for promise, _ in found_in(history, claims)}
            broken.update(found)
            kept.update(promise for promise in JUDGED & claims.promises if promise not in found)
            checker = Checker(claims)
            list(checker.violations(history))
            unclear += bool(checker.unjudged_messages)
    assert set(broken) == set(kept) == JUDGED
    assert min(broken.values()) > 3
    assert 250 < unclear < 2_000


def test_what_contradicts_itself_is_refused_and_nothing_else_is() -> None:
    refused = 0
    for seed in range(500):
        claims, history = tiny(seed)
        if contradicts(history):
            refused += 1
            with pytest.raises(HistoryError, match=r"it must be (greater than|at most)"):
                check_history(history, claims)
        else:
            check_history(history, claims)
    assert refused > 10


def losing(seed: int) -> list[Event]:
    """A consumer that gets some messages of a key, in any order and more than once, until nothing comes any more."""
    random = Random(seed)
    history: list[Event] = [Connected(consumer="a"), *(Published(offset=each, key=b"k") for each in range(3))]
    for attempt in range(random.randrange(2, 7)):
        offset = random.randrange(3)
        history.append(Delivered(offset=offset, key=b"k", consumer="a", attempt=attempt))
        history.append(random.choice([Acked, Acked, Nacked])(offset=offset, consumer="a", attempt=attempt))
    return [*history, AtRest()]


@pytest.mark.no_cover
def test_both_judges_say_that_something_is_lost_and_not_that_it_was_overtaken() -> None:
    claims, left_out = Claims(promises={"key-order", "no-loss", "one-holder"}), 0
    for seed in range(200):
        history = losing(seed)
        assert difference(history, claims) is None, history
        left_out += found_in(history, claims) != found_in_all(history, claims)
    assert 20 < left_out < 180
