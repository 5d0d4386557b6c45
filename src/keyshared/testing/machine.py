"""The Hypothesis machine that tries to break a broker: hand it a `Driver`, and run its ``TestCase``.

It publishes, joins, leaves, acks, acks late, nacks until a message is poison, lets time pass, stops reading, crashes
the broker, and writes down what its consumers see. The checker judges that history after each step. In the end
everything is healed: all consumers answer, and what has no answer then is lost.
"""

import sys
from collections.abc import Iterator, Sequence
from functools import cache, wraps
from random import Random
from typing import Any, ClassVar

from keyshared._checks import check_extra

check_extra("testing", "hypothesis")

from hypothesis import event
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from keyshared.testing import strategies
from keyshared.testing._chance import explaining_chance
from keyshared.testing._given import check_class, check_kind
from keyshared.testing.bench import Bench
from keyshared.testing.driver import AnyDriver, AsyncDriver, Driver
from keyshared.testing.ending import explain_end
from keyshared.testing.guarantees import Guarantees, Promise, Violation
from keyshared.testing.history import Happening
from keyshared.testing.receipts import pick
from keyshared.testing.steps import (
    Ack,
    AckLate,
    AckThrough,
    BeginAck,
    BeginReceive,
    Connect,
    Disconnect,
    Fail,
    FinishAck,
    FinishReceive,
    Flap,
    KillAt,
    Nack,
    NackLate,
    Poll,
    Postpone,
    Publish,
    PublishLater,
    ReadOn,
    Restart,
    Schedule,
    Step,
    StopReading,
    Wait,
)
from keyshared.testing.world import World

__all__ = ["KeySharedMachine", "PromiseBrokenError"]


class PromiseBrokenError(AssertionError):
    """A broker has broken a promise.

    Attributes:
        violation: Which, and the proof.
        schedule: The steps that led there; `keyshared.testing.replay.run_schedule` takes them again.
        history: Everything that happened: what the positions of the proof count.
        in_the_end: Whether it shows only after the last step, when everybody answers everything.
    """

    def __init__(
        self, violation: Violation, schedule: Schedule, history: tuple[Happening, ...], *, in_the_end: bool = False
    ) -> None:
        super().__init__(violation, schedule, history)
        self.violation = violation
        self.schedule = schedule
        self.history = history
        self.in_the_end = in_the_end

    def __str__(self) -> str:
        end = [explain_end(self.history)] if self.in_the_end else []
        meaning = f"(docs/contract.md#{self.violation.promise} says what this means)"
        return "\n".join([*end, str(self.violation), meaning])


# One class for each promise: Hypothesis tells failures apart by class and place, and must not shrink one into another.
_BROKEN = {promise: type(f"{promise.name.title()}BrokenError", (PromiseBrokenError,), {}) for promise in Promise}


_MOSTS = (None, None, 1, 2)  # how much to ask for, as much as may be most of the time
_ONE_IN = 6
_MOST_STATEMENTS = 24  # before which it is killed


class KeySharedMachine(RuleBasedStateMachine):
    """Tries to break a broker. Subclass it, name the driver and what the broker claims, and take its ``TestCase``.

    Attributes:
        driver_class: How to operate the broker; a `Driver` or an `AsyncDriver`.
        guarantees: What the broker claims. Set ``ack_timeout_ms`` if it takes unanswered messages back and its driver
            gives no `Expired`, with ``tolerance_ms`` if its timers are not exact; ``per_consumer`` if it has such a
            limit, which is then tried.
        max_consumers: How many are connected at once. Where consumers say what they want, the kit's own one joins
            beside them in the end, who wants everything.
        max_outstanding: How many messages are published and not done at once; at most what the broker can take.
        retry_ms: How long a message may wait at most after it was nacked or has expired.
        rest_ms: How long the broker may need at most for anything: lets that much time pass, more than once, before
            what has not come is called lost.
        untried: Kinds of steps that are not tried. ``LATE_ANSWERS`` of `keyshared.testing.steps` is for consumers that
            keep to themselves what comes too late: what their late answers would break hides nothing else then.
        keys: What is published.
        names: What consumers are called. Few names and keys make a small world, in which rare faults show sooner.
        bench: Of an instance: the broker, what has happened to it, and who is connected. For rules of your own.

    Example:
        >>> from keyshared.testing import Driver
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
        keyshared.testing.machine.ProgressBrokenError: progress: offset 0 waits or is lost: nothing holds it back, and \
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
    untried: ClassVar[frozenset[type[Step]]] = frozenset()
    keys: ClassVar[st.SearchStrategy[bytes | None]] = strategies.keys()
    names: ClassVar[st.SearchStrategy[str]] = strategies.consumer_names()

    def __init__(self) -> None:
        super().__init__()
        check_class("driver_class", getattr(self, "driver_class", None), Driver, AsyncDriver)
        check_kind("guarantees", self.guarantees, Guarantees)
        check_kind("keys", self.keys, st.SearchStrategy)
        check_kind("names", self.names, st.SearchStrategy)
        self.is_broken = False
        self._handled = sys.exc_info()[1]  # by whoever runs the machine
        self.bench = Bench(self.driver_class, self.world(), self.blame)
        self._dice: Random | None = None  # without it everybody is polled in joining order

    # --- consumers --------------------------------------------------------------------------------------------------

    @precondition(lambda self: len(self.bench.members) < self.max_consumers)
    @rule(
        name=st.runner().flatmap(lambda self: self.names),
        filters=st.runner().flatmap(lambda self: strategies.filters() if self.bench.takes_filters else st.just(())),
    )
    def connect(self, name: str, filters: tuple[str, ...]) -> None:
        """A consumer joins."""
        self.take(Connect(name, filters))

    @precondition(lambda self: any(self.bench.can(Disconnect(name)) for name in self.bench.members))
    @rule(which=st.integers(0, 3))
    def disconnect(self, which: int) -> None:
        """A consumer leaves with whatever it has."""
        self.take(Disconnect(pick(list(self.bench.members), which)))

    @precondition(lambda self: any(self.bench.can(Flap(name)) for name in self.bench.members))
    @rule(which=st.integers(0, 3))
    def flap(self, which: int) -> None:
        """A consumer loses its connection and comes back at once."""
        self.take(Flap(pick(list(self.bench.members), which)))

    @precondition(lambda self: any(self.bench.can(StopReading(name)) for name in self.bench.members))
    @rule(which=st.integers(0, 3), keys=st.runner().flatmap(lambda self: st.lists(self.keys, max_size=4)))
    def stop_reading(self, which: int, keys: Sequence[bytes | None] = ()) -> None:
        """A consumer stays connected and reads nothing, until others come or go, or time passes; messages come."""
        self.take(StopReading(pick([name for name in self.bench.members if name not in self.bench.unread], which)))
        for key in keys:
            self.take(Publish(key))

    @precondition(lambda self: self.bench.unread)
    @rule()
    def read_on(self) -> None:
        """Everybody reads again."""
        self.take(ReadOn())

    # --- messages ---------------------------------------------------------------------------------------------------

    @precondition(lambda self: self.bench.can(Publish(None)))
    @rule(key=st.runner().flatmap(lambda self: self.keys))
    def publish(self, key: bytes | None) -> None:
        """A message enters the log."""
        self.take(Publish(key))

    @precondition(lambda self: self.bench.can(Publish(None)))
    @rule(key=st.runner().flatmap(lambda self: self.keys), count=st.integers(2, 4))
    def publish_some(self, key: bytes | None, count: int) -> None:
        """Several messages of a key enter the log one after the other."""
        self.take(Publish(key, count))

    @precondition(lambda self: self.bench.can(PublishLater(None, 1)))
    @rule(
        key=st.runner().flatmap(lambda self: self.keys),
        ms=st.runner().flatmap(lambda self: strategies.delays_ms(*self.world().timeouts)),
    )
    def publish_later(self, key: bytes | None, ms: int) -> None:
        """A message enters the log that shall not be delivered yet."""
        self.take(PublishLater(key, ms))

    @precondition(lambda self: self.bench.can(Ack()))
    @rule(which=st.integers(0, 7))
    def ack(self, which: int) -> None:
        """A consumer is done with a message."""
        self.take(Ack(which))

    @precondition(lambda self: self.bench.can(AckLate()))
    @rule(which=st.integers(0, 3))
    def ack_late(self, which: int) -> None:
        """A consumer answers for a delivery that is over."""
        self.take(AckLate(which))

    @precondition(lambda self: self.bench.can(AckThrough()))
    @rule(which=st.integers(0, 7))
    def ack_through(self, which: int) -> None:
        """A consumer is done with a message and all older ones of its key that it has."""
        self.take(AckThrough(which))

    @precondition(lambda self: self.bench.can(Postpone()))
    @rule(which=st.integers(0, 7), ms=st.runner().flatmap(lambda self: strategies.delays_ms(*self.world().timeouts)))
    def postpone(self, which: int, ms: int) -> None:
        """A consumer gives a message back for later."""
        self.take(Postpone(which, ms))

    @precondition(lambda self: self.bench.can(Nack()))
    @rule(which=st.integers(0, 7))
    def nack(self, which: int) -> None:
        """A consumer gives a message back."""
        self.take(Nack(which))

    @precondition(lambda self: self.bench.can(NackLate()))
    @rule(which=st.integers(0, 3))
    def nack_late(self, which: int) -> None:
        """A consumer gives a message back that it no longer has."""
        self.take(NackLate(which))

    @precondition(lambda self: self.bench.can(Fail()))
    @rule(which=st.integers(0, 7), times=st.integers(2, 6))
    def fail_again_and_again(self, which: int, times: int) -> None:
        """A message fails wherever it goes: poison."""
        self.take(Fail(which, times))

    # --- half-way ---------------------------------------------------------------------------------------------------

    @precondition(lambda self: self.bench.can(FinishReceive()))
    @rule(which=st.integers(0, 3))
    def finish_receive(self, which: int) -> None:
        """It receives what it has begun to receive."""
        self.take(FinishReceive(which))

    @precondition(lambda self: self.bench.can(BeginAck()))
    @rule(which=st.integers(0, 7), statements=st.integers(1, 3))
    def begin_ack(self, which: int, statements: int) -> None:
        """A consumer begins to answer that it is done, and stands still half-way."""
        self.take(BeginAck(which, statements))

    @precondition(lambda self: self.bench.can(FinishAck()))
    @rule(which=st.integers(0, 3))
    def finish_ack(self, which: int) -> None:
        """An answer that has begun comes to its end."""
        self.take(FinishAck(which))

    # --- time and crashes -------------------------------------------------------------------------------------------

    @precondition(lambda self: self.bench.can(Wait(1)))
    @rule(ms=st.runner().flatmap(lambda self: strategies.delays_ms(*self.world().timeouts)))
    def advance(self, ms: int) -> None:
        """Time passes."""
        self.take(Wait(ms))

    @precondition(lambda self: self.bench.can(Restart()))
    @rule()
    def restart(self) -> None:
        """The broker crashes and comes back, and so do its consumers."""
        self.take(Restart())

    # --- how steps are taken ---------------------------------------------------------------------------------------

    @initialize(dice=st.randoms(use_true_random=False))
    def draw_polls(self, dice: Random) -> None:
        """From here on each step draws in which order consumers are polled, and what else befalls it."""
        self._dice = dice

    def take(self, step: Step) -> None:
        """Take a step, and draw how: who is polled first and for how much, who stands still, and whether it is killed.

        Args:
            step: What happens.

        Raises:
            Exception: As `Bench.take`.
        """
        if self._dice is not None:
            for prefix in self._drawn(step, self._dice):
                self.bench.take(prefix)
        self.bench.take(step)

    def _drawn(self, step: Step, dice: Random) -> Iterator[Step]:
        bench = self.bench
        newcomer = [step.consumer] if isinstance(step, Connect) else []
        names = list(dict.fromkeys([*bench.members, *newcomer]))
        yield Poll(_some_order(names, dice), dice.choice(_MOSTS) if "receive_some" in bench.abilities else None)
        standing = [name for name in names if bench.can(BeginReceive(name))]
        if standing and _is_rare(dice):
            yield BeginReceive(dice.choice(standing), dice.randint(1, 3))
        if bench.can(KillAt(1)) and _is_rare(dice):
            yield KillAt(dice.randint(1, _MOST_STATEMENTS))

    # --- what others ask --------------------------------------------------------------------------------------------

    @classmethod
    @cache
    def _to_test_case(cls) -> Any:  # noqa: ANN401  # its class is Hypothesis' own
        """Make the ``TestCase``, which says what it means if the same steps do something else the next time."""
        case: Any = super()._to_test_case()
        run = case.runTest

        @wraps(run)
        def explained(self: Any) -> None:  # noqa: ANN401  # likewise
            with explaining_chance():
                run(self)

        case.runTest = explained
        return case

    @classmethod
    def world(cls) -> World:
        """What the attributes of the class say of the broker."""
        return World(cls.guarantees, cls.max_outstanding, cls.retry_ms, cls.rest_ms, cls.untried, cls.max_consumers)

    def blame(self, violation: Violation) -> None:
        """Fail the test.

        Args:
            violation: What was broken. Only the first one is told: what follows may be its consequence.

        Raises:
            PromiseBrokenError: Always.
        """
        self.is_broken = True
        bench, error = self.bench, _BROKEN[violation.promise]
        raise error(violation, tuple(bench.taken), tuple(bench.history), in_the_end=bench.in_the_end)

    def teardown(self) -> None:
        """Heal everything, see what never comes, and stop the broker."""
        try:
            # An example that is abandoned is not healed: Hypothesis, or the driver, is raising something already.
            if not self.is_broken and sys.exc_info()[1] is self._handled:
                self.bench.heal()
                for unjudged in self.bench.checker.unjudged():
                    event(str(unjudged))
        finally:
            self.bench.driver.close()


def _is_rare(dice: Random) -> bool:
    """Whether a receive stands still, or a step is killed, which costs a start of the broker."""
    return dice.randrange(_ONE_IN) == _ONE_IN - 1


def _some_order(names: list[str], dice: Random) -> tuple[str, ...]:
    """Draw an order, and return who has to come first for it; nobody if all come as they are."""
    left, order = [*names], []
    while left:
        order.append(left.pop(dice.randrange(len(left))) if len(left) > 1 else left.pop())
    placed = 0
    while [*order[:placed], *(name for name in names if name not in order[:placed])] != order:
        placed += 1
    return tuple(order[:placed])
