"""Prove a Key-Shared system: histories of what it did, and a checker of the promises that it makes.

History and checker need only the standard library and import nothing of keyshared's core: an oracle that shares code
with what it judges is no oracle.
"""

from keyshared.testing.checker import Checker, check_history
from keyshared.testing.claims import USUAL, Claims, Promise, Unjudged, Violation, read_claims
from keyshared.testing.driver import AsyncDriver, Delivery, Driver, wait_for_threads
from keyshared.testing.errors import (
    ClaimsError,
    DriverError,
    HistoryError,
    HistoryFileError,
    KilledError,
    LogEntry,
    MergeError,
    UnsupportedError,
)
from keyshared.testing.files import FileReport, check_file, check_logs
from keyshared.testing.merge import MergedHistory, merge_histories
from keyshared.testing.rows import from_rows, read_csv, read_jsonl, to_rows, write_jsonl

__all__ = [
    "USUAL",
    "AsyncDriver",
    "Checker",
    "Claims",
    "ClaimsError",
    "Delivery",
    "Driver",
    "DriverError",
    "FileReport",
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
    "wait_for_threads",
    "write_jsonl",
]
