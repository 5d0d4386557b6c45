"""Whatever the plan: the promises hold in the history, the figures add up, and it comes to an end that it explains."""

from collections.abc import Callable, Iterable
from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st
from tests.histories import HistoryJudge
from tests.simulate.folding import folded, settled

from keyshared.config import DispatcherConfig, KeySessions, OnEvict, Poison, RetryPolicy
from keyshared.simulate import (
    Answer,
    Arrival,
    Change,
    Crash,
    Event,
    Fixed,
    Group,
    Join,
    Leave,
    Pace,
    Poisoned,
    Redrive,
    Return,
    Sampled,
    SampledAnswers,
    SetLimit,
    SetService,
    SetWeight,
    SimulatedConsumer,
    SimulatedDelivery,
    Simulation,
    Stop,
    Tally,
    Unblock,
    simulated_deliveries,
)

NAMES = ["a", "b", "c"]
POISONS: list[dict[str, Any]] = [
    {"poison": Poison.DROP},
    {"poison": Poison.DEAD_LETTER},
    {"poison": Poison.DEAD_LETTER, "quarantine": True},
    {"poison": Poison.BLOCK},
    {"poison": Poison.BLOCK, "archive_blocked": True},
]
KEYS = ["k", "l", "m", None]
millis = st.integers(0, 60)
services = st.one_of(st.builds(Fixed, millis), st.builds(Sampled, st.lists(millis, min_size=1, max_size=4)))


@st.composite
def consumers(draw: st.DrawFn, name: str) -> SimulatedConsumer:
    concurrency, takes_batches = draw(st.sampled_from([(1, False), (2, False), (1, True)]))
    return SimulatedConsumer(
        name,
        draw(services),
        filters=draw(st.sampled_from([(), (), ("k*",), ("*",)])),
        limit=draw(st.sampled_from([None, 1, 2])),
        postpone_ms=draw(st.sampled_from([0, 30])),
        concurrency=concurrency,
        takes_batches=takes_batches,
    )


CHANGES: dict[str, list[Callable[[st.DrawFn, int, str], Change]]] = {
    "absent": [lambda draw, at, name: Join(at, draw(consumers(name)))],
    "up": [
        lambda draw, at, name: Leave(at, name, draw(st.sampled_from([0, 5, 50, None]))),
        lambda _, at, name: Crash(at, name),
        lambda draw, at, name: SetLimit(at, name, draw(st.integers(0, 3))),
        lambda draw, at, name: SetWeight(at, name, draw(st.integers(1, 3))),
        lambda draw, at, name: SetService(at, name, draw(services)),
        lambda draw, at, _: Unblock(at, draw(st.sampled_from(KEYS))),
    ],
    "down": [
        lambda draw, at, name: Return(at, name, draw(st.booleans())),
        lambda _, at, name: Leave(at, name),
        lambda draw, at, name: SetLimit(at, name, draw(st.integers(0, 3))),
        lambda draw, at, name: SetWeight(at, name, draw(st.integers(1, 3))),
    ],
}
AFTER: dict[type, str] = {Join: "up", Leave: "absent", Crash: "down", Return: "up"}


@st.composite
def changes(draw: st.DrawFn, state: dict[str, str], *, redrive: bool) -> list[Change]:
    found: list[Change] = []
    if redrive:
        found += [
            Redrive(at_ms, draw(st.sampled_from(KEYS))) for at_ms in draw(st.lists(st.integers(0, 500), max_size=5))
        ]
    for at_ms in sorted(draw(st.lists(st.integers(0, 500), max_size=8))):
        name = draw(st.sampled_from(NAMES))
        change = draw(st.sampled_from(CHANGES[state[name]]))(draw, at_ms, name)
        state[name] = AFTER.get(type(change), state[name])
        found.append(change)
    return found


SESSIONS = (None, None, KeySessions(), KeySessions(linger_ms=9, flush_ms=6), KeySessions(flush_ms=None))


@st.composite
def configs(draw: st.DrawFn, *, redrives: bool) -> DispatcherConfig:
    window = draw(st.integers(1, 6))
    per_key, batch = draw(st.sampled_from([(1, 1), (2, 1), (3, 1), (1, 2), (1, 3)]))
    spill = draw(st.sampled_from([True, True, False]))
    return DispatcherConfig(
        window=window,
        max_tracked=window + draw(st.integers(0, 10)),
        max_in_flight_per_key=per_key,
        batch_per_key=batch,
        max_loaded_per_key=max(per_key, batch) + draw(st.integers(0, 2)),
        spill=spill,
        max_waiting_per_key=None if spill else draw(st.sampled_from([None, 1, 2])),
        ack_timeout_ms=draw(st.sampled_from([None, 20, 50])),
        retry=RetryPolicy(
            max_redeliveries=draw(st.sampled_from([None, 0, 1, 3])), base_delay_ms=draw(st.sampled_from([0, 7]))
        ),
        **draw(st.sampled_from(POISONS)),
        on_evict=draw(st.sampled_from(OnEvict)),
        inactive_grace_ms=draw(st.sampled_from([None, 0, 80])),
        drain_timeout_ms=draw(st.sampled_from([None, 0, 15])),
        sessions=draw(st.sampled_from(SESSIONS)),
        redrive=redrives and draw(st.booleans()),
        latest_only=per_key == batch == 1 and draw(st.booleans()),
    )


@st.composite
def plans(draw: st.DrawFn, *, redrives: bool = True) -> Group:
    present = draw(st.lists(st.sampled_from(NAMES), unique=True, max_size=3))
    state: dict[str, Any] = {name: "up" if name in present else "absent" for name in NAMES}
    replies = st.sampled_from([Answer.ACK, Answer.ACK, Answer.NACK, Answer.REJECT, Answer.POSTPONE, Answer.SILENT])
    reason = draw(st.sampled_from([None, "refused"]))
    config = draw(configs(redrives=redrives))
    return Group(
        consumers=[draw(consumers(name)) for name in present],
        changes=draw(changes(state, redrive=config.redrive)),
        config=config,
        answers=draw(
            st.sampled_from(
                [(), (Poisoned(["k"]),), (SampledAnswers(draw(st.lists(replies, min_size=1)), reason=reason),)]
            )
        ),
        pace=draw(st.sampled_from(Pace)),
        archive_ms=draw(millis),
        load_ms=draw(millis),
        flush_ms=draw(millis),
        until_ms=draw(st.sampled_from([None, None, 200])),
        max_attempts=30,
    )


laters = st.sampled_from([None, None, None, 100, 400])
arrivals = st.lists(st.tuples(st.sampled_from(KEYS), st.integers(0, 300), st.none(), laters), max_size=25).map(
    lambda messages: [Arrival(2 * index, *message) for index, message in enumerate(messages)]
)


@st.composite
def batching(draw: st.DrawFn) -> Group:
    """Plans in which what failed or timed out comes back to who takes batches: among newer ones where none come."""
    per_key, batch = draw(st.sampled_from([(2, 1), (3, 1), (3, 1), (1, 3)]))
    config = DispatcherConfig(
        max_in_flight_per_key=per_key,
        batch_per_key=batch,
        max_loaded_per_key=3,
        window=draw(st.integers(3, 8)),
        ack_timeout_ms=draw(st.integers(10, 50)),
        retry=RetryPolicy(max_redeliveries=None, base_delay_ms=draw(st.sampled_from([0, 7]))),
    )
    names = draw(st.sampled_from([["a"], ["a", "b"]]))
    services = st.builds(Sampled, st.lists(millis | st.sampled_from([0, 1]), min_size=2, max_size=4))
    failing = SampledAnswers([Answer.ACK, Answer.ACK, Answer.NACK], seed=draw(st.integers(0, 9)))
    return Group(
        consumers=[SimulatedConsumer(name, draw(services), takes_batches=True) for name in names],
        config=config,
        answers=draw(st.sampled_from([(), (failing,), (failing,)])),
        max_attempts=30,
    )


few = st.lists(
    st.tuples(st.sampled_from(["k", "k", "k", "l"]), st.integers(0, 60) | st.just(0)), min_size=4, max_size=12
).map(lambda messages: [Arrival(index, *message) for index, message in enumerate(messages)])


@given(plans(), arrivals)
def test_every_history_keeps_the_promises_and_adds_up(plan: Group, messages: list[Arrival]) -> None:
    check_history(plan, messages)


@given(batching(), few)
def test_batches_beside_what_comes_back_keep_the_promises_and_add_up(plan: Group, messages: list[Arrival]) -> None:
    check_history(plan, messages)


def check_history(plan: Group, messages: list[Arrival]) -> None:
    simulation = Simulation(plan, messages)
    rows = list(simulation)
    judge, tally, state = HistoryJudge().see_all(rows), Tally(), simulation.state
    tally.add_all(rows)
    summary = tally.summary()
    offered = [row.offset for row in rows if row.event is Event.OFFERED]
    assert [message.offset for message in messages][: len(offered)] == offered
    assert len(judge.outstanding) == state.outstanding
    assert len(judge.open) == state.open_deliveries
    assert state.outstanding == state.open_deliveries + sum(state.why_blocked.values())
    assert state.at_rest == (state.stop is Stop.AT_REST)
    if state.at_rest:
        assert len(messages) == len(judge.settled)
    if state.stop is Stop.STUCK:
        assert state.outstanding > 0
    came_back = dict.fromkeys(offered, 0)
    for row in rows:
        if row.offset is not None and row.event in {Event.REDRIVEN, Event.UNBLOCKED}:
            came_back[row.offset] = row.at_ms
        elif row.offset is not None and row.event is Event.DELIVERED:
            assert came_back[row.offset] <= cast("int", row.available_ms) <= row.at_ms
    told = list(folded(rows))
    assert summary.deliveries == len(told)
    assert len(judge.open) == sum(each.outcome == "open" for each in told)
    settled = summary.acked + summary.late_acked + summary.dead_lettered + summary.dropped + summary.skipped
    assert len(judge.settled) == settled - summary.redriven
    assert (len(offered), judge.cursor if judge.cursor >= 0 else None) == (summary.messages, summary.safe_cursor)


@given(plans(), arrivals)
def test_the_same_plan_and_messages_give_the_same_rows(plan: Group, messages: list[Arrival]) -> None:
    assert list(Simulation(plan, messages)) == list(Simulation(plan, iter(messages)))


@given(plans(), arrivals)
def test_the_lean_simulation_gives_the_deliveries_of_the_history(plan: Group, messages: list[Arrival]) -> None:
    check_lean(plan, messages)


@given(batching(), few)
def test_the_lean_simulation_gives_the_deliveries_of_batches(plan: Group, messages: list[Arrival]) -> None:
    check_lean(plan, messages)


def check_lean(plan: Group, messages: list[Arrival]) -> None:
    rows, lean = list(Simulation(plan, messages)), list(simulated_deliveries(plan, messages))
    delivered = [each for each in lean if each.consumer is not None]
    assert unnumbered(folded(rows)) == unnumbered(delivered)
    ended = [(e.offset, e.key, e.outcome, e.ended_ms) for e in lean if e.consumer is None and e.ended_ms is not None]
    assert settled(rows) == ended
    first = [each.offset for each in lean if each.attempt in {0, 1}]
    assert [message.offset for message in messages] == sorted(first)
    left = [each.offset for each in lean if each.outcome in {"open", "outstanding"}]
    simulation = Simulation(plan, messages)
    offered = sum(row.event is Event.OFFERED for row in simulation)
    assert len(set(left)) == len(left) == simulation.state.outstanding + len(messages) - offered
    assert sorted(numbers(lean)) == list(range(len(numbers(lean))))
    assert ranks(numbers(folded(rows))) == ranks(numbers(delivered))


def unnumbered(found: Iterable[SimulatedDelivery]) -> list[SimulatedDelivery]:
    return [each._replace(sequence=None, end_sequence=None) for each in found]


def numbers(found: Iterable[SimulatedDelivery]) -> list[int]:
    return [number for each in found for number in (each.sequence, each.end_sequence) if number is not None]


def ranks(values: list[int]) -> list[int]:
    places = {value: place for place, value in enumerate(sorted(values))}
    return [places[value] for value in values]
