"""Moving consumer groups between clusters: a commit becomes a timestamp on one cluster and an offset on another.

Offsets of one topic differ between clusters; the records are the same. So an `OffsetDistributor` next to the origin
translates a commit into the timestamp of the last processed record, less a margin, and an `OffsetCommitter` next to the
target commits the first offset whose timestamp is at least that. Both are values that read and keep nothing, and return
what to do, or why nothing is to be done.

That loses nothing as long as no record that is still to be processed is older than the margin allows: see
`required_margin` and `margin_for`. Where records carry their origin, a `keyshared.offsets.ProvenanceVector` needs
neither clock nor margin; the committer takes its offset by the same rules.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Protocol

from keyshared._checks import (
    OFFSET_STOP,
    check_bool,
    check_int,
    check_kind,
    check_log_position,
    check_members,
    check_several,
    check_text,
    check_timestamp,
    configuration,
)
from keyshared.copyflags import CopyFlags
from keyshared.offsets.commit_metadata import (
    MAX_METADATA_BYTES,
    CommitMetadata,
    MetadataProblem,
    OffsetEnvelope,
    compose_metadata,
    parse_metadata,
)
from keyshared.offsets.index import Bounds

__all__ = [
    "DEFAULT_MARGIN_MS",
    "DeclineReason",
    "Declined",
    "GroupCommit",
    "GroupPartition",
    "GroupTimestamp",
    "OffsetCommitter",
    "OffsetDistributor",
    "OffsetLookup",
    "TargetGroup",
    "margin_for",
    "required_margin",
]

DEFAULT_MARGIN_MS: Final = 60_000  # Axual's


class OffsetLookup(Protocol):
    """A partition's log as translation needs it. `keyshared.offsets.OffsetIndex` is one."""

    @property
    def start(self) -> int:
        """The log's first offset."""
        ...

    @property
    def end(self) -> int:
        """One past the log's last record."""
        ...

    def find_offset(self, timestamp_epoch_ms: int, /) -> Bounds:
        """Find the first offset whose timestamp is at least a given one; the log's end if there is none."""
        ...

    def find_timestamp(self, offset: int, /) -> Bounds | None:
        """Find the timestamp of the last record that is not above an offset, or else of the first record there is.

        None if there is no record at all.
        """
        ...


class DeclineReason(StrEnum):
    """Why a commit is not passed on, or not made. Nothing has changed; a later call may end otherwise."""

    ALREADY_DISTRIBUTED = "a committer wrote it, and it has crossed this level"
    EMPTY_LOG = "the origin's log holds no record that has a timestamp to tell"
    ACTIVE_GROUP = "the group has members on the target, and they commit for themselves"
    NOT_AHEAD = "the group is there already, or further"
    FOREIGN_METADATA = "the group's metadata on the target is state of another program, tied to its offset"
    UNREADABLE_METADATA = "the metadata has an envelope that cannot be read, so where it came from is not known"
    METADATA_TOO_LONG = "the envelope does not fit behind the metadata that is to be kept"
    METADATA_NOT_UTF8 = "the metadata that is to be kept is not UTF-8"


@dataclass(frozen=True, slots=True, order=True)
class GroupPartition:
    """The owner of a position: one consumer group in one partition of a topic."""

    topic: str
    partition: int
    group: str

    def __post_init__(self) -> None:
        check_text("topic", self.topic)
        check_text("group", self.group)
        check_int("partition", self.partition, 0)


@dataclass(frozen=True, slots=True)
class GroupCommit:
    """A committed offset: as read from the origin, or as it is to be committed on the target.

    Args:
        position: The group and partition.
        offset: The *next* offset to read, as in Kafka: the last processed record lies below it.
        metadata: The commit's own string.
    """

    position: GroupPartition
    offset: int
    metadata: str = ""

    def __post_init__(self) -> None:
        check_kind("position", self.position, GroupPartition)
        check_log_position("offset", self.offset)
        check_kind("metadata", self.metadata, str)


@dataclass(frozen=True, slots=True)
class GroupTimestamp:
    """The message between clusters; the newest one of a position replaces those before.

    Args:
        position: The group and partition.
        timestamp_epoch_ms: Nothing that the group has still to process is older, if the margin was enough. None for the
            beginning of the log.
        flags: The levels that it has crossed when it arrives.
    """

    position: GroupPartition
    timestamp_epoch_ms: int | None
    flags: CopyFlags

    def __post_init__(self) -> None:
        check_kind("position", self.position, GroupPartition)
        if self.timestamp_epoch_ms is not None:
            check_timestamp("timestamp_epoch_ms", self.timestamp_epoch_ms, ", or None")
        check_kind("flags", self.flags, CopyFlags)


@dataclass(frozen=True, slots=True)
class TargetGroup:
    """The state of the group on the target, as the host reads it just before.

    Args:
        active: Whether it has members there.
        committed: Its committed offset there, None if it has none.
        metadata: The metadata of that commit.
    """

    active: bool = False
    committed: int | None = None
    metadata: str = ""

    def __post_init__(self) -> None:
        check_bool("active", self.active)
        if self.committed is not None:
            check_log_position("committed", self.committed)
        check_kind("metadata", self.metadata, str)


@dataclass(frozen=True, slots=True)
class Declined:
    """Nothing is to be done about a commit or a timestamp of this position, for now, and why."""

    position: GroupPartition
    reason: DeclineReason


@dataclass(frozen=True, slots=True)
class OffsetDistributor:
    """Translates commits into timestamps, next to the origin's log. The latest commit of a position counts.

    Args:
        level: Its level in the distribution tree. With two clusters there is just one.
        margin_ms: How much older than the last processed record an unprocessed one may be; see `required_margin`.

    Source:
        Axual "Distribution model", Distributing offsets; differs: a commit is the next offset, so the record before it
        counts; a copy that is passed on keeps its timestamp, so that the margin is taken off once.

    Example:
        >>> from keyshared.offsets import OffsetIndex
        >>> log = OffsetIndex(start=25)  # 0 to 24 are deleted
        >>> for offset in range(25, 40):
        ...     log.append(offset, 1_000_000 + 1_000 * offset)
        >>> found = OffsetDistributor(level=1).translate(GroupCommit(GroupPartition("orders", 0, "billing"), 35), log)
        >>> found.timestamp_epoch_ms, found.flags
        (974000, CopyFlags(0b1))
    """

    level: int = 1
    margin_ms: int = DEFAULT_MARGIN_MS

    @configuration()
    def __post_init__(self) -> None:
        CopyFlags.bit(self.level)
        check_int("margin_ms", self.margin_ms, 0)

    def translate(self, commit: GroupCommit, log: OffsetLookup) -> GroupTimestamp | Declined:
        """Translate the latest commit of a position; ``log`` is the partition on this cluster. One look-up in the log.

        Returns:
            The message for this level's target. Its timestamp is that of the last processed record less the margin; of
            the earliest record that remains if that one is gone; None for a commit of 0, where nothing has been
            processed; or, if a committer made the commit, the one that it was made from. Otherwise the reason why
            nothing is sent: ALREADY_DISTRIBUTED, EMPTY_LOG or UNREADABLE_METADATA.
        """
        check_kind("commit", commit, GroupCommit)
        check_members("log", log, OffsetLookup)
        metadata = parse_metadata(commit.metadata)
        if isinstance(metadata, MetadataProblem):
            return Declined(commit.position, DeclineReason.UNREADABLE_METADATA)
        envelope = metadata.envelope
        # An envelope for another offset came along with a commit that the application has made since.
        if envelope is not None and envelope.offset == commit.offset:
            if not envelope.flags.is_due(self.level):
                return Declined(commit.position, DeclineReason.ALREADY_DISTRIBUTED)
            return GroupTimestamp(commit.position, envelope.timestamp_epoch_ms, envelope.flags.crossing(self.level))
        flags = CopyFlags.of(self.level)
        if not commit.offset:
            return GroupTimestamp(commit.position, None, flags)
        timestamp = log.find_timestamp(commit.offset - 1)
        if timestamp is None:
            return Declined(commit.position, DeclineReason.EMPTY_LOG)
        # No margin reaches back beyond the first timestamp there is.
        return GroupTimestamp(commit.position, max(-OFFSET_STOP, timestamp.low - self.margin_ms), flags)


@dataclass(frozen=True, slots=True)
class OffsetCommitter:
    """Turns timestamps into commits, next to the target's log.

    It never moves a group backwards, never touches one that has members, and never destroys what another program keeps
    in the metadata.

    Args:
        keep_foreign: Also move groups whose metadata holds what another program wrote, and keep that in front of the
            envelope. Off by default: such state may be relative to its offset (parallel-consumer's acked offsets are).
        max_metadata_bytes: What the target cluster takes.

    Source:
        Axual "Distribution model", Distributing offsets; the rules for groups are those of MirrorMaker 2.

    Example:
        >>> from keyshared.offsets import OffsetIndex
        >>> log = OffsetIndex()
        >>> for offset in range(15):  # its offset 0 is the origin's 25
        ...     log.append(offset, 1_000_000 + 1_000 * (25 + offset))
        >>> sent = GroupTimestamp(GroupPartition("orders", 0, "billing"), 1_034_000, CopyFlags(0b1))
        >>> OffsetCommitter().propose(sent, TargetGroup(), log).offset
        9
        >>> OffsetCommitter().propose(sent, TargetGroup(committed=12), log).reason.name
        'NOT_AHEAD'
    """

    keep_foreign: bool = False
    max_metadata_bytes: int = MAX_METADATA_BYTES

    @configuration()
    def __post_init__(self) -> None:
        check_bool("keep_foreign", self.keep_foreign)
        check_int("max_metadata_bytes", self.max_metadata_bytes, 1)

    def propose(
        self, sent: GroupTimestamp, group: TargetGroup, log: OffsetLookup, *, offset: int | None = None
    ) -> GroupCommit | Declined:
        """Decide what to commit, by one look-up. Call it again when a timestamp was declined, or the log has grown.

        Args:
            sent: The latest timestamp of the position.
            group: The state of the group here.
            log: The partition on this cluster.
            offset: Where to resume by a provenance vector; the timestamp is not looked up then. If the vector covers
                everything (it returns None), that is the log's end, not None.

        Returns:
            The commit to make; or the reason why there is none: ACTIVE_GROUP, NOT_AHEAD, FOREIGN_METADATA,
            UNREADABLE_METADATA, METADATA_TOO_LONG or METADATA_NOT_UTF8.
        """
        check_kind("sent", sent, GroupTimestamp)
        check_kind("group", group, TargetGroup)
        check_members("log", log, OffsetLookup)
        if offset is not None:
            check_log_position("offset", offset)
        if group.active:
            return Declined(sent.position, DeclineReason.ACTIVE_GROUP)
        found = _resume(sent.timestamp_epoch_ms, log) if offset is None else offset
        if group.committed is not None and found <= group.committed:
            return Declined(sent.position, DeclineReason.NOT_AHEAD)
        metadata = parse_metadata(group.metadata)
        if isinstance(metadata, MetadataProblem):
            return Declined(sent.position, DeclineReason.UNREADABLE_METADATA)
        return self._commit(sent, found, metadata)

    def _commit(self, sent: GroupTimestamp, offset: int, metadata: CommitMetadata) -> GroupCommit | Declined:
        if metadata.foreign and not self.keep_foreign:
            return Declined(sent.position, DeclineReason.FOREIGN_METADATA)
        envelope = OffsetEnvelope(sent.flags, sent.timestamp_epoch_ms, offset)
        text = compose_metadata(metadata.foreign, envelope, self.max_metadata_bytes)
        if isinstance(text, MetadataProblem):
            too_long = text is MetadataProblem.TOO_LONG
            return Declined(
                sent.position, DeclineReason.METADATA_TOO_LONG if too_long else DeclineReason.METADATA_NOT_UTF8
            )
        return GroupCommit(sent.position, offset, text)


def required_margin(last_processed_epoch_ms: int, unprocessed_epoch_ms: Iterable[int]) -> int:
    """Measure the margin that is enough for one translation, from the records themselves.

    A record that is still to be processed is passed over only if every record up to it on the target is older than the
    timestamp sent. So a margin that reaches from the last processed record back to the oldest unprocessed one is
    enough, in whatever order they lie on the target; and no smaller one is, should the oldest come first there. O(n), n
    timestamps.

    Args:
        last_processed_epoch_ms: Timestamp of the record just below the commit.
        unprocessed_epoch_ms: Timestamps, as they are on the target, of all records that the group has not processed:
            those above its commit, and those that have not reached the cluster it reads from. Records that lie behind
            the result may be left out.

    Example:
        >>> required_margin(1_000_000, [1_000_500, 910_000, 999_000])
        90000
        >>> required_margin(1_000_000, [1_000_500])
        0
    """
    last = check_int("last_processed_epoch_ms", last_processed_epoch_ms)
    given = check_several("unprocessed_epoch_ms", unprocessed_epoch_ms, "timestamps")
    margins = (last - check_int("unprocessed_epoch_ms", each) for each in given)
    return max(0, max(margins, default=0))


def margin_for(*, lag_ms: int, outage_ms: int = 0, skew_ms: int = 0) -> int:
    """Compute a margin in milliseconds that is enough for every translation, from the worst that is planned for.

    A record may be produced, wait out the longest outage and the longest lag, and so arrive after a younger one has
    been processed; skew makes it look older still.

    Args:
        lag_ms: Longest time from production to arrival at any cluster while all links work.
        outage_ms: Longest time that a link is down.
        skew_ms: Greatest difference between any two clocks that put timestamps on the topic's records: producers' for
            CreateTime, brokers' for LogAppendTime.

    Example:
        >>> margin_for(lag_ms=5_000, outage_ms=150_000, skew_ms=2_000)
        157000
    """
    for parameter, value in (("lag_ms", lag_ms), ("outage_ms", outage_ms), ("skew_ms", skew_ms)):
        check_int(parameter, value, 0)
    return lag_ms + outage_ms + skew_ms


def _resume(timestamp: int | None, log: OffsetLookup) -> int:
    return log.start if timestamp is None else log.find_offset(timestamp).low
