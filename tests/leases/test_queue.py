"""The lease queue, one behaviour at a time."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from tests.alphabet import then
from tests.leasing import (
    WatchedQueue,
    count_held,
    count_leased,
    count_reserved,
    fill,
    lease,
    lease_config,
    letters,
    queue,
    reserve,
)

from keyshared.config import GroupLimits, KeySessions, Poison, RetryPolicy, Rules
from keyshared.dispatcher import Blocking
from keyshared.effects import (
    Blocked,
    BlockReason,
    Call,
    CursorAdvanced,
    DeadLetter,
    Effect,
    Ignored,
    IgnoredReason,
    Load,
    Released,
    ReleaseReason,
    Resumed,
    Skipped,
    SkipReason,
    Spilled,
)
from keyshared.errors import (
    ArgumentError,
    ClockError,
    ConsumerExistsError,
    InvariantError,
    KeyFullError,
    KeyTypeError,
    MisuseError,
    OffsetOrderError,
    SnapshotError,
    UnknownConsumerError,
    WindowFullError,
)
from keyshared.leases import (
    Duplicate,
    EmptyReason,
    InvalidHandle,
    InvalidHandleReason,
    InvalidReservation,
    InvalidReservationReason,
    Lease,
    LeaseAnswer,
    Leased,
    LeaseQueue,
    NothingToLease,
)
from keyshared.leases.table import LeaseTable
from keyshared.placement.assigned import AssignedRanges
from keyshared.ring import HashRing

NOT_READY = NothingToLease(EmptyReason.NOT_READY)
DONE: LeaseAnswer[None, object] = LeaseAnswer(None, [])


def two_of_one_key(**config: Any) -> WatchedQueue:
    """Messages 0 and 1 are of key a1, message 2 is of a2; all are ann's, bob stands by."""
    made = queue("ann", "bob", **config)
    fill(made, "a1", "a1", "a2")
    return made


def expired(offset: int, consumer: str, *, at_ms: int) -> Released:
    return Released(offset, consumer, 1, ReleaseReason.ACK_TIMEOUT, 1, at_ms)


def invalid(offset: int, lease_id: int, reason: InvalidHandleReason) -> LeaseAnswer[InvalidHandle, object]:
    return LeaseAnswer(InvalidHandle(offset, lease_id, reason), [])


class TestLeasing:
    """Who asks gets what waits for it, key by key in order."""

    def test_one_lease_covers_several_messages_under_one_id(self) -> None:
        made = queue("ann")
        made.offer(4, "a1", "first")
        made.offer(7, "a2", "second")

        expected = Lease(1, "ann", (Leased(4, b"a1", "first", 1), Leased(7, b"a2", "second", 1)), 105)
        assert LeaseAnswer(expected, []) == made.consume("ann", 10, now_ms=5)
        assert ((4, 7), ((4, 1), (7, 1))) == (expected.offsets, expected.handles)
        assert list(expected.messages) == list(expected)


class TestTwoPhases:
    """The first phase reserves, the second leases."""

    @pytest.mark.parametrize("use", [LeaseQueue.commit, LeaseQueue.abort])
    def test_what_is_no_reservation_is_answered_with_the_reason(
        self, use: Callable[..., LeaseAnswer[object, object]]
    ) -> None:
        made = two_of_one_key()
        first, second = reserve(made, "ann", 1), reserve(made, "ann", 1)
        made.commit(first.id)
        made.abort(second.id)

        reasons = {first.id: "committed", second.id: "ended", 3: "unknown", 0: "unknown", -1: "unknown"}
        for reservation_id, reason in reasons.items():
            expected = InvalidReservation(reservation_id, InvalidReservationReason(reason))
            assert LeaseAnswer(expected, []) == use(made, reservation_id)

    def test_a_reservation_cannot_be_acked(self) -> None:
        made = two_of_one_key()
        reserved = reserve(made, "ann")

        assert invalid(0, reserved.id, InvalidHandleReason.NOT_COMMITTED) == made.ack(0, reserved.id)
        assert reserved == made.reservations()[0]

    def test_what_is_leased_and_reserved_can_be_listed(self) -> None:
        made = two_of_one_key()
        held, reserved = lease(made, "ann", 1, now_ms=3), reserve(made, "ann", 1)
        made.extend(0, held.id, now_ms=5)

        assert [Lease(held.id, "ann", held.messages, 105)] == made.leases()
        assert [reserved] == made.reservations()


class TestReject:
    """What nobody can do is poison at once."""

    def test_a_reason_that_is_none_is_refused(self) -> None:
        made = two_of_one_key()
        held = lease(made, "ann", 1)

        with pytest.raises(ArgumentError, match="reason"):
            made.reject(0, held.id, reason="x" * 501)
        assert (0,) == made.leases()[0].offsets


class TestNotBefore:
    """A message that is offered for later is not leased before."""

    def test_a_time_that_is_none_is_refused(self) -> None:
        with pytest.raises(ArgumentError, match="not_before_ms"):
            queue("ann", ranges=letters()).offer(0, "a1", not_before_ms="soon")  # type: ignore[arg-type]


class TestCounting:
    """A delivery is a committed lease, and there are exactly as many as allowed."""

    ENDS: tuple[tuple[str, Callable[[WatchedQueue, Lease, int], object]], ...] = (
        ("nack", lambda made, held, now: made.nack(0, held.id, now_ms=now)),
        ("expiry", lambda made, held, _: made.handle_timeout(now_ms=held.deadline_ms)),
        ("removal", lambda made, _, now: (made.remove_consumer("ann", now_ms=now), made.add_consumer("ann"))),
    )

    @pytest.mark.parametrize("end", [end for _, end in ENDS], ids=[name for name, _ in ENDS])
    @pytest.mark.parametrize("most", [1, 2, 5])
    def test_exactly_so_many_deliveries_are_made_however_they_end(
        self, end: Callable[[WatchedQueue, Lease, int], object], most: int
    ) -> None:
        made = queue("ann", max_delivery_attempts=most, poison=Poison.BLOCK, ranges=letters())
        made.offer(0, None)
        counts = []
        for now in range(0, 2_000, 200):
            held = made.consume("ann", now_ms=now).result
            if not isinstance(held, Lease):
                break
            counts.append(held.messages[0].delivery_count)
            end(made, held, now)

        assert list(range(1, most + 1)) == counts
        assert (1, most) == (made.stats().blocked, made.delivery_count(0))

    def test_what_is_settled_has_no_count(self) -> None:
        made = queue("ann")
        made.offer(0, "a1")
        made.ack(0, lease(made, "ann").id)

        assert None is made.delivery_count(0)


class TestHandles:
    """A handle that names no current lease changes nothing, and says why."""

    @pytest.mark.parametrize(
        "use",
        [
            lambda made, offset, lease_id: made.ack(offset, lease_id),
            lambda made, offset, lease_id: made.nack(offset, lease_id),
            lambda made, offset, lease_id: made.extend(offset, lease_id, extend_ms=5),
            lambda made, offset, lease_id: LeaseAnswer(*(made.ack_many([(offset, lease_id)]).result, [])),
        ],
        ids=["ack", "nack", "extend", "ack_many"],
    )
    def test_every_reason(self, use: Callable[[WatchedQueue, int, int], LeaseAnswer[Any, Any]]) -> None:
        made = queue("ann", max_delivery_attempts=2, poison=Poison.BLOCK, archive_blocked=True)
        fill(made, *(f"a{number}" for number in range(8)))
        old = lease(made, "ann", 7, now_ms=0)
        made.ack(0, old.id)
        made.ack(3, old.id)
        made.handle_timeout(now_ms=100)
        current = lease(made, "ann", 3)
        assert (7, 1, 2) == current.offsets
        later = lease(made, "ann", 3)
        assert (4, 5, 6) == later.offsets
        made.nack(4, later.id)
        made.nack(5, later.id)
        made.dead_lettered(5)
        made.ack(7, current.id)
        made.ack(6, later.id)
        made.offer(8, "a8")
        made.nack(2, current.id, delay_ms=5)
        made.dead_lettered(2)
        made.unblock_offset(2)

        expected = {
            (0, old.id): InvalidHandleReason.BELOW_TRIM,
            (1, old.id): InvalidHandleReason.STALE,
            (1, 99): InvalidHandleReason.STALE,
            (2, current.id): InvalidHandleReason.NOT_LEASED,
            (3, old.id): InvalidHandleReason.SETTLED,
            (4, later.id): InvalidHandleReason.DEAD_LETTERING,
            (5, later.id): InvalidHandleReason.BLOCKED,
            (8, 99): InvalidHandleReason.NOT_LEASED,
            (9, 99): InvalidHandleReason.NOT_OFFERED,
        }
        before = made.snapshot()
        for (offset, lease_id), reason in expected.items():
            answer = use(made, offset, lease_id).result
            assert InvalidHandle(offset, lease_id, reason) == (answer[0] if isinstance(answer, list) else answer)
        assert before == made.snapshot()

    def test_nothing_was_offered_to_an_empty_queue(self) -> None:
        assert invalid(0, 1, InvalidHandleReason.NOT_OFFERED) == queue("ann").ack(0, 1)

    def test_a_zombie_does_not_end_the_lease_of_another(self) -> None:
        made = queue("ann", "bob", ranges=letters({"a-m": "ann", "n-z": "bob"}))
        made.offer(0, "a1")
        old = lease(made, "ann", now_ms=0)
        made.set_placement(letters({"a-z": "bob"}))
        current = lease(made, "bob", now_ms=100)

        assert invalid(0, old.id, InvalidHandleReason.STALE) == made.ack(0, old.id)
        assert invalid(0, old.id, InvalidHandleReason.STALE) == made.nack(0, old.id)
        assert invalid(0, old.id, InvalidHandleReason.STALE) == made.reject(0, old.id)
        assert invalid(0, old.id, InvalidHandleReason.STALE) == made.release(0, old.id)
        assert invalid(0, old.id, InvalidHandleReason.STALE) == made.extend(0, old.id, extend_ms=5)
        assert LeaseAnswer(None, [CursorAdvanced(0)]) == made.ack(0, current.id)

    def test_an_ack_at_the_deadline_is_too_late(self) -> None:
        made = queue("ann")
        made.offer(0, "a1")
        held = lease(made, "ann", now_ms=0)

        answer = InvalidHandle(0, held.id, InvalidHandleReason.NOT_LEASED)
        assert LeaseAnswer(answer, [expired(0, "ann", at_ms=100)]) == made.ack(0, held.id, now_ms=100)


def test_a_lease_can_be_extended_by_a_millisecond() -> None:
    made = queue("ann")
    fill(made, "a1")
    held = lease(made, "ann", now_ms=10)

    assert LeaseAnswer(11, []) == made.extend(0, held.id, extend_ms=1)


class TestOrderingRequired:
    """At most one consumer holds anything, and anybody may be that one."""

    def line(self, **config: Any) -> WatchedQueue:
        made = queue("ann", "bob", **{"ordering_required": True, "poison": Poison.BLOCK, **config})
        fill(made, "a1", "b1", None)
        return made

    def test_a_blocked_message_is_unblocked_by_any_key_because_all_are_one(self) -> None:
        made = self.line()
        made.reject(0, lease(made, "ann", 1).id)
        assert 1 == made.stats().blocked

        made.unblock("a1")
        assert 0 == made.stats().blocked

    def test_who_asks_first_holds_the_line_until_it_holds_nothing(self) -> None:
        made = self.line(max_in_flight_per_key=3)
        held = lease(made, "bob", 2)
        assert (0, 1) == held.offsets

        held_by_bob = NothingToLease(EmptyReason.LINE_HELD, consumer="bob")
        assert held_by_bob == made.consume("ann").result == made.why_empty("ann")
        made.ack(0, held.id)
        assert held_by_bob == made.consume("ann").result
        made.ack(1, held.id)
        assert (None, (2,)) == (made.why_empty("ann"), lease(made, "ann").offsets)

    def test_before_anybody_asked_anybody_may(self) -> None:
        assert None is self.line().why_empty("bob")

    def test_the_line_survives_a_restart(self) -> None:
        made = self.line()
        held = lease(made, "bob")
        again = restored(made, None)

        assert NothingToLease(EmptyReason.LINE_HELD, consumer="bob") == again.consume("ann").result
        again.ack(0, held.id)
        assert (1,) == lease(again, "ann").offsets

    @pytest.mark.parametrize("poison", [Poison.DEAD_LETTER, Poison.DROP])
    def test_a_policy_that_lets_newer_ones_pass_is_refused(self, poison: Poison) -> None:
        with pytest.raises(ArgumentError) as caught:
            lease_config(ordering_required=True, poison=poison)
        assert ("poison", poison) == (caught.value.parameter, caught.value.value)

    def test_ranges_are_refused(self) -> None:
        with pytest.raises(ArgumentError, match="be None with ordering_required"):
            LeaseQueue(letters(), lease_config(ordering_required=True, poison=Poison.BLOCK))
        with pytest.raises(ArgumentError, match="not be set with ordering_required"):
            self.line().set_placement(letters())
        with pytest.raises(ArgumentError, match="be a placement, unless"):
            LeaseQueue()


class TestPoison:
    """What becomes of a message that nobody could work on."""

    def poisoned(self, poison: Poison, **switches: bool) -> tuple[WatchedQueue, list[Effect]]:
        made = two_of_one_key(max_delivery_attempts=1, poison=poison, **switches)
        return made, then(made.nack(0, lease(made, "ann", 1).id).effects)

    def test_skip_settles_once_the_dead_letter_is_written(self) -> None:
        made, effects = self.poisoned(Poison.DEAD_LETTER)

        assert [DeadLetter(0, b"a1", 1, 1, None)] == effects == made.outstanding_effects()
        assert (True, 0) == (
            made.is_current(DeadLetter(0, b"a1", 1, 1, None)),
            made.resume_offset,
        )
        assert (2,) == lease(made, "ann").offsets
        assert LeaseAnswer(None, [CursorAdvanced(0)]) == made.dead_lettered(0)
        assert (1,) == lease(made, "ann").offsets

    def test_unblocked_with_its_count_it_gets_one_more_delivery(self) -> None:
        made = two_of_one_key(max_delivery_attempts=3, poison=Poison.BLOCK)
        for _ in range(3):
            made.nack(0, lease(made, "ann", 1).id)
            made.ack(2, lease(made, "ann", 1).id) if made.stats().outstanding == 3 else None
        assert 1 == made.stats().blocked

        made.unblock_offset(0, reset_failures=False)
        again = lease(made, "ann", 1)
        assert Leased(0, b"a1", None, 4) == again.messages[0]
        assert [Blocked(0, b"a1", 4)] == then(made.nack(0, again.id).effects)

    def test_all_of_a_key_can_be_unblocked(self) -> None:
        made, _ = self.poisoned(Poison.BLOCK)

        assert DONE == made.unblock(b"a1")
        assert (2, 0) == lease(made, "ann").offsets

    @pytest.mark.parametrize(
        ("call", "reason"),
        [
            (Call.PARK, IgnoredReason.NOT_BLOCKED),
            (Call.UNBLOCK_OFFSET, IgnoredReason.NOT_BLOCKED),
            (Call.DEAD_LETTERED, IgnoredReason.NOT_DEAD_LETTERING),
            (Call.LOADED, IgnoredReason.NOT_LOADING),
        ],
    )
    def test_what_is_not_so_is_answered(self, call: Call, reason: IgnoredReason) -> None:
        made = two_of_one_key(max_ack_holes=1)
        use = getattr(made, call)

        assert LeaseAnswer(Ignored(0, None, None, call, reason), []) == use(0)
        assert LeaseAnswer(Ignored(9, None, None, call, IgnoredReason.UNKNOWN_OFFSET), []) == use(9)


class TestTrim:
    """How far the log may be cut, and how deep the queue is."""

    def test_nothing_leased_blocked_or_delayed_is_trimmed(self) -> None:
        made = queue("ann", max_delivery_attempts=1, poison=Poison.BLOCK)
        assert made.resume_offset is None
        fill(made, "a1", "a2", "a3", "a4")
        held = lease(made, "ann")
        made.ack(0, held.id)
        made.nack(1, held.id)
        made.ack(3, held.id)

        assert 1 == made.resume_offset
        made.park(1)
        assert 2 == made.resume_offset
        made.ack(2, held.id)
        assert 4 == made.resume_offset

    def test_the_live_depth_and_the_published_one(self) -> None:
        made = queue("ann", max_delivery_attempts=1, poison=Poison.BLOCK)
        fill(made, *(f"a{number}" for number in range(6)))
        held = lease(made, "ann", 4)
        made.ack(1, held.id)
        made.ack(3, held.id)
        made.nack(0, held.id)
        reserve(made, "ann", 1)

        stats = made.stats()
        assert (4, 2, 1, 0) == (stats.outstanding, stats.in_flight, stats.blocked, stats.delayed)
        assert (1, 1, {"ann": 2}) == (count_leased(made), count_reserved(made), count_held(made))
        assert [(1, 2), (3, 4)] == made.acked_ranges()

    def test_a_queue_that_begins_later_knows_what_is_settled(self) -> None:
        made = queue("ann", start=7, max_ack_holes=0)
        assert invalid(7, 1, InvalidHandleReason.NOT_OFFERED) == made.ack(7, 1)
        assert (7, []) == (made.resume_offset, fill(made, "a1", "a2", start=5))

        assert [] == fill(made, "a3", start=7)
        assert (1, (7,)) == (made.stats().outstanding, lease(made, "ann").offsets)
        assert invalid(6, 1, InvalidHandleReason.BELOW_TRIM) == made.ack(6, 1)


class TestAnswers:
    """One list of effects, whatever the call did and time did before it."""

    def late(self, poison: Poison) -> WatchedQueue:
        made = queue("ann", max_delivery_attempts=1, poison=poison)
        fill(made, "a1", "a1", "b1")
        lease(made, "ann", 2, now_ms=0)
        return made

    def test_what_ends_within_the_call_is_not_asked_for(self) -> None:
        made = self.late(Poison.DEAD_LETTER)
        released: list[Effect] = [Released(offset, "ann", 1, ReleaseReason.ACK_TIMEOUT, 1, None) for offset in (0, 2)]

        skipped = Skipped(0, b"a1", SkipReason.GONE)
        expected: list[Effect] = [*released, skipped, DeadLetter(2, b"b1", 1, 1, None), CursorAdvanced(0)]
        assert LeaseAnswer(None, expected) == made.gone(0, now_ms=100)

    def test_a_confirmation_that_comes_at_the_same_instant_is_one(self) -> None:
        made = self.late(Poison.DEAD_LETTER)

        effects = made.dead_lettered(0, now_ms=100).effects
        assert [DeadLetter(2, b"b1", 1, 1, None), CursorAdvanced(0)] == effects[2:]

    def test_the_cursor_is_told_once(self) -> None:
        made = self.late(Poison.DROP)

        effects = made.truncate(2, now_ms=100).effects
        assert [CursorAdvanced(2)] == [effect for effect in effects if isinstance(effect, CursorAdvanced)]
        assert [CursorAdvanced(2)] == effects[-1:]

    def test_that_there_is_room_is_told_last_and_as_it_is(self) -> None:
        made = queue("ann", max_delivery_attempts=1, poison=Poison.DROP, window=2, max_tracked=2)
        fill(made, "a1", "b1")
        lease(made, "ann", 1, now_ms=0)

        effects = made.truncate(2, now_ms=100).effects
        assert [CursorAdvanced(1), Resumed(2)] == effects[-2:]
        assert 1 == sum(isinstance(effect, Resumed) for effect in effects)


class TestCaps:
    """Limits are answers."""

    def test_a_consumer_holds_so_many(self) -> None:
        made = queue("ann", "bob", max_in_flight_per_consumer=2)
        fill(made, "a1", "a2", "a3", None)
        held = lease(made, "ann", 1)
        assert (1,) == lease(made, "ann").offsets

        full = NothingToLease(EmptyReason.CONSUMER_LIMIT, consumer="ann")
        assert full == made.consume("ann").result == made.why_empty("ann")
        assert (3,) == lease(made, "bob").offsets
        made.ack(0, held.id)
        assert (2,) == lease(made, "ann").offsets

    def test_the_queue_hands_out_so_many(self) -> None:
        made = queue("ann", "bob", max_in_flight=2)
        fill(made, "a1", None, "a2")
        reserve(made, "bob")
        assert (0,) == lease(made, "ann").offsets

        assert NothingToLease(EmptyReason.QUEUE_LIMIT) == made.consume("ann").result == made.why_empty("bob")
        assert (2,) == lease(made, "ann", now_ms=10).offsets

    def test_too_many_holes_leave_only_the_lowest(self) -> None:
        made = queue("ann", "bob", max_ack_holes=1, ranges=letters({"a-m": "ann", "n-z": "bob"}))
        fill(made, "a0", "n1", "a2", "n3", "a4", "a5", "n6")
        ann, bob = lease(made, "ann", 2, now_ms=0), lease(made, "bob", 2)
        made.ack(1, bob.id)
        made.ack(3, bob.id)
        assert 2 == len(made.acked_ranges())

        assert NothingToLease(EmptyReason.ACK_HOLES, 0) == made.consume("bob").result == made.consume("ann").result
        assert NothingToLease(EmptyReason.ACK_HOLES, 0, "ann", 100) == made.why_empty("bob")
        made.nack(0, ann.id)
        assert NothingToLease(EmptyReason.ACK_HOLES, 0) == made.consume("bob", 9).result
        expected = NothingToLease(EmptyReason.ACK_HOLES, 0, "ann", None, Blocking(BlockReason.CONSUMER_FULL, "ann"))
        assert (expected, None) == (made.why_empty("bob"), made.why_empty("ann"))

        again = lease(made, "ann", 9)
        assert (0,) == again.offsets
        made.ack(0, again.id)
        assert 1 == len(made.acked_ranges())
        assert NothingToLease(EmptyReason.ACK_HOLES, 2) == made.consume("bob").result, "until there are half as many"
        made.ack(2, ann.id)
        assert ((4, 5), (6,)) == (lease(made, "ann", 9).offsets, lease(made, "bob", 9).offsets)

    def test_the_lowest_is_waited_for_until_its_reservation_or_its_drain_ends(self) -> None:
        made = queue("ann", "bob", max_ack_holes=0, ranges=letters({"a-m": "ann", "n-z": "bob"}))
        fill(made, "a0", "n1", "n2")
        reservation = reserve(made, "ann", now_ms=0)
        made.ack(1, lease(made, "bob", 1).id)
        assert NothingToLease(EmptyReason.ACK_HOLES, 0, "ann", 10) == made.why_empty("bob")

        made.commit(reservation.id)
        assert NothingToLease(EmptyReason.ACK_HOLES, 0, "ann", 100) == made.why_empty("bob")
        made.remove_consumer("ann", drain_ms=7)
        assert NothingToLease(EmptyReason.ACK_HOLES, 0, "ann", 7) == made.why_empty("bob")

    def test_a_full_queue_takes_nothing(self) -> None:
        made = queue("ann", window=1, max_tracked=1)
        made.offer(0, "a1")
        assert 0 == made.free_slots
        with pytest.raises(WindowFullError):
            made.offer(1, "a1")

        assert [CursorAdvanced(0), Resumed(1)] == made.ack(0, lease(made, "ann").id).effects


class TestSpill:
    """Items that are not kept are read again when somebody asks for them."""

    def spilled(self) -> WatchedQueue:
        made = queue("ann", window=4)
        assert [Spilled(2)] == fill(made, "a1", "a2", "a3")
        return made

    def test_a_reservation_asks_for_the_item_and_the_next_one_gets_it(self) -> None:
        made = self.spilled()
        held = lease(made, "ann", 2)
        assert NothingToLease(EmptyReason.WAITING, 2, blocking=Blocking(BlockReason.LOADING)) == made.why_empty("ann")

        assert LeaseAnswer(NOT_READY, [Load(2, b"a3")]) == made.consume("ann")
        assert NothingToLease(
            EmptyReason.WAITING, 2, "ann", blocking=Blocking(BlockReason.LOADING, "ann")
        ) == made.why_empty("ann")
        assert (Load(2, b"a3"), DONE) == (made.outstanding_effects()[0], made.loaded(2, "read again"))
        assert (Leased(2, b"a3", "read again", 1),) == lease(made, "ann").messages
        assert (0, 1) == held.offsets

    def test_without_a_slot_of_the_window_it_waits(self) -> None:
        made = queue("ann", window=2)
        assert [Spilled(1)] == fill(made, "a1", "a2")
        held = lease(made, "ann", 1)
        fill(made, "a3", start=2)

        full = NothingToLease(EmptyReason.WAITING, 1, blocking=Blocking(BlockReason.WINDOW_FULL))
        assert None is made.why_empty("ann")
        assert (2,) == lease(made, "ann", 1).offsets
        assert full == made.why_empty("ann")
        assert NOT_READY == made.consume("ann").result
        assert full == made.why_empty("ann")
        made.ack(0, held.id)
        assert [Load(1, b"a2")] == made.consume("ann").effects

    def test_the_lowest_one_too_many_holes_ask_for_may_be_spilled(self) -> None:
        made = queue("ann", window=2, max_ack_holes=0)
        fill(made, "a1", "a2")
        first = lease(made, "ann", 1)
        fill(made, "a3", start=2)
        made.ack(2, lease(made, "ann", 1).id)
        made.ack(0, first.id)

        unread = Blocking(BlockReason.LOADING)
        assert NothingToLease(EmptyReason.ACK_HOLES, 1, blocking=unread) == made.why_empty("ann")


class TestExpiredVersions:
    """Messages that a time to live or a cut log took away."""

    def test_one_that_is_not_leased_is_settled_at_once(self) -> None:
        made = two_of_one_key()

        assert LeaseAnswer(None, [Skipped(0, b"a1", SkipReason.GONE), CursorAdvanced(0)]) == made.gone(0)
        assert (1, 2) == lease(made, "ann").offsets

    def test_one_that_is_leased_is_settled_when_the_lease_ends(self) -> None:
        made = two_of_one_key()
        held = lease(made, "ann", 1)
        assert DONE == made.gone(0)

        assert [Skipped(0, b"a1", SkipReason.GONE), CursorAdvanced(0)] == then(made.nack(0, held.id).effects)

    def test_all_below_an_offset(self) -> None:
        made = two_of_one_key()

        gone = [Skipped(offset, b"a1", SkipReason.GONE) for offset in (0, 1)]
        assert LeaseAnswer(None, [*gone, CursorAdvanced(1)]) == made.truncate(2)


class TestProducers:
    """A message that is sent twice is taken once."""

    def test_a_repeated_number_is_a_duplicate_and_uses_no_offset(self) -> None:
        made = queue("ann")
        assert DONE == made.offer(0, "a1", producer=("p", 5))

        assert LeaseAnswer(Duplicate("p", 5, 5), []) == made.offer(1, "a1", producer=("p", 5))
        assert LeaseAnswer(Duplicate("p", 4, 5), []) == made.offer(1, "a1", producer=("p", 4))
        assert DONE == made.offer(1, "a1", producer=("p", 9))
        assert DONE == made.offer(2, "a1", producer=("q", 1))
        assert 3 == made.stats().outstanding

    def test_a_duplicate_with_a_time_that_is_none_is_refused(self) -> None:
        made = queue("ann")
        made.offer(0, "a1", producer=("p", 7))
        with pytest.raises(ArgumentError, match="not_before_ms"):
            made.offer(1, "a1", producer=("p", 7), not_before_ms="soon")  # type: ignore[arg-type]  # the mistake

    def test_time_acts_on_a_duplicate_too(self) -> None:
        made = queue("ann")
        made.offer(0, "a1", producer=("p", 5))
        lease(made, "ann", now_ms=0)

        assert [expired(0, "ann", at_ms=100)] == made.offer(1, "a1", producer=("p", 5), now_ms=100).effects

    def test_numbers_survive_a_restart_and_a_log_that_is_read_again_is_no_duplicate(self) -> None:
        made = queue("ann")
        made.offer(0, "a1", "x", producer=("p", 5))
        again = restored(made, letters({"a-z": "ann"}))

        assert DONE == again.offer(0, "a1", "x", producer=("p", 5))
        assert Duplicate("p", 5, 5) == again.offer(1, "a1", producer=("p", 5)).result
        assert (Leased(0, b"a1", "x", 1),) == lease(again, "ann").messages

    def test_a_forgotten_producer_begins_anew(self) -> None:
        made = queue("ann")
        made.offer(0, "a1", producer=("p", 5))
        made.forget_producer("p")
        made.forget_producer("q")

        assert DONE == made.offer(1, "a1", producer=("p", 1))

    def test_an_offer_that_raises_uses_no_number(self) -> None:
        made = queue("ann")
        with pytest.raises(KeyTypeError):
            made.offer(0, 5, producer=("p", 5))  # type: ignore[arg-type]  # the mistake

        assert DONE == made.offer(0, "a1", producer=("p", 5))


class TestConsumers:
    """Who comes and goes."""

    def test_a_key_that_moves_waits_for_leases_and_reservations_of_it(self) -> None:
        made = queue("ann", "bob")
        fill(made, "a1", "a1", "a2", "a3")
        held, reserved = lease(made, "ann", 1), reserve(made, "ann", 1)
        made.set_placement(letters({"a-z": "bob"}))

        assert (3,) == lease(made, "bob").offsets
        drains = NothingToLease(EmptyReason.WAITING, 1, "ann", None, Blocking(BlockReason.DRAINING, "ann"))
        assert (NOT_READY, drains) == (made.consume("bob").result, made.why_empty("bob"))
        made.ack(0, held.id)
        made.abort(reserved.id)
        assert (1, 2) == lease(made, "bob").offsets

    def test_who_is_removed_loses_its_leases_with_a_count_and_its_reservations_without(self) -> None:
        made = queue("ann", "bob", max_ack_holes=5, ranges=letters())
        fill(made, None, None)
        lease(made, "ann", 1)
        reserve(made, "ann", 1)

        released = Released(0, "ann", 1, ReleaseReason.REMOVED, 1, 0)
        assert LeaseAnswer(None, [released]) == made.remove_consumer("ann")
        assert (1, 0) == (made.delivery_count(0), made.delivery_count(1))
        assert DONE == made.remove_consumer("ann")
        with pytest.raises(UnknownConsumerError):
            made.consume("ann")

    def test_when_the_time_to_drain_is_over_leases_count_and_reservations_do_not(self) -> None:
        made = queue("ann", ranges=letters())
        fill(made, None, None)
        lease(made, "ann", 1, now_ms=0)
        assert DONE == made.remove_consumer("ann", drain_ms=5)
        made.add_consumer("bob")
        assert (5, DONE) == (made.next_deadline_ms(), made.handle_timeout(now_ms=4))

        released = Released(0, "ann", 1, ReleaseReason.DRAIN_TIMEOUT, 1, 5)
        assert LeaseAnswer(None, [released]) == made.handle_timeout(now_ms=5)
        assert ({"bob": 0}, None, 1) == (count_held(made), made.next_deadline_ms(), made.delivery_count(0))

    def test_nothing_of_it_is_promised_for_longer_than_the_time_to_drain(self) -> None:
        made = queue("ann")
        fill(made, "a", "b")
        held = lease(made, "ann", 1, now_ms=0)
        reservation = reserve(made, "ann")
        made.remove_consumer("ann", drain_ms=7)

        assert [7, 7] == [each.deadline_ms for each in (*made.leases(), *made.reservations())]
        assert 7 == made.extend(*held.handles[0]).result
        assert 5 == made.extend(*held.handles[0], extend_ms=5).result
        assert [5] == [each.deadline_ms for each in made.leases()]
        assert 7 == made.commit(reservation.id).result.deadline_ms  # type: ignore[union-attr]  # it is a lease
        made.handle_timeout(now_ms=7)
        assert [] == made.leases()

    def test_the_time_to_drain_can_be_changed(self) -> None:
        made = queue("ann", ranges=letters())
        fill(made, None)
        lease(made, "ann", now_ms=0)
        for drain_ms, deadline in ((50, 50), (5, 5), (None, 100), (20, 20)):
            assert DONE == made.remove_consumer("ann", drain_ms=drain_ms)
            assert deadline == made.next_deadline_ms()

    def test_who_holds_nothing_has_nothing_to_drain(self) -> None:
        made = queue("ann")
        made.remove_consumer("ann", drain_ms=5)

        assert (None, DONE) == (made.next_deadline_ms(), made.add_consumer("ann"))


class TestWhyEmpty:
    """The first thing to look at when nothing moves."""

    def test_there_is_nothing(self) -> None:
        assert NothingToLease(EmptyReason.EMPTY) == queue("ann").why_empty("ann")

    def test_there_is_something(self) -> None:
        assert None is two_of_one_key().why_empty("ann")

    def test_it_belongs_to_others(self) -> None:
        assert NothingToLease(EmptyReason.OTHERS) == two_of_one_key().why_empty("bob")

    def test_all_of_it_is_leased(self) -> None:
        made = queue("ann")
        fill(made, "a1")
        lease(made, "ann")
        assert NothingToLease(EmptyReason.OTHERS) == made.why_empty("ann")

    def test_its_key_is_leased(self) -> None:
        made = two_of_one_key()
        lease(made, "ann")
        leased = Blocking(BlockReason.KEY_IN_FLIGHT, "ann")
        assert NothingToLease(EmptyReason.WAITING, 1, "ann", None, leased) == made.why_empty("ann")

    def test_nobody_owns_it(self) -> None:
        made = queue("ann", ranges=letters({"b-b": "ann"}))
        fill(made, "a1", "a2")
        assert NothingToLease(EmptyReason.WAITING, 0, blocking=Blocking(BlockReason.UNOWNED)) == made.why_empty("ann")

    def test_it_is_poison(self) -> None:
        made = queue("ann", "bob", max_delivery_attempts=1, ranges=letters())
        fill(made, None)
        made.nack(0, lease(made, "ann").id)
        waiting = Blocking(BlockReason.DEAD_LETTERING)
        assert NothingToLease(EmptyReason.WAITING, 0, blocking=waiting) == made.why_empty("bob")


def restored(made: LeaseQueue, placement: AssignedRanges | None, **options: Any) -> WatchedQueue:
    """The queue after a crash, its snapshot having been JSON."""
    state = json.loads(json.dumps(made.snapshot()))
    return WatchedQueue.restore(state, placement, made.config, **{"now_ms": 0, **options})


class TestRestart:
    """Everything goes on where it was."""

    def held(self) -> WatchedQueue:
        made = queue("ann", "bob", ranges=letters({"a-m": "ann", "n-z": "bob"}))
        fill(made, "a1", "a2", "n1", "a3")
        lease(made, "ann", 1, now_ms=10)
        reserve(made, "bob", 1, now_ms=12)
        lease(made, "ann", 1, now_ms=15)
        return made

    def again(self, made: LeaseQueue, **options: Any) -> WatchedQueue:
        return restored(made, letters({"a-m": "ann", "n-z": "bob"}), **options)

    def test_leases_and_reservations_have_the_time_they_had_left(self) -> None:
        made = self.held()
        made.ack(9, 9, now_ms=17)  # the clock moves, and nothing else
        again = self.again(made, now_ms=1_000)

        assert [1_093, 1_098] == [each.deadline_ms for each in again.leases()]
        assert [(1, 1_005)] == [(len(each.offsets), each.deadline_ms) for each in again.reservations()]
        assert isinstance(again.commit(2, now_ms=1_004).result, Lease)
        assert [expired(0, "ann", at_ms=1_093)] == again.handle_timeout(now_ms=1_093).effects

    def test_leases_given_out_after_the_snapshot_stay_fenced(self) -> None:
        made = self.held()
        state = made.snapshot()
        lost = lease(made, "ann")
        again = WatchedQueue.restore(state, letters({"a-m": "ann", "n-z": "bob"}), made.config, now_ms=0, epoch=1)
        current = lease(again, "ann")

        assert (4, (1 << 32) + 1) == (lost.id, current.id)
        assert lost.offsets == current.offsets == (3,)
        assert invalid(3, lost.id, InvalidHandleReason.STALE) == again.ack(3, lost.id)

    def test_a_queue_without_a_snapshot_fences_the_leases_of_its_earlier_lives(self) -> None:
        lives = [WatchedQueue(letters({"a-z": "ann"}), epoch=epoch) for epoch in (0, 1, 7)]
        for made in lives:
            made.add_consumer("ann")
            made.offer(5, "a1")
        first, second, third = (lease(made, "ann") for made in lives)

        assert (1, (1 << 32) + 1, (7 << 32) + 1) == (first.id, second.id, third.id)
        for old in (first, second):
            assert invalid(5, old.id, InvalidHandleReason.STALE) == lives[2].ack(5, old.id)
        assert isinstance(lives[1].commit(third.id).result, InvalidReservation)
        assert lives[2].ack(5, third.id).result is None

    def test_a_restored_queue_goes_on_in_the_epoch_that_it_began_with(self) -> None:
        made = WatchedQueue(letters({"a-z": "ann"}), epoch=3)
        made.add_consumer("ann")
        made.offer(5, "a1")
        made.abort(reserve(made, "ann", 1).id)
        again = [restored(made, letters({"a-z": "ann"}), epoch=epoch) for epoch in (0, 3, 4)]

        assert [(3 << 32) + 2, (3 << 32) + 2, (4 << 32) + 1] == [lease(each, "ann").id for each in again]

    @pytest.mark.parametrize("epoch", [-1, True, None, 1.0, 1 << 31])
    def test_an_epoch_is_a_number_from_0_on(self, epoch: Any) -> None:
        with pytest.raises(ArgumentError, match="epoch"):
            LeaseQueue(letters({"a-z": "ann"}), epoch=epoch)
        with pytest.raises(ArgumentError, match="epoch"):
            restored(WatchedQueue(letters({"a-z": "ann"})), letters({"a-z": "ann"}), epoch=epoch)

    @pytest.mark.parametrize("use", [LeaseQueue.commit, LeaseQueue.abort])
    def test_what_was_never_reserved_is_unknown_in_every_epoch(
        self, use: Callable[..., LeaseAnswer[object, object]]
    ) -> None:
        made = self.held()
        made.abort(2)
        again = self.again(self.again(made, epoch=1), epoch=2)  # nothing is handed out in epoch 1
        later = reserve(again, "bob", 1)
        again.abort(later.id)
        again = self.again(again, epoch=3)

        ended, unknown = (1 << 33) + 1, InvalidReservationReason.UNKNOWN
        reasons = {2: InvalidReservationReason.ENDED, ended: InvalidReservationReason.ENDED}
        reasons |= dict.fromkeys((4, 1 << 32, (1 << 32) + 1, 1 << 33, ended + 1, 3 << 32, (3 << 32) + 1), unknown)
        for reservation_id, reason in reasons.items():
            assert InvalidReservation(reservation_id, reason) == use(again, reservation_id).result

    def test_a_queue_that_was_offered_nothing_may_go_on_with_a_start(self) -> None:
        state = queue("ann").snapshot()
        again = LeaseQueue.restore(state, letters({"a-z": "ann"}), lease_config(start=5), now_ms=0)

        again.check_invariants()
        assert 5 == again.resume_offset

    def draining(self) -> WatchedQueue:
        made = self.held()
        made.remove_consumer("ann", drain_ms=40)
        return made

    def test_a_draining_consumer_has_the_time_it_had_left(self) -> None:
        again = restored(self.draining(), letters({"n-z": "bob"}))
        again.handle_timeout(now_ms=39)

        cut_off = [Released(offset, "ann", 1, ReleaseReason.DRAIN_TIMEOUT, 1, 40) for offset in (0, 1)]
        assert cut_off == again.handle_timeout(now_ms=40).effects


class TestBadArguments:
    """The embedder's mistakes raise, and change nothing."""

    CALLS: tuple[tuple[str, Callable[[Any], object], type[Exception]], ...] = (
        ("an offset as text", lambda made: made.offer("9", "a1"), OffsetOrderError),
        ("an old offset", lambda made: made.offer(1, "a1"), OffsetOrderError),
        ("a key as int", lambda made: made.offer(9, 5), KeyTypeError),
        ("no producer", lambda made: made.offer(9, "a", producer="p"), ArgumentError),
        ("half a producer", lambda made: made.offer(9, "a", producer=("p",)), ArgumentError),
        ("a producer as int", lambda made: made.offer(9, "a", producer=(5, 5)), ArgumentError),
        ("a number as bool", lambda made: made.offer(9, "a", producer=("p", True)), ArgumentError),
        ("a consumer twice", lambda made: made.add_consumer("ann"), ConsumerExistsError),
        ("a name as int", lambda made: made.add_consumer(5), ArgumentError),
        ("a weight of nothing", lambda made: made.add_consumer("bob", weight=0), ArgumentError),
        ("a leaver as int", lambda made: made.remove_consumer(5), ArgumentError),
        ("a drain before now", lambda made: made.remove_consumer("ann", drain_ms=-1), ArgumentError),
        ("a drain as bool", lambda made: made.remove_consumer("ann", drain_ms=True), ArgumentError),
        ("an asker as int", lambda made: made.reserve(5), ArgumentError),
        ("nobody asks", lambda made: made.consume("zoe"), UnknownConsumerError),
        ("nobody asks why", lambda made: made.why_empty("zoe"), UnknownConsumerError),
        ("nothing is asked for", lambda made: made.reserve("ann", 0), ArgumentError),
        ("much is asked for", lambda made: made.consume("ann", 1.5), ArgumentError),
        ("a reservation as text", lambda made: made.commit("1"), ArgumentError),
        ("a reservation as None", lambda made: made.abort(None), ArgumentError),
        ("an offset to ack", lambda made: made.ack("0", 1), ArgumentError),
        ("a lease as bool", lambda made: made.ack(0, True), ArgumentError),
        ("no handle", lambda made: made.ack_many([5]), ArgumentError),
        ("half a handle", lambda made: made.ack_many([(0, 1), (0,)]), ArgumentError),
        ("a delay", lambda made: made.nack(0, 1, delay_ms=-1), ArgumentError),
        ("no delay", lambda made: made.nack(0, 1, delay_ms=None), ArgumentError),
        ("no time", lambda made: made.extend(0, 1, extend_ms=0), ArgumentError),
        ("an offset to park", lambda made: made.park("0"), ArgumentError),
        ("a key to unblock", lambda made: made.unblock(5), KeyTypeError),
        ("an offset to cut", lambda made: made.truncate(1.5), ArgumentError),
        *(
            (f"a clock {now!r} for {name}", lambda made, call=call, now=now: call(made, now), ClockError)
            for now in (99, "200", True)
            for name, call in {
                "offer": lambda made, now: made.offer(9, "a", now_ms=now),
                "handle_timeout": lambda made, now: made.handle_timeout(now_ms=now),
                "consume": lambda made, now: made.consume("ann", now_ms=now),
                "ack": lambda made, now: made.ack(0, 1, now_ms=now),
                "add_consumer": lambda made, now: made.add_consumer("zoe", now_ms=now),
                "set_placement": lambda made, now: made.set_placement(letters(), now_ms=now),
            }.items()
        ),
    )

    @pytest.mark.parametrize(("call", "error"), [case[1:] for case in CALLS], ids=[case[0] for case in CALLS])
    def test_it_raises_and_changes_nothing(self, call: Callable[[Any], object], error: type[Exception]) -> None:
        made = two_of_one_key()
        lease(made, "ann", 1, now_ms=100)
        before = made.snapshot()

        with pytest.raises(error) as caught:
            call(made)
        assert before == made.snapshot()
        assert isinstance(caught.value, ArgumentError | MisuseError)

    @pytest.mark.parametrize(
        ("field", "value"),
        [
            ("ack_timeout_ms", 0),
            ("ack_timeout_ms", None),
            ("reservation_timeout_ms", 0),
            ("max_delivery_attempts", 0),
            ("max_delivery_attempts", True),
            ("max_ack_holes", -1),
            ("max_in_flight", 0),
            ("max_in_flight_per_consumer", 0),
            ("max_in_flight_per_key", 0),
            ("max_tracked", 0),
            ("max_tracked", 9_999),
            ("window", 0),
            ("poison", "skip"),
            ("unit", "range"),
            ("start", "0"),
            ("retry", RetryPolicy(max_redeliveries=1)),
            ("sessions", KeySessions()),
        ],
    )
    def test_a_configuration_that_can_never_work_is_refused(self, field: str, value: object) -> None:
        with pytest.raises(ArgumentError) as caught:
            lease_config(**{field: value})
        assert (field, value) == (caught.value.parameter.removeprefix("dispatcher."), caught.value.value)


class TestWithoutSpilling:
    """Items are the host's to keep, and a producer of a key that lags is refused."""

    def test_what_is_leased_does_not_wait(self) -> None:
        made = queue("ann", spill=False, window=9, max_tracked=1, max_waiting_per_key=1)
        made.offer(0, "a1")
        assert (0, 1) == (made.room_for("a1"), made.room_for("a2"))
        with pytest.raises(KeyFullError):
            made.offer(1, "a1")
        lease(made, "ann", 1)
        assert 1 == made.room_for("a1")
        made.offer(1, "a1")
        with pytest.raises(KeyFullError):
            made.offer(2, "a1")


def empty_grant(table: LeaseTable) -> None:
    table.lease({}, "ann")


class TestInvariants:
    """A book that was tampered with is found out."""

    DAMAGE: tuple[tuple[str, Callable[[Any], object]], ...] = (
        ("a grant too few", lambda made: made._table.by_offset.pop(0)),
        ("a reservation without a deadline", lambda made: setattr(made._table.by_offset[2], "deadline", None)),
        ("a limit of a consumer", lambda made: made._machine.membership.set_limit("ann", 9)),
        ("an empty grant", lambda made: empty_grant(made._table)),
        ("ids that fall", lambda made: made._table._grants.__setitem__(1, made._table._grants.pop(1))),
    )

    @pytest.mark.parametrize("damage", [damage for _, damage in DAMAGE], ids=[name for name, _ in DAMAGE])
    def test_it_raises(self, damage: Callable[[Any], object]) -> None:
        made = two_of_one_key(max_ack_holes=5)
        lease(made, "ann", 1)
        reserve(made, "ann", 1)
        damage(made)

        with pytest.raises(InvariantError):
            made.check_invariants()


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"group": GroupLimits(max_in_flight=1)}, {"group": GroupLimits(max_in_flight=3)}),
        ({"group": GroupLimits(per_second=1)}, {}),
        ({}, {"max_in_flight_per_key": 3}),
    ],
)
def test_a_restart_with_wider_limits_leaves_nothing_due_and_leases_more(
    before: dict[str, Any], after: dict[str, Any]
) -> None:
    rules = Rules(mark="one", group_of=lambda _: "g")
    key = "same" if "max_in_flight_per_key" in after else "k{}"
    held = WatchedQueue(HashRing(), lease_config(**before), rules=rules)
    held.add_consumer("c1")
    for offset in range(3):
        held.offer(offset, key.format(offset))
    assert [0] == [message.offset for message in lease(held, "c1", 3).messages]

    again = WatchedQueue.restore(held.snapshot(), HashRing(), lease_config(**after), now_ms=0, rules=rules)
    assert 30_000 == again.next_deadline_ms()
    assert [1, 2] == [message.offset for message in lease(again, "c1", 3).messages]


def test_a_snapshot_that_was_cut_or_damaged_is_refused() -> None:
    made = queue("ann")
    fill(made, "a1", "a2")
    lease(made, "ann")
    state = json.loads(json.dumps(made.snapshot()))
    without = {name: value for name, value in state.items() if name != "features"}
    damages: tuple[object, ...] = (without, {**state, "last": 9}, {**state, "version": 1}, [], json.dumps(state))
    for damaged in damages:
        with pytest.raises(SnapshotError):
            LeaseQueue.restore(damaged, letters({"a-z": "ann"}), made.config, now_ms=0)
