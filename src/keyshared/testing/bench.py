"""The bench on which a broker is tried: takes steps, operates its driver, writes down what consumers see.

The checker judges what is written. The bench draws and decides nothing: the machine and a replay both work on it.
"""

from asyncio import new_event_loop
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Final, NamedTuple, TypeVar, assert_never

from keyshared.testing.driver import AnyDriver, AsyncDriver, Delivery, abilities, in_loop
from keyshared.testing.guarantees import Guarantees, Violation
from keyshared.testing.history import (
    Acked,
    AtRest,
    Committed,
    Connected,
    DeadLettered,
    Delivered,
    Dropped,
    Expired,
    Gone,
    Happening,
    Held,
    HoldReason,
    LimitChanged,
    Nacked,
    Owned,
    Published,
    Quiet,
    Released,
    Settled,
    Skipped,
)
from keyshared.testing.judges.checker import Checker
from keyshared.testing.steps import (
    Ack,
    AckLate,
    AckThrough,
    Connect,
    Disconnect,
    Fail,
    Flap,
    Nack,
    NackLate,
    Poll,
    Postpone,
    Publish,
    PublishLater,
    ReadOn,
    Restart,
    Step,
    StopReading,
    Wait,
)

__all__ = ["Bench", "Receipt", "World", "pick"]

_Option = TypeVar("_Option")

_HEALER: Final = "healer"
_REMEMBERED_RECEIPTS: Final = 16


class Receipt(NamedTuple):
    """Who got what, and when."""

    consumer: str
    delivery: Delivery
    at_ms: int


class World(NamedTuple):
    """What a bench has to know of a broker besides its driver.

    Attributes:
        guarantees: What it claims.
        max_outstanding: How many messages are published and not done at once; more are not published.
        retry_ms: How long a message may wait at most after it was nacked or has expired.
        rest_ms: How long it may need at most for anything.
    """

    guarantees: Guarantees = Guarantees()
    max_outstanding: int = 8
    retry_ms: int = 0
    rest_ms: int = 1_000

    @property
    def timeouts(self) -> tuple[int, ...]:
        """The times that matter: just before, at and after them something may happen."""
        times = (self.guarantees.ack_timeout_ms, self.retry_ms, self.rest_ms)
        slack = self.guarantees.tolerance_ms
        exact = [ms for ms in times if ms is not None]
        return tuple([near for ms in exact for near in (ms - slack, ms, ms + slack)] if slack else exact)


class Bench:
    """One broker on trial.

    Args:
        start: Gives a driver of a fresh broker: mostly its class.
        world: What else there is to know of it.
        blame: Is told of each violation, when it shows; may raise.

    Attributes:
        driver: Operates the broker.
        abilities: What it can do, see `keyshared.testing.driver.ABILITIES`.
        takes_filters: Whether its consumers can say what they want.
        checker: Judges.
        history: What has happened; of a broker that remembers only its cursor, since it was started last.
        taken: The steps that did something, in order.
        now: Milliseconds that have passed.
        outstanding: Offsets of what is published and not done, as far as it shows.
        members: Who is connected, with its filters.
        unread: Who of them does not read.
        open: The open deliveries by consumer and offset, oldest first.
        over: Those that have ended, latest last; only some.
        owners: Who owns which key by the broker's own word.
    """

    def __init__(self, start: Callable[[], AnyDriver], world: World, blame: Callable[[Violation], None]) -> None:
        driver = start()
        self.abilities = abilities(type(driver))
        self.takes_filters = driver.takes_filters
        self.driver = in_loop(driver, new_event_loop()) if isinstance(driver, AsyncDriver) else driver
        self._remembers_acks = driver.remembers_acks
        self._world = world
        self._blame = blame
        # A cursor that nobody can see is not judged; the checker says so itself.
        keeps_up = world.guarantees.cursor_keeps_up and "cursor" in self.abilities
        self._claimed = replace(world.guarantees, cursor_keeps_up=keeps_up)
        self.checker = Checker(self._claimed)
        self.history: list[Happening] = []
        self.taken: list[Step] = []
        self.now = 0
        self.outstanding: set[int] = set()
        self.members: dict[str, tuple[str, ...]] = {}
        self.unread: dict[str, None] = {}
        self.open: dict[tuple[str, int], Receipt] = {}
        self.over: list[Receipt] = []
        self.owners: dict[bytes, str | None] = {}
        self._log: dict[int, bytes | None] = {}
        self._earliest: dict[int, int] = {}  # of what was published for later
        self._latest = 0  # no time that anybody has asked for is later
        self._committed: int | None = None
        self._poll = Poll()
        self._asked_for_less = False  # at the last look

    # --- steps ------------------------------------------------------------------------------------------------------

    def take(self, step: Step) -> None:
        """Take a step and see what the broker makes of it; pass it over if it cannot be taken now.

        Args:
            step: What happens.

        Raises:
            Exception: Whatever the driver raises, or whoever is told of a violation.
        """
        if self.can(step):
            self.taken.append(step)
            self._do(step)
            if not isinstance(step, ReadOn | Poll):
                self._look()
            if not isinstance(step, Poll):
                self._poll = Poll()

    def can(self, step: Step) -> bool:  # noqa: C901, PLR0911, PLR0912  # one answer for each kind
        """Return whether a step would do anything now."""
        match step:
            case Poll(first, most):
                return bool(first) or (most is not None and "receive_some" in self.abilities)
            case Connect(consumer):
                return consumer not in self.members
            case Disconnect(consumer) | Flap(consumer):
                return consumer in self.members
            case StopReading(consumer):
                return consumer in self.members and consumer not in self.unread
            case ReadOn():
                return bool(self.unread)
            case Publish():
                return len(self.outstanding) < self._world.max_outstanding
            case PublishLater():
                can = {"publish_later", "advance"} <= self.abilities
                return can and len(self.outstanding) < self._world.max_outstanding
            case Ack():
                return bool(self.open)
            case AckThrough():
                return bool(self.open) and "ack_through" in self.abilities
            case AckLate():
                return bool(self.over)
            case Nack():
                return bool(self.open) and "nack" in self.abilities
            case NackLate():
                return bool(self.over) and "nack" in self.abilities
            case Postpone():
                return bool(self.open) and {"postpone", "advance"} <= self.abilities
            case Fail():
                return bool(self.open) and {"nack", "advance"} <= self.abilities
            case Wait():
                return "advance" in self.abilities
            case Restart():
                return "restart" in self.abilities
            case _:
                assert_never(step)

    def heal(self) -> None:
        """Answer everything for everybody until nothing comes any more."""
        self._poll = Poll()
        self._read_on()
        if self.takes_filters or not self.members:
            self._connect(_HEALER, ())  # somebody who wants everything
            self._look()
        if self._latest > self.now:
            self._pass_time(self._latest - self.now + self._claimed.tolerance_ms)
        for _ in range(4 * len(self._log) + 4):
            answered = list(self.open.values())
            for receipt in answered:
                self._ack(receipt)
                self._look()
            if "advance" in self.abilities:
                self._pass_time(max(self._world.timeouts) + 1)
            if not answered and not self.open:
                break
        self._tell(AtRest(at_ms=self.now))

    def _do(self, step: Step) -> None:  # noqa: C901, PLR0912  # one case for each kind
        match step:
            case Poll():
                self._poll = step
            case Connect(consumer, filters):
                self._read_on()
                self._connect(consumer, filters if self.takes_filters else ())
            case Disconnect(consumer):
                self._read_on()
                self._disconnect(consumer)
            case Flap(consumer):
                self._flap(consumer)
            case StopReading(consumer):
                self.unread[consumer] = None
                self._tell(LimitChanged(consumer=consumer, limit=0, at_ms=self.now))
            case ReadOn():
                self._read_on()
            case Publish(key, count):
                self._publish_some(key, count)
            case PublishLater(key, ms):
                self._publish_later(key, ms)
            case Ack(which):
                self._ack(pick(list(self.open.values()), which))
            case AckThrough(which):
                self._ack_through(pick(list(self.open.values()), which))
            case AckLate(which):
                self._ack(pick(self.over[::-1], which))
            case Nack(which):
                self._nack(pick(list(self.open.values()), which))
            case NackLate(which):
                self._nack(pick(self.over[::-1], which))
            case Postpone(which, ms):
                self._postpone(pick(list(self.open.values()), which), ms)
            case Fail(which, times):
                self._fail(pick(list(self.open.values()), which).delivery.offset, times)
            case Wait(ms):
                self._pass_time(ms)
            case Restart():
                self._restart()
            case _:
                assert_never(step)

    # --- consumers --------------------------------------------------------------------------------------------------

    def _connect(self, name: str, filters: tuple[str, ...]) -> None:
        if filters:
            self.driver.connect(name, filters)
        else:
            self.driver.connect(name)
        self.members[name] = filters
        self._tell(Connected(consumer=name, at_ms=self.now))

    def _disconnect(self, name: str) -> None:
        self.driver.disconnect(name)
        self._forget(name)

    def _flap(self, name: str) -> None:
        self._read_on()
        filters = self.members[name]
        self._disconnect(name)
        self._look()
        self._connect(name, filters)

    def _forget(self, name: str) -> None:
        """Forget a consumer that is gone, and everything that it had open."""
        del self.members[name]
        self.unread.pop(name, None)
        for receipt in [each for each in self.open.values() if each.consumer == name]:
            self._end(receipt)
        self._tell(Gone(consumer=name, at_ms=self.now))

    def _read_on(self) -> None:
        """Make the history complete: nobody comes or goes, and no time passes, while something is not read."""
        if self.unread:
            for name in self.unread:
                self._tell(LimitChanged(consumer=name, at_ms=self.now))
            self.unread.clear()
            self._look()

    # --- messages ---------------------------------------------------------------------------------------------------

    def _publish_some(self, key: bytes | None, count: int) -> None:
        for position in range(min(count, self._world.max_outstanding - len(self.outstanding))):
            if position:
                self._look()
            self._enter(self.driver.publish(key), key)

    def _publish_later(self, key: bytes | None, ms: int) -> None:
        offset = self.driver.publish_later(key, ms)
        self._earliest[offset] = self._asked_for(ms)
        self._enter(offset, key)

    def _enter(self, offset: int, key: bytes | None) -> None:
        """A message is in the log."""
        self._log[offset] = key
        self.outstanding.add(offset)
        self._tell_published(offset)

    def _tell_published(self, offset: int) -> None:
        until_ms = self._earliest.get(offset, self.now)
        later = None if until_ms <= self.now else until_ms
        self._tell(Published(offset=offset, key=self._log[offset], until_ms=later, at_ms=self.now))
        if later is not None:
            self._tell(Held(offset=offset, reason=HoldReason.NOT_BEFORE, until_ms=later, at_ms=self.now))

    def _asked_for(self, ms: int) -> int:
        """The instant before which something is not wanted."""
        until_ms = self.now + ms
        self._latest = max(self._latest, until_ms)
        return until_ms

    def _ack(self, receipt: Receipt) -> None:
        self._note_ack(receipt, self.driver.ack(receipt.consumer, receipt.delivery))

    def _ack_through(self, receipt: Receipt) -> None:
        consumer, delivery, _ = receipt
        together = [
            each
            for each in self.open.values()
            if each.consumer == consumer
            and each.delivery.offset < delivery.offset
            and self._is_same_lane(each, receipt)
        ]
        counted = self.driver.ack_through(consumer, delivery)
        for each in [*sorted(together, key=lambda older: older.delivery.offset), receipt]:
            self._note_ack(each, counted)

    def _is_same_lane(self, one: Receipt, other: Receipt) -> bool:
        key = self._log[one.delivery.offset]
        return self._claimed.total_order or key == self._log[other.delivery.offset] is not None

    def _note_ack(self, receipt: Receipt, counted: bool | None) -> None:
        consumer, delivery, _ = receipt
        is_open = self.open.get((consumer, delivery.offset)) == receipt
        if is_open:
            self._end(receipt)
        if is_open or counted:
            self.outstanding.discard(delivery.offset)
        self._tell(
            Acked(offset=delivery.offset, consumer=consumer, attempt=delivery.attempt, counted=counted, at_ms=self.now)
        )

    def _before_it_ends(self) -> None:
        """Read what was sent while a message was open: read after its end, it would look as if it had overtaken it."""
        if self._claimed.per_key != 1:
            self._read_on()

    def _postpone(self, receipt: Receipt, ms: int) -> None:
        self._before_it_ends()
        consumer, delivery, _ = receipt
        offset, until_ms = delivery.offset, self._asked_for(ms)
        counted = self.driver.postpone(consumer, delivery, ms)
        if self.open.get((consumer, offset)) == receipt and counted is not False:
            attempt = delivery.attempt
            self._tell(Released(offset=offset, consumer=consumer, attempt=attempt, until_ms=until_ms, at_ms=self.now))
            self._end(receipt)
            self._tell(Held(offset=offset, reason=HoldReason.POSTPONED, until_ms=until_ms, at_ms=self.now))

    def _nack(self, receipt: Receipt) -> None:
        self._before_it_ends()
        consumer, delivery, _ = receipt
        counted = self.driver.nack(consumer, delivery)
        is_open = self.open.get((consumer, delivery.offset)) == receipt
        self._tell(
            Nacked(offset=delivery.offset, consumer=consumer, attempt=delivery.attempt, counted=counted, at_ms=self.now)
        )
        if is_open and counted is not False:
            self._end(receipt)
            self._hold_for_retry(delivery.offset)

    def _fail(self, offset: int, times: int) -> None:
        for _ in range(times):
            receipt = next((each for each in self.open.values() if each.delivery.offset == offset), None)
            if receipt is None:
                break
            self._nack(receipt)
            self._look()
            self._pass_time(self._world.retry_ms)

    def _hold_for_retry(self, offset: int) -> None:
        if self._world.retry_ms:
            until_ms = self.now + self._world.retry_ms
            self._tell(Held(offset=offset, reason=HoldReason.RETRY, until_ms=until_ms, at_ms=self.now))

    def _end(self, receipt: Receipt) -> None:
        self.open.pop((receipt.consumer, receipt.delivery.offset), None)
        self.over = [*self.over, receipt][-_REMEMBERED_RECEIPTS:]

    # --- time and crashes -------------------------------------------------------------------------------------------

    def _pass_time(self, ms: int) -> None:
        """Move time on; deliveries that have expired by then by any clock are no longer open."""
        self._read_on()
        self._ask_for_all()
        self.driver.advance(ms)
        self.now += ms
        timeout, slack = self._claimed.ack_timeout_ms, self._claimed.tolerance_ms
        if timeout is not None:
            for receipt in [each for each in self.open.values() if self.now - each.at_ms >= timeout - slack]:
                if self.now - receipt.at_ms >= timeout + slack:
                    self._end(receipt)  # until then somebody may still have it
                self._hold_for_retry(receipt.delivery.offset)
        self._look()

    def _ask_for_all(self) -> None:
        """Ask for the rest before time passes: nothing waits only because nobody has asked for it."""
        if self._asked_for_less:
            poll, self._poll = self._poll, Poll(self._poll.first)
            self._look()
            self._poll = poll

    def _restart(self) -> None:
        self._read_on()
        members = dict(self.members)
        for name in members:
            self._forget(name)
        self.driver.restart()
        if not self._remembers_acks:
            self._begin_again()
        for name, filters in members.items():
            self._connect(name, filters)
            self._look()

    def _begin_again(self) -> None:
        """Judge a broker that has only its cursor from there on: everything above it is outstanding again."""
        resume = 0 if self._committed is None else self._committed
        self.checker, self.history = Checker(self._claimed), []
        # It counts attempts from one again, so an answer from before the crash can look like one for a new delivery.
        self.over = []
        self.outstanding = {offset for offset in self._log if offset >= resume}
        for offset in sorted(self.outstanding):
            self._tell_published(offset)
        for key, consumer in self.owners.items():
            self._tell(Owned(key=key, consumer=consumer, at_ms=self.now))  # it is said only when it changes
        self._committed = None

    # --- what is seen -----------------------------------------------------------------------------------------------

    def _look(self) -> None:
        """Write down what the broker has done."""
        if "notices" in self.abilities:
            for happening in self.driver.notices():
                self._notice(happening)
        if "cursor" in self.abilities:
            cursor = self.driver.cursor()
            if cursor is not None and cursor != self._committed:
                self._committed = cursor
                self._tell(Committed(resume_offset=cursor, at_ms=self.now))
        most = self._poll.most if "receive_some" in self.abilities else None
        self._asked_for_less = most is not None
        for name in self._in_turn():
            self._receive(name, self.driver.receive(name) if most is None else self.driver.receive_some(name, most))
        if self._claimed.progress_ms is None and not self._asked_for_less:
            self._tell(Quiet(at_ms=self.now))

    def _in_turn(self) -> list[str]:
        """Who reads, in the order in which they are polled."""
        order = dict.fromkeys([*self._poll.first, *self.members])
        return [name for name in order if name in self.members and name not in self.unread]

    def _notice(self, happening: Happening) -> None:
        if isinstance(happening, Expired | Released):
            receipt = self.open.get((happening.consumer, happening.offset))
            if receipt is None or receipt.delivery.attempt != happening.attempt:
                return  # it was never read, or has ended with its consumer
            self._end(receipt)
        elif isinstance(happening, DeadLettered | Dropped | Skipped | Settled):
            self.outstanding.discard(happening.offset)
        elif isinstance(happening, Owned):
            self.owners[happening.key] = happening.consumer
        self._tell(happening)
        if isinstance(happening, Expired):
            self._hold_for_retry(happening.offset)

    def _receive(self, name: str, deliveries: Iterable[Delivery]) -> None:
        for delivery in deliveries:
            key = delivery.key.encode() if isinstance(delivery.key, str) else delivery.key
            self._tell(
                Delivered(offset=delivery.offset, key=key, consumer=name, attempt=delivery.attempt, at_ms=self.now)
            )
            before = self.open.pop((name, delivery.offset), None)
            if before is not None:
                self._end(before)
            self.open[name, delivery.offset] = Receipt(name, delivery, self.now)

    def _tell(self, happening: Happening) -> None:
        self.history.append(happening)
        for violation in self.checker.feed(happening):
            self._blame(violation)


def pick(options: list[_Option], which: int) -> _Option:
    """One of several, whatever number was drawn: a schedule stays valid while it shrinks."""
    return options[which % len(options)]
