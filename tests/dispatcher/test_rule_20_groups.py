"""Rule 20: groups of keys take turns, and each has its own weight, limit and rate."""

import json
from copy import deepcopy
from typing import TYPE_CHECKING, Any

import pytest
from tests.alphabet import AlphabetRing, Watched, deliver, delivered, fill, subscription
from tests.kit.recorder import Recorder

from keyshared._core.snapshot import sealed
from keyshared.config import DispatcherConfig, GroupLimits, Poison, RetryPolicy, Rules, Unmatched
from keyshared.dispatcher import Blocking, GroupStats, KeySharedDispatcher
from keyshared.effects import BlockReason, Deliver, Effect, Load, Spilled
from keyshared.errors import ArgumentError, ConfigError, SnapshotError
from keyshared.testing import Claims, check_history

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

AT_ONCE = RetryPolicy(max_redeliveries=9, base_delay_ms=0)


def named(key: bytes) -> str | None:
    """What stands behind the slash."""
    return key.partition(b"/")[2].decode() or None


RULES = Rules(mark="behind the slash", group_of=named)


def grouped(*consumers: str, **config: Any) -> Watched:
    return subscription(*consumers, rules=RULES, **config)


def served(dispatcher: KeySharedDispatcher, times: int = 20) -> str:
    """Ack what is out, the oldest first, and return the keys in the order in which they go out."""
    keys = ""
    for _ in range(times):
        opened = dispatcher.in_flight()
        if not opened:
            break
        keys += (opened[0].key or b"-").decode()[:2] + " "
        dispatcher.ack(*opened[0].receipt)
    return keys.strip()


def again(dispatcher: KeySharedDispatcher, *, rules: Rules | None = RULES, now_ms: int = 0, **config: Any) -> Watched:
    """What a restart makes of it."""
    state = json.loads(json.dumps(dispatcher.snapshot()))
    new = Watched.restore(state, dispatcher.placement, DispatcherConfig(**config), now_ms=now_ms, rules=rules)
    assert isinstance(new, Watched)
    return new


def reason(dispatcher: KeySharedDispatcher, offset: int) -> tuple[BlockReason, str | None] | None:
    why = dispatcher.why_blocked(offset)
    return None if why is None else (why.reason, why.group)


class TestTurns:
    """However many keys wait in one group, each other one has its turn in between."""

    def test_a_tenant_with_many_keys_lets_one_with_a_single_key_have_every_other_turn(self) -> None:
        dispatcher = grouped()
        dispatcher.add_consumer("ann", limit=1)
        fill(dispatcher, "a0", *(f"a{number}/big" for number in range(1, 6)), "a6/small", "a7/small")
        assert "a0 a1 a6 a2 a7 a3 a4 a5" == served(dispatcher)

    def test_a_group_of_weight_two_has_two_turns_before_the_next_group_has_one(self) -> None:
        dispatcher = grouped()
        dispatcher.add_consumer("ann", limit=1)
        dispatcher.set_group("big", weight=2)
        fill(dispatcher, "a0", *(f"a{number}/big" for number in range(1, 6)), "a6/small", "a7/small", "a8/small")
        assert "a0 a1 a2 a6 a3 a4 a7 a5 a8" == served(dispatcher)

    def test_a_key_with_several_open_messages_gives_its_group_as_many_turns_as_its_weight(self) -> None:
        dispatcher = grouped(max_in_flight_per_key=3)
        dispatcher.add_consumer("ann", limit=1)
        dispatcher.set_group("big", weight=2)
        fill(dispatcher, "a0", "a1/big", "a1/big", "a1/big", "a6/small", "a6/small")
        assert "a0 a1 a1 a6 a1 a6" == served(dispatcher)

    def test_within_a_group_keys_take_turns_as_before(self) -> None:
        dispatcher = grouped()
        dispatcher.add_consumer("ann", limit=1)
        fill(dispatcher, "a0", "a1/x", "a2/x", "a1/x", "a3/x")
        assert "a0 a1 a2 a3 a1" == served(dispatcher)

    def test_a_message_without_a_key_and_the_key_whose_turn_it_is_compare_by_age(self) -> None:
        dispatcher = grouped()
        dispatcher.add_consumer("ann", limit=1)
        fill(dispatcher, "a0", "a1/x", None, "a2/x", "a3/y")
        assert "a0 a1 - a3 a2" == served(dispatcher)

    def test_a_lower_weight_counts_from_the_next_turn(self) -> None:
        dispatcher = grouped()
        dispatcher.add_consumer("ann", limit=1)
        dispatcher.set_group("big", weight=3)
        fill(dispatcher, "a0", *(f"a{number}/big" for number in range(1, 5)), "a6/small", "a7/small")
        dispatcher.ack(0, "ann", 1)
        dispatcher.set_group("big", weight=1)
        assert "a1 a2 a6 a3 a7 a4" == served(dispatcher)

    def test_pull_takes_turns_in_the_same_rotation_which_goes_on_where_it_was(self) -> None:
        dispatcher = grouped()
        dispatcher.add_consumer("ann", limit=0)
        fill(dispatcher, "a1/x", "a2/x", "a3/x", "a4/y", "a5/y")
        assert [(0, "ann"), (3, "ann"), (1, "ann")] == delivered(dispatcher.pull("ann", 3))
        assert [(4, "ann"), (2, "ann")] == delivered(dispatcher.pull("ann", 3))

    def test_a_batch_is_one_turn_of_its_group(self) -> None:
        dispatcher = grouped(batch_per_key=2)
        dispatcher.add_consumer("ann", limit=0)
        fill(dispatcher, "a1/x", "a1/x", "a2/x", "a2/x", "a4/y", "a4/y")
        assert [0, 1, 4, 5, 2, 3] == [offset for offset, _ in delivered(dispatcher.pull("ann", 6))]

    def test_a_placement_change_keeps_the_group_of_a_key_and_its_new_owner_serves_it_there(self) -> None:
        dispatcher = grouped()
        dispatcher.add_consumer("ann", limit=0)
        fill(dispatcher, "b1/x", "b2/x", "b3/y", "b4/y")
        assert [0, 2, 1, 3] == [offset for offset, _ in delivered(dispatcher.add_consumer("bob"))]

    def test_a_lane_that_goes_away_leaves_the_turn_to_the_next_group(self) -> None:
        dispatcher = grouped()
        dispatcher.add_consumer("ann", limit=1)
        dispatcher.set_group("x", weight=3)
        fill(dispatcher, "a0", "a1/x", "a2/x", "a3/y", "a4/z")
        dispatcher.ack(0, "ann", 1)
        dispatcher.gone(2)
        assert "a1 a3 a4" == served(dispatcher)

    def test_everybody_in_one_group_is_served_as_without_groups(self) -> None:
        plain, of_one = subscription(), subscription(rules=Rules(mark="one", group_of=lambda _: None))
        for dispatcher in (plain, of_one):
            dispatcher.add_consumer("ann", limit=1)
            fill(dispatcher, "a1", "a2", None, "a1", "a3")
        assert served(plain) == served(of_one)


class TestLimits:
    """A closed group gets nothing, and is in nobody's way."""

    def test_a_group_has_no_more_open_than_it_may_and_others_go_on(self) -> None:
        dispatcher = grouped("ann")
        assert [] == dispatcher.set_group("x", max_in_flight=2)
        assert [0, 1, 3] == [offset for offset, _ in delivered(fill(dispatcher, "a1/x", "a2/x", "a3/x", "a4/y"))]
        assert (BlockReason.GROUP_FULL, "x") == reason(dispatcher, 2)
        assert [deliver(2, "a3/x", "ann")] == dispatcher.ack(1, "ann", 1)

    def test_a_retry_counts_as_any_delivery(self) -> None:
        dispatcher = grouped("ann", retry=AT_ONCE)
        dispatcher.set_group("x", max_in_flight=1)
        fill(dispatcher, "a1/x", "a2/x")
        assert [(1, "ann")] == delivered(dispatcher.nack(0, "ann", 1))
        assert (BlockReason.GROUP_FULL, "x") == reason(dispatcher, 0)
        assert [(0, "ann")] == delivered(dispatcher.nack(1, "ann", 1))

    def test_who_was_refused_first_is_served_first_and_then_everybody_in_turns(self) -> None:
        dispatcher = grouped("ann", "bob", "cat")
        dispatcher.set_group("x", max_in_flight=1)
        fill(dispatcher, "a1/x", "c1/x", "b1/x", "c2/x", "a2/x")
        assert "a1 c1 b1 a2 c2" == served(dispatcher)

    def test_a_higher_limit_serves_in_that_call_and_a_lower_one_leaves_open_what_is(self) -> None:
        dispatcher = grouped("ann")
        dispatcher.set_group("x", max_in_flight=1)
        fill(dispatcher, "a1/x", "a2/x", "a3/x")
        assert [(1, "ann"), (2, "ann")] == delivered(dispatcher.set_group("x", max_in_flight=3))
        assert [] == dispatcher.set_group("x", max_in_flight=1)
        assert 3 == len(dispatcher.in_flight())

    def test_every_group_that_is_not_set_has_the_limits_of_the_configuration(self) -> None:
        dispatcher = grouped("ann", group=GroupLimits(max_in_flight=1))
        dispatcher.set_group("y")
        fill(dispatcher, "a1/x", "a2/x", "a3/y", "a4/y", "a5")
        assert [0, 2, 3, 4] == [each.offset for each in dispatcher.in_flight()]

    def test_a_pause_holds_a_group_until_it_is_resumed_and_what_is_open_stays_open(self) -> None:
        dispatcher = grouped("ann")
        fill(dispatcher, "a1/x")
        assert [] == dispatcher.pause_group("x")
        assert [] == fill(dispatcher, "a2/x", start=1)
        assert Blocking(BlockReason.GROUP_PAUSED, group="x") == dispatcher.why_blocked(1)
        assert [deliver(1, "a2/x", "ann")] == dispatcher.resume_group("x")
        assert [0, 1] == [each.offset for each in dispatcher.in_flight()]

    def test_what_nobody_paused_may_be_resumed(self) -> None:
        assert [] == grouped("ann").resume_group("x")

    def test_a_message_that_is_wanted_alone_waits_for_its_group_too(self) -> None:
        dispatcher = grouped("ann")
        dispatcher.set_group("x", max_in_flight=1)
        fill(dispatcher, "a1/x", "a2/x")
        assert [] == dispatcher.pull("ann", 1, only=1)
        dispatcher.ack(0, "ann", 1)
        assert [1] == [each.offset for each in dispatcher.in_flight()]

    def test_a_message_that_is_wanted_alone_goes_out_of_turn(self) -> None:
        dispatcher = grouped()
        dispatcher.add_consumer("ann", limit=0)
        fill(dispatcher, "a1/x", "a2/x", "a3/y")
        assert [(1, "ann")] == delivered(dispatcher.pull("ann", 1, only=1))

    def test_a_message_that_was_loaded_for_a_consumer_waits_if_its_group_is_closed_by_then(self) -> None:
        dispatcher = grouped(window=4, max_tracked=9)
        dispatcher.add_consumer("ann", limit=0)
        fill(dispatcher, "a1/x", "a2/x", "a3/x")
        assert Load(2, b"a3/x") in dispatcher.set_limit("ann", 5)
        dispatcher.pause_group("x")
        assert [] == dispatcher.loaded(2)
        assert [(2, "ann")] == delivered(dispatcher.resume_group("x"))

    def test_what_goes_away_while_its_group_is_paused_is_not_waited_for(self) -> None:
        dispatcher = grouped("ann")
        dispatcher.pause_group("x")
        fill(dispatcher, "a1/x")
        dispatcher.gone(0)
        assert [] == dispatcher.resume_group("x")

    def test_who_leaves_while_a_group_is_paused_is_not_served_when_it_opens(self) -> None:
        dispatcher = grouped("ann")
        dispatcher.pause_group("x")
        fill(dispatcher, "a1/x")
        dispatcher.remove_consumer("ann")
        assert [] == dispatcher.resume_group("x")
        assert [(0, "ann")] == delivered(dispatcher.add_consumer("ann"))

    def test_a_key_whose_group_is_full_after_its_first_message_has_no_second_turn(self) -> None:
        dispatcher = grouped(max_in_flight_per_key=3)
        dispatcher.add_consumer("ann", limit=0)
        dispatcher.set_group("x", max_in_flight=1)
        fill(dispatcher, "a1/x", "a1/x", "a1/x", "a2/y")
        assert [0, 3] == [offset for offset, _ in delivered(dispatcher.pull("ann", 4))]

    def test_a_key_that_is_alone_stops_where_its_group_is_full(self) -> None:
        dispatcher = grouped(max_in_flight_per_key=3)
        dispatcher.add_consumer("ann", limit=0)
        dispatcher.set_group("x", max_in_flight=2)
        fill(dispatcher, "a1/x", "a1/x", "a1/x")
        assert [0, 1] == [offset for offset, _ in delivered(dispatcher.pull("ann", 4))]

    def test_a_batch_has_no_more_messages_than_its_group_has_room_for(self) -> None:
        dispatcher = grouped(batch_per_key=3)
        dispatcher.set_group("x", max_in_flight=2)
        fill(dispatcher, "a1/x", "a1/x", "a1/x")
        assert [0, 1] == [offset for offset, _ in delivered(dispatcher.add_consumer("ann"))]

    def test_a_group_whose_last_key_goes_away_before_its_turn_has_none(self) -> None:
        dispatcher = grouped()
        dispatcher.add_consumer("ann", limit=0)
        fill(dispatcher, "a1/x", "a2/y", "a3/z")
        dispatcher.gone(1)
        dispatcher.remove_consumer("ann")
        dispatcher.add_consumer("ann", limit=0)
        assert [0, 2] == [offset for offset, _ in delivered(dispatcher.pull("ann", 4))]

    def test_what_waits_for_its_group_is_spilled_beyond_half_the_window(self) -> None:
        dispatcher = grouped("ann", window=4)
        dispatcher.pause_group("x")
        assert [Spilled(2)] == fill(dispatcher, "a1/x", "a2/x", "a3/x")

    def test_what_is_offered_for_later_joins_its_key(self) -> None:
        dispatcher = grouped("ann", ack_timeout_ms=None)
        dispatcher.set_group("x", max_in_flight=1)
        fill(dispatcher, "a1/x")
        dispatcher.offer(1, "a1/x", not_before_ms=9)
        dispatcher.offer(2, "a2/x", not_before_ms=9)
        assert [] == dispatcher.handle_timeout(now_ms=9)
        assert [(2, "ann")] == delivered(dispatcher.ack(0, "ann", 1))


class TestRates:
    """Each delivery takes a token; time brings them back."""

    def test_a_burst_goes_out_at_once_and_then_one_for_each_token(self) -> None:
        dispatcher = grouped("ann")
        dispatcher.set_group("x", per_second=10, burst=2, now_ms=0)
        assert [0, 1] == [offset for offset, _ in delivered(fill(dispatcher, "a1/x", "a2/x", "a3/x", "a4/x"))]
        assert (BlockReason.GROUP_RATE, "x") == reason(dispatcher, 2)
        assert 100 == dispatcher.next_deadline_ms()
        assert [(2, "ann")] == delivered(dispatcher.handle_timeout(now_ms=100))
        assert 200 == dispatcher.next_deadline_ms()
        assert [(3, "ann")] == delivered(dispatcher.handle_timeout(now_ms=199 + 1))
        assert 30_000 == dispatcher.next_deadline_ms()  # nobody waits: only the ack timeout is left

    def test_a_retry_costs_a_token_too(self) -> None:
        dispatcher = grouped("ann", retry=AT_ONCE)
        dispatcher.set_group("x", per_second=10, burst=1, now_ms=0)
        fill(dispatcher, "a1/x")
        assert [] == delivered(dispatcher.nack(0, "ann", 1))
        assert [(0, "ann")] == delivered(dispatcher.handle_timeout(now_ms=100))

    def test_a_batch_costs_as_many_tokens_as_it_has_messages_and_is_shorter_if_there_are_fewer(self) -> None:
        dispatcher = grouped(batch_per_key=3, ack_timeout_ms=None)
        dispatcher.set_group("x", per_second=10, burst=2, now_ms=0)
        fill(dispatcher, "a1/x", "a1/x", "a1/x", "a1/x")
        assert [0, 1] == [offset for offset, _ in delivered(dispatcher.add_consumer("ann"))]
        dispatcher.ack_many([each.receipt for each in dispatcher.in_flight()])
        assert [(2, "ann")] == delivered(dispatcher.handle_timeout(now_ms=100))

    def test_time_before_a_token_was_used_fills_no_bucket(self) -> None:
        dispatcher = grouped("ann", ack_timeout_ms=None)
        dispatcher.set_group("x", per_second=1, burst=1, now_ms=0)
        dispatcher.offer(0, "a1/x", now_ms=5_000)
        dispatcher.offer(1, "a2/x", now_ms=5_000)
        assert 6_000 == dispatcher.next_deadline_ms()
        assert [] == dispatcher.handle_timeout(now_ms=5_001)

    def test_what_time_has_brought_is_handed_out_in_one_call_however_late_it_comes(self) -> None:
        dispatcher = grouped("ann", ack_timeout_ms=None)
        dispatcher.set_group("x", per_second=10, burst=3, now_ms=0)
        fill(dispatcher, *(f"a{number}/x" for number in range(8)))
        assert 3 == len(dispatcher.in_flight())
        assert [(3, "ann"), (4, "ann")] == delivered(dispatcher.handle_timeout(now_ms=299))
        assert [(5, "ann"), (6, "ann"), (7, "ann")] == delivered(dispatcher.handle_timeout(now_ms=2_000))

    def test_tokens_that_came_while_nobody_waited_are_handed_out_within_the_call_that_needs_them(self) -> None:
        dispatcher = grouped(ack_timeout_ms=None, drain_timeout_ms=None)
        dispatcher.add_consumer("ann", limit=9)
        dispatcher.set_group("x", per_second=10, burst=3, now_ms=0)
        fill(dispatcher, "a1/x", "a2/x")
        for offset in (2, 3, 4):
            dispatcher.offer(offset, f"a{offset + 1}/x", not_before_ms=250, now_ms=0)
        assert [2, 3, 4] == [offset for offset, _ in delivered(dispatcher.handle_timeout(now_ms=250))]

    def test_another_rate_keeps_the_tokens_as_far_as_they_fit(self) -> None:
        dispatcher = grouped("ann", ack_timeout_ms=None)
        dispatcher.set_group("x", per_second=10, burst=5, now_ms=0)
        fill(dispatcher, "a1/x")
        dispatcher.set_group("x", per_second=1, burst=2, now_ms=50)
        assert [GroupStats("x", 1, None, 1, 0, 2, False)] == dispatcher.groups()
        dispatcher.set_group("x", now_ms=50)
        assert [GroupStats("x", 1, None, 1, 0, None, False)] == dispatcher.groups()

    def test_a_group_without_a_message_is_forgotten_when_its_bucket_is_full_and_not_before(self) -> None:
        dispatcher = grouped("ann", group=GroupLimits(per_second=10, burst=2), ack_timeout_ms=None)
        fill(dispatcher, "a1/x")
        dispatcher.ack(0, "ann", 1, now_ms=0)
        dispatcher.handle_timeout(now_ms=99)
        assert [GroupStats("x", 1, None, 0, 0, 1, False)] == dispatcher.groups()
        dispatcher.handle_timeout(now_ms=100)
        assert [] == dispatcher.groups()

    def test_an_offer_forgets_it_too(self) -> None:
        dispatcher = grouped("ann", group=GroupLimits(per_second=10, burst=1), ack_timeout_ms=None)
        fill(dispatcher, "a1/x")
        dispatcher.ack(0, "ann", 1, now_ms=0)

        with pytest.raises(ArgumentError):
            dispatcher.offer(1 << 63, "a2/x", now_ms=10_000)
        assert ["x"] == [each.name for each in dispatcher.groups()]
        assert [deliver(1, "a2/x", "ann")] == dispatcher.offer(1, "a2/x", now_ms=10_000)
        assert None is dispatcher.next_deadline_ms()

    def test_a_group_that_has_a_message_again_is_not_forgotten(self) -> None:
        dispatcher = grouped("ann", group=GroupLimits(per_second=10, burst=2), ack_timeout_ms=None)
        fill(dispatcher, "a1/x")
        dispatcher.ack(0, "ann", 1, now_ms=0)
        fill(dispatcher, "a2/x", start=1)
        dispatcher.handle_timeout(now_ms=500)
        assert ["x"] == [each.name for each in dispatcher.groups()]


class TestStats:
    """What there is to see of groups."""

    def test_a_group_is_there_while_it_has_a_message_or_a_limit_of_its_own(self) -> None:
        dispatcher = grouped()
        dispatcher.add_consumer("ann", limit=1)
        dispatcher.set_group("z", weight=3, per_second=5)
        dispatcher.pause_group("y")
        fill(dispatcher, "a1/x", "a2/x", "a3")
        rows = [
            GroupStats("", 1, None, 0, 1, None, False),
            GroupStats("x", 1, None, 1, 1, None, False),
            GroupStats("y", 1, None, 0, 0, None, True),
            GroupStats("z", 3, None, 0, 0, 1, False),
        ]
        assert rows == dispatcher.groups()
        dispatcher.resume_group("y")
        served(dispatcher)
        assert rows[3:] == dispatcher.groups()

    def test_a_dispatcher_without_groups_has_none_to_show_and_none_to_set(self) -> None:
        dispatcher = subscription("ann")
        assert [] == dispatcher.groups()
        calls: Mapping[str, Callable[[str], list[Effect]]] = {
            "set_group": dispatcher.set_group,
            "pause_group": dispatcher.pause_group,
            "resume_group": dispatcher.resume_group,
        }
        for call in calls.values():
            with pytest.raises(ArgumentError, match="there are no groups"):
                call("x")


class TestFaults:
    """A function or an argument that can never work changes nothing."""

    @pytest.mark.parametrize(
        ("limits", "text"),
        [
            ({"weight": 0}, "weight is 0"),
            ({"max_in_flight": 0}, "max_in_flight is 0"),
            ({"per_second": 0}, "per_second is 0"),
            ({"burst": 0}, "burst is 0"),
        ],
    )
    def test_a_limit_that_is_none_is_refused(self, limits: dict[str, int], text: str) -> None:
        with pytest.raises(ArgumentError, match=text):
            grouped("ann").set_group("x", **limits)
        with pytest.raises(ConfigError, match=text):
            GroupLimits(**limits)

    def test_a_group_has_a_text_for_a_name(self) -> None:
        with pytest.raises(ArgumentError, match="name is 7; it must be a str"):
            grouped("ann").pause_group(7)  # type: ignore[arg-type]  # the mistake under test

    def test_a_function_that_fails_makes_the_offer_raise_and_nothing_has_changed(self) -> None:
        dispatcher = subscription("ann", rules=Rules(mark="picky", group_of=lambda key: key.decode("ascii")))
        before = deepcopy(dispatcher.snapshot())
        calls: list[Callable[[], object]] = [
            lambda: dispatcher.offer(0, b"\xff"),
            lambda: dispatcher.offer(0, b"\xff", not_before_ms=9),
            lambda: dispatcher.offer_many([(0, b"a", None), (1, b"\xff", None)]),
        ]
        for call in calls:
            with pytest.raises(ConfigError, match="group_of"):
                call()
            assert before == dispatcher.snapshot()

    def test_a_function_that_fails_changes_nothing_behind_a_restart_either(self) -> None:
        dispatcher = subscription(rules=Rules(mark="picky", group_of=lambda key: key.decode("ascii")), start=5)
        dispatcher.add_consumer("ann", filters=["*"])
        with pytest.raises(ConfigError, match="group_of"):
            dispatcher.offer(5, b"\xff")
        assert [] == dispatcher.offer(4, b"\xff")
        assert [(5, "ann")] == delivered(dispatcher.offer(5, "a"))

    def test_what_nobody_accepts_is_not_asked_for_its_group(self) -> None:
        rules = Rules(mark="picky", group_of=lambda key: key.decode("ascii"))
        dispatcher = subscription(rules=rules, unmatched=Unmatched.SKIP)
        dispatcher.add_consumer("ann", filters=["a*"])
        assert ["Skipped", "CursorAdvanced"] == [type(each).__name__ for each in dispatcher.offer(0, b"\xff")]

    def test_the_one_lane_of_a_total_order_is_in_one_group(self) -> None:
        config = DispatcherConfig(ordering_required=True, unmatched=Unmatched.HOLD, poison=Poison.BLOCK)
        with pytest.raises(ConfigError, match="with ordering_required"):
            KeySharedDispatcher(AlphabetRing(), config, rules=RULES)


def row(scopes: Any, name: str) -> Any:
    """What a snapshot has of a group."""
    return next(each for each in scopes["groups"] if each[0] == name)


class TestRestart:
    """A restart changes nothing of turns, limits and tokens."""

    def busy(self) -> Watched:
        dispatcher = grouped(ack_timeout_ms=None)
        for name in ("ann", "bob", "cat"):
            dispatcher.add_consumer(name, limit=2)
        dispatcher.set_group("x", max_in_flight=1, weight=2)
        dispatcher.set_group("r", per_second=10, burst=1, now_ms=0)
        dispatcher.pause_group("p")
        keys = ["b1/x", "c1/x", "a1/x", "a2/y", "a3/y", "a4/z", "a5/y", "b2/r", "b3/r", "c2/p", "c3/y", None]
        fill(dispatcher, *keys)
        return dispatcher

    def test_a_restored_dispatcher_does_what_the_original_does(self) -> None:
        original = self.busy()
        restored = again(original, ack_timeout_ms=None)
        assert original.groups() == restored.groups()
        assert original.snapshot() == restored.snapshot()
        assert served(original, 3) == served(restored, 3)
        for each in (original, restored):
            each.resume_group("p")
            each.handle_timeout(now_ms=100)
        assert served(original) == served(restored)

    def test_tokens_go_on_by_a_clock_that_began_anew(self) -> None:
        original = grouped("ann", ack_timeout_ms=None)
        original.set_group("r", per_second=10, burst=1, now_ms=1_000)
        fill(original, "a1/r", "a2/r")
        original.handle_timeout(now_ms=1_040)
        restored = again(original, now_ms=0, ack_timeout_ms=None)
        assert 60 == restored.next_deadline_ms()
        assert [(1, "ann")] == delivered(restored.handle_timeout(now_ms=60))

    def test_a_higher_limit_of_the_configuration_serves_at_once(self) -> None:
        original = grouped("ann", group=GroupLimits(max_in_flight=1))
        fill(original, "a1/x", "a2/x", "a3/x")
        restored = again(original, group=GroupLimits(max_in_flight=2))
        assert [0, 1] == [each.offset for each in restored.in_flight()]

    def test_a_rate_may_be_new_or_gone(self) -> None:
        original = grouped("ann", group=GroupLimits(per_second=10, burst=3), ack_timeout_ms=None)
        fill(original, "a1/x")
        assert [2] == [each.tokens for each in again(original, group=GroupLimits(per_second=1, burst=2)).groups()]
        plain = again(original)
        assert [None] == [each.tokens for each in plain.groups()]
        assert [5] == [each.tokens for each in again(plain, group=GroupLimits(per_second=1, burst=5)).groups()]

    def test_a_full_bucket_is_stored_alike_wherever_the_clock_stands(self) -> None:
        kept = []
        for now in (6, 1 << 40):
            dispatcher = grouped("ann", ack_timeout_ms=None)
            dispatcher.set_group("r", per_second=10, burst=2, now_ms=now)
            kept.append(dispatcher.snapshot()["features"])
            dispatcher.offer(0, "a1/r")  # the bucket is no longer full
            dispatcher.handle_timeout(now_ms=now + 7)
            kept.append(dispatcher.snapshot()["features"])
        assert kept[:2] == kept[2:]
        assert kept[0] != kept[1]

    def test_groups_may_begin_over_a_restart(self) -> None:
        plain = subscription("ann")
        plain.add_consumer("bob", limit=0)
        fill(plain, "a1/x", "b1/x", "b2/y")
        unsealed = {name: part for name, part in plain.snapshot().items() if name != "checksum"}
        state = sealed(unsealed | {"rules": RULES.mark})
        restored = Watched.restore(state, plain.placement, now_ms=0, rules=RULES)
        assert ["x", "y"] == [each.name for each in restored.groups()]

    def test_turns_of_a_consumer_that_is_not_connected_are_refused(self) -> None:
        dispatcher = grouped("ann", max_in_flight_per_consumer=1)
        fill(dispatcher, "a1/x", "a2/y")
        state: dict[str, Any] = deepcopy(dispatcher.snapshot())
        del state["checksum"]
        turns = state["features"]["groups"]["turns"]
        turns["bob"] = turns.pop("ann")

        with pytest.raises(SnapshotError, match="be of a consumer that is connected"):
            Watched.restore(sealed(state), AlphabetRing(), dispatcher.config, now_ms=0, rules=RULES)

    @pytest.mark.parametrize("rules", [None, Rules(mark="another", group_of=named)])
    def test_rules_of_another_mark_are_refused(self, rules: Rules | None) -> None:
        with pytest.raises(SnapshotError, match="the mark of the rules that are given"):
            again(grouped("ann"), rules=rules)


def test_the_kit_judges_groups() -> None:
    mine: Any = Recorder(grouped(group=GroupLimits(max_in_flight=3)))
    mine.add_consumer("ann", limit=1)
    for offset, key in enumerate(["a0", "a1/x", "a2/x", "a3/y", "a4/y", "a5/z"]):
        mine.offer(offset, key)
    mine.pause_group("z")
    for _ in range(6):
        for each in mine.in_flight():
            mine.ack(*each.receipt)
    mine.resume_group("z")
    assert [] == check_history(mine.history, Claims(group_of=named, fairness=0))


def test_a_copy_of_a_dispatcher_counts_in_groups_of_its_own() -> None:
    rules = Rules(mark="one", group_of=lambda _: "all")
    first = KeySharedDispatcher(AlphabetRing(), DispatcherConfig(group=GroupLimits(max_in_flight=1)), rules=rules)
    first.add_consumer("a")
    twin = deepcopy(first)
    first.offer(0, "a")

    assert [type(effect) for effect in twin.offer(0, "a")] == [Deliver]
    assert twin.offer(1, "b") == []
    assert [group.open for group in twin.groups()] == [1]
