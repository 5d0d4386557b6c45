"""The kit against the engine of a runner: processes that take a log over from one another, from what is committed."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

import pytest
from tests.run import broken

from keyshared import RetryPolicy
from keyshared.effects import Deliver
from keyshared.run import PartlyDone, RunnerConfig
from keyshared.run.actions import Action, Commit, WriteDeadLetter
from keyshared.run.assignment import Run
from keyshared.run.engine import Engine
from keyshared.testing import Claims, Delivery, Driver, Promise
from keyshared.testing import history as h
from keyshared.testing.draw import KEYS
from keyshared.testing.find import find_violation
from keyshared.testing.history import Event
from keyshared.testing.machine import KeySharedMachine
from keyshared.testing.steps import Disconnect, Flap, Restart

CONFIG = RunnerConfig(
    workers=2,
    window=32,
    retry=RetryPolicy(max_redeliveries=2, base_delay_ms=10, max_delay_ms=10),
    commit_every_ms=0,
)


class RunnerDriver(Driver):
    """Each consumer is a process with a engine of its own; a handler runs from its delivery to its answer.

    A consumer that leaves has crashed: the next one begins with what was committed.
    """

    config = CONFIG
    engine_class: ClassVar[type[Engine[int]]] = Engine

    def __init__(self) -> None:
        self.log: list[bytes | None] = []
        self.engine: Engine[int] | None = None
        self.holder = ""
        self.deliveries: Counter[int] = Counter()
        self.read = 0
        self.now = 0
        self.begun: list[Delivery] = []
        self.committed: tuple[int, str] | None = None
        self.told: list[Event] = []

    def connect(self, consumer: str, filters: Sequence[str] = ()) -> None:  # noqa: ARG002
        self.holder = consumer
        token = None if self.committed is None else self.committed[1]
        self.engine = self.engine_class(self.config, commits=True, writes=True)
        self.engine.add_log("log", start=0, resume_from=token, now_ms=self.now)
        self.read = 0 if self.committed is None else self.committed[0]
        self.begun.clear()
        self.carry_out()

    def disconnect(self, consumer: str) -> None:  # noqa: ARG002
        self.engine = None

    def publish(self, key: bytes | None) -> int:
        self.log.append(key)
        self.carry_out()
        return len(self.log) - 1

    def receive(self, consumer: str) -> Sequence[Delivery]:  # noqa: ARG002
        begun = [*self.begun]
        self.begun.clear()
        return begun

    def ack(self, consumer: str, delivery: Delivery) -> bool | None:  # noqa: ARG002
        return self.end(delivery, None)

    def nack(self, consumer: str, delivery: Delivery) -> bool | None:  # noqa: ARG002
        return self.end(delivery, ValueError())

    def advance(self, ms: int) -> None:
        self.now += ms
        self.carry_out()

    def cursor(self) -> int | None:
        return None if self.committed is None else self.committed[0]

    def restart(self) -> None:
        if self.engine is not None:
            for run in self.engine.log("log").runs:
                offset = self.at_work(run).offset
                released = h.Released(offset=offset, consumer=self.holder, attempt=self.deliveries[offset])
                self.told.append(released)
        self.engine = None

    def notices(self) -> Sequence[Event]:
        told, self.told = self.told, []
        return told

    def at_work(self, run: Run[int]) -> Deliver[int]:
        """What a handler works on now."""
        return run.delivery

    def end(self, delivery: Delivery, raised: BaseException | None) -> bool:
        run: Any = delivery.token
        if self.engine is None or run not in self.engine.log("log").runs or self.at_work(run).offset != delivery.offset:
            return False  # its process is gone, or it has answered
        self.answer(self.engine, run, raised)
        self.carry_out()
        return True

    def answer(self, engine: Engine[int], run: Run[int], raised: BaseException | None) -> None:
        engine.ended(run, raised, now_ms=self.now)

    def begin(self, run: Run[int]) -> None:
        """A handler begins with a message."""
        begun = self.at_work(run)
        self.deliveries[begun.offset] += 1
        self.begun.append(Delivery(begun.offset, begun.key, self.deliveries[begun.offset], token=run))

    def carry_out(self) -> None:
        engine = self.engine
        if engine is None:
            return
        while self.read < len(self.log) and engine.room("log"):
            engine.submit("log", self.read, self.log[self.read], self.read, now_ms=self.now)
            self.read += 1
        while actions := engine.advance(now_ms=self.now):
            for action in actions:
                self.do(engine, action)

    def do(self, engine: Engine[int], action: Action[int]) -> None:
        match action:
            case Run():
                self.begin(action)
            case Commit(_, position, token):
                self.committed = position, token
                engine.committed(action, None, now_ms=self.now)
            case WriteDeadLetter(_, letter):
                self.told.append(h.DeadLettered(offset=letter.offset))
                engine.written(action, None, now_ms=self.now)
            case _:
                raise AssertionError(action)


class RunnerMachine(KeySharedMachine):
    """One process at a time has the log, as in a consumer group.

    What was open in two crashes waits until it may run alone, so progress is claimed only where nothing crashes.
    """

    driver_class: ClassVar[type[Driver]] = RunnerDriver
    claims = Claims(
        promises={
            Promise.ONE_HOLDER,
            Promise.KEY_ORDER,
            Promise.SAFE_CURSOR,
            Promise.NO_LOSS,
            Promise.BOUNDS,
            Promise.FENCE,
        },
        per_consumer=2,
        may_dead_letter=True,
        cursor_keeps_up=True,
    )
    max_consumers = 1
    retry_ms = 10
    rest_ms = 100
    keys = (*KEYS, None)


class BatchRunnerDriver(RunnerDriver):
    """A handler goes through its batch, one message after the other, and says at its end how far it came.

    If its first message fails, it names none of them. Before its process ends, in whatever way, a handler says how far
    it has come: what it has done and nobody knows is redone, and the kit would have to know which messages those are.
    """

    config = replace(CONFIG, batch=3)

    def __init__(self) -> None:
        super().__init__()
        self.done: Counter[Run[int]] = Counter()

    def disconnect(self, consumer: str) -> None:
        self.tell_how_far()
        super().disconnect(consumer)

    def restart(self) -> None:
        self.tell_how_far()
        super().restart()

    def tell_how_far(self) -> None:
        if self.engine is not None:
            for run in [run for run in self.engine.log("log").runs if self.done[run]]:
                offset = self.at_work(run).offset
                self.told.append(h.Released(offset=offset, consumer=self.holder, attempt=self.deliveries[offset]))
                self.engine.ended(run, PartlyDone(self.done[run], SystemExit()), now_ms=self.now)
            self.carry_out()

    def at_work(self, run: Run[int]) -> Deliver[int]:
        return run.deliveries[self.done[run]]

    def answer(self, engine: Engine[int], run: Run[int], raised: BaseException | None) -> None:
        done = self.done[run]
        if raised is not None:
            super().answer(engine, run, PartlyDone(done, raised) if done else raised)
        elif done + 1 == len(run.deliveries):
            super().answer(engine, run, None)
        else:
            self.done[run] += 1
            self.begin(run)


class BatchRunnerMachine(RunnerMachine):
    """The same with batches of a key."""

    driver_class = BatchRunnerDriver
    claims = replace(RunnerMachine.claims, cursor_keeps_up=False)  # a batch is committed when it has ended


class StayingRunnerMachine(RunnerMachine):
    """A process that stays has nothing to wait for."""

    claims = replace(RunnerMachine.claims, promises={*RunnerMachine.claims.promises, Promise.PROGRESS})
    untried = frozenset({Disconnect, Flap, Restart})


class StayingBatchRunnerMachine(BatchRunnerMachine):
    """The same with batches of a key."""

    claims = replace(BatchRunnerMachine.claims, promises=StayingRunnerMachine.claims.promises)
    untried = StayingRunnerMachine.untried


TestRunner = RunnerMachine.TestCase
TestBatchRunner = BatchRunnerMachine.TestCase
TestStayingRunner = StayingRunnerMachine.TestCase
TestStayingBatchRunner = StayingBatchRunnerMachine.TestCase


@pytest.mark.parametrize(
    ("fault", "promises"),
    [
        (broken.BelievesThatAllIsDone, {Promise.NO_LOSS, Promise.SAFE_CURSOR, Promise.PROGRESS, Promise.KEY_ORDER}),
        (broken.RunsABatchBesideItself, {Promise.BOUNDS, Promise.KEY_ORDER}),
    ],
)
def test_a_broken_heart_is_caught_with_batches(fault: type[Engine[int]], promises: set[Promise]) -> None:
    driver = type("BrokenDriver", (BatchRunnerDriver,), {"engine_class": fault})
    found = find_violation(type("BrokenMachine", (BatchRunnerMachine,), {"driver_class": driver}))
    assert found is not None
    assert found.what in promises
