"""Where recorders write: one history for each log that a process takes part in."""

import re
from collections.abc import Callable
from os import PathLike
from pathlib import Path
from time import time_ns
from typing import TYPE_CHECKING, Final, Self, TypeAlias
from urllib.parse import quote

from keyshared.testing._arguments import check_function, check_kind
from keyshared.testing.errors import ClaimsError
from keyshared.testing.history import Event
from keyshared.testing.rows import write_jsonl

if TYPE_CHECKING:
    from io import FileIO

__all__ = ["Clock", "LogFiles", "Write", "wall_clock_ms"]

Write: TypeAlias = Callable[[str, Event], object]
"""Takes the name of a log (a stream, a queue, a partition) and what happened to it."""

Clock: TypeAlias = Callable[[], int | None]
"""Returns milliseconds, or None if nobody looked."""

_END: Final = ".jsonl"
_NAME: Final = re.compile(r"[A-Za-z0-9_.~-]+")


def wall_clock_ms() -> int:
    """Return what the clock of this machine says, in milliseconds since 1970."""
    return time_ns() // 1_000_000


def check_given(write: object, consumer: object, **functions: object) -> None:
    """Raise `TypeError` unless a recorder can work with what it was given."""
    check_kind("consumer", consumer, str)
    for name, function in {"write": write, **functions}.items():
        check_function(name, function)


class LogFiles:
    """Writes one file of JSON Lines for each log, ``<log>.<process>.jsonl``: each line at once, from any thread.

    Args:
        folder: Where.
        process: What tells this process from others that write there.

    Raises:
        ClaimsError: ``process`` is no text that can stand in the name of a file.

    Example:
        >>> from keyshared.testing.history import Published
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     with LogFiles(folder, "billing-1") as write:
        ...         write("orders", Published(offset=0, key=b"k"))
        ...     print(*(path.name for path in Path(folder).iterdir()))
        orders.billing-1.jsonl
    """

    def __init__(self, folder: str | PathLike[str], process: str) -> None:
        check_kind("process", process, str)
        if not _NAME.fullmatch(process):
            raise ClaimsError("process", process, "be of letters, digits, '_', '.', '-' and '~'")
        self._folder = Path(folder)
        self._process = process
        self._files: dict[str, FileIO] = {}

    def __call__(self, log: str, event: Event) -> None:
        """Write down what happened, at the end of the file of its log."""
        file = self._files.get(log)
        if file is None:
            path = self._folder / f"{quote(log, safe='')}.{self._process}{_END}"
            file = self._files.setdefault(log, path.open("ab", buffering=0))
        for line in write_jsonl([event]):
            file.write(line.encode("ascii"))  # in one piece, at the end: other threads may write there too

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all files."""
        for file in self._files.values():
            file.close()
        self._files.clear()
