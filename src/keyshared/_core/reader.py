"""Reads plain data of a snapshot, and says where it is not what it should be."""

from base64 import b64decode
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Final, TypeVar

from keyshared._checks import OFFSET_BITS, OFFSET_STOP
from keyshared.errors import SnapshotError
from keyshared.placement.ranges import Weight

__all__ = ["EPOCH_BITS", "LAST_EPOCH", "Reader"]

EPOCH_BITS: Final = 32
"""Attempts of epoch e are numbered from ``(e << EPOCH_BITS) + 1``: after a crash no number of before comes again."""

LAST_EPOCH: Final = (1 << (OFFSET_BITS - EPOCH_BITS)) - 1
"""Beyond it, attempts would have more than 63 bits."""

_T = TypeVar("_T")


class Reader:
    """Reads plain data that may be anything, and says where it is not what it should be."""

    __slots__ = ("_data", "_inside", "_name")

    def __init__(self, data: object, name: str | int = "snapshot", inside: "Reader | None" = None) -> None:
        self._data = data
        self._name = name
        self._inside = inside

    def refuse(self, requirement: str) -> SnapshotError:
        """The exception that says what this value should have been."""
        return SnapshotError(self.place(), self._data, requirement)

    def place(self) -> str:
        """Where this value stands: put together only when it is told, there are ten values for each message."""
        if self._inside is None:
            return str(self._name)
        step = f"[{self._name}]" if isinstance(self._name, int) else f".{self._name}"
        return f"{self._inside.place()}{step}"

    @property
    def raw(self) -> object:
        """What is read, whatever it is."""
        return self._data

    def field(self, name: str) -> "Reader":
        """The value under a name."""
        if not isinstance(self._data, Mapping) or name not in self._data:
            raise self.refuse(f"have a field {name!r}")
        return Reader(self._data[name], name, self)

    def fields(self) -> dict[str, "Reader"]:
        """All values under their names."""
        if not isinstance(self._data, Mapping):
            raise self.refuse("be a dict")
        return {str(name): Reader(value, str(name), self) for name, value in self._data.items()}

    def items(self, length: int | None = None) -> list["Reader"]:
        """The values of a list, of that length if one is given."""
        if not isinstance(self._data, list) or length not in {None, len(self._data)}:
            raise self.refuse("be a list" if length is None else f"be a list of {length}")
        return [Reader(value, index, self) for index, value in enumerate(self._data)]

    def maybe(self, read: Callable[["Reader"], _T]) -> _T | None:
        """None, or what ``read`` makes of it."""
        return None if self._data is None else read(self)

    def integer(self) -> int:
        """An int."""
        if type(self._data) is not int:
            raise self.refuse("be an int")
        return self._data

    def offset(self) -> int:
        """An offset of a log."""
        if not -OFFSET_STOP < self.integer() < OFFSET_STOP:
            raise self.refuse(f"be of at most {OFFSET_BITS} bits")
        return self.integer()

    def position(self) -> int:
        """The next offset of a log."""
        return OFFSET_STOP if self.integer() == OFFSET_STOP else self.offset()

    def count(self) -> int:
        """An int that is not negative."""
        if self.integer() < 0:
            raise self.refuse("be at least 0")
        return self.integer()

    def remaining(self) -> int:
        """How long a deadline is ahead, or how long it has been due: no clock has gone that far back."""
        if self.integer() <= -OFFSET_STOP:
            raise self.refuse(f"be of at most {OFFSET_BITS} bits below 0")
        return self.integer()

    def age(self) -> int:
        """How long ago something was."""
        if self.count() >= OFFSET_STOP:
            raise self.refuse(f"be of at most {OFFSET_BITS} bits")
        return self.count()

    def number(self) -> int:
        """A number of a delivery or the like: a count that leaves room for the next one in 63 bits."""
        if self.count() >= OFFSET_STOP - 1:
            raise self.refuse(f"be below {OFFSET_STOP - 1}: the next one has {OFFSET_BITS} bits")
        return self.count()

    def epoch(self) -> int:
        """The number of a life."""
        if self.count() > LAST_EPOCH:
            raise self.refuse(f"be at most {LAST_EPOCH}")
        return self.count()

    def text(self) -> str:
        """A str."""
        if not isinstance(self._data, str):
            raise self.refuse("be a str")
        return self._data

    def flag(self) -> bool:
        """A bool."""
        if not isinstance(self._data, bool):
            raise self.refuse("be a bool")
        return self._data

    def binary(self) -> bytes:
        """Bytes, written as base64."""
        try:
            return b64decode(self.text(), validate=True)
        except ValueError:
            raise self.refuse("be base64") from None

    def one_of(self, values: Mapping[str, _T]) -> _T:
        """What the text stands for."""
        if self.text() not in values:
            raise self.refuse(f"be one of {', '.join(values)}")
        return values[self.text()]

    def weight(self) -> Weight:
        """A positive fraction; the placement checks it."""
        above, below = (number.integer() for number in self.items(2))
        if below < 1:
            raise self.refuse("be a fraction")
        return Fraction(above, below) if below > 1 else above
