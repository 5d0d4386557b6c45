"""A lease queue written for reading: two dicts, and everything else found by scanning them.

It shares no code with the real one, and knows neither lanes nor timers. As a judge it is told which messages were
handed out, and refuses those that must not be, or too few; on its own it hands out the lowest ones, so a variant of it
with a fault can be put before the judge like the real queue.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.properties.slow_groups import SlowGroup, name_of_group

from keyshared.config import DrainUnit, GroupLimits, Poison, Rules
from keyshared.leases import LeaseConfig
from keyshared.placement.assigned import AssignedRanges

__all__ = ["ForbiddenError", "Hold", "Message", "SlowLeases"]


class ForbiddenError(AssertionError):
    """Something was handed out that must not be, or held back that must not be."""


@dataclass
class Message:
    """An outstanding message."""

    offset: int
    key: str | None
    state: str = "ready"  # or blocked, dead_lettering
    until: int = 0  # end of the delay that was asked for
    count: int = 0  # committed leases that have covered it
    gone: bool = False
    reason: str | None = None  # what the last failure that named one said
    was_out: bool = False  # whether it was reserved or leased, ever
    beside: bool = False  # whether it has come back from the dead-letter store


@dataclass
class Hold:
    """A reservation or a lease."""

    id: int
    consumer: str
    committed: bool
    deadlines: dict[int, int] = field(default_factory=dict)  # of each message


class SlowLeases:
    """The slow, obvious lease queue."""

    def __init__(self, config: LeaseConfig, ranges: AssignedRanges, rules: Rules | None = None) -> None:
        self.own = config
        self.config = config.dispatcher
        self.timeout_ms = config.dispatcher.ack_timeout_ms or 0  # which it is not
        self.rules = rules
        self.groups: dict[str, SlowGroup] = {}
        self.ranges = ranges
        self.now = 0
        self.messages: dict[int, Message] = {}  # what is outstanding, by message
        self.holds: dict[int, Hold] = {}
        self.offered: list[int] = []
        self.consumers: list[str] = []  # that may ask
        self.draining: dict[str, int | None] = {}  # that may finish what they hold, and until when
        self.last_id = 0
        self.given: list[int] = []
        self.events: list[tuple[Any, ...]] = []
        self.ended: dict[str, int] = {}
        self.delivered = 0
        self.failed = 0
        self.too_many_holes = False

    # --- calls ------------------------------------------------------------------------------------------------------

    def offer(self, offset: int, key: str | None, *, not_before_ms: int = 0) -> None:
        if self.offered and offset <= self.offered[-1]:  # read again after a restart
            if offset not in self.messages:
                self.tell(offset, key, "earlier")
            return
        self.offered.append(offset)
        for older in self.superseded_by(key):
            self.settle(older, "superseded")
            self.events.append(("skipped", older))
        self.messages[offset] = Message(offset, key, until=not_before_ms)

    def superseded_by(self, key: str | None) -> list[int]:
        """What a new message of a key takes the place of."""
        if key is None or not self.config.latest_only:
            return []
        of_key = [message for message in self.messages.values() if message.key == key]
        return [message.offset for message in of_key if not message.was_out and not message.beside]

    def redrive(self, key: str | None, letters: Sequence[tuple[int, int, None]]) -> list[int]:
        new = [offset for offset, *_ in letters if offset not in self.messages]
        for offset in new:
            self.come_back(offset, key)
        return sorted(offset for offset, *_ in letters if offset not in new)

    def come_back(self, offset: int, key: str | None) -> None:
        """A message stands where it always stood."""
        self.messages[offset] = Message(offset, key, beside=True)
        self.messages = dict(sorted(self.messages.items()))

    def add_consumer(self, name: str) -> None:
        self.consumers.append(name)

    def remove_consumer(self, name: str, *, drain_ms: int | None) -> None:
        if drain_ms == 0:
            self.cut_off(name)
        self.consumers = [other for other in self.consumers if other != name]
        self.ranges = self.ranges.copy()
        if name in self.ranges.consumers:
            self.ranges.remove(name)
        self.draining[name] = None if drain_ms is None else self.now + drain_ms
        self.forget_those_who_hold_nothing()

    def set_placement(self, ranges: AssignedRanges) -> None:
        self.ranges = ranges

    def set_group(self, name: str, **limits: Any) -> None:
        self.group(name).set(GroupLimits(**limits), self.now)

    def pause_group(self, name: str) -> None:
        self.group(name).paused = True

    def resume_group(self, name: str) -> None:
        self.group(name).paused = False

    def group(self, name: str) -> SlowGroup:
        """The group of that name, perhaps a new one."""
        return self.groups.setdefault(name, SlowGroup(self.config.group))

    def cut_off(self, name: str) -> None:
        for hold in list(self.holds.values()):
            for offset in list(hold.deadlines) if hold.consumer == name else []:
                if hold.committed:
                    self.fail_alone(offset)
                else:
                    self.let_go(offset)

    def reserve(
        self, consumer: str, most: int, picks: Sequence[int] | None = None, *, per_key: int | None = None
    ) -> tuple[Any, ...]:
        return self.hand_out(consumer, most, picks, per_key, committed=False)

    def consume(
        self, consumer: str, most: int, picks: Sequence[int] | None = None, *, per_key: int | None = None
    ) -> tuple[Any, ...]:
        return self.hand_out(consumer, most, picks, per_key, committed=True)

    def hand_out(
        self, consumer: str, most: int, picks: Sequence[int] | None, per_key: int | None, *, committed: bool
    ) -> tuple[Any, ...]:
        cap = self.cap(consumer)
        if cap:
            self.require(not picks, f"{picks} in spite of {cap}")
            return ("nothing", cap)
        reason = "ack_holes" if self.too_many_holes else "not_ready"
        hold = Hold(self.last_id + 1, consumer, committed=False)
        self.holds[hold.id] = hold
        taken: list[int] = []
        for _ in range(most):
            turn = self.rest_of_turn(taken, per_key or self.config.batch_per_key)
            able = [] if self.cap(consumer) else turn or self.deliverable(consumer)
            if picks is not None:
                self.require(len(taken) < len(picks) or not able, f"{able} held back from {consumer}")
                self.require(len(taken) == len(picks) or picks[len(taken)] in able, f"{picks} where {able} may go")
            if not able or (picks is not None and len(taken) == len(picks)):
                break
            taken.append(able[0] if picks is None else picks[len(taken)])
            self.messages[taken[-1]].was_out = True
            self.spend(self.messages[taken[-1]])
            hold.deadlines[taken[-1]] = self.now + self.reservation_ms
        if not taken:
            del self.holds[hold.id]
            return ("nothing", reason)
        self.last_id += 1
        self.given.append(self.last_id)
        if committed:
            self.make_lease(hold)
        counts = [(offset, self.messages[offset].count + (not committed)) for offset in taken]
        return ("hold", hold.id, counts, min(hold.deadlines.values()))

    def commit(self, hold_id: int) -> tuple[Any, ...]:
        if problem := self.no_reservation(hold_id):
            return ("invalid", problem)
        self.make_lease(self.holds[hold_id])
        offsets = [(offset, self.messages[offset].count) for offset in self.holds[hold_id].deadlines]
        return ("hold", hold_id, offsets, self.end_of(self.holds[hold_id]))

    def abort(self, hold_id: int) -> tuple[Any, ...] | None:
        if problem := self.no_reservation(hold_id):
            return ("invalid", problem)
        for offset in list(self.holds[hold_id].deadlines):
            self.let_go(offset)
        return None

    def ack(self, offset: int, lease_id: int) -> tuple[Any, ...] | None:
        if problem := self.no_lease(offset, lease_id):
            return ("invalid", problem)
        self.end(offset)
        self.settle(offset, "acked")
        return None

    def ack_through(self, offset: int, lease_id: int) -> tuple[Any, ...] | None:
        if problem := self.no_lease(offset, lease_id):
            return ("invalid", problem)
        for other in self.covered_through(offset):
            self.end(other)
            self.settle(other, "acked")
        return None

    def covered_through(self, offset: int) -> list[int]:
        """The message, and what is older of its lane in the same lease."""
        lane = [other for other in self.lane_held(offset) if self.covering(other) is self.covering(offset)]
        return [other for other in lane if other <= offset]

    def nack(self, offset: int, lease_id: int, *, delay_ms: int, reason: str | None) -> tuple[Any, ...] | None:
        if problem := self.no_lease(offset, lease_id):
            return ("invalid", problem)
        self.messages[offset].reason = reason or self.messages[offset].reason
        self.fail(offset, delay_ms)
        return None

    def reject(self, offset: int, lease_id: int, *, reason: str | None) -> tuple[Any, ...] | None:
        if problem := self.no_lease(offset, lease_id):
            return ("invalid", problem)
        self.messages[offset].reason = reason or self.messages[offset].reason
        self.fail(offset, is_last=True)
        return None

    def release(self, offset: int, lease_id: int, *, delay_ms: int) -> tuple[Any, ...] | None:
        if problem := self.no_lease(offset, lease_id):
            return ("invalid", problem)
        newer = self.newer_of_batch(offset)
        self.put_back(offset, delay_ms)
        for other in newer:
            self.put_back(other)
        return None

    def put_back(self, offset: int, delay_ms: int = 0) -> None:
        """End a lease that never was."""
        hold, message = self.covering(offset), self.messages[offset]
        assert hold is not None
        message.count -= 1
        self.let_go(offset)
        again = None
        if offset in self.messages:
            again = message.until = self.now + delay_ms
        self.events.append(("released", offset, hold.consumer, message.count, again))

    def extend(self, offset: int, lease_id: int, *, extend_ms: int | None) -> int | tuple[Any, ...]:
        if problem := self.no_lease(offset, lease_id):
            return ("invalid", problem)
        hold = self.covering(offset)
        assert hold is not None
        for other in self.lane_held(offset) if self.config.batch_per_key > 1 else [offset]:
            hold.deadlines[other] = self.now + (self.timeout_ms if extend_ms is None else extend_ms)
        return self.end_of(hold, offset)

    def dead_lettered(self, offset: int) -> str | None:
        message = self.messages.get(offset)
        if message is None or message.state != "dead_lettering":
            return "unknown_offset" if message is None else "not_dead_lettering"
        self.met(offset)
        if not self.config.archive_blocked:
            self.settle(offset, "dead_lettered")
        else:
            message.state = "blocked"
            self.events.append(("blocked", offset, message.reason))
        return None

    def met(self, offset: int) -> None:
        """What this call has asked for is met already."""
        self.events = [event for event in self.events if event[:2] != ("dead_letter", offset)]

    def park(self, offset: int) -> str | None:
        message = self.messages.get(offset)
        if message is None or message.state != "blocked":
            return "unknown_offset" if message is None else "not_blocked"
        self.settle(offset, "parked")
        self.events.append(("settled", offset))
        return None

    def unblock_offset(self, offset: int, *, reset_failures: bool) -> str | None:
        message = self.messages.get(offset)
        if message is None or message.state != "blocked":
            return "unknown_offset" if message is None else "not_blocked"
        message.state = "ready"
        message.count = 0 if reset_failures else message.count
        return None

    def gone(self, offset: int) -> None:
        message = self.messages.get(offset)
        if message and self.covering(offset):
            message.gone = True
        elif message:
            self.met(offset)
            self.settle(offset, "gone")
            self.events.append(("skipped", offset))

    def handle_timeout(self) -> None:
        """Nothing but what time does."""

    def crash(self, epoch: int) -> None:
        self.last_id = max(self.last_id, epoch << 32)

    # --- time, and how a delivery ends ------------------------------------------------------------------------------

    def pass_time(self, now: int) -> None:
        self.now = now
        for hold, offset in self.due():
            if not hold.committed:
                self.let_go(offset)
        for _, offset in self.due():
            if self.covering(offset):  # or it went back with an older one of its batch
                self.fail(offset)
        self.forget_those_who_hold_nothing()
        for name, until in list(self.draining.items()):
            if until is not None and until <= now:
                self.cut_off(name)

    def forget_those_who_hold_nothing(self) -> None:
        self.draining = {name: until for name, until in self.draining.items() if self.held_by(name)}

    def due(self) -> list[tuple[Hold, int]]:
        return [(hold, offset) for hold, offset, deadline in self.everything_held() if deadline <= self.now]

    def let_go(self, offset: int) -> None:
        self.end(offset)
        if self.messages[offset].gone:
            self.settle(offset, "gone")
            self.events.append(("skipped", offset))

    def fail(self, offset: int, delay_ms: int = 0, *, is_last: bool = False) -> None:
        """End a lease that has failed, and with it what is newer of its batch."""
        newer = self.newer_of_batch(offset)
        self.fail_alone(offset, delay_ms, is_last=is_last)
        for other in newer:
            self.put_back(other)

    def fail_alone(self, offset: int, delay_ms: int = 0, *, is_last: bool = False) -> None:
        hold, message = self.covering(offset), self.messages[offset]
        assert hold is not None
        self.let_go(offset)
        failures, again = message.count, None
        self.failed += offset in self.messages
        if offset not in self.messages:
            failures -= 1  # it is gone: this one was no failure any more
        elif is_last or self.is_exhausted(message):
            self.poison(message)
        else:
            again = message.until = self.now + delay_ms
        self.events.append(("released", offset, hold.consumer, failures, again))

    def is_exhausted(self, message: Message) -> bool:
        most = self.own.max_delivery_attempts
        return most is not None and message.count >= most

    def poison(self, message: Message) -> None:
        if self.config.poison == Poison.DROP:
            self.settle(message.offset, "dropped")
            self.events.append(("dropped", message.offset))
        elif self.config.poison == Poison.BLOCK and not self.config.archive_blocked:
            message.state = "blocked"
            self.events.append(("blocked", message.offset, message.reason))
        else:
            message.state = "dead_lettering"
            self.events.append(("dead_letter", message.offset, message.reason))

    def settle(self, offset: int, how: str) -> None:
        self.tell(offset, self.messages.pop(offset).key, how)
        self.ended[how] = self.ended.get(how, 0) + 1
        most = self.config.max_ack_holes
        self.too_many_holes = most is not None and (
            self.holes > most or (self.too_many_holes and self.holes > most // 2)
        )

    def tell(self, offset: int, key: str | None, how: str) -> None:
        if self.config.tell_settled:
            self.events.append(("done", offset, "" if self.config.ordering_required else key, how))

    def end(self, offset: int) -> None:
        hold = self.covering(offset)
        assert hold is not None
        del hold.deadlines[offset]
        if not hold.deadlines:
            del self.holds[hold.id]

    def make_lease(self, hold: Hold) -> None:
        hold.committed = True
        for offset in hold.deadlines:
            hold.deadlines[offset] = self.now + self.timeout_ms
            self.messages[offset].count += 1
            self.delivered += 1

    # --- what may go out --------------------------------------------------------------------------------------------

    def deliverable(self, consumer: str) -> list[int]:
        """The messages of which any may be the next one that this consumer gets, lowest first."""
        return [offset for offset in self.candidates() if self.may_get(consumer, self.messages[offset])]

    def can_get(self, consumer: str) -> bool:
        return any(self.may_get(consumer, self.messages[offset]) for offset in self.candidates())

    def candidates(self) -> list[int]:
        return [self.keep_from] if self.too_many_holes else list(self.messages)

    def may_get(self, consumer: str, message: Message) -> bool:
        if not self.is_ready(message) or not self.owns(consumer, message) or not self.group_is_open(message):
            return False
        lane = [other for other in self.messages.values() if self.same_lane(message, other)]
        if not all(self.lets_pass(other) for other in lane if other.offset < message.offset):
            return False
        holders = [hold.consumer for other in lane for hold in [self.covering(other.offset)] if hold]
        beside = [hold.consumer for hold, offset, _ in self.everything_held() if self.same_unit(message, offset)]
        return self.one_holder(holders + beside, consumer) and len(holders) < self.config.max_in_flight_per_key

    def rest_of_turn(self, taken: list[int], per_key: int) -> list[int]:
        """The message with which the last batch goes on, if it does."""
        lane = [offset for offset in taken if self.same_lane(self.messages[taken[-1]], self.messages[offset])]
        if not taken or len(lane) >= (1 if self.too_many_holes else per_key):
            return []
        last = self.messages[taken[-1]]
        after = [message for message in self.messages.values() if message.offset > last.offset]
        following = next((message for message in after if self.same_lane(last, message)), None)
        goes_on = following is not None and self.is_ready(following) and self.group_is_open(following)
        return [following.offset] if following is not None and goes_on else []

    def lane_held(self, offset: int) -> list[int]:
        """What is reserved or leased of a message's lane."""
        lane = [other for other in self.messages.values() if self.same_lane(self.messages[offset], other)]
        return [message.offset for message in lane if self.covering(message.offset)]

    def newer_of_batch(self, offset: int) -> list[int]:
        return [other for other in self.lane_held(offset) if other > offset] if self.config.batch_per_key > 1 else []

    def is_ready(self, message: Message) -> bool:
        return message.state == "ready" and message.until <= self.now and self.covering(message.offset) is None

    def group_of(self, message: Message) -> str | None:
        return None if self.rules is None else name_of_group(message.key)

    def group_is_open(self, message: Message) -> bool:
        name = self.group_of(message)
        return name is None or self.group(name).is_open(self.held_of(name), self.now)

    def held_of(self, name: str) -> int:
        return sum(self.group_of(self.messages[offset]) == name for _, offset, _ in self.everything_held())

    def spend(self, message: Message) -> None:
        name = self.group_of(message)
        if name is not None:
            self.group(name).spend(self.now)

    def owns(self, consumer: str, message: Message) -> bool:
        if message.key is None or self.config.ordering_required:
            return True
        return self.ranges.ranges.owner_of(message.key) == consumer

    def same_lane(self, one: Message, other: Message) -> bool:
        if self.config.ordering_required or one is other:
            return True
        return one.key is not None and one.key == other.key

    def same_unit(self, one: Message, offset: int) -> bool:
        """Whether the two are handed over together, by the ranges of now."""
        other = self.messages[offset]
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
        return self.covering(older.offset) is not None

    def one_holder(self, holders: Sequence[str], consumer: str) -> bool:
        return all(holder == consumer for holder in holders)

    def cap(self, consumer: str) -> str | None:
        if self.config.ordering_required and any(self.held_by(other) for other in self.everybody if other != consumer):
            return "line_held"
        if len(self.held_by(consumer)) >= self.config.max_in_flight_per_consumer:
            return "consumer_limit"
        most = self.own.max_in_flight
        return "queue_limit" if most is not None and len(list(self.everything_held())) >= most else None

    def end_of(self, hold: Hold, *offsets: int) -> int:
        """When the first of these ends, or of all that it covers; what drains ends with the drain."""
        until = self.draining.get(hold.consumer)
        ends = [hold.deadlines[offset] for offset in offsets or hold.deadlines]
        return min(ends if until is None else [*ends, until])

    # --- facts found by scanning ------------------------------------------------------------------------------------

    @property
    def everybody(self) -> list[str]:
        return [*self.consumers, *(name for name in self.draining if self.held_by(name))]

    @property
    def reservation_ms(self) -> int:
        return min(self.own.reservation_timeout_ms, self.timeout_ms)

    @property
    def keep_from(self) -> int:
        return min(self.of_log, default=self.offered[-1] + 1 if self.offered else -1)

    @property
    def of_log(self) -> list[int]:
        return [offset for offset, message in self.messages.items() if not message.beside]

    @property
    def holes(self) -> int:
        of_log = self.of_log
        above = [offset in of_log for offset in self.offered if offset > self.keep_from]
        return sum(not here and (index == 0 or above[index - 1]) for index, here in enumerate(above))

    def everything_held(self) -> Iterator[tuple[Hold, int, int]]:
        for hold in list(self.holds.values()):
            for offset, deadline in list(hold.deadlines.items()):
                yield hold, offset, deadline

    def covering(self, offset: int) -> Hold | None:
        return next((hold for hold in self.holds.values() if offset in hold.deadlines), None)

    def held_by(self, consumer: str) -> list[int]:
        return [offset for hold, offset, _ in self.everything_held() if hold.consumer == consumer]

    def no_reservation(self, hold_id: int) -> str | None:
        if hold_id in self.holds:
            return "committed" if self.holds[hold_id].committed else None
        return "ended" if hold_id in self.given else "unknown"

    def no_lease(self, offset: int, lease_id: int) -> str | None:
        hold, message = self.covering(offset), self.messages.get(offset)
        if hold:
            return "stale" if hold.id != lease_id else None if hold.committed else "not_committed"
        if message:
            return "not_leased" if message.state == "ready" else message.state
        if not self.offered or offset > self.offered[-1]:
            return "not_offered"
        return "below_trim" if offset < self.keep_from else "settled"

    @property
    def has_rates(self) -> bool:
        """Whether there are deadlines that depend on who has asked when."""
        return any(group.limits.per_second is not None for group in self.groups.values())

    def require(self, holds: object, fact: str) -> None:
        if not holds:
            raise ForbiddenError(fact)

    def facts(self) -> dict[str, object]:
        """What anybody may ask between two calls."""
        delayed = [message for message in self.messages.values() if message.until > self.now]
        held = list(self.everything_held())
        deadlines = [deadline for *_, deadline in held] + [message.until for message in delayed]
        drains = [until for name, until in self.draining.items() if until is not None and self.held_by(name)]
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
            "counts": {offset: message.count for offset, message in self.messages.items()},
            "next deadline": None if self.has_rates else min(deadlines + drains, default=None),
            "deadlines": {hold.id: self.end_of(hold) for hold in self.holds.values()},
            "paused": sorted(name for name, group in self.groups.items() if group.paused),
            "held of groups": {name: self.held_of(name) for name in self.groups if self.held_of(name)},
            "ended": self.ended if self.config.measure else None,
            "delivered": self.delivered if self.config.measure else None,
            "failed": self.failed if self.config.measure else None,
            "can get": {name: not self.cap(name) and self.can_get(name) for name in self.consumers},
        }
