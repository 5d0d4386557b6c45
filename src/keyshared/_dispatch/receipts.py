"""What a host names: by a receipt the current delivery of a message, an earlier one, or nothing; or a dead letter."""

from collections.abc import Sequence
from operator import itemgetter
from typing import Any, Final, Generic, NamedTuple

from keyshared._checks import OFFSET_STOP, check_int, check_offset, checked_list
from keyshared._dispatch.endings import REMEMBERED_DELIVERIES, Ended
from keyshared._dispatch.members import Member
from keyshared._window.lanes import BLOCKED, DEAD_LETTERING, IN_FLIGHT, Entry
from keyshared.effects import Call, Ignored, IgnoredReason, Item_co
from keyshared.errors import ArgumentError

__all__ = [
    "MAX_REASON",
    "Receipt",
    "StoredLetter",
    "check_length",
    "check_not_before",
    "check_reason",
    "check_receipt",
    "checked_letters",
    "current",
    "explain_ignored",
    "open_through",
    "read_receipts",
    "sorted_letters",
]

Receipt = tuple[int, str, int]
"""Offset, consumer and attempt: what names one delivery."""

_offset_of: Final = itemgetter(0)
_ROOM: Final = 1 << 31  # deliveries of one message: more than any will ever have, and half of those of the last epoch
_LETTERS_STOP: Final = OFFSET_STOP - _ROOM
MAX_REASON: Final = 500
"""Characters that the reason of a failure may have: it is kept and stored for each message that has one."""


class StoredLetter(NamedTuple, Generic[Item_co]):
    """A dead letter that comes back: what its `DeadLetter` said.

    Attributes:
        offset: The message's offset, under which it comes back.
        attempt: Its last delivery, from 0 to below 2**63 - 2**31; what comes now has a higher number.
        item: A passenger that comes back with its `Deliver`.
    """

    offset: int
    attempt: int
    item: Item_co = None  # type: ignore[assignment]  # what nobody gave is None, whatever type the items have


def check_receipt(offset: object, consumer: object, attempt: object) -> None:
    """Raise `ArgumentError` unless these could be a receipt at all."""
    check_offset("offset", offset)
    if not isinstance(consumer, str):
        raise ArgumentError("consumer", consumer, "be a str")
    if type(attempt) is not int:
        raise ArgumentError("attempt", attempt, "be an int")


def check_length(parameter: str, value: object, *, at_least: int) -> None:
    """Raise `ArgumentError` unless that is a stretch of time, or None for the default."""
    if value is not None:
        check_int(parameter, value, at_least, ", or None")


def check_not_before(value: object) -> None:
    """Raise `ArgumentError` unless that is an instant before which a message waits, or None for none."""
    if value is not None:
        check_int("not_before_ms", value, alternative=", or None")


def check_reason(reason: object) -> None:
    """Raise `ArgumentError` unless that can be the reason of a failure; None for no reason."""
    if reason is not None and (type(reason) is not str or len(reason) > MAX_REASON):
        raise ArgumentError("reason", reason, f"be a str of at most {MAX_REASON} characters, or None")


def read_receipts(receipts: Sequence[object], members: dict[str, Member]) -> tuple[list[Receipt], list[Entry] | None]:
    """The receipts, or `ArgumentError` if one of them is none; and the messages whose current deliveries they name.

    None instead of messages unless each receipt names one, and each another. O(receipts).
    """
    checked: list[Receipt] = []
    entries: list[Entry] = []
    for receipt in receipts:
        if not isinstance(receipt, tuple) or len(receipt) != 3:  # noqa: PLR2004  # offset, consumer, attempt
            raise ArgumentError("receipt", receipt, "be a tuple of offset, consumer and attempt")
        checked.append(receipt)
        offset, consumer, attempt = receipt
        if type(offset) is int and type(consumer) is str and type(attempt) is int:
            member = members.get(consumer)
            entry = None if member is None else member.open.get(offset)
            if entry is not None and entry.attempt == attempt:
                entries.append(entry)
                continue
        check_receipt(offset, consumer, attempt)
    return checked, entries if len(set(entries)) == len(checked) else None


def checked_letters(letters: object) -> list[Any]:
    """Several letters, all of them read, or `ArgumentError`; one letter is a tuple, whose parts would pass for them."""
    if isinstance(letters, StoredLetter):
        raise ArgumentError("letters", letters, "be a collection of letters, also if there is one only")
    return checked_list("letters", letters, "letters")


def sorted_letters(letters: Sequence[object]) -> list[StoredLetter[Any]]:
    """The letters in offset order, or `ArgumentError` if one of them is none."""
    checked: list[StoredLetter[Any]] = []
    for letter in letters:
        if not isinstance(letter, tuple) or len(letter) != len(StoredLetter._fields):
            raise ArgumentError("letter", letter, "be a StoredLetter, or a tuple of offset, attempt and item")
        check_offset("offset", letter[0])
        if check_int("attempt", letter[1], 0) >= _LETTERS_STOP:
            raise ArgumentError("attempt", letter[1], f"be below {_LETTERS_STOP}: the next ones have higher numbers")
        checked.append(StoredLetter(*letter))
    return sorted(checked, key=_offset_of)


def current(members: dict[str, Member], offset: int, consumer: str, attempt: int) -> Entry | None:
    """The message whose current delivery that is, or None. O(1)."""
    member = members.get(consumer)
    entry = None if member is None else member.open.get(offset)
    return entry if entry is not None and entry.attempt == attempt else None


def open_through(entry: Entry) -> list[Receipt]:
    """The receipts of all open deliveries of a lane up to this one, oldest first. O(what was delivered of the lane)."""
    receipts: list[Receipt] = []
    each: Entry | None = entry.lane.head or entry  # what is alone is in no lane
    while each is not None and each.offset <= entry.offset:
        if each.state == IN_FLIGHT and each.consumer is not None:
            receipts.append((each.offset, each.consumer.name, each.attempt))
        each = each.after
    return receipts


def explain_ignored(call: Call, receipt: Receipt, entry: Entry | None, ended: Sequence[Ended]) -> Ignored:
    """Return why an answer does not apply: its receipt does not name a current delivery.

    Args:
        call: What was called.
        receipt: What it names.
        entry: What is outstanding under that offset, if anything.
        ended: Those of its deliveries that have ended and are remembered, oldest first.
    """
    offset, consumer, attempt = receipt
    return Ignored(offset, consumer, attempt, call, _reason(entry, ended, consumer, attempt))


def _reason(entry: Entry | None, ended: Sequence[Ended], consumer: str, attempt: int) -> IgnoredReason:
    if entry is None:
        return IgnoredReason.UNKNOWN_OFFSET
    if entry.state == DEAD_LETTERING:
        return IgnoredReason.DEAD_LETTERING
    if entry.state == BLOCKED:
        return IgnoredReason.BLOCKED
    if entry.state == IN_FLIGHT and attempt == entry.attempt:
        return IgnoredReason.NOT_HOLDER
    had = next((name for made, name in ended if made == attempt), None)
    if had is not None:
        return IgnoredReason.STALE_ATTEMPT if had == consumer else IgnoredReason.NOT_HOLDER
    may_be_forgotten = len(ended) == REMEMBERED_DELIVERIES and 1 <= attempt < ended[0][0]
    return IgnoredReason.FORGOTTEN_ATTEMPT if may_be_forgotten else IgnoredReason.UNKNOWN_ATTEMPT
