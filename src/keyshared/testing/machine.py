"""A test case around a search: name a `Driver` and what its broker claims, and take the ``TestCase``."""

from typing import Any, ClassVar
from unittest import TestCase

from keyshared.testing.find import BUDGET, Budget, Finding, find_violation
from keyshared.testing.subject import Subject

__all__ = ["BrokenError", "KeySharedMachine"]


class BrokenError(AssertionError):
    """A broker has broken a promise, or it has raised.

    Attributes:
        finding: What was found.
    """

    def __init__(self, finding: Finding) -> None:
        super().__init__(finding)
        self.finding = finding

    def __str__(self) -> str:
        return f"found by schedule {self.finding.tries}:\n{self.finding}"


class _CaseOf:
    """Makes the ``TestCase`` of a machine when it is asked for."""

    def __init__(self) -> None:
        self._cases: dict[object, Any] = {}

    def __get__(self, instance: object, owner: type[Any]) -> Any:  # noqa: ANN401  # a class of unittest
        if owner not in self._cases:
            names = {"machine": owner, "__module__": owner.__module__, "__doc__": owner.__doc__}
            self._cases[owner] = type(f"{owner.__name__}TestCase", (_Case,), names)
        return self._cases[owner]


class KeySharedMachine(Subject):
    """Names what is tried: subclass it, set the driver and what the broker claims, take its ``TestCase``.

    Attributes:
        TestCase: A test that searches as `keyshared.testing.find.find_violation` does. Set its ``budget`` to try more.

    Example:
        >>> from keyshared.testing import Driver
        >>> class DeliversNothing(Driver):
        ...     def connect(self, consumer, filters=()): ...
        ...     def disconnect(self, consumer): ...
        ...     def publish(self, key):
        ...         self.length = getattr(self, "length", -1) + 1
        ...         return self.length
        ...     def receive(self, consumer):
        ...         return []
        >>> class DeliversNothingMachine(KeySharedMachine):
        ...     driver_class = DeliversNothing
        >>> DeliversNothingMachine.TestCase().runTest()
        Traceback (most recent call last):
        keyshared.testing.machine.BrokenError: found by schedule 1:
        Connect(consumer='c11', filters=())
        Publish(key=b'a', count=1)
        progress: offset 0 waits or is lost: nothing holds it back, and 'c11' had room
        #0 Connected(consumer='c11', at_ms=0)
        #2 Published(offset=0, key=b'a', at_ms=0)
        #3 Quiet(at_ms=0)
        (no time passes: if the message would come after a timeout, write advance, and claim ack_timeout_ms)
    """

    TestCase: ClassVar[Any] = _CaseOf()


class _Case(TestCase):
    """One search."""

    machine: ClassVar[type[KeySharedMachine]]
    budget: ClassVar[Budget] = BUDGET

    def runTest(self) -> None:  # noqa: N802  # unittest's name
        finding = find_violation(self.machine, self.budget)
        if finding is not None:
            raise BrokenError(finding) from (None if finding.raised is None else finding.raised.error)
