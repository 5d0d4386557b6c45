"""What the drivers of the library's own parts do with its effects."""

from dataclasses import replace
from typing import Any

import pytest

from keyshared.config import KeySessions, Poison, Unmatched
from keyshared.leases import InvalidReservation
from keyshared.testing.adapters.dispatcher import DispatcherDriver, RouterDriver
from keyshared.testing.adapters.leases import LeaseQueueDriver
from keyshared.testing.adapters.window import WindowDriver
from keyshared.testing.driver import Delivery
from keyshared.testing.history import (
    DeadLettered,
    Done,
    Dropped,
    Expired,
    Happening,
    Held,
    HoldReason,
    Owned,
    Released,
    SessionBegun,
    SessionEnded,
    SessionEnding,
    SessionEnds,
    Settled,
    SettledBy,
    Skipped,
)
from keyshared.window import State

ACK_TIMEOUT_MS = 100
DELAY_MS = 10


def driver_with(**changes: Any) -> DispatcherDriver:  # whatever the config has
    config = replace(DispatcherDriver.config, **changes)
    driver_class = type("Changed", (DispatcherDriver,), {"config": config})
    driver: DispatcherDriver = driver_class()
    return driver


def offsets(driver: DispatcherDriver, consumer: str) -> list[int]:
    return [delivery.offset for delivery in driver.receive(consumer)]


def poisoned(driver: DispatcherDriver) -> list[Happening]:
    """Give a message of key a back until the dispatcher gives it up."""
    driver.connect("c1")
    driver.publish(b"a")
    for _ in range(3):
        (delivery,) = driver.receive("c1")
        assert driver.nack("c1", delivery)
        driver.advance(DELAY_MS)
    return [each for each in driver.notices() if not isinstance(each, Owned)]


def test_what_is_kept_for_a_key_is_flushed_when_it_is_asked_for() -> None:
    driver = driver_with(sessions=KeySessions(flush_ms=None))
    driver.connect("c1")
    driver.publish(b"a")
    (delivery,) = driver.receive("c1")
    assert driver.ack("c1", delivery)
    assert [
        SessionBegun(key=b"a", consumer="c1", session=1),
        SessionEnding(key=b"a", consumer="c1", session=1),
        SessionEnded(key=b"a", consumer="c1", session=1, reason=SessionEnds.IDLE),
    ] == [each for each in driver.notices() if not isinstance(each, Owned)]


def test_a_message_is_delivered_once_acked_once_and_the_cursor_follows() -> None:
    driver = driver_with()
    assert driver.cursor() == 0
    driver.connect("c1")
    driver.publish(b"a")
    (delivery,) = driver.receive("c1")
    assert (0, b"a", 1) == (delivery.offset, delivery.key, delivery.attempt)
    assert [] == driver.receive("c1")
    assert driver.ack("c1", delivery)
    assert not driver.ack("c1", delivery)
    assert driver.cursor() == 1


def test_what_was_not_kept_in_memory_is_loaded_again() -> None:
    driver = driver_with()
    driver.connect("c1")
    for _ in range(5):
        driver.publish(b"a")
    seen = []
    for _ in range(5):
        (delivery,) = driver.receive("c1")
        seen.append(delivery.offset)
        driver.ack("c1", delivery)
    assert [0, 1, 2, 3, 4] == seen


def test_what_does_not_fit_in_is_offered_when_there_is_room() -> None:
    driver = driver_with(max_tracked=2, window=2)
    driver.connect("c1")
    for _ in range(3):
        driver.publish(b"a")
    assert driver.offered == 2
    driver.ack("c1", driver.receive("c1")[0])
    assert driver.offered == 3


def test_owners_are_told_when_they_change() -> None:
    driver = driver_with()
    driver.publish(b"a")
    assert [Owned(key=b"a", consumer=None)] == driver.notices()
    driver.connect("c1")
    assert [Owned(key=b"a", consumer="c1")] == driver.notices()
    assert [] == driver.notices()


def test_what_expires_is_told_and_is_not_read_any_more() -> None:
    driver = driver_with()
    driver.connect("c1")
    driver.publish(b"a")
    driver.advance(ACK_TIMEOUT_MS)
    assert Expired(offset=0, consumer="c1", attempt=1) in driver.notices()
    assert [] == driver.receive("c1")


def test_what_a_consumer_leaves_behind_is_released_and_its_late_ack_counts_in_the_end() -> None:
    driver = driver_with()
    driver.connect("c1")
    driver.publish(b"a")
    (delivery,) = driver.receive("c1")
    driver.disconnect("c1")
    assert Released(offset=0, consumer="c1", attempt=1) in driver.notices()
    driver.connect("c2")
    assert not driver.ack("c1", delivery), "another attempt is open"
    driver.disconnect("c2")
    assert Settled(offset=0, reason=SettledBy.LATE_ACK) in driver.notices()
    assert driver.cursor() == 1


def test_what_is_done_is_told_if_the_dispatcher_tells_it() -> None:
    driver = driver_with(tell_settled=True)
    driver.connect("c1")
    driver.publish(b"a")
    (delivery,) = driver.receive("c1")
    driver.ack("c1", delivery)
    assert Done(offset=0, reason="acked") in driver.notices()


def test_a_parked_message_is_settled_by_the_operator() -> None:
    driver = driver_with(poison=Poison.BLOCK)
    poisoned(driver)
    driver._apply(driver.dispatcher.park(0))  # nobody parks in the kit, but a subclass may
    assert Settled(offset=0, reason=SettledBy.OPERATOR) in driver.notices()


@pytest.mark.parametrize(
    ("poison", "what"),
    [
        (Poison.DEAD_LETTER, DeadLettered(offset=0)),
        (Poison.DROP, Dropped(offset=0)),
        (Poison.BLOCK, Held(offset=0, reason=HoldReason.BLOCKED)),
    ],
)
def test_what_becomes_of_poison_is_told(poison: Poison, what: Happening) -> None:
    assert what in poisoned(driver_with(poison=poison))


def test_what_nobody_wants_is_told() -> None:
    driver = driver_with(unmatched=Unmatched.SKIP)
    driver.connect("c1", ("b",))
    driver.publish(b"a")
    assert Skipped(offset=0) in driver.notices()


def test_what_a_newer_message_supersedes_is_told() -> None:
    driver = driver_with(latest_only=True)
    driver.publish(b"a")
    driver.publish(b"a")
    assert Settled(offset=0, reason=SettledBy.SUPERSEDED) in driver.notices()


def test_after_a_restart_nobody_is_connected_and_nothing_is_forgotten() -> None:
    driver = driver_with()
    driver.connect("c1")
    driver.publish(b"a")
    driver.publish(b"b")
    (first, _) = driver.receive("c1")
    driver.ack("c1", first)
    driver.restart()
    assert {} == driver.inboxes
    driver.connect("c1")
    assert [1] == offsets(driver, "c1")


def test_a_message_goes_where_its_key_belongs() -> None:
    driver = RouterDriver()
    assert driver.publish(b"lost") == 0
    driver.connect("c1")
    assert driver.publish(b"a") == 1
    (delivery,) = driver.receive("c1")
    assert (1, b"a", None) == (delivery.offset, delivery.key, delivery.attempt)
    assert driver.ack("c1", delivery) is None
    assert [] == driver.receive("c1")


def test_who_leaves_takes_its_inbox_along() -> None:
    driver = RouterDriver()
    driver.connect("c1")
    driver.publish(b"a")
    driver.disconnect("c1")
    driver.connect("c1")
    assert [] == driver.receive("c1")


# --- the lease queue ------------------------------------------------------------------------------------------------


def leasing(*consumers: str, **changes: Any) -> LeaseQueueDriver:  # whatever the config has
    config = replace(LeaseQueueDriver.config, **changes)
    driver_class = type("Changed", (LeaseQueueDriver,), {"config": config})
    driver: LeaseQueueDriver = driver_class()
    for name in consumers:
        driver.connect(name)
    return driver


def test_who_asks_gets_leases_and_settles_them_under_their_ids() -> None:
    driver = leasing("c1")
    for key in (b"a", b"a", b"b", b"c"):
        driver.publish(key)
    first, second = driver.receive("c1")
    assert [(0, b"a", 1), (2, b"b", 1)] == [(each.offset, each.key, each.attempt) for each in (first, second)]
    assert [] == driver.receive("c1"), "it has as much as it may"
    assert driver.ack("c1", first)
    assert not driver.ack("c1", first)
    assert 1 == driver.cursor()
    assert [3] == [delivery.offset for delivery in driver.receive("c1")], "another key has waited longer"


def test_a_nacked_version_comes_again_after_its_delay_under_another_lease() -> None:
    driver = leasing("c1")
    driver.publish(b"a")
    (delivery,) = driver.receive("c1")
    assert driver.nack("c1", delivery)
    assert not driver.nack("c1", delivery)
    assert [] == driver.receive("c1")
    driver.advance(DELAY_MS)
    assert [2] == [again.attempt for again in driver.receive("c1")]


def test_a_lease_that_expires_is_told_by_its_id() -> None:
    driver = leasing("c1")
    driver.publish(b"a")
    driver.publish(b"b")
    driver.receive("c1")
    driver.advance(ACK_TIMEOUT_MS)
    assert {Expired(offset=0, consumer="c1", attempt=1), Expired(offset=1, consumer="c1", attempt=1)} <= {
        *driver.notices()
    }


def test_what_was_not_kept_in_memory_is_read_again_for_who_asks() -> None:
    driver = leasing("c1")
    for _ in range(5):
        driver.publish(b"a")
    seen = []
    for _ in range(5):
        (delivery,) = driver.receive("c1")
        seen.append(delivery.offset)
        driver.ack("c1", delivery)
    assert [0, 1, 2, 3, 4] == seen


def test_a_version_that_is_read_again_when_it_is_asked_for_is_leased_by_the_same_call() -> None:
    driver = leasing("c1", window=2, max_depth=8, max_in_flight_per_consumer=1)
    for key in (b"a", b"b", b"c", b"d"):
        driver.publish(key)
    (first,) = driver.receive("c1")
    driver.ack("c1", first)
    assert 3 == driver.queue.stats().spilled
    assert [1] == [delivery.offset for delivery in driver.receive("c1")]


def test_what_does_not_fit_into_the_queue_is_offered_when_there_is_room() -> None:
    driver = leasing("c1", max_depth=2, window=2)
    for _ in range(3):
        driver.publish(b"a")
    assert 2 == driver.offered
    driver.ack("c1", driver.receive("c1")[0])
    assert 3 == driver.offered


def test_a_reservation_that_has_ended_gives_nothing() -> None:
    driver = leasing("c1")
    driver.publish(b"a")
    reservation = driver.queue.reserve("c1").result
    driver.queue.abort(reservation.id)
    assert isinstance(driver.queue.commit(reservation.id).result, InvalidReservation)
    assert [] == driver.lease(reservation.id)


def test_poison_of_a_queue_is_written_as_a_dead_letter() -> None:
    driver = leasing("c1", max_delivery_attempts=1)
    driver.publish(b"a")
    driver.nack("c1", driver.receive("c1")[0])
    assert DeadLettered(offset=0) in driver.notices()
    assert 1 == driver.cursor()


def test_a_blocked_version_is_told() -> None:
    driver = leasing("c1", max_delivery_attempts=1, poison=Poison.BLOCK)
    driver.publish(b"a")
    driver.nack("c1", driver.receive("c1")[0])
    assert Held(offset=0, reason=HoldReason.BLOCKED) in driver.notices()


def test_what_a_leaver_has_leased_is_released_and_leased_to_the_next() -> None:
    driver = leasing("c1")
    driver.publish(b"a")
    driver.receive("c1")
    driver.disconnect("c1")
    assert Released(offset=0, consumer="c1", attempt=1) in driver.notices()
    driver.connect("c2")
    assert [2] == [delivery.attempt for delivery in driver.receive("c2")]


def test_a_queue_comes_back_with_nobody_connected_and_greater_ids() -> None:
    driver = leasing("c1")
    driver.publish(b"a")
    (before,) = driver.receive("c1")
    driver.restart()
    assert {} == driver.consumers
    driver.connect("c1")
    (again,) = driver.receive("c1")
    assert (again.attempt or 0) > (before.attempt or 0)
    assert not driver.ack("c1", before)


def test_a_line_is_nobodys_until_somebody_asks() -> None:
    driver = leasing("c1", "c2", ordering_required=True, poison=Poison.BLOCK)
    driver.publish(b"a")
    driver.publish(b"b")
    assert [] == driver.notices()
    (first,) = driver.receive("c2")
    assert [] == driver.receive("c1")
    driver.restart()
    driver.connect("c1")
    assert [first.offset] == [delivery.offset for delivery in driver.receive("c1")]


# --- the window -----------------------------------------------------------------------------------------------------


def windowed(*consumers: str) -> WindowDriver:
    driver = WindowDriver()
    for name in consumers:
        driver.connect(name)
    return driver


def test_the_window_hands_out_one_of_a_key_and_the_next_after_its_ack() -> None:
    driver = windowed("c1")
    driver.publish(b"a")
    driver.publish(b"a")
    (first,) = driver.receive("c1")
    assert driver.ack("c1", first)
    assert not driver.ack("c1", first)
    assert [1] == [delivery.offset for delivery in driver.receive("c1")]
    assert 1 == driver.cursor()


def test_a_window_keeps_two_of_a_key_and_reads_the_rest_again() -> None:
    driver = windowed("c1")
    for _ in range(4):
        driver.publish(b"a")
    seen = []
    for _ in range(4):
        (delivery,) = driver.receive("c1")
        seen.append(delivery.offset)
        driver.ack("c1", delivery)
    assert [0, 1, 2, 3] == seen


def test_an_answer_to_the_window_has_to_name_the_open_delivery() -> None:
    driver = windowed("c1", "c2")
    driver.publish(b"a")
    (delivery,) = [*driver.receive("c1"), *driver.receive("c2")]
    owner = driver.ring.owner(b"a")
    assert owner is not None
    other = "c1" if owner == "c2" else "c2"
    assert not driver.ack(other, delivery)
    assert not driver.nack(owner, Delivery(0, b"a", 2))
    assert not driver.ack(owner, Delivery(1, b"a", 1))
    assert driver.nack(owner, delivery)
    assert not driver.ack(owner, delivery), "it waits for its retry"


def test_a_retry_comes_after_its_delay_and_not_before() -> None:
    driver = windowed("c1")
    driver.publish(b"a")
    driver.nack("c1", driver.receive("c1")[0])
    driver.advance(DELAY_MS - 1)
    assert [] == driver.receive("c1")
    driver.advance(1)
    assert [2] == [delivery.attempt for delivery in driver.receive("c1")]


def test_what_a_leaver_of_the_window_had_goes_to_the_next() -> None:
    driver = windowed("c1")
    driver.publish(b"a")
    driver.disconnect("c1")
    driver.connect("c2")
    assert [0] == [delivery.offset for delivery in driver.receive("c2")]
    assert [Owned(key=b"a", consumer="c2")] == driver.notices()


def test_a_window_begins_anew_at_its_cursor_and_forgets_its_retries() -> None:
    driver = windowed("c1")
    for key in (b"a", b"b", b"c"):
        driver.publish(key)
    first, second = driver.receive("c1")
    driver.ack("c1", first)
    driver.nack("c1", second)
    driver.restart()
    driver.advance(DELAY_MS)
    driver.connect("c1")
    assert [1, 2] == [delivery.offset for delivery in driver.receive("c1")]


def test_what_does_not_fit_into_the_window_is_offered_when_there_is_room() -> None:
    driver = windowed("c1")
    for number in range(65):
        driver.publish(b"%d" % number)
    assert driver.offered < 65
    before = driver.offered
    driver.ack("c1", driver.receive("c1")[0])
    assert driver.offered == before + 1
    assert State.IN_FLIGHT == driver.window.find(1).state
