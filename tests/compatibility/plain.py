"""Values of calls and effects as JSON, and back: bytes and nothing else need a mark."""

from enum import Enum
from typing import Any

__all__ = ["plain", "read"]


def plain(value: Any) -> Any:
    """What JSON can hold of a value; an object is its class and its fields, so that their order counts too."""
    if isinstance(value, bytes):
        return {"bytes": value.hex()}
    if isinstance(value, Enum):
        return value.value
    if value is None or isinstance(value, (bool, int, str, float)):
        return value
    if isinstance(value, (list, tuple)):
        return [plain(each) for each in value]
    return [type(value).__name__, *(plain(getattr(value, name)) for name in value.__match_args__)]


def read(value: Any) -> Any:
    if isinstance(value, dict):
        return bytes.fromhex(value["bytes"])
    return [read(each) for each in value] if isinstance(value, list) else value
