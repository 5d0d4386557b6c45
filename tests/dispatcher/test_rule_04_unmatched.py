"""Rule 4: whether anybody wants a message is decided once, at its offer, and only if somebody is there to ask."""

from typing import Any

import pytest
from tests.alphabet import FIRST_LETTER, Watched, advanced, deliver, subscription

from keyshared.config import DispatcherConfig, Poison, Rules, Unmatched
from keyshared.dispatcher import Blocking
from keyshared.effects import BlockReason, Effect, Released, ReleaseReason, Skipped, SkipReason
from keyshared.errors import UnmatchedKeyError
from keyshared.glob import Glob
from keyshared.hashing.named import key_bytes
from keyshared.placement import AssignedRanges, HashRange


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


def test_without_any_consumer_everything_waits() -> None:
    # Nobody connected is not "nobody wants it": a restart would otherwise lose the whole backlog.
    dispatcher = subscription()

    assert [] == dispatcher.offer(0, "invoice")
    assert [deliver(0, "invoice", "ann")] == dispatcher.add_consumer("ann")


@pytest.mark.parametrize("away", ["inactive", "draining"])
def test_a_consumer_that_is_away_for_a_moment_still_counts_as_somebody(away: str) -> None:
    dispatcher = with_filters(ann=["a*"], bob=["b*"])
    dispatcher.offer(0, "a1")
    if away == "inactive":
        dispatcher.set_inactive("ann")
    else:
        dispatcher.remove_consumer("ann", drain_ms=100)

    assert [] == dispatcher.offer(1, "a2")
    assert [skipped(2, "c1")] == dispatcher.offer(2, "c1")


def test_a_key_with_older_messages_is_never_skipped_past_them() -> None:
    # Deciding each message anew would skip 1, and a consumer that comes back would find a hole in the key.
    dispatcher = with_filters(ann=["a*"], bob=["b*"])
    dispatcher.offer(0, "a1")
    dispatcher.set_filters("ann", ["x*"])

    assert [] == dispatcher.offer(1, "a1")
    assert [skipped(2, "a2")] == dispatcher.offer(2, "a2")
    assert [advanced(0)] == dispatcher.ack(0, "ann", 1)
    assert Blocking(BlockReason.NO_CONSUMER) == dispatcher.why_blocked(1)


def test_a_tracked_message_is_not_skipped_by_what_happens_to_the_consumers() -> None:
    dispatcher = with_filters(ann=["a*"], bob=["b*"])
    dispatcher.offer(0, "a1")

    assert [Released(0, "ann", 1, ReleaseReason.REMOVED, 0, 0)] == dispatcher.remove_consumer("ann")
    assert Blocking(BlockReason.NO_CONSUMER) == dispatcher.why_blocked(0)
    assert [deliver(0, "a1", "ann", 2)] == dispatcher.add_consumer("ann", filters=["a*"])


def test_hold_keeps_it_for_a_consumer_that_accepts_it() -> None:
    dispatcher = with_filters(Unmatched.HOLD, ann=["a*"])

    assert [] == dispatcher.offer(0, "invoice")
    assert [] == dispatcher.add_consumer("bob", filters=["b*"])
    assert [deliver(0, "invoice", "bob")] == dispatcher.set_filters("bob", ["inv*"])


def test_error_refuses_the_offer_and_the_offset_can_still_be_offered() -> None:
    dispatcher = with_filters(Unmatched.ERROR, ann=["a*"])
    before = dispatcher.snapshot()

    with pytest.raises(UnmatchedKeyError, match=r"no consumer accepts key b'invoice'"):
        dispatcher.offer(0, "invoice")
    assert before == dispatcher.snapshot()
    assert [deliver(0, "a1", "ann")] == dispatcher.offer(0, "a1")


def test_error_refuses_a_whole_batch_before_its_first_message() -> None:
    dispatcher = with_filters(Unmatched.ERROR, ann=["a*"])
    before = dispatcher.snapshot()

    with pytest.raises(UnmatchedKeyError):
        dispatcher.offer_many([(0, "a1", None), (1, "invoice", None)])
    assert before == dispatcher.snapshot()


def test_of_what_a_batch_skips_nothing_is_asked() -> None:
    def only_a(key: bytes) -> str:
        assert key.startswith(b"a")
        return "a"

    limits: dict[str, Any] = {"spill": False, "max_waiting_per_key": 1, "unmatched": Unmatched.SKIP}
    dispatcher = subscription(rules=Rules(mark="a", group_of=only_a), **limits)
    dispatcher.add_consumer("ann", filters=["a*"])

    expected = [skipped(0, "b"), skipped(1, "b"), deliver(2, "a1", "ann"), advanced(1)]
    assert expected == dispatcher.offer_many([(0, "b", None), (1, "b", None), (2, "a1", None)])


def test_a_message_without_a_key_needs_a_consumer_that_takes_everything() -> None:
    dispatcher = with_filters(ann=["a*"], bob=["?*"])

    assert [Skipped(0, None, SkipReason.UNMATCHED), advanced(0)] == dispatcher.offer(0, None)
    dispatcher.set_filters("bob", ["b", "*"])
    assert [deliver(1, None, "bob")] == dispatcher.offer(1, None)


def test_a_filter_restricts_and_never_attracts() -> None:
    # A consumer of "b*" does not get b1 because it named it: without filters cat is as good, and the ring decides.
    dispatcher = subscription("bob")
    dispatcher.add_consumer("cat", filters=["b*"])

    assert [deliver(0, "b1", "bob")] == dispatcher.offer(0, "b1")
    assert [deliver(1, "c1", "bob")] == dispatcher.offer(1, "c1")


LETTERS_A_TO_M = HashRange.inclusive(ord("a"), ord("m"))
LETTERS_N_TO_Z = HashRange.inclusive(ord("n"), ord("z"))


def half_assigned(**to: str) -> AssignedRanges:
    ranges = {"a_to_m": LETTERS_A_TO_M, "n_to_z": LETTERS_N_TO_Z}
    return AssignedRanges([(ranges[half], owner) for half, owner in to.items()], key_hash=FIRST_LETTER, slot_bits=8)


def with_a_hole(unmatched: Unmatched) -> Watched:
    dispatcher = Watched(half_assigned(a_to_m="ann"), DispatcherConfig(unmatched=unmatched))
    dispatcher.add_consumer("ann")
    return dispatcher


@pytest.mark.parametrize("unmatched", [Unmatched.SKIP, Unmatched.HOLD])
def test_a_key_in_a_hole_waits_until_somebody_owns_its_slot(unmatched: Unmatched) -> None:
    dispatcher = with_a_hole(unmatched)

    assert [] == dispatcher.offer(0, "zoo")
    assert [deliver(1, "apple", "ann")] == dispatcher.offer(1, "apple")
    assert Blocking(BlockReason.UNOWNED) == dispatcher.why_blocked(0)
    placement = half_assigned(a_to_m="ann", n_to_z="ann")
    assert [deliver(0, "zoo", "ann")] == dispatcher.set_placement(placement)


def test_error_also_refuses_a_key_in_a_hole() -> None:
    dispatcher = with_a_hole(Unmatched.ERROR)
    before = dispatcher.snapshot()

    with pytest.raises(UnmatchedKeyError, match="or nobody owns its slot"):
        dispatcher.offer(0, "zoo")
    with pytest.raises(UnmatchedKeyError):
        dispatcher.offer_many([(0, "apple", None), (1, "zoo", None)])
    assert before == dispatcher.snapshot()
    assert [deliver(0, "apple", "ann")] == dispatcher.offer(0, "apple")
    assert [deliver(1, None, "ann")] == dispatcher.offer(1, None)  # no key, no slot


def test_error_holds_a_key_in_a_hole_that_has_older_messages() -> None:
    dispatcher = with_a_hole(Unmatched.ERROR)
    dispatcher.set_placement(half_assigned(n_to_z="ann"))
    dispatcher.offer(0, "zoo")
    dispatcher.set_placement(half_assigned(a_to_m="ann"))

    assert [] == dispatcher.offer(1, "zoo")
    with pytest.raises(UnmatchedKeyError):
        dispatcher.offer(2, "zebra")


def test_error_holds_while_nobody_is_connected() -> None:
    # A consumer that only drains owns nothing any more: everything is a hole then, and a restart must not fail on it.
    dispatcher = with_a_hole(Unmatched.ERROR)
    dispatcher.offer(0, "apple")
    dispatcher.remove_consumer("ann", drain_ms=None)

    assert [] == dispatcher.offer(1, "zoo")
    dispatcher.ack(0, "ann", 1)
    assert [] == dispatcher.offer(2, "zebra")


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


def test_error_refuses_a_key_that_only_consumers_accept_that_own_nothing() -> None:
    # Taken, it would wait for ever without a word: the very thing that this policy is chosen against.
    dispatcher = with_an_acceptor_that_owns_nothing(Unmatched.ERROR)
    before = dispatcher.snapshot()

    with pytest.raises(UnmatchedKeyError, match="or those who accept it own nothing"):
        dispatcher.offer(0, "zoo")
    with pytest.raises(UnmatchedKeyError):
        dispatcher.offer_many([(0, "zoo", None)])
    assert before == dispatcher.snapshot()
    assert [deliver(0, "apple", "ann")] == dispatcher.offer(0, "apple")


def test_error_waits_for_a_consumer_that_the_placement_names_and_that_has_not_joined() -> None:
    # It may accept the key, or leave the slot to bob: what can still end by a join is no fault of the assignment.
    dispatcher = with_an_acceptor_that_owns_nothing(Unmatched.ERROR)
    dispatcher.set_placement(half_assigned(a_to_m="ann", n_to_z="cat"))

    assert [] == dispatcher.offer(0, "zoo")
    assert Blocking(BlockReason.NO_CONSUMER) == dispatcher.why_blocked(0)
    assert [deliver(0, "zoo", "cat")] == dispatcher.add_consumer("cat")


def test_with_ordering_required_the_one_lane_is_in_a_hole_or_not() -> None:
    config = DispatcherConfig(unmatched=Unmatched.ERROR, ordering_required=True, poison=Poison.BLOCK)
    dispatcher = Watched(half_assigned(n_to_z="ann"), config)  # the lane's own slot is that of the empty key
    dispatcher.offer(0, "zoo")
    dispatcher.add_consumer("ann")

    assert [] == dispatcher.offer(1, "zoo")  # the lane has older messages
    dispatcher.truncate(2)
    for key in ("zoo", None):
        with pytest.raises(UnmatchedKeyError):
            dispatcher.offer(2, key)


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
