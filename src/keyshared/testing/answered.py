"""What a driver may answer: what it may not is refused, or its own fault would look like one of the broker."""

from collections.abc import Container, Iterable, Iterator
from typing import Any, Final, get_args

from keyshared.testing.driver import Delivery
from keyshared.testing.errors import DriverError
from keyshared.testing.history import Acked, AtRest, Committed, Delivered, Happening, Nacked, Published, Quiet

__all__ = ["Answers"]

_SEEN: Final = frozenset({Published, Delivered, Acked, Nacked, Committed, Quiet, AtRest})
_SAID: Final = frozenset(get_args(Happening)) - _SEEN


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
        last = self._last_offset
        if type(answer) is not int or (last is not None and answer <= last):
            raise DriverError(self._driver, method, answer, "an int, greater than all before")
        self._last_offset = answer
        return answer

    def cursor(self, answer: object) -> int | None:
        """Return where the broker would read on."""
        if answer is not None and type(answer) is not int:
            raise DriverError(self._driver, "cursor", answer, "an int, or None")
        return answer

    def deliveries(self, answer: object) -> Iterator[Delivery]:
        """Return what was received."""
        for each in self._many("receive", answer, "a list of Delivery, empty if nothing has come"):
            if not isinstance(each, Delivery):
                raise DriverError(self._driver, "receive", each, "a list of Delivery")
            if type(each.offset) is not int or not isinstance(each.key, bytes | str | None):
                raise DriverError(self._driver, "receive", each, "offsets as ints, and keys as bytes")
            if each.attempt is not None and type(each.attempt) is not int:
                raise DriverError(self._driver, "receive", each, "attempts as ints, or None")
            yield each

    def known(self, delivery: Delivery, published: Container[int]) -> None:
        """Refuse a delivery of what was never published: the driver has not named the message by its offset."""
        if delivery.offset not in published:
            requirement = "offsets that publish has returned; what comes back has its first one"
            raise DriverError(self._driver, "receive", delivery, requirement)

    def notices(self, answer: object) -> Iterator[Any]:
        """Return what the broker has said: what consumers see is written down when they see it."""
        for each in self._many("notices", answer, "a list of happenings, empty if there are none"):
            if type(each) not in _SAID:
                raise DriverError(self._driver, "notices", each, "what only the broker knows, such as Owned or Expired")
            yield each

    def _many(self, method: str, answer: object, requirement: str) -> Iterable[Any]:
        if isinstance(answer, Iterable):
            return answer
        raise DriverError(self._driver, method, answer, requirement)
