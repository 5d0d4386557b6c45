"""Whether the next message of a lane may go to its owner, or has to wait for what others still hold.

What is handed over as a whole when owners change is a *drain unit*. While anybody but its owner holds something of a
unit, the lanes of the unit that could go on drain: they wait for the ends of those deliveries. The window asks a gate
whether a lane may go.

Here is the gate of the smallest unit, a key: the lane itself knows who holds it. Larger units are a matter of
placements, of which the window knows nothing. Their gate is given to the window, and counts: the window tells it of
every delivery that opens or ends.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence

from keyshared._window.lanes import IN_FLIGHT, Consumer, Entry, Lane, WorkList

__all__ = ["CountingGate", "DrainGate", "KeyGate"]


class DrainGate(ABC):
    """Knows who holds something of the drain unit of a lane that has a key. Asking changes nothing."""

    __slots__ = ()

    @abstractmethod
    def unit_of(self, key: bytes) -> bytes | int:
        """Return the name of the drain unit that a key is in now."""

    @abstractmethod
    def keeps(self, lane: Lane, owner: Consumer) -> bool:
        """Whether a lane has to wait because somebody besides its owner, who was just read, holds its unit."""

    def drains(self, lane: Lane, owner: Consumer) -> bool:
        """Whether a lane has to wait because of the drain unit alone, as `keeps` is asked."""
        return self.keeps(lane, owner)

    def refuses(self, lane: Lane, owner: Consumer) -> bool:  # noqa: ARG002  # the plain ones know no other reason
        """Whether a lane whose unit nobody else holds has to wait all the same, in `kept_back`."""
        return False

    def why(self, lane: Lane, owner: Consumer) -> object:  # noqa: ARG002  # as above
        """Return why it refuses a lane, as whoever made it says it; None if it does not."""
        return None

    @property
    def kept_back(self) -> WorkList | None:
        """The list for lanes that it refuses; None if it never does."""
        return None

    @abstractmethod
    def holder_besides(self, lane: Lane, owner: Consumer) -> Consumer | None:
        """Return who besides the owner holds something of the lane's unit; of several, who joined first."""

    @abstractmethod
    def open_besides(self, lane: Lane, owner: Consumer | None) -> list[Entry]:
        """Return what others than the owner hold of the lane's unit, in offset order."""


class KeyGate(DrainGate):
    """Keeps a lane while its own open deliveries are somebody else's: the unit is a key."""

    __slots__ = ()

    def unit_of(self, key: bytes) -> bytes:
        """Return the key."""
        return key

    def keeps(self, lane: Lane, owner: Consumer) -> bool:
        """Whether somebody besides the owner holds the lane. O(1)."""
        return lane.open > 0 and lane.holder is not owner

    def holder_besides(self, lane: Lane, owner: Consumer) -> Consumer | None:
        """Return who holds the lane, if it is not the owner. O(1)."""
        return None if lane.holder is owner else lane.holder

    def open_besides(self, lane: Lane, owner: Consumer | None) -> list[Entry]:
        """Return the lane's open deliveries that are not the owner's. O(per-key limit)."""
        entries: list[Entry] = []
        entry = lane.head
        while entry is not None and entry is not lane.fresh:
            if entry.state == IN_FLIGHT and entry.consumer is not owner:
                entries.append(entry)
            entry = entry.after
        return entries


class CountingGate(DrainGate):
    """A gate that has to be told what opens and ends, because lanes share its units.

    A message without a key is in no unit: the gate is told of it like of any other, and passes it over.
    """

    __slots__ = ()

    @abstractmethod
    def opened(self, entry: Entry) -> None:
        """Count a delivery that begins."""

    @abstractmethod
    def admits(self, entry: Entry, owner: Consumer) -> bool:
        """Count a delivery to the owner of its key, who was just read; False, uncounted, if others hold the unit."""

    @abstractmethod
    def closed(self, entry: Entry) -> None:
        """Count a delivery that ends. The message still knows its consumer."""

    @abstractmethod
    def releases(self, entry: Entry) -> bool:
        """Count a delivery that ends; False, uncounted, if lanes wait for ends in its unit."""

    @abstractmethod
    def place(self, lane: Lane, key: bytes) -> None:
        """Note which unit a lane is in: its owner is being read."""

    @abstractmethod
    def wait(self, lane: Lane) -> None:
        """Note that a lane begins to drain."""

    @abstractmethod
    def stop_waiting(self, lane: Lane) -> None:
        """Note that a lane drains no more."""

    @abstractmethod
    def take_vacated(self) -> Sequence[Lane]:
        """Return the lanes that drain in units with which somebody has finished since the last call."""

    @property
    @abstractmethod
    def is_behind(self) -> bool:
        """Whether there is another placement than `follow` has seen."""

    @abstractmethod
    def follow(self, version: int) -> None:
        """Carry over to the placement of now, which the window calls by this number from now on."""

    @abstractmethod
    def check_invariants(
        self, version: int, lanes: Iterable[Lane], opened: Iterable[Entry], draining: Iterable[Lane]
    ) -> None:
        """Raise `InvariantError` if something else is counted than is there. For tests; O(n).

        Args:
            version: The number of the window's placement.
            lanes: All lanes that have a key.
            opened: All open deliveries.
            draining: The lanes that drain.
        """
