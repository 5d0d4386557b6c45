"""Rule 22: with ``Rules(latest_only=...)`` the newer message takes the place of the older one for some keys only."""

import json
from typing import Any

import pytest
from tests.alphabet import AlphabetRing, Watched, advanced, deliver, delivered, fill, subscription
from tests.kit.recorder import Recorder

from keyshared.config import DispatcherConfig, GroupLimits, Poison, RetryPolicy, Rules, Unmatched
from keyshared.dispatcher import KeySharedDispatcher, StoredLetter
from keyshared.effects import Effect, Skipped, SkipReason
from keyshared.errors import ConfigError, SnapshotError, WindowFullError
from keyshared.testing import Claims, Promise, check_history

LATER = RetryPolicy(base_delay_ms=50)


def is_state(key: bytes) -> bool:
    """A key that ends in s has states, of which the latest counts; any other has events, which all count."""
    return key.endswith(b"s")


RULES = Rules(mark="states", latest_only=is_state)


def mixed(*consumers: str, **config: Any) -> Watched:
    return subscription(*consumers, rules=RULES, **config)


def superseded(effects: list[Effect]) -> list[int]:
    return [effect.offset for effect in effects if isinstance(effect, Skipped)]


def outstanding(dispatcher: Watched) -> list[int]:
    return [message.offset for message in dispatcher.outstanding()]


def test_only_keys_whose_rule_says_so_are_superseded() -> None:
    dispatcher = mixed()
    effects = fill(dispatcher, "as", "ae", None, "as", "ae", None, "as")
    assert [0, 3] == superseded(effects)
    assert [1, 2, 4, 5, 6] == outstanding(dispatcher)
    assert [6, 1, 2, 5] == [offset for offset, _ in delivered(dispatcher.add_consumer("ann"))]


def test_the_latest_keeps_the_place_of_the_one_before_among_keys_of_both_kinds() -> None:
    dispatcher = mixed("ann", max_in_flight_per_consumer=1)
    fill(dispatcher, "ae", "as", "be", "as")
    assert [(3, "ann")] == delivered(dispatcher.ack(0, "ann", 1))


def test_what_was_delivered_is_retried_and_the_latest_follows() -> None:
    dispatcher = mixed("ann", retry=LATER)
    fill(dispatcher, "as", "as")
    dispatcher.nack(0, "ann", 1, now_ms=0)
    assert [Skipped(1, b"as", SkipReason.SUPERSEDED)] == dispatcher.offer(2, "as")
    assert [(0, "ann")] == delivered(dispatcher.handle_timeout(now_ms=100))
    assert [deliver(2, "as", "ann"), advanced(1)] == dispatcher.ack(0, "ann", 2)


def test_one_call_may_offer_keys_of_both_kinds() -> None:
    dispatcher = mixed("ann")
    fill(dispatcher, "as", "ae")
    effects = dispatcher.offer_many([(offset, "as" if offset % 2 else "ae", None) for offset in range(2, 8)])
    assert [3, 5] == superseded(effects)
    assert [0, 1, 2, 4, 6, 7] == outstanding(dispatcher)


def test_the_time_of_the_latest_counts_and_that_of_an_event_holds_its_key() -> None:
    dispatcher = mixed("ann")
    for offset, key in enumerate(("as", "ae")):
        assert [] == dispatcher.offer(offset, key, not_before_ms=50, now_ms=0)
    assert [Skipped(0, b"as", SkipReason.SUPERSEDED), deliver(2, "as", "ann"), advanced(0)] == dispatcher.offer(2, "as")
    assert [] == dispatcher.offer(3, "ae")


def test_a_newer_state_needs_a_free_slot_as_any_other_message() -> None:
    dispatcher = mixed(window=2, max_tracked=2)
    fill(dispatcher, "as", "ae")
    with pytest.raises(WindowFullError):
        dispatcher.offer(2, "as")


def test_events_go_out_in_batches_and_states_one_after_a_failed_one() -> None:
    dispatcher = mixed("ann", batch_per_key=3, retry=RetryPolicy(base_delay_ms=0))
    dispatcher.set_limit("ann", 0)
    fill(dispatcher, "ae", "as", "ae", "as", "ae")
    assert [0, 2, 4, 3] == [offset for offset, _ in delivered(dispatcher.set_limit("ann", 5))]
    assert [] == dispatcher.offer(5, "as")
    assert [(3, "ann"), (5, "ann")] == delivered(dispatcher.nack(3, "ann", 1))


def test_a_group_is_asked_beside_it() -> None:
    rules = Rules(mark="both", latest_only=is_state, group_of=lambda key: key[:1].decode())
    dispatcher = subscription("ann", rules=rules, group=GroupLimits(max_in_flight=1))
    assert [0] == [offset for offset, _ in delivered(fill(dispatcher, "as", "as", "as"))]
    assert [2] == [offset for offset, _ in delivered(dispatcher.ack(0, "ann", 1))]


def test_a_rule_of_limits_is_asked_beside_it() -> None:
    rules = Rules(mark="both", latest_only=is_state, limit_of=lambda _: 2)
    dispatcher = subscription("ann", rules=rules)
    assert [0, 1] == [offset for offset, _ in delivered(fill(dispatcher, "as", "as"))]
    assert [2, 3] == superseded(fill(dispatcher, "as", "as", "as", start=2))


def test_limits_by_rule_go_with_a_setting_for_every_key() -> None:
    dispatcher = subscription("ann", rules=Rules(mark="two", limit_of=lambda _: 2), latest_only=True)
    assert [2] == superseded(fill(dispatcher, "ae", "ae", "ae", "ae"))


def test_what_has_come_back_stays_and_goes_first() -> None:
    dispatcher = mixed("ann", redrive=True)
    fill(dispatcher, "as", "as")
    dispatcher.reject(0, "ann", 1)
    dispatcher.dead_lettered(0)
    assert [] == dispatcher.redrive("as", [StoredLetter(0, 1)])
    assert [3] == superseded(fill(dispatcher, "as", "as", start=3))
    assert [(0, "ann")] == delivered(dispatcher.ack(1, "ann", 1))


def test_a_restart_asks_the_rule_again() -> None:
    dispatcher = mixed()
    fill(dispatcher, "as", "ae")
    state = json.loads(json.dumps(dispatcher.snapshot()))
    restored = Watched.restore(state, AlphabetRing(), now_ms=0, rules=RULES)
    assert [0] == superseded(fill(restored, "as", "ae", start=2))
    with pytest.raises(SnapshotError, match="the mark of the rules that are given"):
        Watched.restore(state, AlphabetRing(), now_ms=0)


@pytest.mark.parametrize("answer", [None, 1, "yes"])
def test_an_answer_that_is_no_bool_is_refused_and_changes_nothing(answer: object) -> None:
    dispatcher = subscription("ann", rules=Rules(mark="odd", latest_only=lambda _: answer))  # type: ignore[arg-type, return-value]  # the mistake under test
    before = dispatcher.snapshot()
    with pytest.raises(ConfigError, match="latest_only"):
        dispatcher.offer(0, "a")
    with pytest.raises(ConfigError, match="latest_only"):
        dispatcher.offer(0, "a", not_before_ms=50)
    with pytest.raises(ConfigError, match="latest_only"):
        dispatcher.offer_many([(0, None, None), (1, "a", None)])
    assert before == dispatcher.snapshot()


@pytest.mark.parametrize(
    ("config", "setting"),
    [
        ({"ordering_required": True, "poison": Poison.BLOCK, "unmatched": Unmatched.HOLD}, "ordering_required"),
        ({"max_ack_holes": 80}, "max_ack_holes"),
        ({"latest_only": True}, "latest_only"),
    ],
)
def test_what_contradicts_the_rule_is_refused(config: dict[str, Any], setting: str) -> None:
    with pytest.raises(ConfigError, match=f"have no latest_only with {setting}"):
        KeySharedDispatcher(AlphabetRing(), DispatcherConfig(**config), rules=RULES)


def test_the_promise_is_claimed_of_the_keys_of_the_rule() -> None:
    recorder: Any = Recorder(mixed("ann"))
    for offset, key in enumerate(("as", "ae", "as", "ae", "as", "ae")):
        recorder.offer(offset, key)
    assert [] == check_history(recorder.history, Claims(latest_only=is_state))
    everything = check_history(recorder.history, Claims(latest_only=True))
    nothing = check_history(recorder.history, Claims())
    assert ({Promise.LATEST_ONLY}, {Promise.NO_LOSS}) == (
        {violation.promise for violation in everything},
        {violation.promise for violation in nothing},
    )
