"""What a host hands in to a lease queue besides answers: obligations that are met, and messages that are given up."""

from collections.abc import Iterable
from typing import TypeAlias

from keyshared._arguments import listed_letters
from keyshared._checks import check_offset, check_position
from keyshared.dispatcher import NO_ITEM, StoredLetter
from keyshared.effects import Effect, Ignored, Item
from keyshared.hashing.named import Key, key_bytes
from keyshared.leases.reading import LeaseReading
from keyshared.leases.values import LeaseAnswer

__all__ = ["LeaseObligations"]

Confirmation: TypeAlias = LeaseAnswer[Ignored | None, Item]


class LeaseObligations(LeaseReading[Item]):
    """The calls of `LeaseQueue` about poison, spilled items and the log."""

    def dead_lettered(self, offset: int, *, now_ms: int | None = None) -> Confirmation[Item]:
        """Confirm that a `DeadLetter` is written; only then is its message settled, or blocked if the policy says so.

        Returns:
            None; `Ignored` if no dead letter of it was asked for.
        """
        effects = self._before(offset, now_ms)
        answer = self._dispatcher.dead_lettered(offset, now_ms=self._ledger.now)
        return self._confirmation(effects, answer)

    def loaded(self, offset: int, item: Item = NO_ITEM, *, now_ms: int | None = None) -> Confirmation[Item]:
        """Hand in the item that a `Load` asked for; the message can be leased from then on.

        Returns:
            None; `Ignored` if nobody asked for it.
        """
        effects = self._before(offset, now_ms)
        return self._confirmation(effects, self._dispatcher.loaded(offset, item, now_ms=self._ledger.now))

    def park(self, offset: int, *, now_ms: int | None = None) -> Confirmation[Item]:
        """Settle a blocked message that is given up; its key goes on.

        Returns:
            None; `Ignored` if the message is not blocked.
        """
        effects = self._before(offset, now_ms)
        return self._confirmation(effects, self._ledger.note(self._dispatcher.park(offset, now_ms=self._ledger.now)))

    def unblock_offset(
        self, offset: int, *, reset_failures: bool = True, now_ms: int | None = None
    ) -> Confirmation[Item]:
        """Deliver one blocked message again.

        Args:
            reset_failures: Whether its deliveries are counted anew. If not, those so far stay counted: a message that
                had none left is poison again if the next one is not acked; one that was rejected has what it had left.

        Returns:
            None; `Ignored` if the message is not blocked.
        """
        effects = self._before(offset, now_ms)
        answer = self._dispatcher.unblock_offset(offset, reset_failures=reset_failures, now_ms=self._ledger.now)
        return self._confirmation(effects, answer)

    def unblock(self, key: Key, *, now_ms: int | None = None) -> LeaseAnswer[None, Item]:
        """Deliver all blocked messages of a key again, counted anew, and end its quarantine.

        Args:
            key: The key; None for all blocked messages without one.

        Raises:
            KeyTypeError: The key is of another type.
        """
        key_bytes(key)  # raises before time acts
        effects = self._at(now_ms)
        answer = self._dispatcher.unblock(key, now_ms=self._ledger.now)
        return LeaseAnswer(None, self._ledger.merged(effects, answer))

    def redrive(
        self, key: Key, letters: Iterable[StoredLetter[Item]], *, now_ms: int | None = None
    ) -> LeaseAnswer[list[Ignored], Item]:
        """Lease dead letters of a key again, each at the place in its key that it always had.

        What is leased or reserved of the key stays so. A handle from before the dead letter is `InvalidHandle`, also
        when the message is leased again. The trim cursor does not know them: each carries its item.

        Args:
            key: The key of all of them.
            letters: What their `DeadLetter` said, in any order, at most `free_slots` of them.

        Returns:
            Those that were not taken: what is outstanding, and all of them while the key is in quarantine.

        Raises:
            ArgumentError: One of them is no letter, or the configuration has no ``redrive``.
            RedriveTooEarlyError: One of them may still be offered, or something older than it.
            WindowFullError: There are more new ones than free slots.

        Example:
            >>> from keyshared import HashRing, LeaseConfig, LeaseQueue
            >>> from keyshared.dispatcher import StoredLetter
            >>> queue = LeaseQueue(HashRing(), LeaseConfig(redrive=True))
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
        now = self._ledger.checked_now(now_ms)
        answer = self._dispatcher.redrive(key, given, now_ms=now)  # first: it may raise
        ignored = [effect for effect in answer if isinstance(effect, Ignored)]
        return LeaseAnswer(ignored, self._ledger.merged(answer[len(ignored) :], self._at(now)))

    def gone(self, offset: int, *, now_ms: int | None = None) -> LeaseAnswer[None, Item]:
        """Settle a message that has expired: now, or when the lease that covers it ends.

        Returns:
            `Skipped` among the effects if it was settled now.
        """
        effects = self._before(offset, now_ms)
        answer = self._ledger.note(self._dispatcher.gone(offset, now_ms=self._ledger.now))
        return LeaseAnswer(None, self._ledger.merged(effects, answer))

    def truncate(self, before: int, *, now_ms: int | None = None) -> LeaseAnswer[None, Item]:
        """Begin the queue at an offset: `gone` for everything outstanding below it.

        Args:
            before: The first offset to keep, such as `keep_from`.
        """
        check_position("before", before)
        effects = self._at(now_ms)
        answer = self._ledger.note(self._dispatcher.truncate(before, now_ms=self._ledger.now))
        return LeaseAnswer(None, self._ledger.merged(effects, answer))

    # inside

    def _at(self, now_ms: int | None) -> list[Effect[Item]]:
        """Return what time did until now; called only when nothing but the clock can still raise."""
        return self._ledger.begin(self._ledger.checked_now(now_ms))

    def _before(self, offset: int, now_ms: int | None) -> list[Effect[Item]]:
        check_offset("offset", offset)
        return self._at(now_ms)

    def _confirmation(self, effects: list[Effect[Item]], answer: list[Effect[Item]]) -> Confirmation[Item]:
        if answer and isinstance(answer[0], Ignored):
            return LeaseAnswer(answer[0], effects)
        return LeaseAnswer(None, self._ledger.merged(effects, answer))
