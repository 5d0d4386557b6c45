"""The promises about who gets a message and when: one-holder, key-order, bounds, affinity, minimal-move, fence."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from keyshared.testing.guarantees import Promise, Violation
from keyshared.testing.history import (
    Acked,
    Connected,
    Delivered,
    Expired,
    Freed,
    Gone,
    Happening,
    Held,
    HoldReason,
    LimitChanged,
    Nacked,
    Owned,
    Published,
    Redriven,
    Released,
)
from keyshared.testing.judges.books import Books
from keyshared.testing.judges.entries import Lane, Message, Place, Seen, Standing, standing
from keyshared.testing.judges.judge import Judge, Judgement, sinces
from keyshared.testing.judges.waiting_limits import WaitingLimits

__all__ = ["Affinity", "Bounds", "Fence", "KeyOrder", "MinimalMove", "OneHolder"]

_SPILLING: Final = frozenset({HoldReason.SPILLED, HoldReason.LOADING})
NO_DELIVERY = "the history tells of no Delivered"
NO_PUBLISHED = "the history tells of no Published, so it does not say what was outstanding"


class OneHolder(Judge):
    """All open deliveries of a key, or of a unit of keys, are at one consumer."""

    promise = Promise.ONE_HOLDER

    def judgements(self) -> Mapping[type[Happening], Judgement]:
        return {Delivered: self._delivered}

    def missing(self) -> str | None:
        return None if Delivered in self.books.kinds else NO_DELIVERY

    def _delivered(self, seen: Seen, happening: Delivered) -> Iterator[Violation]:
        offset, name = happening.offset, happening.consumer
        message = self.books.messages.get(offset)
        if message is not None and message.is_open:
            text = f"offset {offset} went to {name!r} while a delivery of it was open at {message.consumer!r}"
            yield self.blame(text, message.since, seen)
            return
        lane_id = message.lane.id if message else self.books.lane_id(offset, happening.key)
        lane, what = self.books.lanes.get(lane_id), "key"
        holders = {} if lane is None else lane.holders
        other = next((each for holder, held in holders.items() if holder != name for each in held.values()), None)
        if other is None:
            other, what = self.books.units.open_besides(lane_id, name), "unit"
        if other is not None:
            at = other.consumer
            text = f"offset {offset} went to {name!r} while offset {other.offset} of its {what} was open at {at!r}"
            yield self.blame(text, other.since, seen)


class KeyOrder(Judge):
    """A message goes out only if every older outstanding message of its key is open at that moment."""

    promise = Promise.KEY_ORDER

    def judgements(self) -> Mapping[type[Happening], Judgement]:
        return {Delivered: self._delivered}

    def missing(self) -> str | None:
        if Published not in self.books.kinds:
            return NO_PUBLISHED
        return None if Delivered in self.books.kinds else NO_DELIVERY

    def _delivered(self, seen: Seen, happening: Delivered) -> Iterator[Violation]:
        books, offset = self.books, happening.offset
        message = books.messages.get(offset)
        lane = self._early_lane(happening) if message is None else message.lane
        if lane is None or not lane.listed or not books.log_is_told:
            return
        older = books.oldest_waiting(lane)
        if older is not None and older.offset < offset:
            text = f"offset {offset} overtook offset {older.offset} of its key, which waits"
            yield self.blame(text, older.since, seen)

    def _early_lane(self, happening: Delivered) -> Lane | None:
        """Where something belongs that is not published yet, as far as is told."""
        books, offset = self.books, happening.offset
        return None if books.is_over(offset) else books.lanes.get(books.lane_id(offset, happening.key))


class Bounds(Judge):
    """The limits of a key, of a consumer, and of what is in memory, outstanding or waiting."""

    promise = Promise.BOUNDS

    def __init__(self, books: Books) -> None:
        super().__init__(books)
        self.waiting = WaitingLimits(books)

    @property
    def looks(self) -> bool:
        return self.waiting.is_kept

    def after(self, seen: Seen) -> Iterable[Violation]:  # noqa: ARG002  # one shape for all
        self.waiting.follow()
        return ()

    def entries(self) -> int:
        return self.waiting.entries()

    def judgements(self) -> Mapping[type[Happening], Judgement]:
        return {
            Delivered: self._delivered,
            Published: self._published,
            Redriven: self._redriven,
            Held: self._unspilled,
            Freed: self._unspilled,
        }

    def missing(self) -> str | None:
        numbers = self.guarantees
        general = (numbers.per_key, numbers.per_consumer, numbers.open_at_once, numbers.window, numbers.max_tracked)
        waiting = (numbers.waiting_per_key, numbers.waiting_per_consumer, numbers.look_ahead)
        if (
            all(number is None for number in (*general, *waiting))
            and numbers.spills
            and not self.books.kinds & {Connected, LimitChanged}
        ):
            return "neither the guarantees nor the history say any limit"
        return None if self.books.kinds & {Delivered, Published} else NO_DELIVERY

    def _delivered(self, seen: Seen, happening: Delivered) -> Iterator[Violation]:
        books, name = self.books, happening.consumer
        message = books.messages.get(happening.offset)
        lane = message.lane if message else books.lanes.get(books.lane_id(happening.offset, happening.key))
        again = message is not None and message.is_open
        if lane is not None:
            yield from self._of_key(lane, message, seen)
        member = books.members.get(name)
        limit = self.guarantees.per_consumer if member is None else books.limit_of(member)
        at_consumer = books.open_at.get(name, {})
        already = len(at_consumer) - (again and happening.offset in at_consumer)
        if limit is not None and already >= limit:
            text = f"offset {happening.offset} is open delivery {already + 1} of {name!r}, which may have {limit}"
            others = [other for other in at_consumer.values() if other is not message]
            yield self.blame(text, None if member is None else member.limited, *sinces(others), seen)
        yield from self._of_all(message, seen)
        if message is not None and message.is_spilled:
            yield from self._window(seen, message)

    def _of_all(self, message: Message | None, seen: Seen) -> Iterator[Violation]:
        limit = self.guarantees.open_at_once
        already = self.books.open - (message is not None and message.is_open)
        if limit is not None and already >= limit:
            held = [each for at_one in self.books.open_at.values() for each in at_one.values() if each is not message]
            offset = getattr(seen.happening, "offset", None)
            text = f"offset {offset} is open delivery {already + 1} of all, of which {limit} may be open"
            yield self.blame(text, *sinces(held), seen)

    def _of_key(self, lane: Lane, message: Message | None, seen: Seen) -> Iterator[Violation]:
        limit = self.guarantees.per_key
        already = lane.open - (message is not None and message.is_open)
        if limit is None or already < limit:
            return
        others = [each for held in lane.holders.values() for each in held.values() if each is not message]
        offset = getattr(seen.happening, "offset", None)
        text = f"offset {offset} is open delivery {already + 1} of its key, of which {limit} may be open"
        yield self.blame(text, *sinces(others), seen)

    def _published(self, seen: Seen, happening: Published) -> Iterator[Violation]:
        books = self.books
        if happening.offset not in books.messages and not (books.early.told and happening.offset in books.early):
            yield from self._one_more(seen, happening)
            for text, waiting in self.waiting.exceeded(happening):
                yield self.blame(text, *sinces(waiting), seen)

    def _redriven(self, seen: Seen, happening: Redriven) -> Iterator[Violation]:
        message = self.books.messages.get(happening.offset)
        if message is None or message.doubtful:
            yield from self._one_more(seen, happening)

    def _one_more(self, seen: Seen, happening: Published | Redriven) -> Iterator[Violation]:
        books, most = self.books, self.guarantees.max_tracked
        if most is not None and len(books.messages) - books.doubtful >= most:
            tracked = books.tracked()
            text = f"offset {happening.offset} is outstanding message {len(tracked) + 1}; at most {most} may be"
            yield self.blame(text, *(message.published for message in tracked), seen)
        yield from self._window(seen)

    def _unspilled(self, seen: Seen, happening: Held | Freed) -> Iterator[Violation]:
        message = self.books.messages.get(happening.offset)
        spills = isinstance(happening, Held) and happening.reason is HoldReason.SPILLED
        if message is not None and message.is_spilled and not spills:
            yield from self._window(seen, message)
        if isinstance(happening, Held) and happening.reason in _SPILLING and not self.guarantees.spills:
            yield self.blame(f"offset {happening.offset} is {happening.reason}, though nothing spills", seen)

    def _window(self, seen: Seen, loading: Message | None = None) -> Iterator[Violation]:
        """One more is in memory than was. Where that is the lowest outstanding one, it may have a slot of its own."""
        books, most = self.books, self.guarantees.window
        if most is None or len(books.messages) - books.spilled < most:
            return
        loaded = books.in_memory()
        lowest = books.lowest()
        of_its_own = loading is not None and lowest is not None and loading.offset <= lowest.offset
        if len(loaded) >= most + of_its_own:
            text = f"{len(loaded) + 1} messages are in memory; the window is {most}"
            yield self.blame(text, *(message.published for message in loaded), seen)


class Affinity(Judge):
    """Deliveries of a key go to its owner, and to a consumer that is there."""

    promise = Promise.AFFINITY

    def judgements(self) -> Mapping[type[Happening], Judgement]:
        return {Delivered: self._delivered, Owned: self._owned}

    def missing(self) -> str | None:
        kinds = self.books.kinds
        if Delivered not in kinds:
            return NO_DELIVERY
        if not kinds & {Connected, Owned}:
            return "the history tells neither who is Connected nor who has Owned a key"
        return _forgotten(self.books)

    def _delivered(self, seen: Seen, happening: Delivered) -> Iterator[Violation]:
        books, name = self.books, happening.consumer
        knows_members = Connected in books.kinds
        member = books.members.get(name)
        if member is None and knows_members:
            text = f"offset {happening.offset} went to {name!r}, which is not connected"
            yield self.blame(text, books.changes.leavers.get(name), seen)
            return
        if member is not None and member.suspended is not None:
            text = f"offset {happening.offset} went to {name!r}, which is suspended"
            yield self.blame(text, member.suspended, seen)
        place = _place(books, happening)
        if place is None:
            return
        owned, last = place.owned, place.last
        if owned is not None:
            owner = _consumer(owned)
            if owner != name:
                text = f"offset {happening.offset} went to {name!r}, but its key belongs to {owner!r}"
                yield self.blame(text, owned, seen)
        elif last is not None and knows_members and _consumer(last) != name and not _changed_since(books, last):
            text = f"the key of offset {happening.offset} went from {_consumer(last)!r} to {name!r} for no reason"
            yield self.blame(text, last, seen)

    def _owned(self, seen: Seen, happening: Owned) -> Iterator[Violation]:
        owned = _moved(self.books, happening)
        if owned is not None and not self.books.changes.in_block:
            text = f"key {happening.key!r} moved from {_consumer(owned)!r} to {happening.consumer!r} for no reason"
            yield self.blame(text, owned, seen)


class MinimalMove(Judge):
    """A join moves keys only to the newcomer, a leave only those of the leaver."""

    promise = Promise.MINIMAL_MOVE

    def judgements(self) -> Mapping[type[Happening], Judgement]:
        return {Owned: self._owned, Delivered: self._delivered}

    def missing(self) -> str | None:
        kinds = self.books.kinds
        if Connected not in kinds and Gone not in kinds:
            return "nobody is Connected or Gone in the history"
        if Delivered not in kinds and Owned not in kinds:
            return "the history tells of no Delivered and no Owned"
        return _forgotten(self.books)

    def _owned(self, seen: Seen, happening: Owned) -> Iterator[Violation]:
        owned = _moved(self.books, happening)
        if owned is not None and self.books.changes.in_block:
            old, new = _consumer(owned), happening.consumer
            text = f"key {happening.key!r} moved from {old!r} to {new!r}, though neither has just left or joined"
            yield self.blame(text, owned, *self.books.changes.block.values(), seen)

    def _delivered(self, seen: Seen, happening: Delivered) -> Iterator[Violation]:
        books, new = self.books, happening.consumer
        place = _place(books, happening)
        if place is None or place.owned is not None or place.last is None or Connected not in books.kinds:
            return
        last = place.last
        old = _consumer(last)
        if old == new or new not in books.members or not _changed_since(books, last) or self._is_due(last, old, new):
            return
        text = f"the key of offset {happening.offset} moved from {old!r} to {new!r}, though neither left or joined"
        yield self.blame(text, last, books.changes.last, seen)

    def _is_due(self, last: Seen, old: str | None, new: str) -> bool:
        """Whether a join of the new owner, a leave of the old one, or of one that came and went, explains a move."""
        books = self.books
        before = books.members.get(old or "")
        stayed = before is not None and before.connected.position < last.position
        joined = books.members[new].connected.position > last.position
        by_hand = books.changes.by_hand is not None and books.changes.by_hand.position > last.position
        return joined or not stayed or by_hand or books.changes.latest_join_of_a_leaver > last.position


class Fence(Judge):
    """Attempts of a message rise, and an answer that does not name the open delivery does not end it."""

    promise = Promise.FENCE

    def __init__(self, books: Books) -> None:
        super().__init__(books)
        self.unnumbered = False

    def judgements(self) -> Mapping[type[Happening], Judgement]:
        return {
            Delivered: self._delivered,
            Acked: self._acked,
            Nacked: self._nacked,
            Expired: self._released,
            Released: self._released,
        }

    def missing(self) -> str | None:
        if Delivered not in self.books.kinds:
            return NO_DELIVERY
        return "deliveries without an attempt cannot be told apart" if self.unnumbered else None

    def _delivered(self, seen: Seen, happening: Delivered) -> Iterator[Violation]:
        if happening.attempt is None:
            self.unnumbered = True
            return
        message = self.books.messages.get(happening.offset)
        if message is not None and message.attempt is not None and happening.attempt <= message.attempt:
            text = f"attempt {happening.attempt} of offset {happening.offset} came after attempt {message.attempt}"
            yield self.blame(text, message.delivered or message.published, seen)

    def _acked(self, seen: Seen, happening: Acked) -> Iterator[Violation]:
        if not happening.counted:
            return
        message = self.books.messages.get(happening.offset)
        found = standing(message, happening.consumer, happening.attempt)
        if message is not None and found in {Standing.STALE, Standing.FORGED}:
            yield self._blame_answer(seen, happening, message, "settled the message")

    def _nacked(self, seen: Seen, happening: Nacked) -> Iterator[Violation]:
        if happening.counted:
            yield from self._ended(seen, happening, "was taken")

    def _released(self, seen: Seen, happening: Expired | Released) -> Iterator[Violation]:
        yield from self._ended(seen, happening, "ended it")

    def _ended(self, seen: Seen, happening: Nacked | Expired | Released, outcome: str) -> Iterator[Violation]:
        message = self.books.messages.get(happening.offset)
        if message is None and not self.books.is_over(happening.offset):
            return  # its delivery may be older than the history
        if standing(message, happening.consumer, happening.attempt) not in {Standing.CURRENT, Standing.UNSURE}:
            yield self._blame_answer(seen, happening, message, outcome)

    def _blame_answer(
        self, seen: Seen, happening: Acked | Nacked | Expired | Released, message: Message | None, outcome: str
    ) -> Violation:
        kind, attempt = type(happening).__name__, happening.attempt
        named = f"{kind} names attempt {attempt} of offset {happening.offset} at {happening.consumer!r}"
        now = None if message is None else (message.delivered or message.published)
        return self.blame(f"{named}, which is not open, and {outcome}", now, seen)


def _place(books: Books, happening: Delivered) -> Place | None:
    message = books.messages.get(happening.offset)
    return books.place_of(message.lane.id if message else books.lane_id(happening.offset, happening.key))


def _consumer(seen: Seen) -> str | None:
    happening = seen.happening
    assert isinstance(happening, Delivered | Owned)
    return happening.consumer


def _changed_since(books: Books, seen: Seen) -> bool:
    return books.changes.last is not None and books.changes.last.position > seen.position


def _moved(books: Books, happening: Owned) -> Seen | None:
    """What said the former owner of a key, if it has another one now and the latest changes do not explain it."""
    place = books.places.get(happening.key)
    owned = None if place is None else place.owned
    if owned is None:
        return None
    old, new = _consumer(owned), happening.consumer
    if old is None or new is None or old == new:
        return None
    since = [change for change in books.changes.block.values() if change.position > owned.position]
    return None if any(_moves(change.happening, old, new) for change in since) else owned


def _moves(change: Happening, old: str | None, new: str | None) -> bool:
    """Whether a change of membership may move a key from one consumer to another."""
    match change:
        case Connected():
            return change.consumer == new
        case Gone():
            return change.consumer == old
        case _:
            return True


def _forgotten(books: Books) -> str | None:
    count = books.places.forgotten
    return (
        None if not count else f"{count} idle keys were forgotten, and not judged where they went next; remember more"
    )
