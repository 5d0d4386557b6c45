"""The fast dispatcher against the slow one: the same calls, the same effects in the same order, the same answers.

A third one is driven besides, the fast one again, that is asked nothing between the calls: whatever a query wrote would
make the two go different ways.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from itertools import count, islice
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule
from tests.asking import ask_everything
from tests.broken import BROKEN, WokenGroupJumpsTheQueue
from tests.model import ModelDispatcher, Placement, Position
from tests.placements import RankedPlacement
from tests.properties.calls import Call, Queries, Step
from tests.properties.driving import INPUTS, Fast, outcome, questions
from tests.properties.schedules import (
    BATCHES,
    COMING_BACK,
    FILTERS,
    FLUSHED,
    POISONED,
    Choose,
    World,
    any_config,
    mixed,
    observe,
)
from tests.properties.watch import Watch

from keyshared._core import timers
from keyshared._core.endings import Endings
from keyshared._core.records import Lane
from keyshared._core.window import Window
from keyshared.config import DispatcherConfig, KeySessions, OnEvict, Poison, Unmatched
from keyshared.dispatcher import KeySharedDispatcher
from keyshared.effects import BlockReason, DeadLetter, Deliver, Effect, KeyEnding, Load
from keyshared.errors import InvariantError, KeySharedError, WindowFullError
from keyshared.testing import Promise

LONG = 120
ASKED_EVERY = 4  # calls: what a query writes stays written, and `test_drains.py` asks after each call
SCHEDULES = 200  # of them the first is enough that shows what is looked for
# Crashes are rare here, so the attack has the faults of a restart. A placement that moves too much moves as much in the
# model.
CAUGHT = [
    fault.broken
    for promise, faults in BROKEN.items()
    for fault in faults
    if promise is not Promise.RESUME and not hasattr(fault.broken, "starts_with")
]


def answers(dispatcher: Any, seen: Queries, now: int) -> tuple[object, ...]:  # model or real
    """Everything the two must agree on between calls."""
    queries = (
        dispatcher.safe_cursor,
        dispatcher.resume_offset,
        dispatcher.restart_mark,
        dispatcher.health(busiest=2),
        dispatcher.sessions(),
        seen.free_slots,
        None if seen.next_deadline is None else max(seen.next_deadline, now),  # permits are there since some instant
    )
    return (*queries, seen.reasons, seen.obligations, seen.owners, [tuple(group) for group in dispatcher.groups()])


def restored(dispatcher: Any, placement: Placement, world: World, epoch: int) -> Any:  # as above
    """What a host has after a crash: the snapshot as JSON text, the config, and the items it can read again."""
    state: Mapping[str, Any] = json.loads(json.dumps(dispatcher.snapshot()))
    items = {offset: f"item {offset}" for offset in world.offered}
    settings = {"epoch": epoch, "items": items, **world.settings}
    return type(dispatcher).restore(state, placement, world.config, now_ms=world.now, **settings)


def refusal(dispatcher: Any, call: Call) -> int | None:  # as above
    """Make a call that raises, and return which limit it names, if it is one of capacity."""
    with pytest.raises(KeySharedError) as caught:
        getattr(dispatcher, call.name)(*call.args, **call.kwargs)
    return caught.value.capacity if isinstance(caught.value, WindowFullError) else None


class Court:
    """Drives the dispatchers with every call; after each one compares them, and has the kit judge what happened."""

    def __init__(self, choose: Choose, factory: Any = Fast, bend: Callable[[World], None] = World.take_rules) -> None:
        self.world = World(any_config(choose), choose)
        bend(self.world)
        config, settings = self.world.config, self.world.settings
        self.placement = RankedPlacement()
        self.compared = 0
        self.factory = factory
        self.model = ModelDispatcher(self.placement, config, **settings)
        self.real: Any = factory(self.placement, config, **settings)
        self.silent: Any = factory(self.placement, config, **settings)
        self.watch = Watch(self.real, config)
        self.compare()

    def step(self, choose: Choose) -> None:
        """Make one call, or crash and restore in the middle of anything."""
        self.world.choose = choose
        self.call(self.world.next_call())
        if self.world.restarts and choose(range(100)) < self.world.restarts:
            choose([self.restart, self.restart, self.restart_from_the_token, self.restart_from_the_cursor])()

    def call(self, call: Call) -> None:
        """Make one call of all."""
        if call.name == "set_placement":
            self.placement = call.args[0]
        before = self.answered
        expected, actual = outcome(self.model, call), outcome(self.watch.recorder, call)
        assert expected == actual, f"{call}: {expected} by the model, {actual} by the real one"
        assert actual == outcome(self.silent, call), f"{call}: something else by the one that is asked nothing"
        if isinstance(expected, type):
            assert refusal(self.model, call) == refusal(self.real, call)
            after = answers(self.real, observe(self.real, self.asked_about), self.model.now)
            assert before == after, f"{call} raised and changed something"
            self.compare()
        else:
            self.compare(self.learn(call, expected))

    def restart(self) -> None:
        """Crash and restore, also on a host whose clock started anew."""
        epoch = self.world.choose([0, 0, 1, 2])
        self.world.now = max(0, self.world.now + self.world.choose([0, 0, -3, 50]))
        self.compare_silent()
        self.model = restored(self.model, self.model.placement, self.world, epoch)
        self.real = restored(self.real, self.model.placement, self.world, epoch)
        self.watch.restarted(self.real, self.world.now)
        self.silent = restored(self.silent, self.model.placement, self.world, epoch)
        self.compare()

    def restart_from_the_token(self) -> None:
        """Crash, and keep nothing but the token."""
        self.compare_silent()
        position, text = self.model.token(), self.real.cursor_token(1_000_000).text
        assert text == deepcopy(self.silent).cursor_token(1_000_000).text
        self.begin(position, text)

    def restart_from_the_cursor(self) -> None:
        """Crash, and keep nothing but where to read on."""
        self.compare_silent()
        self.world.config = replace(self.world.config, start=self.real.resume_offset)
        self.begin(Position(self.real.resume_offset, None), None)

    def begin(self, position: Position, text: str | None) -> None:
        """Begin a new life of all of them; whoever was connected has to connect again."""
        config, settings = self.world.config, self.world.settings
        self.placement = RankedPlacement()
        self.model = ModelDispatcher(self.placement, config, resume_from=position, **settings)
        self.real = self.factory(self.placement, config, resume_from=text, **settings)
        self.silent = self.factory(self.placement, config, resume_from=text, **settings)
        self.watch = Watch(self.real, config)
        self.world.begin_again(position.resume)
        self.compare()

    def learn(self, call: Call, effects: Sequence[Effect]) -> Queries:
        """Show the call to the host and to the kit; what the model says of itself after it."""
        now = call.kwargs.get("now_ms", self.world.now)
        offered = {*self.world.offered, *self.model.offered, *self.model.messages}
        after = observe(self.model, sorted(offered))
        step = Step(call, tuple(effects), after, now)
        self.world.learn(step)
        found = self.watch.see(step)
        assert not found, found
        return after

    def compare(self, by_the_model: Queries | None = None) -> None:
        expected = by_the_model or observe(self.model, self.world.offered)
        self.asked_about = list(expected.blockings)
        seen = observe(self.real, self.asked_about)
        self.answered = answers(self.real, seen, self.model.now)
        assert answers(self.model, expected, self.model.now) == self.answered
        for why, said in zip(expected.blockings.values(), seen.blockings.values(), strict=True):
            if why is not None:
                assert why.group == said.group
                if why.reason in {BlockReason.DRAINING, BlockReason.FLUSHING}:
                    assert why.holder == said.consumer
        for effect in [*self.world.delivered[-5:], *self.model.outstanding_effects()]:
            if isinstance(effect, Deliver | DeadLetter | KeyEnding | Load):
                assert self.model.is_current(effect) == self.real.is_current(effect), effect
        self.model.check_invariants()
        self.compared += 1
        if not self.compared % ASKED_EVERY:
            ask_everything(self.real, questions(self.world), INPUTS)

    def compare_silent(self) -> None:
        """The one that is asked nothing stands where the other one does; a copy of it is asked."""
        copied = deepcopy(self.silent)
        assert (self.real.snapshot(), self.real.stats()) == (copied.snapshot(), copied.stats())


class DispatcherMachine(RuleBasedStateMachine):
    """Short schedules that Hypothesis shrinks."""

    @initialize(data=st.data())
    def start(self, data: st.DataObject) -> None:
        self.court = Court(chooser(data))

    @rule(data=st.data())
    def step(self, data: st.DataObject) -> None:
        self.court.step(chooser(data))

    def teardown(self) -> None:
        if hasattr(self, "court"):
            self.court.compare_silent()


def chooser(data: st.DataObject) -> Any:  # a generic function cannot be annotated as a return value
    """Let Hypothesis choose."""
    return lambda options: data.draw(st.sampled_from(options))


TestDispatcherMachine = DispatcherMachine.TestCase
TestDispatcherMachine.settings = settings(
    stateful_step_count=40,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)


def run_long(seed: int, factory: Any = Fast, bend: Callable[[World], None] = World.take_rules) -> None:
    """A schedule that follows from a number: long ones cost little this way, and reach what short ones do not."""
    choose = Random(seed).choice  # reproducible, not secret
    court = Court(choose, factory, bend)
    for _ in range(LONG):
        court.step(choose)
    court.compare_silent()


@given(seed=st.integers(0, 2**32 - 1))
@settings(suppress_health_check=[HealthCheck.too_slow])
def test_long_schedules_with_weights_of_their_own_are_as_the_model_says(seed: int) -> None:
    run_long(seed)


def comes_back(world: World) -> None:
    """Dead letters come back among messages that wait for instants, and make way for newer ones."""
    config = world.config
    retry = replace(config.retry, max_redeliveries=0)
    config = replace(
        config,
        poison=Poison.DEAD_LETTER,
        archive_blocked=False,
        ordering_required=False,
        max_ack_holes=None,
        batch_per_key=1,
    )
    world.config = replace(config, latest_only=True, redrive=True, retry=retry, on_evict=OnEvict.REDELIVER)
    world.calls = mixed(COMING_BACK, world.choose)
    world.keys, world.strides = world.keys[:2], (1, 1, 2, 3)


@given(seed=st.integers(0, 2**32 - 1))
@settings(suppress_health_check=[HealthCheck.too_slow])
def test_what_comes_back_among_what_is_superseded_goes_where_the_model_says(seed: int) -> None:
    run_long(seed, bend=comes_back)


def several_of_a_key_are_poison(world: World) -> None:
    """More than one open message of a key fails for the last time, and its quarantine ends before all are archived."""
    config = replace(
        world.config,
        poison=Poison.DEAD_LETTER,
        archive_blocked=False,
        quarantine=True,
        ordering_required=False,
        batch_per_key=1,
    )
    retry = replace(config.retry, max_redeliveries=world.choose([0, 1]))
    world.config = replace(config, retry=retry, max_in_flight_per_key=3, max_loaded_per_key=6)
    world.calls = mixed(POISONED, world.choose)
    world.keys = world.keys[:2]


@given(seed=st.integers(0, 2**32 - 1))
@settings(suppress_health_check=[HealthCheck.too_slow])
def test_what_a_quarantine_held_back_is_counted_anew_when_it_ends(seed: int) -> None:
    run_long(seed, bend=several_of_a_key_are_poison)


def few_may_wait_and_some_are_skipped(world: World) -> None:
    """Batches of few keys, of which some match no filter: they are over at once, and take nobody's place."""
    config = replace(world.config, unmatched=Unmatched.SKIP, ordering_required=False, look_ahead=None, spill=False)
    waiting = world.choose([1, 1, 2])
    world.config = replace(config, max_waiting_per_key=waiting, max_ack_holes=None)
    world.calls = mixed(BATCHES, world.choose)
    world.keys, world.filters = world.keys[:3], FILTERS[2:]


@given(seed=st.integers(0, 2**32 - 1))
@settings(suppress_health_check=[HealthCheck.too_slow])
def test_what_is_skipped_takes_no_place_in_a_batch(seed: int) -> None:
    run_long(seed, bend=few_may_wait_and_some_are_skipped)


def sessions_end_while_others_wait(world: World) -> None:
    """One consumer, room for one, a few keys with much work: what waits may have to be flushed before it goes on."""
    choose = world.choose
    sessions = KeySessions(linger_ms=choose([2, 4]), flush_ms=choose([9, None]))
    config = replace(world.config, sessions=sessions, max_in_flight_per_consumer=1, ordering_required=False)
    retry = replace(config.retry, base_delay_ms=0, max_redeliveries=None)
    config = replace(config, retry=retry, look_ahead=None, max_ack_holes=None, spill=False, latest_only=False)
    world.config = replace(config, window=16, max_tracked=22, max_waiting_per_key=None)
    world.free_slots, world.calls, world.keys = 16, mixed(FLUSHED, choose), (b"a", b"b", b"c")
    world.filters, world.limits, world.crowd, world.joining = ((),), (None,), 1, 1


@given(seed=st.integers(0, 2**32 - 1))
@settings(suppress_health_check=[HealthCheck.too_slow])
def test_a_key_whose_session_has_to_end_is_passed_over_by_nobody(seed: int) -> None:
    run_long(seed, bend=sessions_end_while_others_wait)


def seeds_for(factory: Any) -> Iterator[int]:
    """Schedules in whose configuration the fault can show at all."""
    shows = getattr(factory, "shows_with", lambda _: True)
    return islice((seed for seed in count() if shows(any_config(Random(seed).choice))), SCHEDULES)


def is_caught(factory: Any, bend: Callable[[World], None] = World.take_rules) -> bool:
    """Whether any of some schedules shows a dispatcher that does not do what the model does."""
    for seed in seeds_for(factory):
        try:
            run_long(seed, factory, bend)
        except (AssertionError, InvariantError):
            return True
    return False


@pytest.mark.slow
@pytest.mark.interpreted("changes the class of a living part")
@pytest.mark.parametrize("broken", CAUGHT, ids=lambda kind: kind.__name__)
def test_the_oracle_catches_a_broken_dispatcher(broken: type[Any]) -> None:
    assert is_caught(broken)


class KeepsTheSlot(Fast):  # type: ignore[misc]  # any dispatcher
    """The slot of what is acked stays empty, though more of its key is spilled."""

    class _Window(Window):
        def _load_next(self, lane: Lane) -> None:
            pass

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self._machine.window.__class__ = self._Window


@pytest.mark.interpreted("changes the class of a living part")
def test_the_oracle_catches_a_slot_that_is_not_passed_on() -> None:
    assert is_caught(KeepsTheSlot)


def forgives_nothing(endings: Endings, key: bytes | None) -> None:
    window = endings._window
    if key is not None and key in window.quarantined:
        del window.quarantined[key]
        if key in window.lanes:
            window.touched[window.lanes[key]] = None


@pytest.mark.interpreted("changes a method of a living part")
def test_the_oracle_catches_a_quarantine_that_forgives_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Endings, "unblock", forgives_nothing)
    assert is_caught(Fast, several_of_a_key_are_poison)


class NamesTheOtherLimit(KeySharedDispatcher[object]):
    """Of two limits that are reached at once, the wrong one is named."""

    def offer(self, *args: Any, **kwargs: Any) -> list[Effect[object]]:
        try:
            return super().offer(*args, **kwargs)
        except WindowFullError:
            raise WindowFullError(self.config.max_tracked) from None


def test_the_oracle_catches_a_full_window_that_names_the_wrong_limit() -> None:
    assert is_caught(NamesTheOtherLimit)


def test_the_oracle_catches_a_group_that_is_served_before_others_when_it_opens() -> None:
    assert is_caught(WokenGroupJumpsTheQueue)


def last_offset_first(rank: tuple[Any, ...], _: object) -> tuple[Any, ...]:
    return (*rank[:2], -rank[2], *rank[3:])


def drains_before_timeouts(rank: tuple[Any, ...], _: object) -> tuple[Any, ...]:
    return (*rank[:3], not rank[3])


def deadlines_do_not_count(rank: tuple[Any, ...], _: object) -> tuple[Any, ...]:
    return (rank[0], *rank[2:])


def consumers_first(rank: tuple[Any, ...], _: object) -> tuple[Any, ...]:
    return (-rank[0], *rank[1:])


class TimesOut(Fast):  # type: ignore[misc]  # any dispatcher
    """One of which deliveries and drains end by themselves."""

    @staticmethod
    def shows_with(config: DispatcherConfig) -> bool:
        return config.ack_timeout_ms is not None and config.drain_timeout_ms is not None


@pytest.mark.interpreted("changes a name of a module")
@pytest.mark.slow
@pytest.mark.parametrize("order", [last_offset_first, drains_before_timeouts, deadlines_do_not_count, consumers_first])
def test_the_oracle_catches_another_order_of_what_is_due_at_one_instant(
    order: Callable[[tuple[Any, ...], object], tuple[Any, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    ranked = timers._rank
    monkeypatch.setattr(timers, "_rank", lambda due: order(ranked(due), due[2]))
    assert is_caught(TimesOut if order is drains_before_timeouts else Fast)
