"""Batches of a key under one lease, one behaviour at a time."""

from typing import Any

import pytest
from tests.leasing import WatchedQueue, fill, lease, letters, queue, reserve

from keyshared.config import Poison
from keyshared.effects import (
    CursorAdvanced,
    Effect,
    Released,
    ReleaseReason,
)
from keyshared.errors import ArgumentError, ConfigError
from keyshared.leases import (
    EmptyReason,
    InvalidHandle,
    InvalidHandleReason,
    InvalidReservation,
    LeaseAnswer,
    LeaseQueue,
    NothingToLease,
)

NOT_READY = NothingToLease(EmptyReason.NOT_READY)
ALL_OF_IT = letters({"a-z": "ann"})


def batching(*keys: str | None, **config: Any) -> WatchedQueue:
    """A queue of ann's that leases three of a key together."""
    made = queue("ann", **{"batch_per_key": 3, **config})
    fill(made, *(keys or ["a"] * 5))
    return made


def ended(effects: list[Effect]) -> list[tuple[int, ReleaseReason, int]]:
    return [(effect.offset, effect.reason, effect.failures) for effect in effects if isinstance(effect, Released)]


def restored(made: LeaseQueue, **config: Any) -> LeaseQueue:
    other = queue("ann", **config).config if config else made.config
    return LeaseQueue.restore(made.snapshot(), ALL_OF_IT, other, now_ms=0)


class TestLeasing:
    """A key has one turn, with several messages in it."""

    def test_consecutive_messages_of_a_key_stand_side_by_side_in_one_lease(self) -> None:
        assert (0, 1, 3, 2, 4) == lease(batching("a", "a", "b", "a", "b"), "ann").offsets

    def test_nothing_more_of_the_key_goes_out_until_all_of_the_batch_has_ended(self) -> None:
        made = batching()
        held = lease(made, "ann")
        made.ack(0, held.id)
        made.ack(2, held.id)

        assert (NOT_READY, (0, 1, 2)) == (made.consume("ann", 9).result, held.offsets)
        made.ack(1, held.id)
        assert (3, 4) == lease(made, "ann").offsets

    def test_who_asks_for_fewer_gets_fewer(self) -> None:
        assert (0, 1) == lease(batching(), "ann", 2).offsets
        assert (0, 1) == batching().consume("ann", 9, per_key=2).result.offsets  # type: ignore[union-attr]  # a lease
        assert (0,) == batching().reserve("ann", 9, per_key=1).result.offsets  # type: ignore[union-attr]  # as above
        assert (0, 1) == lease(batching(max_in_flight_per_consumer=2), "ann").offsets
        assert (0, 1) == lease(batching(max_in_flight=2), "ann").offsets

    def test_a_line_has_batches_too(self) -> None:
        made = queue("ann", ordering_required=True, poison=Poison.BLOCK, batch_per_key=2)
        fill(made, "a", None, "b")

        assert (0, 1) == lease(made, "ann").offsets
        assert NOT_READY == made.consume("ann").result

    @pytest.mark.parametrize("per_key", [0, 4, True, "2"])
    def test_a_size_that_is_none_is_refused_and_nothing_has_changed(self, per_key: Any) -> None:
        made = batching()
        with pytest.raises(ArgumentError, match="per_key"):
            made.consume("ann", 9, per_key=per_key, now_ms=7)
        assert 0 == made._machine.now

    def test_batches_and_a_pipeline_are_not_for_one_queue(self) -> None:
        with pytest.raises(ConfigError, match="in batches or in a pipeline"):
            batching(max_in_flight_per_key=2)


class TestReservations:
    """A batch is reserved, committed and aborted as one."""

    def test_an_abort_gives_all_of_it_back_and_tells_nobody(self) -> None:
        made = batching("a", "a", "b", "a")
        reservation = reserve(made, "ann")

        assert LeaseAnswer(None, []) == made.abort(reservation.id)
        assert isinstance(made.abort(reservation.id).result, InvalidReservation)
        assert {0: 1, 1: 1, 3: 1, 2: 1} == {each.offset: each.delivery_count for each in lease(made, "ann")}

    def test_one_that_expires_is_back_as_a_whole(self) -> None:
        made = batching()
        reservation = reserve(made, "ann", now_ms=0)

        assert LeaseAnswer(None, []) == made.handle_timeout(now_ms=reservation.deadline_ms)
        assert (0, 1, 2) == lease(made, "ann").offsets

    def test_a_commit_starts_the_time_of_each_message(self) -> None:
        made = batching("a", "a", "b", None)
        committed = made.commit(reserve(made, "ann", now_ms=0).id, now_ms=9).result

        assert [committed] == made.leases()
        assert [109] * 4 == [each.deadline_ms for each in made.outstanding()]


class TestAckThrough:
    """A handler says how far it has come."""

    def test_it_settles_what_is_older_of_the_key_and_nothing_else(self) -> None:
        made = batching("b", "a", "a", "a")
        held = lease(made, "ann")

        assert LeaseAnswer(None, []) == made.ack_through(2, held.id)
        assert [(0, 3)] == [each.offsets for each in made.leases()]
        assert [CursorAdvanced(2)] == made.ack(0, held.id).effects

    def test_a_handle_of_another_lease_settles_nothing_older(self) -> None:
        made = batching()
        held = lease(made, "ann")

        stale = InvalidHandle(2, held.id + 1, InvalidHandleReason.STALE)
        assert LeaseAnswer(stale, []) == made.ack_through(2, held.id + 1)
        assert (0, 1, 2) == made.leases()[0].offsets

    def test_what_is_older_in_another_lease_or_reservation_was_not_meant(self) -> None:
        made = batching(batch_per_key=1, max_in_flight_per_key=3)
        reserved, held = reserve(made, "ann", 1), lease(made, "ann", 2)

        assert LeaseAnswer(None, []) == made.ack_through(2, held.id)
        assert [reserved] == made.reservations()

    def test_of_a_line_it_settles_all_that_is_older(self) -> None:
        made = queue("ann", ordering_required=True, poison=Poison.BLOCK, batch_per_key=3)
        fill(made, "a", None, "b")

        assert [CursorAdvanced(1)] == made.ack_through(1, lease(made, "ann").id).effects

    def test_messages_without_a_key_are_acked_one_by_one(self) -> None:
        made = batching()
        for offset, key in enumerate([None, None], 5):
            made.offer(offset, key)
        held = lease(made, "ann")

        made.ack_through(6, held.id)
        assert {0, 1, 2, 5} == {*made.leases()[0].offsets}

    def test_holes_are_counted(self) -> None:
        made = batching("b", "a", "a", "b", max_ack_holes=0)
        held = lease(made, "ann")

        made.ack_through(2, held.id)
        assert (1, NothingToLease(EmptyReason.ACK_HOLES, 0)) == (
            len(made.acked_ranges()),
            made.consume("ann").result,
        )


class TestFailures:
    """What is newer than a failure comes back behind it, and has not failed."""

    def test_a_nack_returns_what_is_newer_uncounted(self) -> None:
        made = batching()
        held = lease(made, "ann")

        answer = made.nack(1, held.id, delay_ms=50)
        assert [(1, ReleaseReason.NACKED, 1), (2, ReleaseReason.BATCH_BROKEN, 0)] == ended(answer.effects)
        assert ([(0,)], [1, 1, 0]) == (
            [each.offsets for each in made.leases()],
            [made.delivery_count(offset) for offset in range(3)],
        )
        assert InvalidHandleReason.NOT_LEASED is made.ack(2, held.id).result.reason  # type: ignore[union-attr]
        made.ack(0, held.id)
        assert NOT_READY == made.consume("ann").result
        assert (1, 2, 3) == lease(made, "ann", now_ms=50).offsets

    def test_a_release_and_a_reject_do_so_too(self) -> None:
        made = batching("a", "a", "b", "b")
        held = lease(made, "ann")

        broken = [(1, ReleaseReason.BATCH_BROKEN, 0)]
        assert broken == ended(made.release(0, held.id, delay_ms=5).effects)[1:]
        assert [(3, ReleaseReason.BATCH_BROKEN, 0)] == ended(made.reject(2, held.id).effects)[1:]

    def test_of_a_batch_that_expires_the_oldest_has_failed(self) -> None:
        made = batching()
        held = lease(made, "ann", now_ms=0)
        made.ack(0, held.id)

        answer = made.handle_timeout(now_ms=held.deadline_ms)
        assert [(1, ReleaseReason.ACK_TIMEOUT, 1), (2, ReleaseReason.BATCH_BROKEN, 0)] == ended(answer.effects)

    def test_more_time_for_one_is_more_time_for_all(self) -> None:
        made = batching()
        held = lease(made, "ann", now_ms=0)

        assert 500 == made.extend(1, held.id, extend_ms=500).result
        assert (500, []) == (made.leases()[0].deadline_ms, made.handle_timeout(now_ms=499).effects)

    def test_who_is_removed_has_failed_each_of_them(self) -> None:
        made = batching("a", "b", "a", "b", "a")
        lease(made, "ann")

        removed = [(offset, ReleaseReason.REMOVED, 1) for offset in range(5)]
        assert removed == ended(made.remove_consumer("ann").effects)

    def test_a_drain_that_is_over_counts_each_of_them(self) -> None:
        made = batching()
        lease(made, "ann", now_ms=0)
        made.remove_consumer("ann", drain_ms=9)

        cut_off = [(offset, ReleaseReason.DRAIN_TIMEOUT, 1) for offset in range(3)]
        assert cut_off == ended(made.handle_timeout(now_ms=9).effects)


class TestRestarts:
    """A batch is what is leased of a key: nothing else is stored."""

    def test_it_goes_on_as_a_batch(self) -> None:
        made = batching()
        held = lease(made, "ann")
        again = restored(made)

        assert [held] == again.leases()
        assert NOT_READY == again.consume("ann").result
        assert [1, 2] == [offset for offset, *_ in ended(again.nack(1, held.id).effects)]

    def test_what_a_pipeline_has_leased_one_by_one_is_one_batch_after_it(self) -> None:
        made = batching(batch_per_key=1, max_in_flight_per_key=3)
        first, reserved, last = lease(made, "ann", 1), reserve(made, "ann", 1), lease(made, "ann", 1)
        again = restored(made, batch_per_key=3)

        assert [(2, ReleaseReason.BATCH_BROKEN, 0)] == ended(again.abort(reserved.id).effects), (
            "the lease was somebody's"
        )
        assert InvalidHandleReason.NOT_LEASED is again.ack(2, last.id).result.reason  # type: ignore[union-attr]
        again.check_invariants()
        assert [(0,)] == [each.offsets for each in again.leases()]
        assert [(0, ReleaseReason.NACKED, 1)] == ended(again.nack(0, first.id).effects)
        assert (0, 1, 2) == lease(again, "ann").offsets

    def test_a_reservation_that_breaks_with_a_lease_is_told_to_nobody(self) -> None:
        made = batching(batch_per_key=1, max_in_flight_per_key=3)
        first, reserved = lease(made, "ann", 1), reserve(made, "ann", 2)
        again = restored(made, batch_per_key=3)

        assert [(0, ReleaseReason.NACKED, 1)] == ended(again.nack(0, first.id).effects)
        assert isinstance(again.commit(reserved.id).result, InvalidReservation)
        assert (0, 1, 2) == lease(again, "ann").offsets
