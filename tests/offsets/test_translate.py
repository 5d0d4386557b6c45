"""Distributor and committer: every edge rule by its name."""

import pickle
from collections.abc import Callable
from dataclasses import FrozenInstanceError, fields, replace
from typing import Any

import pytest
from tests.translations import POSITION, indexed

from keyshared.copyflags import CopyFlags
from keyshared.errors import ArgumentError
from keyshared.offsets import (
    Declined,
    DeclineReason,
    GroupCommit,
    GroupPartition,
    GroupTimestamp,
    OffsetCommitter,
    OffsetDistributor,
    OffsetEnvelope,
    OffsetIndex,
    TargetGroup,
    compose_metadata,
    margin_for,
    parse_metadata,
    required_margin,
)

# Offsets 25 to 29; the timestamps go back once.
LOG = indexed([1_000, 2_000, 1_500, 4_000, 5_000], start=25)
EXACT = OffsetDistributor(margin_ms=0)


def translated(offset: int, metadata: str = "", *, log: OffsetIndex = LOG, level: int = 1) -> GroupTimestamp | Declined:
    return replace(EXACT, level=level).translate(GroupCommit(POSITION, offset, metadata), log)


def sent(timestamp: int | None, flags: int = 0b1) -> GroupTimestamp:
    return GroupTimestamp(POSITION, timestamp, CopyFlags(flags))


def declined(reason: DeclineReason) -> Declined:
    return Declined(POSITION, reason)


def planned(timestamp: int | None, group: TargetGroup | None = None, **options: bool | int) -> GroupCommit | Declined:
    committer = OffsetCommitter(**options)  # type: ignore[arg-type]  # options of both types
    return committer.propose(sent(timestamp), TargetGroup() if group is None else group, LOG)


def noted(offset: int, *, flags: int = 0b1, timestamp: int | None = 1_700, foreign: str = "") -> str:
    text = compose_metadata(foreign, OffsetEnvelope(CopyFlags(flags), timestamp, offset))
    assert type(text) is str
    return text


# At the origin


def test_a_commit_is_the_next_offset_so_the_record_before_it_counts() -> None:
    assert [sent(1_500), sent(4_000), sent(5_000)] == [translated(offset) for offset in (28, 29, 30)]


def test_the_margin_is_taken_off() -> None:
    assert sent(3_900) == OffsetDistributor(margin_ms=100).translate(GroupCommit(POSITION, 29), LOG)


def test_the_margin_may_reach_below_any_timestamp() -> None:
    distributor = OffsetDistributor(margin_ms=(1 << 63) - 1)
    assert sent(4_001 - (1 << 63)) == distributor.translate(GroupCommit(POSITION, 29), LOG)


def test_if_the_record_before_it_was_compacted_the_last_one_below_counts() -> None:
    log = OffsetIndex(1)
    for offset, timestamp in ((3, 300), (7, 700), (20, 2_000)):
        log.append(offset, timestamp)
    assert [sent(700), sent(700), sent(300)] == [translated(offset, log=log) for offset in (20, 12, 7)]


def test_if_the_record_before_it_is_gone_that_of_the_commit_counts() -> None:
    assert sent(1_000) == translated(25)


def test_if_the_record_is_gone_by_retention_the_earliest_remaining_counts() -> None:
    assert sent(1_000) == translated(7)


def test_a_commit_of_0_means_the_beginning() -> None:
    assert sent(None) == translated(0)


def test_a_commit_beyond_the_end_counts_as_the_end() -> None:
    assert sent(5_000) == translated(99)


def test_an_empty_partition_tells_no_timestamp() -> None:
    assert declined(DeclineReason.EMPTY_LOG) == translated(100, log=OffsetIndex(start=100))
    assert sent(None) == translated(0, log=OffsetIndex())


def test_of_bounds_the_earlier_timestamp_is_sent() -> None:
    log = indexed([1_000, 2_000, 1_500, 4_000], interval=4)
    assert sent(1_000) == translated(4, log=log)


def test_what_the_committer_itself_wrote_is_ignored() -> None:
    assert declined(DeclineReason.ALREADY_DISTRIBUTED) == translated(28, noted(28, flags=0b1))


def test_a_copy_is_due_at_lower_levels_only_and_keeps_its_timestamp() -> None:
    """The log is not looked at, or else the margin would be taken off at each hop."""
    copied = noted(28, flags=0b100, timestamp=1_234)
    assert sent(1_234, 0b101) == translated(28, copied, level=1)
    assert declined(DeclineReason.ALREADY_DISTRIBUTED) == translated(28, copied, level=3)
    assert declined(DeclineReason.ALREADY_DISTRIBUTED) == translated(28, copied, level=4)


def test_a_copy_of_the_beginning_stays_the_beginning() -> None:
    assert sent(None, 0b101) == translated(28, noted(28, flags=0b100, timestamp=None))


def test_an_envelope_that_an_application_carried_along_does_not_count() -> None:
    """Once it has moved on, the commit is its own, whatever it copied into the metadata."""
    assert sent(4_000) == translated(29, noted(28))


def test_foreign_metadata_is_neither_read_nor_sent() -> None:
    assert sent(4_000) == translated(29, "AgAAAYvPxWAA")


def test_an_unreadable_envelope_is_not_taken_for_a_fresh_commit() -> None:
    assert declined(DeclineReason.UNREADABLE_METADATA) == translated(29, noted(29)[:-1])


# At the target


def test_the_first_offset_at_or_after_the_timestamp_is_committed() -> None:
    offsets = {timestamp: planned(timestamp) for timestamp in (999, 1_001, 1_700, 2_001)}
    assert {999: 25, 1_001: 26, 1_700: 26, 2_001: 28} == {
        timestamp: commit.offset for timestamp, commit in offsets.items() if isinstance(commit, GroupCommit)
    }


def test_no_record_that_young_means_the_end_of_the_log() -> None:
    assert GroupCommit(POSITION, 30, noted(30, timestamp=5_001)) == planned(5_001)


def test_the_beginning_is_the_first_offset_there_is() -> None:
    assert GroupCommit(POSITION, 25, noted(25, timestamp=None)) == planned(None)


def test_an_empty_target_gets_its_end() -> None:
    empty = OffsetIndex(start=70)
    for timestamp in (5, None):
        plan = OffsetCommitter().propose(sent(timestamp), TargetGroup(), empty)
        assert GroupCommit(POSITION, 70, noted(70, timestamp=timestamp)) == plan


def test_of_bounds_the_earlier_offset_is_committed() -> None:
    plan = OffsetCommitter().propose(sent(1_600), TargetGroup(), indexed([1_000, 2_000, 1_500, 4_000], interval=4))
    assert GroupCommit(POSITION, 0, noted(0, timestamp=1_600)) == plan


def test_a_group_is_never_moved_backwards() -> None:
    assert declined(DeclineReason.NOT_AHEAD) == planned(1_700, TargetGroup(committed=27))
    assert declined(DeclineReason.NOT_AHEAD) == planned(1_700, TargetGroup(committed=26))
    assert declined(DeclineReason.NOT_AHEAD) == planned(None, TargetGroup(committed=25))
    assert GroupCommit(POSITION, 26, noted(26)) == planned(1_700, TargetGroup(committed=25))


def test_a_group_at_0_is_a_group_with_a_commit() -> None:
    log = indexed([1_000])
    assert declined(DeclineReason.NOT_AHEAD) == OffsetCommitter().propose(sent(None), TargetGroup(committed=0), log)


def test_an_active_group_is_never_touched() -> None:
    assert declined(DeclineReason.ACTIVE_GROUP) == planned(1_700, TargetGroup(active=True))
    assert declined(DeclineReason.ACTIVE_GROUP) == planned(1_700, TargetGroup(active=True, committed=3))


def test_the_committers_own_envelope_is_replaced() -> None:
    assert GroupCommit(POSITION, 26, noted(26)) == planned(1_700, TargetGroup(False, 25, noted(25, timestamp=3)))


def test_foreign_metadata_is_never_overwritten() -> None:
    assert declined(DeclineReason.FOREIGN_METADATA) == planned(1_700, TargetGroup(False, 25, "AgAAAYvPxWAA"))
    assert declined(DeclineReason.FOREIGN_METADATA) == planned(1_700, TargetGroup(False, 25, noted(25, foreign="Ag")))


def test_foreign_metadata_is_kept_in_front_if_that_was_asked_for() -> None:
    kept = planned(1_700, TargetGroup(False, 25, noted(25, foreign="Ag")), keep_foreign=True)
    assert GroupCommit(POSITION, 26, noted(26, foreign="Ag")) == kept


def test_foreign_metadata_that_leaves_no_room_stays_as_it_is() -> None:
    full = "x" * 4_090
    assert declined(DeclineReason.METADATA_TOO_LONG) == planned(1_700, TargetGroup(False, 25, full), keep_foreign=True)
    assert declined(DeclineReason.METADATA_TOO_LONG) == planned(1_700, max_metadata_bytes=1)
    assert GroupCommit(POSITION, 26, noted(26)) == planned(1_700, max_metadata_bytes=len(noted(26)))


def test_foreign_metadata_that_no_string_can_hold_stays_as_it_is() -> None:
    assert declined(DeclineReason.METADATA_NOT_UTF8) == planned(
        1_700, TargetGroup(False, 25, "\ud800"), keep_foreign=True
    )


def test_an_unreadable_envelope_on_the_target_is_not_overwritten() -> None:
    assert declined(DeclineReason.UNREADABLE_METADATA) == planned(1_700, TargetGroup(False, 25, noted(25)[:-1]))


def test_an_offset_that_a_vector_told_replaces_the_lookup_and_no_other_rule() -> None:
    committer = OffsetCommitter()
    assert GroupCommit(POSITION, 28, noted(28)) == committer.propose(sent(1_700), TargetGroup(), LOG, offset=28)
    for group, reason in (
        (TargetGroup(committed=28), DeclineReason.NOT_AHEAD),
        (TargetGroup(active=True), DeclineReason.ACTIVE_GROUP),
        (TargetGroup(metadata="Ag"), DeclineReason.FOREIGN_METADATA),
    ):
        assert declined(reason) == committer.propose(sent(1_700), group, LOG, offset=28)


def test_a_timestamp_that_was_declined_can_be_planned_again() -> None:
    """Everything is in the arguments, so nothing has to be undone."""
    assert declined(DeclineReason.ACTIVE_GROUP) == planned(1_700, TargetGroup(active=True))
    assert planned(1_700) == planned(1_700, TargetGroup())


def test_a_log_that_grew_takes_the_group_further() -> None:
    log = indexed([1_000, 2_000])
    first = OffsetCommitter().propose(sent(3_500), TargetGroup(), log)
    assert isinstance(first, GroupCommit)
    log.append(2, 3_000)
    again = OffsetCommitter().propose(sent(3_500), TargetGroup(False, first.offset, first.metadata), log)
    assert isinstance(again, GroupCommit)
    assert (2, 3) == (first.offset, again.offset)


def test_a_group_that_moved_can_move_back() -> None:
    """Its own commits on the target carry no envelope, so they are fresh there and travel to where it came from."""
    origin, target = indexed([1_000, 2_000, 3_000, 4_000]), indexed([2_000, 3_000, 4_000])
    there = OffsetCommitter().propose(sent(2_500), TargetGroup(), target)
    assert isinstance(there, GroupCommit)
    assert declined(DeclineReason.ALREADY_DISTRIBUTED) == EXACT.translate(there, target)
    back = EXACT.translate(GroupCommit(POSITION, 3), target)
    assert sent(4_000) == back
    assert GroupCommit(POSITION, 3, noted(3, timestamp=4_000)) == OffsetCommitter().propose(
        sent(4_000), TargetGroup(committed=2), origin
    )


# Margins


def test_the_required_margin_reaches_back_to_the_oldest_unprocessed_record() -> None:
    assert 90 == required_margin(1_000, iter([1_500, 910, 999]))


def test_no_margin_is_required_if_nothing_unprocessed_is_older() -> None:
    assert [0, 0, 0] == [required_margin(1_000, older) for older in ([], [1_000], [1_001, 5_000])]


def test_a_planned_margin_is_the_sum_of_what_can_go_wrong() -> None:
    assert 272_000 == margin_for(lag_ms=120_000, outage_ms=150_000, skew_ms=2_000)
    assert 5 == margin_for(lag_ms=5)


# Values and misuse


@pytest.mark.parametrize(
    "value",
    [
        POSITION,
        GroupCommit(POSITION, 3, "m"),
        sent(5),
        TargetGroup(True, 3),
        EXACT,
        OffsetCommitter(),
        declined(DeclineReason.NOT_AHEAD),
    ],
    ids=lambda value: type(value).__name__,
)
def test_everything_is_a_value(value: Any) -> None:
    again = pickle.loads(pickle.dumps(value))  # noqa: S301 - our own
    assert (value, hash(value)) == (again, hash(again))
    assert not hasattr(value, "__dict__")
    with pytest.raises(FrozenInstanceError):
        setattr(value, fields(value)[0].name, None)


def test_positions_sort_by_topic_partition_and_group() -> None:
    positions = [GroupPartition("b", 0, "a"), GroupPartition("a", 10, "a"), GroupPartition("a", 2, "b")]
    assert positions[::-1] == sorted(positions)


OFFSET = "be an int from 0 up to 63 bits"
NAME = "be a non-empty str"
TIMESTAMP = "be an int of at most 63 bits and a sign, or None"


@pytest.mark.parametrize(
    ("call", "arguments", "error"),
    [
        (GroupPartition, ("", 0, "g"), ArgumentError("topic", "", NAME)),
        (GroupPartition, ("t", 0, b"g"), ArgumentError("group", b"g", NAME)),
        (GroupPartition, ("t", -1, "g"), ArgumentError("partition", -1, "be an int of at least 0")),
        (GroupPartition, ("t", True, "g"), ArgumentError("partition", True, "be an int of at least 0")),
        (GroupCommit, (("t", 0, "g"), 1), ArgumentError("position", ("t", 0, "g"), "be a GroupPartition")),
        (GroupCommit, (POSITION, -1), ArgumentError("offset", -1, OFFSET)),
        (GroupCommit, (POSITION, (1 << 63) + 1), ArgumentError("offset", (1 << 63) + 1, OFFSET)),
        (GroupCommit, (POSITION, 1, None), ArgumentError("metadata", None, "be a str")),
        (GroupTimestamp, (None, 1, CopyFlags()), ArgumentError("position", None, "be a GroupPartition")),
        (GroupTimestamp, (POSITION, 1.5, CopyFlags()), ArgumentError("timestamp_epoch_ms", 1.5, TIMESTAMP)),
        (
            GroupTimestamp,
            (POSITION, -(1 << 63) - 1, CopyFlags()),
            ArgumentError("timestamp_epoch_ms", -(1 << 63) - 1, TIMESTAMP),
        ),
        (GroupTimestamp, (POSITION, 1 << 63, CopyFlags()), ArgumentError("timestamp_epoch_ms", 1 << 63, TIMESTAMP)),
        (GroupTimestamp, (POSITION, 1, 1), ArgumentError("flags", 1, "be a CopyFlags")),
        (TargetGroup, (1,), ArgumentError("active", 1, "be a bool")),
        (TargetGroup, (False, -1), ArgumentError("committed", -1, OFFSET)),
        (TargetGroup, (False, 1, b""), ArgumentError("metadata", b"", "be a str")),
        (OffsetDistributor, (0,), ArgumentError("level", 0, "be an int from 1 to 2048")),
        (OffsetDistributor, (1, -1), ArgumentError("margin_ms", -1, "be an int of at least 0")),
        (OffsetDistributor, (1, 1.0), ArgumentError("margin_ms", 1.0, "be an int of at least 0")),
        (OffsetCommitter, (1,), ArgumentError("keep_foreign", 1, "be a bool")),
        (OffsetCommitter, (False, 0), ArgumentError("max_metadata_bytes", 0, "be an int of at least 1")),
        (required_margin, ("1", []), ArgumentError("last_processed_epoch_ms", "1", "be an int")),
        (required_margin, (1, [0, None]), ArgumentError("unprocessed_epoch_ms", None, "be an int")),
    ],
)
def test_a_bad_argument_is_named(
    call: Callable[..., object], arguments: tuple[object, ...], error: ArgumentError
) -> None:
    with pytest.raises(ArgumentError) as caught:
        call(*arguments)
    assert error.args == caught.value.args


def test_a_log_may_be_full() -> None:
    last = (1 << 63) - 1
    log = OffsetIndex(start=last)
    log.append(last, 7)
    end = OffsetCommitter().propose(GroupTimestamp(POSITION, 8, CopyFlags(1)), TargetGroup(), log)

    assert isinstance(end, GroupCommit)
    assert 1 << 63 == log.end == end.offset
    assert end == OffsetCommitter().propose(
        GroupTimestamp(POSITION, 8, CopyFlags(1)), TargetGroup(), log, offset=log.end
    )
    again = OffsetCommitter().propose(GroupTimestamp(POSITION, 8, CopyFlags(1)), TargetGroup(False, end.offset), log)
    assert Declined(POSITION, DeclineReason.NOT_AHEAD) == again
    assert OffsetDistributor().translate(GroupCommit(POSITION, end.offset), log) == GroupTimestamp(
        POSITION, 7 - 60_000, CopyFlags(1)
    )


@pytest.mark.parametrize("parameter", ["lag_ms", "outage_ms", "skew_ms"])
@pytest.mark.parametrize("value", [-1, 1.0, True])
def test_a_planned_margin_takes_whole_milliseconds(parameter: str, value: float) -> None:
    with pytest.raises(ArgumentError, match=parameter):
        margin_for(**{"lag_ms": 1, parameter: value})  # type: ignore[arg-type]  # the point of the test


@pytest.mark.parametrize("offset", [-1, True, "3"])
def test_an_offset_of_a_vector_is_checked_before_anything_else(offset: object) -> None:
    with pytest.raises(ArgumentError, match="offset is"):
        OffsetCommitter().propose(sent(1), TargetGroup(active=True), LOG, offset=offset)  # type: ignore[arg-type]  # the point


def test_the_envelope_says_what_was_committed() -> None:
    commit = planned(1_700)
    assert isinstance(commit, GroupCommit)
    parsed = parse_metadata(commit.metadata)
    assert not isinstance(parsed, str)
    assert OffsetEnvelope(CopyFlags(0b1), 1_700, commit.offset) == parsed.envelope
