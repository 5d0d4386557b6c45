"""What a feature can refuse: whether the next message of a key may go out, asked when nobody else holds its drain unit.

A window asks one gate. That is the drain gate in most dispatchers; where features have a say in it too, it is a `Gates`
around the drain gate, made once at construction. The drain gate answers first, then each feature in a fixed order: the
first that refuses explains it. What is refused stands in one list, `kept_back`, whoever refuses it; the reason is asked
for and not stored. Who refused a lane touches it when the reason has ended.
"""

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Protocol

from keyshared._dispatch.explain import Blocking
from keyshared._window.gate import CountingGate, DrainGate
from keyshared._window.lanes import Consumer, Entry, Lane, WorkList

__all__ = ["Gate", "Gates", "key_of"]


class Gate(Protocol):
    """One feature that may refuse to let a message go out. Asking changes nothing."""

    def refuses(self, entry: Entry, owner: Consumer) -> bool:
        """Whether this message, the next one of a lane with a key, may not go to the owner of its key now."""

    def why(self, entry: Entry, owner: Consumer) -> Blocking:
        """Return why it refuses this message."""

    def opened(self, entry: Entry, holder: Consumer) -> None:
        """Take note of a delivery that begins; without a key, too."""

    def closed(self, entry: Entry) -> None:
        """Take note of a delivery that ends. The message still knows its consumer."""

    def moved(self) -> None:
        """Take note that the owners of keys may have changed."""


class Gates(CountingGate):
    """The drain gate and those of features as one.

    Args:
        drain: The drain gate.

    Attributes:
        gates: Those of the features in use, in the order in which they are asked.
    """

    __slots__ = ("_counts", "_drain", "_kept_back", "gates")

    def __init__(self, drain: DrainGate) -> None:
        self._drain = drain
        self._counts = drain if isinstance(drain, CountingGate) else None
        self._kept_back: WorkList = OrderedDict()
        self.gates: list[Gate] = []

    # what is asked

    def unit_of(self, key: bytes) -> bytes | int:
        """Return the name of the drain unit that a key is in now."""
        return self._drain.unit_of(key)

    def keeps(self, lane: Lane, owner: Consumer) -> bool:
        """Whether a lane has to wait for what others hold, or for a feature."""
        return self._drain.keeps(lane, owner) or self.refuses(lane, owner)

    def drains(self, lane: Lane, owner: Consumer) -> bool:
        """Whether a lane has to wait for what others hold of its unit."""
        return self._drain.keeps(lane, owner)

    def refuses(self, lane: Lane, owner: Consumer) -> bool:
        """Whether a feature refuses the next message of a lane. O(gates)."""
        return self._refusing(lane, owner) is not None

    @property
    def kept_back(self) -> WorkList:
        """The lanes that are refused."""
        return self._kept_back

    def why(self, lane: Lane, owner: Consumer) -> Blocking | None:
        """Return why a lane whose unit nobody else holds is refused; None if it is not."""
        gate, entry = self._refusing(lane, owner), lane.candidate
        return None if gate is None or entry is None else gate.why(entry, owner)

    def holder_besides(self, lane: Lane, owner: Consumer) -> Consumer | None:
        """Return who besides the owner holds something of the lane's unit; of several, who joined first."""
        return self._drain.holder_besides(lane, owner)

    def open_besides(self, lane: Lane, owner: Consumer | None) -> list[Entry]:
        """Return what others than the owner hold of the lane's unit, in offset order."""
        return self._drain.open_besides(lane, owner)

    # what opens and ends

    def opened(self, entry: Entry) -> None:
        """Count a delivery that begins."""
        if self._counts is not None:
            self._counts.opened(entry)
        if entry.consumer is not None:  # a forged snapshot may tell of an open delivery at nobody
            self._note(entry, entry.consumer)

    def admits(self, entry: Entry, owner: Consumer) -> bool:
        """Count a delivery to the owner of its key, who was just read; False, uncounted, if it has to wait."""
        if any(gate.refuses(entry, owner) for gate in self.gates):
            return False
        if self._counts is not None and not self._counts.admits(entry, owner):
            return False
        self._note(entry, owner)
        return True

    def closed(self, entry: Entry) -> None:
        """Count a delivery that ends. The message still knows its consumer."""
        if self._counts is not None:
            self._counts.closed(entry)
        for gate in self.gates:
            gate.closed(entry)

    def releases(self, entry: Entry) -> bool:
        """Count a delivery that ends; False, uncounted, if lanes wait for ends in its unit."""
        if self._counts is not None and not self._counts.releases(entry):
            return False
        for gate in self.gates:
            gate.closed(entry)
        return True

    # what drains, and where units are

    def place(self, lane: Lane, key: bytes) -> None:
        """Note which unit a lane is in: its owner is being read."""
        if self._counts is not None:
            self._counts.place(lane, key)

    def wait(self, lane: Lane) -> None:
        """Note that a lane begins to drain."""
        if self._counts is not None:
            self._counts.wait(lane)

    def stop_waiting(self, lane: Lane) -> None:
        """Note that a lane drains no more."""
        if self._counts is not None:
            self._counts.stop_waiting(lane)

    def take_vacated(self) -> Sequence[Lane]:
        """Return the lanes that drain in units with which somebody has finished since the last call."""
        return () if self._counts is None else self._counts.take_vacated()

    @property
    def is_behind(self) -> bool:
        """Whether there is another placement than `follow` has seen."""
        return self._counts is not None and self._counts.is_behind

    def follow(self, version: int) -> None:
        """Carry over to the placement of now, which the window calls by this number from now on."""
        if self._counts is not None:
            self._counts.follow(version)
        for gate in self.gates:
            gate.moved()

    def check_invariants(
        self, version: int, lanes: Iterable[Lane], opened: Iterable[Entry], draining: Iterable[Lane]
    ) -> None:
        """Raise `InvariantError` if the drain gate counts something else than is there. For tests; O(n)."""
        if self._counts is not None:
            self._counts.check_invariants(version, lanes, opened, draining)

    def _refusing(self, lane: Lane, owner: Consumer) -> Gate | None:
        entry = lane.candidate
        return None if entry is None else next((gate for gate in self.gates if gate.refuses(entry, owner)), None)

    def _note(self, entry: Entry, holder: Consumer) -> None:
        for gate in self.gates:
            gate.opened(entry, holder)


def key_of(entry: Entry) -> bytes | None:
    """What a message is ordered by: its key, b"" where everything is one lane, None for a message without order."""
    lane = entry.lane
    return entry.key if lane.head is None else lane.key
