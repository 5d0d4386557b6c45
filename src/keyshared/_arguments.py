"""Checks of the arguments that dispatchers, lease queues and simulations have in common."""

from collections.abc import Mapping
from typing import Any, Final

from keyshared._checks import (
    OFFSET_STOP,
    check_int,
    check_kind,
    check_mapping,
    check_offset,
    checked_list,
    checked_now,
    configuration,
)
from keyshared._core.groups import Groups
from keyshared._core.reader import LAST_EPOCH
from keyshared._core.values import MAX_REASON, Receipt, StoredLetter
from keyshared.config import DispatcherConfig, DrainUnit
from keyshared.errors import ArgumentError, ClockError, KeySharedError, OffsetOrderError
from keyshared.glob import KeyFilter
from keyshared.hashing import key_bytes

__all__ = [
    "check_duration",
    "check_reason",
    "check_receipt",
    "check_receipts",
    "checked_filter",
    "checked_groups",
    "checked_letters",
    "checked_message",
    "checked_messages",
    "checked_restart",
    "listed_letters",
    "offset_error",
]

_LETTERS_STOP: Final = OFFSET_STOP - (1 << 31)  # leaves numbers for more deliveries than any message will have
_RECEIPT: Final = 3
_WITHOUT_INSTANT: Final = 3
_WITH_INSTANT: Final = 4


def check_receipt(offset: object, consumer: object, attempt: object) -> None:
    """Raise `ArgumentError` unless these are offset, consumer and attempt of a delivery."""
    check_offset("offset", offset)
    if not isinstance(consumer, str):
        raise ArgumentError("consumer", consumer, "be a str")
    if type(attempt) is not int:
        raise ArgumentError("attempt", attempt, "be an int")


def check_receipts(receipts: list[Any]) -> list[Receipt]:
    """Return receipts, or raise `ArgumentError` if one of them is none."""
    for receipt in receipts:
        if type(receipt) is tuple and len(receipt) == _RECEIPT:
            offset, consumer, attempt = receipt
            if type(offset) is int and type(consumer) is str and type(attempt) is int:
                continue
        if not isinstance(receipt, tuple) or len(receipt) != _RECEIPT:
            raise ArgumentError("receipt", receipt, "be a tuple of offset, consumer and attempt")
        check_receipt(*receipt)
    return receipts


def check_duration(parameter: str, value: object, least: int) -> None:
    """Raise `ArgumentError` unless that is a duration, or None for the default."""
    if value is not None:
        check_int(parameter, value, least, ", or None")


def check_reason(reason: object) -> None:
    """Raise `ArgumentError` unless that can be the reason of a failure; None for no reason."""
    if reason is not None and (type(reason) is not str or len(reason) > MAX_REASON):
        raise ArgumentError("reason", reason, f"be a str of at most {MAX_REASON} characters, or None")


def offset_error(offset: object, last: int | None) -> KeySharedError:
    """Return the error of an offset that can never be offered: no int, or of more than 63 bits."""
    if type(offset) is not int:
        return OffsetOrderError(offset, last)
    return ArgumentError("offset", offset, "be an int of at most 63 bits")


def checked_messages(messages: list[Any], last: int | None) -> list[tuple[int, bytes | None, Any, int | None]]:
    """Return several messages as `checked_message` returns one."""
    checked: list[tuple[int, bytes | None, Any, int | None]] = []
    for message in messages:
        if type(message) is tuple and len(message) == _WITHOUT_INSTANT:
            offset, key, item = message
            if type(offset) is int and type(key) is bytes and -OFFSET_STOP < offset < OFFSET_STOP:
                checked.append((offset, key, item, None))
                continue
        checked.append(checked_message(message, last))
    return checked


def checked_message(message: object, last: int | None) -> tuple[int, bytes | None, Any, int | None]:
    """Return offset, key, item and ``not_before_ms`` of a message, or raise what an offer of it raises.

    ``last`` is the greatest offset that was offered.
    """
    if not isinstance(message, tuple) or not _WITHOUT_INSTANT <= len(message) <= _WITH_INSTANT:
        raise ArgumentError("message", message, "be a tuple of offset, key and item, and perhaps not_before_ms")
    offset, key, item = message[:_WITHOUT_INSTANT]
    not_before_ms = message[_WITHOUT_INSTANT] if len(message) == _WITH_INSTANT else None
    if not_before_ms is not None:
        check_int("not_before_ms", not_before_ms, alternative=", or None")
    if type(offset) is not int or not -OFFSET_STOP < offset < OFFSET_STOP:
        raise offset_error(offset, last)
    return offset, key_bytes(key), item, not_before_ms


def checked_filter(patterns: list[str], config: DispatcherConfig) -> KeyFilter:
    """Return a filter of these patterns, or raise `ArgumentError` if no consumer may have one."""
    accepts = KeyFilter(patterns)
    if not accepts.patterns:
        return accepts
    if config.ordering_required:
        raise ArgumentError("filters", accepts.patterns, "be empty with ordering_required: one lane has one owner")
    if config.unit is not DrainUnit.KEY:
        requirement = f"be empty with the drain unit {config.unit.name}: all keys of a unit have one owner"
        raise ArgumentError("filters", accepts.patterns, requirement)
    return accepts


def listed_letters(letters: object) -> list[Any]:
    """Return dead letters, all of them read, or raise `ArgumentError` if they are no collection."""
    if isinstance(letters, StoredLetter):  # a tuple, whose parts would pass for letters
        raise ArgumentError("letters", letters, "be a collection of letters, also if there is one only")
    return checked_list("letters", letters, "letters")


def checked_letters(letters: list[Any], config: DispatcherConfig) -> list[StoredLetter[Any]]:
    """Return dead letters, or raise `ConfigError` without ``redrive``, and `ArgumentError` if one of them is none."""
    if not config.redrive:
        with configuration():
            raise ArgumentError("redrive", False, "be True to redrive: DispatcherConfig(redrive=True)")
    return [_checked_letter(letter) for letter in letters]


def _checked_letter(letter: object) -> StoredLetter[Any]:
    """Return a dead letter, or raise `ArgumentError` if it is none."""
    if not isinstance(letter, tuple) or len(letter) != len(StoredLetter._fields):
        raise ArgumentError("letter", letter, "be a StoredLetter, or a tuple of offset, attempt and item")
    check_offset("offset", letter[0])
    if check_int("attempt", letter[1], 0) >= _LETTERS_STOP:
        raise ArgumentError("attempt", letter[1], f"be below {_LETTERS_STOP}: the next ones have higher numbers")
    return StoredLetter(*letter)


def checked_groups(groups: Groups | None, name: object) -> Groups:
    """Return the groups, or raise `ArgumentError` if there are none, or that can be the name of none."""
    if groups is None:
        raise ArgumentError("name", name, "be of a group: there are no groups without Rules(group_of=...)")
    check_kind("name", name, str)
    return groups


def checked_restart(now_ms: int | None, epoch: object, items: object) -> tuple[int, Mapping[int, Any]]:
    """Return the instant and the items of a restart; raise `ArgumentError` or `ClockError` if it cannot be one."""
    check_int("epoch", epoch, 0, most=LAST_EPOCH)
    if now_ms is None:
        raise ClockError(now_ms, 0)
    return checked_now(now_ms, 0), {} if items is None else check_mapping("items", items)
