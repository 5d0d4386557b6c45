"""Plans are checked before anything runs."""

import pickle
from itertools import count
from typing import Any

import pytest

from keyshared.config import DispatcherConfig
from keyshared.errors import ConfigError, KeyTypeError
from keyshared.ring import HashRing
from keyshared.simulate import (
    Answer,
    Arrival,
    Crash,
    FailFirst,
    Fixed,
    Group,
    Join,
    Leave,
    Pace,
    Poisoned,
    Redrive,
    Return,
    SampledAnswers,
    SetLimit,
    SetService,
    SetWeight,
    SimulatedConsumer,
    Unblock,
)

A = SimulatedConsumer("a", Fixed(1))
EVERYTHING = Group(
    consumers=[A],
    changes=[
        Unblock(9, "k"),
        Redrive(10, "k"),
        Join(1, SimulatedConsumer("b", Fixed(2), filters=["x*"], weight=2, limit=0, concurrency=3)),
        Crash(2, "a"),
        Return(3, "a", resumed=True),
        SetLimit(4, "a", 0),
        SetWeight(5, "a", 3),
        SetService(6, "a", Fixed(9)),
        Leave(7, "a", None),
        Join(8, A),
    ],
    answers=[Poisoned(["k"])],
    pace=Pace.BACKLOG,
    config=DispatcherConfig(window=7, redrive=True),
)


def test_changes_are_kept_in_order_of_time() -> None:
    assert list(range(1, 11)) == [change.at_ms for change in EVERYTHING.changes]


def test_changes_at_one_instant_keep_their_order() -> None:
    changes = (Crash(5, "a"), Return(5, "a"), Leave(5, "a"))
    assert changes == Group(consumers=[A], changes=changes).changes


def test_a_plan_travels() -> None:
    assert EVERYTHING == pickle.loads(pickle.dumps(EVERYTHING))  # noqa: S301 - what was pickled just now


def test_a_plan_keeps_a_placement_of_its_own() -> None:
    ring = HashRing(["x"])
    plan = Group(placement=ring)
    ring.add("y")
    assert ("x",) == plan.placement.consumers


def test_an_arrival_needs_only_an_offset_and_a_key() -> None:
    assert (3, "k", 0, None, None) == Arrival(3, "k")


@pytest.mark.parametrize(
    ("build", "parameter"),
    [
        (lambda: SimulatedConsumer(""), "name"),
        (lambda: SimulatedConsumer(1), "name"),  # type: ignore[arg-type]
        (lambda: SimulatedConsumer("a", 5), "service"),  # type: ignore[arg-type]
        (lambda: SimulatedConsumer("a", limit=-1), "limit"),
        (lambda: SimulatedConsumer("a", concurrency=0), "concurrency"),
        (lambda: SimulatedConsumer("a", concurrency=2, takes_batches=True), "concurrency"),
        (lambda: SimulatedConsumer("a", takes_batches=1), "takes_batches"),  # type: ignore[arg-type]
        (lambda: SimulatedConsumer("a", postpone_ms=-1), "postpone_ms"),
        (lambda: Group(consumers="ab"), "consumers"),  # type: ignore[arg-type]
        (lambda: Group(consumers=7), "consumers"),  # type: ignore[arg-type]
        (lambda: Group(consumers=["a"]), "consumers"),  # type: ignore[list-item]
        (lambda: Group(consumers=[A, A]), "consumers"),
        (lambda: Group(config={}), "config"),  # type: ignore[arg-type]
        (lambda: Group(placement=[]), "placement"),  # type: ignore[arg-type]
        (lambda: Group(placement=None), "placement"),  # type: ignore[arg-type]
        (lambda: Group(pace="backlog"), "pace"),  # type: ignore[arg-type]
        (lambda: Group(archive_ms=-1), "archive_ms"),
        (lambda: Group(load_ms=1.0), "load_ms"),  # type: ignore[arg-type]
        (lambda: Group(start_ms=-1), "start_ms"),
        (lambda: Group(until_ms=-1), "until_ms"),
        (lambda: Group(max_attempts=0), "max_attempts"),
        (lambda: Group(count_moved_keys=1), "count_moved_keys"),  # type: ignore[arg-type]
        (lambda: Group(answers=["nack"]), "answers"),  # type: ignore[list-item]
        (lambda: Poisoned(["k"], reason="x" * 501), "reason"),
        (lambda: FailFirst(1, reason=5), "reason"),  # type: ignore[arg-type]
        (lambda: SampledAnswers([Answer.NACK], reason=b"no"), "reason"),  # type: ignore[arg-type]
        (lambda: Group(changes=[A]), "changes"),  # type: ignore[list-item]
        (lambda: Group(changes=[Join(-1, A)]), "at_ms"),
        (lambda: Group(changes=[Join(0, "a")]), "consumer"),  # type: ignore[arg-type]
        (lambda: Group(changes=[Join(4, A)], start_ms=5), "changes"),
        (lambda: Group(consumers=[A], changes=[Leave(0, "a", -1)]), "drain_ms"),
        (lambda: Group(consumers=[A], changes=[SetLimit(0, "a", -1)]), "limit"),
        (lambda: Group(consumers=[A], changes=[SetService(0, "a", 5)]), "service"),  # type: ignore[arg-type]
    ],
    ids=count(),
)
def test_values_that_can_never_work_are_refused(build: Any, parameter: str) -> None:
    with pytest.raises(ConfigError) as caught:
        build()
    assert parameter == caught.value.parameter


@pytest.mark.parametrize("change", [Redrive, Unblock])
def test_the_key_to_unblock_or_to_redrive_must_be_a_key(change: Any) -> None:
    with pytest.raises(KeyTypeError):
        Group(changes=[change(0, 7)], config=DispatcherConfig(redrive=True))


def test_a_subscription_that_redrives_says_so() -> None:
    with pytest.raises(ConfigError, match="redrive=True"):
        Group(changes=[Redrive(0, "k")])


@pytest.mark.parametrize(
    ("changes", "requirement"),
    [
        ([Join(1, A)], "'a' is absent"),
        ([Leave(1, "b")], "'b' is up or down"),
        ([Leave(1, "a"), Leave(2, "a")], "'a' is up or down"),
        ([Return(1, "a")], "'a' is down"),
        ([Crash(1, "a"), Crash(2, "a")], "'a' is up"),
        ([Crash(1, "a"), Join(2, A)], "'a' is absent"),
        ([Leave(1, "a", 99), Crash(2, "a")], "'a' is up"),
        ([SetLimit(1, "b", 1)], "'b' is up or down"),
        ([SetWeight(1, "b", 1)], "'b' is up or down"),
        ([SetService(1, "b", Fixed(1))], "'b' is up or down"),
    ],
    ids=count(),
)
def test_a_change_that_does_not_fit_the_story_is_refused(changes: list[Any], requirement: str) -> None:
    with pytest.raises(ConfigError, match=requirement):
        Group(consumers=[A], changes=changes)
