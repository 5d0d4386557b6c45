"""How the kit operates a broker: one small class connects any broker with the search that tries to break it.

Five methods are needed: connect, disconnect, publish, receive, ack. The others are abilities that a broker may have. An
ability that a driver does not override is not tried, and promises that only it could show are reported as not judged.
"""

import sys
import threading
import time
from asyncio import AbstractEventLoop, all_tasks, gather
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Final, cast

from keyshared.testing._arguments import check_class, check_kind
from keyshared.testing.errors import UnsupportedError
from keyshared.testing.history import Event

__all__ = [
    "ABILITIES",
    "AnyDriver",
    "AsyncDriver",
    "Delivery",
    "Driver",
    "abilities",
    "checked_abilities",
    "in_loop",
    "wait_for_threads",
]


@dataclass(frozen=True, slots=True)
class Delivery:
    """A message as a consumer gets it.

    Attributes:
        offset: Which message: what `Driver.publish` has returned for it, also if the broker gave it a new id since.
        key: Its key, or None if it has none.
        attempt: Number of this delivery among those of the message; None in a system that does not number them: the kit
            then counts them itself.
        token: What the broker needs with the answer: a receipt handle, a lease. The kit keeps it and does not look at
            it.
    """

    offset: int
    key: bytes | str | None
    attempt: int | None = None
    token: object = None


class Driver:
    """Operates one fresh broker. Every method returns when the broker has done all that it does at once.

    A search builds many drivers, one for each try: ``__init__`` starts a broker, `close` stops it. Nothing of an
    earlier one may be left. What a broker does late, on a timer, it does in `advance`.

    Attributes:
        takes_filters: Whether a consumer can say which keys it wants.
        remembers_acks: Whether messages that were acked above the cursor stay acked after `restart`. If not, the broker
            may deliver them again.
        resumes_at_cursor: Whether the broker reads on from its cursor whenever a consumer joins or leaves, as a Kafka
            consumer group does. Messages that were acked above the cursor may then be delivered again, and deliveries
            that are open need not be answered for any more. A handler that is stopped is reported as `Released`.

    Example:
        >>> class OneConsumer(Driver):
        ...     def __init__(self):
        ...         self.log, self.unread = [], []
        ...     def connect(self, consumer, filters=()): ...
        ...     def disconnect(self, consumer): ...
        ...     def publish(self, key):
        ...         self.log.append(key)
        ...         self.unread.append(Delivery(len(self.log) - 1, key))
        ...         return len(self.log) - 1
        ...     def receive(self, consumer):
        ...         deliveries, self.unread = self.unread, []
        ...         return deliveries
        ...     def ack(self, consumer, delivery):
        ...         return None
        >>> sorted(abilities(OneConsumer))
        []
        >>> OneConsumer().nack("c1", Delivery(0, b"key"))
        Traceback (most recent call last):
        keyshared.testing.errors.UnsupportedError: OneConsumer cannot nack; override it if the broker can
    """

    takes_filters: ClassVar[bool] = False
    remembers_acks: ClassVar[bool] = True
    resumes_at_cursor: ClassVar[bool] = False

    def connect(self, consumer: str, filters: Sequence[str] = ()) -> None:
        """Add a consumer.

        Args:
            consumer: Its name; it is not connected, but it may have been before.
            filters: Patterns of the keys that it wants, all if there are none. Only if `takes_filters`.
        """
        raise UnsupportedError(type(self).__name__, "connect")

    def disconnect(self, consumer: str) -> None:
        """Remove a consumer, or cut its connection: it answers nothing any more, and its name may come again."""
        raise UnsupportedError(type(self).__name__, "disconnect")

    def publish(self, key: bytes | None) -> int:
        """Append a message with a key, or with none, to the log; return its offset, greater than all before."""
        raise UnsupportedError(type(self).__name__, "publish")

    def publish_many(self, keys: Sequence[bytes | None]) -> Sequence[int]:
        """Append messages with these keys to the log in one call; return their offsets, which rise."""
        raise UnsupportedError(type(self).__name__, "publish_many")

    def receive(self, consumer: str) -> Sequence[Delivery]:
        """Read what was delivered to a consumer since the last call, in order. Never waits.

        In a broker that is asked: ask for as much as the consumer, which is connected, may have.
        """
        raise UnsupportedError(type(self).__name__, "receive")

    def receive_some(self, consumer: str, most: int) -> Sequence[Delivery]:
        """Ask for a few messages only, at least one, as `receive` asks for as many as the consumer may have.

        For a broker that is asked. What a broker has pushed to a consumer is out already, however little of it is read:
        leave this method out then.
        """
        raise UnsupportedError(type(self).__name__, "receive_some")

    def ack(self, consumer: str, delivery: Delivery) -> bool | None:
        """Report that a message is processed. The report may be late: the delivery may be long over.

        Args:
            consumer: Who had it; it may have left.
            delivery: What it had got.

        Returns:
            Whether the broker took this as the end of the message; None: it does not say.
        """
        raise UnsupportedError(type(self).__name__, "ack")

    def nack(self, consumer: str, delivery: Delivery) -> bool | None:
        """Hand back a delivery, as `ack`; return whether the broker took this as its end, or None."""
        raise UnsupportedError(type(self).__name__, "nack")

    def ack_through(self, consumer: str, delivery: Delivery) -> bool | None:
        """Report that a message and all older ones of its key that the consumer has are processed, as `ack`."""
        raise UnsupportedError(type(self).__name__, "ack_through")

    def postpone(self, consumer: str, delivery: Delivery, ms: int) -> bool | None:
        """Hand back a delivery that has not failed, as `nack`; it comes when ``ms`` milliseconds have passed."""
        raise UnsupportedError(type(self).__name__, "postpone")

    def publish_later(self, key: bytes | None, ms: int) -> int:
        """Append a message, as `publish`, that is not delivered before ``ms`` milliseconds have passed."""
        raise UnsupportedError(type(self).__name__, "publish_later")

    def advance(self, ms: int) -> None:
        """Move time on by so many milliseconds, all at once, and run what the broker has due then.

        A clock goes on while a broker is dead: if it is killed in this call, what has become due runs after `restart`.
        """
        raise UnsupportedError(type(self).__name__, "advance")

    def cursor(self) -> int | None:
        """Return the offset from which the broker would read on after a crash; None: from the beginning."""
        raise UnsupportedError(type(self).__name__, "cursor")

    def restart(self) -> None:
        """Crash and come back from what is stored. All consumers are gone; they connect again.

        What `notices` has not handed over yet, and is still true, it says again after this.
        """
        raise UnsupportedError(type(self).__name__, "restart")

    def kill_at(self, statement: int) -> None:
        """Have the broker's process killed (as by ``kill -9``) just before a statement that it is going to do.

        A statement is whatever the driver can count: a line of code, a write, a system call. The call in which it
        happens raises `KilledError`. In any case `restart` is called next: it kills what is still alive, and what was
        not reached is forgotten. For drivers that have `restart`.

        Args:
            statement: Which one from now on, from 1.
        """
        raise UnsupportedError(type(self).__name__, "kill_at")

    def begin_receive(self, consumer: str, statements: int) -> object:
        """Begin a `receive`, and let it stand still half-way: in a thread, in a transaction, or stopped by SIGSTOP.

        Others receive, publish and answer meanwhile; nobody comes or goes, and no time passes. For drivers that have
        `finish_receive`.

        Args:
            consumer: Its name; it is connected. Meanwhile it receives nothing else, and may answer for what it has.
            statements: After how many of its statements it stands still, from 1. All of them: only the answer is
                missing.

        Returns:
            Whatever `finish_receive` needs.
        """
        raise UnsupportedError(type(self).__name__, "begin_receive")

    def finish_receive(self, begun: object) -> Sequence[Delivery]:
        """Finish a receive that stands still, by what `begin_receive` has returned; return what it has read."""
        raise UnsupportedError(type(self).__name__, "finish_receive")

    def begin_ack(self, consumer: str, delivery: Delivery, statements: int) -> object:
        """Begin an `ack`, and let it stand still half-way, as `begin_receive` does. For drivers that have `finish_ack`.

        Others come and go meanwhile, and time passes: a consumer that is paused while it answers may find that its
        delivery has expired. Returns whatever `finish_ack` needs.
        """
        raise UnsupportedError(type(self).__name__, "begin_ack")

    def finish_ack(self, begun: object) -> bool | None:
        """Finish an ack that stands still, by what `begin_ack` has returned; return what `ack` would."""
        raise UnsupportedError(type(self).__name__, "finish_ack")

    def notices(self) -> Sequence[Event]:
        """Return what the broker reports of itself since the last call, as events of a history.

        `Owned`, `Expired`, `Released`, `Held`, `Freed`, `DeadLettered`, `Dropped`, `Skipped` and `Settled` make the
        judgement sharper. Without them only what consumers see is judged.
        """
        raise UnsupportedError(type(self).__name__, "notices")

    def close(self) -> None:
        """Stop the broker."""


class AsyncDriver:
    """A `Driver` whose methods are coroutines: the search owns a loop and waits for each of them in it.

    The methods and their meaning are those of `Driver`, abilities too. ``__init__`` runs outside the loop; `open` runs
    inside. Tasks that the broker has started go on while a method is waited for, and stand still between two calls: a
    method should return when the broker has come to rest.
    """

    takes_filters: ClassVar[bool] = False
    remembers_acks: ClassVar[bool] = True
    resumes_at_cursor: ClassVar[bool] = False

    async def open(self) -> None:
        """Start the broker."""

    async def close(self) -> None:
        """Stop the broker."""


AnyDriver = Driver | AsyncDriver
ABILITIES: Final = (
    *("nack", "advance", "cursor", "restart", "notices", "ack_through", "postpone", "publish_later", "publish_many"),
    *("receive_some", "kill_at", "begin_receive", "finish_receive", "begin_ack", "finish_ack"),
)
"""The methods that a driver may leave out."""
_NEEDED: Final = (
    ("kill_at", "restart"),
    ("postpone", "advance"),
    ("publish_later", "advance"),
    ("begin_receive", "finish_receive"),
    ("finish_receive", "begin_receive"),
    ("begin_ack", "finish_ack"),
    ("finish_ack", "begin_ack"),
)
_SAMPLE_S: Final = 0.001
_STILL_MS: Final = 3
_STILL_WITHOUT_STATES_MS: Final = 10  # for a thread that waits for a processor looks like one that has nothing to do
_TASKS: Final = Path("/proc/self/task")


def abilities(driver: type[AnyDriver]) -> frozenset[str]:
    """Return which of `ABILITIES` a driver has: those that it overrides.

    Args:
        driver: Its class.
    """
    check_class("driver", driver, Driver, AsyncDriver)
    base = AsyncDriver if issubclass(driver, AsyncDriver) else Driver
    return frozenset(name for name in ABILITIES if getattr(driver, name, None) is not getattr(base, name, None))


def checked_abilities(driver: type[AnyDriver]) -> frozenset[str]:
    """Return the abilities of a driver.

    Raises:
        UnsupportedError: It has only one of two methods that need each other.
    """
    found = abilities(driver)
    for half, other in _NEEDED:
        if half in found and other not in found:
            raise UnsupportedError(driver.__name__, f"{other}, which {half} needs")
    return found


def wait_for_threads(*, still_ms: int | None = None, timeout_ms: int = 5_000) -> None:
    """Wait until no other thread of this process moves: for drivers of pools, whose methods return when all is done.

    A thread does not move while it waits for a lock, a queue or an event. Handlers that the kit has in hand have to
    wait in such a way, too.

    Args:
        still_ms: For how long they have to stand still; None: 3 where the system says which threads want a processor,
            as Linux does, else 10.
        timeout_ms: How long to wait at most.

    Raises:
        TimeoutError: They still move.
    """
    if still_ms is None:
        still_ms = _STILL_MS if _TASKS.exists() else _STILL_WITHOUT_STATES_MS
    end, before, since = time.monotonic() + timeout_ms / 1_000, None, time.monotonic()
    while True:
        own = threading.get_ident()
        now = {thread: (id(frame), frame.f_lasti) for thread, frame in sys._current_frames().items() if thread != own}  # noqa: SLF001
        if now != before or _is_any_other_running():
            before, since = now, time.monotonic()
        elif time.monotonic() - since >= still_ms / 1_000:
            return
        if time.monotonic() > end:
            raise TimeoutError(f"threads still move after {timeout_ms} ms")
        time.sleep(_SAMPLE_S)


def _is_any_other_running() -> bool:
    """On Linux: whether a thread waits for a processor, which stands still as one that has nothing to do."""
    own = str(threading.get_native_id())
    others = (task for task in _TASKS.glob("[0-9]*") if task.name != own)
    return any(_state_of(task) in "RD" for task in others)


def _state_of(task: Path) -> str:
    try:
        return (task / "stat").read_text("utf-8").rpartition(")")[2].split()[0]
    except OSError:  # it has ended
        return "X"


def in_loop(driver: AsyncDriver, loop: AbstractEventLoop) -> Driver:
    """Operate an asynchronous driver from outside its loop.

    Args:
        driver: It is opened here.
        loop: Runs while a method is waited for, and is closed with the driver.
    """
    check_kind("driver", driver, AsyncDriver)
    check_kind("loop", loop, AbstractEventLoop)
    return cast("Driver", _InLoop(driver, loop))


class _InLoop:
    """Has the methods of a driver, and waits for each coroutine."""

    def __init__(self, driver: AsyncDriver, loop: AbstractEventLoop) -> None:
        self._driver = driver
        self._loop = loop
        try:
            self._wait(driver.open())
        except BaseException:
            self._close_loop()
            raise

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401  # any method
        method = getattr(self._driver, name, None)
        if method is None:
            raise UnsupportedError(type(self._driver).__name__, name)
        return partial(self._call, method)

    def close(self) -> None:
        """Stop the broker, and the tasks that it has left."""
        try:
            self._wait(self._driver.close())
        finally:
            self._close_loop()

    def _call(self, method: Any, *args: object) -> Any:  # noqa: ANN401  # likewise
        return self._wait(method(*args))

    def _close_loop(self) -> None:
        left = all_tasks(self._loop)
        for task in left:
            task.cancel()
        try:
            self._wait(_gathered(left))
            self._wait(self._loop.shutdown_asyncgens())
        finally:
            self._loop.close()

    def _wait(self, answer: Coroutine[Any, Any, Any]) -> Any:  # noqa: ANN401  # likewise
        return self._loop.run_until_complete(answer)


async def _gathered(tasks: Any) -> None:  # noqa: ANN401  # of any results
    await gather(*tasks, return_exceptions=True)
