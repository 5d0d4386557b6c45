"""A dispatcher that lives in pieces: commands in, rows out, its state as bytes in between."""

from keyshared.journal.commands import COMMANDS, LATE, Command, Fields, OutcomeRow
from keyshared.journal.journal import DEFAULT_MAX_BYTES, Journal

__all__ = [
    "COMMANDS",
    "DEFAULT_MAX_BYTES",
    "LATE",
    "Command",
    "Fields",
    "Journal",
    "OutcomeRow",
]
