"""The steps of a schedule: what happens to a broker from outside, as plain values.

A schedule is any sequence of them. It can be drawn (`keyshared.testing.strategies.schedules`), written by hand, or be
what a search has found; `keyshared.testing.find.run_schedule` runs it. A step names consumers by their names, and
deliveries by their place among those that are open when the step comes, because only the broker knows which those are.
A step that is impossible when its turn comes (a consumer leaves that is not connected) is passed over: so any part of a
schedule is a schedule.
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
    """In the next step consumers are polled in another order than they joined, or ask for less than they may have.

    Attributes:
        first: Who is polled first, in this order; the others follow in the order in which they joined.
        most: How many messages each of them asks for, if the driver can ask for some; None: as many as it may have.
    """

    first: tuple[str, ...] = ()
    most: int | None = None


@dataclass(frozen=True, slots=True)
class KillAt:
    """In the next step the broker's process is killed, at the latest when the step is over, and comes back.

    For drivers that can kill it, and restart. Steps that begin or finish something are not killed.

    Attributes:
        statement: Just before which of the statements of the broker, from 1.
    """

    statement: int


@dataclass(frozen=True, slots=True)
class Connect:
    """A consumer joins, unless it is there.

    Attributes:
        consumer: Its name.
        filters: Patterns of the keys that it wants; all keys if there are none, or if the driver takes no filters.
    """

    consumer: str
    filters: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Disconnect:
    """A consumer leaves with all messages that it has.

    Attributes:
        consumer: Its name.
    """

    consumer: str


@dataclass(frozen=True, slots=True)
class Flap:
    """A consumer loses its connection and comes back at once.

    Attributes:
        consumer: Its name.
    """

    consumer: str


@dataclass(frozen=True, slots=True)
class StopReading:
    """A consumer stays connected and reads nothing, until others come or go, or time passes.

    Attributes:
        consumer: Its name.
    """

    consumer: str


@dataclass(frozen=True, slots=True)
class ReadOn:
    """All consumers read again."""


@dataclass(frozen=True, slots=True)
class Publish:
    """Messages of one key enter the log, one after the other, as many as may be outstanding.

    Attributes:
        key: Their key, or None if they have none.
        count: How many.
    """

    key: bytes | None
    count: int = 1


@dataclass(frozen=True, slots=True)
class PublishMany:
    """Messages of any keys enter the log in one call. For drivers that publish many.

    Attributes:
        keys: Their keys, in order.
    """

    keys: tuple[bytes | None, ...]


@dataclass(frozen=True, slots=True)
class PublishLater:
    """A message enters the log that shall not be delivered yet. For drivers that publish for later, and wait.

    Attributes:
        key: Its key, or None if it has none.
        ms: For how many milliseconds.
    """

    key: bytes | None
    ms: int


@dataclass(frozen=True, slots=True)
class Ack:
    """A consumer is done with a message.

    Attributes:
        which: Place of its delivery among the open ones, oldest first; counted round.
    """

    which: int = 0


@dataclass(frozen=True, slots=True)
class AckLate:
    """A consumer answers for a delivery that is over.

    Attributes:
        which: Place of the delivery among those that are over, latest first; counted round.
    """

    which: int = 0


@dataclass(frozen=True, slots=True)
class AckThrough:
    """A consumer is done with a message and all older ones of its key that it has, if the driver can say so at once.

    Attributes:
        which: Place of the newest of these deliveries among the open ones, oldest first; counted round.
    """

    which: int = 0


@dataclass(frozen=True, slots=True)
class BeginReceive:
    """In the next step a consumer, when it is polled, begins to receive and stands still half-way, while others go on.

    For drivers that can do so. It finishes at the latest before somebody comes or goes, and before time passes. Only
    where one delivery of a key may be open at a time: a delivery counts when it is received, and others may have been
    sent before it.

    Attributes:
        consumer: Its name.
        statements: After how many statements it stands still.
    """

    consumer: str
    statements: int = 1


@dataclass(frozen=True, slots=True)
class FinishReceive:
    """A consumer receives what it has begun to receive.

    Attributes:
        which: Place among the receives that have begun, oldest first; counted round.
    """

    which: int = 0


@dataclass(frozen=True, slots=True)
class BeginAck:
    """A consumer begins to answer that it is done, and stands still half-way. For drivers that can do so.

    It finishes at the latest before its consumer goes, and before the broker crashes.

    Attributes:
        which: Place of its delivery among the open ones, oldest first; counted round.
        statements: After how many statements it stands still.
    """

    which: int = 0
    statements: int = 1


@dataclass(frozen=True, slots=True)
class FinishAck:
    """An answer that has begun comes to its end.

    Attributes:
        which: Place among the answers that have begun, oldest first; counted round.
    """

    which: int = 0


@dataclass(frozen=True, slots=True)
class Nack:
    """A consumer gives a message back, if the driver can.

    Attributes:
        which: Place of its delivery among the open ones, oldest first; counted round.
    """

    which: int = 0


@dataclass(frozen=True, slots=True)
class NackLate:
    """A consumer gives a message back that it no longer has, if the driver can.

    Attributes:
        which: Place of the delivery among those that are over, latest first; counted round.
    """

    which: int = 0


@dataclass(frozen=True, slots=True)
class Postpone:
    """A consumer gives a message back for later, which is no failure. For drivers that postpone, and wait.

    Attributes:
        which: Place of its delivery among the open ones, oldest first; counted round.
        ms: For how many milliseconds.
    """

    which: int = 0
    ms: int = 1


@dataclass(frozen=True, slots=True)
class Fail:
    """A message fails wherever it goes, and its retries are waited for: poison. For drivers that nack and wait.

    Attributes:
        which: Place of its delivery among the open ones, oldest first; counted round.
        times: How often it fails, at most.
    """

    which: int = 0
    times: int = 2


@dataclass(frozen=True, slots=True)
class Wait:
    """Time passes, if the driver can let it: what is due by then expires, or is tried again.

    Attributes:
        ms: How many milliseconds.
    """

    ms: int


@dataclass(frozen=True, slots=True)
class Restart:
    """The broker crashes and comes back, and so do its consumers; if the driver can."""


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
