"""Each promise with a small history that keeps it and one that breaks it, and the exact proof of that."""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import pytest

from keyshared.testing import Guarantees, Promise, Violation, check_history
from keyshared.testing.guarantees import JUDGED
from keyshared.testing.history import (
    Acked,
    AtRest,
    Committed,
    Connected,
    DeadLettered,
    Delivered,
    Dropped,
    Expired,
    Freed,
    Gone,
    Happening,
    Held,
    HoldReason,
    LimitChanged,
    Nacked,
    Owned,
    PlacementChanged,
    Published,
    Quiet,
    Released,
    Resumed,
    Settled,
    SettledBy,
    Skipped,
    Suspended,
)

K, L = b"k", b"l"


def published(offset: int, key: bytes | None = K, at_ms: int | None = None) -> Published:
    return Published(offset=offset, key=key, at_ms=at_ms)


def delivered(
    offset: int, consumer: str = "a", attempt: int | None = 1, key: bytes | None = K, at_ms: int | None = None
) -> Delivered:
    return Delivered(offset=offset, key=key, consumer=consumer, attempt=attempt, at_ms=at_ms)


def acked(offset: int, consumer: str = "a", attempt: int = 1, *, counted: bool | None = None) -> Acked:
    return Acked(offset=offset, consumer=consumer, attempt=attempt, counted=counted)


def nacked(offset: int, consumer: str = "a", attempt: int = 1, *, counted: bool | None = None) -> Nacked:
    return Nacked(offset=offset, consumer=consumer, attempt=attempt, counted=counted)


def released(offset: int, consumer: str = "a", attempt: int = 1) -> Released:
    return Released(offset=offset, consumer=consumer, attempt=attempt)


def held(offset: int, reason: HoldReason = HoldReason.OTHER, until_ms: int | None = None) -> Held:
    return Held(offset=offset, reason=reason, until_ms=until_ms)


def owned(consumer: str | None, key: bytes = K, at_ms: int | None = None) -> Owned:
    return Owned(key=key, consumer=consumer, at_ms=at_ms)


def connected(consumer: str, limit: int | None = None, at_ms: int | None = None) -> Connected:
    return Connected(consumer=consumer, limit=limit, at_ms=at_ms)


def gone(consumer: str, *, drains: bool = False) -> Gone:
    return Gone(consumer=consumer, drains=drains)


class Case(NamedTuple):
    """A history and what must be found in it."""

    name: str
    promise: Promise
    history: Sequence[Happening]
    proof: tuple[int, ...] | None = None
    guarantees: Guarantees = Guarantees()  # frozen


A, B = connected("a"), connected("b")
PAIRS = Guarantees(per_key=2)
UNFENCED = Guarantees(promises=JUDGED - {Promise.FENCE})
UNITS = Guarantees(unit_of=lambda key: key[:1])
K2 = b"k2"
IN_TURN = Guarantees(promises={"fairness"}, fairness=0)
TWICE = Guarantees(promises={"attempts"}, max_attempts=2)
QUEUE: list[Happening] = [
    A,
    owned("a"),
    published(0),
    published(1, K2),
    delivered(0),
    owned("a", K2),
    published(2),
    Quiet(),
]
"""One is at work, a message of another key waits, and a second one of its own key behind that."""
CASES = [
    Case(
        "a key moves when its last delivery has ended",
        Promise.ONE_HOLDER,
        [A, published(0), published(1), delivered(0), B, acked(0), delivered(1, "b")],
    ),
    Case(
        "a key moves while it is at work elsewhere",
        Promise.ONE_HOLDER,
        [A, published(0), published(1), delivered(0), B, delivered(1, "b"), acked(0)],
        (3, 5),
        PAIRS,
    ),
    Case(
        "a message is at two consumers",
        Promise.ONE_HOLDER,
        [A, published(0), delivered(0), B, delivered(0, "b", 2)],
        (2, 4),
    ),
    Case(
        "a consumer that is gone has nothing",
        Promise.ONE_HOLDER,
        [A, B, published(0), delivered(0), gone("a"), delivered(0, "b", 2)],
    ),
    Case(
        "a consumer that drains has what it had",
        Promise.ONE_HOLDER,
        [A, B, published(0), delivered(0), gone("a", drains=True), delivered(0, "b", 2)],
        (3, 5),
    ),
    Case(
        "a delivery that must have expired proves nothing",
        Promise.ONE_HOLDER,
        [A, published(0), delivered(0, at_ms=0), B, delivered(0, "b", 2, at_ms=100)],
        None,
        Guarantees(ack_timeout_ms=100),
    ),
    Case(
        "a delivery that may not have expired proves it",
        Promise.ONE_HOLDER,
        [A, published(0), delivered(0, at_ms=0), B, delivered(0, "b", 2, at_ms=99)],
        (2, 4),
        Guarantees(ack_timeout_ms=100),
    ),
    Case(
        "a stranger's ack frees nothing where no fence is claimed",
        Promise.ONE_HOLDER,
        [A, B, published(0), delivered(0), acked(0, "b"), delivered(0, "b", 2)],
        (3, 5),
        UNFENCED,
    ),
    Case(
        "an ack of an attempt that never was frees nothing where no fence is claimed",
        Promise.ONE_HOLDER,
        [A, B, published(0), delivered(0), acked(0, attempt=2), delivered(0, "b", 2)],
        (3, 5),
        UNFENCED,
    ),
    Case(
        "an ack of an earlier delivery may have freed the message where no fence is claimed",
        Promise.ONE_HOLDER,
        [A, B, published(0), delivered(0), nacked(0), delivered(0, attempt=2), acked(0), delivered(0, "b", 3)],
        None,
        UNFENCED,
    ),
    Case(
        "the holder's own ack ends what an earlier one may have freed",
        Promise.NO_LOSS,
        [
            *(A, B, published(0), delivered(0), nacked(0), delivered(0, attempt=2)),
            *(acked(0), acked(0, attempt=2), delivered(0, attempt=3)),
        ],
        (8,),
        UNFENCED,
    ),
    Case(
        "messages without a key have no holder",
        Promise.ONE_HOLDER,
        [A, B, published(0, None), published(1, None), delivered(0, key=None), delivered(1, "b", key=None)],
    ),
    Case(
        "a unit moves when its last delivery has ended",
        Promise.ONE_HOLDER,
        [A, B, published(0), published(1, K2), delivered(0), acked(0), delivered(1, "b", key=K2)],
        None,
        UNITS,
    ),
    Case(
        "a unit moves while another key of it is at work elsewhere",
        Promise.ONE_HOLDER,
        [A, B, published(0), published(1, K2), delivered(0), delivered(1, "b", key=K2)],
        (4, 5),
        UNITS,
    ),
    Case(
        "the first end frees a unit of which there is more",
        Promise.ONE_HOLDER,
        [
            *(A, B, published(0), published(1, b"k1"), published(2, K2)),
            *(delivered(0), delivered(1, key=b"k1"), acked(0), delivered(2, "b", key=K2)),
        ],
        (6, 8),
        UNITS,
    ),
    Case(
        "all of a unit may be at one consumer, and other units and keyless messages at another",
        Promise.ONE_HOLDER,
        [
            *(A, B, published(0), published(1, K2), published(2, L), published(3, None)),
            *(delivered(0), delivered(1, key=K2), delivered(2, "b", key=L), delivered(3, "b", key=None)),
        ],
        None,
        UNITS,
    ),
    Case(
        "a key that waits for another one of its unit does so rightly",
        Promise.PROGRESS,
        [A, B, published(0), delivered(0), published(1, K2), owned("b", K2), Quiet()],
        None,
        UNITS,
    ),
    Case(
        "a key waits though its unit is free again",
        Promise.PROGRESS,
        [A, B, published(0), delivered(0), published(1, K2), owned("b", K2), Quiet(), acked(0), Quiet()],
        (1, 4, 5, 8),
        UNITS,
    ),
    Case(
        "since when a unit is free nobody can say",
        Promise.PROGRESS,
        [connected("a", at_ms=0), published(0, at_ms=0), owned("a", at_ms=0), Committed(resume_offset=0, at_ms=100)],
        None,
        Guarantees(unit_of=UNITS.unit_of, progress_ms=10),
    ),
    Case(
        "a total order has one holder",
        Promise.ONE_HOLDER,
        [
            A,
            B,
            published(0, None),
            published(1, L),
            delivered(0, key=None),
            PlacementChanged(),
            delivered(1, "b", key=L),
        ],
        (4, 6),
        Guarantees(total_order=True, per_key=None),
    ),
    Case(
        "older ones that are out hold nothing",
        Promise.KEY_ORDER,
        [A, published(0), published(1), delivered(0), delivered(1), nacked(1), delivered(1, attempt=2)],
        None,
        PAIRS,
    ),
    Case(
        "a nacked message is overtaken",
        Promise.KEY_ORDER,
        [A, published(0), published(1), delivered(0), nacked(0), delivered(1), delivered(0, attempt=2)],
        (4, 5),
        PAIRS,
    ),
    Case(
        "a nacked message may be overtaken where that is not promised",
        Promise.KEY_ORDER,
        [A, published(0), published(1), delivered(0), nacked(0), delivered(1), delivered(0, attempt=2)],
        None,
        Guarantees(per_key=2, nack_holds_key=False),
    ),
    Case(
        "the first delivery of an older message is never overtaken",
        Promise.KEY_ORDER,
        [A, published(0), published(1), delivered(1), acked(1), delivered(0)],
        (1, 3),
        Guarantees(nack_holds_key=False),
    ),
    Case(
        "a message that is held back holds its key",
        Promise.KEY_ORDER,
        [A, published(0), published(1), held(0, HoldReason.BLOCKED), delivered(1)],
        (1, 4),
    ),
    Case(
        "what was done before its publication is told holds nothing",
        Promise.KEY_ORDER,
        [A, delivered(0), acked(0), published(0), published(1), delivered(1)],
    ),
    Case(
        "what was done while others were published holds nothing",
        Promise.KEY_ORDER,
        [A, published(0), delivered(0), acked(0), delivered(1), acked(1), published(1), published(2), delivered(2)],
    ),
    Case(
        "what is not published yet overtakes like anything else",
        Promise.KEY_ORDER,
        [A, published(0), delivered(1), published(1)],
        (1, 2),
    ),
    Case(
        "a delivery that may have expired holds nothing before the system had time to act",
        Promise.KEY_ORDER,
        [A, published(0), published(1), delivered(0, at_ms=0), delivered(1, at_ms=100)],
        None,
        Guarantees(per_key=2, ack_timeout_ms=100),
    ),
    Case(
        "and holds its key after that",
        Promise.KEY_ORDER,
        [A, published(0), published(1), delivered(0, at_ms=0), Quiet(at_ms=100), delivered(1)],
        (3, 5),
        Guarantees(per_key=2, ack_timeout_ms=100),
    ),
    Case(
        "another key does not care",
        Promise.KEY_ORDER,
        [A, published(0), published(1, L), delivered(1, key=L)],
    ),
    Case(
        "the cursor follows what is done over gaps",
        Promise.SAFE_CURSOR,
        [A, published(3), published(7), delivered(3), acked(3), Committed(resume_offset=7), Quiet()],
        None,
        Guarantees(cursor_keeps_up=True),
    ),
    Case(
        "the cursor passes a message at work",
        Promise.SAFE_CURSOR,
        [A, published(0), published(1, L), delivered(0), delivered(1, key=L), acked(1), Committed(resume_offset=2)],
        (3, 6),
    ),
    Case(
        "the cursor moves back",
        Promise.SAFE_CURSOR,
        [A, published(0), delivered(0), acked(0), Committed(resume_offset=1), Committed(resume_offset=0)],
        (4, 5),
    ),
    Case(
        "the ack of somebody who never had the message ends nothing, fence or not",
        Promise.SAFE_CURSOR,
        [A, B, published(0), delivered(0), acked(0, "b"), Committed(resume_offset=1)],
        (3, 5),
        UNFENCED,
    ),
    Case(
        "the ack of an earlier delivery may have counted where no fence is claimed",
        Promise.SAFE_CURSOR,
        [A, B, published(0), delivered(0), released(0), delivered(0, "b", 2), acked(0), Committed(resume_offset=1)],
        None,
        UNFENCED,
    ),
    Case(
        "the cursor passes what is done before its publication is told",
        Promise.SAFE_CURSOR,
        [A, published(0), delivered(0), acked(0), delivered(1), acked(1), Committed(resume_offset=2), published(1)],
    ),
    Case(
        "the cursor passes what is at work before its publication is told",
        Promise.SAFE_CURSOR,
        [A, published(0), delivered(0), acked(0), delivered(1), Committed(resume_offset=2), published(1)],
        (4, 5),
    ),
    Case(
        "nobody can say how far a cursor may go below what is not published yet",
        Promise.SAFE_CURSOR,
        [A, published(0), delivered(0), acked(0), delivered(2), Quiet()],
        None,
        Guarantees(cursor_keeps_up=True),
    ),
    Case(
        "the cursor passes what nobody has published",
        Promise.SAFE_CURSOR,
        [A, published(0), delivered(0), acked(0), Committed(resume_offset=2)],
        (1, 4),
    ),
    Case(
        "the cursor stalls at a gap",
        Promise.SAFE_CURSOR,
        [A, published(0), published(5), Skipped(offset=0), Committed(resume_offset=1), delivered(5), acked(5), Quiet()],
        (2, 4, 7),
        Guarantees(cursor_keeps_up=True, may_skip=True),
    ),
    Case(
        "a cursor that lags is legal where nothing else is promised",
        Promise.SAFE_CURSOR,
        [A, published(0), delivered(0), acked(0), Quiet()],
    ),
    Case(
        "an ack of an ended delivery may have counted",
        Promise.SAFE_CURSOR,
        [A, published(0), delivered(0), released(0), acked(0), Committed(resume_offset=1)],
    ),
    Case(
        "or not",
        Promise.NO_LOSS,
        [A, published(0), delivered(0), released(0), acked(0), delivered(0, attempt=2)],
    ),
    Case(
        "an answer by a policy that was chosen",
        Promise.NO_LOSS,
        [published(0), published(1), published(2), DeadLettered(offset=0), Dropped(offset=1), Skipped(offset=2)],
        None,
        Guarantees(may_dead_letter=True, may_drop=True, may_skip=True),
    ),
    Case("dropped without a policy", Promise.NO_LOSS, [published(0), Dropped(offset=0)], (0, 1)),
    Case("skipped without a policy", Promise.NO_LOSS, [published(0), Skipped(offset=0)], (0, 1)),
    Case("archived without a policy", Promise.NO_LOSS, [published(0), DeadLettered(offset=0)], (0, 1)),
    Case(
        "settled by nobody",
        Promise.NO_LOSS,
        [A, published(0), delivered(0), nacked(0), Settled(offset=0, reason=SettledBy.NOBODY)],
        (3, 4),
    ),
    Case(
        "settled by a late ack that never came",
        Promise.NO_LOSS,
        [A, published(0), delivered(0), Settled(offset=0, reason=SettledBy.LATE_ACK)],
        (2, 3),
    ),
    Case(
        "settled by a late ack",
        Promise.NO_LOSS,
        [
            *(A, published(0), delivered(0), released(0), delivered(0, attempt=2)),
            *(acked(0, counted=False), nacked(0, attempt=2), Settled(offset=0, reason=SettledBy.LATE_ACK)),
        ],
    ),
    Case("settled by an operator", Promise.NO_LOSS, [published(0), Settled(offset=0, reason=SettledBy.OPERATOR)]),
    Case(
        "an ack that counts twice",
        Promise.NO_LOSS,
        [A, published(0), delivered(0), acked(0, counted=True), acked(0, counted=True)],
        (4,),
    ),
    Case("an ack that comes twice", Promise.NO_LOSS, [A, published(0), delivered(0), acked(0), acked(0)]),
    Case(
        "an ack of the open delivery that does not count",
        Promise.NO_LOSS,
        [A, published(0), delivered(0), acked(0, counted=False)],
        (2, 3),
    ),
    Case(
        "a nack of the open delivery that does not count",
        Promise.NO_LOSS,
        [A, published(0), delivered(0), nacked(0, counted=False)],
        (2, 3),
    ),
    Case(
        "done twice",
        Promise.NO_LOSS,
        [published(0), Dropped(offset=0), Dropped(offset=0)],
        (2,),
        Guarantees(may_drop=True),
    ),
    Case(
        "settled twice",
        Promise.NO_LOSS,
        [A, published(0), delivered(0), acked(0), Settled(offset=0, reason=SettledBy.OPERATOR)],
        (4,),
    ),
    Case(
        "delivered after its end",
        Promise.NO_LOSS,
        [A, published(0), delivered(0), acked(0), delivered(0, attempt=2)],
        (4,),
    ),
    Case("delivered before it was published", Promise.NO_LOSS, [A, published(0), delivered(1)], (2,)),
    Case(
        "delivered before its publication is told",
        Promise.NO_LOSS,
        [A, published(0), delivered(1), acked(1), published(1), published(2), delivered(2)],
    ),
    Case(
        "the ack of a delivery that has expired by now may have come late",
        Promise.NO_LOSS,
        [A, published(0), delivered(0, at_ms=0), Quiet(at_ms=100), acked(0), delivered(0, attempt=2)],
        None,
        Guarantees(ack_timeout_ms=100),
    ),
    Case(
        "a delivery that an earlier ack may have ended expires",
        Promise.NO_LOSS,
        [
            *(A, published(0), delivered(0, at_ms=0), nacked(0), delivered(0, attempt=2), acked(0)),
            *(connected("b", at_ms=100), acked(0, attempt=2), delivered(0, attempt=3)),
        ],
        None,
        Guarantees(promises=UNFENCED.promises, ack_timeout_ms=100),
    ),
    Case("delivered and left out", Promise.NO_LOSS, [A, published(0), delivered(1), published(2)], (2, 3)),
    Case("answered and left out", Promise.NO_LOSS, [A, published(0), acked(1, counted=True), published(2)], (2, 3)),
    Case(
        "delivered and never published",
        Promise.NO_LOSS,
        [connected("a", 1), published(0), delivered(1), AtRest(), published(2)],
        (2, 3),
    ),
    Case(
        "given up before its publication is told",
        Promise.NO_LOSS,
        [published(0), Dropped(offset=1), Dropped(offset=2), published(1), published(2)],
        None,
        Guarantees(may_drop=True),
    ),
    Case(
        "given up twice before its publication is told",
        Promise.NO_LOSS,
        [published(0), Dropped(offset=1), Dropped(offset=1), published(1)],
        (2,),
        Guarantees(may_drop=True),
    ),
    Case("what is older than the history may end", Promise.NO_LOSS, [Dropped(offset=0)]),
    Case(
        "delivered with another key than the publication tells later",
        Promise.NO_LOSS,
        [A, delivered(0, key=L), published(0)],
        (1, 2),
    ),
    Case(
        "done with another key than the publication tells later",
        Promise.NO_LOSS,
        [A, delivered(0, key=L), acked(0), published(0)],
        (1, 3),
    ),
    Case(
        "delivered with two keys, of which the publication tells the first later",
        Promise.NO_LOSS,
        [A, delivered(0), nacked(0), delivered(0, attempt=2, key=L), published(0)],
        (3, 4),
    ),
    Case(
        "done with two keys, of which the publication tells the first later",
        Promise.NO_LOSS,
        [A, delivered(0), nacked(0), delivered(0, attempt=2, key=L), acked(0, attempt=2), published(0)],
        (3, 5),
    ),
    Case("delivered with another key", Promise.NO_LOSS, [A, published(0), delivered(0, key=L)], (1, 2)),
    Case("forgotten at rest", Promise.NO_LOSS, [A, published(0), delivered(0), nacked(0), AtRest()], (3, 4)),
    Case(
        "what is behind a lost message only waits", Promise.NO_LOSS, [A, published(0), published(1), AtRest()], (1, 3)
    ),
    Case("at work at rest", Promise.NO_LOSS, [A, published(0), published(1), delivered(0), AtRest()]),
    Case("held back at rest", Promise.NO_LOSS, [A, published(0), held(0, HoldReason.BLOCKED), AtRest()]),
    Case("nobody is there at rest", Promise.NO_LOSS, [A, gone("a"), published(0), AtRest()]),
    Case("nobody owns it at rest", Promise.NO_LOSS, [A, published(0), owned(None), AtRest()]),
    Case(
        "an older one that may be done is held back at rest",
        Promise.NO_LOSS,
        [A, published(0), published(1), delivered(0), released(0), acked(0), held(0), AtRest()],
    ),
    Case(
        "its unit is at work elsewhere at rest",
        Promise.NO_LOSS,
        [A, B, published(0), published(1, K2), delivered(0), owned("b", K2), AtRest()],
        None,
        UNITS,
    ),
    Case("its owner is full at rest", Promise.NO_LOSS, [connected("a", 0), B, published(0), owned("a"), AtRest()]),
    Case(
        "what may be done counts for no limit",
        Promise.BOUNDS,
        [A, published(0), delivered(0), released(0), acked(0), published(1)],
        None,
        Guarantees(window=1, max_tracked=1),
    ),
    Case(
        "what is done before its publication is told counts for no limit",
        Promise.BOUNDS,
        [A, published(0), delivered(1), acked(1), published(1)],
        None,
        Guarantees(window=1, max_tracked=1),
    ),
    Case(
        "up to the limits",
        Promise.BOUNDS,
        [connected("a", 2), published(0), published(1), delivered(0), delivered(1)],
        None,
        Guarantees(per_key=2, window=2, max_tracked=2),
    ),
    Case(
        "one of a key too many",
        Promise.BOUNDS,
        [A, published(0), published(1), delivered(0), delivered(1)],
        (3, 4),
    ),
    Case(
        "one at a consumer too many",
        Promise.BOUNDS,
        [connected("a", 1), published(0), published(1, L), delivered(0), delivered(1, key=L)],
        (0, 3, 4),
    ),
    Case(
        "a limit that was lowered",
        Promise.BOUNDS,
        [connected("a", 2), published(0), LimitChanged(consumer="a", limit=0), delivered(0)],
        (2, 3),
    ),
    Case(
        "the general limit of a consumer",
        Promise.BOUNDS,
        [published(0), published(1, L), delivered(0), delivered(1, key=L)],
        (2, 3),
        Guarantees(per_consumer=1),
    ),
    Case(
        "a redelivery takes no second slot",
        Promise.BOUNDS,
        [connected("a", 1), published(0), delivered(0), delivered(0, attempt=2)],
    ),
    Case(
        "one in memory too many",
        Promise.BOUNDS,
        [published(0), published(1), held(1, HoldReason.SPILLED), published(2), held(1, HoldReason.LOADING)],
        (0, 3, 4),
        Guarantees(window=2),
    ),
    Case(
        "one in memory too many when it is freed",
        Promise.BOUNDS,
        [published(0), held(0, HoldReason.SPILLED), published(1), Freed(offset=0)],
        (2, 3),
        Guarantees(window=1),
    ),
    Case(
        "one in memory too many when it is delivered",
        Promise.BOUNDS,
        [published(0), held(0, HoldReason.SPILLED), published(1), delivered(0)],
        (2, 3),
        Guarantees(window=1),
    ),
    Case(
        "one outstanding too many",
        Promise.BOUNDS,
        [published(0), held(0, HoldReason.SPILLED), published(1), published(2)],
        (0, 2, 3),
        Guarantees(max_tracked=2),
    ),
    Case(
        "a key goes to its owner",
        Promise.AFFINITY,
        [A, B, owned("b"), published(0), delivered(0, "b")],
    ),
    Case(
        "a message goes by its own key, whatever the delivery says",
        Promise.AFFINITY,
        [A, B, owned("b"), owned("a", L), published(0), delivered(0, "b", key=L)],
    ),
    Case(
        "a key goes to somebody else",
        Promise.AFFINITY,
        [A, B, owned("b"), published(0), delivered(0, "a")],
        (2, 4),
    ),
    Case(
        "a key changes its owner in between",
        Promise.AFFINITY,
        [A, B, owned("a"), published(0), delivered(0), owned("b")],
        (2, 5),
    ),
    Case(
        "a key bounces",
        Promise.AFFINITY,
        [A, B, published(0), delivered(0), acked(0), published(1), delivered(1, "b")],
        (3, 6),
    ),
    Case(
        "a key moves by hand",
        Promise.AFFINITY,
        [A, B, published(0), delivered(0), acked(0), PlacementChanged(), published(1), delivered(1, "b")],
    ),
    Case("to somebody who is not there", Promise.AFFINITY, [A, published(0), delivered(0, "b")], (2,)),
    Case(
        "to somebody who has left",
        Promise.AFFINITY,
        [A, B, gone("b"), published(0), delivered(0, "b")],
        (2, 4),
    ),
    Case(
        "to somebody who is suspended",
        Promise.AFFINITY,
        [A, Suspended(consumer="a"), published(0), delivered(0)],
        (1, 3),
    ),
    Case(
        "to somebody who was suspended",
        Promise.AFFINITY,
        [A, Suspended(consumer="a"), Resumed(consumer="a"), published(0), delivered(0)],
    ),
    Case(
        "to the newcomer",
        Promise.MINIMAL_MOVE,
        [A, owned("a"), B, owned("b")],
    ),
    Case(
        "between two that were there",
        Promise.MINIMAL_MOVE,
        [A, B, owned("a"), Quiet(), connected("c"), owned("b")],
        (2, 4, 5),
    ),
    Case(
        "away from one that stays",
        Promise.MINIMAL_MOVE,
        [A, B, connected("c"), owned("a"), gone("c"), owned("b")],
        (3, 4, 5),
    ),
    Case("away from the leaver", Promise.MINIMAL_MOVE, [A, B, owned("a"), gone("a"), owned("b")]),
    Case("by hand", Promise.MINIMAL_MOVE, [A, B, owned("a"), PlacementChanged(), owned("b")]),
    Case("from nobody", Promise.MINIMAL_MOVE, [A, B, owned(None), connected("c"), owned("b"), owned(None)]),
    Case(
        "a key is delivered to the newcomer",
        Promise.MINIMAL_MOVE,
        [A, published(0), delivered(0), acked(0), B, published(1), delivered(1, "b")],
    ),
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
        "a key leaves one that came back",
        Promise.MINIMAL_MOVE,
        [A, B, published(0), delivered(0), acked(0), gone("a"), connected("a"), published(1), delivered(1, "b")],
    ),
    Case(
        "what waits leaves half the window free",
        Promise.ISOLATION,
        [published(0), Quiet(), published(1), Quiet(), published(2), held(2, HoldReason.SPILLED), Quiet()],
        None,
        Guarantees(window=4),
    ),
    Case(
        "what waits fills more than half the window",
        Promise.ISOLATION,
        [published(0), published(1), Quiet(), published(2), Quiet()],
        (0, 1, 3, 4),
        Guarantees(window=4),
    ),
    Case(
        "what is at work may fill it",
        Promise.ISOLATION,
        [published(0), delivered(0), published(1), Quiet(), published(2), Quiet()],
        None,
        Guarantees(window=4),
    ),
    Case(
        "what waits fills more than half the window at rest",
        Promise.ISOLATION,
        [published(0), published(1), Quiet(), published(2), AtRest()],
        (0, 1, 3, 4),
        Guarantees(window=4),
    ),
    Case(
        "what may be done fills nothing",
        Promise.ISOLATION,
        [published(0), delivered(0), released(0), acked(0), Quiet(), published(1), Quiet()],
        None,
        Guarantees(window=2),
    ),
    Case("delivered at once", Promise.PROGRESS, [A, owned("a"), published(0), delivered(0), Quiet()]),
    Case("not delivered", Promise.PROGRESS, [A, owned("a"), published(0), Quiet(), Quiet()], (0, 1, 2, 3)),
    Case("not delivered at rest", Promise.PROGRESS, [A, owned("a"), published(0), AtRest()], (0, 1, 2, 3)),
    Case("nobody has room", Promise.PROGRESS, [connected("a", 0), owned("a"), published(0), Quiet()]),
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
    Case("its owner is not there", Promise.PROGRESS, [A, owned("b"), published(0), Quiet()]),
    Case("its owner is suspended", Promise.PROGRESS, [A, Suspended(consumer="a"), owned("a"), published(0), Quiet()]),
    Case("it has no owner", Promise.PROGRESS, [A, owned(None), published(0), Quiet()]),
    Case("what is told of no publication", Promise.PROGRESS, [A, delivered(0), nacked(0), Quiet()]),
    Case(
        "what is told of no publication is not late either",
        Promise.PROGRESS,
        [connected("a", at_ms=0), delivered(0), nacked(0), connected("b", at_ms=9), connected("c", at_ms=20)],
        None,
        Guarantees(progress_ms=5),
    ),
    Case(
        "whoever may own it is suspended",
        Promise.PROGRESS,
        [A, B, Suspended(consumer="b"), published(0), Quiet()],
    ),
    Case(
        "an older one may be done, or be held back",
        Promise.PROGRESS,
        [A, published(0), published(1), delivered(0), released(0), acked(0), held(0), Quiet()],
    ),
    Case(
        "an older one that may be done is no longer held back",
        Promise.PROGRESS,
        [
            *(A, owned("a"), published(0), published(1), delivered(0), released(0), acked(0)),
            *(held(0, HoldReason.RETRY, 50), Quiet(at_ms=49), Quiet(at_ms=50)),
        ],
        (0, 1, 3, 9),
    ),
    Case(
        "an older one may still be at work",
        Promise.PROGRESS,
        [A, owned("a"), published(0), published(1), delivered(0, at_ms=0), Quiet(at_ms=100)],
        None,
        Guarantees(per_key=2, ack_timeout_ms=100),
    ),
    Case(
        "where a payload is does not change with time",
        Promise.PROGRESS,
        [A, owned("a"), published(0), held(0, HoldReason.SPILLED, 50), Quiet(at_ms=60)],
    ),
    Case("it has no key", Promise.PROGRESS, [A, published(0, None), Quiet()]),
    Case(
        "whoever may own it has room",
        Promise.PROGRESS,
        [A, B, published(0), Quiet()],
        (0, 1, 2, 3),
    ),
    Case("its owner may be full", Promise.PROGRESS, [A, connected("b", 0), published(0), Quiet()]),
    Case(
        "it drains",
        Promise.PROGRESS,
        [A, B, owned("a"), published(0), published(1), delivered(0), owned("b"), Quiet()],
        None,
        PAIRS,
    ),
    Case(
        "an older one is held back",
        Promise.PROGRESS,
        [A, owned("a"), published(0), published(1), held(0), Quiet()],
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
        "too late",
        Promise.PROGRESS,
        [
            connected("a", at_ms=0),
            owned("a", at_ms=0),
            published(0, at_ms=10),
            connected("b", at_ms=60),
            connected("c", at_ms=61),
        ],
        (0, 1, 2, 4),
        Guarantees(progress_ms=50),
    ),
    Case(
        "late, but there was no room for long",
        Promise.PROGRESS,
        [
            *(connected("a", 0, at_ms=0), owned("a", at_ms=0), published(0, at_ms=10)),
            *(LimitChanged(consumer="a", limit=1, at_ms=40), connected("b", at_ms=80)),
        ],
        None,
        Guarantees(progress_ms=50),
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
        "a stale ack counts",
        Promise.FENCE,
        [A, published(0), delivered(0), released(0), delivered(0, attempt=2), acked(0, counted=True)],
        (4, 5),
    ),
    Case(
        "a late ack counts",
        Promise.FENCE,
        [A, published(0), delivered(0), released(0), acked(0, counted=True)],
    ),
    Case(
        "an ack of a delivery that never was counts",
        Promise.FENCE,
        [A, published(0), acked(0, counted=True)],
        (1, 2),
    ),
    Case(
        "an ack of an attempt that never was counts",
        Promise.FENCE,
        [A, published(0), delivered(0), released(0), acked(0, attempt=2, counted=True)],
        (2, 4),
    ),
    Case(
        "a nack of nothing counts",
        Promise.FENCE,
        [A, published(0), delivered(0), acked(0), nacked(0, counted=True)],
        (4,),
    ),
    Case(
        "the end of a delivery that is older than the history",
        Promise.FENCE,
        [Expired(offset=0, consumer="a", attempt=1), delivered(0, attempt=2)],
    ),
    Case(
        "a nack of a delivery that may have expired counts",
        Promise.FENCE,
        [A, published(0), delivered(0, at_ms=0), connected("b", at_ms=100), nacked(0, counted=True)],
        None,
        Guarantees(ack_timeout_ms=100),
    ),
    Case(
        "a nack of nothing is refused",
        Promise.FENCE,
        [A, published(0), delivered(0), acked(0), nacked(0, counted=False)],
    ),
    Case(
        "the wrong delivery is ended",
        Promise.FENCE,
        [A, published(0), delivered(0), released(0, "b")],
        (2, 3),
    ),
    Case(
        "a delivery that has expired for the checker is ended by the system",
        Promise.FENCE,
        [A, published(0), delivered(0, at_ms=0), Quiet(at_ms=100), released(0)],
        None,
        Guarantees(ack_timeout_ms=100),
    ),
    Case(
        "keys are served in the order in which they became ready",
        Promise.FAIRNESS,
        [*QUEUE, acked(0), delivered(1, key=K2), acked(1), delivered(2)],
        None,
        IN_TURN,
    ),
    Case(
        "the newest key goes first",
        Promise.FAIRNESS,
        [*QUEUE, acked(0), published(3, b"k3"), delivered(3, key=b"k3")],
        (3, 5, 7, 10),
        IN_TURN,
    ),
    Case(
        "a key has two turns in a row",
        Promise.FAIRNESS,
        [*QUEUE, acked(0), delivered(2)],
        (3, 5, 7, 9),
        IN_TURN,
    ),
    Case(
        "a key is passed over as often as it may be",
        Promise.FAIRNESS,
        [*QUEUE, acked(0), delivered(2), acked(2), delivered(1, key=K2)],
        None,
        replace(IN_TURN, fairness=1),
    ),
    Case(
        "a key is passed over once too often",
        Promise.FAIRNESS,
        [*QUEUE, acked(0), delivered(2), nacked(2), delivered(2, attempt=2)],
        (3, 5, 7, 9, 11),
        replace(IN_TURN, fairness=1),
    ),
    Case(
        "a key that is held stands in no queue",
        Promise.FAIRNESS,
        [*QUEUE, held(1), acked(0), delivered(2)],
        None,
        IN_TURN,
    ),
    Case(
        "a key that goes elsewhere begins to wait anew",
        Promise.FAIRNESS,
        [*QUEUE, B, owned("b", K2), owned("a", K2), acked(0), delivered(2)],
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
        "what was published last is told of first by its delivery",
        Promise.FAIRNESS,
        [*QUEUE, acked(0), delivered(9, key=b"k9"), delivered(1, key=K2)],
        None,
        IN_TURN,
    ),
    Case(
        "what overtakes its own key passes no other",
        Promise.FAIRNESS,
        [A, owned("a"), published(0), Quiet(), published(1), delivered(1)],
        None,
        IN_TURN,
    ),
    Case(
        "a message is kept back when it has failed twice",
        Promise.ATTEMPTS,
        [A, published(0), delivered(0), nacked(0), delivered(0, attempt=2), nacked(0, attempt=2), held(0), AtRest()],
        None,
        TWICE,
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
        "what was given back without a failure costs no attempt",
        Promise.ATTEMPTS,
        [
            A,
            published(0),
            delivered(0),
            released(0),
            delivered(0, attempt=2),
            released(0, attempt=2),
            delivered(0, attempt=3),
        ],
        None,
        TWICE,
    ),
    Case(
        "a message that has failed twice is delivered again",
        Promise.ATTEMPTS,
        [
            A,
            published(0),
            delivered(0),
            nacked(0),
            delivered(0, attempt=2),
            Expired(offset=0, consumer="a", attempt=2),
            held(0, HoldReason.RETRY),
            delivered(0, attempt=3),
        ],
        (4, 5, 7),
        TWICE,
    ),
    Case(
        "a message that has failed twice has no answer in the end",
        Promise.ATTEMPTS,
        [A, published(0), delivered(0), nacked(0), delivered(0, attempt=2), nacked(0, attempt=2), AtRest()],
        (4, 5, 6),
        TWICE,
    ),
]


def judged(case: Case) -> list[Violation]:
    return [
        violation for violation in check_history(case.history, case.guarantees) if violation.promise == case.promise
    ]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.promise}: {case.name}")
def test_a_promise_is_judged_with_its_proof(case: Case) -> None:
    assert ([] if case.proof is None else [case.proof]) == [violation.proof for violation in judged(case)]


@pytest.mark.parametrize(
    "case", [case for case in CASES if case.proof], ids=lambda case: f"{case.promise}: {case.name}"
)
def test_a_proof_shows_the_happenings_that_it_names(case: Case) -> None:
    (violation,) = judged(case)
    lines = violation.excerpt.splitlines()
    assert [f"#{position} {type(case.history[position]).__name__}" for position in violation.proof] == [
        line.partition("(")[0] for line in lines
    ]
    assert str(violation).startswith(f"{case.promise}: {violation.explanation}\n#")


@pytest.mark.parametrize(
    "case", [case for case in CASES if case.proof], ids=lambda case: f"{case.promise}: {case.name}"
)
def test_a_promise_that_is_not_claimed_is_not_judged(case: Case) -> None:
    claims = {name: getattr(case.guarantees, name) for name in case.guarantees.__slots__}
    others = Guarantees(**(claims | {"promises": set(Promise) - {case.promise}}))
    assert [] == judged(case._replace(guarantees=others))


def test_every_judged_promise_has_a_good_and_a_bad_history() -> None:
    judgeable = {str(promise) for promise in Guarantees().promises}
    assert judgeable == {case.promise for case in CASES if case.proof}
    assert judgeable == {case.promise for case in CASES if not case.proof}


def test_a_long_proof_is_shown_in_part() -> None:
    history = [published(offset) for offset in range(20)]
    (violation,) = check_history(history, Guarantees(max_tracked=19))
    assert tuple(range(20)) == violation.proof
    assert ["#3 Published(offset=3, key=b'k')", "... and 12 more", "#16 Published(offset=16, key=b'k')"] == (
        violation.excerpt.splitlines()[3:6]
    )
