"""The small broker with delays and with acks of several at once, its driver, and faults that such brokers have."""

from collections.abc import Iterable
from typing import ClassVar, Final, NamedTuple

from tests.kit.small_broker import Message, SmallBroker, SmallDriver, SmallMachine

from keyshared.testing import Delivery, Promise
from keyshared.testing.driver import AnyDriver
from keyshared.testing.machine import KeySharedMachine

__all__ = ["LATER_FAULTS", "LaterBroker", "LaterDriver", "LaterFault", "LaterMachine"]


class LaterBroker(SmallBroker):
    """What is to come later waits as a retry does, and holds its key like one."""

    def append_later(self, key: bytes | None, ms: int) -> int:
        offset = len(self.log)
        self.log.append(key)
        self.messages[offset] = Message(offset, key, "retry", due_ms=self.now + ms)
        self.dispatch()
        return offset

    def postpone(self, name: str, offset: int, attempt: int, ms: int) -> bool:
        message = self.messages.get(offset)
        if message is None or not self.is_current(message, name, attempt):
            return False
        self.put_off(message, ms)
        self.dispatch()
        return True

    def ack_through(self, name: str, offset: int, attempt: int) -> bool:
        message = self.messages.get(offset)
        if message is None or not self.is_current(message, name, attempt):
            return False
        for each in self.together(message):
            self.settle(each)
        self.dispatch()
        return True

    # --- what faults change -----------------------------------------------------------------------------------------

    def put_off(self, message: Message, ms: int) -> None:
        message.state, message.consumer, message.due_ms = "retry", "", self.now + ms

    def together(self, message: Message) -> Iterable[Message]:
        """What is acked with a message: of one delivery of a key at a time only that."""
        return [message]


class LaterDriver(SmallDriver):
    """Operates a broker that can do things later, correct or not."""

    broker_class: ClassVar[type[LaterBroker]] = LaterBroker
    broker: LaterBroker

    def publish_later(self, key: bytes | None, ms: int) -> int:
        return self.broker.append_later(key, ms)

    def postpone(self, consumer: str, delivery: Delivery, ms: int) -> bool | None:
        return self.broker.postpone(consumer, delivery.offset, delivery.attempt or 0, ms)

    def ack_through(self, consumer: str, delivery: Delivery) -> bool | None:
        return self.broker.ack_through(consumer, delivery.offset, delivery.attempt or 0)


class LaterMachine(SmallMachine):
    """Everything that it claims."""

    driver_class: ClassVar[type[AnyDriver]] = LaterDriver


class PostponedLikeARetry(LaterBroker):
    """However long it is asked to wait, it waits as long as a retry (Pulsar's negative acknowledgement)."""

    def put_off(self, message: Message, ms: int) -> None:
        super().put_off(message, min(ms, 10))


class PostponedForgottenInACrash(LaterBroker):
    """The timers of what waits live in the process: after a crash all of it is at hand."""

    def crash(self) -> None:
        super().crash()
        self.put_back([message for message in self.messages.values() if message.state == "retry"])


class PublishedLaterGoesAtOnce(LaterBroker):
    """The time of a message is looked at when it is delivered again, and not when it is delivered first."""

    def append_later(self, key: bytes | None, ms: int) -> int:  # noqa: ARG002  # the fault
        return self.append(key)


class PostponedHoldsNothing(LaterBroker):
    """What waits for its time is in another queue, and newer ones of its key pass it."""

    def is_held(self, message: Message) -> bool:
        return message.key is not None and any(
            other.key == message.key and other.offset < message.offset and (other.state != "retry" or other.failures)
            for other in self.messages.values()
        )


class AcksThroughWhatWaits(LaterBroker):
    """An ack of several settles all that is older, also of keys that nobody has worked on."""

    def together(self, message: Message) -> Iterable[Message]:
        return [each for each in self.messages.values() if each.offset <= message.offset]


class LaterFault(NamedTuple):
    """A broker with delays and one fault."""

    broker: type[LaterBroker]
    promises: frozenset[Promise]

    @property
    def machine(self) -> type[KeySharedMachine]:
        """What is to find the fault."""
        name = self.broker.__name__
        driver = type(f"{name}Driver", (LaterDriver,), {"broker_class": self.broker})
        return type(f"{name}Machine", (LaterMachine,), {"driver_class": driver})


LATER_FAULTS: Final = (
    LaterFault(PostponedLikeARetry, frozenset({Promise.NOT_EARLY})),
    LaterFault(PostponedForgottenInACrash, frozenset({Promise.NOT_EARLY})),
    LaterFault(PublishedLaterGoesAtOnce, frozenset({Promise.NOT_EARLY})),
    LaterFault(PostponedHoldsNothing, frozenset({Promise.KEY_ORDER})),
    LaterFault(AcksThroughWhatWaits, frozenset({Promise.NO_LOSS, Promise.SAFE_CURSOR, Promise.PROGRESS})),
)
