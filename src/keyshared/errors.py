"""Every exception of keyshared: one tree, fields first, the text built from the fields.

Raised for mistakes of the *embedder* only. What a peer does (a late ack, a consumer that is gone) is never an exception
but a value. A call that raises has changed nothing. All of them survive pickling: ``args`` are the constructor's
arguments.
"""

from typing import Final

__all__ = [
    "ClockError",
    "ConfigError",
    "ConsumerExistsError",
    "EntryStateError",
    "InvariantError",
    "KeySharedError",
    "KeyTypeError",
    "MisuseError",
    "OffsetOrderError",
    "SnapshotError",
    "UnknownConsumerError",
    "UnmatchedKeyError",
    "WindowFullError",
]

_SHOWN_KEY_BYTES: Final = 64


class KeySharedError(Exception):
    """Base of every exception that this library raises."""


class ConfigError(KeySharedError, ValueError):
    """A value that can never work: wrong whatever the state is.

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

    def __str__(self) -> str:
        return f"{self.parameter} is {self.value!r}; it must {self.requirement}"


class SnapshotError(ConfigError):
    """A snapshot or token that is truncated, forged or of another version."""


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

    def __str__(self) -> str:
        return (
            f"now_ms is {self.now_ms!r} but the clock already stands at {self.last_ms}; "
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

    def __str__(self) -> str:
        return (
            f"cannot take offset {self.offset!r} after {self.last!r}; "
            "offsets are ints that grow strictly (gaps are fine)"
        )


class WindowFullError(MisuseError):
    """Something was offered although ``free_slots`` was 0.

    Attributes:
        capacity: Messages that may be held at once.
    """

    def __init__(self, capacity: int) -> None:
        super().__init__(capacity)
        self.capacity = capacity

    def __str__(self) -> str:
        return f"cannot offer: all {self.capacity} slots are taken; stop reading while free_slots is 0"


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

    def __str__(self) -> str:
        return f"offset {self.offset} is {self.state} and cannot become {self.wanted}; see keyshared.lanes.NEXT_STATE"


class UnknownConsumerError(MisuseError):
    """A consumer was named that is not connected.

    Attributes:
        consumer: The name.
    """

    def __init__(self, consumer: str) -> None:
        super().__init__(consumer)
        self.consumer = consumer

    def __str__(self) -> str:
        return f"consumer {self.consumer!r} is not connected; add_consumer it first"


class ConsumerExistsError(MisuseError):
    """A name was added twice: a name is one session.

    Attributes:
        consumer: The name.
    """

    def __init__(self, consumer: str) -> None:
        super().__init__(consumer)
        self.consumer = consumer

    def __str__(self) -> str:
        return f"consumer {self.consumer!r} is already there; remove it first, or set_active it if it came back"


class KeyTypeError(MisuseError, TypeError):
    """A key that is neither ``bytes`` nor ``str`` nor None.

    Attributes:
        key_type: Name of the type that was given.
    """

    def __init__(self, key_type: str) -> None:
        super().__init__(key_type)
        self.key_type = key_type

    def __str__(self) -> str:
        return f"a key of type {self.key_type} cannot be hashed the same everywhere; pass bytes, str or None"


class UnmatchedKeyError(MisuseError):
    """No consumer's filters accept the key, and the policy is ``Unmatched.ERROR``.

    Attributes:
        key: The key.
    """

    def __init__(self, key: bytes | None) -> None:
        super().__init__(key)
        self.key = key

    def __str__(self) -> str:
        shown = self.key if self.key is None else self.key[:_SHOWN_KEY_BYTES]
        return f"no consumer accepts key {shown!r}; widen a filter, or choose Unmatched.HOLD or Unmatched.SKIP"


class InvariantError(KeySharedError, AssertionError):
    """The library broke its own rules: always a bug here, never yours.

    Attributes:
        fact: What should have been true.
    """

    def __init__(self, fact: str) -> None:
        super().__init__(fact)
        self.fact = fact

    def __str__(self) -> str:
        return f"invariant broken: {self.fact}; please report it with the calls that led here"
