"""The small broker with a clock that is not exact, and one whose clock is wrong."""

from dataclasses import replace
from typing import ClassVar

from tests.kit.small_broker import ACK_TIMEOUT_MS, RETRY_MS, Message, SmallBroker, SmallDriver, SmallMachine

from keyshared.testing.driver import AnyDriver

__all__ = ["TOLERANCE_MS", "ExpiresEarlyMachine", "JitteryMachine"]

TOLERANCE_MS = 8


class JitteryBroker(SmallBroker):
    """Everything that waits for a time comes a little earlier or later."""

    def send(self, message: Message, name: str) -> None:
        super().send(message, name)
        message.due_ms = self.now + self.about(ACK_TIMEOUT_MS, message)

    def fail(self, message: Message) -> None:
        super().fail(message)
        message.due_ms = self.now + self.about(RETRY_MS, message)

    def about(self, ms: int, message: Message) -> int:
        return ms + (message.offset * 7 + message.attempt * 5) % (2 * TOLERANCE_MS + 1) - TOLERANCE_MS


class ExpiresEarly(JitteryBroker):
    """Deliveries expire after two thirds of their time."""

    def about(self, ms: int, message: Message) -> int:
        return ms * 2 // 3 if ms == ACK_TIMEOUT_MS else super().about(ms, message)


class JitteryMachine(SmallMachine):
    """The claims of the small broker, within a tolerance."""

    driver_class: ClassVar[type[AnyDriver]] = type("JitteryDriver", (SmallDriver,), {"broker_class": JitteryBroker})
    claims = replace(SmallMachine.claims, tolerance_ms=TOLERANCE_MS)


class ExpiresEarlyMachine(JitteryMachine):
    """The same claims."""

    driver_class = type("ExpiresEarlyDriver", (SmallDriver,), {"broker_class": ExpiresEarly})
