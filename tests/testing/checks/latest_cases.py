"""Histories about keys of which only the latest message counts: latest-only, kept and broken."""

from tests.testing.checks.events import A, B, Case, L, acked, delivered, held, owned, published

from keyshared.testing import Claims, Promise
from keyshared.testing.history import HoldReason, Quiet, Settled, SettledBy

__all__ = ["LATEST_CASES"]

LATEST = Claims(promises={"latest-only"}, latest_only=True)
TURNS = Claims(promises={"fairness"}, latest_only=True, per_consumer=1, fairness=0)
LOSES = Claims(promises={"no-loss"})
ONE_KEY = Claims(promises={"no-loss", "latest-only"}, latest_only=lambda key: key == L)


def superseded(offset: int) -> Settled:
    return Settled(offset=offset, reason=SettledBy.SUPERSEDED)


LATEST_CASES = [
    Case(
        "an older one makes way, and what is open stays",
        Promise.LATEST_ONLY,
        [A, published(0), delivered(0), published(1), Quiet(), published(2), superseded(1), Quiet(), acked(0), Quiet()],
        None,
        LATEST,
    ),
    Case(
        "what goes to the dead-letter store waits for no delivery, nor does another key or none",
        Promise.LATEST_ONLY,
        [
            *(published(0), held(0, HoldReason.DEAD_LETTERING), published(1), published(2, key=L)),
            *(published(3, key=None), published(4, key=None), Quiet()),
        ],
        None,
        LATEST,
    ),
    Case(
        "both wait, which is said once",
        Promise.LATEST_ONLY,
        [published(0), published(1), Quiet(), Quiet(), published(2, key=L), Quiet()],
        (0, 1, 2),
        LATEST,
    ),
    Case(
        "a delivered one is superseded",
        Promise.LATEST_ONLY,
        [A, published(0), delivered(0), published(1), superseded(0)],
        (2, 4),
        LATEST,
    ),
    Case(
        "one is superseded by nothing",
        Promise.LATEST_ONLY,
        [published(0), published(1, key=L), superseded(0)],
        (0, 2),
        LATEST,
    ),
    Case(
        "one is superseded by what is done already",
        Promise.LATEST_ONLY,
        [A, published(0), published(1), delivered(1), acked(1), superseded(0)],
        (1, 5),
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
        "nobody said that only the latest counts",
        Promise.NO_LOSS,
        [published(0), published(1), superseded(0)],
        (0, 2),
        LOSES,
    ),
    Case(
        "of another key than those of which the latest counts all wait",
        Promise.LATEST_ONLY,
        [published(0), published(1), published(2, key=L), published(3, key=None), published(4, key=None), Quiet()],
        None,
        ONE_KEY,
    ),
    Case(
        "of one of which the latest counts two wait",
        Promise.LATEST_ONLY,
        [published(0), published(1), published(2, key=L), published(3, key=L), Quiet()],
        (2, 3, 4),
        ONE_KEY,
    ),
    Case(
        "one of another key makes way",
        Promise.NO_LOSS,
        [published(0), published(1), superseded(0)],
        (0, 2),
        ONE_KEY,
    ),
    Case(
        "one of no key makes way",
        Promise.NO_LOSS,
        [published(0, key=None), published(1), superseded(0)],
        (0, 2),
        ONE_KEY,
    ),
    Case(
        "a newer one has the place of the older one",
        Promise.FAIRNESS,
        [
            *(A, owned("a"), owned("a", key=L), published(0), published(1, key=L), Quiet()),
            *(published(2), superseded(0), Quiet(), delivered(2)),
        ],
        None,
        TURNS,
    ),
    Case(
        "the last of several that came at once has the place of the first",
        Promise.FAIRNESS,
        [
            *(A, owned("a"), owned("a", key=L), published(0), published(1, key=L), Quiet()),
            *(published(2), published(3), superseded(0), superseded(2), Quiet(), delivered(3)),
        ],
        None,
        TURNS,
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
        "what was delivered leaves no place, and what is out needs none",
        Promise.FAIRNESS,
        [
            *(A, B, owned("a"), published(0), published(1), delivered(1, "b"), superseded(0), published(2)),
            *(delivered(2, "b"), published(3), superseded(2), published(4, key=L), superseded(4)),
        ],
        None,
        TURNS,
    ),
]
