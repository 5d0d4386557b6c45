"""Whoever keeps JSON may keep its keys in any order: each form that this library reads means the same in all."""

import json
import zlib
from collections import OrderedDict
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.placements import RankedPlacement
from tests.properties.driving import Fast, drive
from tests.properties.schedules import random_world
from tests.properties.test_lease_schedules import Schedule, a_host

from keyshared.buckets import BucketCheckpoints
from keyshared.config import DispatcherConfig, DrainUnit, RetryPolicy
from keyshared.journal import Command, Journal
from keyshared.leases import LeaseQueue
from keyshared.offsets import ProvenanceVector
from keyshared.placement import RangeMap
from keyshared.ring import HashRing
from keyshared.segments import SegmentMap, SegmentProgress
from keyshared.testing.history import Acked, Event, Published
from keyshared.testing.rows import read_jsonl, to_rows

Form = tuple[Any, Callable[[Any], Any]]  # what was written, and what reading it comes to


def shuffled(data: Any, choose: Random) -> Any:
    """The same data with the keys of every object in another order."""
    if isinstance(data, list):
        return [shuffled(value, choose) for value in data]
    if not isinstance(data, dict):
        return data
    pairs = [(key, shuffled(value, choose)) for key, value in data.items()]
    choose.shuffle(pairs)
    return OrderedDict(pairs) if choose.random() < 0.5 else dict(pairs)  # those know their order


def segments(choose: Random) -> SegmentMap:
    made = SegmentMap.equal_width(choose.choice([1, 2, 3]))
    for _ in range(choose.randrange(4)):
        if choose.random() < 0.3 and len(made.active) > 1:
            made = made.merge(*made.active_ids[:2])
        else:
            made = made.split(choose.choice(made.active_ids))
    return made


def segment_map(choose: Random) -> Form:
    return segments(choose).to_json(), SegmentMap.from_json


def segment_progress(choose: Random) -> Form:
    made = segments(choose)
    progress = SegmentProgress(made)
    for offset in range(choose.randrange(5)):
        for bucket in progress.offer(progress.readable[0], offset, 0, choose.choice([0, 60_000])):
            if choose.random() < 0.5:
                progress.settle(progress.readable[0], bucket, offset)
    return progress.snapshot(), lambda data: SegmentProgress.restore(data, made).snapshot()


def bucket_checkpoints(choose: Random) -> Form:
    made = BucketCheckpoints()
    for offset in range(choose.randrange(6)):
        made.offer(choose.choice([1, 2]), choose.choice([0, 3]), offset)
    return made.snapshot(), lambda data: BucketCheckpoints.restore(data).snapshot()


def range_map(choose: Random) -> Form:
    ring = HashRing()
    for name in ("a", "b", "c")[: choose.randrange(4)]:
        ring.add(name)
    return ring.ranges.to_json(), RangeMap.from_json


def provenance(choose: Random) -> Form:
    positions = {name: choose.randrange(9) for name in ("eu", "us", "ap")[: choose.randrange(4)]}
    return ProvenanceVector(positions).to_json(), ProvenanceVector.from_json


def dispatcher_config(choose: Random) -> Form:
    retry = RetryPolicy(max_redeliveries=choose.choice([None, 3]), base_delay_ms=choose.choice([0, 7]))
    made = DispatcherConfig(window=choose.choice([1, 9]), retry=retry, unit=choose.choice(list(DrainUnit)))
    return made.to_json(), DispatcherConfig.from_json


def dispatcher(choose: Random) -> Form:
    world, placement = random_world(choose.randrange(1 << 30)), RankedPlacement()
    made = Fast(placement, world.config)
    for _ in range(60):
        call = world.choose(world.calls)(world)
        if call.name != "set_placement":
            drive(made, world, call)

    def read(data: Any) -> Any:
        return Fast.restore(data, placement, world.config, now_ms=world.now).snapshot()

    return made.snapshot(), read


def lease_queue(choose: Random) -> Form:
    host = a_host(choose)
    schedule = Schedule(host, choose)
    for sequence in range(60):
        schedule.one()
        if not sequence % 20 and host.queue.dispatcher.free_slots:
            producer = (choose.choice(["p", "q"]), sequence)
            effects = host.queue.offer(host.offered, "a", producer=producer).effects
            host.offered += 1
            host.look_at(effects)

    def read(data: Any) -> Any:
        ranges = None if host.config.dispatcher.ordering_required else host.ranges
        return LeaseQueue.restore(
            data, ranges, host.config, now_ms=host.now, epoch=host.epoch, rules=host.rules
        ).snapshot()

    return host.queue.snapshot(), read


def journal(choose: Random) -> Form:
    made = Journal(HashRing())
    made.apply(Command(0, 0, "add_consumer", consumer="c1"))
    for offset in range(choose.randrange(5)):
        made.apply(Command(offset + 1, offset, "offer", offset=offset, key=choose.choice([b"a", b"b"])))

    def read(data: Any) -> Any:
        return Journal.from_bytes(zlib.compress(json.dumps(data).encode()), HashRing()).to_bytes()

    return json.loads(zlib.decompress(made.to_bytes())), read


def history(choose: Random) -> Form:
    events: list[Event] = [Published(offset=0, key=b"a"), Acked(consumer="c", offset=0)]
    events = events[: choose.randrange(3)]

    def read(data: Any) -> Any:
        return list(read_jsonl(json.dumps(row) for row in data))

    return json.loads(json.dumps(list(to_rows(events)), default=bytes.decode)), read


FORMS = (
    *(segment_map, segment_progress, bucket_checkpoints, range_map, provenance),
    *(dispatcher_config, dispatcher, lease_queue, journal, history),
)


@pytest.mark.parametrize("form", FORMS)
@given(choose=st.randoms(use_true_random=False))
def test_the_order_of_keys_means_nothing(form: Callable[[Random], Form], choose: Random) -> None:
    written, read = form(choose)
    assert read(written) == read(shuffled(written, choose))
