"""What a runner reports to its operator: log records, and the messages that are stuck."""

from collections import OrderedDict
from typing import Any, Final, NamedTuple

__all__ = ["DEBUG", "ERROR", "INFO", "WARNING", "Report", "Stuck", "Timeline", "cause", "duration", "place"]

DEBUG: Final = 10  # the levels of `logging`
INFO: Final = 20
WARNING: Final = 30
ERROR: Final = 40

_MOST: Final = 100_000  # messages and keys that a timeline remembers; it returns no waiting times for others
SECOND_MS: Final = 1_000


class Report(NamedTuple):
    """One log record, before it is written.

    Attributes:
        level: As of `logging`.
        event: A stable name, such as "failed".
        text: The sentence after the place.
        fields: Everything that is known, by name: log, offset, key, attempt, failures, reason, and more.
        error: The exception to show with its traceback.
    """

    level: int
    event: str
    text: str
    fields: dict[str, Any]
    error: BaseException | None = None

    def __str__(self) -> str:
        """The line that is logged.

        Example:
            >>> print(Report(INFO, "failed", "failed", {"log": "orders", "offset": 7, "key": b"order-1", "attempt": 2}))
            orders[7] key=b'order-1' attempt 2: failed
        """
        log, offset, key = (self.fields.get(name) for name in ("log", "offset", "key"))
        attempt = self.fields.get("attempt")
        where = "" if log is None else place(log, offset, key)
        if attempt is not None:
            where += f" attempt {attempt}"
        return f"{where}: {self.text}" if where else self.text


class Stuck(NamedTuple):
    """A message that is not done, and the reason; printed as one line.

    Attributes:
        log: Its log.
        offset: Its offset.
        key: Its key.
        what: What it waits for, or that its handler runs, and for how long.
        age_ms: For how long that has been so.
        behind: How many messages of its key wait behind it.

    Example:
        >>> print(Stuck("orders-0", 17, b"order-7", "handler runs for 75 s", 75_000, 12))
        orders-0[17] key=b'order-7': handler runs for 75 s; 12 messages wait behind it
    """

    log: str
    offset: int
    key: bytes | None
    what: str
    age_ms: int
    behind: int

    @property
    def sentence(self) -> str:
        """The line without the place."""
        if not self.behind:
            return self.what
        many = "1 message waits" if self.behind == 1 else f"{self.behind} messages wait"
        return f"{self.what}; {many} behind it"

    def __str__(self) -> str:
        return f"{place(self.log, self.offset, self.key)}: {self.sentence}"


class Timeline:
    """When the messages of a log were submitted, and when their keys became free, for spans.

    Example:
        >>> timeline = Timeline()
        >>> timeline.submitted(7, now_ms=1_000)
        >>> timeline.freed(b"order-1", now_ms=1_200)
        >>> timeline.waits(7, b"order-1", now_ms=1_250)
        {'keyshared.wait_for_key_ms': 200, 'keyshared.wait_for_worker_ms': 50}
    """

    def __init__(self) -> None:
        self._submitted: OrderedDict[int, int] = OrderedDict()
        self._free: OrderedDict[bytes, int] = OrderedDict()

    def submitted(self, offset: int, *, now_ms: int) -> None:
        """Note that a message was submitted."""
        self._submitted[offset] = now_ms
        if len(self._submitted) > _MOST:
            self._submitted.popitem(last=False)

    def freed(self, key: bytes | None, *, now_ms: int) -> None:
        """Note that a handler of a key has ended."""
        if key is not None:
            self._free[key] = now_ms
            self._free.move_to_end(key)
            if len(self._free) > _MOST:
                self._free.popitem(last=False)

    def waits(self, offset: int, key: bytes | None, *, now_ms: int) -> dict[str, int]:
        """Return for how long a message has waited for its key and for a worker, or since its last attempt.

        The threads of handlers call this beside the engine: a single step on each dict needs no lock.
        """
        submitted = self._submitted.pop(offset, None)
        free = None if key is None else self._free.get(key)
        if submitted is None:
            return {} if free is None else {"keyshared.wait_for_retry_ms": now_ms - free}
        ready = submitted if free is None else max(submitted, free)
        return {"keyshared.wait_for_key_ms": ready - submitted, "keyshared.wait_for_worker_ms": now_ms - ready}


def place(log: str, offset: int | None = None, key: bytes | None = None) -> str:
    """Return where a message is, for people.

    Example:
        >>> place("orders-0", 17, b"order-7"), place("orders-0")
        ("orders-0[17] key=b'order-7'", 'orders-0')
    """
    where = log if offset is None else f"{log}[{offset}]"
    return where if key is None else f"{where} key={key!r}"


def cause(error: BaseException | None) -> str:
    """Return an exception as a log line shows it.

    Example:
        >>> cause(ValueError("broken")), cause(KeyError())
        ('ValueError: broken', 'KeyError')
    """
    if error is None:
        return "unknown"
    text = str(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def duration(ms: int) -> str:
    """Return a duration for people: exact below ten seconds, else in whole seconds.

    Example:
        >>> duration(1_250), duration(75_400)
        ('1.25 s', '75 s')
    """
    return f"{ms / 1_000:g} s" if ms < 10 * SECOND_MS else f"{ms // SECOND_MS} s"
