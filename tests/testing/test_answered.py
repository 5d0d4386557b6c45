"""A fault of a driver is refused, and not taken for one of its broker."""

from typing import Any

import pytest

from keyshared.testing import Delivery, Driver, DriverError, Guarantees
from keyshared.testing.errors import UnsupportedError
from keyshared.testing.history import Delivered, Nacked
from keyshared.testing.machine import KeySharedMachine
from keyshared.testing.replay import run_schedule
from keyshared.testing.steps import Ack, Connect, Nack, NackLate, Postpone, Publish, PublishLater, Schedule


class Line(Driver):
    """One line for everybody."""

    def __init__(self) -> None:
        self.length, self.unread = 0, list[int]()

    def connect(self, consumer: str, filters: Any = ()) -> None: ...

    def disconnect(self, consumer: str) -> None: ...

    def publish(self, key: bytes | None) -> int:  # noqa: ARG002  # one line
        self.unread.append(self.length)
        self.length += 1
        return self.length - 1

    def receive(self, consumer: str) -> Any:  # noqa: ARG002  # one line
        new, self.unread = self.unread, []
        return [Delivery(offset, b"a") for offset in new]

    def ack(self, consumer: str, delivery: Delivery) -> bool | None: ...

    def advance(self, ms: int) -> None: ...


STEPS = (Connect("c1"), Publish(b"a"))
LATER = (*STEPS, PublishLater(b"a", 10))


@pytest.mark.parametrize(
    ("method", "answer", "told", "steps"),
    [
        ("ack", 0, "Wrong.ack returned 0; it must return True, False or None", (*STEPS, Ack())),
        ("nack", 1, "Wrong.nack returned 1; it must return True, False or None", (*STEPS, Nack())),
        ("postpone", "no", "Wrong.postpone returned 'no'; it must return True, False or None", (*STEPS, Postpone())),
        ("publish", None, "Wrong.publish returned None; it must return an int, greater than all before", STEPS),
        ("publish", True, "Wrong.publish returned True; it must return an int", STEPS),
        ("cursor", "7", "Wrong.cursor returned '7'; it must return an int, or None", STEPS),
        ("receive", None, "Wrong.receive returned None; it must return a list of Delivery, empty if nothing", STEPS),
        ("receive", [(0, b"a")], "Wrong.receive returned (0, b'a'); it must return a list of Delivery", STEPS),
        ("receive", [Delivery("0", b"a")], "it must return offsets as ints, and keys as bytes", STEPS),  # type: ignore[arg-type]
        ("receive", [Delivery(0, 7)], "it must return offsets as ints, and keys as bytes", STEPS),  # type: ignore[arg-type]
        ("receive", [Delivery(0, b"a", "10")], "it must return attempts as ints, or None", STEPS),  # type: ignore[arg-type]
        ("receive", [Delivery(0, b"a", True)], "it must return attempts as ints, or None", STEPS),
        ("receive", [Delivery(7, b"a")], "it must return offsets that publish has returned; what comes", STEPS),
        ("publish", 7, "Wrong.publish returned 7; it must return an int, greater than all before", (*STEPS, *STEPS)),
        ("publish_later", -1, "Wrong.publish_later returned -1; it must return an int, greater", LATER),
        ("notices", [Delivered(offset=0, consumer="c1")], "it must return what only the broker knows, such as", STEPS),
        ("notices", ["Owned"], "Wrong.notices returned 'Owned'; it must return what only the broker knows", STEPS),
        ("notices", None, "Wrong.notices returned None; it must return a list of happenings", STEPS),
    ],
)
def test_an_answer_that_a_driver_must_not_give_is_refused(
    method: str, answer: object, told: str, steps: Schedule
) -> None:
    wrong = type("Wrong", (Line,), {method: lambda *_: answer})
    with pytest.raises(DriverError) as caught:
        run_schedule(wrong, steps, Guarantees(promises={"no-loss"}))
    assert told in str(caught.value)
    assert caught.value.method == method


@pytest.mark.parametrize(
    ("half", "other"), [("kill_at", "restart"), ("begin_receive", "finish_receive"), ("begin_ack", "finish_ack")]
)
def test_a_driver_with_one_half_of_an_ability_is_refused(half: str, other: str) -> None:
    with pytest.raises(UnsupportedError, match=f"Half cannot {other}, which {half} needs; override it"):
        run_schedule(type("Half", (Line,), {half: lambda *_: None}), STEPS)


@pytest.mark.parametrize("answer", [True, False, None])
def test_what_an_ack_may_answer_is_taken(answer: bool | None) -> None:
    driver = type("Right", (Line,), {"ack": lambda *_: answer})
    assert run_schedule(driver, (*STEPS, Ack()), Guarantees(promises={"one-holder"})).violation is None


def test_a_nack_of_what_is_open_has_come_also_where_the_broker_does_not_say_so() -> None:
    driver = type("Mute", (Line,), {"nack": lambda *_: None})
    steps = (*STEPS, Nack(), NackLate())
    history = run_schedule(driver, steps, Guarantees(promises=set())).history
    assert [each.counted for each in history if isinstance(each, Nacked)] == [True, None]


NO_MACHINES: list[tuple[dict[str, object], str]] = [
    ({}, "driver_class is None; it must be a class derived from Driver or AsyncDriver"),
    ({"driver_class": Line()}, "it must be a class derived from Driver or AsyncDriver"),
    ({"driver_class": Line, "guarantees": {"no-loss"}}, "it must be of Guarantees"),
    ({"driver_class": Line, "keys": [b"a"]}, "keys is [b'a']; it must be of SearchStrategy"),
    ({"driver_class": Line, "names": ["c1"]}, "names is ['c1']; it must be of SearchStrategy"),
]


@pytest.mark.parametrize(("attributes", "told"), NO_MACHINES)
def test_a_machine_says_what_is_wrong_with_its_attributes(attributes: dict[str, Any], told: str) -> None:
    machine: type[KeySharedMachine] = type("Machine", (KeySharedMachine,), attributes)
    with pytest.raises(TypeError) as caught:
        machine()
    assert told in str(caught.value)
