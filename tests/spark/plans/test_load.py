"""What a log asks of a plan: right by plain sums, and never more than a simulation takes."""

from collections import defaultdict
from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("pyspark")
from hypothesis import given
from hypothesis import strategies as st

from keyshared import HashRing
from keyshared.config import DispatcherConfig, Poison, Rules, Unmatched
from keyshared.errors import ArgumentError
from keyshared.simulate import (
    Arrival,
    Crash,
    Fixed,
    Group,
    Join,
    Leave,
    Pace,
    PerMessage,
    Return,
    Sampled,
    Scaled,
    SetLimit,
    SetService,
    SetWeight,
    SimulatedConsumer,
    Simulation,
)
from keyshared.spark.plans.load import (
    Cost,
    OfferedLoad,
    TopicPartitionLoad,
    Work,
    held_of_key,
    key_costs,
    load_of,
    mean_ms_of,
)

HUNDRED = Work(messages=100, silent=100, own_ms=0)
ORDERED = DispatcherConfig(ordering_required=True, unmatched=Unmatched.HOLD, poison=Poison.BLOCK)
OF_KEY = Rules(mark="some", limit_of=len)
PAIR = (SimulatedConsumer("a", Fixed(10)), SimulatedConsumer("b", Fixed(10)))


@pytest.mark.parametrize(
    ("plan", "load"),
    [
        (Group(consumers=PAIR), 0.5),  # 1 s of work in 1 s of two
        (Group(consumers=PAIR[:1]), 1.0),
        (Group(consumers=[SimulatedConsumer("a", Fixed(10), concurrency=4)]), 0.25),
        (Group(consumers=[SimulatedConsumer("a", Fixed(10), concurrency=4, limit=2)]), 0.5),
        (Group(consumers=[SimulatedConsumer("a", Fixed(10), limit=0)]), float("inf")),
        (Group(), float("inf")),
        (Group(consumers=[SimulatedConsumer("a", Fixed(0))]), 0.0),
        (Group(consumers=PAIR, changes=[Crash(500, "b")]), 1 / 1.5),
        (Group(consumers=PAIR, changes=[Crash(500, "b"), Return(750, "b")]), 1 / 1.75),
        (Group(consumers=PAIR, changes=[Leave(0, "a"), Leave(900, "b")]), 1 / 0.9),
        (Group(consumers=PAIR[:1], changes=[Join(500, SimulatedConsumer("c", Fixed(5)))]), 1 / 2),
        (Group(consumers=PAIR[:1], changes=[SetService(500, "a", Fixed(20))]), 1 / 0.75),
        (Group(consumers=PAIR, changes=[Crash(1, "b"), SetLimit(2, "b", 0), Return(3, "b")]), 1 / 1.001),
        (Group(consumers=PAIR, changes=[SetWeight(500, "a", 9), Crash(5_000, "a")]), 0.5),
        (Group(consumers=[SimulatedConsumer("a", Scaled(Fixed(10), 2.5))]), 2.5),
        (Group(consumers=[SimulatedConsumer("a", Sampled([10, 30]))]), 2.0),
        (Group(consumers=[SimulatedConsumer("a", PerMessage(40))]), 4.0),
        (Group(consumers=PAIR, config=DispatcherConfig(max_in_flight=1)), 1.0),
        (Group(consumers=PAIR, config=ORDERED), 1.0),
        (
            Group(
                consumers=[SimulatedConsumer("a", Fixed(10), takes_batches=True)],
                config=DispatcherConfig(batch_per_key=5),
            ),
            0.2,
        ),
    ],
)
def test_load_is_work_by_what_consumers_can_do_while_they_are_there(plan: Group, load: float) -> None:
    assert pytest.approx(load) == load_of(plan, HUNDRED, 0, 1_000)


def test_a_log_that_does_not_begin_at_once_meets_the_group_of_its_own_time() -> None:
    plan = Group(consumers=PAIR, changes=[Crash(10_000, "b")])
    assert pytest.approx(1.0) == load_of(plan, HUNDRED, 10_000, 11_000)
    assert pytest.approx(0.5) == load_of(plan, HUNDRED, 9_000, 10_000)
    assert 0 == load_of(plan, Work(0, 0, 0.0), 0, 1_000)


def test_messages_that_say_how_long_they_take_count_so_and_the_others_by_default() -> None:
    work = Work(messages=10, silent=4, own_ms=600.0)
    plan = Group(consumers=[SimulatedConsumer("a", PerMessage(5)), SimulatedConsumer("b", Scaled(PerMessage(5), 3))])
    assert (Cost(0, 5, 1), Cost(0, 15, 3)) == key_costs(plan)
    assert [620, 1_860] == [cost.ms_for(work) for cost in key_costs(plan)]
    assert 62 == mean_ms_of(plan, work)


def test_a_key_of_which_a_consumer_works_on_several_messages_at_once_costs_less() -> None:
    several = Group(
        consumers=[SimulatedConsumer("a", Fixed(12), concurrency=4)], config=DispatcherConfig(max_in_flight_per_key=3)
    )
    assert (Cost(4, 0, 0),) == key_costs(several)
    assert (Cost(3, 0, 0),) == key_costs(replace(several, config=DispatcherConfig(batch_per_key=10)))
    assert (Cost(3, 0, 0),) == key_costs(replace(several, config=DispatcherConfig(), rules=OF_KEY))


@pytest.mark.parametrize(
    ("consumer", "config", "held"),
    [
        (SimulatedConsumer("a"), DispatcherConfig(), 1),
        (SimulatedConsumer("a"), DispatcherConfig(max_in_flight_per_key=8), 8),
        (SimulatedConsumer("a", limit=3), DispatcherConfig(max_in_flight_per_key=8), 3),
        (SimulatedConsumer("a"), DispatcherConfig(max_in_flight_per_key=8, max_in_flight_per_consumer=5), 5),
        (SimulatedConsumer("a"), DispatcherConfig(max_in_flight_per_key=8, max_in_flight=2), 2),
        (SimulatedConsumer("a", limit=0), DispatcherConfig(), 1),
        (SimulatedConsumer("a", takes_batches=True), DispatcherConfig(batch_per_key=10), 10),
        (SimulatedConsumer("a", takes_batches=True, limit=4), DispatcherConfig(batch_per_key=10), 4),
        (SimulatedConsumer("a"), DispatcherConfig(batch_per_key=10), 5.5),
        (SimulatedConsumer("a", concurrency=4), DispatcherConfig(batch_per_key=10), 6),
        (SimulatedConsumer("a", concurrency=10), DispatcherConfig(batch_per_key=10), 10),
    ],
)
def test_what_a_consumer_has_of_a_key_is_bounded_by_all_limits(
    consumer: SimulatedConsumer, config: DispatcherConfig, held: float
) -> None:
    assert {"a": held} == held_of_key(Group(consumers=[consumer], config=config), b"k")


def test_a_rule_says_how_much_of_a_key_is_held() -> None:
    rules = Rules(mark="wide", limit_of=lambda key: 4 if key == b"wide" else 1)
    plan = Group(consumers=[SimulatedConsumer("a")], config=DispatcherConfig(max_in_flight_per_key=8), rules=rules)
    assert [{"a": 4}, {"a": 1}] == [held_of_key(plan, key) for key in (b"wide", b"narrow")]
    assert {"a": 2} == held_of_key(replace(plan, config=DispatcherConfig(max_loaded_per_key=2)), b"wide")
    assert {"a": 2} == held_of_key(replace(plan, config=DispatcherConfig(batch_per_key=3)), b"wide")  # 3, 2, 1


def test_a_consumer_whose_limit_changes_has_the_most_that_it_may() -> None:
    config = DispatcherConfig(max_in_flight_per_key=8)
    plan = Group(
        consumers=[SimulatedConsumer("a", limit=2)], changes=[SetLimit(5, "a", 6), SetLimit(9, "a", 1)], config=config
    )
    assert {"a": 6} == held_of_key(plan, b"k")


def test_what_has_no_times_or_no_mean_is_refused() -> None:
    class Own:
        def duration_ms(self, offset: int, attempt: int, own_ms: int | None) -> int:  # noqa: ARG002 - of the protocol
            return offset

    with pytest.raises(ArgumentError, match=r"plan.pace is .*; it must be Pace.ARRIVALS"):
        key_costs(Group(consumers=PAIR, pace=Pace.BACKLOG))
    with pytest.raises(ArgumentError, match=r"service is .*; it must be Fixed, PerMessage, Sampled or Scaled"):
        key_costs(Group(consumers=[SimulatedConsumer("a", Own())]))


@st.composite
def logs(draw: Any) -> list[Arrival]:
    messages = draw(st.lists(st.tuples(st.sampled_from("kxyz"), st.integers(0, 40), st.integers(1, 60)), min_size=2))
    at_ms = 0
    found = []
    for offset, (key, gap_ms, service_ms) in enumerate(messages):
        at_ms += gap_ms
        found.append(Arrival(offset, key, at_ms, service_ms))
    return found


@st.composite
def plans(draw: Any) -> Group:
    factors = draw(st.lists(st.sampled_from((1, 2, 0.5)), min_size=1, max_size=3))
    consumers = [
        SimulatedConsumer(f"c{i}", Scaled(PerMessage(), factor), concurrency=draw(st.integers(1, 3)))
        for i, factor in enumerate(factors)
    ]
    changes = [Crash(draw(st.integers(0, 300)), "c0")] if len(factors) > 1 and draw(st.booleans()) else []
    of_key = draw(st.sampled_from(({}, {"max_in_flight_per_key": 2}, {"batch_per_key": 2}, {"batch_per_key": 5})))
    rules = draw(st.sampled_from((None, Rules(mark="two", limit_of=lambda _: 2))))
    config = DispatcherConfig(ack_timeout_ms=None, **of_key)
    return Group(consumers=consumers, changes=changes, config=config, rules=rules, start_ms=0)


@given(log=logs(), plan=plans())
def test_no_simulation_ends_before_the_load_says(log: list[Arrival], plan: Group) -> None:
    """What is left of the work when the log ends takes at least as long as the load says, however keys are shared."""
    first, last = log[0].at_ms, log[-1].at_ms
    if first == last:
        return
    rows = list(Simulation(plan, log))
    busy_until = max(row.at_ms for row in rows)
    keys: defaultdict[str, list[int]] = defaultdict(list)
    for message in log:
        keys[str(message.key)].append(message.service_ms or 0)
    need = max(
        min(cost.ms_for(Work(len(each), 0, float(sum(each)))) for cost in key_costs(plan)) for each in keys.values()
    )
    assert busy_until - first >= need
    work = Work(len(log), 0, float(sum(message.service_ms or 0 for message in log)))
    undisturbed = replace(plan, changes=(), placement=HashRing())
    load = load_of(undisturbed, work, first, last)
    assert (busy_until - first) * 1.000_001 >= load * (
        last - first
    ) - 60  # the one that is at work when others are done


def entry(
    name: str, *, load: float = 0.5, key_load: float = 0.1, over: int = 0, mean_ms: float = 5
) -> TopicPartitionLoad:
    return TopicPartitionLoad(
        topic_partition=name, mean_ms=mean_ms, load=load, hottest="ATL", key_load=key_load, keys_over=over
    )


def offered(*entries: TopicPartitionLoad, timeout_ms: int | None = 30_000) -> OfferedLoad:
    return OfferedLoad(span_ms=3_600_000, ack_timeout_ms=timeout_ms, topic_partitions=entries)


def test_nothing_is_said_of_a_log_that_can_be_done() -> None:
    assert () == offered(entry("p", load=1.0, key_load=1.0)).warnings()
    assert () == offered().warnings()
    assert (0.0, 0.0, 0) == (offered().load, offered().key_load, offered().keys_over)
    assert () == offered(entry("p", mean_ms=10**9), timeout_ms=None).warnings()


def test_each_reason_has_a_sentence_with_the_worst_of_it_and_how_many_more() -> None:
    found = offered(
        entry("p0", load=1.5, key_load=0.2),
        entry("p1", load=3.0, key_load=2.5, over=1, mean_ms=60_000),
        entry("p2", load=0.2, key_load=4.0, over=2),
    )
    assert (3.0, 4.0, 3) == (found.load, found.key_load, found.keys_over)
    key, group, timeout = found.warnings()
    assert key == (
        "key 'ATL' of topic-partition 'p2' alone needs 4.0 consumers: 4 h of work, one message after the other, in the "
        "1 h of the log. More consumers do not help, a finer key or faster work does (and 2 more keys)"
    )
    assert group == (
        "topic-partition 'p1' has 3.0 times the work that its consumers can do in the 1 h of the log: what is left at "
        "its end takes 2 h more, and 3.0 times as many consumers would just do (and 1 more topic-partition)"
    )
    assert timeout == (
        "a message of topic-partition 'p1' takes 1 min on average, and config.ack_timeout_ms is 30.0 s: it goes out "
        "again before it is answered, until it is given up"
    )
    [untold] = OfferedLoad(span_ms=9, ack_timeout_ms=None, topic_partitions=(), untold=1_234).warnings()
    assert untold.startswith("messages that do not say how long they take: 1,234. The plan has no default_ms for them")
    assert ("topic-partition 'p' has messages, and no consumer is ever there to work",) == offered(
        entry("p", load=float("inf"))
    ).warnings()
