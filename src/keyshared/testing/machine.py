"""The Hypothesis machine that tries to break a broker: hand it a `Driver`, and run its ``TestCase``.

It publishes, joins, leaves, acks, acks late, nacks until a message is poison, lets time pass, stops reading, crashes
the broker, and writes down what its consumers see. The checker judges that history after each step. In the end
everything is healed: all consumers answer, and what has no answer then is lost.
"""

import sys
from asyncio import new_event_loop
from collections.abc import Iterable
from dataclasses import replace
from typing import ClassVar, NamedTuple, TypeVar

from hypothesis import event
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from keyshared.testing import strategies
from keyshared.testing.checker import Checker
from keyshared.testing.driver import AnyDriver, AsyncDriver, Delivery, Driver, abilities, in_loop
from keyshared.testing.guarantees import Guarantees, Promise, Violation
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

__all__ = ["KeySharedMachine", "PromiseBrokenError"]

_Option = TypeVar("_Option")

_HEALER = "healer"
_REMEMBERED_RECEIPTS = 16


class PromiseBrokenError(AssertionError):
    """A broker has broken a promise.

    Attributes:
        violation: Which, and the proof.
        steps: How many steps it took.
        history: Everything that happened: what the positions of the proof count.
    """

    def __init__(self, violation: Violation, steps: int, history: tuple[Happening, ...]) -> None:
        super().__init__(violation, steps, history)
        self.violation = violation
        self.steps = steps
        self.history = history

    def __str__(self) -> str:
        return f"{self.violation}\n(docs/contract.md#{self.violation.promise} says what this means)"


# One class for each promise: Hypothesis tells failures apart by class and place, and must not shrink one into another.
_BROKEN = {promise: type(f"{promise.name.title()}BrokenError", (PromiseBrokenError,), {}) for promise in Promise}


class _Receipt(NamedTuple):
    """Who got what, and when."""

    consumer: str
    delivery: Delivery
    at_ms: int


class KeySharedMachine(RuleBasedStateMachine):
    """Tries to break a broker. Subclass it, name the driver and what the broker claims, and take its ``TestCase``.

    Attributes:
        driver_class: How to operate the broker; a `Driver` or an `AsyncDriver`.
        guarantees: What the broker claims. Set ``ack_timeout_ms`` if it takes unanswered messages back and its driver
            gives no `Expired`; ``per_consumer`` if it has such a limit, which is then tried.
        max_consumers: How many are connected at once.
        max_outstanding: How many messages are published and not done at once; at most what the broker can take.
        retry_ms: How long a message may wait at most after it was nacked or has expired.
        rest_ms: How long the broker may need at most for anything: lets that much time pass, more than once, before
            what has not come is called lost.
        keys: What is published.
        names: What consumers are called. Few names and keys make a small world, in which rare faults show sooner.

    Example:
        >>> class NobodyHome(Driver):
        ...     def connect(self, consumer, filters=()): ...
        ...     def disconnect(self, consumer): ...
        ...     def publish(self, key):
        ...         return 0
        ...     def receive(self, consumer):
        ...         return []
        >>> class NobodyHomeMachine(KeySharedMachine):
        ...     driver_class = NobodyHome
        >>> machine = NobodyHomeMachine()
        >>> machine.connect("c1", ())
        >>> machine.publish(b"key")
        Traceback (most recent call last):
        keyshared.testing.machine.ProgressBrokenError: progress: offset 0 waits, though nothing holds it back and \
'c1' had room
        #0 Connected(consumer='c1', at_ms=0)
        #2 Published(offset=0, key=b'key', at_ms=0)
        #3 Quiet(at_ms=0)
        (docs/contract.md#progress says what this means)
    """

    driver_class: ClassVar[type[AnyDriver]]
    guarantees: ClassVar[Guarantees] = Guarantees()
    max_consumers: ClassVar[int] = 3
    max_outstanding: ClassVar[int] = 8
    retry_ms: ClassVar[int] = 0
    rest_ms: ClassVar[int] = 1_000
    keys: ClassVar[st.SearchStrategy[bytes | None]] = strategies.keys()
    names: ClassVar[st.SearchStrategy[str]] = strategies.consumer_names()

    def __init__(self) -> None:
        super().__init__()
        self.driver = _start(self.driver_class)
        self.abilities = abilities(self.driver_class)
        # A cursor that nobody can see is not judged; the checker says so itself.
        keeps_up = self.guarantees.cursor_keeps_up and "cursor" in self.abilities
        self.claimed = replace(self.guarantees, cursor_keeps_up=keeps_up)
        self.checker = Checker(self.claimed)
        self.history: list[Happening] = []
        self.now = 0
        self.steps = 0
        self.is_broken = False
        self.log: dict[int, bytes | None] = {}
        self.outstanding: set[int] = set()
        self.members: dict[str, tuple[str, ...]] = {}  # and their filters
        self.unread: dict[str, None] = {}  # who does not read
        self.open: dict[tuple[str, int], _Receipt] = {}
        self.over: list[_Receipt] = []  # of deliveries that have ended, latest last
        self.owners: dict[bytes, str | None] = {}  # by the broker's own word
        self.committed: int | None = None

    # --- consumers --------------------------------------------------------------------------------------------------

    @precondition(lambda self: len(self.members) < self.max_consumers)
    @rule(
        name=st.runner().flatmap(lambda self: self.names),
        filters=st.runner().flatmap(lambda self: strategies.filters() if self.takes_filters else st.just(())),
    )
    def connect(self, name: str, filters: tuple[str, ...]) -> None:
        """A consumer joins."""
        if name not in self.members:
            self._read_on()
            self._connect(name, filters)
            self._end_step()

    @precondition(lambda self: self.members)
    @rule(which=st.integers(0, 3))
    def disconnect(self, which: int) -> None:
        """A consumer leaves with whatever it has."""
        self._read_on()
        self._disconnect(_pick(list(self.members), which))
        self._end_step()

    @precondition(lambda self: self.members)
    @rule(which=st.integers(0, 3))
    def flap(self, which: int) -> None:
        """A consumer loses its connection and comes back at once."""
        self._read_on()
        name = _pick(list(self.members), which)
        filters = self.members[name]
        self._disconnect(name)
        self._look()
        self._connect(name, filters)
        self._end_step()

    @precondition(lambda self: len(self.members) > len(self.unread))
    @rule(which=st.integers(0, 3))
    def stop_reading(self, which: int) -> None:
        """A consumer stays connected and reads nothing, until others come or go, or time passes."""
        name = _pick([name for name in self.members if name not in self.unread], which)
        self.unread[name] = None
        self._tell(LimitChanged(consumer=name, limit=0, at_ms=self.now))
        self._end_step()

    @precondition(lambda self: self.unread)
    @rule()
    def read_on(self) -> None:
        """Everybody reads again."""
        self._read_on()
        self.steps += 1

    # --- messages ---------------------------------------------------------------------------------------------------

    @precondition(lambda self: len(self.outstanding) < self.max_outstanding)
    @rule(key=st.runner().flatmap(lambda self: self.keys))
    def publish(self, key: bytes | None) -> None:
        """A message enters the log."""
        self._publish(key)
        self._end_step()

    @precondition(lambda self: len(self.outstanding) < self.max_outstanding)
    @rule(key=st.runner().flatmap(lambda self: self.keys), count=st.integers(2, 4))
    def publish_some(self, key: bytes | None, count: int) -> None:
        """Several messages of a key enter the log one after the other."""
        for _ in range(min(count, self.max_outstanding - len(self.outstanding))):
            self._publish(key)
            self._look()
        self._end_step()

    @precondition(lambda self: self.open)
    @rule(which=st.integers(0, 7))
    def ack(self, which: int) -> None:
        """A consumer is done with a message."""
        self._ack(_pick(list(self.open.values()), which))
        self._end_step()

    @precondition(lambda self: self.over)
    @rule(which=st.integers(0, 3))
    def ack_late(self, which: int) -> None:
        """A consumer answers for a delivery that is over."""
        self._ack(_pick(self.over[::-1], which))
        self._end_step()

    @precondition(lambda self: self.open and "nack" in self.abilities)
    @rule(which=st.integers(0, 7))
    def nack(self, which: int) -> None:
        """A consumer gives a message back."""
        self._nack(_pick(list(self.open.values()), which))
        self._end_step()

    @precondition(lambda self: self.over and "nack" in self.abilities)
    @rule(which=st.integers(0, 3))
    def nack_late(self, which: int) -> None:
        """A consumer gives a message back that it no longer has."""
        self._nack(_pick(self.over[::-1], which))
        self._end_step()

    @precondition(lambda self: self.open and {"nack", "advance"} <= self.abilities)
    @rule(which=st.integers(0, 7), times=st.integers(2, 6))
    def fail_again_and_again(self, which: int, times: int) -> None:
        """A message fails wherever it goes: poison."""
        offset = _pick(list(self.open.values()), which).delivery.offset
        for _ in range(times):
            receipt = next((each for each in self.open.values() if each.delivery.offset == offset), None)
            if receipt is None:
                break
            self._nack(receipt)
            self._look()
            self._pass_time(self.retry_ms)
        self._end_step()

    # --- time and crashes -------------------------------------------------------------------------------------------

    @precondition(lambda self: "advance" in self.abilities)
    @rule(ms=st.runner().flatmap(lambda self: strategies.delays_ms(*self.timeouts)))
    def advance(self, ms: int) -> None:
        """Time passes."""
        self._pass_time(ms)
        self._end_step()

    @precondition(lambda self: "restart" in self.abilities)
    @rule()
    def restart(self) -> None:
        """The broker crashes and comes back, and so do its consumers."""
        self._read_on()
        members = dict(self.members)
        for name in members:
            self._forget(name)
        self.driver.restart()
        if not self.driver.remembers_acks:
            self._begin_again()
        for name, filters in members.items():
            self._connect(name, filters)
            self._look()
        self._end_step()

    # --- what rules and subclasses ask ------------------------------------------------------------------------------

    @property
    def takes_filters(self) -> bool:
        """Whether consumers can say which keys they want."""
        return self.driver_class.takes_filters

    @property
    def timeouts(self) -> tuple[int | None, ...]:
        """The times that matter: just before, at and after them something may happen."""
        return (self.guarantees.ack_timeout_ms, self.retry_ms, self.rest_ms)

    def blame(self, violation: Violation) -> None:
        """Fail the test.

        Args:
            violation: What was broken. Only the first one is told: what follows may be its consequence.

        Raises:
            PromiseBrokenError: Always.
        """
        self.is_broken = True
        raise _BROKEN[violation.promise](violation, self.steps, tuple(self.history))

    def teardown(self) -> None:
        """Heal everything, see what never comes, and stop the broker."""
        try:
            # An example that is abandoned is not healed: Hypothesis, or the driver, is raising something already.
            if not self.is_broken and sys.exc_info()[0] is None:
                self._come_to_rest()
                for unjudged in self.checker.unjudged():
                    event(str(unjudged))
        finally:
            self.driver.close()

    # --- steps ------------------------------------------------------------------------------------------------------

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

    def _forget(self, name: str) -> None:
        """A consumer is gone, and so is whatever it had open."""
        del self.members[name]
        self.unread.pop(name, None)
        for receipt in [each for each in self.open.values() if each.consumer == name]:
            self._end(receipt)
        self._tell(Gone(consumer=name, at_ms=self.now))

    def _publish(self, key: bytes | None) -> None:
        offset = self.driver.publish(key)
        self.log[offset] = key
        self.outstanding.add(offset)
        self._tell(Published(offset=offset, key=key, at_ms=self.now))

    def _read_on(self) -> None:
        """Make the history complete: nobody comes or goes, and no time passes, while something is not read."""
        if self.unread:
            for name in self.unread:
                self._tell(LimitChanged(consumer=name, at_ms=self.now))
            self.unread.clear()
            self._look()

    def _ack(self, receipt: _Receipt) -> None:
        consumer, delivery, _ = receipt
        counted = self.driver.ack(consumer, delivery)
        is_open = self.open.get((consumer, delivery.offset)) == receipt
        if is_open:
            self._end(receipt)
        if is_open or counted:
            self.outstanding.discard(delivery.offset)
        self._tell(
            Acked(offset=delivery.offset, consumer=consumer, attempt=delivery.attempt, counted=counted, at_ms=self.now)
        )

    def _nack(self, receipt: _Receipt) -> None:
        consumer, delivery, _ = receipt
        counted = self.driver.nack(consumer, delivery)
        is_open = self.open.get((consumer, delivery.offset)) == receipt
        self._tell(
            Nacked(offset=delivery.offset, consumer=consumer, attempt=delivery.attempt, counted=counted, at_ms=self.now)
        )
        if is_open and counted is not False:
            self._end(receipt)
            self._hold_for_retry(delivery.offset)

    def _pass_time(self, ms: int) -> None:
        """Let time pass; deliveries that may have expired by then are no longer open."""
        self._read_on()
        self.driver.advance(ms)
        self.now += ms
        timeout = self.guarantees.ack_timeout_ms
        if timeout is not None:
            for receipt in [each for each in self.open.values() if self.now - each.at_ms >= timeout]:
                self._end(receipt)
                self._hold_for_retry(receipt.delivery.offset)
        self._look()

    def _hold_for_retry(self, offset: int) -> None:
        if self.retry_ms:
            until_ms = self.now + self.retry_ms
            self._tell(Held(offset=offset, reason=HoldReason.RETRY, until_ms=until_ms, at_ms=self.now))

    def _end(self, receipt: _Receipt) -> None:
        self.open.pop((receipt.consumer, receipt.delivery.offset), None)
        self.over = [*self.over, receipt][-_REMEMBERED_RECEIPTS:]

    def _begin_again(self) -> None:
        """Judge a broker that has only its cursor from there: what is above it is outstanding again."""
        resume = 0 if self.committed is None else self.committed
        self.checker, self.history = Checker(self.claimed), []
        # It counts attempts from one again, so an answer from before the crash can look like one for a new delivery.
        self.over = []
        self.outstanding = {offset for offset in self.log if offset >= resume}
        for offset in sorted(self.outstanding):
            self._tell(Published(offset=offset, key=self.log[offset], at_ms=self.now))
        for key, consumer in self.owners.items():
            self._tell(Owned(key=key, consumer=consumer, at_ms=self.now))  # it is said only when it changes
        self.committed = None

    def _end_step(self) -> None:
        self.steps += 1
        self._look()

    def _come_to_rest(self) -> None:
        """Let everybody answer everything until nothing comes any more."""
        self._read_on()
        if self.takes_filters or not self.members:
            self._connect(_HEALER, ())  # somebody who wants everything
            self._look()
        for _ in range(4 * len(self.log) + 4):
            answered = list(self.open.values())
            for receipt in answered:
                self._ack(receipt)
                self._look()
            if "advance" in self.abilities:
                self._pass_time(max(ms for ms in self.timeouts if ms is not None) + 1)
            if not answered and not self.open:
                break
        self._tell(AtRest(at_ms=self.now))

    # --- what is seen -----------------------------------------------------------------------------------------------

    def _look(self) -> None:
        """Write down what the broker has done."""
        if "notices" in self.abilities:
            for happening in self.driver.notices():
                self._notice(happening)
        if "cursor" in self.abilities:
            cursor = self.driver.cursor()
            if cursor is not None and cursor != self.committed:
                self.committed = cursor
                self._tell(Committed(resume_offset=cursor, at_ms=self.now))
        for name in self.members:
            if name not in self.unread:
                self._take(name, self.driver.receive(name))
        if self.guarantees.progress_ms is None:
            self._tell(Quiet(at_ms=self.now))

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

    def _take(self, name: str, deliveries: Iterable[Delivery]) -> None:
        for delivery in deliveries:
            key = delivery.key.encode() if isinstance(delivery.key, str) else delivery.key
            self._tell(
                Delivered(offset=delivery.offset, key=key, consumer=name, attempt=delivery.attempt, at_ms=self.now)
            )
            before = self.open.pop((name, delivery.offset), None)
            if before is not None:
                self._end(before)
            self.open[name, delivery.offset] = _Receipt(name, delivery, self.now)

    def _tell(self, happening: Happening) -> None:
        self.history.append(happening)
        for violation in self.checker.feed(happening):
            self.blame(violation)


def _start(driver_class: type[AnyDriver]) -> Driver:
    if issubclass(driver_class, AsyncDriver):
        return in_loop(driver_class(), new_event_loop())
    return driver_class()


def _pick(options: list[_Option], which: int) -> _Option:
    """One of several, whatever number was drawn: a schedule stays valid while it shrinks."""
    return options[which % len(options)]
