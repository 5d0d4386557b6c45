"""The published page on Axual's distribution of offsets: its picture, worked through."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.translations import POSITION, indexed

from keyshared.copyflags import CopyFlags
from keyshared.offsets import (
    DEFAULT_MARGIN_MS,
    MAX_METADATA_BYTES,
    CommitMetadata,
    GroupCommit,
    GroupTimestamp,
    OffsetCommitter,
    OffsetDistributor,
    OffsetEnvelope,
    OffsetIndex,
    TargetGroup,
    parse_metadata,
)

PICTURE: dict[str, Any] = json.loads((Path(__file__).parent / "data" / "axual_offsets.json").read_text("utf-8"))


def logs() -> tuple[OffsetIndex, OffsetIndex]:
    """The picture's partition, and the new cluster's copy of what remained of it."""
    origin = PICTURE["origin"]
    count = origin["last"] - origin["first"] + 1
    timestamps = [origin["first_timestamp_epoch_ms"] + origin["every_ms"] * number for number in range(count)]
    return indexed(timestamps, start=origin["first"]), indexed(timestamps, start=PICTURE["target"]["first"])


def test_the_default_margin_is_60_seconds() -> None:
    assert 60_000 == DEFAULT_MARGIN_MS == OffsetDistributor().margin_ms


def test_the_committed_offset_itself_does_not_exist_on_the_target() -> None:
    _, target = logs()
    assert 35 > target.end


@pytest.mark.parametrize("row", PICTURE["rows"], ids=lambda row: f"commit {row['committed']} margin {row['margin_ms']}")
def test_a_commit_arrives_at_the_same_record_on_the_target(row: dict[str, Any]) -> None:
    origin, target = logs()
    commit = GroupCommit(POSITION, row["committed"])
    sent = OffsetDistributor(margin_ms=row["margin_ms"]).translate(commit, origin)
    assert GroupTimestamp(POSITION, row["timestamp_epoch_ms"], CopyFlags(0b1)) == sent
    planned = OffsetCommitter().propose(sent, TargetGroup(), target)
    assert isinstance(planned, GroupCommit)
    assert row["target_offset"] == planned.offset
    assert origin.find_timestamp(row["source_record"]) == target.find_timestamp(planned.offset)


def test_the_copy_flags_are_in_the_metadata_of_the_commit() -> None:
    origin, target = logs()
    sent = OffsetDistributor(level=3).translate(GroupCommit(POSITION, 35), origin)
    assert isinstance(sent, GroupTimestamp)
    planned = OffsetCommitter().propose(sent, TargetGroup(), target)
    assert isinstance(planned, GroupCommit)
    assert CommitMetadata("", OffsetEnvelope(CopyFlags(0b100), 1_700_000_030_000, 3)) == parse_metadata(
        planned.metadata
    )
    assert len(planned.metadata.encode()) <= MAX_METADATA_BYTES == 4_096


def test_offsets_reach_all_four_clusters_of_the_page_once() -> None:
    """Levels 3 and 1 of a binary tree: 1 and 2, 3 and 4 are the pairs of level 1."""
    origin, target = logs()
    metadata = {1: ""}
    commits = {1: GroupCommit(POSITION, 35)}
    todo = [1]
    hops: list[tuple[int, int]] = []
    targets = {(1, 1): 2, (2, 1): 1, (3, 1): 4, (4, 1): 3, (1, 3): 3, (2, 3): 4, (3, 3): 1, (4, 3): 2}
    while todo:
        cluster = todo.pop(0)
        for level in (3, 1):
            log = origin if cluster == 1 else target
            sent = OffsetDistributor(level).translate(commits[cluster], log)
            if isinstance(sent, GroupTimestamp):
                there = targets[cluster, level]
                planned = OffsetCommitter().propose(sent, TargetGroup(), target)
                assert isinstance(planned, GroupCommit)
                commits[there], metadata[there] = planned, planned.metadata
                hops.append((cluster, there))
                todo.append(there)
    assert [(1, 3), (1, 2), (3, 4)] == hops
    assert {2: 3, 3: 3, 4: 3} == {cluster: commits[cluster].offset for cluster in (2, 3, 4)}
    flags = {cluster: parse_metadata(metadata[cluster]) for cluster in (2, 3, 4)}
    assert {2: 0b001, 3: 0b100, 4: 0b101} == {
        cluster: found.envelope.flags
        for cluster, found in flags.items()
        if isinstance(found, CommitMetadata) and found.envelope is not None
    }
