"""What callers may pass: the checks that many modules share, each with one wording for one fault."""

from keyshared.errors import ConfigError

__all__ = ["check_int", "check_text"]


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
