"""Sessions of keys in a simulation: its workers flush what they keep, and take their time for it."""

import pytest
from tests.kit.simulated import from_simulation

from keyshared.config import DispatcherConfig, KeySessions
from keyshared.errors import ConfigError
from keyshared.simulate import Arrival, Crash, Event, Fixed, Group, Row, SimulatedConsumer, Simulation
from keyshared.testing import Claims, check_history

CLAIMS = Claims(promises={"one-session"}, sessions=True, linger_ms=0)


def told(sessions: KeySessions, flush_ms: int, *changes: Crash) -> list[tuple[int, Event, int | None, str | None]]:
    """What happens to the sessions of a key of which a message arrives at 0, and another one at 15."""
    plan = Group(
        consumers=[SimulatedConsumer("a", Fixed(10))],
        config=DispatcherConfig(sessions=sessions, inactive_grace_ms=None),
        changes=changes,
        flush_ms=flush_ms,
    )
    rows: list[Row] = list(Simulation(plan, [Arrival(0, "k", at_ms=0), Arrival(1, "k", at_ms=15)]))
    assert [] == check_history(from_simulation(rows), CLAIMS)
    kept = {Event.DELIVERED, Event.KEY_BEGUN, Event.KEY_ENDING, Event.KEY_ENDED}
    return [(row.at_ms, row.event, row.attempt, row.reason) for row in rows if row.event in kept]


def test_a_key_waits_until_its_worker_has_flushed() -> None:
    assert [
        (0, Event.KEY_BEGUN, 1, None),
        (0, Event.DELIVERED, 1, None),
        (10, Event.KEY_ENDING, 1, None),
        (30, Event.KEY_ENDED, 1, "idle"),
        (30, Event.KEY_BEGUN, 2, None),
        (30, Event.DELIVERED, 1, None),
        (40, Event.KEY_ENDING, 2, None),
        (60, Event.KEY_ENDED, 2, "idle"),
    ] == told(KeySessions(flush_ms=None), 20)


def test_what_is_flushed_too_late_is_not_said() -> None:
    assert [(16, Event.KEY_ENDED, 1, "flush_timeout"), (16, Event.KEY_BEGUN, 2, None)] == told(
        KeySessions(flush_ms=6), 20
    )[3:5]


def test_who_is_dead_flushes_nothing() -> None:
    ended = [row for row in told(KeySessions(flush_ms=50), 20, Crash(11, "a")) if row[1] is Event.KEY_ENDED]
    assert [(60, Event.KEY_ENDED, 1, "flush_timeout")] == ended


def test_a_time_that_is_none_is_refused() -> None:
    with pytest.raises(ConfigError, match="flush_ms"):
        Group(flush_ms=-1)
