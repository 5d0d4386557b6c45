"""Histories about dead letters that come back: redrive-order and what other promises say of them, kept and broken."""

from tests.testing.checks.events import A, B, Case, L, acked, delivered, published

from keyshared.testing import Claims, Promise
from keyshared.testing.history import Committed, DeadLettered, Event, Quiet, Redriven

__all__ = ["REDRIVE_CASES"]

K = b"k"
BURIED: list[Event] = [A, published(0), published(1), delivered(0), DeadLettered(offset=0)]
BACK = Redriven(offset=0, key=K, attempt=1)
LETTERS = Claims(may_dead_letter=True)
REDRIVE_CASES = [
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
    Case("what is newer overtakes it", Promise.REDRIVE_ORDER, [*BURIED, BACK, delivered(1)], (5, 6), LETTERS),
    Case(
        "what is newer overtakes it before its publication is told",
        Promise.REDRIVE_ORDER,
        [*BURIED, BACK, delivered(2)],
        (5, 6),
        LETTERS,
    ),
    Case("it is redriven twice", Promise.REDRIVE_ORDER, [*BURIED, BACK, BACK], (5, 6), LETTERS),
    Case(
        "it is redriven while it is open",
        Promise.REDRIVE_ORDER,
        [*BURIED, BACK, delivered(0, attempt=2), BACK],
        (6, 7),
        LETTERS,
    ),
    Case(
        "it was done, as far as anybody knows, and has come back",
        Promise.REDRIVE_ORDER,
        [A, B, published(0), delivered(0), acked(0), BACK, delivered(0, attempt=2)],
        None,
    ),
    Case(
        "what is of another key passes it",
        Promise.REDRIVE_ORDER,
        [*BURIED, BACK, published(2, key=L), delivered(2, key=L)],
        None,
        LETTERS,
    ),
    Case(
        "an ack of the delivery from before settles it",
        Promise.FENCE,
        [*BURIED, BACK, acked(0, counted=True)],
        (5, 6),
        LETTERS,
    ),
    Case("its attempts begin anew", Promise.FENCE, [*BURIED, BACK, delivered(0)], (5, 6), LETTERS),
    Case(
        "the cursor goes on past it",
        Promise.SAFE_CURSOR,
        [*BURIED, Committed(resume_offset=1), BACK, delivered(1), acked(1), Committed(resume_offset=2)],
        None,
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
        "one more than may be outstanding",
        Promise.BOUNDS,
        [A, published(0), delivered(0), DeadLettered(offset=0), published(1), BACK],
        (4, 5),
        Claims(may_dead_letter=True, max_tracked=1),
    ),
    Case(
        "a batch that is out is not broken by what comes back",
        Promise.WHOLE_BATCH,
        [*BURIED, delivered(1), BACK, acked(1)],
        None,
        Claims(may_dead_letter=True, batches=True, per_key=2),
    ),
]
