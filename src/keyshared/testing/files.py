"""Judge histories in files, and say the result as a table."""

import gc
import gzip
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import chain, islice
from operator import itemgetter
from os import PathLike
from pathlib import Path
from typing import Final, NamedTuple

from keyshared.testing._arguments import check_count
from keyshared.testing.checker import Checker, without_overtaken_losses
from keyshared.testing.claims import Claims, Promise, Unjudged, Violation
from keyshared.testing.errors import HistoryError, HistoryFileError
from keyshared.testing.history import Delivered, Event
from keyshared.testing.merge import merge_logs
from keyshared.testing.rows import numbered_csv, numbered_jsonl

__all__ = ["FileReport", "Verdict", "check_file", "check_logs", "collector_at_rest", "table"]

_SHOWN: Final = 20
_BATCH: Final = 256  # events that are read before they are judged: one by one costs a sixth more
_BATCHES_AT_REST: Final = 64  # of so many no garbage is collected: judging makes none that refers to itself
_MOST_KEYS: Final = 100_000
_MOST_KEPT: Final = 10_000  # violations
_GZIP: Final = ".gz"
_EVENT: Final = itemgetter(1)  # of one that comes with the number of its line
HOLDS, BREAKS, NOT_JUDGED = "holds", "breaks", "not judged"


class Verdict(NamedTuple):
    """One line of the table.

    Attributes:
        promise: The promise, or what else is judged.
        outcome: "holds", "breaks" or "not judged".
        detail: How much was judged, how often it breaks, or what to add so that it is judged.
    """

    promise: str
    outcome: str
    detail: str


class FileReport(NamedTuple):
    """The checker's report of a file; as a text, what is printed of it.

    Attributes:
        path: The file.
        events: How many it holds.
        deliveries: How many deliveries are among them: a short file breaks little.
        keys: Of how many keys these are, counted up to 100,000.
        verdicts: One for each claimed promise.
        violations: What is broken, in the order in which it shows; the first ones.
        found: How many violations there are in all.
        unjudged_messages: How many messages are not judged, by what to add so that they are.
    """

    path: str
    events: int
    deliveries: int
    keys: int
    verdicts: tuple[Verdict, ...]
    violations: tuple[Violation, ...]
    found: int
    unjudged_messages: Counter[str]

    def __str__(self) -> str:
        keys = f"{self.keys:,} or more" if self.keys == _MOST_KEYS else f"{self.keys:,}"
        lines = [f"{self.path}: {self.events:,} events, {self.deliveries:,} deliveries of {keys} keys"]
        lines += [not_judged(self.unjudged_messages)] * bool(self.unjudged_messages)
        lines += [table(self.verdicts), *map(str, self.violations)]
        if self.found > len(self.violations):
            lines.append(f"... and {self.found - len(self.violations)} violations more")
        return "\n".join(lines)


def table(verdicts: Iterable[Verdict]) -> str:
    """Return verdicts as a table in plain text."""
    rows = list(verdicts)
    widths = [max((len(row[column]) for row in rows), default=0) for column in range(2)]
    return "\n".join(f"  {row.promise:{widths[0]}}  {row.outcome:{widths[1]}}  {row.detail}".rstrip() for row in rows)


def not_judged(messages: Counter[str]) -> str:
    """Write how many messages are not judged, and what to add so that they are."""
    reasons = "; ".join(f"{reason} ({count:,})" for reason, count in messages.most_common())
    return f"messages that are not judged: {messages.total():,}. So that they are: {reasons}"


def check_file(path: str | PathLike[str], claims: Claims | None = None, *, most: int = _SHOWN) -> FileReport:
    """Judge the history in a file.

    Args:
        path: CSV if its name ends with ``.csv``, else JSON Lines; compressed by gzip if ``.gz`` follows; in large or
            small letters.
        claims: What the system claims; None: every promise that a history can show, one delivery of a key at a time.
        most: How many violations are kept and shown at most; all are counted.

    Raises:
        HistoryFileError: The file cannot be read, or holds no history, or one that contradicts itself.
        ClaimsError: ``most`` is negative.

    Complexity:
        As `Checker`: the file is read once, and is never in memory as a whole. Python's garbage collector, of the whole
        process, rests for 16,000 events at a time.
    """
    check_count("most", most, 0)
    result, batches = _Result(Claims() if claims is None else claims), _in_batches(_read(str(path)))
    while result.take(islice(batches, _BATCHES_AT_REST), str(path)):
        pass
    return result.report(str(path), most)


def check_logs(
    producers: Iterable[str | PathLike[str]],
    consumers: Iterable[str | PathLike[str]],
    claims: Claims | None = None,
    *,
    clock_error_ms: int | None = None,
    most: int = _SHOWN,
) -> FileReport:
    """Judge the logs of several processes as one history.

    Args:
        producers: Files, as for `check_file`; each is what one producer tells.
        consumers: Likewise, of consumers, brokers and operators.
        claims: As for `check_file`.
        clock_error_ms: As for `keyshared.testing.merge.merge_histories`.
        most: As for `check_file`.

    Raises:
        HistoryFileError: A file cannot be read, or holds no history.
        MergeError: The logs contradict each other, or a time is missing.
        ClaimsError: ``most`` or ``clock_error_ms`` is negative.

    Complexity:
        As `merge_histories`: all logs are in memory.
    """
    check_count("most", most, 0)
    files = [(str(path), True) for path in producers] + [(str(path), False) for path in consumers]
    logs = [(name, map(_EVENT, _read(name)), is_producer) for name, is_producer in files]
    merged = merge_logs(logs, claims, clock_error_ms)
    result, name = _Result(merged.claims), " + ".join(name for name, _, _ in logs)
    result.take([list(enumerate(merged.history))], name)
    return result.report(name, most, merged.unjudged)


class _Result:
    """Judges events, and counts them and what they break."""

    def __init__(self, claims: Claims) -> None:
        self._claims = claims
        self._checker = Checker(claims)
        self._events = self._deliveries = 0
        self._keys: set[bytes] = set()
        self._kept: list[Violation] = []
        self._found: Counter[Promise] = Counter()
        self._overtaken: Counter[tuple[int | None, int]] = Counter()  # by message and wait
        self._lost: set[tuple[int | None, int]] = set()

    def take(self, batches: Iterable[list[tuple[int, Event]]], name: str) -> int:
        """Judge what is read, and return how many events that was."""
        before, feed = self._events, self._checker.feed
        with collector_at_rest():
            for batch in batches:
                self._events += len(batch)
                for number, event in batch:
                    try:
                        violations = feed(event)
                    except HistoryError as error:
                        raise HistoryFileError(name, number, str(error)) from None
                    if violations:
                        self._note(violations)
                    if type(event) is Delivered:
                        self._deliveries += 1
                        if event.key is not None and len(self._keys) < _MOST_KEYS:
                            self._keys.add(event.key)
        return self._events - before

    def _note(self, violations: Iterable[Violation]) -> None:
        for each in violations:
            self._found[each.promise] += 1
            if each.promise is Promise.KEY_ORDER:
                self._overtaken[each.offset, each.proof[0]] += 1
            elif each.promise is Promise.NO_LOSS:
                self._lost.add((each.offset, each.proof[0]))
            if len(self._kept) < _MOST_KEPT:
                self._kept.append(each)

    def report(self, name: str, most: int, others: Iterable[Unjudged] = ()) -> FileReport:
        """Return what came of it; what else was claimed, and why it is not judged."""
        found = Counter(self._found)
        found[Promise.KEY_ORDER] -= sum(self._overtaken[victim] for victim in self._lost)
        missing = {each.promise: each.reason for each in chain(self._checker.unjudged(), others)}
        claimed = {*self._claims.promises, *missing}
        verdicts: list[Verdict] = []
        for promise in Promise:
            if found[promise]:
                verdicts.append(Verdict(str(promise), BREAKS, f"{found[promise]:,} violations"))
            elif promise in missing:
                verdicts.append(Verdict(str(promise), NOT_JUDGED, missing[promise]))
            elif promise in claimed:
                verdicts.append(Verdict(str(promise), HOLDS, f"{self._deliveries:,} deliveries"))
        violations = without_overtaken_losses(self._kept)
        return FileReport(
            name,
            self._events,
            self._deliveries,
            len(self._keys),
            tuple(verdicts),
            tuple(violations[:most]),
            found.total(),
            self._checker.unjudged_messages,
        )


def _read(path: str) -> Iterator[tuple[int, Event]]:
    """Read the events of a file with the numbers of their lines; the last suffix but ``.gz`` says the form."""
    is_csv = path.lower().removesuffix(_GZIP).endswith(".csv")
    try:
        yield from (numbered_csv if is_csv else numbered_jsonl)(_lines(path))
    except HistoryError as error:
        raise HistoryFileError(path, error.number, str(error)) from None


def _lines(path: str) -> Iterator[str]:
    number = 0
    try:
        with gzip.open(path) if path.lower().endswith(_GZIP) else Path(path).open("rb") as file:
            for number, line in enumerate(file, 1):
                yield line.decode() if number > 1 else line.decode("utf-8-sig")
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise HistoryFileError(path, number, f"it cannot be read: {error}") from None


def _in_batches(events: Iterator[tuple[int, Event]]) -> Iterator[list[tuple[int, Event]]]:
    """Read ahead. If reading fails, first what was read until then is yielded."""
    while True:
        batch: list[tuple[int, Event]] = []
        try:
            batch += islice(events, _BATCH)  # which keeps what was read before an error
        except HistoryFileError:
            yield batch
            raise
        if not batch:
            return
        yield batch


@contextmanager
def collector_at_rest() -> Iterator[None]:
    """Keep the garbage collector from going through the same new objects again and again, but once later."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
