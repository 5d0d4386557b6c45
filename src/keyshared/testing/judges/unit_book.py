"""Who has something open of what is handed over as a whole: several keys together, if the system claims such units."""

from collections.abc import Callable, Hashable
from typing import TypeAlias

from keyshared.testing.judges.entries import LaneId, Message

__all__ = ["UnitBook"]

_Holders: TypeAlias = dict[str, dict[int, Message]]


class UnitBook:
    """Open deliveries by unit and consumer; empty if keys are the units.

    Args:
        unit_of: Which unit a key is in; None: each key is its own, and the lanes know.
    """

    def __init__(self, unit_of: Callable[[bytes], Hashable] | None) -> None:
        self._unit_of = unit_of
        self._units: dict[Hashable, _Holders] = {}

    def __len__(self) -> int:
        return sum(1 + len(holders) for holders in self._units.values())

    def opened(self, message: Message, consumer: str) -> None:
        """A delivery begins."""
        unit = self._unit(message.lane.id)
        if unit is not None:
            self._units.setdefault(unit, {}).setdefault(consumer, {})[message.offset] = message

    def closed(self, message: Message, consumer: str) -> None:
        """A delivery ends."""
        unit = self._unit(message.lane.id)
        if unit is None:
            return
        holders = self._units[unit]
        del holders[consumer][message.offset]
        if not holders[consumer]:
            del holders[consumer]
        if not holders:
            del self._units[unit]

    def open_besides(self, lane_id: LaneId, consumer: str | None) -> Message | None:
        """Something of a lane's unit that is open at somebody else, or at anybody if it is not known at whom it may."""
        holders = self._units.get(self._unit(lane_id), {})
        held = (each for name, each in holders.items() if name != consumer)
        return next((message for each in held for message in each.values()), None)

    def _unit(self, lane_id: LaneId) -> Hashable:
        return self._unit_of(lane_id) if self._unit_of is not None and isinstance(lane_id, bytes) else None
