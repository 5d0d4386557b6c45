"""Rule 2: what can go out goes out now; what has to wait is served in turns."""

from typing import Any

from tests.alphabet import Watched, advanced, deliver, delivered, fill, subscription, then

from keyshared.dispatcher import KeySharedDispatcher
from keyshared.effects import Load, Released, ReleaseReason, Spilled
from keyshared.ring import HashRing


def test_a_key_goes_out_at_once_and_holds_only_itself() -> None:
    dispatcher = subscription("ann")

    assert [deliver(0, "a1", "ann", item="x")] == dispatcher.offer(0, "a1", "x")
    assert [] == dispatcher.offer(1, "a1")
    assert [deliver(2, "a2", "ann")] == dispatcher.offer(2, "a2")


def test_text_and_its_bytes_are_one_key() -> None:
    dispatcher = subscription("ann")
    dispatcher.offer(0, "aé")

    assert [] == dispatcher.offer(1, "aé".encode())


def test_an_ack_releases_the_next_of_the_key_in_the_same_call() -> None:
    dispatcher = subscription("ann")
    dispatcher.offer_many([(0, "a1", None), (1, "a1", "next")])

    assert [deliver(1, "a1", "ann", item="next"), advanced(0)] == dispatcher.ack(0, "ann", 1)


def test_a_batch_settles_and_hands_out_as_its_single_calls_would() -> None:
    dispatcher = subscription("ann", ack_timeout_ms=None, max_in_flight_per_consumer=2)
    messages = [(0, "a1", None), (1, "a1", None), (2, "a2", None), (3, "a3", None)]

    assert [deliver(0, "a1", "ann"), deliver(2, "a2", "ann")] == dispatcher.offer_many(messages)
    assert [deliver(3, "a3", "ann"), deliver(1, "a1", "ann"), advanced(0)] == dispatcher.ack_many(
        [(0, "ann", 1), (2, "ann", 1)]
    )
    assert dispatcher.next_deadline_ms() is None


def test_between_two_messages_of_a_hot_key_every_waiting_key_gets_one_turn() -> None:
    # Serving the key that has just been acked first, because it is at hand, starves a2 and a3 as long as a1 is hot.
    dispatcher = subscription("ann", max_in_flight_per_consumer=1)
    dispatcher.offer_many([(0, "a1", None), (1, "a1", None), (2, "a1", None), (3, "a2", None), (4, "a3", None)])

    assert [deliver(3, "a2", "ann"), advanced(0)] == dispatcher.ack(0, "ann", 1)
    assert [deliver(4, "a3", "ann")] == dispatcher.ack(3, "ann", 1)
    assert [deliver(1, "a1", "ann")] == dispatcher.ack(4, "ann", 1)
    assert [deliver(2, "a1", "ann"), advanced(1)] == dispatcher.ack(1, "ann", 1)


def test_a_new_key_queues_behind_those_that_wait_even_if_there_is_room_again() -> None:
    dispatcher = subscription("ann", max_in_flight_per_consumer=1)
    dispatcher.offer_many([(0, "a1", None), (1, "a2", None), (2, "a3", None)])

    assert [deliver(1, "a2", "ann"), deliver(2, "a3", "ann")] == dispatcher.set_limit("ann", 3)
    assert [] == dispatcher.offer(3, "a4")
    assert [deliver(3, "a4", "ann"), advanced(0)] == dispatcher.ack(0, "ann", 1)


def test_a_message_that_was_put_back_lets_the_others_go_first() -> None:
    # Served from the head, a message that is released again and again would be alone in the world.
    dispatcher = subscription("ann", max_in_flight_per_consumer=1)
    dispatcher.offer_many([(0, "a1", None), (1, "a2", None)])

    assert [deliver(1, "a2", "ann")] == then(dispatcher.release(0, "ann", 1))
    assert [deliver(0, "a1", "ann", 2)] == then(dispatcher.release(1, "ann", 1))


def test_several_keys_become_free_in_the_order_of_their_oldest_message() -> None:
    dispatcher = subscription("ann", "bob")
    dispatcher.offer_many([(0, "b2", None), (1, "b1", None), (2, "b1", None), (3, "b2", None)])

    assert [
        Released(0, "bob", 1, ReleaseReason.REMOVED, 0, 0),
        Released(1, "bob", 1, ReleaseReason.REMOVED, 0, 0),
        deliver(0, "b2", "ann", 2),
        deliver(1, "b1", "ann", 2),
    ] == dispatcher.remove_consumer("bob")


def test_a_limit_of_zero_makes_it_a_pull_queue() -> None:
    dispatcher = subscription("ann")
    dispatcher.set_limit("ann", 0)
    assert [] == dispatcher.offer_many([(0, "a1", None), (1, "a1", None), (2, "a2", None)])

    assert [deliver(0, "a1", "ann"), deliver(2, "a2", "ann")] == dispatcher.set_limit("ann", 5)
    assert [] == dispatcher.set_limit("ann", 0)
    assert [advanced(0)] == dispatcher.ack(0, "ann", 1)
    assert [deliver(1, "a1", "ann")] == dispatcher.set_limit("ann", 2)


def test_a_limit_lowered_below_use_takes_nothing_back_and_starts_nothing() -> None:
    dispatcher = subscription("ann")
    dispatcher.offer_many([(offset, f"a{offset}", None) for offset in range(4)])

    assert [] == dispatcher.set_limit("ann", 2)
    assert [] == dispatcher.offer(4, "a4")
    assert [advanced(1)] == dispatcher.ack_many([(0, "ann", 1), (1, "ann", 1)])
    assert [deliver(4, "a4", "ann"), advanced(2)] == dispatcher.ack(2, "ann", 1)


def test_a_consumers_own_limit_goes_before_the_common_one() -> None:
    dispatcher = subscription(max_in_flight_per_consumer=1)
    dispatcher.add_consumer("ann", limit=2)

    offers = [(offset, f"a{offset}", None) for offset in range(3)]
    assert [deliver(0, "a0", "ann"), deliver(1, "a1", "ann")] == dispatcher.offer_many(offers)


class TestSeveralInFlightOfOneKey:
    """A per-key limit above one."""

    def test_they_go_out_in_order_to_one_consumer(self) -> None:
        dispatcher = subscription("ann", max_in_flight_per_key=2)

        offers = [(offset, "a1", None) for offset in range(4)]
        assert [deliver(0, "a1", "ann"), deliver(1, "a1", "ann")] == dispatcher.offer_many(offers)
        assert [deliver(2, "a1", "ann")] == dispatcher.ack(1, "ann", 1)

    def test_a_failed_message_holds_everything_newer_although_the_limit_leaves_room(self) -> None:
        # Filling the slot that the nack freed with 2 would deliver 2 before 0.
        dispatcher = subscription("ann", max_in_flight_per_key=2)
        dispatcher.offer_many([(offset, "a1", None) for offset in range(3)])

        assert [] == then(dispatcher.nack(0, "ann", 1, now_ms=0))
        assert [] == dispatcher.ack(1, "ann", 1)
        assert [deliver(0, "a1", "ann", 2, failures=1), deliver(2, "a1", "ann")] == dispatcher.handle_timeout(
            now_ms=1_000
        )

    def test_what_was_put_back_goes_out_again_oldest_first(self) -> None:
        dispatcher = subscription("ann", max_in_flight_per_key=3)
        dispatcher.offer_many([(offset, "a1", None) for offset in range(4)])
        dispatcher.set_limit("ann", 0)

        assert [] == then(dispatcher.release(2, "ann", 1))
        assert [] == then(dispatcher.release(0, "ann", 1))
        expected = [deliver(0, "a1", "ann", 2), deliver(2, "a1", "ann", 2)]
        assert expected == dispatcher.set_limit("ann", 3)

    def test_a_hot_key_still_takes_turns(self) -> None:
        dispatcher = subscription("ann", max_in_flight_per_key=2, max_in_flight_per_consumer=2)
        dispatcher.offer_many([(0, "a1", None), (1, "a1", None), (2, "a1", None), (3, "a1", None), (4, "a2", None)])

        assert [deliver(4, "a2", "ann"), advanced(0)] == dispatcher.ack(0, "ann", 1)
        assert [deliver(2, "a1", "ann"), advanced(1)] == dispatcher.ack(1, "ann", 1)


class TestPull:
    """A consumer that asks has a limit of 0, so what may go out waits for it until it asks."""

    def asked(self, *consumers: str, **config: Any) -> Watched:
        dispatcher = subscription(**config)
        for name in consumers:
            dispatcher.add_consumer(name, limit=0)
        return dispatcher

    def test_it_gets_as_much_as_it_asks_for_and_nothing_is_pushed_afterwards(self) -> None:
        dispatcher = self.asked("ann")
        assert [] == fill(dispatcher, "a1", "a2", "a1", "a3")

        assert [deliver(0, "a1", "ann"), deliver(1, "a2", "ann")] == dispatcher.pull("ann", 2)
        assert [advanced(0)] == dispatcher.ack(0, "ann", 1)
        assert [deliver(3, "a3", "ann"), deliver(2, "a1", "ann")] == dispatcher.pull("ann", 5)

    def test_it_gets_only_what_is_its_own(self) -> None:
        dispatcher = self.asked("ann", "bob")
        fill(dispatcher, "b1", "a1", None)

        assert [deliver(1, "a1", "ann"), deliver(2, None, "ann")] == dispatcher.pull("ann", 5)
        assert [] == dispatcher.pull("ann", 5)

    def test_a_limit_above_0_is_exceeded_once(self) -> None:
        dispatcher = subscription("ann", max_in_flight_per_consumer=1)
        fill(dispatcher, "a1", "a2", "a3")

        assert [(1, "ann")] == delivered(dispatcher.pull("ann", 1))
        assert [] == delivered(dispatcher.ack(0, "ann", 1))
        assert [(2, "ann")] == delivered(dispatcher.ack(1, "ann", 1))

    def test_one_message_can_be_asked_for_out_of_its_turn(self) -> None:
        dispatcher = self.asked("ann")
        fill(dispatcher, "a1", "a2", "a2", None)

        assert [deliver(3, None, "ann")] == dispatcher.pull("ann", 9, only=3)
        assert [deliver(1, "a2", "ann")] == dispatcher.pull("ann", 9, only=1)

    def test_one_message_out_of_its_turn_overtakes_nothing_of_its_key(self) -> None:
        dispatcher = self.asked("ann", "bob", max_in_flight_per_key=2)
        fill(dispatcher, "a1", "a1", "b1")

        assert [] == dispatcher.pull("ann", 1, only=1)
        assert [] == dispatcher.pull("ann", 1, only=2)
        assert [] == dispatcher.pull("ann", 1, only=7)
        assert [deliver(0, "a1", "ann")] == dispatcher.pull("ann", 1, only=0)
        assert [deliver(1, "a1", "ann")] == dispatcher.pull("ann", 1, only=1)

    def test_the_lowest_message_alone_is_read_again_though_the_window_is_full(self) -> None:
        dispatcher = self.asked("ann", "bob", window=3, max_tracked=9)
        fill(dispatcher, "b1", "b2", "a1", "a2", start=0)  # 2 and 3 are spilled
        dispatcher.pull("bob", 2)
        dispatcher.offer(4, "b3")
        assert 0 == dispatcher.free_slots
        assert [] == dispatcher.pull("ann", 9)  # both wait for a slot now

        assert [] == dispatcher.pull("ann", 1, only=2)
        assert advanced(1) == dispatcher.ack_many([(0, "bob", 1), (1, "bob", 1)])[0]
        dispatcher.pull("bob", 1)
        fill(dispatcher, "b4", start=5)
        dispatcher.pull("bob", 1)
        fill(dispatcher, "b5", start=6)
        assert 0 == dispatcher.free_slots
        assert [Load(2, b"a1")] == dispatcher.pull("ann", 1, only=2)
        assert [] == dispatcher.loaded(2, "again")
        assert 0 == dispatcher.free_slots
        assert [] == dispatcher.pull("ann", 1, only=3)
        assert [deliver(2, "a1", "ann", item="again")] == dispatcher.pull("ann", 1, only=2)

    def test_a_spilled_message_is_read_again_first(self) -> None:
        dispatcher = self.asked("ann", window=4)
        assert [Spilled(2)] == fill(dispatcher, "a1", "a2", "a3")

        assert [Load(2, b"a3"), deliver(0, "a1", "ann"), deliver(1, "a2", "ann")] == dispatcher.pull("ann", 3)
        assert [] == dispatcher.loaded(2, "again")
        assert [deliver(2, "a3", "ann", item="again")] == dispatcher.pull("ann", 1)

    def test_who_is_away_gets_nothing(self) -> None:
        dispatcher = self.asked("ann")
        fill(dispatcher, "a1")
        dispatcher.set_inactive("ann")

        assert [] == dispatcher.pull("ann", 1)


def test_the_room_of_who_pulls_among_many_is_known_afterwards() -> None:
    dispatcher = KeySharedDispatcher(HashRing())
    dispatcher.add_consumer("puller", limit=0)
    for number in range(200):
        dispatcher.add_consumer(f"c{number}", filters=[f"k{number}"])
    dispatcher.offer(0, None)
    owned = [f"k{number}" for number in range(200) if dispatcher.owner(f"k{number}") == f"c{number}"]
    for offset, key in enumerate(owned[:66], start=1):
        dispatcher.offer(offset, key)

    assert [(0, "puller")] == delivered(dispatcher.pull("puller", 5))
    dispatcher.check_invariants()
