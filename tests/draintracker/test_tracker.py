"""The drain tracker: placements change, hashes drain, acks unblock them; one behaviour a test."""

import copy
import pickle
from collections.abc import Callable

import pytest
from tests.steps import steps_of

from keyshared.draining import DrainingEntry, DrainingStats
from keyshared.draintracker import (
    DrainTracker,
    EntryAcked,
    HandedOver,
    HashState,
    OwnersChanged,
    PendingAck,
    Position,
    Refusal,
    Returned,
    SendReceipt,
)
from keyshared.errors import (
    ArgumentError,
    ClockError,
    ConsumerExistsError,
    InvariantError,
    UnknownConsumerError,
)
from keyshared.placement import Moved, RangeMap
from keyshared.ring import HashRing

SLOTS = 16


def owned(*stops_and_owners: tuple[int, str | None]) -> RangeMap:
    """A map of 16 slots, given as runs: where each ends, and whose it is."""
    stops, owners = zip(*stops_and_owners, strict=True)
    return RangeMap.from_stops(stops, owners, slot_bits=4)


ALL_A = owned((SLOTS, "a"))
HALVES = owned((8, "b"), (SLOTS, "a"))
ALL_B = owned((SLOTS, "b"))
ALL_C = owned((SLOTS, "c"))
NOBODYS = owned((SLOTS, None))


def sent(tracker: DrainTracker, consumer: str, position: Position, hash_: int, messages: int = 1) -> SendReceipt:
    receipt = tracker.add(consumer, position, hash_, messages)
    assert isinstance(receipt, SendReceipt)
    tracker.check_invariants()
    return receipt


def draining(*, drain_timeout_ms: int | None = None) -> tuple[DrainTracker, list[SendReceipt]]:
    """Hash 3 has two entries unacked at a and belongs to b; hash 12 stays at a with one."""
    tracker = DrainTracker(ALL_A, drain_timeout_ms=drain_timeout_ms)
    receipts = [sent(tracker, "a", (0, 1), 3), sent(tracker, "a", (0, 2), 12), sent(tracker, "a", (0, 3), 3)]
    tracker.add_consumer("b", HALVES, now_ms=100)
    tracker.check_invariants()
    return tracker, receipts


def positions(entries: tuple[PendingAck, ...]) -> list[Position]:
    return [entry.position for entry in entries]


def answers(tracker: DrainTracker) -> tuple[object, ...]:
    return (
        tracker.owners,
        [(name, tracker.pending(name), tracker.stats(name)) for name in tracker.consumers],
        [tracker.explain(hash_) for hash_ in range(SLOTS)],
        tracker.next_deadline_ms(),
        tracker.stats(),
    )


# Sending


def test_the_owner_of_a_hash_is_sent_its_entries() -> None:
    tracker = DrainTracker(ALL_A)
    assert SendReceipt("a", (0, 1), 1) == tracker.add("a", (0, 1), 3)
    assert SendReceipt("a", (0, 2), 2) == tracker.add("a", (0, 2), 3, 10)
    assert (PendingAck((0, 1), 3, 1, 1), PendingAck((0, 2), 3, 10, 2)) == tracker.pending("a")
    assert "a" == tracker.owner(3)


def test_a_consumer_that_is_gone_is_sent_nothing() -> None:
    tracker = DrainTracker(ALL_A)
    assert Refusal.GONE is tracker.add("b", (0, 1), 3) is tracker.refusal("b", 3)
    assert () == tracker.pending("b")
    assert Returned() == tracker.take_back("b", [(0, 1)])


@pytest.mark.parametrize("hash_", [3, 12])
def test_whoever_does_not_own_the_hash_is_sent_nothing_even_if_nothing_is_pending(hash_: int) -> None:
    tracker = DrainTracker(owned((8, None), (SLOTS, "a")))
    tracker.add_consumer("b", tracker.owners)
    assert Refusal.NOT_OWNER is tracker.add("b", (0, 1), hash_) is tracker.refusal("b", hash_)


def test_the_new_owner_is_refused_a_hash_that_drains_and_sent_the_others() -> None:
    tracker, _ = draining()
    assert Refusal.DRAINING is tracker.add("b", (0, 4), 3)
    assert Refusal.DRAINING is tracker.refusal("b", 3)
    assert 2 == tracker.explain(3).refused
    sent(tracker, "b", (0, 5), 4)


# Acks


@pytest.mark.parametrize(
    ("consumer", "position", "generation"),
    [("a", (0, 1), 2), ("a", (0, 9), None), ("b", (0, 1), None), ("nobody", (0, 1), None), ("a", (0, 1), 0)],
)
def test_a_late_double_or_foreign_ack_does_nothing(consumer: str, position: Position, generation: int | None) -> None:
    tracker, _ = draining()
    before = answers(tracker)
    assert EntryAcked(settled=False, entry=None) == tracker.ack(consumer, position, generation)
    assert before == answers(tracker)


def test_an_ack_without_a_number_means_the_latest_sending() -> None:
    tracker = DrainTracker(ALL_A)
    sent(tracker, "a", (0, 1), 3)
    sent(tracker, "a", (0, 1), 3)
    assert PendingAck((0, 1), 3, 1, 2) == tracker.ack("a", (0, 1)).entry


# Joins, leaves and other changes of owners


def test_a_batch_acked_in_parts_drains_with_its_last_message() -> None:
    tracker = DrainTracker(ALL_A)
    receipt = sent(tracker, "a", (0, 1), 3, 10)
    tracker.add_consumer("b", ALL_B)
    tracker.refusal("b", 3)
    assert EntryAcked(settled=False, entry=PendingAck((0, 1), 3, 4, 1)) == tracker.ack(*receipt, messages=6)
    assert 1 == tracker.stats().unacked  # entries, not messages
    assert (3,) == tracker.ack(*receipt, messages=5).unblocked  # one of them twice


def test_a_join_tells_what_moved_and_lets_what_is_unacked_drain() -> None:
    tracker = DrainTracker(ALL_A)
    sent(tracker, "a", (0, 1), 3)
    assert OwnersChanged(moved=(Moved(0, 8, "a", "b"),)) == tracker.add_consumer("b", HALVES)
    assert (("a", "b"), HALVES) == (tracker.consumers, tracker.owners)
    assert DrainingStats(1, 0, 1, (DrainingEntry(3, 1, 0),)) == tracker.stats("a") == tracker.stats()


def test_a_tracker_may_begin_with_nobody() -> None:
    tracker = DrainTracker(NOBODYS)
    assert OwnersChanged(moved=(Moved(0, SLOTS, None, "a"),)) == tracker.add_consumer("a", ALL_A)


def test_a_hash_that_nobody_owns_goes_on_draining() -> None:
    tracker, (first, _, last) = draining()
    tracker.set_owners(NOBODYS)
    tracker.set_owners(ALL_B)
    assert Refusal.DRAINING is tracker.add("b", (0, 4), 3)
    tracker.ack(*first)
    assert (3,) == tracker.ack(*last).unblocked


def test_a_leaver_gives_back_what_it_held_in_order_and_nothing_is_told_twice() -> None:
    tracker, _ = draining()
    tracker.refusal("b", 3)
    change = tracker.remove_consumer("a", ALL_B)
    assert [(0, 1), (0, 2), (0, 3)] == positions(change.replay)
    assert [3, 12, 3] == [entry.hash for entry in change.replay]
    assert () == change.unblocked
    assert (DrainingStats(), ("b",)) == (tracker.stats(), tracker.consumers)
    sent(tracker, "b", (0, 1), 3)


# Taking back and expiry


def test_a_leaver_that_is_unknown_holds_nothing_but_the_owners_change() -> None:
    tracker, _ = draining()
    assert OwnersChanged(moved=(Moved(0, 8, "b", "a"),)) == tracker.remove_consumer("nobody", ALL_A)


def test_what_expires_is_gone_everywhere_and_unblocks_each_hash_once() -> None:
    tracker, _ = draining()
    tracker.refusal("b", 3)
    sent(tracker, "b", (0, 2), 5)
    returned = tracker.expire_up_to((0, 3))
    assert ([(0, 1), (0, 2), (0, 2), (0, 3)], (3,)) == (positions(returned.entries), returned.unblocked)
    assert Returned() == tracker.expire_up_to((0, 3))


# The deadline


def test_without_a_timeout_there_is_no_deadline() -> None:
    tracker, _ = draining()
    assert tracker.next_deadline_ms() is None
    assert [] == tracker.handle_timeout(now_ms=10**9)
    assert Refusal.DRAINING is tracker.refusal("b", 3)


def test_a_hash_that_drains_too_long_is_handed_over_and_a_fact_says_so() -> None:
    tracker, _ = draining(drain_timeout_ms=500)
    tracker.refusal("b", 3)
    assert 600 == tracker.next_deadline_ms()
    assert [] == tracker.handle_timeout(now_ms=599)
    entries = (PendingAck((0, 1), 3, 1, 1), PendingAck((0, 3), 3, 1, 3))
    assert [HandedOver(3, "a", "b", entries, 1, 100)] == tracker.handle_timeout(now_ms=600)
    assert ([], None) == (tracker.handle_timeout(now_ms=600), tracker.next_deadline_ms())
    for entry in entries:
        sent(tracker, "b", entry.position, 3)


def test_late_acks_after_a_hand_over_settle_their_own_entries_and_unblock_nobody() -> None:
    tracker, (first, _, last) = draining(drain_timeout_ms=500)
    tracker.handle_timeout(now_ms=600)
    again = sent(tracker, "b", (0, 1), 3)
    assert (("a", ((0, 1), (0, 3))),) == tracker.explain(3).late
    assert (True, ()) == (tracker.ack(*first).settled, tracker.ack(*last).unblocked)
    assert () == tracker.explain(3).late
    assert not tracker.ack(*first).settled
    assert tracker.ack(*again).settled


def test_what_was_handed_over_is_neither_replayed_nor_given_back() -> None:
    tracker, _ = draining(drain_timeout_ms=500)
    tracker.handle_timeout(now_ms=600)
    gone = copy.deepcopy(tracker)
    assert [(0, 2)] == positions(gone.remove_consumer("a", ALL_B).replay)
    one = copy.deepcopy(tracker)
    assert Returned() == one.take_back("a", [(0, 1)])
    assert (("a", ((0, 3),)),) == one.explain(3).late
    assert [(0, 2)] == positions(tracker.take_back("a").entries)
    assert () == tracker.explain(3).late


def test_a_drain_that_ends_in_time_has_no_deadline_any_more() -> None:
    tracker, (first, _, last) = draining(drain_timeout_ms=500)
    tracker.ack(*first)
    assert 600 == tracker.next_deadline_ms()
    tracker.ack(*last)
    assert tracker.next_deadline_ms() is None


def test_the_shortest_deadline_is_a_millisecond() -> None:
    tracker, _ = draining(drain_timeout_ms=1)
    assert 101 == tracker.next_deadline_ms()


# Cost, in executed instructions and never in time


def crowded(entries_per_hash: int) -> DrainTracker:
    """100 hashes at a, of which 10 are to move."""
    tracker = DrainTracker(RangeMap.from_stops([65536], ["a"]), drain_timeout_ms=500)
    for entry in range(100 * entries_per_hash):
        tracker.add("a", (0, entry), entry % 100)
    return tracker


@pytest.mark.no_cover
@pytest.mark.parametrize(
    "change",
    [
        lambda tracker: tracker.add_consumer("b", RangeMap.from_stops([10, 65536], ["b", "a"])),
        lambda tracker: tracker.refusal("a", 5),
        lambda tracker: tracker.stats(),
        lambda tracker: tracker.handle_timeout(now_ms=10_000),
        lambda tracker: tracker.expire_up_to((0, 3)),
    ],
    ids=["join", "refusal", "stats", "handle_timeout", "expire"],
)
def test_nothing_that_stays_where_it_is_is_looked_at(change: Callable[[DrainTracker], object]) -> None:
    few, many = crowded(5), crowded(50)
    assert steps_of(change, many) <= 1.2 * steps_of(change, few)


# Explaining


def test_a_hash_explains_who_waits_for_whom_and_since_when() -> None:
    tracker, _ = draining(drain_timeout_ms=500)
    tracker.refusal("b", 3)
    assert HashState(
        hash=3,
        owner="b",
        holder="a",
        draining=True,
        positions=((0, 1), (0, 3)),
        refused=1,
        since_ms=100,
        deadline_ms=600,
        late=(),
    ) == tracker.explain(3)


def test_a_hash_that_does_not_drain_explains_who_holds_it() -> None:
    tracker, _ = draining()
    assert HashState(12, "a", "a", False, ((0, 2),), 0, None, None, ()) == tracker.explain(12)
    assert HashState(4, "b", None, False, (), 0, None, None, ()) == tracker.explain(4)
    assert tracker.explain(3).deadline_ms is None


def test_statistics_are_always_those_of_the_entries() -> None:
    tracker, (first, *_) = draining()
    tracker.refusal("b", 3)
    tracker.ack(*first)
    assert DrainingStats(1, 0, 1, (DrainingEntry(3, 1, 1),)) == tracker.stats("a")
    assert DrainingStats() == tracker.stats("b") == tracker.stats("nobody")


# With a ring


def test_with_a_ring_only_the_newcomers_slots_drain() -> None:
    ring = HashRing(["a", "b"])
    tracker = DrainTracker(ring.ranges)
    hashes = range(0, 65536, 64)
    for entry, hash_ in enumerate(hashes):
        tracker.add(tracker.owner(hash_) or "", (0, entry), hash_)
    ring.add("c")
    tracker.add_consumer("c", ring.ranges)
    tracker.check_invariants()
    blocked = [hash_ for hash_ in hashes if tracker.refusal(tracker.owner(hash_) or "", hash_) is not None]
    assert [hash_ for hash_ in hashes if ring.ranges.owner(hash_) == "c"] == blocked


# Mistakes change nothing


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda t: t.add_consumer("b", ALL_B), ConsumerExistsError, "'b' is already there"),
        (lambda t: t.add_consumer("c", owned((8, "d"), (SLOTS, "a"))), UnknownConsumerError, "'d' is not connected"),
        (lambda t: t.add_consumer("", ALL_B), ArgumentError, "consumer is ''"),
        (lambda t: t.add_consumer(["c"], ALL_B), ArgumentError, r"consumer is \['c'\]"),
        (lambda t: t.add_consumer("c", [Moved(0, 8, "a", "c")]), ArgumentError, "owners is .* be a RangeMap"),
        (lambda t: t.add_consumer("c", RangeMap.from_stops([65536], ["c"])), ArgumentError, "slot"),
        (lambda t: t.add_consumer("c", ALL_C, now_ms=99), ClockError, "now_ms is 99"),
        (lambda t: t.remove_consumer("b", HALVES), UnknownConsumerError, "'b' is not connected"),
        (lambda t: t.remove_consumer("nobody", ALL_C), UnknownConsumerError, "'c' is not connected"),
        (lambda t: t.remove_consumer(None, ALL_A), ArgumentError, "consumer is None"),
        (lambda t: t.remove_consumer("b", ALL_A, now_ms=1), ClockError, "now_ms is 1 "),
        (lambda t: t.set_owners(ALL_C), UnknownConsumerError, "add_consumer"),
        (lambda t: t.set_owners(None), ArgumentError, "owners is None"),
        (lambda t: t.set_owners(ALL_A, now_ms="1"), ClockError, "now_ms is '1'"),
        (lambda t: t.handle_timeout(now_ms=True), ClockError, "now_ms is True"),
        (lambda t: t.refusal("b", SLOTS), ArgumentError, "slot is 16"),
        (lambda t: t.add("b", (0, 9), -1), ArgumentError, "slot is -1"),
        (lambda t: t.add("b", 9, 3), ArgumentError, "position is 9"),
        (lambda t: t.add("b", (0, 9), 3, 0), ArgumentError, "messages is 0"),
        (lambda t: t.add("a", (0, 1), 4), ArgumentError, "hash_ is 4; it must be 3, with which"),
        (lambda t: t.ack("a", (0, 1), messages=0), ArgumentError, "messages is 0; it must be an int of at least 1, or"),
        (lambda t: t.ack("a", [0, 1]), ArgumentError, r"position is \[0, 1\]"),
        (lambda t: t.take_back("a", [(0, 1), "x"]), ArgumentError, "position is 'x'"),
        (lambda t: t.expire_up_to(None), ArgumentError, "position is None"),
        (lambda t: t.explain(-1), ArgumentError, "it must be an int"),
    ],
)
def test_a_mistake_raises_and_changes_nothing(
    call: Callable[[DrainTracker], object], error: type[Exception], text: str
) -> None:
    tracker, _ = draining(drain_timeout_ms=500)
    before = answers(tracker)
    with pytest.raises(error, match=text):
        call(tracker)
    assert before == answers(tracker)
    tracker.check_invariants()


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"owners": None}, ArgumentError, "owners is None"),
        ({"drain_timeout_ms": 0}, ArgumentError, "drain_timeout_ms is 0"),
        ({"drain_timeout_ms": True}, ArgumentError, "drain_timeout_ms is True"),
        ({"now_ms": -1}, ClockError, "now_ms is -1"),
        ({"now_ms": None}, ClockError, "now_ms is None"),
    ],
)
def test_a_tracker_that_cannot_work_is_refused(options: dict[str, object], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        DrainTracker(**({"owners": ALL_A} | options))  # type: ignore[arg-type]  # the mistake under test


# The structure


def test_a_copy_and_a_pickle_go_on_alone() -> None:
    tracker, (first, *_) = draining(drain_timeout_ms=500)
    tracker.refusal("b", 3)
    for again in (copy.deepcopy(tracker), pickle.loads(pickle.dumps(tracker))):  # noqa: S301  # our own bytes
        assert answers(tracker) == answers(again)
        again.ack(*first)
        again.check_invariants()
        assert 2 == tracker.stats().unacked


@pytest.mark.parametrize(
    ("damage", "fact"),
    [
        (lambda t: t._draining._drains.pop(3), "drains exactly while"),
        (lambda t: t._draining.add("a", 4), "drains exactly while"),
        (lambda t: t._draining.add("a", 3), "waits for these"),
        (lambda t: t._draining._drains.update({4: t._draining.entry(3)}), "filed under its hash"),
        (lambda t: t._consumers["b"].pending.add((5, 5), 3), "at one consumer only"),
        (lambda t: t._consumers.update({"x": t._consumers.pop("b")}), "filed under its name"),
        (lambda t: t._consumers.pop("b"), "every owner is connected"),
        (lambda t: t._consumers["a"].late._by_hash.update({1: {}}), "index by hash"),
    ],
    ids=range(8),
)
def test_damage_is_found(damage: Callable[[DrainTracker], object], fact: str) -> None:
    tracker, _ = draining(drain_timeout_ms=500)
    tracker.check_invariants()
    damage(tracker)
    with pytest.raises(InvariantError, match=fact):
        tracker.check_invariants()
