"""What the checker says of single histories, and what it remembers of long ones."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from tests.properties.driving import Fast
from tests.properties.schedules import claims_of
from tests.testing.recorded import kept, recorded

from keyshared.config import DispatcherConfig
from keyshared.testing import Checker, Claims, ClaimsError, HistoryError, Promise, check_history
from keyshared.testing.checks import features
from keyshared.testing.claims import JUDGED
from keyshared.testing.history import (
    Acked,
    AtRest,
    Committed,
    Connected,
    Delivered,
    Event,
    Freed,
    Gone,
    Held,
    HoldReason,
    Nacked,
    Owned,
    Published,
    Quiet,
    Redriven,
    Released,
    Rewound,
    SessionBegun,
    SessionEnded,
    SessionEnds,
    Settled,
    SettledBy,
    Unclear,
)


def test_the_history_of_a_correct_dispatcher_breaks_nothing_in_any_configuration() -> None:
    for seed in range(40):
        claims, history = recorded(Fast, seed, 60)
        assert [] == check_history(history, claims), seed


def long_history(messages: int, keys: int, outstanding: int, *, stuck: bool) -> Iterator[Event]:
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


def overtaken(length: int) -> Iterator[Event]:
    """The oldest message of a key waits for ever, and all others pass it, which is wrong each time."""
    yield Published(offset=0, key=b"k")
    for offset in range(1, length):
        yield Published(offset=offset, key=b"k")
        yield Delivered(offset=offset, key=b"k", consumer="a")
        yield Acked(offset=offset, consumer="a")


def coming_back(length: int) -> Iterator[Event]:
    """A message comes back again and again."""
    yield from (Published(offset=0, key=b"k"), Published(offset=1, key=b"k"))
    for attempt in range(length):
        yield Delivered(offset=1, key=b"k", consumer="a", attempt=attempt)
        yield Nacked(offset=1, consumer="a", attempt=attempt)


def not_superseded(length: int) -> Iterator[Event]:
    """Of two messages of each key the older one does not make way, which is wrong each time."""
    for older in range(0, length, 2):
        yield from (Published(offset=offset, key=b"%d" % older) for offset in (older, older + 1))
        yield Quiet()
        yield from (Settled(offset=offset, reason=SettledBy.OPERATOR) for offset in (older, older + 1))


def passed_over(length: int) -> Iterator[Event]:
    """A key waits for its turn for ever."""
    yield from (Published(offset=0, key=b"k"), Owned(key=b"k", consumer="a"), Quiet())
    for offset in range(1, length):
        yield Published(offset=offset, key=b"l")
        yield Delivered(offset=offset, key=b"l", consumer="a")
        yield Acked(offset=offset, consumer="a")


def done_before_its_time(length: int) -> Iterator[Event]:
    """Messages are held until a time that never comes, and are done before."""
    for offset in range(length):
        yield Published(offset=offset, key=b"k")
        yield Held(offset=offset, reason=HoldReason.RETRY, until_ms=1_000)
        yield Quiet(at_ms=0)
        yield Settled(offset=offset, reason=SettledBy.OPERATOR)


def behind_a_gap(length: int) -> Iterator[Event]:
    """The cursor is behind all that was published by then, and no publication shows whether that is right."""
    yield from (Published(offset=0, key=b"k"), Settled(offset=0, reason=SettledBy.OPERATOR))
    yield from (Committed(resume_offset=each) for each in range(2, length))


def flapping(length: int) -> Iterator[Event]:
    for number in range(length):
        yield Connected(consumer=f"c{number}")
        yield Quiet()
        yield Gone(consumer=f"c{number}")


@pytest.mark.parametrize(
    ("history", "claims", "violations"),
    [
        (overtaken, Claims(promises={"key-order"}), 2_999),
        (coming_back, Claims(promises={"fence"}), 0),
        (not_superseded, Claims(promises={"latest-only"}, latest_only=True), 1_500),
        (passed_over, Claims(promises={"fairness"}, fairness=0), 1),
        (done_before_its_time, Claims(promises={"progress"}), 0),
        (behind_a_gap, Claims(promises={"safe-cursor"}), 0),
        (flapping, Claims(), 0),
    ],
)
def test_what_goes_on_for_long_costs_no_memory(
    history: Callable[[int], Iterator[Event]], claims: Claims, violations: int
) -> None:
    short, long = Checker(claims), Checker(claims)
    list(short.violations(history(1_200)))
    assert len(list(long.violations(history(3_000)))) == violations
    assert kept(long) < 1.1 * kept(short)


def test_owners_of_idle_keys_are_forgotten_and_those_of_others_are_not() -> None:
    checker = Checker(remembered_keys=2)
    checker.feed(Connected(consumer="a"))
    checker.feed(Owned(key=b"early", consumer="b"))
    checker.feed(Published(offset=0, key=b"early"))
    checker.feed(Published(offset=1, key=b"late"))
    checker.feed(Owned(key=b"late", consumer="b"))
    for number in range(50):
        checker.feed(Owned(key=b"idle %d" % number, consumer="b"))
    for offset, key in enumerate([b"early", b"late"]):
        found = checker.feed(Delivered(offset=offset, key=key, consumer="a", attempt=1))
        assert [Promise.AFFINITY] == [violation.promise for violation in found]


def test_a_lease_that_has_ended_does_not_expire() -> None:
    history: list[Event] = [
        Connected(consumer="a", at_ms=0),
        Published(offset=0, key=b"k", at_ms=0),
        Published(offset=1, key=b"k", at_ms=0),
        Delivered(offset=0, key=b"k", consumer="a", attempt=1, at_ms=0),
        Nacked(offset=0, consumer="a", attempt=1, at_ms=5),
        Delivered(offset=0, key=b"k", consumer="a", attempt=2, at_ms=90),
        Connected(consumer="b", at_ms=120),
    ]
    claims = Claims(ack_timeout_ms=100, per_key=2)
    elsewhere = Delivered(offset=0, key=b"k", consumer="b", attempt=3, at_ms=189)
    assert [(5, 7)] == [violation.proof for violation in check_history([*history, elsewhere], claims)]
    assert [] == check_history([*history, replace(elsewhere, at_ms=190)], claims)


@pytest.mark.parametrize("stuck", [False, pytest.param(True, marks=pytest.mark.no_cover)])
def test_memory_follows_what_is_outstanding_and_not_the_length(stuck: bool) -> None:
    claims = Claims(per_key=None, ack_timeout_ms=10**12)
    checker = Checker(claims, remembered_keys=50)
    most = 0
    for number, event in enumerate(long_history(6_000, 3_000, 40, stuck=stuck)):
        assert [] == checker.feed(event)
        if number % 97 == 0:
            most = max(most, kept(checker))
    assert most < 45_000, "40 outstanding messages and 50 keys"


def test_keys_that_were_forgotten_are_not_judged_and_that_is_said() -> None:
    checker = Checker(Claims(per_key=None), remembered_keys=2)
    list(checker.violations(long_history(20, 10, 1, stuck=False)))
    reasons = {unjudged.promise: unjudged.reason for unjudged in checker.unjudged()}
    assert "remember more keys: 18 idle ones were forgotten" == reasons[Promise.AFFINITY]
    assert reasons[Promise.AFFINITY] == reasons[Promise.MINIMAL_MOVE]


def test_nothing_is_judged_in_an_empty_history() -> None:
    checker = Checker(Claims(promises=set(Promise)))
    assert set(Promise) == {unjudged.promise for unjudged in checker.unjudged()}
    assert "one-holder: not judged: write `delivered`" == str(checker.unjudged()[0])


A = Connected(consumer="a")
LOGGED = "write `published` of the 1 messages that it does not tell of"
PUBLISHED = "write `published`, which says what is outstanding"
QUIET = "write `quiet` where the system has had time to act"


@pytest.mark.parametrize(
    ("history", "claims", "promise", "reason"),
    [
        ([Published(offset=0)], Claims(), "key-order", "write `delivered`"),
        ([Published(offset=0)], Claims(), "safe-cursor", "write `committed`"),
        ([Quiet()], Claims(), "bounds", "write `delivered`"),
        ([Quiet()], Claims(per_key=None), "bounds", "claim a limit, or write the limits of consumers"),
        ([Delivered(offset=0, consumer="a")], Claims(), "affinity", "write `connected`, or `owned`"),
        ([Delivered(offset=0, consumer="a")], Claims(), "minimal-move", "write `connected` and `gone`"),
        ([Connected(consumer="a")], Claims(), "minimal-move", "write `delivered`, or `owned`"),
        ([Delivered(offset=0, consumer="a")], Claims(), "fence", "number all deliveries"),
        ([], Claims(promises={"isolation"}), "isolation", "a history does not tell where payloads are"),
        ([Published(offset=0)], Claims(), "progress", "write `connected`, which says who has room"),
        ([Published(offset=0), A], Claims(), "progress", QUIET),
        ([Delivered(offset=0, consumer="a"), Published(offset=5), AtRest()], Claims(), "no-loss", LOGGED),
    ],
)
def test_what_a_history_does_not_show_is_said(history: list[Event], claims: Claims, promise: str, reason: str) -> None:
    checker = Checker(claims)
    list(checker.violations(history))
    assert reason == {unjudged.promise: unjudged.reason for unjudged in checker.unjudged()}[Promise(promise)]


def test_deliveries_alone_show_who_held_what() -> None:
    history: list[Event] = [
        Delivered(offset=4, key=b"k", consumer="a"),
        Delivered(offset=5, key=b"k", consumer="b"),
        Acked(offset=4, consumer="a"),
    ]
    (violation,) = check_history(history, Claims(per_key=None))
    assert (Promise.ONE_HOLDER, (0, 1)) == (violation.promise, violation.proof)


@pytest.mark.parametrize("value", [-1, True, None, 1.5])
def test_a_number_of_keys_that_makes_no_sense_is_refused(value: Any) -> None:
    with pytest.raises(ClaimsError, match="remembered_keys"):
        Checker(remembered_keys=value)


def test_guarantees_that_are_none_are_refused() -> None:
    wrong: Any = {"per_key": 1}
    with pytest.raises(ClaimsError, match=r"claims is .*; it must be Claims"):
        Checker(wrong)


def test_what_is_published_has_a_greater_offset_than_what_has_come_back() -> None:
    with pytest.raises(HistoryError, match="offset of event 1 is 5; it must be greater than 5, which was redriven"):
        check_history([Redriven(offset=5), Published(offset=5)])


def test_what_comes_back_was_published_before() -> None:
    with pytest.raises(HistoryError, match="offset of event 1 is 5; it must be at most 0, up to which everything"):
        check_history([Published(offset=0), Redriven(offset=5)])


def test_a_history_that_contradicts_itself_is_refused_and_changes_nothing() -> None:
    checker = Checker()
    checker.feed(Published(offset=5))
    with pytest.raises(HistoryError, match="offset of event 1 is 5; it must be greater than 5"):
        checker.feed(Published(offset=5))
    assert [] == checker.feed(Published(offset=6))
    (violation,) = checker.feed(Committed(resume_offset=7))
    assert (0, 2) == violation.proof


def test_something_else_than_an_event_is_refused_and_changes_nothing() -> None:
    checker = Checker()
    wrong: Any = {"event": "quiet"}
    with pytest.raises(HistoryError, match=r"^event 0 is .*; it must be a value of keyshared\.testing\.history$"):
        checker.feed(wrong)
    assert [] == checker.feed(Quiet())


def test_the_claims_of_a_dispatcher_follow_its_configuration() -> None:
    assert Claims(
        promises=JUDGED - {Promise.LATEST_ONLY, Promise.ONE_SESSION, Promise.WHOLE_BATCH},
        per_consumer=50,
        max_tracked=1_000_000,
        fairness=0,
        max_attempts=6,
        cursor_keeps_up=True,
        may_skip=True,
        may_dead_letter=True,
    ) == claims_of(DispatcherConfig())


def test_what_is_said_of_a_message_that_is_settled_already_is_passed_over() -> None:
    history: list[Event] = [
        Published(offset=0, key=b"k"),
        Settled(offset=0, reason=SettledBy.OPERATOR),
        Freed(offset=0),
        Held(offset=0, reason=HoldReason.RETRY),
    ]
    assert [] == check_history(history)


TURNS = Claims(promises={"fairness"}, fairness=0)


@pytest.mark.parametrize(
    ("claims", "history", "reason"),
    [
        (Claims(promises={"fairness"}), [], "claim fairness"),
        (TURNS, [], PUBLISHED),
        (TURNS, [Published(offset=0)], "write `delivered`"),
        (TURNS, [Published(offset=0), Delivered(offset=0, consumer="a")], "write `owned`"),
        (TURNS, [Published(offset=0), Delivered(offset=0, consumer="a"), Owned(key=b"k", consumer="a")], QUIET),
        (Claims(promises={"settled-once"}), [], "claim tells_done"),
        (Claims(promises={"settled-once"}, tells_done=True), [], QUIET),
        (Claims(promises={"latest-only"}), [], "claim latest_only"),
        (Claims(promises={"latest-only"}, latest_only=True), [], PUBLISHED),
        (Claims(promises={"latest-only"}, latest_only=True), [Published(offset=0)], QUIET),
        (Claims(promises={"one-session"}), [], "claim sessions"),
        (Claims(promises={"one-session"}, sessions=True), [], "write `delivered`"),
        (Claims(promises={"whole-batch"}), [], "claim batches"),
        (Claims(promises={"whole-batch"}, batches=True), [], "write `delivered`"),
        (Claims(promises={"whole-batch"}, batches=True), [Delivered(offset=0, consumer="a")], PUBLISHED),
        (Claims(promises={"redrive-order"}), [], "write `redriven`"),
        (Claims(promises={"not-early"}), [], "write `delivered`"),
        (
            Claims(promises={"not-early"}),
            [Published(offset=0, until_ms=5), Delivered(offset=0, consumer="a")],
            "write at_ms",
        ),
        (Claims(promises={"reason-travels"}), [], "write `delivered`"),
        (Claims(promises={"attempts"}), [], "claim max_attempts"),
        (Claims(promises={"attempts"}, max_attempts=1), [], "write `delivered`"),
    ],
)
def test_turns_and_attempts_say_what_they_need(claims: Claims, history: list[Event], reason: str) -> None:
    checker = Checker(claims)
    list(checker.violations(history))
    assert [reason] == [unjudged.reason for unjudged in checker.unjudged()]


def test_numbers_of_sessions_are_remembered_of_so_many_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(features, "_REMEMBERED_NUMBERS", 2)
    checker = Checker(Claims(promises={"one-session"}, sessions=True))
    for number, key in enumerate((b"a", b"b", b"a", b"c")):
        list(checker.violations([SessionBegun(key=key, consumer="a", session=number), _ended(key, number)]))
    assert [] == checker.feed(SessionBegun(key=b"b", consumer="a", session=1))  # of the longest ago nobody knows
    assert [] != checker.feed(SessionBegun(key=b"c", consumer="a", session=1))


def _ended(key: bytes, number: int) -> SessionEnded:
    return SessionEnded(key=key, consumer="a", session=number, reason=SessionEnds.IDLE)


def judged(*history: Event, claims: Claims | None = None) -> tuple[list[str], dict[str, int]]:
    checker = Checker(claims)
    found = [str(each.promise) for each in checker.violations(history)]
    return found, dict(checker.unjudged_messages)


LATE = "write its `published` row before all others of it"
NUMBER = "number its deliveries, and name the number in each answer"
COUNT = "say whether a late answer counted"
AT_A: Any = {"offset": 0, "consumer": "a"}
AT_B: Any = {"offset": 0, "consumer": "b"}
P0: Event = Published(offset=0, key=b"k")


@pytest.mark.parametrize(
    ("history", "reason"),
    [
        ([Delivered(key=b"k", **AT_A, attempt=1), P0], LATE),
        ([Acked(**AT_A, counted=True), P0], LATE),
        ([P0, Delivered(key=b"k", **AT_A), Nacked(**AT_A), Delivered(key=b"k", **AT_A)], NUMBER),
        (
            [
                *(P0, Delivered(key=b"k", **AT_A, attempt=1), Nacked(**AT_A, attempt=1)),
                *(Delivered(key=b"k", **AT_A, attempt=2), Acked(**AT_A)),
            ],
            NUMBER,
        ),
        (
            [
                *(P0, Delivered(key=b"k", **AT_A, attempt=1), Nacked(**AT_A, attempt=1)),
                *(Delivered(key=b"k", **AT_A, attempt=2), Nacked(**AT_A)),
            ],
            NUMBER,
        ),
        (
            [
                *(P0, Delivered(key=b"k", **AT_A, attempt=1), Nacked(**AT_A, attempt=1)),
                *(Delivered(key=b"k", **AT_A, attempt=2), Released(**AT_A)),
            ],
            NUMBER,
        ),
        ([P0, Delivered(key=b"k", **AT_A, attempt=1), Acked(**AT_B, attempt=1)], COUNT),
        ([P0, Delivered(key=b"k", **AT_A, attempt=1), Nacked(**AT_B, attempt=1)], COUNT),
        ([P0, Unclear(offset=0, reason="why")], "why"),
        ([Unclear(offset=0)], "the recorder cannot know what became of it"),
    ],
)
def test_a_message_of_which_nobody_can_know_is_not_judged_and_counted(history: list[Event], reason: str) -> None:
    later: list[Event] = [
        *(Delivered(offset=0, key=b"other", consumer=name, attempt=1) for name in "ab"),
        *(Connected(consumer="a"), Connected(consumer="b"), AtRest()),
    ]
    assert ([], {reason: 1}) == judged(*history, *later, claims=Claims(promises=JUDGED - {Promise.SAFE_CURSOR}))


def test_a_key_and_a_consumer_are_not_expected_to_go_on_because_of_what_is_not_known() -> None:
    claims = Claims(promises={"progress", "no-loss"}, per_consumer=1)
    begin: list[Event] = [Connected(consumer="a"), P0, Delivered(key=b"k", **AT_A, attempt=1)]
    unclear = Unclear(offset=0, reason="why")
    waiting: list[Event] = [Published(offset=1, key=b"k"), Published(offset=2, key=b"l")]
    assert ([], {"why": 1}) == judged(*begin, unclear, *waiting, AtRest(), claims=claims)
    ends: list[Event] = [
        Acked(**AT_A, counted=True),
        Committed(resume_offset=1),
        Settled(offset=0, reason=SettledBy.OPERATOR),
    ]
    for end in ends:
        assert ["no-loss", "no-loss", "progress", "progress"] == sorted(
            judged(*begin, unclear, *waiting, end, AtRest(), claims=claims)[0]
        )
    gone: list[Event] = [Gone(consumer="a"), Connected(consumer="a")]
    assert ["no-loss", "progress"] == sorted(judged(*begin, unclear, *waiting, *gone, AtRest(), claims=claims)[0])


REWINDS = Claims(promises={"no-loss", "fence", "one-holder", "key-order", "safe-cursor", "progress"}, rewinds=True)
DONE: list[Event] = [
    *(Connected(consumer="a"), Published(offset=0, key=b"k"), Published(offset=1, key=b"l")),
    *(Delivered(offset=0, key=b"k", consumer="a", attempt=1), Delivered(offset=1, key=b"l", consumer="a", attempt=1)),
    Acked(offset=1, consumer="a", attempt=1, counted=True),
]
AGAIN = Delivered(offset=1, key=b"l", consumer="a", attempt=1)


def test_what_was_done_above_the_cursor_may_come_again_after_a_rewind() -> None:
    ack = Acked(offset=1, consumer="a", attempt=1, counted=True)
    for rewind in (Rewound(), Rewound(resume_offset=1)):
        assert ([], {}) == judged(*DONE, rewind, AGAIN, ack, claims=REWINDS)
    assert ["no-loss"] == judged(*DONE, AGAIN, claims=REWINDS)[0]
    assert ["no-loss"] == judged(*DONE, Rewound(resume_offset=2), AGAIN, claims=REWINDS)[0]
    assert ["no-loss"] == judged(*DONE, Rewound(), AGAIN, claims=replace(REWINDS, rewinds=False))[0]
    assert ["no-loss"] == judged(*DONE, Rewound(), AGAIN, ack, AGAIN, claims=REWINDS)[0]


def test_what_was_committed_may_not_come_again() -> None:
    all_done: list[Event] = [Acked(offset=0, consumer="a", attempt=1, counted=True), Committed(resume_offset=2)]
    assert ["no-loss"] == judged(*DONE, *all_done, Rewound(), AGAIN, claims=REWINDS)[0]


def test_what_was_open_at_a_rewind_need_not_be_answered_for_and_is_still_lost_if_it_never_comes() -> None:
    refused = Acked(offset=0, consumer="a", attempt=1, counted=False)
    assert ["no-loss"] == judged(*DONE, refused, claims=REWINDS)[0]
    assert ([], {}) == judged(*DONE, Rewound(), refused, claims=REWINDS)
    assert {"no-loss", "progress"} == set(judged(*DONE, Rewound(), refused, AtRest(), claims=REWINDS)[0])
    unsaid = Acked(offset=0, consumer="a", attempt=1)
    assert ([], {COUNT: 1}) == judged(*DONE, Rewound(), unsaid, claims=REWINDS)


def test_what_comes_again_holds_neither_its_key_nor_the_cursor() -> None:
    nack = Nacked(offset=1, consumer="a", attempt=1, counted=True)
    later: list[Event] = [Published(offset=2, key=b"l"), Delivered(offset=2, key=b"l", consumer="a", attempt=1)]
    assert ([], {}) == judged(*DONE, Rewound(), AGAIN, nack, *later, claims=REWINDS)
    assert ([], {}) == judged(*DONE, Rewound(), AGAIN, nack, Published(offset=2, key=b"l"), AtRest(), claims=REWINDS)
    keeps_up = replace(REWINDS, cursor_keeps_up=True)
    first = Acked(offset=0, consumer="a", attempt=1, counted=True)
    assert ([], {}) == judged(*DONE, Rewound(), AGAIN, first, Committed(resume_offset=1), Quiet(), claims=keeps_up)
