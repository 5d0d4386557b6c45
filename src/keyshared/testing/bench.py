"""The bench on which a broker is tried: takes steps, operates its driver, writes down what consumers see.

The checker judges what is written. The bench draws and decides nothing: the machine and a replay both work on it.
"""

from asyncio import new_event_loop
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Final, TypeVar, assert_never

from keyshared.testing import history as past
from keyshared.testing import steps
from keyshared.testing.answered import Answers
from keyshared.testing.driver import AnyDriver, AsyncDriver, Delivery, abilities, in_loop
from keyshared.testing.ending import HEALER
from keyshared.testing.errors import KilledError, UnsupportedError
from keyshared.testing.guarantees import Violation
from keyshared.testing.history import Happening, HoldReason
from keyshared.testing.judges.checker import Checker
from keyshared.testing.ledger import Ledger
from keyshared.testing.receipts import Begun, Receipt, pick
from keyshared.testing.steps import NEEDS, Step
from keyshared.testing.world import World

__all__ = ["Bench"]

_Answer = TypeVar("_Answer")

_OF_A_MESSAGE: Final = (
    past.DeadLettered,
    past.Done,
    past.Dropped,
    past.Expired,
    past.Freed,
    past.Held,
    past.Redriven,
    past.Released,
    past.Settled,
    past.Skipped,
)

_REMEMBERED_RECEIPTS: Final = 16
_NEEDED: Final = (
    ("kill_at", "restart"),
    ("postpone", "advance"),
    ("publish_later", "advance"),
    ("begin_receive", "finish_receive"),
    ("finish_receive", "begin_receive"),
    ("begin_ack", "finish_ack"),
    ("finish_ack", "begin_ack"),
)


class Bench:
    """One broker on trial.

    Args:
        start: Gives a driver of a fresh broker: mostly its class.
        world: What else there is to know of it.
        blame: Is told of the first violation; has to raise.

    Attributes:
        driver: Operates the broker.
        abilities: What it can do, see `keyshared.testing.driver.ABILITIES`.
        takes_filters: Whether its consumers can say what they want.
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
        _check_halves(type(driver).__name__, self.abilities)
        self.takes_filters = driver.takes_filters
        self.driver = in_loop(driver, new_event_loop()) if isinstance(driver, AsyncDriver) else driver
        self._answers = Answers(type(driver).__name__)
        self._remembers_acks = driver.remembers_acks
        self._world = world
        # A cursor that nobody can see is not judged; the checker says so itself.
        keeps_up = world.guarantees.cursor_keeps_up and "cursor" in self.abilities
        self._claimed = replace(world.guarantees, cursor_keeps_up=keeps_up)
        self._ledger = Ledger(self._claimed, blame)
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
        self._poll = steps.Poll()
        self._asked_for_less = False  # at the last look
        self._kill: steps.KillAt | None = None
        self._unanswered: list[Callable[[], None]] = []  # what may have happened when the process was killed
        self._perhaps: tuple[bytes | None, int | None] | None = None  # a message that may be in the log, and its time
        self._halves: dict[str, int] = {}  # whose receive stands still at the next look, and where
        self._receiving: dict[str, object] = {}
        self._answering: list[Begun] = []

    @property
    def checker(self) -> Checker:
        """Judges."""
        return self._ledger.checker

    @property
    def history(self) -> list[Happening]:
        """What has happened; of a broker that remembers only its cursor, since it was started last."""
        return self._ledger.history

    @property
    def in_the_end(self) -> bool:
        """Whether all steps are taken, and everybody answers everything."""
        return self._ledger.in_the_end

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
            if isinstance(step, steps.Poll | steps.KillAt | steps.BeginReceive):
                self._do(step)
            else:
                with self._ledger.tolerating():
                    self._go(step)
                self._next_as_usual()
                if self._ledger.is_undecided:
                    self.heal()

    def can(self, step: Step) -> bool:
        """Return whether a step would do anything now, and may be tried."""
        if type(step) in self._world.untried:
            return False
        return NEEDS.get(type(step), frozenset()) <= self.abilities and self._is_apt(step)

    def _is_apt(self, step: Step) -> bool:  # noqa: C901, PLR0911, PLR0912  # one answer for each kind
        match step:
            case steps.Poll(first, most):
                return bool(first) or (most is not None and "receive_some" in self.abilities)
            case steps.Connect(consumer):
                return consumer not in self.members and self._has_place()
            case steps.Disconnect(consumer) | steps.Flap(consumer):
                return consumer in self.members
            case steps.StopReading(consumer):
                return consumer in self._readers()
            case steps.BeginReceive(consumer):
                return consumer in self._readers() and self._claimed.per_key == 1
            case steps.FinishReceive():
                return bool(self._receiving)
            case steps.FinishAck():
                return bool(self._answering)
            case steps.ReadOn():
                return bool(self.unread)
            case steps.Publish() | steps.PublishLater():
                return self._may_publish()
            case steps.Ack() | steps.AckThrough() | steps.BeginAck() | steps.Nack() | steps.Postpone() | steps.Fail():
                return bool(self.held())
            case steps.AckLate() | steps.NackLate():
                return bool(self.over)
            case steps.KillAt() | steps.Wait() | steps.Restart():
                return True
            case _:
                assert_never(step)

    def heal(self) -> None:
        """Answer everything for everybody until nothing comes any more."""
        self._ledger.in_the_end = True
        with self._ledger.tolerating():
            self._heal()
        self._ledger.decide()

    def _heal(self) -> None:
        self._next_as_usual()
        self._finish_answers()
        self._read_on()
        if self.takes_filters or not self.members:
            self._connect(HEALER, ())  # somebody who wants everything
            self._look()
        self._ask_for_the_rest()
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
        self._tell(past.AtRest(at_ms=self.now))

    def _next_as_usual(self) -> None:
        self._poll, self._kill = steps.Poll(), None
        self._halves.clear()

    def held(self) -> list[Receipt]:
        """Return the open deliveries that nobody is answering for, oldest first."""
        answering = [begun.receipt for begun in self._answering]
        return [receipt for receipt in self.open.values() if receipt not in answering]

    def _go(self, step: Step) -> None:
        if self._kill is None or isinstance(step, steps.FinishReceive | steps.BeginAck | steps.FinishAck):
            self._do(step)
            if not isinstance(step, steps.ReadOn):
                self._look()
            return
        self._finish_answers()
        self._read_on()
        self._halves.clear()
        members = dict(self.members)
        self.driver.kill_at(self._kill.statement)
        try:
            self._do(step)
            self._look()
        except KilledError:
            pass
        self._come_back(dict(self.members) or members)

    def _do(self, step: Step) -> None:  # noqa: C901, PLR0912  # one case for each kind
        match step:
            case steps.Poll():
                self._poll = step
            case steps.KillAt():
                self._kill = step
            case steps.Connect(consumer, filters):
                self._read_on()
                self._connect(consumer, filters if self.takes_filters else ())
            case steps.Disconnect(consumer):
                self._disconnect(consumer)
            case steps.Flap(consumer):
                self._flap(consumer)
            case steps.StopReading(consumer):
                self.unread[consumer] = None
                self._tell(past.LimitChanged(consumer=consumer, limit=0, at_ms=self.now))
            case steps.ReadOn():
                self._read_on()
            case steps.Publish(key, count):
                self._publish_some(key, count)
            case steps.PublishLater(key, ms):
                self._publish_later(key, ms)
            case steps.Ack(which):
                self._ack(pick(self.held(), which))
            case steps.AckThrough(which):
                self._ack_through(pick(self.held(), which))
            case steps.BeginReceive(consumer, statements):
                self._halves[consumer] = statements
            case steps.FinishReceive(which):
                self._finish_receive(pick(list(self._receiving), which))
            case steps.BeginAck(which, statements):
                self._begin_ack(pick(self.held(), which), statements)
            case steps.FinishAck(which):
                self._finish_ack(pick(self._answering, which))
            case steps.AckLate(which):
                self._ack(pick(self.over[::-1], which))
            case steps.Nack(which):
                self._nack(pick(self.held(), which))
            case steps.NackLate(which):
                self._nack(pick(self.over[::-1], which))
            case steps.Postpone(which, ms):
                self._postpone(pick(self.held(), which), ms)
            case steps.Fail(which, times):
                self._fail(pick(self.held(), which).delivery.offset, times)
            case steps.Wait(ms):
                self._pass_time(ms)
            case steps.Restart():
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
        self._tell(past.Connected(consumer=name, at_ms=self.now))

    def _disconnect(self, name: str) -> None:
        self._read_on()
        self._finish_answers(name)
        self.driver.disconnect(name)
        self._forget(name)

    def _flap(self, name: str) -> None:
        filters = self.members[name]
        self._disconnect(name)
        self._look_fully()
        self._connect(name, filters)

    def _forget(self, name: str) -> None:
        """Forget a consumer that is gone, and everything that it had open."""
        del self.members[name]
        self.unread.pop(name, None)
        for receipt in [each for each in self.open.values() if each.consumer == name]:
            self._end(receipt)
        self._tell(past.Gone(consumer=name, at_ms=self.now))

    def _read_on(self) -> None:
        """Make the history complete: nobody comes or goes, and no time passes, while something is not read."""
        for name in list(self._receiving):
            self._finish_receive(name)
        if self.unread:
            for name in self.unread:
                self._tell(past.LimitChanged(consumer=name, at_ms=self.now))
            self.unread.clear()
            self._look_fully()

    # --- halves -----------------------------------------------------------------------------------------------------

    def _finish_receive(self, name: str) -> None:
        self._receive(name, self.driver.finish_receive(self._receiving.pop(name)))
        self._asked_for_less = True  # it has not asked for what came after its begin

    def _begin_ack(self, receipt: Receipt, statements: int) -> None:
        handle = self.driver.begin_ack(receipt.consumer, receipt.delivery, statements)
        self._answering.append(Begun(receipt, handle, self._ledger.begin(), self.now))

    def _finish_ack(self, begun: Begun) -> None:
        self._answering.remove(begun)
        counted = self.driver.finish_ack(begun.handle)
        at_ms = self.now if counted is False else begun.at_ms  # the delivery may have expired after the begin
        self._ledger.end(begun.answer, self._acked(begun.receipt, counted, at_ms))

    def _finish_answers(self, of: str | None = None) -> None:
        for begun in list(self._answering):
            if of is None or begun.receipt.consumer == of:
                self._finish_ack(begun)

    # --- messages ---------------------------------------------------------------------------------------------------

    def _publish_some(self, key: bytes | None, count: int) -> None:
        for position in range(min(count, self._world.max_outstanding - len(self.outstanding))):
            if position:
                self._look()
            offset = self._ask(partial(self.driver.publish, key), partial(self._publish_perhaps, key))
            self._enter(self._answers.offset("publish", offset), key)

    def _publish_later(self, key: bytes | None, ms: int) -> None:
        until_ms = self._asked_for(ms)
        publish = partial(self.driver.publish_later, key, ms)
        answer = self._ask(publish, partial(self._publish_perhaps, key, until_ms))
        offset = self._answers.offset("publish_later", answer)
        self._earliest[offset] = until_ms
        self._enter(offset, key)

    def _has_place(self) -> bool:
        """Whether one more may be connected."""
        most = self._world.max_consumers
        return most is None or len(self.members) < most

    def _may_publish(self) -> bool:
        """Whether one more may enter the log. Offsets grow, so none does as long as one of them is not known."""
        return self._perhaps is None and len(self.outstanding) < self._world.max_outstanding

    def _publish_perhaps(self, key: bytes | None, until_ms: int | None = None) -> None:
        self._perhaps = key, until_ms

    def _meet(self, offset: int) -> None:
        """Learn that what may have been published was."""
        if self._perhaps is not None and offset not in self._log and self._answers.is_next(offset):
            self._answers.note(offset)
            (key, until_ms), self._perhaps = self._perhaps, None
            if until_ms is not None:
                self._earliest[offset] = until_ms
            self._enter(offset, key)

    def _enter(self, offset: int, key: bytes | None) -> None:
        """A message is in the log."""
        self._log[offset] = key
        self.outstanding.add(offset)
        self._tell_published(offset)

    def _tell_published(self, offset: int) -> None:
        until_ms = self._earliest.get(offset, self.now)
        later = None if until_ms <= self.now else until_ms
        self._tell(past.Published(offset=offset, key=self._log[offset], until_ms=later, at_ms=self.now))
        if later is not None:
            self._tell(past.Held(offset=offset, reason=HoldReason.NOT_BEFORE, until_ms=later, at_ms=self.now))

    def _asked_for(self, ms: int) -> int:
        """The instant before which something is not wanted."""
        until_ms = self.now + ms
        self._latest = max(self._latest, until_ms)
        return until_ms

    def _ask(self, call: Callable[[], _Answer], perhaps: Callable[[], None] | None) -> _Answer:
        """Make a call of the driver; if the broker is killed meanwhile, remember what it may have done, if anything."""
        try:
            return call()
        except KilledError:
            if perhaps is not None:
                self._unanswered.append(perhaps)
            raise

    def _ack(self, receipt: Receipt) -> None:
        ack = partial(self.driver.ack, receipt.consumer, receipt.delivery)
        self._note_ack(receipt, self._ask(ack, partial(self._note_ack, receipt, None)))

    def _ack_through(self, receipt: Receipt) -> None:
        consumer, delivery, _ = receipt
        together = [
            each
            for each in self.open.values()
            if each.consumer == consumer
            and each.delivery.offset < delivery.offset
            and self._is_same_lane(each, receipt)
        ]
        receipts = [*sorted(together, key=lambda older: older.delivery.offset), receipt]
        ack = partial(self.driver.ack_through, consumer, delivery)
        self._note_acks(receipts, self._ask(ack, partial(self._note_acks, receipts, None)))

    def _note_acks(self, receipts: Iterable[Receipt], counted: bool | None) -> None:
        for receipt in receipts:
            self._note_ack(receipt, counted)

    def _is_same_lane(self, one: Receipt, other: Receipt) -> bool:
        key = self._log[one.delivery.offset]
        return self._claimed.total_order or key == self._log[other.delivery.offset] is not None

    def _note_ack(self, receipt: Receipt, counted: bool | None) -> None:
        self._tell(self._acked(receipt, counted, self.now))

    def _acked(self, receipt: Receipt, counted: bool | None, at_ms: int) -> past.Acked:
        consumer, delivery, _ = receipt
        counted = self._answers.counted("ack", counted)
        is_open = self.open.get((consumer, delivery.offset)) == receipt
        if is_open:
            self._end(receipt)
        if is_open or counted:
            self.outstanding.discard(delivery.offset)
        return past.Acked(
            offset=delivery.offset, consumer=consumer, attempt=delivery.attempt, counted=counted, at_ms=at_ms
        )

    def _before_it_ends(self) -> None:
        """Read what was sent while a message was open: read after its end, it would look as if it had overtaken it."""
        if self._claimed.per_key != 1:
            self._read_on()

    def _postpone(self, receipt: Receipt, ms: int) -> None:
        self._before_it_ends()
        consumer, delivery, _ = receipt
        offset, until_ms = delivery.offset, self._asked_for(ms)
        postpone = partial(self.driver.postpone, consumer, delivery, ms)
        perhaps = partial(self._hold, offset, HoldReason.POSTPONED, until_ms)
        counted = self._answers.counted("postpone", self._ask(postpone, perhaps))
        if self.open.get((consumer, offset)) == receipt and counted is not False:
            attempt = delivery.attempt
            self._tell(
                past.Released(offset=offset, consumer=consumer, attempt=attempt, until_ms=until_ms, at_ms=self.now)
            )
            self._end(receipt)
            self._hold(offset, HoldReason.POSTPONED, until_ms)

    def _nack(self, receipt: Receipt) -> None:
        self._before_it_ends()
        consumer, delivery, _ = receipt
        is_open = self.open.get((consumer, delivery.offset)) == receipt
        hold = partial(self._hold_for_retry, delivery.offset) if is_open else None  # a late answer holds nothing back
        counted = self._answers.counted("nack", self._ask(partial(self.driver.nack, consumer, delivery), hold))
        if counted is None and is_open and self._has_alone(receipt):
            counted = True  # the broker does not say so, but it has got the nack of what is open
        self._tell(
            past.Nacked(
                offset=delivery.offset, consumer=consumer, attempt=delivery.attempt, counted=counted, at_ms=self.now
            )
        )
        if hold is not None and counted is not False:
            self._end(receipt)
            hold()

    def _has_alone(self, receipt: Receipt) -> bool:
        """Whether no other delivery of its message is open."""
        return [offset for _, offset in self.open].count(receipt.delivery.offset) == 1

    def _fail(self, offset: int, times: int) -> None:
        for _ in range(times):
            receipt = next((each for each in self.held() if each.delivery.offset == offset), None)
            if receipt is None:
                break
            self._nack(receipt)
            self._look()
            self._pass_time(self._world.retry_ms)

    def _hold_for_retry(self, offset: int) -> None:
        if self._world.retry_ms:
            self._hold(offset, HoldReason.RETRY, self.now + self._world.retry_ms)

    def _hold(self, offset: int, reason: HoldReason, until_ms: int) -> None:
        self._tell(past.Held(offset=offset, reason=reason, until_ms=until_ms, at_ms=self.now))

    def _end(self, receipt: Receipt) -> None:
        self.open.pop((receipt.consumer, receipt.delivery.offset), None)
        self.over = [*self.over, receipt][-_REMEMBERED_RECEIPTS:]

    # --- time and crashes -------------------------------------------------------------------------------------------

    def _pass_time(self, ms: int) -> None:
        """Move time on; deliveries that have expired by then by any clock are no longer open."""
        self._read_on()
        self._ask_for_the_rest()
        if self._claimed.progress_ms is not None:
            self._finish_answers()  # what they make ready must not look as if it had waited
        self.now += ms
        try:
            self.driver.advance(ms)
        finally:  # a clock goes on, so what has expired may wait for its retry, also if the broker is killed meanwhile
            self._note_expired()
        self._look()

    def _note_expired(self) -> None:
        timeout, slack = self._claimed.ack_timeout_ms, self._claimed.tolerance_ms
        if timeout is None:
            return
        for receipt in [each for each in self.open.values() if self.now - each.at_ms >= timeout - slack]:
            if self.now - receipt.at_ms >= timeout + slack:
                self._end(receipt)  # until then somebody may still have it
            self._hold_for_retry(receipt.delivery.offset)

    def _restart(self) -> None:
        self._finish_answers()
        self._read_on()
        self._come_back(dict(self.members))

    def _come_back(self, members: dict[str, tuple[str, ...]]) -> None:
        self._halves.clear()
        for name in list(self.members):
            self._forget(name)
        for happened in self._unanswered:  # perhaps
            happened()
        self._unanswered.clear()
        self.driver.restart()
        if not self._remembers_acks:
            self._begin_again()
        for name, filters in members.items():
            self._connect(name, filters)
            self._look()

    def _begin_again(self) -> None:
        """Judge a broker that has only its cursor from there on: everything above it is outstanding again."""
        resume = 0 if self._committed is None else self._committed
        self._ledger.begin_anew()
        # It counts attempts from one again, so an answer from before the crash can look like one for a new delivery.
        self.over = []
        self.outstanding = {offset for offset in self._log if offset >= resume}
        for offset in sorted(self.outstanding):
            self._tell_published(offset)
        for key, consumer in self.owners.items():
            self._tell(past.Owned(key=key, consumer=consumer, at_ms=self.now))  # it is said only when it changes
        self._committed = None

    # --- what is seen -----------------------------------------------------------------------------------------------

    def _look(self) -> None:
        """Write down what the broker has done."""
        if "notices" in self.abilities:
            for happening in self._answers.notices(self.driver.notices()):
                self._notice(happening)
        if "cursor" in self.abilities:
            cursor = self._answers.cursor(self.driver.cursor())
            if cursor is not None and cursor != self._committed:
                self._committed = cursor
                self._tell(past.Committed(resume_offset=cursor, at_ms=self.now))
        most = self._poll.most if "receive_some" in self.abilities else None
        self._asked_for_less = most is not None
        for name in self._readers():
            if name in self._halves:
                self._receiving[name] = self.driver.begin_receive(name, self._halves.pop(name))
            else:
                self._receive(name, self.driver.receive(name) if most is None else self.driver.receive_some(name, most))
        is_half_way = self._asked_for_less or self._receiving or self._answering
        if self._claimed.progress_ms is None and not is_half_way:
            self._tell(past.Quiet(at_ms=self.now))

    def _ask_for_the_rest(self) -> None:
        """Look fully, so that nothing waits only because nobody has asked for it."""
        if self._asked_for_less:
            self._look_fully()

    def _look_fully(self) -> None:
        """Look while everybody asks for all, and no receive stands still."""
        usual = self._poll, self._halves
        self._poll, self._halves = steps.Poll(self._poll.first), {}
        self._look()
        self._poll, self._halves = usual

    def _readers(self) -> list[str]:
        """Who reads, in the order in which they are polled."""
        order = dict.fromkeys([*self._poll.first, *self.members])
        busy = {*self.unread, *self._receiving}
        return [name for name in order if name in self.members and name not in busy]

    def _notice(self, happening: Happening) -> None:
        if isinstance(happening, _OF_A_MESSAGE):
            self._meet(happening.offset)
            self._answers.known("notices", happening, happening.offset, self._log)
        if isinstance(happening, past.Expired | past.Released):
            receipt = self.open.get((happening.consumer, happening.offset))
            if receipt is None or receipt.delivery.attempt != happening.attempt:
                return  # it was never read, or has ended with its consumer
            self._end(receipt)
        elif isinstance(happening, past.DeadLettered | past.Dropped | past.Skipped | past.Settled):
            self.outstanding.discard(happening.offset)
        elif isinstance(happening, past.Owned):
            self.owners[happening.key] = happening.consumer
        self._tell(happening)
        if isinstance(happening, past.Expired):
            self._hold_for_retry(happening.offset)

    def _receive(self, name: str, deliveries: Iterable[Delivery]) -> None:
        for delivery in self._answers.deliveries(deliveries):
            self._meet(delivery.offset)
            self._answers.known("receive", delivery, delivery.offset, self._log)
            key = delivery.key.encode() if isinstance(delivery.key, str) else delivery.key
            self._tell(
                past.Delivered(offset=delivery.offset, key=key, consumer=name, attempt=delivery.attempt, at_ms=self.now)
            )
            before = self.open.pop((name, delivery.offset), None)
            if before is not None:
                self._end(before)
            self.open[name, delivery.offset] = Receipt(name, delivery, self.now)

    def _tell(self, happening: Happening) -> None:
        self._ledger.tell(happening)


def _check_halves(driver: str, has: frozenset[str]) -> None:
    """A driver with one half of an ability means to have both: without the other one it would never be tried."""
    for half, other in _NEEDED:
        if half in has and other not in has:
            raise UnsupportedError(driver, f"{other}, which {half} needs")
