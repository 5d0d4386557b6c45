"""Whether the dispatcher may be believed when it says who owns a key, and that nobody takes a message.

The kit takes the answers of `owner` for the truth, and sees those about keys that were published. Here they are worked
out again, of any key, from the slots of the placement and from the filters that the calls have named.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from tests.properties.calls import Step

from keyshared.config import DispatcherConfig
from keyshared.effects import Evicted, Skipped, SkipReason
from keyshared.glob import KeyFilter
from keyshared.testing import Promise

__all__ = ["OwnOwners"]

_BY_HAND = frozenset({"set_filters", "set_weight", "set_placement"})


class OwnOwners:
    """Follows who is connected, with which filters, from call to call."""

    def __init__(self, config: DispatcherConfig) -> None:
        self.config = config
        self.connected: dict[str, KeyFilter] = {}
        self.leaving: dict[str, KeyFilter] = {}  # they may still finish something
        self.owners: Mapping[bytes, str | None] = {}

    def see(self, step: Step, dispatcher: Any, busy: Collection[str]) -> Iterator[tuple[Promise, str]]:
        """What the latest call breaks."""
        yield from self._skips(step, busy)
        left = self._follow(step)
        ranges = dispatcher.placement.ranges
        for key, owner in step.after.owners.items():
            if owner != (rightful := self._owner(ranges, key)):
                yield Promise.AFFINITY, f"{key!r} is said to belong to {owner!r}, and belongs to {rightful!r}"
        yield from self._moves(step, left)
        self.owners = step.after.owners

    def _follow(self, step: Step) -> set[str]:
        """Take in who came and went; who went."""
        name, args, kwargs = step.call
        left = {effect.consumer for effect in step.effects if isinstance(effect, Evicted)}
        if name == "remove_consumer":
            left.add(args[0])
        for consumer in left & self.connected.keys():
            self.leaving[consumer] = self.connected.pop(consumer)
        if name == "add_consumer":
            self.connected[args[0]] = KeyFilter(kwargs.get("filters", ()))
            self.leaving.pop(args[0], None)
        elif name == "set_filters":
            self.connected[args[0]] = KeyFilter(args[1])
        return left

    def _owner(self, ranges: Any, key: bytes) -> str | None:
        """The first of the walk whose filter accepts the key; nobody in a hole, or while a stranger is waited for."""
        slot = ranges.slot_of(b"" if self.config.ordering_required else key)
        for name in () if ranges.owner(slot) is None else ranges.walk(slot):
            if name not in self.connected:
                return None
            if self.connected[name].accepts(key):
                return str(name)
        return None

    def _moves(self, step: Step, left: set[str]) -> Iterator[tuple[Promise, str]]:
        """A join moves keys to the newcomer only, a leave those of the leaver; nothing else moves any."""
        if step.call.name in _BY_HAND:
            return
        joined = {step.call.args[0]} if step.call.name == "add_consumer" else set()
        for key, new in step.after.owners.items():
            old = self.owners.get(key)
            if old not in {None, new} and new not in joined and old not in left:
                yield Promise.MINIMAL_MOVE, f"{key!r} moved from {old!r} to {new!r}, though neither has left or joined"

    def _skips(self, step: Step, busy: Collection[str]) -> Iterator[tuple[Promise, str]]:
        """Only what none of those who are there accepts is skipped for want of a taker."""
        there = [*self.connected.values(), *(self.leaving[name] for name in self.leaving.keys() & set(busy))]
        for effect in step.effects:
            if isinstance(effect, Skipped) and effect.reason is SkipReason.UNMATCHED:
                accepting = any(accepts.accepts(effect.key) for accepts in there)
                if accepting or not there:
                    yield Promise.NO_LOSS, f"{effect}, though {'somebody accepts it' if there else 'nobody is there'}"
