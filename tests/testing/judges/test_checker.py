"""What the checker says of single histories, and what it remembers of long ones."""

from collections.abc import Iterable, Iterator
from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest
from tests.properties.driving import Fast
from tests.properties.schedules import guarantees_of
from tests.testing.recorded import recorded

from keyshared.config import DispatcherConfig
from keyshared.testing import Checker, Guarantees, GuaranteesError, HistoryError, Promise, check_history
from keyshared.testing.guarantees import JUDGED
from keyshared.testing.history import (
    Acked,
    AtRest,
    Committed,
    Connected,
    DeadLettered,
    Delivered,
    Freed,
    Gone,
    Happening,
    Held,
    HoldReason,
    Nacked,
    Owned,
    Published,
    Quiet,
    Redriven,
    SessionBegun,
    SessionEnded,
    SessionEnds,
    Settled,
    SettledBy,
)
from keyshared.testing.judges import early, one_session, outcome_promises


def test_the_history_of_a_correct_dispatcher_breaks_nothing_in_any_configuration() -> None:
    for seed in range(40):
        guarantees, history = recorded(Fast, seed, 60)
        assert [] == check_history(history, guarantees), seed


def long_history(messages: int, keys: int, outstanding: int, *, stuck: bool) -> Iterator[Happening]:
    """Messages that come and go; one of them never goes, if it is stuck."""
    yield Connected(consumer="a")
    for offset in range(messages + outstanding):
        if offset < messages:
            key = b"key-%d" % (offset % keys)
            yield Published(offset=offset, key=key, at_ms=offset)
            yield Held(offset=offset, reason=HoldReason.RETRY, until_ms=offset + 10**9, at_ms=offset)
            yield Delivered(offset=offset, key=key, consumer="a", attempt=1, at_ms=offset)
        done = offset - outstanding
        if done >= 0 and not (stuck and done == 0):
            yield Acked(offset=done, consumer="a", attempt=1, at_ms=offset)
            yield Committed(resume_offset=0 if stuck else done + 1, at_ms=offset)
        yield Quiet(at_ms=offset)


def overtaken(length: int) -> Iterator[Happening]:
    """The oldest message of a key waits for ever, and all others pass it, which is wrong each time."""
    yield Published(offset=0, key=b"k")
    for offset in range(1, length):
        yield Published(offset=offset, key=b"k")
        yield Delivered(offset=offset, key=b"k", consumer="a")
        yield Acked(offset=offset, consumer="a")


def flapping(length: int) -> Iterator[Happening]:
    for number in range(length):
        yield Connected(consumer=f"c{number}")
        yield Quiet()
        yield Gone(consumer=f"c{number}")


def test_a_message_that_is_passed_again_and_again_costs_no_memory() -> None:
    checker = Checker(Guarantees(promises={"key-order"}))
    assert 999 == len(list(checker.violations(overtaken(1_000))))
    assert checker.entries() < 60


def test_a_message_that_comes_back_again_and_again_costs_no_memory() -> None:
    checker = Checker(Guarantees(promises={"fence"}))
    list(checker.violations([Published(offset=0, key=b"k"), Published(offset=1, key=b"k")]))
    for attempt in range(1_000):
        checker.feed(Delivered(offset=1, key=b"k", consumer="a", attempt=attempt))
        checker.feed(Nacked(offset=1, consumer="a", attempt=attempt))
    assert checker.entries() < 20


def retried(messages: int) -> Iterator[Happening]:
    """Each is nacked, delivered to the same consumer again, and acked, without numbers."""
    yield Connected(consumer="a")
    for offset in range(messages):
        yield Published(offset=offset, key=b"k")
        yield Delivered(offset=offset, key=b"k", consumer="a")
        yield Nacked(offset=offset, consumer="a", counted=True)
        yield Delivered(offset=offset, key=b"k", consumer="a")
        yield Acked(offset=offset, consumer="a")


def test_acks_without_a_number_cost_no_memory_once_the_next_of_a_key_goes_out() -> None:
    checker = Checker(Guarantees(promises={"no-loss", "bounds"}))
    assert [] == list(checker.violations(retried(500)))
    assert checker.entries() < 600  # acks that a system may still tell of


def test_acks_without_a_number_are_counted_where_they_keep_something_from_being_judged() -> None:
    promises = {"one-holder", "key-order", "no-loss", "progress"}
    for number in (0, 3):
        checker = Checker(Guarantees(promises=promises, progress_ms=5))
        assert [] == list(checker.violations([*retried(number), Quiet(at_ms=0)]))
        unclear = {str(each.promise) for each in checker.unjudged() if f"{number} acks without a number" in each.reason}
        assert (promises if number else set()) == unclear


def test_what_does_not_make_way_costs_no_memory_once_it_is_done() -> None:
    checker = Checker(Guarantees(promises={"latest-only"}, latest_only=True))
    for older in range(0, 1_000, 2):
        pair = (older, older + 1)
        published = [Published(offset=offset, key=b"%d" % older) for offset in pair]
        assert 1 == len(list(checker.violations([*published, Quiet()])))
        list(checker.violations(Settled(offset=offset, reason=SettledBy.OPERATOR) for offset in pair))
    assert checker.entries() < 70


def test_owners_of_idle_keys_are_forgotten_and_those_of_others_are_not() -> None:
    checker = Checker(remembered_keys=2)
    checker.feed(Connected(consumer="a"))
    checker.feed(Owned(key=b"early", consumer="b"))
    checker.feed(Published(offset=0, key=b"early"))
    checker.feed(Published(offset=1, key=b"late"))
    checker.feed(Owned(key=b"late", consumer="b"))
    for number in range(50):
        checker.feed(Owned(key=b"idle %d" % number, consumer="b"))
    assert checker.entries() < 30
    for offset, key in enumerate([b"early", b"late"]):
        found = checker.feed(Delivered(offset=offset, key=key, consumer="a", attempt=1))
        assert [Promise.AFFINITY] == [violation.promise for violation in found]


def test_consumers_that_come_and_go_are_forgotten() -> None:
    checker = Checker()
    assert [] == list(checker.violations(flapping(3_000)))
    assert checker.entries() < 1_100


def test_what_was_done_before_its_publication_is_forgotten_beyond_a_bound_and_taken_for_done(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(early, "_REMEMBERED", 2)
    checker = Checker()
    checker.feed(Connected(consumer="a"))
    for offset in (3, 1, 2):
        assert [] == checker.feed(Delivered(offset=offset, key=b"k", consumer="a", attempt=1))
        assert [] == checker.feed(Acked(offset=offset, consumer="a", attempt=1))
    for offset in (0, 1, 2):
        assert [] == checker.feed(Published(offset=offset, key=b"k"))
    (violation,) = checker.feed(Published(offset=3, key=b"other"))
    assert (Promise.NO_LOSS, (1, 10)) == (violation.promise, violation.proof)
    assert [] == checker.feed(AtRest())
    reasons = {unjudged.promise: unjudged.reason for unjudged in checker.unjudged()}
    assert "1 messages that were done before their Published were forgotten" == reasons[Promise.NO_LOSS]


def test_late_answers_to_a_message_that_comes_back_again_and_again_are_believed_beyond_a_bound() -> None:
    checker = Checker(Guarantees(promises={"fence"}))
    checker.feed(Published(offset=0, key=b"k"))
    for attempt in range(1, 21):
        checker.feed(Delivered(offset=0, key=b"k", consumer="a", attempt=attempt))
        checker.feed(Nacked(offset=0, consumer="a", attempt=attempt))
    stranger = Acked(offset=0, consumer="b", attempt=21, counted=True)
    assert [Promise.FENCE] == [violation.promise for violation in deepcopy(checker).feed(stranger)]
    assert [] == checker.feed(replace(stranger, attempt=3))


def test_a_lease_that_has_ended_does_not_expire() -> None:
    history: list[Happening] = [
        Connected(consumer="a", at_ms=0),
        Published(offset=0, key=b"k", at_ms=0),
        Published(offset=1, key=b"k", at_ms=0),
        Delivered(offset=0, key=b"k", consumer="a", attempt=1, at_ms=0),
        Nacked(offset=0, consumer="a", attempt=1, at_ms=5),
        Delivered(offset=0, key=b"k", consumer="a", attempt=2, at_ms=90),
        Connected(consumer="b", at_ms=120),
    ]
    claims = Guarantees(ack_timeout_ms=100, per_key=2)
    elsewhere = Delivered(offset=0, key=b"k", consumer="b", attempt=3, at_ms=189)
    assert [(5, 7)] == [violation.proof for violation in check_history([*history, elsewhere], claims)]
    assert [] == check_history([*history, replace(elsewhere, at_ms=190)], claims)


@pytest.mark.parametrize("stuck", [False, pytest.param(True, marks=pytest.mark.no_cover)])
def test_memory_follows_what_is_outstanding_and_not_the_length(stuck: bool) -> None:
    claims = Guarantees(per_key=None, ack_timeout_ms=10**12, progress_ms=10**12)
    checker = Checker(claims, remembered_keys=50)
    most = 0
    for happening in long_history(6_000, 3_000, 40, stuck=stuck):
        assert [] == checker.feed(happening)
        most = max(most, checker.entries())
    assert most < 40 * 20 + 50 * 3 + 1_000  # acks that were only seen


def test_keys_that_were_forgotten_are_not_judged_and_that_is_said() -> None:
    checker = Checker(Guarantees(per_key=None), remembered_keys=2)
    list(checker.violations(long_history(20, 10, 1, stuck=False)))
    reasons = {unjudged.promise: unjudged.reason for unjudged in checker.unjudged()}
    assert (
        "18 idle keys were forgotten, and not judged where they went next; remember more" == (reasons[Promise.AFFINITY])
    )
    assert reasons[Promise.AFFINITY] == reasons[Promise.MINIMAL_MOVE]


def test_nothing_is_judged_in_an_empty_history() -> None:
    checker = Checker(Guarantees(promises=set(Promise)))
    assert set(Promise) == {unjudged.promise for unjudged in checker.unjudged()}
    assert "one-holder: not judged: the history tells of no Delivered" == str(checker.unjudged()[0])


@pytest.mark.parametrize(
    ("history", "claims", "promise", "reason"),
    [
        ([Published(offset=0)], Guarantees(), "key-order", "the history tells of no Delivered"),
        ([Published(offset=0)], Guarantees(), "safe-cursor", "the history tells of no Committed"),
        ([Quiet()], Guarantees(), "bounds", "the history tells of no Delivered"),
        ([Quiet()], Guarantees(per_key=None), "bounds", "neither the guarantees nor the history say any limit"),
        (
            [Delivered(offset=0, consumer="a")],
            Guarantees(),
            "affinity",
            "the history tells neither who is Connected nor who has Owned a key",
        ),
        (
            [Delivered(offset=0, consumer="a")],
            Guarantees(),
            "minimal-move",
            "nobody is Connected or Gone in the history",
        ),
        ([Connected(consumer="a")], Guarantees(), "minimal-move", "the history tells of no Delivered and no Owned"),
        (
            [Delivered(offset=0, consumer="a")],
            Guarantees(),
            "fence",
            "deliveries without an attempt are told apart by their consumers only",
        ),
        ([Published(offset=0)], Guarantees(), "isolation", "the guarantees claim no window"),
        (
            [Published(offset=0)],
            Guarantees(spills=False),
            "isolation",
            "the guarantees claim that nothing spills, which gives isolation up",
        ),
        ([Published(offset=0)], Guarantees(window=1), "isolation", "the history never says Quiet"),
        (
            [Quiet()],
            Guarantees(window=1),
            "isolation",
            "the history tells of no Published, so it does not say what was outstanding",
        ),
        (
            [Published(offset=0)],
            Guarantees(),
            "progress",
            "nobody is Connected in the history, so it does not say who has room",
        ),
        (
            [Published(offset=0, at_ms=0), Connected(consumer="a", at_ms=5)],
            Guarantees(progress_ms=1, unit_of=len),
            "progress",
            "the history never says Quiet, and units are judged only there",
        ),
        (
            [Published(offset=0), Connected(consumer="a")],
            Guarantees(),
            "progress",
            "the history never says Quiet, and no progress_ms is claimed",
        ),
        (
            [Published(offset=0), Connected(consumer="a")],
            Guarantees(progress_ms=5),
            "progress",
            "the history has no times",
        ),
    ],
)
def test_what_a_history_does_not_show_is_said(
    history: list[Happening], claims: Guarantees, promise: str, reason: str
) -> None:
    checker = Checker(claims)
    list(checker.violations(history))
    assert reason == {unjudged.promise: unjudged.reason for unjudged in checker.unjudged()}[Promise(promise)]


DONE = [Delivered(offset=0, consumer="a"), Acked(offset=0, consumer="a", counted=True)]


@pytest.mark.parametrize(
    ("before", "promise", "is_said"),
    [
        ([Committed(resume_offset=5)], "safe-cursor", True),
        ([Committed(resume_offset=5), Committed(resume_offset=0)], "safe-cursor", True),
        ([Committed(resume_offset=0)], "safe-cursor", False),
        ([DeadLettered(offset=0)], "no-loss", True),
        ([*DONE, Delivered(offset=0, consumer="b")], "no-loss", True),
        ([*DONE, Acked(offset=0, consumer="b", counted=True)], "no-loss", True),
        (DONE, "no-loss", False),
    ],
)
def test_what_stands_before_the_first_publication_is_said_not_to_be_judged(
    before: list[Happening], promise: str, is_said: bool
) -> None:
    checker = Checker()
    found = [each.promise for each in checker.violations([*before, Published(offset=0)]) if each.promise == promise]
    assert len(found) == (len(before) == 2 and promise == "safe-cursor")  # that a cursor moves back shows without
    said = [each.reason for each in checker.unjudged() if each.promise == promise]
    assert is_said == any("what stands before the first Published is not judged" in reason for reason in said)


def test_deliveries_alone_show_who_held_what() -> None:
    history: list[Happening] = [
        Delivered(offset=4, key=b"k", consumer="a"),
        Delivered(offset=5, key=b"k", consumer="b"),
        Acked(offset=4, consumer="a"),
    ]
    (violation,) = check_history(history, Guarantees(per_key=None))
    assert (Promise.ONE_HOLDER, (0, 1)) == (violation.promise, violation.proof)


def test_a_delivery_may_be_written_down_before_its_publication() -> None:
    history: list[Happening] = [
        Connected(consumer="a"),
        Delivered(offset=0, key=b"k", consumer="a"),
        Published(offset=0, key=b"k"),
        Acked(offset=0, consumer="a"),
        Committed(resume_offset=1),
    ]
    assert [] == check_history(history)
    (violation,) = check_history([*history[:3], Committed(resume_offset=1)])
    assert (Promise.SAFE_CURSOR, (1, 3)) == (violation.promise, violation.proof)


def test_an_ack_of_an_older_delivery_may_count_where_no_fence_is_claimed() -> None:
    history: list[Happening] = [
        Connected(consumer="a"),
        Connected(consumer="b"),
        Published(offset=0, key=b"k"),
        Delivered(offset=0, key=b"k", consumer="a", attempt=1),
        Gone(consumer="a"),
        Delivered(offset=0, key=b"k", consumer="b", attempt=2),
        Acked(offset=0, consumer="a", attempt=1),
        Committed(resume_offset=1),
    ]
    assert [Promise.SAFE_CURSOR] == [violation.promise for violation in check_history(history)]
    later: list[Happening] = [
        Published(offset=1, key=b"k"),
        Delivered(offset=1, key=b"k", consumer="b", attempt=1),
    ]
    assert [] == check_history([*history, *later], Guarantees(promises=JUDGED - {Promise.FENCE}))
    assert [] == check_history([*history[:-1], *later], Guarantees(promises=JUDGED - {Promise.FENCE}))


@pytest.mark.parametrize("value", [-1, True, None, 1.5])
def test_a_number_of_keys_that_makes_no_sense_is_refused(value: Any) -> None:
    with pytest.raises(GuaranteesError, match="remembered_keys"):
        Checker(remembered_keys=value)


def test_guarantees_that_are_none_are_refused() -> None:
    wrong: Any = {"window": 1}
    with pytest.raises(GuaranteesError, match=r"guarantees is .*; it must be Guarantees"):
        Checker(wrong)


def test_what_is_open_when_its_publication_is_told_waits_behind_nobody() -> None:
    history: list[Happening] = [
        Delivered(offset=0, key=b"k", consumer="a"),
        Quiet(),
        Published(offset=0, key=b"k"),
        Quiet(),
    ]
    assert [] == check_history(history, Guarantees(promises={"isolation"}, window=1))


def test_what_is_published_has_a_greater_offset_than_what_has_come_back() -> None:
    with pytest.raises(HistoryError, match="offset of happening 1 is 5; it must be greater than 5, which was redriven"):
        check_history([Redriven(offset=5), Published(offset=5)])


def test_what_comes_back_was_published_before() -> None:
    with pytest.raises(HistoryError, match="offset of happening 1 is 5; it must be at most 0, up to which everything"):
        check_history([Published(offset=0), Redriven(offset=5)])


def test_a_history_that_contradicts_itself_is_refused_and_changes_nothing() -> None:
    checker = Checker()
    checker.feed(Published(offset=5))
    with pytest.raises(HistoryError, match="offset of happening 1 is 5; it must be greater than 5"):
        checker.feed(Published(offset=5))
    assert [] == checker.feed(Published(offset=6))
    (violation,) = checker.feed(Committed(resume_offset=7))
    assert (0, 2) == violation.proof


def test_something_else_than_a_happening_is_refused_and_changes_nothing() -> None:
    checker = Checker()
    wrong: Any = {"happening": "quiet"}
    with pytest.raises(HistoryError, match=r"^happening 0 is .*; it must be a value of keyshared\.testing\.history$"):
        checker.feed(wrong)
    assert [] == checker.feed(Quiet())


def test_the_guarantees_of_a_dispatcher_follow_its_configuration() -> None:
    assert Guarantees(
        promises=JUDGED
        - {
            Promise.GROUP_FAIRNESS,
            Promise.HEALTH_ADDS_UP,
            Promise.LATEST_ONLY,
            Promise.ONE_SESSION,
            Promise.TOKEN_BUDGET,
            Promise.WHOLE_BATCH,
        },
        per_consumer=1_000,
        window=10_000,
        max_tracked=1_000_000,
        fairness=0,
        max_attempts=6,
        cursor_keeps_up=True,
        may_skip=True,
        may_dead_letter=True,
    ) == guarantees_of(DispatcherConfig())


def test_what_is_said_of_a_message_that_is_settled_already_is_passed_over() -> None:
    history: list[Happening] = [
        Published(offset=0, key=b"k"),
        Settled(offset=0, reason=SettledBy.OPERATOR),
        Freed(offset=0),
        Held(offset=0, reason=HoldReason.RETRY),
    ]
    assert [] == check_history(history)


TURNS = Guarantees(promises={"fairness"}, fairness=0)


@pytest.mark.parametrize(
    ("claims", "history", "reason"),
    [
        (Guarantees(promises={"fairness"}), [], "the guarantees claim no fairness"),
        (Guarantees(promises={"group-fairness"}), [], "the guarantees claim no groups"),
        (
            Guarantees(promises={"group-fairness"}, group_of=len),
            [],
            "the history tells of no Published, so it does not say what was outstanding",
        ),
        (TURNS, [], "the history tells of no Published, so it does not say what was outstanding"),
        (TURNS, [Published(offset=0)], "the history tells of no Delivered"),
        (
            TURNS,
            [Published(offset=0), Delivered(offset=0, consumer="a")],
            "the history does not tell who has Owned a key",
        ),
        (
            TURNS,
            [Published(offset=0), Delivered(offset=0, consumer="a"), Owned(key=b"k", consumer="a")],
            "the history never says Quiet",
        ),
        (Guarantees(promises={"settled-once"}), [], "the guarantees do not claim tells_done"),
        (Guarantees(promises={"token-budget"}), [], "the guarantees claim no token_bytes"),
        (
            Guarantees(promises={"token-budget"}, token_bytes=100),
            [],
            "the history tells of no Published, so it does not say what was outstanding",
        ),
        (
            Guarantees(promises={"token-budget"}, token_bytes=100),
            [Published(offset=0)],
            "the history never says Quiet",
        ),
        (
            Guarantees(promises={"settled-once"}, tells_done=True),
            [],
            "the history never says Quiet or AtRest, so what is done may still be told",
        ),
        (Guarantees(promises={"health-adds-up"}), [], "the guarantees do not claim measures"),
        (Guarantees(promises={"health-adds-up"}, measures=True), [], "the history tells of no Measured"),
        (Guarantees(promises={"latest-only"}), [], "the guarantees do not claim latest_only"),
        (
            Guarantees(promises={"latest-only"}, latest_only=True),
            [],
            "the history tells of no Published, so it does not say what was outstanding",
        ),
        (
            Guarantees(promises={"latest-only"}, latest_only=True),
            [Published(offset=0)],
            "the history never says Quiet, so what waits may still be given up",
        ),
        (Guarantees(promises={"one-session"}), [], "the guarantees claim no sessions"),
        (Guarantees(promises={"one-session"}, sessions=True), [], "the history tells of no Delivered"),
        (Guarantees(promises={"not-early"}), [], "the history tells of no Delivered"),
        (
            Guarantees(promises={"not-early"}),
            [Published(offset=0, until_ms=5), Delivered(offset=0, consumer="a")],
            "the history has no times",
        ),
        (Guarantees(promises={"reason-travels"}), [], "the history tells of no Delivered"),
        (Guarantees(promises={"attempts"}), [], "the guarantees claim no max_attempts"),
        (Guarantees(promises={"attempts"}, max_attempts=1), [], "the history tells of no Delivered"),
    ],
)
def test_turns_and_attempts_say_what_they_need(claims: Guarantees, history: list[Happening], reason: str) -> None:
    checker = Checker(claims)
    list(checker.violations(history))
    assert [reason] == [unjudged.reason for unjudged in checker.unjudged()]


def test_numbers_of_sessions_are_remembered_of_so_many_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(one_session, "_REMEMBERED_NUMBERS", 2)
    checker = Checker(Guarantees(promises={"one-session"}, sessions=True))
    for key in (b"a", b"b", b"a", b"c"):
        number = checker.entries() + 1
        list(checker.violations([SessionBegun(key=key, consumer="a", session=number), _ended(key, number)]))
    assert 2 == checker.entries()
    assert [] == checker.feed(SessionBegun(key=b"b", consumer="a", session=1))  # of the longest ago nobody knows
    assert [] != checker.feed(SessionBegun(key=b"c", consumer="a", session=1))


def _ended(key: bytes, number: int) -> SessionEnded:
    return SessionEnded(key=key, consumer="a", session=number, reason=SessionEnds.IDLE)


def test_a_queue_that_is_passed_over_again_and_again_costs_no_memory() -> None:
    checker = Checker(TURNS)
    waiting: list[Happening] = [Published(offset=0, key=b"k"), Owned(key=b"k", consumer="a"), Quiet()]
    list(checker.violations(waiting))
    for offset in range(1, 500):
        list(
            checker.violations(
                [
                    Published(offset=offset, key=b"l"),
                    Delivered(offset=offset, key=b"l", consumer="a"),
                    Acked(offset=offset, consumer="a"),
                ]
            )
        )
    assert checker.entries() < 20


def deliver_and_ack(checker: Checker, offsets: Iterable[int]) -> None:
    for offset in offsets:
        checker.feed(Delivered(offset=offset, consumer="a", attempt=1))
        checker.feed(Acked(offset=offset, consumer="a", attempt=1))


def test_of_what_is_older_than_the_history_only_some_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(early, "_REMEMBERED", 2)
    checker = Checker(Guarantees(promises={"no-loss"}))
    checker.feed(Published(offset=9))
    deliver_and_ack(checker, range(3))
    assert [] == checker.feed(Delivered(offset=0, consumer="a"))
    assert 1 == len(checker.feed(Delivered(offset=1, consumer="a")))


def test_what_is_older_than_the_history_is_not_taken_for_what_was_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(early, "_REMEMBERED", 2)
    checker = Checker(Guarantees(promises={"no-loss"}))
    checker.feed(Published(offset=9))
    deliver_and_ack(checker, (10, 11, 12))
    assert [] == checker.feed(Delivered(offset=5, consumer="a"))


def test_what_was_forgotten_stays_done_if_something_lower_is_forgotten_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(early, "_REMEMBERED", 2)
    checker = Checker(Guarantees(promises={"no-loss"}))
    checker.feed(Connected(consumer="a"))
    for offset in (3, 5, 6, 7):
        checker.feed(Delivered(offset=offset, consumer="a"))
    for offset in (5, 6, 7, 3):
        checker.feed(Acked(offset=offset, consumer="a"))
    for offset in (3, 5, 6, 7):
        checker.feed(Published(offset=offset))
    assert [] == checker.feed(AtRest())


def test_what_a_system_says_of_acks_that_were_forgotten_is_not_judged_and_that_is_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(outcome_promises, "_REMEMBERED_ACKS", 2)
    forgotten = "1 acks that counted, of what was done, may be what the system says of acks before"
    reasons: dict[int, list[str]] = {2: [], 3: [f"{forgotten}; only the last 2 of these are remembered"]}
    for count in (2, 3):
        checker = Checker(Guarantees(promises={"no-loss"}))
        offsets = range(count)
        history: list[Happening] = [
            *(Published(offset=offset) for offset in offsets),
            *(Delivered(offset=offset, consumer="a", attempt=1) for offset in offsets),
            *(Acked(offset=offset, consumer="a", attempt=1) for offset in offsets),
            *(Acked(offset=offset, consumer="a", attempt=1, counted=True) for offset in offsets),
            AtRest(),
        ]
        assert [] == list(checker.violations(history))
        assert reasons[count] == [each.reason for each in checker.unjudged()]
        once_more = checker.feed(Acked(offset=0, consumer="a", attempt=1, counted=True))
        assert len(once_more) == (count == 2)


def test_a_cursor_may_pass_what_was_done_and_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(early, "_REMEMBERED", 1)
    checker = Checker(Guarantees(promises={"safe-cursor"}))
    checker.feed(Published(offset=0))
    deliver_and_ack(checker, (0, 1, 2))
    assert [] == checker.feed(Committed(resume_offset=3))
    assert [] == checker.feed(Published(offset=1))
    assert [] == checker.feed(Published(offset=2))
