"""Slow lease queues with one fault each, for the judge to find."""

from collections.abc import Sequence
from typing import Any

from tests.properties.slow_leases import Hold, Message, SlowLeases

__all__ = ["BROKEN", "RemovalBreaksBatches", "TokensAreForgotten"]


class ReservationsNeverExpire(SlowLeases):
    """A committer that crashes keeps its messages for ever."""

    def due(self) -> list[tuple[Hold, int]]:
        return [(hold, offset) for hold, offset in super().due() if hold.committed]


class ReservationsCount(SlowLeases):
    """A delivery is counted when it is reserved, committed or not."""

    def let_go(self, offset: int) -> None:
        hold = self.covering(offset)
        if hold and not hold.committed:
            self.messages[offset].count += 1
        super().let_go(offset)


class ExtendCounts(SlowLeases):
    """More time is taken for another delivery."""

    def extend(self, offset: int, lease_id: int, *, extend_ms: int | None) -> int | tuple[Any, ...]:
        if not self.no_lease(offset, lease_id):
            self.messages[offset].count += 1
        return super().extend(offset, lease_id, extend_ms=extend_ms)


class ExtendAddsToTheDeadline(SlowLeases):
    """The new time is added to what is left."""

    def extend(self, offset: int, lease_id: int, *, extend_ms: int | None) -> int | tuple[Any, ...]:
        hold = self.covering(offset)
        if hold and extend_ms and not self.no_lease(offset, lease_id):
            extend_ms += hold.deadlines[offset] - self.now
        return super().extend(offset, lease_id, extend_ms=extend_ms)


class ExtendNeverShortens(SlowLeases):
    """The old deadline stays if it is later than the new one."""

    def extend(self, offset: int, lease_id: int, *, extend_ms: int | None) -> int | tuple[Any, ...]:
        hold = self.covering(offset)
        if hold and extend_ms and not self.no_lease(offset, lease_id):
            extend_ms = max(extend_ms, hold.deadlines[offset] - self.now)
        return super().extend(offset, lease_id, extend_ms=extend_ms)


class NackLetsNewerOnesPass(SlowLeases):
    """A message in its nack delay does not hold its key (Celeriant)."""

    def lets_pass(self, older: Message) -> bool:
        return super().lets_pass(older) or older.until > self.now


class RejectedIsTriedAgain(SlowLeases):
    """What is rejected has the deliveries that are left."""

    def reject(self, offset: int, lease_id: int, *, reason: str | None) -> tuple[Any, ...] | None:
        return super().nack(offset, lease_id, delay_ms=0, reason=reason)


class ReasonsAreForgotten(SlowLeases):
    """A failure without a reason wipes out the one that was named before."""

    def fail_alone(self, offset: int, delay_ms: int = 0, *, is_last: bool = False) -> None:
        if self.messages[offset].count > 1:
            self.messages[offset].reason = None
        super().fail_alone(offset, delay_ms, is_last=is_last)


class OffersForLaterAreForNow(SlowLeases):
    """What is offered for later goes out at once."""

    def offer(self, offset: int, key: str | None, *, not_before_ms: int = 0) -> None:  # noqa: ARG002  # the fault
        super().offer(offset, key)


class MiddleFailureGoesOn(SlowLeases):
    """When one of a batch fails, the newer ones stay leased."""

    def newer_of_batch(self, offset: int) -> list[int]:  # noqa: ARG002  # the fault
        return []


class RemovalBreaksBatches(SlowLeases):
    """Of a batch whose consumer is removed only the oldest message has failed."""

    def fail_alone(self, offset: int, delay_ms: int = 0, *, is_last: bool = False) -> None:
        newer = self.newer_of_batch(offset)
        super().fail_alone(offset, delay_ms, is_last=is_last)
        for other in newer:
            self.put_back(other)

    def fail(self, offset: int, delay_ms: int = 0, *, is_last: bool = False) -> None:
        self.fail_alone(offset, delay_ms, is_last=is_last)

    def cut_off(self, name: str) -> None:
        held = [(hold, offset) for hold, offset, _ in self.everything_held() if hold.consumer == name]
        for hold, offset in held:
            if self.covering(offset) is hold:
                (self.fail if hold.committed else self.let_go)(offset)


class SecondBatchBesideTheFirst(SlowLeases):
    """What comes later of a key is handed out beside a batch that is not done."""

    def may_get(self, consumer: str, message: Message) -> bool:
        lane = [other for other in self.messages.values() if self.same_lane(message, other)]
        mine = [hold for hold in (self.covering(other.offset) for other in lane) if hold and hold.consumer == consumer]
        is_next = all(self.covering(other.offset) for other in lane if other.offset < message.offset)
        beside = self.config.batch_per_key > 1 and mine and is_next and self.is_ready(message)
        return bool(beside and self.owns(consumer, message)) or super().may_get(consumer, message)


class BatchesAreOneTooShort(SlowLeases):
    """A batch has one message less than it may have."""

    def rest_of_turn(self, taken: list[int], per_key: int) -> list[int]:
        return super().rest_of_turn(taken, per_key - 1)


class AckThroughSkipsOne(SlowLeases):
    """Of what is acked together, the oldest is forgotten."""

    def covered_through(self, offset: int) -> list[int]:
        return super().covered_through(offset)[1:] or [offset]


class AckThroughTakesOtherLeases(SlowLeases):
    """An ack settles what is older of its key in other leases too."""

    def covered_through(self, offset: int) -> list[int]:
        return [other for other in self.lane_held(offset) if other <= offset]


class PoisonLetsNewerOnesPass(SlowLeases):
    """A message that is blocked, or not yet archived, does not hold its key."""

    def lets_pass(self, older: Message) -> bool:
        return super().lets_pass(older) or older.state != "ready"


class StaleLeasesAck(SlowLeases):
    """An ack settles whatever lease it names."""

    def ack(self, offset: int, lease_id: int) -> tuple[Any, ...] | None:
        hold = self.covering(offset)
        return super().ack(offset, hold.id if hold and hold.committed else lease_id)


class OneDeliveryTooMany(SlowLeases):
    """Poison is what has been delivered more than the maximum (Celeriant, read literally)."""

    def is_exhausted(self, message: Message) -> bool:
        most = self.own.max_delivery_attempts
        return most is not None and message.count > most


class MovesWithoutDraining(SlowLeases):
    """A key goes to its new owner while the old one still holds a lease of it."""

    def one_holder(self, holders: Sequence[str], consumer: str) -> bool:  # noqa: ARG002  # the fault
        return True


class UnitsAreKeys(SlowLeases):
    """A range is handed over key by key whatever the configuration says."""

    def same_unit(self, one: Message, offset: int) -> bool:
        return one.key is not None and one.key == self.messages[offset].key


class OnlyLeasesHoldTheLine(SlowLeases):
    """Two reservations before either commit both pass."""

    def cap(self, consumer: str) -> str | None:
        cap = super().cap(consumer)
        others = [hold for hold in self.holds.values() if hold.consumer != consumer and hold.committed]
        return None if cap == "line_held" and not others else cap


class HolesAreNotCapped(SlowLeases):
    """Acks may leave as many holes as they like."""

    def settle(self, offset: int, how: str) -> None:
        super().settle(offset, how)
        self.too_many_holes = False


class HolesStopEverything(SlowLeases):
    """With too many holes nothing at all is handed out: nobody can ever close them."""

    def candidates(self) -> list[int]:
        return [] if self.too_many_holes else super().candidates()


class RemovalCountsNothing(SlowLeases):
    """The leases of a consumer that is removed never were."""

    def cut_off(self, name: str) -> None:
        for hold in self.holds.values():
            if hold.consumer == name and hold.committed:
                for offset in hold.deadlines:
                    self.messages[offset].count -= 1
        super().cut_off(name)


class DrainsNeverEnd(SlowLeases):
    """A consumer that has left keeps what it holds as long as its leases last, whatever it was granted."""

    def remove_consumer(self, name: str, *, drain_ms: int | None) -> None:
        super().remove_consumer(name, drain_ms=0 if drain_ms == 0 else None)


class AcksAreNotTold(SlowLeases):
    """Who has acked knows it, so nobody is told."""

    def tell(self, offset: int, key: str | None, how: str) -> None:
        if how != "acked":
            super().tell(offset, key, how)


class OutstandingIsTold(SlowLeases):
    """What is read again after a restart is done, outstanding or not."""

    def offer(self, offset: int, key: str | None, *, not_before_ms: int = 0) -> None:
        if offset in self.messages:
            self.tell(offset, key, "earlier")
        super().offer(offset, key, not_before_ms=not_before_ms)


class WhatIsReadAgainIsNotTold(SlowLeases):
    """A source that lost its ack in the crash never hears of it again."""

    def tell(self, offset: int, key: str | None, how: str) -> None:
        if how != "earlier":
            super().tell(offset, key, how)


class TrimPassesBlocked(SlowLeases):
    """A blocked message does not pin the trim cursor."""

    @property
    def keep_from(self) -> int:
        pinning = [offset for offset, message in self.messages.items() if message.state != "blocked"]
        return min(pinning, default=self.offered[-1] + 1 if self.offered else -1)

    def candidates(self) -> list[int]:
        return list(self.messages)


class LatestTakesReserved(SlowLeases):
    """A message whose reservation was given back is superseded although it was handed out once."""

    def let_go(self, offset: int) -> None:
        super().let_go(offset)
        if offset in self.messages:
            self.messages[offset].was_out = False


class LatestTakesWhatHasComeBack(SlowLeases):
    """A dead letter that is back is superseded by the next message of its key."""

    def come_back(self, offset: int, key: str | None) -> None:
        super().come_back(offset, key)
        self.messages[offset].beside = False


class NothingIsSuperseded(SlowLeases):
    """Who wants only the latest gets all of them."""

    def superseded_by(self, key: str | None) -> list[int]:  # noqa: ARG002  # the fault
        return []


class RedrivenAtTheEnd(SlowLeases):
    """A dead letter comes back behind everything of its key, as if it was published again."""

    def come_back(self, offset: int, key: str | None) -> None:
        super().come_back(offset, key)
        self.messages[offset] = self.messages.pop(offset)

    def may_get(self, consumer: str, message: Message) -> bool:
        first = [other for other in self.messages.values() if self.same_lane(message, other) and not other.beside]
        behind = message.beside and any(self.covering(other.offset) is None for other in first)
        return not behind and super().may_get(consumer, message)

    def lets_pass(self, older: Message) -> bool:
        return older.beside or super().lets_pass(older)


class RedrivenTwice(SlowLeases):
    """A letter that is outstanding is taken for another copy, and what is held of it is lost."""

    def redrive(self, key: str | None, letters: Sequence[tuple[int, int, None]]) -> list[int]:
        for offset, *_ in letters:
            if offset in self.messages and not self.covering(offset):
                del self.messages[offset]
        return super().redrive(key, letters)


class RedrivenMovesTheTrimCursor(SlowLeases):
    """The log has to keep what has come back."""

    @property
    def of_log(self) -> list[int]:
        return list(self.messages)


class ReservationsAreDeliveries(SlowLeases):
    """Figures count what was reserved, committed or not."""

    def let_go(self, offset: int) -> None:
        hold = self.covering(offset)
        self.delivered += bool(hold and not hold.committed)
        super().let_go(offset)


class PauseTakesReservations(SlowLeases):
    """A group that is paused gives back what is reserved of it."""

    def pause_group(self, name: str) -> None:
        super().pause_group(name)
        reserved = [offset for hold, offset, _ in self.everything_held() if not hold.committed]
        for offset in reserved:
            if self.group_of(self.messages[offset]) == name:
                self.let_go(offset)


class OnlyLeasesCountInGroups(SlowLeases):
    """What is reserved of a group does not count for its limit."""

    def held_of(self, name: str) -> int:
        held = [offset for hold, offset, _ in self.everything_held() if hold.committed]
        return sum(self.group_of(self.messages[offset]) == name for offset in held)


class PausesAreForgotten(SlowLeases):
    """A restart opens all groups."""

    def crash(self, epoch: int) -> None:
        super().crash(epoch)
        for group in self.groups.values():
            group.paused = False


class TokensAreForgotten(SlowLeases):
    """A restart fills all buckets."""

    def crash(self, epoch: int) -> None:
        super().crash(epoch)
        for group in self.groups.values():
            group.level = None


BROKEN = (
    ReservationsNeverExpire,
    ReservationsCount,
    ExtendCounts,
    ExtendAddsToTheDeadline,
    ExtendNeverShortens,
    NackLetsNewerOnesPass,
    RejectedIsTriedAgain,
    ReasonsAreForgotten,
    OffersForLaterAreForNow,
    MiddleFailureGoesOn,
    SecondBatchBesideTheFirst,
    BatchesAreOneTooShort,
    AckThroughSkipsOne,
    AckThroughTakesOtherLeases,
    PoisonLetsNewerOnesPass,
    StaleLeasesAck,
    OneDeliveryTooMany,
    MovesWithoutDraining,
    UnitsAreKeys,
    OnlyLeasesHoldTheLine,
    HolesAreNotCapped,
    HolesStopEverything,
    RemovalCountsNothing,
    DrainsNeverEnd,
    AcksAreNotTold,
    OutstandingIsTold,
    WhatIsReadAgainIsNotTold,
    TrimPassesBlocked,
    LatestTakesReserved,
    LatestTakesWhatHasComeBack,
    NothingIsSuperseded,
    RedrivenAtTheEnd,
    RedrivenTwice,
    RedrivenMovesTheTrimCursor,
    ReservationsAreDeliveries,
    PauseTakesReservations,
    OnlyLeasesCountInGroups,
    PausesAreForgotten,
)
