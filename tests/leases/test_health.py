"""How a lease queue is, one figure at a time."""

import json

import pytest
from tests.leasing import fill, lease, letters, queue, reserve

from keyshared.effects import Ending
from keyshared.errors import ArgumentError
from keyshared.leases import LeaseQueue


def test_ages_are_those_of_the_last_call_whatever_it_was() -> None:
    made = queue("ann", measure=True)
    fill(made, "a", "a")
    lease(made, "ann", now_ms=0)
    made.extend(0, 1, extend_ms=9_000)
    made.handle_timeout(now_ms=2_000)

    health = made.health(busiest=1)
    assert (2_000, 2_000, 1) == (health.oldest_ms, health.longest_blocked_ms, health.blocked_offset)
    assert ((b"a", 2),) == health.busiest


def test_a_reservation_is_no_delivery_until_it_is_committed() -> None:
    made = queue("ann", measure=True)
    fill(made, "a", "b", "c")
    made.abort(reserve(made, "ann").id)
    reservation = reserve(made, "ann", 2)

    assert 0 == made.health().delivered
    made.commit(reservation.id)
    lease(made, "ann")
    assert 3 == made.health().delivered


def test_failures_and_endings_are_counted() -> None:
    made = queue("ann", measure=True)
    fill(made, "a", "b")
    held = lease(made, "ann")
    made.ack(0, held.id)
    made.nack(1, held.id)
    made.release(1, lease(made, "ann").id)
    lease(made, "ann")
    made.remove_consumer("ann")

    assert ({Ending.ACKED: 1}, 4, 2) == (made.health().ended, made.health().delivered, made.health().failed)


def test_who_does_not_measure_knows_what_needs_no_book() -> None:
    made = queue("ann")
    fill(made, "a")
    lease(made, "ann")

    health = made.health()
    assert (None, None, None, ((b"a", 1),)) == (health.oldest_ms, health.delivered, health.failed, health.busiest)


def test_figures_survive_a_restart() -> None:
    made = queue("ann", measure=True)
    fill(made, "a", "b")
    lease(made, "ann", 1, now_ms=50)
    state = json.loads(json.dumps(made.snapshot()))
    again = LeaseQueue.restore(state, letters({"a-z": "ann"}), made.config, now_ms=0)

    assert made.health() == again.health()


def test_a_number_of_keys_that_is_none_is_refused() -> None:
    with pytest.raises(ArgumentError, match="busiest"):
        queue("ann").health(busiest=-1)
