"""Write down what a process does with a stream of Redis and a consumer group."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeAlias

from keyshared.testing.errors import in_short
from keyshared.testing.history import Acked, Delivered, Published, Unclear
from keyshared.testing.recorders.log import Clock, Write, check_given, wall_clock_ms

__all__ = ["RedisStreamsRecorder"]

_Text: TypeAlias = str | bytes
_Key: TypeAlias = str | bytes | bytearray | memoryview | int | float
_Fields: TypeAlias = Mapping[Any, Any]
_SOME: Final = "ack its entry in a call of its own: XACK of several says how many it acked, not which"
_NUMBER_BITS: Final = 20  # leaves 43 for milliseconds, enough up to the year 2248


def _key_field(fields: _Fields) -> _Key | None:
    """The field ``key``, whether the client decodes answers or not."""
    key: _Key | None = fields.get("key", fields.get(b"key"))
    return key


class RedisStreamsRecorder:
    """Takes the answers of redis-py, decoded or not, of either protocol.

    The log is the stream. The offset of an entry are the milliseconds of its id times 2**20, plus the number within
    them. The recorder numbers the deliveries of an entry to this consumer. XACK says how many entries it acked, not
    which: of a call that acked some of several, none is judged. Ack one by one, or all.

    Nobody tells that another consumer may claim an entry: claim as ``ack_timeout_ms`` the time after which entries are
    claimed.

    Args:
        write: Where to.
        consumer: The name of this process in the group.
        key_of: Returns the key of an entry by its fields, or None if it has none: a text, bytes or a number, as
            redis-py takes it.
        clock: What time it is.

    `added`, `read` and `claimed` raise `TypeError` if a key is something else.
    """

    def __init__(
        self,
        write: Write,
        consumer: str,
        key_of: Callable[[_Fields], _Key | None] = _key_field,
        clock: Clock = wall_clock_ms,
    ) -> None:
        check_given(write, consumer, clock=clock, key_of=key_of)
        self._write = write
        self._consumer = consumer
        self._key_of = key_of
        self._clock = clock
        self._deliveries: dict[tuple[str, int], int] = {}  # of entries that are not acked

    def added(self, stream: _Text, fields: _Fields, answer: _Text) -> None:
        """Take the answer of XADD: the id of the new entry."""
        self._write(_text(stream), Published(offset=_offset_of(answer), key=self._key(fields), at_ms=self._clock()))

    def read(self, answer: Any) -> None:  # noqa: ANN401  # its form depends on the protocol
        """Take the answer of XREADGROUP, if it read new entries (``>``). What it reads again was delivered before."""
        streams = answer.items() if isinstance(answer, Mapping) else answer or ()
        for stream, entries in streams:
            batches = entries if isinstance(answer, Mapping) else [entries]  # a list for each stream, in protocol 3
            for batch in batches:
                self.claimed(stream, batch)

    def claimed(self, stream: _Text, entries: Iterable[Any]) -> None:
        """Take entries that XCLAIM or XAUTOCLAIM has moved to this consumer."""
        for entry, fields in entries:
            if fields is not None:  # else it was deleted from the stream
                log, offset = _text(stream), _offset_of(entry)
                attempt = self._deliveries[log, offset] = self._deliveries.get((log, offset), 0) + 1
                key, at_ms = self._key(fields), self._clock()
                self._write(
                    log, Delivered(offset=offset, key=key, consumer=self._consumer, attempt=attempt, at_ms=at_ms)
                )

    def acked(self, stream: _Text, entries: Iterable[_Text], answer: int) -> None:
        """Take the answer of XACK: how many of these entries were pending, whoever had them."""
        named, log = list(entries), _text(stream)
        counted = {0: False, len(named): True}.get(answer)
        for entry in named:
            offset, at_ms = _offset_of(entry), self._clock()
            if counted is None:
                self._write(log, Unclear(offset=offset, reason=_SOME, at_ms=at_ms))
                continue
            attempt = self._deliveries.get((log, offset))
            if counted:
                self._deliveries.pop((log, offset), None)
            self._write(
                log, Acked(offset=offset, consumer=self._consumer, attempt=attempt, counted=counted, at_ms=at_ms)
            )

    def _key(self, fields: _Fields) -> bytes | None:
        return _bytes_of(self._key_of(fields))


def _bytes_of(key: _Key | None) -> bytes | None:
    """Return a key as redis-py sends it."""
    match key:
        case None | bytes():
            return key
        case str():
            return key.encode()
        case bytearray() | memoryview():
            return bytes(key)
        case int() | float() if not isinstance(key, bool):
            return repr(key).encode()
        case _:
            raise TypeError(f"the key of an entry is {in_short(key)}; it must be a text, bytes or a number")


def _text(name: _Text) -> str:
    return name.decode() if isinstance(name, bytes) else name


def _offset_of(entry: _Text) -> int:
    time_ms, number = map(int, _text(entry).split("-"))
    return (time_ms << _NUMBER_BITS) + number
