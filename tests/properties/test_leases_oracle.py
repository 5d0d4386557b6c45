"""The lease queue against a slow one: the same calls, the same answers, and nothing handed out that must not be."""

import json
from collections.abc import Callable, Sequence
from random import Random
from typing import Any, Protocol, TypeAlias, TypeVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule
from tests.leasing import assigned, count_held, count_leased, count_reserved, lease_config, letters
from tests.properties.broken_leases import BROKEN, RemovalBreaksBatches, TokensAreForgotten
from tests.properties.slow_groups import GROUP_RULES
from tests.properties.slow_leases import SlowLeases

from keyshared._core import endings
from keyshared._core.endings import Endings
from keyshared._core.membership import Membership
from keyshared._core.records import Consumer
from keyshared._queries import Queries
from keyshared.config import DrainUnit, GroupLimits, Poison, Rules
from keyshared.effects import (
    Blocked,
    CursorAdvanced,
    DeadLetter,
    Done,
    Dropped,
    Effect,
    Ignored,
    Released,
    ReleaseReason,
    Settled,
    Skipped,
)
from keyshared.leases import (
    InvalidHandle,
    InvalidReservation,
    Lease,
    LeaseAnswer,
    LeaseConfig,
    LeaseQueue,
    NothingToLease,
    Reservation,
    why_empty,
)
from keyshared.leases.table import LeaseTable
from keyshared.placement.assigned import AssignedRanges

_Option = TypeVar("_Option")

NAMES = ("ann", "bob", "cat")
SPANS = ("a-z", "a-m", "n-z", "c-p", "b-b")
KEYS = ("a", "b", "b", "b2", "o", None)
EVENTS = {
    Released: "released",
    Blocked: "blocked",
    Done: "done",
    Dropped: "dropped",
    Settled: "settled",
    Skipped: "skipped",
    DeadLetter: "dead_letter",
}


Make: TypeAlias = Callable[[LeaseConfig, AssignedRanges, Rules | None], Any]


class Choose(Protocol):
    """Picks one of several."""

    def __call__(self, options: Sequence[_Option], /) -> _Option: ...


class Real:
    """The real queue, its answers in the words of the slow one."""

    def __init__(self, config: LeaseConfig, ranges: AssignedRanges, rules: Rules | None = None) -> None:
        self.config, self.ranges, self.rules = config, ranges, rules
        self.queue = LeaseQueue(None if config.dispatcher.ordering_required else ranges, config, rules=rules)
        self.now = 0
        self.offered: list[int] = []
        self.consumers: list[str] = []
        self.events: list[tuple[Any, ...]] = []

    def pass_time(self, now: int) -> None:
        """The call itself lets time act."""
        self.now = now

    def crash(self, epoch: int) -> None:
        state = json.loads(json.dumps(self.queue.snapshot()))
        ranges = None if self.config.dispatcher.ordering_required else self.ranges
        self.queue = LeaseQueue.restore(state, ranges, self.config, now_ms=self.now, epoch=epoch, rules=self.rules)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            self.remember(name, args)
            outcome: LeaseAnswer[Any, Any] = getattr(self.queue, name)(*args, **kwargs, now_ms=self.now)
            self.queue.check_invariants()
            self.events += list(filter(None, map(event_of, outcome.effects)))
            self.check_cursor(outcome.effects)
            return in_plain_words(outcome.result)

        return call

    def remember(self, name: str, args: tuple[Any, ...]) -> None:
        if name == "offer":
            self.offered += [args[0]] if args[0] not in self.offered else []
        elif name == "set_placement":
            self.ranges = args[0]
        elif name == "add_consumer":
            self.consumers.append(args[0])
        elif name == "remove_consumer":
            self.consumers = [other for other in self.consumers if other != args[0]]
            self.ranges = self.ranges.copy()
            if args[0] in self.ranges.consumers:
                self.ranges.remove(args[0])

    def check_cursor(self, effects: Sequence[Effect]) -> None:
        """What is committed is just below what is kept."""
        told = [effect.safe_cursor for effect in effects if isinstance(effect, CursorAdvanced)]
        keep_from = self.queue.resume_offset
        assert not told or told[-1] == max(offset for offset in self.offered if keep_from and offset < keep_from)

    def facts(self) -> dict[str, object]:
        stats = self.queue.stats()
        counts = {offset: self.queue.delivery_count(offset) for offset in self.offered}
        health = self.queue.health()
        groups = self.queue.groups()
        has_rates = any(group.tokens is not None for group in groups)
        return {
            "keep_from": self.queue.resume_offset,
            "depth": stats.outstanding,
            "leased": count_leased(self.queue),
            "reserved": count_reserved(self.queue),
            "delayed": stats.delayed,
            "blocked": stats.blocked,
            "dead_lettering": stats.dead_lettering,
            "holes": len(self.queue.acked_ranges()),
            "held": {name: held for name, held in count_held(self.queue).items() if held},
            "counts": {offset: count for offset, count in counts.items() if count is not None},
            "next deadline": None if has_rates else self.queue.next_deadline_ms(),
            "deadlines": {hold.id: hold.deadline_ms for hold in (*self.queue.leases(), *self.queue.reservations())},
            "paused": [group.name for group in groups if group.paused],
            "held of groups": {group.name: group.open for group in groups if group.open},
            "ended": None if health.ended is None else {how.value: number for how, number in health.ended.items()},
            "delivered": health.delivered,
            "failed": health.failed,
            "can get": {name: self.queue.why_empty(name) is None for name in self.consumers},
        }


def event_of(effect: Effect) -> tuple[Any, ...] | None:
    """What the slow queue would call it."""
    name = EVENTS.get(type(effect))
    if name is None or isinstance(effect, CursorAdvanced):
        return None
    if isinstance(effect, Released):
        return (name, effect.offset, effect.consumer, effect.failures, effect.retry_at_ms)
    if isinstance(effect, Done):
        return (name, effect.offset, None if effect.key is None else effect.key.decode(), effect.how.value)
    if isinstance(effect, DeadLetter | Blocked):
        return (name, effect.offset, effect.reason)
    return (name, effect[0])


def in_plain_words(result: object) -> object:
    """The answer without its types."""
    match result:
        case Lease() | Reservation():
            counts = [(message.offset, message.delivery_count) for message in result.messages]
            return ("hold", result.id, counts, result.deadline_ms)
        case NothingToLease():
            return ("nothing", result.reason.value)
        case InvalidHandle() | InvalidReservation():
            return ("invalid", result.reason.value)
        case Ignored():
            return result.reason.value
        case list():
            return sorted(ignored.offset for ignored in result)
        case _:
            return result


class Court:
    """One queue and its judge, and the calls that could come next."""

    def __init__(self, subject: Any, judge: SlowLeases, choose: Choose) -> None:
        self.subject, self.judge, self.choose = subject, judge, choose
        self.now = 0
        self.handles: list[tuple[int, int]] = []
        self.log: list[tuple[int, str | None]] = []

    def call(self, name: str, *args: Any, **kwargs: Any) -> None:
        """Make one call of both."""
        for queue in (self.subject, self.judge):
            queue.events.clear()
            queue.pass_time(self.now)
        actual = getattr(self.subject, name)(*args, **kwargs)
        told = {}
        if name in {"reserve", "consume"}:
            told["picks"] = [offset for offset, _ in actual[2]] if actual[0] == "hold" else []
        expected = getattr(self.judge, name)(*args, **kwargs, **told)
        shown = f"{name}{args}{kwargs} at {self.now}"
        assert expected == actual, shown
        assert sorted(self.judge.events) == sorted(self.subject.events), shown
        assert self.judge.facts() == self.subject.facts(), shown
        if isinstance(actual, tuple) and actual[0] == "hold":
            self.handles += [(offset, actual[1]) for offset, _ in actual[2]]

    # --- calls ------------------------------------------------------------------------------------------------------

    def offer(self) -> None:
        last = self.judge.offered[-1] if self.judge.offered else -1
        offset, key = last + self.choose([1, 1, 3]), self.choose(KEYS)
        self.log.append((offset, key))
        self.call("offer", offset, key, not_before_ms=self.choose([0, 0, 0, self.now + 6]))

    def join(self) -> None:
        absent = [name for name in NAMES if name not in self.judge.everybody]
        if absent:
            self.call("add_consumer", self.choose(absent))

    def leave(self) -> None:
        self.call("remove_consumer", self.choose(NAMES), drain_ms=self.choose([0, None, 3, 30]))

    def assign(self) -> None:
        if not self.judge.config.ordering_required:
            # what is assigned is somebody who asks, or an unfair host would be to blame
            owner = self.choose(self.judge.consumers or ["nobody"])
            self.call("set_placement", assigned(self.judge.ranges, self.choose(SPANS), owner))

    def reserve(self) -> None:
        if self.judge.consumers:
            self.call("reserve", self.choose(self.judge.consumers), self.choose([1, 2, 9]), per_key=self.some_size())

    def consume(self) -> None:
        if self.judge.consumers:
            self.call("consume", self.choose(self.judge.consumers), self.choose([1, 2, 9]), per_key=self.some_size())

    def commit(self) -> None:
        self.call("commit", self.some_id())

    def abort(self) -> None:
        self.call("abort", self.some_id())

    def ack(self) -> None:
        self.call("ack", *self.some_handle())

    def ack_through(self) -> None:
        self.call("ack_through", *self.some_handle())

    def nack(self) -> None:
        delay_ms, reason = self.choose([0, 0, 7]), self.choose([None, "busy", "refused"])
        self.call("nack", *self.some_handle(), delay_ms=delay_ms, reason=reason)

    def reject(self) -> None:
        self.call("reject", *self.some_handle(), reason=self.choose([None, "unknown"]))

    def release(self) -> None:
        self.call("release", *self.some_handle(), delay_ms=self.choose([0, 0, 7]))

    def extend(self) -> None:
        self.call("extend", *self.some_handle(), extend_ms=self.choose([1, 9, 99, None]))

    def confirm(self) -> None:
        due = [offset for _, offset, deadline in self.judge.everything_held() if deadline <= self.now]
        offset = self.choose([self.some_offset(), *due, *due])  # time acts first, and makes obligations
        self.call(self.choose(["dead_lettered", "dead_lettered", "park", "gone"]), offset)

    def unblock_offset(self) -> None:
        self.call("unblock_offset", self.some_offset(), reset_failures=self.choose([False, True]))

    def redrive(self) -> None:
        if not self.judge.config.redrive or not self.log:
            return
        key = self.choose(self.log)[1]
        of_key = [offset for offset, other in self.log if other == key]
        letters = {self.choose(of_key) for _ in range(self.choose([1, 2, 3]))}
        self.call("redrive", key, [(offset, 0, None) for offset in letters])

    def group(self) -> None:
        if self.judge.rules is None:
            return
        name, call = self.choose(["", "b", "o"]), self.choose(["set_group", "pause_group", "resume_group"])
        limits: dict[str, Any] = {}
        if call == "set_group":
            limits = {"weight": self.choose([1, 2]), "max_in_flight": self.choose([None, None, 1, 2])}
            if self.judge.config.batch_per_key == 1:  # with a rate a batch is as long as what was handed out lasts
                limits |= {"per_second": self.choose([None, 100, 400]), "burst": self.choose([1, 2])}
        self.call(call, name, **limits)

    def wait(self) -> None:
        self.now += self.choose([1, 5, 6, 20])
        if self.choose([True, False]):  # or the next call lets time act
            self.call("handle_timeout")

    def crash(self) -> None:
        epoch = self.choose([0, 0, 1, 2])
        for queue in (self.subject, self.judge):
            queue.crash(epoch)
        self.call("handle_timeout")
        for offset, key in self.log[self.choose([-6, -1, len(self.log)]) :]:  # some of the log is read again
            self.call("offer", offset, key)

    # --- choices ----------------------------------------------------------------------------------------------------

    def some_id(self) -> int:
        reserved = [hold.id for hold in self.judge.holds.values() if not hold.committed]
        ended = [*self.judge.given[-1:], self.choose(self.judge.given or [0])]
        never = [self.judge.last_id, self.judge.last_id - 1, 0, 1, 2**32, 2**32 - 1]
        return self.choose([*reserved, *reserved, *reserved, *ended, *never])

    def some_handle(self) -> tuple[int, int]:
        current = [(offset, hold.id) for hold, offset, _ in self.judge.everything_held()]
        forged = (self.some_offset(), self.judge.last_id)
        return self.choose([*current, *current, *self.handles[-8:], forged])

    def some_size(self) -> int | None:
        return self.choose([None, None, 1, self.judge.config.batch_per_key])

    def some_offset(self) -> int:
        stuck = [offset for offset, message in self.judge.messages.items() if message.state != "ready"]
        return self.choose([*stuck, *stuck, *self.judge.offered[-8:], 99])


CALLS: tuple[Callable[[Court], None], ...] = (
    *(Court.offer, Court.offer, Court.offer, Court.join, Court.leave, Court.assign, Court.reserve, Court.reserve),
    *(Court.consume, Court.consume, Court.consume, Court.commit, Court.abort, Court.ack, Court.ack, Court.nack),
    *(Court.nack, Court.reject, Court.release, Court.extend, Court.confirm, Court.unblock_offset, Court.wait),
    *(Court.ack_through, Court.crash, Court.redrive, Court.group),
)


TENANTS = (
    *(*(Court.offer,) * 3, *(Court.consume,) * 3, *(Court.reserve,) * 2, Court.commit, Court.abort, Court.ack),
    *(Court.nack, Court.wait, Court.wait, *(Court.group,) * 2, Court.crash, Court.assign, Court.redrive),
)
"""Groups that are closed while something of them is reserved, and tokens that come back: rare among all calls."""

HOLDING = (*(Court.offer,) * 4, *(Court.consume,) * 3, *(Court.ack_through,) * 2, Court.wait, Court.leave, Court.join)
"""Several leases of one key, and consumers that leave with them."""

REDRIVING = (
    *(*(Court.offer,) * 3, Court.consume, Court.consume, Court.reserve, Court.ack, Court.ack, Court.reject, Court.nack),
    *(Court.confirm, Court.abort, Court.wait, *(Court.redrive,) * 3, Court.crash, Court.leave, Court.join),
    Court.assign,
)
"""Dead letters that come back while others of their keys are held, and again: rare among all calls."""

MEETING = (*(Court.offer,) * 3, *(Court.consume,) * 3, *(Court.confirm,) * 4, *(Court.wait,) * 2, Court.unblock_offset)
"""Obligations that are met in the call in which time makes them: rare among all calls."""

LEAVING = (*(Court.offer,) * 4, Court.join, Court.leave, Court.assign, *(Court.consume,) * 2, Court.reserve)
"""Consumers that leave with several messages of a key in hand: rare among all calls."""


def any_config(choose: Choose) -> tuple[LeaseConfig, Rules | None]:
    """A configuration so small that every limit is reached within a few calls, and perhaps groups."""
    ordering = choose([False, False, True])
    batch = choose([1, 1, 2, 3])
    loose = [] if ordering else [Poison.DEAD_LETTER, Poison.DEAD_LETTER, Poison.DROP]
    redrive, grouped = choose([False, False, True]), not ordering and choose([False, False, True])
    latest = batch == 1 and not ordering and choose([False, False, False, True])
    config = lease_config(
        ack_timeout_ms=choose([20, 20, 4]),
        reservation_timeout_ms=5,
        max_delivery_attempts=choose([1, 2, 3, None]),
        poison=(poison := choose([Poison.BLOCK, Poison.BLOCK, *loose])),
        archive_blocked=poison is Poison.BLOCK and choose([False, True]),
        ordering_required=ordering,
        max_ack_holes=None if redrive or grouped or latest else choose([None, 0, 1, 2]),
        max_in_flight=choose([None, None, 3]),
        max_in_flight_per_consumer=choose([1, 2, 9]),
        max_in_flight_per_key=choose([1, 2, 3]) if batch == 1 else 1,
        batch_per_key=batch,
        unit=DrainUnit.KEY if ordering else choose(list(DrainUnit)),
        tell_settled=choose([False, True]),
        latest_only=latest,
        measure=choose([False, True]),
        redrive=redrive,
        group=GroupLimits(max_in_flight=choose([None, 1])),
    )
    return config, GROUP_RULES if grouped else None


def court(make: Make, choose: Choose) -> Court:
    """A queue and its judge, with two consumers and everything assigned."""
    (config, rules), ranges = any_config(choose), letters({"a-m": "ann", "n-z": "bob"})
    held = Court(make(config, ranges, rules), SlowLeases(config, ranges, rules), choose)
    held.call("add_consumer", "ann")
    held.call("add_consumer", "bob")
    return held


class LeaseMachine(RuleBasedStateMachine):
    """Drives the real queue and its judge with every call."""

    @initialize(data=st.data())
    def start(self, data: st.DataObject) -> None:
        self.court = court(Real, chooser(data))


def chooser(data: st.DataObject) -> Any:  # a generic function cannot be annotated as a return value
    """Let Hypothesis choose."""
    return lambda options: data.draw(st.sampled_from(options))


def call_rule(make_call: Callable[[Court], None]) -> Callable[..., None]:
    """Make a rule of one kind of call."""

    def make(self: LeaseMachine, data: st.DataObject) -> None:
        self.court.choose = chooser(data)
        make_call(self.court)

    make.__name__ = make_call.__name__
    return rule(data=st.data())(make)


for number, kind in enumerate(CALLS):
    setattr(LeaseMachine, f"{kind.__name__}_{number}", call_rule(kind))

TestLeaseMachine = LeaseMachine.TestCase
TestLeaseMachine.settings = settings(
    stateful_step_count=40,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)


def first_fault(
    make: Make,
    seeds: range,
    calls: Sequence[Callable[[Court], None]] = CALLS,
) -> AssertionError | None:
    """Random schedules until the judge finds something."""
    for seed in seeds:
        choose: Choose = Random(seed).choice  # reproducible, not secret
        held = court(make, choose)
        try:
            for _ in range(80):
                choose(calls)(held)
        except AssertionError as fault:
            return fault
    return None


@pytest.mark.parametrize("calls", [CALLS, LEAVING, REDRIVING, TENANTS, MEETING])
@pytest.mark.parametrize("make", [Real, SlowLeases])
def test_random_schedules_find_nothing(make: Make, calls: Sequence[Callable[[Court], None]]) -> None:
    assert None is first_fault(make, range(40), calls)


@pytest.mark.parametrize("broken", BROKEN)
def test_a_fault_is_found(broken: type[SlowLeases]) -> None:
    assert None is not first_fault(broken, range(1600))


@pytest.mark.interpreted("changes a method of a class")
def test_a_drain_that_nothing_ends_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    leave = Membership.leave
    monkeypatch.setattr(Membership, "leave", lambda self, name, ms, now: leave(self, name, ms and None, now))
    assert None is not first_fault(Real, range(400), HOLDING)


@pytest.mark.interpreted("changes a method of a class")
def test_a_reason_that_the_books_keep_to_themselves_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    reject = LeaseQueue.reject
    monkeypatch.setattr(LeaseQueue, "reject", lambda *args, **late: reject(*args, **{**late, "reason": None}))
    assert None is not first_fault(Real, range(400))


@pytest.mark.interpreted("changes a method of a class")
def test_a_postponed_message_that_comes_at_once_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    release = LeaseQueue.release
    monkeypatch.setattr(LeaseQueue, "release", lambda *args, **late: release(*args, **{**late, "delay_ms": 0}))
    assert None is not first_fault(Real, range(400))


@pytest.mark.interpreted("changes a name of a module")
def test_a_failure_that_leaves_the_rest_of_its_batch_out_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endings, "_BREAKS", ())
    assert None is not first_fault(Real, range(400))


@pytest.mark.interpreted("changes a name of a module")
def test_who_asks_why_and_hears_of_tokens_that_were_missing_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(why_empty, "_belongs_to", lambda *_: False)
    assert None is not first_fault(Real, range(400), TENANTS)


@pytest.mark.interpreted("changes a method of a class")
def test_a_reservation_that_figures_count_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LeaseQueue, "health", Queries.health)
    assert None is not first_fault(Real, range(400))


@pytest.mark.interpreted("changes a method of a class")
def test_a_letter_that_is_outstanding_and_taken_for_new_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    redrive = LeaseQueue.redrive
    monkeypatch.setattr(LeaseQueue, "redrive", lambda *args, **late: redrive(*args, **late)._replace(result=[]))
    assert None is not first_fault(Real, range(400), REDRIVING)


def test_a_slow_queue_that_forgets_tokens_is_found() -> None:
    assert None is not first_fault(TokensAreForgotten, range(400), TENANTS)


def test_a_slow_queue_whose_removals_break_batches_is_found() -> None:
    assert None is not first_fault(RemovalBreaksBatches, range(400), LEAVING)


@pytest.mark.interpreted("changes a method of a class")
def test_a_removal_that_breaks_batches_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def oldest_first(self: Endings, consumer: Consumer, _: Any, now: int) -> None:
        for offset in sorted(consumer.open):
            if offset in consumer.open:
                self.end(consumer.open[offset], ReleaseReason.NACKED, now)

    monkeypatch.setattr(Endings, "end_all", oldest_first)
    assert None is not first_fault(Real, range(400), LEAVING)


@pytest.mark.interpreted("changes a method of a class")
def test_an_ack_of_what_another_lease_covers_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def all_of_the_key(made: LeaseQueue, offset: int, lease_id: int, *, now_ms: int) -> LeaseAnswer[Any, Any]:
        before, entry = made._leased(offset, lease_id, now_ms)
        if entry is None or entry.consumer is None:
            return LeaseAnswer(made._invalid(offset, lease_id), before)
        effects = made._machine.ack_through(offset, entry.consumer.name, entry.attempt, now_ms)
        return made._answer(None, before, effects)

    monkeypatch.setattr(LeaseQueue, "ack_through", all_of_the_key)
    assert None is not first_fault(Real, range(400), HOLDING)


@pytest.mark.interpreted("changes a method of a class")
def test_an_id_that_was_never_given_and_has_ended_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """As it was: after a restart in a new epoch every id below it was taken for one that has ended."""
    monkeypatch.setattr(LeaseTable, "_was_given", lambda self, given: 0 < given <= self._ids[-1][1])
    assert None is not first_fault(Real, range(400))
