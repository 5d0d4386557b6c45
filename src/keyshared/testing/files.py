"""Judge histories that stand in files; the only module of the kit that opens one."""

import gzip
import zlib
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing, contextmanager
from itertools import islice
from operator import itemgetter
from os import PathLike
from pathlib import Path
from typing import Final, NamedTuple

from keyshared.testing._batches import in_batches
from keyshared.testing._garbage import collector_at_rest
from keyshared.testing._given import check_count
from keyshared.testing.errors import HistoryError, HistoryFileError
from keyshared.testing.guarantees import Guarantees, Promise, Unjudged, Violation
from keyshared.testing.history import Delivered, Happening
from keyshared.testing.judges.checker import Checker
from keyshared.testing.judges.losses import Victim, loss_of, overtaken_in
from keyshared.testing.rows import numbered_csv, numbered_jsonl

__all__ = ["Deliveries", "FileReport", "check_file", "read_file"]

_SHOWN: Final = 20
_BATCHES_AT_REST: Final = 64  # of so many no garbage is collected: judging makes none that refers to itself
_MOST_KEYS: Final = 100_000
_MOST_KEPT: Final = 10_000  # overtakings of what may prove to be lost
_GZIP: Final = ".gz"
_READERS: Final[dict[str, Callable[[Iterable[str]], Iterator[tuple[int, Happening]]]]] = {".csv": numbered_csv}


class FileReport(NamedTuple):
    """What the checker says of a file; as a text, what is printed of it.

    Attributes:
        path: The file.
        happenings: How many it holds.
        judged: The claimed promises that it shows in full.
        unjudged: Those that it does not show, or not in full, and why.
        violations: What is broken, in the order in which it shows; the first ones.
        found: How many violations there are in all.
        open: Of logs that were merged: the claimed promises that another order of them may break or keep. They are in
            none of the others.
        deliveries: How many deliveries are among the happenings: a short file breaks little.
        keys: Of how many keys these are, counted up to 100,000.
    """

    path: str
    happenings: int
    judged: tuple[Promise, ...]
    unjudged: tuple[Unjudged, ...]
    violations: tuple[Violation, ...]
    found: int
    open: tuple[Unjudged, ...] = ()
    deliveries: int = 0
    keys: int = 0

    def __str__(self) -> str:
        keys = f"{self.keys} or more" if self.keys == _MOST_KEYS else f"{self.keys}"
        extent = f"{self.happenings} happenings (deliveries: {self.deliveries}, keys: {keys})"
        lines = [f"{self.path}: {extent}, {self.found} violations"]
        lines.append(f"judged in full: {', '.join(self.judged) or 'nothing'}")
        lines += ["not judged, or not in full:"] * bool(self.unjudged)
        lines += [f"  {each.promise}: {each.reason}" for each in self.unjudged]
        lines += ["open, as another order of the logs may be judged otherwise:"] * bool(self.open)
        lines += [f"  {each.promise}: {each.reason}" for each in self.open]
        lines += map(str, self.violations)
        if self.found > len(self.violations):
            lines.append(f"... and {self.found - len(self.violations)} more")
        return "\n".join(lines)


def check_file(path: str | PathLike[str], guarantees: Guarantees | None = None, *, most: int = _SHOWN) -> FileReport:
    """Judge the history in a file.

    Args:
        path: CSV if its name ends with ``.csv``, else JSON Lines; compressed by gzip if ``.gz`` follows; in large or
            small letters.
        guarantees: What the system claims; None: every promise that a history can show, one delivery of a key at a
            time.
        most: How many violations are kept and shown at most; all are counted.

    Raises:
        HistoryFileError: The file cannot be read, or holds no history, or one that contradicts itself.
        GuaranteesError: ``most`` is negative.

    Complexity:
        As `Checker`: the file is read once, and is never in memory as a whole. Python's garbage collector, of the whole
        process, rests for 16,000 happenings at a time.
    """
    check_count("most", most, 0)
    lines = _Lines(Path(path))
    checker = Checker(guarantees)
    found = _Found(most)
    deliveries = Deliveries()
    happenings = 0
    with closing(lines.read()) as text, _named(lines, path):
        batches = in_batches(lines.reader(text))
        while count := _judge(islice(batches, _BATCHES_AT_REST), checker, path, found, deliveries):
            happenings += count
    found.add(checker.finish())
    unjudged = tuple(checker.unjudged())
    claimed = (Guarantees() if guarantees is None else guarantees).promises
    judged = tuple(promise for promise in Promise if promise in claimed - {each.promise for each in unjudged})
    return FileReport(
        str(path), happenings, judged, unjudged, found.shown, found.count, (), deliveries.count, deliveries.keys
    )


def read_file(path: str | PathLike[str]) -> Iterator[Happening]:
    """Read the history in a file, in the form that its name says, as `check_file` does.

    Raises:
        HistoryFileError: While iterating: the file cannot be read, or holds no history.
    """
    lines = _Lines(Path(path))
    with closing(lines.read()) as text, _named(lines, path):
        for _, happening in lines.reader(text):
            yield happening


class _Lines:
    """The lines of a file, and the number of the one that was read last."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.number = 0

    def reader(self, text: Iterable[str]) -> Iterator[tuple[int, Happening]]:
        """Read happenings in the form that the name says: by its last suffix before that of a compressed file."""
        path = self.path.with_suffix("") if self._is_compressed else self.path
        return _READERS.get(path.suffix.lower(), numbered_jsonl)(text)

    @property
    def _is_compressed(self) -> bool:
        return self.path.suffix.lower() == _GZIP

    def read(self) -> Generator[str]:
        try:
            with gzip.open(self.path) if self._is_compressed else self.path.open("rb") as file:
                for self.number, line in enumerate(file, 1):
                    yield line.decode() if self.number > 1 else line.decode("utf-8-sig")
        except (OSError, EOFError, ValueError, zlib.error) as error:
            raise HistoryFileError(str(self.path), self.number, f"it cannot be read: {error}") from None


@contextmanager
def _named(lines: _Lines, path: str | PathLike[str]) -> Iterator[None]:
    """Name the line on which something stands that is no happening."""
    try:
        yield
    except HistoryError as error:
        raise HistoryFileError(str(path), lines.number, str(error)) from None


class Deliveries:
    """Counts deliveries, and their keys as far as it can remember them."""

    def __init__(self) -> None:
        self.count = 0
        self._keys: set[bytes] = set()

    @property
    def keys(self) -> int:
        """Of how many keys they are."""
        return len(self._keys)

    def add(self, happenings: Iterable[Happening]) -> None:
        """Take the next happenings."""
        for happening in happenings:
            if type(happening) is Delivered:
                self.count += 1
                if happening.key is not None and len(self._keys) < _MOST_KEYS:
                    self._keys.add(happening.key)


class _Found:
    """Counts violations, and keeps the first ones.

    That something was overtaken counts no more when it proves to be lost. So these are kept apart until the end: of
    each message as many as may be shown, so that no single one takes the place of all others.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._told = 0
        self._sure: list[tuple[int, Violation]] = []  # with how many were told before
        self._overtakings: list[tuple[int, Violation]] = []  # likewise
        self._overtaken = Counter[Victim]()
        self._lost: set[Victim] = set()

    def add(self, violations: list[Violation]) -> None:
        for violation in violations:
            victim, lost = overtaken_in(violation), loss_of(violation)
            if lost is not None:
                self._lost.add(lost)
            kept = self._sure
            if victim is not None:
                self._overtaken[victim] += 1
                kept = self._overtakings
            if self._has_room(kept) and (victim is None or self._overtaken[victim] <= self._most):
                kept.append((self._told, violation))
            self._told += 1

    def _has_room(self, kept: list[tuple[int, Violation]]) -> bool:
        return len(self._sure) < self._most and len(kept) < max(self._most, _MOST_KEPT)

    @property
    def count(self) -> int:
        return self._told - sum(self._overtaken[victim] for victim in self._lost)

    @property
    def shown(self) -> tuple[Violation, ...]:
        overtakings = [(place, each) for place, each in self._overtakings if overtaken_in(each) not in self._lost]
        in_order = sorted([*self._sure, *overtakings], key=itemgetter(0))
        return tuple(violation for _, violation in in_order[: self._most])


def _judge(
    batches: Iterable[list[tuple[int, Happening]]],
    checker: Checker,
    path: str | PathLike[str],
    found: _Found,
    deliveries: Deliveries,
) -> int:
    """Judge what is read, and return how much that was."""
    count, feed = 0, checker.feed
    with collector_at_rest():
        for batch in batches:
            count += len(batch)
            deliveries.add(happening for _, happening in batch)
            for number, happening in batch:
                try:
                    violations = feed(happening)
                except HistoryError as error:
                    raise HistoryFileError(str(path), number, str(error)) from None
                if violations:
                    found.add(violations)
    return count
