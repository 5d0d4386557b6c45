"""Histories of systems that count what is done: health-adds-up, kept and broken."""

from tests.testing.checks.events import A, Case, acked, delivered, published

from keyshared.testing import Claims, Promise
from keyshared.testing.history import Measured, Settled, SettledBy

__all__ = ["HEALTH_CASES"]

COUNTS = Claims(promises={"health-adds-up"}, measures=True)
ONE_DONE = (A, published(0), delivered(0), acked(0))

HEALTH_CASES = [
    Case(
        "the count grows by what is done, wherever it began",
        Promise.HEALTH_ADDS_UP,
        [Measured(count=7), *ONE_DONE, Measured(count=8), Measured(count=8)],
        None,
        COUNTS,
    ),
    Case(
        "an ack of which nobody knows whether it counted may be counted, now or later",
        Promise.HEALTH_ADDS_UP,
        [
            *(A, published(0), delivered(0), Measured(count=0), delivered(0, attempt=2), acked(0, attempt=1)),
            *(Measured(count=0), Settled(offset=0, reason=SettledBy.OPERATOR), Measured(count=1)),
        ],
        None,
        Claims(promises={"health-adds-up"}, measures=True),
    ),
    Case(
        "something is counted twice",
        Promise.HEALTH_ADDS_UP,
        [Measured(count=0), *ONE_DONE, Measured(count=2), Measured(count=2)],
        (0, 5),
        COUNTS,
    ),
    Case(
        "something is not counted",
        Promise.HEALTH_ADDS_UP,
        [Measured(count=0), *ONE_DONE, Measured(count=0)],
        (0, 5),
        COUNTS,
    ),
    Case(
        "the count begins anew",
        Promise.HEALTH_ADDS_UP,
        [Measured(count=3), Measured(count=0)],
        (0, 1),
        COUNTS,
    ),
]
