"""Log records: a line of text for people, and fields for programs.

Each record has an attribute ``keyshared``, as those of runners have: a dict with ``event``, and with ``log`` (topic and
partition), ``offset``, ``key`` and other facts where they are known.
"""

import logging
from typing import Final

__all__ = ["fields", "logger"]

logger: Final = logging.getLogger("keyshared_kafka")


def fields(event: str, log: str, **more: object) -> dict[str, object]:
    """Return the ``extra`` of a record.

    Example:
        >>> fields("lost", "orders-7")
        {'keyshared': {'event': 'lost', 'log': 'orders-7'}}
    """
    return {"keyshared": {"event": event, "log": log, **more}}
