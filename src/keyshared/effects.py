"""The effects of a call: what the host has to know or to do, as immutable values.

A call of the dispatcher returns a list of effects in this order:

1. *notices*: `Ignored`, `Evicted`, `Released`, `Blocked`, `Dropped`, `Skipped`, `Settled`, `Spilled`, in the order
   they happened; then `Done`, if the configuration asks for it. A host that ignores notices is still correct;
2. *sessions of keys*: `KeyEnded`, `KeyEnding`, `KeyBegun`, in the order they happened; a `KeyEnding` is an obligation;
3. *obligations*: `DeadLetter`, then `Load`, then `Deliver`, those of each consumer in service order. The order between
   consumers is not promised. `outstanding_effects` returns them again, `is_current` says whether one still holds;
4. *state*: at most one `CursorAdvanced`, at most one `Resumed`; of these the last one seen wins.

Every effect is an absolute fact, never a delta: applying it twice does no harm. All are tuples with named fields,
because building one costs less than a third of a frozen dataclass; unlike plain tuples they are equal only to the same
kind of effect.

`Deliver` and `DeadLetter` carry the item that a message came with. Its type is a parameter: ``Effect[Order]`` is what a
``KeySharedDispatcher[Order]`` returns, and ``Effect`` alone is ``Effect[object]``.
"""

from collections import namedtuple
from enum import StrEnum
from operator import itemgetter
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, NamedTuple, Self, TypeAlias, dataclass_transform

if TYPE_CHECKING:
    from typing_extensions import TypeVar  # `typing` knows defaults from Python 3.13 on; checkers know this everywhere

    Item = TypeVar("Item", default=object)
    Item_co = TypeVar("Item_co", covariant=True, default=object)
else:
    from typing import TypeVar

    Item = TypeVar("Item")
    Item_co = TypeVar("Item_co", covariant=True)

__all__ = [
    "BlockReason",
    "Blocked",
    "Call",
    "CursorAdvanced",
    "DeadLetter",
    "Deliver",
    "Done",
    "DropReason",
    "Dropped",
    "Effect",
    "Ending",
    "Evicted",
    "Ignored",
    "IgnoredReason",
    "KeyBegun",
    "KeyEnd",
    "KeyEnded",
    "KeyEnding",
    "Load",
    "ReleaseReason",
    "Released",
    "Resumed",
    "SettleReason",
    "Settled",
    "SkipReason",
    "Skipped",
    "Spilled",
]

_Value = TypeVar("_Value", bound=tuple[object, ...])
_named_tuple_of: Final[Any] = namedtuple  # noqa: PYI024 - mypy wants its fields written out, these are read from a class
_OWN: Final = frozenset(["__doc__", "__module__", "__slots__"])


class Call(StrEnum):
    """A call that can return `Ignored`: the method of that name."""

    ACK = "ack"  # also each receipt of ack_many
    NACK = "nack"
    REJECT = "reject"
    RELEASE = "release"
    EXTEND = "extend"
    FLUSHED = "flushed"
    DEAD_LETTERED = "dead_lettered"
    LOADED = "loaded"
    PARK = "park"
    REDRIVE = "redrive"  # each letter of it
    UNBLOCK_OFFSET = "unblock_offset"


class IgnoredReason(StrEnum):
    """Why a call changed nothing now."""

    UNKNOWN_OFFSET = "unknown_offset"  # never offered, or settled before
    NOT_HOLDER = "not_holder"  # that attempt went to another consumer
    UNKNOWN_ATTEMPT = "unknown_attempt"  # no such attempt was ever delivered
    STALE_ATTEMPT = "stale_attempt"  # the attempt has ended
    FORGOTTEN_ATTEMPT = "forgotten_attempt"  # older than the attempts that are remembered: it may have been delivered
    LATE_ACK_NOTED = "late_ack_noted"  # a newer attempt is open: however that one ends, it will count as acked
    DEAD_LETTERING = "dead_lettering"  # its dead letter is being written
    BLOCKED = "blocked"  # poisoned and waiting for unblock or park
    NOT_DEAD_LETTERING = "not_dead_lettering"  # dead_lettered() for a message that is not being archived
    NOT_LOADING = "not_loading"  # loaded() for a message without a pending Load
    IS_OUTSTANDING = "is_outstanding"  # redrive() of a message that is outstanding: there is no second copy
    IS_QUARANTINED = "is_quarantined"  # redrive() of a key whose messages all go to the dead-letter store
    NOT_BLOCKED = "not_blocked"  # park() or unblock_offset() for a message that is not blocked
    NOT_FLUSHING = "not_flushing"  # flushed() for a session without a pending KeyEnding


class ReleaseReason(StrEnum):
    """How a delivery ended that was not acked."""

    NACKED = "nacked"
    REJECTED = "rejected"
    RELEASED = "released"
    ACK_TIMEOUT = "ack_timeout"
    EVICTED = "evicted"
    REMOVED = "removed"
    SESSION_LOST = "session_lost"
    DRAIN_TIMEOUT = "drain_timeout"
    BATCH_BROKEN = "batch_broken"  # an older message of its batch ended in another way than by its ack


class DropReason(StrEnum):
    """Which policy of the user gave up a message."""

    POISON = "poison"
    EVICTED = "evicted"


class SkipReason(StrEnum):
    """Why a message was settled without a delivery that counted."""

    UNMATCHED = "unmatched"
    GONE = "gone"
    SUPERSEDED = "superseded"  # by a newer message of its key, before its first delivery


class KeyEnd(StrEnum):
    """Why a session of a key has ended."""

    IDLE = "idle"  # nothing of the key was open for as long as sessions linger
    MOVED = "moved"  # the key belongs to another consumer, or to none
    LEFT = "left"  # its consumer leaves
    LOST = "lost"  # its consumer is gone, or came back without what it had
    FLUSH_TIMEOUT = "flush_timeout"  # its consumer did not flush in time


class SettleReason(StrEnum):
    """An event other than the ack of its current attempt that settled a message."""

    LATE_ACK = "late_ack"
    PARKED = "parked"


class Ending(StrEnum):
    """How a message was settled."""

    ACKED = "acked"  # by the ack of its open delivery
    LATE_ACK = "late_ack"  # by the ack of a delivery that had ended
    PARKED = "parked"
    DEAD_LETTERED = "dead_lettered"  # its dead letter is written
    DROPPED = "dropped"
    UNMATCHED = "unmatched"
    GONE = "gone"
    SUPERSEDED = "superseded"
    EARLIER = "earlier"  # in an earlier life: it was offered again, and is known


class BlockReason(StrEnum):
    """Why an outstanding message is not at a consumer at this moment."""

    KEY_IN_FLIGHT = "key_in_flight"  # an older message of the key is out, and the per-key limit is reached
    OLDER_WAITS = "older_waits"  # an older message of the key has not gone out yet
    NOT_BEFORE = "not_before"  # offered for later, and that has not come yet
    POSTPONED = "postponed"  # given back with a delay that is not over
    RETRY_WAIT = "retry_wait"
    DEAD_LETTERING = "dead_lettering"
    BLOCKED = "blocked"
    QUARANTINED = "quarantined"  # its key is: it goes to the dead-letter store when its turn comes
    DRAINING = "draining"  # the key has moved; its previous owner still holds deliveries of its drain unit
    NO_CONSUMER = "no_consumer"  # no connected consumer accepts the key, or its owner by the placement has not joined
    UNOWNED = "unowned"  # its slot is a hole, or the connected consumers that accept it own nothing
    CONSUMER_INACTIVE = "consumer_inactive"
    CONSUMER_FULL = "consumer_full"
    FLUSHING = "flushing"  # its consumer has to flush its state of the key first
    GROUP_FULL = "group_full"  # its group has as many open deliveries as it may have
    GROUP_PAUSED = "group_paused"
    GROUP_RATE = "group_rate"  # its group has no permit now
    LOADING = "loading"
    ACK_HOLES = "ack_holes"  # too many settled stretches above the lowest message: only that one goes out
    SUBSCRIPTION_FULL = "subscription_full"  # all consumers together have as many open deliveries as they may have
    WINDOW_FULL = "window_full"  # spilled, its turn has come, and no slot is free to load it


def _equal(self: tuple[object, ...], other: object) -> bool:
    return self.__class__ is other.__class__ and tuple.__eq__(self, other)


def _unequal(self: tuple[object, ...], other: object) -> bool:
    return not _equal(self, other)


def _hash(self: tuple[object, ...]) -> int:
    return hash((self.__class__.__name__, *self))


def _equal_by_class(cls: type[_Value]) -> type[_Value]:
    """Make two values equal only if they are of one class: `NamedTuple` alone says ``CursorAdvanced(5) == (5,)``."""
    cls.__eq__ = _equal  # type: ignore[method-assign]  # mypy keeps tuple's own signature
    cls.__ne__ = _unequal  # type: ignore[assignment, method-assign]  # as above
    cls.__hash__ = _hash  # type: ignore[method-assign]  # as above
    return cls


class _WithFields(tuple[Any, ...]):
    """The attributes that `_fields_in_a_tuple` adds, for type checkers."""

    __slots__ = ()

    if TYPE_CHECKING:
        _fields: ClassVar[tuple[str, ...]]

        def _asdict(self) -> dict[str, Any]: ...

        def _replace(self, **fields: Any) -> Self: ...  # noqa: ANN401  # the type of the field


@dataclass_transform(frozen_default=True)
def _fields_in_a_tuple(cls: type[_Value]) -> type[_Value]:
    """Make named tuples of a class that lists its fields, as `NamedTuple` would.

    `NamedTuple` loses the type parameter in ``match`` and ``isinstance``, as mypy understands it: every item would be
    Any.
    """
    fields = cls.__annotations__
    defaults = [vars(cls)[name] for name in fields if name in vars(cls)]
    for name, value in vars(_named_tuple_of(cls.__name__, fields, defaults=defaults)).items():
        if name not in _OWN:
            setattr(cls, name, value)
    return cls


@_equal_by_class
class Ignored(NamedTuple):
    """A call that did not apply. Normal in any system with retries; worth counting, never an error.

    Attributes:
        offset: The offset that was named, or None where the call names none.
        consumer: The consumer that was named, or None where the call names none.
        attempt: The attempt that was named, or the session; None where the call names neither.
        call: The call that returns this.
        reason: Why nothing changed.
    """

    offset: int | None
    consumer: str | None
    attempt: int | None
    call: Call
    reason: IgnoredReason


@_equal_by_class
class Evicted(NamedTuple):
    """A consumer stayed inactive for the whole grace period and has lost its keys.

    Attributes:
        consumer: Its name; adding it again starts a new session.
    """

    consumer: str


@_equal_by_class
class Released(NamedTuple):
    """A delivery has ended without an ack. If its consumer did not ask for that, tell it to stop that work.

    Attributes:
        offset: The message.
        consumer: The consumer that had it.
        attempt: Which delivery of it.
        reason: How it ended.
        failures: How often the message has failed, this time included if it was a failure.
        retry_at_ms: From when on the message may go out again; None if it is given up, or settled by this end.
    """

    offset: int
    consumer: str
    attempt: int
    reason: ReleaseReason
    failures: int
    retry_at_ms: int | None


@_equal_by_class
class Blocked(NamedTuple):
    """A message that is blocked: its key waits for a call of ``unblock`` or ``park``.

    Attributes:
        offset: The message.
        key: Its key.
        failures: How often it had failed.
        reason: The reason of the last failure that named one; None if none did.
    """

    offset: int
    key: bytes | None
    failures: int
    reason: str | None = None


@_equal_by_class
class Dropped(NamedTuple):
    """A message was given up by a policy of yours and counts as settled.

    Attributes:
        offset: The message.
        key: Its key.
        reason: Which policy.
    """

    offset: int
    key: bytes | None
    reason: DropReason


@_equal_by_class
class Skipped(NamedTuple):
    """A message was settled without a delivery that counted.

    Attributes:
        offset: The message.
        key: Its key.
        reason: Why.
    """

    offset: int
    key: bytes | None
    reason: SkipReason


@_equal_by_class
class Settled(NamedTuple):
    """A message was settled by something other than the ack of its current attempt.

    Attributes:
        offset: The message.
        key: Its key.
        reason: What settled it.
    """

    offset: int
    key: bytes | None
    reason: SettleReason


@_equal_by_class
class Spilled(NamedTuple):
    """The dispatcher tracks the message and does not need its payload now: drop it.

    A `Load` will ask for it when its turn is near.

    Attributes:
        offset: The message.
    """

    offset: int


@_equal_by_class
class Done(NamedTuple):
    """A message is settled. With ``tell_settled`` the call that settles an offered offset returns exactly one.

    Attributes:
        offset: The message.
        key: Its key.
        how: What settled it.
    """

    offset: int
    key: bytes | None
    how: Ending


@_equal_by_class
class KeyBegun(NamedTuple):
    """A consumer will get messages of a key: it may load or allocate its state of the key.

    Attributes:
        key: The key.
        consumer: The consumer of the session.
        session: Number of this session, which never comes again for the key.
    """

    key: bytes
    consumer: str
    session: int


@_equal_by_class
class KeyEnding(NamedTuple):
    """Flush the consumer's state of a key, then confirm with ``flushed(key, session)``.

    The key waits for that, or for the end of ``flush_ms``.

    Attributes:
        key: The key.
        consumer: The consumer of the session.
        session: Number of the session that has to end.
    """

    key: bytes
    consumer: str
    session: int


@_equal_by_class
class KeyEnded(NamedTuple):
    """The session of a key has ended; the next session of the key may begin at any consumer.

    Attributes:
        key: The key.
        consumer: The consumer of the session.
        session: Number of the session that has ended.
        reason: Why it had to end, or how: its consumer was lost, or did not flush in time.
    """

    key: bytes
    consumer: str
    session: int
    reason: KeyEnd


@_equal_by_class
@_fields_in_a_tuple
class DeadLetter(_WithFields, Generic[Item_co]):
    """Write this message to the dead-letter store, then confirm with ``dead_lettered(offset)``.

    Until then its key waits.

    Attributes:
        offset: The message.
        key: Its key.
        attempt: The last delivery's number, 0 if it was never delivered (a quarantined key).
        failures: How often it failed.
        item: The passenger given to ``offer``.
        reason: The reason of the last failure that named one; None if none did.
    """

    __slots__ = ()

    offset: int
    key: bytes | None
    attempt: int
    failures: int
    item: Item_co
    reason: str | None = None


@_equal_by_class
class Load(NamedTuple):
    """Read this spilled message again, then call ``loaded(offset, item)``; or ``gone(offset)`` if that is impossible.

    Attributes:
        offset: The message.
        key: Its key.
    """

    offset: int
    key: bytes | None


@_equal_by_class
@_fields_in_a_tuple
class Deliver(_WithFields, Generic[Item_co]):
    """Hand this message to this consumer now.

    Attributes:
        offset: The message.
        key: Its key as bytes, or None.
        consumer: The consumer that gets it.
        attempt: Number of this delivery: a fence that comes back with the ack. Grows with each delivery of the message.
        failures: How many earlier deliveries of it failed.
        item: The passenger given to ``offer``.
    """

    __slots__ = ()

    offset: int
    key: bytes | None
    consumer: str
    attempt: int
    failures: int
    item: Item_co

    @property
    def receipt(self) -> tuple[int, str, int]:
        """The arguments that name this delivery: ``ack(*receipt)``, ``nack(*receipt)``, ``extend(*receipt)``."""
        return self.offset, self.consumer, self.attempt  # pragma: no cover  # replaced below


# The same in C: every ack unpacks a receipt.
Deliver.receipt = property(itemgetter(0, 2, 3), doc=Deliver.receipt.__doc__)  # type: ignore[assignment, method-assign]


@_equal_by_class
class CursorAdvanced(NamedTuple):
    """Everything offered up to here is settled.

    Attributes:
        safe_cursor: Greatest offered offset below the lowest outstanding one.
    """

    safe_cursor: int


@_equal_by_class
class Resumed(NamedTuple):
    """After a pause (``free_slots == 0``) messages may be offered again: read on.

    Attributes:
        free_slots: How many messages may be offered now.
    """

    free_slots: int


Effect: TypeAlias = (
    Ignored
    | Evicted
    | Released
    | Blocked
    | Dropped
    | Skipped
    | Settled
    | Spilled
    | Done
    | KeyBegun
    | KeyEnding
    | KeyEnded
    | DeadLetter[Item_co]
    | Load
    | Deliver[Item_co]
    | CursorAdvanced
    | Resumed
)
