"""What the drivers of the library's own dispatcher and router do with its effects."""

from dataclasses import replace
from typing import Any

import pytest

from keyshared.config import Unmatched
from keyshared.retry import Poison
from keyshared.testing.drivers import DispatcherDriver, RouterDriver
from keyshared.testing.history import (
    DeadLettered,
    Dropped,
    Expired,
    Happening,
    Held,
    HoldReason,
    Owned,
    Released,
    Settled,
    SettledBy,
    Skipped,
)

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
