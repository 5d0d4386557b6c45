"""Rule 13: a snapshot at any point, restored anywhere, goes on as if nothing had happened."""

import json
from copy import deepcopy
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
from tests.alphabet import AlphabetRing, Watched, deliver, fill, subscription

from keyshared._core.snapshot import sealed
from keyshared.config import (
    DispatcherConfig,
    DrainUnit,
    Poison,
    RetryPolicy,
    Rules,
    Unmatched,
)
from keyshared.dispatcher import KeySharedDispatcher
from keyshared.effects import (
    Effect,
)
from keyshared.errors import InvariantError, SnapshotError
from keyshared.ring import HashRing


def restored(
    dispatcher: KeySharedDispatcher, *, now_ms: int = 0, epoch: int = 0, items: dict[int, object] | None = None
) -> Watched:
    """What another host makes of the snapshot, after it was written down and read."""
    state = json.loads(json.dumps(dispatcher.snapshot()))
    return Watched.restore(state, AlphabetRing(), dispatcher.config, now_ms=now_ms, epoch=epoch, items=items)


def busy() -> Watched:
    """Something of everything: states of messages, lists that keys wait in, kinds of deadlines, marks."""
    dispatcher = subscription(
        "cat",
        "ann",
        window=40,
        max_in_flight_per_consumer=3,
        max_loaded_per_key=2,
        poison=Poison.BLOCK,
        archive_blocked=True,
        retry=RetryPolicy(max_redeliveries=1, base_delay_ms=500),
        drain_timeout_ms=5_000,
        unmatched=Unmatched.HOLD,
    )
    fill(dispatcher, "b1", "b1", "a1", "a1", "a1", "a2", "a3", "a4", "a5", "c1", "c2", "c3", None, "d1")
    dispatcher.reject(2, "ann", 1)  # a1 is dead-lettering; 3 waits behind it, 4 is spilled
    dispatcher.gone(3)  # 4 is being loaded
    dispatcher.reject(5, "ann", 1)
    dispatcher.dead_lettered(5)  # a2 is blocked
    dispatcher.nack(6, "ann", 1, now_ms=100)  # a3 waits for its retry
    dispatcher.gone(9)  # c1 is gone once cat is done with it
    dispatcher.release(10, "cat", 1)
    dispatcher.release(11, "cat", 1)
    dispatcher.ack(10, "cat", 1)  # c2 is out again, and acked late
    dispatcher.add_consumer("bob", limit=1, now_ms=200)  # b1 drains from cat
    fill(dispatcher, None, None, start=14)  # nobody has room for the second one
    dispatcher.set_inactive("cat", now_ms=300)
    dispatcher.remove_consumer("ann", drain_ms=9_000)
    dispatcher.set_filters("cat", ["c*"])
    dispatcher.set_filters("bob", ["b*", "d*"])
    fill(dispatcher, "e1", "a1", start=16)  # nobody's, and spilled
    return dispatcher


def script(dispatcher: Watched) -> list[list[Effect]]:
    """Something that stirs all of it."""
    return [
        dispatcher.handle_timeout(now_ms=700),
        dispatcher.dead_lettered(2),
        dispatcher.unblock("a2"),
        dispatcher.loaded(4, "read again"),
        dispatcher.nack(9, "cat", 1),
        dispatcher.nack(10, "cat", 2),
        dispatcher.add_consumer("dan"),
        dispatcher.set_active("cat", resumed=True),
        dispatcher.handle_timeout(now_ms=6_000),
        dispatcher.offer(50, "b1"),
        dispatcher.unblock("a1"),
        dispatcher.handle_timeout(now_ms=20_000),
        dispatcher.truncate(20),
        dispatcher.handle_timeout(now_ms=60_000),
        dispatcher.handle_timeout(now_ms=200_000),
    ]


def test_the_same_future_inputs_have_the_same_future_effects() -> None:
    original = busy()
    copy = restored(original, now_ms=300)

    assert original.snapshot() == copy.snapshot()
    assert original.outstanding_effects() == copy.outstanding_effects()
    expected = script(original)
    assert sum(map(len, expected)) > 20
    assert expected == script(copy)
    assert original.stats() == copy.stats()


def test_an_unused_dispatcher_can_be_stored_too() -> None:
    copy = restored(subscription(start=7))

    assert (None, 7) == (copy.safe_cursor, copy.resume_offset)
    assert [] == copy.offer(7, "a1")


def test_shares_survive_exactly() -> None:
    weighted = KeySharedDispatcher(HashRing())
    weighted.add_consumer("ann", weight=Fraction(3, 2))
    weighted.add_consumer("bob", weight=2)
    state = json.loads(json.dumps(weighted.snapshot()))

    again = KeySharedDispatcher.restore(state, HashRing(), now_ms=0)

    assert weighted.placement.ranges == again.placement.ranges
    assert weighted.snapshot() == again.snapshot()


def test_a_cursor_that_the_host_was_not_told_is_found_out() -> None:
    dispatcher = subscription("ann")
    dispatcher._machine.outbox.reported = 7

    with pytest.raises(InvariantError, match="the cursor that was reported is the cursor"):
        dispatcher.check_invariants()


class TestRefused:
    """A snapshot that was cut or damaged, or is not of this dispatcher, is refused, and says where it is wrong."""

    def refuse(self, state: object, match: str | None = None, config: DispatcherConfig | None = None) -> None:
        with pytest.raises(SnapshotError, match=match):
            KeySharedDispatcher.restore(state, AlphabetRing(), config or busy().config, now_ms=0)

    @pytest.mark.parametrize("state", [None, 7, "text", [], {}, {"version": "1"}])
    def test_no_snapshot_at_all(self, state: object) -> None:
        self.refuse(state)

    def test_another_version(self) -> None:
        self.refuse(busy().snapshot() | {"version": 1}, "version")

    def test_another_placement(self) -> None:
        with pytest.raises(SnapshotError, match="placement"):
            KeySharedDispatcher.restore(busy().snapshot(), AlphabetRing(["zoe"]), busy().config, now_ms=0)

    def test_another_drain_unit_or_one_lane(self) -> None:
        state = subscription("ann").snapshot()
        self.refuse(state, "unit", DispatcherConfig(unit=DrainUnit.HASH))
        self.refuse(busy().snapshot(), "one_lane", DispatcherConfig(ordering_required=True, poison=Poison.BLOCK))

    def test_a_feature_that_the_configuration_does_not_ask_for(self) -> None:
        drained = subscription("bob", drain_timeout_ms=100)
        fill(drained, "a1", "a1")
        drained.add_consumer("ann")

        self.refuse(drained.snapshot(), "be absent: the configuration does not ask for it", DispatcherConfig())

    def test_a_configuration_that_the_messages_do_not_fit(self) -> None:
        self.refuse(busy().snapshot(), "loaded messages fit the window", config=replace(busy().config, window=2))

    @pytest.mark.parametrize(
        ("path", "value", "match"),
        [
            (("waiting", 0, 1), 7, r"waiting\[0\]\[1\] .*be a str"),
            (("waiting", 0, 0), "nowhere", r"waiting\[0\]\[0\] .*be a place"),
            (("waiting", 0, 2), 99, r"waiting\[0\]\[2\] .*be the first offset of a lane that waits once"),
            (("consumers", 0, "filters"), ["\\"], "pattern"),
            (("consumers", 0, "quota"), -1, r"consumers\[0\]\.quota .*be at least 0"),
            (("consumers", 0, "state"), "asleep", r"consumers\[0\]\.state .*be one of active, inactive, draining"),
            (("consumers", 0, "weight"), [1, 0], r"consumers\[0\]\.weight .*be a fraction"),
            (("consumers", 0, "weight"), [1], r"consumers\[0\]\.weight .*be a list of 2"),
            (("consumers", 1, "name"), "cat", "describe a dispatcher that can exist"),
            (("epoch",), 1 << 31, "epoch"),
            (("unit",), 7, "unit"),
            (("paused",), 0, "paused .*be a bool"),
            (("quarantined",), ["*"], r"quarantined\[0\] .*be base64"),
            (("features",), [], "features .*be a dict"),
            (("messages",), {}, "messages .*be a list"),
            (("messages", 0, 0), None, r"messages\[0\]\[0\] .*be an int"),
            (("messages", 0, 0), 1 << 70, r"messages\[0\]\[0\] .*be an int of at most 63 bits"),
            (("messages", 0, 1), 7, r"messages\[0\]\[1\] .*be the greatest offset that was offered before it"),
            (("messages", 0, 3), "settled", r"messages\[0\]\[3\] .*be one of queued, spilled"),
            (("messages", 0, 5), None, r"messages\[0\]\[5\] .*be the consumer of a message that is in flight"),
            (("messages", 0, 6), -1, r"messages\[0\]\[6\] .*be at least 0"),
            (("last",), 16, r"last .*be the greatest offset offered"),
        ],
    )
    def test_a_sealed_one_of_wrong_values(self, path: tuple[Any, ...], value: object, match: str) -> None:
        state = _replaced(busy().snapshot(), path, value)
        self.refuse(sealed({name: part for name, part in state.items() if name != "checksum"}), match)

    def test_a_sealed_one_that_contradicts_itself(self) -> None:
        held = subscription("ann")
        fill(held, "a1", "a1")
        state: dict[str, Any] = held.snapshot()
        state["messages"][0][4], state["messages"][1][4] = False, True  # delivered
        self.refuse(sealed({name: part for name, part in state.items() if name != "checksum"}), "delivered")

    def test_no_plain_data(self) -> None:
        self.refuse(busy().snapshot() | {"epoch": object()}, "checksum")


def _place(state: Any, path: tuple[Any, ...]) -> Any:
    for step in path[:-1]:
        state = state[step]
    return state


def _replaced(state: dict[str, object], path: tuple[Any, ...], value: object) -> dict[str, object]:
    forged = deepcopy(state)
    _place(forged, path)[path[-1]] = value
    return forged


@pytest.mark.parametrize("first", [1, 9], ids=["of another key", "not outstanding"])
def test_a_drain_deadline_of_what_does_not_drain_is_refused(first: int) -> None:
    dispatcher = subscription("bob", drain_timeout_ms=100)
    fill(dispatcher, "a1", "b1", "a1")
    dispatcher.add_consumer("ann")
    state: dict[str, Any] = deepcopy(dispatcher.snapshot())
    del state["checksum"]
    assert {"drains": [[0, 100]]} == state["features"]
    state["features"]["drains"][0][0] = first

    with pytest.raises(SnapshotError, match="be the first offset of a lane that drains"):
        KeySharedDispatcher.restore(sealed(state), AlphabetRing(), dispatcher.config, now_ms=0)


def test_blocked_messages_without_a_key_are_unblocked_together_after_a_restart() -> None:
    config: dict[str, Any] = {"poison": Poison.BLOCK, "retry": RetryPolicy(max_redeliveries=0)}
    dispatcher = subscription("ann", **config)
    fill(dispatcher, None, None)
    for offset in (0, 1):
        dispatcher.nack(offset, "ann", 1)
    again = restored_as(dispatcher, **config)

    assert [deliver(0, None, "ann", 2), deliver(1, None, "ann", 2)] == again.unblock(None)


def restored_as(dispatcher: KeySharedDispatcher, rules: Rules | None = None, **config: Any) -> Watched:
    """What a host with other settings makes of the snapshot."""
    state = json.loads(json.dumps(dispatcher.snapshot()))
    return Watched.restore(state, AlphabetRing(), replace(dispatcher.config, **config), now_ms=7, rules=rules)


class TestOtherLimits:
    """A restart may have other limits. What wider ones make possible is open when `restore` returns."""

    def again(self, dispatcher: KeySharedDispatcher, rules: Rules | None = None, **config: Any) -> Watched:
        return restored_as(dispatcher, rules, **config)

    @pytest.mark.parametrize(
        ("before", "after", "match"),
        [
            (
                {"max_in_flight_per_key": 2},
                {"max_in_flight_per_key": 1},
                "see max_in_flight_per_key, batch_per_key and",
            ),
            ({}, {"window": 1}, "fit the window"),
            ({}, {"window": 2, "max_tracked": 2}, "fit"),
            ({}, {"max_loaded_per_key": 1}, "beyond max_loaded_per_key"),
        ],
    )
    def test_a_limit_below_what_is_in_use_is_named(
        self, before: dict[str, Any], after: dict[str, Any], match: str
    ) -> None:
        held = subscription("ann", **before)
        fill(held, "a1", "a1", "a1")

        with pytest.raises(SnapshotError, match=match):
            self.again(held, **after)
