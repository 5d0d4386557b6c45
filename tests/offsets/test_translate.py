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


ALREADY_DISTRIBUTED, EMPTY_LOG, ACTIVE, NOT_AHEAD, FOREIGN, UNREADABLE, TOO_LONG, NOT_UTF8 = map(
    declined, DeclineReason
)


def planned(timestamp: int | None, group: TargetGroup | None = None, **options: bool | int) -> GroupCommit | Declined:
    committer = OffsetCommitter(**options)  # type: ignore[arg-type]  # options of both types
    return committer.propose(sent(timestamp), TargetGroup() if group is None else group, LOG)


def noted(offset: int, *, flags: int = 0b1, timestamp: int | None = 1_700, foreign: str = "") -> str:
    text = compose_metadata(foreign, OffsetEnvelope(CopyFlags(flags), timestamp, offset))
    assert type(text) is str
    return text


# At the origin

COMPACTED = OffsetIndex(1)
for _offset in (3, 7, 20):
    COMPACTED.append(_offset, 100 * _offset)
COPIED = noted(28, flags=0b100, timestamp=1_234)
FARTHEST = (1 << 63) - 1


@pytest.mark.parametrize(
    ("expected", "found"),
    [
        pytest.param(expected, found, id=why)
        for why, expected, found in [
            ("a commit is the next offset, so the record before it counts", sent(1_500), translated(28)),
            ("also if the timestamps go back", sent(4_000), translated(29)),
            ("and at the end", sent(5_000), translated(30)),
            ("if that record was compacted, the last one below", sent(700), translated(20, log=COMPACTED)),
            ("however far below it is", sent(700), translated(12, log=COMPACTED)),
            ("and no record at or above the commit", sent(300), translated(7, log=COMPACTED)),
            ("if that record is gone, the commit's own", sent(1_000), translated(25)),
            ("if that is gone by retention, the earliest that remains", sent(1_000), translated(7)),
            ("a commit of 0 means the beginning", sent(None), translated(0)),
            ("also of an empty log", sent(None), translated(0, log=OffsetIndex())),
            ("a commit beyond the end counts as the end", sent(5_000), translated(99)),
            ("no record, no timestamp", EMPTY_LOG, translated(100, log=OffsetIndex(start=100))),
            ("of bounds the earlier", sent(1_000), translated(4, log=indexed([1_000, 2_000, 1_500, 4_000], 4))),
            ("a commit of the committer's own is not sent", ALREADY_DISTRIBUTED, translated(28, noted(28))),
            ("a copy is sent at lower levels, margin taken off once", sent(1_234, 0b101), translated(28, COPIED)),
            ("not at its own level", ALREADY_DISTRIBUTED, translated(28, COPIED, level=3)),
            ("nor at a higher one", ALREADY_DISTRIBUTED, translated(28, COPIED, level=4)),
            (
                "a copy of the beginning stays the beginning",
                sent(None, 0b101),
                translated(28, noted(28, flags=0b100, timestamp=None)),
            ),
            ("an envelope of another offset was carried along", sent(4_000), translated(29, noted(28))),
            ("foreign metadata is not read", sent(4_000), translated(29, "AgAAAYvPxWAA")),
            ("an unreadable envelope is no fresh commit", UNREADABLE, translated(29, noted(29)[:-1])),
        ]
    ],
)
def test_a_commit_becomes_a_timestamp(expected: GroupTimestamp | Declined, found: GroupTimestamp | Declined) -> None:
    assert expected == found


@pytest.mark.parametrize(("margin", "timestamp"), [(100, 3_900), (FARTHEST, 4_001 - (1 << 63))])
def test_the_margin_is_taken_off_and_may_reach_below_any_timestamp(margin: int, timestamp: int) -> None:
    assert sent(timestamp) == OffsetDistributor(margin_ms=margin).translate(GroupCommit(POSITION, 29), LOG)


# At the target


def group_at(committed: int, metadata: str = "") -> TargetGroup:
    return TargetGroup(committed=committed, metadata=metadata)


def proposed(timestamp: int | None, log: OffsetIndex, committed: int | None = None) -> GroupCommit | Declined:
    return OffsetCommitter().propose(sent(timestamp), TargetGroup(committed=committed), log)


def vector_told(group: TargetGroup) -> GroupCommit | Declined:
    return OffsetCommitter().propose(sent(1_700), group, LOG, offset=28)


def commit(offset: int, **envelope: Any) -> GroupCommit:
    return GroupCommit(POSITION, offset, noted(offset, **envelope))


FULL, OWN_FOREIGN = "x" * 4_090, noted(25, foreign="Ag")


@pytest.mark.parametrize(
    ("expected", "found"),
    [
        pytest.param(expected, found, id=why)
        for why, expected, found in [
            ("the first offset at or after the timestamp", commit(26), planned(1_700)),
            ("below all", commit(25, timestamp=999), planned(999)),
            ("one that goes back does not count", commit(26, timestamp=1_001), planned(1_001)),
            ("nor one between", commit(28, timestamp=2_001), planned(2_001)),
            ("none so young: the end", commit(30, timestamp=5_001), planned(5_001)),
            ("the beginning is the first there is", commit(25, timestamp=None), planned(None)),
            ("an empty target gets its end", commit(70, timestamp=5), proposed(5, OffsetIndex(start=70))),
            ("also for the beginning", commit(70, timestamp=None), proposed(None, OffsetIndex(start=70))),
            (
                "of bounds the earlier",
                commit(0, timestamp=1_600),
                proposed(1_600, indexed([1_000, 2_000, 1_500, 4_000], 4)),
            ),
            ("a group is never moved backwards", NOT_AHEAD, planned(1_700, group_at(27))),
            ("nor to where it is", NOT_AHEAD, planned(1_700, group_at(26))),
            ("nor to the beginning", NOT_AHEAD, planned(None, group_at(25))),
            ("only forwards", commit(26), planned(1_700, group_at(25))),
            ("a group at 0 has a commit", NOT_AHEAD, proposed(None, indexed([1_000]), 0)),
            ("an active group is never touched", ACTIVE, planned(1_700, TargetGroup(active=True))),
            ("nor one behind", ACTIVE, planned(1_700, TargetGroup(active=True, committed=3))),
            ("an own envelope is replaced", commit(26), planned(1_700, group_at(25, noted(25, timestamp=3)))),
            ("foreign metadata is not overwritten", FOREIGN, planned(1_700, group_at(25, "AgAAAYvPxWAA"))),
            ("nor in front of an envelope", FOREIGN, planned(1_700, group_at(25, OWN_FOREIGN))),
            (
                "it is kept if that was asked for",
                commit(26, foreign="Ag"),
                planned(1_700, group_at(25, OWN_FOREIGN), keep_foreign=True),
            ),
            ("if the envelope fits", TOO_LONG, planned(1_700, group_at(25, FULL), keep_foreign=True)),
            ("as it must anyway", TOO_LONG, planned(1_700, max_metadata_bytes=1)),
            ("to the last byte", commit(26), planned(1_700, max_metadata_bytes=len(noted(26)))),
            ("what is no UTF-8 stays", NOT_UTF8, planned(1_700, group_at(25, "\ud800"), keep_foreign=True)),
            ("an unreadable envelope stays", UNREADABLE, planned(1_700, group_at(25, noted(25)[:-1]))),
            ("an offset of a vector replaces the look-up", commit(28), vector_told(TargetGroup())),
            ("but no rule: ahead", NOT_AHEAD, vector_told(group_at(28))),
            ("but no rule: active", ACTIVE, vector_told(TargetGroup(active=True))),
            ("but no rule: foreign", FOREIGN, vector_told(TargetGroup(metadata="Ag"))),
        ]
    ],
)
def test_a_timestamp_becomes_a_commit(expected: GroupCommit | Declined, found: GroupCommit | Declined) -> None:
    assert expected == found


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
