"""Groups of a lease queue, one behaviour at a time."""

import json
from typing import Any

import pytest
from tests.leasing import WatchedQueue, fill, lease, letters, queue, reserve

from keyshared.config import GroupLimits, Poison, Rules
from keyshared.dispatcher import Blocking, GroupStats
from keyshared.effects import BlockReason, Effect, Load
from keyshared.errors import ArgumentError, ConfigError, SnapshotError
from keyshared.leases import EmptyReason, Lease, LeaseAnswer, LeaseQueue, NothingToLease

RULES = Rules(mark="first letter", group_of=lambda key: key.decode()[:1])
NOT_READY = NothingToLease(EmptyReason.NOT_READY)
DONE: LeaseAnswer[None, object] = LeaseAnswer(None, [])


def grouped(*keys: str | None, **config: Any) -> WatchedQueue:
    """A queue of ann's, in which the first letter of a key is its group."""
    made = queue("ann", "bob", rules=RULES, **config)
    fill(made, *keys)
    return made


def restored(made: LeaseQueue, *, now_ms: int = 0, rules: Rules | None = RULES, **config: Any) -> LeaseQueue:
    state = json.loads(json.dumps(made.snapshot()))
    chosen = queue("ann", rules=RULES, **config).config if config else made.config
    return LeaseQueue.restore(state, letters({"a-z": "ann"}), chosen, now_ms=now_ms, rules=rules)


class TestTurns:
    """Who asks gets one key of each group in turn."""

    def test_groups_take_turns_within_a_lease_and_from_lease_to_lease(self) -> None:
        made = grouped("a1", "a2", "a3", "b1", "b2")

        assert ((0, 3, 1), (4, 2)) == (lease(made, "ann", 3).offsets, lease(made, "ann", 3).offsets)

    def test_a_group_may_have_several_turns(self) -> None:
        made = grouped()
        made.set_group("a", weight=2)
        fill(made, "a1", "a2", "a3", "b1", "b2")

        assert (0, 1, 3, 2, 4) == lease(made, "ann").offsets

    def test_what_has_no_key_is_in_no_group(self) -> None:
        made = grouped(None)
        made.pause_group("")

        assert (0,) == lease(made, "ann").offsets


class TestPause:
    """Nothing of a group is handed out until it is resumed."""

    def test_nothing_of_it_is_handed_out_and_the_reason_says_so(self) -> None:
        made = grouped("a1", "b1")
        assert DONE == made.pause_group("a")

        assert (1,) == lease(made, "ann").offsets
        assert NOT_READY == made.consume("ann").result
        closed = Blocking(BlockReason.GROUP_PAUSED, group="a")
        assert NothingToLease(EmptyReason.WAITING, 0, blocking=closed) == made.why_empty("ann")
        assert DONE == made.resume_group("a")
        assert (made.why_empty("ann"), (0,)) == (None, lease(made, "ann").offsets)

    def test_a_lease_goes_on_and_what_comes_back_waits(self) -> None:
        made = grouped("a1")
        held = lease(made, "ann")
        made.pause_group("a")

        assert 150 == made.extend(0, held.id, extend_ms=150).result
        made.nack(0, held.id)
        assert NOT_READY == made.consume("ann").result

    def test_a_reservation_waits_for_its_commit_as_before(self) -> None:
        made = grouped("a1")
        reservation = reserve(made, "ann")
        made.pause_group("a")

        committed = made.commit(reservation.id).result
        assert isinstance(committed, Lease)
        assert (0,) == committed.offsets

    def test_a_reservation_that_is_aborted_is_handed_out_when_it_is_resumed(self) -> None:
        made = grouped("a1")
        reservation = reserve(made, "ann")
        made.pause_group("a")
        made.abort(reservation.id)

        assert NOT_READY == made.reserve("ann").result
        made.resume_group("a")
        assert (0,) == reserve(made, "ann").offsets

    def test_whoever_asked_in_vain_and_went_away_is_not_waited_for(self) -> None:
        made = queue("ann", "bob", ranges=letters({"a-b": "ann", "c-z": "bob"}), rules=RULES_OF_ALL)
        fill(made, "a", "c")
        made.pause_group("all")
        for name in ("ann", "bob"):
            assert NOT_READY == made.consume(name).result
        made.resume_group("all")

        assert (1,) == lease(made, "bob").offsets, "though ann has asked first"

    def test_whoever_asked_a_full_group_and_went_away_is_not_waited_for(self) -> None:
        made = queue("ann", "bob", ranges=letters({"a-b": "ann", "c-z": "bob"}), rules=RULES_OF_ALL)
        made.set_group("all", max_in_flight=1)
        fill(made, "c", "a", "d")
        held = lease(made, "bob")
        assert [NOT_READY, NOT_READY] == [made.consume(name).result for name in ("ann", "bob")]
        made.ack(0, held.id)

        assert (2,) == lease(made, "bob").offsets


RULES_OF_ALL = Rules(mark="all", group_of=lambda _: "all")


class TestLimits:
    """A group holds so much at once, and so often."""

    def test_reservations_and_leases_count(self) -> None:
        made = grouped("a1", "a2", "b1", group=GroupLimits(max_in_flight=1))
        reservation = reserve(made, "ann")

        assert (0, 2) == reservation.offsets
        assert Blocking(BlockReason.GROUP_FULL, group="a") == made.why_empty("ann").blocking  # type: ignore[union-attr]
        assert [1, 1] == [group.open for group in made.groups()]
        made.abort(reservation.id)
        assert (2, 1) == lease(made, "ann").offsets, "a key that comes back queues behind the others of its group"

    def test_each_message_that_is_reserved_takes_a_token_and_time_brings_them_back(self) -> None:
        made = grouped("a1", "a2", "a3")
        made.set_group("a", per_second=10, burst=1, now_ms=0)
        assert (0,) == lease(made, "ann").offsets

        nothing = made.why_empty("ann")
        assert nothing == NothingToLease(
            EmptyReason.WAITING, 1, until_ms=100, blocking=Blocking(BlockReason.GROUP_RATE, group="a")
        )
        assert [GroupStats("a", 1, None, 1, 2, 0, False, 100)] == made.groups()
        assert (NOT_READY, 100) == (made.consume("ann", now_ms=99).result, made.next_deadline_ms())

    def test_who_is_the_first_to_ask_after_a_while_gets_what_time_has_brought(self) -> None:
        made = grouped("a1", "a2", "a3", ack_timeout_ms=9_000)
        made.set_group("a", per_second=10, burst=2, now_ms=0)
        lease(made, "ann", 2)
        made.handle_timeout(now_ms=5_000)

        assert made.why_empty("ann") is None
        assert (2,) == lease(made, "ann").offsets

    def test_a_token_that_is_there_belongs_to_the_owner_of_the_key(self) -> None:
        made = grouped("a1", "a2", ack_timeout_ms=9_000)
        made.set_group("a", per_second=10, burst=1, now_ms=0)
        lease(made, "ann", now_ms=0)
        made.handle_timeout(now_ms=500)

        assert EmptyReason.OTHERS is made.why_empty("bob").reason  # type: ignore[union-attr]

    def test_tokens_that_come_back_while_others_are_served_are_handed_out_too(self) -> None:
        made = grouped("a1", "a2", "a3", "b1", "b2", "b3", ack_timeout_ms=9_000)
        made.set_group("a", per_second=10, burst=2, now_ms=0)
        lease(made, "ann", 1, now_ms=0)

        assert (3, 1, 4, 2) == lease(made, "ann", 4, now_ms=200).offsets, (
            "a had one permit, and time has brought another"
        )
        assert 9_000 == made.next_deadline_ms()
        assert (5,) == lease(made, "ann").offsets

    def test_what_has_to_be_read_again_is_asked_for_when_there_is_a_token(self) -> None:
        made = grouped("a1", "a1", window=2, max_loaded_per_key=1, max_in_flight_per_key=1)
        made.set_group("a", per_second=10, burst=1, now_ms=0)
        held = lease(made, "ann")
        loads: list[Effect] = made.ack(0, held.id).effects

        assert Load(1, b"a1") == loads[0]
        assert BlockReason.LOADING is made.why_empty("ann").blocking.reason  # type: ignore[union-attr]
        made.loaded(1)
        assert BlockReason.GROUP_RATE is made.why_empty("ann").blocking.reason  # type: ignore[union-attr]
        assert (1,) == lease(made, "ann", now_ms=100).offsets


class TestRestarts:
    """A group goes on as it was."""

    def test_pauses_tokens_and_turns_are_kept(self) -> None:
        made = grouped("a1", "a2", "b1", "c1", "c2", ack_timeout_ms=9_000)
        made.set_group("a", per_second=10, burst=1, now_ms=0)
        made.pause_group("b")
        lease(made, "ann", 1, now_ms=40)
        again = restored(made, now_ms=1_000)

        assert [group._replace(next_token_ms=None) for group in made.groups()] == [
            group._replace(next_token_ms=None) for group in again.groups()
        ]
        assert (3, 4) == lease(again, "ann").offsets
        assert (1,) == lease(again, "ann", now_ms=1_100).offsets

    def test_a_faster_rate_may_have_brought_a_token_already(self) -> None:
        limits = GroupLimits(per_second=1, burst=1)
        made = grouped("a1", "a2", group=limits, ack_timeout_ms=9_000)
        lease(made, "ann", now_ms=0)
        made.handle_timeout(now_ms=50)
        faster = GroupLimits(per_second=1_000, burst=1)
        again = restored(made, now_ms=7, group=faster, ack_timeout_ms=9_000)

        assert (1,) == lease(again, "ann", now_ms=8).offsets

    @pytest.mark.parametrize("limits", [{"per_second": 1}, {"max_in_flight": 1}])
    def test_a_group_without_its_limit_goes_on_at_once(self, limits: dict[str, int]) -> None:
        made = grouped("a1", "a2", group=GroupLimits(**limits), ack_timeout_ms=9_000)
        lease(made, "ann")
        assert NOT_READY == made.consume("ann").result
        again = restored(made, now_ms=7, ack_timeout_ms=9_000)

        assert (7 + 9_000, None) == (again.next_deadline_ms(), again.why_empty("ann"))
        assert (1,) == lease(again, "ann", now_ms=7).offsets

    def test_rules_of_another_mark_are_refused(self) -> None:
        with pytest.raises(SnapshotError, match="rules"):
            restored(grouped("a1"), rules=RULES_OF_ALL)


class TestRefusals:
    """What cannot work is said at once."""

    def test_a_queue_without_rules_has_no_groups(self) -> None:
        made = queue("ann")

        assert [] == made.groups()
        with pytest.raises(ArgumentError, match="group"):
            made.set_group("a")

    def test_a_limit_that_is_none_is_refused_and_nothing_has_changed(self) -> None:
        made = grouped()
        with pytest.raises(ArgumentError, match="max_in_flight"):
            made.set_group("a", max_in_flight=0, now_ms=7)
        assert ([], 0) == (made.groups(), made._machine.now)

    def test_a_cap_on_holes_could_wait_for_a_group_that_is_closed(self) -> None:
        with pytest.raises(ConfigError, match="max_ack_holes"):
            grouped(max_ack_holes=3)

    def test_one_line_has_no_groups(self) -> None:
        with pytest.raises(ConfigError, match="group_of"):
            grouped(ordering_required=True, poison=Poison.BLOCK)

    def test_a_rule_that_has_no_answer_takes_no_message(self) -> None:
        made = queue("ann", rules=Rules(mark="none", group_of=lambda _: 7))  # type: ignore[arg-type, return-value]
        with pytest.raises(ConfigError):
            made.offer(0, "a")
        assert 0 == made.stats().outstanding


def test_time_acts_in_the_calls_about_groups_too() -> None:
    for call in ("set_group", "pause_group", "resume_group"):
        made = grouped("a1")
        held = lease(made, "ann")

        answer = getattr(made, call)("a", now_ms=held.deadline_ms)
        assert [0] == [effect[0] for effect in answer.effects]
