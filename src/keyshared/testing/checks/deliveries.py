"""The promises about who gets a message and when: one-holder, key-order, bounds, fence, attempts, not-early."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice

from keyshared.testing import history as h
from keyshared.testing.checks.check import DELIVERED, PUBLISHED, Check, Handler, need, sinces
from keyshared.testing.claims import Promise, Violation
from keyshared.testing.records import Message, Seen
from keyshared.testing.state import State

__all__ = ["Attempts", "Bounds", "Fence", "KeyOrder", "NotEarly", "OneHolder"]


class OneHolder(Check):
    """All open deliveries of a key, or of a unit of keys, are at one consumer; a message has one at most."""

    promise = Promise.ONE_HOLDER
    needs = (DELIVERED,)

    def handlers(self) -> Mapping[type[h.Event], Handler]:
        return {h.Delivered: self._delivered}

    def _delivered(self, seen: Seen, event: h.Delivered, message: Message | None) -> Iterable[Violation]:
        if message is not None and not message.lane.holders and self.claims.unit_of is None:
            return ()  # nothing of its key is open, as nearly always
        return self._held_already(seen, event, message)

    def _held_already(self, seen: Seen, event: h.Delivered, message: Message | None) -> Iterator[Violation]:
        offset, name = event.offset, event.consumer
        if message is not None and message.consumer is not None:
            text = f"offset {offset} went to {name!r} while a delivery of it was open at {message.consumer!r}"
            if message.consumer == name:
                text = f"offset {offset} went to {name!r} twice: the delivery before was still open"
            yield self.blame(text, message.since, seen)
            return
        lane, what = self.state.lane_of(message, event), "key"
        holders = {} if lane is None else lane.holders
        other = next((each for holder, held in holders.items() if holder != name for each in held.values()), None)
        if other is None:
            lane_id = self.state.lane_id(offset, event.key) if message is None else message.lane.id
            other, what = self.state.open_in_unit(lane_id, name), "unit"
        if other is not None:
            at = other.consumer
            text = f"offset {offset} went to {name!r} while offset {other.offset} of its {what} was open at {at!r}"
            yield self.blame(text, other.since, seen)


class KeyOrder(Check):
    """A message goes out only if every older outstanding message of its key is open at that moment."""

    promise = Promise.KEY_ORDER
    needs = (PUBLISHED, DELIVERED)

    def handlers(self) -> Mapping[type[h.Event], Handler]:
        return {h.Delivered: self._delivered}

    def _delivered(self, seen: Seen, event: h.Delivered, message: Message | None) -> Iterable[Violation]:
        lane = self.state.lane_of(message, event)
        if lane is None or not lane.listed or (message is None and self.state.is_over(event.offset)):
            return ()
        older = self.state.oldest_waiting(lane)
        if older is None or older.offset >= event.offset:
            return ()
        text = f"offset {event.offset} overtook offset {older.offset} of its key, which waits or is lost"
        return (self.blame(text, older.since, seen, offset=older.offset),)


class Bounds(Check):
    """The limits of a key, of a consumer, and of all that is open or outstanding.

    As many messages as a limit allows prove that one more is too many, so a proof has no more of them.
    """

    promise = Promise.BOUNDS
    needs = (need(DELIVERED.advice, h.Delivered, h.Published),)

    def handlers(self) -> Mapping[type[h.Event], Handler]:
        return {h.Delivered: self._delivered, h.Published: self._one_more, h.Redriven: self._one_more}

    def missing(self) -> str | None:
        claims = self.claims
        limits = (claims.per_key, claims.limit_of, claims.per_consumer, claims.open_at_once, claims.max_tracked)
        if not (any(limit is not None for limit in limits) or self.state.kinds & {h.Connected, h.LimitChanged}):
            return "claim a limit, or write the limits of consumers"
        return super().missing()

    def _delivered(self, seen: Seen, event: h.Delivered, message: Message | None) -> Iterable[Violation]:
        state, offset, name = self.state, event.offset, event.consumer
        lane = state.lane_of(message, event)
        found: list[Violation] = []
        again = message is not None and message.consumer is not None
        limit = None if lane is None else lane.most_open
        if lane is not None and limit is not None and lane.open - again >= limit:
            text = f"offset {offset} is open delivery {lane.open - again + 1} of its key, of which {limit} may be open"
            found.append(self.blame(text, *_several(lane.holders.values(), message, limit), seen))
        member = state.members.get(name)
        limit = self.claims.per_consumer if member is None else member.limit
        if limit is not None:
            at = state.open_at.get(name, {})
            others = len(at) - (again and offset in at)
            if others >= limit:
                text = f"offset {offset} is open delivery {others + 1} of {name!r}, which may have {limit}"
                limited = None if member is None else member.limited
                found.append(self.blame(text, limited, *_several([at], message, limit), seen))
        limit = self.claims.open_at_once
        if limit is not None and state.open - again >= limit:
            text = f"offset {offset} is open delivery {state.open - again + 1} of all, of which {limit} may be open"
            found.append(self.blame(text, *_several(state.open_at.values(), message, limit), seen))
        return found

    def _one_more(self, seen: Seen, event: h.Published | h.Redriven, message: Message | None) -> Iterable[Violation]:
        outstanding, most = self.state.messages, self.claims.max_tracked
        if most is None or message is not None or len(outstanding) < most:
            return ()
        if type(event) is h.Published and self.state.is_late(event.offset):  # settled by an earlier life, perhaps
            return ()
        text = f"offset {event.offset} is outstanding message {len(outstanding) + 1}; at most {most} may be"
        return (self.blame(text, *islice((each.published for each in outstanding.values()), most), seen),)


class Fence(Check):
    """Numbers of deliveries rise, and an answer that does not name the open delivery does not end it."""

    promise = Promise.FENCE
    needs = (DELIVERED,)

    def __init__(self, state: State) -> None:
        super().__init__(state)
        self.unnumbered = False

    def handlers(self) -> Mapping[type[h.Event], Handler]:
        return {
            h.Delivered: self._delivered,
            h.Acked: self._acked,
            h.Nacked: self._nacked,
            h.Expired: self._released,
            h.Released: self._released,
        }

    def missing(self) -> str | None:
        return super().missing() or ("number all deliveries" if self.unnumbered else None)

    def _delivered(self, seen: Seen, event: h.Delivered, message: Message | None) -> Iterable[Violation]:
        if event.attempt is None:
            self.unnumbered = True
            return ()
        if message is None:
            return ()
        before = message.had.get(event.consumer) if message.deliveries else message.attempt  # of one that came back
        if before is None or event.attempt > before:
            return ()
        text = f"delivery {event.attempt} of offset {event.offset} to {event.consumer!r} came after delivery {before}"
        return (self.blame(text, message.delivered or message.published, seen),)

    def _acked(self, seen: Seen, event: h.Acked, message: Message | None) -> Iterable[Violation]:
        if message is None or not event.counted or self._may_end(message, event):
            return ()
        if message.consumer is None and message.was_at(event.consumer, event.attempt):
            return ()  # a late ack of a message that waits
        return (self._blame_answer(seen, event, message, "and settled the message"),)

    def _nacked(self, seen: Seen, event: h.Nacked, message: Message | None) -> Iterable[Violation]:
        if not event.counted or (message is not None and self._may_end(message, event)):
            return ()
        if message is not None:
            return (self._blame_answer(seen, event, message, "and was taken"),)
        if not self.state.is_over(event.offset) or self.state.may_repeat(event.offset):
            return ()
        return (self.blame(f"a nack of offset {event.offset} was taken, which is done", seen),)

    def _released(self, seen: Seen, event: h.Expired | h.Released, message: Message | None) -> Iterable[Violation]:
        if message is None or message.consumer is None or self._may_end(message, event):
            return ()
        return (self._blame_answer(seen, event, message, "and ended it"),)

    def _may_end(self, message: Message, event: h.Acked | h.Nacked | h.Expired | h.Released) -> bool:
        return message.is_of(message.consumer or message.lapsed, event.consumer, event.attempt)

    def _blame_answer(
        self, seen: Seen, event: h.Acked | h.Nacked | h.Expired | h.Released, message: Message, outcome: str
    ) -> Violation:
        named = f"{type(event).__name__} names delivery {event.attempt} of offset {event.offset} to {event.consumer!r}"
        return self.blame(f"{named}, which is not open, {outcome}", message.delivered or message.published, seen)


class Attempts(Check):
    """A message that has failed so many times is not delivered again, and does not wait as if it were."""

    promise = Promise.ATTEMPTS
    claim = "max_attempts"
    needs = (DELIVERED,)

    def handlers(self) -> Mapping[type[h.Event], Handler]:
        return {h.Delivered: self._delivered, h.AtRest: self._at_rest}

    def _delivered(self, seen: Seen, event: h.Delivered, message: Message | None) -> Iterable[Violation]:
        if message is None or not self._is_spent(message):
            return ()
        text = f"offset {message.offset} has failed {message.failed} times, and went to {event.consumer!r} again"
        return (self.blame(text, message.delivered, message.since, seen),)

    def _at_rest(self, seen: Seen, event: h.AtRest) -> Iterator[Violation]:  # noqa: ARG002  # one shape for all
        for message in self.state.waiting():
            if message.held is None and self._is_spent(message):
                text = f"offset {message.offset} has failed {message.failed} times, and has no outcome"
                yield self.blame(text, message.delivered, message.since, seen)

    def _is_spent(self, message: Message) -> bool:
        most = self.claims.max_attempts
        return most is not None and message.failed >= most and not message.is_kept_back


class NotEarly(Check):
    """No consumer gets a message before the time that a producer or a consumer asked for."""

    promise = Promise.NOT_EARLY
    needs = (DELIVERED,)

    def __init__(self, state: State) -> None:
        super().__init__(state)
        self.untimed = False  # a time was asked for, and the history has none

    def handlers(self) -> Mapping[type[h.Event], Handler]:
        return {h.Delivered: self._delivered}

    def missing(self) -> str | None:
        return super().missing() or ("write at_ms" if self.untimed else None)

    def _delivered(self, seen: Seen, event: h.Delivered, message: Message | None) -> Iterable[Violation]:
        asked = None if message is None else message.asked
        if asked is None:
            return ()
        assert isinstance(asked.event, h.Published | h.Released)
        until_ms = asked.event.until_ms
        assert until_ms is not None
        if seen.now is None:
            self.untimed = True
        elif seen.now < until_ms - self.claims.tolerance_ms:
            text = f"offset {event.offset} went to {event.consumer!r} at {seen.now}, before {until_ms}"
            return (self.blame(text, asked, seen),)
        return ()


def _several(held: Iterable[Mapping[int, Message]], but: Message | None, most: int) -> list[Seen]:
    """Return what opened so many of the messages that consumers hold, leaving out one. O(most)."""
    others = (message for at_one in held for message in at_one.values() if message is not but)
    return sinces(islice(others, most))
