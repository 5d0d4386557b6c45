"""A fault of a driver is refused, and not taken for one of its broker."""

from typing import Any, ClassVar

import pytest

from keyshared.testing import Claims, Delivery, Driver, DriverError
from keyshared.testing.driver import ABILITIES
from keyshared.testing.errors import KilledError, UnsupportedError
from keyshared.testing.find import run_schedule
from keyshared.testing.history import Delivered, Dropped, Expired, Freed, Published, Settled, SettledBy
from keyshared.testing.steps import Ack, Connect, KillAt, Nack, Postpone, Publish, PublishLater, Schedule


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
        (
            "publish",
            None,
            "Wrong.publish returned None; it must return an int of 64 bits, greater than all before",
            STEPS,
        ),
        ("publish", True, "Wrong.publish returned True; it must return an int", STEPS),
        ("publish", 1 << 63, "it must return an int of 64 bits, greater than all before", STEPS),
        ("publish", -(1 << 63) - 1, "it must return an int of 64 bits, greater than all before", STEPS),
        ("cursor", "7", "Wrong.cursor returned '7'; it must return an int of 64 bits, or None", STEPS),
        ("cursor", 1 << 63, "it must return an int of 64 bits, or None", STEPS),
        ("receive", None, "Wrong.receive returned None; it must return a list of Delivery, empty if nothing", STEPS),
        ("receive", [(0, b"a")], "Wrong.receive returned (0, b'a'); it must return a list of Delivery", STEPS),
        ("receive", [Delivery("0", b"a")], "it must return offsets as ints of 64 bits, and keys", STEPS),  # type: ignore[arg-type]
        ("receive", [Delivery(0, 7)], "it must return offsets as ints of 64 bits, and", STEPS),  # type: ignore[arg-type]
        ("receive", [Delivery(1 << 63, b"a")], "it must return offsets as ints of 64 bits, and keys as bytes", STEPS),
        ("receive", [Delivery(0, "\ud800")], "it must return offsets as ints of 64 bits, and keys as bytes", STEPS),
        ("receive", [Delivery(0, b"a", "10")], "attempts as ints of 64 bits, or None", STEPS),  # type: ignore[arg-type]
        ("receive", [Delivery(0, b"a", True)], "it must return attempts as ints of 64 bits, or None", STEPS),
        ("receive", [Delivery(0, b"a", 1 << 63)], "it must return attempts as ints of 64 bits, or None", STEPS),
        ("receive", [Delivery(7, b"a")], "it must return offsets that publish has returned; what comes", STEPS),
        (
            "publish",
            7,
            "Wrong.publish returned 7; it must return an int of 64 bits, greater than all",
            (*STEPS, *STEPS),
        ),
        ("publish_later", -1, "Wrong.publish_later returned -1; it must return an int of 64", LATER),
        ("notices", [Delivered(offset=0, consumer="c1")], "it must return what only the broker knows, such as", STEPS),
        ("notices", ["Owned"], "Wrong.notices returned 'Owned'; it must return what only the broker knows", STEPS),
        ("notices", [Dropped(offset=99)], "it must return offsets that publish has returned", STEPS),
        ("notices", [Expired(offset=99, consumer="c1")], "it must return offsets that publish has returned", STEPS),
        ("notices", [Freed(offset=99)], "it must return offsets that publish has returned; what comes", STEPS),
        ("notices", [Settled(offset=1 << 63, reason=SettledBy.OPERATOR)], "offsets and attempts as ints", STEPS),
        ("notices", [Expired(offset=0, consumer="c1", attempt=1 << 63)], "offsets and attempts as ints", STEPS),
        ("notices", None, "Wrong.notices returned None; it must return a list of events", STEPS),
    ],
)
def test_an_answer_that_a_driver_must_not_give_is_refused(
    method: str, answer: object, told: str, steps: Schedule
) -> None:
    wrong = type("Wrong", (Line,), {method: lambda *_: answer})
    with pytest.raises(DriverError) as caught:
        run_schedule(wrong, steps, Claims(promises={"no-loss"}))
    assert told in str(caught.value)
    assert caught.value.method == method


@pytest.mark.parametrize(
    ("half", "other"),
    [
        ("kill_at", "restart"),
        ("begin_receive", "finish_receive"),
        ("finish_receive", "begin_receive"),
        ("begin_ack", "finish_ack"),
        ("finish_ack", "begin_ack"),
        ("postpone", "advance"),
        ("publish_later", "advance"),
    ],
)
def test_a_driver_with_one_half_of_an_ability_is_refused(half: str, other: str) -> None:
    without = {each: getattr(Driver, each) for each in ABILITIES}
    with pytest.raises(UnsupportedError, match=f"Half cannot {other}, which {half} needs; override it"):
        run_schedule(type("Half", (Line,), {**without, half: lambda *_: None}), STEPS)


class KilledLine(Line):
    """The second publish is killed, and a new process goes on to count from where it wants to."""

    goes_on_at: ClassVar[int]

    def __init__(self) -> None:
        super().__init__()
        self.to_be_killed = False

    def kill_at(self, statement: int) -> None:  # noqa: ARG002  # always the first
        self.to_be_killed = True

    def restart(self) -> None: ...

    def publish(self, key: bytes | None) -> int:
        if self.to_be_killed:
            self.to_be_killed = False
            self.length = self.goes_on_at
            super().publish(key)
            self.length = 2
            raise KilledError
        return super().publish(key)


KILLED: Schedule = (Connect("c1"), Publish(b"a"), Publish(b"a"), KillAt(1), Publish(b"a"))
ONLY_LOSSES = Claims(promises={"no-loss"})


def test_what_a_killed_publish_has_published_counts_among_those_before() -> None:
    driver = type("Wrong", (KilledLine,), {"goes_on_at": 10})
    history = run_schedule(driver, KILLED, ONLY_LOSSES).history
    assert [0, 1, 10] == [each.offset for each in history if isinstance(each, Published)]
    with pytest.raises(DriverError, match="returned 2; it must return an int of 64 bits, greater than all before"):
        run_schedule(driver, (*KILLED, Publish(b"a")), ONLY_LOSSES)


def test_what_a_killed_publish_has_published_is_greater_than_all_before() -> None:
    driver = type("Wrong", (KilledLine,), {"goes_on_at": -1})
    with pytest.raises(DriverError, match="it must return offsets that publish has returned"):
        run_schedule(driver, KILLED, ONLY_LOSSES)


@pytest.mark.parametrize("answer", [True, False, None])
def test_what_an_ack_may_answer_is_taken(answer: bool | None) -> None:
    driver = type("Right", (Line,), {"ack": lambda *_: answer})
    assert run_schedule(driver, (*STEPS, Ack()), Claims(promises={"one-holder"})).violation is None
