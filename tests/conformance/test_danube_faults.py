"""What must not happen: faults of Danube v0.15.1, each as the schedule that shows it there.

Every comment says what the original does. Cost is counted in executed bytecodes, never in time.
"""

import gc
from collections.abc import Callable
from typing import Any

import pytest
from tests.alphabet import advanced, deliver, delivered, fill, subscription, then
from tests.steps import steps_of

from keyshared.config import DispatcherConfig, Poison, RetryPolicy, Unmatched
from keyshared.dispatcher import Blocking, KeySharedDispatcher
from keyshared.effects import (
    Blocked,
    BlockReason,
    Call,
    DeadLetter,
    Dropped,
    DropReason,
    Evicted,
    Ignored,
    IgnoredReason,
    Load,
    Released,
    ReleaseReason,
    Resumed,
    Skipped,
    SkipReason,
    Spilled,
)
from keyshared.hashing import KeyHash, fnv64
from keyshared.ring import HashRing
from keyshared.router import KeyRouter
from keyshared.window import Entry

AT_ONCE = RetryPolicy(base_delay_ms=0)
NO_RETRY = RetryPolicy(max_redeliveries=0)


def plain(*consumers: str, placement: HashRing | None = None, **config: Any) -> KeySharedDispatcher:
    """A dispatcher that is not looked over after each call, since that is what is counted."""
    dispatcher = KeySharedDispatcher(placement or HashRing(), DispatcherConfig(**config))
    for name in consumers:
        dispatcher.add_consumer(name)
    return dispatcher


class TestCost:
    """Nothing costs more because more is waiting, in flight or connected."""

    @staticmethod
    def does_not_grow(cost_at: Callable[[int], int], small: int = 40, factor: int = 10, slack: float = 1.5) -> None:
        few, many = cost_at(small), cost_at(small * factor)
        assert 20 < few
        assert many <= slack * few, f"{few} steps for {small}, {many} for {small * factor}"

    def test_an_ack_does_not_search_through_what_waits(self) -> None:
        # take_unblocked compares every blocked message's key until one is free, and all of them to find none.
        def cost(waiting: int) -> int:
            dispatcher = plain("c1", window=10_000)
            for offset in range(10 * waiting):
                dispatcher.offer(offset, f"hot-{offset % 10}")
            return steps_of(lambda: [dispatcher.ack(offset, "c1", 1) for offset in range(10)])

        self.does_not_grow(cost)

    def test_giving_up_a_message_does_not_search_for_its_key(self) -> None:
        # drain_blocked_for_key scans the whole queue and shifts its rest for each message of the key.
        def cost(waiting: int) -> int:
            dispatcher = plain("c1", window=10_000, poison=Poison.DROP)
            for offset in range(waiting):
                dispatcher.offer(offset, f"hot-{offset % 2}")
            return steps_of(lambda: dispatcher.reject(0, "c1", 1))

        self.does_not_grow(cost)

    def test_one_consumer_with_filters_among_many_does_not_make_a_lookup_walk_them_all(self) -> None:
        # With a filter anywhere, the original copies the ring point by point for every message.
        def cost(consumers: int) -> int:
            dispatcher = plain(*[f"c{number}" for number in range(consumers)])
            dispatcher.set_filters("c0", ["vip-*"])
            return steps_of(lambda: [dispatcher.owner(f"key-{number}") for number in range(20)])

        self.does_not_grow(cost, small=10)

    def test_a_join_or_a_leave_hashes_the_points_of_one_consumer_only(self) -> None:
        # rebuild_ring formats, hashes and sorts every point of everybody at every join and leave.
        hashed: list[bytes] = []

        def counted(data: bytes) -> int:
            hashed.append(data)
            return fnv64(data)

        ring = HashRing([f"c{number}" for number in range(50)], key_hash=KeyHash("counted", 64, counted))
        dispatcher = KeySharedDispatcher(ring)
        del hashed[:]
        dispatcher.add_consumer("new")
        assert 100 == len(hashed)
        dispatcher.remove_consumer("new")
        assert 200 == len(hashed)  # its points again, and nobody else's

    @pytest.mark.interpreted("counts steps of the interpreter")
    def test_looking_at_the_clock_when_nothing_is_due_looks_at_nothing_else(self) -> None:
        # Every heartbeat scans everything in flight four to six times.
        def cost(in_flight: int) -> int:
            dispatcher = plain("c1")
            for offset in range(in_flight):
                dispatcher.offer(offset, f"key-{offset}")
            return steps_of(lambda: (dispatcher.handle_timeout(now_ms=29_999), dispatcher.next_deadline_ms()))

        self.does_not_grow(cost)

    def test_an_eviction_visits_what_the_leaver_held_and_not_what_the_others_hold(self) -> None:
        def cost(held_by_others: int) -> int:
            dispatcher = plain(placement=HashRing(), max_in_flight_per_consumer=5_000)
            dispatcher.add_consumer("other", filters=["o*"])
            dispatcher.add_consumer("leaver", filters=["l*"])
            fill(dispatcher, "l1", "l2", *[f"o{number}" for number in range(held_by_others)])
            return steps_of(lambda: dispatcher.remove_consumer("leaver"))

        self.does_not_grow(cost)

    def test_acks_above_a_hole_are_not_kept_one_by_one(self) -> None:
        # With a window of 10, one stuck message lets the set of acked offsets grow to 100,000 and beyond.
        dispatcher = plain("c1", window=10)
        dispatcher.offer(0, "stuck")
        for offset in range(1, 2_001):
            dispatcher.offer(offset, "busy")
            dispatcher.ack(offset, "c1", 1)

        assert [(1, 2_001)] == dispatcher.acked_ranges()
        assert len([each for each in gc.get_objects() if isinstance(each, Entry) and each.key == b"busy"]) < 200

    def test_a_payload_is_handed_on_and_never_copied(self) -> None:
        # A message's strings and map are cloned for every send, its key three times.
        dispatcher = plain("c1", retry=AT_ONCE)
        payload = object()

        [first] = delivered_items(dispatcher.offer(0, "k", payload))
        [second] = delivered_items(then(dispatcher.nack(0, "c1", 1)))
        assert (first is payload, second is payload) == (True, True)


def delivered_items(effects: list[Any]) -> list[object]:
    return [effect.item for effect in effects]


class TestOrder:
    """A message of a key is never overtaken by a newer one of it."""

    def test_a_message_whose_turn_came_while_its_consumer_was_away_keeps_its_place(self) -> None:
        # What cannot be sent now is pushed to the tail of the queue, behind newer messages of its key.
        dispatcher = subscription("ann", inactive_grace_ms=None)
        fill(dispatcher, "a1", "a1", "a1")
        dispatcher.set_inactive("ann")
        assert [advanced(0)] == dispatcher.ack(0, "ann", 1)

        assert [deliver(1, "a1", "ann")] == dispatcher.set_active("ann")
        assert [deliver(2, "a1", "ann"), advanced(1)] == dispatcher.ack(1, "ann", 1)

    def test_a_put_back_message_is_not_overtaken_by_a_newer_one_of_its_key(self) -> None:
        # Likewise where a delivery is taken back because its consumer left.
        dispatcher = subscription("ann")
        fill(dispatcher, "a1", "a1")
        dispatcher.remove_consumer("ann")

        assert [deliver(0, "a1", "bob", 2)] == dispatcher.add_consumer("bob")
        assert [] == dispatcher.offer(2, "a1")
        assert [deliver(1, "a1", "bob"), advanced(0)] == dispatcher.ack(0, "bob", 2)

    def test_a_message_that_waits_for_an_absent_consumer_holds_its_key_when_somebody_else_joins(self) -> None:
        # Only a message in flight locks its key, so a newer one goes first, to the newcomer.
        dispatcher = subscription("bob")
        dispatcher.set_inactive("bob")
        fill(dispatcher, "a1")

        assert [deliver(0, "a1", "ann")] == dispatcher.add_consumer("ann")
        assert [] == dispatcher.offer(1, "a1")
        assert [deliver(1, "a1", "ann"), advanced(0)] == dispatcher.ack(0, "ann", 1)

    def test_a_message_that_waits_for_room_holds_its_key_when_there_is_room_again(self) -> None:
        # Room freed by poison handling drains nothing, and the next message read takes it.
        dispatcher = subscription("ann", max_in_flight_per_consumer=1, poison=Poison.DROP, retry=NO_RETRY)
        fill(dispatcher, "a1", "a2")

        dropped = Dropped(0, b"a1", DropReason.POISON)
        assert [dropped, deliver(1, "a2", "ann"), advanced(0)] == then(dispatcher.nack(0, "ann", 1))
        assert [] == dispatcher.offer(2, "a2")

    def test_between_a_reconnect_and_its_notice_nothing_newer_slips_through(self) -> None:
        # The channel's flag is set before the dispatcher hears of it, and messages read in between go first.
        dispatcher = subscription("ann", inactive_grace_ms=None)
        dispatcher.set_inactive("ann")
        fill(dispatcher, "a1", "a1")

        assert [deliver(0, "a1", "ann")] == dispatcher.set_active("ann", resumed=True)
        assert [deliver(1, "a1", "ann"), advanced(0)] == dispatcher.ack(0, "ann", 1)


class TestProgress:
    """What can go on goes on, in the call that made it possible."""

    def test_a_window_full_of_an_evicted_consumers_messages_moves_on(self) -> None:
        # Blocked messages are looked at when a key is freed; an eviction with nothing in flight frees none.
        dispatcher = subscription("ann", "bob", window=4)
        dispatcher.set_inactive("ann")
        fill(dispatcher, "a1", "a2", "a3")

        assert [
            Evicted("ann"),
            Load(2, b"a3"),
            deliver(0, "a1", "bob"),
            deliver(1, "a2", "bob"),
        ] == dispatcher.handle_timeout(now_ms=3_000)

    def test_a_join_is_a_reason_to_deliver(self) -> None:
        # Adding a consumer changes the ring and dispatches nothing.
        dispatcher = subscription()
        fill(dispatcher, "a1", "a2")

        assert [deliver(0, "a1", "ann"), deliver(1, "a2", "ann")] == dispatcher.add_consumer("ann")

    def test_timeouts_retries_and_evictions_do_not_wait_for_the_next_publish(self) -> None:
        # With nothing to read, the loop is parked in its read and nothing else happens.
        dispatcher = subscription("ann", "bob", ack_timeout_ms=1_000, inactive_grace_ms=2_500)
        fill(dispatcher, "a1")
        dispatcher.set_inactive("ann")

        seen = []
        while (due := dispatcher.next_deadline_ms()) is not None and due <= 2_500:
            seen.append((due, dispatcher.handle_timeout(now_ms=due)))
        timeout = Released(0, "ann", 1, ReleaseReason.ACK_TIMEOUT, 1, 2000)
        assert [
            (1_000, [timeout]),
            (2_000, []),
            (2_500, [Evicted("ann"), deliver(0, "a1", "bob", 2, failures=1)]),
        ] == seen

    def test_one_consumer_that_reads_nothing_does_not_stop_the_acks_of_the_others(self) -> None:
        # The fifth unread message parks the loop in its send.
        dispatcher = subscription("ann", "bob", max_in_flight_per_consumer=4)
        fill(dispatcher, *[f"a{number}" for number in range(8)], "b1", "b1")

        assert [deliver(9, "b1", "bob")] == dispatcher.ack(8, "bob", 1)
        assert [deliver(10, "b2", "bob")] == dispatcher.offer(10, "b2")

    def test_every_ack_brings_the_next_message_and_no_heartbeat_is_needed(self) -> None:
        # Acks do not read, a wake that finds the window full is lost, and a backlog drains by two a second.
        dispatcher = subscription("ann", window=2)
        offered, acked = 2, 0
        waiting = [offset for offset, _ in delivered(fill(dispatcher, "a0", "a1"))]
        while waiting and acked < 50:
            effects = dispatcher.ack(waiting.pop(0), "ann", 1)
            acked += 1
            assert Resumed(1) in effects
            waiting += [offset for offset, _ in delivered(dispatcher.offer(offered, f"a{offered}"))]
            offered += 1

        assert (50, 52) == (acked, offered)

    @pytest.mark.no_cover
    def test_everything_due_at_one_instant_is_delivered_in_one_call(self) -> None:
        # One message a tick.
        dispatcher = subscription("ann", max_in_flight_per_consumer=100)
        fill(dispatcher, *[f"a{number}" for number in range(100)])
        for offset in range(100):
            dispatcher.nack(offset, "ann", 1)

        assert 100 == len(dispatcher.handle_timeout(now_ms=1_000))

    def test_a_nack_without_delay_is_delivered_again_at_once(self) -> None:
        # It waits for a tick.
        dispatcher = subscription("ann", retry=AT_ONCE)
        fill(dispatcher, "a1")

        assert [deliver(0, "a1", "ann", 2, failures=1)] == then(dispatcher.nack(0, "ann", 1))

    def test_a_reconnect_gets_its_unacked_messages_at_once(self) -> None:
        # 29.5 seconds later, when their ack timeout is over.
        dispatcher = subscription("ann")
        fill(dispatcher, "a1")
        dispatcher.set_inactive("ann", now_ms=100)

        lost = Released(0, "ann", 1, ReleaseReason.SESSION_LOST, 1, 600)
        assert [lost, deliver(0, "a1", "ann", 2, failures=1)] == dispatcher.set_active("ann", now_ms=600)


class TestNoLoss:
    """Nothing is settled that nobody settled."""

    def test_eviction_loses_nothing_in_flight_or_waiting_for_its_retry(self) -> None:
        # Everything the consumer held counts as acked three seconds after its connection broke.
        dispatcher = subscription("ann", "bob", retry=RetryPolicy(base_delay_ms=5_000))
        fill(dispatcher, "a1", "a2")
        dispatcher.nack(1, "ann", 1)
        dispatcher.set_inactive("ann")

        assert [
            Evicted("ann"),
            Released(0, "ann", 1, ReleaseReason.EVICTED, 1, 3000),
            deliver(0, "a1", "bob", 2, failures=1),
        ] == dispatcher.handle_timeout(now_ms=3_000)
        assert [deliver(1, "a2", "bob", 2, failures=1)] == dispatcher.handle_timeout(now_ms=5_000)
        assert None is dispatcher.safe_cursor

    def test_eviction_does_not_settle_a_blocked_message(self) -> None:
        # It is among the entries of its last consumer, and goes with them.
        dispatcher = subscription("ann", "bob", poison=Poison.BLOCK)
        fill(dispatcher, "a1", "a1")
        dispatcher.reject(0, "ann", 1)
        dispatcher.set_inactive("ann")

        assert [Evicted("ann")] == dispatcher.handle_timeout(now_ms=3_000)
        assert Blocking(BlockReason.BLOCKED) == dispatcher.why_blocked(0)
        assert [deliver(0, "a1", "bob", 2)] == dispatcher.unblock("a1")

    @pytest.mark.parametrize("poison", [Poison.DROP, Poison.DEAD_LETTER])
    def test_poison_takes_the_poisoned_message_only_and_the_cursor_goes_on(self, poison: Poison) -> None:
        # What queues behind it is thrown away unacked, and the cursor stops there for good.
        dispatcher = subscription("ann", poison=poison, retry=NO_RETRY)
        fill(dispatcher, "a1", "a1", "a1")

        effects = dispatcher.nack(0, "ann", 1)
        if poison is Poison.DEAD_LETTER:
            assert [DeadLetter(0, b"a1", 1, 1, None)] == effects[1:]
            effects = dispatcher.dead_lettered(0)
        assert [deliver(1, "a1", "ann"), advanced(0)] == effects[-2:]
        assert [deliver(2, "a1", "ann"), advanced(1)] == dispatcher.ack(1, "ann", 1)
        assert [advanced(2)] == dispatcher.ack(2, "ann", 1)

    def test_a_message_that_was_read_is_tracked_even_if_nobody_may_have_it_now(self) -> None:
        # Out of tokens, the rate limiter drops the message it has just read and reads another.
        dispatcher = subscription("ann")
        dispatcher.set_limit("ann", 0)
        assert [] == fill(dispatcher, "a1", "a2")

        assert [deliver(0, "a1", "ann")] == dispatcher.set_limit("ann", 1)
        assert [deliver(1, "a2", "ann")] == dispatcher.set_limit("ann", 2)
        assert [advanced(1)] == dispatcher.ack_many([(0, "ann", 1), (1, "ann", 1)])

    def test_a_hole_in_the_offsets_freezes_nothing(self) -> None:
        # The cursor counts up by one.
        dispatcher = subscription("ann")
        dispatcher.offer_many([(0, "a1", None), (2, "a2", None)])

        assert [advanced(2)] == dispatcher.ack_many([(0, "ann", 1), (2, "ann", 1)])

    @pytest.mark.parametrize("away", ["inactive", "draining"])
    def test_messages_for_a_consumer_that_is_away_for_a_moment_are_not_skipped(self, away: str) -> None:
        # Nobody eligible at this instant means skipped for ever.
        dispatcher = subscription("bob")
        dispatcher.set_filters("bob", ["b*"])
        dispatcher.add_consumer("ann", filters=["a*"])
        fill(dispatcher, "a1")
        if away == "inactive":
            dispatcher.set_inactive("ann")
            assert [] == dispatcher.offer(1, "a2")
            assert [deliver(1, "a2", "ann")] == dispatcher.set_active("ann", resumed=True)
        else:
            dispatcher.remove_consumer("ann", drain_ms=None)
            assert [] == dispatcher.offer(1, "a2")
            assert deliver(1, "a2", "ann") in dispatcher.add_consumer("ann", filters=["a*"])

    def test_a_message_that_waits_is_not_skipped_because_its_turn_comes_at_a_bad_moment(self) -> None:
        # Draining the queue, the original skips what has no consumer just then.
        dispatcher = subscription("ann", "bob")
        dispatcher.set_filters("bob", ["b*"])
        fill(dispatcher, "a1", "a1")
        dispatcher.remove_consumer("ann", drain_ms=None)

        assert [advanced(0)] == dispatcher.ack(0, "ann", 1)
        assert Blocking(BlockReason.NO_CONSUMER) == dispatcher.why_blocked(1)

    def test_a_subscription_that_never_wrote_a_cursor_resumes_at_its_first_message(self) -> None:
        # Without a stored cursor it starts at the newest one, past everything unacked.
        dispatcher = subscription("ann", start=7)
        assert 7 == dispatcher.resume_offset
        dispatcher.offer(9, "a1")

        assert (None, 9) == (dispatcher.safe_cursor, dispatcher.resume_offset)


class TestIsolation:
    """One bad key or consumer does not stop the others."""

    def test_a_blocked_hot_key_does_not_fill_the_window(self) -> None:
        # What queues behind it uses up the one window, and then nothing moves at all.
        dispatcher = subscription("ann", window=10, max_loaded_per_key=3, poison=Poison.BLOCK)
        fill(dispatcher, "a1")
        dispatcher.reject(0, "ann", 1)
        effects = fill(dispatcher, *["a1"] * 50, start=1)

        assert [Spilled(offset) for offset in range(3, 51)] == effects
        assert 7 == dispatcher.free_slots
        assert [deliver(51, "a2", "ann")] == dispatcher.offer(51, "a2")

    def test_many_keys_of_a_stuck_consumer_do_not_fill_the_window(self) -> None:
        # The same, by capacity.
        dispatcher = subscription("ann", "bob", window=10, max_in_flight_per_consumer=2)
        fill(dispatcher, *[f"a{number}" for number in range(60)])

        assert dispatcher.free_slots > 2
        assert [deliver(60, "b1", "bob")] == dispatcher.offer(60, "b1")


class TestFence:
    """An answer is about the delivery that it names."""

    def test_an_ack_that_comes_while_a_retry_is_due_spares_the_retry(self) -> None:
        # It is refused, and the message delivered again.
        dispatcher = subscription("ann")
        fill(dispatcher, "a1")
        dispatcher.handle_timeout(now_ms=30_000)

        assert [advanced(0)] == dispatcher.ack(0, "ann", 1)

    def test_an_ack_of_the_previous_attempt_does_not_start_the_next_message(self) -> None:
        # It is taken for the new attempt, and the key is worked on twice at once.
        dispatcher = subscription("ann", retry=AT_ONCE)
        fill(dispatcher, "a1", "a1")
        dispatcher.handle_timeout(now_ms=30_000)

        noted = IgnoredReason.LATE_ACK_NOTED
        assert [Ignored(0, "ann", 1, Call.ACK, noted)] == dispatcher.ack(0, "ann", 1)
        assert Blocking(BlockReason.KEY_IN_FLIGHT, "ann") == dispatcher.why_blocked(1)
        assert [deliver(1, "a1", "ann"), advanced(0)] == dispatcher.ack(0, "ann", 2)

    def test_an_ack_of_somebody_else_is_none(self) -> None:
        # Neither consumer nor attempt are checked.
        dispatcher = subscription("ann", "bob")
        fill(dispatcher, "a1")

        assert [Ignored(0, "bob", 1, Call.ACK, IgnoredReason.NOT_HOLDER)] == dispatcher.ack(0, "bob", 1)
        assert None is dispatcher.safe_cursor

    def test_a_nack_of_the_previous_attempt_costs_nothing(self) -> None:
        # It uses up the new attempt's retries, and a nack of a waiting message pushes its retry out.
        dispatcher = subscription("ann", retry=RetryPolicy(max_redeliveries=1, base_delay_ms=0))
        fill(dispatcher, "a1")
        dispatcher.nack(0, "ann", 1)

        stale = IgnoredReason.STALE_ATTEMPT
        assert [Ignored(0, "ann", 1, Call.NACK, stale)] == dispatcher.nack(0, "ann", 1, delay_ms=9_999)
        assert [deliver(0, "a1", "ann", 3, failures=1)] == then(dispatcher.release(0, "ann", 2))

    def test_an_ack_of_what_was_never_delivered_moves_no_cursor(self) -> None:
        # The window stores any offset that it is told, so the cursor can pass a message nobody has seen.
        dispatcher = subscription("ann")
        fill(dispatcher, "a1", "a1")

        for offset in (1, 2):
            [answer] = dispatcher.ack(offset, "ann", 1)
            assert isinstance(answer, Ignored)
        assert [deliver(1, "a1", "ann"), advanced(0)] == dispatcher.ack(0, "ann", 1)


class TestCounts:
    """What is counted is what is there."""

    def test_a_retry_that_moves_to_another_consumer_moves_its_count(self) -> None:
        # The old consumer stays one too many for ever, the new one one too few.
        dispatcher = subscription("bob", max_in_flight_per_consumer=1)
        fill(dispatcher, "a1")
        dispatcher.nack(0, "bob", 1)
        dispatcher.add_consumer("ann")
        dispatcher.handle_timeout(now_ms=1_000)

        assert {"bob": 0, "ann": 1} == {name: each.in_flight for name, each in dispatcher.stats().consumers.items()}
        assert [deliver(1, "b1", "bob")] == dispatcher.offer(1, "b1")
        assert [] == dispatcher.offer(2, "a2")
        assert [deliver(2, "a2", "ann"), advanced(0)] == dispatcher.ack(0, "ann", 2)

    def test_a_message_that_waits_for_its_retry_uses_nobodys_room(self) -> None:
        # Waiting and exhausted entries count as in flight.
        dispatcher = subscription("ann", max_in_flight_per_consumer=1, poison=Poison.BLOCK)
        fill(dispatcher, "a1", "a2", "a3")

        assert [deliver(1, "a2", "ann")] == then(dispatcher.nack(0, "ann", 1))
        assert [Blocked(1, b"a2", 1), deliver(2, "a3", "ann")] == then(dispatcher.reject(1, "ann", 1))

    @pytest.mark.parametrize("way", ["retry", "unblock", "join", "put back", "reconnect"])
    def test_the_consumers_limit_holds_on_every_path(self, way: str) -> None:
        # It is tested when a message is first read, and on no other path.
        dispatcher = subscription("ann", max_in_flight_per_consumer=1, poison=Poison.BLOCK, retry=AT_ONCE)
        fill(dispatcher, "a1", "a2", "a3")
        if way == "retry":
            dispatcher.nack(0, "ann", 1)
        elif way == "unblock":
            dispatcher.reject(0, "ann", 1)
            dispatcher.unblock("a1")
        elif way == "join":
            dispatcher.remove_consumer("ann")
            dispatcher.add_consumer("bob")
        elif way == "put back":
            dispatcher.release(0, "ann", 1)
        else:
            dispatcher.set_inactive("ann")
            dispatcher.set_active("ann")

        assert 1 == len(dispatcher.in_flight())


class TestComingBack:
    """Consumers come and go."""

    def test_an_evicted_consumer_can_come_back(self) -> None:
        # Its name is still listed, so it gets its old id back, which is no longer on the ring.
        dispatcher = subscription("ann")
        dispatcher.set_inactive("ann")
        dispatcher.handle_timeout(now_ms=3_000)
        fill(dispatcher, "a1")

        assert [deliver(0, "a1", "ann")] == dispatcher.add_consumer("ann")

    def test_it_comes_back_with_the_filters_that_it_has_now(self) -> None:
        # Subscribing again under a name that exists silently keeps the old filters.
        dispatcher = subscription()
        dispatcher.add_consumer("ann", filters=["x"])
        dispatcher.remove_consumer("ann")
        dispatcher.add_consumer("ann", filters=["a*"])

        assert ["ann", None] == [dispatcher.owner(key) for key in ("a1", "x")]

    def test_a_held_message_that_the_new_consumers_refuse_is_named_and_can_be_settled(self) -> None:
        # It waits for ever, and nothing says so.
        dispatcher = subscription("ann")
        fill(dispatcher, "a1")
        dispatcher.remove_consumer("ann")
        dispatcher.add_consumer("bob", filters=["b*"])

        assert Blocking(BlockReason.NO_CONSUMER) == dispatcher.why_blocked(0)
        assert 1 == dispatcher.stats().ownerless_keys
        assert [Skipped(0, b"a1", SkipReason.GONE), advanced(0)] == dispatcher.gone(0)

    def test_a_retry_that_nobody_accepts_goes_out_when_somebody_does(self) -> None:
        # It is looked at in every tick, and waits for ever.
        dispatcher = subscription("ann", unmatched=Unmatched.HOLD)
        fill(dispatcher, "a1")
        dispatcher.nack(0, "ann", 1)
        dispatcher.set_filters("ann", ["x"])
        assert [] == dispatcher.handle_timeout(now_ms=1_000)

        assert [deliver(0, "a1", "ann", 2, failures=1)] == dispatcher.set_filters("ann", ["a*"])


class TestOutsideTheDispatcher:
    """What the host does is the host's, and cannot go wrong silently."""

    def test_a_dead_letter_that_cannot_be_written_holds_its_key_and_nothing_else(self) -> None:
        # It is tried again in every tick, without end or backoff, and awaited in the loop of everybody.
        dispatcher = subscription("ann", retry=NO_RETRY)
        fill(dispatcher, "a1", "a1", "a2")
        [letter] = then(dispatcher.nack(0, "ann", 1))

        assert [] == dispatcher.ack(2, "ann", 1)
        assert [] == dispatcher.handle_timeout(now_ms=10**6)
        assert [deliver(3, "a2", "ann")] == dispatcher.offer(3, "a2")
        assert [letter] == dispatcher.outstanding_effects()[:1]
        assert [deliver(1, "a1", "ann"), advanced(0)] == dispatcher.dead_lettered(0)

    def test_the_non_reliable_router_gives_the_keys_of_an_absent_consumer_to_somebody(self) -> None:
        # They are dropped as long as it is away, and nothing ever takes it off the ring.
        router = KeyRouter(HashRing())
        for name in ("c1", "c2"):
            router.add_consumer(name)
        router.set_inactive("c1")

        assert {"c2"} == {router.route(f"key-{number}") for number in range(100)}

    def test_with_everything_read_and_one_message_unacked_there_is_nothing_to_wait_for(self) -> None:
        # "Has lag" compares the log's end with what is acked, so a loop that has read everything parks in a read.
        dispatcher = subscription("ann", ack_timeout_ms=None, window=10)
        fill(dispatcher, "a1")

        assert (9, None) == (dispatcher.free_slots, dispatcher.next_deadline_ms())

    def test_the_window_that_is_asked_for_is_the_window(self) -> None:
        # The page says 10,000; the code has 10, a range, and an override that nothing reads.
        dispatcher = subscription("ann", window=25_000)

        assert (10_000, 25_000) == (DispatcherConfig().window, dispatcher.free_slots)

    def test_a_key_stays_with_its_consumer_until_the_placement_changes(self) -> None:
        dispatcher = subscription("ann", "bob", retry=AT_ONCE)
        fill(dispatcher, "a1")

        for attempt in (1, 2, 3):
            expected = [deliver(0, "a1", "ann", attempt + 1, failures=attempt)]
            assert expected == then(dispatcher.nack(0, "ann", attempt))
