"""A journal and a simulation ask the rules of a key, and what they tell needs no rules to be read."""

from keyshared.config import DispatcherConfig, Rules
from keyshared.journal import Command, Journal
from keyshared.ring import HashRing
from keyshared.simulate import Arrival, Event, Fixed, Group, SimulatedConsumer, Simulation

RULES = Rules(
    mark="first letter",
    limit_of=lambda key: {"a": 2, "s": 1}[key[:1].decode()],
    latest_only=lambda key: key.startswith(b"s"),
)
CONFIG = DispatcherConfig(ack_timeout_ms=None)


def journal() -> Journal:
    made = Journal(HashRing(), CONFIG, rules=RULES)
    made.apply(Command(0, 0, "add_consumer", consumer="ann", limit=9))
    return made


def told(made: Journal, *keys: str, start: int = 0) -> list[tuple[str, int | None, str | None]]:
    commands = [Command(offset + 1, 0, "offer", offset=offset, key=key) for offset, key in enumerate(keys, start)]
    return [(row.effect, row.offset, row.reason) for row in made.apply_all(commands)]


def test_a_journal_tells_who_made_way_also_after_a_restart() -> None:
    made = journal()
    assert [("deliver", 0, None), ("deliver", 1, None)] == told(made, "a1", "a1", "a1")
    assert [("deliver", 3, None)] == told(made, "s1", "s1", start=3)
    again = Journal.from_bytes(made.to_bytes(), HashRing(), CONFIG, rules=RULES)
    assert [("skipped", 4, "superseded")] == told(again, "s1", "a1", start=5)
    assert ["deliver"] == [row.effect for row in again.apply(Command(9, 0, "ack", offset=1, consumer="ann", attempt=1))]


def test_an_offer_for_whose_key_a_rule_has_no_answer_is_refused_and_its_log_goes_on() -> None:
    made = journal()
    (refused, delivered) = told(made, "x1", "a1")
    assert ("refused", "deliver") == (refused[0], delivered[0])
    assert "limit_of" in (refused[2] or "")


def test_a_simulation_has_rules_of_keys() -> None:
    plan = Group(consumers=[SimulatedConsumer("ann", Fixed(10))], config=CONFIG, rules=RULES)
    rows = list(Simulation(plan, [Arrival(offset, key, at_ms=0) for offset, key in enumerate(("a", "a", *"sss"))]))
    assert [0, 1, 2, 4] == [row.offset for row in rows if row.event is Event.DELIVERED]
    assert [3] == [row.offset for row in rows if row.event is Event.SKIPPED]
