"""What callers may pass: the checks that many modules share, each with one wording for one fault."""

from keyshared.errors import ClockError, ConfigError

__all__ = ["check_int", "check_text", "checked_now"]


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
