"""Every exception of keyshared: one tree, fields first, the text built from the fields.

Raised for mistakes of the *embedder* only. What a peer does (a late ack, a consumer that is gone) is never an exception
but a value. A call that raises has changed nothing.

Every error can be shown, whatever it was raised for: ``str`` and ``repr`` are at most `MESSAGE_LIMIT` characters long
and never raise, because values are shown by `shown` only. The fields keep the values whole. All errors survive
pickling: ``args`` are the constructor's arguments, and a value that cannot be pickled travels as its text.
"""

import reprlib
from dataclasses import fields, is_dataclass
from typing import Any, Final

__all__ = [
    "MESSAGE_LIMIT",
    "ArgumentError",
    "BatchError",
    "ClockError",
    "ConfigError",
    "ConsumerExistsError",
    "EntryStateError",
    "HashHolderError",
    "InvariantError",
    "KeyFullError",
    "KeySharedError",
    "KeyTypeError",
    "LayoutMismatchError",
    "LookAheadFullError",
    "MissingExtraError",
    "MisuseError",
    "NoRangeLeftError",
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


class ArgumentError(KeySharedError, ValueError):
    """An argument that can never work: wrong whatever the state is.

    Attributes:
        parameter: Name of the argument or field.
        value: What was given.
        requirement: What it must be, as the end of the sentence "it must ...".
    """

    def __init__(self, parameter: str, value: object, requirement: str) -> None:
        super().__init__(parameter, value, requirement)
        self.parameter = parameter
        self.value = value
        self.requirement = requirement

    def _text(self) -> str:
        return f"{_put(self.parameter)} is {shown(self.value)}; it must {_put(self.requirement)}"


class ConfigError(ArgumentError):
    """A configuration that can never work: a field of it, or two of them together."""


class SnapshotError(ArgumentError):
    """A snapshot or token that is truncated, forged or of another version."""


class MissingExtraError(KeySharedError, ImportError):
    """Something was imported or used whose package is not installed.

    Attributes:
        package: What is missing.
        extra: The extra of keyshared that brings it.
    """

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(package, extra)
        self.package = package
        self.extra = extra

    def _text(self) -> str:
        package = shown(self.package)
        return f"this needs the package {package}, which is not installed; install keyshared[{_put(self.extra)}]"


class TooOldError(KeySharedError, NotImplementedError):
    """Something was asked for that an installed package is too old for.

    Attributes:
        what: What was asked for.
        package: What is too old.
        needed: The first version that will do.
        found: The version that is there.
        instead: What to do about it.
    """

    def __init__(self, what: str, package: str, needed: str, found: str, instead: str) -> None:
        super().__init__(what, package, needed, found, instead)
        self.what = what
        self.package = package
        self.needed = needed
        self.found = found
        self.instead = instead

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


class ClockError(MisuseError):
    """``now_ms`` is not an int, or is earlier than in a previous call.

    Attributes:
        now_ms: What was given.
        last_ms: The latest instant seen so far.
    """

    def __init__(self, now_ms: object, last_ms: int) -> None:
        super().__init__(now_ms, last_ms)
        self.now_ms = now_ms
        self.last_ms = last_ms

    def _text(self) -> str:
        return (
            f"now_ms is {shown(self.now_ms)} but the clock already stands at {_put(self.last_ms)}; "
            "pass whole milliseconds of a monotonic clock, or leave it out for the same instant"
        )


class OffsetOrderError(MisuseError):
    """Offsets must be ints that grow strictly.

    Attributes:
        offset: What was offered.
        last: The greatest offset offered so far, or None before the first.
    """

    def __init__(self, offset: object, last: int | None) -> None:
        super().__init__(offset, last)
        self.offset = offset
        self.last = last

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


class WindowFullError(MisuseError):
    """Something was offered although ``free_slots`` was 0.

    Attributes:
        capacity: Messages that may be held at once.
    """

    def __init__(self, capacity: int) -> None:
        super().__init__(capacity)
        self.capacity = capacity

    def _text(self) -> str:
        return f"cannot offer: all {_put(self.capacity)} slots are taken; stop reading while free_slots is 0"


class KeyFullError(WindowFullError):
    """A message was offered although as many of its key wait as may: ``room_for(key)`` was 0.

    Attributes:
        key: The key.
        capacity: ``max_waiting_per_key``.
    """

    def __init__(self, key: bytes | None, capacity: int) -> None:
        MisuseError.__init__(self, key, capacity)
        self.key = key
        self.capacity = capacity

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


class BatchError(MisuseError):
    """A batch was ended that had not begun."""

    def _text(self) -> str:
        return "no batch has begun; call start_batch first, once for each end_batch"


class EntryStateError(MisuseError):
    """A step that the state of a message does not allow.

    Attributes:
        offset: The message.
        state: What it is now.
        wanted: What it was to become.
    """

    def __init__(self, offset: int, state: str, wanted: str) -> None:
        super().__init__(offset, state, wanted)
        self.offset = offset
        self.state = state
        self.wanted = wanted

    def _text(self) -> str:
        change = f"is {_put(self.state)} and cannot become {_put(self.wanted)}"
        return f"offset {_put(self.offset)} {change}; see keyshared.window.NEXT_STATE"


class UnknownConsumerError(MisuseError):
    """A consumer was named that is not connected.

    Attributes:
        consumer: The name.
    """

    def __init__(self, consumer: str) -> None:
        super().__init__(consumer)
        self.consumer = consumer

    def _text(self) -> str:
        return f"consumer {shown(self.consumer)} is not connected; add_consumer it first"


class ConsumerExistsError(MisuseError):
    """A name was added twice: a name is one session.

    Attributes:
        consumer: The name.
    """

    def __init__(self, consumer: str) -> None:
        super().__init__(consumer)
        self.consumer = consumer

    def _text(self) -> str:
        return f"consumer {shown(self.consumer)} is already there; remove it first, or set_active it if it came back"


class HashHolderError(MisuseError):
    """A hash drains at one consumer, and an entry of it was counted for another one.

    Attributes:
        hash: The hash.
        holder: Where it drains.
        consumer: Who was named.
    """

    def __init__(self, hash: int, holder: str, consumer: str) -> None:  # noqa: A002  # the field's name
        super().__init__(hash, holder, consumer)
        self.hash = hash
        self.holder = holder
        self.consumer = consumer

    def _text(self) -> str:
        return (
            f"hash {_put(self.hash)} drains at {shown(self.holder)}, so {shown(self.consumer)} can have nothing "
            "unacked of it; ask should_block before a message goes out"
        )


class KeyTypeError(MisuseError, TypeError):
    """A key that is neither ``bytes`` nor ``str`` nor None.

    Attributes:
        key_type: Name of the type that was given.
    """

    def __init__(self, key_type: str) -> None:
        super().__init__(key_type)
        self.key_type = key_type

    def _text(self) -> str:
        text = "a str that UTF-8 can express" if self.key_type.startswith("str ") else "str"
        return f"a key is of type {_put(self.key_type)}; it must be bytes, {text} or None"


class NoRangeLeftError(MisuseError):
    """A consumer cannot join, because no range is wide enough to be split.

    Attributes:
        consumers: How many have a range.
    """

    def __init__(self, consumers: int) -> None:
        super().__init__(consumers)
        self.consumers = consumers

    def _text(self) -> str:
        return (
            f"cannot split any range further: {_put(self.consumers)} consumers have one slot each; use more slot_bits"
        )


class RangeOverlapError(MisuseError):
    """A range was asked for that shares slots with another one in a way that the placement refuses.

    Attributes:
        consumer: Who was to get it.
        slots: The range: its first slot, and one past its last slot.
        owner: Who has the range that is in the way; may be the same consumer.
        owner_slots: That range, likewise.
    """

    def __init__(self, consumer: str, slots: tuple[int, int], owner: str, owner_slots: tuple[int, int]) -> None:
        super().__init__(consumer, slots, owner, owner_slots)
        self.consumer = consumer
        self.slots = slots
        self.owner = owner
        self.owner_slots = owner_slots

    def _text(self) -> str:
        return (
            f"cannot give slots [{_put(self.slots[0])}, {_put(self.slots[1])}) to {shown(self.consumer)}: they overlap "
            f"[{_put(self.owner_slots[0])}, {_put(self.owner_slots[1])}) of {shown(self.owner)}; "
            "change that range first, or ask for other slots"
        )


class UnownedSlotError(MisuseError):
    """A slot was looked up that nobody owns, and the policy is ``Unowned.ERROR``.

    Attributes:
        slot: The slot.
    """

    def __init__(self, slot: int) -> None:
        super().__init__(slot)
        self.slot = slot

    def _text(self) -> str:
        return f"nobody owns slot {_put(self.slot)}; assign a range with it, or choose Unowned.HOLD or a fallback"


class LayoutMismatchError(MisuseError):
    """A consumer declares other buckets than those of the segment it subscribes to.

    Attributes:
        declared: Where its buckets start.
        agreed: Where the segment's buckets start.
    """

    def __init__(self, declared: tuple[int, ...], agreed: tuple[int, ...]) -> None:
        super().__init__(declared, agreed)
        self.declared = declared
        self.agreed = agreed

    def _text(self) -> str:
        return (
            f"buckets that start at {_starts(self.declared)} are not the segment's, which start at "
            f"{_starts(self.agreed)}; a segment keeps one layout for life, so read it again before subscribing"
        )


class SegmentOrderError(MisuseError):
    """A segment was touched before the segments that come before it were done with.

    Attributes:
        segment: Its id.
        waiting_for: The segments that come first and are not drained.
    """

    def __init__(self, segment: int, waiting_for: tuple[int, ...]) -> None:
        super().__init__(segment, waiting_for)
        self.segment = segment
        self.waiting_for = waiting_for

    def _text(self) -> str:
        first = _listed(self.waiting_for)
        return f"segment {_put(self.segment)} has to wait for segment {first}; drain what comes before it first"


class SegmentSealedError(MisuseError):
    """A segment takes nothing new and changes no more: it has successors, or its end has been read.

    Attributes:
        segment: Its id.
        successors: The segments that took over its range; none if they are not known yet.
    """

    def __init__(self, segment: int, successors: tuple[int, ...]) -> None:
        super().__init__(segment, successors)
        self.segment = segment
        self.successors = successors

    def _text(self) -> str:
        after = _listed(self.successors) or "the segments of a newer SegmentMap"
        return f"segment {_put(self.segment)} is sealed; go on with {after}"


class SequenceOrderError(MisuseError):
    """Sequence ids of one producer must be ints that grow strictly.

    Attributes:
        sequence_id: What was given.
        last: The greatest one before it, or None.
    """

    def __init__(self, sequence_id: object, last: int | None) -> None:
        super().__init__(sequence_id, last)
        self.sequence_id = sequence_id
        self.last = last

    def _text(self) -> str:
        return (
            f"cannot take sequence id {shown(self.sequence_id)} after {shown(self.last)}; "
            "a producer numbers its messages with ints that grow strictly"
        )


class UnknownSegmentError(MisuseError):
    """A segment was named that the map does not hold.

    Attributes:
        segment: What was given.
        epoch: Epoch of the map that was asked.
    """

    def __init__(self, segment: object, epoch: int) -> None:
        super().__init__(segment, epoch)
        self.segment = segment
        self.epoch = epoch

    def _text(self) -> str:
        what = f"segment {shown(self.segment)} at epoch {_put(self.epoch)}"
        return f"there is no {what}; it was pruned, or comes in a newer map"


class SegmentBusyError(MisuseError):
    """A segment was to be forgotten although entries of it are outstanding.

    Attributes:
        segment: Its number.
        outstanding: How many entries are not settled.
    """

    def __init__(self, segment: int, outstanding: int) -> None:
        super().__init__(segment, outstanding)
        self.segment = segment
        self.outstanding = outstanding

    def _text(self) -> str:
        segment, outstanding = _put(self.segment), _put(self.outstanding)
        return f"cannot forget segment {segment}: {outstanding} of its entries are not settled; wait for them"


class UnmatchedKeyError(MisuseError):
    """Nobody would get the key, and the policy is ``Unmatched.ERROR``.

    No consumer's filters accept it, or consumers are connected and none of those that accept it can own it.

    Attributes:
        key: The key.
    """

    def __init__(self, key: bytes | None) -> None:
        super().__init__(key)
        self.key = key

    def _text(self) -> str:
        key = self.key if self.key is None else self.key[:_SHOWN_KEY_BYTES]
        return (
            f"no consumer accepts key {shown(key)}, or nobody owns its slot, or those who accept it own nothing; "
            "widen a filter, assign the slot, or choose Unmatched.HOLD or Unmatched.SKIP"
        )


class QuiesceError(MisuseError):
    """A change of a distribution tree that would break order, or lose messages, while copies are under way.

    Attributes:
        problem: What is missing.
        pending: What has to be drained first, as texts; the first few are shown.
    """

    def __init__(self, problem: str, pending: tuple[str, ...]) -> None:
        super().__init__(problem, pending)
        self.problem = problem
        self.pending = pending

    def _text(self) -> str:
        first = _listed(self.pending[:_SHOWN_HOPS]) or "nothing"
        more = len(self.pending) - _SHOWN_HOPS
        rest = f" and {more} more" if more > 0 else ""
        return (
            f"cannot change the tree: {_put(self.problem)}; to be drained: {first}{rest} (see "
            "keyshared.distribution.Quiescence)"
        )


class InvariantError(KeySharedError, AssertionError):
    """The library broke its own rules: always a bug here, never yours.

    Attributes:
        fact: What should have been true.
    """

    def __init__(self, fact: str) -> None:
        super().__init__(fact)
        self.fact = fact

    def _text(self) -> str:
        return f"invariant broken: {_put(self.fact)}; please report it with the calls that led here"


def _put(value: object) -> str:
    """Return a text as it stands, and anything else as it is shown."""
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
    if is_dataclass(value) and not isinstance(value, type):
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
