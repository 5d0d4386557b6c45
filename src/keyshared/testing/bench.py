"""The bench on which a broker is tried: takes steps, operates its driver, writes down what consumers see.

The checker judges what is written. The bench draws and decides nothing: it takes the steps of a schedule.
"""

from asyncio import new_event_loop
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Final, TypeAlias, TypeVar, assert_never

from keyshared.testing import history as h
from keyshared.testing import steps
from keyshared.testing.answers import Answers, Begun, Receipt
from keyshared.testing.claims import Violation
from keyshared.testing.driver import AsyncDriver, Delivery, checked_abilities, in_loop
from keyshared.testing.errors import KilledError
from keyshared.testing.history import Event, HoldReason
from keyshared.testing.log import Log
from keyshared.testing.steps import NEEDS, Step
from keyshared.testing.subject import Subject

__all__ = ["LAST", "Bench"]

_Answer = TypeVar("_Answer")
_Option = TypeVar("_Option")

LAST: Final = "last"
"""The kit's own consumer, which joins in the end and wants everything, where nobody else surely does."""

_Answering: TypeAlias = (
    steps.Ack
    | steps.AckLate
    | steps.AckThrough
    | steps.BeginAck
    | steps.FinishAck
    | steps.Nack
    | steps.NackLate
    | steps.Postpone
    | steps.Fail
)
_OF_A_MESSAGE: Final = (
    *(h.DeadLettered, h.Done, h.Dropped, h.Expired, h.Freed, h.Held),
    *(h.Redriven, h.Released, h.Settled, h.Skipped),
)
_REMEMBERED_RECEIPTS: Final = 16
_KILLED: Final = "its process was killed in a call for this message"


class Bench:
    """One broker on trial.

    Args:
        subject: Its driver, and what it claims.
        blame: Is called with the first violation; has to raise.

    Attributes:
        driver: Operates the broker.
        abilities: The abilities that the driver has.
        taken: The steps that did something, in order.
        log: What has happened, and its checker.
        members: Who is connected, with its filters.
        open: The open deliveries by consumer and offset, oldest first.
        over: Deliveries that have ended, latest last; only some.
    """

    def __init__(self, subject: type[Subject], blame: Callable[[Violation], None]) -> None:
        driver = subject.driver_class()
        self.abilities = checked_abilities(type(driver))
        self.takes_filters = driver.takes_filters
        self._remembers_acks, self._resumes_at_cursor = driver.remembers_acks, driver.resumes_at_cursor
        self.driver = in_loop(driver, new_event_loop()) if isinstance(driver, AsyncDriver) else driver
        self._answers = Answers(type(driver).__name__)
        self._subject = subject
        # A cursor that does not show is not judged; the checker says so itself.
        keeps_up = subject.claims.cursor_keeps_up and "cursor" in self.abilities
        rewinds = subject.claims.rewinds or self._resumes_at_cursor or not self._remembers_acks
        self._claims = replace(subject.claims, cursor_keeps_up=keeps_up, rewinds=rewinds)
        self.log = Log(self._claims, blame)
        self.taken: list[Step] = []
        self.members: dict[str, tuple[str, ...]] = {}
        self.open: dict[tuple[str, int], Receipt] = {}
        self.over: list[Receipt] = []
        self._now = 0
        self._outstanding: set[int] = set()  # what is published and not done, as far as it shows
        self._unread: dict[str, None] = {}  # consumers that do not read
        self._keys: dict[int, bytes | None] = {}
        self._deliveries: Counter[int] = Counter()  # of systems that do not number them
        self._latest = 0  # no time that was asked for is later
        self._committed: int | None = None
        self._poll = steps.Poll()
        self._asked_for_less = False  # at the last look
        self._kill: steps.KillAt | None = None
        self._unanswered: list[Callable[[], None]] = []  # what may have happened when the process was killed
        self._perhaps: tuple[bytes | None, int | None] | None = None  # a message that may be in the log, and its time
        self._halves: dict[str, int] = {}  # whose receive stands still at the next look, and where
        self._receiving: dict[str, object] = {}
        self._answering: list[Begun] = []

    # --- steps ------------------------------------------------------------------------------------------------------

    def take(self, step: Step) -> None:
        """Take a step and see what the broker makes of it; pass it over if it cannot be taken now.

        Args:
            step: What happens.

        Raises:
            Exception: Whatever the driver or ``blame`` raises.
        """
        if not self.can(step):
            return
        self.taken.append(step)
        if isinstance(step, steps.Poll | steps.KillAt | steps.BeginReceive):
            self._do(step)
            return
        try:
            self._go(step)
        except Exception:
            if not self.log.is_undecided:  # else what was overtaken came first
                raise
        self._poll, self._kill = steps.Poll(), None
        self._halves.clear()
        if self.log.is_undecided:
            self.heal()

    def can(self, step: Step) -> bool:
        """Return whether a step would do anything now, and may be tried."""
        if type(step) in self._subject.untried:
            return False
        return NEEDS.get(type(step), frozenset()) <= self.abilities and self._is_apt(step)

    def _is_apt(self, step: Step) -> bool:  # noqa: C901, PLR0911, PLR0912  # one answer for each kind
        match step:
            case steps.Poll(first, most):
                return bool(first) or (most is not None and "receive_some" in self.abilities)
            case steps.Connect(consumer):
                return consumer not in self.members and len(self.members) < self._subject.max_consumers
            case steps.Disconnect(consumer) | steps.Flap(consumer):
                return consumer in self.members
            case steps.StopReading(consumer):
                return consumer in self._readers()
            case steps.BeginReceive(consumer):
                return consumer in self._readers() and self._claims.per_key == 1
            case steps.FinishReceive():
                return bool(self._receiving)
            case steps.FinishAck():
                return bool(self._answering)
            case steps.ReadOn():
                return bool(self._unread)
            case steps.Publish() | steps.PublishLater() | steps.PublishMany():
                return self._perhaps is None and len(self._outstanding) < self._subject.max_outstanding
            case steps.Ack() | steps.AckThrough() | steps.BeginAck() | steps.Nack() | steps.Postpone() | steps.Fail():
                return bool(self._held())
            case steps.AckLate() | steps.NackLate():
                return bool(self.over)
            case steps.KillAt() | steps.Wait() | steps.Restart():
                return True
            case _:
                assert_never(step)

    def heal(self) -> None:
        """Answer everything for all consumers until nothing comes any more."""
        self.log.in_the_end = True
        try:
            self._heal()
        except Exception:
            if not self.log.is_undecided:
                raise
        self.log.decide()

    def _heal(self) -> None:
        self._poll, self._kill = steps.Poll(), None
        self._halves.clear()
        self._finish_answers()
        self._read_on()
        if self.takes_filters or not self.members:
            self._connect(LAST, ())
            self._look()
        self._ask_for_the_rest()
        if self._latest > self._now:
            self._pass_time(self._latest - self._now + self._claims.tolerance_ms)
        for _ in range(4 * len(self._keys) + 4):
            answered = list(self.open.values())
            for receipt in answered:
                self._ack(receipt)
                self._look()
            if "advance" in self.abilities:
                self._pass_time(max(self._subject.timeouts()) + 1)
            if not answered and not self.open:
                break
        self.log.write(h.AtRest(at_ms=self._now))

    def _held(self) -> list[Receipt]:
        """Return the open deliveries for which no answer is under way, oldest first."""
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
                filters = self.members[consumer]
                self._disconnect(consumer)
                self._look_fully()
                self._connect(consumer, filters)
            case steps.StopReading(consumer):
                self._unread[consumer] = None
                self.log.write(h.LimitChanged(consumer=consumer, limit=0, at_ms=self._now))
            case steps.ReadOn():
                self._read_on()
            case steps.Publish(key, count):
                self._publish_some(key, count)
            case steps.PublishMany(keys):
                self._publish_many(keys)
            case steps.PublishLater(key, ms):
                self._publish_later(key, ms)
            case steps.BeginReceive(consumer, statements):
                self._halves[consumer] = statements
            case steps.FinishReceive(which):
                self._finish_receive(_pick(list(self._receiving), which))
            case steps.Wait(ms):
                self._pass_time(ms)
            case steps.Restart():
                self._finish_answers()
                self._read_on()
                self._come_back(dict(self.members))
            case _:
                self._answer(step)

    def _answer(self, step: _Answering) -> None:
        match step:
            case steps.Ack(which):
                self._ack(_pick(self._held(), which))
            case steps.AckThrough(which):
                self._ack_through(_pick(self._held(), which))
            case steps.BeginAck(which, statements):
                receipt = _pick(self._held(), which)
                handle = self.driver.begin_ack(receipt.consumer, receipt.delivery, statements)
                self._answering.append(Begun(receipt, handle, self.log.begin(), self._now))
            case steps.FinishAck(which):
                self._finish_ack(_pick(self._answering, which))
            case steps.AckLate(which):
                self._ack(_pick(self.over[::-1], which))
            case steps.Nack(which):
                self._nack(_pick(self._held(), which))
            case steps.NackLate(which):
                self._nack(_pick(self.over[::-1], which))
            case steps.Postpone(which, ms):
                self._postpone(_pick(self._held(), which), ms)
            case steps.Fail(which, times):
                self._fail(_pick(self._held(), which).delivery.offset, times)
            case _:
                assert_never(step)

    # --- consumers --------------------------------------------------------------------------------------------------

    def _connect(self, name: str, filters: tuple[str, ...]) -> None:
        if filters:
            self.driver.connect(name, filters)
        else:
            self.driver.connect(name)
        self.members[name] = filters
        self.log.write(h.Connected(consumer=name, at_ms=self._now))
        if self._resumes_at_cursor:
            self._rewind()

    def _disconnect(self, name: str) -> None:
        self._read_on()
        self._finish_answers(name)
        self.driver.disconnect(name)
        self._forget(name)
        if self._resumes_at_cursor:
            self._rewind()

    def _rewind(self) -> None:
        """The broker reads on from its cursor, and may number deliveries from 1 again."""
        self.over.clear()
        self._look_at_cursor()
        self.log.write(h.Rewound(resume_offset=0 if self._committed is None else self._committed, at_ms=self._now))

    def _forget(self, name: str) -> None:
        """Forget a consumer that is gone, and everything that it had open."""
        del self.members[name]
        self._unread.pop(name, None)
        for receipt in [each for each in self.open.values() if each.consumer == name]:
            self._end(receipt)
        self.log.write(h.Gone(consumer=name, at_ms=self._now))

    def _read_on(self) -> None:
        """Make the history complete: no consumer comes or goes, and no time passes, while something is not read."""
        for name in list(self._receiving):
            self._finish_receive(name)
        if self._unread:
            for name in self._unread:
                self.log.write(h.LimitChanged(consumer=name, at_ms=self._now))
            self._unread.clear()
            self._look_fully()

    def _finish_receive(self, name: str) -> None:
        self._receive(name, self.driver.finish_receive(self._receiving.pop(name)))
        self._asked_for_less = True  # it has not asked for what came after its begin

    def _finish_ack(self, begun: Begun) -> None:
        self._answering.remove(begun)
        counted = self.driver.finish_ack(begun.handle)
        at_ms = self._now if counted is False else begun.at_ms  # the delivery may have expired after the begin
        self.log.end(begun.answer, self._acked(begun.receipt, counted, at_ms))

    def _finish_answers(self, of: str | None = None) -> None:
        for begun in list(self._answering):
            if of is None or begun.receipt.consumer == of:
                self._finish_ack(begun)

    # --- messages ---------------------------------------------------------------------------------------------------

    def _publish_some(self, key: bytes | None, count: int) -> None:
        for position in range(min(count, self._subject.max_outstanding - len(self._outstanding))):
            if position:
                self._look()
            offset = self._ask(partial(self.driver.publish, key), partial(self._publish_perhaps, key))
            self._enter(self._answers.offset("publish", offset), key)

    def _publish_many(self, keys: Sequence[bytes | None]) -> None:
        keys = keys[: self._subject.max_outstanding - len(self._outstanding)]
        offsets = self._answers.offsets(self.driver.publish_many(keys), len(keys))
        for offset, key in zip(offsets, keys, strict=True):
            self._enter(offset, key)

    def _publish_later(self, key: bytes | None, ms: int) -> None:
        until_ms = self._asked_for(ms)
        publish = partial(self.driver.publish_later, key, ms)
        offset = self._ask(publish, partial(self._publish_perhaps, key, until_ms))
        self._enter(self._answers.offset("publish_later", offset), key, until_ms)

    def _publish_perhaps(self, key: bytes | None, until_ms: int | None = None) -> None:
        self._perhaps = key, until_ms

    def _meet(self, offset: int) -> None:
        """Learn that a message whose publication was not answered is in the log."""
        if self._perhaps is not None and offset not in self._keys and self._answers.is_next(offset):
            self._answers.note(offset)
            (key, until_ms), self._perhaps = self._perhaps, None
            self._enter(offset, key, until_ms)

    def _enter(self, offset: int, key: bytes | None, until_ms: int | None = None) -> None:
        """A message is in the log."""
        self._keys[offset] = key
        self._outstanding.add(offset)
        later = until_ms if until_ms is not None and until_ms > self._now else None
        self.log.write(h.Published(offset=offset, key=key, until_ms=later, at_ms=self._now))
        if later is not None:
            self._hold(offset, HoldReason.NOT_BEFORE, later)

    def _asked_for(self, ms: int) -> int:
        """Return the time before which something is not wanted."""
        until_ms = self._now + ms
        self._latest = max(self._latest, until_ms)
        return until_ms

    def _ask(self, call: Callable[[], _Answer], perhaps: Callable[[], None]) -> _Answer:
        """Make a call of the driver; if the broker is killed meanwhile, remember what it may have done."""
        try:
            return call()
        except KilledError:
            self._unanswered.append(perhaps)
            raise

    def _unclear(self, *receipts: Receipt) -> None:
        for receipt in receipts:
            self.log.write(h.Unclear(offset=receipt.delivery.offset, reason=_KILLED, at_ms=self._now))

    def _ack(self, receipt: Receipt) -> None:
        ack = partial(self.driver.ack, receipt.consumer, receipt.delivery)
        counted = self._ask(ack, partial(self._unclear, receipt))
        self.log.write(self._acked(receipt, counted, self._now))

    def _ack_through(self, receipt: Receipt) -> None:
        key, offset = self._keys[receipt.delivery.offset], receipt.delivery.offset
        receipts = [
            each
            for each in sorted(self.open.values(), key=lambda each: each.delivery.offset)
            if each.consumer == receipt.consumer
            and each.delivery.offset < offset
            and (self._claims.total_order or key == self._keys[each.delivery.offset] is not None)
        ]
        receipts.append(receipt)
        ack = partial(self.driver.ack_through, receipt.consumer, receipt.delivery)
        counted = self._ask(ack, partial(self._unclear, *receipts))
        for each in receipts:
            self.log.write(self._acked(each, counted, self._now))

    def _acked(self, receipt: Receipt, counted: bool | None, at_ms: int) -> h.Acked:
        consumer, delivery, attempt, _ = receipt
        counted = self._answers.counted("ack", counted)
        is_open = self._is_open(receipt)
        if is_open:
            self._end(receipt)
        if is_open or counted:
            self._outstanding.discard(delivery.offset)
        return h.Acked(offset=delivery.offset, consumer=consumer, attempt=attempt, counted=counted, at_ms=at_ms)

    def _before_it_ends(self) -> None:
        """Read what was sent while a message was open: read after its end, it would look as if it had overtaken it."""
        if self._claims.per_key != 1:
            self._read_on()

    def _postpone(self, receipt: Receipt, ms: int) -> None:
        self._before_it_ends()
        consumer, delivery, attempt, _ = receipt
        offset, until_ms = delivery.offset, self._asked_for(ms)
        postpone = partial(self.driver.postpone, consumer, delivery, ms)
        counted = self._answers.counted("postpone", self._ask(postpone, partial(self._unclear, receipt)))
        if self._is_open(receipt) and counted is not False:
            self.log.write(
                h.Released(offset=offset, consumer=consumer, attempt=attempt, until_ms=until_ms, at_ms=self._now)
            )
            self._end(receipt)
            self._hold(offset, HoldReason.POSTPONED, until_ms)

    def _nack(self, receipt: Receipt) -> None:
        self._before_it_ends()
        consumer, delivery, attempt, _ = receipt
        is_open = self._is_open(receipt)
        nack = partial(self.driver.nack, consumer, delivery)
        counted = self._answers.counted("nack", self._ask(nack, partial(self._unclear, receipt)))
        self.log.write(
            h.Nacked(offset=delivery.offset, consumer=consumer, attempt=attempt, counted=counted, at_ms=self._now)
        )
        if is_open and counted is not False:
            self._end(receipt)
            self._hold_for_retry(delivery.offset)

    def _fail(self, offset: int, times: int) -> None:
        for _ in range(times):
            receipt = next((each for each in self._held() if each.delivery.offset == offset), None)
            if receipt is None:
                break
            self._nack(receipt)
            self._look()
            self._pass_time(self._subject.retry_ms)

    def _hold_for_retry(self, offset: int) -> None:
        if self._subject.retry_ms:
            self._hold(offset, HoldReason.RETRY, self._now + self._subject.retry_ms)

    def _hold(self, offset: int, reason: HoldReason, until_ms: int) -> None:
        self.log.write(h.Held(offset=offset, reason=reason, until_ms=until_ms, at_ms=self._now))

    def _is_open(self, receipt: Receipt) -> bool:
        return self.open.get((receipt.consumer, receipt.delivery.offset)) == receipt

    def _end(self, receipt: Receipt) -> None:
        self.open.pop((receipt.consumer, receipt.delivery.offset), None)
        self.over = [*self.over, receipt][-_REMEMBERED_RECEIPTS:]

    # --- time and crashes -------------------------------------------------------------------------------------------

    def _pass_time(self, ms: int) -> None:
        """Move time on; deliveries that have expired by then are no longer open."""
        self._read_on()
        self._ask_for_the_rest()
        self._now += ms
        try:
            self.driver.advance(ms)
        finally:  # a clock goes on, so what has expired may wait for its retry, also if the broker is killed meanwhile
            self._note_expired()
        self._look()

    def _note_expired(self) -> None:
        timeout, slack = self._claims.ack_timeout_ms, self._claims.tolerance_ms
        if timeout is None:
            return
        # Until it has surely expired it may be answered for; but then the answer may be late.
        most = timeout - slack if steps.AckLate in self._subject.untried else timeout + slack
        for receipt in [each for each in self.open.values() if self._now - each.at_ms >= timeout - slack]:
            if self._now - receipt.at_ms >= most:
                self._end(receipt)
            self._hold_for_retry(receipt.delivery.offset)

    def _come_back(self, members: dict[str, tuple[str, ...]]) -> None:
        self._halves.clear()
        for name in list(self.members):
            self._forget(name)
        for happened in self._unanswered:  # perhaps
            happened()
        self._unanswered.clear()
        self.driver.restart()
        if not self._remembers_acks:
            self._rewind()
        for name, filters in members.items():
            self._connect(name, filters)
            self._look()

    # --- what is seen -----------------------------------------------------------------------------------------------

    def _look(self) -> None:
        """Write down what the broker has done."""
        if "notices" in self.abilities:
            for event in self._answers.notices(self.driver.notices()):
                self._notice(event)
        self._look_at_cursor()
        most = self._poll.most if "receive_some" in self.abilities else None
        self._asked_for_less = most is not None
        for name in self._readers():
            if name in self._halves:
                self._receiving[name] = self.driver.begin_receive(name, self._halves.pop(name))
            else:
                self._receive(name, self.driver.receive(name) if most is None else self.driver.receive_some(name, most))
        if not (self._asked_for_less or self._receiving or self._answering):
            self.log.write(h.Quiet(at_ms=self._now))

    def _look_at_cursor(self) -> None:
        if "cursor" in self.abilities:
            cursor = self._answers.cursor(self.driver.cursor())
            if cursor is not None and cursor != self._committed:
                self._committed = cursor
                self.log.write(h.Committed(resume_offset=cursor, at_ms=self._now))

    def _ask_for_the_rest(self) -> None:
        """Look fully, so that nothing waits only because no consumer has asked for it."""
        if self._asked_for_less:
            self._look_fully()

    def _look_fully(self) -> None:
        """Look while all consumers ask for all, and no receive stands still."""
        usual = self._poll, self._halves
        self._poll, self._halves = steps.Poll(self._poll.first), {}
        self._look()
        self._poll, self._halves = usual

    def _readers(self) -> list[str]:
        """Return who reads, in the order in which they are polled."""
        order = dict.fromkeys([*self._poll.first, *self.members])
        busy = {*self._unread, *self._receiving}
        return [name for name in order if name in self.members and name not in busy]

    def _notice(self, event: Event) -> None:
        if isinstance(event, _OF_A_MESSAGE):
            self._meet(event.offset)
            self._answers.known("notices", event, event.offset, self._keys)
        if isinstance(event, h.Expired | h.Released):
            receipt = self.open.get((event.consumer, event.offset))
            if receipt is None or event.attempt not in {None, receipt.attempt}:
                return  # it was never read, or has ended with its consumer
            event = replace(event, attempt=receipt.attempt)
            self._end(receipt)
        elif isinstance(event, h.DeadLettered | h.Dropped | h.Skipped | h.Settled):
            self._outstanding.discard(event.offset)
        self.log.write(event)
        if isinstance(event, h.Expired):
            self._hold_for_retry(event.offset)

    def _receive(self, name: str, deliveries: Iterable[Delivery]) -> None:
        for delivery in self._answers.deliveries(deliveries):
            offset = delivery.offset
            self._meet(offset)
            self._answers.known("receive", delivery, offset, self._keys)
            key = delivery.key.encode() if isinstance(delivery.key, str) else delivery.key
            self._deliveries[offset] += 1
            attempt = self._deliveries[offset] if delivery.attempt is None else delivery.attempt
            self.log.write(h.Delivered(offset=offset, key=key, consumer=name, attempt=attempt, at_ms=self._now))
            before = self.open.pop((name, offset), None)
            if before is not None:
                self._end(before)
            self.open[name, offset] = Receipt(name, delivery, attempt, self._now)


def _pick(options: list[_Option], which: int) -> _Option:
    """Return one of several, whatever number was drawn: a schedule stays valid while it gets shorter."""
    return options[which % len(options)]
