"""What the functions of `Rules` answer for a key, checked."""

from collections.abc import Callable

from keyshared._checks import check_bool, check_int, configuration
from keyshared.errors import ArgumentError

__all__ = ["group_answer", "latest_only_answer", "limit_answer"]


@configuration()
def group_answer(group_of: Callable[[bytes], object], key: bytes) -> str:
    """Return the group of a key; None is the group ``""``.

    Raises:
        ConfigError: The function raised, or did not answer with a str or None.
    """
    answer = _ask("group_of", group_of, key)
    if answer is None:
        return ""
    if type(answer) is not str:
        raise ArgumentError("group_of", answer, "be a str or None")
    return answer


@configuration()
def limit_answer(limit_of: Callable[[bytes], object], key: bytes) -> int:
    """Return how many deliveries of a key may be open.

    Raises:
        ConfigError: The function raised, or did not answer with an int of at least 1.
    """
    return check_int("limit_of", _ask("limit_of", limit_of, key), 1)


@configuration()
def latest_only_answer(latest_only: Callable[[bytes], object], key: bytes) -> bool:
    """Return whether a newer message of a key replaces an older one.

    Raises:
        ConfigError: The function raised, or did not answer with a bool.
    """
    return check_bool("latest_only", _ask("latest_only", latest_only, key))


def _ask(name: str, function: Callable[[bytes], object], key: bytes) -> object:
    try:
        return function(key)
    except Exception as error:
        raise ArgumentError(name, error, "answer for every key, and raise nothing") from error
