"""A lease queue written for reading: two dicts, and everything else found by scanning them.

It shares no code with the real one, and knows neither lanes nor timers. As a judge it is told which versions were
handed out, and refuses those that must not be, or too few; on its own it hands out the lowest ones, so a variant of it
with a fault can be put before the judge like the real queue.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from keyshared.config import DrainUnit
from keyshared.leases import LeaseConfig
from keyshared.placement import AssignedRanges
from keyshared.retry import Poison

__all__ = ["BROKEN", "ForbiddenError", "SlowLeases"]


class ForbiddenError(AssertionError):
    """Something was handed out that must not be, or held back that must not be."""


@dataclass
class Message:
    """An outstanding version."""

    version: int
    key: str | None
    state: str = "ready"  # or blocked, dead_lettering
    until: int = 0  # end of the nack delay
    count: int = 0  # committed leases that have covered it
    gone: bool = False


@dataclass
class Hold:
    """A reservation or a lease."""

    id: int
    consumer: str
    committed: bool
    deadlines: dict[int, int] = field(default_factory=dict)  # of each version


class SlowLeases:
    """The slow, obvious lease queue."""

    def __init__(self, config: LeaseConfig, ranges: AssignedRanges) -> None:
        self.config = config
        self.ranges = ranges
        self.now = 0
        self.messages: dict[int, Message] = {}  # what is outstanding, by version
        self.holds: dict[int, Hold] = {}
        self.offered: list[int] = []
        self.consumers: list[str] = []  # that may ask
        self.finishing: list[str] = []
        self.last_id = 0
        self.given: list[int] = []
        self.events: list[tuple[Any, ...]] = []

    # --- calls ------------------------------------------------------------------------------------------------------

    def offer(self, version: int, key: str | None) -> None:
        self.offered.append(version)
        self.messages[version] = Message(version, key)

    def add_consumer(self, name: str) -> None:
        self.consumers.append(name)

    def remove_consumer(self, name: str, *, finish: bool) -> None:
        for hold in list(self.holds.values()):
            for version in list(hold.deadlines) if hold.consumer == name and not finish else []:
                if hold.committed:
                    self.events.append(("released", version, name))
                    self.fail(version)
                else:
                    self.let_go(version)
        self.consumers = [other for other in self.consumers if other != name]
        self.ranges = self.ranges.copy()
        if name in self.ranges.consumers:
            self.ranges.remove(name)
        self.finishing = [other for other in [*self.finishing, name] if self.held_by(other)]

    def set_placement(self, ranges: AssignedRanges) -> None:
        self.ranges = ranges

    def plan(self, consumer: str, most: int, picks: Sequence[int] | None = None) -> tuple[Any, ...]:
        return self.hand_out(consumer, most, picks, committed=False)

    def consume(self, consumer: str, most: int, picks: Sequence[int] | None = None) -> tuple[Any, ...]:
        return self.hand_out(consumer, most, picks, committed=True)

    def hand_out(self, consumer: str, most: int, picks: Sequence[int] | None, *, committed: bool) -> tuple[Any, ...]:
        cap = self.cap(consumer)
        if cap:
            self.require(not picks, f"{picks} in spite of {cap}")
            return ("nothing", cap)
        reason = "ack_holes" if self.too_many_holes else "not_ready"
        hold = Hold(self.last_id + 1, consumer, committed=False)
        self.holds[hold.id] = hold
        taken: list[int] = []
        for _ in range(most):
            able = [] if self.cap(consumer) else self.deliverable(consumer)
            if picks is not None:
                self.require(len(taken) < len(picks) or not able, f"{able} held back from {consumer}")
                self.require(len(taken) == len(picks) or picks[len(taken)] in able, f"{picks} where {able} may go")
            if not able or (picks is not None and len(taken) == len(picks)):
                break
            taken.append(able[0] if picks is None else picks[len(taken)])
            hold.deadlines[taken[-1]] = self.now + self.reservation_ms
        if not taken:
            del self.holds[hold.id]
            return ("nothing", reason)
        self.last_id += 1
        self.given.append(self.last_id)
        if committed:
            self.make_lease(hold)
        counts = [(version, self.messages[version].count + (not committed)) for version in taken]
        return ("hold", hold.id, counts, min(hold.deadlines.values()))

    def commit(self, hold_id: int) -> tuple[Any, ...]:
        if problem := self.no_reservation(hold_id):
            return ("invalid", problem)
        self.make_lease(self.holds[hold_id])
        versions = [(version, self.messages[version].count) for version in self.holds[hold_id].deadlines]
        return ("hold", hold_id, versions, self.now + self.config.visibility_timeout_ms)

    def abort(self, hold_id: int) -> tuple[Any, ...] | None:
        if problem := self.no_reservation(hold_id):
            return ("invalid", problem)
        for version in list(self.holds[hold_id].deadlines):
            self.let_go(version)
        return None

    def ack(self, version: int, lease_id: int) -> tuple[Any, ...] | None:
        if problem := self.no_lease(version, lease_id):
            return ("invalid", problem)
        self.end(version)
        del self.messages[version]
        return None

    def nack(self, version: int, lease_id: int, *, delay_ms: int) -> tuple[Any, ...] | None:
        if problem := self.no_lease(version, lease_id):
            return ("invalid", problem)
        self.fail(version, delay_ms)
        return None

    def extend(self, version: int, lease_id: int, additional_ms: int) -> int | tuple[Any, ...]:
        if problem := self.no_lease(version, lease_id):
            return ("invalid", problem)
        hold = self.covering(version)
        assert hold is not None
        before = hold.deadlines[version]
        hold.deadlines[version] = min(before + additional_ms, self.now + self.config.visibility_timeout_ms)
        return hold.deadlines[version]

    def dead_lettered(self, version: int) -> str | None:
        message = self.messages.get(version)
        if message is None or message.state != "dead_lettering":
            return "unknown_offset" if message is None else "not_dead_lettering"
        if self.config.poison == Poison.DEAD_LETTER:
            del self.messages[version]
        else:
            message.state = "blocked"
            self.events.append(("blocked", version))
        return None

    def park(self, version: int) -> str | None:
        message = self.messages.get(version)
        if message is None or message.state != "blocked":
            return "unknown_offset" if message is None else "not_blocked"
        del self.messages[version]
        self.events.append(("settled", version))
        return None

    def unblock(self, version: int, *, reset_attempts: bool) -> str | None:
        message = self.messages.get(version)
        if message is None or message.state != "blocked":
            return "unknown_offset" if message is None else "not_blocked"
        message.state = "ready"
        message.count = 0 if reset_attempts else message.count
        return None

    def gone(self, version: int) -> None:
        message = self.messages.get(version)
        if message and self.covering(version):
            message.gone = True
        elif message:
            del self.messages[version]
            self.events.append(("skipped", version))

    def handle_timeout(self) -> None:
        """Nothing but what time does."""

    def crash(self, epoch: int) -> None:
        self.last_id = max(self.last_id, epoch << 32)

    # --- time, and how a delivery ends ------------------------------------------------------------------------------

    def pass_time(self, now: int) -> None:
        self.now = now
        for hold, version in self.due():
            if not hold.committed:
                self.let_go(version)
        for hold, version in self.due():
            self.events.append(("released", version, hold.consumer))
            self.fail(version)

    def due(self) -> list[tuple[Hold, int]]:
        return [(hold, version) for hold, version, deadline in self.everything_held() if deadline <= self.now]

    def let_go(self, version: int) -> None:
        self.end(version)
        if self.messages[version].gone:
            del self.messages[version]
            self.events.append(("skipped", version))

    def fail(self, version: int, delay_ms: int = 0) -> None:
        self.let_go(version)
        message = self.messages.get(version)
        if message is None:
            return
        if self.is_exhausted(message):
            self.poison(message)
        else:
            message.until = self.now + delay_ms

    def is_exhausted(self, message: Message) -> bool:
        most = self.config.max_delivery_attempts
        return most is not None and message.count >= most

    def poison(self, message: Message) -> None:
        if self.config.poison == Poison.DROP:
            del self.messages[message.version]
            self.events.append(("dropped", message.version))
        elif self.config.poison == Poison.BLOCK:
            message.state = "blocked"
            self.events.append(("blocked", message.version))
        else:
            message.state = "dead_lettering"
            self.events.append(("dead_letter", message.version))

    def end(self, version: int) -> None:
        hold = self.covering(version)
        assert hold is not None
        del hold.deadlines[version]
        if not hold.deadlines:
            del self.holds[hold.id]

    def make_lease(self, hold: Hold) -> None:
        hold.committed = True
        for version in hold.deadlines:
            hold.deadlines[version] = self.now + self.config.visibility_timeout_ms
            self.messages[version].count += 1

    # --- what may go out --------------------------------------------------------------------------------------------

    def deliverable(self, consumer: str) -> list[int]:
        """The versions of which any may be the next one that this consumer gets, lowest first."""
        candidates = [self.keep_from] if self.too_many_holes else list(self.messages)
        return [version for version in candidates if self.may_get(consumer, self.messages[version])]

    def may_get(self, consumer: str, message: Message) -> bool:
        if not self.is_ready(message) or not self.owns(consumer, message):
            return False
        lane = [other for other in self.messages.values() if self.same_lane(message, other)]
        holders = [hold.consumer for other in lane for hold in [self.covering(other.version)] if hold]
        beside = [hold.consumer for hold, version, _ in self.everything_held() if self.same_unit(message, version)]
        older = [other for other in lane if other.version < message.version]
        return (
            all(self.lets_pass(other) for other in older)
            and self.one_holder(holders + beside, consumer)
            and len(holders) < self.config.max_in_flight_per_key
        )

    def is_ready(self, message: Message) -> bool:
        return message.state == "ready" and message.until <= self.now and self.covering(message.version) is None

    def owns(self, consumer: str, message: Message) -> bool:
        if message.key is None or self.config.ordering_required:
            return True
        return self.ranges.ranges.owner_of(message.key) == consumer

    def same_lane(self, one: Message, other: Message) -> bool:
        if self.config.ordering_required or one is other:
            return True
        return one.key is not None and one.key == other.key

    def same_unit(self, one: Message, version: int) -> bool:
        """Whether the two are handed over together, by the ranges of now."""
        other = self.messages[version]
        if one.key is None or other.key is None or self.config.ordering_required:
            return False
        ranges = self.ranges.ranges
        slots = [ranges.slot_of(key) for key in (one.key, other.key)]
        match self.config.unit:
            case DrainUnit.KEY:
                return one.key == other.key
            case DrainUnit.HASH:
                return slots[0] == slots[1]
            case DrainUnit.RANGE:
                runs = [[start for start, stop, _ in ranges.runs if start <= slot < stop] for slot in slots]
                return runs[0] == runs[1]

    def lets_pass(self, older: Message) -> bool:
        return self.covering(older.version) is not None

    def one_holder(self, holders: Sequence[str], consumer: str) -> bool:
        return all(holder == consumer for holder in holders)

    def cap(self, consumer: str) -> str | None:
        if self.config.ordering_required and any(self.held_by(other) for other in self.everybody if other != consumer):
            return "line_held"
        if len(self.held_by(consumer)) >= self.config.max_in_flight_per_consumer:
            return "consumer_limit"
        most = self.config.max_in_flight
        return "queue_limit" if most is not None and len(list(self.everything_held())) >= most else None

    # --- facts found by scanning ------------------------------------------------------------------------------------

    @property
    def everybody(self) -> list[str]:
        return [*self.consumers, *self.finishing]

    @property
    def reservation_ms(self) -> int:
        return min(self.config.reservation_timeout_ms, self.config.visibility_timeout_ms)

    @property
    def keep_from(self) -> int:
        return min(self.messages, default=self.offered[-1] + 1 if self.offered else -1)

    @property
    def holes(self) -> int:
        above = [version in self.messages for version in self.offered if version > self.keep_from]
        return sum(not here and (index == 0 or above[index - 1]) for index, here in enumerate(above))

    @property
    def too_many_holes(self) -> bool:
        return self.config.max_ack_holes is not None and self.holes > self.config.max_ack_holes

    def everything_held(self) -> Iterator[tuple[Hold, int, int]]:
        for hold in list(self.holds.values()):
            for version, deadline in list(hold.deadlines.items()):
                yield hold, version, deadline

    def covering(self, version: int) -> Hold | None:
        return next((hold for hold in self.holds.values() if version in hold.deadlines), None)

    def held_by(self, consumer: str) -> list[int]:
        return [version for hold, version, _ in self.everything_held() if hold.consumer == consumer]

    def no_reservation(self, hold_id: int) -> str | None:
        if hold_id in self.holds:
            return "committed" if self.holds[hold_id].committed else None
        return "ended" if hold_id in self.given else "unknown"

    def no_lease(self, version: int, lease_id: int) -> str | None:
        hold, message = self.covering(version), self.messages.get(version)
        if hold:
            return "stale" if hold.id != lease_id else None if hold.committed else "not_committed"
        if message:
            return "not_leased" if message.state == "ready" else message.state
        if not self.offered or version > self.offered[-1]:
            return "not_offered"
        return "below_trim" if version < self.keep_from else "settled"

    def require(self, holds: object, fact: str) -> None:
        if not holds:
            raise ForbiddenError(fact)

    def facts(self) -> dict[str, object]:
        """What anybody may ask between two calls."""
        delayed = [message for message in self.messages.values() if message.until > self.now]
        held = list(self.everything_held())
        deadlines = [deadline for *_, deadline in held] + [message.until for message in delayed]
        states = [message.state for message in self.messages.values()]
        return {
            "keep_from": self.keep_from if self.offered else None,
            "depth": len(self.messages),
            "leased": sum(hold.committed for hold, *_ in held),
            "reserved": sum(not hold.committed for hold, *_ in held),
            "delayed": len(delayed),
            "blocked": states.count("blocked"),
            "dead_lettering": states.count("dead_lettering"),
            "holes": self.holes,
            "held": {name: len(self.held_by(name)) for name in self.everybody if self.held_by(name)},
            "counts": {version: message.count for version, message in self.messages.items()},
            "next deadline": min(deadlines, default=None),
            "can get": {name: not self.cap(name) and bool(self.deliverable(name)) for name in self.consumers},
        }


# --- variants with a fault ------------------------------------------------------------------------------------------


class ReservationsNeverExpire(SlowLeases):
    """A committer that crashes keeps its versions for ever."""

    def due(self) -> list[tuple[Hold, int]]:
        return [(hold, version) for hold, version in super().due() if hold.committed]


class ReservationsCount(SlowLeases):
    """A delivery is counted when it is planned, committed or not."""

    def let_go(self, version: int) -> None:
        hold = self.covering(version)
        if hold and not hold.committed:
            self.messages[version].count += 1
        super().let_go(version)


class ExtendCounts(SlowLeases):
    """More time is taken for another delivery."""

    def extend(self, version: int, lease_id: int, additional_ms: int) -> int | tuple[Any, ...]:
        if not self.no_lease(version, lease_id):
            self.messages[version].count += 1
        return super().extend(version, lease_id, additional_ms)


class ExtendShortens(SlowLeases):
    """The new deadline counts from now, though the old one was later."""

    def extend(self, version: int, lease_id: int, additional_ms: int) -> int | tuple[Any, ...]:
        hold = self.covering(version)
        if hold and not self.no_lease(version, lease_id):
            hold.deadlines[version] = self.now
        return super().extend(version, lease_id, additional_ms)


class NackLetsNewerOnesPass(SlowLeases):
    """A version in its nack delay does not hold its key (Celeriant)."""

    def lets_pass(self, older: Message) -> bool:
        return super().lets_pass(older) or older.until > self.now


class PoisonLetsNewerOnesPass(SlowLeases):
    """A version that is blocked, or not yet archived, does not hold its key."""

    def lets_pass(self, older: Message) -> bool:
        return super().lets_pass(older) or older.state != "ready"


class StaleLeasesAck(SlowLeases):
    """An ack settles whatever lease it names."""

    def ack(self, version: int, lease_id: int) -> tuple[Any, ...] | None:
        hold = self.covering(version)
        return super().ack(version, hold.id if hold and hold.committed else lease_id)


class OneDeliveryTooMany(SlowLeases):
    """Poison is what has been delivered more than the maximum (Celeriant, read literally)."""

    def is_exhausted(self, message: Message) -> bool:
        most = self.config.max_delivery_attempts
        return most is not None and message.count > most


class MovesWithoutDraining(SlowLeases):
    """A key goes to its new owner while the old one still holds a lease of it."""

    def one_holder(self, holders: Sequence[str], consumer: str) -> bool:  # noqa: ARG002  # the fault
        return True


class UnitsAreKeys(SlowLeases):
    """A range is handed over key by key whatever the configuration says."""

    def same_unit(self, one: Message, version: int) -> bool:
        return one.key is not None and one.key == self.messages[version].key


class OnlyLeasesHoldTheLine(SlowLeases):
    """Two plans before either commit both pass."""

    def cap(self, consumer: str) -> str | None:
        cap = super().cap(consumer)
        others = [hold for hold in self.holds.values() if hold.consumer != consumer and hold.committed]
        return None if cap == "line_held" and not others else cap


class HolesAreNotCapped(SlowLeases):
    """Acks may leave as many holes as they like."""

    @property
    def too_many_holes(self) -> bool:
        return False


class HolesStopEverything(SlowLeases):
    """With too many holes nothing at all is handed out: nobody can ever close them."""

    def deliverable(self, consumer: str) -> list[int]:
        return [] if self.too_many_holes else super().deliverable(consumer)


class RemovalCountsNothing(SlowLeases):
    """The leases of a consumer that is removed never were."""

    def remove_consumer(self, name: str, *, finish: bool) -> None:
        for hold in self.holds.values():
            if hold.consumer == name and hold.committed and not finish:
                for version in hold.deadlines:
                    self.messages[version].count -= 1
        super().remove_consumer(name, finish=finish)


class TrimPassesBlocked(SlowLeases):
    """A blocked version does not pin the trim cursor."""

    @property
    def keep_from(self) -> int:
        pinning = [version for version, message in self.messages.items() if message.state != "blocked"]
        return min(pinning, default=self.offered[-1] + 1 if self.offered else -1)

    def deliverable(self, consumer: str) -> list[int]:
        return [version for version, message in self.messages.items() if self.may_get(consumer, message)]


BROKEN = (
    ReservationsNeverExpire,
    ReservationsCount,
    ExtendCounts,
    ExtendShortens,
    NackLetsNewerOnesPass,
    PoisonLetsNewerOnesPass,
    StaleLeasesAck,
    OneDeliveryTooMany,
    MovesWithoutDraining,
    UnitsAreKeys,
    OnlyLeasesHoldTheLine,
    HolesAreNotCapped,
    HolesStopEverything,
    RemovalCountsNothing,
    TrimPassesBlocked,
)
