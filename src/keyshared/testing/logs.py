"""Judge the logs of several processes, in files, as one history."""

from collections.abc import Iterable
from itertools import chain
from os import PathLike
from pathlib import Path
from typing import Final

from keyshared.testing._given import check_count
from keyshared.testing.files import Deliveries, FileReport, read_file
from keyshared.testing.guarantees import Guarantees, Promise, Unjudged
from keyshared.testing.judges.checker import Checker
from keyshared.testing.judges.losses import without_overtaken_losses
from keyshared.testing.merging.merge import merge_logs

__all__ = ["check_logs"]

_SHOWN: Final = 20


def check_logs(
    producers: Iterable[str | PathLike[str]],
    consumers: Iterable[str | PathLike[str]],
    guarantees: Guarantees | None = None,
    *,
    clock_error_ms: int | None = None,
    most: int = _SHOWN,
) -> FileReport:
    """Judge the logs of several processes as one history, and say which verdicts their order leaves open.

    Args:
        producers: Files, as for `check_file`; each is what one producer tells.
        consumers: Likewise, of consumers, brokers and operators.
        guarantees: What the system claims; None: as for `check_file`.
        clock_error_ms: As for `merge_histories`.
        most: How many violations are kept and shown at most; all are counted. Those of open promises are not.

    Raises:
        HistoryFileError: A file cannot be read, or holds no history.
        MergeError: The logs contradict each other.
        GuaranteesError: ``most`` or ``clock_error_ms`` is negative.

    Complexity:
        As `merge_histories`: all logs are in memory.
    """
    check_count("most", most, 0)
    files = [(Path(path), True) for path in producers] + [(Path(path), False) for path in consumers]
    logs = [(str(path), read_file(path), is_producer) for path, is_producer in files]
    claims = Guarantees() if guarantees is None else guarantees
    merged = merge_logs(logs, claims, clock_error_ms)
    checker = Checker(claims)
    found = [*chain.from_iterable(map(checker.feed, merged.history)), *checker.finish()]
    broken = {violation.promise for violation in found}
    # A loss that is open is not shown, so what overtook it has to be.
    sure = without_overtaken_losses([violation for violation in found if violation.promise in merged.decided])
    unjudged = tuple(each for each in checker.unjudged() if each.promise in merged.decided)
    left_open = tuple(
        Unjudged(each.promise, f"{'broken' if each.promise in broken else 'kept'} in one order, but {each.reason}")
        for each in merged.open
    )
    judged = merged.decided - {each.promise for each in unjudged}
    deliveries = Deliveries()
    deliveries.add(merged.history)
    return FileReport(
        " + ".join(name for name, _, _ in logs),
        len(merged.history),
        tuple(promise for promise in Promise if promise in judged),
        unjudged,
        tuple(sure[:most]),
        len(sure),
        left_open,
        deliveries.count,
        deliveries.keys,
    )
