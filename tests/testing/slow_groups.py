"""How many turns each group had, judged from docs/history.md alone: the part of the slow judge about group-fairness."""

from collections.abc import Hashable
from typing import Any, TypeAlias

from tests.testing.slow_turns import SlowTurns, Waiting

from keyshared.testing.history import (
    Acked,
    AtRest,
    Connected,
    Delivered,
    Event,
    Gone,
    Held,
    HoldReason,
    PlacementChanged,
    Quiet,
)

__all__ = ["SlowGroups"]

Queue: TypeAlias = tuple[str, Hashable]
"""A consumer, and a group that waits for it."""


class SlowGroups(SlowTurns):
    """Counts, for each group that waits for a consumer, the turns of others since it had its last one."""

    def __init__(self, judge: Any) -> None:  # the slow judge, whose module imports this one
        super().__init__(judge)
        self.had: dict[Queue, list[Hashable]] = {}
        self.called: set[int] = set()  # offsets that were loaded
        self.acks = 0  # since the last moment of quiet

    def queues(self) -> set[Queue]:
        group_of = self.judge.claims.group_of
        return {(each.owner, group_of(key)) for key, each in self.waiting.items() if each.quiet is not None}

    def pass_over(self, event: Delivered) -> bool:
        judge = self.judge
        message, claims = judge.outstanding.get(event.offset), judge.claims
        if claims.group_of is None or message is None or message.key is None:
            return False
        lane = judge.lane(event.offset, event.key)
        if claims.batches and any(each.is_surely("open") for each in lane if each is not message):
            return False
        group = claims.group_of(message.key)
        weight = 1 if claims.weight_of is None else claims.weight_of(group)
        self.had[event.consumer, group] = []
        if event.offset in self.called:
            return False
        broken = False
        for queue in self.queues():
            if queue[0] == event.consumer and queue[1] != group:
                self.had.setdefault(queue, []).append(group)
                broken |= self.had[queue].count(group) == weight + 1
        return broken

    def look(self, event: Event) -> None:
        judge = self.judge
        if judge.claims.group_of is None:
            return
        self.called &= judge.outstanding.keys()
        if isinstance(event, Held) and event.reason is HoldReason.LOADING:
            self.called |= judge.outstanding.keys() & {event.offset}
        if isinstance(event, Delivered):
            self.called.discard(event.offset)
        self.acks = 0 if isinstance(event, Quiet | AtRest) else self.acks + isinstance(event, Acked)
        found = {key: self.who_waits(key, lane) for key, lane in judge.lanes() if key is not None}
        self.waiting = {key: self.same(key, each) for key, each in found.items() if each is not None}
        self.forget()
        for key, each in self.waiting.items():
            is_quiet = isinstance(event, Quiet | AtRest) and not judge.is_behind()
            if is_quiet and each.quiet is None and self.unit_is_free(key, each.owner):
                each.quiet = self.row
            several = isinstance(event, Acked) and self.acks > 1
            anybody = isinstance(event, Connected | Gone | PlacementChanged)
            if several or anybody or self.waits_anew(key, each, event):
                each.quiet = None
        self.forget()

    def same(self, key: bytes, found: Waiting) -> Waiting:
        known = self.waiting.get(key)
        return known if known and (known.offset, known.owner) == (found.offset, found.owner) else found

    def forget(self) -> None:
        """Of a group that does not wait any more, nobody counts what others had."""
        queues = self.queues()
        self.had = {queue: groups for queue, groups in self.had.items() if queue in queues}
