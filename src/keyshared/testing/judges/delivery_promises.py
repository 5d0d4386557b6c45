"""The promises about who gets a message and when: one-holder, key-order, bounds, affinity, minimal-move, fence."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
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
from keyshared.testing.judges.entries import Lane, Member, Message, Place, Seen, Standing, standing
from keyshared.testing.judges.judge import Judge, Judgement, sinces
from keyshared.testing.judges.waiting_limits import WaitingLimits

__all__ = ["Affinity", "Bounds", "Fence", "KeyOrder", "MinimalMove", "OneHolder"]

_SPILLING: Final = frozenset({HoldReason.SPILLED, HoldReason.LOADING})
OR_IS_LOST: Final = " or is lost"
NO_DELIVERY = "the history tells of no Delivered"
NO_PUBLISHED = "the history tells of no Published, so it does not say what was outstanding"


class OneHolder(Judge):
    """All open deliveries of a key, or of a unit of keys, are at one consumer, and of a message one is open at most."""

    promise = Promise.ONE_HOLDER

    def judgements(self) -> Mapping[type[Happening], Judgement]:
        return {Delivered: self._delivered}

    def missing(self) -> str | None:
        return self.books.why_unclear() if Delivered in self.books.kinds else NO_DELIVERY

    def _delivered(self, seen: Seen, happening: Delivered, message: Message | None) -> Iterable[Violation]:
        if message is not None and not message.lane.holders and self.guarantees.unit_of is None:
            return ()  # nothing of its key is open, as nearly always
        return self._held_already(seen, happening, message)

    def _held_already(self, seen: Seen, happening: Delivered, message: Message | None) -> Iterator[Violation]:
        offset, name = happening.offset, happening.consumer
        if message is not None and message.is_open:
            holder = message.consumer
            text = f"offset {offset} went to {name!r} while a delivery of it was open at {holder!r}"
            if holder == name:
                text = f"offset {offset} went to {name!r} twice: the delivery before was still open"
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
        return self.books.why_unclear() if Delivered in self.books.kinds else NO_DELIVERY

    def _delivered(self, seen: Seen, happening: Delivered, message: Message | None) -> Iterable[Violation]:
        books, offset = self.books, happening.offset
        lane = self._early_lane(happening) if message is None else message.lane
        if lane is None or not (lane.listed or lane.unsure) or not books.log_is_told:
            return ()
        older = books.oldest_waiting(lane)
        if older is None or older.offset >= offset:
            return self._perhaps_overtaken(lane, seen, happening, message) if lane.unsure else ()
        text = f"offset {offset} overtook offset {older.offset} of its key, which waits{OR_IS_LOST}"
        return (self.blame(text, older.since, seen, offset=older.offset),)

    def _perhaps_overtaken(
        self, lane: Lane, seen: Seen, happening: Delivered, message: Message | None
    ) -> Iterable[Violation]:
        """A nack that was only seen may not have counted: but then too much is open, or at two consumers."""
        claimed, again = self.guarantees.promises, message is not None and message.is_open
        at_limit = Promise.BOUNDS in claimed and lane.most_open is not None and lane.open - again + 1 >= lane.most_open
        for older in self.books.perhaps_nacked(lane):
            elsewhere = Promise.ONE_HOLDER in claimed and older.consumer != happening.consumer
            if older.offset < happening.offset and (elsewhere or at_limit):
                waits = f"which waits, or is still open at {older.consumer!r}"
                text = f"offset {happening.offset} overtook offset {older.offset} of its key, {waits}"
                return (self.blame(text, older.since, seen, offset=older.offset),)
        return ()

    def _early_lane(self, happening: Delivered) -> Lane | None:
        """Where something belongs that is not published yet, as far as is told."""
        books, offset = self.books, happening.offset
        return None if books.is_over(offset) else books.lanes.get(books.lane_id(offset, happening.key))


class Bounds(Judge):
    """The limits of a key, of a consumer, and of what is in memory, outstanding or waiting.

    As many messages as a limit allows prove that one more is too many, so a proof has no more of them: what breaks a
    limit of 1 a thousand times costs no look at a thousand messages each time.
    """

    promise = Promise.BOUNDS

    def __init__(self, books: Books) -> None:
        super().__init__(books)
        self.waiting = WaitingLimits(books)

    @property
    def looks(self) -> bool:
        return self.waiting.is_kept

    def after(self, seen: Seen) -> None:  # noqa: ARG002  # one shape for all
        self.waiting.follow()

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
        functions = (numbers.limit_of, numbers.look_ahead)
        waiting = (numbers.waiting_per_key, numbers.waiting_per_consumer)
        if (
            all(number is None for number in (*general, *functions, *waiting))
            and numbers.spills
            and not self.books.kinds & {Connected, LimitChanged}
        ):
            return "neither the guarantees nor the history say any limit"
        return None if self.books.kinds & {Delivered, Published} else NO_DELIVERY

    def _delivered(self, seen: Seen, happening: Delivered, message: Message | None) -> Iterable[Violation]:
        books, numbers = self.books, self.guarantees
        lane = books.lane_of(message, happening.offset, happening.key)
        again = _is_open(message)
        found: list[Violation] = []
        if lane is not None and lane.most_open is not None and lane.open - again >= lane.most_open:
            found.append(self._of_key(lane, lane.most_open, message, seen))
        member = books.members.get(happening.consumer)
        limit = numbers.per_consumer if member is None else member.limit
        if limit is not None and len(books.open_at.get(happening.consumer, ())) >= limit:
            found += self._of_consumer(limit, member, message, seen)
        if numbers.open_at_once is not None and books.open - again >= numbers.open_at_once:
            found.append(self._of_all(numbers.open_at_once, message, seen))
        if numbers.window is not None and message is not None and message.held is not None and message.is_spilled:
            found += self._window(seen, numbers.window, message)
        return found

    def _of_consumer(
        self, limit: int, member: Member | None, message: Message | None, seen: Seen
    ) -> Iterator[Violation]:
        happening = seen.happening
        assert isinstance(happening, Delivered)
        at = self.books.open_at.get(happening.consumer, {})
        others = len(at) - (message is not None and at.get(message.offset) is message)
        if others >= limit:
            number, name = others + 1, happening.consumer
            text = f"offset {happening.offset} is open delivery {number} of {name!r}, which may have {limit}"
            proof = _several([at], message, limit)
            yield self.blame(text, None if member is None else member.limited, *proof, seen)

    def _of_all(self, limit: int, message: Message | None, seen: Seen) -> Violation:
        books = self.books
        offset = getattr(seen.happening, "offset", None)
        number = books.open - _is_open(message) + 1
        text = f"offset {offset} is open delivery {number} of all, of which {limit} may be open"
        return self.blame(text, *_several(books.open_at.values(), message, limit), seen)

    def _of_key(self, lane: Lane, limit: int, message: Message | None, seen: Seen) -> Violation:
        offset = getattr(seen.happening, "offset", None)
        number = lane.open - _is_open(message) + 1
        text = f"offset {offset} is open delivery {number} of its key, of which {limit} may be open"
        return self.blame(text, *_several(lane.holders.values(), message, limit), seen)

    def _published(self, seen: Seen, happening: Published, message: Message | None) -> Iterable[Violation]:
        early = self.books.early
        if message is not None or (early.told and happening.offset in early):
            return ()
        found = self._one_more(seen, happening)
        if self.waiting.are_claimed:
            found += [self.blame(text, *sinces(waiting), seen) for text, waiting in self.waiting.exceeded(happening)]
        return found

    def _redriven(self, seen: Seen, happening: Redriven, message: Message | None) -> Iterable[Violation]:
        return self._one_more(seen, happening) if message is None or message.doubtful else ()

    def _one_more(self, seen: Seen, happening: Published | Redriven) -> list[Violation]:
        books, numbers = self.books, self.guarantees
        found: list[Violation] = []
        if numbers.max_tracked is not None and len(books.messages) - books.doubtful >= numbers.max_tracked:
            number, most = len(books.messages) - books.doubtful + 1, numbers.max_tracked
            text = f"offset {happening.offset} is outstanding message {number}; at most {most} may be"
            proof = islice((message.published for message in books.tracked()), most)
            found.append(self.blame(text, *proof, seen))
        if numbers.window is not None:
            found += self._window(seen, numbers.window)
        return found

    def _unspilled(self, seen: Seen, happening: Held | Freed, message: Message | None) -> Iterator[Violation]:
        spills = isinstance(happening, Held) and happening.reason is HoldReason.SPILLED
        window = self.guarantees.window
        if message is not None and message.is_spilled and not spills and window is not None:
            yield from self._window(seen, window, message)
        if isinstance(happening, Held) and happening.reason in _SPILLING and not self.guarantees.spills:
            yield self.blame(f"offset {happening.offset} is {happening.reason}, though nothing spills", seen)

    def _window(self, seen: Seen, most: int, loading: Message | None = None) -> Iterable[Violation]:
        """One more is in memory than was. Where that is the lowest outstanding one, it may have a slot of its own."""
        books = self.books
        if len(books.messages) - books.spilled < most:
            return ()  # which is soon seen
        loaded, lowest = books.in_memory(), books.lowest()
        of_its_own = loading is not None and lowest is not None and loading.offset <= lowest.offset
        if loaded < most + of_its_own:
            return ()
        text = f"{loaded + 1} messages are in memory; the window is {most}"
        known = (message.published for message in books.tracked() if not message.is_spilled)
        return (self.blame(text, *islice(known, most + 1), seen),)


def _is_open(message: Message | None) -> bool:
    return message is not None and message.is_open


def _several(held: Iterable[Mapping[int, Message]], but: Message | None, most: int) -> list[Seen]:
    """What opened so many of what consumers hold, leaving out a message. O(most)."""
    others = (message for at_one in held for message in at_one.values() if message is not but)
    return sinces(islice(others, most))


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

    def _delivered(self, seen: Seen, happening: Delivered, message: Message | None) -> Iterable[Violation]:
        books, name = self.books, happening.consumer
        member = books.members.get(name)
        if member is not None and member.suspended is None and message is not None:
            place = message.lane.place
            if place is not None and place.owned is not None and place.owner == name:
                return ()  # it is there and owns the key, as nearly always
        return self._elsewhere(seen, happening, member, _place(books, happening, message))

    def _elsewhere(
        self, seen: Seen, happening: Delivered, member: Member | None, place: Place | None
    ) -> Iterator[Violation]:
        books, name = self.books, happening.consumer
        knows_members = Connected in books.kinds
        if member is None and knows_members:
            text = f"offset {happening.offset} went to {name!r}, which is not connected"
            yield self.blame(text, books.changes.leavers.get(name), seen)
            return
        if member is not None and member.suspended is not None:
            text = f"offset {happening.offset} went to {name!r}, which is suspended"
            yield self.blame(text, member.suspended, seen)
        if place is None:
            return
        owned, last = place.owned, place.last
        if owned is not None:
            if place.owner != name:
                text = f"offset {happening.offset} went to {name!r}, but its key belongs to {place.owner!r}"
                yield self.blame(text, owned, seen)
        elif last is not None and knows_members and place.consumer != name and not _changed_since(books, last):
            text = f"the key of offset {happening.offset} went from {place.consumer!r} to {name!r} for no reason"
            yield self.blame(text, last, seen)

    def _owned(self, seen: Seen, happening: Owned) -> Iterable[Violation]:
        place = None if self.books.changes.in_block else _moved(self.books, happening)
        if place is None:
            return ()
        text = f"key {happening.key!r} moved from {place.owner!r} to {happening.consumer!r} for no reason"
        return (self.blame(text, place.owned, seen),)


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

    def _owned(self, seen: Seen, happening: Owned) -> Iterable[Violation]:
        place = _moved(self.books, happening) if self.books.changes.in_block else None
        if place is None:
            return ()
        old, new = place.owner, happening.consumer
        text = f"key {happening.key!r} moved from {old!r} to {new!r}, though neither has just left or joined"
        return (self.blame(text, place.owned, *self.books.changes.block.values(), seen),)

    def _delivered(self, seen: Seen, happening: Delivered, message: Message | None) -> Iterable[Violation]:
        books, new = self.books, happening.consumer
        place = _place(books, happening, message)
        if place is None or place.owned is not None or place.last is None or place.consumer == new:
            return ()
        last, old = place.last, place.consumer
        if Connected not in books.kinds or new not in books.members:
            return ()
        if not _changed_since(books, last) or self._is_due(last, old, new):
            return ()
        text = f"the key of offset {happening.offset} moved from {old!r} to {new!r}, though neither left or joined"
        return (self.blame(text, last, books.changes.last, seen),)

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
        return "deliveries without an attempt are told apart by their consumers only" if self.unnumbered else None

    def _delivered(self, seen: Seen, happening: Delivered, message: Message | None) -> Iterable[Violation]:
        if happening.attempt is None:
            self.unnumbered = True
            return ()
        if message is None or message.attempt is None or happening.attempt > message.attempt:
            return ()
        numbers = f"attempt {happening.attempt} came after attempt {message.attempt}"
        text = f"the deliveries of offset {happening.offset} are not numbered upwards: {numbers}"
        return (self.blame(text, message.delivered or message.published, seen),)

    def _acked(self, seen: Seen, happening: Acked, message: Message | None) -> Iterable[Violation]:
        if message is None or not happening.counted:
            return ()
        found = standing(message, happening.consumer, happening.attempt)
        if found is Standing.STALE or found is Standing.FORGED:
            return (self._blame_answer(seen, happening, message, ", and settled the message"),)
        return ()

    def _nacked(self, seen: Seen, happening: Nacked, message: Message | None) -> Iterable[Violation]:
        return self._ended(seen, happening, message, ", and was taken") if happening.counted else ()

    def _released(self, seen: Seen, happening: Expired | Released, message: Message | None) -> Iterable[Violation]:
        if message is not None and message.unsaid and message.unsaid_of(happening.consumer, happening.attempt):
            return ()  # it says how a delivery ended that had no such row
        if message is not None and message.may_be_older_than(happening.attempt):
            return ()  # likewise, of one from before the history
        return self._ended(
            seen, happening, message, ", and ended it" if message is not None and message.is_open else ""
        )

    def _ended(
        self, seen: Seen, happening: Nacked | Expired | Released, message: Message | None, outcome: str
    ) -> Iterable[Violation]:
        if message is None and not self.books.is_over(happening.offset):
            return ()  # its delivery may be older than the history
        found = standing(message, happening.consumer, happening.attempt)
        if found is Standing.CURRENT or found is Standing.UNSURE:
            return ()
        return (self._blame_answer(seen, happening, message, outcome),)

    def _blame_answer(
        self, seen: Seen, happening: Acked | Nacked | Expired | Released, message: Message | None, outcome: str
    ) -> Violation:
        kind, attempt = type(happening).__name__, happening.attempt
        named = f"{kind} names attempt {attempt} of offset {happening.offset} at {happening.consumer!r}"
        now = None if message is None else (message.delivered or message.published)
        return self.blame(f"{named}, which is not open{outcome}", now, seen)


def _place(books: Books, happening: Delivered, message: Message | None) -> Place | None:
    if message is not None:
        return message.lane.place
    return books.place_of(books.lane_id(happening.offset, happening.key))


def _changed_since(books: Books, seen: Seen) -> bool:
    return books.changes.last is not None and books.changes.last.position > seen.position


def _moved(books: Books, happening: Owned) -> Place | None:
    """Where a key was until now, if it has another owner now and the latest changes do not explain it."""
    place = books.places.get(happening.key)
    if place is None or place.owned is None:
        return None
    position, old, new = place.owned.position, place.owner, happening.consumer
    if old is None or new is None or old == new:
        return None
    since = [change for change in books.changes.block.values() if change.position > position]
    return None if any(_moves(change.happening, old, new) for change in since) else place


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
