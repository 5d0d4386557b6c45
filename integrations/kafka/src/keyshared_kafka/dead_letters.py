"""Writes dead letters to a topic."""

from collections.abc import Mapping
from threading import Event, Lock
from typing import Any, Final

from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, KafkaError, KafkaException, Message, Producer

from keyshared.run import DeadLetter, StoppedError

__all__ = ["DeadLetterTopic", "headers_of"]

_POLL_S: Final = 0.1
_REASON_CHARACTERS: Final = 1_000  # headers count for the greatest size of a message


def headers_of(letter: "DeadLetter[Message[Any, Any]]", group: str) -> list[tuple[str, str | bytes | None]]:
    """Return the headers of a dead letter: those of its message, then its origin and the error.

    Example:
        >>> letter = DeadLetter("a-0", 7, None, Message("a", 0, 7, headers=[("h", b"1")]), 2, ValueError("no"))
        >>> headers = headers_of(letter, "billing")
        >>> headers[0], headers[-1]
        (('h', b'1'), ('keyshared.reason', b'ValueError: no'))
    """
    message, error = letter.message, letter.error
    reason = "an older message of its key is a dead letter" if error is None else _text_of(error)
    facts = {
        "topic": message.topic(),
        "partition": message.partition(),
        "offset": letter.offset,
        "group": group,
        "failures": letter.failures,
        "attempt": letter.attempt,
        "reason": reason[:_REASON_CHARACTERS],
    }
    headers: Any = message.headers() or []
    return [
        *headers,
        *((f"keyshared.{name}", str(fact).encode(errors="backslashreplace")) for name, fact in facts.items()),
    ]


def _text_of(error: BaseException) -> str:
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:  # noqa: BLE001 - the error's own __str__ may raise
        return type(error).__name__


class DeadLetterTopic:
    """A topic of dead letters.

    Args:
        topic: Its name.
        group: The consumer group, for a header.
        options: librdkafka configuration of the producer.
    """

    def __init__(self, topic: str, group: str, options: Mapping[str, Any]) -> None:
        self._topic = topic
        self._group = group
        self._producer = Producer(dict(options))
        self._lock = Lock()  # one poll at a time: a second one would wait for the first in the client
        self._closed = Event()

    def write(self, letter: "DeadLetter[Message[Any, Any]]") -> None:
        """Write a dead letter, and wait until the broker has confirmed it. Several threads may call this.

        Raises:
            KafkaException: The write has failed.
            StoppedError: `close` was called meanwhile.
        """
        with self._lock:
            self._write(letter)

    def close(self) -> None:
        """Wait for no confirmation any more."""
        self._closed.set()

    def _write(self, letter: "DeadLetter[Message[Any, Any]]") -> None:
        message = letter.message
        reports: list[KafkaError | None] = []
        kind, written_ms = message.timestamp()
        self._producer.produce(
            self._topic,
            message.value(),
            message.key(),
            on_delivery=lambda error, _: reports.append(error),
            headers=headers_of(letter, self._group),
            timestamp=0 if kind == TIMESTAMP_NOT_AVAILABLE else written_ms,  # 0: now
        )
        while not reports:
            if self._closed.is_set():
                raise StoppedError
            self._producer.poll(_POLL_S)
        if reports[0] is not None:
            raise KafkaException(reports[0])
