"""Write down what a process does with the partitions of Kafka."""

from collections.abc import Iterable
from typing import Any, Final

from keyshared.testing import history as h
from keyshared.testing.recorders.log import Clock, Write, check_given, wall_clock_ms

__all__ = ["KafkaRecorder"]

_ENDS: Final[dict[str, type[h.Dropped] | type[h.Skipped]]] = {"Dropped": h.Dropped, "Skipped": h.Skipped}


class KafkaRecorder:
    """Takes the calls of hooks of a Kafka client, with messages and partitions as confluent-kafka has them.

    The log is ``<topic>-<partition>``. A delivery begins when a message goes to its handler, and ends when the handler
    does, or when the partition is revoked. Deliveries are numbered as long as this process has the partition. The first
    one after an assignment follows a `Rewound`: claim ``rewinds``, as a group reads on from its cursor then.

    No hook tells of dead letters: where some are written, call `given_up`, or claim neither safe-cursor nor no-loss.
    How long a `RetryLater` puts a message off is not written: the next process that gets the partition need not know.

    The end of a handler names no delivery. When a message goes to a handler again after its partition was revoked, the
    next end is taken for that of the new delivery. So the old handler has to end first, as it does in this library's
    runners.

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
        self._begun: dict[str, set[int]] = {}  # of the partitions that this process has
        self._tries: dict[str, dict[int, int]] = {}  # how often what is not done went to its handler

    def published(self, error: object, message: Any) -> None:  # noqa: ANN401  # no client is imported, here and below
        """Take a message that the cluster has; as ``on_delivery`` of a producer."""
        if error is None:
            published = h.Published(offset=message.offset(), key=_key_of(message), at_ms=self._clock())
            self._write(_log_of(message.topic(), message.partition()), published)

    def begun(self, message: Any) -> None:  # noqa: ANN401
        """Take a message that goes to its handler."""
        log, offset = _log_of(message.topic(), message.partition()), message.offset()
        if log not in self._begun:
            self._write(log, h.Rewound(at_ms=self._clock()))
        self._begun.setdefault(log, set()).add(offset)
        tries = self._tries.setdefault(log, {})
        tries[offset] = tries.get(offset, 0) + 1
        self._write(log, h.Delivered(key=_key_of(message), **self._named(log, offset)))

    def ended(
        self,
        log: str,
        offsets: int | Iterable[int],
        raised: BaseException | None = None,
        ran_ms: int = 0,  # noqa: ARG002
    ) -> None:
        """Take the end of a handler; as `Hooks.ended` of this library's runners has it.

        What a runner does not count as a failure is none here: `RetryLater`, a cancellation or whatever else is no
        `Exception`, and for a batch an error that names none of its messages.

        Args:
            log: The log.
            offsets: Its message, or those of a batch in order.
            raised: What it raised.
            ran_ms: How long it ran.
        """
        batch = [offsets] if isinstance(offsets, int) else list(offsets)
        error: Any = raised
        done, behind = (len(batch), 0) if raised is None else (0, len(batch))
        if _is_a("PartlyDone", error):
            done, error, behind = error.done, error.error, 1
        for offset in batch[:done]:
            self._end(log, h.Acked(counted=True, **self._named(log, offset)))
            self._is_done(log, offset)
        for offset in batch[done : done + behind]:
            self._end(log, self._ended_badly(log, offset, error, is_clear=behind == 1))
        for offset in batch[done + behind :]:
            self._end(log, self._released(log, offset, "batch_broken"))

    def given_up(self, log: str, offset: int, reason: str | None = None) -> None:
        """Take a message that is done although its handler has failed: a dead letter is written, or nobody wants it."""
        self._is_done(log, offset)
        self._write(log, h.Dropped(offset=offset, reason=reason, at_ms=self._clock()))

    def noticed(self, log: str, effect: Any) -> None:  # noqa: ANN401
        """Take a notice of what was dropped or skipped; as `Hooks.noticed` of this library's runners has it."""
        kind = _ENDS.get(type(effect).__name__)
        if kind is not None:
            self._is_done(log, effect.offset)
            self._write(log, kind(offset=effect.offset, reason=str(effect.reason), at_ms=self._clock()))

    def committed(self, log: str, position: int, token: str = "") -> None:  # noqa: ARG002
        """Take a commit that was made; as `Hooks.committed` of this library's runners has it."""
        for offset in [each for each in self._tries.get(log, ()) if each < position]:
            self._is_done(log, offset)
        self._write(log, h.Committed(resume_offset=position, at_ms=self._clock()))

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
                self._write(log, self._released(log, offset, "revoked"))
            self._tries.pop(log, None)  # another process may have it before it comes back

    def _end(self, log: str, end: h.Acked | h.Nacked | h.Released) -> None:
        begun = self._begun.get(log, set())
        if end.offset in begun:  # or else it was revoked meanwhile
            begun.discard(end.offset)
            self._write(log, end)

    def _is_done(self, log: str, offset: int) -> None:
        self._tries.get(log, {}).pop(offset, None)

    def _named(self, log: str, offset: int) -> dict[str, Any]:
        attempt = self._tries.get(log, {}).get(offset)
        return {"offset": offset, "consumer": self._consumer, "attempt": attempt, "at_ms": self._clock()}

    def _ended_badly(self, log: str, offset: int, error: Any, *, is_clear: bool) -> h.Nacked | h.Released:  # noqa: ANN401
        reason = type(error).__name__
        is_excused = _is_a("RetryLater", error) or _is_a("NotAwaitedError", error)
        if is_clear and isinstance(error, Exception) and not is_excused:
            return h.Nacked(counted=True, reason=reason, **self._named(log, offset))
        return self._released(log, offset, reason)

    def _released(self, log: str, offset: int, reason: str) -> h.Released:
        return h.Released(reason=reason, **self._named(log, offset))


def _is_a(name: str, error: object) -> bool:
    """Return whether an exception is of that class: no runner is imported, so its classes are known by their names."""
    return name in {each.__name__ for each in type(error).__mro__}


def _log_of(topic: str, partition: int) -> str:
    return f"{topic}-{partition}"


def _key_of(message: Any) -> bytes | None:  # noqa: ANN401
    key: bytes | str | None = message.key()
    return key.encode() if isinstance(key, str) else key
