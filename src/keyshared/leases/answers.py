"""How consumers and the host of a lease queue answer, and how the host steers groups of keys."""

from collections.abc import Callable, Iterable
from typing import Any, Final, Generic, TypeAlias, TypeVar

from keyshared._arguments import check_reason, listed_letters
from keyshared._checks import OFFSET_STOP, check_bool, check_int, check_offset, check_position, checked_list
from keyshared._core.machine import Machine
from keyshared.dispatcher import NO_ITEM, KeySharedDispatcher, StoredLetter
from keyshared.effects import Deliver, Effect, Ignored, Item
from keyshared.errors import ArgumentError
from keyshared.hashing import Key, key_bytes
from keyshared.leases.state import LeaseState
from keyshared.leases.values import Handle, InvalidHandle, LeaseAnswer

__all__ = ["LeaseAnswers"]

_Result = TypeVar("_Result")
_Call: TypeAlias = Callable[..., list[Effect[Any]]]
_new: Final = tuple.__new__  # builds an answer in half the time that its own constructor takes


class LeaseAnswers(Generic[Item]):
    """The calls of `LeaseQueue` that settle, return and prolong messages, and those about obligations and groups."""

    _dispatcher: KeySharedDispatcher[Item]
    _machine: Machine
    _state: LeaseState

    # answers: each names a message and the lease that covers it, and returns None, or `InvalidHandle`: then nothing was
    # changed, and a current lease of the message goes on

    def ack(self, offset: int, lease_id: int, *, now_ms: int | None = None) -> LeaseAnswer[InvalidHandle | None, Item]:
        """Settle a message; offset and lease id are one of `Lease.handles`."""
        before, delivery = self._leased(offset, lease_id, now_ms)
        state = self._state
        if delivery is None:
            return LeaseAnswer(state.invalid(offset, lease_id), before)
        state.table.end(offset)
        effects = self._machine.ack(*delivery.receipt, state.now)
        return _new(LeaseAnswer, (None, state.merged(before, effects) if before else effects))

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
        now = self._state.checked_now(now_ms)
        wanted = [_checked_handle(handle) for handle in given]
        before, table = self._state.begin(now), self._state.table
        invalid: list[Handle] = []
        receipts = []
        for offset, lease_id in wanted:
            delivery = table.leased(offset, lease_id)
            if delivery is None:
                invalid.append((offset, lease_id))
                continue
            table.end(offset)
            receipts.append(delivery.receipt)
        effects = self._state.merged(before, self._machine.ack_many(receipts, now))
        return LeaseAnswer([self._state.invalid(*handle) for handle in invalid], effects)

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
        before, delivery = self._leased(offset, lease_id, now_ms)
        state = self._state
        if delivery is None:
            return LeaseAnswer(state.invalid(offset, lease_id), before)
        written = state.through(delivery)
        for each in written:
            state.table.end(each.offset)
        effects = self._machine.ack_many([each.receipt for each in written], state.now)
        return LeaseAnswer(None, state.merged(before, effects))

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
        return self._end(self._machine.nack, offset, lease_id, now_ms, delay_ms, reason)

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
        return self._end(self._machine.reject, offset, lease_id, now_ms, reason)

    def release(
        self, offset: int, lease_id: int, *, delay_ms: int = 0, now_ms: int | None = None
    ) -> LeaseAnswer[InvalidHandle | None, Item]:
        """Return a message untouched: it is leased again after a delay, and no delivery is counted. Its key waits."""
        check_int("delay_ms", delay_ms, 0)
        return self._end(self._machine.release, offset, lease_id, now_ms, delay_ms)

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
        before, delivery = self._leased(offset, lease_id, now_ms)
        if delivery is None:
            return LeaseAnswer(self._state.invalid(offset, lease_id), before)
        self._machine.extend(*delivery.receipt, extend_ms, self._state.now)
        return LeaseAnswer(self._state.deadline_of(offset), before)

    # obligations, poison, the log: arguments as the dispatcher's; each returns None, or `Ignored`

    def dead_lettered(self, offset: int, *, now_ms: int | None = None) -> LeaseAnswer[Ignored | None, Item]:
        """Confirm that a `DeadLetter` is written: its message is settled, or blocked if the policy says so."""
        return self._confirm(self._machine.dead_lettered, offset, now_ms)

    def loaded(
        self, offset: int, item: Item = NO_ITEM, *, now_ms: int | None = None
    ) -> LeaseAnswer[Ignored | None, Item]:
        """Hand in the item that a `Load` asked for; the message can be leased from then on."""
        return self._confirm(self._machine.loaded, offset, now_ms, item)

    def park(self, offset: int, *, now_ms: int | None = None) -> LeaseAnswer[Ignored | None, Item]:
        """Settle a blocked message that is given up; its key goes on."""
        return self._confirm(self._machine.park, offset, now_ms)

    def unblock_offset(
        self, offset: int, *, reset_failures: bool = True, now_ms: int | None = None
    ) -> LeaseAnswer[Ignored | None, Item]:
        """Deliver one blocked message again.

        Args:
            reset_failures: Whether its count of deliveries starts at 0 again. If not, a message that had none left is
                poison again if the next one is not acked; one that was rejected has the deliveries it had left.
        """
        check_bool("reset_failures", reset_failures)
        return self._confirm(self._machine.unblock_offset, offset, now_ms, reset_failures)

    def unblock(self, key: Key, *, now_ms: int | None = None) -> LeaseAnswer[None, Item]:
        """Deliver all blocked messages of a key again, counted from 0, and end its quarantine; None for no key."""
        data = key_bytes(key)
        before = self._at(now_ms)
        return LeaseAnswer(None, self._state.merged(before, self._machine.unblock(data, self._state.now)))

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
        now = self._state.checked_now(now_ms)
        effects = self._dispatcher.redrive(key, given, now_ms=now)
        ignored = [effect for effect in effects if isinstance(effect, Ignored)]
        return LeaseAnswer(ignored, self._state.merged(effects[len(ignored) :], self._state.begin(now)))

    def gone(self, offset: int, *, now_ms: int | None = None) -> LeaseAnswer[None, Item]:
        """Settle a message that has expired: now, which emits `Skipped`, or when the lease that covers it ends."""
        return LeaseAnswer(None, self._confirm(self._machine.gone, offset, now_ms).effects)

    def truncate(self, before: int, *, now_ms: int | None = None) -> LeaseAnswer[None, Item]:
        """Begin the queue at an offset: `gone` for everything outstanding below it."""
        check_position("before", before)
        over = self._at(now_ms)
        effects = self._state.note(self._machine.truncate(before, self._state.now))
        return LeaseAnswer(None, self._state.merged(over, effects))

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
        now = self._state.checked_now(now_ms)
        effects = self._dispatcher.set_group(
            name, weight=weight, max_in_flight=max_in_flight, per_second=per_second, burst=burst, now_ms=now
        )
        return self._then_time(None, effects, now)

    def pause_group(self, name: str, *, now_ms: int | None = None) -> LeaseAnswer[None, Item]:
        """Hand out nothing of a group until `resume_group`; leases go on, and reservations may be committed."""
        now = self._state.checked_now(now_ms)
        return self._then_time(None, self._dispatcher.pause_group(name, now_ms=now), now)

    def resume_group(self, name: str, *, now_ms: int | None = None) -> LeaseAnswer[None, Item]:
        """End the pause of a group; nothing if it has none."""
        now = self._state.checked_now(now_ms)
        return self._then_time(None, self._dispatcher.resume_group(name, now_ms=now), now)

    # inside

    def _at(self, now_ms: int | None) -> list[Effect[Item]]:
        """Return what time did until now; called only when nothing but the clock can still raise."""
        return self._state.begin(self._state.checked_now(now_ms))

    def _then_time(self, result: _Result, effects: list[Effect[Item]], now: int) -> LeaseAnswer[_Result, Item]:
        """Return the answer of a call that the state before it might have refused: time acts after it."""
        effects = self._state.note(effects) if effects else effects
        over = self._state.begin(now)
        return _new(LeaseAnswer, (result, self._state.merged(over, effects) if over else effects))

    def _leased(
        self, offset: int, lease_id: int, now_ms: int | None
    ) -> tuple[list[Effect[Item]], Deliver[Item] | None]:
        _check_handle(offset, lease_id)
        return self._at(now_ms), self._state.table.leased(offset, lease_id)

    def _end(
        self, call: _Call, offset: int, lease_id: int, now_ms: int | None, *arguments: object
    ) -> LeaseAnswer[InvalidHandle | None, Item]:
        """End the delivery that a handle names by a call of the core."""
        before, delivery = self._leased(offset, lease_id, now_ms)
        if delivery is None:
            return LeaseAnswer(self._state.invalid(offset, lease_id), before)
        effects = self._state.note(call(*delivery.receipt, *arguments, self._state.now))
        return LeaseAnswer(None, self._state.merged(before, effects))

    def _confirm(
        self, call: _Call, offset: int, now_ms: int | None, *arguments: object
    ) -> LeaseAnswer[Ignored | None, Item]:
        """Make a call of the core about one message."""
        check_offset("offset", offset)
        before = self._at(now_ms)
        effects = self._state.note(call(offset, *arguments, self._state.now))
        if effects and isinstance(effects[0], Ignored):
            return LeaseAnswer(effects[0], before)
        return LeaseAnswer(None, self._state.merged(before, effects))


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
