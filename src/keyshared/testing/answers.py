"""What the methods of a driver may return: anything else is refused, or its own fault would look like the broker's."""

from collections.abc import Container, Iterable, Iterator
from typing import Any, Final, NamedTuple, TypeGuard, get_args

from keyshared.testing import history as h
from keyshared.testing.driver import Delivery
from keyshared.testing.errors import DriverError
from keyshared.testing.log import UnderWay

__all__ = ["Answers", "Begun", "Receipt"]

_LOWEST, _HIGHEST = -(1 << 63), (1 << 63) - 1  # what a history can hold
_SEEN: Final = frozenset({h.Published, h.Delivered, h.Acked, h.Nacked, h.Committed, h.Quiet, h.AtRest})
_SAID: Final = frozenset(get_args(h.Event)) - _SEEN


class Receipt(NamedTuple):
    """A delivery that a consumer got: its number by the driver or by the bench, and when."""

    consumer: str
    delivery: Delivery
    attempt: int
    at_ms: int


class Begun(NamedTuple):
    """An ack that stands half-way: what the driver needs to finish it, and what the log keeps rows for."""

    receipt: Receipt
    handle: object
    answer: UnderWay
    at_ms: int


class Answers:
    """Looks at what the methods of a driver return.

    Args:
        driver: The name of its class.
    """

    def __init__(self, driver: str) -> None:
        self._driver = driver
        self._last_offset: int | None = None

    def counted(self, method: str, answer: object) -> bool | None:
        """Return whether the broker took an answer. A number is none: 0 would be taken for neither yes nor no."""
        if answer is None or isinstance(answer, bool):
            return answer
        raise DriverError(self._driver, method, answer, "True, False or None")

    def offset(self, method: str, answer: object) -> int:
        """Return what was published."""
        if not self.is_next(answer):
            raise DriverError(self._driver, method, answer, "an int of 64 bits, greater than all before")
        self.note(answer)
        return answer

    def offsets(self, answer: object, count: int) -> list[int]:
        """Return what was published in one call."""
        found = [self.offset("publish_many", each) for each in self._many("publish_many", answer, "a list of offsets")]
        if len(found) != count:
            raise DriverError(self._driver, "publish_many", answer, f"{count} offsets, one for each key")
        return found

    def is_next(self, offset: object) -> TypeGuard[int]:
        """Return whether that can be the offset of what was published last."""
        return _is_int64(offset) and (self._last_offset is None or offset > self._last_offset)

    def note(self, offset: int) -> None:
        """Remember the offset of what was published last, also if no answer has told it."""
        self._last_offset = offset

    def cursor(self, answer: object) -> int | None:
        """Return where the broker would read on."""
        if answer is not None and not _is_int64(answer):
            raise DriverError(self._driver, "cursor", answer, "an int of 64 bits, or None")
        return answer

    def deliveries(self, answer: object) -> Iterator[Delivery]:
        """Return what was received."""
        for each in self._many("receive", answer, "a list of Delivery, empty if nothing has come"):
            if not isinstance(each, Delivery):
                raise DriverError(self._driver, "receive", each, "a list of Delivery")
            if not _is_int64(each.offset) or not _is_key(each.key):
                raise DriverError(self._driver, "receive", each, "offsets as ints of 64 bits, and keys as bytes")
            if not _is_attempt(each.attempt):
                raise DriverError(self._driver, "receive", each, "attempts as ints of 64 bits, or None")
            yield each

    def known(self, method: str, answer: object, offset: int, published: Container[int]) -> None:
        """Refuse to hear of what was never published: the driver has not named the message by its offset."""
        if offset not in published:
            requirement = "offsets that publish has returned; what comes back has its first one"
            raise DriverError(self._driver, method, answer, requirement)

    def notices(self, answer: object) -> Iterator[Any]:
        """Return what the broker has said: what consumers see is written down when they see it."""
        for each in self._many("notices", answer, "a list of events, empty if there are none"):
            if type(each) not in _SAID:
                raise DriverError(self._driver, "notices", each, "what only the broker knows, such as Owned or Expired")
            if not _is_int64(getattr(each, "offset", 0)) or not _is_attempt(getattr(each, "attempt", None)):
                raise DriverError(self._driver, "notices", each, "offsets and attempts as ints of 64 bits")
            yield each

    def _many(self, method: str, answer: object, requirement: str) -> Iterable[Any]:
        if isinstance(answer, Iterable):
            return answer
        raise DriverError(self._driver, method, answer, requirement)


def _is_int64(value: object) -> TypeGuard[int]:
    return type(value) is int and _LOWEST <= value <= _HIGHEST


def _is_attempt(value: object) -> bool:
    return value is None or _is_int64(value)


def _is_key(value: object) -> bool:
    """Whether that is a key, or none; a text with a lone surrogate has no bytes."""
    if isinstance(value, str):
        return value == value.encode(errors="ignore").decode()
    return isinstance(value, bytes | None)
