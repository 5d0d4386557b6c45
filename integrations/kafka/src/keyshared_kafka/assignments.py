"""The partitions that are assigned to this member: how far each was read, and how far it is committed."""

from collections import deque
from typing import Any

from confluent_kafka import Message, TopicPartition

from keyshared.cursor import ContiguousCursor
from keyshared.errors import SnapshotError
from keyshared.run.commit_token import read_token
from keyshared_kafka.records import fields, logger

__all__ = ["Assignment", "Row", "name_of", "token_of"]

Row = tuple[int, bytes | str | None, "Message[Any, Any]"] | tuple[int, bytes | str | None, "Message[Any, Any]", int]


class Assignment:
    """A partition from its assignment to this member until it is revoked or lost.

    Args:
        topic: Its topic.
        partition: Its number.
        committed: The offset that the group has committed; None if it has committed none.

    Attributes:
        position: Offset of the next message to read. None before the first message, if nothing was committed.
        committed: Position of the last commit; never decreases.
        token: Its token.
        end: Where the log ended when it was read to its end; None before.
        high_watermark: Where the log ends, as far as the client knows; None before.
        backlog: Messages that were read, and for which the runner has no capacity yet.
        unreadable: Why its next message cannot be handed over: the function of ``order`` has raised.
    """

    def __init__(self, topic: str, partition: int, committed: int | None) -> None:
        self.topic = topic
        self.partition = partition
        self.name = name_of(topic, partition)
        self.position = committed
        self.committed = -1 if committed is None else committed
        self.token = ""
        self.end: int | None = None
        self.high_watermark: int | None = None
        self.last_offset = self.committed - 1  # of the message that came last
        self.backlog: deque[Row] = deque()
        self.unreadable: Exception | None = None
        self.is_paused = False
        self.is_draining = False
        self.is_gone = False
        self.is_unknown = False  # its topic was deleted at the last commit

    def place(self, offset: int | None = None, metadata: str | None = None) -> TopicPartition:
        """Return the partition as the client names it."""
        if offset is None:
            return TopicPartition(self.topic, self.partition)
        if metadata is None:
            return TopicPartition(self.topic, self.partition, offset)
        return TopicPartition(self.topic, self.partition, offset, metadata)

    def offset_to_commit(self, position: int) -> int:
        """Return the offset to commit for a position.

        If all messages that were read are done, that is the end of the log: the last offsets may hold no message
        (transactions, compaction and trimming leave such offsets). A commit never goes back.
        """
        if self.end is not None and (self.position is None or position >= self.position):
            position = max(position, self.end)
        return max(position, self.committed)

    def is_behind(self) -> bool:
        """Whether a message that was read is not done and committed."""
        return self.position is not None and self.committed < self.position

    def lags(self) -> bool:
        """Whether all messages that were read are done and committed, and the end of the log is not."""
        read = -1 if self.position is None else self.position
        return self.end is not None and not self.is_unknown and read <= self.committed < self.end

    def log_end(self) -> int | None:
        """Return where the log ends, as far as it is known; at least the position."""
        known = [offset for offset in (self.position, self.end, self.high_watermark) if offset is not None]
        return max(known, default=None)


def name_of(topic: str, partition: int) -> str:
    """Return what the runner calls a partition."""
    return f"{topic}-{partition}"


def token_of(place: TopicPartition) -> str | None:
    """Return the token of a commit, or None if it cannot be used: then only the offset counts, and a record says so.

    A token below its offset is valid: the offset was moved over offsets that hold no message. A token above its offset
    is left over from before somebody has set the offset back.
    """
    text = place.metadata
    if not text:
        return None
    try:
        position = ContiguousCursor.from_token(read_token(text)[0]).resume_offset
    except SnapshotError as error:
        log = "%s: the commit's metadata is damaged or of another program; only the offset counts: %s"
        logger.warning(log, place, error, extra=_token_fields(place))
        return None
    if position is None or position > place.offset:
        log = "%s: the commit's metadata is for offset %s; only the committed offset counts"
        logger.warning(log, place, position, extra=_token_fields(place))
        return None
    return text


def _token_fields(place: TopicPartition) -> dict[str, object]:
    return fields("token_unreadable", name_of(place.topic, place.partition), offset=place.offset)
