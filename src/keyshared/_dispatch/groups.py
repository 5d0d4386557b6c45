"""The room of groups and of the limit of the whole subscription: what is set, tokens, and who is remembered.

A group has a deadline only while it has no token and somebody waits for one. Tokens come back when that deadline has
come, or when limits are set: so nothing but time and those calls makes anything go out.
"""

from collections.abc import Callable, Collection, Mapping
from heapq import heappop, heappush
from typing import Any, Final, Generic, NamedTuple, TypeVar

from keyshared._checks import require
from keyshared._dispatch.explain import GroupStats
from keyshared._dispatch.group_book import Group
from keyshared._dispatch.scopes import ScopedWindow
from keyshared._dispatch.snapshot import Reader
from keyshared._dispatch.timers import Duties, Duty, Stage, Timers
from keyshared._window.lanes import Consumer
from keyshared.config import GroupLimits
from keyshared.effects import Effect
from keyshared.errors import ConfigError

__all__ = ["Groups"]

_T = TypeVar("_T")


class Groups:
    """What a dispatcher keeps of scopes between two calls, and how it changes.

    Args:
        window: Whose scopes these are.
        timers: Where the deadlines of groups are kept.

    Attributes:
        idle: When to look at groups without a lane, and their names; a heap, in which each stands once at most. Their
            buckets are not full before then: one that is used again meanwhile is looked at and put back.
        on_idle: Called when there may be such groups, or none any more.
    """

    __slots__ = ("_book", "_listed", "_timers", "_window", "duties", "idle", "on_idle")

    name: Final = "scopes"

    def __init__(self, window: ScopedWindow, timers: Timers) -> None:
        self._window = window
        self._book = window.book
        self._timers = timers
        self.idle: list[tuple[int, str]] = []
        self._listed: set[str] = set()  # whose names are in it
        self.on_idle: Callable[[], None] = _nothing
        self.duties: Duties = {Group: Duty(Stage.GROUPS, _place, self.due)}

    # calls

    def set_group(self, name: str, limits: GroupLimits, now: int) -> None:
        """Apply limits to a group; the window's `wake` then serves it."""
        group = self._book.named(name)
        group.limits = limits
        group.take(limits, now)
        self._changed(group)

    def pause(self, name: str) -> None:
        """Close a group."""
        self._book.named(name).paused = True

    def resume(self, name: str) -> None:
        """Open a group again; the window's `wake` then serves it."""
        group = self._book.groups.get(name)
        if group is not None:
            group.paused = False
            self._changed(group)

    def forget_idle(self, now: int) -> None:
        """Forget the groups that have no lane, and whose buckets time has filled."""
        while self.idle and self.idle[0][0] <= now:
            name = heappop(self.idle)[1]
            self._listed.discard(name)
            group = self._book.groups.get(name)
            if group is not None and group.is_idle and group.bucket is not None:
                if group.bucket.full_at <= now:
                    del self._book.groups[name]
                else:  # it was used again meanwhile
                    self._list(group.bucket.full_at, name)
            self.on_idle()

    def due(self, group: Group, _notices: list[Effect], now: int) -> None:
        """Hand a group the tokens that time has brought."""
        group.refill(now)
        self._changed(group)

    def stats(self) -> list[GroupStats]:
        """The groups by name; those that are as new ones would be are left out. O(groups and ready lanes)."""
        if not self._book.has_names:
            return []
        ready = dict.fromkeys(self._book.groups, 0)
        for consumer in self._window.consumers.values():
            for lane in self._window.served(consumer):
                ready[lane.group.name] += 1
        known = [group for group in self._book.groups.values() if not group.is_as_new]
        return [
            GroupStats(
                each.name,
                each.weight,
                each.limit,
                each.open,
                ready[each.name],
                each.tokens,
                each.paused,
                each.bucket.next_token_at if each.bucket is not None and each.tokens == 0 else None,
            )
            for each in sorted(known, key=_name)
        ]

    # the end of each call

    def refresh(self, now: int, notices: list[Effect]) -> None:  # noqa: ARG002  # it tells nothing
        """Look at the scopes that have changed: used tokens, deadlines, groups that nobody needs any more."""
        changed = self._window.changed
        for scope in changed:
            if isinstance(scope, Group):
                self._look_at(scope, now)
        changed.clear()

    def _look_at(self, group: Group, now: int) -> None:
        group.account(now)
        bucket = group.bucket
        if bucket is None or group.tokens or not group.waiting:
            group.deadline = None
        elif group.deadline != bucket.next_token_at:
            self._timers.start(group, bucket.next_token_at)
        if group.is_as_new:
            del self._book.groups[group.name]
        elif group.is_idle and bucket is not None:
            self._list(bucket.full_at, group.name)
            self.on_idle()

    def _list(self, full_at: int, name: str) -> None:
        """Look at a group when its bucket is full; one that is listed is looked at before that."""
        if name not in self._listed:
            self._listed.add(name)
            heappush(self.idle, (full_at, name))

    def _changed(self, group: Group) -> None:
        self._window.note_opened(group)
        self._window.changed[group] = None

    # another life

    def dump(self, now: int) -> object:
        """Groups, turns, and who is remembered, in order; None if there is nothing of the kind."""
        window = self._window
        groups = [group for group in self._book.groups.values() if not group.is_as_new]
        waiting = [consumer.name for consumer in window.everything.waiting]
        if not (groups or waiting):
            return None
        turns = ((consumer.name, *window.served(consumer).dump()) for consumer in window.consumers.values())
        return {
            "waiting": waiting,
            "groups": [list(_dump_group(group, now)) for group in sorted(groups, key=_name)],
            "turns": [[name, awake, left] for name, awake, left in turns if awake],
        }

    def load(self, data: Reader, now: int) -> None:
        """Take what `dump` returned; limits that were not set are those of the configuration."""
        window = self._window
        rows = [_GroupRow(*row.items(len(_GroupRow._fields))) for row in data.field("groups").items()]
        for row in rows:
            self._load_group(row, now)
        _load_waiting(data.field("waiting"), window.everything.waiting, window.consumers)
        for consumer in window.consumers.values():
            window.served(consumer).load([], 0)
        for turns in data.field("turns").items():
            name, awake, left = turns.items(3)
            ready = window.served(name.one_of(window.consumers))
            groups = {group.name: group for group in ready.groups()}
            ready.load([group.one_of(groups) for group in awake.items()], left.count())
        # One that was there for its tokens only is as new where it has no rate any more.
        idle = {row.name.text() for row in rows if row.level.raw is not None and self._is_as_new(row.name.text())}
        written = self.dump(now) or ({"waiting": [], "groups": [], "turns": []} if idle else None)
        if written is None or _without_tokens(written) != _without_tokens(data.raw, idle):
            raise data.refuse("be of the groups that have a message or a limit, and of the lanes that are ready")
        for scope in (window.everything, *self._book.groups.values()):
            window.note_opened(scope)
            window.changed[scope] = None

    def _is_as_new(self, name: str) -> bool:
        return self._book.groups[name].is_as_new

    def _load_group(self, row: "_GroupRow[Reader]", now: int) -> None:
        group = self._book.named(row.name.text())
        group.limits = row.limits.maybe(_read_limits)
        if group.limits is not None:
            group.take(group.limits, now)
        group.paused = row.paused.flag()
        if not self._book.has_names and (group.name or group.limits is not None or group.paused):
            raise row.name.refuse("be empty, of a group without limits or pause: there are no groups without group_of")
        bucket = group.bucket
        level = row.level.maybe(Reader.count)
        tokens, age = row.tokens.count(), row.age_ms.age()
        if tokens * 1_000 > (level or 0) or (level is None and age):
            raise row.tokens.refuse("be at most the whole tokens of its level, which has an age if there is one")
        if bucket is not None and level is not None:
            bucket.restore(level, now - age)
            group.tokens = bucket.told = min(tokens, bucket.level // 1_000)
        _load_waiting(row.waiting, group.waiting, self._window.consumers)

    def check_invariants(self) -> None:
        """Raise `InvariantError` if a deadline, a token or a group is not as it should be. For tests; O(n)."""
        require(not self._window.changed, "what has changed was looked at")
        self._check_idle()
        timed = {running.name for running in self._timers.running() if isinstance(running, Group)}
        for name, group in self._book.groups.items():
            require(group.name == name, "a group is known by its name")
            waits = group.bucket is not None and group.tokens == 0 and bool(group.waiting)
            require((name in timed) == waits, f"group {name!r} has a deadline while it waits for a token")
            require((group.bucket is None) == (group.tokens is None), f"group {name!r} has tokens if it has a rate")
            if group.bucket is not None:
                require(group.tokens == group.bucket.told, f"group {name!r} has accounted for its tokens")

    def _check_idle(self) -> None:
        listed = {name: at for at, name in self.idle}
        require(len(listed) == len(self.idle), "a group without a lane is listed once, however often it was used")
        require(listed.keys() == self._listed, "what is listed is known by its name")
        for name, group in self._book.groups.items():
            if group.is_idle and group.bucket is not None:
                seen = listed.get(name)
                require(
                    seen is not None and seen <= group.bucket.full_at, f"group {name!r} is looked at, and not too late"
                )


class _GroupRow(NamedTuple, Generic[_T]):
    """One group, as it stands in a snapshot: values when it is written, readers of them when it is read."""

    name: _T
    limits: _T
    paused: _T
    tokens: _T
    level: _T
    age_ms: _T
    waiting: _T


def _dump_group(group: Group, now: int) -> list[object]:
    limits, bucket = group.limits, group.bucket
    row = _GroupRow[object](
        name=group.name,
        limits=None if limits is None else [limits.weight, limits.max_in_flight, limits.per_second, limits.burst],
        paused=group.paused,
        tokens=group.tokens or 0,
        level=None if bucket is None else bucket.level,
        age_ms=now - bucket.as_of if bucket is not None and bucket.age_counts else 0,
        waiting=[consumer.name for consumer in group.waiting],
    )
    return list(row)


def _without_tokens(data: Any, idle: Collection[str] = ()) -> object:  # noqa: ANN401  # what anybody has written
    """What does not depend on the rates of the configuration, which may be others now; these groups are left out."""
    rows = [[*row[:3], row[-1]] for row in data["groups"] if row[0] not in idle]
    return data | {"groups": rows}


def _read_limits(data: Reader) -> GroupLimits:
    weight, max_in_flight, per_second, burst = data.items(4)
    try:
        return GroupLimits(
            weight=weight.raw,  # type: ignore[arg-type]  # here and below: it checks them
            max_in_flight=max_in_flight.raw,  # type: ignore[arg-type]
            per_second=per_second.raw,  # type: ignore[arg-type]
            burst=burst.raw,  # type: ignore[arg-type]
        )
    except ConfigError as error:
        raise data.refuse(f"be limits of a group ({error})") from error


def _load_waiting(data: Reader, waiting: dict[Consumer, None], consumers: Mapping[str, Consumer]) -> None:
    for name in data.items():
        consumer = name.one_of(consumers)
        if consumer in waiting:
            raise name.refuse("be remembered once")
        waiting[consumer] = None


def _nothing() -> None:
    """Do nothing: nobody has to know."""


def _place(_group: Group) -> int:
    return 0  # what a group gets does not depend on who is first


def _name(group: Group) -> str:
    return group.name
