"""A window whose lanes share limits: groups of keys, and all open deliveries of the subscription.

What a change makes possible is listed first and then served in the order of turns: the consumers that have got
something to do, in order of joining, and then those that the scopes remember that have opened.
"""

from typing import Any

from keyshared._checks import require
from keyshared._dispatch.batches import BatchWindow
from keyshared._dispatch.group_book import GroupBook
from keyshared._dispatch.ruled import LanedWindow
from keyshared._window.lanes import IN_FLIGHT, Consumer, Entry, Lane
from keyshared._window.served import Scope, ServedLanes, SharedLanes
from keyshared.window import State

__all__ = ["ScopedBatchWindow", "ScopedWindow"]


class ScopedWindow(LanedWindow):
    """A window that serves group after group, and passes over what is closed.

    Args:
        book: Knows the group of a key; what it raises, an offer raises, and has changed nothing.
        most_open: How many deliveries of the subscription may be open; None for any number.
        args: As `InFlightWindow`.
        kwargs: As `InFlightWindow`.

    Attributes:
        book: All groups.
        everything: The scope of the subscription.
        changed: Scopes of which something has begun or ended, or that are waited for by others than before; clear it
            when you have seen them.

    Complexity:
        As `InFlightWindow`; a scope that opens costs O(1) for each consumer that it remembers.
    """

    has_scopes = True

    def __init__(
        self,
        *args: Any,  # noqa: ANN401  # as those of the window
        book: GroupBook,
        most_open: int | None,
        **kwargs: Any,  # noqa: ANN401  # as above
    ) -> None:
        super().__init__(*args, **kwargs)
        self.everything = Scope(limit=most_open)
        self.changed: dict[Scope, None] = {}
        self.shared: SharedLanes = SharedLanes()
        self.shared.everything = self.everything
        self.book = book
        self._opened: dict[Scope, None] = {}
        self._lists_only = False  # what could go out is listed, and served when everything is

    def note_opened(self, scope: Scope) -> None:
        """Note that a scope may have opened; `wake` then serves those that it remembers."""
        if scope.waiting and scope.is_open:
            self._opened[scope] = None

    @property
    def wants_wake(self) -> bool:
        """As `InFlightWindow.wants_wake`; or a scope is open that remembers somebody."""
        return bool(self._opened) or super().wants_wake

    @property
    def is_subscription_full(self) -> bool:
        """Whether as much is open, at all consumers together, as may be."""
        return not self.everything.is_open

    def closed_group(self, lane: Lane) -> Scope | None:
        """The group of a lane that has a key, if that is closed."""
        return None if lane.group.is_open else lane.group

    def served(self, consumer: Consumer) -> ServedLanes:
        """Return the ready list of a consumer."""
        return consumer.ready  # type: ignore[return-value]  # that of `add`

    # messages

    def settle(self, entry: Entry) -> list[Entry]:
        """As `InFlightWindow.settle`, always the long way: scopes may have opened."""
        self.remove(entry)
        return self.wake()

    def reassign(self) -> None:
        """As `InFlightWindow.reassign`; everybody is asked again, so nobody is remembered."""
        super().reassign()
        self.everything.waiting.clear()

    def wake(self) -> list[Entry]:
        """As `InFlightWindow.wake`; then scopes that have opened serve those that they remember.

        Groups come first, by name, and the subscription after them.
        """
        granted = super().wake()
        opened, self._opened = self._opened, {}
        for scope in sorted(opened, key=self._order_of_scope):
            self._serve_scope(scope, granted)
        while len(self.shared) and (roomiest := self._rooms.roomiest()) is not None:
            if not self.shared:
                self.everything.waiting.setdefault(roomiest)
                break
            self._serve(roomiest, granted)
        return granted

    def new_lane(self, key: bytes | None) -> Lane:
        """As `InFlightWindow.new_lane`: it is of a group."""
        lane = super().new_lane(key)
        if key is not None:
            lane.group = self.book.of(key)
            lane.group.lanes += 1
        return lane

    def _forget(self, lane: Lane) -> None:
        super()._forget(lane)
        if lane.key is not None:
            lane.group.lanes -= 1
            self.changed[lane.group] = None

    # consumers

    def add(self, consumer: Consumer) -> Consumer:
        """As `InFlightWindow.add`."""
        consumer.ready = ServedLanes(consumer, self.everything, self.changed)
        return super().add(consumer)

    def discard(self, name: str) -> None:
        """As `InFlightWindow.discard`."""
        consumer = self.consumers.get(name)
        super().discard(name)
        self.served(consumer).forget_all()  # type: ignore[arg-type]  # else that has raised

    # turns

    def _examine_in_turns(self, lanes: list[Lane], granted: list[Entry]) -> None:
        self._lists_only = True
        super()._examine_in_turns(lanes, granted)
        self._lists_only = False

    def _serve_scope(self, scope: Scope, granted: list[Entry]) -> None:
        """Serve those that a scope remembers, one turn each and round again, while it is open."""
        while scope.waiting and scope.is_open:
            consumer, _ = scope.waiting.popitem(last=False)
            scope.granted = consumer
            if scope is not self.everything:
                self.served(consumer).wake(scope)
            self._serve(consumer, granted)
            scope.granted = None

    def _serve(self, consumer: Consumer, granted: list[Entry]) -> None:
        ready = self.served(consumer)
        while consumer.free > 0:
            lane = ready.next_turn()
            alone = _oldest(self.shared) if consumer.keyless else None
            if alone is not None and (lane is None or self.shared[alone] < ready[lane]):
                lane = alone
            if lane is None:
                return
            if not self.everything.admits(consumer):
                self.everything.waiting.setdefault(consumer)
                return
            self._take_turn(lane, consumer, granted)

    def _take_turn(self, lane: Lane, consumer: Consumer, granted: list[Entry]) -> None:
        entry: Entry = lane.candidate  # type: ignore[assignment]  # a listed lane has one
        if lane.key is None:
            self._unlist(lane)
            self._send(lane, entry, consumer, granted)
            return
        ready = self.served(consumer)
        ready.begin_turn(lane)
        lane.listed = None
        if self._send(lane, entry, consumer, granted):
            self._examine(lane, granted)
        ready.end_turn()

    def _send(self, lane: Lane, entry: Entry, consumer: Consumer, granted: list[Entry]) -> bool:
        if self._lists_only and lane.key is not None:
            self._list(lane, consumer.ready)
            self._freed[consumer] = None
            return False
        if lane.key is not None and not lane.group.admits(consumer):
            self._list(lane, consumer.ready)
            self.served(consumer).sleep(lane.group)
            return False
        if not self.everything.admits(consumer):
            self._list(lane, self.shared if lane.key is None else consumer.ready)
            self.everything.waiting.setdefault(consumer)
            return False
        more = super()._send(lane, entry, consumer, granted)
        self.everything.granted = None
        if lane.key is not None:
            lane.group.granted = None
        return more

    def _hand_out(self, entry: Entry, consumer: Consumer, granted: list[Entry]) -> None:
        if self._is_admitted(entry.lane, consumer):
            super()._hand_out(entry, consumer, granted)

    def _could_get(self, consumer: Consumer, lane: Lane) -> bool:
        return self._is_admitted(lane, consumer) and super()._could_get(consumer, lane)

    def _is_admitted(self, lane: Lane, consumer: Consumer) -> bool:
        """Whether the scopes of a lane are open for a consumer."""
        return self.everything.admits(consumer) and (lane.key is None or lane.group.admits(consumer))

    # counting

    def _open(self, lane: Lane, entry: Entry, consumer: Consumer, granted: list[Entry]) -> None:
        super()._open(lane, entry, consumer, granted)
        self._count(lane)
        if lane.key is not None and lane.group.tokens is not None:
            lane.group.tokens -= 1

    def _count(self, lane: Lane) -> None:
        self.everything.open += 1
        if lane.key is not None:
            lane.group.open += 1
            self.changed[lane.group] = None

    def _close(self, entry: Entry) -> None:
        super()._close(entry)
        lane = entry.lane
        self.everything.open -= 1
        self.note_opened(self.everything)
        if lane.key is not None:
            lane.group.open -= 1
            self.note_opened(lane.group)

    def _recount(self, entry: Entry, consumer: Consumer | None) -> None:
        super()._recount(entry, consumer)
        if entry.state == IN_FLIGHT:
            self._count(entry.lane)

    def _check_new(self, key: bytes) -> None:
        super()._check_new(key)
        self.book.check(key)

    def _order_of_scope(self, scope: Scope) -> tuple[bool, str]:
        return scope is self.everything, scope.name

    # checks

    def check_invariants(self) -> None:
        """Raise `InvariantError` if the structure contradicts itself. For tests; O(n)."""
        super().check_invariants()
        groups: dict[Scope, list[Lane]] = {}
        require(all(isinstance(lane, Lane) for lane in self.lanes.values()), "everything has a lane")
        for lane in self.lanes.values():
            groups.setdefault(lane.group, []).append(lane)  # type: ignore[union-attr, arg-type]  # just required
        for group, lanes in groups.items():
            require(group.lanes == len(lanes), f"group {group.name!r} counts its lanes")
            require(group.open == sum(lane.open for lane in lanes), f"group {group.name!r} counts what is open")
        opened = sum(entry.state == State.IN_FLIGHT for entry in self.outstanding())
        require(self.everything.open == opened, "the subscription counts what is open")
        for scope in (self.everything, *groups):
            require(scope.granted is None, f"scope {scope.name!r} has no turn that goes on")
            due = scope.waiting and scope.is_open
            require(not due or scope in self._opened, f"scope {scope.name!r} is closed while it remembers somebody")
            for consumer in scope.waiting:
                queued = scope is self.everything or scope in self.served(consumer).groups()
                require(queued, f"group {scope.name!r} remembers those for whom it has a lane")
                require(self.consumers.get(consumer.name) is consumer, f"scope {scope.name!r} remembers the connected")
        for consumer in self.consumers.values():
            self.served(consumer).check_invariants()


class ScopedBatchWindow(ScopedWindow, BatchWindow):
    """A window with scopes whose keys get batches; a batch has at most as many messages as its scopes have room for."""

    def _goes_on(self, lane: Lane, consumer: Consumer) -> bool:
        rooms = [self.everything.room] if lane.key is None else [self.everything.room, lane.group.room]
        return super()._goes_on(lane, consumer) and 0 not in rooms


def _oldest(lanes: SharedLanes) -> Lane | None:
    return next(iter(lanes), None)
