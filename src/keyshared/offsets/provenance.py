"""The origin of records, and the last one processed of each origin: positions that mean the same on every cluster.

If every record carries its origin and its offset there, then "the last offset of each origin that was processed" says
what is done without any offset of the cluster that it was done on, and without a clock. That is a *provenance vector*.
It rests on one condition, *per-origin FIFO*: on each cluster the records of one origin lie in the order of their origin
offsets. Replication along fixed paths keeps it; so does a change of paths after the old one has been drained. An origin
is one life of a partition: one that is deleted and made again needs another name.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, Self

from keyshared._checks import (
    check_kind,
    check_log_offset,
    check_mapping,
    check_members,
    check_text,
    checked_rows,
    checked_state,
)
from keyshared.errors import ArgumentError, SnapshotError, shown
from keyshared.offsets.translate import OffsetLookup

__all__ = ["ProvenanceVector"]

_FORMAT_VERSION: Final = 1


class ProvenanceVector:
    """The last processed offset of each origin.

    Fed with the records of a log in its order, up to what is settled and no further, it covers exactly what is
    processed. An origin is a non-empty str, its offset an int from 0 up to 63 bits. Equal if the positions are. Memory
    O(origins). Not thread-safe.

    Example:
        >>> done = ProvenanceVector()
        >>> [done.observe(*record) for record in [("eu", 0), ("us", 0), ("eu", 1), ("us", 0)]]
        [True, True, True, False]
        >>> elsewhere = [(70, "us", 0), (71, "us", 1), (72, "eu", 0), (73, "eu", 1), (74, "eu", 2)]
        >>> done.first_uncovered(elsewhere)
        71
        >>> [offset for offset, *source in elsewhere if done.observe(*source)]
        [71, 74]
    """

    __slots__ = ("_positions",)

    def __init__(self, positions: Mapping[str, int] | None = None) -> None:
        self._positions: dict[str, int] = {}
        for origin, offset in ({} if positions is None else check_mapping("positions", positions)).items():
            _check(origin, offset)
            self._positions[origin] = offset

    def observe(self, origin: str, offset: int) -> bool:
        """Note that a record, and all earlier ones of its origin, have been processed; return whether it was new.

        Skip one that was not, to have no duplicates.
        """
        if self.covers(origin, offset):
            return False
        self._positions[origin] = offset
        return True

    def covers(self, origin: str, offset: int) -> bool:
        """Return whether a record has been processed: its origin was observed at this offset or above."""
        _check(origin, offset)
        position = self._positions.get(origin)
        return position is not None and offset <= position

    def first_uncovered(self, records: Iterable[tuple[int, str, int]]) -> int | None:
        """Return the offset to resume a log at: that of the first record that is not processed. O(records read).

        Args:
            records: Records of the log in its order, as (offset, origin, origin offset). Not read further than needed.

        Returns:
            The offset; None if all of them are covered: resume behind the last of them.
        """
        rows = checked_rows("record", records, 3, "an offset, an origin and the origin's offset")
        return next((at for at, origin, offset in rows if not self.covers(origin, offset)), None)

    def find_uncovered(self, by_origin: Mapping[str, OffsetLookup]) -> int | None:
        """Do as `first_uncovered` without reading the log: by one look-up in an index of it for each origin.

        The offset is as exact as the indexes are and never behind the right one.

        Args:
            by_origin: For each origin that the log may have a look-up such as an `OffsetIndex`, with the origin's
                offsets for timestamps.

        Example:
            >>> from keyshared.offsets import OffsetIndex
            >>> by_origin = {"eu": OffsetIndex(interval=1), "us": OffsetIndex(interval=1)}
            >>> for at, origin, offset in [(70, "us", 0), (71, "eu", 0), (72, "eu", 1)]:
            ...     by_origin[origin].append(at, offset)
            >>> ProvenanceVector({"eu": 0, "us": 0}).find_uncovered(by_origin)
            72
        """
        found = []
        for origin, index in check_mapping("by_origin", by_origin).items():
            check_members(f"by_origin[{shown(origin)}]", index, OffsetLookup)
            low = index.find_offset(self._positions.get(origin, -1) + 1).low
            if low < index.end:  # else nothing of it is left, wherever its last record lies
                found.append(low)
        return min(found, default=None)

    def merge(self, other: "ProvenanceVector") -> None:
        """Add what another vector covers, such as that of a group's earlier life on another cluster."""
        check_kind("other", other, ProvenanceVector)
        mine = self._positions
        for origin, offset in other.positions.items():
            mine[origin] = max(offset, mine.get(origin, offset))

    def compact(self, earliest: Mapping[str, int]) -> tuple[str, ...]:
        """Forget origins whose records can no longer be covered, because retention has taken all that were.

        For every record that is not below ``earliest`` nothing changes.

        Args:
            earliest: The earliest offset of each origin that any log still holds or may yet get. Other origins stay.

        Returns:
            The origins that were forgotten, sorted.
        """
        bounds = ProvenanceVector(earliest).positions
        gone = tuple(sorted(origin for origin, first in bounds.items() if self._positions.get(origin, first) < first))
        for origin in gone:
            del self._positions[origin]
        return gone

    @property
    def positions(self) -> dict[str, int]:
        """Last processed offset by origin, in a new dict sorted by origin."""
        return dict(sorted(self._positions.items()))

    def copy(self) -> Self:
        """Copy the vector: the same positions, and nothing shared that can change."""
        return type(self)(self._positions)

    def to_json(self) -> dict[str, object]:
        """Return the vector as plain data that JSON can hold; `from_json` reads it."""
        return {"version": _FORMAT_VERSION, "positions": self.positions}

    @classmethod
    def from_json(cls, data: object) -> Self:
        """Restore a vector from what `to_json` returned; anything else raises SnapshotError.

        Example:
            >>> ProvenanceVector.from_json(ProvenanceVector({"eu": 7}).to_json())
            ProvenanceVector({'eu': 7})
        """
        state = checked_state("provenance vector", data, _FORMAT_VERSION, "positions")
        try:
            return cls(check_mapping("positions", state["positions"]))
        except ArgumentError as error:
            raise SnapshotError(*error.args) from error

    def __iter__(self) -> Iterator[str]:
        """Origins that were observed, sorted."""
        return iter(self.positions)

    def __len__(self) -> int:
        return len(self._positions)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ProvenanceVector):
            return NotImplemented
        return self._positions == other._positions

    __hash__ = None  # type: ignore[assignment]  # mutable, so it has no hash

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.positions})"


def _check(origin: object, offset: object) -> None:
    check_text("origin", origin)
    check_log_offset("offset", offset)
