"""Reads dead letters back from their topic, to be handled again."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from keyshared.hashing import key_bytes
from keyshared.run import DeadLetter
from keyshared_kafka.assignments import name_of
from keyshared_kafka.failures import raise_unless_transient
from keyshared_kafka.settings import KeyOf

__all__ = ["DeadLetterReader", "original_of"]

_PREFIX: Final = "keyshared."
_REQUEST_S: Final = 10.0
_POLL_S: Final = 0.1


class DeadLetterReader:
    """Reads a topic of dead letters, each time as a whole.

    Args:
        options: librdkafka configuration of the client.
        topic: The topic.
        group: The consumer group that has written the dead letters.
        key_of: Returns the key by which a message is ordered.
    """

    def __init__(self, options: Mapping[str, Any], topic: str, group: str, key_of: KeyOf) -> None:
        self._options = dict(options)
        self._topic = topic
        self._group = group
        self._key_of = key_of

    def read(self, log: str, key: bytes | str | None) -> "list[DeadLetter[Message[Any, Any]]]":
        """Return the dead letters of a partition and a key, by offset; the last one of each offset.

        Raises:
            KafkaException: The topic cannot be read.
        """
        wanted = None if key is None else key_bytes(key)
        found: dict[int, DeadLetter[Message[Any, Any]]] = {}
        for message in self._messages():
            original, facts = original_of(message)
            if original is None or facts["group"] != self._group:
                continue
            if name_of(facts["topic"], int(facts["partition"])) != log:
                continue
            own = self._key_of(original)
            if (None if own is None else key_bytes(own)) == wanted:
                offset = int(facts["offset"])
                failures, attempt = int(facts["failures"]), int(facts["attempt"])
                found[offset] = DeadLetter(log, offset, wanted, original, failures, None, attempt)
        return [found[offset] for offset in sorted(found)]

    def _messages(self) -> "Iterator[Message[Any, Any]]":
        """Yield the messages of the topic, up to where it ends now."""
        consumer = Consumer(self._options)
        try:
            known = consumer.list_topics(self._topic, _REQUEST_S).topics[self._topic]
            if known.error is not None:
                raise KafkaException(known.error)
            left = set(known.partitions)
            consumer.assign([TopicPartition(self._topic, partition, 0) for partition in left])
            while left:
                message = consumer.poll(_POLL_S)
                if message is None:
                    continue
                error = message.error()
                if error is None:
                    yield message
                elif error.code() == KafkaError._PARTITION_EOF:
                    left.discard(message.partition() or 0)
                else:
                    raise_unless_transient(message, error)
        finally:
            consumer.close()


def original_of(message: "Message[Any, Any]") -> "tuple[Message[Any, Any] | None, dict[str, str]]":
    """Return the message that a dead letter was, and its facts; None for a message that is no dead letter.

    Example:
        >>> facts = [("keyshared." + name, b"7") for name in ("topic", "partition", "offset", "failures", "attempt")]
        >>> letter = Message("dlq", 0, 1, b"key", b"value", headers=[("h", b"1"), *facts, ("keyshared.group", b"g")])
        >>> original, facts = original_of(letter)
        >>> original.topic(), original.offset(), original.value(), original.headers(), facts["group"]
        ('7', 7, b'value', [('h', b'1')], 'g')
    """
    headers: Any = message.headers() or []
    facts = {
        name.removeprefix(_PREFIX): (value or b"").decode("utf-8", "replace")
        for name, value in headers
        if name.startswith(_PREFIX)
    }
    if not {"topic", "partition", "offset", "group", "failures", "attempt"} <= facts.keys():
        return None, facts
    original: Message[Any, Any] = Message(
        facts["topic"],
        int(facts["partition"]),
        int(facts["offset"]),
        message.key(),
        message.value(),
        headers=[(name, value) for name, value in headers if not name.startswith(_PREFIX)],
        timestamp=message.timestamp(),
    )
    return original, facts
