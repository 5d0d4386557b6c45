"""Whose turn it is, judged from docs/history.md alone: the part of the slow judge that follows fairness."""

from dataclasses import dataclass, field
from typing import Any, TypeAlias

from keyshared.testing.history import (
    AtRest,
    Connected,
    Delivered,
    Event,
    Gone,
    LimitChanged,
    Quiet,
    Redriven,
    Rewound,
    SessionEnding,
)

__all__ = ["SlowTurns"]

LaneName: TypeAlias = tuple[str, bytes | int]


@dataclass
class Waiting:
    """A key that only room at its owner keeps from going on."""

    offset: int
    owner: str
    quiet: int | None = None  # the row of the first moment of quiet in which it was so
    passed: list[int] = field(default_factory=list)


class SlowTurns:
    """Looks at all that is outstanding in each row."""

    def __init__(self, judge: Any) -> None:  # the slow judge, whose module imports this one
        self.judge = judge
        self.began: dict[LaneName, int] = {}  # the row in which the turn of a key began anew
        self.began_to_wait: dict[LaneName, int] = {}  # the row in which something waited where nothing had waited
        self.waiting: dict[bytes, Waiting] = {}

    @property
    def row(self) -> int:
        return len(self.judge.history)

    def surely_open(self) -> dict[int, LaneName]:
        judge, outstanding = self.judge, self.judge.outstanding.values()
        return {each.offset: judge.lane_name(each) for each in outstanding if each.is_surely("open")}

    def note_ends(self, before: dict[int, LaneName]) -> None:
        """The turn of a key begins anew when one of as many as may be open has ended."""
        after = self.surely_open()
        for offset, name in before.items():
            limit = self.judge.turn_limit(name[1] if isinstance(name[1], bytes) else None)
            if offset not in after and limit is not None and list(before.values()).count(name) >= limit:
                self.began[name] = self.row

    def hand_on(self, message: Any) -> None:
        """Hand the place of a superseded message on to the one that supersedes it."""
        heir = self.judge.heir_of(message)
        if heir is None or heir.deliveries or message.deliveries or message.redriven is not None:
            return
        for waiting in self.waiting.values():
            if waiting.offset == message.offset:
                waiting.offset = heir.offset

    def pass_over(self, event: Delivered) -> bool:
        """Whether a delivery is one too many before something that waits for the same consumer."""
        judge = self.judge
        message = judge.outstanding.get(event.offset)
        if message is None or judge.claims.fairness is None:
            return False
        lane = judge.lane(event.offset, event.key)
        if judge.claims.batches and any(each.is_surely("open") for each in lane if each is not message):
            return False  # of a batch only the first one takes a turn
        began = self.began.get(judge.lane_name(message), -1)
        if not message.deliveries and message.redriven is None:
            began = max(began, self.began_to_wait[judge.lane_name(message)])
        broken = False
        for key, waiting in self.waiting.items():
            waits_longer = waiting.quiet is not None and waiting.quiet < began
            of_owner = waiting.owner == event.consumer and judge.lane_name(message) != ("key", key)
            if waits_longer and of_owner:
                waiting.passed.append(self.row)
                broken |= len(waiting.passed) == judge.claims.fairness + 1
        return broken

    def look(self, event: Event) -> None:
        """See after a row what waits, and for whom."""
        judge = self.judge
        message = judge.outstanding.get(event.offset) if isinstance(event, Delivered | Redriven) else None
        came_back = message is not None and message.redriven is event  # else it was there already
        if message is not None and (isinstance(event, Delivered) or (came_back and self.is_alone(message))):
            self.began[judge.lane_name(message)] = self.row
        names = {judge.lane_name(each) for each in judge.outstanding.values() if not each.is_surely("open")}
        self.began_to_wait = {name: self.began_to_wait.get(name, self.row) for name in names}
        for key, lane in judge.lanes():
            found = None if key is None else self.who_waits(key, lane)
            if found is None:
                self.waiting.pop(key, None)
                continue
            known = self.waiting.get(key)
            if known is None or (known.offset, known.owner) != (found.offset, found.owner):
                known = self.waiting[key] = found
            is_quiet = isinstance(event, Quiet | AtRest) and not judge.is_behind()
            if is_quiet and known.quiet is None and self.unit_is_free(key, known.owner):
                known.quiet = self.row
        for key, waiting in self.waiting.items():
            was_blamed = judge.claims.fairness is not None and len(waiting.passed) > judge.claims.fairness
            if self.waits_anew(key, waiting, event) and not was_blamed:
                waiting.quiet, waiting.passed = None, []
        for key in self.waiting.keys() - {key for key, _ in judge.lanes()}:
            del self.waiting[key]

    def waits_anew(self, key: bytes, waiting: Waiting, event: Event) -> bool:
        if isinstance(event, SessionEnding):
            return key == event.key
        if isinstance(event, Rewound):
            return True
        return isinstance(event, Connected | Gone | LimitChanged) and waiting.owner == event.consumer

    def is_alone(self, message: Any) -> bool:
        return [each.offset for each in self.judge.lane(message.offset, message.key)] == [message.offset]

    def who_waits(self, key: bytes, lane: list[Any]) -> Waiting | None:
        judge = self.judge
        waiting = [each for each in lane if each.is_surely("waits") and judge.holds_its_key(each)]
        open_ones = [each for each in lane if each.is_surely("open")]
        owner = judge.owned[key][-1][1] if key in judge.owned else None
        limit = judge.turn_limit(key)
        if owner is None or not waiting or waiting[0].held is not None or judge.is_unsure(key):
            return None
        if limit is not None and len(open_ones) >= limit:
            return None
        return Waiting(waiting[0].offset, owner) if all(each.consumer == owner for each in open_ones) else None

    def unit_is_free(self, key: bytes, owner: str) -> bool:
        of_unit = self.judge.of_its_unit(key)
        open_elsewhere = any(each.state == "open" and each.consumer != owner for each in of_unit)
        return not open_elsewhere and not self.judge.unit_is_unsure(key)
