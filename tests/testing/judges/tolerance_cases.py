"""Histories of systems whose clocks are not exact: what a tolerance excuses, and what it does not."""

from tests.testing.judges.happenings import A, B, Case, acked, delivered, held, owned, published
from tests.testing.judges.session_cases import LINGERS, begun, ended

from keyshared.testing import Guarantees, Promise
from keyshared.testing.history import HoldReason, Published, Quiet, Released, SessionEnds

__all__ = ["TOLERANCE_CASES"]

EXPIRES = Guarantees(ack_timeout_ms=30_000, tolerance_ms=1_000)
ASKED = Guarantees(tolerance_ms=5)
LINGERS_ABOUT = Guarantees(promises=LINGERS.promises, sessions=True, linger_ms=10, tolerance_ms=3)


def postponed(until_ms: int) -> Released:
    return Released(offset=0, consumer="a", attempt=1, until_ms=until_ms, at_ms=10)


TOLERANCE_CASES = [
    Case(
        "it expired a millisecond early",
        Promise.ONE_HOLDER,
        [A, published(0), delivered(0, at_ms=0), B, delivered(0, "b", 2, at_ms=29_999)],
        None,
        EXPIRES,
    ),
    Case(
        "it expired as early as it may",
        Promise.ONE_HOLDER,
        [A, published(0), delivered(0, at_ms=0), B, delivered(0, "b", 2, at_ms=29_000)],
        None,
        EXPIRES,
    ),
    Case(
        "it expired earlier than it may",
        Promise.ONE_HOLDER,
        [A, published(0), delivered(0, at_ms=0), B, delivered(0, "b", 2, at_ms=28_999)],
        (2, 4),
        EXPIRES,
    ),
    Case(
        "it expired after two thirds of its time",
        Promise.ONE_HOLDER,
        [A, published(0), delivered(0, at_ms=0), B, delivered(0, "b", 2, at_ms=20_000)],
        (2, 4),
        EXPIRES,
    ),
    Case(
        "it has not expired yet by the system's clock",
        Promise.PROGRESS,
        [A, owned("a"), published(0), delivered(0, at_ms=0), Quiet(at_ms=30_000), Quiet(at_ms=30_999)],
        None,
        EXPIRES,
    ),
    Case(
        "it has expired by any clock",
        Promise.PROGRESS,
        [A, owned("a"), published(0), delivered(0, at_ms=0), Quiet(at_ms=31_000), Quiet(at_ms=31_001)],
        (0, 1, 3, 5),
        EXPIRES,
    ),
    Case(
        "its hold is not over yet by the system's clock",
        Promise.PROGRESS,
        [A, owned("a"), published(0), held(0, HoldReason.RETRY, 50), Quiet(at_ms=54)],
        None,
        ASKED,
    ),
    Case(
        "its hold is over by any clock",
        Promise.PROGRESS,
        [A, owned("a"), published(0), held(0, HoldReason.RETRY, 50), Quiet(at_ms=55)],
        (0, 1, 2, 4),
        ASKED,
    ),
    Case(
        "what is given back for later comes a little before it is time",
        Promise.NOT_EARLY,
        [A, published(0), delivered(0), postponed(until_ms=50), delivered(0, attempt=2, at_ms=45)],
        None,
        ASKED,
    ),
    Case(
        "what is published for later comes long before it is time",
        Promise.NOT_EARLY,
        [A, Published(offset=0, key=b"k", until_ms=50, at_ms=1), delivered(0, at_ms=44)],
        (1, 2),
        ASKED,
    ),
    Case(
        "it has lingered nearly long enough",
        Promise.ONE_SESSION,
        [A, begun(at_ms=0), delivered(0), acked(0), ended(reason=SessionEnds.IDLE, at_ms=7)],
        None,
        LINGERS_ABOUT,
    ),
    Case(
        "it has not lingered long enough by any clock",
        Promise.ONE_SESSION,
        [A, begun(at_ms=0), delivered(0), acked(0), ended(reason=SessionEnds.IDLE, at_ms=6)],
        (1, 4),
        LINGERS_ABOUT,
    ),
]
