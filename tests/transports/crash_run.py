"""Processes of one program that are killed, asked to leave, and followed by others; and what came of it."""

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.transports.diary import DONE, Verdict, judge
from tests.transports.worker import REJECTED, is_one

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_S = 300


class Size(NamedTuple):
    """How many messages of how many keys a run has, and how many processes are killed in it."""

    many: int
    keys: int
    kills: int = 1


QUICK, LONG = Size(2_000, 100), Size(8_000, 200, 2)
HOT, OTHERS = 12_000, 400


class Message(str):
    """A text ``key/number/place``, and what stands in it."""

    __slots__ = ()

    @property
    def key(self) -> str:
        return self.split("/")[0]

    @property
    def number(self) -> str:
        return self.split("/")[1]


def messages(size: Size) -> list[Message]:
    places: Counter[str] = Counter()
    made = []
    for number in range(size.many):
        key = f"k{number * 7919 % size.keys}"
        made.append(Message(f"{key}/{number}/{places[key]}"))
        places[key] += 1
    return made


def rejects(size: Size) -> set[Message]:
    return {message for message in messages(size) if is_one(REJECTED, int(message.number))}


def all_done(size: Size) -> Verdict:
    """The verdict on a run without a fault, but for what was done again."""
    return Verdict(lost=0, out_of_order=0, at_once=0, done=size.many, again=0)


def behind_a_hot_key() -> list[Message]:
    """Return the messages of a hot key, which takes minutes, and behind them a few of many other keys."""
    hot = [Message(f"hot/{number}/{number}") for number in range(HOT)]
    return hot + [Message(f"k{number % 40}/{HOT + number}/{number // 40}") for number in range(OTHERS)]


def others_pass_a_hot_key(diary: Path, *arguments: str) -> None:
    """Run one process until the messages behind the hot key are done."""
    others = {str(message) for message in behind_a_hot_key()[HOT:]}
    with crew_of(diary, *arguments) as crew:
        crew.join()
        crew.wait_until_done(others)
        assert crew.end() == [0]
        sent = dict(Counter(message.key for message in behind_a_hot_key()))
        verdict = judge(crew.lines(), sent)
    assert (verdict.out_of_order, verdict.at_once) == (0, 0)
    assert 0 < verdict.done < HOT, "the others waited for the hot key"


class Crew:
    """The processes, the oldest first."""

    def __init__(self, diary: Path, *arguments: str) -> None:
        self._diary = diary
        self._command = [sys.executable, "-m", "tests.transports.worker", str(diary), *arguments]
        self._running: list[subprocess.Popen[bytes]] = []
        paths = [str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")]
        self._environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}

    def join(self, many: int = 1) -> None:
        for _ in range(many):
            process = subprocess.Popen(self._command, cwd=ROOT, env=self._environment)
            self._running.append(process)
            self._wait_until_ready(process.pid)

    def _wait_until_ready(self, pid: int) -> None:
        until = time.monotonic() + PATIENCE_S
        while f"ready {pid} -" not in self.lines():
            assert time.monotonic() < until, "a process does not begin"
            time.sleep(0.05)

    def kill(self, many: int = 1) -> None:
        """Kill the oldest; what they have left open ends there."""
        for _ in range(many):
            process = self._running.pop(0)
            process.send_signal(signal.SIGSTOP)  # or its successor begins before the diary says that it is gone
            os.waitpid(process.pid, os.WUNTRACED)
            with self._diary.open("a") as file:
                file.write(f"killed {process.pid} -\n")
            process.kill()
            process.wait()

    def leave(self) -> int:
        """Ask the oldest to leave, and return its exit code."""
        process = self._running.pop(0)
        process.send_signal(signal.SIGTERM)
        return process.wait(PATIENCE_S)

    def end(self) -> list[int]:
        return [self.leave() for _ in list(self._running)]

    def kill_all(self) -> None:
        for process in self._running:
            process.kill()
            process.wait()

    def wait_for(self, many: int) -> None:
        self._wait_until(lambda done: len(done) >= many, f"of {many}")

    def wait_until_done(self, messages: set[str]) -> None:
        self._wait_until(messages.issubset, "not yet those that were asked for")

    def _wait_until(self, is_so: Callable[[set[str]], bool], wanted: str) -> None:
        until = time.monotonic() + PATIENCE_S
        while not is_so(done := self._done()):
            assert time.monotonic() < until, f"{len(done)} are done, {wanted}"
            assert all(process.poll() is None for process in self._running), "a process has ended by itself"
            time.sleep(0.1)

    def _done(self) -> set[str]:
        return {line.split()[2] for line in self.lines() if line.startswith(DONE)}

    def lines(self) -> list[str]:
        return self._diary.read_text().splitlines() if self._diary.exists() else []


@contextmanager
def crew_of(diary: Path, *arguments: str) -> Iterator[Crew]:
    crew = Crew(diary, *arguments)
    try:
        yield crew
    finally:
        crew.kill_all()


def crash_run(
    diary: Path,
    *arguments: str,
    size: Size,
    stand_by: bool = True,
    when_started: Callable[[], object] = lambda: None,
) -> Verdict:
    """Processes are killed, and the next one is asked to leave; others stand by, or are started when it has gone."""
    with crew_of(diary, *arguments) as crew:
        crew.join(1 + stand_by)
        when_started()
        for killed in range(size.kills):
            crew.wait_for(size.many * (killed + 1) // (size.kills + 2))
            crew.kill()
            crew.join()
        crew.wait_for(size.many * (size.kills + 1) // (size.kills + 2))
        assert crew.leave() == 0
        crew.join(1 - stand_by)
        crew.wait_for(size.many)
        assert crew.end() == [0]
        verdict = judge(crew.lines(), dict(Counter(message.key for message in messages(size))))
        print(size, verdict)  # noqa: T201  # pytest -s shows how much was done again
        return verdict
