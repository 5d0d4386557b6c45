"""Handlers that are watched: which ran, in which order, and whether two of a key ran at once."""

from collections import Counter, defaultdict
from threading import Lock
from typing import NamedTuple

from keyshared.run import Reject, RetryLater


class Message(NamedTuple):
    offset: int
    key: str
    ends: str = "ok"


class Watch:
    """Sees every start and end of work, whichever thread or task does it."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.busy: set[str] = set()
        self.runs: Counter[int] = Counter()
        self.starts: dict[str, list[int]] = defaultdict(list)
        self.done: list[int] = []
        self.wrong: list[str] = []
        self.peak = 0

    def begin(self, message: Message) -> None:
        with self.lock:
            if message.key in self.busy:
                self.wrong.append(f"{message} beside another of its key")
            self.busy.add(message.key)
            self.peak = max(self.peak, len(self.busy))
            self.runs[message.offset] += 1
            self.starts[message.key].append(message.offset)

    def end(self, message: Message) -> None:
        """End as the message says: those that fail once, are put off once, or exit once do it at their first run."""
        with self.lock:
            self.busy.discard(message.key)
            is_first = self.runs[message.offset] == 1
            if message.ends == "reject":
                raise Reject("bad")
            if message.ends == "fail":
                raise ValueError(message.offset)
            if is_first and message.ends == "fail once":
                raise ValueError(message.offset)
            if is_first and message.ends == "later once":
                raise RetryLater(1)
            if is_first and message.ends == "exit once":
                raise SystemExit
            self.done.append(message.offset)

    def check_overlaps(self) -> None:
        assert [] == self.wrong

    def check(self) -> None:
        self.check_overlaps()
        for key, starts in self.starts.items():
            assert sorted(starts) == starts, f"{key} was worked on out of order: {starts}"


def mixed_log(size: int) -> list[Message]:
    """Messages of thirteen keys and a hot one, with every end there is."""
    ends = {3: "fail once", 5: "later once", 7: "exit once", 11: "reject", 13: "fail"}
    return [Message(n, "hot" if n % 2 else f"key-{n % 13}", ends.get(n % 40, "ok")) for n in range(size)]
