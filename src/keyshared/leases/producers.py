"""Producers that may send a message twice: numbers that rise strictly tell the second time from the first."""

from typing import Self

from keyshared._checks import check_int, check_kind
from keyshared.errors import ArgumentError, SnapshotError

__all__ = ["Produced", "ProducerSequences"]

Produced = tuple[str, int]
"""Who sent a message, and the number it gave it."""


class ProducerSequences:
    """The greatest number taken from each producer.

    A producer numbers its messages upwards and repeats a message under its own number. Gaps are legal. What comes with
    a number that is not above the last one was sent before, and is not taken again.

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
        """Return what a producer has sent already, if a message repeats it.

        Args:
            produced: Who sent it, and its number.

        Returns:
            The greatest number taken from that producer if this one is not above it; None if the message is new.

        Raises:
            ArgumentError: That is no pair of a text and an int.
        """
        client_id, client_seq = _checked(produced)
        last = self._last.get(client_id)
        return last if last is not None and client_seq <= last else None

    def take(self, produced: Produced) -> None:
        """Remember a message; unchecked: it is not `repeated`.

        Args:
            produced: Who sent it, and its number.
        """
        client_id, client_seq = produced
        self._last[client_id] = client_seq

    def forget(self, client_id: str) -> None:
        """Forget a producer that will never repeat anything; nothing if it is unknown.

        Args:
            client_id: Which one.
        """
        self._last.pop(client_id, None)

    def snapshot(self) -> dict[str, int]:
        """Return the numbers as plain data."""
        return dict(self._last)

    @classmethod
    def restore(cls, state: object) -> Self:
        """Return what `snapshot` was taken of.

        Args:
            state: The snapshot, perhaps after a trip through JSON.

        Raises:
            SnapshotError: It is something else.
        """
        if not isinstance(state, dict) or not all(isinstance(client_id, str) for client_id in state):
            raise SnapshotError("producers", state, "be a dict of client ids")
        for client_id, last in state.items():
            if type(last) is not int:
                raise SnapshotError(f"producers[{client_id!r}]", last, "be an int")
        new = cls()
        new._last = dict(state)
        return new


def _checked(produced: object) -> Produced:
    if not isinstance(produced, tuple) or len(produced) != 2:  # noqa: PLR2004  # client id, number
        raise ArgumentError("producer", produced, "be a tuple of client id and number")
    client_id, client_seq = produced
    check_kind("client_id", client_id, str)
    check_int("client_seq", client_seq)
    return client_id, client_seq
