"""Several plans over one log in plain Python: each says what it says alone, and every row is read once."""

from collections.abc import Iterator, Mapping
from itertools import chain
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.properties.test_simulate_properties import arrivals, plans

from keyshared.errors import ArgumentError, OffsetOrderError
from keyshared.simulate import Arrival, Fixed, Group, Pace, SimulatedConsumer
from keyshared.spark.replays import comparison
from keyshared.spark.replays.comparison import _BLOCK, PlanSummary, what_if_partition
from keyshared.spark.replays.partition import Message, SummaryRow, replay_partition

ONE = Group(consumers=[SimulatedConsumer("a", Fixed(10), limit=1)])
TWO = Group(consumers=[SimulatedConsumer("a", Fixed(10)), SimulatedConsumer("b", Fixed(10))])
BACKLOG = Group(consumers=[SimulatedConsumer("a", Fixed(3))], pace=Pace.BACKLOG)
SHORT = Group(consumers=[SimulatedConsumer("a", Fixed(3))], until_ms=20)


def messages(name: str, log: list[Arrival]) -> list[Message]:
    return [Message(name, *arrival[:4]) for arrival in log]


def numbered(count: int, name: str = "p") -> list[Message]:
    return [Message(name, offset, b"k%d" % (offset % 7), offset) for offset in range(count)]


def each_alone(rows: list[Message], plans: Mapping[str, Group], points: int = 100) -> list[PlanSummary]:
    alone = {
        name: [row for row in replay_partition(rows, plan, points=points) if isinstance(row, SummaryRow)]
        for name, plan in plans.items()
    }
    return [PlanSummary(name, alone[name][index]) for index in range(len(alone[next(iter(plans))])) for name in plans]


@given(st.dictionaries(st.sampled_from("xyz"), plans(), min_size=1), arrivals, arrivals, st.integers(1, 8))
def test_each_plan_says_what_it_says_alone_wherever_it_has_to_wait_for_others(
    compared: dict[str, Group], first: list[Arrival], second: list[Arrival], size: int
) -> None:
    rows = [*messages("p", first), *messages("q", second)]
    with patch.object(comparison, "_BLOCK", size):
        assert each_alone(rows, compared, size) == list(what_if_partition(rows, compared, points=size))


def test_a_log_of_many_blocks_is_the_same_to_fast_and_slow_plans_and_to_those_that_stop_early() -> None:
    compared = {"one": ONE, "two": TWO, "backlog": BACKLOG, "short": SHORT}
    rows = numbered(2 * _BLOCK + 17) + numbered(5, "q")
    assert each_alone(rows, compared) == list(what_if_partition(rows, compared))


def test_plans_read_the_log_once_and_none_runs_ahead_of_the_others_by_more_than_a_block() -> None:
    read = 0
    seen: dict[str, int] = {"quick": 0, "slow": 0}
    apart = 0

    class Watched:
        """A service time that tells how far its plan has come."""

        def __init__(self, name: str, service_ms: int) -> None:
            self.name, self.service_ms = name, service_ms

        def duration_ms(self, offset: int, attempt: int, own_ms: int | None) -> int:
            nonlocal apart
            assert (attempt, own_ms) == (1, None)
            seen[self.name] = max(seen[self.name], offset)
            apart = max(apart, abs(seen["quick"] - seen["slow"]))
            return self.service_ms

    def log() -> Iterator[Message]:
        nonlocal read
        for row in numbered(4 * _BLOCK):
            read += 1
            yield row

    compared = {
        "quick": Group(consumers=[SimulatedConsumer("a", Watched("quick", 0))]),
        "slow": Group(consumers=[SimulatedConsumer("a", Watched("slow", 1))]),
    }
    assert 2 == len(list(what_if_partition(log(), compared)))
    assert 4 * _BLOCK == read
    assert {"quick": 4 * _BLOCK - 1, "slow": 4 * _BLOCK - 1} == seen
    assert apart <= _BLOCK + 1


def test_answers_come_before_the_next_topic_partition_is_read() -> None:
    read: list[str] = []

    def log() -> Iterator[Message]:
        for row in chain(numbered(3, "p"), numbered(3, "q")):
            read.append(row.topic_partition)
            yield row

    first = next(what_if_partition(log(), {"one": ONE}))
    assert ("one", "p") == (first.plan, first.summary.topic_partition)
    assert read.count("q") <= 1


def test_a_topic_partition_in_two_pieces_is_refused() -> None:
    rows = numbered(2, "p") + numbered(2, "q") + [Message("p", 9, "k")]
    with pytest.raises(ArgumentError, match="'p'; it must come in one piece: sort the partition by topic-partition"):
        list(what_if_partition(rows, {"one": ONE}))


def test_an_error_names_the_plan_and_the_topic_partition() -> None:
    rows = [Message("p", 7, "k"), Message("p", 7, "k")]
    with pytest.raises(OffsetOrderError, match="cannot take offset 7 after 7") as caught:
        list(what_if_partition(rows, {"one": ONE}))
    assert ["in plan 'one', topic-partition 'p'"] == caught.value.__notes__


def test_no_rows_give_no_rows() -> None:
    assert [] == list(what_if_partition([], {"one": ONE}))


@pytest.mark.parametrize(
    ("compared", "told"),
    [
        ({}, "plans is {}; it must be a mapping from names to plans, with at least one of them"),
        ([ONE], "it must be a mapping from names to plans"),
        ({"": ONE}, "plans is ''; it must be a non-empty str"),
        ({1: ONE}, "plans is 1; it must be a non-empty str"),
        ({"one": "plan"}, "plan 'one' is 'plan'; it must be a Group"),
    ],
)
def test_what_is_no_set_of_plans_is_refused(compared: dict[str, Group], told: str) -> None:
    with pytest.raises(ArgumentError, match=told):
        list(what_if_partition(numbered(1), compared))
