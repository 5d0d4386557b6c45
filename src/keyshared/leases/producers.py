"""Producers that may send a message twice, and number their messages."""

from typing import Self

from keyshared._checks import check_int, check_kind
from keyshared._core.reader import Reader
from keyshared.errors import ArgumentError

__all__ = ["Produced", "ProducerSequences"]

Produced = tuple[str, int]
"""A producer, and its number for a message."""


class ProducerSequences:
    """The greatest number taken from each producer.

    A producer numbers its messages upwards, and repeats a message under the same number. Gaps are legal. A message
    whose number is not above the last one was sent before.

    Complexity:
        O(1) a message; memory O(producers) until they are forgotten.

    Source:
        Celeriant's produce dedup (client_id and a strictly rising client_seq).

    Example:
        >>> sequences = ProducerSequences()
        >>> sequences.take(("billing", 7))
        >>> sequences.repeated(("billing", 7)), sequences.repeated(("billing", 8))
        (7, None)
    """

    __slots__ = ("_last",)

    def __init__(self) -> None:
        self._last: dict[str, int] = {}

    def repeated(self, produced: Produced) -> int | None:
        """Return the greatest number taken from a producer if its message is a repeated one; None if it is new.

        Raises:
            ArgumentError: That is no pair of a text and an int.
        """
        given: object = produced
        if not isinstance(given, tuple) or len(given) != 2:  # noqa: PLR2004  # client id, number
            raise ArgumentError("producer", given, "be a tuple of client id and number")
        client_id, client_seq = given
        check_int("client_seq", client_seq)
        last = self._last.get(check_kind("client_id", client_id, str))
        return last if last is not None and client_seq <= last else None

    def take(self, produced: Produced) -> None:
        """Remember a message that is not `repeated`; unchecked."""
        client_id, client_seq = produced
        self._last[client_id] = client_seq

    def forget(self, client_id: str) -> None:
        """Forget a producer that will never repeat anything; nothing if it is unknown."""
        self._last.pop(client_id, None)

    def snapshot(self) -> dict[str, int]:
        """Return the numbers as plain data."""
        return dict(self._last)

    @classmethod
    def restore(cls, state: object) -> Self:
        """Rebuild the numbers from a `snapshot`, perhaps after a trip through JSON.

        Raises:
            SnapshotError: It is something else.
        """
        new = cls()
        new._last = {name: last.integer() for name, last in Reader(state, "producers").fields().items()}
        return new
