"""The drain tracker against a slow, obvious model: one list of what was sent, scanned from end to end after each call.

The model knows nothing of ranges, indexes or waves: it asks each entry whether its hash belongs to whoever holds it.
Beside it runs a `DrainingHashes` that is told everything the way PIP-379 tells it, entry by entry: the statistics have
to be the same.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

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

from keyshared.draining import DrainingHashes
from keyshared.draintracker import (
    DrainTracker,
    EntryAcked,
    HandedOver,
    OwnersChanged,
    PendingAck,
    Position,
    Refusal,
    Returned,
    SendReceipt,
)
from keyshared.placement import Moved, RangeMap

NAMES = ("a", "b", "c")
BITS = 2
SLOTS = 1 << BITS
TIMEOUT = 20

owner_lists = st.lists(st.integers(0, 9), min_size=SLOTS, max_size=SLOTS)
slots = st.integers(0, SLOTS - 1)


def map_of(owners: list[str | None]) -> RangeMap:
    return RangeMap.from_stops(list(range(1, SLOTS + 1)), owners, slot_bits=BITS)


@dataclass
class Sent:
    """One entry at one consumer."""

    consumer: str
    position: Position
    hash: int
    remaining: int
    generation: int
    late: bool = False

    @property
    def as_told(self) -> PendingAck:
        return PendingAck(self.position, self.hash, self.remaining, self.generation)


class Model:
    """What the tracker promises, in the plainest words. `settle` is called after each change, and scans everything."""

    def __init__(self) -> None:
        self.owners: list[str | None] = [None] * SLOTS
        self.sent: list[Sent] = []
        self.connected: list[str] = []
        self.draining: dict[int, tuple[str, int]] = {}  # hash -> holder, since when
        self.refused: dict[int, int] = {}
        self.cleared: dict[str, int] = {}
        self.now = 0

    def settle(self) -> list[int]:
        """See which drains have begun and ended; the hashes of the latter that somebody was refused."""
        found = {
            sent.hash: sent.consumer for sent in self.sent if not sent.late and self.owners[sent.hash] != sent.consumer
        }
        unblocked = []
        for hash_, (holder, _) in list(self.draining.items()):
            if hash_ not in found:
                del self.draining[hash_]
                self.cleared[holder] = self.cleared.get(holder, 0) + 1
                if self.refused.pop(hash_, 0):
                    unblocked.append(hash_)
        for hash_, holder in found.items():
            self.draining.setdefault(hash_, (holder, self.now))
        return sorted(unblocked)

    def refusal(self, consumer: str, hash_: int) -> Refusal | None:
        if consumer not in self.connected:
            return Refusal.GONE
        if self.owners[hash_] != consumer:
            return Refusal.NOT_OWNER
        if any(sent.hash == hash_ and sent.consumer != consumer and not sent.late for sent in self.sent):
            self.refused[hash_] = self.refused.get(hash_, 0) + 1
            return Refusal.DRAINING
        return None

    def held(self, consumer: str, *, late: bool = False) -> list[Sent]:
        mine = [sent for sent in self.sent if sent.consumer == consumer and sent.late == late]
        return sorted(mine, key=lambda sent: sent.position)

    def take(self, gone: list[Sent]) -> list[int]:
        """Take entries off, and tell what that unblocks."""
        self.sent = [sent for sent in self.sent if all(sent is not other for other in gone)]
        return self.settle()


class TrackerMachine(RuleBasedStateMachine):
    """Joins, leaves, flaps, sends, acks whole, in parts, late and double, nacks, expiries and deadlines."""

    tracker_class: ClassVar[type[DrainTracker]] = DrainTracker

    @initialize(timed=st.booleans())
    def begin(self, *, timed: bool) -> None:
        self.timeout = TIMEOUT if timed else None
        self.tracker = self.tracker_class(map_of([None] * SLOTS), drain_timeout_ms=self.timeout)
        self.model = Model()
        self.told = DrainingHashes(unset_hash=None)  # the way PIP-379 does it
        self.receipts: list[SendReceipt] = []
        self.entries = 0
        for name in NAMES[:2]:  # most of what is worth seeing needs two
            everything: list[str | None] = [NAMES[0]] * SLOTS
            self.change(everything, partial(self.tracker.add_consumer, name))
            self.model.connected.append(name)

    # Changes of owners

    def owners_from(self, choice: list[int], connected: list[str]) -> list[str | None]:
        """Slots keep their owner, or get another one, or none; nobody who is not connected keeps any."""
        drawn = [(*connected, None, *["="] * 6)[number % (len(connected) + 7)] for number in choice]
        now = [old if new == "=" else new for new, old in zip(drawn, self.model.owners, strict=True)]
        return [owner if owner in connected else None for owner in now]

    def change(
        self, owners: list[str | None], call: Callable[[RangeMap], OwnersChanged], leaver: str | None = None
    ) -> OwnersChanged:
        """Make a change at all three, and compare what it unblocks."""
        change = call(map_of(owners))
        model = self.model
        replay = [] if leaver is None else model.held(leaver)
        assert [sent.as_told for sent in replay] == list(change.replay)
        for sent in replay:
            self.told.reduce(sent.consumer, sent.hash, closing=True)
        model.sent = [sent for sent in model.sent if sent.consumer != leaver]
        drained_by_leaver = {hash_ for hash_, (holder, _) in model.draining.items() if holder == leaver}
        before, model.owners = model.owners, owners
        self.register(before, owners)
        unblocked = [hash_ for hash_ in model.settle() if hash_ not in drained_by_leaver]
        assert unblocked == sorted(change.unblocked)
        moved = {slot for start, stop, _, _ in change.moved for slot in range(start, stop)}
        assert {slot for slot in range(SLOTS) if before[slot] != owners[slot]} == moved
        return change

    def register(self, before: list[str | None], after: list[str | None]) -> None:
        """PIP-379: walk all pending acks; add those whose hash has gone away, reduce those whose hash has come home."""
        for sent in self.model.sent:
            was, now = before[sent.hash], after[sent.hash]
            if sent.late or was == now:
                continue
            if was == sent.consumer:
                self.told.add(sent.consumer, sent.hash)
            elif now == sent.consumer:
                self.told.reduce(sent.consumer, sent.hash)

    @precondition(lambda self: len(self.model.connected) < len(NAMES))
    @rule(choice=owner_lists, wait=st.integers(0, 5))
    def join(self, choice: list[int], wait: int) -> None:
        name = next(name for name in NAMES if name not in self.model.connected)
        connected = [*self.model.connected, name]
        self.model.now += wait
        owners = self.owners_from(choice, connected)
        self.change(owners, lambda owned: self.tracker.add_consumer(name, owned, now_ms=self.model.now))
        self.model.connected = connected

    @precondition(lambda self: self.model.connected)
    @rule(choice=owner_lists, who=st.integers(0, 2))
    def leave(self, choice: list[int], who: int) -> None:
        leaver = self.model.connected[who % len(self.model.connected)]
        self.model.connected.remove(leaver)
        owners = self.owners_from(choice, self.model.connected)
        self.change(owners, lambda owned: self.tracker.remove_consumer(leaver, owned), leaver)
        self.told.consumer_removed(leaver)
        self.model.cleared.pop(leaver, None)

    @rule(choice=owner_lists, wait=st.integers(0, 5))
    def move(self, choice: list[int], wait: int) -> None:
        self.model.now += wait
        owners = self.owners_from(choice, self.model.connected)
        self.change(owners, lambda owned: self.tracker.set_owners(owned, now_ms=self.model.now))

    @rule(choice=owner_lists)
    def flap(self, choice: list[int]) -> None:
        """Away and home again, with nothing in between."""
        home = list(self.model.owners)
        for owners in (self.owners_from(choice, self.model.connected), home):
            self.change(owners, self.tracker.set_owners)

    # Entries

    def send_to(self, consumer: str, hash_: int, position: Position, messages: int) -> None:
        refusal = self.model.refusal(consumer, hash_)
        if refusal is Refusal.DRAINING:
            assert self.told.should_block(consumer, hash_)
        answer = self.tracker.add(consumer, position, hash_, messages)
        if refusal is not None:
            assert refusal is answer
            return
        assert isinstance(answer, SendReceipt)
        assert all(answer.generation != other.generation for other in self.receipts)
        again = [sent for sent in self.model.held(consumer) if sent.position == position]
        self.model.sent = [sent for sent in self.model.sent if all(sent is not other for other in again)]
        self.model.sent.append(Sent(consumer, position, hash_, messages, answer.generation))
        self.receipts.append(answer)

    @rule(hash_=slots, sizes=st.lists(st.sampled_from([1, 1, 5]), min_size=1, max_size=3))
    def send(self, hash_: int, sizes: list[int]) -> None:
        self.send_to_owner(hash_, sizes)

    def send_to_owner(self, hash_: int, sizes: list[int]) -> None:
        owner = self.model.owners[hash_]
        for messages in sizes:
            self.entries += 1
            if owner is not None:
                self.send_to(owner, hash_, (self.entries // 4, self.entries % 4), messages)

    @rule(hash_=slots, consumer=st.sampled_from(NAMES))
    def send_to_anybody(self, hash_: int, consumer: str) -> None:
        self.entries += 1
        self.send_to(consumer, hash_, (self.entries // 4, self.entries % 4), 1)

    @precondition(lambda self: self.model.sent)
    @rule(which=st.integers(0, 99))
    def send_again(self, which: int) -> None:
        sent = self.model.sent[which % len(self.model.sent)]
        owner = self.model.owners[sent.hash]
        if owner is not None:
            self.send_to(owner, sent.hash, sent.position, 2)

    @rule(hash_=slots, consumer=st.sampled_from(NAMES))
    def ask(self, hash_: int, consumer: str) -> None:
        self.ask_for(hash_, consumer)

    def ask_for(self, hash_: int, consumer: str) -> None:
        expected = self.model.refusal(consumer, hash_)
        if expected is Refusal.DRAINING:
            self.told.should_block(consumer, hash_)
        assert expected is self.tracker.refusal(consumer, hash_)

    @precondition(lambda self: self.model.draining)
    @rule(which=st.integers(0, 9), entering=st.booleans())
    def ask_for_what_drains(self, which: int, *, entering: bool) -> None:
        hash_ = sorted(self.model.draining)[which % len(self.model.draining)]
        if entering:
            self.send_to_owner(hash_, [1])
        else:
            self.ask_for(hash_, self.model.owners[hash_] or NAMES[0])

    @precondition(lambda self: self.receipts)
    @rule(which=st.integers(0, 99), messages=st.sampled_from([None, None, 1, 3]), fenced=st.booleans())
    def ack(self, which: int, messages: int | None, *, fenced: bool) -> None:
        """Any receipt ever given, so many are late, double, or of an earlier sending."""
        consumer, position, generation = self.receipts[which % len(self.receipts)]
        mine = [
            sent
            for sent in self.model.held(consumer) + self.model.held(consumer, late=True)
            if sent.position == position and (not fenced or sent.generation == generation)
        ]
        answer = self.tracker.ack(consumer, position, generation if fenced else None, messages=messages)
        if not mine:
            assert EntryAcked(settled=False, entry=None) == answer
            return
        sent = mine[0]
        if messages is not None and messages < sent.remaining:
            sent.remaining -= messages
            assert EntryAcked(settled=False, entry=sent.as_told) == answer
            return
        unblocked = self.gone([sent])
        assert (True, (sent.position, sent.generation), unblocked) == (
            answer.settled,
            answer.entry and (answer.entry.position, answer.entry.generation),
            sorted(answer.unblocked),
        )

    def gone(self, entries: list[Sent]) -> list[int]:
        for sent in entries:
            if not sent.late:
                self.told.reduce(sent.consumer, sent.hash)
        return self.model.take(entries)

    @rule(consumer=st.sampled_from(NAMES), some=st.none() | st.lists(st.integers(0, 20), max_size=4))
    def take_back(self, consumer: str, some: list[int] | None) -> None:
        held, late = self.model.held(consumer), self.model.held(consumer, late=True)
        wanted = None if some is None else [(entry // 4, entry % 4) for entry in some]
        mine = [sent for sent in held if wanted is None or sent.position in wanted]
        returned = self.tracker.take_back(consumer, wanted)
        assert [sent.as_told for sent in mine] == list(returned.entries)
        mine += [sent for sent in late if wanted is None or sent.position in wanted]
        assert self.gone(mine) == sorted(returned.unblocked)

    @rule(back=st.integers(0, 8))
    def expire(self, back: int) -> None:
        entry = max(0, self.entries - back)
        position = (entry // 4, entry % 4)
        returned = self.tracker.expire_up_to(position)
        below = [sent for sent in self.model.sent if sent.position <= position]
        assert sorted(sent.as_told for sent in below if not sent.late) == list(returned.entries)
        assert self.gone(below) == sorted(returned.unblocked)

    @rule(wait=st.integers(0, 15))
    def pass_time(self, wait: int) -> None:
        model = self.model
        model.now += wait
        handed = self.tracker.handle_timeout(now_ms=model.now)
        expected = []
        for hash_, (holder, since) in model.draining.items():
            if self.timeout is not None and since + self.timeout <= model.now:
                mine = [sent for sent in model.held(holder) if sent.hash == hash_]
                told = tuple(sent.as_told for sent in mine)
                refused = model.refused.get(hash_, 0)
                expected.append(HandedOver(hash_, holder, model.owners[hash_], told, refused, since))
                self.told.reduce(holder, hash_, len(mine), closing=True)
                for sent in mine:
                    sent.late = True
        assert sorted(expected) == sorted(handed)
        assert [each.since_ms for each in handed] == sorted(each.since_ms for each in handed)
        model.settle()

    # Always

    @invariant()
    def answers_are_those_of_the_model(self) -> None:
        if not hasattr(self, "model"):
            return
        tracker, model = self.tracker, self.model
        tracker.check_invariants()
        assert tuple(model.connected) == tracker.consumers
        for name in NAMES:
            assert tuple(sent.as_told for sent in model.held(name)) == tracker.pending(name)
        since = [begun for _, begun in model.draining.values()]
        assert (min(since) + TIMEOUT if since and self.timeout else None) == tracker.next_deadline_ms()
        for hash_ in range(SLOTS):
            self.explains(hash_)

    def explains(self, hash_: int) -> None:
        model, state = self.model, self.tracker.explain(hash_)
        mine = sorted((sent for sent in model.sent if sent.hash == hash_), key=lambda sent: sent.position)
        drain = model.draining.get(hash_)
        assert (model.owners[hash_], drain is not None) == (state.owner, state.draining)
        assert {sent.consumer for sent in mine if not sent.late} == ({state.holder} - {None})
        assert tuple(sent.position for sent in mine if not sent.late) == state.positions
        assert (None if drain is None else drain[1], model.refused.get(hash_, 0)) == (state.since_ms, state.refused)
        late = [(name, tuple(s.position for s in mine if s.late and s.consumer == name)) for name in model.connected]
        assert tuple(pair for pair in late if pair[1]) == state.late

    @invariant()
    def statistics_are_those_of_pip_379(self) -> None:
        if hasattr(self, "model"):
            for name in (*NAMES, None):
                assert self.told.stats(name) == self.tracker.stats(name), name


TestTracker = TrackerMachine.TestCase


# Trackers with a fault each: the machine has to find it


class StaysBlockedAtHome(DrainTracker):
    """A range that comes home does not cancel its drains (Pulsar, before it was found)."""

    def _come_home(self, *_: object) -> list[int]:
        return []


class AcksByNumber(DrainTracker):
    """An ack counts for whatever stands at its position now."""

    def ack(
        self, consumer: str, position: Position, generation: int | None = None, *, messages: int | None = None
    ) -> EntryAcked:
        return super().ack(consumer, position, generation and None, messages=messages)


class LeaveTellsTwice(DrainTracker):
    """What a leaver had blocked is reported as unblocked, although it is replayed."""

    def remove_consumer(self, consumer: str, owners: RangeMap, *, now_ms: int | None = None) -> OwnersChanged:
        waiting = [entry.hash for entry in self.pending(consumer) if self.explain(entry.hash).refused]
        change = super().remove_consumer(consumer, owners, now_ms=now_ms)
        return change._replace(unblocked=(*change.unblocked, *dict.fromkeys(waiting)))


class TellsForEachEntry(DrainTracker):
    """Several entries taken off in one call are told one by one, and not once for all of them."""

    def expire_up_to(self, position: Position) -> Returned:
        returned = super().expire_up_to(position)
        hashes = [entry.hash for entry in returned.entries if entry.hash in returned.unblocked]
        return returned._replace(unblocked=tuple(hashes))


class TheLastMomentIsForgotten(DrainTracker):
    """What is refused only when it is entered wakes nobody up (PIP-379's guard)."""

    def add(self, consumer: str, position: Position, hash_: int, messages: int = 1) -> SendReceipt | Refusal:
        answer = super().add(consumer, position, hash_, messages)
        if answer is Refusal.DRAINING:
            drain = self._draining.entry(hash_)
            assert drain is not None
            drain.refused -= 1
        return answer


class OldOwnersMayGoOn(DrainTracker):
    """The guard asks only whether the hash drains elsewhere (PIP-379): what was chosen before a move goes out."""

    def refusal(self, consumer: str, hash_: int) -> Refusal | None:
        refusal = super().refusal(consumer, hash_)
        drain = self._draining.entry(hash_)
        drains_here = drain is not None and drain.holder == consumer
        return None if refusal is Refusal.NOT_OWNER and drains_here else refusal


class LateEntriesStillCount(DrainTracker):
    """What was handed over is still pending, so it drains again at the next change."""

    def handle_timeout(self, *, now_ms: int | None = None) -> list[HandedOver]:
        handed = super().handle_timeout(now_ms=now_ms)
        for hash_, consumer, _, entries, _, _ in handed:
            holder = self._consumers[consumer]
            holder.late.remove_hash(hash_)
            for entry in entries:
                holder.pending.add(entry.position, hash_, entry.remaining, generation=entry.generation)
        return handed


class AnOldDeadlineCounts(DrainTracker):
    """A hash that came home and moved again is handed over at the deadline of its first drain."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._first: dict[tuple[str, int], int] = {}

    def _move(self, owners: RangeMap, moved: list[Moved]) -> tuple[int, ...]:
        unblocked = super()._move(owners, moved)
        for drain in self._draining._drains.values():
            drain.since_ms = self._first.setdefault((drain.holder, drain.hash), drain.since_ms)
        return unblocked


BROKEN = [
    StaysBlockedAtHome,
    AcksByNumber,
    LeaveTellsTwice,
    TellsForEachEntry,
    TheLastMomentIsForgotten,
    OldOwnersMayGoOn,
    LateEntriesStillCount,
    AnOldDeadlineCounts,
]


@pytest.mark.parametrize("broken", BROKEN)
def test_a_tracker_with_a_fault_fails(broken: type[DrainTracker]) -> None:
    class Broken(TrackerMachine):
        tracker_class = broken

    quick = settings(max_examples=2_000, phases=[Phase.generate], derandomize=True, database=None)
    with pytest.raises(AssertionError):
        run_state_machine_as_test(Broken, settings=quick)
