"""The clock of a simulated subscription: which event comes next, and what the changes of the group do.

Events at one instant come in this order: first work that ends (service times, dead letters that were written, messages
that were read again) in the order in which it began; then the dispatcher's deadlines (an answer at the very instant of
its deadline is in time); then the group's changes, in their order; then arrivals. Each event is carried out, effects
included, before the next; work with a duration of 0 that it starts comes next.
"""

from collections.abc import Iterable
from dataclasses import replace
from enum import StrEnum
from typing import Final, cast

from keyshared._checks import check_kind
from keyshared.effects import Effect
from keyshared.errors import ArgumentError, WindowFullError, shown
from keyshared.hashing import key_bytes
from keyshared.simulate.group import (
    Arrival,
    Change,
    Crash,
    Group,
    Join,
    Leave,
    Pace,
    Redrive,
    Return,
    SetLimit,
    SetService,
    SetWeight,
    SimulatedConsumer,
    Unblock,
)
from keyshared.simulate.history import Event, History
from keyshared.simulate.host import Host, Worker

__all__ = ["Engine", "Stop"]

_NEVER: Final = 1 << 96  # later than any instant: beyond what a nanosecond clock of 64 bits could say


class Stop(StrEnum):
    """Why a simulation has ended."""

    AT_REST = "at_rest"  # every message arrived and was settled
    STUCK = "stuck"  # nothing can happen any more, and something is left
    UNTIL = "until"  # the plan's ``until_ms`` is over
    ATTEMPTS = "attempts"  # a message was delivered more than ``max_attempts`` times


class Engine:
    """Runs a group over messages, event by event.

    Args:
        group: The subscription.
        arrivals: Its messages, in offset order; read one ahead of the clock.
        history: Records the events.
        deadlines_first: Whether a deadline comes before work that ends at the same instant, as in a stream of commands.

    Attributes:
        host: The dispatcher and its consumers.
        arrival: The message that is offered next; None if there is none.
        arrival_ms: When it arrives; until then it is the instant of the message before it.
        stop: Why the simulation ended; None while it has not.
    """

    def __init__(
        self, group: Group, arrivals: Iterable[Arrival], history: History, *, deadlines_first: bool = False
    ) -> None:
        check_kind("group", group, Group)
        self._group = group
        self.host = Host(group, history)
        self._tie_ms = 1 if deadlines_first else 0
        self._paced = group.pace is Pace.ARRIVALS
        self._until = _NEVER if group.until_ms is None else group.until_ms
        self._arrivals = iter(arrivals)
        self.arrival: Arrival | None = None
        self.arrival_ms = 0
        self._awaited: bytes | None = None  # the key that has no room: no effect reports when it has some again
        self._changes = iter(group.changes)
        self._change: Change | None = None
        self.stop: Stop | None = None

    # the clock

    def begin(self) -> None:
        """Start at the first instant, with the first consumers."""
        group = self._group
        self._change = next(self._changes, None)
        self.arrival_ms = group.start_ms or 0
        self.next_arrival()
        if group.start_ms is not None:
            self.host.now = group.start_ms
        elif self._paced:
            first = [] if self.arrival is None else [self.arrival_ms]
            self.host.now = min(first + [change.at_ms for change in group.changes[:1]], default=0)
        if self.host.now > self._until:
            self.host.now, self.stop = self._until, Stop.UNTIL
            return
        for consumer in group.consumers:
            self._join(consumer)

    def next_arrival(self) -> None:
        """Read one message ahead. One whose time is before its predecessor's arrives right after it."""
        self.arrival = arrival = next(self._arrivals, None)
        if arrival is None:
            return
        check_kind("arrival", arrival, Arrival)
        _, _, at_ms, service_ms, not_before_ms = arrival
        for name, value in (("at_ms", at_ms), ("service_ms", service_ms), ("not_before_ms", not_before_ms)):
            missing = value is None and name != "at_ms"
            if not missing and (type(value) is not int or value < 0):
                raise ArgumentError(name, value, f"be an int of at least 0 in {shown(arrival)}")
        if not self._paced:
            self.arrival_ms = self.host.now
        elif at_ms > self.arrival_ms:
            self.arrival_ms = at_ms

    def run(self, steps: int) -> None:
        """Run the next events, or stop. Ties: work, deadlines, changes, arrivals (see the module's text)."""
        host, work, next_deadline = self.host, self.host.work, self.host.dispatcher.next_deadline_ms
        for _ in range(steps):
            if self._awaited is not None and host.dispatcher.room_for(self._awaited):
                self._awaited, host.paused = None, False
                host.tell(Event.RESUMED)
            at, happen = (work[0][0], host.finish) if work else (_NEVER, self._come_to_rest)
            deadline, change = next_deadline(), self._change
            if deadline is not None and deadline < at + self._tie_ms:
                at, happen = deadline, self._time_out
            if change is not None and change.at_ms < at:
                at, happen = change.at_ms, self._make_change
            if self.arrival_ms < at and self.arrival is not None and not host.paused:
                at, happen = self.arrival_ms, self._offer
            if host.now < at < _NEVER:
                if at > self._until:
                    host.now, self.stop = max(host.now, self._until), Stop.UNTIL
                    return
                host.now = at
            happen()
            if host.endless:
                self.stop = Stop.ATTEMPTS
            if self.stop is not None:
                return

    def _come_to_rest(self) -> None:
        left = self.arrival is not None or self.host.dispatcher.stats().outstanding > 0
        self.stop = Stop.STUCK if left else Stop.AT_REST

    def _time_out(self) -> None:
        host = self.host
        host.apply(host.dispatcher.handle_timeout(now_ms=host.now))

    def _offer(self) -> None:
        host = self.host
        offset, raw_key, _, service_ms, not_before_ms = cast("Arrival", self.arrival)  # called when there is one
        if not self._paced:
            self.arrival_ms = host.now
        available = self.arrival_ms if not_before_ms is None else max(not_before_ms, self.arrival_ms)
        key = raw_key if type(raw_key) is bytes else key_bytes(raw_key)
        try:
            host.offer(offset, key, (available, service_ms))
        except WindowFullError:
            host.paused = True
            self._awaited = key if host.dispatcher.free_slots else None
            host.tell(Event.PAUSED, key=self._awaited)
        else:
            self.next_arrival()

    # changes of the group

    def _make_change(self) -> None:
        change = cast("Change", self._change)  # called when there is one
        self._change = next(self._changes, None)
        match change:
            case Join(_, consumer):
                self._join(consumer)
            case Leave() | Return() if change.name in self.host.evicted:
                self.host.evicted.remove(change.name)
                if isinstance(change, Return):
                    self._join(self.host.consumers[change.name])
            case Leave(_, name, drain_ms):
                self._leave(name, drain_ms)
            case Crash(_, name):
                self._crash(name)
            case Return(_, name, resumed):
                self._return(name, resumed=resumed)
            case Unblock(_, key):
                self._unblock(key_bytes(key))
            case Redrive(_, key):
                self.host.redrive(key_bytes(key))
            case _:
                self._set(change)

    def _join(self, consumer: SimulatedConsumer) -> None:
        host, name = self.host, consumer.name
        if name in host.workers:
            host.workers[name].kill()
        effects = host.dispatcher.add_consumer(
            name, filters=consumer.filters, weight=consumer.weight, limit=consumer.limit, now_ms=host.now
        )
        host.consumers[name] = consumer
        host.workers[name] = Worker(consumer)
        host.tell(Event.JOINED, consumer=name, moved_keys=host.moved_keys())
        host.apply(effects)

    def _leave(self, name: str, drain_ms: int | None) -> None:
        host = self.host
        if drain_ms == 0:
            host.workers[name].kill()
        effects = host.dispatcher.remove_consumer(name, drain_ms=drain_ms, now_ms=host.now)
        reason = None if drain_ms == 0 else "draining"
        host.tell(Event.LEFT, consumer=name, reason=reason, moved_keys=host.moved_keys())
        host.apply(effects)

    def _crash(self, name: str) -> None:
        host = self.host
        host.workers[name].kill()
        effects = host.dispatcher.set_inactive(name, now_ms=host.now)
        host.tell(Event.INACTIVE, consumer=name)
        host.apply(effects)

    def _return(self, name: str, *, resumed: bool) -> None:
        host = self.host
        worker = host.workers[name] = Worker(host.consumers[name])
        kept = [host.open[delivery.offset] for delivery in host.dispatcher.in_flight(name)] if resumed else []
        effects = host.dispatcher.set_active(name, resumed=resumed, now_ms=host.now)
        host.tell(Event.ACTIVE, consumer=name, reason="resumed" if resumed else None)
        for delivery in kept:
            host.take(worker, delivery)
        host.apply(effects)

    def _set(self, change: SetLimit | SetWeight | SetService) -> None:
        """Change a consumer; one that has been evicted takes the change with it when it comes back."""
        host, name = self.host, change.name
        here = name not in host.evicted
        consumer, moved = host.consumers[name], None
        effects = list[Effect]()
        if isinstance(change, SetService):
            what, consumer = f"service {change.service!r}", replace(consumer, service=change.service)
            host.workers[name].service = change.service
        elif isinstance(change, SetLimit):
            what, consumer = f"limit {change.limit}", replace(consumer, limit=change.limit)
            effects = host.dispatcher.set_limit(name, change.limit, now_ms=host.now) if here else []
        else:
            what, consumer = f"weight {change.weight}", replace(consumer, weight=change.weight)
            effects = host.dispatcher.set_weight(name, change.weight, now_ms=host.now) if here else []
            moved = host.moved_keys()
        host.consumers[name] = consumer
        host.tell(Event.CHANGED, consumer=name, reason=what, moved_keys=moved)
        host.apply(effects)

    def _unblock(self, key: bytes | None) -> None:
        host = self.host
        effects = host.dispatcher.unblock(key, now_ms=host.now)
        offsets = host.blocked.pop(key, [])
        for offset in offsets:
            host.again[offset] = host.now
            host.tell(Event.UNBLOCKED, offset=offset, key=key, available_ms=host.now)
        if not offsets:
            host.tell(Event.UNBLOCKED, key=key)
        host.apply(effects)
