"""A process that a driver asks over pipes, a line for a line, and that may die in the middle of an answer."""

import subprocess
import sys
from contextlib import suppress
from typing import IO

from keyshared.testing import KilledError

__all__ = ["Process"]


class Process:
    """A script of this folder, run without the library."""

    def __init__(self, script: str, *arguments: str) -> None:
        command = [sys.executable, "-I", "-S", script, *arguments]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    @property
    def id(self) -> int:
        return self.process.pid

    @property
    def pipes(self) -> tuple[IO[str], IO[str]]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        return self.process.stdin, self.process.stdout

    def ask(self, *words: object) -> str:
        try:
            self.say(*words)
        except BrokenPipeError:
            raise KilledError from None
        return self.hear()

    def say(self, *words: object) -> None:
        to_it, _ = self.pipes
        to_it.write(" ".join(map(str, words)) + "\n")
        to_it.flush()

    def hear(self) -> str:
        answer = self.pipes[1].readline()
        if not answer.endswith("\n"):
            raise KilledError
        return answer.rstrip("\n")

    def stop(self) -> None:
        """End its input: it does what it has begun, or dies in the middle of it."""
        for pipe in self.pipes:
            with suppress(BrokenPipeError):  # it is dead, and has not read everything
                pipe.close()
        self.process.wait()

    def kill(self) -> None:
        """End it at once, also if it is paused."""
        self.process.kill()
        self.stop()
