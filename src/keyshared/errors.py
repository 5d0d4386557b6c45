"""Every exception of keyshared: one tree, fields first, the text built from the fields.

Raised for mistakes of the program that calls keyshared only. A late ack or a consumer that is gone is a value, never an
exception. A call that raises has changed nothing.

Every error can be shown: ``str`` and ``repr`` are at most `MESSAGE_LIMIT` characters long
and never raise, because values are shown by `shown` only. The fields keep the values whole. All errors survive
pickling: ``args`` are the constructor's arguments, and a value that cannot be pickled travels as its text.
"""

import reprlib
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, Final

__all__ = [
    "MESSAGE_LIMIT",
    "ArgumentError",
    "ClockError",
    "ConfigError",
    "ConsumerExistsError",
    "EntryStateError",
    "InvariantError",
    "KeyFullError",
    "KeySharedError",
    "KeyTypeError",
    "LayoutMismatchError",
    "LookAheadFullError",
    "MissingExtraError",
    "MisuseError",
    "OffsetOrderError",
    "QuiesceError",
    "RangeOverlapError",
    "RedriveTooEarlyError",
    "SegmentBusyError",
    "SegmentOrderError",
    "SegmentSealedError",
    "SequenceOrderError",
    "SnapshotError",
    "TooOldError",
    "TopologyError",
    "UnknownConsumerError",
    "UnknownSegmentError",
    "UnmatchedKeyError",
    "UnownedSlotError",
    "WindowFullError",
    "shown",
]

MESSAGE_LIMIT: Final = 500

_VALUE_LIMIT: Final = 160
_CUT: Final = " ... "
_SHOWN_KEY_BYTES: Final = 64
_SHOWN_STARTS: Final = 16
_SHOWN_HOPS: Final = 3


class _ShortRepr(reprlib.Repr):
    """``repr`` that looks at the first few parts of a value only, however large or deep it is."""

    def __init__(self) -> None:
        super().__init__()
        self.maxlevel = 4
        self.maxtuple = self.maxlist = self.maxdict = self.maxset = self.maxfrozenset = 8
        self.maxstring = self.maxother = self.maxlong = _VALUE_LIMIT

    def repr_bytes(self, x: bytes, _level: int) -> str:
        return repr(x) if len(x) <= self.maxstring else f"{x[: self.maxstring // 2]!r} and more, {len(x)} bytes in all"

    def repr_instance(self, x: Any, level: int) -> str:  # noqa: ANN401 - as the base has it
        # the repr that Python writes for these would look at every part, and at shared parts many times
        if not (names := _field_names(x)):
            return super().repr_instance(x, level)
        inner = [f"{name}={self.repr1(getattr(x, name), level - 1)}" for name in names] if level > 0 else ["..."]
        return f"{type(x).__name__}({', '.join(inner)})"


def shown(value: object) -> str:
    """Return a short text of any value; texts of errors are made of these only.

    Args:
        value: What is to be shown: also what is huge, deep or cyclic, or raises when it is asked for its ``repr``.

    Returns:
        Its ``repr`` if that is short, else the parts of it that can be shown.

    Example:
        >>> shown("a"), len(shown("a" * 1_000_000)), shown([[[[[[]]]]]])
        ("'a'", 160, '[[[[...]]]]')
    """
    try:
        return _cut(_SHORT.repr(value), _VALUE_LIMIT)
    except Exception:  # noqa: BLE001 - whatever a foreign __repr__ raises: the error that is being told matters more
        return f"<{type(value).__name__} that cannot be shown>"


class KeySharedError(Exception):
    """Base of every exception that this library raises."""

    def __str__(self) -> str:
        try:
            text = self._text()
        except Exception:  # noqa: BLE001 - fields of a shape that no call here has: show what there is
            return repr(self)
        # a lone surrogate cannot be written to any stream
        return _cut(_cut(text, MESSAGE_LIMIT).encode(errors="backslashreplace").decode(), MESSAGE_LIMIT)

    def __repr__(self) -> str:
        return _cut(f"{type(self).__name__}({', '.join(map(shown, self.args))})", MESSAGE_LIMIT)

    def __reduce__(self) -> tuple[object, ...]:
        state = {name: _carried(value) for name, value in vars(self).items()}
        return type(self), tuple(map(_carried, self.args)), state

    def _text(self) -> str:
        """Return what the error says, of any length."""
        return ", ".join(map(_put, self.args))


@dataclass(eq=False, repr=False)
class ArgumentError(KeySharedError, ValueError):
    """An argument that can never work: wrong whatever the state is.

    Attributes:
        parameter: Name of the argument or field.
        value: The value that was given.
        requirement: What it must be, as the end of the sentence "it must ...".
    """

    parameter: str
    value: object
    requirement: str

    def _text(self) -> str:
        return f"{_put(self.parameter)} is {shown(self.value)}; it must {_put(self.requirement)}"


class ConfigError(ArgumentError):
    """A configuration that can never work: a field of it, or two of them together."""


class SnapshotError(ArgumentError):
    """A snapshot or token that is truncated, damaged or of another version."""


@dataclass(eq=False, repr=False)
class MissingExtraError(KeySharedError, ImportError):
    """Something was imported or used whose package is not installed.

    Attributes:
        package: The missing package.
        extra: The extra of keyshared that brings it.
    """

    package: str
    extra: str

    def _text(self) -> str:
        package = shown(self.package)
        return f"this needs the package {package}, which is not installed; install keyshared[{_put(self.extra)}]"


@dataclass(eq=False, repr=False)
class TooOldError(KeySharedError, NotImplementedError):
    """Something was asked for that an installed package is too old for.

    Attributes:
        what: The function that was called.
        package: The package that is too old.
        needed: The first version that will do.
        found: The version that is there.
        instead: What to do about it.
    """

    what: str
    package: str
    needed: str
    found: str
    instead: str

    def _text(self) -> str:
        versions = f"{_put(self.package)} {_put(self.needed)} or later, and {_put(self.found)} is installed"
        return f"{_put(self.what)} needs {versions}; {_put(self.instead)}"


class TopologyError(ConfigError):
    """A distribution tree, or a change of one, that would lose, repeat or never send messages.

    Attributes:
        path: Where: ``tree[0][1]`` is the second branch of the first branch.
        parameter: What is wrong there.
        value: What it is.
        requirement: What it must be, as the end of the sentence "it must ...".
    """

    def __init__(self, path: str, parameter: str, value: object, requirement: str) -> None:
        super().__init__(parameter, value, requirement)
        self.args = (path, parameter, value, requirement)  # what pickle calls the constructor with
        self.path = path

    def _text(self) -> str:
        return f"at {_put(self.path)}: {super()._text()}"


class MisuseError(KeySharedError, RuntimeError):
    """A call that the present state does not allow."""


@dataclass(eq=False, repr=False)
class ClockError(MisuseError):
    """``now_ms`` is not an int, or is earlier than in a previous call.

    Attributes:
        now_ms: The instant that was given.
        last_ms: The latest instant seen so far.
    """

    now_ms: object
    last_ms: int

    def _text(self) -> str:
        return (
            f"now_ms is {shown(self.now_ms)} but the clock is already at {_put(self.last_ms)}; "
            "pass whole milliseconds of a monotonic clock, or leave it out for the same instant"
        )


@dataclass(eq=False, repr=False)
class OffsetOrderError(MisuseError):
    """Offsets must be ints that grow strictly.

    Attributes:
        offset: The offset that was offered.
        last: The greatest offset offered so far, or None before the first.
    """

    offset: object
    last: int | None

    def _text(self) -> str:
        return (
            f"cannot take offset {shown(self.offset)} after {shown(self.last)}; "
            "offsets are ints that grow strictly (gaps are fine)"
        )


class RedriveTooEarlyError(OffsetOrderError):
    """A dead letter came back before the log was offered up to it.

    Attributes:
        offset: That of the letter.
        last: The greatest offset offered so far, or None before the first.
    """

    def _text(self) -> str:
        return (
            f"cannot redrive offset {shown(self.offset)}: the log was offered up to {shown(self.last)}, and what comes "
            "next may be older messages of its key; redrive it once it was offered"
        )


@dataclass(eq=False, repr=False)
class WindowFullError(MisuseError):
    """Something was offered although ``free_slots`` was 0.

    Attributes:
        capacity: Messages that may be held at once.
    """

    capacity: int

    def _text(self) -> str:
        return f"cannot offer: all {_put(self.capacity)} slots are taken; stop reading while free_slots is 0"


class KeyFullError(WindowFullError):
    """A message was offered although as many of its key wait as may: ``room_for(key)`` was 0.

    Attributes:
        key: The key.
        capacity: ``max_waiting_per_key``.
    """

    def __init__(self, key: bytes | None, capacity: int) -> None:
        super().__init__(capacity)
        self.args = (key, capacity)  # what pickle calls the constructor with
        self.key = key

    def _text(self) -> str:
        key = shown(self.key if self.key is None else self.key[:_SHOWN_KEY_BYTES])
        return f"cannot offer: {_put(self.capacity)} messages of key {key} may wait; ask room_for(key) first"


class LookAheadFullError(WindowFullError):
    """Something was offered although as many messages wait as ``look_ahead`` allows: ``free_slots`` was 0.

    Attributes:
        capacity: How many may wait for the consumers that are connected.
    """

    def _text(self) -> str:
        waiting = f"{_put(self.capacity)} messages may wait for the consumers that are connected"
        return f"cannot offer: {waiting}; stop reading while free_slots is 0"


@dataclass(eq=False, repr=False)
class EntryStateError(MisuseError):
    """A step that the state of a message does not allow.

    Attributes:
        offset: The message.
        state: Its state.
        wanted: The state that it was to get.
    """

    offset: int
    state: str
    wanted: str

    def _text(self) -> str:
        change = f"is {_put(self.state)} and cannot become {_put(self.wanted)}"
        return f"offset {_put(self.offset)} {change}; see keyshared.window.NEXT_STATE"


@dataclass(eq=False, repr=False)
class UnknownConsumerError(MisuseError):
    """A consumer was named that is not connected.

    Attributes:
        consumer: The name.
    """

    consumer: str

    def _text(self) -> str:
        return f"consumer {shown(self.consumer)} is not connected; add_consumer it first"


@dataclass(eq=False, repr=False)
class ConsumerExistsError(MisuseError):
    """A name was added twice: a name is one session.

    Attributes:
        consumer: The name.
    """

    consumer: str

    def _text(self) -> str:
        return f"consumer {shown(self.consumer)} is already there; remove it first, or set_active it if it came back"


@dataclass(eq=False, repr=False)
class KeyTypeError(MisuseError, TypeError):
    """A key that is neither ``bytes`` nor ``str`` nor None.

    Attributes:
        key_type: Name of the type that was given.
    """

    key_type: str

    def _text(self) -> str:
        text = "a str that UTF-8 can express" if self.key_type.startswith("str ") else "str"
        return f"a key is of type {_put(self.key_type)}; it must be bytes, {text} or None"


@dataclass(eq=False, repr=False)
class RangeOverlapError(MisuseError):
    """A range was asked for that shares slots with another one in a way that the placement refuses.

    Attributes:
        consumer: The consumer that was to get it.
        slots: The range: its first slot, and one past its last slot.
        owner: The consumer that has the range in the way; may be the same.
        owner_slots: That range, likewise.
    """

    consumer: str
    slots: tuple[int, int]
    owner: str
    owner_slots: tuple[int, int]

    def _text(self) -> str:
        return (
            f"cannot give slots [{_put(self.slots[0])}, {_put(self.slots[1])}) to {shown(self.consumer)}: they overlap "
            f"[{_put(self.owner_slots[0])}, {_put(self.owner_slots[1])}) of {shown(self.owner)}; "
            "change that range first, or ask for other slots"
        )


@dataclass(eq=False, repr=False)
class UnownedSlotError(MisuseError):
    """A slot was looked up that no consumer owns, and the policy is ``Unowned.ERROR``.

    Attributes:
        slot: The slot.
    """

    slot: int

    def _text(self) -> str:
        return f"no consumer owns slot {_put(self.slot)}; assign a range with it, or choose Unowned.HOLD or a fallback"


@dataclass(eq=False, repr=False)
class LayoutMismatchError(MisuseError):
    """A consumer declares other buckets than those of the segment it subscribes to.

    Attributes:
        declared: Where its buckets start.
        agreed: Where the segment's buckets start.
    """

    declared: tuple[int, ...]
    agreed: tuple[int, ...]

    def _text(self) -> str:
        return (
            f"buckets that start at {_starts(self.declared)} are not the segment's, which start at "
            f"{_starts(self.agreed)}; a segment keeps one layout for life, so read it again before subscribing"
        )


@dataclass(eq=False, repr=False)
class SegmentOrderError(MisuseError):
    """A segment was touched before the segments that come before it were done with.

    Attributes:
        segment: Its id.
        waiting_for: The segments that come first and are not drained.
    """

    segment: int
    waiting_for: tuple[int, ...]

    def _text(self) -> str:
        first = _listed(self.waiting_for)
        return f"segment {_put(self.segment)} has to wait for segment {first}; drain what comes before it first"


@dataclass(eq=False, repr=False)
class SegmentSealedError(MisuseError):
    """A segment takes nothing new and changes no more: it has successors, or its end has been read.

    Attributes:
        segment: Its id.
        successors: The segments that took over its range; none if they are not known yet.
    """

    segment: int
    successors: tuple[int, ...]

    def _text(self) -> str:
        after = _listed(self.successors) or "the segments of a newer SegmentMap"
        return f"segment {_put(self.segment)} is sealed; go on with {after}"


@dataclass(eq=False, repr=False)
class SequenceOrderError(MisuseError):
    """Sequence ids of one producer must be ints that grow strictly.

    Attributes:
        sequence_id: The id that was given.
        last: The greatest one before it, or None.
    """

    sequence_id: object
    last: int | None

    def _text(self) -> str:
        return (
            f"cannot take sequence id {shown(self.sequence_id)} after {shown(self.last)}; "
            "a producer numbers its messages with ints that grow strictly"
        )


@dataclass(eq=False, repr=False)
class UnknownSegmentError(MisuseError):
    """A segment was named that the map does not hold.

    Attributes:
        segment: The segment that was named.
        epoch: Epoch of the map that was asked.
    """

    segment: object
    epoch: int

    def _text(self) -> str:
        what = f"segment {shown(self.segment)} at epoch {_put(self.epoch)}"
        return f"there is no {what}; it was pruned, or comes in a newer map"


@dataclass(eq=False, repr=False)
class SegmentBusyError(MisuseError):
    """A segment was to be forgotten although entries of it are outstanding.

    Attributes:
        segment: Its number.
        outstanding: How many entries are not settled.
    """

    segment: int
    outstanding: int

    def _text(self) -> str:
        segment, outstanding = _put(self.segment), _put(self.outstanding)
        return f"cannot forget segment {segment}: {outstanding} of its entries are not settled; wait for them"


@dataclass(eq=False, repr=False)
class UnmatchedKeyError(MisuseError):
    """No consumer would get the key, and the policy is ``Unmatched.ERROR``.

    No consumer's filters accept it, or consumers are connected and none of those that accept it can own it.

    Attributes:
        key: The key.
    """

    key: bytes | None

    def _text(self) -> str:
        key = self.key if self.key is None else self.key[:_SHOWN_KEY_BYTES]
        return (
            f"no consumer accepts key {shown(key)}, or none owns its slot, or those that accept it own nothing; "
            "widen a filter, assign the slot, or choose Unmatched.HOLD or Unmatched.SKIP"
        )


@dataclass(eq=False, repr=False)
class QuiesceError(MisuseError):
    """A change of a distribution tree that would break order, or lose messages, while copies are under way.

    Attributes:
        problem: The condition that does not hold.
        pending: Copies to be drained first, as texts; the first few are shown.
    """

    problem: str
    pending: tuple[str, ...]

    def _text(self) -> str:
        first = _listed(self.pending[:_SHOWN_HOPS]) or "nothing"
        more = len(self.pending) - _SHOWN_HOPS
        rest = f" and {more} more" if more > 0 else ""
        return (
            f"cannot change the tree: {_put(self.problem)}; to be drained: {first}{rest} (see "
            "keyshared.distribution.Quiescence)"
        )


@dataclass(eq=False, repr=False)
class InvariantError(KeySharedError, AssertionError):
    """The library broke its own rules: always a bug here, never yours.

    Attributes:
        fact: The fact that does not hold.
    """

    fact: str

    def _text(self) -> str:
        return f"invariant broken: {_put(self.fact)}; please report it with the calls that led here"


def _put(value: object) -> str:
    """Return a text unchanged, and anything else as `shown`."""
    return value if type(value) is str else shown(value)


def _listed(values: tuple[object, ...]) -> str:
    more = len(values) - _SHOWN_STARTS
    return ", ".join(map(_put, values[:_SHOWN_STARTS])) + (f" and {more} more" if more > 0 else "")


def _starts(starts: tuple[int, ...]) -> str:
    more = len(starts) - _SHOWN_STARTS
    return f"[{_listed(starts[:_SHOWN_STARTS])}]" + (f" and {more} more" if more > 0 else "")


def _cut(text: str, limit: int) -> str:
    """Take the middle out of a text that is too long; the ends say what is wrong and what to do."""
    if len(text) <= limit:
        return text
    tail = (limit - len(_CUT)) // 3
    return text[: limit - len(_CUT) - tail] + _CUT + text[len(text) - tail :]


def _field_names(value: object) -> tuple[str, ...]:
    """Return the names of the fields of a dataclass or of a named tuple; none for anything else."""
    if is_dataclass(value) and not isinstance(value, type | BaseException):
        return tuple(field.name for field in fields(value) if field.repr)
    return getattr(value, "_fields", ()) if isinstance(value, tuple) else ()


def _carried(value: object) -> object:
    """Return what travels in a pickle: the value, or its text if it cannot."""
    import pickle  # noqa: PLC0415  # only who copies or pickles an error needs it

    try:
        pickle.dumps(value)
    except Exception:  # noqa: BLE001 - as in shown()
        return shown(value)
    return value


_SHORT: Final = _ShortRepr()
