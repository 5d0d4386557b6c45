"""Steps that stand still half-way while others go on, and a process that is killed in the middle of one."""

from typing import Any

import pytest
from tests.kit.asked_broker import AskedBroker, AskedMachine, DeletesWhatItHasSeen, GroupedMachine, Row, TwoTakeTheSame
from tests.kit.file_broker import AnswersBeforeItWrites
from tests.kit.killed_broker import KilledMachine, broken
from tests.kit.mortal_broker import MortalMachine
from tests.kit.paused_broker import BETWEEN_LOOK_AND_CLAIM, PausedMachine, paused
from tests.kit.shared_file import LooksBeforeItClaims
from tests.kit.small_broker import ACK_TIMEOUT_MS, RETRY_MS

from keyshared.testing import Delivery, Promise
from keyshared.testing.find import ScheduleRun, run_schedule
from keyshared.testing.history import Acked, Delivered, Gone, Held, Published, Quiet, Unclear
from keyshared.testing.machine import KeySharedMachine
from keyshared.testing.steps import (
    Ack,
    AckThrough,
    BeginAck,
    BeginReceive,
    Connect,
    Disconnect,
    FinishAck,
    FinishReceive,
    KillAt,
    Nack,
    NackLate,
    Postpone,
    Publish,
    PublishLater,
    Restart,
    Schedule,
    StopReading,
    Wait,
)


def asked(schedule: Schedule, broker: type | None = None, machine: type[AskedMachine] = AskedMachine) -> ScheduleRun:
    driver = machine.driver_class
    driver = driver if broker is None else type("Broken", (driver,), {"broker_class": broker})
    return run_schedule(type("Machine", (machine,), {"driver_class": driver}), schedule)


def mortal(*schedule: object) -> ScheduleRun:
    return run(MortalMachine, *schedule)


def run(machine: type[KeySharedMachine], *schedule: Any) -> ScheduleRun:
    return run_schedule(machine, schedule)


def position(replay: ScheduleRun, *kinds: type) -> int:
    return next(at for at, event in enumerate(replay.history) if isinstance(event, kinds))


# --- receives -------------------------------------------------------------------------------------------------------

TOGETHER: Schedule = (Connect("c1"), Connect("c2"), BeginReceive("c1"), Publish(b"a"), FinishReceive())


def test_two_that_receive_at_once_do_not_get_the_same() -> None:
    assert asked(TOGETHER).violation is None
    found = asked(TOGETHER, TwoTakeTheSame).violation
    assert found is not None
    assert Promise.ONE_HOLDER is found.promise
    one_by_one = tuple(step for step in TOGETHER if not isinstance(step, BeginReceive))
    assert asked(one_by_one, TwoTakeTheSame).violation is None


def test_who_stands_still_after_the_last_statement_has_the_message() -> None:
    replay = asked((Connect("c1"), BeginReceive("c1", 2), Publish(b"a"), Connect("c2"), Ack()))
    assert replay.violation is None
    assert ["c1"] == [each.consumer for each in replay.history if isinstance(each, Delivered)]


@pytest.mark.parametrize("step", [Wait(1), Connect("c2"), Disconnect("c1"), Restart()], ids=str)
def test_nobody_stands_still_while_time_passes_or_somebody_comes_or_goes(step: object) -> None:
    replay = asked((Connect("c1"), BeginReceive("c1", 2), Publish(b"a"), step))  # type: ignore[arg-type]  # of steps
    assert replay.violation is None
    if step != Restart():
        assert FinishReceive() not in replay.taken
        later = [each for each in replay.history[position(replay, Delivered) :] if each.at_ms]
        assert later == [] or position(replay, Delivered) < replay.history.index(later[0])


def test_while_somebody_stands_still_nobody_is_said_to_have_had_the_time_to_act() -> None:
    replay = asked((Connect("c1"), BeginReceive("c1"), Publish(b"a"), Publish(b"b"), FinishReceive()))
    since = position(replay, Published)
    assert Quiet not in {type(each) for each in replay.history[since : position(replay, Delivered)]}


def test_who_stands_still_does_not_stop_reading_and_begins_nothing_else() -> None:
    begun = (Connect("c1"), BeginReceive("c1"), Publish(b"a"))
    for step in (StopReading("c1"), BeginReceive("c1"), BeginReceive("c2")):
        assert begun == asked((*begun, step)).taken


def test_where_several_of_a_key_may_be_open_nobody_stands_still() -> None:
    replay = asked(TOGETHER, machine=GroupedMachine)
    assert BeginReceive("c1") not in replay.taken


def test_who_stood_still_to_the_end_asks_once_more_before_anything_is_called_lost() -> None:
    replay = run(
        PausedMachine, Connect("c1"), Publish(b"a"), BeginReceive("c1", 1), Publish(b"a"), Publish(b"b"), Ack()
    )
    assert replay.violation is None
    assert [0, 1, 2] == sorted(each.offset for each in replay.history if isinstance(each, Acked))


# --- answers --------------------------------------------------------------------------------------------------------


class RefusesOneTooEarly(AskedBroker):
    """A lease ends a millisecond before its time."""

    def has(self, row: Row, name: str, delivery: Delivery) -> bool:
        return super().has(row, name, delivery) and self.now < row.until_ms - 1


TOO_LATE: Schedule = (Connect("c1"), Publish(b"a"), BeginAck(), Connect("c2"), Wait(100), FinishAck())


def test_an_answer_of_a_consumer_that_was_paused_meanwhile_does_not_settle_what_another_has() -> None:
    assert asked(TOO_LATE).violation is None
    found = asked(TOO_LATE, DeletesWhatItHasSeen).violation
    assert found is not None
    assert Promise.FENCE is found.promise
    at_once = tuple(step for step in TOO_LATE if not isinstance(step, BeginAck))
    assert asked(at_once, DeletesWhatItHasSeen).violation is None


def test_an_answer_that_comes_to_its_end_after_the_delivery_has_expired_may_be_refused() -> None:
    alone = Publish(b"a"), Connect("c1"), BeginAck(), BeginReceive("c1"), Wait(100), FinishAck()
    replay = asked(alone)  # nobody has received it again by then
    assert replay.violation is None
    assert replay.history[position(replay, Acked)].at_ms == 100
    found = asked((*alone[:4], Wait(99), FinishAck()), RefusesOneTooEarly).violation
    assert found is not None
    assert found.promise is Promise.NO_LOSS


def test_an_answer_under_way_lets_the_next_message_go_at_any_time() -> None:
    replay = asked((Connect("c1"), Publish(b"a", 2), BeginAck(0, 2), Publish(b"b"), FinishAck()))
    assert replay.violation is None
    assert position(replay, Acked) < [type(each) for each in replay.history].index(Delivered, position(replay, Acked))


def test_a_delivery_that_is_answered_for_is_not_answered_for_again() -> None:
    replay = asked((Connect("c1"), Publish(b"a"), BeginAck(), Ack(), Nack(), BeginAck()))
    assert (Connect("c1"), Publish(b"a"), BeginAck()) == replay.taken


@pytest.mark.parametrize("last", [Disconnect("c1"), Disconnect("c2")], ids=str)
def test_an_answer_ends_before_its_consumer_goes(last: Disconnect) -> None:
    replay = asked((Connect("c1"), Publish(b"a"), Connect("c2"), BeginAck(), last))
    assert replay.violation is None
    assert (position(replay, Acked) < position(replay, Gone)) or last.consumer == "c2"


# --- kills ----------------------------------------------------------------------------------------------------------

BEGIN: Schedule = (Connect("c1"), Publish(b"a", 2))


@pytest.mark.parametrize("statement", [1, 2, 30])
@pytest.mark.parametrize(
    "step",
    [
        Ack(),
        AckThrough(),
        Nack(),
        Postpone(0, 5),
        Publish(b"b"),
        PublishLater(b"b", 5),
        Connect("c2"),
        Disconnect("c1"),
        Wait(5),
        Wait(ACK_TIMEOUT_MS),
        Restart(),
    ],
    ids=str,
)
def test_a_correct_broker_may_be_killed_anywhere(step: object, statement: int) -> None:
    replay = mortal(*BEGIN, KillAt(statement), step, Publish(b"a"))
    assert replay.violation is None
    assert Gone in {type(each) for each in replay.history}


def test_a_message_whose_ack_got_no_answer_is_not_judged() -> None:
    found = mortal(*BEGIN, KillAt(2), Ack())
    (unclear, *_) = (each for each in found.history if isinstance(each, Unclear))
    assert position(found, Gone) < found.history.index(unclear)
    assert {"its process was killed in a call for this message": 1} == dict(found.unjudged_messages)


def test_a_message_without_an_answer_is_published_when_it_is_seen() -> None:
    replay = mortal(Connect("c1"), KillAt(2), Publish(b"a"), Ack())
    assert [0] == [each.offset for each in replay.history if isinstance(each, Published)]
    assert (Connect("c1"), KillAt(2), Publish(b"a"), Ack()) == replay.taken


def test_as_long_as_it_is_not_known_whether_a_message_is_in_the_log_none_follows() -> None:
    replay = mortal(KillAt(1), Publish(b"a"), Publish(b"b"))
    assert (KillAt(1), Publish(b"a")) == replay.taken


def test_a_message_for_later_without_an_answer_is_still_for_later() -> None:
    replay = mortal(Connect("c1"), KillAt(2), PublishLater(b"a", 50), Wait(60))
    assert [50] == [each.until_ms for each in replay.history if isinstance(each, Held)][:1] or replay.violation is None


def test_what_was_postponed_waits_on_when_a_late_answer_gets_none() -> None:
    replay = mortal(*BEGIN, Postpone(0, RETRY_MS + 1), KillAt(1), NackLate(), Wait(RETRY_MS))
    assert replay.violation is None


def test_a_process_that_is_killed_between_its_answer_and_its_write_has_forgotten_what_it_said() -> None:
    schedule = (*BEGIN, KillAt(10), Ack())
    assert run(KilledMachine, *schedule).violation is None
    found = run(broken(AnswersBeforeItWrites), *schedule).violation
    assert found is not None
    assert Promise.NO_LOSS is found.promise
    assert run(broken(AnswersBeforeItWrites), *BEGIN, Restart(), Ack(), Restart()).violation is None


def test_a_process_that_is_stopped_between_a_look_and_a_claim_shows_who_does_not_look_again() -> None:
    stopped = BETWEEN_LOOK_AND_CLAIM
    never_stopped = [step for step in stopped if not isinstance(step, BeginReceive)]
    broken = paused(LooksBeforeItClaims)
    found = run(broken, *stopped).violation
    assert found is not None
    assert found.promise is Promise.ONE_HOLDER
    assert run(broken, *never_stopped).violation is run(PausedMachine, *stopped).violation is None


@pytest.mark.parametrize("statements", [1, 2, 3, 4, 9])
def test_a_process_that_is_stopped_goes_on_where_it_was(statements: int) -> None:
    replay = run(PausedMachine, Connect("c1"), Connect("c2"), BeginReceive("c1", statements), Publish(b"a"))
    (first, *_) = [each for each in replay.history if isinstance(each, Delivered)]
    assert first.consumer == ("c2" if statements == 1 else "c1")
    assert replay.violation is None
