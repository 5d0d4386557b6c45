"""Groups of keys: their quotas by name, and the permits that time brings them."""

from collections import OrderedDict
from typing import Any

from keyshared._checks import require
from keyshared._core.feature import Feature
from keyshared._core.quotas import Clock, Quota, TokenBucket
from keyshared._core.reader import Reader
from keyshared._core.records import Consumer
from keyshared._core.rotation import Group, Rotation
from keyshared._core.timers import Duties, Duty, Stage, Timers
from keyshared._core.values import GroupStats
from keyshared._core.window import Window
from keyshared.config import GroupLimits

__all__ = ["GroupBook", "Groups", "TotalQuota"]


class GroupBook:
    """The quotas of groups by name.

    Args:
        clock: The instant of the call that goes on.
        limits: The limits of each group for which none are set.

    Attributes:
        groups: The groups that are known; one that is as new is forgotten some time later.
        changed: Groups that consumers have begun or ceased to wait for, or whose limits have changed.
    """

    def __init__(self, clock: Clock, limits: GroupLimits) -> None:
        self._clock = clock
        self._limits = limits
        self.groups: OrderedDict[str, Group] = OrderedDict()
        self.changed: dict[Group, None] = {}
        self._created = 0  # since `forget`

    def named(self, name: str) -> Group:
        """Return the group of that name, perhaps a new one. O(1)."""
        group = self.groups.get(name)
        if group is None:
            self._created += 1
            group = self.groups[name] = Quota(name)
            self.set_limits(group, self._limits)
        return group

    def set_limits(self, group: Group, limits: GroupLimits) -> None:
        """Set all limits of a group. Permits stay as far as they fit; a new rate begins with all of them."""
        group.limit = limits.max_in_flight
        group.weight = limits.weight
        before = group.rate
        group.rate = None
        if limits.per_second is not None:
            group.rate = TokenBucket(self._clock, limits.per_second, limits.burst)
            if before is not None:
                group.rate.set_level(before.fill())

    def forget(self) -> None:
        """Forget some groups that are as new: for each one that was created, two are looked at. O(1) amortised."""
        for _ in range(min(2 * self._created, len(self.groups))):
            name, group = self.groups.popitem(last=False)
            if not group.is_as_new:
                self.groups[name] = group
        self._created = 0


class Groups(Feature):
    """The groups of a dispatcher: limits by name, deadlines for permits, and the turns that a snapshot keeps."""

    name = "groups"

    def __init__(self, window: Window, timers: Timers, book: GroupBook) -> None:
        self._window = window
        self._timers = timers
        self._book = book

    def duties(self) -> Duties:
        """Serve the consumers that wait for a permit."""
        return {Quota: Duty(Stage.GROUPS, _no_rank, self._due)}

    def _due(self, group: Group, now: int) -> None:
        self._changed(group)

    def set_group(self, name: str, limits: GroupLimits) -> None:
        """Set all limits of a group; `Window.wake` then serves it."""
        group = self._book.named(name)
        group.is_set = True
        self._book.set_limits(group, limits)
        self._changed(group)

    def pause(self, name: str) -> None:
        """Pause a group: nothing of it goes out."""
        group = self._book.named(name)
        group.paused = True
        self._book.changed[group] = None

    def resume(self, name: str) -> None:
        """End the pause of a group; `Window.wake` then serves it."""
        group = self._book.groups.get(name)
        if group is not None:
            group.paused = False
            self._changed(group)

    def _changed(self, group: Group) -> None:
        self._book.changed[group] = None
        self._window.note_room(group)

    def finish(self, now: int) -> tuple[()]:
        """Set the deadlines of the groups whose consumers wait for a permit."""
        changed = self._book.changed
        if changed:
            for group in changed:
                self._time(group)
            changed.clear()
        if not self._window.prepared:  # rules of a batch that goes on name their groups already
            self._book.forget()
        return ()

    def _time(self, group: Group) -> None:
        rate = group.rate
        if rate is None or not group.waiting or (rate.permits and not group.has_room):
            group.deadline = None
        elif group.deadline != (due := rate.next_permit_at):
            self._timers.start(group, due)

    def stats(self) -> list[GroupStats]:
        """Return the groups by name; those that are as new are left out. O(groups and ready lanes)."""
        ready = dict.fromkeys(self._book.groups, 0)
        for consumer in self._window.consumers.values():
            for lane in consumer.ready.lanes:
                ready[lane.rule.quotas[0].name] += 1
        return [
            GroupStats(
                name,
                group.weight,
                group.limit,
                group.open,
                ready[name],
                None if group.rate is None else group.rate.permits,
                group.paused,
                None if group.rate is None or group.rate.permits else group.rate.next_permit_at,
            )
            for name, group in sorted(self._book.groups.items())
            if not group.is_as_new
        ]

    def dump(self, now: int) -> object:
        """Return the groups that are not as new, and the turns at each consumer."""
        rows = [_row(group) for _, group in sorted(self._book.groups.items()) if not group.is_as_new]
        turns = {
            name: [ready.awake, ready.left]
            for name, ready in ((each.name, each.ready) for each in self._window.consumers.values())
            if isinstance(ready, Rotation) and ready.lanes
        }
        return {"groups": rows, "turns": turns} if rows or turns else None

    def load(self, row: Reader, now: int) -> None:
        """Take what `dump` returned; lanes stand where they waited already."""
        consumers = self._window.consumers
        for each in row.field("groups").items():
            name, limits, paused, level, waiting = each.items(5)
            group = self._book.named(name.text())
            if limits.raw is not None:
                weight, limit, per_second, burst = limits.items(4)
                group.is_set = True
                set_limits = GroupLimits(
                    weight=weight.integer(),
                    max_in_flight=limit.maybe(Reader.integer),
                    per_second=per_second.maybe(Reader.integer),
                    burst=burst.integer(),
                )
                self._book.set_limits(group, set_limits)
            group.paused = paused.flag()
            known = level.maybe(Reader.count)
            if known is not None and group.rate is not None:
                group.rate.set_level(known)
            for consumer in waiting.items():
                group.waiting[consumer.one_of(consumers)] = None
            self._changed(group)
        for consumer_name, turns in row.field("turns").fields().items():
            ready = consumers[consumer_name].ready if consumer_name in consumers else None
            awake, left = turns.items(2)
            if not isinstance(ready, Rotation):
                raise turns.refuse("be of a consumer that is connected")
            ready.load([self._book.named(group.text()) for group in awake.items()], left.count())

    def check_invariants(self) -> None:
        """Raise `InvariantError` unless groups count what is open, and remember those that wait. For tests; O(n)."""
        lanes = dict.fromkeys(self._book.groups.values(), 0)
        opened = dict.fromkeys(self._book.groups.values(), 0)
        for lane in self._window.lanes.values():
            group: Group = lane.rule.quotas[0]
            lanes[group] += 1
            opened[group] += lane.open
        for group in self._book.groups.values():
            require(group.lanes == lanes[group], f"group {group.name!r} counts its lanes")
            require(group.open == opened[group], f"group {group.name!r} counts what is open")
            require(group.granted is None, f"group {group.name!r} has no turn that goes on")
            is_due = group.rate is not None and group.deadline is not None
            idle = not group.waiting or not group.has_room or is_due or group in self._window.opened
            require(idle, f"group {group.name!r} is full while it remembers consumers")
            for consumer in group.waiting:
                ready = consumer.ready
                known = isinstance(ready, Rotation) and group in ready.groups() and group.name not in ready.awake
                require(known, f"group {group.name!r} remembers those for whom it has a lane that sleeps")
        listed = (consumer.ready for consumer in self._window.consumers.values())
        for rotation in (ready for ready in listed if isinstance(ready, Rotation)):
            rotation.check_invariants()


class TotalQuota(Feature):
    """Keeps, over a restart, which consumers the quota of the subscription remembers."""

    name = "subscription"

    def __init__(self, window: Window, total: Quota[Consumer]) -> None:
        self._window = window
        self._total = total

    def dump(self, now: int) -> object:
        """Return the names of the consumers that are served next."""
        return [consumer.name for consumer in self._total.waiting] or None

    def load(self, row: Reader, now: int) -> None:
        """Take what `dump` returned."""
        for name in row.items():
            self._total.waiting[name.one_of(self._window.consumers)] = None
        self._window.note_room(self._total)

    def check_invariants(self) -> None:
        """Raise `InvariantError` unless the subscription counts what is open. For tests; O(n)."""
        opened = sum(len(consumer.open) for consumer in self._window.consumers.values())
        require(self._total.open == opened, "the subscription counts what is open")
        require(self._total.granted is None, "the subscription has no turn that goes on")
        idle = not self._total.waiting or not self._total.has_room or self._total in self._window.opened
        require(idle, "the subscription is full while it remembers consumers")


def _row(group: Group) -> list[Any]:
    rate = group.rate
    limits = [group.weight, group.limit, rate and rate.per_second, rate.burst if rate is not None else 1]
    level = None if rate is None else rate.fill()
    return [group.name, limits if group.is_set else None, group.paused, level, [each.name for each in group.waiting]]


def _no_rank(group: Group) -> int:
    return 0
