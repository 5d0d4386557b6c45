"""The promise about turns of groups: group-fairness."""

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping

from keyshared.testing.guarantees import Promise, Violation
from keyshared.testing.history import (
    Acked,
    AtRest,
    Connected,
    Delivered,
    Gone,
    Happening,
    Held,
    HoldReason,
    PlacementChanged,
    Quiet,
)
from keyshared.testing.judges.books import Books
from keyshared.testing.judges.entries import LaneId, Message, Seen
from keyshared.testing.judges.fairness import Fairness, Turn
from keyshared.testing.judges.judge import Judgement

__all__ = ["GroupFairness"]


class GroupFairness(Fairness):
    """While a consumer takes something, and a key of a group waits for it, another group gets its turns only once."""

    promise = Promise.GROUP_FAIRNESS

    def __init__(self, books: Books) -> None:
        super().__init__(books)
        self.waiting: dict[str, Counter[Hashable]] = {}  # by consumer: the ready keys of each group
        self.turns: dict[tuple[str, Hashable], dict[Hashable, list[Seen]]] = {}  # which others had, since the last own
        self.called: dict[int, LaneId] = {}  # what was loaded: its turn was before
        self.heirs: set[LaneId] = set()  # keys whose loaded message was superseded: the newer one has its turn
        self.answers = 0  # since the last moment of quiet

    def judgements(self) -> Mapping[type[Happening], Judgement]:
        return {} if self.guarantees.group_of is None else {Delivered: self._delivered}

    @property
    def looks(self) -> bool:
        return self.guarantees.group_of is not None

    def missing(self) -> str | None:
        return "the guarantees claim no groups" if self.guarantees.group_of is None else self.missing_of_turns()

    def entries(self) -> int:
        """How much is kept."""
        counted = sum(map(len, self.waiting.values())) + len(self.called) + len(self.heirs)
        return super().entries() + counted + sum(len(each) for turns in self.turns.values() for each in turns.values())

    def after(self, seen: Seen) -> None:
        super().after(seen)
        ended = [self.called.pop(offset) for offset in self.books.ended if offset in self.called]
        if self.guarantees.latest_only:
            self.heirs.update(ended)
        match seen.happening:
            case Held(offset=offset, reason=HoldReason.LOADING) if offset in self.books.messages:
                self.called[offset] = self.books.messages[offset].lane.id
            case Delivered(offset=offset):
                self.called.pop(offset, None)
            case Connected() | Gone() | PlacementChanged():
                self._begin_all_anew()
            case Acked():
                self.answers += 1
                if self.answers > 1:  # in between, groups may have closed and opened again
                    self._begin_all_anew()
            case Quiet() | AtRest():
                self.answers = 0
                self.heirs.clear()
            case _:
                pass

    def _delivered(self, seen: Seen, happening: Delivered, message: Message | None) -> Iterator[Violation]:
        if message is None or not isinstance(message.lane.id, bytes) or not self.books.log_is_told:
            return
        if self.guarantees.batches and message.lane.open > message.is_open:
            return  # it belongs to the turn that the first of its batch had
        consumer, group = happening.consumer, self._group(message.lane.id)
        self.turns.pop((consumer, group), None)
        if happening.offset in self.called or message.lane.id in self.heirs:
            self.heirs.discard(message.lane.id)
            return
        weight_of = self.guarantees.weight_of
        weight = 1 if weight_of is None else weight_of(group)
        for other in self.waiting.get(consumer, ()):
            if other == group:
                continue
            had = self.turns.setdefault((consumer, other), {}).setdefault(group, [])
            had.append(seen)
            if len(had) == weight + 1:  # once, until the other has a turn
                yield self._blame_group(other, group, consumer, had)

    def _blame_group(self, waiting: Hashable, group: Hashable, consumer: str, had: list[Seen]) -> Violation:
        turn = next(turn for lane_id, turn in self.ready[consumer].items() if self._group(lane_id) == waiting)
        text = (
            f"offset {turn.message.offset} of group {waiting!r} waits for room at {consumer!r} only, "
            f"and group {group!r} had {len(had)} turns there"
        )
        return self.blame(text, turn.message.since, turn.owned, turn.quiet, *had)

    def _begin_all_anew(self) -> None:
        for consumer in list(self.ready):
            self._begin_anew(consumer)

    def _join(self, lane_id: LaneId, turn: Turn) -> None:
        super()._join(lane_id, turn)
        self.waiting.setdefault(turn.owner, Counter())[self._group(lane_id)] += 1

    def _leave(self, lane_id: LaneId, turn: Turn) -> None:
        is_ready = lane_id in self.ready.get(turn.owner, {})
        super()._leave(lane_id, turn)
        if not is_ready:
            return
        groups, group = self.waiting[turn.owner], self._group(lane_id)
        groups[group] -= 1
        if not groups[group]:
            del groups[group]
            self.turns.pop((turn.owner, group), None)
        if not groups:
            del self.waiting[turn.owner]

    def _group(self, lane_id: LaneId) -> Hashable:
        group_of = self.guarantees.group_of
        assert group_of is not None
        assert isinstance(lane_id, bytes)
        return group_of(lane_id)
