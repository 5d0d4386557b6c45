"""The ways of translating an offset, as a host uses them, on the two logs of a `tests.clusters.World`."""

from collections.abc import Iterable

from tests.clusters import World

from keyshared.offsets import (
    DEFAULT_MARGIN_MS,
    Declined,
    GroupCommit,
    GroupPartition,
    GroupTimestamp,
    OffsetCommitter,
    OffsetDistributor,
    OffsetIndex,
    ProvenanceVector,
    TargetGroup,
    margin_for,
    required_margin,
)

POSITION = GroupPartition("orders", 0, "billing")


def indexed(timestamps: Iterable[int], interval: int = 1, start: int = 0) -> OffsetIndex:
    index = OffsetIndex(interval, start=start)
    for offset, timestamp in enumerate(timestamps, start):
        index.append(offset, timestamp)
    return index


def by_timestamp(
    world: World,
    margin_ms: int = DEFAULT_MARGIN_MS,
    *,
    interval: int = 1,
    distributor: type[OffsetDistributor] = OffsetDistributor,
) -> int:
    source = indexed((record.timestamp for record in world.source), interval)
    target = indexed((record.timestamp for record in world.target), interval)
    sent = distributor(margin_ms=margin_ms).translate(GroupCommit(POSITION, world.processed), source)
    assert isinstance(sent, GroupTimestamp)
    planned = OffsetCommitter().propose(sent, TargetGroup(), target)
    assert not isinstance(planned, Declined)
    return planned.offset


def with_required_margin(world: World) -> int:
    last = world.source[world.processed - 1].timestamp
    return by_timestamp(world, required_margin(last, world.unprocessed_timestamps))


def with_planned_margin(world: World, *, lag_ms: int, outage_ms: int, skew_ms: int) -> int:
    return by_timestamp(world, margin_for(lag_ms=lag_ms, outage_ms=outage_ms, skew_ms=skew_ms))


def by_provenance(world: World, vector: type[ProvenanceVector] = ProvenanceVector) -> int:
    done = vector()
    for record in world.source[: world.processed]:
        done.observe(record.origin, record.origin_offset)
    records = ((offset, record.origin, record.origin_offset) for offset, record in enumerate(world.target))
    found = done.first_uncovered(records)
    return len(world.target) if found is None else found
