"""Drain units: with HASH or RANGE, what others hold of the same slot or run keeps a key from its new owner too.

On the alphabet ring the slot of a key is its first letter, and the run of a consumer reaches from behind the consumer
before it up to its own letter: a1 and a2 are of one slot, a1 and b1 may be of one run.
"""

import json
from typing import Any

import pytest
from tests.alphabet import AlphabetRing, Watched, advanced, deliver, delivered, fill, subscription, then

from keyshared.config import DispatcherConfig, DrainUnit, Poison, RetryPolicy
from keyshared.dispatcher import Blocking, KeySharedDispatcher
from keyshared.effects import BlockReason, DeadLetter, Deliver, Evicted, Released, ReleaseReason
from keyshared.errors import ArgumentError, SnapshotError
from keyshared.hashing import KeyHash
from keyshared.placement import AssignedRanges, HashRange, RangeMap
from keyshared.ring import HashRing

LARGER = [DrainUnit.HASH, DrainUnit.RANGE]
larger = pytest.mark.parametrize("unit", LARGER)
FOR_BOB = Blocking(BlockReason.DRAINING, "bob")
NEVER = RetryPolicy(max_redeliveries=0)


class TestWhatIsHandedOverAsAWhole:
    def test_a_key_does_not_wait_for_another_one(self) -> None:
        dispatcher = subscription("bob", unit=DrainUnit.KEY)
        fill(dispatcher, "a1")
        dispatcher.add_consumer("ann")

        assert [deliver(1, "a2", "ann")] == dispatcher.offer(1, "a2")

    @larger
    def test_a_key_waits_while_another_one_of_its_slot_is_at_the_owner_of_before(self, unit: DrainUnit) -> None:
        dispatcher = subscription("bob", unit=unit)
        fill(dispatcher, "a1")
        dispatcher.add_consumer("ann")

        assert [] == dispatcher.offer(1, "a2")
        assert FOR_BOB == dispatcher.why_blocked(1)
        assert 1 == dispatcher.stats().draining_keys
        assert [deliver(1, "a2", "ann"), advanced(0)] == dispatcher.ack(0, "bob", 1)

    def test_a_slot_does_not_wait_for_another_one_of_its_run(self) -> None:
        dispatcher = subscription("cat", unit=DrainUnit.HASH)
        fill(dispatcher, "a1")
        dispatcher.add_consumer("bob")

        assert [deliver(1, "b1", "bob")] == dispatcher.offer(1, "b1")

    def test_a_run_waits_for_all_of_its_slots(self) -> None:
        dispatcher = subscription("cat", unit=DrainUnit.RANGE)
        fill(dispatcher, "a1")
        dispatcher.add_consumer("bob")

        assert [] == dispatcher.offer(1, "b1")
        assert [deliver(2, "c1", "cat")] == dispatcher.offer(2, "c1")
        assert [deliver(1, "b1", "bob"), advanced(0)] == dispatcher.ack(0, "cat", 1)

    def test_runs_that_grow_together_wait_for_both_parts(self) -> None:
        # bob's run becomes a part of cat's: until bob has finished, even what was cat's before waits.
        dispatcher = subscription("bob", "cat", unit=DrainUnit.RANGE)
        fill(dispatcher, "b1", "c1")
        dispatcher.remove_consumer("bob", drain_ms=None)

        assert [] == dispatcher.offer(2, "c2")
        assert FOR_BOB == dispatcher.why_blocked(2)
        assert [deliver(2, "c2", "cat"), advanced(0)] == dispatcher.ack(0, "bob", 1)

    def test_a_key_at_its_limit_waits_for_itself_first(self) -> None:
        dispatcher = subscription("bob", "cat", unit=DrainUnit.RANGE)
        fill(dispatcher, "b1", "c1", "c1")
        dispatcher.remove_consumer("bob", drain_ms=None)

        assert Blocking(BlockReason.KEY_IN_FLIGHT, "cat") == dispatcher.why_blocked(2)
        assert [] == dispatcher.ack(1, "cat", 1)
        assert FOR_BOB == dispatcher.why_blocked(2)
        assert [deliver(2, "c1", "cat"), advanced(1)] == dispatcher.ack(0, "bob", 1)

    @larger
    def test_messages_without_a_key_are_of_no_unit(self, unit: DrainUnit) -> None:
        dispatcher = subscription("bob", max_in_flight_per_consumer=2, unit=unit)
        fill(dispatcher, None, None)
        dispatcher.add_consumer("ann")

        assert [deliver(2, "a1", "ann")] == dispatcher.offer(2, "a1")
        assert [deliver(3, None, "ann")] == dispatcher.offer(3, None)
        assert [advanced(1)] == dispatcher.ack_many([(0, "bob", 1), (1, "bob", 1)])

    @larger
    def test_a_change_that_is_taken_back_leaves_nothing_to_drain(self, unit: DrainUnit) -> None:
        dispatcher = subscription("bob", unit=unit)
        fill(dispatcher, "a1")
        dispatcher.add_consumer("ann")
        dispatcher.offer(1, "a2")

        assert [deliver(1, "a2", "bob")] == dispatcher.remove_consumer("ann")

    def test_of_several_who_are_waited_for_the_first_to_join_is_named(self) -> None:
        dispatcher = subscription("ann", "cat", "bob", unit=DrainUnit.RANGE)
        fill(dispatcher, "b1", "a1")
        for name in ("ann", "bob"):
            dispatcher.remove_consumer(name, drain_ms=None)

        dispatcher.offer(2, "c1")
        assert Blocking(BlockReason.DRAINING, "ann") == dispatcher.why_blocked(2)
        assert [] == dispatcher.ack(1, "ann", 1)
        assert FOR_BOB == dispatcher.why_blocked(2)
        assert [deliver(2, "c1", "cat"), advanced(1)] == dispatcher.ack(0, "bob", 1)


class TestWhoIsWoken:
    @larger
    def test_lanes_go_on_in_the_order_in_which_they_began_to_wait(self, unit: DrainUnit) -> None:
        dispatcher = subscription("bob", unit=unit)
        fill(dispatcher, "a1")
        dispatcher.add_consumer("ann", limit=2)
        fill(dispatcher, "a3", "a2", "a4", "a3", start=1)

        assert [(1, "ann"), (2, "ann")] == delivered(dispatcher.ack(0, "bob", 1))
        assert [(3, "ann")] == delivered(dispatcher.ack(1, "ann", 1))

    @larger
    def test_the_key_whose_delivery_ended_has_the_first_turn(self, unit: DrainUnit) -> None:
        dispatcher = subscription("bob", unit=unit)
        fill(dispatcher, "a1", "a1")
        dispatcher.add_consumer("ann")
        dispatcher.offer(2, "a2")

        assert [(1, "ann"), (2, "ann")] == delivered(dispatcher.ack(0, "bob", 1))

    @larger
    def test_nobody_is_woken_before_the_last_delivery_has_ended(self, unit: DrainUnit) -> None:
        dispatcher = subscription("bob", unit=unit)
        fill(dispatcher, "a1", "a2", "a3")
        dispatcher.add_consumer("ann")
        dispatcher.offer(3, "a4")

        assert [advanced(0)] == dispatcher.ack(0, "bob", 1)
        assert [] == dispatcher.ack(2, "bob", 1)
        assert [deliver(3, "a4", "ann"), advanced(2)] == dispatcher.ack(1, "bob", 1)

    @larger
    def test_any_end_of_the_last_delivery_wakes(self, unit: DrainUnit) -> None:
        def drained(**config: Any) -> Watched:  # as DispatcherConfig
            dispatcher = subscription("bob", unit=unit, **config)
            fill(dispatcher, "a1")
            dispatcher.add_consumer("ann", limit=1)
            dispatcher.offer(1, "a2")
            return dispatcher

        assert [(1, "ann")] == delivered(drained().nack(0, "bob", 1))
        assert [(1, "ann")] == delivered(drained(retry=NEVER, poison=Poison.BLOCK).reject(0, "bob", 1))
        assert [(0, "ann")] == delivered(drained().release(0, "bob", 1))
        assert [(1, "ann")] == delivered(drained(ack_timeout_ms=5).handle_timeout(now_ms=5))
        assert [(0, "ann")] == delivered(drained().remove_consumer("bob"))
        assert [(0, "ann")] == delivered(drained().set_active("bob"))
        evicting = drained(inactive_grace_ms=5)
        evicting.set_inactive("bob")
        assert [(0, "ann")] == delivered(evicting.handle_timeout(now_ms=5))
        leaving = drained()
        leaving.remove_consumer("bob", drain_ms=5)
        assert [(0, "ann")] == delivered(leaving.handle_timeout(now_ms=5))
        late = drained(retry=RetryPolicy(base_delay_ms=0))
        late.gone(0)
        assert [(1, "ann")] == delivered(late.release(0, "bob", 1))

    @larger
    def test_a_unit_at_the_owner_itself_waits_for_nobody(self, unit: DrainUnit) -> None:
        dispatcher = subscription("bob", "ann", unit=unit)
        assert [deliver(0, "a1", "ann"), deliver(1, "a2", "ann")] == fill(dispatcher, "a1", "a2")
        assert [deliver(2, "a1", "ann"), advanced(0)] == [
            *fill(dispatcher, "a1", start=2),
            *dispatcher.ack(0, "ann", 1),
        ]

    def test_what_was_spilled_is_loaded_when_its_run_is_free(self) -> None:
        dispatcher = subscription("bob", window=8, max_loaded_per_key=1, unit=DrainUnit.RANGE)
        fill(dispatcher, "a1")
        dispatcher.add_consumer("ann", limit=1)
        fill(dispatcher, "a2", "a2", start=1)
        assert [deliver(1, "a2", "ann"), advanced(0)] == dispatcher.ack(0, "bob", 1)
        dispatcher.ack(1, "ann", 1)
        dispatcher.remove_consumer("bob")
        assert [deliver(2, "a2", "ann", item="again")] == dispatcher.loaded(2, "again")

    def test_a_payload_that_arrives_while_its_run_drains_waits(self) -> None:
        dispatcher = subscription(
            "bob", window=8, max_in_flight_per_consumer=1, max_loaded_per_key=1, unit=DrainUnit.RANGE
        )
        fill(dispatcher, "b1", "b2", "b2")
        dispatcher.gone(1)  # 2 is being loaded, without a reservation
        dispatcher.add_consumer("cat")
        dispatcher.remove_consumer("bob", drain_ms=None)
        assert [] == dispatcher.loaded(2, "again")
        assert FOR_BOB == dispatcher.why_blocked(2)
        assert [deliver(2, "b2", "cat", item="again"), advanced(1)] == dispatcher.ack(0, "bob", 1)


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
    def test_a_quarantine_that_begins_while_the_slot_drains_ends_the_wait(self, unit: DrainUnit) -> None:
        dispatcher = subscription("bob", max_in_flight_per_key=2, retry=NEVER, quarantine=True, unit=unit)
        fill(dispatcher, "a1", "a1", "a2")
        dispatcher.add_consumer("ann")
        fill(dispatcher, "a1", start=3)

        assert [] == then(dispatcher.reject(0, "bob", 1))
        assert Blocking(BlockReason.QUARANTINED, "bob") == dispatcher.why_blocked(0)
        assert [DeadLetter(0, b"a1", 1, 1, None)] == dispatcher.ack(1, "bob", 1)

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

    @larger
    def test_an_inactive_owner_keeps_its_units(self, unit: DrainUnit) -> None:
        dispatcher = subscription("ann", "bob", unit=unit, inactive_grace_ms=10)
        fill(dispatcher, "a1")
        dispatcher.set_inactive("ann")

        assert [] == dispatcher.offer(1, "a2")
        assert Blocking(BlockReason.CONSUMER_INACTIVE, "ann") == dispatcher.why_blocked(1)
        assert [
            Evicted("ann"),
            Released(0, "ann", 1, ReleaseReason.EVICTED, 1, 10),
            deliver(0, "a1", "bob", 2, failures=1),
            deliver(1, "a2", "bob"),
        ] == dispatcher.handle_timeout(now_ms=10)

    def test_another_hash_puts_every_delivery_into_its_new_slot(self) -> None:
        dispatcher = subscription("bob", "ann", unit=DrainUnit.HASH)
        fill(dispatcher, "b1", "b2")
        dispatcher.set_placement(LastByte({"bob": 1, "ann": 2}))

        assert "ann" == dispatcher.owner("x2")
        assert [deliver(2, "x1", "bob")] == dispatcher.offer(2, "x1")
        assert [] == dispatcher.offer(3, "x2")
        assert FOR_BOB == dispatcher.why_blocked(3)
        assert [deliver(3, "x2", "ann")] == dispatcher.ack(1, "bob", 1)


def _last_byte(data: bytes) -> int:
    return data[-1] % 4


class LastByte:
    """A placement of four slots: who has which."""

    def __init__(self, slots: dict[str, int]) -> None:
        self.slots = slots
        owners = {slot: name for name, slot in slots.items()}
        key_hash = KeyHash("last byte", 2, _last_byte)
        self.ranges = RangeMap.from_stops(
            [1, 2, 3, 4], [owners.get(slot) for slot in range(4)], key_hash=key_hash, slot_bits=2
        )

    @property
    def consumers(self) -> tuple[str, ...]:
        return tuple(self.slots)

    def add(self, name: str, *, weight: object = 1) -> list[Any]:
        raise NotImplementedError

    def remove(self, name: str) -> list[Any]:
        raise NotImplementedError

    def set_weight(self, name: str, weight: object) -> list[Any]:
        raise NotImplementedError

    def copy(self) -> "LastByte":
        return LastByte(self.slots)


class TestDrainTimeout:
    @larger
    def test_it_ends_what_the_previous_owner_holds_of_the_whole_unit(self, unit: DrainUnit) -> None:
        dispatcher = subscription("bob", unit=unit, drain_timeout_ms=100)
        fill(dispatcher, "a1", "b1", "a2")
        dispatcher.add_consumer("ann", now_ms=10)
        dispatcher.offer(3, "a3", now_ms=20)

        assert 120 == dispatcher.next_deadline_ms()
        drain = ReleaseReason.DRAIN_TIMEOUT
        assert [
            Released(0, "bob", 1, drain, 0, 120),
            Released(2, "bob", 1, drain, 0, 120),
            deliver(0, "a1", "ann", 2),
            deliver(2, "a2", "ann", 2),
            deliver(3, "a3", "ann"),
        ] == dispatcher.handle_timeout(now_ms=120)

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

    def test_what_the_owner_itself_holds_of_the_run_stays(self) -> None:
        dispatcher = subscription("bob", "cat", unit=DrainUnit.RANGE, drain_timeout_ms=100)
        fill(dispatcher, "c1", "b1", "b2")
        dispatcher.remove_consumer("bob", drain_ms=None, now_ms=0)
        dispatcher.offer(3, "c2", now_ms=0)

        released = [effect for effect in dispatcher.handle_timeout(now_ms=100) if isinstance(effect, Released)]
        assert [(1, "bob"), (2, "bob")] == [(effect.offset, effect.consumer) for effect in released]
        assert ["c1", "b1", "b2", "c2"] == [_text(effect) for effect in dispatcher.in_flight("cat")]

    @larger
    def test_a_placement_change_starts_it_for_what_waits_behind_its_own_key(self, unit: DrainUnit) -> None:
        dispatcher = subscription("bob", unit=unit, drain_timeout_ms=100, ack_timeout_ms=None)
        fill(dispatcher, "a1", "a1")
        dispatcher.add_consumer("ann", now_ms=10)

        assert 110 == dispatcher.next_deadline_ms()

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


def _text(effect: Deliver) -> str:
    return (effect.key or b"").decode()


class TestSnapshots:
    @larger
    def test_counters_and_waiting_lanes_are_rebuilt(self, unit: DrainUnit) -> None:
        dispatcher = subscription("bob", unit=unit, drain_timeout_ms=100)
        fill(dispatcher, "a1", "a2", None)
        dispatcher.add_consumer("ann")
        dispatcher.offer(3, "a3")
        state = json.loads(json.dumps(dispatcher.snapshot()))
        again = Watched.restore(state, AlphabetRing(), dispatcher.config, now_ms=0)

        assert FOR_BOB == again.why_blocked(3)
        assert dispatcher.next_deadline_ms() == again.next_deadline_ms() == 100
        for twin in (dispatcher, again):
            assert [advanced(0)] == twin.ack(0, "bob", 1)
            assert [deliver(3, "a3", "ann"), advanced(1)] == twin.ack(1, "bob", 1)

    @pytest.mark.parametrize("unit", DrainUnit)
    def test_one_of_another_unit_is_refused(self, unit: DrainUnit) -> None:
        # Lanes that wait for a slot would wait for ever where nobody counts slots.
        state = subscription("bob", unit=unit).snapshot()
        other = DrainUnit.HASH if unit is DrainUnit.KEY else DrainUnit.KEY
        config = subscription(unit=other).config
        with pytest.raises(SnapshotError, match=f"be {other.value!r}, the drain unit of the configuration"):
            Watched.restore(state, AlphabetRing(), config, now_ms=0)
