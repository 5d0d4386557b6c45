"""A lease queue: consumers ask for messages and hold each for a limited time, as in SQS.

It is the pull face of `keyshared.dispatcher`. A message that is not acked in time goes to the owner of its key that
asks next; messages of one key are leased in order.

>>> from keyshared import HashRing
>>> queue = LeaseQueue(HashRing())
>>> _ = queue.add_consumer("c1"), queue.offer(0, "order-1", "created")
>>> lease, effects = queue.consume("c1", 10, now_ms=0)
>>> lease.offsets, lease.deadline_ms, queue.ack(0, lease.id).effects
((0,), 30000, [CursorAdvanced(safe_cursor=0)])
"""

from keyshared.leases.config import DEFAULT_MAX_DELIVERY_ATTEMPTS, DEFAULT_RESERVATION_TIMEOUT_MS, LeaseConfig
from keyshared.leases.lease import (
    Duplicate,
    EmptyReason,
    Handle,
    InvalidHandle,
    InvalidHandleReason,
    InvalidReservation,
    InvalidReservationReason,
    Lease,
    LeaseAnswer,
    Leased,
    NothingToLease,
    Produced,
    Reservation,
)
from keyshared.leases.queue import LeaseQueue

__all__ = [
    "DEFAULT_MAX_DELIVERY_ATTEMPTS",
    "DEFAULT_RESERVATION_TIMEOUT_MS",
    "Duplicate",
    "EmptyReason",
    "Handle",
    "InvalidHandle",
    "InvalidHandleReason",
    "InvalidReservation",
    "InvalidReservationReason",
    "Lease",
    "LeaseAnswer",
    "LeaseConfig",
    "LeaseQueue",
    "Leased",
    "NothingToLease",
    "Produced",
    "Reservation",
]
