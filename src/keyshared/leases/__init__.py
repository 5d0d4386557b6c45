"""A queue of leases over the dispatcher: consumers ask, and what they get is theirs for a time."""

from keyshared.leases.config import DEFAULT_MAX_DELIVERY_ATTEMPTS, DEFAULT_RESERVATION_TIMEOUT_MS, LeaseConfig
from keyshared.leases.producers import Produced, ProducerSequences
from keyshared.leases.queue import LeaseQueue
from keyshared.leases.values import (
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
    LeaseStats,
    NothingToLease,
    Reservation,
)

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
    "LeaseStats",
    "Leased",
    "NothingToLease",
    "Produced",
    "ProducerSequences",
    "Reservation",
]
