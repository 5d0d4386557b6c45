"""What the heart of a runner wants done, as values: its runner does it, and reports what came of it."""

from typing import Generic, NamedTuple, TypeAlias, TypeVar

from keyshared.effects import Effect
from keyshared.run.log import Log, Run
from keyshared.run.values import Letter

__all__ = [
    "Action",
    "Cancel",
    "Commit",
    "Full",
    "Left",
    "LoadMany",
    "Noticed",
    "Overdue",
    "Roomy",
    "Settle",
    "Stopped",
    "Stopping",
    "Withdraw",
    "WriteLetter",
]

Message = TypeVar("Message")


class Cancel(NamedTuple, Generic[Message]):
    """Cancel this handler, and report its end as ever."""

    run: Run[Message]


class Overdue(NamedTuple, Generic[Message]):
    """A handler has run for the whole timeout, or for a multiple of it."""

    run: Run[Message]
    ran_ms: int


class Withdraw(NamedTuple, Generic[Message]):
    """Take back, with `Heart.withdrawn`, those of these whose handlers have not begun."""

    runs: tuple[Run[Message], ...]


class WriteLetter(NamedTuple, Generic[Message]):
    """Write a dead letter, and report `Heart.written`."""

    log: Log[Message]
    letter: Letter[Message]
    tries: int = 1


class LoadMany(NamedTuple, Generic[Message]):
    """Read messages again, and report `Heart.loaded`."""

    log: Log[Message]
    offsets: tuple[int, ...]


class Commit(NamedTuple, Generic[Message]):
    """Commit where a restart of a log begins, and report `Heart.committed`."""

    log: Log[Message]
    position: int
    token: str


class Settle(NamedTuple, Generic[Message]):
    """Pass on that these are settled, and report `Heart.settled`."""

    log: Log[Message]
    offsets: tuple[int, ...]


class Noticed(NamedTuple, Generic[Message]):
    """A notice of the dispatcher."""

    log: Log[Message]
    effect: Effect[Message]


class Full(NamedTuple, Generic[Message]):
    """A log has no room: stop reading it."""

    log: Log[Message]


class Roomy(NamedTuple, Generic[Message]):
    """A quarter of a log's room is free again: read on."""

    log: Log[Message]


class Left(NamedTuple, Generic[Message]):
    """A log has left, with its last commit made."""

    log: Log[Message]
    is_finished: bool


class Stopping(NamedTuple):
    """Nothing more is taken, or an error has come: whoever waits has to hear of it."""


class Stopped(NamedTuple):
    """Everything has ended, but for handlers that were let go if it is not finished."""

    is_finished: bool


Action: TypeAlias = (
    Run[Message]
    | Cancel[Message]
    | Overdue[Message]
    | Withdraw[Message]
    | WriteLetter[Message]
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
"""What is to be done; a `Run` alone means that its handler is to be started."""
