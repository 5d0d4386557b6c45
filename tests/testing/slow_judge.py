"""All promises that one history can show, judged from docs/history.md and docs/contract.md alone.

Slow and obvious: it shares no code with the checker but the values of a history and what is claimed. It looks at
everything again in each row, and forgets nothing.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from tests.testing.slow_sessions import SlowSessions
from tests.testing.slow_turns import SlowTurns

from keyshared.testing.claims import Claims, Promise
from keyshared.testing.history import (
    Acked,
    AtRest,
    Committed,
    Connected,
    DeadLettered,
    Delivered,
    Done,
    Dropped,
    Event,
    Expired,
    Freed,
    Gone,
    Held,
    HoldReason,
    LimitChanged,
    Nacked,
    Owned,
    PlacementChanged,
    Published,
    Quiet,
    Redriven,
    Released,
    Resumed,
    Rewound,
    Settled,
    SettledBy,
    Skipped,
    Suspended,
    Unclear,
)

__all__ = ["SlowJudge", "contradicts", "found_in", "found_in_all"]

Found: TypeAlias = set[tuple[Promise, int]]
LaneName: TypeAlias = tuple[str, bytes | int]


def contradicts(history: Sequence[Event]) -> bool:
    """Whether the offsets of what is published do not grow, or something comes back that may still be published."""
    for row, event in enumerate(history):
        before = history[:row]
        published = [other.offset for other in before if isinstance(other, Published)]
        redriven = [other.offset for other in before if isinstance(other, Redriven)]
        if isinstance(event, Published) and any(event.offset <= other for other in [*published, *redriven]):
            return True
        if isinstance(event, Redriven) and published and event.offset > max(published):
            return True
    return False


def found_in(history: Sequence[Event], claims: Claims) -> Found:
    """Which promises are broken, and in which rows that may be said."""
    judge = SlowJudge(claims)
    found = {(promise, row) for row, event in enumerate(history) for promise in judge.take(event)}
    return {(promise, row) for promise, row in found if promise in claims.promises}


def found_in_all(history: Sequence[Event], claims: Claims) -> Found:
    """The same, said when the history is over: that something was overtaken which is lost is not said then."""
    judge = SlowJudge(claims)
    for event in history:
        judge.take(event)
    losses = judge.overtaken_losses() if Promise.NO_LOSS in claims.promises else set()
    return found_in(history, claims) - {(Promise.KEY_ORDER, row) for row in losses}


@dataclass
class Message:
    """What is told of an outstanding message."""

    offset: int
    key: bytes | None
    state: str = "waits"  # open; lapsed: it may be open, or wait
    is_published: bool = True
    deliveries: list[Delivered] = field(default_factory=list)
    numbers: list[tuple[str, int]] = field(default_factory=list)  # that consumers have had, since the last rewind
    last: int | None = None  # the number of its last delivery
    due_ms: int | None = None
    overdue_ms: int | None = None
    came_back: bool = False
    held: Held | None = None
    has_late_ack: bool = False
    redriven: Redriven | None = None
    repeated: bool = False
    revoked: bool = False
    failures: int = 0
    not_before_ms: int | None = None
    said: str | None = None

    @property
    def consumer(self) -> str | None:
        return self.deliveries[-1].consumer if self.deliveries else None

    @property
    def is_kept_back(self) -> bool:
        return self.held is not None and self.held.reason in {HoldReason.BLOCKED, HoldReason.OTHER}

    def is_surely(self, *states: str) -> bool:
        return self.state in states

    def is_named_by(self, answer: Any) -> bool:
        """Whether an answer names its last delivery, if that may still be open."""
        numbers = {answer.attempt, self.last}
        return self.state != "waits" and answer.consumer == self.consumer and (None in numbers or len(numbers) == 1)

    def is_ambiguous(self, answer: Any) -> bool:
        return len(self.deliveries) > 1 and answer.attempt is None


@dataclass
class Consumer:
    """A session."""

    name: str
    limit: int | None
    since: int
    is_suspended: bool = False


class SlowBooks:
    """Everything that was told so far."""

    def __init__(self, claims: Claims) -> None:
        self.claims = claims
        self.history: list[Event] = []
        self.now: int | None = None
        self.outstanding: dict[int, Message] = {}
        self.unclear: dict[int, tuple[bytes | None, str | None]] = {}  # a key, and who may have it
        self.unclear_again: set[int] = set()  # of these, what was redriven: no cursor says that it is done
        self.let_go: set[int] = set()  # what was unclear, and is done
        self.done: dict[int, bytes | None] = {}  # above the cursor
        self.repeatable: set[int] = set()
        self.untold: set[int] = set()
        self.published: list[int] = []
        self.newest: dict[LaneName, int] = {}
        self.highest: int | None = None  # of what was told of before it was published
        self.consumers: dict[str, Consumer] = {}
        self.sessions: list[Consumer] = []
        self.owned: dict[bytes, list[tuple[int, str | None]]] = {}
        self.went_to: dict[bytes, tuple[int, str]] = {}
        self.beyond: list[int] = []

    # --- what was told ------------------------------------------------------------------------------------------

    @property
    def log_is_told(self) -> bool:
        return bool(self.published)

    @property
    def consumers_are_told(self) -> bool:
        return any(isinstance(earlier, Connected) for earlier in self.history)

    def is_over(self, offset: int) -> bool:
        return self.log_is_told and self.published[0] <= offset <= self.published[-1]

    def is_late(self, offset: int) -> bool:
        """Whether something that came later is told of before this publication."""
        return self.highest is not None and offset <= self.highest

    def is_behind(self) -> bool:
        repeated = any(each.repeated for each in self.outstanding.values())
        return bool(self.repeatable) or (self.claims.rewinds and repeated)

    def lane(self, offset: int, key: bytes | None) -> list[Message]:
        """What is outstanding of the key of a message, in order."""
        message = self.outstanding.get(offset)
        key = message.key if message is not None else key
        if self.claims.total_order:
            lane = list(self.outstanding.values())
        elif key is None:
            lane = [] if message is None else [message]
        else:
            lane = [each for each in self.outstanding.values() if each.key == key]
        return sorted(lane, key=lambda each: each.offset)

    def lane_name(self, message: Message) -> LaneName:
        if self.claims.total_order:
            return "key", b""
        return ("offset", message.offset) if message.key is None else ("key", message.key)

    def heir_of(self, message: Message) -> Message | None:
        """What was published last of its key, if that is a newer message and outstanding."""
        newest = self.newest.get(self.lane_name(message), -1)
        heir = self.outstanding.get(newest)
        is_new = heir is not None and newest > message.offset and heir.redriven is None and not heir.repeated
        return heir if is_new else None

    def lanes(self) -> list[tuple[bytes | None, list[Message]]]:
        if self.claims.total_order:
            return [(b"", self.lane(-1, b""))] if self.outstanding else []
        keys = {each.key for each in self.outstanding.values()} - {None}
        keyless = [(None, [each]) for each in self.outstanding.values() if each.key is None]
        return [*((key, self.lane(-1, key)) for key in keys), *keyless]

    def place(self, offset: int, key: bytes | None) -> bytes | None:
        """The key by which it is said who owns a message."""
        message = self.outstanding.get(offset)
        return b"" if self.claims.total_order else key if message is None else message.key

    def holds_its_key(self, message: Message) -> bool:
        return not message.repeated and (self.claims.nack_holds_key or not message.came_back)

    def is_unsure(self, key: bytes | None) -> bool:
        """Whether a message of a key may be open or not, or what was done may have to be done again."""
        lane = [] if key is None else self.lane(-1, key)
        perhaps = any(each.state == "lapsed" or (each.repeated and each.state == "waits") for each in lane)
        is_whole = self.claims.total_order
        return perhaps or any(is_whole or (key is not None and of == key) for of, _ in self.unclear.values())

    def of_its_unit(self, key: bytes | None) -> list[Message]:
        unit_of = self.claims.unit_of
        if unit_of is None or key is None:
            return []
        return [
            each for each in self.outstanding.values() if each.key is not None and unit_of(each.key) == unit_of(key)
        ]

    def unit_is_unsure(self, key: bytes | None) -> bool:
        unit_of = self.claims.unit_of
        if unit_of is None or key is None:
            return False
        keys = {each.key for each in self.outstanding.values()} | {of for of, _ in self.unclear.values()}
        return any(self.is_unsure(other) for other in keys if other is not None and unit_of(other) == unit_of(key))

    def of_log(self) -> list[int]:
        return sorted(each.offset for each in self.outstanding.values() if not (each.redriven or each.repeated))

    def limit(self, consumer: str) -> int | None:
        member = self.consumers.get(consumer)
        return self.claims.per_consumer if member is None or member.limit is None else member.limit

    def has_room(self, consumer: Consumer) -> bool:
        limit = self.limit(consumer.name)
        mine = [each for each in self.outstanding.values() if each.state != "waits" and each.consumer == consumer.name]
        perhaps = [name for _, name in self.unclear.values() if name == consumer.name]
        loads = [each for each in self.outstanding.values() if each.held and each.held.reason is HoldReason.LOADING]
        taken = len(mine) + len(perhaps) + len(loads)
        return not consumer.is_suspended and (limit is None or taken < limit)

    def is_held(self, message: Message) -> bool:
        if message.held is None:
            return False
        ends = message.held.until_ms if message.held.reason not in {HoldReason.SPILLED, HoldReason.LOADING} else None
        return ends is None or self.now is None or self.now < ends + self.claims.tolerance_ms

    # --- what it changes ----------------------------------------------------------------------------------------

    def apply(self, event: Event) -> None:  # one case for each kind
        offset = getattr(event, "offset", None)
        if offset in self.unclear or offset in self.let_go:
            self.follow(event)
            return
        message = None if offset is None else self.outstanding.get(offset)
        if message is not None and message.is_kept_back and isinstance(event, Held | Freed | Delivered):
            message.failures = 0
        match event:
            case Published():
                self.publish(event, message)
            case Redriven():
                if message is None:
                    self.outstanding[event.offset] = Message(
                        event.offset, event.key, redriven=event, last=event.attempt
                    )
            case Delivered():
                self.deliver(event, message)
            case Acked() if message is not None:
                self.ack(message, event)
            case Acked(counted=True) | Settled() | DeadLettered() | Dropped() | Skipped() if message is None:
                self.tell(event.offset)
            case Nacked() if message is not None:
                self.nack(message, event)
            case Expired() | Released() if message is not None:
                self.end(message, event)
            case Settled() | DeadLettered() | Dropped() | Skipped() if message is not None:
                self.finish(message)
            case Unclear():
                self.lose_sight(event.offset, message)
            case Done():
                self.untold.discard(event.offset)
            case Held() if message is not None:
                message.held = event
                if event.reason in {HoldReason.NOT_BEFORE, HoldReason.POSTPONED} and event.until_ms is None:
                    message.not_before_ms = None
            case Freed() if message is not None:
                message.held = None
            case _:
                self.apply_to_others(event)

    def apply_to_others(self, event: Event) -> None:
        match event:
            case Connected(consumer=name, limit=limit):
                self.consumers[name] = Consumer(name, limit, len(self.history))
                self.sessions.append(self.consumers[name])
            case Gone(consumer=name):
                self.consumers.pop(name, None)
                for each in self.outstanding.values() if not event.drains else ():
                    if each.consumer == name and each.state != "waits":
                        self.give_back(each)
                if not event.drains:
                    self.unclear = {of: (key, None if at == name else at) for of, (key, at) in self.unclear.items()}
            case Suspended(consumer=name) | Resumed(consumer=name) if name in self.consumers:
                self.consumers[name].is_suspended = isinstance(event, Suspended)
            case LimitChanged(consumer=name, limit=limit) if name in self.consumers:
                self.consumers[name].limit = limit
            case Owned(key=key, consumer=consumer):
                self.owned.setdefault(key, []).append((len(self.history), consumer))
            case Committed(resume_offset=resume):
                done = {of for of in self.unclear if of < resume} - self.unclear_again
                self.let_go |= done
                self.unclear = {of: each for of, each in self.unclear.items() if of not in done}
                self.done = {of: key for of, key in self.done.items() if of >= resume}
                self.repeatable &= self.done.keys()
            case Rewound():
                self.rewind(event)
            case Quiet() | AtRest():
                self.untold = set()
                self.notice_expiries()
            case _:
                pass  # it is about no message that is outstanding, and no consumer that is there

    def publish(self, event: Published, message: Message | None) -> None:
        offset = event.offset
        self.published.append(offset)
        if message is not None or self.is_late(offset):
            self.lose_sight(offset, message, event.key)
            return
        self.outstanding[offset] = Message(offset, event.key, not_before_ms=event.until_ms)
        self.newest[self.lane_name(self.outstanding[offset])] = offset

    def deliver(self, event: Delivered, message: Message | None) -> None:
        offset = event.offset
        if message is None:
            if self.is_over(offset) and offset not in self.repeatable:
                return
            if offset in self.repeatable:
                self.repeatable.discard(offset)
                message = Message(offset, self.done[offset], repeated=True)
            else:
                message = Message(offset, event.key, is_published=False)
                self.tell(offset)
            self.outstanding[offset] = message
        if message.deliveries and None in {event.attempt, message.last}:
            message.deliveries.append(event)
            message.state = "open"
            self.lose_sight(offset, message)
            return
        message.state, message.held, message.not_before_ms, message.revoked = "open", None, None, False
        message.deliveries.append(event)
        message.last = event.attempt
        message.numbers.append((event.consumer, event.attempt or 0))
        timeout = self.claims.ack_timeout_ms
        message.due_ms = message.overdue_ms = None
        if timeout is not None and self.now is not None:
            message.due_ms = self.now + timeout - self.claims.tolerance_ms
            message.overdue_ms = self.now + timeout + self.claims.tolerance_ms
        place = self.place(offset, event.key)
        if place is not None:
            self.went_to[place] = (len(self.history), event.consumer)

    def ack(self, message: Message, event: Acked) -> None:
        is_open = message.state == "open" and message.is_named_by(event)
        if event.counted:
            self.finish(message)
        elif event.counted is False:
            message.has_late_ack |= not is_open
            if message.is_named_by(event) and (message.revoked or not is_open):
                self.give_back(message)
        elif message.is_ambiguous(event) or not is_open or message.revoked:
            self.lose_sight(message.offset, message)
        else:
            self.finish(message)

    def nack(self, message: Message, event: Nacked) -> None:
        is_named = message.is_named_by(event)
        if (
            (event.counted is None and message.is_ambiguous(event))
            or (event.counted is None and is_named and message.state == "lapsed")
            or (event.counted is None and not is_named and message.state == "open")
        ):
            self.lose_sight(message.offset, message)
        elif is_named:
            took = bool(event.counted) or (event.counted is None and message.state == "open")
            if took:
                message.failures += 1
                message.said = event.reason if event.reason is not None else message.said
            if took or message.revoked or message.state == "lapsed":
                self.give_back(message)

    def end(self, message: Message, event: Expired | Released) -> None:
        if message.is_ambiguous(event):
            self.lose_sight(message.offset, message)
        elif message.is_named_by(event):
            message.failures += isinstance(event, Expired)
            if isinstance(event, Released) and event.until_ms is not None:
                message.not_before_ms = event.until_ms
            self.give_back(message)

    def give_back(self, message: Message) -> None:
        message.state, message.came_back, message.revoked = "waits", True, False

    def finish(self, message: Message) -> None:
        del self.outstanding[message.offset]
        self.untold.add(message.offset)
        if self.claims.rewinds and message.is_published:
            self.done[message.offset] = message.key

    def rewind(self, event: Rewound) -> None:
        start = event.resume_offset
        if self.claims.rewinds:
            self.repeatable |= {offset for offset in self.done if start is None or offset >= start}
        for message in self.outstanding.values():
            message.revoked = message.state != "waits"
            message.numbers = []
            if message.state == "waits" and message.deliveries:
                message.last = 0

    def tell(self, offset: int) -> None:
        if not self.is_over(offset):
            self.highest = offset if self.highest is None else max(self.highest, offset)

    def lose_sight(self, offset: int, message: Message | None, key: bytes | None = None) -> None:
        """What becomes of a message is not known from here on."""
        if message is None and isinstance(self.event, Unclear) and self.is_over(offset):
            return
        if message is None and isinstance(self.event, Unclear):
            self.tell(offset)
        if message is None:
            own = None if isinstance(self.event, Unclear) else self.place(offset, key)
            self.unclear[offset] = own, None
            return
        del self.outstanding[offset]
        at = message.consumer if message.state != "waits" else None
        self.unclear[offset] = self.place(offset, message.key), at
        if message.redriven is not None:
            self.unclear_again.add(offset)

    def follow(self, event: Event) -> None:
        match event:
            case Published(offset=offset):
                self.published.append(offset)
            case Redriven(offset=offset):
                self.unclear_again.add(offset)
                self.unclear.setdefault(offset, (self.place(offset, event.key), None))
            case Delivered(offset=offset):
                known, _ = self.unclear.get(offset, (None, None))
                self.unclear[offset] = (self.place(offset, event.key) if known is None else known), event.consumer
            case Acked(counted=True) | Settled() | DeadLettered() | Dropped() | Skipped():
                self.let_go |= {event.offset} & self.unclear.keys()
                self.unclear.pop(event.offset, None)
                self.unclear_again.discard(event.offset)
            case _:
                pass

    def lapse(self) -> None:
        for message in self.outstanding.values():
            is_due = message.due_ms is not None and self.now is not None and self.now >= message.due_ms
            if is_due and message.state == "open":
                message.state = "lapsed"
                message.due_ms = None

    def notice_expiries(self) -> None:
        for each in self.outstanding.values():
            if each.state == "lapsed" and each.overdue_ms is not None and self.now is not None:
                if self.now >= each.overdue_ms:
                    self.give_back(each)

    event: Event  # that is taken now


class SlowJudge(SlowBooks):
    """Judges each row by everything that was told before it."""

    def __init__(self, claims: Claims) -> None:
        super().__init__(claims)
        self.not_given_up: set[int] = set()
        self.turns = SlowTurns(self)
        self.key_sessions = SlowSessions(self)
        self.overtaken: list[tuple[int, Message, int]] = []  # in which row, what, and how often it had been delivered
        self.lost: list[tuple[Message, int]] = []

    # --- one row ------------------------------------------------------------------------------------------------

    def take(self, event: Event) -> set[Promise]:
        self.event = event
        if event.at_ms is not None and (self.now is None or event.at_ms > self.now):
            self.now = event.at_ms
        open_before = self.turns.surely_open()
        self.lapse()
        self.turns.note_ends(open_before)
        if isinstance(event, AtRest):  # nothing more happens by itself
            self.notice_expiries()
        broken: set[Promise] = set()
        if getattr(event, "offset", None) not in self.unclear.keys() | self.let_go:
            broken |= {*self.judged(event), *self.key_sessions.judged(event)}
            if isinstance(event, Delivered) and self.turns.pass_over(event):
                broken.add(Promise.FAIRNESS)
        open_before = self.turns.surely_open()
        if isinstance(event, Settled) and event.reason is SettledBy.SUPERSEDED:
            superseded = self.outstanding.get(event.offset)
            if superseded is not None:
                self.turns.hand_on(superseded)
        self.apply(event)
        self.turns.note_ends(open_before)
        self.turns.look(event)
        self.history.append(event)
        self.key_sessions.look()
        return broken

    def judged(self, event: Event) -> Iterator[Promise]:  # one case for each kind
        match event:
            case Delivered():
                yield from self.delivery(event)
            case Published():
                yield from self.publication(event)
            case Redriven():
                if event.offset in self.outstanding:
                    yield Promise.REDRIVE_ORDER
                elif self.is_full():
                    yield Promise.BOUNDS
            case Acked() | Nacked():
                yield from self.answer(event)
            case Expired() | Released():
                message = self.outstanding.get(event.offset)
                if message is not None and message.state == "open" and not message.is_named_by(event):
                    yield Promise.FENCE
            case Settled() | DeadLettered() | Dropped() | Skipped():
                yield from self.end_of_a_message(event)
            case Done():
                if self.claims.tells_done and event.offset not in self.untold:
                    if event.offset in self.outstanding or self.is_over(event.offset):
                        yield Promise.SETTLED_ONCE
            case Owned():
                yield from self.owner(event)
            case Committed():
                yield from self.cursor(event)
            case Quiet() | AtRest():
                yield from self.quiet(event)
                yield from self.not_superseded()
            case _:
                pass  # it only changes what is judged later

    # --- the judgements -----------------------------------------------------------------------------------------

    def delivery(self, event: Delivered) -> Iterator[Promise]:  # one step for each promise
        offset, consumer = event.offset, event.consumer
        message, lane = self.outstanding.get(offset), self.lane(offset, event.key)
        others = [each for each in lane if each is not message]
        key = event.key if message is None else message.key
        if message is not None and message.state == "open":
            yield Promise.ONE_HOLDER
        else:
            beside = [each for each in (*others, *self.of_its_unit(key)) if each is not message]
            if any(each.consumer != consumer for each in beside if each.state == "open"):
                yield Promise.ONE_HOLDER

        is_over = message is None and self.is_over(offset)
        waiting = [each for each in others if each.state == "waits" and self.holds_its_key(each)]
        if not is_over and waiting and waiting[0].offset < offset:
            yield Promise.KEY_ORDER
            self.overtaken.append((len(self.history), waiting[0], len(waiting[0].deliveries)))
        if waiting and waiting[0].redriven is not None and waiting[0].offset < offset:
            yield Promise.REDRIVE_ORDER

        open_of_key = [each for each in others if each.state == "open"]
        if lane and (most := self.most_open(key)) is not None and len(open_of_key) >= most:
            yield Promise.BOUNDS
        if self.claims.batches and open_of_key and not self.is_next_of_a_turn(offset, key):
            yield Promise.WHOLE_BATCH
        limit = self.limit(consumer)
        all_open = [each for each in self.outstanding.values() if each is not message and each.state == "open"]
        if limit is not None and sum(each.consumer == consumer for each in all_open) >= limit:
            yield Promise.BOUNDS
        if self.claims.open_at_once is not None and len(all_open) >= self.claims.open_at_once:
            yield Promise.BOUNDS

        yield from self.place_of_a_delivery(event)

        if message is not None and event.attempt is not None:
            had = [number for name, number in message.numbers if name == consumer]
            if not message.deliveries and message.last is not None:
                had.append(message.last)
            if had and event.attempt <= max(had):
                yield Promise.FENCE
        if message is not None and self.is_spent(message):
            yield Promise.ATTEMPTS
        wanted = None if message is None else message.not_before_ms
        if wanted is not None and self.now is not None and self.now < wanted - self.claims.tolerance_ms:
            yield Promise.NOT_EARLY
        if message is not None and message.key != event.key and not self.claims.total_order:
            yield Promise.NO_LOSS
        if is_over and offset not in self.repeatable:
            yield Promise.NO_LOSS

    def is_next_of_a_turn(self, offset: int, key: bytes | None) -> bool:
        """Whether the row before tells of another delivery of the same key."""
        before = self.history[-1]
        last = self.outstanding.get(before.offset) if isinstance(before, Delivered) else None
        if last is None:
            return False
        return self.claims.total_order or last.offset == offset or (key is not None and last.key == key)

    def is_spent(self, message: Message) -> bool:
        most = self.claims.max_attempts
        return most is not None and message.failures >= most and not message.is_kept_back

    def place_of_a_delivery(self, event: Delivered) -> Iterator[Promise]:
        consumer = event.consumer
        session = self.consumers.get(consumer)
        if session is None and self.consumers_are_told:
            yield Promise.AFFINITY
        if session is not None and session.is_suspended:
            yield Promise.AFFINITY
        place = self.place(event.offset, event.key)
        if place is None:
            return
        if place in self.owned:
            if self.owned[place][-1][1] != consumer:
                yield Promise.AFFINITY
            return
        if place not in self.went_to or not self.consumers_are_told or session is None:
            return
        since, before = self.went_to[place]
        changes = [each for each in self.history[since + 1 :] if isinstance(each, Connected | Gone | PlacementChanged)]
        if before == consumer:
            return
        if not changes:
            yield Promise.AFFINITY
            return
        old = self.consumers.get(before)
        old_stayed = old is not None and old.since < since
        new_joined = session.since > since
        came_and_went = any(each.since > since and each not in self.consumers.values() for each in self.sessions)
        by_hand = any(isinstance(each, PlacementChanged) for each in changes)
        if old_stayed and not new_joined and not came_and_went and not by_hand:
            yield Promise.MINIMAL_MOVE

    def publication(self, event: Published) -> Iterator[Promise]:
        offset = event.offset
        passed = [each for each in self.beyond if offset < each]
        if passed:
            yield Promise.SAFE_CURSOR
        self.beyond = [each for each in self.beyond if each > offset + 1 and each not in passed[:1]]
        if offset in self.outstanding or self.is_late(offset):
            return
        if self.is_full():
            yield Promise.BOUNDS

    def is_full(self) -> bool:
        most = self.claims.max_tracked
        return most is not None and len(self.outstanding) >= most

    def answer(self, event: Acked | Nacked) -> Iterator[Promise]:
        message = self.outstanding.get(event.offset)
        is_named = message is not None and message.is_named_by(event)
        may_repeat = event.offset in self.repeatable
        if message is None:
            if event.counted and self.is_over(event.offset) and not may_repeat:
                yield Promise.NO_LOSS if isinstance(event, Acked) else Promise.FENCE
            return
        if isinstance(event, Acked) and event.counted is not False and self.claims.batches:
            if message.state == "open" and is_named and self.is_batch_broken(message):
                yield Promise.WHOLE_BATCH
        if event.counted is False and message.state == "open" and is_named and self.log_is_told:
            if not message.revoked and not message.is_ambiguous(event):
                yield Promise.NO_LOSS
        if event.counted and not is_named:
            had = [number for name, number in message.numbers if name == event.consumer]
            knows = bool(had) and (event.attempt is None or event.attempt <= max(had))
            if isinstance(event, Nacked) or message.state == "open" or not knows:
                yield Promise.FENCE

    def is_batch_broken(self, message: Message) -> bool:
        """Whether something older of its key has come back while it stayed open."""
        older = [each for each in self.lane(message.offset, message.key) if each.offset < message.offset]
        waiting = [each for each in older if each.state == "waits" and self.holds_its_key(each)]
        return bool(waiting) and (waiting[0].redriven is None or bool(waiting[0].deliveries))

    def end_of_a_message(self, event: Settled | DeadLettered | Dropped | Skipped) -> Iterator[Promise]:
        message = self.outstanding.get(event.offset)
        if message is None:
            if self.is_over(event.offset) and event.offset not in self.repeatable:
                yield Promise.NO_LOSS
            return
        if isinstance(event, DeadLettered) and (message.said is not None or message.is_published):
            yield from [Promise.REASON_TRAVELS] * (event.reason != message.said)
        match event:
            case Settled(reason=SettledBy.NOBODY):
                yield Promise.NO_LOSS
            case Settled(reason=SettledBy.SUPERSEDED):
                if not self.is_latest_only(self.place(message.offset, message.key)):
                    yield Promise.NO_LOSS
                elif (
                    message.deliveries
                    or message.redriven is not None
                    or (self.heir_of(message) is None and not self.is_unsure(self.place(message.offset, message.key)))
                ):
                    yield Promise.LATEST_ONLY
            case Settled(reason=SettledBy.LATE_ACK) if not message.has_late_ack and message.is_published:
                yield Promise.NO_LOSS
            case DeadLettered() if not self.claims.may_dead_letter:
                yield Promise.NO_LOSS
            case Dropped() if not self.claims.may_drop:
                yield Promise.NO_LOSS
            case Skipped() if not self.claims.may_skip:
                yield Promise.NO_LOSS
            case _:
                pass

    def owner(self, event: Owned) -> Iterator[Promise]:
        """The changes since the key had its owner that stand together, before the last `Owned` or just before this."""
        if event.key not in self.owned:
            return
        since, old = self.owned[event.key][-1]
        if old is None or event.consumer is None or old == event.consumer:
            return
        for at, change in self.latest_changes():
            moves = (
                isinstance(change, PlacementChanged)
                or (isinstance(change, Connected) and change.consumer == event.consumer)
                or (isinstance(change, Gone) and change.consumer == old)
            )
            if at > since and moves:
                return
        yield Promise.MINIMAL_MOVE if self.is_right_after_them() else Promise.AFFINITY

    def ends_a_block(self, row: int) -> bool:
        """Whether a row ends the changes before it; one of a message that is not judged says nothing."""
        event = self.history[row]
        if getattr(event, "offset", None) in self.unclear_rows.get(row, ()):
            return False
        return isinstance(event, Published | Redriven | Delivered | Quiet | AtRest)

    def latest_changes(self) -> list[tuple[int, Event]]:
        """The last changes with nothing between them that ends them: no `Owned`, and nothing that comes and goes."""
        found: list[tuple[int, Event]] = []
        for at in reversed(range(len(self.history))):
            event = self.history[at]
            if isinstance(event, Connected | Gone | PlacementChanged):
                found.append((at, event))
            elif found and (isinstance(event, Owned) or self.ends_a_block(at)):
                break
        return found

    def is_right_after_them(self) -> bool:
        for at in reversed(range(len(self.history))):
            if isinstance(self.history[at], Connected | Gone | PlacementChanged):
                return True
            if self.ends_a_block(at):
                return False
        return False

    @property
    def unclear_rows(self) -> dict[int, tuple[int, ...]]:
        """Of each row which messages were not judged when it was told: the books do not look at such rows."""
        again = SlowBooks(self.claims)
        found: dict[int, tuple[int, ...]] = {}
        for row, event in enumerate(self.history):
            found[row] = (*again.unclear, *again.let_go)
            again.event = event
            if event.at_ms is not None and (again.now is None or event.at_ms > again.now):
                again.now = event.at_ms
            again.lapse()
            if isinstance(event, AtRest):
                again.notice_expiries()
            again.apply(event)
            again.history.append(event)
        return found

    def cursor(self, event: Committed) -> Iterator[Promise]:
        resume = event.resume_offset
        before = [earlier.resume_offset for earlier in self.history if isinstance(earlier, Committed)]
        if before and resume < before[-1]:
            yield Promise.SAFE_CURSOR
        of_log = self.of_log()
        if of_log and of_log[0] < resume and self.outstanding[of_log[0]].is_published:
            yield Promise.SAFE_CURSOR
        if self.log_is_told and resume > self.published[-1] + 1:
            self.beyond.append(resume)

    def quiet(self, event: Quiet | AtRest) -> Iterator[Promise]:
        waiting = [each for each in self.outstanding.values() if each.state == "waits" and each.held is None]
        if isinstance(event, AtRest) and any(self.is_spent(each) for each in waiting):
            yield Promise.ATTEMPTS
        if self.claims.tells_done and self.untold:
            yield Promise.SETTLED_ONCE
        if not self.log_is_told:
            return
        if self.claims.cursor_keeps_up and self.cursor_lags():
            yield Promise.SAFE_CURSOR
        if any(self.could_go_out(key, lane) for key, lane in self.lanes()):
            yield Promise.PROGRESS
        if isinstance(event, AtRest):
            for key, lane in self.lanes():
                if self.is_stuck(key, lane):
                    yield Promise.NO_LOSS
                    oldest = next(each for each in lane if each.state == "waits" and not each.repeated)
                    self.lost.append((oldest, len(oldest.deliveries)))

    def overtaken_losses(self) -> set[int]:
        """In which rows something was overtaken that was not delivered again from then on, and is lost."""
        return {
            row
            for row, message, deliveries in self.overtaken
            if any(lost is message and at_last == deliveries for lost, at_last in self.lost)
        }

    def not_superseded(self) -> Iterator[Promise]:
        """What waits for its first delivery, as a newer one of its key does: said once of each."""
        on_its_way = {HoldReason.DEAD_LETTERING, HoldReason.BLOCKED}
        for key, lane in self.lanes():
            undelivered = [each for each in lane if not each.deliveries and each.redriven is None]
            waiting = [each for each in undelivered if each.held is None or each.held.reason not in on_its_way]
            older = {each.offset for each in waiting[:-1]} if key is not None else set()
            if key is not None and self.is_latest_only(key) and not older <= self.not_given_up:
                yield Promise.LATEST_ONLY
            self.not_given_up |= older

    def cursor_lags(self) -> bool:
        if self.unclear or self.is_behind():
            return False
        lowest = min(self.of_log(), default=None)
        if lowest is not None and not self.outstanding[lowest].is_published:
            return False
        below = [offset for offset in self.published if lowest is None or offset < lowest]
        cursors = [earlier.resume_offset for earlier in self.history if isinstance(earlier, Committed)]
        return bool(below) and (not cursors or cursors[-1] <= below[-1])

    def could_go_out(self, key: bytes | None, lane: list[Message]) -> bool:
        alone = next(iter(self.consumers)) if len(self.consumers) == 1 else None
        ready = self.readiness(key, lane) or self.readiness(key, lane, alone)
        return ready is not None and key is not None and bool(self.takers(key, ready[1]))

    def readiness(
        self, key: bytes | None, lane: list[Message], alone: str | None = None
    ) -> tuple[Message, str | None] | None:
        """The message that nothing but room keeps from going out, and the owner of its key: else who is alone."""
        waiting = [each for each in lane if each.state == "waits" and self.holds_its_key(each)]
        open_ones = [each for each in lane if each.state == "open"]
        if key is None or not waiting or self.is_unsure(key):
            return None
        limit = self.turn_limit(key)
        if limit is not None and len(open_ones) >= limit:
            return None
        told = self.owned.get(key)
        owner = alone if told is None else told[-1][1]
        if (told is not None and owner is None) or (open_ones and owner is None):
            return None
        if any(each.consumer != owner for each in open_ones):
            return None
        return None if self.is_held(waiting[0]) else (waiting[0], owner)

    def turn_limit(self, key: bytes | None) -> int | None:
        return 1 if self.claims.batches else self.most_open(key)

    def most_open(self, key: bytes | None) -> int | None:
        """How many of a key may be open."""
        limits = [] if self.claims.per_key is None else [self.claims.per_key]
        if self.claims.limit_of is not None and key is not None:
            limits.append(self.claims.limit_of(key))
        return min(limits, default=None)

    def is_latest_only(self, key: bytes | None) -> bool:
        claimed = self.claims.latest_only
        return (key is not None and claimed(key)) if callable(claimed) else claimed

    def takers(self, key: bytes | None, owner: str | None) -> list[Consumer]:
        """Who would have to take it: its owner; all consumers if the history does not tell who that is."""
        of_unit = [each for each in self.of_its_unit(key) if each.state == "open" and each.consumer != owner]
        if of_unit or self.unit_is_unsure(key):
            return []
        if owner is not None:
            there = [self.consumers[owner]] if owner in self.consumers else []
        else:
            there = list(self.consumers.values())
        return there if all(self.has_room(each) for each in there) else []

    def is_stuck(self, key: bytes | None, lane: list[Message]) -> bool:
        waiting = [each for each in lane if each.state == "waits" and not each.repeated]
        unsure = self.is_unsure(key) or any(each.state == "lapsed" or each.repeated for each in lane)
        if not waiting or unsure or any(each.state == "open" for each in lane) or self.is_held(waiting[0]):
            return False
        told = self.owned.get(key) if key is not None else None
        if told is not None and told[-1][1] is None:
            return False
        return bool(self.takers(key, None if told is None else told[-1][1]))
