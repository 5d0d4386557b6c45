"""Histories about handlers that get several messages of a key at once: whole-batch, kept and broken."""

from tests.testing.checks.events import A, Case, L, acked, delivered, published, released

from keyshared.testing import Claims, Promise

__all__ = ["BATCH_CASES"]

BATCHES = Claims(promises={"whole-batch"}, per_key=2, batches=True)
BATCH_CASES = [
    Case(
        "a batch goes out side by side, and the next one when all of it has ended",
        Promise.WHOLE_BATCH,
        [A, published(0), published(1), published(2), delivered(0), delivered(1), acked(1), acked(0), delivered(2)],
        None,
        BATCHES,
    ),
    Case(
        "what is newer than a failure comes back with it",
        Promise.WHOLE_BATCH,
        [A, published(0), published(1), delivered(0), delivered(1), released(0), released(1), delivered(0, attempt=2)],
        None,
        BATCHES,
    ),
    Case(
        "the place of what is done is filled at once",
        Promise.WHOLE_BATCH,
        [A, published(0), published(1), published(2), delivered(0), delivered(1), acked(0), delivered(2)],
        (5, 7),
        BATCHES,
    ),
    Case(
        "what is newer than a failure goes on",
        Promise.WHOLE_BATCH,
        [A, published(0), published(1), delivered(0), delivered(1), released(0), acked(1)],
        (5, 6),
        BATCHES,
    ),
    Case(
        "a late ack is of no batch",
        Promise.WHOLE_BATCH,
        [A, published(0), published(1), delivered(0), delivered(1), released(1), released(0), acked(1)],
        None,
        BATCHES,
    ),
    Case(
        "what was done long ago goes out beside a batch, and nobody knows its key",
        Promise.WHOLE_BATCH,
        [A, published(1), delivered(1), delivered(0, key=L)],
        None,
        BATCHES,
    ),
]
