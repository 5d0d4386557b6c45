"""Plans side by side in a terminal: differences, figures, and who wins by what."""

import io
import re

import pytest

pytest.importorskip("rich")
from tests.spark.plans.test_ranking import outcome

from keyshared.simulate import Crash, Fixed, Group, SimulatedConsumer
from keyshared.spark.demo.comparison import comparison
from keyshared.spark.demo.text import tell
from keyshared.spark.plans.ranking import PlanOutcome

FEW = Group(
    consumers=[SimulatedConsumer("a", Fixed(20)), SimulatedConsumer("b", Fixed(20))], changes=[Crash(90_000, "a")]
)
MANY = Group(consumers=[SimulatedConsumer(name, Fixed(20)) for name in "abcde"])


def text(*outcomes: PlanOutcome, by: str = "wait-p99") -> str:
    out = io.StringIO()
    tell(out, comparison("Orders", "Of May.", {"few": FEW, "many": MANY}, outcomes, by))
    return re.sub(r"(?<=\S)\n(?=that|consumers\n)", " ", out.getvalue())  # a paragraph has lines


def test_differences_figures_and_the_winner_stand_side_by_side() -> None:
    told = text(outcome("few", wait_p99_ms=90_000, consumers=2), outcome("many", consumers=5, moved_keys=1_234))
    lines = [line.split() for line in told.splitlines()]
    assert ["few", "many", "*"] in lines
    assert ["consumers", "2:", "a,", "b", "5:", "a,", "b,", "...", "e"] in lines
    assert ["crash", "a", "at", "1", "min", "30", "s"] in lines
    assert ["wait", "p99", "1", "min", "30", "s", "5", "ms"] in lines
    assert ["keys", "moved", "not", "counted", "1,234"] in lines
    assert told.endswith("* winner by wait-p99: many, 5 ms; next is few, 1 min 30 s\n")


def test_a_plan_that_loses_messages_loses_and_it_is_said_why() -> None:
    told = text(outcome("few", wait_p99_ms=1, lost=700), outcome("many"))
    assert told.endswith("next is few, 1 ms, under which 700 more messages are never acked: that comes first\n")


def test_of_two_plans_that_do_equally_well_the_one_with_fewer_consumers_wins() -> None:
    told = text(outcome("few", consumers=2), outcome("many", consumers=5), by="backlog")
    assert told.endswith("* winner by backlog: few, 5; next is many, 5, with 5 consumers instead of 2\n")
    told = text(outcome("few"), outcome("many"), by="redeliveries")
    assert told.endswith(
        "* no winner by redeliveries: few, many all have 5, as many messages acked, and as many consumers\n"
    )


def test_plans_that_are_the_same_are_said_to_be() -> None:
    out = io.StringIO()
    tell(out, comparison("Orders", "Of May.", {"one": FEW, "two": FEW}, [outcome("one"), outcome("two")], "wait-p99"))
    assert "nowhere: they are the same" in out.getvalue()
