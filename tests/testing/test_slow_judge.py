"""The checker and the slow judge say the same of tiny histories, however weird; where they do not, one is at fault.

What fails is printed as `tiny(seed)`, and as the shortest history on which the two still differ.
"""

from collections import Counter
from random import Random, SystemRandom
from typing import Any

import pytest
from tests.testing.slow_judge import contradicts, found_in, found_in_all
from tests.testing.tiny_histories import difference, differences, tiny

from keyshared.testing import Checker, Guarantees, HistoryError, Promise, check_history
from keyshared.testing.guarantees import JUDGED
from keyshared.testing.history import (
    Acked,
    AtRest,
    Committed,
    Connected,
    Delivered,
    Done,
    Expired,
    Happening,
    Nacked,
    Published,
    Settled,
    SettledBy,
)

A_NIGHT = 100_000
FOUND_AT_NIGHT = (
    149_921_252,  # a Quiet that says what has become of an expired delivery, and so since when the next one is ready
    1_200_067_535,  # a message that comes back while it is outstanding
    25_544_259,  # a session that has to end, and a group that waits in it
)
NO_PUBLISHED = "the history tells of no Published, so it does not say what was outstanding"


@pytest.mark.no_cover
def test_the_checker_agrees_with_the_slow_judge_on_tiny_histories() -> None:
    assert [] == list(differences([*range(3_000), *FOUND_AT_NIGHT]))


@pytest.mark.slow
def test_the_checker_agrees_with_the_slow_judge_all_night() -> None:
    first = SystemRandom().randrange(10**9)  # other dice each night
    assert [] == list(differences(range(first, first + A_NIGHT)))


@pytest.mark.no_cover
def test_tiny_histories_break_every_promise_and_keep_it() -> None:
    broken, kept = Counter[Promise](), Counter[Promise]()
    for seed in range(2_500):
        guarantees, history = tiny(seed)
        if not contradicts(history):
            found = {promise for promise, _ in found_in(history, guarantees)}
            broken.update(found)
            kept.update(promise for promise in JUDGED & guarantees.promises if promise not in found)
    assert set(broken) == set(kept) == JUDGED
    assert min(broken.values()) > 3


def test_what_contradicts_itself_is_refused_and_nothing_else_is() -> None:
    refused = 0
    for seed in range(500):
        guarantees, history = tiny(seed)
        if contradicts(history):
            refused += 1
            with pytest.raises(HistoryError, match=r"it must be (greater than|at most)"):
                check_history(history, guarantees)
        else:
            check_history(history, guarantees)
    assert refused > 10


def test_what_needs_a_publication_is_not_blamed_before_one_is_told() -> None:
    for seed in range(2_000):
        guarantees, history = tiny(seed)
        before: list[Happening] = [each for each in history if not isinstance(each, Published)]
        checker = Checker(guarantees)
        blamed = {violation.promise for happening in before for violation in checker.feed(happening)}
        unjudged = {each.promise for each in checker.unjudged() if each.reason == NO_PUBLISHED}
        assert blamed & unjudged <= {Promise.SAFE_CURSOR}, seed  # that a cursor moves back shows without


def losing(seed: int) -> list[Happening]:
    """A consumer that gets some messages of a key, in any order and more than once, until nothing comes any more."""
    random = Random(seed)
    history: list[Happening] = [Connected(consumer="a"), *(Published(offset=each, key=b"k") for each in range(3))]
    for _ in range(random.randrange(2, 7)):
        offset = random.randrange(3)
        history.append(Delivered(offset=offset, key=b"k", consumer="a"))
        history.append(random.choice([Acked, Acked, Nacked])(offset=offset, consumer="a"))
    return [*history, AtRest()]


@pytest.mark.no_cover
def test_both_judges_say_that_something_is_lost_and_not_that_it_was_overtaken() -> None:
    claims, left_out = Guarantees(promises={"key-order", "no-loss", "one-holder"}), 0
    for seed in range(200):
        history = losing(seed)
        assert difference(history, claims) is None, history
        left_out += found_in(history, claims) != found_in_all(history, claims)
    assert 20 < left_out < 180


def doubting(seed: int) -> list[Happening]:
    """A message that comes back, acks that may count, what says that one of them did, and what their system says."""
    random = Random(seed)
    history: list[Happening] = [Published(offset=0, key=b"k")]
    noted = Settled(offset=0, reason=SettledBy.LATE_ACK)
    made: list[dict[str, Any]] = []
    for attempt in range(1, random.randrange(2, 5)):
        made.append({"offset": 0, "consumer": random.choice("ab"), "attempt": attempt})
        history.append(Delivered(key=b"k", **made[-1]))
        history.append(random.choice([Nacked, Expired, Acked])(**random.choice(made)))
        history += [Acked(**random.choice(made)) for _ in range(random.randrange(3))]
    history += random.choice([[], [Committed(resume_offset=1)], [Done(offset=0)], [noted]])
    return [*history, *(Acked(counted=True, **random.choice(made)) for _ in range(random.choice([1, 1, 2])))]


@pytest.mark.no_cover
def test_both_judges_know_the_ack_that_may_have_ended_a_message_when_its_system_says_so() -> None:
    claims = [Guarantees(promises={"no-loss"}), Guarantees(promises={"no-loss", "fence"})]
    found = Counter[bool]()
    for seed in range(300):
        history = doubting(seed)
        for each in claims:
            assert difference(history, each) is None, history
            found[bool(found_in(history, each))] += 1
    assert min(found[True], found[False]) > 100


def test_the_end_is_said_once() -> None:
    checker = Checker(Guarantees())
    for happening in (Published(offset=0), Delivered(offset=2, consumer="c"), Delivered(offset=1, consumer="c")):
        checker.feed(happening)
    assert [(2,), (1,)] == [each.proof for each in checker.finish() if each.promise is Promise.NO_LOSS]
    assert [] == checker.finish()
