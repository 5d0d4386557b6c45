"""A whole subscription on a virtual clock: the real dispatcher, simulated consumers, and a history of what happened.

Consumers come and go, crash, are slow and fail as a `Plan` says; time is a number that jumps from thing to thing. The
same plan and messages give the same rows, always and everywhere.

What happens at one instant happens in this order: first work that ends (service times, dead letters that were written,
messages that were read again) in the order in which it began; then what the dispatcher's deadlines ask for (an answer
at the very instant of its deadline is in time); then the plan's changes, in its order; then arrivals. Each is brought
to its end, effects included, before the next; what that starts with a duration of 0 comes next.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final, cast

from keyshared._checks import check_kind
from keyshared.effects import BlockReason, Effect
from keyshared.errors import ArgumentError, shown
from keyshared.hashing.named import key_bytes
from keyshared.simulate.history import Event, Row
from keyshared.simulate.host import Host, Worker
from keyshared.simulate.plan import (
    Arrival,
    Change,
    ConsumerPlan,
    Crash,
    Join,
    Leave,
    Pace,
    Plan,
    Redrive,
    Return,
    SetLimit,
    SetService,
    SetWeight,
    Unblock,
)
from keyshared.simulate.summary import DEFAULT_HOTTEST, DEFAULT_POINTS, Summary, Tally

__all__ = ["Simulation", "SimulationState", "Stop", "summarize"]

_NEVER: Final = 1 << 96  # later than any instant: beyond what a nanosecond clock of 64 bits could say


class Stop(StrEnum):
    """Why a simulation has ended."""

    AT_REST = "at_rest"  # every message arrived and was settled
    STUCK = "stuck"  # nothing can happen any more, and something is left
    UNTIL = "until"  # the plan's ``until_ms`` is over
    ATTEMPTS = "attempts"  # a message was delivered more than ``max_attempts`` times


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationState:
    """How things stand, at the end or wherever the reader of the rows is.

    Attributes:
        stop: Why it ended; None while it has not.
        at_ms: The virtual time.
        all_offered: Whether no message waits to be offered.
        outstanding: Messages that were offered and are not settled.
        open_deliveries: Those of them that are at a consumer.
        why_blocked: What the others wait for, and how many of them.
        safe_cursor: Everything offered up to here is settled.
    """

    stop: Stop | None
    at_ms: int
    all_offered: bool
    outstanding: int
    open_deliveries: int
    why_blocked: dict[BlockReason, int]
    safe_cursor: int | None

    @property
    def at_rest(self) -> bool:
        """Whether every message arrived and was settled."""
        return self.stop is Stop.AT_REST


class Simulation:
    """Runs a plan over messages while its rows are read.

    Iterate over it once: the rows are made as they are asked for, and what was read is not kept.

    Args:
        plan: The subscription.
        arrivals: Its messages, in offset order; read one ahead of the clock.

    Raises:
        ArgumentError: The plan is no `Plan`. While iterating: an arrival whose times can never work, a placement that
            cannot take a weight or a name of the plan, or a message without the service time that `PerMessage` needs.
        MisuseError: While iterating: offsets that do not grow, a key that is none, or a message that no filter accepts
            with ``Unmatched.ERROR``.

    Complexity:
        O(log n) for each row, n things under way at once. Memory O(outstanding messages), and O(keys) with
        ``count_moved_keys``.

    Example:
        >>> from keyshared.simulate import Fixed
        >>> plan = Plan(consumers=[ConsumerPlan("a", Fixed(10))])
        >>> simulation = Simulation(plan, [Arrival(0, "k", at_ms=100), Arrival(1, "k", at_ms=104)])
        >>> for row in simulation:
        ...     print(row.at_ms, row.event, row.offset, row.consumer)
        100 joined None a
        100 offered 0 None
        100 delivered 0 a
        104 offered 1 None
        110 acked 0 a
        110 delivered 1 a
        110 cursor 0 None
        120 acked 1 a
        120 cursor 1 None
        >>> simulation.state.at_rest
        True
    """

    def __init__(self, plan: Plan, arrivals: Iterable[Arrival]) -> None:
        check_kind("plan", plan, Plan)
        self._plan = plan
        self._host = Host(plan)
        self._paced = plan.pace is Pace.ARRIVALS
        self._until = _NEVER if plan.until_ms is None else plan.until_ms
        self._arrivals = iter(arrivals)
        self._arrival: Arrival | None = None
        self._arrival_ms = 0
        self._awaited: bytes | None = None  # the key that has no room: nobody tells when it has some again
        self._changes = iter(plan.changes)
        self._change: Change | None = None
        self._stop: Stop | None = None
        self._stream = self._run()

    def __iter__(self) -> Iterator[Row]:
        return self._stream

    @property
    def state(self) -> SimulationState:
        """How things stand now. O(outstanding messages)."""
        dispatcher = self._host.dispatcher
        messages = list(dispatcher.outstanding())
        waits = [message.blocking for message in messages if message.blocking is not None]
        return SimulationState(
            stop=self._stop,
            at_ms=self._host.now,
            all_offered=self._stop is not None and self._arrival is None,
            outstanding=len(messages),
            open_deliveries=len(messages) - len(waits),
            why_blocked=dict(Counter(blocking.reason for blocking in waits)),
            safe_cursor=dispatcher.safe_cursor,
        )

    # the clock

    def _run(self) -> Iterator[Row]:
        rows = self._host.rows
        self._begin()
        while self._stop is None:
            yield from rows
            rows.clear()
            self._step()
        yield from rows
        rows.clear()

    def _begin(self) -> None:
        plan = self._plan
        self._change = next(self._changes, None)
        self._arrival_ms = plan.start_ms or 0
        self._next_arrival()
        if plan.start_ms is not None:
            self._host.now = plan.start_ms
        elif self._paced:
            first = [] if self._arrival is None else [self._arrival_ms]
            self._host.now = min(first + [change.at_ms for change in plan.changes[:1]], default=0)
        if self._host.now > self._until:
            self._host.now, self._stop = self._until, Stop.UNTIL
            return
        for consumer in plan.consumers:
            self._join(consumer)

    def _next_arrival(self) -> None:
        """Read one message ahead. One whose time is before its predecessor's arrives right after it."""
        self._arrival = arrival = next(self._arrivals, None)
        if arrival is None:
            return
        check_kind("arrival", arrival, Arrival)
        _, _, at_ms, service_ms, not_before_ms = arrival
        if type(at_ms) is not int or at_ms < 0:
            raise ArgumentError("at_ms", at_ms, f"be an int of at least 0 in {shown(arrival)}")
        if service_ms is not None and (type(service_ms) is not int or service_ms < 0):
            raise ArgumentError("service_ms", service_ms, f"be an int of at least 0, or None, in {shown(arrival)}")
        if not_before_ms is not None and (type(not_before_ms) is not int or not_before_ms < 0):
            raise ArgumentError(
                "not_before_ms", not_before_ms, f"be an int of at least 0, or None, in {shown(arrival)}"
            )
        if not self._paced:
            self._arrival_ms = self._host.now
        elif at_ms > self._arrival_ms:
            self._arrival_ms = at_ms

    def _step(self) -> None:
        """Run the next thing, or stop. Ties: work, deadlines, changes, arrivals (see the module's text)."""
        host = self._host
        if self._awaited is not None and host.dispatcher.room_for(self._awaited):
            self._awaited, host.paused = None, False
            host.tell(Event.RESUMED)
        deadline, change = host.dispatcher.next_deadline_ms(), self._change
        at, happen = (host.work[0][0], host.finish) if host.work else (_NEVER, self._come_to_rest)
        if deadline is not None and deadline < at:
            at, happen = deadline, self._time_out
        if change is not None and change.at_ms < at:
            at, happen = change.at_ms, self._make_change
        if self._arrival is not None and not host.paused and self._arrival_ms < at:
            at, happen = self._arrival_ms, self._offer
        if host.now < at < _NEVER:
            if at > self._until:
                host.now, self._stop = max(host.now, self._until), Stop.UNTIL
                return
            host.now = at
        happen()
        if host.endless:
            self._stop = Stop.ATTEMPTS

    def _come_to_rest(self) -> None:
        left = self._arrival is not None or self._host.dispatcher.stats().outstanding > 0
        self._stop = Stop.STUCK if left else Stop.AT_REST

    def _time_out(self) -> None:
        host = self._host
        host.apply(host.dispatcher.handle_timeout(now_ms=host.now))

    # messages

    def _offer(self) -> None:
        host = self._host
        offset, raw_key, _, service_ms, not_before_ms = cast("Arrival", self._arrival)  # called when there is one
        key = key_bytes(raw_key)
        if not host.dispatcher.room_for(key):
            host.paused = True
            self._awaited = key if host.dispatcher.free_slots else None
            host.tell(Event.PAUSED, key=self._awaited)
            return
        if not self._paced:
            self._arrival_ms = host.now
        available = self._arrival_ms if not_before_ms is None else max(not_before_ms, self._arrival_ms)
        host.offer(offset, key, (available, service_ms))
        self._next_arrival()

    # the plan's changes

    def _make_change(self) -> None:
        change = cast("Change", self._change)  # called when there is one
        self._change = next(self._changes, None)
        match change:
            case Join(_, consumer):
                self._join(consumer)
            case Leave(_, name, drain_ms):
                self._leave(name, drain_ms)
            case Crash(_, name):
                self._crash(name)
            case Return(_, name, resumed):
                self._return(name, resumed=resumed)
            case Unblock(_, key):
                self._unblock(key_bytes(key))
            case Redrive(_, key):
                self._host.redrive(key_bytes(key))
            case _:
                self._set(change)

    def _join(self, consumer: ConsumerPlan) -> None:
        host, name = self._host, consumer.name
        if name in host.workers:
            host.workers[name].kill()
        effects = host.dispatcher.add_consumer(
            name, filters=consumer.filters, weight=consumer.weight, limit=consumer.limit, now_ms=host.now
        )
        host.plans[name] = consumer
        host.workers[name] = Worker(consumer)
        host.tell(Event.JOINED, consumer=name, moved_keys=host.moved_keys())
        host.apply(effects)

    def _leave(self, name: str, drain_ms: int | None) -> None:
        host = self._host
        if name in host.evicted:
            host.evicted.remove(name)
            return
        if drain_ms == 0:
            host.workers[name].kill()
        effects = host.dispatcher.remove_consumer(name, drain_ms=drain_ms, now_ms=host.now)
        reason = None if drain_ms == 0 else "draining"
        host.tell(Event.LEFT, consumer=name, reason=reason, moved_keys=host.moved_keys())
        host.apply(effects)

    def _crash(self, name: str) -> None:
        host = self._host
        host.workers[name].kill()
        effects = host.dispatcher.set_inactive(name, now_ms=host.now)
        host.tell(Event.INACTIVE, consumer=name)
        host.apply(effects)

    def _return(self, name: str, *, resumed: bool) -> None:
        host = self._host
        if name in host.evicted:
            host.evicted.remove(name)
            self._join(host.plans[name])
            return
        worker = host.workers[name] = Worker(host.plans[name])
        kept = [host.open[delivery.offset] for delivery in host.dispatcher.in_flight(name)] if resumed else []
        effects = host.dispatcher.set_active(name, resumed=resumed, now_ms=host.now)
        host.tell(Event.ACTIVE, consumer=name, reason="resumed" if resumed else None)
        for delivery in kept:
            host.take(worker, delivery)
        host.apply(effects)

    def _set(self, change: SetLimit | SetWeight | SetService) -> None:
        """Change a consumer; one that has been evicted takes the change with it when it comes back."""
        host, name = self._host, change.name
        plan, gone = host.plans[name], name in host.evicted
        effects: list[Effect] = []
        if isinstance(change, SetService):
            what = f"service {change.service!r}"
            host.plans[name] = replace(plan, service=change.service)
            host.workers[name].service = change.service
        elif isinstance(change, SetLimit):
            what = f"limit {change.limit}"
            host.plans[name] = replace(plan, limit=change.limit)
            if not gone:
                effects = host.dispatcher.set_limit(name, change.limit, now_ms=host.now)
        else:
            what = f"weight {change.weight}"
            host.plans[name] = replace(plan, weight=change.weight)
            if not gone:
                effects = host.dispatcher.set_weight(name, change.weight, now_ms=host.now)
        moved = host.moved_keys() if isinstance(change, SetWeight) else None
        host.tell(Event.CHANGED, consumer=name, reason=what, moved_keys=moved)
        host.apply(effects)

    def _unblock(self, key: bytes | None) -> None:
        host = self._host
        effects = host.dispatcher.unblock(key, now_ms=host.now)
        offsets = host.blocked.pop(key, [])
        for offset in offsets:
            host.again[offset] = host.now
            host.tell(Event.UNBLOCKED, offset=offset, key=key, available_ms=host.now)
        if not offsets:
            host.tell(Event.UNBLOCKED, key=key)
        host.apply(effects)


def summarize(
    plan: Plan, arrivals: Iterable[Arrival], *, points: int = DEFAULT_POINTS, hottest: int = DEFAULT_HOTTEST
) -> tuple[Summary, SimulationState]:
    """Simulate, and keep only the figures.

    Args:
        plan: The subscription.
        arrivals: Its messages.
        points: How many points of the backlog over time are wanted, at most.
        hottest: How many of the keys with most messages are wanted.

    Returns:
        The figures, and how it ended.

    Raises:
        ArgumentError: See `Simulation` and `Tally`.
        MisuseError: See `Simulation`.

    Example:
        >>> from keyshared.simulate import Fixed
        >>> plan = Plan(consumers=[ConsumerPlan("a", Fixed(10))])
        >>> summary, state = summarize(plan, [Arrival(offset, "k", at_ms=0) for offset in range(10)])
        >>> summary.consumers["a"].wait.p50_ms, summary.duration_ms, state.at_rest
        (40, 100, True)
    """
    tally = Tally(points=points, hottest=hottest)
    simulation = Simulation(plan, arrivals)
    tally.add_all(simulation)
    return tally.summary(), simulation.state
