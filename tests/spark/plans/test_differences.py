"""In what plans differ: everything that is not the same, and nothing else."""

from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("pyspark")

from keyshared import HashRing
from keyshared.buckets import BucketLayout, BucketPlacement
from keyshared.config import DispatcherConfig, LookAhead, Poison, RetryPolicy, Rules
from keyshared.placement import AutoSplit
from keyshared.placement.sole_owner import SoleOwner
from keyshared.simulate import (
    Answer,
    Crash,
    Fixed,
    Group,
    Join,
    Pace,
    PerMessage,
    Poisoned,
    Return,
    Sampled,
    SampledAnswers,
    Scaled,
    SetService,
    SimulatedConsumer,
)
from keyshared.spark.plans.differences import differences, time_text

GROUP = tuple(SimulatedConsumer(f"c{number}", Fixed(20), limit=4) for number in range(1, 9))
PLAN = Group(consumers=GROUP)


def told(*plans: Group) -> dict[str, tuple[str, ...]]:
    return {each.setting: each.values for each in differences({f"plan {i}": plan for i, plan in enumerate(plans)})}


@pytest.mark.parametrize(
    ("changed", "setting", "values"),
    [
        ({"consumers": GROUP[:2]}, "consumers", ("8: c1, c2, ... c8", "2: c1, c2")),
        ({"changes": [Crash(5_400_000, "c4")]}, "crash c4", ("", "at 1 h 30 min")),
        (
            {"changes": [Crash(1, "c4"), Return(2, "c4"), Crash(1_000, "c4")]},
            "crash c4",
            ("", "at 1 ms; at 1 s"),
        ),
        (
            {"changes": [Join(5, SimulatedConsumer("d", limit=3, filters=["x*"]))]},
            "join d",
            ("", "at 5 ms, filters x*, limit 3"),
        ),
        (
            {"changes": [SetService(5, "c1", Scaled(PerMessage(3), 2))]},
            "set service c1",
            ("", "at 5 ms, service 2 times as each message says, or 3 ms"),
        ),
        ({"pace": Pace.BACKLOG}, "pace", ("arrivals", "backlog")),
        ({"until_ms": 90_061_001}, "until_ms", ("none", "1 d 1 h 1 min 1 s 1 ms")),
        ({"rules": Rules(mark="of-1")}, "rules", None),
        (
            {"answers": [SampledAnswers([Answer.ACK, Answer.ACK, Answer.NACK], 3, "busy")]},
            "answers",
            ("none", "2 ack, 1 nack, seed 3, 'busy'"),
        ),
        ({"answers": [Poisoned([f"key-{i}" for i in range(900)])]}, "answers", None),
        ({"config": DispatcherConfig(poison=Poison.BLOCK)}, "config.poison", ("dead-letter", "block")),
        ({"config": DispatcherConfig(redrive=True)}, "config.redrive", ("false", "true")),
        ({"config": DispatcherConfig(ack_timeout_ms=None)}, "config.ack_timeout_ms", ("30 s", "none")),
        (
            {"config": DispatcherConfig(retry=RetryPolicy(max_redeliveries=9))},
            "config.retry.max_redeliveries",
            ("5", "9"),
        ),
        ({"placement": AutoSplit()}, "placement", None),
        ({"placement": SoleOwner()}, "placement", None),
        (
            {"placement": HashRing(vnodes=400)},
            "placement",
            (
                "HashRing, 65,536 slots, xxh64:42, 100 points of each consumer",
                "HashRing, 65,536 slots, xxh64:42, 400 points of each consumer",
            ),
        ),
        ({"placement": BucketPlacement(BucketLayout([0, 9]))}, "placement", None),
    ],
)
def test_one_difference_is_told_and_nothing_else(
    changed: dict[str, Any], setting: str, values: tuple[str, ...] | None
) -> None:
    found = told(PLAN, replace(PLAN, **changed))
    assert setting in found
    assert values in {None, found[setting]}
    assert {"return c4"} >= found.keys() - {setting}


def test_plans_that_are_the_same_differ_nowhere() -> None:
    assert {} == told(PLAN, Group(consumers=GROUP), PLAN)
    for placement in (SoleOwner(), HashRing.danube(), AutoSplit()):
        assert {} == told(Group(placement=placement), Group(placement=placement))


def test_who_has_which_is_told_where_consumers_are_not_alike() -> None:
    slow = [*GROUP[:3], SimulatedConsumer("c4", Sampled([5, 9]), limit=4)]
    assert told(Group(consumers=GROUP[:4]), Group(consumers=slow)) == {
        "service": ("20 ms", "20 ms: c1, c2, c3; Sampled(samples=(5, 9), seed=0): c4")
    }
    fewer = [replace(each, limit=2) for each in GROUP[:2]]
    assert ("4", "2") == told(Group(consumers=GROUP), Group(consumers=fewer))["limit"]


def test_a_difference_that_a_short_text_hides_is_told_all_the_same() -> None:
    names = ["c1", "c2", "other", "c8"]
    hidden = [SimulatedConsumer(name, Fixed(20)) for name in names]
    shown = [SimulatedConsumer(name, Fixed(20)) for name in ("c1", "c2", "c3", "c8")]
    assert {"consumers": ("4: c1, c2, ... c8",) * 2} == told(Group(consumers=hidden), Group(consumers=shown))
    layouts = [BucketPlacement(BucketLayout([0, stop])) for stop in (9, 10)]
    assert ["placement"] == [*told(*(Group(placement=each) for each in layouts))]


def test_what_only_one_plan_has_is_empty_in_the_other() -> None:
    found = told(PLAN, replace(PLAN, config=DispatcherConfig(look_ahead=LookAhead(per_consumer=5))))
    assert ("", "5") == found["config.look_ahead.per_consumer"]


@pytest.mark.parametrize("ms", [0, 1, 999, 1_000, 86_400_000, 90_061_001])
def test_a_time_is_told_as_a_file_may_say_it(ms: int) -> None:
    from keyshared.spark.plans.tables import plan_of  # noqa: PLC0415 - only here

    assert ms == plan_of({"until_ms": time_text(ms)}).until_ms
