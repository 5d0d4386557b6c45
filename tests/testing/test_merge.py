"""Logs of several processes: one order that they allow, and what every such order says alike."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from typing import Any, TypeAlias
from unittest.mock import patch

import pytest
from tests.testing.split_logs import Case, Logs, all_orders, cases, complaints

from keyshared.testing import (
    Guarantees,
    GuaranteesError,
    LogEntry,
    MergeError,
    Promise,
    check_history,
    merge_histories,
)
from keyshared.testing.history import (
    Acked,
    AtRest,
    Committed,
    Connected,
    Delivered,
    Expired,
    Gone,
    Happening,
    Nacked,
    Published,
    Quiet,
    Redriven,
    Released,
)
from keyshared.testing.merging import facts, order, races

Told: TypeAlias = list[list[Happening]]

P0, P1, P5 = (Published(offset=offset, key=b"k") for offset in (0, 1, 5))
A0 = Acked(offset=0, consumer="a")


def delivered(offset: int, consumer: str, attempt: int | None = None, at_ms: int | None = None) -> Delivered:
    return Delivered(offset=offset, key=b"k", consumer=consumer, attempt=attempt, at_ms=at_ms)


def left_open(logs: Logs, promises: set[str], **claims: Any) -> set[str]:
    """Which promises the merge leaves open: at least those that two orders are judged by in two ways."""
    guarantees = Guarantees(promises=promises, **claims)
    merged = merge_histories(logs.producers, logs.consumers, guarantees, clock_error_ms=logs.clock_error_ms)
    orders = all_orders(logs, 1_000)
    assert orders is not None
    assert list(merged.history) in orders
    verdicts = [{violation.promise for violation in check_history(each, guarantees)} for each in orders]
    differ = {promise for promise in promises if len({promise in verdict for verdict in verdicts}) > 1}
    found = {str(each.promise) for each in merged.open}
    assert differ <= found
    assert found == promises - merged.decided
    return found


# --- every order is tried ---------------------------------------------------------------------------------------------


@cache
def tried() -> list[Case]:
    return list(cases(range(250)))


def test_a_decided_verdict_is_the_same_in_every_order_that_the_logs_allow() -> None:
    assert [] == [complaint for case in tried() for complaint in complaints(case)]
    chosen = [case for case in tried() if len(case.orders) > 1]
    assert len(chosen) > 100, "most logs leave a choice"
    assert any(len(set(case.broken)) > 1 for case in chosen), "and some choices are judged in different ways"


@pytest.mark.no_cover
def test_logs_are_refused_only_if_they_allow_no_order() -> None:
    refused = [case for case in tried() if not case.orders]
    assert refused
    for case in refused:
        with pytest.raises(MergeError, match="these cannot all be true"):
            merged_of(case)


def merged_of(case: Case) -> object:
    producers, consumers, error_ms = case.logs
    return merge_histories(producers, consumers, case.guarantees, clock_error_ms=error_ms)


def without_scope(name: str) -> AbstractContextManager[object]:
    """A merge that forgets that promises are judged by something."""
    right = races._scopes

    def scopes(*given: Any) -> Sequence[Any]:
        return [scope for scope in right(*given) if scope.__name__ != name]

    return patch.object(races, "_scopes", scopes)


@contextmanager
def without_fact(name: str) -> Iterator[None]:
    """A merge that does not see something in the logs."""
    right = facts.Facts.__init__

    def init(self: Any, *given: Any) -> None:
        right(self, *given)
        setattr(self, name, type(getattr(self, name))())

    with patch.object(facts.Facts, "__init__", init):
        yield


def without_rule(name: str, answer: object) -> AbstractContextManager[object]:
    """A merge that keeps to one rule less of what comes first, or believes too much of it."""
    return patch.object(order.Order, name, lambda *_: answer)


BROKEN: dict[str, tuple[Callable[[], AbstractContextManager[object]], int]] = {
    "no first publication": (lambda: without_scope("_log"), 204),
    "no messages": (lambda: without_scope("_messages"), 218),
    "no holds": (lambda: without_scope("_each_message"), 525),
    "no keys": (lambda: without_scope("_lanes"), 23),
    "no moments": (lambda: without_scope("touches"), 532),
    "no room": (lambda: without_scope("_rooms"), 1725),
    "no sessions": (lambda: without_scope("_sessions"), 5047),
    "no wishes": (lambda: without_scope("_wishes"), 9),
    "nothing global": (lambda: without_scope("_everything"), 9),
    "no leavers": (lambda: without_fact("consumers_of"), 2811),
    "no gaps": (lambda: without_fact("decided_by"), 204),
    "no unpublished ones": (lambda: without_fact("unpublished"), 204),
    "no limits": (lambda: without_fact("limits_consumers"), 1725),
    "claims change nothing": (lambda: patch.object(races, "_wide", lambda _: ()), 56),
    "all is known": (lambda: without_rule("known", 99), 9),
    "no end": (lambda: without_rule("_rests", answer=False), 64),
    "no deliveries": (lambda: without_rule("_delivery_of", {}), 106),
}


@pytest.mark.no_cover
@pytest.mark.parametrize("mistake", BROKEN)
def test_trying_every_order_catches_a_merge_with_a_mistake(mistake: str) -> None:
    broken, seed = BROKEN[mistake]
    (case,) = cases([seed])
    assert [] == list(complaints(case))
    with broken():
        assert [] != list(complaints(case))


# --- what is open -----------------------------------------------------------------------------------------------------


def test_two_consumers_of_a_key_without_clocks_leave_open_who_had_it_first() -> None:
    told: Told = [[delivered(0, "a"), A0], [delivered(1, "b")]]
    logs = Logs([[P0, P1]], told, None)
    assert left_open(logs, {"one-holder", "key-order", "fence"}) == {"one-holder", "key-order"}


def test_clocks_decide_what_is_further_apart_than_they_may_be_wrong() -> None:
    told: Told = [[delivered(0, "a", at_ms=1), Acked(offset=0, consumer="a", at_ms=9)], [delivered(1, "b", at_ms=20)]]
    assert left_open(Logs([[P0, P1]], told, 10), {"one-holder", "key-order"}) == set()
    assert left_open(Logs([[P0, P1]], told, 11), {"one-holder", "key-order"}) == {"one-holder", "key-order"}


def test_an_open_promise_names_two_entries_of_which_either_may_have_come_first() -> None:
    told: Told = [[delivered(0, "a"), A0], [delivered(1, "b")]]
    merged = merge_histories([[P0, P1]], told)
    reason = next(each.reason for each in merged.open if each.promise is Promise.ONE_HOLDER)
    assert reason == (
        "no log tells which came first, consumers[0] #1 Acked(offset=0, consumer='a')"
        " or consumers[1] #0 Delivered(offset=1, key=b'k', consumer='b')"
    )


def test_of_one_consumer_and_its_producers_nothing_is_open_that_needs_no_moment_of_quiet() -> None:
    told: Told = [[Connected(consumer="a"), delivered(0, "a", 1), A0, Committed(resume_offset=1)]]
    told[0] += [delivered(1, "a", 1), AtRest()]
    merged = merge_histories([[P0], [P1, P5]], told, Guarantees(max_attempts=2))
    assert {each.promise for each in merged.open} == {"affinity", "minimal-move", "progress"}


def test_a_cursor_in_a_gap_leaves_nothing_open() -> None:
    told: list[Happening] = [delivered(0, "a"), A0, Committed(resume_offset=3)]
    assert left_open(Logs([[P0, P5]], [told], None), {"safe-cursor", "key-order"}) == set()


def test_two_logs_that_tell_of_cursors_leave_open_whether_they_go_back() -> None:
    told: Told = [[Committed(resume_offset=-3)], [Committed(resume_offset=-1)]]
    assert left_open(Logs([[P0]], told, None), {"safe-cursor"}) == {"safe-cursor"}


def test_a_commit_of_another_process_settles_what_may_be_done() -> None:
    answered: list[Happening] = [delivered(0, "a", 1), Nacked(offset=0, consumer="a"), A0, delivered(0, "a", 2)]
    told: Told = [answered, [Committed(resume_offset=1)]]
    assert "no-loss" in left_open(Logs([[P0]], told, None), {"no-loss"})


def test_who_is_there_at_the_end_is_open_if_two_logs_tell_of_it() -> None:
    told: Told = [[Connected(consumer="a"), AtRest()], [Gone(consumer="a")]]
    assert left_open(Logs([[P0]], told, None), {"no-loss"}) == {"no-loss"}


def test_the_end_of_everything_stands_behind_all_that_other_logs_tell() -> None:
    told: Told = [[delivered(0, "a"), AtRest()], [delivered(1, "b"), Quiet(), AtRest()], [A0]]
    logs = Logs([[P0, P1]], told, None)
    assert left_open(logs, {"attempts"}, max_attempts=1) == set()
    assert merge_histories(logs.producers, told).history[-2:] == (AtRest(), AtRest())
    assert merge_histories([[]], [[], [AtRest()]]).history == (AtRest(),)


# --- what must have happened before what ------------------------------------------------------------------------------


def test_nothing_that_tells_of_an_offset_stands_before_its_publication() -> None:
    told: list[Happening] = [Committed(resume_offset=1), delivered(1, "a"), Redriven(offset=3, key=b"k")]
    one, two, six = (Published(offset=offset, key=b"k", at_ms=9) for offset in (0, 1, 5))
    merged = merge_histories([[two], [one, six]], [told])
    assert merged.history == (one, told[0], two, told[1], six, told[2])


def test_threads_of_a_producer_hear_of_what_they_have_published_in_any_order() -> None:
    written = [
        Published(offset=offset, key=b"k", at_ms=at_ms) for offset, at_ms in ((3, 30), (5, None), (1, 31), (2, 32))
    ]
    merged = merge_histories([written], [[delivered(1, "a", at_ms=31)]], clock_error_ms=0)
    assert [(each.offset, each.at_ms) for each in merged.history if isinstance(each, Published)] == [
        *((1, 30), (2, 30), (3, 30), (5, None))
    ]
    with pytest.raises(MergeError) as raised:
        merge_histories([written], [[delivered(1, "a", at_ms=29)]], clock_error_ms=0)
    assert LogEntry("producers[0]", 2, written[2]) in raised.value.entries


def test_an_answer_without_a_number_stands_behind_the_first_delivery_and_one_with_a_number_behind_any_without() -> None:
    told: Told = [[delivered(0, "a"), delivered(0, "a", 2)], [Nacked(offset=0, consumer="a", attempt=2)], [A0]]
    history = list(merge_histories([[P0]], told).history)
    assert history.index(delivered(0, "a")) < min(map(history.index, [A0, told[1][0]]))


def test_many_deliveries_of_one_message_are_merged_in_no_time() -> None:
    compared = 0

    class Attempt(int):
        def __eq__(self, other: object) -> bool:
            nonlocal compared
            compared += 1
            return int(self) == other

        __hash__ = int.__hash__

    told: list[Happening] = []
    for attempt in map(Attempt, range(1_000)):
        told += [delivered(0, "a", attempt), Nacked(offset=0, consumer="a", attempt=attempt)]
    merge_histories([[P0]], [told], Guarantees(promises={"key-order"}))
    assert compared < 10_000


def test_what_is_older_than_the_logs_comes_back_at_any_time() -> None:
    logs = Logs([[P5]], [[Redriven(offset=3, key=b"k")]], None)
    assert len(all_orders(logs, 9) or ()) == 2
    assert left_open(logs, {"one-holder"}) == set()


@pytest.mark.parametrize(
    "answer",
    [A0, *(kind(offset=0, consumer="a", attempt=1) for kind in (Acked, Nacked, Expired, Released))],
)
def test_an_answer_stands_behind_the_delivery_that_another_log_tells(answer: Happening) -> None:
    told: Told = [[answer], [delivered(0, "b", 1), delivered(0, "a", 1), delivered(0, "a", 2)]]
    history = list(merge_histories([[P0]], told).history)
    assert history.index(answer) == history.index(delivered(0, "a", 1)) + 1


def test_times_decide_which_of_the_orders_is_shown() -> None:
    told = [[delivered(0, "a", at_ms=5), delivered(0, "a", at_ms=20)], [delivered(0, "b", at_ms=9)]]
    assert [each.at_ms for each in merge_histories([[P0]], told).history] == [None, 5, 9, 20]


# --- logs that are wrong ----------------------------------------------------------------------------------------------


def test_logs_that_contradict_each_other_are_refused_with_the_entries_that_do() -> None:
    one, other = delivered(0, "a"), delivered(1, "b")
    told: Told = [[A0, other], [Quiet(), Acked(offset=1, consumer="b"), one]]
    with pytest.raises(MergeError, match=r"^these cannot all be true: ") as raised:
        merge_histories([[P0, P1]], told)
    assert set(raised.value.entries) == {
        LogEntry("consumers[0]", 0, A0),
        LogEntry("consumers[0]", 1, other),
        LogEntry("consumers[1]", 1, told[1][1]),
        LogEntry("consumers[1]", 2, one),
    }
    assert raised.value.entries.index(LogEntry("consumers[0]", 0, A0)) in {0, 1, 2, 3}
    assert "consumers[0] #0 Acked(offset=0, consumer='a')" in str(raised.value)
    assert set(raised.value.reasons) == {"as the log says", "as a delivery comes before its answer"}


def test_clocks_that_are_further_apart_than_they_may_be_are_refused() -> None:
    late = Published(offset=0, key=b"k", at_ms=900)
    with pytest.raises(MergeError) as raised:
        merge_histories([[late]], [[delivered(0, "a", at_ms=5)]], clock_error_ms=100)
    assert {entry.happening for entry in raised.value.entries} == {late, delivered(0, "a", at_ms=5)}
    assert set(raised.value.reasons) == {"by their times", "as nothing is told of an offset before it is published"}
    assert merge_histories([[late]], [[delivered(0, "a", at_ms=5)]], clock_error_ms=895).history[0] is late


@pytest.mark.parametrize(
    ("producers", "consumers", "told"),
    [
        (
            [],
            [[P1, P0, A0]],
            "these cannot all be true: consumers[0] #0 Published(offset=1, key=b'k') was before consumers[0] #1 Publ",
        ),
        ([[P0], [P0]], [], "each of them must have offsets of their own: producers[0] #0 Published(offset=0"),
        ([[P0]], [[Redriven(offset=1)]], "it must be at most 0, up to which everything is published: consumers[0] #0"),
        ([[P0, A0]], [], "it must be Published, or stand in a log of a consumer: producers[0] #1 Acked(offset=0"),
        ([], [["x"]], "it must be a value of keyshared.testing.history: consumers[0] #0 'x'"),
    ],
)
def test_a_log_that_cannot_be_is_refused_with_what_is_wrong(producers: Any, consumers: Any, told: str) -> None:
    with pytest.raises(MergeError) as raised:
        merge_histories(producers, consumers)
    assert str(raised.value).startswith(told)


def test_logs_that_contradict_each_other_say_why() -> None:
    with pytest.raises(MergeError) as raised:
        merge_histories([], [[P1, P0, A0]])
    assert str(raised.value).endswith("), as the log says; consumers[0] #1 was before consumers[0] #0, as offsets grow")


@pytest.mark.parametrize(
    ("wrong_by", "error", "requirement"),
    [
        (-1, GuaranteesError, "be at least 0"),
        (1_000_001, GuaranteesError, "be at most 1000000"),
        (0.5, TypeError, "be an int"),
    ],
    ids=["less than nothing", "more than a quarter of an hour", "no int"],
)
def test_a_clock_cannot_be_wrong_by(wrong_by: Any, error: type[Exception], requirement: str) -> None:
    with pytest.raises(error) as raised:
        merge_histories([], [], clock_error_ms=wrong_by)
    assert f"clock_error_ms is {wrong_by}; it must {requirement}" == str(raised.value)


def test_a_consumer_that_publishes_tells_both_in_one_log() -> None:
    told: list[Happening] = [delivered(0, "a"), P1, A0]
    assert merge_histories([[P0]], [told]).history == (P0, *told)
