"""The ready lanes of a consumer where groups take turns."""

from collections import OrderedDict
from typing import TypeAlias

from keyshared._checks import require
from keyshared._core.quotas import Quota
from keyshared._core.records import Consumer, Lane, Place
from keyshared.effects import BlockReason

__all__ = ["Group", "Rotation"]

Group: TypeAlias = Quota[Consumer]


class Rotation(Place):
    """A ready list that is served group after group.

    A group whose lanes wait here has a queue. The groups that are awake take turns: the first of them gets as many as
    its weight and then goes to the end. A group without capacity sleeps, and remembers the consumer.

    Args:
        changed: Where to add the groups that begin or cease to remember a consumer.
    """

    __slots__ = ("_awake", "_changed", "_left", "_queues", "_turn", "consumer")

    def __init__(self, changed: dict[Group, None]) -> None:
        super().__init__(BlockReason.CONSUMER_FULL)
        self.consumer: Consumer | None = None
        self._changed = changed
        self._queues: dict[Group, OrderedDict[Lane, None]] = {}
        self._awake: OrderedDict[Group, None] = OrderedDict()
        self._left = 0  # turns that the first group still has; 0 before its first one
        self._turn: Group | None = None  # whose turn is being taken: it keeps its place while its queue is empty

    def put(self, lane: Lane, number: int) -> None:
        """Add a lane at the end of the queue of its group."""
        self.lanes[lane] = number
        group: Group = lane.rule.quotas[0]
        queue = self._queues.get(group)
        if queue is None:
            queue = self._queues[group] = OrderedDict()
            self._awake[group] = None
        queue[lane] = None

    def drop(self, lane: Lane) -> None:
        """Take a lane out; a group without lanes has no turn."""
        del self.lanes[lane]
        group: Group = lane.rule.quotas[0]
        queue = self._queues[group]
        del queue[lane]
        if queue:
            return
        del self._queues[group]
        if group is self._turn:
            return
        if group in self._awake:
            self._leave(group)
        else:
            self._forget(group)

    def head(self) -> Lane | None:
        """Return the lane whose turn it is; groups without capacity are put to sleep."""
        while self._awake:
            group = next(iter(self._awake))
            if group.admits(self._consumer_here()):
                return next(iter(self._queues[group]))
            self._leave(group)
            group.waiting[self._consumer_here()] = None
            self._changed[group] = None
        return None

    @property
    def has_turns(self) -> bool:
        """Whether a lane here may have a turn: its group does not sleep."""
        return bool(self._awake)

    def took(self, lane: Lane) -> None:
        """Take out the lane that `head` returned: its group has a turn."""
        group: Group = lane.rule.quotas[0]
        self._turn = group
        self._left = min(self._left or group.weight, group.weight)
        self.drop(lane)

    def end_turn(self) -> None:
        """Pass on to the next group if this one has nothing more to send or has had all of its turns."""
        group: Group = self._turn  # type: ignore[assignment]  # the one whose turn `took` began
        self._turn = None
        self._left -= 1
        if group not in self._queues:
            self._leave(group)
        elif not self._left:
            self._awake.move_to_end(group)

    def wake(self, group: Group) -> None:
        """Put a group at the end of the rotation; it remembers the consumer no more."""
        self._awake[group] = None
        self._changed[group] = None

    @property
    def awake(self) -> list[str]:
        """Names of the groups that take turns, the next one first."""
        return [group.name for group in self._awake]

    @property
    def left(self) -> int:
        """Turns that the first group still has; 0 before its first one."""
        return self._left

    def groups(self) -> list[Group]:
        """Return the groups that have a lane here."""
        return list(self._queues)

    def load(self, awake: list[Group], left: int) -> None:
        """Put the rotation in the order that a snapshot has; groups that are not in it are asleep."""
        self._awake = OrderedDict.fromkeys(awake)
        self._left = left

    def check_invariants(self) -> None:
        """Raise `InvariantError` unless queues hold the lanes by group, and each group takes turns or sleeps. O(n)."""
        lanes = [lane for queue in self._queues.values() for lane in queue]
        require(len(lanes) == len(self.lanes) and set(lanes) == set(self.lanes), "each lane is in one queue")
        require(all(self._queues.values()), "a group without lanes has no queue")
        require(self._awake.keys() <= self._queues.keys(), "a group without lanes takes no turns")
        for group in self._queues:
            sleeps = self._consumer_here() in group.waiting
            require(sleeps != (group in self._awake), f"group {group.name!r} takes turns or remembers the consumer")

    def _consumer_here(self) -> Consumer:
        consumer = self.consumer
        assert consumer is not None  # noqa: S101  # set when the consumer is made
        return consumer

    def _forget(self, group: Group) -> None:
        group.waiting.pop(self._consumer_here(), None)
        self._changed[group] = None

    def _leave(self, group: Group) -> None:
        if next(iter(self._awake)) is group:
            self._left = 0
        del self._awake[group]
