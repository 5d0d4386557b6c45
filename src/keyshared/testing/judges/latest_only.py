"""The promise about keys of which only the latest message counts: latest-only."""

from collections.abc import Iterable, Iterator, Mapping

from keyshared.testing.guarantees import Promise, Violation
from keyshared.testing.history import AtRest, Happening, Held, HoldReason, Published, Quiet, Settled, SettledBy
from keyshared.testing.judges.books import Books
from keyshared.testing.judges.delivery_promises import NO_PUBLISHED
from keyshared.testing.judges.entries import Lane, LaneId, Message, Seen, heir_of, is_latest_only, was_delivered
from keyshared.testing.judges.judge import Judge, Judgement

__all__ = ["LatestOnly"]

_ON_ITS_WAY = frozenset({HoldReason.DEAD_LETTERING, HoldReason.BLOCKED})


class LatestOnly(Judge):
    """At most one message of a key waits for its first delivery; an older one is given up for it, and nothing else."""

    promise = Promise.LATEST_ONLY

    def __init__(self, books: Books) -> None:
        super().__init__(books)
        self.crowded: dict[LaneId, Lane] = {}  # of which several messages wait
        self.blamed: set[int] = set()  # what was not given up is one violation, not one in each moment of quiet
        self.heirless: dict[LaneId, Violation] = {}  # superseded, and nothing newer is told so far

    def judgements(self) -> Mapping[type[Happening], Judgement]:
        if not self.guarantees.latest_only:
            return {}
        return {Published: self._published, Settled: self._settled, Quiet: self._quiet, AtRest: self._quiet}

    @property
    def looks(self) -> bool:
        return bool(self.guarantees.latest_only)

    def after(self, seen: Seen) -> None:  # noqa: ARG002  # one shape for all
        for lane in self.books.changed.values():
            is_crowded = len(lane.listed) > 1 and isinstance(lane.id, bytes)
            if is_crowded and is_latest_only(self.guarantees, lane.id) and self.books.lanes.get(lane.id) is lane:
                self.crowded[lane.id] = lane
            else:
                self.crowded.pop(lane.id, None)
        self.blamed.difference_update(self.books.ended)

    def missing(self) -> str | None:
        kinds = self.books.kinds
        if not self.guarantees.latest_only:
            return "the guarantees do not claim latest_only"
        if Published not in kinds:
            return NO_PUBLISHED
        return None if kinds & {Quiet, AtRest} else "the history never says Quiet, so what waits may still be given up"

    def entries(self) -> int:
        return len(self.crowded) + len(self.blamed) + len(self.heirless)

    def finish(self) -> Iterable[Violation]:
        found, self.heirless = self.heirless.values(), {}
        return found

    def _published(self, seen: Seen, happening: Published, message: Message | None) -> Iterable[Violation]:  # noqa: ARG002
        if self.heirless:
            self.heirless.pop(self.books.lane_id(happening.offset, happening.key), None)
        return ()

    def _settled(self, seen: Seen, happening: Settled, message: Message | None) -> Iterator[Violation]:
        if happening.reason is not SettledBy.SUPERSEDED or message is None or not self.books.log_is_told:
            return
        if not is_latest_only(self.guarantees, message.lane.id):
            return  # no-loss says that no policy allows it
        if was_delivered(message):
            text = f"offset {message.offset} was superseded, although it had been delivered"
            yield self.blame(text, message.delivered or message.published, seen)
        elif heir_of(message, self.books.messages) is None:
            text = f"offset {message.offset} was superseded, and there is no newer message of its key"
            violation = self.blame(text, message.published, seen)
            newest = message.lane.newest
            if newest is not None and newest.offset > message.offset:  # and done
                yield violation
            else:
                self.heirless[message.lane.id] = violation

    def _quiet(self, seen: Seen, happening: Happening) -> Iterator[Violation]:  # noqa: ARG002  # one shape for all
        yield from self.finish()
        for lane in self.crowded.values():
            undelivered = self._undelivered(lane)
            for message in undelivered[:-1]:
                if message.offset not in self.blamed:
                    self.blamed.add(message.offset)
                    text = f"offset {message.offset} waits for its first delivery, and so does a newer one of its key"
                    yield self.blame(text, message.published, undelivered[-1].published, seen)

    def _undelivered(self, lane: Lane) -> list[Message]:
        """What waits for its first delivery, oldest first."""
        known = (self.books.messages.get(offset) for offset in sorted(lane.listed))
        waiting = (message for message in known if message is not None and message.lane is lane)
        return [message for message in waiting if not (was_delivered(message) or _is_on_its_way(message))]


def _is_on_its_way(message: Message) -> bool:
    """Whether a message that was never delivered goes to the dead-letter store, or has come from there."""
    happening = None if message.held is None else message.held.happening
    return isinstance(happening, Held) and happening.reason in _ON_ITS_WAY
