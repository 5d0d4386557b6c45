"""Corners of the core that single rules seldom reach."""

from typing import Any

import pytest

from keyshared import DispatcherConfig, HashRing, KeySharedDispatcher
from keyshared._core.feature import Feature

NOTHING: Any = None


def subscription(*names: str, **config: Any) -> KeySharedDispatcher:
    dispatcher = KeySharedDispatcher(HashRing(), DispatcherConfig(**config))
    for name in names:
        dispatcher.add_consumer(name, now_ms=0)
    return dispatcher


def test_a_feature_that_overrides_nothing_keeps_and_refuses_nothing() -> None:
    feature = Feature()

    assert (False, [], [], {}, None) == (
        feature.must_finish(NOTHING),
        list(feature.keys()),
        list(feature.finish(0)),
        feature.duties(),
        feature.dump(0),
    )
    for call in (feature.place, lambda: feature.refuses(NOTHING, NOTHING)):
        with pytest.raises(NotImplementedError):
            call()


def test_consumers_that_have_left_are_not_kept_until_a_keyless_message_asks() -> None:
    dispatcher = subscription("ann")
    for number in range(200):
        dispatcher.add_consumer(f"c{number}")
        dispatcher.remove_consumer(f"c{number}")
    dispatcher.check_invariants()

    dispatcher.offer(0, None)
    assert ["ann"] == [delivery.consumer for delivery in dispatcher.in_flight()]


def test_the_consumer_with_most_capacity_is_found_after_many_changes() -> None:
    dispatcher = subscription("ann", "bob", max_in_flight_per_consumer=300)
    for offset in range(400):
        dispatcher.set_limit("ann", 300 + offset % 7)
        dispatcher.offer(offset, None)
    dispatcher.check_invariants()

    assert 400 == len(dispatcher.in_flight())


def test_a_deadline_that_is_moved_often_leaves_nothing_behind() -> None:
    dispatcher = subscription("ann", ack_timeout_ms=1_000)
    dispatcher.offer(0, "a", now_ms=0)
    for number in range(300):
        assert [] == dispatcher.extend(0, "ann", 1, extend_ms=1_000 + number)

    assert 1_299 == dispatcher.next_deadline_ms()
    dispatcher.check_invariants()


def test_patterns_that_are_no_short_prefix_are_tried_and_their_answers_are_forgotten_in_time() -> None:
    dispatcher = subscription()
    long = "k" * 70
    dispatcher.add_consumer("ann", filters=[f"{long}*", "kk*", "?x*y"])
    dispatcher.add_consumer("bob", filters=["kk*"])

    assert [None, "ann"] == [dispatcher.owner("k"), dispatcher.owner("axy")]
    assert dispatcher.owner(long + "1") in {"ann", "bob"}
    for number in range(3_000):
        dispatcher.owner(f"{number:0>60}")
    dispatcher.check_invariants()
