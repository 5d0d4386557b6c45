"""Pulsar's Key_Shared replay rules and the schedules of its KeySharedSubscriptionTest, by key and by hash.

Tests of selectors, of the wire format and of switches that do not exist here have no counterpart.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from random import Random

import pytest

from keyshared._core.records import Lane
from keyshared._core.window import Window
from keyshared.config import DispatcherConfig, DrainUnit
from keyshared.dispatcher import KeySharedDispatcher
from keyshared.effects import BlockReason, Deliver, Effect, Load
from keyshared.placement.assigned import ExclusiveRanges
from keyshared.ring import HashRing

per_unit = pytest.mark.parametrize("unit", [DrainUnit.KEY, DrainUnit.HASH])


class Broker:
    """A log, its reader and the consumers' inboxes around a dispatcher whose ring has few slots, so that keys share."""

    def __init__(self, unit: DrainUnit, *consumers: str, limit: int | None = None, **config: object) -> None:
        fields = {"ack_timeout_ms": None, **config}
        self.dispatcher = KeySharedDispatcher(HashRing(slot_bits=6), DispatcherConfig(unit=unit, **fields))  # type: ignore[arg-type]
        self.log: list[bytes] = []
        self.position = 0  # the next offset to read
        self.reads = self.loads = 0
        self.inboxes: dict[str, list[Deliver]] = defaultdict(list)
        self.history: list[Deliver] = []
        for name in consumers:
            self.join(name, limit)

    def publish(self, keys: Iterable[bytes]) -> None:
        """Append messages, and read on."""
        self.log.extend(keys)
        self.read_on()

    def publish_later(self, key: bytes, *, not_before_ms: int) -> None:
        """Append a message that is to wait, and read it."""
        self.log.append(key)
        self.position += 1
        self.apply(self.dispatcher.offer(self.position - 1, key, not_before_ms=not_before_ms))

    def read_on(self) -> None:
        """Read while the dispatcher takes messages."""
        while self.position < len(self.log) and self.dispatcher.free_slots:
            self.reads += 1
            self.position += 1
            self.apply(self.dispatcher.offer(self.position - 1, self.log[self.position - 1]))

    def apply(self, effects: Sequence[Effect]) -> None:
        """Do what is asked for."""
        for effect in effects:
            if isinstance(effect, Deliver):
                self.inboxes[effect.consumer].append(effect)
                self.history.append(effect)
            elif isinstance(effect, Load):
                self.loads += 1
                self.apply(self.dispatcher.loaded(effect.offset))

    def join(self, name: str, limit: int | None = None) -> None:
        """Connect."""
        self.apply(self.dispatcher.add_consumer(name, limit=limit))

    def leave(self, name: str) -> None:
        """Disconnect; what was held is sent to others."""
        self.inboxes[name].clear()
        self.apply(self.dispatcher.remove_consumer(name))
        self.read_on()

    def ack(self, name: str, count: int | None = None) -> None:
        """Acknowledge the oldest deliveries of an inbox."""
        mine = self.inboxes[name]
        batch, mine[:] = mine[:count], mine[len(mine[:count]) :]
        for delivery in batch:
            self.apply(self.dispatcher.ack(*delivery.receipt))
        self.read_on()

    def offsets(self, name: str) -> list[int]:
        """What is in an inbox."""
        return [delivery.offset for delivery in self.inboxes[name]]

    def finish(self, *names: str) -> None:
        """Acknowledge all, until nothing comes any more."""
        while any(self.inboxes[name] for name in names):
            for name in names:
                self.ack(name)

    def assert_all_in_order(self) -> None:
        """Everything was delivered, and no key ever went back except to repeat what was sent before."""
        assert set(range(len(self.log))) == {delivery.offset for delivery in self.history}
        seen: dict[bytes | None, set[int]] = defaultdict(set)
        for delivery in self.history:
            newer = [offset for offset in seen[delivery.key] if offset > delivery.offset]
            assert not newer or delivery.attempt > 1, f"{delivery} comes for the first time after {newer}"
            seen[delivery.key].add(delivery.offset)
        self.dispatcher.check_invariants()


def keys_of(broker: Broker, owner: str, count: int, *, of: str = "key") -> list[bytes]:
    """So many keys that belong to a consumer."""
    keys = (f"{of}-{number}".encode() for number in range(100_000))
    mine = (key for key in keys if broker.dispatcher.owner(key) == owner)
    return [next(mine) for _ in range(count)]


def twins(broker: Broker, owner: str) -> tuple[bytes, bytes]:
    """Two keys of a consumer that are in one slot."""
    ranges = HashRing([owner], slot_bits=6).ranges
    first, *others = keys_of(broker, owner, 200)
    return first, next(key for key in others if ranges.slot_of(key) == ranges.slot_of(first))


def spread(count: int, keys: int, seed: int = 1) -> list[bytes]:
    """A log of so many messages over so many keys."""
    choose = Random(seed).randrange  # reproducible, not secret
    return [b"key-%d" % choose(keys) for _ in range(count)]


class TestUpstreamSchedules:
    """KeySharedSubscriptionTest, one by one."""

    @per_unit
    @pytest.mark.parametrize("limit", [10, 1_000], ids=["queue of 10", "queue of 1,000"])
    def test_ordering_when_consumers_are_added_and_the_first_is_removed(self, unit: DrainUnit, limit: int) -> None:
        broker = Broker(unit, "c1", limit=limit, max_in_flight_per_key=2)
        keys = [b"key-%d" % number for number in range(10)]
        broker.publish(keys)
        assert list(range(10)) == broker.offsets("c1")
        broker.join("c2", 1_000)
        broker.publish(keys)
        assert [] == broker.offsets("c2")
        broker.leave("c1")
        assert list(range(20)) == broker.offsets("c2")

    @per_unit
    def test_a_consumer_stuck_on_one_key_stops_nobody_else(self, unit: DrainUnit) -> None:
        names = [f"c{number}" for number in range(10)]
        broker = Broker(unit, *names)
        stuck = keys_of(broker, "c0", 1)[0]
        broker.publish([stuck])
        log = [key for key in spread(1_000, 200) if broker.dispatcher.owner(key) != "c0"]
        broker.publish([key for pair in zip(log, [stuck] * len(log), strict=True) for key in pair])
        broker.finish(*names[1:])
        arrived = [delivery.key for delivery in broker.history if delivery.consumer != "c0"]
        assert sorted(log) == sorted(key for key in arrived if key is not None)
        assert [0] == broker.offsets("c0")
        broker.finish(*names)
        broker.assert_all_in_order()

    @per_unit
    def test_what_expires_is_not_delivered_to_those_who_join_and_everybody_goes_on(self, unit: DrainUnit) -> None:
        # Upstream acks what expired for whoever holds it. Here a delivery that is open stays so until it ends.
        broker = Broker(unit, "c1", ack_timeout_ms=100)
        keys = [b"key-%d" % number for number in range(50)]
        broker.publish(keys)
        broker.join("c2")
        broker.join("c3")
        broker.publish(keys)
        assert ([], []) == (broker.offsets("c2"), broker.offsets("c3"))
        broker.inboxes["c1"].clear()
        broker.apply(broker.dispatcher.truncate(50))
        broker.apply(broker.dispatcher.handle_timeout(now_ms=100))
        assert list(range(50, 100)) == sorted(o for name in ("c1", "c2", "c3") for o in broker.offsets(name))
        assert all(broker.offsets(name) for name in ("c2", "c3"))
        broker.finish("c1", "c2", "c3")
        assert 99 == broker.dispatcher.safe_cursor

    @per_unit
    def test_what_is_published_with_a_delay_stops_nothing_but_its_key_and_comes_when_it_is_due(
        self, unit: DrainUnit
    ) -> None:
        names = ("c1", "c2", "c3")
        broker = Broker(unit, *names, limit=1)
        later, now = [b"later-%d" % number for number in range(50)], [b"now-%d" % number for number in range(50)]
        for key in later:
            broker.publish_later(key, not_before_ms=10_000)
        broker.publish(now)
        broker.finish(*names)
        assert [*range(50, 100)] == sorted(delivery.offset for delivery in broker.history)
        broker.apply(broker.dispatcher.handle_timeout(now_ms=9_999))
        assert 50 == len(broker.history)
        broker.apply(broker.dispatcher.handle_timeout(now_ms=10_000))
        broker.finish(*names)
        broker.assert_all_in_order()
        assert 99 == broker.dispatcher.safe_cursor

    @pytest.mark.no_cover
    @per_unit
    def test_a_rolling_restart_loses_nothing_and_keeps_the_order_of_every_key(self, unit: DrainUnit) -> None:
        names = ("c1", "c2", "c3")
        broker = Broker(unit, *names, limit=100)
        log = spread(2_000, 1_000)
        for part in range(20):
            broker.publish(log[100 * part : 100 * part + 100])
            restarted = names[part % 3]
            for name in names:
                broker.ack(name, 25)
            broker.leave(restarted)
            broker.join(restarted, 100)
        broker.finish(*names)
        broker.assert_all_in_order()
        assert 1_999 == broker.dispatcher.safe_cursor

    @per_unit
    def test_when_two_crash_the_third_takes_everything(self, unit: DrainUnit) -> None:
        broker = Broker(unit, "c1", "c2", "c3")
        broker.publish(spread(300, 60))
        broker.leave("c1")
        broker.leave("c2")
        broker.finish("c3")
        broker.assert_all_in_order()

    @per_unit
    def test_one_who_joined_and_acks_nothing_does_not_stop_the_one_who_acks(self, unit: DrainUnit) -> None:
        broker = Broker(unit, "c1", limit=100)
        log = spread(2_000, 400)
        broker.publish(log[:50])
        broker.join("stuck", 20)
        broker.publish(log[50:])
        while broker.offsets("c1"):
            broker.ack("c1")
        mine = [offset for offset, key in enumerate(log) if broker.dispatcher.owner(key) == "c1"]
        kept = {offset for offset in mine if offset not in {delivery.offset for delivery in broker.history}}
        assert set() == kept
        broker.finish("c1", "stuck")
        broker.assert_all_in_order()

    @per_unit
    def test_a_placement_set_while_nobody_is_connected_holds_for_whoever_joins(self, unit: DrainUnit) -> None:
        # Upstream: the selector is made anew for the first consumer after the last one has left, of another mode.
        broker = Broker(unit, "c1", "c2")
        log = spread(40, 10)
        broker.publish(log)
        broker.ack("c1", 3)
        broker.leave("c1")
        broker.leave("c2")
        halves = ExclusiveRanges({"c1": [(0, 32)], "c3": [(32, 64)]}, slot_bits=6)
        broker.apply(broker.dispatcher.set_placement(halves))
        broker.publish(spread(20, 10, seed=2))
        assert not any(broker.inboxes.values())
        before = len(broker.history)
        broker.join("c1")
        broker.join("c3")
        broker.finish("c1", "c3")
        broker.assert_all_in_order()
        again = broker.history[before:]
        assert {"c1", "c3"} == {delivery.consumer for delivery in again}
        assert [halves.owner(delivery.key or b"") for delivery in again] == [delivery.consumer for delivery in again]

    @per_unit
    def test_nothing_is_read_again_and_again(self, unit: DrainUnit) -> None:
        # Upstream bounds its replay reads by twice the messages; here a message is read once, and loaded once at most.
        broker = Broker(unit, "c1", "c2", limit=10, window=100, max_loaded_per_key=5)
        broker.publish(spread(1_000, 50))
        broker.join("c3", 10)
        broker.finish("c1", "c2", "c3")
        broker.assert_all_in_order()
        assert 1_000 == broker.reads == len(broker.history)
        assert 0 < broker.loads <= 1_000

    @per_unit
    def test_the_reader_stays_within_the_look_ahead_limit(self, unit: DrainUnit) -> None:
        broker = Broker(unit, "c1", "c2", limit=3, window=20, max_tracked=50)
        log = spread(2_000, 100)
        broker.publish(log)
        assert 50 == broker.position
        while broker.offsets("c2"):  # c1 is paused
            broker.ack("c2", 5)
            assert broker.dispatcher.stats().outstanding <= 50
            assert broker.dispatcher.stats().loaded <= 20
        broker.finish("c1", "c2")
        broker.assert_all_in_order()


class TestReplayRules:
    """What Pulsar's replay queue has to see to: here a lane keeps its place, and there is nothing to replay."""

    @per_unit
    @pytest.mark.parametrize("ack_before", range(5))
    def test_a_hash_that_was_refused_once_in_a_pass_is_not_overtaken_by_a_later_message(
        self, unit: DrainUnit, ack_before: int
    ) -> None:
        # Pulsar 23870: the ack in the middle of a pass freed the hash for the later message, not for the earlier one.
        broker = Broker(unit, "c1")
        broker.join("c2")
        key, twin = twins(broker, "c2")
        broker.dispatcher.remove_consumer("c2")
        broker.publish([key])
        broker.join("c2")
        for number, later in enumerate((key, twin, twin, key)):
            if number == ack_before:
                broker.ack("c1")
            broker.publish([later])
        broker.finish("c1", "c2")
        broker.assert_all_in_order()
        own = [delivery.offset for delivery in broker.history if delivery.key == twin]
        assert [2, 3] == own

    @per_unit
    def test_a_disconnect_keeps_the_order_of_a_hash(self, unit: DrainUnit) -> None:
        broker = Broker(unit, "c1")
        key, twin = twins(broker, "c1")
        broker.publish([key, twin, key, twin])
        broker.leave("c1")
        broker.publish([key])
        broker.join("c2")
        assert [0, 1] == broker.offsets("c2")
        broker.finish("c2")
        broker.assert_all_in_order()

    @per_unit
    def test_a_nack_holds_its_key_and_only_that(self, unit: DrainUnit) -> None:
        # Pulsar's lets newer messages of the key pass (issue 23480).
        broker = Broker(unit, "c1")
        key, twin = twins(broker, "c1")
        broker.publish([key, key, twin])
        assert [0, 2] == broker.offsets("c1")
        broker.apply(broker.dispatcher.nack(*broker.inboxes["c1"].pop(0).receipt, delay_ms=5_000))
        assert [2] == broker.offsets("c1")
        assert BlockReason.OLDER_WAITS == getattr(broker.dispatcher.why_blocked(1), "reason", None)
        broker.apply(broker.dispatcher.handle_timeout(now_ms=5_000))
        assert [2, 0] == broker.offsets("c1")

    @per_unit
    def test_a_nacked_message_goes_to_whoever_owns_its_hash_by_then_and_not_before_the_rest_has_ended(
        self, unit: DrainUnit
    ) -> None:
        broker = Broker(unit, "c1")
        broker.join("c2")
        key, twin = twins(broker, "c2")
        broker.dispatcher.remove_consumer("c2")
        broker.publish([key, twin])
        broker.join("c2")
        broker.apply(broker.dispatcher.nack(*broker.inboxes["c1"].pop(0).receipt, delay_ms=5_000))
        broker.apply(broker.dispatcher.handle_timeout(now_ms=5_000))
        assert ([0] if unit is DrainUnit.KEY else []) == broker.offsets("c2")
        broker.ack("c1")
        assert [0] == broker.offsets("c2")

    @per_unit
    def test_a_stalled_consumer_does_not_use_up_what_all_share(self, unit: DrainUnit) -> None:
        # PIP-474: messages of a consumer without permits filled the replay queue. Here they lose their payload only.
        broker = Broker(unit, "stalled", "busy", limit=5, window=40)
        stalled, busy = keys_of(broker, "stalled", 20), keys_of(broker, "busy", 20)
        for _ in range(50):
            broker.publish([*stalled, *busy])
            broker.finish("busy")
        assert 5 == len(broker.offsets("stalled"))
        delivered_to_busy = sum(delivery.consumer == "busy" for delivery in broker.history)
        assert 50 * 20 == delivered_to_busy
        assert broker.dispatcher.stats().spilled >= 50 * 20 - 40
        broker.finish("stalled")
        broker.assert_all_in_order()

    @per_unit
    def test_a_blocked_head_is_looked_past_at_once(self, unit: DrainUnit) -> None:
        # Pulsar skips one replay attempt to get there (9.4); a lane that waits is in nobody's way.
        broker = Broker(unit, "c1")
        broker.join("c2")
        key, _ = twins(broker, "c2")
        (free,) = keys_of(broker, "c2", 1, of="free")
        broker.dispatcher.remove_consumer("c2")
        broker.publish([key])
        broker.join("c2")
        broker.publish([key] * 100)
        assert [] == broker.offsets("c2")
        broker.publish([free])
        assert [101] == broker.offsets("c2")

    @pytest.mark.interpreted("watches a private method")
    def test_the_end_of_a_hash_looks_at_exactly_the_keys_that_wait_for_it(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        looked: list[bytes | None] = []
        look = Window.look

        def watched(self: Window, lane: Lane) -> bool:
            looked.append(lane.key)
            return look(self, lane)

        broker = Broker(DrainUnit.HASH, "c1")
        ring = HashRing(["c1", "c2"], slot_bits=6).ranges
        moving = [key for key in (b"key-%d" % number for number in range(2_000)) if ring.owner_of(key) == "c2"]
        slots = sorted({ring.slot_of(key) for key in moving})
        heads = [next(key for key in moving if ring.slot_of(key) == slot) for slot in slots]
        waiting = [key for key in moving if key not in heads]
        broker.publish(heads)
        broker.join("c2")
        broker.publish(waiting)
        assert len(waiting) == broker.dispatcher.stats().draining_keys > 500

        monkeypatch.setattr(Window, "look", watched)
        for number, slot in enumerate(slots):
            looked.clear()
            broker.apply(broker.dispatcher.ack(number, "c1", 1))
            assert [key for key in waiting if ring.slot_of(key) == slot] == looked
        assert 0 == broker.dispatcher.stats().draining_keys
