"""Write down what a process does with the partitions of Kafka."""

from collections.abc import Iterable
from typing import Any, Final

from keyshared.testing.history import Acked, Committed, Delivered, Dropped, Nacked, Published, Released, Skipped
from keyshared.testing.recorders.log import Clock, Write, check_given, wall_clock_ms

__all__ = ["KafkaRecorder"]

_ENDS: Final[dict[str, type[Dropped] | type[Skipped]]] = {"Dropped": Dropped, "Skipped": Skipped}


class KafkaRecorder:
    """Is told by the hooks of a client of Kafka, with messages and partitions as confluent-kafka has them.

    The log is ``<topic>-<partition>``. A delivery begins when a message goes to its handler, and ends when the handler
    does, or when the partition is revoked. No hook tells of dead letters: where some are written, tell `given_up`, or
    claim neither safe-cursor nor no-loss.

    Args:
        write: Where to.
        consumer: The name of this process in the group.
        clock: What time it is.
    """

    def __init__(self, write: Write, consumer: str, clock: Clock = wall_clock_ms) -> None:
        check_given(write, consumer, clock=clock)
        self._write = write
        self._consumer = consumer
        self._clock = clock
        self._begun: dict[str, set[int]] = {}

    def published(self, error: object, message: Any) -> None:  # noqa: ANN401  # no client is imported, here and below
        """Take a message that the cluster has; as ``on_delivery`` of a producer."""
        if error is None:
            published = Published(offset=message.offset(), key=_key_of(message), at_ms=self._clock())
            self._write(_log_of(message.topic(), message.partition()), published)

    def begun(self, message: Any) -> None:  # noqa: ANN401
        """Take a message that goes to its handler."""
        log, offset = _log_of(message.topic(), message.partition()), message.offset()
        self._begun.setdefault(log, set()).add(offset)
        self._write(log, Delivered(offset=offset, key=_key_of(message), consumer=self._consumer, at_ms=self._clock()))

    def ended(self, log: str, offset: int, raised: BaseException | None = None, ran_ms: int = 0) -> None:  # noqa: ARG002
        """Take the end of a handler; as `Hooks.ended` of this library's runners has it."""
        if offset not in self._begun.get(log, ()):
            return  # it was revoked meanwhile
        self._begun[log].discard(offset)
        if raised is None:
            self._write(log, Acked(offset=offset, consumer=self._consumer, at_ms=self._clock()))
        else:
            reason = type(raised).__name__
            self._write(log, Nacked(offset=offset, consumer=self._consumer, reason=reason, at_ms=self._clock()))

    def given_up(self, log: str, offset: int, reason: str | None = None) -> None:
        """Take a message that is done although its handler has failed: a dead letter is written, or nobody wants it."""
        self._write(log, Dropped(offset=offset, reason=reason, at_ms=self._clock()))

    def noticed(self, log: str, effect: Any) -> None:  # noqa: ANN401
        """Take a notice of what was dropped or skipped; as `Hooks.noticed` of this library's runners has it."""
        kind = _ENDS.get(type(effect).__name__)
        if kind is not None:
            self._write(log, kind(offset=effect.offset, reason=str(effect.reason), at_ms=self._clock()))

    def committed(self, log: str, position: int, token: str = "") -> None:  # noqa: ARG002
        """Take a commit that was made; as `Hooks.committed` of this library's runners has it."""
        self._write(log, Committed(resume_offset=position, at_ms=self._clock()))

    def on_commit(self, error: object, partitions: Iterable[Any]) -> None:
        """Take the answer of a commit; as ``on_commit`` of a consumer."""
        for each in partitions:
            if error is None and each.error is None and each.offset >= 0:
                self.committed(_log_of(each.topic, each.partition), each.offset)

    def on_revoke(self, consumer: object, partitions: Iterable[Any]) -> None:  # noqa: ARG002
        """Take partitions that the group has taken away, or lost; as ``on_revoke`` and ``on_lost`` of a consumer."""
        for each in partitions:
            log = _log_of(each.topic, each.partition)
            for offset in sorted(self._begun.pop(log, ())):
                released = Released(offset=offset, consumer=self._consumer, reason="revoked", at_ms=self._clock())
                self._write(log, released)


def _log_of(topic: str, partition: int) -> str:
    return f"{topic}-{partition}"


def _key_of(message: Any) -> bytes | None:  # noqa: ANN401
    key: bytes | str | None = message.key()
    return key.encode() if isinstance(key, str) else key
