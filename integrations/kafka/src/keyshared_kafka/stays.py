"""One stay of a partition at this member: how far it was read, and how far it is committed."""

from collections import deque
from typing import Any

from confluent_kafka import Message, TopicPartition

from keyshared.cursor import ContiguousCursor
from keyshared.errors import SnapshotError
from keyshared_kafka.records import fields, logger

__all__ = ["Row", "Stay", "name_of", "token_of"]

Row = tuple[int, bytes | str | None, "Message[Any, Any]"]


class Stay:
    """A partition from its assignment until it leaves.

    Args:
        topic: Its topic.
        partition: Its number.
        committed: The offset that the group has committed; None if it has committed none.

    Attributes:
        next_offset: No message below was left unread. None before the first message, if nothing was committed.
        committed: Position of the last commit; never goes back.
        end: Where the log ended when it was read to its end; None before.
        backlog: Messages that were read and found no room.
    """

    def __init__(self, topic: str, partition: int, committed: int | None) -> None:
        self.topic = topic
        self.partition = partition
        self.name = name_of(topic, partition)
        self.next_offset = committed
        self.committed = -1 if committed is None else committed
        self.end: int | None = None
        self.last_offset = self.committed - 1  # of the message that came last
        self.backlog: deque[Row] = deque()
        self.is_paused = False
        self.is_gone = False
        self.is_unknown = False  # its topic was deleted when it was to be committed last

    def place(self, offset: int | None = None, metadata: str | None = None) -> TopicPartition:
        """Name the partition to the client."""
        if offset is None:
            return TopicPartition(self.topic, self.partition)
        if metadata is None:
            return TopicPartition(self.topic, self.partition, offset)
        return TopicPartition(self.topic, self.partition, offset, metadata)

    def reached(self, position: int) -> int:
        """Return what to commit for a position.

        Where all that was read is done, that is the end of the log: it may end in offsets that hold no message
        (transactions leave such ones, compaction does, and trimming). A commit never goes back.
        """
        if self.end is not None and (self.next_offset is None or position >= self.next_offset):
            position = max(position, self.end)
        return max(position, self.committed)

    def is_behind(self) -> bool:
        """Whether something that was read is not done and committed."""
        return self.next_offset is not None and self.committed < self.next_offset

    def lags(self) -> bool:
        """Whether all that was read is done and committed, and the end of the log is not."""
        read = -1 if self.next_offset is None else self.next_offset
        return self.end is not None and not self.is_unknown and read <= self.committed < self.end


def name_of(topic: str, partition: int) -> str:
    """Return what the runner calls a partition."""
    return f"{topic}-{partition}"


def token_of(place: TopicPartition) -> str | None:
    """Return the token of a commit if it can be used: what cannot be read is logged, and the offset counts.

    A token below its offset is ours as well: the offset was lifted over offsets that hold no message. One above it was
    left behind when somebody has set the offset back.
    """
    text = place.metadata
    if not text:
        return None
    try:
        position = ContiguousCursor.from_token(text).resume_offset
    except SnapshotError as error:
        text = "%s: metadata of another program, or damaged; the offset counts: %s"
        logger.warning(text, place, error, extra=_token_fields(place))
        return None
    if position is None or position > place.offset:
        logger.warning("%s: a token for offset %s; the offset counts", place, position, extra=_token_fields(place))
        return None
    return text


def _token_fields(place: TopicPartition) -> dict[str, object]:
    return fields("token_unreadable", name_of(place.topic, place.partition), offset=place.offset)
