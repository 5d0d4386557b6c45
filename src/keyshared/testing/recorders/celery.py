"""Write down what producers and workers of Celery do with the tasks of a queue."""

from collections import OrderedDict
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from functools import partial
from time import time_ns
from typing import Any, Final, NamedTuple

from keyshared.testing.history import Acked, Delivered, Dropped, Happening, Nacked, Published, Released
from keyshared.testing.recorders.log import Clock, Write, check_given, wall_clock_ms

__all__ = ["CeleryRecorder"]

_HEADER: Final = "keyshared_offset"
_REMEMBERED: Final = 1_000  # messages that may come again
_STILL_TO_DO: Final[Mapping[str | None, Callable[..., Happening]]] = {
    "RETRY": partial(Nacked, counted=True),
    "REJECTED": Released,
}


class _Run(NamedTuple):
    """The last one of a task in this process: which retry it was, and its number in the history, if it has one."""

    retries: int
    attempt: int | None


_FORGOTTEN: Final = _Run(0, None)


class CeleryRecorder:
    """Listens to the signals of Celery.

    The log is the routing key. Celery numbers neither messages nor deliveries, so whoever publishes a task gives it an
    offset in a header of its message, which a retry keeps. A retry that runs where the task ran before gets a number
    from the recorder, by Celery's count of retries: without one, its end might be that of the run before.

    Args:
        write: Where to.
        consumer: The name of this process among the workers; each child of a worker is one.
        key_of: Returns the key of a task by its arguments, or None if it has none.
        next_offset: Returns a greater number each time, over all producers; None: the nanoseconds of this machine's
            clock, which is enough for one producer.
        clock: What time it is.

    Example:
        >>> history = []
        >>> recorder = CeleryRecorder(lambda log, happening: history.append(happening), "w1", lambda args, _: args[0])
        >>> # recorder.listen(celery.signals)
    """

    def __init__(
        self,
        write: Write,
        consumer: str,
        key_of: Callable[[Sequence[Any], Mapping[str, Any]], str | bytes | None],
        next_offset: Callable[[], int] | None = None,
        clock: Clock = wall_clock_ms,
    ) -> None:
        number = self._by_time if next_offset is None else next_offset
        check_given(write, consumer, clock=clock, key_of=key_of, next_offset=number)
        self._write = write
        self._consumer = consumer
        self._key_of = key_of
        self._next_offset = number
        self._clock = clock
        self._last = 0
        self._runs: OrderedDict[int, _Run] = OrderedDict()

    def listen(self, signals: Any) -> None:  # noqa: ANN401  # no client is imported, here and below
        """Be told of all that this process publishes and works on from now on."""
        signals.before_task_publish.connect(self.numbered, weak=False)
        signals.after_task_publish.connect(self.published, weak=False)
        signals.task_prerun.connect(self.begun, weak=False)
        signals.task_postrun.connect(self.ended, weak=False)

    def numbered(self, headers: MutableMapping[str, Any], **_: Any) -> None:  # noqa: ANN401
        """Take a task that is about to be published, and put its offset into its headers."""
        if _HEADER not in headers:
            headers[_HEADER] = self._next_offset()

    def published(self, headers: Mapping[str, Any], body: Sequence[Any], routing_key: str, **_: Any) -> None:  # noqa: ANN401
        """Take a task that the broker has; a retry is still the message that it was."""
        if not headers["retries"]:
            happened = Published(offset=headers[_HEADER], key=self._key(body[0], body[1]), at_ms=self._clock())
            self._write(routing_key, happened)

    def begun(self, task: Any, args: Sequence[Any], kwargs: Mapping[str, Any], **_: Any) -> None:  # noqa: ANN401
        """Take a task that begins to run."""
        if (named := self._named(task)) is not None:
            run = self._runs[named["offset"]] = self._next_run(task, self._runs.pop(named["offset"], None))
            if len(self._runs) > _REMEMBERED:
                self._runs.popitem(last=False)
            self._write(_log_of(task), Delivered(**named, attempt=run.attempt, key=self._key(args, kwargs)))

    def ended(self, task: Any, state: str | None, **_: Any) -> None:  # noqa: ANN401
        """Take a task that has run: it is done, given up, or comes again."""
        named = self._named(task)
        if named is None:
            return
        run = self._runs.get(named["offset"], _FORGOTTEN)
        if state not in _STILL_TO_DO:
            self._runs.pop(named["offset"], None)
        if state == "SUCCESS":
            self._write(_log_of(task), Acked(**named, attempt=run.attempt))
        elif state in _STILL_TO_DO:
            self._write(_log_of(task), _STILL_TO_DO[state](**named, attempt=run.attempt))
        else:
            self._write(_log_of(task), Dropped(offset=named["offset"], reason=state, at_ms=named["at_ms"]))

    def _next_run(self, task: Any, before: "_Run | None") -> "_Run":  # noqa: ANN401
        """Number the retry of a run that was here. What the broker delivers again has no number: others may have it."""
        retries = getattr(task.request, "retries", None) or 0
        is_next = before is not None and before.retries == retries - 1
        is_numbered = is_next and not task.request.delivery_info.get("redelivered")
        return _Run(retries, retries + 1 if is_numbered else None)

    def _named(self, task: Any) -> dict[str, Any] | None:  # noqa: ANN401
        offset = (task.request.headers or {}).get(_HEADER)
        if offset is None:
            return None  # published by a process without a recorder
        return {"offset": offset, "consumer": self._consumer, "at_ms": self._clock()}

    def _key(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bytes | None:
        key = self._key_of(args, kwargs)
        return key.encode() if isinstance(key, str) else key

    def _by_time(self) -> int:
        self._last = max(self._last + 1, time_ns())
        return self._last


def _log_of(task: Any) -> str:  # noqa: ANN401
    log: str = task.request.delivery_info["routing_key"]
    return log
