"""What a history says so far, kept for the slow judge: everything that was told, and what each message can be."""

from dataclasses import dataclass, field
from typing import Any

from keyshared.testing.guarantees import Guarantees, Promise
from keyshared.testing.history import (
    Acked,
    AtRest,
    Committed,
    Connected,
    DeadLettered,
    Delivered,
    Done,
    Dropped,
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
    Quiet,
    Redriven,
    Released,
    Resumed,
    Settled,
    Skipped,
    Suspended,
)

__all__ = ["DONE", "EXPIRED", "OPEN", "WAITS", "Consumer", "Message", "SlowBooks"]

OPEN, WAITS, EXPIRED, DONE = "open", "waits", "expired", "done"
# What a message can be. Expired: it waits, because its delivery was due, and the history does not say that it ended.


@dataclass
class Message:
    """What is told of an outstanding message."""

    offset: int
    key: bytes | None  # by which it is judged: the one that was told first
    can_be: set[str]
    is_published: bool
    own_key: bytes | None  # as it was published; until then, as it was told first
    deliveries: list[Delivered] = field(default_factory=list)
    due_ms: int | None = None  # from when its delivery may have expired
    overdue_ms: int | None = None  # from when it has, as soon as the system had time to act
    came_back: bool = False
    held: Held | None = None
    has_late_ack: bool = False
    other_keys: bool = False  # told of before it was told what was published
    redriven: Redriven | None = None  # what brought it back
    failures: int = 0
    not_before_ms: int | None = None  # as somebody asked, since its last delivery
    said: str | None = None  # by the last failure that said anything
    may_have_said: set[str] = field(default_factory=set)  # since then: nacks that were only seen
    nack_was_only_seen: bool = False  # of its last delivery
    unsaid: list[Delivered] = field(default_factory=list)  # deliveries that ended without a row of their own
    end_was_only_seen: bool = False  # of its last delivery: the system may still say how that ended

    @property
    def is_kept_back(self) -> bool:
        own_way = {
            HoldReason.RETRY,
            HoldReason.NOT_BEFORE,
            HoldReason.POSTPONED,
            HoldReason.SPILLED,
            HoldReason.FLUSHING,
            HoldReason.LOADING,
            HoldReason.LIMITED,
            HoldReason.TOKEN_FULL,
            HoldReason.DEAD_LETTERING,
        }
        return self.held is not None and self.held.reason not in own_way

    def is_surely(self, *states: str) -> bool:
        return self.can_be <= set(states)

    @property
    def consumer(self) -> str | None:
        return self.deliveries[-1].consumer if self.deliveries else None

    @property
    def last_attempt(self) -> int | None:
        """Of its last delivery, also of one before it came back."""
        if self.deliveries:
            return self.deliveries[-1].attempt
        return None if self.redriven is None else self.redriven.attempt

    @property
    def is_spilled(self) -> bool:
        return self.held is not None and self.held.reason is HoldReason.SPILLED


@dataclass
class Consumer:
    """A session."""

    name: str
    limit: int | None
    since: int
    is_suspended: bool = False
    has_room_since_ms: int | None = None
    had_room: bool = False


class SlowBooks:
    """Everything that was told so far."""

    def __init__(self, guarantees: Guarantees) -> None:
        self.claims = guarantees
        self.history: list[Happening] = []
        self.now: int | None = None
        self.outstanding: dict[int, Message] = {}
        self.done: set[int] = set()
        self.ends = 0  # of messages: what is redriven ends again
        self.keys_of_done: dict[int, set[bytes | None]] = {}
        self.published: list[int] = []
        self.newest: dict[tuple[str, bytes | int], int] = {}  # what was published last, by lane
        self.told: set[int] = set()  # every offset that was published, delivered or answered
        self.unpublished: set[int] = set()
        self.untold: set[int] = set()  # done, and not said to be
        self.consumers: dict[str, Consumer] = {}
        self.sessions: list[Consumer] = []
        self.owned: dict[bytes, list[tuple[int, str | None]]] = {}
        self.went_to: dict[bytes, tuple[int, str]] = {}
        self.first_ms: dict[int, int | None] = {}  # of what was delivered before its publication was told
        self.only_seen: dict[int, list[Acked]] = {}  # acks that may have ended a message: nobody says that they counted
        self.beyond: list[tuple[int, set[int]]] = []  # cursors beyond what was published, and what was told of by then

    # --- what was told ------------------------------------------------------------------------------------------

    @property
    def log_is_told(self) -> bool:
        return bool(self.published)

    @property
    def consumers_are_told(self) -> bool:
        return any(isinstance(earlier, Connected) for earlier in self.history)

    def is_over(self, offset: int) -> bool:
        """Not outstanding, and not for the reason that it was not told of yet."""
        return offset in self.done or (self.log_is_told and self.published[0] <= offset <= self.published[-1])

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

    def lane_name(self, message: Message) -> tuple[str, bytes | int]:
        if self.claims.total_order:
            return "key", b""
        return ("offset", message.offset) if message.key is None else ("key", message.key)

    def heir_of(self, message: Message) -> Message | None:
        """What was published last of its key, if that is a newer message and outstanding."""
        newest = self.newest.get(self.lane_name(message), -1)
        heir = self.outstanding.get(newest)
        return heir if heir is not None and newest > message.offset and heir.redriven is None else None

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
        return self.claims.nack_holds_key or not message.came_back

    def of_its_unit(self, key: bytes | None) -> list[Message]:
        unit_of = self.claims.unit_of
        if unit_of is None or key is None:
            return []
        return [
            each for each in self.outstanding.values() if each.key is not None and unit_of(each.key) == unit_of(key)
        ]

    def names(self, message: Message, answer: Any) -> str:
        """Which of its deliveries an answer names: the last one, an earlier one, or none that ever was."""
        same = [
            delivery.consumer == answer.consumer
            and (delivery.attempt is None or answer.attempt is None or delivery.attempt == answer.attempt)
            for delivery in message.deliveries
        ]
        if not any(same):
            return "earlier" if self.may_name_older(message, answer.attempt) else "none"
        return "last" if same[-1] else "earlier"

    def may_also_name_earlier(self, message: Message, answer: Any) -> bool:
        """Whether an answer that names the last delivery may be of one before it, as there is no number to tell."""
        if self.names(message, answer) != "last" or None not in {answer.attempt, message.last_attempt}:
            return False
        if self.may_name_older(message, answer.attempt):
            return True
        before = [each for each in message.deliveries[:-1] if each.consumer == answer.consumer]
        return any(None in {each.attempt, answer.attempt} or each.attempt == answer.attempt for each in before)

    def unsaid_of(self, message: Message, end: Expired | Released) -> list[Delivered]:
        """The deliveries that this may be the end of, of those that ended without a row of their own."""
        of_consumer = [each for each in message.unsaid if each.consumer == end.consumer]
        return [each for each in of_consumer if None in {each.attempt, end.attempt} or each.attempt == end.attempt]

    def may_name_older(self, message: Message, attempt: int | None = None) -> bool:
        """Whether there may have been such a delivery, or any, before the first row that tells of the message."""
        if message.is_published or not message.deliveries:
            return False
        first = message.deliveries[0].attempt
        return first is None or (first != 1 and (attempt is None or attempt < first))

    def window_is_full(self, loading: Message | None = None) -> bool:
        """Whether one more is one too many; the lowest message of the log may be loaded beyond the window."""
        tracked = [each for each in self.outstanding.values() if DONE not in each.can_be]
        loaded = [each for each in tracked if not each.is_spilled]
        of_log = [each.offset for each in tracked if not each.redriven]
        most = self.claims.window
        if most is not None and loading is not None and of_log and loading.offset <= min(of_log):
            most += 1
        return most is not None and len(loaded) >= most

    def limit(self, consumer: str) -> int | None:
        member = self.consumers.get(consumer)
        return self.claims.per_consumer if member is None or member.limit is None else member.limit

    def has_room(self, consumer: Consumer, *, also_for_loads: bool = True) -> bool:
        limit = self.limit(consumer.name)
        mine = [each for each in self.outstanding.values() if OPEN in each.can_be and each.consumer == consumer.name]
        loads = [each for each in self.outstanding.values() if each.held and each.held.reason is HoldReason.LOADING]
        taken = len(mine) + (len(loads) if also_for_loads else 0)
        return not consumer.is_suspended and (limit is None or taken < limit)

    def is_held(self, message: Message) -> bool:
        if message.held is None:
            return False
        ends = message.held.until_ms if message.held.reason not in {HoldReason.SPILLED, HoldReason.LOADING} else None
        return ends is None or self.now is None or self.now < ends + self.claims.tolerance_ms

    # --- what it changes ----------------------------------------------------------------------------------------

    def apply(self, happening: Happening) -> None:  # noqa: C901, PLR0912, PLR0915  # one case for each kind
        message = self.outstanding.get(getattr(happening, "offset", -1))
        if message is not None and message.is_kept_back and isinstance(happening, Held | Freed | Delivered):
            message.failures = 0
        match happening:
            case Published(offset=offset, key=key):
                told = self.unpublished if self.log_is_told else self.told
                self.unpublished = {other for other in told if other > offset}
                if message is not None:
                    message.is_published, message.own_key, message.other_keys = True, key, False
                elif offset not in self.done:
                    self.outstanding[offset] = Message(offset, key, {WAITS}, True, key)
                    self.outstanding[offset].not_before_ms = happening.until_ms
                self.published.append(offset)
                if offset in self.outstanding:
                    self.newest[self.lane_name(self.outstanding[offset])] = offset
                self.told.add(offset)
            case Redriven():
                self.redrive(happening)
            case Delivered():
                self.deliver(happening)
            case Acked() if message is not None:
                self.ack(message, happening)
            case Acked(counted=True, offset=offset):
                self.end_of_a_stranger(offset)
            case Nacked() if message is not None and happening.counted is not False:
                self.end(message, happening)
            case Expired() | Released() if message is not None:
                self.end(message, happening)
            case Settled() | DeadLettered() | Dropped() | Skipped():
                if message is not None:
                    self.ended_otherwise(message)
                    self.finish(message)
                else:
                    self.end_of_a_stranger(happening.offset)
            case Done():
                if message is not None and DONE in message.can_be:
                    self.finish(message)
                self.untold.discard(happening.offset)
            case Held() if message is not None:
                message.held = happening
                if happening.reason in {HoldReason.NOT_BEFORE, HoldReason.POSTPONED} and happening.until_ms is None:
                    message.not_before_ms = None
            case Freed() if message is not None:
                message.held = None
            case Connected(consumer=name, limit=limit):
                self.consumers[name] = Consumer(name, limit, len(self.history))
                self.sessions.append(self.consumers[name])
            case Gone(consumer=name):
                self.consumers.pop(name, None)
                for each in self.outstanding.values():
                    if not happening.drains and each.consumer == name and OPEN in each.can_be:
                        each.unsaid.append(each.deliveries[-1])
                        self.give_back(each)
            case Suspended(consumer=name) | Resumed(consumer=name) if name in self.consumers:
                self.consumers[name].is_suspended = isinstance(happening, Suspended)
            case LimitChanged(consumer=name, limit=limit) if name in self.consumers:
                self.consumers[name].limit = limit
            case Owned(key=key, consumer=consumer):
                self.owned.setdefault(key, []).append((len(self.history), consumer))
            case Committed(resume_offset=resume):
                for each in list(self.outstanding.values()):
                    if each.offset < resume and DONE in each.can_be and each.redriven is None:
                        self.finish(each)
            case Quiet() | AtRest():
                self.untold = set()
                if isinstance(happening, AtRest) and self.log_is_told:
                    self.unpublished = set()
                self.notice_expiries()
            case _:
                pass  # it is about nothing that is outstanding, or nobody who is there

    def notice_expiries(self) -> None:
        for each in self.outstanding.values():
            overdue_ms = each.overdue_ms
            if EXPIRED in each.can_be and self.now is not None and overdue_ms is not None and self.now >= overdue_ms:
                each.can_be -= {OPEN}

    def redrive(self, happening: Redriven) -> None:
        message = self.outstanding.get(happening.offset)
        if message is not None and DONE in message.can_be:
            self.finish(message)
        elif message is not None:
            return
        self.outstanding[happening.offset] = Message(
            happening.offset, happening.key, {WAITS}, True, happening.key, redriven=happening
        )

    def deliver(self, happening: Delivered) -> None:
        offset = happening.offset
        message = self.outstanding.get(offset)
        if message is None:
            if self.is_over(offset):
                return
            message = self.outstanding[offset] = Message(offset, happening.key, set(), False, happening.key)
            self.first_ms[offset] = self.now
            self.not_published_yet(offset)
        elif not self.log_is_told and message.key != happening.key:
            message.other_keys = True
        self.ended_otherwise(message)
        if message.deliveries and (message.can_be & {OPEN, EXPIRED} or message.end_was_only_seen):
            message.unsaid.append(message.deliveries[-1])
        message.can_be = {OPEN}
        message.deliveries.append(happening)
        message.held = None
        message.not_before_ms = None
        message.end_was_only_seen = message.nack_was_only_seen = False
        timeout = self.claims.ack_timeout_ms
        message.due_ms = message.overdue_ms = None
        if timeout is not None and self.now is not None:
            message.due_ms = self.now + timeout - self.claims.tolerance_ms
            message.overdue_ms = self.now + timeout + self.claims.tolerance_ms
        place = self.place(offset, happening.key)
        if place is not None:
            self.went_to[place] = (len(self.history), happening.consumer)

    def not_published_yet(self, offset: int) -> None:
        self.told.add(offset)
        if self.log_is_told and offset > self.published[0]:
            self.unpublished.add(offset)

    def ack(self, message: Message, happening: Acked) -> None:
        named = self.names(message, happening)
        if happening.counted:
            self.ended_otherwise(message)
            self.finish(message)
            return
        either = self.may_also_name_earlier(message, happening)
        if named != "none" and (either or not (named == "last" and message.is_surely(OPEN))):
            message.has_late_ack = True
        if happening.counted is False or named == "none":
            return
        fenced = Promise.FENCE in self.claims.promises
        if either:
            becomes = {each: {each, DONE} for each in (OPEN, WAITS, EXPIRED, DONE)}
        elif named == "last":
            message.end_was_only_seen |= EXPIRED in message.can_be
            becomes = {OPEN: {DONE}, WAITS: {WAITS, DONE}, EXPIRED: {WAITS, DONE}, DONE: {DONE}}
        else:
            becomes = {
                OPEN: {OPEN} if fenced else {OPEN, DONE},
                WAITS: {WAITS, DONE},
                EXPIRED: {EXPIRED, DONE},
                DONE: {DONE},
            }
        if any(DONE in becomes[state] for state in message.can_be - {DONE}):
            self.only_seen.setdefault(message.offset, []).append(happening)
        message.can_be = set().union(*(becomes[state] for state in message.can_be))
        if message.is_surely(DONE):
            self.finish(message)

    def ended_otherwise(self, message: Message) -> None:
        """It was none of the acks that may have ended it."""
        if DONE in message.can_be:
            self.only_seen.pop(message.offset, None)

    def end(self, message: Message, happening: Nacked | Expired | Released) -> None:
        names_last = self.names(message, happening) == "last"
        if isinstance(happening, Nacked) and happening.counted is None:
            if names_last and (message.can_be & {OPEN, EXPIRED} or message.end_was_only_seen):
                message.came_back |= OPEN in message.can_be
                message.can_be |= {EXPIRED} if OPEN in message.can_be else set()
                message.end_was_only_seen = message.nack_was_only_seen = True
                message.may_have_said |= set() if happening.reason is None else {happening.reason}
            return
        is_open = names_last and (message.can_be & {OPEN, EXPIRED} or message.end_was_only_seen)
        is_numbered = None not in {happening.attempt, message.last_attempt}
        if not isinstance(happening, Nacked) and not (is_open and is_numbered):
            late = self.unsaid_of(message, happening)[:1]
            for each in late:
                message.unsaid.remove(each)
            if is_open and (late or self.may_name_older(message, happening.attempt)):  # it may be the end of either
                message.came_back |= OPEN in message.can_be
                message.can_be |= {EXPIRED} if OPEN in message.can_be else set()
                message.end_was_only_seen = True
                return
        is_told_late = names_last and message.end_was_only_seen
        if names_last and (message.can_be & {OPEN, EXPIRED} or is_told_late):
            if isinstance(happening, Released) and happening.until_ms is not None:
                message.not_before_ms = happening.until_ms
            if isinstance(happening, Nacked) and happening.reason is not None:
                message.said, message.may_have_said = happening.reason, set()
            message.end_was_only_seen = False
            message.failures += not isinstance(happening, Released)
        if names_last:
            self.give_back(message)

    def give_back(self, message: Message) -> None:
        if message.can_be & {OPEN, EXPIRED}:
            message.can_be = (message.can_be - {OPEN, EXPIRED}) | {WAITS}
            message.came_back = True

    def finish(self, message: Message) -> None:
        del self.outstanding[message.offset]
        self.done.add(message.offset)
        self.ends += 1
        self.untold.add(message.offset)
        if not message.is_published:
            self.keys_of_done[message.offset] = (
                {delivery.key for delivery in message.deliveries} if message.other_keys else {message.key}
            )

    def end_of_a_stranger(self, offset: int) -> None:
        if not self.is_over(offset):
            self.done.add(offset)
            self.ends += 1
            self.untold.add(offset)
            self.not_published_yet(offset)
