"""Rule 2: what can go out goes out now; what has to wait is served in turns."""

from typing import Any

from tests.alphabet import Watched, advanced, deliver, delivered, fill, subscription, then

from keyshared.dispatcher import KeySharedDispatcher
from keyshared.effects import Load, Released, ReleaseReason
from keyshared.ring import HashRing


def test_several_keys_become_free_in_the_order_of_their_oldest_message() -> None:
    dispatcher = subscription("ann", "bob")
    dispatcher.offer_many([(0, "b2", None), (1, "b1", None), (2, "b1", None), (3, "b2", None)])

    assert [
        Released(0, "bob", 1, ReleaseReason.REMOVED, 0, 0),
        Released(1, "bob", 1, ReleaseReason.REMOVED, 0, 0),
        deliver(0, "b2", "ann", 2),
        deliver(1, "b1", "ann", 2),
    ] == dispatcher.remove_consumer("bob")


class TestSeveralInFlightOfOneKey:
    """A per-key limit above one."""

    def test_a_failed_message_holds_everything_newer_although_the_limit_leaves_room(self) -> None:
        # Filling the slot that the nack freed with 2 would deliver 2 before 0.
        dispatcher = subscription("ann", max_in_flight_per_key=2)
        dispatcher.offer_many([(offset, "a1", None) for offset in range(3)])

        assert [] == then(dispatcher.nack(0, "ann", 1, now_ms=0))
        assert [] == dispatcher.ack(1, "ann", 1)
        assert [deliver(0, "a1", "ann", 2, failures=1), deliver(2, "a1", "ann")] == dispatcher.handle_timeout(
            now_ms=1_000
        )


class TestPull:
    """A consumer that asks has a limit of 0, so what may go out waits for it until it asks."""

    def asked(self, *consumers: str, **config: Any) -> Watched:
        dispatcher = subscription(**config)
        for name in consumers:
            dispatcher.add_consumer(name, limit=0)
        return dispatcher

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
