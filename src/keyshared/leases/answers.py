"""The calls of a lease queue that settle, return and prolong messages, and those about obligations and groups."""

from collections.abc import Iterable
from typing import Final, TypeVar

from keyshared._arguments import check_reason, checked_groups, checked_letters, listed_letters
from keyshared._checks import (
    OFFSET_STOP,
    check_bool,
    check_int,
    check_offset,
    check_position,
    checked_list,
    checked_now,
)
from keyshared._core.records import BLOCKED, DEAD_LETTERING, Entry
from keyshared._queries import Queries
from keyshared.config import GroupLimits
from keyshared.dispatcher import NO_ITEM, Receipt, StoredLetter
from keyshared.effects import Effect, Ignored, Item
from keyshared.errors import ArgumentError
from keyshared.hashing import Key, key_bytes
from keyshared.leases.lease import Handle, InvalidHandle, InvalidHandleReason, LeaseAnswer
from keyshared.leases.table import LeaseTable

__all__ = ["LeaseAnswers"]

_Result = TypeVar("_Result")
_new: Final = tuple.__new__  # builds an answer in half the time that its own constructor takes


class LeaseAnswers(Queries[Item]):
    """The half of `LeaseQueue` that names messages which were leased, and groups of keys."""

    _table: LeaseTable

    # answers: each names a message and the lease that covers it, and returns None, or `InvalidHandle`: then nothing was
    # changed, and a current lease of the message goes on

    def ack(self, offset: int, lease_id: int, *, now_ms: int | None = None) -> LeaseAnswer[InvalidHandle | None, Item]:
        """Settle a message; offset and lease id are one of `Lease.handles`."""
        before, entry = self._leased(offset, lease_id, now_ms)
        if entry is None:
            return LeaseAnswer(self._invalid(offset, lease_id), before)
        return self._answer(None, before, self._machine.ack(*_receipt(entry), self._machine.now))

    def ack_many(
        self, handles: Iterable[Handle], *, now_ms: int | None = None
    ) -> LeaseAnswer[list[InvalidHandle], Item]:
        """Settle several messages at one instant.

        Args:
            handles: Such as `Lease.handles`.

        Returns:
            Those that named no current lease.

        Raises:
            ArgumentError: Something else than handles was given; then nothing was settled.
        """
        given = checked_list("handles", handles, "handles")  # first: reading them may call this queue
        wanted = [_checked_handle(handle) for handle in given]
        before = self._at(now_ms)
        receipts: dict[Handle, Receipt] = {}
        refused: list[Handle] = []
        for handle in wanted:
            entry = None if handle in receipts else self._table.leased_entry(*handle)
            if entry is None:
                refused.append(handle)
            else:
                receipts[handle] = _receipt(entry)
        effects = self._machine.ack_many(list(receipts.values()), self._machine.now)
        return self._answer([self._invalid(*handle) for handle in refused], before, effects)

    def ack_through(
        self, offset: int, lease_id: int, *, now_ms: int | None = None
    ) -> LeaseAnswer[InvalidHandle | None, Item]:
        """Settle a message and every older one of its key that the same lease covers: how far a batch is written.

        With ``ordering_required`` every older one that the lease covers, whatever its key.

        Example:
            >>> from keyshared import DispatcherConfig, HashRing
            >>> from keyshared.leases import LeaseConfig, LeaseQueue
            >>> queue = LeaseQueue(HashRing(), LeaseConfig(dispatcher=DispatcherConfig(batch_per_key=3)))
            >>> _ = queue.add_consumer("c1"), [queue.offer(offset, "order-1") for offset in range(4)]
            >>> lease, _ = queue.consume("c1", 10)
            >>> lease.offsets, queue.ack_through(1, lease.id).effects
            ((0, 1, 2), [CursorAdvanced(safe_cursor=1)])
        """
        before, entry = self._leased(offset, lease_id, now_ms)
        if entry is None:
            return LeaseAnswer(self._invalid(offset, lease_id), before)
        covered = self._table.by_offset[offset].entries.values()
        through = [_receipt(each) for each in covered if each.offset <= offset and each.lane is entry.lane]
        return self._answer(None, before, self._machine.ack_many(through, self._machine.now))

    def nack(
        self, offset: int, lease_id: int, *, delay_ms: int = 0, reason: str | None = None, now_ms: int | None = None
    ) -> LeaseAnswer[InvalidHandle | None, Item]:
        """End a delivery that failed: the message comes back after a delay, or is poison by now. Its key waits.

        What is newer of its batch comes back behind it, as `Released(BATCH_BROKEN)`; no delivery of that is counted.

        Args:
            delay_ms: How long it waits, an int of at least 0.
            reason: What went wrong, in at most 500 characters, for `DeadLetter` and `Blocked`. None keeps the reason of
                the failure before.
        """
        check_int("delay_ms", delay_ms, 0)
        check_reason(reason)
        before, entry = self._leased(offset, lease_id, now_ms)
        if entry is None:
            return LeaseAnswer(self._invalid(offset, lease_id), before)
        return self._answer(None, before, self._machine.nack(*_receipt(entry), delay_ms, reason, self._machine.now))

    def reject(
        self, offset: int, lease_id: int, *, reason: str | None = None, now_ms: int | None = None
    ) -> LeaseAnswer[InvalidHandle | None, Item]:
        """End a delivery that no retry can help: the message is poison now, whatever deliveries it had left.

        Example:
            >>> from keyshared import HashRing
            >>> from keyshared.leases import LeaseQueue
            >>> queue = LeaseQueue(HashRing())
            >>> _ = queue.add_consumer("c1"), queue.offer(0, "order-1")
            >>> lease, _ = queue.consume("c1")
            >>> queue.reject(0, lease.id, reason="no such account").effects[-1].reason
            'no such account'
        """
        check_reason(reason)
        before, entry = self._leased(offset, lease_id, now_ms)
        if entry is None:
            return LeaseAnswer(self._invalid(offset, lease_id), before)
        return self._answer(None, before, self._machine.reject(*_receipt(entry), reason, self._machine.now))

    def release(
        self, offset: int, lease_id: int, *, delay_ms: int = 0, now_ms: int | None = None
    ) -> LeaseAnswer[InvalidHandle | None, Item]:
        """Return a message untouched: it is leased again after a delay, and no delivery is counted. Its key waits."""
        check_int("delay_ms", delay_ms, 0)
        before, entry = self._leased(offset, lease_id, now_ms)
        if entry is None:
            return LeaseAnswer(self._invalid(offset, lease_id), before)
        return self._answer(None, before, self._machine.release(*_receipt(entry), delay_ms, self._machine.now))

    def extend(
        self, offset: int, lease_id: int, *, extend_ms: int | None = None, now_ms: int | None = None
    ) -> LeaseAnswer[int | InvalidHandle, Item]:
        """Move the deadline of one message of a lease, and of its whole batch; no delivery is counted.

        Args:
            extend_ms: From ``now_ms`` on, be that later or earlier than the deadline was, an int of at least 1; by
                default the ack timeout, which is no bound.

        Returns:
            The deadline that it has now, which is never behind the end of its consumer's drain; or `InvalidHandle`.
        """
        if extend_ms is not None:
            check_int("extend_ms", extend_ms, 1)
        before, entry = self._leased(offset, lease_id, now_ms)
        if entry is None:
            return LeaseAnswer(self._invalid(offset, lease_id), before)
        self._machine.extend(*_receipt(entry), extend_ms, self._machine.now)
        return LeaseAnswer(self._table.deadline_of(entry), before)

    # obligations, poison, the log: arguments as the dispatcher's; each returns None, or `Ignored`

    def dead_lettered(self, offset: int, *, now_ms: int | None = None) -> LeaseAnswer[Ignored | None, Item]:
        """Confirm that a `DeadLetter` is written: its message is settled, or blocked if the policy says so."""
        before, now = self._about(offset, now_ms)
        return self._confirmed(before, self._machine.dead_lettered(offset, now))

    def loaded(
        self, offset: int, item: Item = NO_ITEM, *, now_ms: int | None = None
    ) -> LeaseAnswer[Ignored | None, Item]:
        """Hand in the item that a `Load` asked for; the message can be leased from then on."""
        before, now = self._about(offset, now_ms)
        return self._confirmed(before, self._machine.loaded(offset, item, now))

    def park(self, offset: int, *, now_ms: int | None = None) -> LeaseAnswer[Ignored | None, Item]:
        """Settle a blocked message that is given up; its key goes on."""
        before, now = self._about(offset, now_ms)
        return self._confirmed(before, self._machine.park(offset, now))

    def unblock_offset(
        self, offset: int, *, reset_failures: bool = True, now_ms: int | None = None
    ) -> LeaseAnswer[Ignored | None, Item]:
        """Deliver one blocked message again.

        Args:
            reset_failures: Whether its count of deliveries starts at 0 again. If not, a message that had none left is
                poison again if the next one is not acked; one that was rejected has the deliveries it had left.
        """
        check_bool("reset_failures", reset_failures)
        before, now = self._about(offset, now_ms)
        return self._confirmed(before, self._machine.unblock_offset(offset, reset_failures, now))

    def unblock(self, key: Key, *, now_ms: int | None = None) -> LeaseAnswer[None, Item]:
        """Deliver all blocked messages of a key again, counted from 0, and end its quarantine; None for no key."""
        data = key_bytes(key)
        before = self._at(now_ms)
        return self._answer(None, before, self._machine.unblock(data, self._machine.now))

    def redrive(
        self, key: Key, letters: Iterable[StoredLetter[Item]], *, now_ms: int | None = None
    ) -> LeaseAnswer[list[Ignored], Item]:
        """Lease dead letters of a key again, each at the place in its key that it always had.

        Messages of the key that are leased or reserved stay so. A handle from before the dead letter is
        `InvalidHandle`, also when the message is leased again. The trim cursor does not know them: each carries its
        item. Arguments and errors as `KeySharedDispatcher.redrive`.

        Returns:
            Those that were not taken: what is outstanding, and all of them while the key is in quarantine.

        Example:
            >>> from keyshared import DispatcherConfig, HashRing
            >>> from keyshared.leases import LeaseConfig, LeaseQueue
            >>> from keyshared.dispatcher import StoredLetter
            >>> queue = LeaseQueue(HashRing(), LeaseConfig(dispatcher=DispatcherConfig(redrive=True)))
            >>> _ = queue.add_consumer("c1"), queue.offer(0, "order-1", "created"), queue.offer(1, "order-1", "paid")
            >>> lease, _ = queue.consume("c1")
            >>> letter = queue.reject(0, lease.id).effects[-1]
            >>> _ = queue.dead_lettered(0)
            >>> queue.redrive("order-1", [StoredLetter(letter.offset, letter.attempt, letter.item)]).result
            []
            >>> [message.item for message in queue.consume("c1").result]
            ['created']
        """
        given = listed_letters(letters)  # first: reading them may call this queue
        now = checked_now(now_ms, self._machine.now)
        effects = self._machine.redrive(self._lane_key(key), checked_letters(given, self._machine.config), now)
        ignored = [effect for effect in effects if isinstance(effect, Ignored)]
        return self._then_time(ignored, effects[len(ignored) :], now)

    def gone(self, offset: int, *, now_ms: int | None = None) -> LeaseAnswer[None, Item]:
        """Settle a message that has expired: now, which emits `Skipped`, or when the lease that covers it ends."""
        before, now = self._about(offset, now_ms)
        return self._answer(None, before, self._machine.gone(offset, now))

    def truncate(self, before: int, *, now_ms: int | None = None) -> LeaseAnswer[None, Item]:
        """Begin the queue at an offset: `gone` for everything outstanding below it."""
        check_position("before", before)
        over = self._at(now_ms)
        return self._answer(None, over, self._machine.truncate(before, self._machine.now))

    # groups: arguments and errors as the dispatcher's

    def set_group(
        self,
        name: str,
        *,
        weight: int = 1,
        max_in_flight: int | None = None,
        per_second: int | None = None,
        burst: int = 1,
        now_ms: int | None = None,
    ) -> LeaseAnswer[None, Item]:
        """Set all limits of a group of keys; what is leased or reserved stays so.

        A group's turns are taken, and its permits used, when a consumer reserves.

        Example:
            >>> from keyshared import HashRing
            >>> from keyshared.leases import LeaseQueue
            >>> from keyshared.config import Rules
            >>> rules = Rules(mark="tenants-1", group_of=lambda key: key.partition(b"/")[0].decode())
            >>> queue = LeaseQueue(HashRing(), rules=rules)
            >>> _ = queue.add_consumer("c1"), queue.set_group("acme", max_in_flight=1)
            >>> for offset, key in enumerate(["acme/1", "acme/2", "bo/1"]):
            ...     _ = queue.offer(offset, key)
            >>> [message.key for message in queue.consume("c1", 10).result]
            [b'acme/1', b'bo/1']
        """
        now = checked_now(now_ms, self._machine.now)
        groups = checked_groups(self._machine.groups, name)
        limits = GroupLimits(weight=weight, max_in_flight=max_in_flight, per_second=per_second, burst=burst)
        self._machine.now = now
        groups.set_group(name, limits)
        return self._then_time(None, self._machine.wake(now), now)

    def pause_group(self, name: str, *, now_ms: int | None = None) -> LeaseAnswer[None, Item]:
        """Hand out nothing of a group until `resume_group`; leases go on, and reservations may be committed."""
        now = checked_now(now_ms, self._machine.now)
        checked_groups(self._machine.groups, name).pause(name)
        return self._then_time(None, self._machine.wake(now), now)

    def resume_group(self, name: str, *, now_ms: int | None = None) -> LeaseAnswer[None, Item]:
        """End the pause of a group; nothing if it has none."""
        now = checked_now(now_ms, self._machine.now)
        groups = checked_groups(self._machine.groups, name)
        self._machine.now = now
        groups.resume(name)
        return self._then_time(None, self._machine.wake(now), now)

    # inside

    def _at(self, now_ms: int | None) -> list[Effect[Item]]:
        """Return what time did until now; called only when nothing but the clock can still raise."""
        now = checked_now(now_ms, self._machine.now)
        return [] if now == self._machine.now else self._pass_time(now)

    def _pass_time(self, now: int) -> list[Effect[Item]]:
        """End what is over by now."""
        machine = self._machine
        due = machine.timers.next_deadline
        if due is not None and due <= now:
            return machine.handle_timeout(now)
        machine.now = now
        return []

    def _answer(
        self, result: _Result, before: list[Effect[Item]], effects: list[Effect[Item]]
    ) -> LeaseAnswer[_Result, Item]:
        """Return the answer of two steps of the core at one instant: the second may have overtaken the first."""
        if before:
            effects = self._machine.outbox.merge([before, effects])
        return _new(LeaseAnswer, (result, effects))

    def _then_time(self, result: _Result, effects: list[Effect[Item]], now: int) -> LeaseAnswer[_Result, Item]:
        """Return the answer of a call that the state before it might have refused: time acts after it."""
        return self._answer(result, effects, self._pass_time(now))

    def _leased(self, offset: int, lease_id: int, now_ms: int | None) -> tuple[list[Effect[Item]], Entry | None]:
        _check_handle(offset, lease_id)
        return self._at(now_ms), self._table.leased_entry(offset, lease_id)

    def _about(self, offset: int, now_ms: int | None) -> tuple[list[Effect[Item]], int]:
        check_offset("offset", offset)
        return self._at(now_ms), self._machine.now

    def _confirmed(self, before: list[Effect[Item]], effects: list[Effect[Item]]) -> LeaseAnswer[Ignored | None, Item]:
        if effects and isinstance(effects[0], Ignored):
            return LeaseAnswer(effects[0], before)
        return self._answer(None, before, effects)

    def _invalid(self, offset: int, lease_id: int) -> InvalidHandle:
        return InvalidHandle(offset, lease_id, self._why_invalid(offset, lease_id))

    def _why_invalid(self, offset: int, lease_id: int) -> InvalidHandleReason:
        """Return why a handle names no current lease."""
        grant = self._table.by_offset.get(offset)
        if grant is not None:
            return InvalidHandleReason.NOT_COMMITTED if grant.id == lease_id else InvalidHandleReason.STALE
        entry = self._machine.window.find(offset)
        if entry is not None:
            return _OWN_REASONS.get(entry.state, InvalidHandleReason.NOT_LEASED)
        tail, start = self._tail, self.resume_offset
        if tail is None or offset > tail:
            return InvalidHandleReason.NOT_OFFERED
        below = start is not None and offset < start
        return InvalidHandleReason.BELOW_TRIM if below else InvalidHandleReason.SETTLED

    @property
    def _tail(self) -> int | None:
        """The greatest offset offered; before any, the one below the start."""
        last, start = self._machine.window.cursor.last, self.resume_offset
        if start is None:
            return last
        return start - 1 if last is None else max(last, start - 1)


_OWN_REASONS: Final = {
    DEAD_LETTERING: InvalidHandleReason.DEAD_LETTERING,
    BLOCKED: InvalidHandleReason.BLOCKED,
}


def _receipt(entry: Entry) -> Receipt:
    """Return what names the open delivery of a message in the core."""
    return entry.offset, entry.lane.holder.name, entry.attempt  # type: ignore[union-attr]  # an open message has one


def _check_handle(offset: object, lease_id: object) -> None:
    if type(offset) is not int or not -OFFSET_STOP < offset < OFFSET_STOP:
        check_offset("offset", offset)  # not called for what is right: every ack comes by here
    if type(lease_id) is not int:
        raise ArgumentError("lease_id", lease_id, "be an int")


def _checked_handle(handle: object) -> Handle:
    if not isinstance(handle, tuple) or len(handle) != 2:  # noqa: PLR2004  # offset, lease id
        raise ArgumentError("handle", handle, "be a tuple of offset and lease id")
    _check_handle(*handle)
    return handle
