"""In which order the ready lanes of a consumer are served, where lanes share limits with lanes of other consumers.

A *scope* is what shares a limit: a group of keys, or the whole subscription. While a scope is closed (it is paused, as
much of it is open as may be, or it has no token), its lanes stay where they are and are passed over. So a closed scope
costs nothing for each lane that waits.

A scope *remembers* each consumer that would have got something if the scope had been open, in that order. When it
opens, these get one turn each, and then again. Until then nobody else gets anything of the scope.
"""

from collections import OrderedDict
from collections.abc import Iterator, MutableMapping

from keyshared._checks import require
from keyshared._window.lanes import Consumer, Lane, WorkList

__all__ = ["Scope", "ServedLanes", "SharedLanes"]


class Scope:
    """What shares a limit of open deliveries.

    Attributes:
        name: The name of the group; empty for the group without a name, and for the subscription.
        weight: How many turns in a row its lanes get at a consumer.
        limit: How many of its deliveries may be open; None for any number.
        paused: Whether none of it may go out.
        tokens: How many of its deliveries may begin until it gets more tokens; None if it needs none.
        open: Its open deliveries.
        lanes: How many lanes it has.
        waiting: The consumers that it remembers, in the order in which they are to be served.
        granted: The remembered consumer whose turn it is.
    """

    __slots__ = ("granted", "lanes", "limit", "name", "open", "paused", "tokens", "waiting", "weight")

    def __init__(self, name: str = "", *, weight: int = 1, limit: int | None = None) -> None:
        self.name = name
        self.weight = weight
        self.limit = limit
        self.paused = False
        self.tokens: int | None = None
        self.open = 0
        self.lanes = 0
        self.waiting: OrderedDict[Consumer, None] = OrderedDict()
        self.granted: Consumer | None = None

    @property
    def is_open(self) -> bool:
        """Whether another delivery of it may begin."""
        return not self.paused and self.tokens != 0 and (self.limit is None or self.open < self.limit)

    @property
    def room(self) -> int | None:
        """How many deliveries of it may begin while it is not paused; None for any number."""
        bounds = [] if self.tokens is None else [self.tokens]
        if self.limit is not None:
            bounds.append(max(0, self.limit - self.open))
        return min(bounds, default=None)

    def admits(self, consumer: Consumer) -> bool:
        """Whether something of it may go to this consumer now: it is open, and nobody was remembered before."""
        return self.is_open and (not self.waiting or self.granted is consumer)


class ServedLanes(MutableMapping[Lane, int]):
    """A work list of ready lanes that are served group after group.

    A group whose lanes wait has a queue. The *rotation* has the groups that are awake: those that are not remembered
    as waiting for themselves to open. The first of them gets as many turns as its weight, and then goes to the end.

    As a mapping it holds all lanes with their places. But it is true only while something in it can be served.

    Args:
        consumer: Whose list it is.
        everything: The scope of the subscription.
        changed: Where to note the scopes that begin or cease to be waited for.
    """

    __slots__ = ("_awake", "_changed", "_consumer", "_everything", "_left", "_places", "_queues", "_rotation", "_turn")

    def __init__(self, consumer: Consumer, everything: Scope, changed: dict[Scope, None]) -> None:
        self._consumer = consumer
        self._everything = everything
        self._changed = changed
        self._places: WorkList = OrderedDict()
        self._queues: dict[Scope, OrderedDict[Lane, None]] = {}
        self._rotation: OrderedDict[Scope, None] = OrderedDict()
        self._left = 0  # turns that the first group still has; 0 before its first one
        self._awake = 0  # lanes of groups in the rotation
        self._turn: Scope | None = None  # whose turn is being taken: it keeps its place while its queue is empty

    # a work list

    def __bool__(self) -> bool:
        return self._awake > 0 and self._consumer not in self._everything.waiting

    def __len__(self) -> int:
        return len(self._places)

    def __iter__(self) -> Iterator[Lane]:
        return iter(self._places)

    def __getitem__(self, lane: Lane) -> int:
        return self._places[lane]

    def __setitem__(self, lane: Lane, place: int) -> None:
        self._places[lane] = place
        group = lane.group
        queue = self._queues.get(group)
        if queue is None:
            queue = self._queues[group] = OrderedDict()
            self._rotation[group] = None  # one whose turn is being taken stands there already
        queue[lane] = None
        self._awake += group in self._rotation

    def __delitem__(self, lane: Lane) -> None:
        del self._places[lane]
        group = lane.group
        queue = self._queues[group]
        del queue[lane]
        self._awake -= group in self._rotation
        if queue:
            return
        del self._queues[group]
        if group is self._turn:
            return
        if group in self._rotation:
            self._leave(group)
        else:
            self.forget(group)

    # turns

    def next_turn(self) -> Lane | None:
        """Return the lane whose turn it is. Groups that are closed are put to sleep and remember the consumer."""
        while self._rotation:
            group = next(iter(self._rotation))
            if group.admits(self._consumer):
                return next(iter(self._queues[group]))
            self.sleep(group)
        return None

    def begin_turn(self, lane: Lane) -> None:
        """Take out the lane whose turn it is."""
        group = self._turn = lane.group
        self._left = min(self._left or group.weight, group.weight)
        del self[lane]

    def end_turn(self) -> None:
        """Pass on to the next group, if this one has nothing more to send or has had all of its turns."""
        group, self._turn = self._turn, None
        if group is None or group not in self._rotation:  # it was put to sleep meanwhile
            return
        self._left -= 1
        if group not in self._queues:
            self._leave(group)
        elif not self._left:
            self._rotation.move_to_end(group)

    def sleep(self, group: Scope) -> None:
        """Pass over the lanes of a closed group from now on; the group remembers the consumer."""
        if group not in self._rotation:
            return
        self._awake -= len(self._queues[group])
        self._leave(group)
        group.waiting[self._consumer] = None
        self._changed[group] = None

    def wake(self, group: Scope) -> None:
        """Put a group that has taken the consumer out of its memory to the end of the rotation."""
        self._rotation[group] = None
        self._awake += len(self._queues[group])
        self._changed[group] = None

    def forget(self, group: Scope) -> None:
        """Take the consumer out of the memory of a group."""
        del group.waiting[self._consumer]
        self._changed[group] = None

    def forget_all(self) -> None:
        """Take the consumer out of the memory of every scope: it leaves."""
        for group in self._queues:
            if self._consumer in group.waiting:
                self.forget(group)
        self._everything.waiting.pop(self._consumer, None)

    # in another life

    def groups(self) -> set[Scope]:
        """Return the groups that have a lane here."""
        return set(self._queues)

    def dump(self) -> tuple[list[str], int]:
        """Return the names of the groups in the rotation, and how many turns the first one still has."""
        return [group.name for group in self._rotation], self._left

    def load(self, awake: list[Scope], left: int) -> None:
        """Bring the rotation into the order that it had; groups that are not in it are asleep."""
        self._rotation = OrderedDict.fromkeys(awake)
        self._awake = sum(len(self._queues[group]) for group in self._rotation)
        self._left = left

    def check_invariants(self) -> None:
        """Raise `InvariantError` if the queues are not the lanes, or a group is neither awake nor asleep. O(n)."""
        name = self._consumer.name
        queued = {lane: group for group, queue in self._queues.items() for lane in queue}
        require(queued == {lane: lane.group for lane in self._places}, f"{name!r} queues lanes in their groups")
        for group, queue in self._queues.items():
            places = [self._places[lane] for lane in queue]
            require(bool(places) and places == sorted(places), f"{name!r} queues lanes of a group by age")
            asleep = self._consumer in group.waiting
            require(asleep != (group in self._rotation), f"group {group.name!r} is awake or remembers {name!r}")
        require(set(self._rotation) <= set(self._queues), f"{name!r} has only groups in turn that have a lane")
        awake = sum(len(self._queues[group]) for group in self._rotation)
        require(awake == self._awake, f"{name!r} counts the lanes of groups that are awake")
        require(self._turn is None, f"{name!r} has no turn that goes on")
        require(bool(self._rotation) or not self._left, f"{name!r} has turns left for a group")

    def _leave(self, group: Scope) -> None:
        if next(iter(self._rotation)) is group:
            self._left = 0
        del self._rotation[group]


class SharedLanes(OrderedDict[Lane, int]):
    """The list of messages without a key. It is true only while the subscription is open for what is in it.

    Attributes:
        everything: The scope of the subscription.
    """

    everything: Scope

    def __bool__(self) -> bool:
        return len(self) > 0 and self.everything.is_open and not self.everything.waiting
