"""The fast dispatcher against the slow one: the same calls, the same effects in the same order, the same answers."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule
from tests.model import ModelDispatcher, Placement
from tests.placements import RankedPlacement
from tests.properties.driving import Fast, outcome
from tests.properties.promises import Call, Judge, Queries, Step
from tests.properties.schedules import CALLS, World, any_config, config_rules, observe

from keyshared.effects import BlockReason, DeadLetter, Deliver, Effect, Load


def answers(dispatcher: Any, offered: Sequence[int]) -> tuple[object, ...]:  # model or real
    """Everything the two must agree on between calls."""
    seen = observe(dispatcher, offered)
    queries = (dispatcher.safe_cursor, dispatcher.resume_offset, seen.free_slots, seen.next_deadline)
    return (*queries, seen.reasons, seen.obligations, seen.owners)


def restored(dispatcher: Any, placement: Placement, world: World, epoch: int) -> Any:  # as above
    """What a host has after a crash: the snapshot as JSON text, the config, and the items it can read again."""
    state: Mapping[str, Any] = json.loads(json.dumps(dispatcher.snapshot()))
    items = {offset: f"item {offset}" for offset in world.offered}
    return type(dispatcher).restore(state, placement, world.config, now_ms=world.now, epoch=epoch, items=items)


class DispatcherMachine(RuleBasedStateMachine):
    """Drives both with every call; after each one compares them and asks the judge."""

    @initialize(data=st.data())
    def start(self, data: st.DataObject) -> None:
        config = any_config(chooser(data))
        self.placement = RankedPlacement()
        self.model = ModelDispatcher(self.placement, config)
        self.real: Any = Fast(self.placement, config)
        self.world = World(config, chooser(data))
        self.judge = Judge(config_rules(config), self.placement)
        self.compare()

    def make(self, data: st.DataObject, propose: Callable[[World], Call]) -> None:
        """Make one call of both."""
        self.world.choose = chooser(data)
        call = propose(self.world)
        if call.name == "set_placement":
            self.placement = call.args[0]
        before = answers(self.real, self.world.offered)
        expected, actual = outcome(self.model, call), outcome(self.real, call)
        assert expected == actual, f"{call}: {expected} by the model, {actual} by the real one"
        if isinstance(expected, type):
            assert before == answers(self.real, self.world.offered), f"{call} raised and changed something"
        else:
            self.learn(call, expected)
        self.compare()

    def learn(self, call: Call, effects: Sequence[Effect]) -> None:
        now = call.kwargs.get("now_ms", self.world.now)
        asked: Queries = observe(self.model, self.model.offered)
        step = Step(call, tuple(effects), asked, now)
        self.world.learn(step)
        found = self.judge.see(step)
        assert not found, found

    def compare(self) -> None:
        offered = self.world.offered
        assert answers(self.model, offered) == answers(self.real, offered)
        for offset in offered:
            why = self.model.why_blocked(offset)
            if why is not None and why.reason is BlockReason.DRAINING:
                assert why.holder == self.real.why_blocked(offset).consumer
        for effect in [*self.world.delivered[-5:], *self.model.outstanding_effects()]:
            if isinstance(effect, Deliver | DeadLetter | Load):
                assert self.model.is_current(effect) == self.real.is_current(effect), effect
        self.model.check_invariants()
        self.real.check_invariants()

    @rule(data=st.data(), epoch=st.sampled_from([0, 0, 1, 2]))
    def restart(self, data: st.DataObject, epoch: int) -> None:
        """Crash and restore in the middle of anything, also on a host whose clock started anew."""
        self.world.choose = chooser(data)
        self.world.now += self.world.choose([0, 0, -3, 50])
        self.world.now = max(0, self.world.now)
        self.model = restored(self.model, self.model.placement, self.world, epoch)
        self.real = restored(self.real, self.model.placement, self.world, epoch)
        self.compare()


def chooser(data: st.DataObject) -> Any:  # a generic function cannot be annotated as a return value
    """Let Hypothesis choose."""
    return lambda options: data.draw(st.sampled_from(options))


def call_rule(propose: Callable[[World], Call]) -> Callable[..., None]:
    """Make a rule of one kind of call."""

    def make(self: DispatcherMachine, data: st.DataObject) -> None:
        self.make(data, propose)

    make.__name__ = propose.__name__
    return rule(data=st.data())(make)


for number, kind in enumerate(CALLS):
    setattr(DispatcherMachine, f"{kind.__name__}_{number}", call_rule(kind))

TestDispatcherMachine = DispatcherMachine.TestCase
TestDispatcherMachine.settings = settings(
    stateful_step_count=40,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)
