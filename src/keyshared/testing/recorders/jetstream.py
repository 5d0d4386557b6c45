"""Write down what a process does with a stream of NATS JetStream."""

from collections.abc import Callable
from typing import Any

from keyshared.testing.history import Acked, Delivered, Dropped, Nacked, Published
from keyshared.testing.recorders.log import Clock, Write, check_given, wall_clock_ms

__all__ = ["JetStreamRecorder"]


def _subject(subject: str) -> str:
    return subject


class JetStreamRecorder:
    """Is told of messages of JetStream, as nats-py has them: with ``subject`` and ``metadata``.

    The log is the stream, the offset the sequence in it, the attempt the number of deliveries, and the key what is made
    of the subject. Nobody tells that the wait for an ack is over: claim ``ack_timeout_ms``.

    Args:
        write: Where to.
        consumer: The name of this process among the consumers: a durable consumer may have several.
        key_of: Makes the key of a subject.
        clock: What time it is.
    """

    def __init__(
        self, write: Write, consumer: str, key_of: Callable[[str], str] = _subject, clock: Clock = wall_clock_ms
    ) -> None:
        check_given(write, consumer, clock=clock, key_of=key_of)
        self._write = write
        self._consumer = consumer
        self._key_of = key_of
        self._clock = clock

    def published(self, subject: str, ack: Any) -> None:  # noqa: ANN401  # no client is imported, here and below
        """Take what `publish` has returned: the confirmation with ``stream`` and ``seq``."""
        if not ack.duplicate:
            key = self._key_of(subject).encode()
            self._write(ack.stream, Published(offset=ack.seq, key=key, at_ms=self._clock()))

    def delivered(self, message: Any) -> None:  # noqa: ANN401
        """Take a message that has come, before it is handled."""
        key = self._key_of(message.subject).encode()
        self._write(message.metadata.stream, Delivered(**self._named(message), key=key))

    def acked(self, message: Any, *, counted: bool | None = None) -> None:  # noqa: ANN401
        """Take a message that was acked; ``counted`` if the server has confirmed that (``ack_sync``)."""
        self._write(message.metadata.stream, Acked(**self._named(message), counted=counted))

    def nacked(self, message: Any) -> None:  # noqa: ANN401
        """Take a message that was given back by ``nak``."""
        self._write(message.metadata.stream, Nacked(**self._named(message)))

    def termed(self, message: Any) -> None:  # noqa: ANN401
        """Take a message that was given up by ``term``: nobody gets it again."""
        offset = message.metadata.sequence.stream
        self._write(message.metadata.stream, Dropped(offset=offset, reason="term", at_ms=self._clock()))

    def _named(self, message: Any) -> dict[str, Any]:  # noqa: ANN401
        metadata = message.metadata
        named = {"offset": metadata.sequence.stream, "attempt": metadata.num_delivered}
        return {**named, "consumer": self._consumer, "at_ms": self._clock()}
