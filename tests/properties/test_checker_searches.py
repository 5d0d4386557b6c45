"""The checker against real dispatchers, broken ones and a slow oracle, under random schedules."""

from collections import Counter
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest
from tests.broken import BROKEN
from tests.placements import RankedPlacement
from tests.properties.driving import Fast
from tests.testing.recorded import first_broken, mutated, recorded
from tests.testing.slow_judge import contradicts, found_in
from tests.testing.tiny_histories import difference, shortest, tiny

from keyshared.testing import Checker, Claims, HistoryError, Promise, check_history
from keyshared.testing.claims import JUDGED
from keyshared.testing.history import (
    AtRest,
    Committed,
    Connected,
    Delivered,
    Event,
    Owned,
    Quiet,
    Redriven,
)

CALLS = 60
SEEDS = range(4_000, 8_000)  # a search ends with the first that shows what is looked for
# A history does not tell of runs, which change with the placement; that a key waits for its unit is taken on trust; and
# that one end frees a whole slot is too rare in these schedules: `test_promises` has it as a small history.
OF_UNITS = {"UnitFreedByItsFirstEnd", "UnitEndWakesOnlyItsKey", "UnitOfTheMapBefore"}
# How many ended deliveries a system remembers is its own affair: refusing a late ack breaks no promise of a history.
# That an answer asks for what has ended is between dispatcher and host; a history has only what was really done.
# How a message ended is in the words of the system, and what a mark stands for is between it and its host.
# So is what was refused: a message that is not let in is not in the history.
# So is whether what came back with its batch, or for later, has failed, and what is settled by an ack of several.
# How old a message is, by its own word, is not in the history.
# And what is spilled is held back on purpose, as a history sees it: how much may wait, and whether a payload may be
# dropped, is for the judge of the contract (`test_broken_variants`).
OF_OURS = {
    *("ForgetsTooEarly", "EndedObligationsStand", "ForgetsHowItEnded", "MarkStandsStill", "OpenCountsAsWaiting"),
    *("BrokenBatchCountsFailures", "AckThroughSkipsOne", "AgeOfTheNewest", "PostponingCounts", "RipeNeverWakes"),
    *("GroupLimitForgottenOnRetry", "PausedGroupServed", "TokensOutOfNowhere"),
    *("WindowForgottenOnLoad", "SpillsAllTheSame", "WaitsBeyondTheKeyLimit"),
    *("LookAheadForgetsTheCap", "LookAheadOfTheLeft"),
}
# Who owns a key and who accepts it is told by the dispatcher, and a history takes its word for it.
TRUSTED = {"FilterOfBefore", "AnswersOutliveAFilter", "SkipsWhatOthersAccept"}
VARIANTS = [
    (promise, fault.broken)
    for promise in sorted(JUDGED)
    for fault in BROKEN[promise]
    if fault.broken.__name__ not in OF_UNITS | OF_OURS | TRUSTED
]


def promises_broken(factory: type[Any]) -> Iterator[str]:
    """What is found first in each of many schedules."""
    start = getattr(factory, "starts_with", RankedPlacement)
    for seed in SEEDS:
        yield from (violation.promise for violation in first_broken(factory, seed, CALLS, start))


def test_the_history_of_a_correct_dispatcher_breaks_nothing() -> None:
    for seed in range(150):
        claims, history = recorded(Fast, seed, CALLS)
        assert [] == check_history(history, claims), seed


@pytest.mark.interpreted("changes the class of a living part")
@pytest.mark.parametrize(("promise", "broken"), VARIANTS, ids=lambda value: getattr(value, "__name__", str(value)))
def test_a_broken_dispatcher_is_caught_by_the_promise_it_breaks(promise: Promise, broken: type[Any]) -> None:
    assert promise in promises_broken(broken)


def cases(seeds: range) -> Iterator[tuple[Claims, list[Event]]]:
    """Histories of a dispatcher with mistakes in them, and tiny ones."""
    for seed in seeds:
        random = Random(seed)  # reproducible, not secret
        claims, history = recorded(Fast, seed, 40)
        yield claims, history
        yield claims, mutated(history, random, random.randrange(6))
        yield tiny(seed)


def test_the_checker_agrees_with_the_slow_judge_on_histories_with_mistakes() -> None:
    found = Counter[Promise]()
    for claims, history in cases(range(335)):
        if contradicts(history):
            with pytest.raises(HistoryError, match=r"offset of event \d+ is -?\d+; it must be (greater|at most)"):
                check_history(history, claims)
        else:
            assert difference(history, claims) is None, shortest(history, claims)
            found.update(promise for promise, _ in found_in(history, claims))
    rare = {Promise.MINIMAL_MOVE, Promise.ATTEMPTS, Promise.NOT_EARLY, Promise.REASON_TRAVELS}
    assert set(found) >= JUDGED - rare, "mistakes of most kinds were among them"


def test_a_proof_is_in_order_and_ends_where_the_fault_shows() -> None:
    for claims, history in cases(range(60)):
        checker = Checker(claims)
        if not contradicts(history):
            for position, event in enumerate(history):
                for violation in checker.feed(event):
                    assert sorted(set(violation.proof)) == list(violation.proof)
                    assert position == violation.proof[-1]


def test_everything_is_judged_in_a_full_history() -> None:
    full: list[Event] = []
    claims = Claims()
    for seed in range(3, 400):
        claims, full = recorded(Fast, seed, CALLS)
        kinds = {type(event) for event in full}
        has_numbers = None not in {claims.fairness, claims.max_attempts}
        redrives = Promise.REDRIVE_ORDER not in claims.promises or Redriven in kinds
        claims_all = has_numbers and claims.tells_done and redrives
        if claims_all and {Delivered, Committed, Owned, Quiet, Connected} <= kinds:
            break
    checker = Checker(claims)
    assert [] == list(checker.violations(full))
    not_over = "no-loss: not judged: end it with `at_rest`: until then, what has no outcome may still get one"
    assert {not_over} == {str(unjudged) for unjudged in checker.unjudged()}
    checker.feed(AtRest())
    assert [] == checker.unjudged()
