"""Reads plain data of a snapshot: each value by its type, and an error that names the place of a wrong one."""

from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Final, TypeVar

from keyshared._checks import OFFSET_BITS, OFFSET_STOP
from keyshared.errors import SnapshotError
from keyshared.placement.range_map import Weight

__all__ = ["EPOCH_BITS", "LAST_EPOCH", "Reader", "binary_text"]

EPOCH_BITS: Final = 32
"""Attempts of epoch e are numbered from ``(e << EPOCH_BITS) + 1``: after a crash no earlier number comes again."""

LAST_EPOCH: Final = (1 << (OFFSET_BITS - EPOCH_BITS)) - 1
"""Beyond it, attempts would have more than 63 bits."""

_T = TypeVar("_T")


def binary_text(data: bytes) -> str:
    """Return the text from which `Reader.binary` reads these bytes."""
    return b64encode(data).decode("ascii")


class Reader:
    """One value of a snapshot, which may be anything, and its place."""

    __slots__ = ("_inside", "_name", "raw")

    def __init__(self, data: object, name: str | int = "snapshot", inside: "Reader | None" = None) -> None:
        self.raw = data
        self._name = name
        self._inside = inside

    def refuse(self, requirement: str) -> SnapshotError:
        """Return the error that says what this value must be."""
        return SnapshotError(self.place(), self.raw, requirement)

    def place(self) -> str:
        """Return where this value is; built only for an error, because a message has ten values."""
        if self._inside is None:
            return str(self._name)
        step = f"[{self._name}]" if isinstance(self._name, int) else f".{self._name}"
        return f"{self._inside.place()}{step}"

    def field(self, name: str) -> "Reader":
        """Return the value under a name."""
        if not isinstance(self.raw, Mapping) or name not in self.raw:
            raise self.refuse(f"have a field {name!r}")
        return Reader(self.raw[name], name, self)

    def fields(self) -> dict[str, "Reader"]:
        """Return all values under their names."""
        if not isinstance(self.raw, Mapping):
            raise self.refuse("be a dict")
        return {str(name): Reader(value, str(name), self) for name, value in self.raw.items()}

    def items(self, length: int | None = None) -> list["Reader"]:
        """Return the values of a list, of that length if one is given."""
        if not isinstance(self.raw, list) or length not in {None, len(self.raw)}:
            raise self.refuse("be a list" if length is None else f"be a list of {length}")
        return [Reader(value, index, self) for index, value in enumerate(self.raw)]

    def maybe(self, read: Callable[["Reader"], _T]) -> _T | None:
        """Return None for None, else the result of ``read``."""
        return None if self.raw is None else read(self)

    def integer(self) -> int:
        """Return an int of at most 63 bits: an offset, or what remains of a time."""
        if type(self.raw) is not int or not -OFFSET_STOP < self.raw < OFFSET_STOP:
            raise self.refuse(f"be an int of at most {OFFSET_BITS} bits")
        return self.raw

    def position(self) -> int:
        """Return the next offset to read: perhaps one above the greatest."""
        return OFFSET_STOP if self.raw == OFFSET_STOP else self.integer()

    def count(self) -> int:
        """Return an int that is not negative."""
        if self.integer() < 0:
            raise self.refuse("be at least 0")
        return self.integer()

    def weight(self) -> Weight:
        """Return a positive fraction, written as two ints."""
        above, below = (number.count() for number in self.items(2))
        if not below:
            raise self.refuse("be a fraction")
        return Fraction(above, below) if below > 1 else above

    def text(self) -> str:
        """Return a str."""
        if not isinstance(self.raw, str):
            raise self.refuse("be a str")
        return self.raw

    def flag(self) -> bool:
        """Return a bool."""
        if not isinstance(self.raw, bool):
            raise self.refuse("be a bool")
        return self.raw

    def binary(self) -> bytes:
        """Return the bytes that `binary_text` wrote."""
        try:
            return b64decode(self.text(), validate=True)
        except ValueError:
            raise self.refuse("be base64") from None

    def one_of(self, values: Mapping[str, _T]) -> _T:
        """Return the value that a text names."""
        if self.text() not in values:
            raise self.refuse(f"be one of {', '.join(values)}")
        return values[self.text()]
