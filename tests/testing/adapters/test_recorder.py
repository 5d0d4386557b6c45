"""What a recorder writes down of calls and effects, and that it is in nobody's way."""

import json
from dataclasses import replace
from typing import Any

import pytest
from tests.model import ModelDispatcher
from tests.properties.driving import Factory, Fast, outcome
from tests.properties.schedules import CALLS, guarantees_of, random_world

from keyshared import DispatcherConfig, HashRange, HashRing, KeySharedDispatcher, Poison, RetryPolicy
from keyshared.config import DrainUnit, KeySessions
from keyshared.errors import UnknownConsumerError
from keyshared.placement import AssignedRanges
from keyshared.testing import Guarantees, Promise, check_history
from keyshared.testing.adapters.recorder import INPUTS, Recorder
from keyshared.testing.history import (
    Acked,
    AtRest,
    Committed,
    Connected,
    DeadLettered,
    Delivered,
    Done,
    Dropped,
    Expired,
    Freed,
    Gone,
    Happening,
    Held,
    HoldReason,
    LimitChanged,
    Nacked,
    Owned,
    PlacementChanged,
    Published,
    Quiet,
    Redriven,
    Released,
    SessionBegun,
    SessionEnded,
    SessionEnding,
    SessionEnds,
    Settled,
    SettledBy,
)

K = b"k"


def recorder(**config: Any) -> Any:
    new: Any = Recorder(KeySharedDispatcher(HashRing(), DispatcherConfig(**config)))
    new.add_consumer("a", now_ms=0)
    return new


def since(recorder: Any, start: int) -> list[Happening]:
    return [happening for happening in recorder.history[start:] if not isinstance(happening, Quiet)]


@pytest.mark.parametrize("factory", [ModelDispatcher, Fast], ids=["model", "fast"])
def test_effects_are_the_same_with_and_without_a_recorder(factory: Factory) -> None:
    for seed in range(20):
        world, again = random_world(seed), random_world(seed)
        plain, recording = (
            factory(world.make_placement(()), world.config),
            factory(again.make_placement(()), again.config),
        )
        wrapped = Recorder(recording)
        for _ in range(30):
            call = world.choose(CALLS)(world)
            assert outcome(plain, call) == outcome(wrapped, call)


def test_a_life_is_written_down_in_order() -> None:
    mine = recorder()
    mine.offer(3, "k", "payload", now_ms=5)
    mine.ack(3, "a", 1, now_ms=9)
    assert [
        Connected(consumer="a", limit=50, at_ms=0),
        Quiet(at_ms=0),
        Published(offset=3, key=K, at_ms=5),
        Owned(key=K, consumer="a", at_ms=5),
        Delivered(offset=3, key=K, consumer="a", attempt=1, at_ms=5),
        Quiet(at_ms=5),
        Acked(offset=3, consumer="a", attempt=1, counted=True, at_ms=9),
        Committed(resume_offset=4, at_ms=9),
        Quiet(at_ms=9),
    ] == mine.history


def test_the_word_that_a_message_is_done_stands_behind_its_end() -> None:
    mine = recorder(tell_settled=True, start=1)
    start = len(mine.history)
    mine.offer(0, "k")  # done before: no news
    mine.offer(1, "k")
    mine.ack(1, "a", 1)
    told = [type(happening) for happening in mine.history[start:] if not isinstance(happening, Owned | Quiet)]
    assert [Published, Delivered, Acked, Done, Committed] == told


def test_what_an_earlier_life_has_settled_is_done_when_it_is_published() -> None:
    before = recorder(tell_settled=True)
    before.offer_many([(0, "k", None), (1, "l", None)])
    before.ack(1, "a", 1)
    config = DispatcherConfig(tell_settled=True)
    after: Any = Recorder(KeySharedDispatcher(HashRing(), config, resume_from=before.cursor_token().text))
    after.offer_many([(0, "k", None), (1, "l", None)])
    told = [type(happening) for happening in after.history if getattr(happening, "offset", None) == 1]
    assert [Settled, Published, Done] == told
    assert [] == check_history(after.history, Guarantees(promises={"settled-once"}, tells_done=True))


def test_a_session_stands_before_the_deliveries_in_it_and_behind_those_of_the_one_before() -> None:
    mine = recorder(sessions=KeySessions(flush_ms=5))
    start = len(mine.history)
    mine.offer(0, "k", now_ms=0)
    mine.ack(0, "a", 1)
    mine.offer(1, "k")
    mine.flushed("k", 1)
    told = [happening for happening in mine.history[start:] if not isinstance(happening, Owned | Quiet | Published)]
    assert [
        SessionBegun(key=K, consumer="a", session=1, at_ms=0),
        Delivered(offset=0, key=K, consumer="a", attempt=1, at_ms=0),
        Acked(offset=0, consumer="a", attempt=1, counted=True, at_ms=0),
        SessionEnding(key=K, consumer="a", session=1, at_ms=0),
        Committed(resume_offset=1, at_ms=0),
        Held(offset=1, reason=HoldReason.FLUSHING, at_ms=0),
        SessionEnded(key=K, consumer="a", session=1, reason=SessionEnds.IDLE, at_ms=0),
        SessionBegun(key=K, consumer="a", session=2, at_ms=0),
        Delivered(offset=1, key=K, consumer="a", attempt=1, at_ms=0),
    ] == told


def test_a_delivery_that_an_ack_names_in_advance_stands_in_its_session() -> None:
    mine = recorder(sessions=KeySessions(), max_in_flight_per_consumer=1)
    mine.offer_many([(0, "k", None), (1, "l", None), (2, "k", None)])
    start = len(mine.history)
    mine.ack_many([(0, "a", 1), (1, "a", 1)])  # the second one goes out, and is done, within the call
    kinds = [type(happening) for happening in mine.history[start:] if not isinstance(happening, Owned | Quiet)]
    both = [SessionBegun, Delivered, Acked]
    assert [Acked, *both, SessionEnded, SessionBegun, SessionEnded, Delivered, Committed] == kinds
    claims = Guarantees(promises={"one-session"}, sessions=True, linger_ms=0)
    assert [] == check_history(mine.history, claims)


def test_such_a_delivery_beside_another_of_its_key_is_in_the_session_of_that_one() -> None:
    mine = recorder(sessions=KeySessions(), max_in_flight_per_key=2)
    mine.offer_many([(0, "k", None), (1, "k", None), (2, "k", None)])
    start = len(mine.history)
    mine.ack_many([(0, "a", 1), (2, "a", 1), (1, "a", 1)])
    kinds = [type(happening) for happening in mine.history[start:] if not isinstance(happening, Owned | Quiet)]
    assert [Acked, Delivered, Acked, Acked, SessionEnded, Committed] == kinds


def test_who_leaves_at_once_has_given_everything_back_before() -> None:
    mine = recorder()
    mine.offer(0, "k")
    start = len(mine.history)
    mine.remove_consumer("a")
    kinds = [type(happening) for happening in mine.history[start:]]
    assert kinds.index(Released) < kinds.index(Gone)
    assert Gone(consumer="a", drains=False, at_ms=0) in mine.history


def test_what_comes_back_is_told_and_what_is_ignored_is_not() -> None:
    mine = recorder(redrive=True, start=3)
    start = len(mine.history)
    mine.redrive("k", [(1, 4, None), (0, 1, None), (1, 2, None)])
    mine.redrive(b"k", [(0, 1, None)])
    assert [
        Redriven(offset=1, key=b"k", attempt=4, at_ms=0),
        Redriven(offset=0, key=b"k", attempt=1, at_ms=0),
        Owned(key=b"k", consumer="a", at_ms=0),
        Delivered(offset=0, key=b"k", consumer="a", attempt=2, at_ms=0),
    ] == since(mine, start)


def test_a_call_that_raises_leaves_no_trace() -> None:
    mine = recorder()
    before = list(mine.history)
    with pytest.raises(UnknownConsumerError):
        mine.set_limit("nobody", 5)
    assert before == mine.history


def test_what_is_no_dispatcher_is_refused() -> None:
    with pytest.raises(TypeError, match="dispatcher is 5; it must have config"):
        Recorder(5)  # type: ignore[arg-type]  # on purpose


def test_queries_pass_through() -> None:
    mine = recorder()
    assert 10_000 == mine.free_slots
    assert mine.next_deadline_ms() is None
    with pytest.raises(AttributeError):
        mine.no_such_thing()


def test_a_retry_is_held_until_the_policy_says_so() -> None:
    mine = recorder(retry=RetryPolicy(base_delay_ms=40), ack_timeout_ms=100)
    mine.offer(0, "k", now_ms=0)
    start = len(mine.history)
    mine.handle_timeout(now_ms=100)
    mine.handle_timeout(now_ms=140)
    mine.nack(0, "a", 2, delay_ms=300, now_ms=141)
    assert [
        Expired(offset=0, consumer="a", attempt=1, at_ms=100),
        Held(offset=0, reason=HoldReason.RETRY, until_ms=140, at_ms=100),
        Delivered(offset=0, key=K, consumer="a", attempt=2, at_ms=140),
        Nacked(offset=0, consumer="a", attempt=2, counted=True, at_ms=141),
        Held(offset=0, reason=HoldReason.RETRY, until_ms=441, at_ms=141),
    ] == since(mine, start)


def test_what_was_postponed_is_held_as_long_as_was_asked_for() -> None:
    mine = recorder()
    mine.offer(0, "k", now_ms=0)
    start = len(mine.history)
    mine.release(0, "a", 1, delay_ms=50)
    mine.release(0, "a", 1, delay_ms=50)
    mine.restarted(KeySharedDispatcher.restore(mine.snapshot(), HashRing(), mine.config, now_ms=0), now_ms=0)
    assert [
        Released(offset=0, consumer="a", attempt=1, reason="released", until_ms=50, at_ms=0),
        Held(offset=0, reason=HoldReason.POSTPONED, until_ms=50, at_ms=0),
        Nacked(offset=0, consumer="a", attempt=1, counted=False, at_ms=0),
        Held(offset=0, reason=HoldReason.POSTPONED, at_ms=0),
    ] == since(mine, start)


def test_a_reason_is_followed_to_the_dead_letter() -> None:
    mine = recorder(poison=Poison.DEAD_LETTER)
    mine.offer(0, "k", now_ms=0)
    start = len(mine.history)
    mine.reject(0, "a", 1, reason="refused")
    mine.dead_lettered(0)
    assert [
        Nacked(offset=0, consumer="a", attempt=1, counted=True, reason="refused", at_ms=0),
        Held(offset=0, reason=HoldReason.DEAD_LETTERING, at_ms=0),
        DeadLettered(offset=0, reason="refused", at_ms=0),
        Committed(resume_offset=1, at_ms=0),
    ] == since(mine, start)


def test_time_that_has_passed_unsaid_is_not_quiet() -> None:
    mine = recorder(ack_timeout_ms=100)
    mine.offer(0, "k", now_ms=0)
    mine.set_weight("a", 2, now_ms=100)
    assert PlacementChanged(at_ms=100) == mine.history[-1]
    mine.handle_timeout()
    assert Quiet(at_ms=100) == mine.history[-1]


def test_poison_is_followed_to_its_end() -> None:
    mine = recorder(poison=Poison.DEAD_LETTER)
    mine.offer(0, "k", now_ms=0)
    start = len(mine.history)
    mine.reject(0, "a", 1)
    mine.dead_lettered(0)
    mine.dead_lettered(0)
    assert [
        Nacked(offset=0, consumer="a", attempt=1, counted=True, at_ms=0),
        Held(offset=0, reason=HoldReason.DEAD_LETTERING, at_ms=0),
        DeadLettered(offset=0, at_ms=0),
        Committed(resume_offset=1, at_ms=0),
    ] == since(mine, start)


def test_a_message_that_is_loaded_again_is_freed() -> None:
    mine = recorder(max_loaded_per_key=1, max_in_flight_per_consumer=1)
    mine.offer(0, "k", now_ms=0)
    start = len(mine.history)
    mine.offer(1, "k")
    mine.ack(0, "a", 1)
    mine.loaded(1, "payload")
    mine.loaded(1, "payload")
    assert [
        Published(offset=1, key=K, at_ms=0),
        Held(offset=1, reason=HoldReason.SPILLED, at_ms=0),
        Acked(offset=0, consumer="a", attempt=1, counted=True, at_ms=0),
        Held(offset=1, reason=HoldReason.LOADING, at_ms=0),
        Committed(resume_offset=1, at_ms=0),
        Freed(offset=1, at_ms=0),
        Delivered(offset=1, key=K, consumer="a", attempt=1, at_ms=0),
    ] == since(mine, start)


def test_what_is_spilled_stays_so_while_it_drains_with_its_unit() -> None:
    ranges = AssignedRanges([(HashRange(0, 65_536), "a")])
    mine: Any = Recorder(KeySharedDispatcher(ranges, DispatcherConfig(unit=DrainUnit.HASH, max_loaded_per_key=1)))
    mine.add_consumer("a", now_ms=0)
    mine.add_consumer("b")
    mine.offer(0, "k")
    mine.offer(1, "k")
    mine.set_placement(AssignedRanges([(HashRange(0, 65_536), "b")]))
    assert "draining" == mine.why_blocked(1).reason
    assert [HoldReason.SPILLED] == [happening.reason for happening in mine.history if isinstance(happening, Held)]


def test_an_ack_that_names_a_delivery_in_advance_comes_after_it() -> None:
    mine = recorder(max_in_flight_per_consumer=1)
    mine.offer_many([(0, "k", None), (1, "k", None)], now_ms=0)
    start = len(mine.history)
    mine.ack_many([(0, "a", 1), (1, "a", 1), (1, "a", 1)])
    assert [
        Acked(offset=0, consumer="a", attempt=1, counted=True, at_ms=0),
        Delivered(offset=1, key=K, consumer="a", attempt=1, at_ms=0),
        Acked(offset=1, consumer="a", attempt=1, counted=True, at_ms=0),
        Committed(resume_offset=2, at_ms=0),
    ] == since(mine, start)
    assert [] == check_history(mine.history)


def test_an_offset_from_before_the_start_is_not_published() -> None:
    mine = recorder(start=10)
    start = len(mine.history)
    mine.offer(9, "k")
    assert [] == since(mine, start)


def test_what_a_token_settles_is_settled_when_it_is_read_again() -> None:
    first = KeySharedDispatcher(HashRing())
    first.add_consumer("a")
    first.offer_many([(offset, f"k{offset}", None) for offset in range(5, 10)])
    first.ack_many([(offset, "a", 1) for offset in (5, 7, 8)])
    mine: Any = Recorder(KeySharedDispatcher(HashRing(), resume_from=first.cursor_token().text))
    mine.add_consumer("a")
    mine.offer_many([(offset, f"k{offset}", None) for offset in range(5, 11)])
    for offset in (9, 6, 10):
        mine.ack(offset, "a", 1)
    mine.at_rest()
    assert [6, 7, 8, 9, 10] == [each.offset for each in mine.history if isinstance(each, Published)]
    assert [7, 8] == [each.offset for each in mine.history if isinstance(each, Settled)]
    assert [] == check_history(mine.history, guarantees_of(mine.config))


def test_a_history_goes_on_after_a_restart() -> None:
    mine = recorder()
    for offset in range(3):
        mine.offer(offset, "k", f"payload {offset}", now_ms=offset)
    state = json.loads(json.dumps(mine.snapshot()))
    mine.restarted(KeySharedDispatcher.restore(state, HashRing(), mine.config, now_ms=0), now_ms=0)
    start = len(mine.history)
    mine.offer(2, "k", "payload 2", now_ms=0)
    mine.ack(0, "a", 1)
    assert [
        Acked(offset=0, consumer="a", attempt=1, counted=True, at_ms=2),
        Delivered(offset=1, key=K, consumer="a", attempt=1, at_ms=2),
        Committed(resume_offset=1, at_ms=2),
    ] == since(mine, start)
    assert [] == check_history(mine.history, guarantees_of(mine.config))


def test_a_message_that_is_parked_was_settled_by_an_operator() -> None:
    mine = recorder(poison=Poison.BLOCK)
    mine.offer(0, "k", now_ms=0)
    mine.reject(0, "a", 1)
    start = len(mine.history)
    mine.park(0)
    assert Settled(offset=0, reason=SettledBy.OPERATOR, at_ms=0) == since(mine, start)[0]


def test_a_pull_may_go_beyond_the_limit_for_its_own_length() -> None:
    mine = recorder(max_in_flight_per_consumer=1)
    mine.set_limit("a", 0)
    mine.offer_many([(0, "k", None), (1, "l", None), (2, "m", None)], now_ms=0)
    mine.pull("a", 1)
    start = len(mine.history)
    mine.pull("a", 1)
    assert [
        LimitChanged(consumer="a", limit=2, at_ms=0),
        Delivered(offset=1, key=b"l", consumer="a", attempt=1, at_ms=0),
        LimitChanged(consumer="a", limit=0, at_ms=0),
    ] == since(mine, start)
    assert [] == check_history(mine.history)


@pytest.mark.interpreted("reads annotations, which compiled functions do not have")
def test_every_call_with_effects_is_recorded() -> None:
    with_effects = KeySharedDispatcher.offer.__annotations__["return"]
    calls = {
        name
        for name, method in vars(KeySharedDispatcher).items()
        if getattr(method, "__annotations__", {}).get("return") == with_effects and name[0] != "_"
    }
    assert calls == INPUTS | {"outstanding_effects"}  # a query


def test_rest_is_said_by_who_knows_it() -> None:
    mine = recorder()
    mine.at_rest()
    assert AtRest(at_ms=0) == mine.history[-1]


def test_a_retry_is_told_again_after_a_restart_because_its_clock_may_have_started_anew() -> None:
    first = recorder(retry=RetryPolicy(base_delay_ms=500))
    first.offer(0, "k", now_ms=0)
    first.nack(0, "a", 1, now_ms=10)
    start = len(first.history)

    first.restarted(KeySharedDispatcher.restore(first.snapshot(), HashRing(), first.config, now_ms=0), now_ms=0)

    assert [Held(at_ms=10, offset=0, reason=HoldReason.RETRY)] == first.history[start:]


def test_what_no_clock_ends_is_told_once_over_a_restart() -> None:
    first = recorder(retry=RetryPolicy(max_redeliveries=0))
    first.offer(0, "k", now_ms=0)
    first.nack(0, "a", 1, now_ms=10)
    assert Held(at_ms=10, offset=0, reason=HoldReason.DEAD_LETTERING) in first.history
    start = len(first.history)

    first.restarted(KeySharedDispatcher.restore(first.snapshot(), HashRing(), first.config, now_ms=0), now_ms=0)

    assert [] == first.history[start:]


def test_a_history_goes_on_where_it_was_when_the_clock_of_a_restart_stands_behind() -> None:
    first = recorder()
    first.offer(0, "k", now_ms=50)
    first.restarted(KeySharedDispatcher.restore(first.snapshot(), HashRing(), first.config, now_ms=10), now_ms=10)
    start = len(first.history)

    first.offer(1, "other", not_before_ms=13, now_ms=11)

    told = first.history[start:]
    assert {51} == {happening.at_ms for happening in told}
    assert Published(at_ms=51, offset=1, key=b"other", until_ms=53) in told
    assert Held(at_ms=51, offset=1, reason=HoldReason.NOT_BEFORE, until_ms=53) in told
    assert [] == check_history(first.history, guarantees_of(first.config, first.placement.ranges.slot_of))


def test_a_clock_that_stands_ahead_after_a_restart_is_believed() -> None:
    first = recorder()
    first.offer(0, "k", now_ms=50)
    for now_ms in (10, 80):
        again = KeySharedDispatcher.restore(first.snapshot(), HashRing(), first.config, now_ms=now_ms)
        first.restarted(again, now_ms=now_ms)
        first.offer(now_ms, "k", now_ms=now_ms)

    assert Published(at_ms=80, offset=80, key=b"k") in first.history


def test_poison_that_is_dropped_is_told() -> None:
    mine = recorder(poison=Poison.DROP, retry=RetryPolicy(max_redeliveries=0))
    mine.offer(0, "k")
    mine.nack(0, "a", 1)
    assert [0] == [each.offset for each in mine.history if isinstance(each, Dropped)]


class Silent(KeySharedDispatcher[Any]):
    """Says nothing of why a message waits."""

    def why_blocked(self, offset: int) -> None: ...


class Forgetful(Silent):
    """Knows nothing of any message either."""

    def describe(self, offset: int) -> None: ...


@pytest.mark.parametrize("first", ["handle_timeout", "offer"])
def test_what_waits_for_a_call_that_is_due_after_a_restart_is_not_lost(first: str) -> None:
    mine = recorder()
    mine.offer(0, "k", now_ms=0)
    mine.offer(1, "k", now_ms=0)
    wider = replace(mine.config, max_in_flight_per_key=2, max_in_flight_per_consumer=9)
    mine.restarted(KeySharedDispatcher.restore(mine.snapshot(), HashRing(), wider, now_ms=0), now_ms=0)
    if first == "offer":
        mine.offer(2, "b", now_ms=0)
    mine.handle_timeout(now_ms=0)
    mine.add_consumer("b", now_ms=0)

    assert Delivered(offset=1, key=K, consumer="a", attempt=1, at_ms=0) in mine.history
    assert Connected(consumer="b", limit=9, at_ms=0) in mine.history
    accused = check_history(mine.history, guarantees_of(wider))
    assert {Promise.PROGRESS} == {each.promise for each in accused}  # the first life had a limit that these lack


def test_what_nothing_is_said_of_waits_for_nothing_and_is_not_lost() -> None:
    mine: Any = Recorder(Silent(HashRing(["a"])))
    mine.add_consumer("a")
    mine.offer(0, "k")
    mine.offer(1, "k")
    assert [] == [each for each in mine.history if isinstance(each, Settled)]
    assert [] == check_history(mine.history)


def test_what_a_dispatcher_forgets_is_settled_by_nobody() -> None:
    mine: Any = Recorder(Forgetful(HashRing(["a"])))
    mine.add_consumer("a")
    mine.offer(0, "k")
    mine.offer(1, "k")
    assert Settled(offset=1, reason=SettledBy.NOBODY, at_ms=0) in mine.history


def test_a_log_whose_whole_order_counts_has_one_key() -> None:
    config = DispatcherConfig(ordering_required=True, poison=Poison.BLOCK)
    recorder = Recorder(KeySharedDispatcher(HashRing(), config))
    recorder.add_consumer("c")
    recorder.offer(0, "a")
    recorder.offer(1, None)
    recorder.ack(0, "c", 1)

    told = [each.key for each in recorder.history if isinstance(each, Published)]
    assert told == [b"", b""]
    assert check_history(recorder.history, Guarantees(total_order=True)) == []


def test_what_the_settings_of_the_next_life_let_go_out_is_written_down() -> None:
    recorder = Recorder(KeySharedDispatcher(HashRing(), DispatcherConfig(max_in_flight_per_consumer=1)))
    recorder.add_consumer("c")
    recorder.offer(0, "a")
    recorder.offer(1, "b")
    state, items = recorder.snapshot(), {0: "zero", 1: "one"}
    wider = KeySharedDispatcher.restore(
        state, HashRing(), DispatcherConfig(max_in_flight_per_key=2), now_ms=0, items=items
    )
    wider.set_limit("c", 2)
    recorder.history.clear()
    recorder.restarted(wider, now_ms=0)

    assert [each.offset for each in recorder.history if isinstance(each, Delivered)] == [1]


def test_what_was_spilled_while_it_waited_for_its_retry_stays_spilled_when_that_is_over() -> None:
    config = DispatcherConfig(window=2, max_loaded_per_key=1, retry=RetryPolicy(base_delay_ms=5))
    recorder = Recorder(KeySharedDispatcher(HashRing(), config))
    recorder.add_consumer("c")
    recorder.offer(0, "a")
    recorder.offer(1, "b")
    recorder.nack(0, "c", 1)
    recorder.nack(1, "c", 1)
    told = [(each.offset, each.reason) for each in recorder.history if isinstance(each, Held)]
    assert (1, HoldReason.SPILLED) in told
    recorder.offer(2, "c")
    recorder.history.clear()
    recorder.handle_timeout(now_ms=9)
    held = [(each.offset, each.reason) for each in recorder.history if isinstance(each, Held)]

    assert held == [(1, HoldReason.SPILLED)]
