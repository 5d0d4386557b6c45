"""Whoever hears that a log has no room hears when it has some again, and costs nothing meanwhile."""

import asyncio
from threading import Event
from typing import Any

import pytest

from keyshared import RetryPolicy
from keyshared.run import AsyncRunner, Hooks, RunnerConfig, ThreadRunner
from keyshared.run.actions import Full, Roomy
from keyshared.run.assignment import Run
from keyshared.run.engine import Engine

LONG_S = 30


def told_of(engine: Engine[Any], *, now_ms: int) -> list[str]:
    actions = engine.advance(now_ms=now_ms)
    return [f"{type(each).__name__} {each.log.name}" for each in actions if isinstance(each, Full | Roomy)]


def test_a_log_whose_room_another_one_has_taken_is_said_to_be_full_and_then_roomy() -> None:
    engine: Engine[int] = Engine(RunnerConfig(workers=100, window=100))
    runs: list[Run[int]] = []
    for name, many in (("one", 60), ("other", 40)):
        engine.add_log(name)
        engine.submit_many(name, [(offset, f"{name}-{offset}", offset) for offset in range(many)], now_ms=0)
        runs += [run for run in engine.advance(now_ms=0) if isinstance(run, Run)]
    assert engine.room("one") == 0
    assert "Full one" in told_of(engine, now_ms=0)
    engine.ended_many([(run, None) for run in runs], now_ms=1)
    assert "Roomy one" in told_of(engine, now_ms=1)


def test_room_that_comes_before_its_want_is_told_is_told_all_the_same() -> None:
    engine: Engine[int] = Engine(RunnerConfig(workers=1, window=2))
    engine.add_log("log")
    engine.submit("log", 0, "a", 0, now_ms=0)
    (run,) = engine.advance(now_ms=0)
    engine.submit("log", 1, "b", 1, now_ms=0)
    assert engine.room("log") == 0  # who hears this waits for `Roomy`
    engine.ended(run, None, now_ms=1)  # type: ignore[arg-type]  # the only action is a run
    assert told_of(engine, now_ms=1) == ["Full log", "Roomy log"]
    assert engine.room("log") == 1
    assert told_of(engine, now_ms=1) == []


def test_nothing_is_told_of_a_log_that_leaves() -> None:
    engine: Engine[int] = Engine(RunnerConfig(workers=1, window=1))
    engine.add_log("log")
    engine.submit("log", 0, "a", 0, now_ms=0)
    assert engine.room("log") == 0  # before it is said to be full
    engine.lose_log("log", now_ms=0)
    assert told_of(engine, now_ms=0) == []


def test_a_reader_that_pauses_at_no_room_and_resumes_when_told_reads_to_the_end() -> None:
    room, handled = Event(), list[int]()
    room.set()
    hooks = Hooks(roomy=lambda _: room.set())
    with ThreadRunner(handled.append, hooks=hooks, config=RunnerConfig(workers=2, window=4)) as runner:
        runner.add_log("log")
        for offset in range(2_000):
            while not runner.try_submit("log", offset, None, offset):
                assert room.wait(LONG_S), f"nobody said that there is room: {offset}"
                room.clear()
    assert sorted(handled) == list(range(2_000))


@pytest.mark.parametrize("kind", ["a hot key", "a retry"])
def test_a_task_that_waits_for_room_takes_no_steps(kind: str) -> None:
    steps: list[int] = []

    class Counting(AsyncRunner[int]):
        def _step(self) -> None:
            steps.append(0)
            super()._step()

    async def handle(message: int) -> None:
        await asyncio.sleep(0.05)  # many steps of a task that does not sleep while it waits
        if kind == "a retry" and message not in tried:
            tried.add(message)
            raise ValueError("not now")

    tried: set[int] = set()

    async def main() -> None:
        retry = RetryPolicy(base_delay_ms=100)
        async with Counting(handle, config=RunnerConfig(workers=8, window=2, retry=retry)) as runner:
            runner.add_log("log")
            for offset in range(4):
                await runner.submit("log", offset, "hot", offset)

    asyncio.run(main())
    assert len(steps) < 200
