"""A whole broker on the drain tracker, as small as it can be, under random joins, leaves, acks, nacks and deadlines.

It is driven by what the tracker answers and by nothing else: a message that was refused is tried again only when an
answer says that its hash can go out. So a hash that the tracker forgets to name is stuck, and the judge sees it.
"""

from collections.abc import Iterable
from typing import ClassVar

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from keyshared.draintracker import DrainTracker, HandedOver, OwnersChanged, PendingAck, Position, Refusal, SendReceipt
from keyshared.placement import RangeMap
from keyshared.ring import HashRing

BITS = 3
NAMES = ("a", "b", "c", "d")
PERMITS = 3
TIMEOUT = 20


class Broker:
    """Keeps what waits, by hash and in order; asks the tracker who may have it, and believes what it answers."""

    def __init__(self, tracker: DrainTracker, ring: HashRing) -> None:
        self.tracker = tracker
        self.ring = ring
        self.waiting: dict[int, list[Position]] = {}
        self.refused: set[int] = set()  # hashes that wait to be named by the tracker
        self.chosen: dict[int, tuple[str, Position]] = {}  # an owner was chosen, and the message is on its way to it
        self.open: dict[str, dict[Position, tuple[int, int]]] = {}  # consumer -> position -> hash, generation
        self.handed_over: set[tuple[str, int]] = set()  # consumer and generation

    def publish(self, position: Position, hash_: int) -> None:
        self.put_back([(position, hash_)])
        self.serve([hash_])

    def put_back(self, entries: Iterable[tuple[Position, int]]) -> None:
        for position, hash_ in entries:
            self.waiting[hash_] = sorted([*self.waiting.get(hash_, []), position])

    def serve(self, hashes: Iterable[int]) -> None:
        for hash_ in dict.fromkeys(hashes):
            while self.waiting.get(hash_) and hash_ not in self.refused and hash_ not in self.chosen:
                owner = self.tracker.owner(hash_)
                if owner is None or not self.permits(owner):
                    break
                self.send(owner, self.waiting[hash_][0], hash_)

    def permits(self, consumer: str) -> int:
        """What was handed over takes no room: a stuck consumer keeps its hashes, not everybody's."""
        live = [number for _, number in self.open[consumer].values() if (consumer, number) not in self.handed_over]
        chosen = sum(name == consumer for name, _ in self.chosen.values())
        return PERMITS - len(live) - chosen

    def send(self, consumer: str, position: Position, hash_: int) -> bool:
        answer = self.tracker.add(consumer, position, hash_)
        if answer is Refusal.DRAINING:
            self.refused.add(hash_)
        if not isinstance(answer, SendReceipt):
            return False
        assert position == min(self.waiting[hash_]), "a message goes out after everything older of its hash"
        self.waiting[hash_].remove(position)
        self.open[consumer][position] = (hash_, answer.generation)
        return True

    def choose(self, hash_: int) -> None:
        owner = self.tracker.owner(hash_)
        able = owner is not None and self.waiting.get(hash_) and hash_ not in self.chosen
        if owner is not None and able and self.permits(owner):
            self.chosen[hash_] = (owner, self.waiting[hash_][0])

    def send_chosen(self, hash_: int) -> None:
        consumer, position = self.chosen.pop(hash_)
        if position == self.waiting[hash_][0]:  # an older one may have come back meanwhile
            self.send(consumer, position, hash_)
        self.serve(list(self.waiting))  # its permit may be free again

    # What the tracker tells

    def wake(self, unblocked: Iterable[int]) -> None:
        told = list(unblocked)
        assert len(set(told)) == len(told), "a hash is told once"
        self.refused.difference_update(told)

    def changed(self, change: OwnersChanged) -> None:
        back = [entry.hash for entry in change.replay]
        assert not set(back) & set(change.unblocked), "what is replayed is not told twice"
        self.put_back((entry.position, entry.hash) for entry in change.replay)
        self.wake(change.unblocked)
        self.refused.difference_update(back)
        self.serve(list(self.waiting))  # others may have room now

    def took_over(self, handed: list[HandedOver]) -> None:
        for each in handed:
            self.put_back((entry.position, each.hash) for entry in each.entries)
            self.handed_over.update((each.consumer, entry.generation) for entry in each.entries)
            self.wake([each.hash])
        self.serve(list(self.waiting))

    def returned(self, consumer: str, entries: Iterable[PendingAck], unblocked: Iterable[int]) -> None:
        gone = list(entries)
        for entry in gone:
            self.open[consumer].pop(entry.position)
        self.put_back((entry.position, entry.hash) for entry in gone)
        self.wake(unblocked)
        self.serve(list(self.waiting))


class BrokerMachine(RuleBasedStateMachine):
    tracker_class: ClassVar[type[DrainTracker]] = DrainTracker

    @initialize(timed=st.booleans())
    def begin(self, *, timed: bool) -> None:
        self.now = 0
        self.published = 0
        self.acked: set[Position] = set()
        ring = HashRing(NAMES[:2], vnodes=4, slot_bits=BITS)
        tracker = self.tracker_class(ring.ranges, drain_timeout_ms=TIMEOUT if timed else None)
        self.broker = Broker(tracker, ring)
        self.broker.open = {name: {} for name in tracker.consumers}
        self.hashes: dict[Position, int] = {}

    @rule(hash_=st.integers(0, (1 << BITS) - 1), count=st.integers(1, 3))
    def publish(self, hash_: int, count: int) -> None:
        for _ in range(count):
            self.published += 1
            position = (0, self.published)
            self.hashes[position] = hash_
            self.broker.publish(position, hash_)

    @rule(name=st.sampled_from(NAMES))
    def join_or_leave(self, name: str) -> None:
        broker = self.broker
        if name in broker.open:
            broker.ring.remove(name)
            late = {number for _, number in broker.open.pop(name).values()}
            broker.handed_over -= {(name, number) for number in late}
            broker.changed(broker.tracker.remove_consumer(name, broker.ring.ranges, now_ms=self.now))
        else:
            broker.ring.add(name)
            broker.open[name] = {}
            broker.changed(broker.tracker.add_consumer(name, broker.ring.ranges, now_ms=self.now))

    @rule(which=st.integers(0, 50))
    def ack(self, which: int) -> None:
        broker = self.broker
        held = [(name, position) for name, mine in broker.open.items() for position in mine]
        if not held:
            return
        name, position = held[which % len(held)]
        _, generation = broker.open[name].pop(position)
        answer = broker.tracker.ack(name, position, generation)
        assert answer.settled
        if (name, generation) not in broker.handed_over:
            self.acked.add(position)
        broker.wake(answer.unblocked)
        broker.serve(list(broker.waiting))

    @rule(name=st.sampled_from(NAMES))
    def give_back(self, name: str) -> None:
        broker = self.broker
        if name in broker.open:
            positions = [
                position
                for position, (_, number) in broker.open[name].items()
                if (name, number) not in broker.handed_over
            ]
            returned = broker.tracker.take_back(name, positions)
            broker.returned(name, returned.entries, returned.unblocked)

    @rule(hash_=st.integers(0, (1 << BITS) - 1))
    def choose(self, hash_: int) -> None:
        self.broker.choose(hash_)

    @precondition(lambda self: self.broker.chosen)
    @rule(which=st.integers(0, 9))
    def send_chosen(self, which: int) -> None:
        self.broker.send_chosen(list(self.broker.chosen)[which % len(self.broker.chosen)])

    @rule(wait=st.integers(0, 15))
    def pass_time(self, wait: int) -> None:
        self.now += wait
        self.broker.took_over(self.broker.tracker.handle_timeout(now_ms=self.now))

    # The judge

    @invariant()
    def a_hash_is_unacked_at_one_consumer(self) -> None:
        if not hasattr(self, "broker"):
            return
        self.broker.tracker.check_invariants()
        holders: dict[int, set[str]] = {}
        for name, mine in self.broker.open.items():
            for hash_, number in mine.values():
                if (name, number) not in self.broker.handed_over:
                    holders.setdefault(hash_, set()).add(name)
        assert all(len(names) == 1 for names in holders.values()), holders

    @invariant()
    def nothing_is_lost(self) -> None:
        if hasattr(self, "broker"):
            known = {position for positions in self.broker.waiting.values() for position in positions}
            known |= {position for mine in self.broker.open.values() for position in mine} | self.acked
            assert set(self.hashes) == known

    @invariant()
    def what_can_be_delivered_is_delivered(self) -> None:
        if not hasattr(self, "broker"):
            return
        broker = self.broker
        for hash_, positions in broker.waiting.items():
            owner = broker.tracker.owner(hash_)
            if not positions or hash_ in broker.chosen or owner is None or not broker.permits(owner):
                continue
            assert broker.tracker.explain(hash_).draining, f"hash {hash_} waits for nobody"


TestBroker = BrokerMachine.TestCase


class ForgetsTheLastMoment(DrainTracker):
    """What is refused only when it is entered wakes nobody up."""

    def add(self, consumer: str, position: Position, hash_: int, messages: int = 1) -> SendReceipt | Refusal:
        answer = super().add(consumer, position, hash_, messages)
        if answer is Refusal.DRAINING:
            drain = self._draining.entry(hash_)
            assert drain is not None
            drain.refused = 0
        return answer


class HandsOverInSilence(DrainTracker):
    """A drain that took too long is forgotten; nobody is told."""

    def handle_timeout(self, *, now_ms: int | None = None) -> list[HandedOver]:
        super().handle_timeout(now_ms=now_ms)
        return []


class MovesAtOnce(DrainTracker):
    """Nothing drains: a hash goes to its new owner while the old one still works on it."""

    def refusal(self, consumer: str, hash_: int) -> Refusal | None:
        refusal = super().refusal(consumer, hash_)
        return None if refusal is Refusal.DRAINING else refusal


class ForgetsWhatDrained(DrainTracker):
    """A leaver's entries are told, but not those that were draining."""

    def remove_consumer(self, consumer: str, owners: RangeMap, *, now_ms: int | None = None) -> OwnersChanged:
        drained = {entry.hash for entry in self.stats(consumer).entries}
        change = super().remove_consumer(consumer, owners, now_ms=now_ms)
        return change._replace(replay=tuple(entry for entry in change.replay if entry.hash not in drained))


@pytest.mark.parametrize("broken", [ForgetsTheLastMoment, HandsOverInSilence, MovesAtOnce, ForgetsWhatDrained])
def test_a_broker_on_a_tracker_with_a_fault_fails(broken: type[DrainTracker]) -> None:
    class Broken(BrokerMachine):
        tracker_class = broken

    quick = settings(max_examples=2_000, phases=[Phase.generate], derandomize=True, database=None)
    with pytest.raises(AssertionError):
        run_state_machine_as_test(Broken, settings=quick)
