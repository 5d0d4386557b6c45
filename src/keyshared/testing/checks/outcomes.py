"""The promises about what becomes of messages: safe-cursor, no-loss, settled-once, reason-travels."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from keyshared.testing import history as h
from keyshared.testing.checks.check import DELIVERED, PUBLISHED, QUIET, Check, Handler, need
from keyshared.testing.checks.waiting import is_held, takers
from keyshared.testing.claims import Promise, Violation
from keyshared.testing.records import LaneId, Message, Seen
from keyshared.testing.state import State

__all__ = ["NoLoss", "ReasonTravels", "SafeCursor", "SettledOnce"]

_REMEMBERED_GAPS: Final = 1_000


class SafeCursor(Check):
    """The cursor never passes an outstanding offset and never moves back."""

    promise = Promise.SAFE_CURSOR
    needs = (PUBLISHED, need("write `committed`", h.Committed))

    def __init__(self, state: State) -> None:
        super().__init__(state)
        self.blamed_front: int | None = None  # a cursor that lags is one violation, not one in each moment of quiet
        self.beyond: dict[int, Seen] = {}  # cursors behind all that was published by then

    def handlers(self) -> Mapping[type[h.Event], Handler]:
        return {
            h.Published: self._published,
            h.Committed: self._committed,
            h.Quiet: self._quiet,
            h.AtRest: self._quiet,
        }

    def _committed(self, seen: Seen, event: h.Committed) -> Iterable[Violation]:
        state, resume = self.state, event.resume_offset
        found: list[Violation] = []
        if state.resume_offset is not None and resume < state.resume_offset:
            text = f"cursor {resume} came after cursor {state.resume_offset}"
            found.append(self.blame(text, state.committed, seen))
        lowest = state.lowest()
        if lowest is not None and lowest.offset < resume and lowest.logged:
            text = f"cursor {resume} passed outstanding offset {lowest.offset}"
            found.append(self.blame(text, lowest.since, seen))
        if state.last_offset is not None and resume > state.last_offset + 1:
            self.beyond.setdefault(resume, seen)  # behind a gap of the log, or too far: the next publication decides
            if len(self.beyond) > _REMEMBERED_GAPS:
                del self.beyond[next(iter(self.beyond))]
        return found

    def _published(self, seen: Seen, event: h.Published, message: Message | None) -> Iterable[Violation]:  # noqa: ARG002
        offset, beyond = event.offset, self.beyond
        if not beyond:
            return ()
        passed = next((cursor for cursor in beyond if offset < cursor), None)
        self.beyond = {cursor: each for cursor, each in beyond.items() if cursor > offset + 1 and cursor != passed}
        if passed is None:
            return ()
        text = f"cursor {passed} passed offset {offset}, which was published only then"
        return (self.blame(text, beyond[passed], seen),)

    def _quiet(self, seen: Seen, event: h.Event) -> Iterable[Violation]:  # noqa: ARG002  # one shape for all
        state = self.state
        if not self.claims.cursor_keeps_up or state.last_published is None:
            return ()
        if state.unclear.items or state.is_behind():
            return ()
        lowest, cursor = state.lowest(), state.resume_offset
        front = state.last_offset if lowest is None else lowest.previous
        if front is None or front == self.blamed_front or (cursor is not None and cursor > front):
            return ()
        self.blamed_front = front
        text = f"the cursor is {cursor}, though everything up to offset {front} is done"
        follows = state.last_published if lowest is None else lowest.published
        return (self.blame(text, state.committed, follows, seen),)


class NoLoss(Check):
    """Every published offset gets exactly one outcome, by a policy that was chosen; else it is outstanding."""

    promise = Promise.NO_LOSS
    needs = (
        PUBLISHED,
        need("end it with `at_rest`: until then, what has no outcome may still get one", h.AtRest),
    )

    def __init__(self, state: State) -> None:
        super().__init__(state)
        claims = self.claims
        policies = {h.DeadLettered: claims.may_dead_letter, h.Dropped: claims.may_drop, h.Skipped: claims.may_skip}
        self.policies = {kind for kind, is_chosen in policies.items() if is_chosen}

    def handlers(self) -> Mapping[type[h.Event], Handler]:
        return {
            h.Delivered: self._delivered,
            h.Acked: self._acked,
            h.Nacked: self._nacked,
            h.Settled: self._settled,
            h.DeadLettered: self._given_up,
            h.Dropped: self._given_up,
            h.Skipped: self._given_up,
            h.AtRest: self._at_rest,
        }

    def missing(self) -> str | None:
        unlogged = self.state.unlogged
        told = f"write `published` of the {unlogged} messages that it does not tell of" if unlogged else None
        return super().missing() or told

    def _delivered(self, seen: Seen, event: h.Delivered, message: Message | None) -> Iterable[Violation]:
        if message is not None and (message.key == event.key or self.state.claims.total_order):
            return ()  # as nearly always; with a total order, a system may deliver every message with one key
        if message is not None:
            text = f"offset {event.offset} was delivered with another key than its own"
            return (self.blame(text, message.published, seen),)
        if not self.state.is_over(event.offset) or self.state.may_repeat(event.offset):
            return ()
        text = f"offset {event.offset} went to {event.consumer!r}: a duplicate, as it is done, or was never published"
        return (self.blame(text, seen),)

    def _acked(self, seen: Seen, event: h.Acked, message: Message | None) -> Iterable[Violation]:
        if message is None:
            return self._ended_twice(seen, event.offset, "an ack counted") if event.counted else ()
        return self._ignored(seen, event, message) if event.counted is False else ()

    def _nacked(self, seen: Seen, event: h.Nacked, message: Message | None) -> Iterable[Violation]:
        return () if message is None or event.counted is not False else self._ignored(seen, event, message)

    def _ignored(self, seen: Seen, event: h.Acked | h.Nacked, message: Message) -> Iterable[Violation]:
        if message.revoked or not message.is_current(event.consumer, event.attempt) or not self.state.log_is_told:
            return ()
        if event.attempt is None and message.deliveries > 1:
            return ()  # it may name an earlier delivery
        verb = "acked" if isinstance(event, h.Acked) else "nacked"
        text = f"{event.consumer!r} {verb} its open delivery of offset {message.offset}, which did not count"
        return (self.blame(text, message.since, seen),)

    def _settled(self, seen: Seen, event: h.Settled, message: Message | None) -> Iterator[Violation]:
        if message is None:
            yield from self._ended_twice(seen, event.offset, "it is Settled")
        elif event.reason is h.SettledBy.NOBODY:
            yield self.blame(f"offset {event.offset} is done without any outcome", message.since, seen)
        elif event.reason is h.SettledBy.SUPERSEDED and not is_latest_only(self.state, message.lane.id):
            text = f"offset {event.offset} is superseded, which no policy allows"
            yield self.blame(text, message.published, seen)
        elif event.reason is h.SettledBy.LATE_ACK and not message.noted and message.logged:
            text = f"offset {message.offset} is done by a late ack, but no ack of an earlier delivery has come"
            yield self.blame(text, message.since, seen)

    def _given_up(
        self, seen: Seen, event: h.DeadLettered | h.Dropped | h.Skipped, message: Message | None
    ) -> Iterator[Violation]:
        how = type(event).__name__
        if message is None:
            yield from self._ended_twice(seen, event.offset, f"it is {how}")
        elif type(event) not in self.policies:
            yield self.blame(f"offset {event.offset} is {how}, which no policy allows", message.published, seen)

    def _ended_twice(self, seen: Seen, offset: int, how: str) -> Iterable[Violation]:
        if not self.state.is_over(offset) or self.state.may_repeat(offset):
            return ()
        return (self.blame(f"offset {offset} is done already, or was never published, and {how}", seen),)

    def _at_rest(self, seen: Seen, event: h.AtRest) -> Iterator[Violation]:  # noqa: ARG002  # one shape for all
        state = self.state
        if not state.log_is_told:
            return
        oldest: dict[LaneId, Message] = {}  # the others wait for it
        for message in sorted(state.waiting(), key=lambda each: each.offset):
            if not message.repeated:
                oldest.setdefault(message.lane.id, message)
        for message in oldest.values():
            lane = message.lane
            if not (lane.open or lane.doubt or is_held(message, state)) and takers(lane, state):
                text = f"offset {message.offset} will never be delivered again, and it has no outcome"
                yield self.blame(text, message.since, seen, offset=message.offset)


class SettledOnce(Check):
    """Of each message it is reported once that it is done: not before it is, and not later than the next quiet."""

    promise = Promise.SETTLED_ONCE
    claim = "tells_done"
    needs = (QUIET,)

    def __init__(self, state: State) -> None:
        super().__init__(state)
        self.untold: dict[int, Seen] = {}  # messages that are done, and not reported

    def handlers(self) -> Mapping[type[h.Event], Handler]:
        return {h.Done: self._done, h.Quiet: self._quiet, h.AtRest: self._quiet}

    def after(self, seen: Seen) -> None:
        if type(seen.event) is not h.Done:
            self.untold.update(dict.fromkeys(self.state.ended, seen))

    def _done(self, seen: Seen, event: h.Done, message: Message | None) -> Iterator[Violation]:
        offset = event.offset
        if self.untold.pop(offset, None) is not None:
            return
        if message is not None:
            yield self.blame(f"offset {offset} is reported done, and is outstanding", message.since, seen)
        elif self.state.is_over(offset):
            yield self.blame(f"offset {offset} is reported done, and was so before, or is not", seen)

    def _quiet(self, seen: Seen, event: h.Event) -> Iterator[Violation]:  # noqa: ARG002  # one shape for all
        untold, self.untold = self.untold, {}
        for offset in sorted(untold):
            yield self.blame(f"offset {offset} is done, which was not reported", untold[offset], seen)


class ReasonTravels(Check):
    """The dead letter of a message says what its last failure said that named a reason."""

    promise = Promise.REASON_TRAVELS
    needs = (DELIVERED,)

    def handlers(self) -> Mapping[type[h.Event], Handler]:
        return {h.DeadLettered: self._dead_lettered}

    def _dead_lettered(self, seen: Seen, event: h.DeadLettered, message: Message | None) -> Iterator[Violation]:
        if message is None or (message.named is None and not message.logged):
            return
        failure = None if message.named is None else message.named.event
        said = failure.reason if isinstance(failure, h.Nacked) else None
        if event.reason != said:
            text = f"the dead letter of offset {message.offset} says {event.reason!r}, and its failure {said!r}"
            yield self.blame(text, message.named or message.published, seen)


def is_latest_only(state: State, lane: LaneId) -> bool:
    """Return whether of a lane only the latest message counts."""
    claimed = state.claims.latest_only
    return claimed if isinstance(claimed, bool) else isinstance(lane, bytes) and claimed(lane)
