"""Plain data becomes the plan that it says, or is refused with the path of what is wrong."""

from collections.abc import Iterator
from dataclasses import fields
from typing import Any, get_args

import pytest

pytest.importorskip("pyspark")

from keyshared import HashRing
from keyshared.buckets import BucketLayout, BucketPlacement
from keyshared.config import (
    Backoff,
    DispatcherConfig,
    DrainUnit,
    GroupLimits,
    KeySessions,
    LookAhead,
    OnEvict,
    Poison,
    RetryPolicy,
)
from keyshared.errors import ArgumentError
from keyshared.placement import AutoSplit, Placement
from keyshared.placement.sole_owner import SoleOwner
from keyshared.simulate import (
    Answer,
    Change,
    Crash,
    FailFirst,
    Fixed,
    Group,
    Join,
    Leave,
    Pace,
    PerMessage,
    Poisoned,
    Redrive,
    Return,
    Sampled,
    SampledAnswers,
    Scaled,
    SetLimit,
    SetService,
    SetWeight,
    SimulatedConsumer,
    Unblock,
)
from keyshared.spark.plans.tables import plan_of

ONE = {"name": "a"}


def test_a_whole_plan_is_what_it_is_in_python() -> None:
    data = {
        "consumers": [
            {"name": "c", "count": 2, "limit": 4, "concurrency": 4, "service": "20 ms", "weight": 0.5},
            {"name": "slow", "filters": ["order-*"], "service": {"kind": "sampled", "samples": [5, "1 s"], "seed": 3}},
        ],
        "changes": [
            {"kind": "leave", "at_ms": "6 h", "name": "c2", "drain_ms": "none"},
            {"kind": "crash", "at_ms": "1 h 30 min", "name": "c1"},
            {"kind": "return", "at_ms": "2h", "name": "c1", "resumed": True},
            {"kind": "join", "at_ms": 1, "consumer": {"name": "late", "service": {"kind": "per-message"}}},
            {"kind": "set-limit", "at_ms": 2, "name": "late", "limit": 9},
            {"kind": "set-weight", "at_ms": 3, "name": "late", "weight": 2},
            {
                "kind": "set-service",
                "at_ms": 4,
                "name": "late",
                "service": {"kind": "scaled", "factor": 2.5, "model": "0.5 s"},
            },
            {"kind": "unblock", "at_ms": 5, "key": "order-1"},
            {"kind": "redrive", "at_ms": 6},
        ],
        "placement": {"kind": "ring", "vnodes": 400, "slot_bits": 20, "key_hash": "murmur3:0"},
        "config": {
            "window": 100,
            "ack_timeout_ms": "none",
            "poison": "block-and-dead-letter",
            "on_evict": "drop",
            "redrive": True,
            "retry": {"max_redeliveries": None, "base_delay_ms": "1 s", "backoff": "fixed"},
            "group": {"per_second": 5},
            "look_ahead": {"per_consumer": 7},
            "sessions": {"linger_ms": "1 min", "flush_ms": "none"},
        },
        "answers": [
            {"kind": "poisoned", "keys": ["order-13"], "reply": "reject", "reason": "no such order"},
            {"kind": "fail-first", "attempts": 1},
            {"kind": "sampled-answers", "samples": {"ack": 3, "silent": 1}, "seed": 7},
        ],
        "pace": "backlog",
        "until_ms": "30 d",
        "count_moved_keys": False,
    }
    plan = plan_of(data)
    alike = {"limit": 4, "concurrency": 4, "service": Fixed(20), "weight": 0.5}
    assert plan == Group(
        consumers=[
            SimulatedConsumer("c1", **alike),  # type: ignore[arg-type]
            SimulatedConsumer("c2", **alike),  # type: ignore[arg-type]
            SimulatedConsumer("slow", Sampled([5, 1_000], seed=3), filters=["order-*"]),
        ],
        changes=[
            Leave(21_600_000, "c2", None),
            Crash(5_400_000, "c1"),
            Return(7_200_000, "c1", resumed=True),
            Join(1, SimulatedConsumer("late", PerMessage())),
            SetLimit(2, "late", 9),
            SetWeight(3, "late", 2),
            SetService(4, "late", Scaled(Fixed(500), 2.5)),
            Unblock(5, "order-1"),
            Redrive(6, None),
        ],
        placement=plan.placement,
        config=DispatcherConfig(
            window=100,
            ack_timeout_ms=None,
            poison=Poison.BLOCK_AND_DEAD_LETTER,
            on_evict=OnEvict.DROP,
            redrive=True,
            retry=RetryPolicy(max_redeliveries=None, base_delay_ms=1_000, backoff=Backoff.FIXED),
            group=GroupLimits(per_second=5),
            look_ahead=LookAhead(per_consumer=7),
            sessions=KeySessions(linger_ms=60_000, flush_ms=None),
        ),
        answers=[
            Poisoned(["order-13"], reply=Answer.REJECT, reason="no such order"),
            FailFirst(1),
            SampledAnswers([Answer.ACK] * 3 + [Answer.SILENT], seed=7),
        ],
        pace=Pace.BACKLOG,
        until_ms=30 * 86_400_000,
        count_moved_keys=False,
    )
    assert HashRing(vnodes=400, slot_bits=20, key_hash=plan.placement.ranges.key_hash) == plan.placement
    assert "murmur3:0" == plan.placement.ranges.key_hash.name


def test_nothing_but_consumers_is_needed_and_all_the_rest_is_as_in_python() -> None:
    assert Group(consumers=[SimulatedConsumer("a", Fixed(5))]) == plan_of({"consumers": [{"name": "a", "service": 5}]})
    assert Group() == plan_of({})


@pytest.mark.parametrize(
    ("table", "placement"),
    [
        ({"kind": "ring"}, HashRing()),
        ({"kind": "danube", "vnodes": 7}, HashRing.danube(vnodes=7)),
        ({"kind": "pulsar", "points": 7, "separator": "#"}, HashRing.pulsar(points=7, separator="#")),
        ({"kind": "auto-split", "slot_bits": 8}, AutoSplit(slot_bits=8)),
        ({"kind": "pulsar-auto-split"}, AutoSplit.pulsar()),
        ({"kind": "buckets", "count": 64}, BucketPlacement(BucketLayout.equal_width(64))),
        ({"kind": "buckets"}, BucketPlacement(BucketLayout.equal_width(1_024))),
    ],
)
def test_each_placement_that_begins_empty_can_be_named(table: dict[str, object], placement: Placement) -> None:
    assert placement == plan_of({"placement": table}).placement


def test_a_subscription_of_one_owner_can_be_named() -> None:
    assert isinstance(plan_of({"placement": {"kind": "sole-owner"}}).placement, SoleOwner)


def test_every_change_can_be_named() -> None:
    told = str(_error({"changes": [{"kind": "?"}]}))
    named = told.partition("one of ")[2].split(", ")
    assert [each.__name__.lower() for each in get_args(Change)] == [name.replace("-", "") for name in named]


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (5, "the plan is 5; it must be a table with keys such as consumers, changes"),
        (
            {"consumer": []},
            "a key of the plan is 'consumer'; it must be a known one; did you mean consumers? There are",
        ),
        ({3: 3}, "a key of the plan is 3; it must be a known one. There are consumers, "),
        ({"consumers": {"a": 1}}, "consumers is {'a': 1}; it must be a list"),
        ({"consumers": ["a"]}, "consumers[0] is 'a'; it must be a table with keys such as name"),
        (
            {"consumers": [ONE, {"name": "b", "limits": 4}]},
            "a key of consumers[1] is 'limits'; it must be a known one; did",
        ),
        ({"consumers": [{"name": "b", "limit": -4}]}, "consumers[0].limit is -4; it must be an int of at least 0"),
        ({"consumers": [{"count": 3}]}, "consumers[0].name is None; it must be given: it has no default"),
        ({"consumers": [{"name": "c", "count": 0}]}, "consumers[0].count is 0; it must be an int of at least 1"),
        ({"consumers": [{"name": "c", "count": True}]}, "consumers[0].count is True; it must be an int"),
        ({"consumers": [{"name": "a", "weight": "x"}]}, "consumers[0].weight is 'x'; it must be a finite number above"),
        ({"consumers": [ONE, ONE]}, "consumers is 'a'; it must be named once"),
        ({"consumers": [{"name": "a", "service": True}]}, "consumers[0].service.kind is True; it must be one of fixed"),
        (
            {"consumers": [{"name": "a", "service": "2 hours"}]},
            "consumers[0].service.ms is '2 hours'; it must be whole",
        ),
        ({"consumers": [{"name": "a", "service": "0.3 ms"}]}, "consumers[0].service.ms is '0.3 ms'; it must be whole"),
        ({"consumers": [ONE], "until_ms": "90 d 90 d"}, "until_ms is '90 d 90 d'; it must be whole milliseconds, or a"),
        ({"consumers": [{"name": "a", "service": "-2 s"}]}, "consumers[0].service.ms is '-2 s'; it must be whole"),
        (
            {"consumers": [{"name": "a", "service": {"kind": "scaled", "factor": 2, "model": {"kind": "fixd"}}}]},
            "consumers[0].service.model.kind is 'fixd'; it must be one of fixed, per-message, sampled, scaled; did you",
        ),
        ({"changes": [{"kind": "crash"}]}, "changes[0].at_ms is None; it must be given"),
        (
            {"changes": [{"kind": "crash", "at_ms": 2, "name": "x"}]},
            "changes is Crash(at_ms=2, name='x'); it must come",
        ),
        ({"placement": {"kind": "rings"}}, "placement.kind is 'rings'; it must be one of ring, "),
        ({"placement": {"kind": ["ring"]}}, "placement.kind is ['ring']; it must be one of ring, "),
        ({"placement": {"kind": "ring", "vnodes": 0}}, "placement.vnodes is 0; it must be an int from 1"),
        ({"placement": {"kind": "ring", "consumers": 1}}, "a key of placement is 'consumers'; it must be a known one"),
        ({"placement": {"kind": "ring", "key_hash": "md5"}}, "placement.key_hash is 'md5'; it must be one of xxh64:42"),
        (
            {"config": {"retry": {"max_redelivery": 3}}},
            "a key of config.retry is 'max_redelivery'; it must be a known ",
        ),
        ({"config": {"unit": "keys"}}, "config.unit is 'keys'; it must be one of key, hash, range; did you mean key?"),
        ({"config": {"poison": "dead"}}, "config.poison is 'dead'; it must be one of drop, dead-letter, "),
        ({"config": {"window": 0}}, "config.window is 0; it must be an int of at least 1"),
        ({"config": 5}, "config is 5; it must be a table with keys such as window"),
        (
            {"answers": [{"kind": "sampled-answers", "samples": {"akc": 5}}]},
            "a key of answers[0].samples is 'akc'; it ",
        ),
        (
            {"answers": [{"kind": "sampled-answers", "samples": {"ack": -5}}]},
            "answers[0].samples.ack is -5; it must be",
        ),
        (
            {"answers": [{"kind": "poisoned", "keys": [5]}]},
            "answers[0] is {'keys': [5]}; it must hold what can be used",
        ),
        ({"answers": [{"kind": "poisoned", "offsets": [[5]]}]}, "answers[0] is {'offsets': [[5]]}; it must hold what "),
        ({"rules": {}}, "rules is {}; it must be given in Python: rules are functions of a key"),
        ({"pace": "now"}, "pace is 'now'; it must be one of arrivals, backlog"),
    ],
)
def test_what_is_wrong_is_told_with_its_path(data: object, told: str) -> None:
    assert str(_error(data)).startswith(told)


@pytest.mark.parametrize(
    "data",
    [
        {"consumers": [{"name": "a", "weight": 2}], "placement": {"kind": "auto-split"}},
        {"consumers": [{"name": "a"}], "placement": {"kind": "danube"}},
        {"consumers": [{"name": "a", "filters": ["x*"]}], "config": {"unit": "hash"}},
        {"consumers": [ONE], "changes": [{"kind": "set-weight", "at_ms": 5, "name": "a", "weight": 2**70}]},
    ],
)
def test_what_only_the_running_group_would_refuse_is_refused_when_it_is_read(data: object) -> None:
    assert _error(data).requirement


def test_every_field_of_a_plan_and_its_configuration_is_known() -> None:
    known = str(_error({"x": 1}).requirement)
    assert [field.name for field in fields(Group)] == known.partition("There are ")[2].split(", ")
    known = str(_error({"config": {"x": 1}}).requirement)
    assert [field.name for field in fields(DispatcherConfig)] == known.partition("There are ")[2].split(", ")


def test_enumerations_are_named_as_in_python() -> None:
    units = [plan_of({"config": {"unit": name}}).config.unit for name in _names()]
    assert [*DrainUnit] == units


def _names() -> Iterator[str]:
    yield from ("key", "hash", "range")


def _error(data: Any) -> ArgumentError:
    with pytest.raises(ArgumentError) as caught:
        plan_of(data)
    return caught.value
