"""Drains for a broker that knows hashes and no keys: who was sent what, and which hashes have to wait for it."""

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
