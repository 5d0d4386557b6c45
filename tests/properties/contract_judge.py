"""A judge of a dispatcher's calls and effects that was written from `docs/contract.md` alone.

It sees what a host sees: the calls, what they return, and what the public queries say. It keeps books of its own, one
`Book` for each outstanding message, and raises `Broken` with the promise or the rule that a call has broken. It knows
nothing of how a dispatcher is built, so it judges any of them.

Where the contract leaves something open, such as which load reserves room at a consumer, the judge accepts each answer
that the contract allows. `reasons` is the heart: it says of a message that is not open what keeps it, so a message that
nothing keeps has been forgotten (`progress`), and `why_blocked` has to name the first that holds.
"""

from collections import Counter, deque
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from typing import Any

from keyshared import DispatcherConfig, HashRing, KeySharedDispatcher
from keyshared.config import DrainUnit, Rules, Unmatched
from keyshared.effects import (
    Blocked,
    CursorAdvanced,
    DeadLetter,
    Deliver,
    Done,
    Dropped,
    Ending,
    Evicted,
    Ignored,
    IgnoredReason,
    KeyBegun,
    KeyEnd,
    KeyEnded,
    KeyEnding,
    Load,
    Released,
    ReleaseReason,
    Resumed,
    Settled,
    SettleReason,
    Skipped,
    SkipReason,
    Spilled,
)

NOTICES = (Ignored, Evicted, Released, Blocked, Dropped, Skipped, Settled, Spilled)
FLOORS = (NOTICES, (Done,), (KeyEnded, KeyEnding, KeyBegun), (DeadLetter,), (Load,), (Deliver,))
STATE = (CursorAdvanced, Resumed)
FAILURES = {
    ReleaseReason.NACKED,
    ReleaseReason.REJECTED,
    ReleaseReason.ACK_TIMEOUT,
    ReleaseReason.EVICTED,
    ReleaseReason.SESSION_LOST,
}
ALONE = {ReleaseReason.NACKED, ReleaseReason.REJECTED, ReleaseReason.ACK_TIMEOUT, ReleaseReason.RELEASED}
"""The ends of one delivery that break the batch behind it."""

REMEMBERED = 8


class Broken(AssertionError):
    """A promise of the contract was not held."""


class Book:
    """What the judge knows of one outstanding message."""

    __slots__ = (
        "attempt", "back", "base", "blocked", "dead", "deadline", "ended", "ever", "failures", "gone", "item", "key",
        "memory", "noted", "offset", "open", "pardoned", "reason", "since", "until", "waits",
    )  # fmt: skip

    def __init__(self, offset: int, key: bytes | None, item: object) -> None:
        self.offset, self.key, self.item = offset, key, item
        self.attempt = self.base = 0
        self.failures: int | None = 0
        self.open: str | None = None
        self.deadline: int | None = None
        self.ever = self.noted = self.gone = self.dead = self.blocked = self.back = self.pardoned = False
        self.ended: deque[tuple[int, str]] = deque(maxlen=REMEMBERED)
        self.memory = "loaded"
        self.waits: str | None = None
        self.until = 0
        self.since = 0
        self.reason: str | None = None


class Member:
    """What the judge knows of one consumer."""

    __slots__ = ("deadline", "filters", "limit", "state", "weight")

    def __init__(self, limit: int, filters: tuple[str, ...]) -> None:
        self.limit, self.filters = limit, filters
        self.state: str = "active"
        self.deadline: int | None = None
        self.weight = 1

    def accepts(self, key: bytes | None) -> bool:
        """Return whether a message of this key may go to the consumer, by its filters."""
        if key is None:
            return not self.filters or "*" in self.filters
        return not self.filters or any(fnmatchcase(key.decode(), one) for one in self.filters)


class Session:
    """What the judge knows of a key's session."""

    __slots__ = ("consumer", "flushing", "idle_since", "number")

    def __init__(self, consumer: str, number: int) -> None:
        self.consumer, self.number = consumer, number
        self.flushing: int | bool | None = False
        self.idle_since: int | None = None


class Judge:
    """Makes calls of a dispatcher, keeps books of what they return, and compares both with the contract."""

    def __init__(
        self,
        dispatcher: KeySharedDispatcher[Any],
        config: DispatcherConfig,
        rules: Rules | None,
        *,
        judged: str | None = None,
    ) -> None:
        self.judged = judged
        self.dispatcher, self.config, self.rules = dispatcher, config, rules
        self.poison: str = "quarantine" if config.quarantine else config.poison.value
        if config.archive_blocked:
            self.poison = "block_and_dead_letter"
        self.books: dict[int, Book] = {}
        self.lanes: dict[bytes | None, list[Book]] = {}
        self.members: dict[str, Member] = {}
        self.sessions: dict[bytes, Session] = {}
        self.numbers: dict[bytes, int] = {}
        self.quarantined: set[bytes] = set()
        self.offered: list[int] = []
        self.settled: dict[int, Ending] = {}
        self.ended: Counter[Ending] = Counter()
        self.counts = Counter[str]()
        self.now = self.called = 0
        self.cursor: int | None = None
        self.paused: bool | None = dispatcher.free_slots == 0
        """Whether a `Resumed` is owed; None if nobody can know."""
        self.loaded = 0
        self.slot_bits: int | None = 16
        self.owners: dict[Any, str | None] = {}
        self.rings: dict[Any, HashRing] = {}
        self.known: set[int] = set()
        self.seen: dict[bytes, None] = {}
        self.back: set[int] = set()
        self.full = False
        self.drains: dict[bytes, int] = {}
        self.paused_groups: set[str] = set()
        self.group_limits: dict[str, dict[str, Any]] = {}
        self.permits_at: dict[str, tuple[int, int]] = {}
        self.ready: dict[tuple[bytes, str], Counter[bytes]] = {}
        self.queued: dict[bytes | int, int] = {}
        """Since which call a key, or a message without one, has waited for capacity alone."""
        self.ready_groups: dict[tuple[str, str], Counter[str]] = {}
        self.was_loaded: set[int] = set()
        self.letters: dict[int, DeadLetter[Any]] = {}
        self.stored: dict[int, tuple[bytes | None, int, object]] = {}
        self.old: list[tuple[int, str, int]] = []
        self.log: list[tuple[int, str, tuple[Any, ...], dict[str, Any]]] = []

    def check(self, holds: object, promise: str, *told: object) -> None:
        """Raise Broken, unless it holds, or another promise than this one is judged."""
        if not holds and (self.judged is None or promise.partition(":")[0] == self.judged):
            raise Broken(promise, *told)

    # What follows from the books

    def lane(self, key: bytes | None) -> list[Book]:
        """Return the outstanding messages of a key, oldest first."""
        return sorted(self.lanes.get(self.key_at(key), ()), key=lambda book: book.offset)

    def lane_key(self, book: Book) -> bytes | None:
        return self.key_at(book.key)

    def key_told(self, book: Book) -> bytes | None:
        """Return the key that effects name: b"" where the log is one key."""
        return self.key_at(book.key)

    def track(self, book: Book) -> None:
        """Count a message as outstanding."""
        self.books[book.offset] = book
        self.lanes.setdefault(self.lane_key(book), []).append(book)

    def open_of(self, consumer: str) -> int:
        return sum(book.open == consumer for book in self.books.values())

    def opened(self) -> int:
        return sum(book.open is not None for book in self.books.values())

    def loading_at(self, consumer: str) -> int:
        """Return how many loads may reserve capacity at the consumer: those that name it, or nobody."""
        loading = [book.offset for book in self.books.values() if book.memory == "loading"]
        named = [self.dispatcher.why_blocked(offset) for offset in loading]
        return sum(said is not None and said.consumer in (consumer, None) for said in named)

    def limit_of(self, key: bytes | None) -> int:
        """Return how many deliveries of the key may be open."""
        most = self.config.max_in_flight_per_key
        if self.config.batch_per_key > 1:
            most = self.config.batch_per_key
        if self.rules is not None and self.rules.limit_of is not None and key is not None:
            most = self.rules.limit_of(key)
            most = min(most, self.config.max_loaded_per_key) if self.config.spill else most
            if self.config.batch_per_key > 1:
                most = min(most, self.config.batch_per_key)
        return most

    def latest(self, key: bytes | None) -> bool:
        if key is None:
            return False
        if self.rules is not None and self.rules.latest_only is not None:
            return self.rules.latest_only(key)
        return self.config.latest_only

    def group(self, key: bytes | None) -> str | None:
        """Return the group of a key, None where there are no groups."""
        if self.rules is None or self.rules.group_of is None or key is None:
            return None
        return self.rules.group_of(key) or ""

    def group_limit(self, group: str, name: str) -> Any:
        limits = self.group_limits.get(group)
        return limits[name] if limits is not None else getattr(self.config.group, name)

    def owner(self, key: bytes | None) -> str | None:
        """Return the owner that the contract names, by a ring of the judge's own where the placement is one."""
        said = self.dispatcher.owner(key)
        if not self.config.ordering_required and key is not None:
            wanted = self.rightful_owner(key)
            self.check(said == wanted, "affinity", key, said, wanted)
        return said

    def rightful_owner(self, key: bytes) -> str | None:
        """Return the first consumer of the walk that accepts the key; nobody in a hole, or while one is not there."""
        known = (key, tuple((name, one.state, one.weight, one.filters) for name, one in self.members.items()))
        if self.slot_bits is None or known not in self.owners:
            ranges = self.ranges()
            slot = ranges.slot_of(key)
            walk = () if ranges.owner(slot) is None else ranges.walk(slot)
            there = (name for name in walk if not self.is_connected(name) or self.members[name].accepts(key))
            first = next(there, None)
            self.owners[known] = first if first is not None and self.is_connected(first) else None
        return self.owners[known]

    def is_connected(self, name: str) -> bool:
        return name in self.members and self.members[name].state != "draining"

    def unit_of(self, key: bytes) -> object:
        """Return what of the key's is handed over as one: itself, its slot, or the run of slots around it."""
        if self.config.unit is DrainUnit.KEY:
            return key
        ranges = self.ranges()
        slot = ranges.slot_of(key)
        return slot if self.config.unit is DrainUnit.HASH else ranges.run_at(slot)[0]

    def ranges(self) -> Any:
        """Return what the placement is now: a ring of the judge's own, unless the dispatcher has another kind."""
        return self.dispatcher.placement.ranges if self.slot_bits is None else self.ring().ranges

    def ring(self) -> HashRing:
        """Return a ring of those that are connected."""
        connected = {name: member.weight for name, member in self.members.items() if member.state != "draining"}
        known = tuple(connected.items())
        if known not in self.rings:
            self.rings[known] = HashRing(connected, slot_bits=self.slot_bits or 16)
        return self.rings[known]

    def holders_of_unit(self, key: bytes) -> set[str]:
        unit = self.unit_of(key)
        return {
            book.open
            for book in self.books.values()
            if book.open is not None and book.key is not None and self.unit_of(book.key) == unit
        }

    def key_at(self, key: bytes | None) -> bytes | None:
        return b"" if self.config.ordering_required else key

    def waiting(self) -> int:
        return sum(book.open is None for book in self.books.values())

    def waiting_in_memory(self) -> tuple[int, int]:
        """Return how many messages wait with their payload, and the same with those that are being loaded."""
        waiting = [book for book in self.books.values() if book.open is None]
        return (
            sum(book.memory == "loaded" for book in waiting),
            sum(book.memory != "spilled" for book in waiting),
        )

    # Why a message waits

    def reasons(self, book: Book) -> Iterator[tuple[str, bool]]:
        """Yield what keeps the message from going out, in the order of `why_blocked`, and whether it surely does."""
        key = self.lane_key(book)
        if book.memory == "loading":
            yield "loading", book.waits is None
        if book.dead:
            yield "dead_lettering", True
        if book.blocked:
            yield "blocked", True
        if book.waits is not None:
            yield book.waits, True
        if key is None:
            yield from self.keyless_reasons(book)
            return
        lane = self.lane(book.key)
        if key in self.quarantined:
            yield "quarantined", True
        if any(other.open is None for other in lane if other.offset < book.offset):
            yield "older_waits", True
        owner = self.owner(key)
        if owner is None:
            yield "no_consumer", False
            yield "unowned", True
            return
        holders = {other.open for other in lane if other.open is not None}
        if holders - {owner}:
            yield "draining", True
        opened = sum(other.open is not None for other in lane)
        if opened >= self.limit_of(key) or (opened and self.config.batch_per_key > 1):
            yield "key_in_flight", True
        if self.config.unit is not DrainUnit.KEY and self.holders_of_unit(key) - {owner}:
            yield "draining", True
        session = self.sessions.get(key)
        if session is not None and session.flushing is not False:
            yield "flushing", True
        yield from self.shared_reasons(book, owner)

    def shared_reasons(self, book: Book, owner: str) -> Iterator[tuple[str, bool]]:
        """Yield what keeps a message that is next of its key: limits that it shares with other keys."""
        if self.full and book.offset != min(self.books):
            yield "ack_holes", True
        group = self.group(book.key)
        if group is not None:
            most = self.group_limit(group, "max_in_flight")
            opened = sum(other.open is not None and self.group(other.key) == group for other in self.books.values())
            loading = sum(other.memory == "loading" and self.group(other.key) == group for other in self.books.values())
            if group in self.paused_groups:
                yield "group_paused", True
            if most is not None and opened + loading >= most:
                yield "group_full", opened >= most
            if self.group_limit(group, "per_second") is not None:
                if self.permits(group) < 1_000:
                    yield "group_rate", True
                elif not self.log or self.log[-1][1] != "handle_timeout":  # which looks whether there are permits
                    yield "group_rate", False
        member = self.members[owner]
        if member.state == "inactive":
            yield "consumer_inactive", True
        opened = self.open_of(owner)
        if opened + self.loading_at(owner) >= member.limit:
            yield "consumer_full", opened >= member.limit
        if book.memory == "spilled" and self.dispatcher.stats().loaded >= self.config.window:
            yield "window_full", False
        yield from self.subscription_reasons()

    def subscription_reasons(self) -> Iterator[tuple[str, bool]]:
        most = self.config.max_in_flight
        if most is not None:
            loading = sum(book.memory == "loading" for book in self.books.values())
            if self.opened() + loading >= most:
                yield "subscription_full", self.opened() >= most

    def keyless_reasons(self, book: Book) -> Iterator[tuple[str, bool]]:
        """Yield what keeps a message without a key: it goes to any consumer that takes all."""
        if self.full and book.offset != min(self.books):
            yield "ack_holes", True
        takers = [
            (name, member)
            for name, member in self.members.items()
            if member.accepts(None) and member.state != "draining"
        ]
        if not takers:
            yield "no_consumer", True
        active = [(name, member) for name, member in takers if member.state == "active"]
        if not active:
            yield "consumer_inactive", True
        loading = sum(other.memory == "loading" for other in self.books.values())
        if all(self.open_of(name) + loading >= member.limit for name, member in active):
            yield "consumer_full", all(self.open_of(name) >= member.limit for name, member in active)
        if book.memory == "spilled" and self.dispatcher.stats().loaded >= self.config.window:
            yield "window_full", False
        yield from self.subscription_reasons()

    # A call

    def call(self, name: str, *args: Any, **options: Any) -> list[Any]:
        """Make a call, and judge what it returns and what the queries say afterwards."""
        self.log.append((self.now, name, args, options))
        self.before = {offset: (book.open, book.attempt) for offset, book in self.books.items()}
        self.deadline, self.called = self.dispatcher.next_deadline_ms(), self.now
        mark, known, owners = self.dispatcher.restart_mark, len(self.offered), self.owners_now()
        self.endings: list[tuple[int, Ending]] = []
        self.failed_alone: list[Book] = []
        self.gave_up: list[int] = []
        self.last_run: bytes | None = None
        if name not in ("offer", "ack", "nack", "reject", "release", "loaded", "dead_lettered", "extend"):
            self.ready_groups.clear()  # a call of several steps: a group may have closed and opened in between
        effects: list[Any] = getattr(self.dispatcher, name)(*args, now_ms=self.now, **options)
        getattr(self, f"made_{name}", lambda *_, **__: None)(effects, *args, **options)
        self.read(name, effects, options)
        changed = len(self.offered) > known or any(
            offset not in self.back and how is not Ending.EARLIER for offset, how in self.endings
        )
        self.check(not changed or self.dispatcher.restart_mark != mark, "settled-once: restart_mark", mark)
        self.look_at_moves(name, args, owners)
        self.look(name, effects)
        return effects

    def owners_now(self) -> dict[bytes, str | None]:
        filtered = any(member.filters for member in self.members.values())
        return {} if filtered else {key: self.dispatcher.owner(key) for key in self.seen}

    def look_at_moves(self, name: str, args: tuple[Any, ...], owners: dict[bytes, str | None]) -> None:
        """A join moves keys only to the newcomer, and a leave only the keys of the one that leaves."""
        if name not in ("add_consumer", "remove_consumer") or any(member.filters for member in self.members.values()):
            return
        for key, before in owners.items():
            after = self.dispatcher.owner(key)
            moved = after if name == "add_consumer" else before
            self.check(before == after or moved == args[0] or before is None, "minimal-move", key, before, after)

    def read(self, name: str, effects: list[Any], options: dict[str, Any]) -> None:
        """Bring the books up to date with the effects, in their order, and judge each."""
        floor = 0
        for effect in effects:
            if isinstance(effect, STATE):
                floor = len(FLOORS)
                continue
            found = next(number for number, kinds in enumerate(FLOORS) if isinstance(effect, kinds))
            self.check(found >= floor, "order of effects", effects)
            floor = found
            if not isinstance(effect, Done):
                getattr(self, f"read_{type(effect).__name__.lower()}")(effect, name, options)
        for kind in STATE:
            self.check(sum(isinstance(effect, kind) for effect in effects) <= 1, "state twice", effects)
        told = [(effect.offset, effect.how) for effect in effects if isinstance(effect, Done)]
        wanted = self.endings if self.config.tell_settled else []
        self.check(Counter(told) == Counter(wanted), "settled-once", told, wanted)

    def settle(self, book: Book, how: Ending) -> None:
        self.check(book.offset in self.books, "no-loss: settled twice", book.offset, how)
        del self.books[book.offset]
        self.lanes[self.lane_key(book)].remove(book)
        self.letters.pop(book.offset, None)
        self.settled[book.offset] = how
        self.ended[how] += 1
        self.endings.append((book.offset, how))
        self.idle(self.lane_key(book))
        self.count_holes()

    def count_holes(self) -> None:
        """Note whether as many stretches above the position are settled as may be, and more."""
        most = self.config.max_ack_holes
        if most is None:
            return
        logged = {book.offset for book in self.books.values() if not book.back}
        above = [offset in logged for offset in self.offered if logged and offset > min(logged)]
        holes = sum(not here and (number == 0 or above[number - 1]) for number, here in enumerate(above))
        self.full = holes > most or (self.full and holes > most // 2)

    def idle(self, key: bytes | None) -> None:
        """Note since when nothing of the key's session is open."""
        session = self.sessions.get(key) if key is not None else None
        if session is not None:
            busy = any(book.open is not None for book in self.lane(key))
            session.idle_since = None if busy else self.now if session.idle_since is None else session.idle_since

    # Effects

    def read_ignored(self, effect: Ignored, *_: object) -> None:
        self.counts["ignored"] += 1

    def read_evicted(self, effect: Evicted, name: str, _: object) -> None:
        member = self.members.get(effect.consumer)
        self.check(name == "handle_timeout", "rule 9: only time evicts", effect)
        self.check(member is not None and member.deadline is not None, "eviction of a connected consumer", effect)
        assert member is not None and member.deadline is not None
        self.check(member.state == "inactive" and member.deadline <= self.now, "grace", effect, member.deadline)
        del self.members[effect.consumer]

    def read_released(self, effect: Released, name: str, options: dict[str, Any]) -> None:
        book = self.books.get(effect.offset)
        self.check(book is not None, "fence: released unknown", effect)
        assert book is not None
        self.check((book.open, book.attempt) == (effect.consumer, effect.attempt), "fence: released", effect, book.open)
        fails = effect.reason in FAILURES and not book.noted and not book.gone
        if book.failures is not None:
            self.check(effect.failures == book.failures + fails, "attempts: failures", effect, book.failures)
        book.failures = effect.failures
        self.counts["failed"] += fails
        if effect.reason is ReleaseReason.ACK_TIMEOUT:
            due = book.deadline
            self.check(
                name == "handle_timeout" and due is not None and due <= self.now, "not-early: timeout", effect, due
            )
        if effect.reason in ALONE:
            self.failed_alone.append(book)
        if fails and options.get("reason") is not None and name in ("nack", "reject"):
            book.reason = options["reason"]
        self.put_back(book, effect, options, fails=fails)
        self.old.append((effect.offset, effect.consumer, effect.attempt))
        key = self.lane_key(book)
        self.queued.pop(book.offset if key is None else key, None)  # it waits anew
        self.idle(key)

    def put_back(self, book: Book, effect: Released, options: dict[str, Any], *, fails: bool) -> None:
        """Note that the delivery has ended, and judge when the message may go out again."""
        book.ended.append((effect.attempt, effect.consumer))
        book.open = book.deadline = None
        most = self.config.retry.max_redeliveries
        poison = fails and (effect.reason is ReleaseReason.REJECTED or (most is not None and effect.failures > most))
        dropped = effect.reason is ReleaseReason.EVICTED and self.config.on_evict.value == "drop"
        final = poison or dropped or book.noted or book.gone
        self.check(
            (effect.retry_at_ms is None) == final,
            "attempts: retry_at_ms",
            effect,
            poison,
            dropped,
            book.noted,
            book.gone,
        )
        if final:
            self.gave_up.append(book.offset)
            if poison and not dropped and self.poison == "quarantine" and book.key is not None:
                self.quarantined.add(book.key)
            return
        at = effect.retry_at_ms
        assert at is not None
        if effect.reason is ReleaseReason.RELEASED:
            self.check(at == self.now + options.get("delay_ms", 0), "not-early: release", effect)
            book.waits = "postponed" if at > self.now else None
        elif effect.reason in (ReleaseReason.NACKED, ReleaseReason.ACK_TIMEOUT):
            longest = self.config.retry.max_delay_ms
            asked = options.get("delay_ms")
            if asked is None or effect.reason is not ReleaseReason.NACKED:
                asked = 0
            first = min(max(asked, self.config.retry.base_delay_ms), longest)
            self.check(self.now + first <= at <= self.now + longest, "not-early: retry", effect, asked)
            book.waits = "retry_wait" if at > self.now else None
        else:
            self.check(at == self.now, "progress: retry at once", effect)
        book.until = at

    def read_blocked(self, effect: Blocked, name: str, _: object) -> None:
        book = self.books[effect.offset]
        self.check(self.poison.startswith("block"), "Blocked by another policy", effect)
        self.check(
            book.open is None and (effect.key, effect.reason) == (self.key_told(book), book.reason),
            "reason-travels",
            effect,
        )
        book.blocked, book.dead = True, False
        self.letters.pop(book.offset, None)

    def read_dropped(self, effect: Dropped, *_: object) -> None:
        self.check(self.books[effect.offset].open is None, "Dropped while open", effect)
        self.settle(self.books[effect.offset], Ending.DROPPED)

    def read_skipped(self, effect: Skipped, name: str, _: object) -> None:
        book = self.books.get(effect.offset)
        self.check(book is not None and book.open is None, "Skipped", effect)
        assert book is not None
        how = {
            SkipReason.UNMATCHED: Ending.UNMATCHED,
            SkipReason.GONE: Ending.GONE,
            SkipReason.SUPERSEDED: Ending.SUPERSEDED,
        }[effect.reason]
        if how is Ending.SUPERSEDED:
            self.check(self.latest(book.key) and not book.ever and not book.back, "latest-only", effect, book.ever)
            newer = [other for other in self.lane(book.key) if other.offset > book.offset]
            self.check(newer and name in ("offer", "offer_many"), "latest-only: nothing newer", effect)
        elif how is Ending.UNMATCHED:
            self.check(
                self.config.unmatched is Unmatched.SKIP and name in ("offer", "offer_many"), "no-loss: rule 4", effect
            )
            self.check(
                self.members and not any(m.accepts(book.key) for m in self.members.values()), "no-loss: rule 4", effect
            )
            older = [one for one in self.lane(book.key) if one.offset < book.offset]
            self.check(book.key is None or not older, "no-loss: skipped although the key has a lane", effect)
        else:
            self.check(book.gone, "no-loss: gone without being told", effect)
        self.settle(book, how)

    def read_settled(self, effect: Settled, name: str, _: object) -> None:
        book = self.books[effect.offset]
        self.check(book.open is None, "Settled while open", effect)
        if effect.reason is SettleReason.PARKED:
            self.check(name == "park" and book.blocked, "park", effect)
        else:
            self.check(book.noted, "no-loss: late ack without an ack", effect)
        self.settle(book, Ending.PARKED if effect.reason is SettleReason.PARKED else Ending.LATE_ACK)

    def read_spilled(self, effect: Spilled, *_: object) -> None:
        book = self.books.get(effect.offset)
        self.check(self.config.spill, "bounds: spill=False", effect)
        self.check(book is not None and book.open is None and not book.back, "spilled", effect)
        assert book is not None
        self.check(book.memory == "loaded", "spilled twice", effect, book.memory)
        book.memory = "spilled"

    def read_keyended(self, effect: KeyEnded, name: str, _: object) -> None:
        session = self.sessions.pop(effect.key, None)
        self.check(
            session is not None and (session.consumer, session.number) == effect[1:3], "one-session: ended", effect
        )
        assert session is not None and self.config.sessions is not None
        self.check(not any(book.open for book in self.lane(effect.key)), "one-session: ended while open", effect)
        if effect.reason is KeyEnd.IDLE and session.flushing is False:
            idle = self.now if session.idle_since is None else session.idle_since
            self.check(idle + self.config.sessions.linger_ms <= self.now, "one-session: lingers", effect, idle)
        if effect.reason is KeyEnd.FLUSH_TIMEOUT:
            until = session.flushing
            self.check(
                isinstance(until, int) and until is not False and until <= self.now,
                "one-session: flush time",
                effect,
                until,
            )

    def read_keyending(self, effect: KeyEnding, *_: object) -> None:
        session = self.sessions.get(effect.key)
        self.check(
            session is not None and (session.consumer, session.number) == effect[1:], "one-session: ending", effect
        )
        assert session is not None and self.config.sessions is not None
        self.check(not any(book.open for book in self.lane(effect.key)), "one-session: flush while open", effect)
        flush = self.config.sessions.flush_ms
        self.check(flush != 0 and session.flushing is False, "one-session: flushed twice", effect)
        session.flushing = None if flush is None else self.now + flush

    def read_keybegun(self, effect: KeyBegun, *_: object) -> None:
        self.check(effect.key not in self.sessions, "one-session: overlap", effect)
        self.check(effect.session > self.numbers.get(effect.key, 0), "one-session: number again", effect)
        self.numbers[effect.key] = effect.session
        self.sessions[effect.key] = Session(effect.consumer, effect.session)

    def read_deadletter(self, effect: DeadLetter[Any], *_: object) -> None:
        book = self.books.get(effect.offset)
        self.check(book is not None and book.open is None and not book.dead, "fence: DeadLetter", effect)
        assert book is not None
        self.check(
            self.poison in ("dead_letter", "block_and_dead_letter", "quarantine"), "DeadLetter by policy", effect
        )
        older = [other for other in self.lane(book.key) if other.offset < book.offset]
        self.check(book.key not in self.quarantined or not older, "key-order: archived past", effect)
        attempt = book.attempt or book.base
        self.check((effect.key, effect.attempt) == (self.key_told(book), attempt), "DeadLetter names", effect, attempt)
        self.check(effect.reason == book.reason and effect.item == book.item, "reason-travels", effect, book.reason)
        book.dead = True
        self.letters[effect.offset] = effect

    def read_load(self, effect: Load, *_: object) -> None:
        book = self.books.get(effect.offset)
        self.check(
            book is not None and book.memory == "spilled" and effect.key == self.key_told(book), "fence: Load", effect
        )
        assert book is not None
        book.memory = "loading"
        for pair in [pair for pair in self.ready if pair[0] == self.lane_key(book)]:
            del self.ready[pair]  # it has had its turn

    def read_deliver(self, effect: Deliver[Any], name: str, options: dict[str, Any]) -> None:
        """Judge a delivery against the promises that the moment of delivery must hold."""
        book = self.books.get(effect.offset)
        self.check(book is not None and book.open is None, "one-holder: delivered twice", effect)
        assert book is not None
        key = self.lane_key(book)
        self.check(effect.key == self.key_told(book), "the key of a delivery", effect)
        self.check(effect.item == book.item and book.memory == "loaded", "bounds: delivered without payload", effect)
        self.check(not (book.dead or book.blocked), "key-order: it is held", effect)
        in_steps = name in (
            "ack_many",
            "ack_through",
            "offer_many",
        )  # between its steps there may have been fewer holes
        self.check(not self.full or in_steps or book.offset == min(self.books), "token-budget", effect)
        if book.waits is not None:
            self.check(False, "not-early", effect, book.until)
        self.check(effect.attempt > max(book.attempt, book.base), "fence: attempt", effect, book.attempt)
        if book.failures is not None:
            self.check(effect.failures == book.failures, "attempts: failures", effect, book.failures)
        book.failures = effect.failures
        most = self.config.retry.max_redeliveries
        self.check(most is None or book.pardoned or effect.failures <= most, "attempts", effect)
        member = self.members.get(effect.consumer)
        self.check(member is not None and member.state == "active", "affinity: no active consumer", effect)
        assert member is not None
        if key is not None:
            self.deliver_keyed(book, key, effect)
        else:
            self.check(member.accepts(None), "affinity: rule 11", effect)
        if name != "pull":
            self.check(self.open_of(effect.consumer) < member.limit, "bounds: consumer", effect, member.limit)
        top = self.config.max_in_flight
        self.check(top is None or self.opened() < top, "bounds: max_in_flight", effect)
        self.deliver_group(book, effect)
        self.turn(book, effect, only=options.get("only") is not None)
        book.open, book.attempt, book.ever = effect.consumer, effect.attempt, True
        timeout = self.config.ack_timeout_ms
        book.deadline = None if timeout is None else self.now + timeout
        self.counts["delivered"] += 1
        if key is not None and key in self.sessions:
            self.sessions[key].idle_since = None

    def deliver_keyed(self, book: Book, key: bytes, effect: Deliver[Any]) -> None:
        lane = self.lane(book.key)
        passed = [other for other in lane if other.offset < book.offset and not other.open]
        self.check(not any(other.back for other in passed), "redrive-order", effect)
        self.check(all(other.back for other in passed), "key-order", effect)
        opened = [other for other in lane if other.open is not None]
        self.check(all(other.open == effect.consumer for other in opened), "one-holder", effect)
        self.check(key not in self.quarantined, "key-order: quarantine", effect)
        if self.config.unit is not DrainUnit.KEY:
            self.check(self.holders_of_unit(key) <= {effect.consumer}, "one-holder: drain unit", effect)
        self.check(self.owner(key) == effect.consumer, "affinity", effect, self.dispatcher.owner(key))
        self.check(len(opened) < self.limit_of(key), "bounds: max_in_flight_per_key", effect)
        if self.config.batch_per_key > 1:
            self.check(not opened or self.last_run == key, "whole-batch", effect)
        if self.config.sessions is not None:
            session = self.sessions.get(key)
            self.check(session is not None and session.consumer == effect.consumer, "one-session", effect)
            assert session is not None
            self.check(session.flushing is False, "one-session: delivered while it flushes", effect)

    def deliver_group(self, book: Book, effect: Deliver[Any]) -> None:
        group = self.group(book.key)
        if group is None:
            return
        self.check(group not in self.paused_groups, "group-fairness: paused", effect)
        opened = sum(other.open is not None and self.group(other.key) == group for other in self.books.values())
        most = self.group_limit(group, "max_in_flight")
        self.check(most is None or opened < most, "group-fairness: max_in_flight", effect)
        if self.group_limit(group, "per_second") is not None:
            level = self.permits(group) - 1_000
            self.permits_at[group] = level, self.now
            self.check(level >= 0, "group-fairness: rate", effect, level)

    def permits(self, group: str) -> int:
        """Return the permits of a group with a rate, in thousandths."""
        full: int = 1_000 * self.group_limit(group, "burst")
        level, since = self.permits_at.get(group, (full, self.now))
        rate: int = self.group_limit(group, "per_second")
        return min(full, level + rate * (self.now - since))

    def turn(self, book: Book, effect: Deliver[Any], *, only: bool) -> None:
        """Count whom this delivery passes over."""
        key, consumer = self.lane_key(book), effect.consumer
        again = key is not None and self.last_run == key
        since = self.queued.pop(book.offset if key is None else key, None)
        if key is None and since is not None and not only and book.offset not in self.was_loaded:
            self.check(not self.waits_longer(consumer, since), "fairness: rule 11", effect, self.queued)
        self.last_run = key
        if key is None or only or book.offset in self.was_loaded:
            self.ready.pop((key, consumer), None) if key is not None else None
            self.was_loaded.discard(book.offset)
            return
        self.ready.pop((key, consumer), None)
        if again and self.config.batch_per_key > 1:
            return
        self.turn_of_group(key, consumer, effect)
        for (other, name), counts in self.ready.items():
            if name == consumer and self.group(other) == self.group(key) and self.is_free(other):
                counts[key] += 1
                self.check(counts[key] <= 1, "fairness", effect, other)

    def waits_longer(self, consumer: str, since: int) -> list[bytes | int]:
        """Return the keys of no group, and messages without a key, that waited for the consumer before a call."""
        longer = [lane for lane, began in self.queued.items() if began < since]
        keyed = [lane for lane in longer if isinstance(lane, bytes) and self.is_free(lane) and not self.group(lane)]
        keyless = [lane for lane in longer if isinstance(lane, int) and self.is_loaded(self.books[lane])]
        return [
            *(lane for lane in keyed if self.dispatcher.owner(lane) == consumer),
            *(lane for lane in keyless if self.members[consumer].accepts(None)),
        ]

    def is_loaded(self, book: Book) -> bool:
        return book.memory == "loaded" and not book.waits

    def turn_of_group(self, key: bytes, consumer: str, effect: Deliver[Any]) -> None:
        """Count which groups with a ready key this turn passes over, and how often its group has done so."""
        group = self.group(key)
        if group is None:
            return
        self.ready_groups.pop((group, consumer), None)
        for (other, name), counts in self.ready_groups.items():
            ready = any(self.group(one) == other and at == name and self.is_free(one) for one, at in self.ready)
            if name == consumer and ready and not self.is_closed(other):
                counts[group] += 1
                self.check(counts[group] <= self.group_limit(group, "weight"), "group-fairness", effect, other, counts)

    def is_closed(self, group: str) -> bool:
        most = self.group_limit(group, "max_in_flight")
        opened = sum(one.open is not None and self.group(one.key) == group for one in self.books.values())
        return group in self.paused_groups or (most is not None and opened >= most)

    def is_free(self, key: bytes) -> bool:
        """Return whether nothing of the key itself holds what is next of it."""
        head = next((one for one in self.lane(key) if one.open is None), None)
        session = self.sessions.get(key)
        if session is not None and session.flushing is not False:
            return False
        if head is None or key in self.quarantined or head.dead or head.blocked or head.waits:
            return False
        return head.memory == "loaded" or self.loaded < self.config.window

    # What calls do that no effect tells

    def made_offer(
        self, effects: list[Any], offset: int, key: Any, item: object = None, *, not_before_ms: int | None = None
    ) -> None:
        if offset in self.books:
            return  # read again after a restart
        if offset in self.known or offset in self.settled:
            if offset not in self.offered:
                self.offered.append(offset)
            self.ended[Ending.EARLIER] += 1
            self.endings.append((offset, Ending.EARLIER))
            self.count_holes()
            return
        book = Book(offset, key.encode() if isinstance(key, str) else key, item)
        book.since = self.now
        if not_before_ms is not None and not_before_ms > self.now:
            book.waits, book.until = "not_before", not_before_ms
        self.track(book)
        if book.key is not None:
            self.seen[book.key] = None
        self.offered.append(offset)

    def made_offer_many(self, effects: list[Any], messages: Iterable[tuple[Any, ...]]) -> None:
        for message in messages:
            self.made_offer(effects, *message[:3], not_before_ms=message[3] if len(message) > 3 else None)

    def made_ack(self, effects: list[Any], offset: int, consumer: str, attempt: int) -> None:
        """Rule 7: an ack settles its delivery, or comes late, or is ignored."""
        book = self.books.get(offset)
        ignored = [one.reason for one in effects if isinstance(one, Ignored) and one[:3] == (offset, consumer, attempt)]
        if book is None:
            self.check(ignored == [IgnoredReason.UNKNOWN_OFFSET], "fence: ack of what is settled", ignored)
        elif (book.open, book.attempt) == (consumer, attempt):
            self.check(not ignored, "fence: the current ack was ignored", ignored)
            book.open = None
            self.settle(book, Ending.ACKED)
        elif (attempt, consumer) not in book.ended:
            self.check(ignored, "fence: ack of a delivery that nobody made")
        elif book.open is not None:
            self.check(ignored == [IgnoredReason.LATE_ACK_NOTED], "fence: late ack", ignored)
            book.noted = True
        elif book.dead or book.blocked:
            wanted = IgnoredReason.DEAD_LETTERING if book.dead else IgnoredReason.BLOCKED
            self.check(ignored == [wanted], "fence: ack of what is held", ignored)
        else:
            self.check(not ignored, "fence: a late ack settles what is not open", ignored)
            self.settle(book, Ending.LATE_ACK)

    def made_ack_many(self, effects: list[Any], receipts: Iterable[tuple[int, str, int]]) -> None:
        for receipt in receipts:
            self.made_ack(effects, *receipt)

    def made_ack_through(self, effects: list[Any], offset: int, consumer: str, attempt: int) -> None:
        book = self.books.get(offset)
        if book is not None and (book.open, book.attempt) == (consumer, attempt) and self.lane_key(book) is not None:
            older = [other for other in self.lane(book.key) if other.open is not None and other.offset < offset]
            for other in older:
                other.open = None
                self.settle(other, Ending.ACKED)
        self.made_ack(effects, offset, consumer, attempt)

    def answered(self, effects: list[Any], offset: int, consumer: str, attempt: int, **_: object) -> None:
        """An answer that names no open delivery is ignored, and one that does is not."""
        book = self.books.get(offset)
        current = book is not None and (book.open, book.attempt) == (consumer, attempt)
        self.check(current != any(isinstance(effect, Ignored) for effect in effects), "fence", effects)

    made_nack = made_reject = made_release = answered

    def made_extend(
        self, effects: list[Any], offset: int, consumer: str, attempt: int, *, extend_ms: int | None = None
    ) -> None:
        self.answered(effects, offset, consumer, attempt)
        book = self.books.get(offset)
        if book is None or (book.open, book.attempt) != (consumer, attempt) or book.deadline is None:
            return
        length = self.config.ack_timeout_ms if extend_ms is None else extend_ms
        assert length is not None
        batch = self.config.batch_per_key > 1 and book.key is not None
        for other in self.lane(book.key) if batch else [book]:
            if other.open is not None:
                other.deadline = self.now + length

    def made_loaded(self, effects: list[Any], offset: int, item: object = None) -> None:
        book = self.books.get(offset)
        asked = book is not None and book.memory == "loading"
        self.check(asked != any(isinstance(one, Ignored) for one in effects), "loaded", effects)
        if asked:
            assert book is not None
            book.memory, book.item = "loaded", item
            self.was_loaded.add(offset)

    def made_gone(self, effects: list[Any], offset: int) -> None:
        if offset in self.books:
            self.books[offset].gone = True

    def made_truncate(self, effects: list[Any], before: int) -> None:
        for book in self.books.values():
            book.gone = book.gone or (book.offset < before and not book.back)

    def made_dead_lettered(self, effects: list[Any], offset: int) -> None:
        book = self.books.get(offset)
        asked = book is not None and book.dead
        self.check(asked != any(isinstance(one, Ignored) for one in effects), "dead_lettered", effects)
        if not asked:
            return
        assert book is not None
        self.stored[offset] = (book.key, book.attempt, book.item)
        if self.poison != "block_and_dead_letter":
            self.settle(book, Ending.DEAD_LETTERED)

    def made_unblock(self, effects: list[Any], key: Any) -> None:
        key = key.encode() if isinstance(key, str) else key
        self.quarantined.discard(key)
        for book in self.lane(key):
            if book.blocked:
                book.blocked, book.failures = False, 0
            elif not book.dead and book.waits is None and book.open is None:
                book.failures = None

    def made_unblock_offset(self, effects: list[Any], offset: int, *, reset_failures: bool = True) -> None:
        book = self.books.get(offset)
        if book is not None and book.blocked:
            self.check(not any(isinstance(one, Ignored) for one in effects), "unblock_offset", effects)
            book.blocked = False
            book.failures = 0 if reset_failures else book.failures
            book.pardoned = not reset_failures
        else:
            self.check(any(isinstance(one, Ignored) for one in effects), "unblock_offset", effects)

    def made_park(self, effects: list[Any], offset: int) -> None:
        book = self.books.get(offset)
        blocked = book is not None and book.blocked
        self.check(blocked == any(isinstance(one, Settled) for one in effects), "park", effects)

    def made_redrive(self, effects: list[Any], key: Any, letters: Iterable[tuple[int, int, object]]) -> None:
        key = key.encode() if isinstance(key, str) else key
        refused = {one.offset: one.reason for one in effects if isinstance(one, Ignored)}
        for offset, attempt, item in letters:
            if key in self.quarantined:
                self.check(refused.get(offset) is IgnoredReason.IS_QUARANTINED, "redrive-order: quarantined", effects)
            elif offset in self.books:
                self.check(refused.get(offset) is IgnoredReason.IS_OUTSTANDING, "redrive-order: outstanding", effects)
            else:
                self.check(offset not in refused, "redrive-order", effects)
                book = Book(offset, key, item)
                book.base, book.back = attempt, True
                self.back.add(offset)
                self.track(book)
                self.stored.pop(offset, None)

    def made_flushed(self, effects: list[Any], key: Any, session: int) -> None:
        known = self.sessions.get(key)
        flushing = known is not None and known.number == session and known.flushing is not False
        self.check(flushing != any(isinstance(one, Ignored) for one in effects), "flushed", effects)

    def made_add_consumer(
        self, effects: list[Any], name: str, *, limit: int | None = None, filters: Iterable[str] = ()
    ) -> None:
        most = self.config.max_in_flight_per_consumer if limit is None else limit
        self.members[name] = Member(most, tuple(filters))

    def made_remove_consumer(self, effects: list[Any], name: str, *, drain_ms: int | None = 0) -> None:
        member = self.members.get(name)
        if member is None:
            self.check(effects == [], "rule 6: unknown name", effects)
        elif drain_ms == 0:
            del self.members[name]
        else:
            member.state = "draining"
            member.deadline = None if drain_ms is None else self.now + drain_ms

    def made_set_inactive(self, effects: list[Any], name: str) -> None:
        member = self.members.get(name)
        if member is not None and member.state == "active":
            member.state = "inactive"
            grace = self.config.inactive_grace_ms
            member.deadline = None if grace is None else self.now + grace

    def made_set_active(self, effects: list[Any], name: str, *, resumed: bool = False) -> None:
        member = self.members[name]
        member.state, member.deadline = "active", None
        if resumed:
            self.check(not any(isinstance(one, Released) for one in effects), "rule 6: resumed", effects)
        else:
            lost = {one.offset for one in effects if isinstance(one, Released)}
            held = {offset for offset, (holder, _) in self.before.items() if holder == name}
            self.check(held <= lost, "rule 6: lost session", held, lost)

    def made_set_limit(self, effects: list[Any], name: str, limit: int) -> None:
        self.members[name].limit = limit

    def made_set_filters(self, effects: list[Any], name: str, filters: Iterable[str]) -> None:
        self.members[name].filters = tuple(filters)

    def made_set_weight(self, effects: list[Any], name: str, weight: int) -> None:
        self.members[name].weight = weight

    def made_set_placement(self, effects: list[Any], placement: object) -> None:
        self.slot_bits = None

    def made_pause_group(self, effects: list[Any], name: str) -> None:
        self.paused_groups.add(name)

    def made_resume_group(self, effects: list[Any], name: str) -> None:
        self.paused_groups.discard(name)

    def made_set_group(self, effects: list[Any], name: str, **limits: Any) -> None:
        level = None if self.group_limit(name, "per_second") is None else self.permits(name)
        self.group_limits[name] = {"max_in_flight": None, "per_second": None, "weight": 1, "burst": 1} | limits
        self.permits_at.pop(name, None)
        if level is not None and self.group_limit(name, "per_second") is not None:
            self.permits_at[name] = min(level, 1_000 * self.group_limit(name, "burst")), self.now

    def made_handle_timeout(self, effects: list[Any]) -> None:
        self.check(self.deadline is not None or not effects, "rule 9: nothing was due", effects)
        early = self.deadline is None or self.deadline > self.now
        self.check(not early or effects == [], "rule 9: an early call is free", self.deadline, effects)
        for book in self.books.values():
            if book.waits is not None and book.until <= self.now:
                book.waits = None
        for name, member in list(self.members.items()):
            if member.state == "draining" and member.deadline is not None and member.deadline <= self.now:
                del self.members[name]

    def made_pull(
        self, effects: list[Any], name: str, most: int, *, only: int | None = None, per_key: int | None = None
    ) -> None:
        deliveries = [one for one in effects if isinstance(one, Deliver)]
        self.check(len(deliveries) <= most and all(one.consumer == name for one in deliveries), "pull", effects)
        self.check(only is None or all(one.offset == only for one in deliveries), "pull(only=)", effects)

    # What the queries say after a call

    def look(self, name: str, effects: list[Any]) -> None:
        """Compare the queries with the books, and judge the promises about what holds between two calls."""
        dispatcher = self.dispatcher
        if self.judged is None:
            dispatcher.check_invariants()
        self.look_at_ends(name)
        self.look_at_members()
        self.look_at_cursor(effects)
        self.check({one.offset for one in dispatcher.outstanding()} == set(self.books), "no-loss", sorted(self.books))
        opened = {(book.offset, book.open, book.attempt) for book in self.books.values() if book.open is not None}
        self.check({one.receipt for one in dispatcher.in_flight()} == opened, "in_flight", opened)
        self.look_at_obligations(effects)
        self.look_at_bounds(name, effects)
        self.look_at_sessions(name)
        self.look_at_health()
        self.look_at_waiting()
        self.look_at_deadline()

    def look_at_deadline(self) -> None:
        """Rule 9: `next_deadline_ms` is exact, where the books know of every deadline."""
        config, told = self.config, self.dispatcher.next_deadline_ms()
        due = [book.deadline for book in self.books.values() if book.deadline is not None]
        due += [book.until for book in self.books.values() if book.waits is not None]
        due += [member.deadline for member in self.members.values() if member.deadline is not None]
        for session in self.sessions.values():
            if session.flushing is not False and session.flushing is not None:
                due.append(session.flushing)
            elif config.sessions is not None and session.idle_since is not None and session.flushing is False:
                due.append(session.idle_since + config.sessions.linger_ms)
        first = min(due, default=None)
        if first is not None:
            self.check(told is not None and told <= max(first, self.now), "not-early: next_deadline_ms", told, first)
        if config.drain_timeout_ms is None and (self.rules is None or self.rules.group_of is None):
            self.check(told == first, "not-early: next_deadline_ms", told, first)

    def restored(self, dispatcher: KeySharedDispatcher[Any]) -> None:
        """Go on with what was restored from a snapshot under the same settings; the log may be read again."""
        self.check(dispatcher.snapshot() == self.dispatcher.snapshot(), "resume: another snapshot")
        self.dispatcher = dispatcher

    def resumed_from_token(self, dispatcher: KeySharedDispatcher[Any]) -> None:
        """Begin a life that knows what was settled, and nothing else."""
        for book in self.books.values():
            if book.back:
                self.stored[book.offset] = (book.key, book.attempt or book.base, book.item)
        outstanding = {book.offset for book in self.books.values() if not book.back}
        self.dispatcher = dispatcher
        self.known |= set(self.offered) - outstanding
        for table in (self.books, self.lanes, self.members, self.sessions, self.numbers, self.letters, self.ready):
            table.clear()
        for group in (self.group_limits, self.permits_at, self.ready_groups, self.drains, self.ended, self.counts):
            group.clear()
        for some in (self.quarantined, self.paused_groups, self.was_loaded, self.offered):
            some.clear()
        self.cursor, self.full, self.old = dispatcher.safe_cursor, False, []
        self.paused = dispatcher.free_slots == 0

    def adopted(self, dispatcher: KeySharedDispatcher[Any], config: DispatcherConfig) -> None:
        """Go on with a dispatcher that was restored under other settings: it may have handed something out."""
        self.dispatcher, self.config = dispatcher, config
        self.before = {offset: (book.open, book.attempt) for offset, book in self.books.items()}
        self.ready, self.ready_groups, self.drains, self.last_run = {}, {}, {}, None
        self.endings, self.failed_alone, self.gave_up = [], [], []
        for one in dispatcher.sessions():
            if one.key not in self.sessions:
                self.read_keybegun(KeyBegun(one.key, one.consumer, one.session))
        effects: list[Any] = dispatcher.outstanding_effects()
        for effect in effects:
            book = None if isinstance(effect, KeyEnding) else self.books.get(effect.offset)
            if isinstance(effect, Load) and book is not None and book.memory != "loading":
                self.read_load(effect)
            elif isinstance(effect, DeadLetter) and book is not None and not book.dead:
                self.read_deadletter(effect)
            elif isinstance(effect, Deliver) and book is not None and book.open is None:
                self.read_deliver(effect, "restore", {})
        self.count_holes()
        self.paused = None if dispatcher.free_slots else True

    def look_at_ends(self, name: str) -> None:
        for offset in self.gave_up:
            book = self.books.get(offset)
            held = book is None or book.dead or book.blocked or book.key in self.quarantined
            self.check(held, "no-loss: nothing became of it", offset)
        for failed in self.failed_alone:
            if self.config.batch_per_key > 1 and failed.key is not None:
                stays = [
                    one.offset
                    for one in self.lane(failed.key)
                    if one.offset > failed.offset
                    and one.open
                    and self.before.get(one.offset) == (one.open, one.attempt)
                ]
                self.check(not stays, "whole-batch: the newer ones come back", failed.offset, stays)
        if self.config.batch_per_key > 1 and name in ("ack", "add_consumer"):
            self.look_at_turns()
        if name == "handle_timeout":
            for book in self.books.values():
                self.check(
                    book.deadline is None or book.deadline > self.now, "progress: overdue", book.offset, book.deadline
                )
            self.look_at_drains()
            for consumer, member in self.members.items():
                self.check(member.deadline is None or member.deadline > self.now, "progress: overdue", consumer)
        for latest, lane in self.lanes.items():
            if self.latest(latest):
                first = [
                    one.offset for one in lane if not (one.ever or one.open or one.back or one.dead or one.blocked)
                ]
                self.check(len(first) <= 1, "latest-only: several wait", latest, first)

    def look_at_turns(self) -> None:
        """A turn of a key takes all that may go out together, of what was there before."""
        for key, lane in self.lanes.items():
            opened = [one for one in self.lane(key) if one.open]
            began = key is not None and opened and not any(self.before[one.offset][0] for one in lane)
            if not began or len(opened) >= self.limit_of(key) or self.full or self.group(key) is not None:
                continue
            head = next((one for one in self.lane(key) if not one.open), None)
            holder, top = str(opened[0].open), self.config.max_in_flight
            loading = sum(one.memory == "loading" for one in self.books.values())  # they reserve capacity
            room = self.open_of(holder) + self.loading_at(holder) < self.members[holder].limit
            room = room and (top is None or self.opened() + loading < top)
            held = head is None or head.dead or head.blocked or not self.is_loaded(head)
            self.check(held or not room, "whole-batch: a turn takes all that may go", key, opened[0].offset)

    def look_at_drains(self) -> None:
        """What a lane has waited for too long has ended."""
        length = self.config.drain_timeout_ms
        if length is None:
            return
        for key, since in self.drains.items():
            owner = self.dispatcher.owner(key)
            moved = [one for one in self.lane(key) if one.open and one.open != owner]
            stays = [one.offset for one in moved if self.before.get(one.offset) == (one.open, one.attempt)]
            self.check(since + length > self.now or not stays, "progress: the drain is over", key, since, stays)

    def look_at_members(self) -> None:
        keeps = {session.consumer for session in self.sessions.values()}
        for name, member in list(self.members.items()):
            if member.state == "draining" and not self.open_of(name) and name not in keeps:
                del self.members[name]
        told = {name: (one.state, one.limit) for name, one in self.dispatcher.stats().consumers.items()}
        wanted = {name: (member.state, member.limit) for name, member in self.members.items()}
        self.check(set(told) == set(wanted), "members", told, wanted)
        for name, (state, limit) in wanted.items():
            self.check(told[name][0] == state, "members", name, told[name], state)
            self.check(state == "draining" or told[name][1] == limit, "members", name, told[name], limit)

    def look_at_cursor(self, effects: list[Any]) -> None:
        logged = [book.offset for book in self.books.values() if not book.back]
        lowest = min(logged) if logged else None
        below = [offset for offset in self.offered if lowest is None or offset < lowest]
        wanted = max([*below, *([self.cursor] if self.cursor is not None else [])], default=None)
        self.check(self.dispatcher.safe_cursor == wanted, "safe-cursor", self.dispatcher.safe_cursor, wanted)
        told = [effect.safe_cursor for effect in effects if isinstance(effect, CursorAdvanced)]
        self.check(told == ([wanted] if wanted != self.cursor else []), "safe-cursor: CursorAdvanced", told, wanted)
        self.cursor = wanted
        if lowest is not None:
            self.check(
                self.dispatcher.resume_offset == lowest,
                "safe-cursor: resume_offset",
                self.dispatcher.resume_offset,
                lowest,
            )
        ranges = self.dispatcher.acked_ranges()
        covered = {offset for offset in self.offered if any(start <= offset < stop for start, stop in ranges)}
        above = {offset for offset in self.offered if lowest is not None and offset > lowest} - set(logged)
        self.check(covered == above, "safe-cursor: acked_ranges", ranges, sorted(above))

    def look_at_obligations(self, effects: list[Any]) -> None:
        listed: list[Any] = self.dispatcher.outstanding_effects()
        told = Counter((type(one).__name__, one.key if isinstance(one, KeyEnding) else one.offset) for one in listed)
        wanted = Counter[Any]()
        for book in self.books.values():
            kinds = [("Deliver", book.open), ("DeadLetter", book.dead), ("Load", book.memory == "loading")]
            wanted.update((kind, book.offset) for kind, holds in kinds if holds)
        wanted.update(("KeyEnding", key) for key, one in self.sessions.items() if one.flushing is not False)
        self.check(told == wanted, "fence: outstanding_effects", told - wanted, wanted - told)
        for effect in effects:
            if isinstance(effect, (DeadLetter, Load, Deliver, KeyEnding)):
                self.check(self.dispatcher.is_current(effect), "fence: asks for something that has ended", effect)

    def look_at_bounds(self, name: str, effects: list[Any]) -> None:
        config, books = self.config, self.books.values()
        loaded = sum(book.memory != "spilled" for book in books)
        self.loaded = loaded
        beyond = config.max_ack_holes is not None or any(one[1] == "pull" for one in self.log[-200:])
        self.check(loaded <= config.window + beyond, "bounds: window", loaded)
        self.check(not config.spill or len(books) <= config.max_tracked, "bounds: max_tracked", len(books))
        if config.spill:
            for key, lane in self.lanes.items():
                in_memory = sum(one.memory != "spilled" and not one.back for one in lane)
                self.check(
                    key is None or in_memory <= config.max_loaded_per_key, "bounds: max_loaded_per_key", key, in_memory
                )
        free = self.dispatcher.free_slots
        room = config.window - loaded
        if config.spill:
            room = min(room, config.max_tracked - len(books))
        if config.look_ahead is not None:
            connected = sum(member.state != "draining" for member in self.members.values())
            limits = (config.look_ahead.per_consumer * connected, config.look_ahead.per_subscription)
            most = min((one for one, of in zip(limits, (config.look_ahead.per_consumer, limits[1]), strict=True) if of))
            room = min(room, most - self.waiting())
        self.check(free == max(room, 0), "bounds: free_slots", free, room)
        if config.max_waiting_per_key is not None:
            for key in self.lanes:
                waits = sum(one.open is None for one in self.lanes[key])
                wanted = max(0, min(free, config.max_waiting_per_key - waits) if key is not None else free)
                self.check(self.dispatcher.room_for(key) == wanted, "bounds: room_for", key, wanted)
        if config.spill and name != "restore":
            returned = [book for book in books if book.open is None and book.ever and not book.back and not book.dead]
            kept = [book for book in returned if book.memory == "loaded" and book.offset not in self.was_loaded]
            crowd = self.waiting_in_memory()[0]
            newest = {one.offset for one in effects if isinstance(one, Released)}
            crowded = crowd > config.window // 2 + 1 and any(book.offset in newest for book in kept)
            self.check(not crowded, "isolation: what came back fills the window", crowd, [one.offset for one in kept])
        resumed = [one.free_slots for one in effects if isinstance(one, Resumed)]
        quarter = max(1, config.window // 4)
        if self.paused and config.look_ahead is None:
            self.check(bool(resumed) == (free >= quarter), "bounds: Resumed", resumed, free, quarter)
        else:
            # Within one call loads may fill the window, and what is settled may free it again.
            within = config.spill and len(effects) > 1
            self.check(not resumed or self.paused is not False or within, "Resumed without a pause", resumed)
        self.check(not resumed or resumed == [free], "Resumed tells free_slots", resumed, free)
        self.paused = free == 0 or (False if resumed else self.paused)
        if self.paused is False and free < quarter and any(isinstance(one, Load) for one in effects):
            self.paused = None  # the loads of this call may have filled the window for a moment
        offered = self.books.get(self.log[-1][2][0]) if name == "offer" and config.spill else None
        if offered is not None and offered.offset not in self.before and offered.open is None and not offered.dead:
            self.look_at_spill(offered)

    def look_at_spill(self, book: Book) -> None:
        """Rule 3: a message that cannot go out is spilled in three cases, and in no other."""
        keyed = self.lane_key(book) is not None
        others = [one for one in self.lane(book.key) if one is not book] if keyed else []
        most = self.config.max_loaded_per_key
        key_full = sum(one.memory != "spilled" and not one.back for one in others) >= most
        may_spill = sum(one.memory != "spilled" for one in others) >= most  # what has come back counts, or does not
        behind = any(one.memory == "spilled" for one in others)
        loaded, with_loading = self.waiting_in_memory()
        loaded, with_loading = loaded - (book.memory == "loaded"), with_loading - (book.memory == "loaded")
        half = (self.config.window + 1) // 2
        if book.memory == "spilled":
            self.check(may_spill or behind or with_loading >= half, "spilled too soon", book.offset, with_loading)
        else:
            has_its_slot = Ending.SUPERSEDED in dict(self.endings).values()
            has_its_slot = has_its_slot or any(one.dead and one.memory == "spilled" for one in others)
            self.check(has_its_slot or not (behind or (key_full and keyed)), "rule 3: not spilled", book.offset)
            self.check(loaded < half or has_its_slot, "isolation: waits beyond half the window", book.offset, loaded)

    def look_at_sessions(self, name: str) -> None:
        if self.config.sessions is None:
            return
        told = {one.key: (one.consumer, one.session) for one in self.dispatcher.sessions()}
        self.check(
            told == {k: (s.consumer, s.number) for k, s in self.sessions.items()}, "one-session: sessions()", told
        )
        for key, session in self.sessions.items():
            self.check(
                session.consumer in self.members, "one-session: of a consumer that is gone", key, session.consumer
            )
            holds = any(book.open for book in self.lane(key))
            if holds or session.flushing is not False:
                until = None if isinstance(session.flushing, bool) else session.flushing
                over = until is not None and name == "handle_timeout" and until <= self.now
                self.check(not over, "one-session: flush is over", key)
                continue
            self.check(self.owner(key) == session.consumer, "one-session: the key has moved", key, session.consumer)
            linger = self.config.sessions.linger_ms
            idle = self.now if session.idle_since is None else session.idle_since
            self.check(linger, "one-session: does not linger", key)
            self.check(name != "handle_timeout" or idle + linger > self.now, "one-session: lingers too long", key, idle)

    def look_at_health(self) -> None:
        if not self.config.measure:
            return
        health = self.dispatcher.health(busiest=100)
        self.check(health.ended == {how: n for how, n in self.ended.items() if n}, "health-adds-up", health, self.ended)
        ages = [self.called - book.since for book in self.books.values() if not book.back]
        oldest = max(ages, default=None)
        right = health.oldest_ms is None if oldest is None else oldest <= (health.oldest_ms or 0) <= oldest + 1_000
        self.check(right, "health-adds-up: oldest_ms", health.oldest_ms, oldest)
        told = (health.delivered, health.failed)
        self.check(told == (self.counts["delivered"], self.counts["failed"]), "health-adds-up", told, self.counts)
        if self.config.ordering_required:
            return
        sizes = {key: len(lane) for key, lane in self.lanes.items() if lane and key is not None}
        self.check(dict(health.busiest) == sizes, "health-adds-up: busiest", health.busiest, sizes)

    def look_at_waiting(self) -> None:
        """Ask of every message that is not open why, and compare; what nothing keeps has been forgotten."""
        ready: dict[tuple[bytes, str], Counter[bytes]] = {}
        queued: dict[bytes | int, int] = {}
        groups: dict[tuple[str, str], Counter[str]] = {}
        drains: dict[bytes, int] = {}
        for book in self.books.values():
            said = self.dispatcher.why_blocked(book.offset)
            if book.open is not None:
                self.check(said is None, "why_blocked of what is open", book.offset, said)
                continue
            allowed = []
            for reason, surely in self.reasons(book):
                allowed.append(reason)
                if surely:
                    break
            self.check(allowed, "progress: nothing keeps it", book.offset, said)
            self.check(said is not None and said.reason in allowed, "why_blocked", book.offset, said, allowed)
            assert said is not None
            if said.reason in ("older_waits", "quarantined") and said.behind is not None:
                older = self.books.get(said.behind)
                self.check(older is not None and older.open is None and older.offset < book.offset, "behind", said)
            key = self.lane_key(book)
            if said.reason == "consumer_full":
                lane = book.offset if key is None else key
                queued[lane] = self.queued.get(lane, len(self.log))
            if said.reason == "consumer_full" and key is not None:
                assert said.consumer is not None
                ready[key, said.consumer] = self.ready.get((key, said.consumer), Counter())
                if (group := self.group(key)) is not None:
                    pair = (group, said.consumer)
                    groups[pair] = self.ready_groups.get(pair, Counter())
            if said.reason == "draining" and key is not None:
                drains[key] = self.drains.get(key, self.now)
        self.ready, self.ready_groups, self.drains, self.queued = ready, groups, drains, queued
