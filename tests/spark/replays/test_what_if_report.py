"""The page of several plans: side by side, every figure, the same axes. No Spark."""

from fractions import Fraction

import pytest
from tests.spark.replays.test_replay_report import NASTY, Page

pytest.importorskip("altair")
from keyshared.spark.replays.replay_report import Backlog, MembershipChange
from keyshared.spark.replays.what_if_report import ConsumerWork, PlanFigures, WhatIfReport, html


def figures(plan: str, *, name: str = "c", peak: int = 7) -> PlanFigures:
    return PlanFigures(
        plan=plan,
        stopped=2,
        span_ms=7_200_000,
        deliveries=400,
        redeliveries=11,
        wait_p50_ms=20,
        wait_p99_ms=61_000,
        consumers=(
            ConsumerWork(consumer=f"{name}1", deliveries=300, busy_ms=5_000),
            ConsumerWork(consumer=f"{name}2", deliveries=100, busy_ms=0),
        ),
        changes=(
            MembershipChange(at_ms=5_000, what="leaves", consumer=f"{name}1", keys_moved=50, keys=200, ideal=0.5),
        ),
        backlog=Backlog(topic_partition=f"{name}-0", points=((0, 0), (1_000, peak), (2_000, 0))),
    )


def report(*plans: PlanFigures, hot: str = "k") -> WhatIfReport:
    return WhatIfReport(
        title="What if", source="orders", messages=390, topic_partitions=12, plans=plans, hot_keys=((hot, 39),)
    )


def test_plans_stand_side_by_side_with_every_figure() -> None:
    text = Page(html(report(figures("two"), figures("four", peak=1_234)))).text
    for fact in (
        "two\n20 ms\n1 min 1 s\n7\n1.50\n11\n2 h\n2\n",
        "four\n20 ms\n1 min 1 s\n1,234\n1.50\n11\n2 h\n2\n",
        "two\nc1\n300\n75.0%\n5.0 s\n",
        "two\n5.0 s\nc1 leaves\n50\n25.0%\n50.0%\n",
        "two, c-0\n7\n",
        "four, c-0\n1,234\n",
        "k\n39\n10.00%\n",
    ):
        assert fact in text, fact
    assert "promises" not in text  # nobody looks for those of what has not happened


def test_a_plan_with_nobody_in_it_is_even() -> None:
    nobody = PlanFigures(
        plan="nobody",
        stopped=1,
        span_ms=0,
        deliveries=0,
        redeliveries=0,
        wait_p50_ms=0,
        wait_p99_ms=0,
        backlog=Backlog(topic_partition="p", points=()),
    )
    assert Fraction(1) == nobody.evenness
    assert "no data" in Page(html(report(nobody))).text


def test_names_of_plans_and_consumers_and_keys_are_text() -> None:
    page = html(report(figures(NASTY, name=NASTY), hot=NASTY))
    assert Page(page).text.count(NASTY) >= 5
