"""The clock of a simulated subscription: which event comes next, and what the changes of the group do.

Events at one instant come in this order: first work that ends (service times, dead letters that were written, messages
that were read again) in the order in which it began; then the dispatcher's deadlines (an answer at the very instant of
its deadline is in time); then the group's changes, in their order; then arrivals. Each event is carried out, effects
included, before the next; work with a duration of 0 that it starts comes next.
"""

from collections.abc import Callable, Iterable
from enum import StrEnum
from typing import Final, cast

from keyshared._checks import check_kind
from keyshared.errors import ArgumentError, WindowFullError, shown
from keyshared.hashing import key_bytes
from keyshared.journal.commands import Command
from keyshared.simulate.group import Arrival, Change, Group, Pace
from keyshared.simulate.history import Event, History
from keyshared.simulate.subscription import Subscription

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
        note: Gets each call of the dispatcher as a command. A deadline comes before work that ends at the same instant
            then, as in a stream of commands.

    Attributes:
        host: The dispatcher and its consumers.
        arrival: The message that is offered next; None if there is none.
        arrival_ms: When it arrives; until then it is the instant of the message before it.
        stop: Why the simulation ended; None while it has not.
    """

    def __init__(
        self,
        group: Group,
        arrivals: Iterable[Arrival],
        history: History,
        note: Callable[[Command], object] | None = None,
    ) -> None:
        check_kind("group", group, Group)
        self._group = group
        self.host = Subscription(group, history, note)
        self._tie_ms = 0 if note is None else 1
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
            self.host.join(consumer)

    def next_arrival(self) -> None:
        """Read one message ahead. One whose time is before its predecessor's arrives right after it."""
        self.arrival = arrival = next(self._arrivals, None)
        if arrival is None:
            return
        check_kind("arrival", arrival, Arrival)
        _, _, at_ms, service_ms, not_before_ms = arrival
        if (
            type(at_ms) is not int
            or at_ms < 0
            or not (service_ms is None or (type(service_ms) is int and service_ms >= 0))
            or not (not_before_ms is None or (type(not_before_ms) is int and not_before_ms >= 0))
        ):
            raise _arrival_error(arrival)
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
                at, happen = deadline, host.time_out
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

    def _offer(self) -> None:
        host = self.host
        offset, raw_key, _, service_ms, not_before_ms = cast("Arrival", self.arrival)  # called when there is one
        if not self._paced:
            self.arrival_ms = host.now
        available = self.arrival_ms if not_before_ms is None else max(not_before_ms, self.arrival_ms)
        key = raw_key if type(raw_key) is bytes else key_bytes(raw_key)
        try:
            host.bring(offset, key, (available, service_ms))
        except WindowFullError:
            host.paused = True
            self._awaited = key if host.dispatcher.free_slots else None
            host.tell(Event.PAUSED, key=self._awaited)
        else:
            self.next_arrival()

    def _make_change(self) -> None:
        change = cast("Change", self._change)  # called when there is one
        self._change = next(self._changes, None)
        self.host.change(change)


def _arrival_error(arrival: Arrival) -> ArgumentError:
    """Return the error of an arrival with a time that can never work."""
    times = {"at_ms": arrival.at_ms, "service_ms": arrival.service_ms, "not_before_ms": arrival.not_before_ms}
    name, value = next(
        (name, value)
        for name, value in times.items()
        if (value is not None or name == "at_ms") and (type(value) is not int or value < 0)
    )
    return ArgumentError(name, value, f"be an int of at least 0 in {shown(arrival)}")
