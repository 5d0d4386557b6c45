"""Samples of what real systems have told a recorder: as JSON Lines, read back as things that look like the real ones.

The first line of a sample is a note: which system in which version, recorded how and when. Each other line is a call of
a recorder: its method, and its arguments.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from time import time_ns
from types import SimpleNamespace
from typing import Any, Final

from keyshared.testing.history import Event

__all__ = ["SAMPLES", "Tap", "histories", "note"]

SAMPLES: Final = Path(__file__).with_name("samples")
# What is read of the values that clients hand over; the names of methods end with ().
_READ: Final = {
    "Message": ("topic()", "partition()", "offset()", "key()"),
    "TopicPartition": ("topic", "partition", "offset", "error"),
    "OperationModel": ("name",),
}
_LEFT_OUT: Final = frozenset(
    [
        *("ResponseMetadata", "MD5OfBody", "MD5OfMessageBody", "signing", "auth_type", "auth_options", "origin"),
        *("client_region", "client_config", "has_streaming_input", "unsigned_payload", "timestamp"),
    ]
)


class Tap:
    """Stands before a recorder, hands on what it is told, and writes that down as lines of a sample."""

    def __init__(self, recorder: Any, process: str, lines: list[str]) -> None:
        self._recorder = recorder
        self._process = process
        self._lines = lines

    def __getattr__(self, method: str) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            told = {name: plain(each) for name, each in named.items() if plain(each) is not None}
            line = {"at_ms": time_ns() // 1_000_000, "process": self._process, "call": method}
            self._lines.append(json.dumps({**line, "with": [plain(each) for each in arguments], "named": told}))
            return getattr(self._recorder, method)(*arguments, **named)

        return call


def plain(value: Any) -> Any:
    """What of a value can stand in JSON."""
    kinds = [each.__name__ for each in type(value).__mro__]
    known = next((kind for kind in kinds if kind in _READ), None)
    if known is not None:
        parts = {name: getattr(value, name.removesuffix("()")) for name in _READ[known]}
        return {"is": known, **{name: plain(part() if name.endswith("()") else part) for name, part in parts.items()}}
    if isinstance(value, bytes):
        return {"is": "bytes", "text": value.decode()}
    if isinstance(value, BaseException):
        return {"is": "error", "text": type(value).__name__}
    if isinstance(value, Mapping):
        items = [[plain(name), plain(each)] for name, each in value.items() if name not in _LEFT_OUT]
        return {"is": "dict", "items": items}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    return value if value is None or isinstance(value, str | int | float) else None


def lively(value: Any) -> Any:
    """What stands for the real value: the same attributes and methods, as far as a recorder reads them."""
    if isinstance(value, list):
        return [lively(each) for each in value]
    if not isinstance(value, dict):
        return value
    match value["is"]:
        case "bytes":
            return value["text"].encode()
        case "error":
            return RuntimeError(value["text"])
        case "dict":
            return {lively(name): lively(each) for name, each in value["items"]}
        case _:
            pass
    parts = {name: lively(each) for name, each in value.items() if name != "is"}
    return SimpleNamespace(**{name.removesuffix("()"): returning(part, name) for name, part in parts.items()})


def returning(part: Any, name: str) -> Any:
    return (lambda: part) if name.endswith("()") else part


def note(system: str) -> dict[str, str]:
    """What is said of a sample."""
    with (SAMPLES / f"{system}.jsonl").open() as lines:
        found: dict[str, str] = json.loads(next(lines))
    return found


def calls(system: str) -> Iterator[dict[str, Any]]:
    with (SAMPLES / f"{system}.jsonl").open() as lines:
        next(lines)
        yield from map(json.loads, lines)


def histories(system: str, kind: Callable[..., Any], *more: Any) -> dict[str, dict[str, list[Event]]]:
    """What recorders write when they are told what the real system told them: by log, and by process."""
    found: dict[str, dict[str, list[Event]]] = {}
    recorders: dict[str, Any] = {}
    now = 0

    def recorder_of(process: str) -> Any:
        def write(log: str, event: Event) -> None:
            found.setdefault(log, {}).setdefault(process, []).append(event)

        return kind(write, process, *more, clock=lambda: now)

    for call in calls(system):
        process, now = call["process"], call["at_ms"]
        if process not in recorders:
            recorders[process] = recorder_of(process)
        getattr(recorders[process], call["call"])(*lively(call["with"]), **lively_names(call["named"]))
    return found


def lively_names(named: dict[str, Any]) -> dict[str, Any]:
    return {name: lively(each) for name, each in named.items()}
