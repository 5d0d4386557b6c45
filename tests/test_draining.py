"""Draining hashes: counts of what the new owner of a hash waits for, one behaviour a test."""

import copy
import pickle
from collections.abc import Callable

import pytest

from keyshared.draining import DrainingEntry, DrainingHashes, DrainingStats
from keyshared.errors import ArgumentError, InvariantError, MisuseError

ZERO = DrainingStats(0, 0, 0, ())


def draining(*entries: tuple[str, int]) -> DrainingHashes:
    hashes = DrainingHashes()
    for consumer, hash_ in entries:
        hashes.add(consumer, hash_)
    return hashes


def answers(hashes: DrainingHashes) -> tuple[object, ...]:
    return hashes.stats(), [(hashes.stats(name), name) for name in ("a", "b")]


# Counting


def test_an_entry_names_its_hash_its_holder_and_what_it_waits_for() -> None:
    hashes = DrainingHashes()
    drain = hashes.add("a", 7)
    assert drain is hashes.entry(7)
    assert (7, "a", 1, 0) == (drain.hash, drain.holder, drain.unacked, drain.refused)
    assert "DrainingHash(7, 'a', unacked=1, refused=0)" == repr(drain)
    assert (1, True, False) == (len(hashes), 7 in hashes, 8 in hashes)


# Blocking


def test_the_holder_is_not_refused_and_takes_the_hash_back_without_a_word() -> None:
    hashes = draining(("a", 7), ("a", 7))
    assert hashes.should_block("b", 7)
    assert not hashes.should_block("a", 7)
    assert 7 not in hashes
    assert [] == hashes.reduce("a", 7)
    assert DrainingStats(0, 1, 0, ()) == hashes.stats("a")


def test_the_hash_that_is_unblocked_is_the_answer_if_somebody_was_refused() -> None:
    hashes = draining(("a", 7), ("a", 8))
    hashes.should_block("b", 7)
    assert [7] == hashes.reduce("a", 7)
    assert [] == hashes.reduce("a", 8)  # nobody had asked for it


# Batches


def test_a_batch_answers_once_at_its_end() -> None:
    hashes = draining(("a", 7), ("a", 5), ("a", 6))
    for hash_ in (5, 7):
        hashes.should_block("b", hash_)
    hashes.start_batch()
    assert [[], [], []] == [hashes.reduce("a", hash_) for hash_ in (7, 6, 5)]
    assert [7, 5] == hashes.end_batch()
    hashes.start_batch()
    assert [] == hashes.end_batch()


def test_only_the_outermost_batch_answers() -> None:
    hashes = draining(("a", 7))
    hashes.should_block("b", 7)
    hashes.start_batch()
    hashes.start_batch()
    hashes.reduce("a", 7)
    assert [] == hashes.end_batch()
    assert [7] == hashes.end_batch()


def test_a_batch_that_has_not_begun_cannot_end() -> None:
    with pytest.raises(MisuseError, match="call start_batch first"):
        DrainingHashes().end_batch()


# An ack belongs to one drain: upstream's concurrency tests, as sequences


@pytest.mark.parametrize("holder", ["a", "b"])
@pytest.mark.parametrize("count", [1, 2])
def test_a_stale_ack_never_touches_the_drain_that_came_after(holder: str, count: int) -> None:
    hashes = DrainingHashes()
    old = hashes.add("a", 7, count)
    hashes.should_block("a", 7)  # comes home
    new = hashes.add(holder, 7, count)
    assert [] == hashes.reduce("a", 7, of=old)
    assert (new, count) == (hashes.entry(7), new.unacked)


@pytest.mark.parametrize("batched", [False, True])
@pytest.mark.parametrize("closing", [False, True])
def test_two_last_acks_remove_and_tell_once(*, batched: bool, closing: bool) -> None:
    hashes = DrainingHashes()
    drain = hashes.add("a", 7)
    hashes.should_block("b", 7)
    if batched:
        hashes.start_batch()
    told = [*hashes.reduce("a", 7, of=drain, closing=closing), *hashes.reduce("a", 7, of=drain, closing=closing)]
    if batched:
        told += hashes.end_batch()
    assert ([] if closing else [7]) == told
    assert DrainingStats(0, 1, 0, ()) == hashes.stats("a")


# Mistakes change nothing


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda hashes: hashes.add("b", 7), MisuseError, "drains at 'a', so 'b'"),
        (lambda hashes: hashes.reduce("b", 7), MisuseError, "so 'b' can have no entries"),
        (lambda hashes: hashes.add("a", 0), ArgumentError, "hash_ is 0; it must be the hash of a message"),
        (lambda hashes: hashes.add("a", True), ArgumentError, "hash_ is True"),
        (lambda hashes: hashes.add("", 8), ArgumentError, "consumer is ''"),
        (lambda hashes: hashes.add(None, 8), ArgumentError, "consumer is None"),
        (lambda hashes: hashes.add("a", 7, 0), ArgumentError, "count is 0; it must be an int of at least 1"),
        (lambda hashes: hashes.add("a", 7, True), ArgumentError, "count is True"),
        (lambda hashes: hashes.reduce("a", 7, 3), ArgumentError, "count is 3; it must be at most 2"),
        (lambda hashes: hashes.reduce("a", "7"), ArgumentError, "hash_ is '7'"),
        (lambda hashes: hashes.reduce("a", 7, -1), ArgumentError, "count is -1"),
        (lambda hashes: hashes.should_block(7, "a"), ArgumentError, "consumer is 7"),
        (lambda hashes: hashes.should_block("b", 7.0), ArgumentError, "hash_ is 7.0"),
        (lambda hashes: hashes.end_batch(), MisuseError, "no batch has begun"),
    ],
)
def test_a_mistake_raises_and_changes_nothing(
    call: Callable[[DrainingHashes], object], error: type[Exception], text: str
) -> None:
    hashes = draining(("a", 7), ("a", 7))
    before = answers(hashes)
    with pytest.raises(error, match=text):
        call(hashes)
    assert before == answers(hashes)
    hashes.check_invariants()


@pytest.mark.parametrize("value", [True, "0", 0.0])
def test_the_unset_hash_is_an_int_or_none(value: object) -> None:
    with pytest.raises(ArgumentError, match="unset_hash"):
        DrainingHashes(unset_hash=value)  # type: ignore[arg-type]  # the mistake under test


def test_every_number_is_a_hash_if_none_is_unset() -> None:
    hashes = DrainingHashes(unset_hash=None)
    hashes.add("a", 0)
    assert hashes.should_block("b", 0)
    assert [0] == hashes.reduce("a", 0)


def test_another_number_may_mean_unset() -> None:
    with pytest.raises(ArgumentError, match="hash_ is -1"):
        DrainingHashes(unset_hash=-1).add("a", -1)


# Statistics


def test_statistics_are_counted_per_consumer_and_in_total_in_order_of_hashes() -> None:
    hashes = draining(("a", 9), ("b", 8), ("a", 3), ("a", 9), ("b", 2))
    hashes.should_block("b", 9)
    hashes.reduce("b", 2)
    assert DrainingStats(2, 0, 3, (DrainingEntry(3, 1, 0), DrainingEntry(9, 2, 1))) == hashes.stats("a")
    assert DrainingStats(1, 1, 1, (DrainingEntry(8, 1, 0),)) == hashes.stats("b")
    assert (3, 1, 4, [3, 8, 9]) == (*hashes.stats()[:3], [entry.hash for entry in hashes.stats().entries])
    assert ZERO == hashes.stats("nobody")


def test_statistics_have_pulsars_names_for_pulsars_tools() -> None:
    hashes = draining(("a", 9), ("a", 3))
    hashes.should_block("b", 9)
    assert {
        "drainingHashesCount": 2,
        "drainingHashesClearedTotal": 0,
        "drainingHashesUnackedMessages": 2,
        "drainingHashes": [
            {"hash": 3, "unackMsgs": 1, "blockedAttempts": 0},
            {"hash": 9, "unackMsgs": 1, "blockedAttempts": 1},
        ],
    } == hashes.stats("a").to_pulsar()


def test_what_a_removed_consumer_has_cleared_is_forgotten() -> None:
    hashes = draining(("a", 9))
    hashes.reduce("a", 9)
    hashes.consumer_removed("a")
    hashes.consumer_removed("nobody")
    assert ZERO == hashes.stats("a") == hashes.stats()


def test_clearing_forgets_everything() -> None:
    hashes = draining(("a", 9), ("b", 8))
    hashes.reduce("b", 8)
    hashes.clear()
    assert (ZERO, ZERO, 0) == (hashes.stats("a"), hashes.stats(), len(hashes))


# The structure


def test_a_copy_and_a_pickle_go_on_alone() -> None:
    hashes = draining(("a", 9), ("b", 8))
    hashes.should_block("b", 9)
    hashes.start_batch()
    for again in (copy.deepcopy(hashes), pickle.loads(pickle.dumps(hashes))):  # noqa: S301  # our own bytes
        assert answers(hashes) == answers(again)
        again.reduce("a", 9)
        assert [9] == again.end_batch()
        assert 9 in hashes


@pytest.mark.parametrize(
    ("damage", "fact"),
    [
        (lambda hashes: hashes._drains.update({0: hashes._drains[9]}), "the unset hash never drains"),
        (lambda hashes: hashes._drains.update({5: hashes._drains[9]}), "filed under its hash"),
        (lambda hashes: setattr(hashes._drains[9], "unacked", 0), "waits for something"),
        (lambda hashes: hashes._batched.update({9: None}), "outside a batch"),
    ],
)
def test_damage_is_found(damage: Callable[[DrainingHashes], object], fact: str) -> None:
    hashes = draining(("a", 9))
    hashes.check_invariants()
    damage(hashes)
    with pytest.raises(InvariantError, match=fact):
        hashes.check_invariants()
