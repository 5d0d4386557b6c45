"""The small broker with delays, of which every call may be killed: before it does anything, or before it answers."""

from collections.abc import Callable
from functools import wraps
from typing import Any, ClassVar

from tests.kit.later_broker import LaterDriver, LaterMachine

from keyshared.testing import KilledError
from keyshared.testing.driver import AnyDriver

__all__ = ["MortalDriver", "MortalMachine"]

BOTH = ("connect", "disconnect", "publish", "publish_later", "receive", "ack", "ack_through", "nack", "postpone")


class MortalDriver(LaterDriver):
    """Each call is two statements. What it says of itself is read from what is stored, so it can be said again."""

    def __init__(self) -> None:
        super().__init__()
        self.left = 0

    def kill_at(self, statement: int) -> None:
        self.left = statement

    def advance(self, ms: int) -> None:
        try:
            self.pass_statement()
        except KilledError:
            self.broker.now += ms  # a clock goes on
            raise
        super().advance(ms)
        self.pass_statement()

    def restart(self) -> None:
        self.left = 0
        super().restart()
        self.broker.tick(0)  # what has become due while it was dead

    def pass_statement(self) -> None:
        self.left -= 1
        if not self.left:
            raise KilledError


def _mortal(call: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(call)
    def killed(self: MortalDriver, *args: object) -> Any:
        self.pass_statement()
        answer = call(self, *args)
        self.pass_statement()
        return answer

    return killed


for _name in BOTH:
    setattr(MortalDriver, _name, _mortal(getattr(LaterDriver, _name)))


class MortalMachine(LaterMachine):
    """The claims of the broker that nobody kills."""

    driver_class: ClassVar[type[AnyDriver]] = MortalDriver
