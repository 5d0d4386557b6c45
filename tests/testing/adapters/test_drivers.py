"""What a driver can do, and what is said when it is asked for more."""

import pickle
from asyncio import Task, create_task, new_event_loop, sleep
from collections.abc import Callable, Sequence

import pytest
from hypothesis import Phase, find, settings
from hypothesis import strategies as st

from keyshared.hashing import DEFAULT_SLOT_BITS, XXH64_SEED_42
from keyshared.testing import AsyncDriver, Delivery, Driver, UnsupportedError
from keyshared.testing.adapters.dispatcher import DispatcherDriver, RouterDriver
from keyshared.testing.driver import ABILITIES, abilities, in_loop
from keyshared.testing.history import Gone, Happening
from keyshared.testing.machine import KeySharedMachine
from keyshared.testing.strategies import (
    COLLIDING,
    FILTERS,
    KEYS,
    NAMES,
    cluster_trees,
    consumer_names,
    delays_ms,
    filters,
    keys,
)

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


@pytest.mark.parametrize("name", [name for name in vars(Driver) if name in vars(AsyncDriver) and name[0] != "_"])
def test_the_asynchronous_driver_has_the_same_methods(name: str) -> None:
    assert callable(getattr(Driver, name)) == callable(getattr(AsyncDriver, name))


def test_an_error_of_a_driver_survives_pickling() -> None:
    error = UnsupportedError("NanoDriver", "nack")
    copy = pickle.loads(pickle.dumps(error))  # noqa: S301  # our own
    assert (error.driver, error.method, str(error)) == (copy.driver, copy.method, str(copy))


def test_abilities_are_what_is_overridden() -> None:
    assert frozenset(ABILITIES) == abilities(DispatcherDriver) | {"receive_some", "kill_at", *HALVES}
    assert frozenset() == abilities(RouterDriver)
    assert frozenset() == abilities(AsyncDriver)


def test_colliding_keys_collide() -> None:
    first, second = COLLIDING[2]
    assert XXH64_SEED_42.slot(first, DEFAULT_SLOT_BITS) == XXH64_SEED_42.slot(second, DEFAULT_SLOT_BITS)
    assert first != second


@pytest.mark.parametrize("wanted", ["a key", "a tree"])
def test_strategies_draw_something(wanted: str) -> None:
    quickly = settings(max_examples=20, database=None, derandomize=True, phases=[Phase.generate])
    if wanted == "a key":
        drawn = st.tuples(keys(keyless=True), consumer_names(), filters(), delays_ms(100, None))
        key, name, patterns, ms = find(drawn, lambda each: each[0] is not None, settings=quickly)
        assert key in KEYS
        assert name in NAMES
        assert patterns in FILTERS
        assert ms > 0
    else:
        assert isinstance(find(cluster_trees(), lambda tree: len(tree) > 1, settings=quickly), list)


# --- in a loop ------------------------------------------------------------------------------------------------------


class EveryCall(AsyncDriver):
    """Writes down what it is asked, and leaves a task running."""

    def __init__(self) -> None:
        self.asked: list[object] = []
        self.task: Task[None] | None = None

    async def open(self) -> None:
        self.task = create_task(sleep(3_600))

    async def connect(self, consumer: str, filters: Sequence[str] = ()) -> None:
        self.asked.append(("connect", consumer, filters))

    async def disconnect(self, consumer: str) -> None:
        self.asked.append(("disconnect", consumer))

    async def publish(self, key: bytes | None) -> int:
        self.asked.append(("publish", key))
        return 7

    async def receive(self, consumer: str) -> Sequence[Delivery]:
        self.asked.append(("receive", consumer))
        return [DELIVERY]

    async def ack(self, consumer: str, delivery: Delivery) -> bool | None:
        self.asked.append(("ack", consumer, delivery))
        return True

    async def nack(self, consumer: str, delivery: Delivery) -> bool | None:
        self.asked.append(("nack", consumer, delivery))
        return False

    async def advance(self, ms: int) -> None:
        self.asked.append(("advance", ms))

    async def cursor(self) -> int | None:
        self.asked.append("cursor")
        return 3

    async def restart(self) -> None:
        self.asked.append("restart")

    async def notices(self) -> Sequence[Happening]:
        self.asked.append("notices")
        return [Gone(consumer="c1")]

    async def ack_through(self, consumer: str, delivery: Delivery) -> bool | None:
        self.asked.append(("ack_through", consumer, delivery))
        return True

    async def postpone(self, consumer: str, delivery: Delivery, ms: int) -> bool | None:
        self.asked.append(("postpone", consumer, delivery, ms))
        return False

    async def publish_later(self, key: bytes | None, ms: int) -> int:
        self.asked.append(("publish_later", key, ms))
        return 8

    async def receive_some(self, consumer: str, most: int) -> Sequence[Delivery]:
        self.asked.append(("receive_some", consumer, most))
        return [DELIVERY]

    async def kill_at(self, statement: int) -> None:
        self.asked.append(("kill_at", statement))

    async def begin_receive(self, consumer: str, statements: int) -> object:
        self.asked.append(("begin_receive", consumer, statements))
        return "begun"

    async def finish_receive(self, begun: object) -> Sequence[Delivery]:
        self.asked.append(("finish_receive", begun))
        return [DELIVERY]

    async def begin_ack(self, consumer: str, delivery: Delivery, statements: int) -> object:
        self.asked.append(("begin_ack", consumer, delivery, statements))
        return "begun"

    async def finish_ack(self, begun: object) -> bool | None:
        self.asked.append(("finish_ack", begun))
        return True


def test_every_call_is_waited_for_in_the_loop() -> None:
    inner, loop = EveryCall(), new_event_loop()
    driver = in_loop(inner, loop)
    driver.connect("c1")
    driver.connect("c2", ("a",))
    answers = [call(driver) for call in CALLS[1:]]
    assert [None, 7, [DELIVERY], True, False, None, 3, None, [Gone(consumer="c1")]] == answers[:9]
    assert [True, False, 8, [DELIVERY], None, "begun", [DELIVERY], "begun", True] == answers[9:]
    assert [("connect", "c1", ()), ("connect", "c2", ("a",)), ("disconnect", "c1"), ("publish", b"a")] == inner.asked[
        :4
    ]
    assert [("receive", "c1"), ("ack", "c1", DELIVERY), ("nack", "c1", DELIVERY), ("advance", 1)] == inner.asked[4:8]
    assert ["cursor", "restart", "notices"] == inner.asked[8:11]
    later = [("ack_through", "c1", DELIVERY), ("postpone", "c1", DELIVERY, 5), ("publish_later", b"a", 5)]
    halves = [("begin_receive", "c1", 1), ("finish_receive", "begun"), ("begin_ack", "c1", DELIVERY, 1)]
    assert [*later, ("receive_some", "c1", 2), ("kill_at", 3), *halves, ("finish_ack", "begun")] == inner.asked[11:]
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


def test_the_machine_owns_the_loop_of_an_asynchronous_driver() -> None:
    machine = type("EveryCallMachine", (KeySharedMachine,), {"driver_class": EveryCall})()
    assert machine.bench.abilities == frozenset(ABILITIES)
    machine.bench.driver.close()


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
