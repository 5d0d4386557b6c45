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

from tests.transports.diary import DONE, Verdict, judge
from tests.transports.worker import REJECTED, is_one

ROOT = Path(__file__).resolve().parents[2]
MESSAGES, KEYS = 2_000, 100
PATIENCE_S = 90


class Message(str):
    """A text ``key/number/place``, and what stands in it."""

    __slots__ = ()

    @property
    def key(self) -> str:
        return self.split("/")[0]

    @property
    def number(self) -> str:
        return self.split("/")[1]


def messages(many: int = MESSAGES) -> list[Message]:
    places: Counter[str] = Counter()
    made = []
    for number in range(many):
        key = f"k{number * 7919 % (many * KEYS // MESSAGES)}"
        made.append(Message(f"{key}/{number}/{places[key]}"))
        places[key] += 1
    return made


def rejects(many: int = MESSAGES) -> set[Message]:
    return {message for message in messages(many) if is_one(REJECTED, int(message.number))}


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
            process.kill()
            process.wait()
            with self._diary.open("a") as file:
                file.write(f"killed {process.pid} -\n")

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
        until = time.monotonic() + PATIENCE_S
        while (done := self._done()) < many:
            assert time.monotonic() < until, f"{done} of {many} are done"
            assert all(process.poll() is None for process in self._running), "a process has ended by itself"
            time.sleep(0.1)

    def _done(self) -> int:
        lines = self.lines()
        return len({line.split()[2] for line in lines if line.startswith(DONE)})

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
    many: int = MESSAGES,
    stand_by: bool = True,
    when_started: Callable[[], object] = lambda: None,
) -> Verdict:
    """One process is killed, the next one asked to leave; others stand by, or are started when it has gone."""
    with crew_of(diary, *arguments) as crew:
        crew.join(1 + stand_by)
        when_started()
        crew.wait_for(many // 3)
        crew.kill()
        crew.join()
        crew.wait_for(many * 2 // 3)
        assert crew.leave() == 0
        crew.join(1 - stand_by)
        crew.wait_for(many)
        assert crew.end() == [0]
        return judge(crew.lines(), dict(Counter(message.key for message in messages(many))))
