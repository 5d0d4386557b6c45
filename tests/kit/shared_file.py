"""A queue in a file that several processes work on, one for each consumer, without a lock: any of them may be paused.

Each process runs this file as a script, without the library, and is asked over pipes. Whoever wants a message appends a
claim, and has it if no earlier line of the file gives it to somebody else. `tests/kit/paused_broker.py` operates it.
"""

import os
import signal
import sys

PUBLISH, CLAIM, ACK, LEAVE = "p", "c", "a", "l"


class Queue:
    """What the lines of the file say, up to some line."""

    def __init__(self, lines: list[str]) -> None:
        self.keys: list[str] = []
        self.held: dict[int, tuple[str, int]] = {}  # who has what, and by which line
        self.done: dict[int, int] = {}  # what is done, and by which line
        for number, line in enumerate(lines):
            kind, *words = line.split(" ")
            if kind == PUBLISH:
                self.keys.append(words[0])
            elif kind == CLAIM and int(words[1]) == self.next_for(words[0]):
                self.held[int(words[1])] = words[0], number
            elif kind == ACK and self.held.get(int(words[1])) == (words[0], int(words[2])):
                del self.held[int(words[1])]
                self.done[int(words[1])] = number
            elif kind == LEAVE:
                self.held = {offset: claim for offset, claim in self.held.items() if claim[0] != words[0]}

    def next_for(self, name: str) -> int | None:
        """The oldest message of a key of which nobody has anything, for somebody who has nothing."""
        if any(holder == name for holder, _ in self.held.values()):
            return None
        taken = {self.keys[offset] for offset in self.held}
        free = (each for each, key in enumerate(self.keys) if each not in self.done and key not in taken)
        return next(free, None)


def last(lines: list[str], line: str) -> int:
    """Return the number of the last line that reads so."""
    return max(number for number, each in enumerate(lines) if each == line)


class SharedFile:
    """One process of the queue."""

    def __init__(self, path: str) -> None:
        self.file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND)
        self.left = 0  # after how many statements it stands still; 0: it goes on

    def ask(self, line: str) -> None:
        """Do what one line asks for, and answer with one line."""
        verb, *words = line.split(" ")
        if verb == "pause":
            self.left = int(words[0])
        elif verb == "receive":
            self.receive(words[0])
        elif verb == "publish":
            self.write(f"{PUBLISH} {words[0]}")
            self.answer(str(len(Queue(self.read()).keys) - 1))
        elif verb == "ack":
            self.write(f"{ACK} {' '.join(words)}")
            lines = self.read()
            its_own = last(lines, f"{ACK} {' '.join(words)}")
            self.answer(str(int(Queue(lines).done.get(int(words[1])) == its_own)))
        elif verb == "leave":
            self.write(f"{LEAVE} {words[0]}")
            self.answer("")

    def receive(self, name: str) -> None:
        found = Queue(self.read()).next_for(name)
        if found is not None:
            self.write(f"{CLAIM} {name} {found}")
            lines = self.read()
            number = self.claim(lines, name, found)
            if number is not None:
                self.answer(f"{found} {Queue(lines).keys[found]} {number}")
                return
        self.answer("")

    def claim(self, lines: list[str], name: str, offset: int) -> int | None:
        """The line by which somebody has a message; None: an earlier one has given it to somebody else."""
        holder, number = Queue(lines).held.get(offset, ("", 0))
        return number if holder == name else None

    # --- statements: it can be paused behind each -------------------------------------------------------------------

    def read(self) -> list[str]:
        written = os.pread(self.file, os.fstat(self.file).st_size, 0)
        self.pause_if_it_is_time()
        return written.decode().splitlines()

    def write(self, line: str) -> None:
        os.write(self.file, f"{line}\n".encode())
        self.pause_if_it_is_time()

    def answer(self, line: str) -> None:
        self.left = min(self.left, 1)  # it has done everything but answer
        self.pause_if_it_is_time()
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()

    def pause_if_it_is_time(self) -> None:
        if self.left:
            self.left -= 1
            if not self.left:
                os.kill(os.getpid(), signal.SIGSTOP)


class LooksBeforeItClaims(SharedFile):
    """Whoever has seen that a message is free takes it: paused in between, it does not see who was faster."""

    def claim(self, lines: list[str], name: str, offset: int) -> int | None:
        return last(lines, f"{CLAIM} {name} {offset}")


PROCESSES = {each.__name__: each for each in (SharedFile, LooksBeforeItClaims)}


if __name__ == "__main__":
    process = PROCESSES[sys.argv[1]](sys.argv[2])
    for asked in sys.stdin:
        process.ask(asked.rstrip("\n"))
