"""Actions: the engine returns them, and the runner carries them out and reports the outcome."""

from typing import Generic, NamedTuple, TypeAlias, TypeVar

from keyshared.effects import Effect
from keyshared.run.assignment import Assignment, Run
from keyshared.run.values import DeadLetter

__all__ = [
    "Action",
    "Cancel",
    "Commit",
    "Full",
    "Left",
    "LoadMany",
    "Noticed",
    "Overdue",
    "Replace",
    "Roomy",
    "Settle",
    "Stopped",
    "Stopping",
    "Withdraw",
    "WriteDeadLetter",
]

Message = TypeVar("Message")


class Cancel(NamedTuple, Generic[Message]):
    """Cancel this handler, and report its end as that of any other."""

    run: Run[Message]


class Overdue(NamedTuple, Generic[Message]):
    """A handler has run for the whole timeout, or for a multiple of it."""

    run: Run[Message]
    ran_ms: int


class Replace(NamedTuple, Generic[Message]):
    """A handler hangs: let another worker take the place of the one that runs it."""

    run: Run[Message]


class Withdraw(NamedTuple, Generic[Message]):
    """Take back, with `Engine.withdrawn`, those of these whose handlers have not begun."""

    runs: tuple[Run[Message], ...]


class WriteDeadLetter(NamedTuple, Generic[Message]):
    """Write a dead letter, and report `Engine.written`."""

    log: Assignment[Message]
    dead_letter: DeadLetter[Message]
    attempts: int = 1


class LoadMany(NamedTuple, Generic[Message]):
    """Read messages again, and report `Engine.loaded`."""

    log: Assignment[Message]
    offsets: tuple[int, ...]
    attempts: int = 1


class Commit(NamedTuple, Generic[Message]):
    """Commit where a restart of a log begins, and report `Engine.committed`. ``recorded`` are runs that wait for it."""

    log: Assignment[Message]
    position: int
    token: str
    recorded: tuple[Run[Message], ...] = ()


class Settle(NamedTuple, Generic[Message]):
    """Report that these are settled, and report `Engine.settled`."""

    log: Assignment[Message]
    offsets: tuple[int, ...]
    attempts: int = 1


class Noticed(NamedTuple, Generic[Message]):
    """A notice of the dispatcher."""

    log: Assignment[Message]
    effect: Effect[Message]


class Full(NamedTuple, Generic[Message]):
    """A log has no capacity: stop reading it."""

    log: Assignment[Message]


class Roomy(NamedTuple, Generic[Message]):
    """A quarter of a log's capacity is free again: read on."""

    log: Assignment[Message]


class Left(NamedTuple, Generic[Message]):
    """A log has left, with its last commit made."""

    log: Assignment[Message]
    is_finished: bool


class Stopping(NamedTuple):
    """Nothing more is taken, or an error has come: end every call that waits."""


class Stopped(NamedTuple):
    """Everything has ended, except abandoned handlers if it is not finished."""

    is_finished: bool


Action: TypeAlias = (
    Run[Message]
    | Cancel[Message]
    | Overdue[Message]
    | Replace[Message]
    | Withdraw[Message]
    | WriteDeadLetter[Message]
    | LoadMany[Message]
    | Commit[Message]
    | Settle[Message]
    | Noticed[Message]
    | Full[Message]
    | Roomy[Message]
    | Left[Message]
    | Stopping
    | Stopped
)
"""One action; a `Run` alone means that its handler is to be started."""
