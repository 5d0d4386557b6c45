"""Values that nobody means to pass: huge, deep, cyclic, unprintable, or of a kind that is nearly right."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

__all__ = ["ODD", "Named", "NumberLike", "TextLike", "Unprintable", "cyclic", "nested", "shared"]


class Unprintable:
    """Raises when anybody wants to see it."""

    def __repr__(self) -> str:
        raise RuntimeError("I do not show myself")


class TextLike(str):
    """A text by inheritance only."""

    __slots__ = ()


class NumberLike(IntEnum):
    """A number by inheritance only."""

    SEVEN = 7


@dataclass(frozen=True)
class Named:
    """A value of somebody else's."""

    name: object = "ann"


def nested(depth: int) -> list[Any]:
    """Build a list in a list in a list."""
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


def shared(depth: int) -> list[Any]:
    """Build a list whose parts stand in it twice: small in memory, and two to the power of the depth to walk."""
    value: list[Any] = ["c", "d"]
    for _ in range(depth):
        value = [value, value]
    return value


def cyclic() -> list[Any]:
    """Build a list that holds itself."""
    value: list[Any] = []
    value.append(value)
    return value


def _items() -> Iterator[object]:
    yield "item"


# Each is made anew for each call, because a generator can be read once and a list be changed.
ODD: tuple[tuple[str, Callable[[], object]], ...] = (
    ("None", lambda: None),
    ("True", lambda: True),
    ("-1", lambda: -1),
    ("0", lambda: 0),
    ("2**63", lambda: 2**63),
    ("2**64", lambda: 2**64),
    ("0.5", lambda: 0.5),
    ("nan", lambda: float("nan")),
    ("empty text", lambda: ""),
    ("text", lambda: "odd"),
    ("surrogate", lambda: "\ud800"),
    ("empty bytes", lambda: b""),
    ("bytes", lambda: b"\xff"),
    ("empty list", list),
    ("empty dict", dict),
    ("list of None", lambda: [None]),
    ("list of nan", lambda: [float("nan"), 1]),
    ("list of -1", lambda: [-1, 1]),
    ("dict of nan", lambda: {0: float("nan"), "ann": float("nan")}),
    ("list of texts", lambda: ["a", "\ud800"]),
    ("dict of odd", lambda: {1: None, "a": -1}),
    ("tuple of odd", lambda: (None, -1, "x")),
    ("object", object),
    ("generator", _items),
    ("class", lambda: Named),
    ("text-like", lambda: TextLike("ann")),
    ("number-like", lambda: NumberLike.SEVEN),
    ("other dataclass", lambda: Named([1])),
)
