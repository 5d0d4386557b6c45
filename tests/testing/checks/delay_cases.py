"""Histories about delays and reasons: not-early and reason-travels, kept and broken."""

from tests.testing.checks.events import A, Case, K, acked, delivered, held, nacked, published, released

from keyshared.testing import Promise
from keyshared.testing.history import DeadLettered, HoldReason, Nacked, Published, Released

__all__ = ["DELAY_CASES"]


def failed(offset: int, reason: str, *, counted: bool | None = True) -> Nacked:
    return Nacked(offset=offset, consumer="a", attempt=1, counted=counted, reason=reason)


def postponed(offset: int, until_ms: int) -> Released:
    return Released(offset=offset, consumer="a", attempt=1, until_ms=until_ms, at_ms=10)


DELAY_CASES = [
    Case(
        "what is given back for later comes when it is time",
        Promise.NOT_EARLY,
        [A, published(0), delivered(0), postponed(0, until_ms=50), delivered(0, attempt=2, at_ms=50)],
    ),
    Case(
        "what is given back for later comes before it is time",
        Promise.NOT_EARLY,
        [A, published(0), delivered(0), postponed(0, until_ms=50), delivered(0, attempt=2, at_ms=49)],
        (3, 4),
    ),
    Case(
        "what is published for later comes before it is time",
        Promise.NOT_EARLY,
        [A, Published(offset=0, key=K, until_ms=50, at_ms=1), delivered(0, at_ms=49)],
        (1, 2),
    ),
    Case(
        "its publication is told late, and it came when it was time",
        Promise.NOT_EARLY,
        [
            *(A, delivered(0, at_ms=50), Published(offset=0, key=K, until_ms=50), acked(1, counted=True)),
            Published(offset=1, until_ms=99),
        ],
    ),
    Case(
        "a clock that has started anew does not say when it is time",
        Promise.NOT_EARLY,
        [
            *(A, published(0), delivered(0), postponed(0, until_ms=50)),
            *(held(0, HoldReason.POSTPONED), delivered(0, attempt=2, at_ms=9)),
        ],
    ),
    Case(
        "the wish of one delivery is not that of the next",
        Promise.NOT_EARLY,
        [
            *(A, published(0), delivered(0), postponed(0, until_ms=50), delivered(0, attempt=2, at_ms=50)),
            *(released(0, attempt=2), delivered(0, attempt=3, at_ms=51)),
        ],
    ),
    Case(
        "a dead letter says what its last failure said",
        Promise.REASON_TRAVELS,
        [
            *(A, published(0), delivered(0), failed(0, "refused"), delivered(0, attempt=2), nacked(0, attempt=2)),
            DeadLettered(offset=0, reason="refused"),
        ],
    ),
    Case(
        "a dead letter has forgotten what its last failure said",
        Promise.REASON_TRAVELS,
        [A, published(0), delivered(0), failed(0, "refused"), DeadLettered(offset=0)],
        (3, 4),
    ),
    Case(
        "a dead letter says what nobody has said",
        Promise.REASON_TRAVELS,
        [A, published(0), delivered(0), nacked(0), DeadLettered(offset=0, reason="refused")],
        (1, 4),
    ),
    Case(
        "a nack that was only seen has counted, and the dead letter says why",
        Promise.REASON_TRAVELS,
        [
            *(A, published(0), delivered(0), failed(0, "refused", counted=None), nacked(0)),
            DeadLettered(offset=0, reason="refused"),
        ],
    ),
    Case(
        "what failed before the history began may have said anything",
        Promise.REASON_TRAVELS,
        [A, delivered(0, attempt=2), nacked(0, attempt=2), DeadLettered(offset=0, reason="refused")],
    ),
    Case(
        "a reason that came too late does not count",
        Promise.REASON_TRAVELS,
        [
            *(A, published(0), delivered(0), failed(0, "refused"), delivered(0, attempt=2), failed(0, "late")),
            DeadLettered(offset=0, reason="refused"),
        ],
    ),
]
