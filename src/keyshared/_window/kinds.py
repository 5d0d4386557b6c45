"""One class for several features, each of which is a subclass of the same one: made only where it is used."""

from functools import cache
from types import new_class
from typing import Any

__all__ = ["one_kind"]


def one_kind(*kinds: type) -> Any:  # noqa: ANN401  # a class of all these kinds: there is no name for that
    """Return the class that is of all these kinds; what they share is asked of the first one first.

    Example:
        >>> class Loud(dict): ...
        >>> class Shy(dict): ...
        >>> issubclass(one_kind(Loud, Shy), Loud) and one_kind(Loud) is Loud
        True
    """
    return kinds[0] if len(kinds) == 1 else _joined(kinds)


@cache
def _joined(kinds: tuple[type, ...]) -> type:
    name = "".join(kind.__name__ for kind in kinds)
    return new_class(name, kinds, {}, lambda names: names.update(__slots__=()))
