"""Handlers that are slow, fail, dawdle when cancelled, and lose their logs: nothing of a key ever runs beside them.

Whatever the threads and the loop do, the same is asserted; how long anything takes decides only what is tried.
"""

import asyncio
import random
import time
from collections import Counter, deque
from collections.abc import Callable
from contextlib import suppress
from threading import Lock
from typing import Any

import pytest
from tests.run import broken
from tests.run.watch import Message

from keyshared import RetryPolicy
from keyshared.run import AsyncRunner, PartlyDone, Reject, RetryLater, RunnerConfig, ThreadRunner
from keyshared.run.runner import Runner

LOGS = ("orders-0", "orders-1")
MANY = 150
TROUBLES = 25


class Chaos:
    """Two logs that are read, lost, removed and read again from what was committed, and everything that handlers do.

    Args:
        seed: For all that is drawn.
        batch: As the runner's.
        workers: As the runner's.
    """

    def __init__(self, seed: int, batch: int | None, workers: int = 5) -> None:
        self.dice = random.Random(seed)
        self.troubles = ("remove", "remove at once", "none", *(["lose"] if seed % 2 else []))
        self.batch = batch
        self.rows = {
            log: [(n, f"key-{self.dice.randrange(6)}", (log, Message(n, ""))) for n in range(MANY)] for log in LOGS
        }
        self.unread: dict[str, deque[Any]] = {}
        self.committed: dict[str, tuple[int, str | None]] = dict.fromkeys(LOGS, (0, None))
        self.lock = Lock()
        self.busy: set[tuple[str, str]] = set()
        self.runs: Counter[tuple[str, int]] = Counter()
        self.beside: list[tuple[str, str]] = []
        self.backwards: list[tuple[str, int, int]] = []
        self.lost: set[str] = set()  # a commit that is being made meanwhile comes later than the next stay begins
        self.settings: dict[str, Any] = {
            "commit": self.commit,
            "dead_letter": lambda _: None,
            "config": RunnerConfig(
                workers=workers,
                batch=batch,
                timeout_ms=2,
                window=40,
                retry=RetryPolicy(max_redeliveries=None, base_delay_ms=1, max_delay_ms=2),
                commit_every_ms=1,
            ),
        }

    def commit(self, log: str, position: int, token: str) -> None:
        if position < self.committed[log][0] and log not in self.lost:
            self.backwards.append((log, self.committed[log][0], position))
        self.committed[log] = position, token

    # handlers

    def begin(self, got: Any) -> tuple[tuple[str, str], int, float]:
        """Note that a handler begins; return its key, how many messages it has, and for how long it works."""
        messages = got if self.batch is not None else [got]
        log = messages[0][0]
        offsets = [message.offset for _, message in messages]
        place = log, self.rows[log][offsets[0]][1]
        with self.lock:
            if place in self.busy:
                self.beside.append(place)
            self.busy.add(place)
            self.runs.update((log, offset) for offset in offsets)
            return place, len(offsets), self.dice.choice((0, 0, 0.001, 0.003, 0.006))

    def end(self, place: tuple[str, str], many: int) -> None:
        with self.lock:
            self.busy.discard(place)
            how = self.dice.randrange(12)
            done = self.dice.randrange(many)
        if how == 0:
            raise ValueError(place)
        if how == 1:
            raise RetryLater(1)
        if how == 2:
            raise PartlyDone(done, RetryLater(1))
        if how == 3:
            raise PartlyDone(done, ValueError(place))
        if how == 4:
            raise PartlyDone(done, Reject("bad"))
        if how == 5:
            raise asyncio.CancelledError

    def handle(self, got: Any) -> None:
        place, many, work_s = self.begin(got)
        time.sleep(work_s)
        self.end(place, many)

    async def handle_later(self, got: Any) -> None:
        place, many, work_s = self.begin(got)
        try:
            await asyncio.sleep(work_s)
        except asyncio.CancelledError:
            try:
                await asyncio.sleep(0.002)  # it dawdles: its end is later than its cancellation
            finally:
                self.busy.discard(place)
            raise
        self.end(place, many)

    # the reader

    def add(self, runner: Runner[Any], log: str) -> None:
        position, token = self.committed[log]
        runner.add_log(log, start=position, resume_from=token)
        self.unread[log] = deque(self.rows[log][position:])

    def read(self, runner: Runner[Any]) -> None:
        for log, unread in self.unread.items():
            while unread and runner.try_submit(log, *unread[0]):
                unread.popleft()

    def has_unread(self) -> bool:
        return any(self.unread.values())

    def trouble(self) -> tuple[str, str]:
        log, what = self.dice.choice(LOGS), self.dice.choice(self.troubles)
        self.lost |= {log} if what == "lose" else set()
        return log, what

    def check(self) -> None:
        assert self.beside == [], "two of a key at once"
        assert self.backwards == [], "a commit goes back"
        assert self.runs.keys() == {(log, n) for log in LOGS for n in range(MANY)}
        assert {position for position, _ in self.committed.values()} == {MANY}


def in_threads(chaos: Chaos, change: Callable[[Runner[Any]], None] = lambda _: None) -> None:
    with ThreadRunner[Any](chaos.handle, **chaos.settings) as runner:
        change(runner)
        for log in LOGS:
            chaos.add(runner, log)
        for _ in range(TROUBLES):
            chaos.read(runner)
            time.sleep(0.004)
            log, what = chaos.trouble()
            if what == "lose":
                runner.lose_log(log)
            elif what != "none":
                runner.remove_log(log, within_ms=0 if what == "remove at once" else 5)
            if what != "none":
                chaos.add(runner, log)
        while chaos.has_unread():
            chaos.read(runner)
            time.sleep(0.001)


def in_tasks(chaos: Chaos, change: Callable[[Runner[Any]], None] = lambda _: None) -> None:
    async def live() -> None:
        async with AsyncRunner[Any](chaos.handle_later, **chaos.settings) as runner:
            change(runner)
            for log in LOGS:
                chaos.add(runner, log)
            for _ in range(TROUBLES):
                chaos.read(runner)
                await asyncio.sleep(0.004)
                log, what = chaos.trouble()
                if what == "lose":
                    runner.lose_log(log)
                elif what != "none":
                    await runner.remove_log(log, within_ms=0 if what == "remove at once" else 5)
                if what != "none":
                    chaos.add(runner, log)
            while chaos.has_unread():
                chaos.read(runner)
                await asyncio.sleep(0.001)

    asyncio.run(live())


@pytest.mark.no_cover
@pytest.mark.parametrize("live", [in_threads, in_tasks])
@pytest.mark.parametrize("batch", [None, 1, 5])
def test_nothing_of_a_key_runs_beside_a_handler_whatever_happens(live: Any, batch: int | None) -> None:
    for seed in range(2):
        chaos = Chaos(seed, batch)
        live(chaos)
        chaos.check()


@pytest.mark.no_cover
@pytest.mark.parametrize("live", [in_threads, in_tasks])
def test_a_runner_that_forgets_abandoned_handlers_is_caught(live: Any) -> None:
    def forget(runner: Runner[Any]) -> None:
        runner._engine._schedule = broken.Forgetful(40, 1)

    for seed in range(1, 20, 2):  # those that lose logs
        chaos = Chaos(seed, None, workers=20)  # more than there are keys: one is free before a handler has ended
        with suppress(Exception):
            live(chaos, forget)
        if chaos.beside:
            return
    pytest.fail("it was not seen")
