"""How a handler may end, and what a runner raises."""

from keyshared._checks import check_bool, check_int, check_kind
from keyshared.errors import ArgumentError, MisuseError, shown

__all__ = [
    "CalledFromHookError",
    "CrashedError",
    "EventLoopError",
    "HungWorkersError",
    "PartlyDone",
    "Reject",
    "RetryLater",
    "RoomError",
    "StoppedError",
    "UnknownLogError",
]


class Reject(Exception):  # noqa: N818  # the end of a message, and no fault of the program
    """Raise it in a handler: no retry can help, and the message is given up as `RunnerConfig.poison` says.

    Args:
        reason: Why; it is shown with the dead letter.

    Example:
        >>> raise Reject("no such customer")
        Traceback (most recent call last):
        ...
        keyshared.run.errors.Reject: no such customer
    """


class RetryLater(Exception):  # noqa: N818  # as above
    """Raise it in a handler: the message comes again later, and no failure is counted. Its key waits meanwhile.

    Args:
        delay_ms: How much later.
        group: Whether all keys of the group (`Rules.group_of`) wait that long, for example after a 429 for one tenant.

    Raises:
        ArgumentError: ``delay_ms`` is not an int of at least 0, or ``group`` no bool.

    Example:
        >>> RetryLater(500).delay_ms
        500
    """

    def __init__(self, delay_ms: int, group: bool = False) -> None:  # args travel by pickle
        check_int("delay_ms", delay_ms, 0)
        check_bool("group", group)
        super().__init__(delay_ms, group)
        self.delay_ms = delay_ms
        self.group = group


class PartlyDone(Exception):  # noqa: N818  # as above
    """Raise it in a handler of batches: its first messages are done, and the next one has ended with an error.

    What follows in the batch comes again behind that one, and no failure is counted for it.

    Args:
        done: How many messages are done, counted from the first.
        error: How the next one has ended: `Reject`, `RetryLater`, or anything else that a handler may raise.

    Raises:
        ArgumentError: ``done`` is not an int of at least 0, or ``error`` is no exception, or a `PartlyDone` itself.

    Example:
        >>> PartlyDone(5, Reject("no such customer")).done
        5
    """

    def __init__(self, done: int, error: BaseException) -> None:
        check_int("done", done, 0)
        if isinstance(check_kind("error", error, BaseException), PartlyDone):
            raise ArgumentError("error", error, "be the exception with which the next message has ended")
        super().__init__(done, error)
        self.done = done
        self.error = error


class CrashedError(Exception):
    """The error of a dead letter whose message was at a handler each time that its process ended without a stop.

    Attributes:
        failures: How often the message has failed, crashes included.
    """

    def __init__(self, failures: int) -> None:
        super().__init__(failures)
        self.failures = failures

    def __str__(self) -> str:
        return f"the process ended while the message was handled, and no retry is left after {self.failures} failures"


class StoppedError(MisuseError):
    """A call came to a runner that stops or has stopped. If an error made it stop, that error is raised instead."""

    def _text(self) -> str:
        return "the runner stops, or has stopped, and takes nothing more; begin another one"


class CalledFromHookError(MisuseError):
    """A hook called its `ThreadRunner`, which waits for the hook to return."""

    def _text(self) -> str:
        return "the runner was called from one of its hooks, and waits for the hook; let another thread make that call"


class EventLoopError(MisuseError):
    """A call that changes an `AsyncRunner` was not made in the event loop of the runner."""

    def _text(self) -> str:
        return (
            "an AsyncRunner is changed in its own event loop only; from another thread use "
            "loop.call_soon_threadsafe or asyncio.run_coroutine_threadsafe"
        )


class UnknownLogError(MisuseError):
    """The runner does not have the log at the moment.

    Attributes:
        log: Its name.
    """

    def __init__(self, log: str) -> None:
        super().__init__(log)
        self.log = log

    def _text(self) -> str:
        return f"there is no log {shown(self.log)}; call add_log first, and nothing after remove_log"


class RoomError(MisuseError):
    """A submit that does not wait (``wait=False``, or in a handler of the runner) found no capacity.

    Attributes:
        log: The name of the log.
        max_tracked: How many messages of it are unfinished at most.
    """

    def __init__(self, log: str, max_tracked: int) -> None:
        super().__init__(log, max_tracked)
        self.log = log
        self.max_tracked = max_tracked

    def _text(self) -> str:
        return (
            f"cannot take a message of {shown(self.log)} without waiting: {self.max_tracked} messages of it are "
            "unfinished; submit fewer follow-ups, or raise max_tracked"
        )


class HungWorkersError(MisuseError):
    """More handlers hang than the runner may replace; it stops with this error.

    Attributes:
        hung: How many handlers have outlasted their timeout and still run.
    """

    def __init__(self, hung: int) -> None:
        super().__init__(hung)
        self.hung = hung

    def _text(self) -> str:
        return (
            f"{self.hung} handlers have outlasted timeout_ms and still run, more than max_hung_workers; "
            "see stuck() for their keys, and give their calls a timeout"
        )
