"""Whatever takes an offset of a log takes the same ones, and a token of it can be read again."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from keyshared._core.snapshot import sealed
from keyshared.config import DispatcherConfig
from keyshared.cursor import ContiguousCursor
from keyshared.dispatcher import KeySharedDispatcher
from keyshared.errors import ArgumentError, KeySharedError, SnapshotError
from keyshared.leases import LeaseQueue
from keyshared.ring import HashRing
from keyshared.window import InFlightWindow

OFFSETS = st.integers(-(1 << 70), 1 << 70) | st.sampled_from([(1 << 63) - 1, 1 << 63, -(1 << 63), 1 - (1 << 63)])


def offered_to_a_dispatcher(offset: int) -> str:
    dispatcher = KeySharedDispatcher(HashRing())
    dispatcher.offer(offset, "k")
    return dispatcher.cursor_token().text


def offered_in_a_batch(offset: int) -> str:
    dispatcher = KeySharedDispatcher(HashRing())
    dispatcher.offer_many([(offset, "k", None)])
    return dispatcher.cursor_token().text


def offered_to_a_window(offset: int) -> str:
    window = InFlightWindow(HashRing().ranges, capacity=1)  # type: ignore[arg-type]  # nobody is asked for an owner
    window.offer(offset, None)
    return window.cursor.to_token().text


def offered_to_a_cursor(offset: int) -> str:
    cursor = ContiguousCursor()
    cursor.offer(offset)
    return cursor.to_token().text


def leased(offset: int) -> str:
    queue = LeaseQueue(HashRing())
    queue.offer(offset, "k")
    return ContiguousCursor(queue.resume_offset).to_token().text


def stored(offset: int) -> str:
    dispatcher = KeySharedDispatcher(HashRing())
    dispatcher.offer(0, "k")
    state: Any = dispatcher.snapshot()
    state["messages"][0][0] = state["last"] = state["waiting"][0][2] = offset
    del state["checksum"]
    return KeySharedDispatcher.restore(sealed(state), HashRing(), now_ms=0).cursor_token().text


def started_at(offset: int) -> str:
    return KeySharedDispatcher(HashRing(), DispatcherConfig(start=offset)).cursor_token().text


WAYS = [offered_to_a_dispatcher, offered_in_a_batch, offered_to_a_window, offered_to_a_cursor, leased, stored]


@pytest.mark.parametrize("way", [*WAYS, started_at])
@given(offset=OFFSETS)
@example(offset=1 << 63)
@example(offset=1 << 200)
@example(offset=1 << 256)
def test_an_offset_is_refused_by_all_or_survives_a_restart(way: Callable[[int], str], offset: int) -> None:
    one_beyond = (1 << 63) + (way is started_at)
    if -(1 << 63) < offset < one_beyond:
        assert offset == ContiguousCursor.from_token(way(offset)).resume_offset
    else:
        with pytest.raises((ArgumentError, SnapshotError), match="63 bits"):
            way(offset)


@given(offset=OFFSETS)
@pytest.mark.parametrize("method", ["gone", "park", "loaded", "dead_lettered", "unblock_offset"])
def test_a_call_about_one_message_has_the_same_bound(method: str, offset: int) -> None:
    dispatcher = KeySharedDispatcher(HashRing())
    try:
        getattr(dispatcher, method)(offset)
        taken = True
    except KeySharedError as error:
        assert isinstance(error, ArgumentError)
        taken = False
    assert taken == (-(1 << 63) < offset < 1 << 63)
