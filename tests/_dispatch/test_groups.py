"""Which groups wait to be forgotten: each is listed once, however many messages it has had."""

from collections.abc import Callable
from heapq import heappush
from itertools import count
from typing import Any

import pytest
from tests.alphabet import Watched, subscription

from keyshared._dispatch.groups import Groups
from keyshared.config import GroupLimits, Rules
from keyshared.errors import InvariantError

RULES = Rules(mark="first letter", group_of=lambda key: key[:1].decode())
SLOW = GroupLimits(per_second=1, burst=100)


def used(times: int, keys: str = "a") -> Any:
    """A dispatcher whose groups have had messages, all of which are acked, and whose buckets are not full again."""
    dispatcher: Watched = subscription("ann", rules=RULES, group=SLOW)
    use(dispatcher, times, keys)
    return dispatcher


def use(dispatcher: Watched, times: int, keys: str, every_ms: int = 1) -> None:
    for offset in range(times):
        dispatcher.offer(offset, keys[offset % len(keys)], now_ms=every_ms * offset)
        dispatcher.ack(offset, "ann", 1, now_ms=every_ms * offset)


def test_a_group_that_is_used_again_and_again_is_listed_once() -> None:
    kept = {times: len(used(times)._groups.idle) for times in (1, 10, 90)}

    assert {1: 1, 10: 1, 90: 1} == kept


def test_as_many_are_listed_as_there_are_groups() -> None:
    assert 3 == len(used(90, "abc")._groups.idle)


def test_a_group_that_was_used_meanwhile_is_forgotten_when_its_bucket_is_full_and_not_before() -> None:
    dispatcher = used(3)  # one token is used at each of 0, 1 and 2 ms, and is back after a second

    for now_ms in (1_000, 2_999):
        dispatcher.handle_timeout(now_ms=now_ms)
        assert (["a"], 1) == ([each.name for each in dispatcher.groups()], len(dispatcher._groups.idle))
    dispatcher.handle_timeout(now_ms=3_000)
    assert ([], []) == (dispatcher.groups(), dispatcher._groups.idle)


def test_a_group_that_has_a_limit_of_its_own_now_is_not_looked_at_again() -> None:
    dispatcher = used(1)
    dispatcher.set_group("a", per_second=1, burst=100, now_ms=1)
    dispatcher.handle_timeout(now_ms=1_000)

    assert (["a"], []) == ([each.name for each in dispatcher.groups()], dispatcher._groups.idle)


class ListsEachUse(Groups):
    """A group is listed each time that it has no lane any more."""

    __slots__ = ()

    def _list(self, full_at: int, name: str) -> None:
        self._listed.add(name)
        heappush(self.idle, (full_at, name))


class LooksOnce(Groups):
    """What was used meanwhile is not put back."""

    __slots__ = ()

    def forget_idle(self, now: int) -> None:
        while self.idle and self.idle[0][0] <= now:
            self._listed.discard(self.idle.pop(0)[1])


@pytest.mark.parametrize(
    ("fault", "match"),
    [(ListsEachUse, "is listed once, however often it was used"), (LooksOnce, "is looked at, and not too late")],
)
def test_groups_that_are_listed_too_often_or_not_at_all_are_found(fault: type[Groups], match: str) -> None:
    dispatcher = used(0)
    dispatcher._groups.__class__ = fault

    with pytest.raises(InvariantError, match=match):  # it is looked over after every call
        use(dispatcher, 3, "aab", every_ms=500)


@pytest.mark.parametrize(
    ("spoil", "match"),
    [
        (lambda groups: groups._listed.clear(), "what is listed is known by its name"),
        (lambda groups: groups._listed.add("b"), "what is listed is known by its name"),
        (lambda groups: groups.idle.__setitem__(0, (9_999, "a")), "is looked at, and not too late"),
    ],
    ids=count(),
)
def test_lists_that_contradict_one_another_are_found(spoil: Callable[[Groups], None], match: str) -> None:
    dispatcher = used(2)
    dispatcher.check_invariants()
    spoil(dispatcher._groups)

    with pytest.raises(InvariantError, match=match):
        dispatcher.check_invariants()
