"""What callers may pass: the checks that many modules share, each with one wording for one fault."""

from typing import Final

from keyshared.errors import ClockError, ConfigError

__all__ = [
    "OFFSET_BITS",
    "OFFSET_STOP",
    "check_int",
    "check_log_offset",
    "check_offset",
    "check_position",
    "check_text",
    "checked_now",
]

OFFSET_BITS: Final = 63
"""How many bits an offset may have besides its sign: what Kafka, Danube, a Parquet column and a cursor token hold."""

OFFSET_STOP: Final = 1 << OFFSET_BITS
"""Offsets lie between this, exclusively, and its negative. The next one to read may be just this."""


def check_int(parameter: str, value: object, least: int, alternative: str = "") -> int:
    """Check a whole number.

    Args:
        parameter: What it is called in the error.
        value: The number.
        least: The smallest one allowed.
        alternative: Ends the sentence, for example ``" or None for never"``.

    Returns:
        The number.

    Raises:
        ConfigError: It is no int, or below ``least``.

    Example:
        >>> check_int("limit", 0, 1)
        Traceback (most recent call last):
        ...
        keyshared.errors.ConfigError: limit is 0; it must be an int of at least 1
    """
    # A bool is an int to Python, but never a number that somebody meant.
    if type(value) is not int or value < least:
        raise ConfigError(parameter, value, f"be an int of at least {least}{alternative}")
    return value


def check_offset(parameter: str, value: object, wanted: str = "be an int") -> None:
    """Check an offset of a log.

    Args:
        parameter: What it is called in the error.
        value: The offset.
        wanted: Begins the sentence that says what it must be.

    Raises:
        ConfigError: It is no int, or has more than 63 bits.

    Example:
        >>> check_offset("before", 1 << 63)
        Traceback (most recent call last):
        ...
        keyshared.errors.ConfigError: before is 9223372036854775808; it must be an int of at most 63 bits
    """
    # A bool is an int to Python, but never an offset that somebody meant.
    if type(value) is not int or not -OFFSET_STOP < value < OFFSET_STOP:
        raise ConfigError(parameter, value, f"{wanted} of at most {OFFSET_BITS} bits")


def check_position(parameter: str, value: object, wanted: str = "be an int") -> None:
    """Check the next offset to read: an offset, or one beyond the greatest there can be.

    Args:
        parameter: What it is called in the error.
        value: The position.
        wanted: Begins the sentence that says what it must be.

    Raises:
        ConfigError: It is no int, or has more than 63 bits.
    """
    if type(value) is not int or value != OFFSET_STOP:
        check_offset(parameter, value, wanted)


def check_log_offset(parameter: str, value: object) -> None:
    """Check an offset of a log whose offsets are never negative.

    Args:
        parameter: What it is called in the error.
        value: The offset.

    Raises:
        ConfigError: It is no int, negative, or has more than 63 bits.
    """
    if type(value) is not int or not 0 <= value < OFFSET_STOP:
        raise ConfigError(parameter, value, f"be an int from 0 up to {OFFSET_BITS} bits")


def check_text(parameter: str, value: object) -> str:
    """Check a text that names something.

    Args:
        parameter: What it is called in the error.
        value: The text.

    Returns:
        The text.

    Raises:
        ConfigError: It is no text, or empty.

    Example:
        >>> check_text("topic", "")
        Traceback (most recent call last):
        ...
        keyshared.errors.ConfigError: topic is ''; it must be a text that is not empty
    """
    if type(value) is not str or not value:
        raise ConfigError(parameter, value, "be a text that is not empty")
    return value


def checked_now(now_ms: int | None, last_ms: int) -> int:
    """Check an instant of a clock that never goes back.

    Args:
        now_ms: The instant; None for that of the last call.
        last_ms: That of the last call.

    Returns:
        The instant.

    Raises:
        ClockError: It is no int, or before the last one.

    Example:
        >>> checked_now(None, 5), checked_now(7, 5)
        (5, 7)
    """
    if now_ms is None:
        return last_ms
    if type(now_ms) is not int or now_ms < last_ms:
        raise ClockError(now_ms, last_ms)
    return now_ms
