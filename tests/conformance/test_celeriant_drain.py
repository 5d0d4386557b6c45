"""Celeriant's page "Sticky routing and ordering": the draining protocol, as it is told there."""

import pytest
from tests.alphabet import advanced, deliver, delivered, fill, subscription

from keyshared.config import DrainUnit
from keyshared.dispatcher import Blocking
from keyshared.effects import BlockReason


def test_the_new_owner_of_a_range_gets_nothing_of_it_until_the_leases_of_the_prior_owner_are_acked() -> None:
    # A holds three leases, the range goes to B, B's consume comes back empty until A has acked, then B can claim.
    dispatcher = subscription("b-was-a", unit=DrainUnit.RANGE)
    assert 3 == len(fill(dispatcher, "a1", "a2", "a3"))
    dispatcher.add_consumer("anew")

    assert [] == dispatcher.offer(3, "a4")
    assert Blocking(BlockReason.DRAINING, "b-was-a") == dispatcher.why_blocked(3)
    assert [advanced(0)] == dispatcher.ack(0, "b-was-a", 1)
    assert [advanced(1)] == dispatcher.ack(1, "b-was-a", 1)
    assert [deliver(3, "a4", "anew"), advanced(2)] == dispatcher.ack(2, "b-was-a", 1)


@pytest.mark.parametrize("end", ["ack", "nack", "expiry"])
def test_a_lease_drains_by_its_ack_its_nack_or_its_expiry(end: str) -> None:
    dispatcher = subscription("bob", unit=DrainUnit.RANGE, ack_timeout_ms=30)
    fill(dispatcher, "a1")
    dispatcher.add_consumer("ann")
    dispatcher.offer(1, "a2")

    answers = {"ack": dispatcher.ack, "nack": dispatcher.nack}
    effects = answers[end](0, "bob", 1) if end in answers else dispatcher.handle_timeout(now_ms=30)
    assert [(1, "ann")] == delivered(effects)


def test_by_key_the_new_owner_gets_what_nobody_works_on() -> None:
    # The difference: order is kept key by key, so a key that nobody holds has nothing to wait for.
    dispatcher = subscription("bob", unit=DrainUnit.KEY)
    fill(dispatcher, "a1", "a2", "a3")
    dispatcher.add_consumer("ann")

    assert [deliver(3, "a4", "ann")] == dispatcher.offer(3, "a4")
    assert [] == dispatcher.offer(4, "a1")
