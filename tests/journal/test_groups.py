"""A journal has groups if it is made with rules, and so has a simulation."""

import pytest

from keyshared.config import DispatcherConfig, GroupLimits, Rules
from keyshared.errors import ArgumentError, SnapshotError
from keyshared.journal import Command, Journal
from keyshared.ring import HashRing
from keyshared.simulate import Arrival, Event, Fixed, Group, SimulatedConsumer, Simulation

RULES = Rules(mark="first letter", group_of=lambda key: key[:1].decode())


def journal() -> Journal:
    made = Journal(HashRing(), DispatcherConfig(ack_timeout_ms=None), rules=RULES)
    made.apply(Command(0, 0, "add_consumer", consumer="ann", limit=9))
    return made


def went_out(made: Journal, *commands: Command) -> list[int | None]:
    return [row.offset for row in made.apply_all(commands) if row.effect == "deliver"]


def offers(*keys: str, start: int = 10) -> list[Command]:
    return [Command(start + offset, 0, "offer", offset=offset, key=key) for offset, key in enumerate(keys)]


def test_the_limits_of_a_group_are_set_by_a_command() -> None:
    made = journal()
    made.apply(Command(1, 0, "set_group", group="a", limit=1, weight=2))
    assert [0, 2] == went_out(made, *offers("a1", "a2", "b1"))
    assert [1] == went_out(made, Command(20, 0, "set_group", group="a"))


def test_a_rate_is_set_by_a_command_and_time_brings_tokens() -> None:
    made = journal()
    made.apply(Command(1, 0, "set_group", group="a", per_second=10, burst=2))
    assert [0, 1] == went_out(made, *offers("a1", "a2", "a3"))
    assert [(100, 2)] == [(row.at_ms, row.offset) for row in made.advance(500) if row.effect == "deliver"]


def test_a_group_is_paused_and_resumed_by_commands_also_over_a_restart() -> None:
    made = journal()
    made.apply(Command(1, 0, "pause_group", group="a"))
    assert [] == went_out(made, *offers("a1"))
    again = Journal.from_bytes(made.to_bytes(), HashRing(), DispatcherConfig(ack_timeout_ms=None), rules=RULES)
    assert [0] == went_out(again, Command(30, 0, "resume_group", group="a"))
    with pytest.raises(SnapshotError, match="the mark of the rules"):
        Journal.from_bytes(made.to_bytes(), HashRing())


def test_without_rules_a_command_about_a_group_is_refused() -> None:
    made = Journal(HashRing())
    (row,) = made.apply(Command(1, 0, "pause_group", group="a"))
    assert ("refused", True) == (row.effect, "there are no groups" in (row.reason or ""))


def test_tenants_take_turns_in_a_simulation() -> None:
    config = DispatcherConfig(max_in_flight_per_consumer=1, group=GroupLimits(weight=1))
    plan = Group(consumers=[SimulatedConsumer("ann", Fixed(10))], config=config, rules=RULES)
    rows = Simulation(
        plan, [Arrival(offset, key, at_ms=0) for offset, key in enumerate(("a0", "a1", "a2", "a3", "b1"))]
    )
    assert ["a0", "a1", "b1", "a2", "a3"] == [(row.key or b"").decode() for row in rows if row.event is Event.DELIVERED]


def test_the_rules_of_a_plan_are_rules() -> None:
    with pytest.raises(ArgumentError, match="rules is 7"):
        Group(rules=7)  # type: ignore[arg-type]  # the mistake under test
