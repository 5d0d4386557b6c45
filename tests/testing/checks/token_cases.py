"""Small histories that keep the promise about the length of a restart token, and some that break it."""

from tests.testing.checks.events import K2, A, Case, L, acked, delivered, held, published, released

from keyshared.testing import Claims, Promise
from keyshared.testing.history import Acked, Event, HoldReason, Quiet

__all__ = ["TOKEN_CASES"]

ONE_HOLE = Claims(token_bytes=20)  # a position alone has 13 bytes, with one hole it has 16
HOLE: list[Event] = [
    A,
    published(0),
    published(1, L),
    published(2, K2),
    delivered(0),
    delivered(1, key=L),
    acked(1),
]
DONE_EARLY: list[Event] = [Acked(offset=1, consumer="a", attempt=1, counted=True), published(1, L)]

TOKEN_CASES = [
    Case(
        "a new message goes out while the token is full",
        Promise.TOKEN_BUDGET,
        [*HOLE, Quiet(), delivered(2, key=K2)],
        (4, 7, 8),
        ONE_HOLE,
    ),
    Case(
        "a message goes out in the call that fills the token",
        Promise.TOKEN_BUDGET,
        [*HOLE, delivered(2, key=K2)],
        None,
        ONE_HOLE,
    ),
    Case(
        "the lowest message goes out while the token is full",
        Promise.TOKEN_BUDGET,
        [*HOLE, Quiet(), released(0), delivered(0, attempt=2)],
        None,
        ONE_HOLE,
    ),
    Case(
        "a message is held back for a token that is short",
        Promise.TOKEN_BUDGET,
        [published(0), published(1, L), held(1, HoldReason.ACK_HOLES), Quiet(), Quiet()],
        (2, 3),
        Claims(token_bytes=40),
    ),
    Case(
        "the lowest message is held back",
        Promise.TOKEN_BUDGET,
        [published(0), published(1, L), held(0, HoldReason.ACK_HOLES), Quiet()],
        (2, 3),
        Claims(token_bytes=17),
    ),
    Case(
        "others are held back while the token is full",
        Promise.TOKEN_BUDGET,
        [published(0), published(1, L), held(1, HoldReason.ACK_HOLES), Quiet()],
        None,
        Claims(token_bytes=17),
    ),
    Case(
        "what was held back goes out",
        Promise.TOKEN_BUDGET,
        [published(0), published(1, L), held(1, HoldReason.ACK_HOLES), held(1), Quiet(), delivered(1, key=L), Quiet()],
        None,
        Claims(token_bytes=40),
    ),
]
