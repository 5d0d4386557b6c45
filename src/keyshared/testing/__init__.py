"""Prove a Key-Shared system: histories of what it did, and a checker of the promises that it makes.

Nothing here needs anything but the standard library, and history and checker import nothing of keyshared's core: an
oracle that shares code with what it judges is no oracle.
"""

from keyshared.testing.claims import read_claims
from keyshared.testing.driver import AsyncDriver, Delivery, Driver
from keyshared.testing.errors import (
    DriverError,
    GuaranteesError,
    HistoryError,
    HistoryFileError,
    KilledError,
    LogEntry,
    MergeError,
    UnsupportedError,
)
from keyshared.testing.files import FileReport, check_file
from keyshared.testing.guarantees import Guarantees, Promise, Unjudged, Violation
from keyshared.testing.judges.checker import Checker, check_history
from keyshared.testing.logs import check_logs
from keyshared.testing.merging.merge import MergedHistory, merge_histories
from keyshared.testing.rows import from_rows, read_csv, read_jsonl, to_rows, write_jsonl

__all__ = [
    "AsyncDriver",
    "Checker",
    "Delivery",
    "Driver",
    "DriverError",
    "FileReport",
    "Guarantees",
    "GuaranteesError",
    "HistoryError",
    "HistoryFileError",
    "KilledError",
    "LogEntry",
    "MergeError",
    "MergedHistory",
    "Promise",
    "Unjudged",
    "UnsupportedError",
    "Violation",
    "check_file",
    "check_history",
    "check_logs",
    "from_rows",
    "merge_histories",
    "read_claims",
    "read_csv",
    "read_jsonl",
    "to_rows",
    "write_jsonl",
]
