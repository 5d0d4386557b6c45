"""Rule 18 (a): at most ``max_in_flight`` deliveries are open at once, at all consumers together."""

import json

import pytest
from tests.alphabet import Watched, deliver, delivered, fill, subscription

from keyshared.config import DispatcherConfig, GroupLimits, Poison, RetryPolicy, Rules, Unmatched
from keyshared.dispatcher import Blocking, KeySharedDispatcher, StoredLetter
from keyshared.effects import BlockReason, Spilled
from keyshared.errors import ConfigError
from keyshared.testing import Claims, Promise, check_history
from keyshared.testing.history import Delivered, Event, Published


def offsets(dispatcher: KeySharedDispatcher) -> list[int]:
    return [each.offset for each in dispatcher.in_flight()]


@pytest.mark.parametrize("value", [0, -1, True, 1.5, "3"])
def test_a_limit_is_at_least_one(value: object) -> None:
    with pytest.raises(ConfigError, match="max_in_flight is"):
        DispatcherConfig(max_in_flight=value)  # type: ignore[arg-type]  # the mistake under test


def test_no_more_is_open_than_the_subscription_may_have_whoever_has_room() -> None:
    dispatcher = subscription("ann", "bob", max_in_flight=2)
    dispatcher.offer_many([(0, "a1", None), (1, "b1", None), (2, "b2", None), (3, "a2", None)])
    assert [0, 1] == offsets(dispatcher)
    assert Blocking(BlockReason.SUBSCRIPTION_FULL) == dispatcher.why_blocked(2)
    assert [deliver(2, "b2", "bob")] == dispatcher.ack(1, "bob", 1)


def test_a_retry_counts_as_any_delivery() -> None:
    dispatcher = subscription("ann", max_in_flight=1, retry=RetryPolicy(base_delay_ms=0))
    fill(dispatcher, "a1", "a2")
    assert [(1, "ann")] == delivered(dispatcher.nack(0, "ann", 1))


def test_who_was_refused_first_is_served_first_and_then_everybody_in_turns() -> None:
    dispatcher = subscription("ann", "bob", "cat", max_in_flight=1)
    fill(dispatcher, "a1", "c1", "b1", "c2", "a2", "b2")
    order = []
    while dispatcher.in_flight():
        (opened,) = dispatcher.in_flight()
        order.append(opened.offset)
        dispatcher.ack(*opened.receipt)
    assert [0, 1, 2, 4, 3, 5] == order


def test_messages_without_a_key_count_and_wait_too() -> None:
    dispatcher = subscription("ann", "bob", max_in_flight=1)
    fill(dispatcher, "a1", None, "b1", None)
    assert Blocking(BlockReason.SUBSCRIPTION_FULL) == dispatcher.why_blocked(1)
    order = []
    while dispatcher.in_flight():
        (opened,) = dispatcher.in_flight()
        order.append(opened.offset)
        dispatcher.ack(*opened.receipt)
    assert [0, 1, 3, 2] == order  # bob had most room and was refused first, then ann, then bob again


def test_a_message_without_a_key_finds_another_consumer_if_the_one_that_was_to_get_it_has_left() -> None:
    dispatcher = subscription("ann", "bob", max_in_flight=1)
    fill(dispatcher, "b1", None)
    dispatcher.remove_consumer("ann")
    assert [(1, "bob")] == delivered(dispatcher.ack(0, "bob", 1))


def test_several_deliveries_that_end_at_once_are_followed_by_whoever_has_room() -> None:
    dispatcher = subscription(max_in_flight=2, ack_timeout_ms=10)
    dispatcher.add_consumer("ann", filters=["a*"])
    for name in ("bob", "cat"):
        dispatcher.add_consumer(name, limit=1)
    fill(dispatcher, "a1", "a2", None, None)
    assert [(2, "bob"), (3, "cat")] == delivered(dispatcher.handle_timeout(now_ms=10))


def test_a_key_that_waits_behind_a_full_subscription_can_be_wanted_alone_when_there_is_room() -> None:
    dispatcher = subscription("ann", max_in_flight=1)
    fill(dispatcher, "a1", "a2", "a3")
    assert [] == dispatcher.pull("ann", 1, only=2)
    dispatcher.set_limit("ann", 0)
    dispatcher.ack(0, "ann", 1)
    assert [(2, "ann")] == delivered(dispatcher.pull("ann", 1, only=2))
    assert [] == dispatcher.pull("ann", 5)


def test_a_total_order_may_have_a_limit() -> None:
    dispatcher = subscription(
        "ann",
        max_in_flight=1,
        max_in_flight_per_key=2,
        ordering_required=True,
        poison=Poison.BLOCK,
        unmatched=Unmatched.HOLD,
    )
    fill(dispatcher, "a1", None, "b1")
    assert [0] == offsets(dispatcher)
    assert [(1, "ann")] == delivered(dispatcher.ack(0, "ann", 1))


def test_a_change_of_placement_asks_everybody_again() -> None:
    dispatcher = subscription("ann", max_in_flight=1)
    fill(dispatcher, "a1", "b1", "b2")
    dispatcher.add_consumer("bob")
    assert [(1, "bob")] == delivered(dispatcher.ack(0, "ann", 1))


def test_a_restart_keeps_who_is_served_next_and_a_higher_limit_counts_at_once() -> None:
    dispatcher = subscription("ann", "bob", "cat", max_in_flight=1)
    fill(dispatcher, "a1", "c1", "b1", "a2")
    state = json.loads(json.dumps(dispatcher.snapshot()))
    for most, opened, expected in ((1, [0], [1]), (2, [0, 1], [2])):
        again = Watched.restore(state, dispatcher.placement, DispatcherConfig(max_in_flight=most), now_ms=0)
        assert opened == sorted(each.offset for each in again.in_flight())
        effects = again.ack(0, "ann", 1)
        assert expected == sorted(offset for offset, _ in delivered(effects))


def test_the_kit_blames_a_delivery_beyond_the_claim() -> None:
    history: list[Event] = [
        *(Published(offset=0, key=b"k"), Published(offset=1, key=b"l")),
        *(Delivered(offset=0, key=b"k", consumer="a"), Delivered(offset=1, key=b"l", consumer="b")),
    ]
    (found,) = check_history(history, Claims(open_at_once=1))
    assert (Promise.BOUNDS, (2, 3)) == (found.promise, found.proof)
    assert "offset 1 is open delivery 2 of all, of which 1 may be open" == found.explanation


class TestBesideGroups:
    """The limit keeps its books with those of groups, and makes no group of all keys."""

    @pytest.mark.parametrize("rules", [None, Rules(mark="no groups", limit_of=lambda _: 1)])
    def test_limits_of_groups_do_not_act_without_groups(self, rules: Rules | None) -> None:
        limits = GroupLimits(max_in_flight=1, per_second=1)
        dispatcher = subscription("ann", rules=rules, max_in_flight=2, group=limits, ack_timeout_ms=None)
        fill(dispatcher, "a1", "b1", "c1")
        assert [0, 1] == offsets(dispatcher)
        assert Blocking(BlockReason.SUBSCRIPTION_FULL) == dispatcher.why_blocked(2)
        assert dispatcher.next_deadline_ms() is None

    def test_no_group_is_listed(self) -> None:
        dispatcher = subscription("ann", max_in_flight=1)
        fill(dispatcher, "a1", "b1")
        assert [] == dispatcher.groups()


@pytest.mark.parametrize("key", ["d1", None])
def test_a_slot_of_the_window_is_named_before_room_in_the_subscription(key: str | None) -> None:
    dispatcher = subscription("ann", window=4, max_in_flight=1, redrive=True, start=0)
    fill(dispatcher, "a1", "b1", "c1", start=10)
    assert [Spilled(13)] == dispatcher.offer(13, key)
    assert Blocking(BlockReason.SUBSCRIPTION_FULL) == dispatcher.why_blocked(13)
    dispatcher.redrive("x1", [StoredLetter(-5, 1)])  # takes the last slot
    assert 0 == dispatcher.free_slots
    assert Blocking(BlockReason.WINDOW_FULL) == dispatcher.why_blocked(13)
    assert Blocking(BlockReason.SUBSCRIPTION_FULL) == dispatcher.why_blocked(12), "its payload is at hand"
