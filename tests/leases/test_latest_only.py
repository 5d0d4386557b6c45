"""A lease queue of which only the latest counts, one behaviour at a time."""

from typing import Any

import pytest
from tests.leasing import WatchedQueue, fill, lease, queue, reserve

from keyshared.dispatcher import StoredLetter
from keyshared.effects import CursorAdvanced, Done, Effect, Ending, Skipped, SkipReason
from keyshared.errors import ConfigError
from keyshared.leases import LeaseAnswer


def latest(*keys: str | None, **config: Any) -> tuple[WatchedQueue, list[Effect]]:
    made = queue("ann", "bob", **{"latest_only": True, **config})
    return made, fill(made, *keys)


def superseded(offset: int) -> Skipped:
    return Skipped(offset, b"a", SkipReason.SUPERSEDED)


def test_a_message_that_waits_for_its_first_lease_makes_way() -> None:
    made, effects = latest("a", "b", "a", "a")

    assert [superseded(0), CursorAdvanced(0), superseded(2)] == effects
    assert (3, 1) == lease(made, "ann").offsets, "the newest stands where the oldest stood"


def test_what_is_leased_goes_on_and_what_waits_behind_it_makes_way() -> None:
    made, _ = latest("a")
    held = lease(made, "ann", now_ms=0)

    assert [superseded(1)] == fill(made, "a", "a", start=1)
    assert LeaseAnswer(None, [CursorAdvanced(1)]) == made.ack(0, held.id)
    assert (2,) == lease(made, "ann").offsets


def test_a_lease_that_has_ended_is_leased_again_before_the_newest() -> None:
    made, _ = latest("a")
    held = lease(made, "ann", now_ms=0)
    made.handle_timeout(now_ms=held.deadline_ms)

    assert [] == fill(made, "a", start=1)
    assert (0,) == lease(made, "ann").offsets


def test_what_was_reserved_stays_although_the_reservation_was_aborted() -> None:
    made, _ = latest("a")
    made.abort(reserve(made, "ann").id)

    assert [] == fill(made, "a", start=1), "the lease may have been written down"
    assert [superseded(1)] == fill(made, "a", start=2)
    assert (0,) == lease(made, "ann").offsets


def test_a_letter_that_has_come_back_stays_too() -> None:
    made, _ = latest("a", redrive=True)
    made.reject(0, lease(made, "ann").id)
    made.dead_lettered(0)
    made.redrive("a", [StoredLetter(0, 1)])

    assert [superseded(1), CursorAdvanced(1)] == fill(made, "a", "a", start=1)
    assert (0,) == lease(made, "ann").offsets


def test_each_that_makes_way_is_done() -> None:
    _, effects = latest("a", "a", tell_settled=True)

    assert [superseded(0), Done(0, b"a", Ending.SUPERSEDED), CursorAdvanced(0)] == effects


def test_a_batch_would_never_have_two_messages() -> None:
    with pytest.raises(ConfigError, match="batch_per_key"):
        latest(batch_per_key=2)
