"""Processor time and memory of this process and of all below it. Needs Linux (``/proc``)."""

import os
from collections import defaultdict
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from threading import Event, Thread
from types import TracebackType
from typing import Self

_BETWEEN_LOOKS_S = 0.5


class ProcessorTime:
    """Processor seconds of this process and of all below it: the JVM and its Python workers.

    The time of a process stays counted after its end: Spark ends idle workers after a minute, and without their time
    another case would look cheaper than it is.
    """

    def __init__(self) -> None:
        self._ticks: dict[tuple[int, int], int] = {}  # by number and start: numbers come again

    def read(self) -> float:
        for pid in (os.getpid(), *_below(os.getpid())):
            try:
                fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            except (FileNotFoundError, ProcessLookupError):
                continue  # it has just ended
            user, system, start = (int(fields[index]) for index in (11, 12, 19))
            self._ticks[pid, start] = user + system
        return sum(self._ticks.values()) / os.sysconf("SC_CLK_TCK")


class Peaks(AbstractContextManager["Peaks"]):
    """The most memory that a JVM and a Python process below this one ever held, from their start, in MB.

    Linux keeps the peak of each process, so the looks from time to time miss only what a process that ended gained
    after the last one. A worker's share of what it has from the process that forked it counts too.
    """

    def __init__(self) -> None:
        self._most: dict[str, int] = defaultdict(int)
        self._done = Event()
        self._looks = Thread(target=self._look_again, daemon=True)

    def __enter__(self) -> Self:
        self._looks.start()
        return self

    def __exit__(
        self, error: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._done.set()
        self._looks.join()
        self._look()  # the processes still live

    @property
    def jvm(self) -> float:
        return self._most["java"] / 1024

    @property
    def worker(self) -> float:
        """Of the one that held most."""
        return self._most["worker"] / 1024

    @property
    def driver(self) -> float:
        """Of this process."""
        return _peak_kb(os.getpid()) / 1024

    def _look_again(self) -> None:
        while not self._done.wait(_BETWEEN_LOOKS_S):
            self._look()

    def _look(self) -> None:
        for pid in _below(os.getpid()):
            try:
                kind = "java" if Path(f"/proc/{pid}/comm").read_text().strip() == "java" else "worker"
                self._most[kind] = max(self._most[kind], _peak_kb(pid))
            except (FileNotFoundError, ProcessLookupError):
                continue  # it has just ended


def _peak_kb(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1])
    return 0  # it has just ended, and only its number is left


def _below(pid: int) -> Iterator[int]:
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            children = task.read_text().split()
        except (FileNotFoundError, ProcessLookupError):
            continue  # it has just ended
        for child in map(int, children):
            yield child
            yield from _below(child)
