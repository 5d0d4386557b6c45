"""Tiny histories of all kinds, most of them weird, and what is claimed of them."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from random import Random
from typing import Any

from tests.testing.slow_judge import contradicts, found_in, found_in_all

from keyshared.testing import Checker, Claims, Promise, check_history
from keyshared.testing.claims import JUDGED
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
    SessionBegun,
    SessionEnded,
    SessionEnding,
    SessionEnds,
    Settled,
    SettledBy,
    Skipped,
    Suspended,
    Unclear,
)

__all__ = ["TinyWorld", "difference", "differences", "shortest", "tiny"]

KEYS = (b"k", b"l", b"k2")
NAMES = ("a", "b", "c")
REASONS = (None, "x", "y")


def first_byte(key: bytes) -> bytes:
    return key[:1]


class TinyWorld:
    """Draws events that have to do with each other: of few messages, keys and consumers, often of those at work."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.keys: tuple[bytes | None, ...] = (*KEYS[: random.choice([1, 1, 2, 3])], *random.choice([(), (), (None,)]))
        self.names = NAMES[: random.choice([1, 2, 2, 3])]
        self.offsets = random.choice([1, 2, 3, 4])
        self.numbered = random.random() < 0.85
        self.timed = random.random() < 0.4
        self.wrong = random.choice([0.0, 0.0, 0.1, 0.4])  # how often anything at all is drawn instead of something apt
        self.now = 0
        self.key_of: dict[int, bytes | None] = {}
        self.open: dict[int, tuple[str, int]] = {}
        self.attempts: dict[int, int] = {}
        kinds: list[Callable[[], Event]] = [
            *(self.published, self.delivered, self.acked, self.nacked, self.ended, self.settled, self.given_up),
            *(self.held, self.freed, self.connected, self.gone, self.suspended, self.limit, self.placement, self.owned),
            *(self.committed, self.quiet, self.at_rest, self.redriven, self.done),
            *(self.session_begun, self.session_ending, self.session_ended, self.unclear, self.rewound),
        ]
        self.begins: list[Event] = []
        self.sessions: dict[bytes, tuple[str, int]] = {}
        # a mix of its own for each: some kinds never come, others come all the time
        self.kinds = kinds
        self.weights: list[float] = [random.choice([0, 1, 1, 3, 9]) for _ in kinds]
        often = random.choice(
            [
                self.anything,
                self.waiting,
                self.moving,
                self.answers,
                self.failing,
                self.queueing,
                self.queueing,
                self.wishing,
                self.keeping,
            ]
        )
        self.next_offset = 0
        for kind in often():
            self.weights[kinds.index(kind)] += random.choice([4, 8, 30])

    # --- what is told most of all: rare things need company -------------------------------------------------------

    def anything(self) -> Sequence[Callable[[], Event]]:
        return (self.published, self.delivered, self.connected)

    def waiting(self) -> Sequence[Callable[[], Event]]:
        return (self.published, self.published, self.connected, self.quiet, self.random.choice([self.owned, self.held]))

    def moving(self) -> Sequence[Callable[[], Event]]:
        change = self.random.choice([self.gone, self.connected, self.placement])
        return (self.connected, change, self.random.choice([self.owned, self.owned, self.delivered]))

    def answers(self) -> Sequence[Callable[[], Event]]:
        return (self.published, self.delivered, self.random.choice([self.acked, self.nacked, self.ended]))

    def failing(self) -> Sequence[Callable[[], Event]]:
        return (self.published, self.delivered, self.delivered, self.random.choice([self.nacked, self.ended]))

    def keeping(self) -> Sequence[Callable[[], Event]]:
        self.timed = self.timed or self.random.random() < 0.5
        self.names, self.keys = NAMES[:2], KEYS[:1]
        return (self.delivered, self.session_begun, self.session_ended, self.random.choice([self.acked, self.gone]))

    def wishing(self) -> Sequence[Callable[[], Event]]:
        self.timed = True
        return (self.published, self.delivered, self.delivered, self.ended)

    def queueing(self) -> Sequence[Callable[[], Event]]:
        # one consumer that owns two keys, and something that waits: else nothing stands in a queue in so few rows
        self.names, self.keys, self.offsets = NAMES[:1], KEYS[:2], 4
        self.begins = [Owned(key=key, consumer="a") for key in self.keys]
        self.weights = [min(weight, 1) / 4 for weight in self.weights]
        return (self.published, self.published, self.delivered, self.quiet, self.quiet)

    def history(self, length: int) -> list[Event]:
        return [*self.begins, *(self.random.choices(self.kinds, self.weights)[0]() for _ in range(length))]

    # --- what is said -------------------------------------------------------------------------------------------

    @property
    def at_ms(self) -> int | None:
        if not self.timed or self.random.random() < 0.3:
            return None
        self.now += self.random.choice([0, 0, 1, 5, 10, -3])
        return self.now

    def offset(self) -> int:
        return self.random.randrange(self.offsets)

    def name(self) -> str:
        return self.random.choice(self.names)

    def key(self, offset: int) -> bytes | None:
        if self.random.random() < self.wrong / 2:
            return self.random.choice(self.keys)
        return self.key_of.setdefault(offset, self.random.choice(self.keys))

    def delivery(self) -> dict[str, Any]:
        """A delivery that an answer names: mostly the open one, sometimes an earlier one, or none that ever was."""
        random = self.random
        if self.open and random.random() > self.wrong:
            offset = random.choice(list(self.open))
            consumer, attempt = self.open[offset]
        else:
            offset = self.offset()
            consumer, attempt = self.open.get(offset, (self.name(), self.attempts.get(offset, 0)))
            if random.random() < 0.5:
                consumer = self.name()
            attempt = max(0, attempt - random.choice([0, 0, 1, -1]))
        named = attempt if self.numbered and random.random() < 0.9 else None
        return {"offset": offset, "consumer": consumer, "attempt": named, "at_ms": self.at_ms}

    def counted(self) -> bool | None:
        return self.random.choice([None, True, True, True, False])

    # --- events ---------------------------------------------------------------------------------------------

    def published(self) -> Event:
        offset = self.next_offset % self.offsets if self.random.random() < 0.02 else self.next_offset
        self.next_offset = max(self.next_offset, offset) + self.random.choice([1, 1, 1, 2])
        until_ms = self.random.choice([None, None, self.now + 8])
        return Published(offset=offset, key=self.key(offset), until_ms=until_ms, at_ms=self.at_ms)

    def delivered(self) -> Event:
        random = self.random
        offset = self.offset()
        attempt = self.attempts.get(offset, 0) + (1 if random.random() > self.wrong else random.choice([0, -1, 2]))
        consumer = self.name()
        self.attempts[offset] = max(attempt, self.attempts.get(offset, 0))
        self.open[offset] = consumer, attempt
        number = attempt if self.numbered and random.random() < 0.95 else None
        return Delivered(offset=offset, key=self.key(offset), consumer=consumer, attempt=number, at_ms=self.at_ms)

    def acked(self) -> Event:
        return Acked(counted=self.counted(), **self.delivery())

    def nacked(self) -> Event:
        return Nacked(counted=self.counted(), reason=self.random.choice(REASONS), **self.delivery())

    def ended(self) -> Event:
        if self.random.random() < 0.5:
            return Expired(**self.delivery())
        until_ms = self.random.choice([None, self.now + 8, self.now + 20])
        return Released(until_ms=until_ms, **self.delivery())

    def settled(self) -> Event:
        reason = self.random.choice([*SettledBy, SettledBy.SUPERSEDED])
        return Settled(offset=self.offset(), reason=reason, at_ms=self.at_ms)

    def given_up(self) -> Event:
        if self.random.random() < 0.4:
            return DeadLettered(offset=self.offset(), reason=self.random.choice(REASONS), at_ms=self.at_ms)
        if self.random.random() < 0.5:
            return Dropped(offset=self.offset(), at_ms=self.at_ms)
        return Skipped(offset=self.offset(), at_ms=self.at_ms)

    def done(self) -> Event:
        return Done(offset=self.offset(), at_ms=self.at_ms)

    def redriven(self) -> Event:
        offset = self.random.randrange(max(1, min(self.next_offset, self.offsets)))
        attempt = self.random.choice([None, 0, self.attempts.get(offset, 0)])
        return Redriven(offset=offset, key=self.key(offset), attempt=attempt, at_ms=self.at_ms)

    def held(self) -> Event:
        until_ms = self.random.choice([None, self.now + 1, self.now + 8])
        reason = self.random.choice(list(HoldReason))
        return Held(offset=self.offset(), reason=reason, until_ms=until_ms, at_ms=self.at_ms)

    def freed(self) -> Event:
        return Freed(offset=self.offset(), at_ms=self.at_ms)

    def connected(self) -> Event:
        return Connected(consumer=self.name(), limit=self.random.choice([None, None, 0, 1, 2]), at_ms=self.at_ms)

    def gone(self) -> Event:
        return Gone(consumer=self.name(), drains=self.random.random() < 0.4, at_ms=self.at_ms)

    def suspended(self) -> Event:
        name, at_ms = self.name(), self.at_ms
        either: list[Event] = [Suspended(consumer=name, at_ms=at_ms), Resumed(consumer=name, at_ms=at_ms)]
        return self.random.choice(either)

    def limit(self) -> Event:
        return LimitChanged(consumer=self.name(), limit=self.random.choice([None, 0, 1, 2]), at_ms=self.at_ms)

    def placement(self) -> Event:
        return PlacementChanged(at_ms=self.at_ms)

    def owned(self) -> Event:
        key = self.random.choice([key for key in (*self.keys, b"") if key is not None])
        return Owned(key=key, consumer=self.random.choice([*self.names, None]), at_ms=self.at_ms)

    def session_begun(self) -> Event:
        key, consumer = self.known_key(), self.name()
        number = self.sessions.get(key, ("", 0))[1] + (1 if self.random.random() > self.wrong else 0)
        self.sessions[key] = consumer, number
        return SessionBegun(key=key, consumer=consumer, session=number, at_ms=self.at_ms)

    def session_ending(self) -> Event:
        return SessionEnding(**self.session(), at_ms=self.at_ms)

    def session_ended(self) -> Event:
        return SessionEnded(**self.session(), reason=self.random.choice(list(SessionEnds)), at_ms=self.at_ms)

    def session(self) -> dict[str, Any]:
        key = self.known_key()
        consumer, number = self.sessions.get(key, (self.name(), 1))
        return {"key": key, "consumer": consumer, "session": number - (self.random.random() < self.wrong)}

    def known_key(self) -> bytes:
        return self.random.choice([key for key in (*self.keys, *self.keys, b"") if key is not None])

    def unclear(self) -> Event:
        return Unclear(offset=self.offset(), reason=self.random.choice(REASONS), at_ms=self.at_ms)

    def rewound(self) -> Event:
        resume = self.random.choice([None, 0, self.random.randrange(self.offsets + 1)])
        return Rewound(resume_offset=resume, at_ms=self.at_ms)

    def committed(self) -> Event:
        return Committed(resume_offset=self.random.randrange(self.offsets + 2), at_ms=self.at_ms)

    def quiet(self) -> Event:
        return Quiet(at_ms=self.at_ms)

    def at_rest(self) -> Event:
        return AtRest(at_ms=self.at_ms)


def is_short(key: bytes) -> bool:
    """Whether of a key only the latest message counts."""
    return len(key) < 2  # one of the keys is longer


def byte_sum(key: bytes) -> int:
    """How many deliveries of a key may be open."""
    return 1 + sum(key) % 2


def claimed(random: Random) -> Claims:
    """Any claims that go together."""
    some = frozenset(promise for promise in sorted(JUDGED) if random.random() < 0.8)
    total_order = random.random() < 0.1
    latest_only: bool | Callable[[bytes], bool] = random.random() < 0.4
    if not total_order and random.random() < 0.2:
        latest_only = is_short
    timeout = random.choice([None, None, 1, 5])
    return Claims(
        promises=random.choice([JUDGED, JUDGED - {Promise.FENCE}, some]),
        per_key=random.choice([1, 1, 2, None]),
        batches=random.random() < 0.3,
        limit_of=byte_sum if not total_order and random.random() < 0.3 else None,
        latest_only=latest_only,
        per_consumer=random.choice([None, None, 0, 1, 2]),
        max_tracked=random.choice([None, None, 1, 2]),
        rewinds=random.random() < 0.3,
        unit_of=first_byte if not total_order and random.random() < 0.3 else None,
        total_order=total_order,
        open_at_once=random.choice([None, None, 1, 2]),
        fairness=random.choice([None, 0, 0, 0, 1]),
        max_attempts=random.choice([None, 1, 1, 2]),
        nack_holds_key=random.random() < 0.7,
        ack_timeout_ms=timeout,
        cursor_keeps_up=random.random() < 0.5,
        tells_done=random.random() < 0.7,
        sessions=random.random() < 0.5,
        linger_ms=random.choice([None, 0, 5]),
        may_drop=random.random() < 0.5,
        may_skip=random.random() < 0.5,
        may_dead_letter=random.random() < 0.5,
        tolerance_ms=0 if timeout == 1 else random.choice([0, 0, 1, 4]),
    )


def merged(history: list[Event], random: Random) -> list[Event]:
    """As logs of several sides are merged: some rows stand too late, or too early, or twice, or nowhere."""
    late = random.random() < 0.5
    kept: list[tuple[float, Event]] = []
    for at, event in enumerate(history):
        place = at + (random.choice([0, 1.5, 3.5]) if late and isinstance(event, Published) else 0.0)
        chance = random.random()
        if chance < 0.03:
            place += random.choice([-2.5, 2.5])
        if chance < 0.95:
            kept.append((place, event))
        if chance > 0.98:
            kept.append((place + random.choice([0.0, 1.5]), event))
    kept.sort(key=lambda each: each[0])  # those in one place stay in their order
    return [event for _, event in kept]


def tiny(seed: int) -> tuple[Claims, list[Event]]:
    """The history of a seed, and what is claimed of it."""
    random = Random(seed)  # reproducible, not secret
    history = TinyWorld(random).history(random.randrange(3, 16))
    return claimed(random), merged(history, random)


LAZY = {Promise.PROGRESS, Promise.SAFE_CURSOR}
"""What goes on for long is said once, where it shows first: later rows would be right as well."""


def difference(history: Sequence[Event], claims: Claims) -> str | None:
    """What the checker and the slow judge do not agree on, or None."""
    checker = Checker(claims)
    right = found_in(history, claims)
    said = {(violation.promise, row) for row, event in enumerate(history) for violation in checker.feed(event)}
    for promise in sorted(claims.promises):
        rows = {row for each, row in right if each == promise}
        named = {row for each, row in said if each == promise}
        if promise in LAZY and rows:
            missing = set() if named and min(named) == min(rows) else {min(rows)}
        else:
            missing = rows - named
        if missing or named - rows:
            return f"{promise}: right would be {sorted(rows)}, the checker says {sorted(named)}"
    overtaken = {row for promise, row in found_in_all(history, claims) if promise is Promise.KEY_ORDER}
    told = {each.proof[-1] for each in check_history(history, claims) if each.promise is Promise.KEY_ORDER}
    if overtaken != told:
        return f"key-order of what is not lost: right would be {sorted(overtaken)}, told is {sorted(told)}"
    return None


def shortest(history: Sequence[Event], claims: Claims) -> list[Event]:
    """A history on which they still do not agree, of which no row can be left out."""
    kept = list(history)
    while True:
        shorter = (kept[:at] + kept[at + 1 :] for at in range(len(kept)))
        found = next((each for each in shorter if not contradicts(each) and difference(each, claims)), None)
        if found is None:
            return kept
        kept = found


def differences(seeds: Iterable[int]) -> Iterator[str]:
    """What there is to say of each seed on which they do not agree: the shortest history that shows it."""
    for seed in seeds:
        claims, history = tiny(seed)
        if not contradicts(history) and difference(history, claims):
            least = shortest(history, claims)
            rows = "\n".join(f"{row:3} {event}" for row, event in enumerate(least))
            yield f"tiny({seed}): {difference(least, claims)}\n{claims}\n{rows}"
