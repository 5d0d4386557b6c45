"""What must always hold of the library's own state, and how it is said that it does not."""

from keyshared.errors import InvariantError

__all__ = ["require"]


def require(holds: object, fact: str) -> None:
    """Check a fact that only a bug in this library can break.

    Args:
        holds: Whether it is true.
        fact: What should be true, as a sentence.

    Raises:
        InvariantError: It is not.

    Example:
        >>> require(1 + 1 == 2, "numbers add up")
    """
    if not holds:
        raise InvariantError(fact)
