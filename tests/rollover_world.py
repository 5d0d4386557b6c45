"""A topic with one producer and one ordered subscription, small enough to try every interleaving.

The broker is the plainest one: a list for each segment, which refuses what comes after its seal. The controller changes
the map at some point; producer and reader learn of it when they learn of it. The judge is in `World.deliver`: it knows
keys and sequence ids, and nothing of segments, buckets or maps.
"""

from collections import deque
from collections.abc import Callable, Sequence
from copy import deepcopy
from json import dumps, loads
from typing import Any

from keyshared.buckets import BatchLimits, BatchMessage, BucketLayout, EntryBatch
from keyshared.segments import PublishEntry, SegmentMap, SegmentProducer, SegmentProgress, removable

Key = tuple[int, int]  # both halves of its hash
Change = Callable[[SegmentMap], SegmentMap]
Action = tuple[str, int]


def split_lowest(segments: SegmentMap) -> SegmentMap:
    return segments.split(segments.active_ids[0])


def merge_lowest(segments: SegmentMap) -> SegmentMap:
    return segments.merge(*segments.active_ids[:2])


def rebucket_lowest(segments: SegmentMap) -> SegmentMap:
    """One bucket becomes four, and whatever is more becomes fewer; a merge may have made eight."""
    first = segments.active[0]
    return segments.rebucket(first.id, BucketLayout.equal_width(max(1, 5 - len(first.layout))))


class World:
    """Everything that is true, and what each part knows of it."""

    def __init__(
        self,
        segments: SegmentMap,
        keys: Sequence[Key],
        changes: Sequence[Change],
        *,
        limits: BatchLimits,
        producer: type[SegmentProducer] = SegmentProducer,
        progress: type[SegmentProgress] = SegmentProgress,
        prunes: int = 0,
        restarts: int = 0,
        breaks: int = 0,
    ) -> None:
        self.truth = segments
        self.keys = list(keys)
        self.changes = list(changes)
        self.producer = producer(segments, limits)
        self.progress = progress(segments)
        self.prunes, self.restarts, self.breaks = prunes, restarts, breaks
        # a message that failed over must not come after a newer one of its key, so acks are in order then
        self.in_order = restarts > 0
        self.produced = 0
        self.logs: dict[int, list[EntryBatch]] = {}
        self.to_broker: dict[int, deque[EntryBatch]] = {}
        self.answers: dict[int, deque[tuple[str, int]]] = {}
        self.position: dict[int, int] = {}
        self.outstanding: list[tuple[int, int, int]] = []
        self.delivered: dict[Key, list[tuple[int, int, int, int]]] = {}  # sequence id, and where it was

    def actions(self) -> list[Action]:
        possible = {
            "produce": self.produced < len(self.keys),
            "flush": self.produced == len(self.keys) and self.producer.next_deadline_ms() is not None,
            "change": self.changes,
            "producer learns": self.producer.segments.epoch < self.truth.epoch,
            "reader learns": self.progress.segments.epoch < self.truth.epoch,
            "prune": self.prunes and removable(self.truth, [self.progress]),
            "restart": self.restarts,
        }
        found: list[Action] = [(kind, 0) for kind, enabled in possible.items() if enabled]
        found += [("broker", segment) for segment, queue in self.to_broker.items() if queue]
        found += [("lose", segment) for segment, queue in self.to_broker.items() if queue and self.breaks]
        found += [("answer", segment) for segment, queue in self.answers.items() if queue]
        heads = {place[:2]: number for number, place in reversed(list(enumerate(self.outstanding)))}
        found += [("settle", number) for number in (heads.values() if self.in_order else range(len(self.outstanding)))]
        for segment in self.progress.readable:
            if self.position.get(segment, 0) < len(self.logs.get(segment, ())):
                found.append(("read", segment))
            elif not self.takes(segment):
                found.append(("end", segment))
        return found

    def act(self, action: Action) -> None:
        kind, number = action
        getattr(self, kind.replace(" ", "_"))(number)
        self.producer.check_invariants()
        self.progress.check_invariants()

    def takes(self, segment: int) -> bool:
        return segment in self.truth.active_ids

    def produce(self, _: int) -> None:
        segment_hash, bucket_hash = self.keys[self.produced]
        self.queue(self.producer.send(BatchMessage(self.produced, None, 1, bucket_hash, segment_hash)))
        self.produced += 1

    def flush(self, _: int) -> None:
        self.queue(self.producer.flush())

    def change(self, _: int) -> None:
        self.truth = self.changes.pop(0)(self.truth)

    def producer_learns(self, _: int) -> None:
        self.queue(self.producer.update(self.truth))

    def reader_learns(self, _: int) -> None:
        self.progress.update(self.truth)

    def queue(self, publishes: list[PublishEntry]) -> None:
        for segment, entry in publishes:
            self.to_broker.setdefault(segment, deque()).append(entry)

    def broker(self, segment: int) -> None:
        entry = self.to_broker[segment].popleft()
        if taken := self.takes(segment):
            self.logs.setdefault(segment, []).append(entry)
        self.answers.setdefault(segment, deque()).append(("confirmed" if taken else "refused", entry.sequence_id))

    def answer(self, segment: int) -> None:
        kind, sequence_id = self.answers[segment].popleft()
        answer = self.producer.confirmed if kind == "confirmed" else self.producer.refused
        self.queue(answer(segment, sequence_id))

    def lose(self, segment: int) -> None:
        """The connection breaks: what is on its way to a segment never arrives, and nothing says that it is sealed."""
        self.breaks -= 1
        lost = self.to_broker.pop(segment)
        while self.answers.get(segment):
            self.answer(segment)
        for entry in lost:
            self.queue(self.producer.refused(segment, entry.sequence_id, sealed=False))

    def read(self, segment: int) -> None:
        offset = self.position.get(segment, 0)
        self.position[segment] = offset + 1
        entry = self.logs[segment][offset]
        self.deliver(segment, offset, entry, self.progress.offer(segment, offset, entry.hash_min, entry.hash_max))

    def settle(self, number: int) -> None:
        self.progress.settle(*self.outstanding.pop(number))

    def end(self, segment: int) -> None:
        self.progress.reached_end(segment)

    def prune(self, _: int) -> None:
        self.prunes -= 1
        self.truth = self.truth.prune(removable(self.truth, [self.progress])[0])

    def restart(self, _: int) -> None:
        """The reader crashes: what is outstanding was for nothing, and it goes on from its checkpoint."""
        self.restarts -= 1
        written, drained = loads(dumps(self.progress.snapshot())), self.progress.drained
        self.progress = type(self.progress).restore(written, self.progress.segments)
        assert drained == self.progress.drained, "what is drained stays drained"
        for key, before in self.delivered.items():
            self.delivered[key] = [each for each in before if each[1:] not in self.outstanding]
        self.outstanding = []
        self.position = {one: self.progress.resume_offset(one) or 0 for one in self.progress.readable}

    def deliver(self, segment: int, offset: int, entry: EntryBatch, buckets: tuple[int, ...]) -> None:
        if self.in_order and not buckets:
            return  # settled before the restart
        assert len(buckets) == 1, f"entry {entry.hash_min}-{entry.hash_max} of segment {segment} is of one bucket"
        for message in entry.messages:
            key = (message.segment_hash, message.bucket_hash)
            before = self.delivered.setdefault(key, [])
            older = [number for number in range(message.sequence_id) if self.keys[number] == key]
            assert older == [each[0] for each in before], f"message {message.sequence_id} of {key} is the next one"
            places = {tuple(place) for _, *place in before if (place[0], place[1]) != (segment, buckets[0])}
            assert places.isdisjoint(self.outstanding), f"nobody else works on {key}"
            before.append((message.sequence_id, segment, buckets[0], offset))
        self.outstanding += [(segment, bucket, offset) for bucket in buckets]

    def check_end(self) -> None:
        """Nothing can happen any more: everything was delivered, in order, once."""
        assert len(self.keys) == sum(map(len, self.delivered.values())), "everything was delivered"
        assert (0, ()) == (self.producer.held, self.producer.unanswered)
        sealed = tuple(s.id for s in self.truth.segments if not self.takes(s.id))
        assert sealed == removable(self.truth, [self.progress]) == self.progress.drained

    def fork(self) -> "World":
        """A world that goes on by itself; values that never change are shared, which is most of the time saved."""
        entries = [entry for log in (*self.logs.values(), *self.to_broker.values()) for entry in log]
        entries += [entry for _, entry in self.producer.unanswered]
        layouts = [segment.layout for segment in self.truth.segments]
        maps = [self.truth, self.producer.segments, self.progress.segments]
        shared = [*entries, *maps, *layouts, *self.truth.segments, *self.producer._held]
        return deepcopy(self, {id(each): each for each in shared})

    def state(self) -> tuple[Any, ...]:
        """What the future depends on."""
        producer, progress = self.producer, self.progress
        return (
            (self.produced, len(self.changes), producer.segments.epoch, progress.segments.epoch),
            tuple((s, tuple(e.sequence_id for e in log)) for s, log in sorted(self.logs.items())),
            tuple((s, tuple(e.sequence_id for e in q)) for s, q in sorted(self.to_broker.items()) if q),
            tuple((s, tuple(q)) for s, q in sorted(self.answers.items()) if q),
            tuple((s, e.sequence_id) for s, e in producer.unanswered),
            tuple(
                (s, lane.closing, lane.sealed, tuple(lane.batcher._in_order())) for s, lane in producer._lanes.items()
            ),
            tuple(sorted(producer._held, key=lambda message: message.sequence_id)),  # it is sorted when it goes out
            tuple(sorted(self.position.items())),
            tuple(sorted(self.outstanding)),
            (self.progress.readable, self.prunes, self.restarts, self.breaks),
        )


def explore(world: World, bound: int) -> int:
    """Try every interleaving; give the number of states. Worlds that are the same are tried once."""
    seen = {world.state()}
    ahead = [world]
    while ahead:
        here = ahead.pop()
        actions = here.actions()
        if not actions:
            here.check_end()
        for action in actions:
            there = here.fork()
            there.act(action)
            if (state := there.state()) not in seen:
                seen.add(state)
                ahead.append(there)
                assert len(seen) <= bound, "the world is small"
    return len(seen)
