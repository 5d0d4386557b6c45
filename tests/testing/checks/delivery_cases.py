"""Histories about who gets a message and when, and where keys belong: each promise kept and broken.

What both judges of tiny histories agree on needs no case here: these show a proof, or what is rare there.
"""

from tests.testing.checks.events import (
    K2,
    UNITS,
    A,
    B,
    Case,
    K,
    acked,
    connected,
    delivered,
    gone,
    held,
    nacked,
    owned,
    published,
    released,
)

from keyshared.testing import Claims, Promise
from keyshared.testing.history import (
    DeadLettered,
    Event,
    Expired,
    HoldReason,
    Nacked,
    PlacementChanged,
    Quiet,
    Released,
    SessionBegun,
    SessionEnded,
    SessionEnds,
)

__all__ = ["DELIVERY_CASES"]


def failed(offset: int, reason: str, *, counted: bool | None = True) -> Nacked:
    return Nacked(offset=offset, consumer="a", attempt=1, counted=counted, reason=reason)


def postponed(offset: int, until_ms: int) -> Released:
    return Released(offset=offset, consumer="a", attempt=1, until_ms=until_ms, at_ms=10)


BATCHES = Claims(promises={"whole-batch"}, per_key=2, batches=True)
SESSIONS = Claims(promises={"one-session"}, sessions=True, per_key=2)
LINGERS = Claims(promises={"one-session"}, sessions=True, linger_ms=10)


def begun(session: int = 1, consumer: str = "a", key: bytes = K, at_ms: int | None = None) -> SessionBegun:
    return SessionBegun(key=key, consumer=consumer, session=session, at_ms=at_ms)


def ended(
    session: int = 1, consumer: str = "a", reason: SessionEnds = SessionEnds.MOVED, at_ms: int | None = None
) -> SessionEnded:
    return SessionEnded(key=K, consumer=consumer, session=session, reason=reason, at_ms=at_ms)


WORK: list[Event] = [A, B, published(0), published(1), begun(), delivered(0)]

DELIVERY_CASES = [
    Case(
        "a key moves when its last delivery has ended",
        Promise.ONE_HOLDER,
        [A, published(0), published(1), delivered(0), B, acked(0), delivered(1, "b")],
    ),
    Case(
        "a unit moves while another key of it is at work elsewhere",
        Promise.ONE_HOLDER,
        [A, B, published(0), published(1, K2), delivered(0), delivered(1, "b", key=K2)],
        (4, 5),
        UNITS,
    ),
    Case(
        "a nack that was only seen changes nothing for a delivery that has expired by any clock",
        Promise.KEY_ORDER,
        [
            *(A, published(0), delivered(0, at_ms=0), Quiet(at_ms=20), nacked(0, counted=None)),
            *(published(1), delivered(1)),
        ],
        (2, 6),
        Claims(per_key=2, ack_timeout_ms=10),
    ),
    Case(
        "a nacked message may be overtaken where that is not promised",
        Promise.KEY_ORDER,
        [A, published(0), published(1), delivered(0), nacked(0), delivered(1), delivered(0, attempt=2)],
        None,
        Claims(per_key=2, nack_holds_key=False),
    ),
    Case(
        "what may be done counts for no limit",
        Promise.BOUNDS,
        [A, published(0), delivered(0), released(0), acked(0), published(1)],
        None,
        Claims(max_tracked=1),
    ),
    Case(
        "one of a key too many",
        Promise.BOUNDS,
        [A, published(0), published(1), delivered(0), delivered(1)],
        (3, 4),
    ),
    Case(
        "a key goes to its owner",
        Promise.AFFINITY,
        [A, B, owned("b"), published(0), delivered(0, "b")],
    ),
    Case(
        "a key changes its owner in between",
        Promise.AFFINITY,
        [A, B, owned("a"), published(0), delivered(0), owned("b")],
        (2, 5),
    ),
    Case(
        "to somebody who has left",
        Promise.AFFINITY,
        [A, B, gone("b"), published(0), delivered(0, "b")],
        (2, 4),
    ),
    Case(
        "to the newcomer",
        Promise.MINIMAL_MOVE,
        [A, owned("a"), B, owned("b")],
    ),
    Case(
        "away from one that stays",
        Promise.MINIMAL_MOVE,
        [A, B, connected("c"), owned("a"), gone("c"), owned("b")],
        (3, 4, 5),
    ),
    Case("by hand", Promise.MINIMAL_MOVE, [A, B, owned("a"), PlacementChanged(), owned("b")]),
    Case(
        "a key is delivered to a third one",
        Promise.MINIMAL_MOVE,
        [A, B, published(0), delivered(0), acked(0), connected("c"), published(1), delivered(1, "b")],
        (3, 5, 7),
    ),
    Case(
        "a key was at one that came and went",
        Promise.MINIMAL_MOVE,
        [A, B, published(0), delivered(0), acked(0), connected("c"), gone("c"), published(1), delivered(1, "b")],
    ),
    Case(
        "a key was at one that came twice, so its first session is over",
        Promise.MINIMAL_MOVE,
        [
            *(A, B, published(0), delivered(0), acked(0)),
            *(connected("c"), connected("c"), published(1), delivered(1, "b")),
        ],
    ),
    Case(
        "attempts rise",
        Promise.FENCE,
        [A, published(0), delivered(0), Expired(offset=0, consumer="a", attempt=1), delivered(0, attempt=5)],
    ),
    Case(
        "an attempt comes twice",
        Promise.FENCE,
        [A, published(0), delivered(0), nacked(0), delivered(0, attempt=1)],
        (2, 4),
    ),
    Case(
        "an ack of an attempt that never was counts",
        Promise.FENCE,
        [A, published(0), delivered(0), released(0), acked(0, attempt=2, counted=True)],
        (2, 4),
    ),
    Case(
        "the wrong delivery is ended",
        Promise.FENCE,
        [A, published(0), delivered(0), released(0, "b")],
        (2, 3),
    ),
    Case(
        "what is given back for later comes before it is time",
        Promise.NOT_EARLY,
        [A, published(0), delivered(0), postponed(0, until_ms=50), delivered(0, attempt=2, at_ms=49)],
        (3, 4),
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
        "a dead letter has forgotten what its last failure said",
        Promise.REASON_TRAVELS,
        [A, published(0), delivered(0), failed(0, "refused"), DeadLettered(offset=0)],
        (3, 4),
    ),
    Case(
        "what failed before the history began may have said anything",
        Promise.REASON_TRAVELS,
        [A, delivered(0, attempt=2), nacked(0, attempt=2), DeadLettered(offset=0, reason="refused")],
    ),
    Case(
        "what is newer than a failure goes on",
        Promise.WHOLE_BATCH,
        [A, published(0), published(1), delivered(0), delivered(1), released(0), acked(1)],
        (5, 6),
        BATCHES,
    ),
    Case("a number comes again", Promise.ONE_SESSION, [begun(), ended(), begun()], (0, 2), SESSIONS),
    Case(
        "who is gone twice has it still",
        Promise.ONE_SESSION,
        [*WORK, gone("a"), A, gone("a"), Quiet()],
        (4, 6, 9),
        SESSIONS,
    ),
    Case("who is gone has lost it", Promise.ONE_SESSION, [*WORK, gone("a"), ended(), Quiet()], None, SESSIONS),
    Case(
        "it has not lingered",
        Promise.ONE_SESSION,
        [A, begun(at_ms=0), delivered(0), acked(0), ended(reason=SessionEnds.IDLE, at_ms=9)],
        (1, 4),
        LINGERS,
    ),
    Case(
        "it has lingered",
        Promise.ONE_SESSION,
        [A, begun(at_ms=0), delivered(0), acked(0), ended(reason=SessionEnds.IDLE, at_ms=10)],
        None,
        LINGERS,
    ),
]
