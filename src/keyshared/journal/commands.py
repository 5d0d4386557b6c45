"""Calls of a dispatcher and what comes of them, as flat rows: for logs, tables and streams.

A command is named after the method of `KeySharedDispatcher` that it calls, and its fields are that method's arguments:
None in a field is None for the argument. An outcome is one effect, with the fields of all effects side by side.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from keyshared._checks import OFFSET_BITS, OFFSET_STOP, check_several
from keyshared.dispatcher import KeySharedDispatcher
from keyshared.effects import (
    Blocked,
    CursorAdvanced,
    DeadLetter,
    Deliver,
    Done,
    Dropped,
    Effect,
    Evicted,
    Ignored,
    KeyBegun,
    KeyEnded,
    KeyEnding,
    Released,
    Settled,
    Skipped,
)
from keyshared.errors import ArgumentError
from keyshared.hashing import Key
from keyshared.placement.range_map import Weight

__all__ = [
    "COMMANDS",
    "FIELDS",
    "LATE",
    "OFFER",
    "REFUSED",
    "Command",
    "Fields",
    "OutcomeRow",
    "call",
    "check_end",
    "fields_of",
]

OFFER: Final = "offer"
"""The command that brings a message; the journal carries it out, as it keeps the messages that do not fit yet."""

REFUSED: Final = "refused"
"""The outcome of a command that the dispatcher does not take: it has changed nothing."""


LATE: Final = "late"
"""The outcome of a command that comes after one with a higher sequence: it is not carried out."""


class Command(NamedTuple):
    """One call of a dispatcher. The instant at which a duration ends has at most 63 bits, as all its numbers.

    Attributes:
        sequence: Its place in the total order of the commands of one dispatcher; gaps are legal.
        at_ms: When, in whole milliseconds. One before the instant that has been reached acts at that instant.
        command: The method, one of `COMMANDS`.
        offset: The message; of ``truncate`` where the log now begins, of ``pull`` the only message wanted, or None.
        key: Its key; of ``unblock`` and ``redrive`` the key.
        consumer: The consumer.
        attempt: Number of the delivery; of ``flushed`` the session of the key.
        duration_ms: Of an offer how long after ``at_ms`` the message may be delivered first; ``delay_ms`` of a nack or
            release, ``extend_ms``, or ``drain_ms`` of a consumer that leaves. None is the None of the call, not its
            default: the consumer drains as long as it takes; with 0 it leaves at once. A release, which knows no None,
            has no delay then.
        limit: Deliveries that the consumer may have open; of ``pull`` how many it takes at most; of ``set_group`` the
            deliveries of the group that may be open.
        weight: The consumer's share; of ``set_group`` the turns of the group.
        filters: Glob patterns of the keys that it accepts; None for all keys.
        resumed: Whether a consumer that is back still has its deliveries.
        reason: Why a delivery failed, of a nack or a reject.
        per_key: Of ``pull`` how many messages of one key a batch may have.
        group: The group of keys whose limits are set, or that is paused or resumed.
        per_second: Of ``set_group`` how many of its deliveries may begin in a second.
        burst: Of ``set_group`` how many of them may begin at once; None is 1.
        letters: Of ``redrive`` the offset and attempt of each dead letter.

    Example:
        >>> Command(7, 1_200, "ack", offset=3, consumer="c1", attempt=1).command
        'ack'
    """

    sequence: int
    at_ms: int
    command: str
    offset: int | None = None
    key: Key = None
    consumer: str | None = None
    attempt: int | None = None
    duration_ms: int | None = None
    limit: int | None = None
    weight: Weight | None = None
    filters: Collection[str] | None = None
    resumed: bool | None = None
    reason: str | None = None
    per_key: int | None = None
    group: str | None = None
    per_second: int | None = None
    burst: int | None = None
    letters: Collection[Sequence[int]] | None = None


class OutcomeRow(NamedTuple):
    """One outcome of a command.

    Attributes:
        position: Its place among all outcomes of the dispatcher, from 0, without gaps.
        sequence: The last command before it: its cause, unless time was; of `LATE` the command itself.
        at_ms: The instant; of a deadline its own.
        effect: Name of the effect, such as "deliver" or "cursor_advanced", `REFUSED`, or `LATE`.
        offset: The message; of "cursor_advanced" the safe cursor.
        key: Its key, where the effect names it.
        consumer: The consumer.
        attempt: Number of the delivery; of "key_begun", "key_ending" and "key_ended" that of the session.
        failures: How often the message had failed; of "released" this time included.
        retry_at_ms: From when on a released message may go out again; None if it is given up or settled.
        call: The command that was ignored.
        reason: Why; of "done" how; of a refusal the text of the error, of "blocked" and "dead_letter" the last
            failure's.

    Example:
        >>> OutcomeRow(0, 7, 1_200, "cursor_advanced", offset=3).offset
        3
    """

    position: int
    sequence: int
    at_ms: int
    effect: str
    offset: int | None = None
    key: bytes | None = None
    consumer: str | None = None
    attempt: int | None = None
    failures: int | None = None
    retry_at_ms: int | None = None
    call: str | None = None
    reason: str | None = None


Fields: TypeAlias = tuple[
    str, int | None, bytes | None, str | None, int | None, int | None, int | None, str | None, str | None
]
"""What an effect is in an outcome, from ``effect`` on."""

_Call: TypeAlias = Callable[[KeySharedDispatcher, Any, int], list[Effect]]

# Fields are given as they are, None included: it is the dispatcher that says what is missing or wrong.
_CALLS: Final[Mapping[str, _Call]] = {
    "ack": lambda d, c, now: d.ack(c.offset, c.consumer, c.attempt, now_ms=now),
    "ack_through": lambda d, c, now: d.ack_through(c.offset, c.consumer, c.attempt, now_ms=now),
    "nack": lambda d, c, now: d.nack(
        c.offset, c.consumer, c.attempt, delay_ms=c.duration_ms, reason=c.reason, now_ms=now
    ),
    "reject": lambda d, c, now: d.reject(c.offset, c.consumer, c.attempt, reason=c.reason, now_ms=now),
    "release": lambda d, c, now: d.release(
        c.offset, c.consumer, c.attempt, delay_ms=0 if c.duration_ms is None else c.duration_ms, now_ms=now
    ),
    "extend": lambda d, c, now: d.extend(c.offset, c.consumer, c.attempt, extend_ms=c.duration_ms, now_ms=now),
    "dead_lettered": lambda d, c, now: d.dead_lettered(c.offset, now_ms=now),
    "flushed": lambda d, c, now: d.flushed(c.key, c.attempt, now_ms=now),
    "park": lambda d, c, now: d.park(c.offset, now_ms=now),
    "redrive": lambda d, c, now: d.redrive(c.key, _letters(c.letters), now_ms=now),
    "unblock": lambda d, c, now: d.unblock(c.key, now_ms=now),
    "unblock_offset": lambda d, c, now: d.unblock_offset(c.offset, now_ms=now),
    "gone": lambda d, c, now: d.gone(c.offset, now_ms=now),
    "truncate": lambda d, c, now: d.truncate(c.offset, now_ms=now),
    "add_consumer": lambda d, c, now: d.add_consumer(
        c.consumer, filters=() if c.filters is None else c.filters, weight=c.weight, limit=c.limit, now_ms=now
    ),
    "remove_consumer": lambda d, c, now: d.remove_consumer(c.consumer, drain_ms=c.duration_ms, now_ms=now),
    "set_inactive": lambda d, c, now: d.set_inactive(c.consumer, now_ms=now),
    "set_active": lambda d, c, now: d.set_active(
        c.consumer, resumed=False if c.resumed is None else c.resumed, now_ms=now
    ),
    "set_limit": lambda d, c, now: d.set_limit(c.consumer, c.limit, now_ms=now),
    "set_filters": lambda d, c, now: d.set_filters(c.consumer, () if c.filters is None else c.filters, now_ms=now),
    "set_weight": lambda d, c, now: d.set_weight(c.consumer, c.weight, now_ms=now),
    "pause_group": lambda d, c, now: d.pause_group(c.group, now_ms=now),
    "resume_group": lambda d, c, now: d.resume_group(c.group, now_ms=now),
    "set_group": lambda d, c, now: d.set_group(
        c.group,
        weight=1 if c.weight is None else c.weight,
        max_in_flight=c.limit,
        per_second=c.per_second,
        burst=1 if c.burst is None else c.burst,
        now_ms=now,
    ),
    "pull": lambda d, c, now: d.pull(c.consumer, c.limit, only=c.offset, per_key=c.per_key, now_ms=now),
    "handle_timeout": lambda d, _, now: d.handle_timeout(now_ms=now),
}


def _letters(rows: Any) -> list[Any]:  # noqa: ANN401  # whatever was written down
    """Letters as a dispatcher takes them; what cannot be one stays as it is, and the dispatcher says so."""
    given = () if rows is None else check_several("letters", rows, "pairs of an offset and an attempt")
    return [(*row, None) if isinstance(row, list | tuple) else row for row in given]


COMMANDS: Final = (OFFER, *_CALLS)
"""What a command may be: methods of the dispatcher, except those that need more than a row can hold."""


def call(dispatcher: KeySharedDispatcher[Any], command: Command, *, now_ms: int) -> list[Effect]:
    """Make the call of a command other than an offer, and return its effects.

    Raises:
        ArgumentError: There is no such command, or its duration ends too late.
        KeySharedError: What the method raised; the dispatcher has not changed.

    Example:
        >>> from keyshared import HashRing
        >>> dispatcher = KeySharedDispatcher(HashRing())
        >>> call(dispatcher, Command(0, 5, "add_consumer", consumer="c1"), now_ms=5), dispatcher.owner("order-1")
        ([], 'c1')
    """
    name: object = command.command
    method = _CALLS.get(name) if isinstance(name, str) else None
    if method is None:
        raise ArgumentError("command", name, f"be one of {', '.join(COMMANDS)}")
    check_end(command, now_ms)
    return method(dispatcher, command, now_ms)


def check_end(command: Command, now_ms: int) -> None:
    """Refuse a duration that ends at an instant of more than 63 bits, which no table can hold."""
    duration_ms = command.duration_ms
    if type(duration_ms) is int and now_ms + duration_ms >= OFFSET_STOP:
        raise ArgumentError("duration_ms", duration_ms, f"end before 2**{OFFSET_BITS}, and it begins at {now_ms}")


FIELDS: Final[Mapping[type[Effect], Callable[[Any], Fields]]] = {
    Ignored: lambda e: ("ignored", e.offset, None, e.consumer, e.attempt, None, None, e.call.value, e.reason.value),
    Evicted: lambda e: ("evicted", None, None, e.consumer, None, None, None, None, None),
    Released: lambda e: (
        "released",
        e.offset,
        None,
        e.consumer,
        e.attempt,
        e.failures,
        e.retry_at_ms,
        None,
        e.reason.value,
    ),
    Blocked: lambda e: ("blocked", e.offset, e.key, None, None, e.failures, None, None, e.reason),
    Dropped: lambda e: ("dropped", e.offset, e.key, None, None, None, None, None, e.reason.value),
    Skipped: lambda e: ("skipped", e.offset, e.key, None, None, None, None, None, e.reason.value),
    Settled: lambda e: ("settled", e.offset, e.key, None, None, None, None, None, e.reason.value),
    Done: lambda e: ("done", e.offset, e.key, None, None, None, None, None, e.how.value),
    KeyBegun: lambda e: ("key_begun", None, e.key, e.consumer, e.session, None, None, None, None),
    KeyEnding: lambda e: ("key_ending", None, e.key, e.consumer, e.session, None, None, None, None),
    KeyEnded: lambda e: ("key_ended", None, e.key, e.consumer, e.session, None, None, None, e.reason.value),
    DeadLetter: lambda e: ("dead_letter", e.offset, e.key, None, e.attempt, e.failures, None, None, e.reason),
    Deliver: lambda e: ("deliver", e.offset, e.key, e.consumer, e.attempt, e.failures, None, None, None),
    CursorAdvanced: lambda e: ("cursor_advanced", e.safe_cursor, None, None, None, None, None, None, None),
}


def fields_of(effect: Effect) -> Fields:
    """Return an effect as the fields of an outcome, from ``effect`` on, without the item of its message. O(1).

    Raises:
        KeyError: It is `Spilled`, `Load` or `Resumed`: about the payloads and the reading of the dispatcher's host.

    Example:
        >>> fields_of(CursorAdvanced(4))[:2]
        ('cursor_advanced', 4)
    """
    return FIELDS[type(effect)](effect)
