"""The promises about where keys belong: affinity and minimal-move."""

from collections.abc import Iterable, Iterator, Mapping

from keyshared.testing import history as h
from keyshared.testing.checks.check import DELIVERED, Check, Handler, need
from keyshared.testing.claims import Promise, Violation
from keyshared.testing.records import Member, Message, Place, Seen
from keyshared.testing.state import State

__all__ = ["Affinity", "MinimalMove"]


class Affinity(Check):
    """Deliveries of a key go to its owner, and to a consumer that is connected."""

    promise = Promise.AFFINITY
    needs = (DELIVERED, need("write `connected`, or `owned`", h.Connected, h.Owned))

    def handlers(self) -> Mapping[type[h.Event], Handler]:
        return {h.Delivered: self._delivered, h.Owned: self._owned}

    def missing(self) -> str | None:
        return super().missing() or _forgotten(self.state)

    def _delivered(self, seen: Seen, event: h.Delivered, message: Message | None) -> Iterable[Violation]:
        member = self.state.members.get(event.consumer)
        place = _place(self.state, event, message)
        is_there = member is not None and member.suspended is None
        if is_there and place is not None and place.owned is not None and place.owner == event.consumer:
            return ()  # as nearly always
        return self._elsewhere(seen, event, member, place)

    def _elsewhere(
        self, seen: Seen, event: h.Delivered, member: Member | None, place: Place | None
    ) -> Iterator[Violation]:
        state, name = self.state, event.consumer
        knows_members = h.Connected in state.kinds
        if member is None and knows_members:
            text = f"offset {event.offset} went to {name!r}, which is not connected"
            yield self.blame(text, state.changes.leavers.get(name), seen)
            return
        if member is not None and member.suspended is not None:
            yield self.blame(f"offset {event.offset} went to {name!r}, which is suspended", member.suspended, seen)
        if place is None:
            return
        if place.owned is not None:
            if place.owner != name:
                text = f"offset {event.offset} went to {name!r}, but its key belongs to {place.owner!r}"
                yield self.blame(text, place.owned, seen)
            return
        moved = place.last is not None and knows_members and place.consumer != name
        if place.last is not None and moved and not _changed_since(state, place.last):
            text = f"the key of offset {event.offset} went from {place.consumer!r} to {name!r} for no reason"
            yield self.blame(text, place.last, seen)

    def _owned(self, seen: Seen, event: h.Owned) -> Iterable[Violation]:
        place = None if self.state.changes.in_block else _moved(self.state, event)
        if place is None:
            return ()
        text = f"key {event.key!r} moved from {place.owner!r} to {event.consumer!r} for no reason"
        return (self.blame(text, place.owned, seen),)


class MinimalMove(Check):
    """A join moves keys only to the newcomer, a leave only those of the leaver."""

    promise = Promise.MINIMAL_MOVE
    needs = (
        need("write `connected` and `gone`", h.Connected, h.Gone),
        need("write `delivered`, or `owned`", h.Delivered, h.Owned),
    )

    def handlers(self) -> Mapping[type[h.Event], Handler]:
        return {h.Owned: self._owned, h.Delivered: self._delivered}

    def missing(self) -> str | None:
        return super().missing() or _forgotten(self.state)

    def _owned(self, seen: Seen, event: h.Owned) -> Iterable[Violation]:
        place = _moved(self.state, event) if self.state.changes.in_block else None
        if place is None:
            return ()
        old, new = place.owner, event.consumer
        text = f"key {event.key!r} moved from {old!r} to {new!r}, though neither has just left or joined"
        return (self.blame(text, place.owned, *self.state.changes.block.values(), seen),)

    def _delivered(self, seen: Seen, event: h.Delivered, message: Message | None) -> Iterable[Violation]:
        state, new = self.state, event.consumer
        place = _place(state, event, message)
        if place is None or place.owned is not None or place.last is None or place.consumer == new:
            return ()
        last, old = place.last, place.consumer
        if h.Connected not in state.kinds or new not in state.members:
            return ()
        if not _changed_since(state, last) or self._is_due(last, old, new):
            return ()
        text = f"the key of offset {event.offset} moved from {old!r} to {new!r}, though neither left or joined"
        return (self.blame(text, last, state.changes.last, seen),)

    def _is_due(self, last: Seen, old: str | None, new: str) -> bool:
        """Whether a join of the new owner, a leave of the old one, or of one that came and went, explains a move."""
        state = self.state
        before = state.members.get(old or "")
        stayed = before is not None and before.connected.position < last.position
        joined = state.members[new].connected.position > last.position
        by_hand = state.changes.by_hand is not None and state.changes.by_hand.position > last.position
        return joined or not stayed or by_hand or state.changes.latest_join_of_a_leaver > last.position


def _place(state: State, event: h.Delivered, message: Message | None) -> Place | None:
    return state.place_of(state.lane_id(event.offset, event.key)) if message is None else message.lane.place


def _changed_since(state: State, seen: Seen) -> bool:
    return state.changes.last is not None and state.changes.last.position > seen.position


def _moved(state: State, event: h.Owned) -> Place | None:
    """Return where a key was, if it has another owner now and the latest changes do not explain it."""
    place = state.places.get(event.key)
    if place is None or place.owned is None:
        return None
    position, old, new = place.owned.position, place.owner, event.consumer
    if old is None or new is None or old == new:
        return None
    since = [change for change in state.changes.block.values() if change.position > position]
    return None if any(_moves(change.event, old, new) for change in since) else place


def _moves(change: h.Event, old: str | None, new: str | None) -> bool:
    """Whether a change of membership may move a key from one consumer to another."""
    match change:
        case h.Connected():
            return change.consumer == new
        case h.Gone():
            return change.consumer == old
        case _:
            return True


def _forgotten(state: State) -> str | None:
    count = state.places.forgotten
    return f"remember more keys: {count} idle ones were forgotten" if count else None
