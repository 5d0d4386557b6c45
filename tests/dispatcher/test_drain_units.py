"""Drain units: with HASH or RANGE, what others hold of the same slot or run keeps a key from its new owner too.

On the alphabet ring the slot of a key is its first letter, and the run of a consumer reaches from behind the consumer
before it up to its own letter: a1 and a2 are of one slot, a1 and b1 may be of one run.
"""

import pytest
from tests.alphabet import advanced, deliver, delivered, fill, subscription, then

from keyshared.config import DispatcherConfig, DrainUnit, RetryPolicy
from keyshared.dispatcher import Blocking, KeySharedDispatcher
from keyshared.effects import BlockReason, DeadLetter, Evicted
from keyshared.errors import ArgumentError
from keyshared.placement import HashRange
from keyshared.placement.assigned import AssignedRanges
from keyshared.ring import HashRing

LARGER = [DrainUnit.HASH, DrainUnit.RANGE]
larger = pytest.mark.parametrize("unit", LARGER)
FOR_BOB = Blocking(BlockReason.DRAINING, "bob")
NEVER = RetryPolicy(max_redeliveries=0)


class TestWhatIsHandedOverAsAWhole:
    @larger
    def test_messages_without_a_key_are_of_no_unit(self, unit: DrainUnit) -> None:
        dispatcher = subscription("bob", max_in_flight_per_consumer=2, unit=unit)
        fill(dispatcher, None, None)
        dispatcher.add_consumer("ann")

        assert [deliver(2, "a1", "ann")] == dispatcher.offer(2, "a1")
        assert [deliver(3, None, "ann")] == dispatcher.offer(3, None)
        assert [advanced(1)] == dispatcher.ack_many([(0, "bob", 1), (1, "bob", 1)])


class TestWithTheOtherRules:
    @larger
    def test_a_quarantined_key_waits_only_for_its_own_deliveries(self, unit: DrainUnit) -> None:
        # The dead-letter store takes its place behind nobody: what others hold of the slot is of other keys.
        dispatcher = subscription("bob", retry=NEVER, quarantine=True, unit=unit)
        fill(dispatcher, "a1", "a2", "a1")

        assert [DeadLetter(0, b"a1", 1, 1, None)] == then(dispatcher.reject(0, "bob", 1))
        dispatcher.add_consumer("ann")
        assert [DeadLetter(2, b"a1", 0, 0, None), advanced(0)] == dispatcher.dead_lettered(0)
        dispatcher.unblock("a1")
        dispatcher.dead_lettered(2)
        assert [] == dispatcher.offer(3, "a1")
        assert FOR_BOB == dispatcher.why_blocked(3)

    @larger
    def test_filters_are_refused_because_two_keys_of_a_slot_could_have_two_owners(self, unit: DrainUnit) -> None:
        dispatcher = subscription("bob", unit=unit)
        with pytest.raises(ArgumentError, match=f"be empty with the drain unit {unit.name}") as caught:
            dispatcher.add_consumer("ann", filters=["a*"])
        assert ("filters", ("a*",)) == (caught.value.parameter, caught.value.value)
        with pytest.raises(ArgumentError, match="be empty with the drain unit"):
            dispatcher.set_filters("bob", ["a*"])
        assert ["bob"] == list(dispatcher.stats().consumers)
        assert [] == dispatcher.set_filters("bob", [])
        assert [deliver(0, "b1", "bob")] == dispatcher.offer(0, "b1")


class TestDrainTimeout:
    @larger
    def test_the_lane_that_waits_longest_says_when(self, unit: DrainUnit) -> None:
        dispatcher = subscription("bob", unit=unit, drain_timeout_ms=100, ack_timeout_ms=None)
        fill(dispatcher, "a1")
        dispatcher.add_consumer("ann", now_ms=10)
        dispatcher.offer(1, "a2", now_ms=20)
        dispatcher.offer(2, "a3", now_ms=50)

        assert 120 == dispatcher.next_deadline_ms()
        dispatcher.gone(1)
        assert 150 == dispatcher.next_deadline_ms()
        dispatcher.ack(0, "bob", 1)
        assert None is dispatcher.next_deadline_ms()

    def test_a_run_that_grows_in_the_call_in_which_a_drain_is_over_has_a_deadline_again(self) -> None:
        ranges = HashRing(["x"], slot_bits=2).ranges
        keys = [[key for key in map(str, range(20)) if ranges.slot_of(key) // 2 == half] for half in (0, 1)]
        low, high, other_high = keys[0][0], *keys[1][:2]
        config = DispatcherConfig(unit=DrainUnit.RANGE, drain_timeout_ms=10, inactive_grace_ms=10, ack_timeout_ms=None)
        before = AssignedRanges([(HashRange(0, 2), "yan"), (HashRange(2, 4), "xia")], slot_bits=2)
        after = AssignedRanges([(HashRange(0, 2), "eve")], fallback=HashRing(["cat"], slot_bits=2), slot_bits=2)
        dispatcher = KeySharedDispatcher(before, config)
        for name in ("xia", "yan"):
            dispatcher.add_consumer(name, now_ms=0)
        dispatcher.offer_many([(0, high, None), (1, low, None)])
        for name in ("xia", "yan"):
            dispatcher.remove_consumer(name, drain_ms=None)
        dispatcher.gone(0)  # it is settled when xia is done with it
        dispatcher.set_placement(after)
        for name in ("eve", "cat"):
            dispatcher.add_consumer(name)
        dispatcher.offer(2, other_high)
        dispatcher.set_inactive("eve")

        assert Evicted("eve") in dispatcher.handle_timeout(now_ms=10)  # now yan's run is that of offset 2, too
        again = KeySharedDispatcher.restore(dispatcher.snapshot(), dispatcher.placement, config, now_ms=10)
        for each in (dispatcher, again):
            assert (Blocking(BlockReason.DRAINING, "yan"), 20) == (each.why_blocked(2), each.next_deadline_ms())
            assert [(1, "cat"), (2, "cat")] == delivered(each.handle_timeout(now_ms=20))
