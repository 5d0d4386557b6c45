"""What logs tell whatever the order of their entries: which messages, keys and consumers have to do with each other."""

from bisect import bisect_right
from collections.abc import Hashable, Iterable, Sequence
from typing import TypeAlias

from keyshared.testing.guarantees import Guarantees
from keyshared.testing.history import (
    Acked,
    Connected,
    Delivered,
    Expired,
    Gone,
    Happening,
    LimitChanged,
    Nacked,
    Published,
    Redriven,
    Released,
)

__all__ = ["Facts", "Group"]

Group: TypeAlias = Hashable
"""A message by its offset, or a lane: ``("lane", key)``, or ``("unit", unit)`` where units are claimed."""


class Facts:
    """What is told of anywhere.

    Attributes:
        kinds: What has happened at all.
        first: The lowest offset that was published.
        unpublished: Offsets that are told of, and that nobody published.
        decided_by: Which of them can no longer come when an offset is published.
        lanes_of: In which lanes a message is; in several, if it was told of with several keys.
        consumers_of: Who had something of a group.
        doubtful: Groups with a message of which an ack may leave open whether it is done.
        asked_to_wait: Messages that somebody asked to wait.
        limits_consumers: Whether a consumer may have a certain number of deliveries open.
    """

    def __init__(self, happenings: Iterable[Happening], guarantees: Guarantees) -> None:
        self.kinds: set[type[Happening]] = set()
        self.consumers_of: dict[Group, set[str]] = {}
        self.lanes_of: dict[int, set[Group]] = {}
        self.asked_to_wait: set[int] = set()
        self.doubtful: set[Group] = set()
        self.limits_consumers = guarantees.per_consumer is not None
        self._guarantees = guarantees
        self._acked: set[int] = set()  # by somebody who does not know whether that counted
        self._deliveries: dict[int, int] = {}
        self._ended: set[int] = set()
        self._leavers: set[str] = set()
        published: list[int] = []
        for happening in happenings:
            self.kinds.add(type(happening))
            self._note(happening)
            if isinstance(happening, Published):
                published.append(happening.offset)
        published.sort()
        self.first = published[0] if published else None
        self.unpublished = self.lanes_of.keys() - set(published)
        self.decided_by = _decided_by(self.unpublished, published)
        self._find_doubtful()

    def offset(self, happening: Happening) -> int | None:
        """Which message a happening tells of."""
        return getattr(happening, "offset", None)

    def lane(self, offset: int | None, key: bytes | None) -> Group:
        """In which lane a key is, or a message without one."""
        claims = self._guarantees
        if claims.total_order:
            return "lane", b""
        if key is None:
            return "lane", offset
        return ("lane", key) if claims.unit_of is None else ("unit", claims.unit_of(key))

    def _note(self, happening: Happening) -> None:
        if isinstance(happening, Gone) and not happening.drains:
            self._leavers.add(happening.consumer)
        if isinstance(happening, Connected | LimitChanged) and happening.limit is not None:
            self.limits_consumers = True
        offset = self.offset(happening)
        if offset is None:
            return
        lanes = self.lanes_of.setdefault(offset, set())
        if isinstance(happening, Published | Delivered | Redriven):
            lanes.add(self.lane(offset, happening.key))
        if isinstance(happening, Delivered):
            self._deliveries[offset] = self._deliveries.get(offset, 0) + 1
            self.consumers_of.setdefault(offset, set()).add(happening.consumer)
        elif isinstance(happening, Acked) and happening.counted is None:
            self._acked.add(offset)
        elif isinstance(happening, Nacked | Expired | Released):
            self._ended.add(offset)
        if isinstance(happening, Published | Released) and happening.until_ms is not None:
            self.asked_to_wait.add(offset)

    def _find_doubtful(self) -> None:
        for offset, lanes in self.lanes_of.items():
            consumers = self.consumers_of.get(offset, set())
            has_ended = offset in self._ended or self._deliveries.get(offset, 0) > 1 or consumers & self._leavers
            if offset in self._acked and has_ended:
                self.doubtful |= {offset, *lanes}
            for lane in lanes:
                self.consumers_of.setdefault(lane, set()).update(consumers)


def _decided_by(unpublished: Iterable[int], published: Sequence[int]) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for offset in unpublished:
        at = bisect_right(published, offset)
        if at < len(published):
            found.setdefault(published[at], []).append(offset)
    return found
