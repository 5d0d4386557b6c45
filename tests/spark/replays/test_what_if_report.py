"""The page of several plans: side by side, every figure, the same axes. No Spark."""

import re
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
from tests.spark.plans.test_ranking import outcome
from tests.spark.replays.test_replay_report import NASTY, Page

pytest.importorskip("altair")
from keyshared.config import DispatcherConfig
from keyshared.placement import AutoSplit
from keyshared.ring import HashRing
from keyshared.simulate import Crash, Fixed, Group, Join, Leave, SetLimit, SimulatedConsumer
from keyshared.simulate.group import Unblock
from keyshared.spark.plans.ranking import CRITERIA
from keyshared.spark.replays.cause_report import MembershipChange
from keyshared.spark.replays.plan_contents import Item, contents
from keyshared.spark.replays.replay_report import Backlog
from keyshared.spark.replays.what_if_report import ConsumerWork, PlanFigures, WhatIfReport, html


def figures(plan: str, *, name: str = "c", peak: int = 7, stopped: int = 0, **changed: int) -> PlanFigures:
    told = {"consumers": 2, "deliveries": 400, "redeliveries": 11, "wait_p50_ms": 20, "wait_p99_ms": 61_000}
    fields: dict[str, Any] = {
        "outcome": outcome(plan, **{**told, "largest_backlog": peak, **changed}),
        "stopped": stopped,
        "span_ms": 7_200_000,
        "consumers": (
            ConsumerWork(consumer=f"{name}1", deliveries=300, busy_ms=5_000),
            ConsumerWork(consumer=f"{name}2", deliveries=100, busy_ms=0),
        ),
        "changes": (
            MembershipChange(at_ms=5_000, what="leaves", consumer=f"{name}1", keys_moved=50, keys=200, ideal=0.5),
        ),
        "backlog": Backlog(topic_partition=f"{name}-0", points=((0, 0), (1_000, peak), (2_000, 0))),
        "contents": (Item("consumers", plan), Item("pace", "arrivals")),
    }
    return PlanFigures(**fields)


def report(*plans: PlanFigures, hot: str = "k", by: str = "wait-p99") -> WhatIfReport:
    return WhatIfReport(
        title="What if", source="orders", messages=390, topic_partitions=12, by=by, plans=plans, hot_keys=((hot, 39),)
    )


def test_plans_stand_side_by_side_with_every_figure() -> None:
    text = Page(
        html(report(figures("two", lost=3, outstanding=3), figures("four", peak=1_234, lost=9, dead_lettered=4)))
    ).text
    for fact in (
        "two\n2\n20 ms\n1 min 1 s\n5 ms\n7\n1.50\n11\n3\n3\n0\n2 h\n0\n",
        "four\n2\n20 ms\n1 min 1 s\n5 ms\n1,234\n1.50\n11\n9\n0\n4\n2 h\n0\n",
        "two\nc1\n300\n75.0%\n5.0 s\n",
        "two\n5.0 s\nc1 leaves\n50\n25.0%\n50.0%\n",
        "two, c-0\n7\n",
        "four, c-0\n1,234\n",
        "k\n39\n10.00%\n",
        "\npace\narrivals\n",
        "\nconsumers\ntwo\nfour\n",
    ):
        assert fact in text, fact
    assert "promises" not in text  # nobody looks for those of what has not happened


def test_a_plan_with_nobody_in_it_is_even() -> None:
    nobody = PlanFigures(
        outcome=outcome("nobody", deliveries=0, redeliveries=0),
        stopped=1,
        span_ms=0,
        backlog=Backlog(topic_partition="p", points=()),
    )
    assert Fraction(1) == nobody.evenness
    assert "no data" in Page(html(report(nobody))).text


def test_names_of_plans_and_consumers_and_keys_are_text() -> None:
    page = html(report(figures(NASTY, name=NASTY), hot=NASTY))
    assert Page(page).text.count(NASTY) >= 5


def test_what_differs_between_plans_is_marked_against_the_first_and_the_rest_stands_apart() -> None:
    plans = (
        figures("two"),
        figures("four"),
        replace(figures("2"), contents=(Item("consumers", "two"), Item("pace", "arrivals"))),
    )
    page = html(report(*plans))
    assert ["four"] == re.findall(r"<mark>(.*?)</mark>", page)
    assert "What all plans have alike\nall plans\npace\narrivals\n" in Page(page).text


@pytest.mark.parametrize(
    ("plans", "by", "told"),
    [
        (
            (figures("a", wait_p99_ms=7), figures("b", wait_p99_ms=6)),
            "wait-p99",
            "winner by wait-p99: b, 6 ms; next is a, 7 ms",
        ),
        (
            (figures("a", wait_p99_ms=7, peak=1), figures("b", wait_p99_ms=6, peak=2)),
            "backlog",
            "winner by backlog: a, 1; next is b, 2",
        ),
        (
            (figures("a", wait_p99_ms=6, lost=9, stopped=1), figures("b", wait_p99_ms=7)),
            "wait-p99",
            "next is a, 6 ms, under which 9 more messages are never acked: that comes first",
        ),
        ((figures("a"), figures("b")), "wait-p50", "no winner by wait-p50: a, b all have 20 ms"),
        ((figures("a", stopped=1),), "wait-p99", "no plan came to rest in all topic-partitions"),
    ],
)
def test_the_page_names_the_winner_that_the_ranking_names_and_by_what(
    plans: tuple[PlanFigures, ...], by: str, told: str
) -> None:
    text = Page(html(report(*plans, by=by))).text
    assert told in text
    assert f"The winner has {CRITERIA[by].told}." in text


def test_the_contents_of_a_plan_say_what_each_consumer_has_and_what_happens() -> None:
    plan = Group(
        consumers=[SimulatedConsumer("a", Fixed(7)), SimulatedConsumer("b", weight=2), SimulatedConsumer("c")],
        changes=[
            Crash(1_000, "a"),
            Join(2_000, SimulatedConsumer("d")),
            Leave(3_000, "b"),
            SetLimit(4_000, "c", 5),
            Unblock(5_000, b"k"),
        ],
        placement=HashRing(vnodes=30),
        config=DispatcherConfig(ack_timeout_ms=77),
    )
    told = dict(contents(plan))
    assert "3: a, b, c" == told["consumers"]
    assert "1 (a, c); 2 (b)" == told["weight"]
    assert "Fixed(ms=7) (a); PerMessage(default_ms=None) (b, c)" == told["service time"]
    assert (
        "1.0 s: Crash a; 2.0 s: Join d; 3.0 s: Leave b; 4.0 s: SetLimit c (limit=5); 5.0 s: Unblock (key=b'k')"
        == told["changes"]
    )
    assert ("HashRing, 30 points for a consumer of weight 1", "77") == (told["placement"], told["ack_timeout_ms"])
    assert list(told) == [item.name for item in contents(Group())]
    assert "none" == dict(contents(Group()))["consumers"]
    assert "AutoSplit" == dict(contents(Group(placement=AutoSplit())))["placement"]
