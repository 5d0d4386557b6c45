"""Reads messages again that were left in the log."""

from collections import deque
from collections.abc import Mapping, Sequence
from threading import Event, Lock
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from keyshared.run import StoppedError
from keyshared_kafka.failures import raise_unless_transient

__all__ = ["Reader"]

_POLL_S: Final = 0.1
_FAR: Final = 2_000  # offsets: reading over fewer is faster than another request to the broker


class Reader:
    """A second client: the position of the group's member is never moved.

    Args:
        options: Of the client, which is made when it is first needed.
    """

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._options = dict(options)
        self._consumer: Consumer | None = None
        self._lock = Lock()
        self._closed = Event()

    def load(self, log: str, offsets: Sequence[int]) -> "dict[int, Message[Any, Any] | None]":
        """Return the messages of these offsets; None for one that the log no longer has.

        Raises:
            KafkaException: The log cannot be read, or ends below an offset that it had.
            StoppedError: `close` was called meanwhile.
        """
        topic, _, partition = log.rpartition("-")
        with self._lock:
            if self._closed.is_set():
                raise StoppedError
            if self._consumer is None:
                self._consumer = Consumer(self._options)
            try:
                return self._read(self._consumer, topic, int(partition), deque(sorted(offsets)))
            finally:
                self._consumer.unassign()

    def close(self) -> None:
        """End a load that goes on, and the client."""
        self._closed.set()
        with self._lock:
            if self._consumer is not None:
                self._consumer.close()
                self._consumer = None

    def _read(
        self, consumer: Consumer, topic: str, partition: int, wanted: deque[int]
    ) -> "dict[int, Message[Any, Any] | None]":
        found: dict[int, Message[Any, Any] | None] = {}
        consumer.assign([TopicPartition(topic, partition, wanted[0])])
        while wanted:
            if self._closed.is_set():
                raise StoppedError
            message = consumer.poll(_POLL_S)
            if message is None or message.partition() != partition or message.topic() != topic:
                continue
            at = _offset_of(message, wanted)
            while wanted and wanted[0] < at:
                found[wanted.popleft()] = None
            if wanted and wanted[0] == at:
                found[wanted.popleft()] = message
            if wanted and wanted[0] - at > _FAR:
                consumer.seek(TopicPartition(topic, partition, wanted[0]))
        return found


def _offset_of(message: "Message[Any, Any]", wanted: deque[int]) -> int:
    """Return its offset, or that of the log's end; -1 for a transient error."""
    error, offset = message.error(), message.offset()
    if error is None:
        return -1 if offset is None else offset
    if error.code() != KafkaError._PARTITION_EOF:
        raise_unless_transient(message, error)
        return -1
    if offset is None or offset <= wanted[-1]:
        raise KafkaException(error)
    return offset
