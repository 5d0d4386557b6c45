"""Rule 4: whether anybody wants a message is decided once, at its offer, and only if somebody is there to ask."""

from typing import Any

import pytest
from tests.alphabet import FIRST_LETTER, Watched, advanced, deliver, subscription

from keyshared.config import DispatcherConfig, Rules, Unmatched
from keyshared.dispatcher import Blocking
from keyshared.effects import BlockReason, Effect, Skipped, SkipReason
from keyshared.errors import UnmatchedKeyError
from keyshared.glob import Glob
from keyshared.hashing import key_bytes
from keyshared.placement import HashRange
from keyshared.placement.assigned import AssignedRanges


def with_filters(unmatched: Unmatched = Unmatched.SKIP, **filters: list[str]) -> Watched:
    dispatcher = subscription(unmatched=unmatched)
    for name, patterns in filters.items():
        dispatcher.add_consumer(name, filters=patterns)
    return dispatcher


def skipped(offset: int, key: str) -> Effect:
    return Skipped(offset, key.encode(), SkipReason.UNMATCHED)


def test_a_key_that_nobody_accepts_is_skipped_and_the_cursor_passes_it() -> None:
    dispatcher = with_filters(ann=["ship*"], bob=["pay?"])

    assert [skipped(0, "invoice"), advanced(0)] == dispatcher.offer(0, "invoice")


def test_of_what_a_batch_skips_nothing_is_asked() -> None:
    def only_a(key: bytes) -> str:
        assert key.startswith(b"a")
        return "a"

    limits: dict[str, Any] = {"spill": False, "max_waiting_per_key": 1, "unmatched": Unmatched.SKIP}
    dispatcher = subscription(rules=Rules(mark="a", group_of=only_a), **limits)
    dispatcher.add_consumer("ann", filters=["a*"])

    expected = [skipped(0, "b"), skipped(1, "b"), deliver(2, "a1", "ann"), advanced(1)]
    assert expected == dispatcher.offer_many([(0, "b", None), (1, "b", None), (2, "a1", None)])


LETTERS_A_TO_M = HashRange.inclusive(ord("a"), ord("m"))
LETTERS_N_TO_Z = HashRange.inclusive(ord("n"), ord("z"))


def half_assigned(**to: str) -> AssignedRanges:
    ranges = {"a_to_m": LETTERS_A_TO_M, "n_to_z": LETTERS_N_TO_Z}
    return AssignedRanges([(ranges[half], owner) for half, owner in to.items()], key_hash=FIRST_LETTER, slot_bits=8)


def with_a_hole(unmatched: Unmatched) -> Watched:
    dispatcher = Watched(half_assigned(a_to_m="ann"), DispatcherConfig(unmatched=unmatched))
    dispatcher.add_consumer("ann")
    return dispatcher


def test_error_also_refuses_a_key_in_a_hole() -> None:
    dispatcher = with_a_hole(Unmatched.ERROR)
    before = dispatcher.snapshot()

    with pytest.raises(UnmatchedKeyError, match="or none owns its slot"):
        dispatcher.offer(0, "zoo")
    with pytest.raises(UnmatchedKeyError):
        dispatcher.offer_many([(0, "apple", None), (1, "zoo", None)])
    assert before == dispatcher.snapshot()
    assert [deliver(0, "apple", "ann")] == dispatcher.offer(0, "apple")
    assert [deliver(1, None, "ann")] == dispatcher.offer(1, None)  # no key, no slot


def with_an_acceptor_that_owns_nothing(unmatched: Unmatched) -> Watched:
    """Ann owns everything and wants keys of a; bob accepts those of z and owns nothing."""
    dispatcher = Watched(half_assigned(a_to_m="ann", n_to_z="ann"), DispatcherConfig(unmatched=unmatched))
    dispatcher.add_consumer("ann", filters=["a*"])
    dispatcher.add_consumer("bob", filters=["z*"])
    return dispatcher


@pytest.mark.parametrize("unmatched", [Unmatched.SKIP, Unmatched.HOLD])
def test_a_key_that_only_consumers_accept_that_own_nothing_waits_until_one_of_them_owns_something(
    unmatched: Unmatched,
) -> None:
    dispatcher = with_an_acceptor_that_owns_nothing(unmatched)

    assert [] == dispatcher.offer(0, "zoo")
    assert Blocking(BlockReason.UNOWNED) == dispatcher.why_blocked(0)
    assert [deliver(0, "zoo", "bob")] == dispatcher.set_placement(half_assigned(a_to_m="ann", n_to_z="bob"))


@pytest.mark.parametrize("unmatched", Unmatched)
def test_the_patterns_are_asked_once_of_a_key_however_often_it_comes(
    unmatched: Unmatched, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[bytes] = []
    matches = Glob.matches

    def counting(glob: Glob, key: str | bytes) -> bool:
        asked.append(key_bytes(key))
        return matches(glob, key)

    monkeypatch.setattr(Glob, "matches", counting)
    dispatcher = with_filters(unmatched, ann=["*?a"], bob=["?*", "b?"], cat=["*a*a"])
    owner = str(dispatcher.owner("xa"))

    asked.clear()
    dispatcher.set_limit(owner, 0)
    dispatcher.offer(0, "aba")
    dispatcher.offer_many([(1, "aba", None), (2, "yb", None), (3, "yb", None)])
    dispatcher.set_weight("ann", 2)
    dispatcher.remove_consumer(owner)
    assert {b"aba", b"yb"} == set(asked)
    assert len(asked) <= 2 * 4
    asked.clear()
    dispatcher.add_consumer("dan", filters=["*?*"])
    assert {b"aba", b"yb"} == set(asked)
