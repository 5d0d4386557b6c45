"""Histories about groups of keys that take turns: group-fairness, kept and broken."""

from dataclasses import replace

from tests.testing.checks.events import A, Case, acked, delivered, held, owned, published

from keyshared.testing import Claims, Promise
from keyshared.testing.history import (
    Connected,
    Event,
    Freed,
    Gone,
    HoldReason,
    LimitChanged,
    PlacementChanged,
    Quiet,
    Settled,
    SettledBy,
)

__all__ = ["GROUP_CASES"]

X1, X2, X3, Y1 = b"x1", b"x2", b"x3", b"y1"


def first_letter(key: bytes) -> bytes:
    return key[:1]


TURNS = Claims(promises={"group-fairness"}, group_of=first_letter)
WEIGHTED = replace(TURNS, weight_of=lambda group: 2 if group == b"x" else 1)
WAITING: list[Event] = [
    *(A, published(0, X1), owned("a", X1), published(1, X2), owned("a", X2), published(2, Y1), owned("a", Y1)),
    *(published(3, X3), owned("a", X3), Quiet()),
]


def turn(offset: int, key: bytes) -> list[Event]:
    return [delivered(offset, key=key), acked(offset), Quiet()]


def begins_anew(name: str, *events: Event) -> Case:
    history = [*WAITING, *turn(0, X1), *events, *turn(1, X2)]
    return Case(name, Promise.GROUP_FAIRNESS, history, None, TURNS)


SUPERSEDED_WHILE_IT_LOADS: list[Event] = [
    *(*WAITING, *turn(0, X1), held(1, HoldReason.LOADING), published(4, X2)),
    *(Settled(offset=1, reason=SettledBy.SUPERSEDED), delivered(4, key=X2)),
]
GROUP_CASES = [
    Case(
        "groups take turns, however many keys one of them has",
        Promise.GROUP_FAIRNESS,
        [*WAITING, *turn(0, X1), *turn(2, Y1), *turn(1, X2), *turn(3, X3)],
        None,
        TURNS,
    ),
    Case(
        "a group with several keys has a second turn before the other group has its first",
        Promise.GROUP_FAIRNESS,
        [*WAITING, *turn(0, X1), *turn(1, X2), *turn(3, X3)],
        (5, 6, 9, 10, 13),
        TURNS,
    ),
    Case(
        "a group of weight two has two turns",
        Promise.GROUP_FAIRNESS,
        [*WAITING, *turn(0, X1), *turn(1, X2), *turn(2, Y1), *turn(3, X3)],
        None,
        WEIGHTED,
    ),
    Case(
        "a group of weight two has three turns",
        Promise.GROUP_FAIRNESS,
        [*WAITING, *turn(0, X1), *turn(1, X2), *turn(3, X3)],
        (5, 6, 9, 10, 13, 16),
        WEIGHTED,
    ),
    begins_anew("a closed group has no turn", held(2, HoldReason.LIMITED), Freed(offset=2)),
    begins_anew("somebody joins, and all are asked again", Connected(consumer="b")),
    begins_anew("somebody leaves, and all are asked again", Connected(consumer="b"), Gone(consumer="b"), Quiet()),
    begins_anew("keys are placed anew", PlacementChanged()),
    begins_anew("another limit, as when a consumer pulls", LimitChanged(consumer="a", limit=3)),
    begins_anew("a message that was loaded had its turn before", held(1, HoldReason.LOADING), Freed(offset=1)),
    Case(
        "what supersedes a message that was loaded has its turn",
        Promise.GROUP_FAIRNESS,
        SUPERSEDED_WHILE_IT_LOADS,
        None,
        replace(TURNS, latest_only=True),
    ),
    Case(
        "what supersedes it a moment later has a turn of its own",
        Promise.GROUP_FAIRNESS,
        [*SUPERSEDED_WHILE_IT_LOADS[:-1], Quiet(), SUPERSEDED_WHILE_IT_LOADS[-1]],
        (5, 6, 9, 10, 17),
        replace(TURNS, latest_only=True),
    ),
    Case(
        "two acks without a moment of quiet say nothing of what was between them",
        Promise.GROUP_FAIRNESS,
        [*WAITING, delivered(0, key=X1), acked(0), acked(0), delivered(1, key=X2)],
        None,
        TURNS,
    ),
    Case(
        "a message without a key is in no group",
        Promise.GROUP_FAIRNESS,
        [*WAITING, *turn(0, X1), published(4, None), delivered(4, key=None)],
        None,
        TURNS,
    ),
    Case(
        "a batch is one turn",
        Promise.GROUP_FAIRNESS,
        [*WAITING, published(4, X1), delivered(0, key=X1), delivered(4, key=X1)],
        None,
        replace(TURNS, batches=True, per_key=2),
    ),
]
