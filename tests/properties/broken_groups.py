"""The real dispatcher with groups of keys, and one fault each."""

from typing import Any, ClassVar

from keyshared._dispatch.group_book import Group
from keyshared._dispatch.groups import Groups
from keyshared._dispatch.scopes import ScopedWindow
from keyshared._window.lanes import Consumer, Entry, Lane
from keyshared._window.served import Scope, ServedLanes
from keyshared.dispatcher import KeySharedDispatcher

__all__ = ["BROKEN_GROUPS", "SubscriptionLimitOffByOne", "WokenGroupJumpsTheQueue"]


class _OldestFirst(ServedLanes):
    __slots__ = ()

    def next_turn(self) -> Lane | None:
        super().next_turn()
        able = {group: next(iter(self._queues[group])) for group in self._rotation if group.admits(self._consumer)}
        for group in sorted(able, key=lambda each: self._places[able[each]])[:1]:
            self._rotation.move_to_end(group, last=False)
            self._left = 0
        return super().next_turn()


class _KeepsItsTurn(ServedLanes):
    __slots__ = ()

    def begin_turn(self, lane: Lane) -> None:
        super().begin_turn(lane)
        self._left = 1_000


class _WokenFirst(ServedLanes):
    __slots__ = ()

    def wake(self, group: Scope) -> None:
        super().wake(group)
        self._rotation.move_to_end(group, last=False)
        self._left = 0


class _Faulty(KeySharedDispatcher[object]):
    """Serves in another order."""

    ready: ClassVar[type[ServedLanes]]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        window = self._window
        if not isinstance(window, ScopedWindow):
            return
        add = window.add

        def faulty(consumer: Consumer) -> Consumer:
            add(consumer)
            vars_of = window.served(consumer)
            vars_of.__class__ = self.ready
            return consumer

        window.add = faulty  # type: ignore[method-assign]  # the fault


class OldestGroupWins(_Faulty):
    """Keys are served by age, whatever group they are in."""

    ready = _OldestFirst


class WeightIsIgnored(_Faulty):
    """A group has turns until none of its keys waits."""

    ready = _KeepsItsTurn


class WokenGroupJumpsTheQueue(_Faulty):
    """A group that has opened again is served before those that have waited meanwhile: no history tells that."""

    ready = _WokenFirst


class _Careless(Groups):
    __slots__ = ()

    def pause(self, name: str) -> None:
        super().pause(name)
        self._book.named(name).paused = False


class PausedGroupServed(KeySharedDispatcher[object]):
    """A pause is noted, and nobody looks at the note."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self._groups is not None:
            self._groups.__class__ = _Careless


class GroupLimitForgottenOnRetry(KeySharedDispatcher[object]):
    """Only first deliveries count for the limit of a group."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        window = self._window
        if not isinstance(window, ScopedWindow):
            return
        opened, closed = window._open, window._close

        def forget(entry: Entry, change: int) -> None:
            if entry.attempt % (1 << 32) > 1 and entry.lane.key is not None:
                entry.lane.group.open += change

        def open_(lane: Lane, entry: Entry, *others: Any) -> None:
            opened(lane, entry, *others)
            forget(entry, -1)

        def close(entry: Entry) -> None:
            forget(entry, 1)
            closed(entry)

        window._open = open_  # type: ignore[assignment, method-assign]  # the fault
        window._close = close  # type: ignore[method-assign]  # likewise


class _Generous(Groups):
    __slots__ = ()

    def _look_at(self, group: Group, now: int) -> None:
        bucket = group.bucket
        if bucket is not None and group.tokens is not None:
            bucket.advance(bucket.as_of, bucket.told - group.tokens)
            bucket.told = group.tokens
        super()._look_at(group, now)


class TokensOutOfNowhere(KeySharedDispatcher[object]):
    """A bucket that was full is filled by the time before its tokens were used."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self._groups is not None:
            self._groups.__class__ = _Generous


class SubscriptionLimitOffByOne(KeySharedDispatcher[object]):
    """One more may be open than the subscription has."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        window = self._window
        if isinstance(window, ScopedWindow) and window.everything.limit is not None:
            window.everything.limit += 1


BROKEN_GROUPS = (
    GroupLimitForgottenOnRetry,
    OldestGroupWins,
    PausedGroupServed,
    TokensOutOfNowhere,
    WeightIsIgnored,
)
