"""Rule 13: a snapshot at any point, restored anywhere, goes on as if nothing had happened."""

import json
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
from tests.alphabet import AlphabetRing, Watched, advanced, deliver, fill, subscription, then

from keyshared._core.snapshot import sealed
from keyshared.config import (
    DispatcherConfig,
    DrainUnit,
    GroupLimits,
    KeySessions,
    Poison,
    RetryPolicy,
    Rules,
    Unmatched,
)
from keyshared.dispatcher import KeySharedDispatcher, StoredLetter
from keyshared.effects import (
    BlockReason,
    Call,
    DeadLetter,
    Deliver,
    Effect,
    Evicted,
    Ignored,
    IgnoredReason,
    Load,
    Released,
    ReleaseReason,
    Resumed,
    Settled,
    SettleReason,
    Skipped,
    SkipReason,
    Spilled,
)
from keyshared.errors import InvariantError, OffsetOrderError, SnapshotError
from keyshared.ring import HashRing

EPOCH = 1 << 32


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


def test_the_example_has_something_of_everything() -> None:
    stats = busy().stats()

    counts = (stats.delayed, stats.dead_lettering, stats.blocked, stats.spilled, stats.in_flight)
    assert (1, 1, 1, 1, 7) == counts
    assert (1, 1, 1) == (stats.ownerless_keys, stats.draining_keys, stats.keyless_waiting)
    assert {"cat": "inactive", "ann": "draining", "bob": "active"} == {n: c.state for n, c in stats.consumers.items()}
    assert {"cat": 1, "ann": 0, "bob": 1} == {name: each.ready_keys for name, each in stats.consumers.items()}
    assert [DeadLetter(2, b"a1", 1, 1, None), Load(4, b"a1")] == busy().outstanding_effects()[:2]


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


def test_why_and_when_are_answered_the_same() -> None:
    original = busy()
    copy = restored(original, now_ms=300)

    assert [original.why_blocked(offset) for offset in range(18)] == [copy.why_blocked(offset) for offset in range(18)]
    assert original.next_deadline_ms() == copy.next_deadline_ms()
    assert original.acked_ranges() == copy.acked_ranges()
    assert (original.safe_cursor, original.resume_offset) == (copy.safe_cursor, copy.resume_offset)


def test_an_unused_dispatcher_can_be_stored_too() -> None:
    copy = restored(subscription(start=7))

    assert (None, 7) == (copy.safe_cursor, copy.resume_offset)
    assert [] == copy.offer(7, "a1")


def test_deadlines_are_kept_as_what_remains_because_the_new_hosts_clock_is_another_one() -> None:
    original = subscription("ann", "bob", ack_timeout_ms=100, inactive_grace_ms=50)
    original.offer(0, "b1", now_ms=1_000)
    original.set_inactive("ann", now_ms=1_010)
    original.set_limit("ann", 7, now_ms=1_030)

    copy = restored(original, now_ms=5)
    assert 35 == copy.next_deadline_ms()
    assert [Evicted("ann")] == copy.handle_timeout(now_ms=74)
    assert [Released(0, "bob", 1, ReleaseReason.ACK_TIMEOUT, 1, 1075)] == copy.handle_timeout(now_ms=75)


def test_what_was_overdue_is_due_at_once() -> None:
    original = subscription("ann", ack_timeout_ms=100)
    original.offer(0, "a1", now_ms=0)
    original.set_limit("ann", 7, now_ms=250)

    assert [Released(0, "ann", 1, ReleaseReason.ACK_TIMEOUT, 1, 1003)] == restored(original, now_ms=3).handle_timeout(
        now_ms=3
    )


def test_whoever_is_back_before_an_overdue_eviction_stays() -> None:
    original = subscription("ann", inactive_grace_ms=10)
    original.set_inactive("ann", now_ms=0)
    original.set_limit("ann", 7, now_ms=11)
    copy = restored(original, now_ms=0)
    copy.set_active("ann")

    assert [] == copy.handle_timeout(now_ms=0)
    assert None is copy.next_deadline_ms()


class TestPayloads:
    """Passengers are not stored: the host reads them again."""

    def test_they_come_with_the_restore(self) -> None:
        original = subscription("ann")
        original.offer(0, "a1", "old")
        original.offer(1, "a1", "old")

        copy = restored(original, items={0: "x", 1: "y"})
        assert [deliver(0, "a1", "ann", item="x")] == copy.outstanding_effects()
        assert [deliver(1, "a1", "ann", item="y"), advanced(0)] == copy.ack(0, "ann", 1)

    def test_or_by_offering_the_log_again_from_the_resume_offset(self) -> None:
        original = subscription("ann")
        fill(original, "a1", "a1", "a2")
        original.ack(2, "ann", 1)

        copy = restored(original)
        assert [] == copy.offer(0, "a1", "x")
        assert [] == copy.offer(1, "a1", "y")
        assert [] == copy.offer(2, "a2", "done already")
        assert [deliver(3, "a2", "ann", item="new")] == copy.offer(3, "a2", "new")
        assert [deliver(1, "a1", "ann", item="y"), advanced(0)] == copy.ack(0, "ann", 1)

    def test_a_payload_that_is_there_is_not_replaced_and_a_spilled_one_is_not_wanted(self) -> None:
        original = subscription("ann", max_loaded_per_key=1)
        assert [deliver(0, "a1", "ann"), Spilled(1)] == fill(original, "a1", "a1")

        copy = restored(original, items={0: "x", 1: "y"})
        copy.offer_many([(0, "a1", "other"), (1, "a1", "other")])
        assert [deliver(0, "a1", "ann", item="x")] == copy.outstanding_effects()
        assert [Load(1, b"a1"), advanced(0)] == copy.ack(0, "ann", 1)

    def test_once_something_new_was_offered_the_log_cannot_go_back(self) -> None:
        original = subscription("ann")
        fill(original, "a1")
        copy = restored(original)
        copy.offer(1, "a2")

        with pytest.raises(OffsetOrderError):
            copy.offer(0, "a1")

    def test_a_batch_that_goes_back_is_refused_as_a_whole(self) -> None:
        original = subscription("ann")
        fill(original, "a1")
        copy = restored(original)
        before = copy.snapshot()

        with pytest.raises(OffsetOrderError):
            copy.offer_many([(1, "a2", None), (0, "a1", None)])
        assert before == copy.snapshot()


class TestEpoch:
    """Deliveries made after the snapshot and before the crash are unknown to it; a higher epoch fences them."""

    def test_new_deliveries_are_numbered_above_every_one_of_the_last_life(self) -> None:
        original = subscription("ann", "bob")
        fill(original, "a1", "a1")
        stored = restored(original, epoch=1)
        original.ack(0, "ann", 1)  # after the snapshot: 1 goes out as attempt 1, and then the host crashes

        assert [deliver(1, "a1", "ann", EPOCH + 1), advanced(0)] == stored.ack(0, "ann", 1)
        assert [deliver(1, "a1", "ann", EPOCH + 2)] == then(stored.release(1, "ann", EPOCH + 1))
        assert [deliver(2, "b1", "bob", EPOCH + 1)] == stored.offer(2, "b1")

    def test_a_letter_of_the_last_epoch_can_be_redriven(self) -> None:
        original = subscription("ann", redrive=True)
        stored = restored(original, epoch=(1 << 31) - 1)
        fill(stored, "a1")
        attempt = ((1 << 31) - 1) * EPOCH + 1
        stored.reject(0, "ann", attempt)
        stored.dead_lettered(0)
        assert [deliver(0, "a1", "ann", attempt + 1)] == stored.redrive("a1", [StoredLetter(0, attempt)])

    def test_a_message_that_was_never_delivered_cannot_be_acked_by_any_number(self) -> None:
        # An ack of 1 from the last life names a delivery that this life knows nothing of: at worst it is done twice.
        original = subscription("ann")
        fill(original, "a1", "a1")
        copy = restored(original, epoch=1)

        for attempt in (1, EPOCH, EPOCH + 1):
            unknown = Ignored(1, "ann", attempt, Call.ACK, IgnoredReason.UNKNOWN_ATTEMPT)
            assert [unknown] == copy.ack(1, "ann", attempt)

    def test_a_dead_letter_of_what_was_never_delivered_says_so(self) -> None:
        original = subscription("ann", quarantine=True)
        fill(original, "a1", "a1")
        copy = restored(original, epoch=1)

        assert [DeadLetter(0, b"a1", 1, 1, None)] == then(copy.reject(0, "ann", 1))
        assert [DeadLetter(1, b"a1", 0, 0, None), advanced(0)] == copy.dead_lettered(0)

    def test_it_never_goes_back(self) -> None:
        once = restored(subscription("ann"), epoch=3)

        assert [deliver(0, "a1", "ann", (3 << 32) + 1)] == restored(once).offer(0, "a1")


def test_marks_for_late_acks_and_lost_logs_survive() -> None:
    original = subscription("ann", retry=RetryPolicy(base_delay_ms=0))
    fill(original, "a1", "a2")
    original.nack(0, "ann", 1)
    original.ack(0, "ann", 1)
    original.gone(1)
    copy = restored(original)

    assert [Settled(0, b"a1", SettleReason.LATE_ACK), advanced(0)] == then(copy.release(0, "ann", 2))
    assert [Skipped(1, b"a2", SkipReason.GONE), advanced(1)] == then(copy.release(1, "ann", 1))


def test_late_acks_of_a_consumer_that_has_left_are_still_told_from_those_of_others() -> None:
    original = subscription("ann")
    fill(original, "a1", "a2")
    original.remove_consumer("ann")
    copy = restored(original)

    foreign = Ignored(0, "bob", 1, Call.ACK, IgnoredReason.NOT_HOLDER)
    assert [foreign] == copy.ack(0, "bob", 1)
    assert [advanced(1)] == copy.ack_many([(0, "ann", 1), (1, "ann", 1)])


def test_a_quarantine_survives_its_last_message() -> None:
    original = subscription("ann", quarantine=True)
    fill(original, "a1")
    original.reject(0, "ann", 1)
    original.dead_lettered(0)

    assert [DeadLetter(1, b"a1", 0, 0, None)] == restored(original).offer(1, "a1")


def test_shares_survive_exactly() -> None:
    weighted = KeySharedDispatcher(HashRing())
    weighted.add_consumer("ann", weight=Fraction(3, 2))
    weighted.add_consumer("bob", weight=2)
    state = json.loads(json.dumps(weighted.snapshot()))

    again = KeySharedDispatcher.restore(state, HashRing(), now_ms=0)

    assert weighted.placement.ranges == again.placement.ranges
    assert weighted.snapshot() == again.snapshot()


def test_a_lane_that_waits_for_memory_keeps_its_place() -> None:
    original = subscription("ann", "bob", window=2)
    original.set_limit("ann", 0)
    assert [Spilled(1), deliver(2, "b1", "bob")] == fill(original, "a1", "a2", "b1")
    original.set_limit("ann", 2)
    assert 1 == original.stats().starved_keys

    copy = restored(original)
    assert [Load(1, b"a2")] == copy.ack(2, "bob", 1)


def test_a_pause_survives_and_ends_once() -> None:
    original = subscription("ann", window=4)
    fill(original, "a1", "a2", "a3", "a4")

    assert [advanced(0), Resumed(1)] == restored(original).ack(0, "ann", 1)


def test_from_the_cursor_alone_what_was_acked_above_it_is_delivered_again() -> None:
    original = subscription("ann")
    fill(original, "a1", "a2", "a3")
    original.ack(0, "ann", 1)
    original.ack(2, "ann", 1)
    assert original.resume_offset is not None

    anew = subscription("ann", start=original.resume_offset)
    log = ((offset, f"a{offset + 1}", None) for offset in range(3))
    assert [deliver(1, "a2", "ann"), deliver(2, "a3", "ann")] == anew.offer_many(log)


@pytest.mark.parametrize(("window", "paused"), [(8, True), (9, True), (10, False)])
def test_a_pause_goes_on_unless_the_limits_of_the_new_life_leave_a_quarter_free(window: int, paused: bool) -> None:
    dispatcher = subscription("ann", window=8, max_in_flight_per_consumer=9)
    fill(dispatcher, *(f"a{number}" for number in range(8)))
    config = DispatcherConfig(window=window, max_in_flight_per_consumer=9)
    again = KeySharedDispatcher.restore(dispatcher.snapshot(), AlphabetRing(), config, now_ms=0)

    again.check_invariants()
    assert paused is again.snapshot()["paused"]


def test_a_smaller_window_that_is_full_is_a_pause() -> None:
    dispatcher = subscription("ann", window=8, max_in_flight_per_consumer=9)
    fill(dispatcher, "a1", "a2", "a3", "a4")
    config = DispatcherConfig(window=4, max_in_flight_per_consumer=9)
    again = KeySharedDispatcher.restore(dispatcher.snapshot(), AlphabetRing(), config, now_ms=0)

    assert [advanced(0), Resumed(1)] == again.ack(0, "ann", 1)


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

    def test_any_field_that_is_missing(self) -> None:
        state = busy().snapshot()
        paths = [path for path, value in _walk(state) if isinstance(path[-1], str)]
        assert len(paths) > 15
        for path in paths:
            self.refuse(_without(state, path))

    def test_any_value_that_has_changed(self) -> None:
        state = busy().snapshot()
        paths = [(path, value) for path, value in _walk(state) if value is not None]
        assert len(paths) > 50
        for path, value in paths:
            self.refuse(_replaced(state, path, 7 if isinstance(value, str) else "damaged"))

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


def _walk(value: object, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], object]]:
    """Every place in plain data, with what stands there."""
    if path:
        yield path, value
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _walk(inner, (*path, name))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _walk(inner, (*path, index))


def _place(state: Any, path: tuple[Any, ...]) -> Any:
    for step in path[:-1]:
        state = state[step]
    return state


def _without(state: dict[str, object], path: tuple[Any, ...]) -> dict[str, object]:
    forged = deepcopy(state)
    del _place(forged, path)[path[-1]]
    return forged


def _replaced(state: dict[str, object], path: tuple[Any, ...], value: object) -> dict[str, object]:
    forged = deepcopy(state)
    _place(forged, path)[path[-1]] = value
    return forged


def test_a_drain_deadline_goes_on_and_a_new_one_begins() -> None:
    dispatcher = subscription("bob", drain_timeout_ms=100, ack_timeout_ms=None)
    fill(dispatcher, "a1", "a1", "a2", "a2")
    dispatcher.add_consumer("ann", now_ms=10)
    state: dict[str, Any] = dispatcher.snapshot()
    assert {"drains": [[0, 100], [2, 100]]} == state["features"]
    assert 107 == Watched.restore(state, AlphabetRing(), dispatcher.config, now_ms=7).next_deadline_ms()

    untimed = subscription("bob", ack_timeout_ms=None)
    fill(untimed, "a1", "a1")
    untimed.add_consumer("ann")
    assert 57 == restored_as(untimed, drain_timeout_ms=50).next_deadline_ms()


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


def served(kind: type[Any]) -> list[tuple[int, str]]:
    """Who gets what when a session is lost after a restart."""
    dispatcher = subscription("ann", "zoe", max_in_flight_per_consumer=2)
    fill(dispatcher, "a1", None, "z1", "z2", "z3")  # ann has room for one more, and zoe for none
    state = json.loads(json.dumps(dispatcher.snapshot()))
    again = kind.restore(state, AlphabetRing(), dispatcher.config, now_ms=0)
    effects = again.set_active("zoe", resumed=False)
    return [(effect.offset, effect.consumer) for effect in effects if isinstance(effect, Deliver)]


def test_a_restart_gives_nobody_room_whom_the_original_does_not_serve() -> None:
    assert [(3, "zoe"), (4, "zoe"), (1, "ann")] == served(Watched)


class TestOtherLimits:
    """A restart may have other limits. What wider ones make possible is open when `restore` returns."""

    def again(self, dispatcher: KeySharedDispatcher, rules: Rules | None = None, **config: Any) -> Watched:
        return restored_as(dispatcher, rules, **config)

    def woken(self, again: Watched, *offsets: int) -> list[Effect]:
        """Return the obligations of these offsets, which nothing but the restore has met; nothing else is due."""
        assert [] == again.handle_timeout()
        return [each for each in again.outstanding_effects() if getattr(each, "offset", None) in offsets]

    def test_more_of_a_key_may_be_open(self) -> None:
        held = subscription("ann")
        fill(held, "a1", "a1", "a1", "b1")
        again = self.again(held, max_in_flight_per_key=2)

        assert BlockReason.KEY_IN_FLIGHT is held.why_blocked(1).reason  # type: ignore[union-attr]
        assert [deliver(1, "a1", "ann")] == self.woken(again, 1)
        assert BlockReason.KEY_IN_FLIGHT is again.why_blocked(2).reason  # type: ignore[union-attr]

    def test_what_is_spilled_or_delayed_or_in_quarantine_does_not_wait_for_the_limit_of_its_key(self) -> None:
        held = subscription("ann", quarantine=True, max_in_flight_per_key=2, max_loaded_per_key=2)
        fill(held, "a1", "a1", "a1")
        held.reject(0, "ann", 1)
        held.offer(3, "a2", not_before_ms=100)
        again = self.again(held, max_in_flight_per_key=3, max_loaded_per_key=3)

        assert 100 - 0 + 7 == again.next_deadline_ms()
        assert BlockReason.QUARANTINED is again.why_blocked(0).reason  # type: ignore[union-attr]

    def test_the_window_has_room_for_what_starved(self) -> None:
        held = subscription("ann", "bob", window=2)
        held.set_limit("ann", 0)
        fill(held, "a1", "a2", "b1")
        held.set_limit("ann", 2)
        again = self.again(held, window=4)

        assert BlockReason.WINDOW_FULL is held.why_blocked(1).reason  # type: ignore[union-attr]
        assert [Load(1, b"a2")] == self.woken(again, 1)

    def test_the_window_has_room_for_what_starved_without_a_key(self) -> None:
        held = subscription(window=2)
        held.add_consumer("ann", limit=0)
        held.add_consumer("bob", filters=["b*"])
        fill(held, None, None, "b1")
        held.set_limit("ann", 2)
        again = self.again(held, window=4)

        assert BlockReason.WINDOW_FULL is held.why_blocked(1).reason  # type: ignore[union-attr]
        assert [Load(1, None)] == self.woken(again, 1)

    def test_more_ack_holes_may_be_there(self) -> None:
        held = subscription("ann", max_ack_holes=10, max_in_flight_per_consumer=100)
        fill(held, *(f"a{number}" for number in range(60)))
        for offset in range(2, 60, 2):
            held.ack(offset, "ann", 1)
        fill(held, "b1", None, start=60)
        kept = self.again(held, max_ack_holes=11)
        again = self.again(held, max_ack_holes=8_000)

        assert BlockReason.ACK_HOLES is kept.why_blocked(60).reason  # type: ignore[union-attr]
        assert [deliver(60, "b1", "ann"), deliver(61, None, "ann")] == self.woken(again, 60, 61)
        assert {} == again.snapshot()["features"]

    def test_more_of_the_subscription_may_be_open(self) -> None:
        held = subscription("ann", max_in_flight=1)
        fill(held, "a1", "b1", None)
        again = self.again(held, max_in_flight=3)

        assert [deliver(1, "b1", "ann"), deliver(2, None, "ann")] == self.woken(again, 1, 2)

    @pytest.mark.parametrize("limits", [{"per_second": 1}, {"max_in_flight": 1}])
    def test_a_group_is_open(self, limits: dict[str, int]) -> None:
        rules = Rules(mark="all", group_of=lambda _: "all")
        held = subscription("ann", rules=rules, group=GroupLimits(**limits))
        fill(held, "a1", "b1", "c1")
        again = self.again(held, rules, group=GroupLimits())

        assert BlockReason.CONSUMER_FULL is not held.why_blocked(1).reason  # type: ignore[union-attr]
        assert [deliver(1, "b1", "ann"), deliver(2, "c1", "ann")] == self.woken(again, 1, 2)

    def test_a_group_that_was_there_for_its_tokens_only_is_forgotten(self) -> None:
        rules = Rules(mark="all", group_of=lambda _: "all")
        held = subscription("ann", rules=rules, group=GroupLimits(per_second=1))
        held.offer(0, "a1")
        held.ack(0, "ann", 1)

        assert ["all"] == [group.name for group in held.groups()]
        assert [] == self.again(held, rules, group=GroupLimits()).groups()

    @pytest.mark.parametrize("unit", [DrainUnit.HASH, DrainUnit.RANGE])
    def test_with_sessions_and_a_drain_unit_a_session_has_begun(self, unit: DrainUnit) -> None:
        held = subscription("ann", max_in_flight=1, unit=unit, sessions=KeySessions(flush_ms=None))
        fill(held, "a1", "b1")
        again = self.again(held, max_in_flight=5)

        assert [deliver(1, "b1", "ann")] == self.woken(again, 1)
        assert [(b"a1", 1), (b"b1", 2)] == [(each.key, each.session) for each in again.sessions()]
        assert 7 + 30_000 == again.describe(1).deadline_ms  # type: ignore[union-attr]

    def test_a_payload_may_be_handed_in_after_it(self) -> None:
        held = subscription("ann")
        fill(held, "a1", "a1")
        again = self.again(held, max_in_flight_per_key=2)

        assert [] == again.offer(1, "a1", "read again")
        assert [deliver(1, "a1", "ann", item="read again")] == self.woken(again, 1)

    def test_who_was_away_without_an_end_gets_the_whole_grace_period(self) -> None:
        held = subscription("ann", "bob", inactive_grace_ms=None)
        held.set_inactive("ann", now_ms=0)
        again = self.again(held, inactive_grace_ms=500)

        assert (507, [Evicted("ann")]) == (again.next_deadline_ms(), again.handle_timeout(now_ms=507))

    def test_who_is_away_with_an_end_keeps_what_is_left_or_has(self) -> None:
        held = subscription("ann", "bob", inactive_grace_ms=50)
        held.set_inactive("ann", now_ms=0)

        assert 57 == self.again(held, inactive_grace_ms=500).next_deadline_ms()
        assert 57 == self.again(held, inactive_grace_ms=None).next_deadline_ms()

    def test_what_was_open_without_a_timeout_gets_the_whole_time(self) -> None:
        held = subscription("ann", ack_timeout_ms=None)
        fill(held, "a1")
        again = self.again(held, ack_timeout_ms=500)

        assert 507 == again.next_deadline_ms()
        assert ReleaseReason.ACK_TIMEOUT is again.handle_timeout(now_ms=507)[0].reason  # type: ignore[union-attr]

    def test_less_of_a_key_may_be_open_while_more_of_it_waits_for_room(self) -> None:
        held = subscription("ann", max_in_flight_per_key=2, max_in_flight_per_consumer=1)
        fill(held, "a1", "a1")
        again = self.again(held, max_in_flight_per_key=1)

        assert BlockReason.CONSUMER_FULL is held.why_blocked(1).reason  # type: ignore[union-attr]
        assert BlockReason.KEY_IN_FLIGHT is again.why_blocked(1).reason  # type: ignore[union-attr]
        assert [] == again.set_limit("ann", 9)
        assert [deliver(1, "a1", "ann"), advanced(0)] == again.ack(0, "ann", 1)

    def test_or_for_memory(self) -> None:
        held = subscription("ann", window=4, max_in_flight_per_key=2, max_in_flight_per_consumer=1)
        fill(held, "a1", "b1", "c1", "d1", "a1")
        held.set_limit("ann", 9)
        again = self.again(held, max_in_flight_per_key=1)

        assert BlockReason.WINDOW_FULL is held.why_blocked(4).reason  # type: ignore[union-attr]
        assert BlockReason.KEY_IN_FLIGHT is again.why_blocked(4).reason  # type: ignore[union-attr]
        assert [Load(4, b"a1"), advanced(0)] == again.ack(0, "ann", 1)

    def test_or_for_its_group(self) -> None:
        rules = Rules(mark="all", group_of=lambda _: "all")
        limits = GroupLimits(max_in_flight=1)
        held = subscription("ann", rules=rules, group=limits, max_in_flight_per_key=2)
        fill(held, "a1", "a1")
        again = self.again(held, rules, max_in_flight_per_key=1)

        assert BlockReason.GROUP_FULL is held.why_blocked(1).reason  # type: ignore[union-attr]
        assert BlockReason.KEY_IN_FLIGHT is again.why_blocked(1).reason  # type: ignore[union-attr]
        assert [deliver(1, "a1", "ann"), advanced(0)] == again.ack(0, "ann", 1)

    def test_or_for_others_who_hold_its_unit(self) -> None:
        held = subscription("bob", "cat", max_in_flight_per_key=2, unit=DrainUnit.RANGE, drain_timeout_ms=90)
        fill(held, "b1", "c1")
        held.remove_consumer("bob", drain_ms=None)
        held.offer(2, "c1")
        again = self.again(held, max_in_flight_per_key=1)

        assert BlockReason.DRAINING is held.why_blocked(2).reason  # type: ignore[union-attr]
        assert BlockReason.KEY_IN_FLIGHT is again.why_blocked(2).reason  # type: ignore[union-attr]
        assert [advanced(0)] == again.ack(0, "bob", 1)
        assert [deliver(2, "c1", "cat"), advanced(1)] == again.ack(1, "cat", 1)

    def test_a_key_that_is_at_somebody_else_drains_as_before(self) -> None:
        held = subscription("bob", max_in_flight_per_key=2, max_in_flight_per_consumer=1)
        fill(held, "a1", "a1")
        held.add_consumer("ann")
        again = self.again(held, max_in_flight_per_key=1)

        assert BlockReason.DRAINING is again.why_blocked(1).reason  # type: ignore[union-attr]
        assert [deliver(1, "a1", "ann"), advanced(0)] == again.ack(0, "bob", 1)

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
