"""A dead letter that its host wants delivered again, as ``redrive`` takes it."""

from collections.abc import Iterable
from operator import itemgetter
from typing import Any, Final, Generic, NamedTuple

from keyshared._checks import check_int, check_offset
from keyshared.effects import Item_co
from keyshared.errors import ArgumentError

__all__ = ["StoredLetter", "sorted_letters"]

_offset_of: Final = itemgetter(0)


class StoredLetter(NamedTuple, Generic[Item_co]):
    """A dead letter that comes back: what its `DeadLetter` said.

    Attributes:
        offset: The message's offset, under which it comes back.
        attempt: Its last delivery; what comes now has a higher number.
        item: A passenger that comes back with its `Deliver`.
    """

    offset: int
    attempt: int
    item: Item_co = None  # type: ignore[assignment]  # what nobody gave is None, whatever type the items have


def sorted_letters(letters: Iterable[object]) -> list[StoredLetter[Any]]:
    """The letters in offset order, or `ArgumentError` if one of them is none."""
    checked: list[StoredLetter[Any]] = []
    for letter in letters:
        if not isinstance(letter, tuple) or len(letter) != len(StoredLetter._fields):
            raise ArgumentError("letter", letter, "be a StoredLetter, or a tuple of offset, attempt and item")
        check_offset("offset", letter[0])
        check_int("attempt", letter[1], 0)
        checked.append(StoredLetter(*letter))
    return sorted(checked, key=_offset_of)
