"""What a driver can do, and what is said when it is asked for more."""

import pickle
import threading
import time
from asyncio import Task, create_task, new_event_loop, sleep
from collections.abc import Callable, Sequence

import pytest

from keyshared.hashing import DEFAULT_SLOT_BITS, XXH64_SEED_42
from keyshared.testing import AsyncDriver, Delivery, Driver, UnsupportedError
from keyshared.testing.dispatcher import DispatcherDriver
from keyshared.testing.draw import COLLIDING
from keyshared.testing.driver import ABILITIES, abilities, in_loop, wait_for_threads

DELIVERY = Delivery(0, b"a")
CALLS: tuple[Callable[[Driver], object], ...] = (
    lambda driver: driver.connect("c1"),
    lambda driver: driver.disconnect("c1"),
    lambda driver: driver.publish(b"a"),
    lambda driver: driver.receive("c1"),
    lambda driver: driver.ack("c1", DELIVERY),
    lambda driver: driver.nack("c1", DELIVERY),
    lambda driver: driver.advance(1),
    lambda driver: driver.cursor(),
    lambda driver: driver.restart(),
    lambda driver: driver.notices(),
    lambda driver: driver.ack_through("c1", DELIVERY),
    lambda driver: driver.postpone("c1", DELIVERY, 5),
    lambda driver: driver.publish_later(b"a", 5),
    lambda driver: driver.publish_many([b"a"]),
    lambda driver: driver.receive_some("c1", 2),
    lambda driver: driver.kill_at(3),
    lambda driver: driver.begin_receive("c1", 1),
    lambda driver: driver.finish_receive("begun"),
    lambda driver: driver.begin_ack("c1", DELIVERY, 1),
    lambda driver: driver.finish_ack("begun"),
)
HALVES = {"begin_receive", "finish_receive", "begin_ack", "finish_ack"}


@pytest.mark.parametrize("call", CALLS, ids=range(len(CALLS)))
def test_what_a_driver_leaves_out_says_so(call: Callable[[Driver], object]) -> None:
    with pytest.raises(UnsupportedError, match=r"Driver cannot [a-z_]+; override it if the broker can"):
        call(Driver())


def test_an_error_of_a_driver_survives_pickling() -> None:
    error = UnsupportedError("NanoDriver", "nack")
    copy = pickle.loads(pickle.dumps(error))  # noqa: S301  # our own
    assert (error.driver, error.method, str(error)) == (copy.driver, copy.method, str(copy))


def test_abilities_are_what_is_overridden() -> None:
    assert frozenset(ABILITIES) == abilities(DispatcherDriver) | {"receive_some", "publish_many", "kill_at", *HALVES}
    assert frozenset() == abilities(Driver)
    assert frozenset() == abilities(AsyncDriver)


def test_colliding_keys_collide() -> None:
    first, second = COLLIDING[2]
    assert XXH64_SEED_42.slot(first, DEFAULT_SLOT_BITS) == XXH64_SEED_42.slot(second, DEFAULT_SLOT_BITS)
    assert first != second


# --- in a loop ------------------------------------------------------------------------------------------------------


class SomeCalls(AsyncDriver):
    """Writes down what it is asked, and leaves a task running."""

    def __init__(self) -> None:
        self.asked: list[object] = []
        self.task: Task[None] | None = None

    async def open(self) -> None:
        self.task = create_task(sleep(3_600))

    async def connect(self, consumer: str, filters: Sequence[str] = ()) -> None:
        self.asked.append(("connect", consumer, filters))

    async def nack(self, consumer: str, delivery: Delivery) -> bool | None:
        self.asked.append(("nack", consumer, delivery))
        return False


def test_calls_are_waited_for_in_the_loop() -> None:
    inner, loop = SomeCalls(), new_event_loop()
    driver = in_loop(inner, loop)
    driver.connect("c1")
    assert driver.nack("c1", DELIVERY) is False
    assert [("connect", "c1", ()), ("nack", "c1", DELIVERY)] == inner.asked
    assert {"nack"} == abilities(SomeCalls)
    driver.close()
    assert loop.is_closed()
    assert inner.task is not None
    assert inner.task.cancelled()


def test_a_driver_that_does_not_open_leaves_no_loop_open() -> None:
    class CannotOpen(AsyncDriver):
        async def open(self) -> None:
            raise OSError

    loop = new_event_loop()
    with pytest.raises(OSError):  # noqa: PT011  # it has no text
        in_loop(CannotOpen(), loop)
    assert loop.is_closed()


@pytest.mark.parametrize("call", CALLS, ids=range(len(CALLS)))
def test_what_an_asynchronous_driver_leaves_out_says_so(call: Callable[[Driver], object]) -> None:
    driver = in_loop(AsyncDriver(), new_event_loop())
    with pytest.raises(UnsupportedError, match=r"AsyncDriver cannot [a-z_]+; override it if the broker can"):
        call(driver)
    driver.close()


def test_a_restarted_dispatcher_hands_nothing_to_those_who_are_gone() -> None:
    driver = DispatcherDriver()
    driver.connect("c1")
    driver.publish(None)
    driver.publish(None)  # now it has room for no more
    driver.connect("c2", ("?",))  # it takes keys only
    mine = next(key for key in (b"a", b"b", b"c", b"d") if driver.dispatcher.placement.owner(key) == "c1")
    waiting = driver.publish(mine)

    driver.restart()

    assert 0 == driver.dispatcher.describe(waiting).attempt


# --- threads ----------------------------------------------------------------------------------------------------------


def test_threads_are_waited_for_until_they_stand_still() -> None:
    go, done = threading.Event(), threading.Event()
    steps: list[int] = []

    def work() -> None:
        for step in range(20):
            steps.append(step)
            time.sleep(0.001)
        go.wait()

    thread = threading.Thread(target=work)
    thread.start()
    wait_for_threads(still_ms=100)
    assert 20 == len(steps)
    go.set()
    thread.join()
    busy = threading.Thread(target=lambda: [None for _ in iter(done.is_set, True)])
    busy.start()
    with pytest.raises(TimeoutError, match="threads still move after 50 ms"):
        wait_for_threads(still_ms=10_000, timeout_ms=50)
    done.set()
    busy.join()
