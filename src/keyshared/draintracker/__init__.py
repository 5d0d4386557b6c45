"""Drains for a broker that knows hashes and no keys: sent entries, owners of hashes, and hashes that wait.

`DrainTracker` keeps the unacked entries of each consumer. A hash that moved is refused to its new owner until the old
one has acked it (PIP-379). If you know keys, use `KeySharedDispatcher`.

>>> from keyshared import RangeMap
>>> tracker = DrainTracker(RangeMap.from_stops([65536], ["a"]))
>>> receipt = tracker.add("a", (3, 0), 7)
>>> tracker.add_consumer("b", RangeMap.from_stops([32768, 65536], ["b", "a"])).unblocked
()
>>> tracker.refusal("b", 7).name, tracker.ack(*receipt).unblocked
('DRAINING', (7,))
"""

from keyshared.draintracker.pending_acks import PendingAck, PendingAcks, Position
from keyshared.draintracker.tracker import DrainTracker
from keyshared.draintracker.values import (
    EntryAcked,
    HandedOver,
    HashState,
    OwnersChanged,
    Refusal,
    Returned,
    SendReceipt,
)

__all__ = [
    "DrainTracker",
    "EntryAcked",
    "HandedOver",
    "HashState",
    "OwnersChanged",
    "PendingAck",
    "PendingAcks",
    "Position",
    "Refusal",
    "Returned",
    "SendReceipt",
]
