"""Every order of a few messages, outcomes and troubles: no overlap, no loss, no commit that comes too early."""

from typing import Any

import pytest
from tests.run import broken
from tests.run.world import World, every_path

from keyshared.run.engine import Engine

WORLDS: dict[str, dict[str, Any]] = {
    "two of a key": {"keys": "aa", "bad_ends": 1, "ticks": 2},
    "three of two keys": {"keys": "aba", "workers": 2, "ticks": 1},
    "without a key": {"keys": [None, None], "bad_ends": 1, "workers": 2, "ticks": 1},
    "at once": {"keys": ["a", "b", None], "bad_ends": 1, "workers": 3, "ticks": 0, "at_once": 3, "together": True},
    "at once in batches": {"keys": "aabb", "batch": 2, "workers": 2, "ticks": 1, "at_once": 4, "together": True},
    "its first commit": {"keys": "a", "trouble": "lose", "records": True, "ticks": 1},
    "its first commit, and a stop": {"keys": "ab", "trouble": "stop", "records": True, "ticks": 0},
    "fails and fails": {"keys": "a", "bad_ends": 3},
    "too slow": {"keys": "aa", "timeout": True, "workers": 2, "ticks": 3},
    "too slow in a thread": {"keys": "ab", "timeout": True, "cancels": False, "ticks": 3},
    "removed": {"keys": "aa", "trouble": "remove", "ticks": 2},
    "removed from threads": {"keys": "ab", "trouble": "remove", "cancels": False, "ticks": 1},
    "lost": {"keys": "aa", "trouble": "lose", "workers": 2, "ticks": 0},
    "lost with a failure": {"keys": "a", "trouble": "lose", "bad_ends": 1, "ticks": 1},
    "stopped": {"keys": "ab", "trouble": "stop", "ticks": 1},
    "a batch": {"keys": "aaa", "batch": 3, "at_once": 3, "bad_ends": 1, "ticks": 2},
    "a batch, then one": {"keys": "aaa", "batch": 2, "at_once": 3, "bad_ends": 1, "ticks": 2},
    "a batch that fails again": {"keys": "aaa", "batch": 3, "at_once": 3, "bad_ends": 2, "ticks": 1, "ahead": 0},
    "a batch that is given up": {"keys": "aa", "batch": 2, "at_once": 2, "bad_ends": 3, "ticks": 1, "ahead": 0},
    "batches of two keys": {"keys": "abba", "batch": 2, "at_once": 4, "bad_ends": 1, "ticks": 1, "ahead": 0},
    "batches at two workers": {"keys": "aaab", "batch": 2, "at_once": 4, "bad_ends": 1, "workers": 2, "ticks": 0},
    "a batch without a key": {"keys": [None, None], "batch": 2, "at_once": 2, "bad_ends": 1, "ticks": 1},
    "a batch that is too slow": {"keys": "aa", "batch": 2, "at_once": 2, "timeout": True, "ticks": 4, "ahead": 0},
    "removed as a batch": {"keys": "aaa", "batch": 2, "at_once": 3, "trouble": "remove", "bad_ends": 1, "ticks": 0},
    "lost as a batch": {"keys": "aa", "batch": 2, "at_once": 2, "trouble": "lose", "bad_ends": 1, "ticks": 0},
    "stopped with batches": {"keys": "aaa", "batch": 2, "at_once": 3, "trouble": "stop", "bad_ends": 1, "ticks": 1},
    "told what is settled": {"keys": "ab", "settles": True, "bad_ends": 1, "workers": 2, "ticks": 0},
    "told of a batch": {"keys": "aa", "batch": 2, "at_once": 2, "settles": True, "bad_ends": 1, "ticks": 1},
    "removed before it is told": {"keys": "ab", "trouble": "remove", "settles": True, "workers": 2, "ticks": 0},
    "lost before it is told": {"keys": "a", "trouble": "lose", "settles": True, "bad_ends": 1, "ticks": 1},
    "stopped before it is told": {"keys": "ab", "trouble": "stop", "settles": True, "bad_ends": 1, "ticks": 0},
    "stopped with a failure": {"keys": "a", "trouble": "stop", "bad_ends": 2, "ticks": 2},
}


def explore(engine_class: type[Engine[int]], world: dict[str, Any], limit: int) -> int:
    paths = 0
    for choose in every_path(limit):
        World(choose, engine_class=engine_class, **world).play()
        paths += 1
    return paths


@pytest.mark.parametrize("name", WORLDS)
def test_every_path_through_a_small_world_keeps_what_the_runner_promises(name: str) -> None:
    assert explore(Engine, WORLDS[name], 100_000) > 10


@pytest.mark.parametrize(
    ("fault", "name", "shown"),
    [
        (broken.DoesNotWaitForTheCancelled, "too slow", "two of a key at once|started again|failures of others count"),
        (broken.CancelsTwice, "too slow", "cancelled while it cleans up"),
        (broken.BelievesTheCancelled, "too slow", "committed too early|not all is done|not told"),
        (broken.RunsBesideAbandoned, "lost", "two of a key at once"),
        (broken.CommitsBeforeTheLetterIsWritten, "two of a key", "committed too early"),
        (broken.CountsTimeInTheQueue, "too slow in a thread", "overdue"),
        (broken.BelievesLateAnswers, "lost", "committed too early"),
        (broken.LeavesWithoutItsLastCommit, "stopped", "the last commit lacks something|never committed"),
        (broken.CommitsTwiceAtOnce, "two of a key", "two commits at once"),
        (broken.ForgetsWhatWasPutOff, "two of a key", "not all is done"),
        (broken.StartsWhatLeaves, "stopped", "begins although its log leaves"),
        (broken.BlamesTheFirstOfABatch, "a batch", "failures of others count|given up for the failure of another"),
        (broken.TriesABatchAgainAsOne, "a batch", "not alone after a failure"),
        (broken.BelievesThatAllIsDone, "a batch", "committed too early"),
        (broken.SettlesOneOfSeveral, "at once", "the last commit lacks something"),
        (broken.TellsBeforeTheLetterIsWritten, "told what is settled", "told too early"),
        (broken.TellsTwiceAtOnce, "told what is settled", "two are told at once"),
        (broken.LeavesWithoutTellingTheLast, "stopped before it is told", "not all is told"),
        (broken.BelievesTheRefusalOfALostLog, "its first commit", "was asked for a log that has gone counts"),
        (broken.RunsABatchBesideItself, "a batch that fails again", "two of a key at once|passes"),
    ],
)
def test_a_broken_heart_is_caught(fault: type[Engine[int]], name: str, shown: str) -> None:
    with pytest.raises(AssertionError, match=shown):
        explore(fault, WORLDS[name], 100_000)
