"""A small broker for a process of its own, with a file: it can be killed between any two of its lines.

The process runs this file as a script, without the library, and is asked over pipes. Each life appends to the same
file. `tests/kit/killed_broker.py` operates it.
"""

import os
import signal
import sys

TYPE_CHECKING = False  # the module that has it takes longer to import than the broker lives
if TYPE_CHECKING:
    from types import FrameType
    from typing import Any

ACK, PUBLISH = "a", "p"


class FileBroker:
    """Writes down what is published and acked, one line each, and answers after that. Leases live in memory only."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.epoch = 0
        self.attempts = 0
        self.log: list[str] = []
        self.waiting: list[int] = []
        self.held: dict[int, tuple[str, int]] = {}  # who has what, and by which attempt

    def start(self) -> None:
        """Read what earlier lives have written; a last line that was torn was never answered for."""
        self.file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND)
        written = os.pread(self.file, os.fstat(self.file).st_size, 0)
        whole = written.rfind(b"\n") + 1
        os.truncate(self.path, whole)
        for line in written[:whole].decode().splitlines():
            kind, _, what = line.partition(" ")
            if kind == PUBLISH:
                self.waiting.append(len(self.log))
                self.log.append(what)
            elif kind == ACK:
                self.waiting.remove(int(what))
            else:
                self.epoch += 1
        os.write(self.file, b"e \n")

    def ask(self, line: str) -> None:
        """Do what one line asks for, and answer with one line."""
        verb, *words = line.split(" ")
        if verb == "publish":
            self.publish(words[0])
        elif verb == "receive":
            self.receive(words[0])
        elif verb == "ack":
            self.ack(words[0], int(words[1]), int(words[2]))
        elif verb == "leave":
            self.leave(words[0])

    def publish(self, key: str) -> None:
        self.write(f"{PUBLISH} {key}")
        self.waiting.append(len(self.log))
        self.log.append(key)
        self.answer(str(len(self.log) - 1))

    def receive(self, name: str) -> None:
        taken = {self.log[offset] for offset in self.held}
        found = next((offset for offset in self.waiting if self.log[offset] not in taken), None)
        if found is None or any(holder == name for holder, _ in self.held.values()):
            self.answer("")
            return
        self.attempts += 1
        attempt = self.epoch * 1_000 + self.attempts  # a life has fewer
        self.waiting.remove(found)
        self.held[found] = name, attempt
        self.answer(f"{found} {self.log[found]} {attempt}")

    def ack(self, name: str, offset: int, attempt: int) -> None:
        if self.held.get(offset) != (name, attempt):
            self.answer("0")
            return
        self.write(f"{ACK} {offset}")
        del self.held[offset]
        self.answer("1")

    def leave(self, name: str) -> None:
        for offset in [offset for offset, (holder, _) in self.held.items() if holder == name]:
            del self.held[offset]
            self.waiting = sorted([*self.waiting, offset])
        self.answer("")

    def write(self, line: str) -> None:
        os.write(self.file, f"{line}\n".encode())

    def answer(self, line: str) -> None:
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()


class AnswersBeforeItWrites(FileBroker):
    """An ack is answered from memory, and written afterwards: killed in between, it has forgotten what it said."""

    def ack(self, name: str, offset: int, attempt: int) -> None:
        if self.held.get(offset) != (name, attempt):
            self.answer("0")
            return
        self.answer("1")
        del self.held[offset]
        self.write(f"{ACK} {offset}")


BROKERS = {each.__name__: each for each in (FileBroker, AnswersBeforeItWrites)}


def serve(kind: str, path: str) -> None:
    """Run a broker until its input ends. Asked to die, it does so just before that line of its code."""
    broker = BROKERS[kind](path)
    broker.start()
    left = 0

    def count(frame: "FrameType", event: str, _: object) -> "Any":
        nonlocal left
        if frame.f_code.co_filename != __file__:
            return None
        if event == "line":
            left -= 1
            if not left:
                os.kill(os.getpid(), signal.SIGKILL)
        return count

    for line in sys.stdin:
        if line.startswith("die "):
            left = int(line[4:])
            sys.settrace(count)
        else:
            broker.ask(line.rstrip("\n"))


if __name__ == "__main__":
    serve(*sys.argv[1:])
