"""Histories about what is told of an end: settled-once, kept and broken."""

from tests.testing.checks.events import Case, acked, delivered, published, released

from keyshared.testing import Claims, Promise
from keyshared.testing.history import AtRest, Done, Quiet, Skipped

__all__ = ["SETTLEMENT_CASES"]

TOLD = Claims(promises={"settled-once"}, tells_done=True)
SETTLEMENT_CASES = [
    Case(
        "an ack is told",
        Promise.SETTLED_ONCE,
        [published(0), delivered(0), acked(0), Done(offset=0), Quiet()],
        None,
        TOLD,
    ),
    Case(
        "a policy's end is told",
        Promise.SETTLED_ONCE,
        [published(0), Skipped(offset=0), Done(offset=0, reason="gone"), AtRest()],
        None,
        TOLD,
    ),
    Case(
        "an end before its publication is told",
        Promise.SETTLED_ONCE,
        [Skipped(offset=0), published(0), Done(offset=0), AtRest()],
        None,
        TOLD,
    ),
    Case("an ack is not told", Promise.SETTLED_ONCE, [published(0), delivered(0), acked(0), Quiet()], (2, 3), TOLD),
    Case("nothing claims to tell", Promise.SETTLED_ONCE, [published(0), delivered(0), acked(0), Quiet()]),
    Case(
        "an ack is told twice",
        Promise.SETTLED_ONCE,
        [published(0), delivered(0), acked(0), Done(offset=0), Done(offset=0)],
        (4,),
        TOLD,
    ),
    Case("what is open is told", Promise.SETTLED_ONCE, [published(0), delivered(0), Done(offset=0)], (1, 2), TOLD),
    Case(
        "an ack that may have come too late is told, so it has counted",
        Promise.SETTLED_ONCE,
        [published(0), delivered(0), released(0), acked(0), Done(offset=0), Quiet()],
        None,
        TOLD,
    ),
]
