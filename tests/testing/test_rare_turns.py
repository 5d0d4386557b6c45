"""What happens rarely, each in a few lines: answers under way, logs of members, values that cannot be shown."""

from collections.abc import Sequence
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from keyshared import effects
from keyshared.testing import (
    Checker,
    Claims,
    ClaimsError,
    Delivery,
    Driver,
    check_history,
    merge_histories,
    outstanding,
)
from keyshared.testing.__main__ import main
from keyshared.testing._arguments import check_count
from keyshared.testing.claims import read_claims
from keyshared.testing.dispatcher import told_of
from keyshared.testing.driver import _state_of
from keyshared.testing.errors import in_short
from keyshared.testing.find import run_schedule, shorten
from keyshared.testing.history import (
    Acked,
    AtRest,
    Committed,
    Connected,
    Delivered,
    Done,
    Dropped,
    Event,
    Expired,
    Gone,
    Held,
    HoldReason,
    LimitChanged,
    Nacked,
    Owned,
    Published,
    Quiet,
    Redriven,
    Rewound,
    Settled,
    SettledBy,
    Suspended,
    Unclear,
)
from keyshared.testing.log import Log
from keyshared.testing.steps import Ack, Connect, Postpone, Publish, PublishMany, Step


class NewestFirst(Driver):
    """Hands out the newest message only, and cannot be answered."""

    def __init__(self) -> None:
        self.length, self.has = 0, False

    def connect(self, consumer: str, filters: Sequence[str] = ()) -> None: ...

    def disconnect(self, consumer: str) -> None: ...

    def publish(self, key: bytes | None) -> int:
        self.length += 1
        return self.length - 1

    def receive(self, consumer: str) -> Sequence[Delivery]:
        if self.has or self.length < 2:
            return []
        self.has = True
        return [Delivery(1, b"a")]

    def ack(self, consumer: str, delivery: Delivery) -> bool | None:
        raise RuntimeError("no answer")


def test_what_fails_after_a_message_was_overtaken_does_not_hide_that() -> None:
    run = run_schedule(NewestFirst, [Connect("c1"), Publish(b"a", 2), Ack()], Claims(promises={"key-order", "no-loss"}))
    assert run.raised is None
    assert run.violation is not None
    assert run.violation.promise == "key-order"


class Breaks(NewestFirst):
    """Fails as soon as it has handed its message out."""

    def receive(self, consumer: str) -> Sequence[Delivery]:
        if self.has:
            raise RuntimeError("no more")
        return super().receive(consumer)


def test_what_fails_in_the_step_that_overtakes_a_message_does_not_hide_that() -> None:
    steps: list[Step] = [Connect("c1"), Connect("c2"), Publish(b"a", 2)]
    run = run_schedule(Breaks, steps, Claims(promises={"key-order", "no-loss"}))
    assert run.violation is not None
    assert run.violation.promise == "key-order"


class Again(NewestFirst):
    """Delivers its message for ever, and postpones nothing."""

    def receive(self, consumer: str) -> Sequence[Delivery]:
        if self.has or not self.length:
            return []
        self.has = True
        return [Delivery(0, b"a")]

    def ack(self, consumer: str, delivery: Delivery) -> bool | None:
        self.has = False
        return True

    def advance(self, ms: int) -> None: ...

    def postpone(self, consumer: str, delivery: Delivery, ms: int) -> bool | None:
        return False


def test_a_system_that_never_ends_is_left_alone_after_a_while() -> None:
    run = run_schedule(Again, [Connect("c1"), Publish(b"a"), Postpone(0, 10)], Claims(promises=set()))
    assert (run.raised, run.violation) == (None, None)
    assert run.history[-1] == AtRest(at_ms=run.history[-1].at_ms)


def test_a_nack_of_what_must_have_expired_that_says_nothing_leaves_its_message_unclear() -> None:
    checker = Checker(Claims(promises={"no-loss"}, ack_timeout_ms=10))
    history: list[Event] = [
        *(Published(offset=0, key=b"k", at_ms=0), Delivered(offset=0, key=b"k", consumer="a", attempt=1, at_ms=0)),
        *(Nacked(offset=0, consumer="a", attempt=1, at_ms=100), AtRest(at_ms=200)),
    ]
    assert [] == list(checker.violations(history))
    assert sum(checker.unjudged_messages.values()) == 1


def test_few_messages_that_are_not_judged_are_remembered_when_they_are_done(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outstanding, "_REMEMBERED_UNJUDGED", 1)
    begin: list[Event] = [Published(offset=offset, key=b"k") for offset in range(3)]
    begin += [Unclear(offset=offset) for offset in range(3)]
    assert [] == check_history([*begin, *(Dropped(offset=offset) for offset in range(3))], Claims(promises={"no-loss"}))


def test_two_cursors_that_are_ahead_of_the_log_accuse_once() -> None:
    history: list[Event] = [Published(offset=0, key=b"k"), Dropped(offset=0), Committed(resume_offset=3)]
    history += [Committed(resume_offset=5), Published(offset=1, key=b"k"), Published(offset=4, key=b"k")]
    found = check_history(history, Claims(promises={"safe-cursor"}))
    assert [str(violation.explanation) for violation in found] == [
        "cursor 3 passed offset 1, which was published only then",
        "cursor 5 passed offset 4, which was published only then",
    ]


def test_nobody_waits_for_a_turn_while_what_was_done_may_be_done_again() -> None:
    history: list[Event] = [Connected(consumer="a"), Published(offset=0, key=b"k")]
    history += [Owned(key=b"k", consumer="a"), Delivered(offset=0, key=b"k", consumer="a", attempt=1)]
    history += [Acked(offset=0, consumer="a", attempt=1, counted=True), Rewound(resume_offset=0)]
    history += [Published(offset=1, key=b"k"), Quiet(), AtRest()]
    assert [] == check_history(history, Claims(promises={"fairness"}, fairness=0, rewinds=True))


def test_answers_under_way_are_placed_after_what_they_explain() -> None:
    log = Log(Claims(promises=set()), lambda _: None)
    one, two = log.begin(), log.begin()
    at: dict[str, Any] = {"consumer": "a", "attempt": 1}
    log.write(Expired(offset=0, **at))
    first, second = Acked(offset=0, **at, counted=True), Acked(offset=1, **at, counted=True)
    log.end(one, first)
    log.end(two, second)
    assert [event for event in log.history if event not in {first, second}] == [Expired(offset=0, **at)]
    assert log.history.index(first) > log.history.index(Expired(offset=0, **at))


def test_a_member_that_leaves_about_when_another_gets_a_message_leaves_it_unclear() -> None:
    gone, joined = Gone(consumer="a", at_ms=100), Connected(consumer="a", at_ms=105)
    delivered = Delivered(offset=0, key=b"k", consumer="a", attempt=1, at_ms=105)
    published = Published(offset=0, key=b"k")
    merged = merge_histories([[published]], [[gone], [delivered]], Claims(promises={"no-loss"}), clock_error_ms=10)
    assert [type(event) for event in merged.history][:2] == [Published, Unclear]
    nothing = merge_histories([], [[gone], [joined]], Claims(promises={"no-loss"}), clock_error_ms=10)
    assert nothing.history == (gone, joined)


def test_the_keys_of_a_call_become_plain() -> None:
    def has_many(schedule: Sequence[object]) -> bool:
        return any(isinstance(step, PublishMany) for step in schedule)

    assert shorten((Connect("c1"), PublishMany((b"zz", b"yy"))), has_many) == (PublishMany((b"a",)),)


def fails(_: object) -> str:
    raise RuntimeError("not now")


SHY = type("int", (), {"__repr__": fails, "__module__": "builtins"})


def test_values_that_are_wrong_are_told() -> None:
    assert in_short(SHY()) == "<int that cannot be shown>"
    with pytest.raises(TypeError, match="n is '1'; it must be an int"):
        check_count("n", "1", 0)
    with pytest.raises(ClaimsError, match="it must be at most"):
        check_count("n", 10**30, 0)
    with pytest.raises(ClaimsError, match="text is 5; it must be a str"):
        read_claims(5)  # type: ignore[arg-type]  # wrong on purpose


def test_the_command_writes_to_any_stream() -> None:
    skeleton = Path(__file__).parents[2] / "examples" / "skeletons" / "sql_table.py"
    with redirect_stdout(StringIO()) as written:
        assert main(["try", str(skeleton), "--seconds", "1"]) == 0
    assert "TableDriver:" in written.getvalue()


def test_a_thread_that_has_ended_does_not_run() -> None:
    assert _state_of(Path("/no/such/task")) == "X"


def test_a_message_that_was_dropped_is_told() -> None:
    assert told_of(effects.Dropped(3, b"k", effects.DropReason.POISON)) == [Dropped(offset=3)]


def test_what_is_not_judged_and_comes_back_takes_capacity_until_it_ends() -> None:
    checker = Checker(Claims())
    early: list[Event] = [
        Connected(consumer="a", limit=1),
        Settled(offset=0, reason=SettledBy.OPERATOR),
        Published(offset=0, key=b"k"),
        Committed(resume_offset=1),
    ]
    back: list[Event] = [
        Redriven(offset=0, key=b"k", attempt=1),
        Delivered(offset=0, key=b"k", consumer="a", attempt=2),
        Committed(resume_offset=1),
        Published(offset=1, key=b"l"),
        Quiet(),
    ]
    assert [] == list(checker.violations([*early, *back])), "no cursor says that the delivery has ended"
    (late,) = checker.violations([Acked(offset=0, consumer="a", attempt=2, counted=True), Quiet()])
    assert "offset 1 waits or is lost" in late.explanation


def test_what_an_earlier_life_has_settled_takes_no_place() -> None:
    claims = Claims(max_tracked=1, promises={"bounds"})
    early: list[Event] = [Settled(offset=1, reason=SettledBy.OPERATOR), Published(offset=1, key=b"k")]
    waits: list[Event] = [Published(offset=0, key=b"k"), *early]
    assert [] == check_history(waits, claims)
    assert ["bounds"] == [found.promise for found in check_history([*waits, Published(offset=2, key=b"k")], claims)]


def test_of_cursors_behind_a_gap_only_the_latest_are_remembered() -> None:
    checker = Checker(Claims(promises={"safe-cursor"}))
    done: list[Event] = [Published(offset=0, key=b"k"), Settled(offset=0, reason=SettledBy.OPERATOR)]
    assert [] == list(checker.violations([*done, *(Committed(resume_offset=each) for each in range(2, 1_202))]))
    (found,) = checker.feed(Published(offset=1, key=b"k"))
    assert "passed offset 1, which was published only then" in found.explanation


def test_what_was_held_may_be_done_before_its_time_comes() -> None:
    checker = Checker(Claims(promises={"progress"}))
    for offset in range(40):
        held = Held(offset=offset, reason=HoldReason.RETRY, until_ms=1_000)
        done = Settled(offset=offset, reason=SettledBy.OPERATOR)
        assert [] == list(checker.violations([Published(offset=offset, key=b"k"), held, Quiet(at_ms=0), done]))
    assert [] == checker.feed(Quiet(at_ms=2_000))


def test_what_is_told_of_messages_that_are_not_judged_accuses_nobody() -> None:
    claims = Claims(
        promises={"progress", "fence", "settled-once", "affinity"}, unit_of=len, tells_done=True, ack_timeout_ms=10
    )
    history: list[Event] = [
        *(Connected(consumer="a"), Connected(consumer="b"), Suspended(consumer="x"), LimitChanged(consumer="x")),
        *(Owned(key=b"k", consumer="a"), Published(offset=0, key=b"k"), Unclear(offset=0)),
        *(Published(offset=1, key=b"l"), Quiet()),  # another message of its unit may be open
        Acked(offset=0, consumer="a", counted=True),
        *(Redriven(offset=0, key=b"k"), Redriven(offset=0, key=b"k"), Delivered(offset=0, key=b"k", consumer="a")),
        *(Unclear(offset=9), Published(offset=9, key=b"k"), Delivered(offset=9, key=b"k", consumer="b")),
        *(
            Gone(consumer="a"),
            Connected(consumer="a"),
            Unclear(offset=5),
            Unclear(offset=20),
            Committed(resume_offset=21),
        ),
        *(Delivered(offset=20, key=b"k", consumer="a"), Done(offset=99), Quiet()),
        *(Published(offset=30, key=b"m"), Settled(offset=30, reason=SettledBy.OPERATOR), Done(offset=30)),
        *(Redriven(offset=30, key=b"m"), Unclear(offset=30), Committed(resume_offset=31)),
        *(Published(offset=31, key=b"m"), Quiet(), Owned(key=b"long", consumer="a")),
        *(Published(offset=32, key=b"long", at_ms=0), Delivered(offset=32, key=b"long", consumer="a", attempt=1)),
        *(Quiet(at_ms=5), Published(offset=33, key=b"longer", at_ms=10)),
        Nacked(offset=32, consumer="a", attempt=1, counted=False),
        Nacked(offset=50, consumer="a", attempt=1, counted=True),
        Delivered(offset=40, key=b"other", consumer="a", attempt=1),
    ]
    assert [] == check_history(history, claims)
