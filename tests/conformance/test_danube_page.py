"""The published page on Danube's Key-Shared dispatch: its promises and worked examples, kept by this dispatcher."""

import pytest
from tests.alphabet import AlphabetRing, Watched, advanced, deliver, delivered, fill, subscription

from keyshared.config import DispatcherConfig, Poison, RetryPolicy, Unmatched
from keyshared.dispatcher import KeySharedDispatcher
from keyshared.effects import (
    Blocked,
    DeadLetter,
    Dropped,
    DropReason,
    Evicted,
    Released,
    ReleaseReason,
    Resumed,
    Skipped,
    SkipReason,
)
from keyshared.ring import HashRing
from keyshared.router import KeyRouter


class TestCursorAdvancement:
    """ "Contiguous Cursor Advancement": offsets 10 to 13."""

    def test_the_cursor_waits_at_10_for_11_and_is_at_13_then(self) -> None:
        dispatcher = subscription("ann")
        dispatcher.offer_many([(offset, f"a{offset}", None) for offset in (10, 11, 12, 13)])

        assert [advanced(10)] == dispatcher.ack(10, "ann", 1)
        assert [] == dispatcher.ack(12, "ann", 1)
        assert [] == dispatcher.ack(13, "ann", 1)
        assert (10, 11) == (dispatcher.safe_cursor, dispatcher.resume_offset)
        assert [advanced(13)] == dispatcher.ack(11, "ann", 1)
        assert (13, 14) == (dispatcher.safe_cursor, dispatcher.resume_offset)

    @pytest.mark.parametrize("order", [(10, 11, 12, 13), (13, 12, 11, 10), (11, 13, 10, 12)], ids=repr)
    def test_the_order_of_the_acks_does_not_matter_in_the_end(self, order: tuple[int, ...]) -> None:
        dispatcher = subscription("ann")
        dispatcher.offer_many([(offset, f"a{offset}", None) for offset in (10, 11, 12, 13)])
        for offset in order:
            dispatcher.ack(offset, "ann", 1)

        assert 13 == dispatcher.safe_cursor


class TestKeyFilters:
    """ "Key Filtering": the table of patterns, and the consumer with two of them."""

    @pytest.mark.parametrize(
        ("pattern", "matching", "others"),
        [
            ("payment", ["payment"], ["payments", "pay", "Payment"]),
            ("ship*", ["shipping", "shipment", "ship"], ["shop", "a ship"]),
            ("eu-west-?", ["eu-west-1", "eu-west-2"], ["eu-west-", "eu-west-12", "eu-east-1"]),
            ("*", ["anything", ""], []),
        ],
    )
    def test_the_table_of_patterns(self, pattern: str, matching: list[str], others: list[str]) -> None:
        dispatcher = KeySharedDispatcher(HashRing(), DispatcherConfig(unmatched=Unmatched.SKIP))
        dispatcher.add_consumer("worker", filters=[pattern])

        for offset, key in enumerate([*matching, *others]):
            effects = dispatcher.offer(offset, key)
            matches = key in matching
            assert [(offset, "worker")] * matches == delivered(effects)
            assert (not matches) == (Skipped(offset, key.encode(), SkipReason.UNMATCHED) in effects)

    def test_a_worker_for_payments_and_invoices_gets_nothing_else_and_the_others_get_the_rest(self) -> None:
        dispatcher = KeySharedDispatcher(HashRing())
        dispatcher.add_consumer("payments_worker", filters=["payment", "invoice"])
        dispatcher.add_consumer("worker_1")

        owners = {key: dispatcher.owner(key) for key in ("payment", "invoice", "shipping", "returns", "refund")}
        assert {"worker_1"} == {owners[key] for key in ("shipping", "returns", "refund")}
        assert {"payments_worker", "worker_1"} >= {owners["payment"], owners["invoice"]}

    def test_what_no_filter_matches_counts_as_acked_and_the_cursor_passes_it(self) -> None:
        dispatcher = subscription(unmatched=Unmatched.SKIP)  # Danube's policy, which is ours by choice
        dispatcher.add_consumer("ann", filters=["payment"])

        assert [Skipped(0, b"refund", SkipReason.UNMATCHED), advanced(0)] == dispatcher.offer(0, "refund")


class TestPerKeyOrder:
    """The example of the producer: two payments and a shipping notice."""

    def test_the_second_payment_waits_for_the_first_and_shipping_for_neither(self) -> None:
        dispatcher = KeySharedDispatcher(HashRing(["worker_1"]))
        dispatcher.add_consumer("worker_1")

        log = [(0, "payment", "order #1001"), (1, "shipping", "order #1001"), (2, "payment", "order #1002")]
        assert [
            deliver(0, "payment", "worker_1", item="order #1001"),
            deliver(1, "shipping", "worker_1", item="order #1001"),
        ] == dispatcher.offer_many(log)
        assert [
            deliver(2, "payment", "worker_1", item="order #1002"),
            advanced(0),
        ] == dispatcher.ack(0, "worker_1", 1)

    def test_all_messages_of_a_key_go_to_one_consumer_and_different_keys_to_different_ones(self) -> None:
        dispatcher = KeySharedDispatcher(HashRing(), DispatcherConfig(max_in_flight_per_key=3))
        for name in ("c1", "c2", "c3"):
            dispatcher.add_consumer(name)
        offers = [(offset, f"key-{offset % 30}", None) for offset in range(90)]

        per_key: dict[int, set[str]] = {}
        for offset, consumer in delivered(dispatcher.offer_many(offers)):
            per_key.setdefault(offset % 30, set()).add(consumer)
        assert [1] * 30 == [len(consumers) for consumers in per_key.values()]
        assert {"c1", "c2", "c3"} == set.union(*per_key.values())

    def test_a_join_from_two_to_three_consumers_moves_about_a_third_of_a_thousand_keys(self) -> None:
        dispatcher = KeySharedDispatcher(HashRing())
        dispatcher.add_consumer("c1")
        dispatcher.add_consumer("c2")
        keys = [f"key-{number}" for number in range(1_000)]
        before = {key: dispatcher.owner(key) for key in keys}
        dispatcher.add_consumer("c3")

        moved = [key for key in keys if before[key] != dispatcher.owner(key)]
        assert 150 < len(moved) < 550
        assert {"c3"} == {dispatcher.owner(key) for key in moved}


class TestHeartbeat:
    """The five phases of the watchdog, each as what `handle_timeout` does when, and not each half second."""

    def test_phase_1_a_delivery_past_its_ack_timeout_is_made_eligible_again(self) -> None:
        dispatcher = subscription("ann", ack_timeout_ms=5_000)
        fill(dispatcher, "a1")

        assert 5_000 == dispatcher.next_deadline_ms()
        assert [Released(0, "ann", 1, ReleaseReason.ACK_TIMEOUT, 1, 6000)] == dispatcher.handle_timeout(now_ms=5_000)

    @pytest.mark.parametrize(
        ("poison", "effects"),
        [
            (Poison.DROP, [Dropped(0, b"a1", DropReason.POISON), deliver(1, "a1", "ann"), advanced(0)]),
            (Poison.DEAD_LETTER, [DeadLetter(0, b"a1", 1, 1, None)]),
            (Poison.BLOCK, [Blocked(0, b"a1", 1)]),
        ],
    )
    def test_phase_2_a_message_without_retries_left_meets_its_poison_policy_at_once(
        self, poison: Poison, effects: list[object]
    ) -> None:
        dispatcher = subscription("ann", poison=poison, retry=RetryPolicy(max_redeliveries=0))
        fill(dispatcher, "a1", "a1")

        timeout = Released(0, "ann", 1, ReleaseReason.ACK_TIMEOUT, 1, None)
        assert [timeout, *effects] == dispatcher.handle_timeout(now_ms=30_000)

    def test_phase_3_after_its_delay_a_message_goes_to_whoever_owns_its_key_then(self) -> None:
        dispatcher = subscription("bob")
        fill(dispatcher, "a1")
        dispatcher.nack(0, "bob", 1)
        dispatcher.add_consumer("ann")

        assert [deliver(0, "a1", "ann", 2, failures=1)] == dispatcher.handle_timeout(now_ms=1_000)

    def test_phase_4_after_three_seconds_an_inactive_consumer_is_evicted_and_its_keys_are_served(self) -> None:
        dispatcher = subscription("ann", "bob")
        dispatcher.set_inactive("ann", now_ms=0)
        fill(dispatcher, "a1")

        assert [] == dispatcher.handle_timeout(now_ms=2_999)
        assert [Evicted("ann"), deliver(0, "a1", "bob")] == dispatcher.handle_timeout(now_ms=3_000)

    def test_phase_5_reading_goes_on_when_there_is_room_and_no_heartbeat_is_needed_for_it(self) -> None:
        dispatcher = subscription("ann", window=4)
        fill(dispatcher, "a0", "a1", "a2", "a3")
        assert 0 == dispatcher.free_slots

        assert [advanced(0), Resumed(1)] == dispatcher.ack(0, "ann", 1)


class TestLimits:
    """ "Per-Consumer Backpressure" and "Window Capacity", with the numbers of the page."""

    def test_the_numbers_of_the_page_are_the_defaults(self) -> None:
        config = DispatcherConfig()

        assert (10_000, 1) == (config.window, config.max_in_flight_per_key)
        assert 50 == config.max_in_flight_per_consumer  # not 1,000: no timeout gives up what was not begun
        assert (30_000, 3_000) == (config.ack_timeout_ms, config.inactive_grace_ms)

    def test_a_consumer_at_its_limit_does_not_occupy_the_window(self) -> None:
        config = DispatcherConfig(max_in_flight_per_consumer=1_000)
        dispatcher = KeySharedDispatcher(AlphabetRing(), config)  # not looked over after each of so many calls
        dispatcher.add_consumer("ann")
        dispatcher.add_consumer("bob")
        effects = fill(dispatcher, *[f"a{number}" for number in range(1_200)])
        assert 1_000 == len(delivered(effects))

        assert [deliver(1_200, "b1", "bob")] == dispatcher.offer(1_200, "b1")

    def test_a_full_window_pushes_back_before_anything_is_read(self) -> None:
        dispatcher = subscription("ann", window=3)
        fill(dispatcher, "a0", "a1", "a2")

        assert 0 == dispatcher.free_slots


def test_a_poisoned_key_does_not_block_the_others() -> None:
    dispatcher = subscription("ann", poison=Poison.BLOCK)
    fill(dispatcher, "a1")
    dispatcher.reject(0, "ann", 1)

    assert [deliver(1, "a2", "ann")] == dispatcher.offer(1, "a2")
    assert [] == dispatcher.offer(2, "a1")


def test_a_restart_from_the_stored_cursor_replays_everything_unacknowledged() -> None:
    first = subscription("ann")
    fill(first, "a1", "a2", "a3")
    first.ack(0, "ann", 1)
    assert first.safe_cursor is not None

    second: Watched = subscription("ann", start=first.safe_cursor + 1)
    assert [deliver(1, "a2", "ann"), deliver(2, "a3", "ann")] == fill(second, "a2", "a3", start=1)


def test_the_non_reliable_variant_routes_by_the_same_ring_and_filters_and_drops_on_saturation() -> None:
    router, dispatcher = KeyRouter(HashRing()), KeySharedDispatcher(HashRing())
    for name, filters in (("c1", []), ("c2", ["key-*"]), ("c3", ["*-1"])):
        router.add_consumer(name, filters=filters)
        dispatcher.add_consumer(name, filters=filters)
    keys = [f"key-{number}" for number in range(50)]

    assert [dispatcher.owner(key) for key in keys] == [router.route(key) for key in keys]
    full = router.route(keys[0])
    assert full is not None
    router.set_full(full)
    assert None is router.route(keys[0])
