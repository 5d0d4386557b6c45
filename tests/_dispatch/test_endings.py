"""What is noted of messages, and until when they wait, is looked over with the books."""

from collections.abc import Callable
from typing import Any

import pytest
from tests.alphabet import Watched, fill, subscription
from tests.steps import steps_of

from keyshared._dispatch.endings import Note
from keyshared.config import DispatcherConfig, Poison, RetryPolicy
from keyshared.dispatcher import KeySharedDispatcher
from keyshared.effects import SettleReason
from keyshared.errors import InvariantError
from keyshared.ring import HashRing


def held() -> Any:
    """Something is blocked, something is delayed, something is open, something waits."""
    dispatcher: Watched = subscription("ann", poison=Poison.BLOCK)
    fill(dispatcher, "a1", "b1", "c1", "c1")
    dispatcher.reject(0, "ann", 1)
    dispatcher.nack(1, "ann", 1)
    dispatcher.check_invariants()
    return dispatcher


@pytest.mark.parametrize(
    ("spoil", "match"),
    [
        (lambda d: d._endings.blocked.clear(), "what is blocked is known by its key"),
        (lambda d: d._endings.blocked.update({b"a1": {9: d._window.find(0)}}), "what is blocked is outstanding"),
        (lambda d: d._endings.notes.update({99: Note()}), "notes are of outstanding messages"),
        (lambda d: d._timers._heap.clear(), "message 1 has a timer for its deadline"),
        (lambda d: d._timers.start(d._window.find(3), 9), "message 3 has a deadline while time ends it"),
        (lambda d: setattr(d._window.find(1), "deadline", None), "message 1 waits until some time"),
        (lambda d: setattr(d._window.find(2), "deadline", None), "message 2 waits until some time"),
        (lambda d: setattr(d._endings.notes[1], "mark", SettleReason.LATE_ACK), "message 1 is marked while it is open"),
        (lambda d: setattr(d._endings.notes[0], "postponed", True), "message 0 is postponed while it is delayed"),
        (lambda d: d._endings.notes.update({3: Note(failures=1)}), "message 3 has failed, so it stands before what"),
        (lambda d: d._window._touched.update({d._window.find(3).lane: None}), "what may go out went out, unless"),
    ],
)
def test_what_is_noted_or_timed_wrongly_is_found(spoil: Callable[[Any], None], match: str) -> None:
    dispatcher = held()
    spoil(dispatcher)

    with pytest.raises(InvariantError, match=match):
        dispatcher.check_invariants()


def test_without_an_ack_timeout_what_is_open_needs_no_deadline() -> None:
    fill(subscription("ann", ack_timeout_ms=None), "a1")


@pytest.mark.no_cover
@pytest.mark.interpreted("counts steps of the interpreter")
@pytest.mark.parametrize("length", [lambda count: (count, 0), lambda count: (1, count)], ids=["keys", "backlog"])
def test_unblock_takes_no_more_steps_with_many_quarantined_keys_or_a_long_backlog(
    length: Callable[[int], tuple[int, int]],
) -> None:
    few, many = (steps_of(quarantined(*length(count)).unblock, "0") for count in (10, 500))

    assert many < 1.5 * few


def quarantined(keys: int, backlog: int) -> KeySharedDispatcher[object]:
    """Of each key one message has failed and another is open; behind those of the first key there is a backlog."""
    config = DispatcherConfig(
        poison=Poison.QUARANTINE, retry=RetryPolicy(max_redeliveries=0), max_in_flight_per_key=2, window=10_000
    )
    dispatcher = KeySharedDispatcher[object](HashRing(), config)
    dispatcher.add_consumer("ann", limit=5_000)
    for offset in range(2 * keys):
        dispatcher.offer(offset, str(offset // 2))
    for offset in range(backlog):
        dispatcher.offer(2 * keys + offset, "0")
    for offset in range(0, 2 * keys, 2):
        dispatcher.nack(offset, "ann", 1)
    dispatcher.check_invariants()
    return dispatcher
