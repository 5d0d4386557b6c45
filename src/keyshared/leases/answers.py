"""How the consumers of a lease queue answer: each call names a message and the lease that covers it."""

from collections.abc import Iterable
from typing import Final

from keyshared._arguments import check_reason
from keyshared._checks import OFFSET_STOP, check_int, check_offset, checked_list
from keyshared.effects import Deliver, Effect, Item
from keyshared.errors import ArgumentError
from keyshared.leases.groups import LeaseGroups
from keyshared.leases.values import Handle, InvalidHandle, LeaseAnswer

__all__ = ["LeaseAnswers"]

_new: Final = tuple.__new__  # builds an answer in half the time that its own constructor takes


class LeaseAnswers(LeaseGroups[Item]):
    """The calls of `LeaseQueue` that settle, return or prolong what is leased."""

    def ack(self, offset: int, lease_id: int, *, now_ms: int | None = None) -> LeaseAnswer[InvalidHandle | None, Item]:
        """Settle a message.

        Args:
            lease_id: The lease that covers it; the two together are one of `Lease.handles`.

        Returns:
            None, or `InvalidHandle`: nothing was changed, and a current lease of the message goes on.
        """
        effects, delivery = self._leased(offset, lease_id, now_ms)
        if delivery is None:
            return LeaseAnswer(self._ledger.invalid(offset, lease_id), effects)
        self._ledger.settled(offset)
        answer = self._dispatcher.ack(offset, delivery.consumer, delivery.attempt, now_ms=self._ledger.now)
        return _new(LeaseAnswer, (None, self._ledger.merged(effects, answer) if effects else answer))

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
        now = self._ledger.checked_now(now_ms)
        wanted = [_checked_pair(handle) for handle in given]
        effects = self._at(now)
        receipts, rest = [], []
        for offset, lease_id in wanted:
            delivery = self._book.leased(offset, lease_id)
            if delivery is None:
                rest.append((offset, lease_id))
                continue
            self._ledger.settled(offset)
            receipts.append(delivery.receipt)
        effects = self._ledger.merged(effects, self._dispatcher.ack_many(receipts, now_ms=now))
        return LeaseAnswer([self._ledger.invalid(*handle) for handle in rest], effects)

    def ack_through(
        self, offset: int, lease_id: int, *, now_ms: int | None = None
    ) -> LeaseAnswer[InvalidHandle | None, Item]:
        """Settle a message and every older one of its key that the same lease covers: how far a batch is written.

        With ``ordering_required`` every older one that the lease covers, whatever its key.

        Args:
            lease_id: The lease that covers it; the two together are one of `Lease.handles`.

        Returns:
            None, or `InvalidHandle`: then nothing older is settled either.

        Example:
            >>> from keyshared import HashRing, LeaseConfig, LeaseQueue
            >>> queue = LeaseQueue(HashRing(), LeaseConfig(batch_per_key=3))
            >>> _ = queue.add_consumer("c1"), [queue.offer(offset, "order-1") for offset in range(4)]
            >>> lease, _ = queue.consume("c1", 10)
            >>> lease.offsets, queue.ack_through(1, lease.id).effects
            ((0, 1, 2), [CursorAdvanced(safe_cursor=1)])
        """
        effects, delivery = self._leased(offset, lease_id, now_ms)
        if delivery is None:
            return LeaseAnswer(self._ledger.invalid(offset, lease_id), effects)
        written = self._ledger.through(delivery)
        for each in written:
            self._ledger.settled(each.offset)
        answer = self._dispatcher.ack_many([each.receipt for each in written], now_ms=self._ledger.now)
        return LeaseAnswer(None, self._ledger.merged(effects, answer))

    def nack(
        self,
        offset: int,
        lease_id: int,
        *,
        delay_ms: int = 0,
        reason: str | None = None,
        now_ms: int | None = None,
    ) -> LeaseAnswer[InvalidHandle | None, Item]:
        """End a delivery that failed: the message comes back after a delay, or is poison by now. Its key waits.

        What is newer of its batch comes back behind it, as `Released(BATCH_BROKEN)`; no delivery of that is counted.

        Args:
            delay_ms: How long it waits.
            reason: What went wrong, in at most 500 characters, for `DeadLetter` and `Blocked`. None keeps what was said
                of the failure before.

        Returns:
            None, or `InvalidHandle`.

        Raises:
            ArgumentError: That cannot be a handle, the delay is not an int of at least 0, or the reason is no text of
                that length.
        """
        check_int("delay_ms", delay_ms, 0)
        check_reason(reason)
        effects, delivery = self._leased(offset, lease_id, now_ms)
        if delivery is None:
            return LeaseAnswer(self._ledger.invalid(offset, lease_id), effects)
        return LeaseAnswer(None, self._ledger.merged(effects, self._ledger.fail(delivery, delay_ms, reason)))

    def reject(
        self, offset: int, lease_id: int, *, reason: str | None = None, now_ms: int | None = None
    ) -> LeaseAnswer[InvalidHandle | None, Item]:
        """End a delivery that no other one can better: the message is poison now, however many it had left.

        Args:
            reason: As of `nack`.

        Returns:
            None, or `InvalidHandle`.

        Raises:
            ArgumentError: That cannot be a handle, or the reason is no text of that length.

        Example:
            >>> from keyshared import HashRing, LeaseQueue
            >>> queue = LeaseQueue(HashRing())
            >>> _ = queue.add_consumer("c1"), queue.offer(0, "order-1")
            >>> lease, _ = queue.consume("c1")
            >>> queue.reject(0, lease.id, reason="no such account").effects[-1].reason
            'no such account'
        """
        check_reason(reason)
        effects, delivery = self._leased(offset, lease_id, now_ms)
        if delivery is None:
            return LeaseAnswer(self._ledger.invalid(offset, lease_id), effects)
        return LeaseAnswer(None, self._ledger.merged(effects, self._ledger.reject(delivery, reason)))

    def release(
        self, offset: int, lease_id: int, *, delay_ms: int = 0, now_ms: int | None = None
    ) -> LeaseAnswer[InvalidHandle | None, Item]:
        """Return a message of a lease untouched: it is leased again, and no delivery is counted. Its key waits.

        Args:
            delay_ms: How long it waits.

        Returns:
            None, or `InvalidHandle`.

        Raises:
            ArgumentError: That cannot be a handle, or the delay is not an int of at least 0.
        """
        check_int("delay_ms", delay_ms, 0)
        effects, delivery = self._leased(offset, lease_id, now_ms)
        if delivery is None:
            return LeaseAnswer(self._ledger.invalid(offset, lease_id), effects)
        return LeaseAnswer(None, self._ledger.merged(effects, self._ledger.postpone(delivery, delay_ms)))

    def extend(
        self, offset: int, lease_id: int, *, extend_ms: int | None = None, now_ms: int | None = None
    ) -> LeaseAnswer[int | InvalidHandle, Item]:
        """Move the deadline of one message of a lease, and of its whole batch; no delivery is counted.

        Args:
            extend_ms: From ``now_ms`` on, be that later or earlier than the deadline was; by default the visibility
                timeout, which is no bound.

        Returns:
            The deadline that it has now, which is never behind the end of its consumer's drain; or `InvalidHandle`.

        Raises:
            ArgumentError: That cannot be a handle, or the time is not an int of at least 1.
        """
        if extend_ms is not None:
            check_int("extend_ms", extend_ms, 1)
        effects, delivery = self._leased(offset, lease_id, now_ms)
        if delivery is None:
            return LeaseAnswer(self._ledger.invalid(offset, lease_id), effects)
        self._dispatcher.extend(*delivery.receipt, extend_ms=extend_ms, now_ms=self._ledger.now)
        return LeaseAnswer(self._ledger.deadline_of(offset), effects)

    # inside

    def _leased(
        self, offset: int, lease_id: int, now_ms: int | None
    ) -> tuple[list[Effect[Item]], Deliver[Item] | None]:
        _check_handle(offset, lease_id)
        return self._at(now_ms), self._book.leased(offset, lease_id)


def _check_handle(offset: object, lease_id: object) -> None:
    if type(offset) is not int or not -OFFSET_STOP < offset < OFFSET_STOP:
        check_offset("offset", offset)  # not called for what is right: every ack comes by here
    if type(lease_id) is not int:
        raise ArgumentError("lease_id", lease_id, "be an int")


def _checked_pair(handle: object) -> Handle:
    if not isinstance(handle, tuple) or len(handle) != 2:  # noqa: PLR2004  # offset, lease id
        raise ArgumentError("handle", handle, "be a tuple of offset and lease id")
    offset, lease_id = handle
    _check_handle(offset, lease_id)
    return offset, lease_id
