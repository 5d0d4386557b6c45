"""The steps of a schedule: what happens to a broker from outside, as plain values.

A schedule is any sequence of them. It can be drawn (`keyshared.testing.strategies.schedules`), written by hand, or be
what a search has found; `keyshared.testing.find.run_schedule` runs it. A step names consumers by their names, and
deliveries by their place among those that are open when the step comes, because only the broker knows which those are.
A step that is impossible when its turn comes (a consumer leaves that is not connected, or the driver cannot do it) is
passed over: so any part of a schedule is a schedule.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

__all__ = [
    "LATE_ANSWERS",
    "NEEDS",
    "Ack",
    "AckLate",
    "AckThrough",
    "BeginAck",
    "BeginReceive",
    "Connect",
    "Disconnect",
    "Fail",
    "FinishAck",
    "FinishReceive",
    "Flap",
    "KillAt",
    "Nack",
    "NackLate",
    "OneOfSeveral",
    "Poll",
    "Postpone",
    "Publish",
    "PublishLater",
    "PublishMany",
    "ReadOn",
    "Restart",
    "Schedule",
    "Step",
    "StopReading",
    "Wait",
]


@dataclass(frozen=True, slots=True)
class Poll:
    """In the next step consumers are polled in another order, or each of them asks for ``most`` messages only.

    Those in ``first`` come first, the others in the order in which they joined. None: for as many as it may have.
    """

    first: tuple[str, ...] = ()
    most: int | None = None


@dataclass(frozen=True, slots=True)
class KillAt:
    """In the next step the broker's process is killed just before a statement, from 1, and comes back.

    At the latest it is killed when the step is over. Steps that begin or finish something are not killed.
    """

    statement: int


@dataclass(frozen=True, slots=True)
class Connect:
    """A consumer joins, unless it is there. Patterns of ``filters`` say which keys it wants; none: all keys."""

    consumer: str
    filters: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _OfConsumer:
    consumer: str


class Disconnect(_OfConsumer):
    """A consumer leaves with all messages that it has."""


class Flap(_OfConsumer):
    """A consumer loses its connection and comes back at once."""


class StopReading(_OfConsumer):
    """A consumer stays connected and reads nothing, until others come or go, or time passes."""


@dataclass(frozen=True, slots=True)
class ReadOn:
    """All consumers read again."""


@dataclass(frozen=True, slots=True)
class Publish:
    """Messages of one key, or of none, enter the log one after the other, as many as may be outstanding."""

    key: bytes | None
    count: int = 1


@dataclass(frozen=True, slots=True)
class PublishMany:
    """Messages of any keys enter the log in one call, in this order."""

    keys: tuple[bytes | None, ...]


@dataclass(frozen=True, slots=True)
class PublishLater:
    """A message enters the log that shall not be delivered before so many milliseconds have passed."""

    key: bytes | None
    ms: int


@dataclass(frozen=True, slots=True)
class BeginReceive:
    """In the next step a consumer, when it is polled, begins to receive and stands still after so many statements.

    Others go on. It finishes at the latest before somebody comes or goes, and before time passes. Only where one
    delivery of a key may be open at a time: a delivery counts when it is received, and others may have been sent before
    it.
    """

    consumer: str
    statements: int = 1


@dataclass(frozen=True, slots=True)
class OneOfSeveral:
    """A step for one of several, named by its place and counted round; 0 is the oldest, or the latest that is over."""

    which: int = 0


class Ack(OneOfSeveral):
    """A consumer is done with a message."""


class AckLate(OneOfSeveral):
    """A consumer answers for a delivery that is over."""


class AckThrough(OneOfSeveral):
    """A consumer is done with a message and all older ones of its key that it has."""


class Nack(OneOfSeveral):
    """A consumer gives a message back."""


class NackLate(OneOfSeveral):
    """A consumer gives a message back that it no longer has."""


class FinishReceive(OneOfSeveral):
    """A consumer receives what it has begun to receive."""


class FinishAck(OneOfSeveral):
    """An answer that has begun comes to its end."""


@dataclass(frozen=True, slots=True)
class BeginAck(OneOfSeveral):
    """A consumer begins to answer that it is done, and stands still after so many statements.

    It finishes at the latest before its consumer goes, and before the broker crashes.
    """

    statements: int = 1


@dataclass(frozen=True, slots=True)
class Postpone(OneOfSeveral):
    """A consumer gives a message back for so many milliseconds, which is no failure."""

    ms: int = 1


@dataclass(frozen=True, slots=True)
class Fail(OneOfSeveral):
    """A message fails wherever it goes, so often at most, and its retries are waited for: poison."""

    times: int = 2


@dataclass(frozen=True, slots=True)
class Wait:
    """So many milliseconds pass: what is due by then expires, or is tried again."""

    ms: int


@dataclass(frozen=True, slots=True)
class Restart:
    """The broker crashes and comes back, and so do its consumers."""


Step: TypeAlias = (
    Poll
    | KillAt
    | Connect
    | Disconnect
    | Flap
    | StopReading
    | ReadOn
    | Publish
    | PublishMany
    | PublishLater
    | Ack
    | AckLate
    | AckThrough
    | BeginReceive
    | FinishReceive
    | BeginAck
    | FinishAck
    | Nack
    | NackLate
    | Postpone
    | Fail
    | Wait
    | Restart
)
Schedule: TypeAlias = tuple[Step, ...]

NEEDS: Final[Mapping[type[Step], frozenset[str]]] = {
    KillAt: frozenset({"kill_at", "restart"}),
    PublishMany: frozenset({"publish_many"}),
    PublishLater: frozenset({"publish_later", "advance"}),
    AckThrough: frozenset({"ack_through"}),
    BeginReceive: frozenset({"begin_receive", "finish_receive"}),
    FinishReceive: frozenset({"begin_receive", "finish_receive"}),
    BeginAck: frozenset({"begin_ack", "finish_ack"}),
    FinishAck: frozenset({"begin_ack", "finish_ack"}),
    Nack: frozenset({"nack"}),
    NackLate: frozenset({"nack"}),
    Postpone: frozenset({"postpone", "advance"}),
    Fail: frozenset({"nack", "advance"}),
    Wait: frozenset({"advance"}),
    Restart: frozenset({"restart"}),
}
"""Which abilities of a driver a step needs; the others need none."""

LATE_ANSWERS: Final[frozenset[type[Step]]] = frozenset({AckLate, NackLate, BeginAck})
"""Steps in which a consumer answers for a delivery that is over, or may be over before the answer comes to its end."""
