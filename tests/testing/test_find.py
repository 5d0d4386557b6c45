"""Searches: what they find, in how many tries, and how they say it."""

import unittest
from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from typing import Any, ClassVar

import pytest
from tests.kit.all_faults import FAULTS
from tests.kit.small_broker import SmallDriver, SmallMachine

from keyshared.testing import USUAL, Claims, ClaimsError, Delivery, Driver, DriverError, Promise
from keyshared.testing.find import BUDGET, Budget, find_violation, find_violations, run_schedule, search
from keyshared.testing.history import Delivered, Released, Rewound
from keyshared.testing.machine import BrokenError, KeySharedMachine
from keyshared.testing.steps import LATE_ANSWERS, Ack, Connect, Nack, Publish, PublishMany, Step, Wait
from keyshared.testing.subject import subject_of
from keyshared.testing.survey import survey

QUICK = BUDGET._replace(tries=60)


def broken(name: str) -> type[KeySharedMachine]:
    return next(fault for fault in FAULTS if fault.name == name).machine


class Queue(Driver):
    """A queue without a server: the messages of a key one after the other, each consumer one message at a time."""

    keeps_keys: ClassVar[bool] = True

    def __init__(self) -> None:
        self.rows: list[list[Any]] = []  # key, whether it is taken
        self.hand: dict[str, int | None] = {}

    def connect(self, consumer: str, filters: Sequence[str] = ()) -> None:
        assert not filters
        self.hand[consumer] = None

    def disconnect(self, consumer: str) -> None:
        had = self.hand.pop(consumer)
        if had is not None:
            self.rows[had][1] = False

    def publish(self, key: bytes | None) -> int:
        self.rows.append([key, False])
        return len(self.rows) - 1

    def receive(self, consumer: str) -> Sequence[Delivery]:
        if self.hand[consumer] is not None:
            return []
        busy = {self.rows[at][0] for at in self.hand.values() if at is not None} if self.keeps_keys else set()
        for offset, (key, taken) in enumerate(self.rows):
            if not taken and key not in busy:
                self.rows[offset][1], self.hand[consumer] = True, offset
                return [Delivery(offset, key)]
        return []

    def ack(self, consumer: str, delivery: Delivery) -> bool | None:
        if self.hand.get(consumer) != delivery.offset:
            return False
        self.hand[consumer] = None
        return True


def machine(driver: type[Driver], **attributes: object) -> type[KeySharedMachine]:
    claims = Claims(promises={"one-holder", "no-loss"})
    return type("Machine", (KeySharedMachine,), {"driver_class": driver, "claims": claims, **attributes})


# --- searches ---------------------------------------------------------------------------------------------------------


def test_a_finding_has_the_shortest_way_and_says_how_many_tries_it_took() -> None:
    finding = find_violation(broken("CursorOneTooFar"))
    assert finding is not None
    assert finding.violation is not None
    assert finding.what == Promise.SAFE_CURSOR
    assert finding.tries >= 1
    assert finding.steps <= 2
    assert finding.replayed
    text = str(finding)
    assert text.startswith(("Connect(consumer=", "Publish(key="))
    assert text.endswith(str(finding.violation))


def test_every_broken_promise_is_found_behind_the_first_one() -> None:
    found = find_violations(machine(type("NoKeys", (Queue,), {"keeps_keys": False}), claims=Claims(promises=USUAL)))
    assert {each.what for each in found} == {"one-holder", "bounds"}


def test_a_correct_broker_is_tried_as_often_as_the_budget_says() -> None:
    result = search(machine(Queue), QUICK)
    assert (result.finding, result.tries) == (None, 60)
    assert find_violation(SmallMachine, QUICK._replace(tries=5)) is None
    assert search(machine(Queue), Budget(seconds=0)).tries == 0


def test_other_seeds_draw_other_schedules_and_the_same_ones_the_same() -> None:
    tries = {seed: search(broken("EvictsWithoutWaking"), BUDGET._replace(seed=seed, shortens=False)) for seed in (0, 1)}
    again = search(broken("EvictsWithoutWaking"), BUDGET._replace(shortens=False))
    assert tries[0].tries == again.tries
    assert tries[0].finding is not None
    assert tries[0].finding.schedule != (tries[1].finding and tries[1].finding.schedule)


def test_a_search_says_what_it_could_not_judge() -> None:
    missing = {str(each.promise): each.reason for each in search(machine(Queue, claims=Claims()), QUICK).unjudged}
    assert missing["safe-cursor"] == "write `committed`"
    assert "one-holder" not in missing


@pytest.mark.parametrize("subject", [Queue, SmallMachine])
def test_a_driver_or_a_machine_is_tried(subject: Any) -> None:
    assert subject_of(subject).driver_class in {Queue, SmallDriver}


@pytest.mark.parametrize(
    ("attributes", "problem"),
    [
        ({"driver_class": None}, "driver_class is None"),
        ({"claims": None}, "claims is None"),
        ({"keys": ()}, "keys is \\(\\)"),
        ({"names": "c1"}, "names is 'c1'"),
    ],
)
def test_what_a_machine_must_not_have_is_refused(attributes: dict[str, Any], problem: str) -> None:
    with pytest.raises((TypeError, ClaimsError), match=problem):
        search(type("Odd", (machine(Queue),), attributes))
    wrong: Any = 5
    with pytest.raises(TypeError, match="subject is 5"):
        find_violation(wrong)


def test_keys_of_a_machine_are_not_made_plainer() -> None:
    finding = find_violation(type("Named", (broken("MovesWithoutDraining"),), {"keys": (b"x", b"y")}))
    assert finding is not None
    assert {each.key for each in finding.schedule if isinstance(each, Publish)} <= {b"x", b"y"}


class Hidden(Queue):
    """A visibility timeout; answers name a message, which is right as long as no answer is late."""

    def __init__(self) -> None:
        super().__init__()
        self.now, self.until, self.attempts = 0, dict[int, int](), dict[int, int]()

    def connect(self, consumer: str, filters: Sequence[str] = ()) -> None: ...

    def disconnect(self, consumer: str) -> None: ...

    def receive(self, consumer: str) -> Sequence[Delivery]:
        found, seen = [], set[Any]()
        for offset, (key, done) in enumerate(self.rows):
            if done or key in seen:
                continue
            seen.add(key)
            if self.until.get(offset, 0) <= self.now:
                self.until[offset] = self.now + 60_000
                self.attempts[offset] = self.attempts.get(offset, 0) + 1
                found.append(Delivery(offset, key, self.attempts[offset]))
        return found

    def ack(self, consumer: str, delivery: Delivery) -> bool | None:
        self.rows[delivery.offset][1] = True
        return None

    def nack(self, consumer: str, delivery: Delivery) -> bool | None:
        self.until[delivery.offset] = 0
        return None

    def advance(self, ms: int) -> None:
        self.now += ms


def test_no_correct_queue_is_accused_whose_late_answers_are_not_tried_or_say_nothing() -> None:
    promises = {"one-holder", "key-order", "no-loss"}
    claims = Claims(promises=promises, ack_timeout_ms=60_000)
    for tolerance in (0, 2_000):
        claims = replace(claims, tolerance_ms=tolerance)
        tried = machine(Hidden, claims=claims, rest_ms=60_000, untried=LATE_ANSWERS)
        assert search(tried, BUDGET._replace(tries=200)).finding is None
    late = search(machine(Hidden, claims=claims, rest_ms=60_000), QUICK)
    assert late.finding is None, "what becomes of a message after a late answer of which nothing is said is not known"
    assert "say whether a late answer counted" in late.unjudged_messages


class Timeless(Hidden):
    """A message is hidden until time has passed, and no time passes."""

    advance = Driver.advance


def test_a_loss_where_no_time_passes_says_so() -> None:
    finding = find_violation(machine(Timeless, claims=Claims(promises={"no-loss"}), untried=LATE_ANSWERS))
    assert finding is not None
    assert "(then all consumers answer what comes until nothing comes any more" in str(finding)
    assert "write advance, and claim ack_timeout_ms)" in str(finding)


# --- exceptions -------------------------------------------------------------------------------------------------------


class Fails(Queue):
    """No keys at all, and the ack of the fifth message fails."""

    keeps_keys = False

    def ack(self, consumer: str, delivery: Delivery) -> bool | None:
        if delivery.offset == 4 and self.hand.get(consumer) == 4:
            raise KeyError(delivery.offset)
        return super().ack(consumer, delivery)


def test_an_exception_is_a_finding_and_loses_no_other() -> None:
    found = find_violations(machine(Fails), BUDGET._replace(tries=200))
    assert {each.what for each in found} == {"one-holder", "exception"}
    raised = next(each for each in found if each.raised is not None)
    assert raised.raised is not None
    assert raised.violation is None
    assert raised.raised.by == "the driver"
    assert "exception: the driver raised KeyError: 4 (test_find.py:" in str(raised)
    assert run_schedule(Fails, raised.schedule, Claims(promises=set())).raised is not None


def test_the_system_is_told_apart_from_its_driver() -> None:
    class Remote(SmallDriver):
        def ack(self, consumer: str, delivery: Delivery) -> bool | None:
            del self.broker.messages[delivery.offset], self.broker.messages[delivery.offset]
            return True

    class Astray(SmallDriver):
        def ack(self, consumer: str, delivery: Delivery) -> bool | None:
            self.broker.leave("nobody")
            return True

    begin: list[Step] = [Connect("c1"), Publish(b"a"), Ack()]
    by_driver, by_system = run_schedule(Remote, begin).raised, run_schedule(Astray, begin).raised
    assert by_driver is not None
    assert by_system is not None
    assert (by_driver.by, by_system.by) == ("the driver", "the system")
    assert by_system.place.startswith("small_broker.py:")


def test_a_mistake_of_the_driver_ends_the_search() -> None:
    class Odd(Queue):
        def publish(self, key: bytes | None) -> int:
            return -len(self.rows)

    with pytest.raises(DriverError, match="publish returned"):
        find_violation(machine(Odd))


def test_what_is_seen_once_says_so() -> None:
    number = count()

    class OneOff(Queue):
        """The twentieth queue forgets its second message."""

        def __init__(self) -> None:
            super().__init__()
            self.odd = next(number) == 20

        def publish(self, key: bytes | None) -> int:
            self.rows.append([key, self.odd and len(self.rows) == 1])
            return len(self.rows) - 1

    finding = find_violation(machine(OneOff))
    assert finding is not None
    assert not finding.replayed
    assert str(finding).splitlines()[0] == "(seen once: the same steps did not show it again)"


# --- a group that resumes at its cursor -------------------------------------------------------------------------------


class Group(Driver):
    """One partition; its owner works on keys in parallel; a rebalance starts again at the cursor."""

    remembers_acks = False
    resumes_at_cursor = True
    loses: ClassVar[bool] = False

    def __init__(self) -> None:
        self.log: list[bytes | None] = []
        self.start, self.members = 0, list[str]()
        self.done, self.open, self.told = set[int](), dict[int, str](), list[Any]()
        self.deliveries = dict[int, int]()

    def rebalance(self) -> None:
        for offset, consumer in self.open.items():
            self.told.append(Released(offset=offset, consumer=consumer, attempt=self.deliveries[offset]))
        self.open, self.done = {}, set(range(self.start + 1)) if self.loses and self.log else set()

    def connect(self, consumer: str, filters: Sequence[str] = ()) -> None:
        assert not filters
        self.members.append(consumer)
        self.rebalance()

    def disconnect(self, consumer: str) -> None:
        self.members.remove(consumer)
        self.rebalance()

    def restart(self) -> None:
        self.members.clear()
        self.rebalance()

    def publish(self, key: bytes | None) -> int:
        self.log.append(key)
        return len(self.log) - 1

    def receive(self, consumer: str) -> Sequence[Delivery]:
        new = []
        for offset in range(self.start, len(self.log)) if consumer == min(self.members) else ():
            key = self.log[offset]
            if offset in self.done or any(self.log[other] == key for other in self.open):
                continue
            self.open[offset] = consumer
            self.deliveries[offset] = self.deliveries.get(offset, 0) + 1
            new.append(Delivery(offset, key, self.deliveries[offset]))
        return new

    def ack(self, consumer: str, delivery: Delivery) -> bool | None:
        if self.open.get(delivery.offset) != consumer or self.deliveries[delivery.offset] != delivery.attempt:
            return False
        del self.open[delivery.offset]
        self.done.add(delivery.offset)
        while self.start in self.done:
            self.start += 1
        return True

    def cursor(self) -> int | None:
        return self.start

    def notices(self) -> Sequence[Any]:
        told, self.told = self.told, []
        return told


GROUP = Claims(promises={"one-holder", "key-order", "no-loss", "safe-cursor", "bounds"})


def test_duplicates_that_a_rebalance_allows_break_nothing_and_losses_are_found() -> None:
    result = search(machine(Group, claims=GROUP), BUDGET._replace(tries=200))
    assert result.finding is None, result.finding
    assert not result.unjudged_messages
    run = run_schedule(Group, [Connect("c1"), Publish(b"a"), Publish(b"b"), Ack(1), Connect("c2")], GROUP)
    assert [each.offset for each in run.history if isinstance(each, Delivered)] == [0, 1, 0, 1]
    assert [each.resume_offset for each in run.history if isinstance(each, Rewound)] == [0, 0]
    loses = find_violation(machine(type("Loses", (Group,), {"loses": True}), claims=GROUP))
    assert loses is not None
    assert loses.what in {"no-loss", "key-order"}


def test_a_duplicate_that_is_not_allowed_is_called_one() -> None:
    strict = type("Strict", (Group,), {"remembers_acks": True, "resumes_at_cursor": False})
    finding = find_violation(machine(strict, claims=Claims(promises={"no-loss"})))
    assert finding is not None
    assert finding.violation is not None
    assert "a duplicate, as it is done" in finding.violation.explanation


# --- several in one call ----------------------------------------------------------------------------------------------


class Batches(Queue):
    def publish_many(self, keys: Sequence[bytes | None]) -> Sequence[int]:
        return [self.publish(key) for key in keys][: 99 if len(keys) != 3 else 2]


def test_messages_are_published_in_one_call() -> None:
    steps: list[Step] = [Connect("c1"), PublishMany((b"a", b"b")), Ack(), Ack()]
    run = run_schedule(machine(Batches, claims=Claims(promises=USUAL), max_outstanding=4), steps)
    assert (run.taken, run.violation) == (tuple(steps), None)
    assert not any(isinstance(each, PublishMany) for each in run_schedule(Queue, steps, Claims(promises=set())).taken)
    with pytest.raises(DriverError, match="it must return 3 offsets, one for each key"):
        run_schedule(Batches, [PublishMany((b"a",) * 3)])


# --- as a test --------------------------------------------------------------------------------------------------------


def outcome(case: type[unittest.TestCase]) -> unittest.TestResult:
    result = unittest.TestResult()
    case().run(result)
    return result


def test_the_test_case_of_a_machine_fails_with_the_finding() -> None:
    tried = broken("CursorOneTooFar")
    assert tried.TestCase is tried.TestCase
    with pytest.raises(BrokenError, match="found by schedule 1:") as raised:
        tried.TestCase().runTest()
    assert raised.value.finding.what == Promise.SAFE_CURSOR
    assert len(outcome(tried.TestCase).failures) == 1
    SmallMachine.TestCase.budget = QUICK._replace(tries=3)
    assert outcome(SmallMachine.TestCase).wasSuccessful()
    with pytest.raises(BrokenError, match="raised KeyError") as failed:
        machine(Fails, claims=Claims(promises=set())).TestCase().runTest()
    assert isinstance(failed.value.__cause__, KeyError)


# --- surveys ----------------------------------------------------------------------------------------------------------


def test_a_survey_goes_from_plain_use_to_crashes() -> None:
    said: list[str] = []
    result = survey(machine(Group, claims=GROUP), 2, said.append)
    assert [line.partition(":")[0] for line in said] == [
        *("plain use", "consumers leave and come back", "late answers", "crashes")
    ]
    assert not result.findings
    assert {each.outcome for each in result.verdicts[:-1]} == {"holds"}
    assert str(result.verdicts[-1]) == str(
        ("timeouts", "not judged", "time does not pass: give the driver advance, and claim ack_timeout_ms")
    ).replace("(", "Verdict(promise=", 1).replace(", 'not", ", outcome='not", 1).replace(", 'time", ", detail='time", 1)


def test_a_survey_of_a_driver_claims_what_is_usual_and_lets_no_time_pass() -> None:
    result = survey(SmallDriver, 2)
    names = {each.promise: each.outcome for each in result.verdicts}
    assert names["fence"] == names["safe-cursor"] == names["bounds"] == "holds"
    assert names["timeouts"] == "not judged"
    broken_driver = broken("EvictionLoses").driver_class
    found = survey(broken_driver, 2)
    assert {"safe-cursor", "no-loss"} & {each.what for each in found.findings}
    assert "breaks      in " in str(found)


def test_time_and_nacks_are_taken_as_steps() -> None:
    run = run_schedule(SmallMachine, [Connect("c1"), Publish(b"a"), Nack(), Wait(10)], Claims())
    assert run.violation is None
    assert run.unjudged
