"""Rule 20: groups of keys take turns, and each has its own weight, limit and rate."""

import json
from copy import deepcopy
from typing import TYPE_CHECKING, Any

import pytest
from tests.alphabet import AlphabetRing, Watched, delivered, fill, subscription

from keyshared._core.snapshot import sealed
from keyshared.config import DispatcherConfig, GroupLimits, Rules
from keyshared.dispatcher import GroupStats, KeySharedDispatcher
from keyshared.effects import Deliver, Effect
from keyshared.errors import ArgumentError, ConfigError, SnapshotError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


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


class TestTurns:
    """However many keys wait in one group, each other one has its turn in between."""

    def test_a_tenant_with_many_keys_lets_one_with_a_single_key_have_every_other_turn(self) -> None:
        dispatcher = grouped()
        dispatcher.add_consumer("ann", limit=1)
        fill(dispatcher, "a0", *(f"a{number}/big" for number in range(1, 6)), "a6/small", "a7/small")
        assert "a0 a1 a6 a2 a7 a3 a4 a5" == served(dispatcher)


class TestLimits:
    """A closed group gets nothing, and is in nobody's way."""

    def test_a_message_that_is_wanted_alone_goes_out_of_turn(self) -> None:
        dispatcher = grouped()
        dispatcher.add_consumer("ann", limit=0)
        fill(dispatcher, "a1/x", "a2/x", "a3/y")
        assert [(1, "ann")] == delivered(dispatcher.pull("ann", 1, only=1))


class TestRates:
    """Each delivery takes a token; time brings them back."""

    def test_another_rate_keeps_the_tokens_as_far_as_they_fit(self) -> None:
        dispatcher = grouped("ann", ack_timeout_ms=None)
        dispatcher.set_group("x", per_second=10, burst=5, now_ms=0)
        fill(dispatcher, "a1/x")
        dispatcher.set_group("x", per_second=1, burst=2, now_ms=50)
        assert [GroupStats("x", 1, None, 1, 0, 2, False)] == dispatcher.groups()
        dispatcher.set_group("x", now_ms=50)
        assert [GroupStats("x", 1, None, 1, 0, None, False)] == dispatcher.groups()


class TestStats:
    """What there is to see of groups."""

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

    def test_a_function_that_fails_changes_nothing_behind_a_restart_either(self) -> None:
        dispatcher = subscription(rules=Rules(mark="picky", group_of=lambda key: key.decode("ascii")), start=5)
        dispatcher.add_consumer("ann", filters=["*"])
        with pytest.raises(ConfigError, match="group_of"):
            dispatcher.offer(5, b"\xff")
        assert [] == dispatcher.offer(4, b"\xff")
        assert [(5, "ann")] == delivered(dispatcher.offer(5, "a"))


class TestRestart:
    """A restart changes nothing of turns, limits and tokens."""

    def test_a_rate_may_be_new_or_gone(self) -> None:
        original = grouped("ann", group=GroupLimits(per_second=10, burst=3), ack_timeout_ms=None)
        fill(original, "a1/x")
        assert [2] == [each.tokens for each in again(original, group=GroupLimits(per_second=1, burst=2)).groups()]
        plain = again(original)
        assert [None] == [each.tokens for each in plain.groups()]
        assert [5] == [each.tokens for each in again(plain, group=GroupLimits(per_second=1, burst=5)).groups()]

    def test_turns_of_a_consumer_that_is_not_connected_are_refused(self) -> None:
        dispatcher = grouped("ann", max_in_flight_per_consumer=1)
        fill(dispatcher, "a1/x", "a2/y")
        state: dict[str, Any] = deepcopy(dispatcher.snapshot())
        del state["checksum"]
        turns = state["features"]["groups"]["turns"]
        turns["bob"] = turns.pop("ann")

        with pytest.raises(SnapshotError, match="be of a consumer that is connected"):
            Watched.restore(sealed(state), AlphabetRing(), dispatcher.config, now_ms=0, rules=RULES)


def test_a_copy_of_a_dispatcher_counts_in_groups_of_its_own() -> None:
    rules = Rules(mark="one", group_of=lambda _: "all")
    first = KeySharedDispatcher(AlphabetRing(), DispatcherConfig(group=GroupLimits(max_in_flight=1)), rules=rules)
    first.add_consumer("a")
    twin = deepcopy(first)
    first.offer(0, "a")

    assert [type(effect) for effect in twin.offer(0, "a")] == [Deliver]
    assert twin.offer(1, "b") == []
    assert [group.open for group in twin.groups()] == [1]
