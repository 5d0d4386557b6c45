"""Rule 18: with ``Rules(limit_of=...)`` each key may have as many deliveries open as its rule says."""

import json
from typing import Any

import pytest
from tests.alphabet import AlphabetRing, Watched, deliver, delivered, fill, subscription, then

from keyshared.config import DispatcherConfig, GroupLimits, KeySessions, Poison, RetryPolicy, Rules, Unmatched
from keyshared.dispatcher import Blocking, KeySharedDispatcher, StoredLetter
from keyshared.effects import BlockReason, DeadLetter, KeyEnded, Load, Spilled
from keyshared.errors import ConfigError, SnapshotError

LATER = RetryPolicy(base_delay_ms=50)


def digit(key: bytes) -> int:
    """The limit of a key is its last character."""
    return int(key[-1:])


RULES = Rules(mark="last digit", limit_of=digit)


def limited(*consumers: str, **config: Any) -> Watched:
    return subscription(*consumers, rules=RULES, **config)


def again(dispatcher: KeySharedDispatcher, *, rules: Rules | None = RULES, **config: Any) -> Watched:
    """What a restart makes of it."""
    state = json.loads(json.dumps(dispatcher.snapshot()))
    new = Watched.restore(state, dispatcher.placement, DispatcherConfig(**config), now_ms=0, rules=rules)
    assert state == new.snapshot()
    return new


class TestEachKeyHasItsOwn:
    """The rule counts instead of ``max_in_flight_per_key``."""

    def test_as_many_of_a_key_are_open_as_its_rule_says(self) -> None:
        dispatcher = limited("ann")
        assert [0, 1, 2, 4] == [offset for offset, _ in delivered(fill(dispatcher, "a3", "a3", "a3", "a3", "a1", "a1"))]
        assert Blocking(BlockReason.KEY_IN_FLIGHT, "ann") == dispatcher.why_blocked(3) == dispatcher.why_blocked(5)
        assert [(3, "ann")] == delivered(dispatcher.ack(1, "ann", 1))
        assert [(5, "ann")] == delivered(dispatcher.ack(4, "ann", 1))

    def test_the_limit_of_all_keys_counts_for_nothing(self) -> None:
        dispatcher = limited("ann", max_in_flight_per_key=2)
        assert [0, 2, 3, 4] == [offset for offset, _ in delivered(fill(dispatcher, "a1", "a1", "a3", "a3", "a3"))]

    def test_a_rule_that_answers_the_same_for_all_is_the_limit_of_all_keys(self) -> None:
        by_rule = subscription(rules=Rules(mark="two", limit_of=lambda _: 2), retry=LATER)
        by_setting = subscription(max_in_flight_per_key=2, retry=LATER)
        effects: list[list[object]] = []
        for dispatcher in (by_rule, by_setting):
            told: list[object] = [fill(dispatcher, "a1", "a1", "a1", "b1", "a1", None, "b1")]
            told += [dispatcher.add_consumer(name, limit=3) for name in ("ann", "bob")]
            told += [dispatcher.nack(0, "ann", 1, now_ms=5), dispatcher.set_inactive("bob", now_ms=6)]
            told += [dispatcher.handle_timeout(now_ms=now) for now in (55, 60_000)]
            told += [dispatcher.outstanding_effects(), dispatcher.snapshot() | {"rules": None, "checksum": None}]
            effects.append(told)
        assert effects[0] == effects[1]

    def test_no_more_of_a_key_is_open_than_may_be_loaded(self) -> None:
        dispatcher = limited("ann", max_loaded_per_key=2)
        assert [(0, "ann"), (1, "ann")] == delivered(fill(dispatcher, "a9", "a9"))
        assert [Spilled(2)] == dispatcher.offer(2, "a9")
        assert Blocking(BlockReason.KEY_IN_FLIGHT, "ann") == dispatcher.why_blocked(2)

    def test_without_spilling_what_may_be_loaded_does_not_count(self) -> None:
        dispatcher = limited("ann", max_loaded_per_key=2, spill=False)
        assert [0, 1, 2] == [offset for offset, _ in delivered(fill(dispatcher, "a3", "a3", "a3", "a3"))]

    def test_messages_without_a_key_have_no_rule(self) -> None:
        dispatcher = limited("ann")
        assert [(0, "ann"), (1, "ann")] == delivered(fill(dispatcher, None, None))
        with_batches = limited("ann", batch_per_key=2)
        assert [(0, "ann"), (1, "ann")] == delivered(fill(with_batches, None, None))

    def test_the_function_is_asked_once_while_the_key_has_a_message(self) -> None:
        asked: list[bytes] = []

        def noted(key: bytes) -> int:
            asked.append(key)
            return 2

        dispatcher = subscription("ann", rules=Rules(mark="noted", limit_of=noted))
        fill(dispatcher, "a1", "a1", "a1")
        dispatcher.nack(1, "ann", 1)
        assert [b"a1"] == asked
        dispatcher.ack(0, "ann", 1)
        dispatcher.gone(1)
        dispatcher.ack(2, "ann", 1)
        dispatcher.offer(3, "a1")
        assert [b"a1", b"a1"] == asked


class TestHowAKeyGoesOn:
    """A key at its limit stands in no list, and the end of a delivery looks at it."""

    def test_a_failure_in_the_middle_holds_what_is_newer_and_is_retried_first(self) -> None:
        dispatcher = limited("ann", retry=LATER)
        fill(dispatcher, "a2", "a2", "a2")
        assert [] == then(dispatcher.nack(1, "ann", 1, now_ms=0))
        assert [] == delivered(dispatcher.ack(0, "ann", 1))  # 2 stays behind 1
        assert [(1, "ann"), (2, "ann")] == delivered(dispatcher.handle_timeout(now_ms=100))

    def test_a_retry_counts_like_any_other_delivery(self) -> None:
        dispatcher = limited("ann", retry=RetryPolicy(base_delay_ms=0))
        fill(dispatcher, "a2", "a2", "a2")
        assert [deliver(1, "a2", "ann", 2, failures=1)] == then(dispatcher.nack(1, "ann", 1))

    def test_it_drains_to_a_new_owner_and_has_its_limit_there(self) -> None:
        dispatcher = limited("bob")
        fill(dispatcher, "a2", "a2", "a2", "a2")
        assert [] == dispatcher.add_consumer("ann")
        assert Blocking(BlockReason.DRAINING, "bob") == dispatcher.why_blocked(2)
        dispatcher.ack(0, "bob", 1)
        assert [(2, "ann"), (3, "ann")] == delivered(dispatcher.ack(1, "bob", 1))

    def test_a_quarantined_key_waits_until_nothing_of_it_is_open_whatever_its_limit(self) -> None:
        dispatcher = limited("ann", retry=RetryPolicy(max_redeliveries=0), quarantine=True)
        fill(dispatcher, "a2", "a2", "a2")
        dispatcher.reject(0, "ann", 1)
        assert Blocking(BlockReason.QUARANTINED, "ann") == dispatcher.why_blocked(0)
        assert [DeadLetter(0, b"a2", 1, 1, None)] == dispatcher.ack(1, "ann", 1)

    @pytest.mark.parametrize(("key", "goes_out"), [("a1", []), ("a2", [(3, "ann")])])
    def test_what_was_loaded_for_a_consumer_goes_out_only_below_the_limit(
        self, key: str, goes_out: list[tuple[int, str]]
    ) -> None:
        dispatcher = limited("ann", window=4, redrive=True)
        fill(dispatcher, key)
        dispatcher.reject(0, "ann", 1)
        dispatcher.dead_lettered(0)
        dispatcher.set_limit("ann", 0)
        assert [Spilled(3)] == fill(dispatcher, "b1", "c1", key, start=1)
        assert Load(3, key.encode()) in dispatcher.set_limit("ann", 9)
        assert [deliver(0, key, "ann", 2)] == dispatcher.redrive(key, [StoredLetter(0, 1)])
        assert goes_out == delivered(dispatcher.loaded(3))

    def test_a_pull_hands_out_as_many_as_the_rule_says(self) -> None:
        dispatcher = limited()
        dispatcher.add_consumer("ann", limit=0)
        fill(dispatcher, "a2", "a2", "a2", "a1", "a1")
        assert [0, 3, 1] == [offset for offset, _ in delivered(dispatcher.pull("ann", 9))]


class TestWhatItMeets:
    """A rule of a key beside other verbs."""

    def test_a_batch_has_at_most_as_many_as_the_rule_of_its_key_says(self) -> None:
        dispatcher = limited(batch_per_key=3)
        fill(dispatcher, "a2", "a2", "a2", "a9", "a9", "a9", "a9")
        assert [0, 1, 3, 4, 5] == [offset for offset, _ in delivered(dispatcher.add_consumer("ann"))]
        assert [] == delivered(dispatcher.ack(0, "ann", 1))
        assert [(2, "ann")] == delivered(dispatcher.ack(1, "ann", 1))

    def test_a_batch_of_a_key_with_a_group_is_bounded_by_both(self) -> None:
        rules = Rules(mark="both", limit_of=digit, group_of=lambda _: "all")
        dispatcher = subscription(rules=rules, batch_per_key=4, group=GroupLimits(max_in_flight=3))
        fill(dispatcher, "a2", "a2", "a2", "a9", "a9")
        assert [(0, "ann"), (1, "ann"), (3, "ann")] == delivered(dispatcher.add_consumer("ann"))

    def test_a_closed_group_holds_a_key_that_is_below_its_limit(self) -> None:
        rules = Rules(mark="both", limit_of=digit, group_of=lambda _: "all")
        dispatcher = subscription("ann", rules=rules, group=GroupLimits(max_in_flight=1))
        fill(dispatcher, "a2", "a2")
        assert Blocking(BlockReason.GROUP_FULL, group="all") == dispatcher.why_blocked(1)
        assert [(1, "ann")] == delivered(dispatcher.ack(0, "ann", 1))

    def test_what_is_newer_and_open_stays_when_something_comes_back(self) -> None:
        dispatcher = limited("ann", redrive=True)
        fill(dispatcher, "a3", "a3", "a3")
        dispatcher.reject(0, "ann", 1)
        dispatcher.dead_lettered(0)
        assert [deliver(0, "a3", "ann", 2)] == dispatcher.redrive("a3", [StoredLetter(0, 1)])
        full = limited("ann", redrive=True)
        fill(full, "a2", "a2", "a2")
        full.reject(0, "ann", 1)
        full.dead_lettered(0)
        assert [1, 2] == [delivery.offset for delivery in full.in_flight()]
        assert [] == full.redrive("a2", [StoredLetter(0, 1)])
        assert Blocking(BlockReason.KEY_IN_FLIGHT, "ann") == full.why_blocked(0)
        assert [(0, "ann")] == delivered(full.ack(2, "ann", 1))

    def test_a_session_goes_on_while_one_of_several_deliveries_ends(self) -> None:
        dispatcher = limited("ann", sessions=KeySessions())
        fill(dispatcher, "a2", "a2")
        assert [(1, "ann")] == [(each.offset, each.consumer) for each in dispatcher.in_flight()][1:]
        assert [] == [effect for effect in dispatcher.ack(0, "ann", 1) if isinstance(effect, KeyEnded)]

    def test_a_message_that_waits_for_its_time_holds_its_key_below_the_limit(self) -> None:
        dispatcher = limited("ann")
        assert [] == dispatcher.offer(0, "a2", not_before_ms=50, now_ms=0)
        assert [] == dispatcher.offer(1, "a2")
        assert [(0, "ann"), (1, "ann")] == delivered(dispatcher.handle_timeout(now_ms=50))

    def test_a_full_token_lets_only_the_lowest_go_whatever_the_limit(self) -> None:
        dispatcher = limited("ann", max_ack_holes=20, max_in_flight_per_consumer=100)
        fill(dispatcher, "a2", *(f"a{number}1" for number in range(1, 60)))
        for offset in range(2, 60, 2):
            dispatcher.ack(offset, "ann", 1)
        dispatcher.offer(60, "a2")
        assert Blocking(BlockReason.ACK_HOLES, behind=0) == dispatcher.why_blocked(60)
        dispatcher.nack(0, "ann", 1, now_ms=0)
        assert [(0, "ann")] == delivered(dispatcher.handle_timeout(now_ms=60_000))


class TestWhatIsRefused:
    """Whatever has no answer changes nothing."""

    @pytest.mark.parametrize("limit", [0, True, None, "2"])
    def test_an_answer_that_is_no_limit_is_refused_wherever_a_key_begins(self, limit: object) -> None:
        def odd(key: bytes) -> Any:
            return limit if key == b"odd" else 1

        dispatcher = subscription("ann", rules=Rules(mark="odd", limit_of=odd), redrive=True, start=5)
        dispatcher.offer(5, "a")
        before = dispatcher.snapshot()
        with pytest.raises(ConfigError, match="limit_of"):
            dispatcher.offer(6, "odd")
        with pytest.raises(ConfigError, match="limit_of"):
            dispatcher.offer(6, "odd", not_before_ms=50)
        with pytest.raises(ConfigError, match="limit_of"):
            dispatcher.offer_many([(6, "a", None), (7, "odd", None)])
        with pytest.raises(ConfigError, match="limit_of"):
            dispatcher.redrive("odd", [StoredLetter(1, 1)])
        assert before == dispatcher.snapshot()

    def test_a_function_that_raises_is_named(self) -> None:
        dispatcher = limited("ann")
        with pytest.raises(ConfigError, match="limit_of is ValueError") as caught:
            dispatcher.offer(0, "none")
        assert isinstance(caught.value.__cause__, ValueError)
        assert [(0, "ann")] == delivered(dispatcher.offer(0, "a1"))

    def test_one_lane_of_many_keys_has_no_limit_of_a_key(self) -> None:
        config = DispatcherConfig(ordering_required=True, poison=Poison.BLOCK, unmatched=Unmatched.HOLD)
        with pytest.raises(ConfigError, match="have no limit_of with ordering_required"):
            KeySharedDispatcher(AlphabetRing(), config, rules=RULES)


class TestAnotherLife:
    """A snapshot has the mark; the function is asked again."""

    def test_what_is_open_stays_open_and_counts(self) -> None:
        dispatcher = again(limited_with_three_open(), max_loaded_per_key=5)
        assert Blocking(BlockReason.KEY_IN_FLIGHT, "ann") == dispatcher.why_blocked(3)
        assert [(3, "ann")] == delivered(dispatcher.ack(0, "ann", 1))

    @pytest.mark.parametrize("rules", [None, Rules(mark="another", limit_of=digit)])
    def test_rules_of_another_mark_are_refused(self, rules: Rules | None) -> None:
        with pytest.raises(SnapshotError, match="the mark of the rules that are given"):
            again(limited("ann"), rules=rules)

    @pytest.mark.parametrize("config", [{}, {"batch_per_key": 5}])
    def test_more_open_deliveries_than_the_rule_allows_are_refused(self, config: dict[str, Any]) -> None:
        with pytest.raises(
            SnapshotError, match="never had more open than its limit, see max_in_flight_per_key, batch_per_key and"
        ):
            again(limited_with_three_open(), rules=Rules(mark=RULES.mark, limit_of=lambda _: 2), **config)


def limited_with_three_open() -> Watched:
    dispatcher = limited("ann")
    fill(dispatcher, "a3", "a3", "a3", "a3")
    assert [0, 1, 2] == [delivery.offset for delivery in dispatcher.in_flight()]
    return dispatcher
