"""Random lives of a subscription that serves entries by bucket, checkpoints and all; broken keys must be caught."""

import json
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keyshared.buckets import BUCKET_HASH, BucketCheckpoints, BucketLayout, BucketPlacement
from keyshared.config import Backoff, DispatcherConfig, RetryPolicy
from keyshared.dispatcher import KeySharedDispatcher
from keyshared.effects import Deliver, Effect, Released
from keyshared.hashing import KeyHash
from keyshared.placement import RangeMap

LAYOUT = BucketLayout([0, 2, 100, 30_000, 30_001, 60_000])
FOR_EVER = RetryPolicy(max_redeliveries=None, base_delay_ms=10, backoff=Backoff.FIXED)
CONFIG = DispatcherConfig(max_in_flight_per_key=2, max_in_flight_per_consumer=4, retry=FOR_EVER)
SEGMENT = 1

hashes = st.sampled_from([0, 1, 2, 50, 99, 100, 29_999, 30_000, 30_001, 59_999, 60_000, 65_535])
steps = st.lists(
    st.one_of(
        st.tuples(st.just("offer"), hashes),
        st.tuples(st.sampled_from(["ack", "ack", "nack"]), st.integers(0, 9)),
        st.tuples(st.sampled_from(["join", "leave"]), st.integers(0, 3)),
        st.tuples(st.sampled_from(["wait", "restart"]), st.just(0)),
    ),
    max_size=40,
)
Key = Callable[[int], bytes]


def _bucket_key(entry_hash: int) -> bytes:
    return LAYOUT.bucket_key(LAYOUT.bucket_of(entry_hash))


class Subscription:
    """A dispatcher and what an observer knows of it: which hash each entry had, and who holds which entry."""

    def __init__(self, key_of: Key = _bucket_key) -> None:
        self.key_of = key_of
        self.dispatcher = KeySharedDispatcher(BucketPlacement(LAYOUT), CONFIG)
        self.checkpoints = BucketCheckpoints()
        self.log: list[int] = []
        self.open: dict[int, Deliver] = {}
        self.settled: set[int] = set()
        self.joined = 0
        self.faults: list[str] = []

    def step(self, action: str, argument: int) -> None:
        match action:
            case "offer":
                self.log.append(argument)
                assert self.checkpoints.offer(SEGMENT, LAYOUT.bucket_of(argument), len(self.log) - 1)
                self.apply(self.dispatcher.offer(len(self.log) - 1, self.key_of(argument)))
            case "ack" if self.open:
                self.ack(sorted(self.open)[argument % len(self.open)])
            case "nack" if self.open:
                delivery = self.open[sorted(self.open)[argument % len(self.open)]]
                self.apply(self.dispatcher.nack(*delivery.receipt))
            case "join":
                self.joined += 1
                self.apply(self.dispatcher.add_consumer(f"c{self.joined}"))
            case "leave":
                self.leave(argument)
            case "wait":
                self.wait()
            case "restart":
                self.restart()
            case _:
                pass

    def ack(self, offset: int) -> None:
        delivery = self.open.pop(offset)
        self.settled.add(offset)
        assert self.checkpoints.settle(SEGMENT, LAYOUT.bucket_of(self.log[offset]), offset)
        self.apply(self.dispatcher.ack(*delivery.receipt))

    def leave(self, which: int) -> None:
        names = list(self.dispatcher.stats().consumers)
        if names:
            self.apply(self.dispatcher.remove_consumer(names[which % len(names)]))

    def wait(self) -> None:
        due = self.dispatcher.next_deadline_ms()
        if due is not None:
            self.apply(self.dispatcher.handle_timeout(now_ms=due))

    def restart(self) -> None:
        """Go on from what was stored: the state, the ranges and the checkpoints."""
        state, ranges, checkpoints = json.loads(
            json.dumps(
                [self.dispatcher.snapshot(), self.dispatcher.placement.ranges.to_json(), self.checkpoints.snapshot()]
            )
        )
        names = list(self.dispatcher.stats().consumers)
        placement = BucketPlacement.from_ranges(LAYOUT, RangeMap.from_json(ranges, key_hash=BUCKET_HASH), names)
        self.dispatcher = KeySharedDispatcher.restore(state, placement, CONFIG, now_ms=0)
        self.checkpoints = BucketCheckpoints.restore(checkpoints)
        for offset in range(self.checkpoints.resume_offset(SEGMENT) or 0, len(self.log)):
            needed = self.checkpoints.offer(SEGMENT, LAYOUT.bucket_of(self.log[offset]), offset)
            assert (offset not in self.settled) is needed

    def apply(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Released):
                del self.open[effect.offset]
            if isinstance(effect, Deliver):
                self.note(effect)
                self.open[effect.offset] = effect

    def note(self, delivery: Deliver) -> None:
        bucket = LAYOUT.bucket_of(self.log[delivery.offset])
        same = [d for d in self.open.values() if LAYOUT.bucket_of(self.log[d.offset]) == bucket]
        if any(d.consumer != delivery.consumer for d in same):
            self.faults.append(f"bucket {bucket} is at two consumers")
        older = (i for i, h in enumerate(self.log[: delivery.offset]) if LAYOUT.bucket_of(h) == bucket)
        if any(i not in self.settled and i not in self.open for i in older):
            self.faults.append(f"bucket {bucket} goes out of order")

    def check(self) -> None:
        self.dispatcher.check_invariants()
        self.checkpoints.check_invariants()
        for bucket in range(len(LAYOUT)):
            mine = [i for i, h in enumerate(self.log) if LAYOUT.bucket_of(h) == bucket]
            left = [i for i in mine if i not in self.settled]
            assert len(left) == self.checkpoints.outstanding(SEGMENT, bucket)
        left = [i for i in range(len(self.log)) if i not in self.settled]
        assert (min(left, default=len(self.log)) if self.log else None) == self.checkpoints.resume_offset(SEGMENT)

    def finish(self) -> None:
        """Whoever is left acks everything, and waits for nothing but retries."""
        if not self.dispatcher.stats().consumers:
            self.step("join", 0)
        while len(self.settled) < len(self.log):
            if self.open:
                self.ack(min(self.open))
            else:
                assert self.dispatcher.next_deadline_ms() is not None
                self.wait()


@given(life=steps)
def test_a_bucket_is_at_one_consumer_at_a_time_and_in_order(life: list[tuple[str, int]]) -> None:
    subscription = Subscription()
    for action, argument in life:
        subscription.step(action, argument)
        subscription.check()
    subscription.finish()
    assert [] == subscription.faults


def _lowest_hash(entry_hash: int) -> bytes:
    """The key that lies at hand: the stamp itself. Its owner is right, but every stamp drains by itself."""
    return entry_hash.to_bytes(2, "big")


@pytest.mark.parametrize(("key_of", "caught"), [(_bucket_key, set()), (_lowest_hash, {"bucket 2 is at two consumers"})])
def test_keys_that_are_not_canonical_put_a_bucket_at_two_consumers(key_of: Key, caught: set[str]) -> None:
    subscription = Subscription(key_of)
    for step in [("join", 0), ("offer", 100), ("join", 0), ("join", 0), ("offer", 29_999)]:
        subscription.step(*step)
    assert caught == set(subscription.faults)


def test_the_hash_of_bucket_keys_is_a_hash_by_name() -> None:
    assert KeyHash("bucket:16", 16, len) == BUCKET_HASH
    assert 0xC000 == BUCKET_HASH.slot(b"\xc0\x00", 16)
