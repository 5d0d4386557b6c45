"""Histories about what becomes of messages, and what waits: each promise kept and broken.

What both judges of tiny histories agree on needs no case here: these show a proof, or what is rare there.
"""

from dataclasses import replace

from tests.testing.checks.events import (
    K2,
    PAIRS,
    UNITS,
    A,
    B,
    Case,
    K,
    L,
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
    AtRest,
    Committed,
    DeadLettered,
    Done,
    Event,
    Expired,
    Freed,
    HoldReason,
    LimitChanged,
    Quiet,
    Redriven,
    Rewound,
    SessionEnding,
    Settled,
    SettledBy,
    Suspended,
)

__all__ = ["OUTCOME_CASES"]

TWICE = Claims(promises={"attempts"}, max_attempts=2)
TOLD = Claims(promises={"settled-once"}, tells_done=True)
FREE = Claims(per_key=None)
IN_TURN = Claims(promises={"fairness"}, fairness=0)
QUEUE: list[Event] = [
    A,
    owned("a"),
    published(0),
    published(1, K2),
    delivered(0),
    owned("a", K2),
    published(2),
    Quiet(),
]
LATEST = Claims(promises={"latest-only"}, latest_only=True)
TURNS = Claims(promises={"fairness"}, latest_only=True, per_consumer=1, fairness=0)
ONE_KEY = Claims(promises={"no-loss", "latest-only"}, latest_only=lambda key: key == L)


def superseded(offset: int) -> Settled:
    return Settled(offset=offset, reason=SettledBy.SUPERSEDED)


BURIED: list[Event] = [A, published(0), published(1), delivered(0), DeadLettered(offset=0)]
BACK = Redriven(offset=0, key=K, attempt=1)
LETTERS = Claims(may_dead_letter=True)

OUTCOME_CASES = [
    Case(
        "the cursor follows what is done over gaps",
        Promise.SAFE_CURSOR,
        [A, published(3), published(7), delivered(3), acked(3), Committed(resume_offset=7), Quiet()],
        None,
        Claims(cursor_keeps_up=True),
    ),
    Case(
        "the cursor stands behind a gap of the log",
        Promise.SAFE_CURSOR,
        [A, published(0), delivered(0), acked(0), Committed(resume_offset=2), published(2), published(3)],
    ),
    Case(
        "the cursor passes what is published only then",
        Promise.SAFE_CURSOR,
        [
            *(A, published(0), delivered(0), acked(0), Committed(resume_offset=2), Committed(resume_offset=2)),
            *(published(1), published(2)),
        ],
        (4, 6),
    ),
    Case(
        "settled by a late ack",
        Promise.NO_LOSS,
        [
            *(A, published(0), delivered(0), released(0), delivered(0, attempt=2)),
            *(acked(0, counted=False), nacked(0, attempt=2), Settled(offset=0, reason=SettledBy.LATE_ACK)),
        ],
    ),
    Case(
        "a nack of the open delivery that does not count",
        Promise.NO_LOSS,
        [A, published(0), delivered(0), nacked(0, counted=False)],
        (2, 3),
    ),
    Case(
        "a refused nack without a number may be of the delivery before",
        Promise.NO_LOSS,
        [
            *(A, published(0), delivered(0), released(0), delivered(0, attempt=2)),
            *(nacked(0, attempt=None, counted=False), acked(0, attempt=2, counted=True)),
        ],
    ),
    Case(
        "its delivery has expired at rest, and nobody has said so",
        Promise.NO_LOSS,
        [A, published(0), delivered(0, at_ms=0), AtRest(at_ms=100)],
        (2, 3),
        Claims(ack_timeout_ms=100),
    ),
    Case(
        "its delivery may have expired at rest",
        Promise.NO_LOSS,
        [A, published(0), delivered(0, at_ms=0), AtRest(at_ms=100)],
        None,
        Claims(ack_timeout_ms=100, tolerance_ms=1),
    ),
    Case("nobody owns it at rest", Promise.NO_LOSS, [A, published(0), owned(None), AtRest()]),
    Case(
        "an older one that may be done is held back at rest",
        Promise.NO_LOSS,
        [A, published(0), published(1), delivered(0), released(0), acked(0), held(0), AtRest()],
    ),
    Case(
        "a message that somebody lets go on begins anew",
        Promise.ATTEMPTS,
        [
            A,
            published(0),
            delivered(0),
            nacked(0),
            delivered(0, attempt=2),
            nacked(0, attempt=2),
            held(0, HoldReason.BLOCKED),
            delivered(0, attempt=3),
        ],
        None,
        TWICE,
    ),
    Case(
        "an expiry that is told is a failure also where the time of the delivery says so",
        Promise.ATTEMPTS,
        [
            *(A, published(0), delivered(0, at_ms=0), Expired(offset=0, consumer="a", attempt=1, at_ms=10)),
            *(delivered(0, attempt=2, at_ms=10), Expired(offset=0, consumer="a", attempt=2, at_ms=20)),
            delivered(0, attempt=3, at_ms=20),
        ],
        (4, 5, 6),
        Claims(promises={"attempts"}, max_attempts=2, ack_timeout_ms=10),
    ),
    Case(
        "a message that has failed twice has no answer in the end",
        Promise.ATTEMPTS,
        [A, published(0), delivered(0), nacked(0), delivered(0, attempt=2), nacked(0, attempt=2), AtRest()],
        (4, 5, 6),
        TWICE,
    ),
    Case(
        "an ack is told",
        Promise.SETTLED_ONCE,
        [published(0), delivered(0), acked(0), Done(offset=0), Quiet()],
        None,
        TOLD,
    ),
    Case("an ack is not told", Promise.SETTLED_ONCE, [published(0), delivered(0), acked(0), Quiet()], (2, 3), TOLD),
    Case(
        "more of a key than it has waits for the only consumer",
        Promise.PROGRESS,
        [A, published(0), published(1), published(2), delivered(0), delivered(1), Quiet(), Quiet()],
        (0, 3, 6),
        FREE,
    ),
    Case(
        "more of a key waits, of which something is open at one of two consumers",
        Promise.PROGRESS,
        [A, B, published(0), published(1), delivered(0), Quiet()],
        None,
        FREE,
    ),
    Case(
        "more of a key waits for the only consumer, and something is open at one that has left",
        Promise.PROGRESS,
        [A, B, published(0), published(1), delivered(0), gone("a", drains=True), Quiet()],
        None,
        FREE,
    ),
    Case(
        "a key waits though its unit is free again",
        Promise.PROGRESS,
        [A, B, published(0), delivered(0), published(1, K2), owned("b", K2), Quiet(), acked(0), Quiet()],
        (1, 4, 5, 8),
        UNITS,
    ),
    Case(
        "nobody notices that there is room",
        Promise.PROGRESS,
        [connected("a", 0), owned("a"), published(0), Quiet(), LimitChanged(consumer="a", limit=1), Quiet()],
        (1, 2, 4, 5),
    ),
    Case(
        "its room may be reserved",
        Promise.PROGRESS,
        [
            *(connected("a", 1), owned("a"), published(0), held(0, HoldReason.LOADING)),
            *(published(1, L), owned("a", L), Quiet()),
        ],
    ),
    Case(
        "whoever may own it is suspended",
        Promise.PROGRESS,
        [A, B, Suspended(consumer="b"), published(0), Quiet()],
    ),
    Case(
        "where a payload is does not change with time",
        Promise.PROGRESS,
        [A, owned("a"), published(0), held(0, HoldReason.SPILLED, 50), Quiet(at_ms=60)],
    ),
    Case(
        "it drains",
        Promise.PROGRESS,
        [A, B, owned("a"), published(0), published(1), delivered(0), owned("b"), Quiet()],
        None,
        PAIRS,
    ),
    Case(
        "it is no longer held back",
        Promise.PROGRESS,
        [A, owned("a"), published(0), held(0), Quiet(), Freed(offset=0), Quiet()],
        (0, 1, 2, 6),
    ),
    Case(
        "a retry is due",
        Promise.PROGRESS,
        [A, owned("a"), published(0), held(0, HoldReason.RETRY, 50), Quiet(at_ms=49), Quiet(at_ms=50)],
        (0, 1, 2, 5),
    ),
    Case(
        "the newest key goes first",
        Promise.FAIRNESS,
        [*QUEUE, acked(0), published(3, b"k3"), delivered(3, key=b"k3")],
        (3, 5, 7, 10),
        IN_TURN,
    ),
    Case(
        "a key whose messages are all done waits anew with the next one",
        Promise.FAIRNESS,
        [
            *(A, owned("a"), owned("a", K2), published(0), delivered(0), published(1, None), nacked(0)),
            *(delivered(1, key=None), Quiet(), published(2, K2), Quiet(), acked(0, counted=True), published(3)),
            *(acked(1), delivered(3)),
        ],
        (2, 9, 10, 14),
        replace(IN_TURN, per_consumer=1),
    ),
    Case(
        "a key is passed over once too often",
        Promise.FAIRNESS,
        [*QUEUE, acked(0), delivered(2), nacked(2), delivered(2, attempt=2)],
        (3, 5, 7, 9, 11),
        replace(IN_TURN, fairness=1),
    ),
    Case(
        "a key whose session has to end stands in no queue",
        Promise.FAIRNESS,
        [*QUEUE, SessionEnding(key=K2, consumer="a", session=1), acked(0), delivered(2)],
        None,
        IN_TURN,
    ),
    Case(
        "nothing has waited yet for a consumer that comes back",
        Promise.FAIRNESS,
        [*QUEUE, gone("a"), A, delivered(0, attempt=2), acked(0, attempt=2), delivered(2)],
        None,
        IN_TURN,
    ),
    Case(
        "a key whose unit drains stands in no queue",
        Promise.FAIRNESS,
        [
            A,
            B,
            published(0, b"k1"),
            delivered(0, "b", key=b"k1"),
            *QUEUE[1:2],
            published(2, K2),
            owned("a", K2),
            Quiet(),
            published(3, b"l"),
            delivered(3, key=b"l"),
        ],
        None,
        replace(IN_TURN, unit_of=lambda key: key[:1]),
    ),
    Case(
        "a newer message of a key passes no turn of its own key over",
        Promise.FAIRNESS,
        [A, owned("a"), published(0), published(1), published(2), Quiet(), delivered(1), delivered(2)],
        None,
        Claims(promises={"fairness"}, fairness=0, per_key=None),
    ),
    Case(
        "after a rewind nobody has waited yet",
        Promise.FAIRNESS,
        [A, owned("a"), owned("a", K2), published(0), Quiet(), Rewound(), published(1, K2), delivered(1, key=K2)],
        None,
        IN_TURN,
    ),
    Case(
        "a delivered one is superseded",
        Promise.LATEST_ONLY,
        [A, published(0), delivered(0), published(1), superseded(0)],
        (2, 4),
        LATEST,
    ),
    Case(
        "what comes after a moment of quiet is no reason",
        Promise.LATEST_ONLY,
        [published(0), superseded(0), Quiet(), published(1), Quiet()],
        (0, 1),
        LATEST,
    ),
    Case(
        "what has made way was told of twice",
        Promise.LATEST_ONLY,
        [published(0), published(1), superseded(0), superseded(0)],
        None,
        LATEST,
    ),
    Case(
        "of one of which the latest counts two wait",
        Promise.LATEST_ONLY,
        [published(0), published(1), published(2, key=L), published(3, key=L), Quiet()],
        (2, 3, 4),
        ONE_KEY,
    ),
    Case(
        "a newer one has lost the place of the older one",
        Promise.FAIRNESS,
        [
            *(A, owned("a"), owned("a", key=L), published(0), Quiet(), published(1, key=L), Quiet()),
            *(published(2), superseded(0), Quiet(), delivered(1, key=L)),
        ],
        (1, 4, 7, 10),
        TURNS,
    ),
    Case(
        "what has come back goes out before what is newer, once nothing else of its key is open",
        Promise.REDRIVE_ORDER,
        [
            *BURIED,
            delivered(1),
            BACK,
            published(2),
            acked(1),
            delivered(0, attempt=2),
            acked(0, attempt=2),
            delivered(2),
        ],
        None,
        LETTERS,
    ),
    Case(
        "it is redriven while it is open",
        Promise.REDRIVE_ORDER,
        [*BURIED, BACK, delivered(0, attempt=2), BACK],
        (6, 7),
        LETTERS,
    ),
    Case(
        "the cursor waits for it",
        Promise.SAFE_CURSOR,
        [*BURIED, Committed(resume_offset=1), BACK, delivered(1), acked(1, counted=True), Quiet()],
        (2, 5, 9),
        Claims(may_dead_letter=True, cursor_keeps_up=True),
    ),
    Case(
        "a batch that is out is not broken by what comes back",
        Promise.WHOLE_BATCH,
        [*BURIED, delivered(1), BACK, acked(1)],
        None,
        Claims(may_dead_letter=True, batches=True, per_key=2),
    ),
]
