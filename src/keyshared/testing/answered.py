"""What a driver may answer: what it may not is refused, or its own fault would look like one of the broker."""

from collections.abc import Iterable, Iterator
from typing import Any

from keyshared.testing.driver import Delivery
from keyshared.testing.errors import DriverError

__all__ = ["Answers"]


class Answers:
    """Looks at what the methods of a driver return.

    Args:
        driver: The name of its class.
    """

    def __init__(self, driver: str) -> None:
        self._driver = driver

    def counted(self, method: str, answer: object) -> bool | None:
        """Return whether the broker took an answer. A number is none: 0 would be taken for neither yes nor no."""
        if answer is None or isinstance(answer, bool):
            return answer
        raise DriverError(self._driver, method, answer, "True, False or None")

    def offset(self, answer: object) -> int:
        """Return what was published."""
        if type(answer) is not int:
            raise DriverError(self._driver, "publish", answer, "an int, greater than all before")
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
            yield each

    def notices(self, answer: object) -> Iterable[Any]:
        """Return what the broker has said; the checker looks at each of it."""
        return self._many("notices", answer, "a list of happenings, empty if there are none")

    def _many(self, method: str, answer: object, requirement: str) -> Iterable[Any]:
        if isinstance(answer, Iterable):
            return answer
        raise DriverError(self._driver, method, answer, requirement)
