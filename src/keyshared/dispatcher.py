"""The reliable Key-Shared dispatcher: it is called with facts and the time, and returns effects.

Here each argument is checked, once; then the unchecked core is called (`keyshared._core.machine`), which other parts of
this library call directly.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final, Self, TypeAlias

from keyshared._arguments import (
    check_duration,
    check_reason,
    check_receipt,
    check_receipts,
    checked_filter,
    checked_groups,
    checked_letters,
    checked_messages,
    checked_restart,
    listed_letters,
    offset_error,
)
from keyshared._checks import (
    OFFSET_STOP,
    check_bool,
    check_int,
    check_kind,
    check_members,
    check_number,
    check_offset,
    check_position,
    checked_list,
    checked_now,
)
from keyshared._core.machine import Machine
from keyshared._core.records import ConsumerState
from keyshared._core.snapshot import restore
from keyshared._core.values import (
    Blocking,
    ConsumerStats,
    DispatcherStats,
    GroupStats,
    Health,
    KeySession,
    Outstanding,
    Receipt,
    RestartMark,
    SessionPhase,
    StoredLetter,
)
from keyshared._queries import Queries
from keyshared.config import DispatcherConfig, GroupLimits, Rules
from keyshared.config.dispatcher import check_rules
from keyshared.cursor.token import DEFAULT_TOKEN_BYTES, CursorToken, read_token, write_token
from keyshared.effects import Effect, Item
from keyshared.errors import ArgumentError, ClockError
from keyshared.hashing import Key, key_bytes
from keyshared.placement.protocol import Placement, check_name
from keyshared.placement.range_map import Weight

__all__ = [
    "Blocking",
    "ConsumerState",
    "ConsumerStats",
    "DispatcherStats",
    "GroupStats",
    "Health",
    "KeySession",
    "KeySharedDispatcher",
    "Message",
    "Outstanding",
    "Receipt",
    "RestartMark",
    "SessionPhase",
    "StoredLetter",
]

Message: TypeAlias = tuple[int, Key, Item] | tuple[int, Key, Item, int | None]
"""Offset, key and passenger of a message, and perhaps ``not_before_ms``, as ``offer_many`` takes them."""

NO_ITEM: Final[Any] = None
"""The item of a message without one, whatever type the items have."""


class KeySharedDispatcher(Queries[Item]):
    """Hands messages of one key to one consumer at a time, in order, and different keys to different consumers at once.

    Every input returns the effects that the host has to apply, in order: see `keyshared.effects`. ``now_ms`` is a
    monotonic clock in whole milliseconds; None means the instant of the previous call, and time that goes back raises
    `ClockError`. A receipt is offset, consumer and attempt of a delivery; values of other types raise `ArgumentError`.
    A call for a consumer that is not connected, or only drains, raises `UnknownConsumerError`. A call that raises has
    changed nothing. Not thread-safe: read the clock, call, and queue the effects in one critical section, and let one
    task apply them.

    The type of the items is a parameter: a ``KeySharedDispatcher[Order]`` takes orders, and its `Deliver` carry orders.
    Without it an item may be anything. The item of a message without one is None, whatever the type.

    Keys are ``bytes``, ``str`` (its UTF-8 bytes) or None for a message without order. Offsets grow strictly; gaps are
    legal. Every number, time and duration has at most 63 bits.

    Args:
        placement: Where keys go. Copied: consumers are added to the copy as they join.
        config: Limits, timeouts and policies.
        rules: Functions of a key, such as the one that returns its group.
        resume_from: Text of a `cursor_token` of an earlier dispatcher: read on from `resume_offset` and offer
            everything. Its position replaces ``config.start``.

    Raises:
        ConfigError: ``rules`` and ``config`` contradict each other.
        SnapshotError: ``resume_from`` is truncated, damaged, of another version, or no token at all.

    Complexity:
        O(1) amortised for each message and answer, O(log n) where a deadline or an owner is searched; never a scan of
        the window, of the consumers or of a key's backlog. Memory O(outstanding).

    Source:
        Danube "Key-Shared Dispatch Architecture"; differs: nothing is polled, lost, reordered or acked on behalf of a
        consumer (docs/danube.md lists every fault and why it cannot happen here).

    Example:
        >>> from keyshared.ring import HashRing
        >>> d = KeySharedDispatcher(HashRing())
        >>> d.add_consumer("c1", now_ms=0)
        []
        >>> first, = d.offer(0, "order-1", "created", now_ms=1)
        >>> first.consumer, first.item
        ('c1', 'created')
        >>> d.offer(1, "order-1", "paid", now_ms=2)         # its key is in flight: it waits
        []
        >>> [type(effect).__name__ for effect in d.ack(*first.receipt, now_ms=3)]
        ['Deliver', 'CursorAdvanced']
        >>> d.safe_cursor
        0
    """

    __slots__ = ()

    def __init__(
        self,
        placement: Placement,
        config: DispatcherConfig | None = None,
        *,
        rules: Rules | None = None,
        resume_from: str | None = None,
    ) -> None:
        config = DispatcherConfig() if config is None else check_kind("config", config, DispatcherConfig)
        check_members("placement", placement, Placement)
        self._machine = Machine(placement, config, None if rules is None else check_rules(rules, config))
        if resume_from is not None:
            self._machine.resume_at(read_token(resume_from))

    @property
    def config(self) -> DispatcherConfig:
        """The configuration it was made with."""
        return self._machine.config

    def cursor_token(self, max_bytes: int = DEFAULT_TOKEN_BYTES) -> CursorToken:
        """Return the position and what is acked above it as a short text, for a restart without a snapshot. O(n).

        ``KeySharedDispatcher(..., resume_from=token.text)`` goes on from it, any number of times: what one dispatcher
        does not read again stays settled for the next.

        Args:
            max_bytes: Length that the text may have; the default fits the metadata of a Kafka commit.

        Raises:
            ArgumentError: Not even the position fits.
        """
        return write_token(self._machine.window.cursor.position(), max_bytes)

    @classmethod
    def restore(
        cls,
        state: object,
        placement: Placement,
        config: DispatcherConfig | None = None,
        *,
        now_ms: int,
        epoch: int = 0,
        items: Mapping[int, Item] | None = None,
        rules: Rules | None = None,
    ) -> Self:
        """Rebuild a dispatcher from a `snapshot`; from then on it does what the original would have done.

        Deliveries that were open stay open for the time they had left. Messages that wider settings allow to go out are
        open when it returns: `outstanding_effects` returns what is to be done. Offers up to the greatest offset that
        the snapshot knows return ``[]``, so the host may simply read on from `resume_offset`; each hands its item to
        the message that waits for it. O(n log n), n messages outstanding.

        Args:
            state: What `snapshot` returned, perhaps after a trip through JSON.
            placement: Of the same kind and settings as the original's; without consumers, those come from the snapshot.
                One that is history or was made by hand has to be the original's own, see `placement`.
            now_ms: The clock of this process; it may be another one than before.
            epoch: Raise it by one after every crash: deliveries get attempt numbers above ``epoch << 32``, so that acks
                of deliveries that the snapshot has not seen stay fenced. Never goes below the snapshot's own.
            items: Items by offset, which are not part of a snapshot.
            rules: Of the same mark as the original's.

        Raises:
            SnapshotError: The state was cut or damaged, is of another version, placement, drain unit or mark of rules,
                or does not fit the configuration.
        """
        now, known = checked_restart(now_ms, epoch, items)
        new = cls(placement, config, rules=rules)
        restore(new._machine, state, epoch=epoch, items=known, now=now)
        return new

    def offer(
        self,
        offset: int,
        key: Key,
        item: Item = NO_ITEM,
        *,
        not_before_ms: int | None = None,
        now_ms: int | None = None,
    ) -> list[Effect[Item]]:
        """Take the next message of the log. O(1); O(log vnodes) for the first message of a key.

        Args:
            item: A passenger that comes back with its `Deliver`.
            not_before_ms: An instant of the same clock before which it is not delivered, and its key waits behind it.
                An instant in the past is ignored, and a retry does not look at it.

        Returns:
            `Deliver` if it goes out at once; `Spilled` if its payload is not needed now; `Skipped` if no consumer
            accepts its key and the policy is to skip it; ``[]`` if it waits, or was known before a restart. With
            ``latest_only`` also `Skipped` of the older messages of its key that it replaces. These, and an offset that
            was settled above the position of a token, can let the cursor pass: `CursorAdvanced`.

        Raises:
            KeyTypeError: The key is of another type.
            ConfigError: A function of the rules raised for this key, or returned a value of another type.
            OffsetOrderError: The offset is not an int above the last one.
            ArgumentError: The offset has more than 63 bits, or ``not_before_ms`` is no int.
            WindowFullError: `free_slots` is 0; as a `KeyFullError`: `room_for` its key is.
            UnmatchedKeyError: No consumer accepts the key or owns its slot, and the policy is to raise.
        """
        machine = self._machine
        if now_ms is None:
            now_ms = machine.now
        elif type(now_ms) is not int or not machine.now <= now_ms < OFFSET_STOP:
            raise ClockError(now_ms, machine.now)
        if type(key) is not bytes:
            key = key_bytes(key)
        if type(offset) is not int or not -OFFSET_STOP < offset < OFFSET_STOP:
            raise offset_error(offset, machine.window.cursor.last)
        if not_before_ms is not None:
            check_int("not_before_ms", not_before_ms, alternative=", or None")
        return machine.offer(offset, key, item, not_before_ms, now_ms)

    def offer_many(self, messages: Iterable[Message[Item]], *, now_ms: int | None = None) -> list[Effect[Item]]:
        """Take several messages at one instant: the effects of single offers in one list, with one state at the end.

        They are tuples of offset, key and passenger, and perhaps ``not_before_ms``; at most `free_slots` of them, and
        of a key as many as `room_for` returns. Raises as `offer`, for any of them; then none was taken.
        """
        given = checked_list("messages", messages, "messages")  # first: reading them may call this dispatcher
        now = checked_now(now_ms, self._machine.now)
        return self._machine.offer_many(checked_messages(given, self._machine.window.cursor.last), now)

    def ack(self, offset: int, consumer: str, attempt: int, *, now_ms: int | None = None) -> list[Effect[Item]]:
        """Settle one delivery and hand out what it was holding back. O(1) amortised plus what is delivered.

        Returns:
            The deliveries that are possible now, then `CursorAdvanced` if the cursor moved. `Ignored` alone if the
            receipt does not name the current delivery; but a late ack, one of a delivery that was made to that consumer
            and has ended, settles a message that is not open at that moment, and is noted for one that is open again:
            however that delivery ends, it will count as acked.
        """
        machine = self._machine
        if now_ms is None:
            now_ms = machine.now
        elif type(now_ms) is not int or not machine.now <= now_ms < OFFSET_STOP:
            raise ClockError(now_ms, machine.now)
        if type(consumer) is not str or type(attempt) is not int or type(offset) is not int or offset >= OFFSET_STOP:
            check_receipt(offset, consumer, attempt)
        return machine.ack(offset, consumer, attempt, now_ms)

    def ack_many(self, receipts: Iterable[Receipt], *, now_ms: int | None = None) -> list[Effect[Item]]:
        """Settle several deliveries at one instant: the effects of single acks in one list, one state at the end."""
        given = checked_list("receipts", receipts, "receipts")  # first: reading them may call this dispatcher
        now = checked_now(now_ms, self._machine.now)
        return self._machine.ack_many(check_receipts(given), now)

    def ack_through(self, offset: int, consumer: str, attempt: int, *, now_ms: int | None = None) -> list[Effect[Item]]:
        """Settle a delivery and every older open one of its key, as `ack_many`; as `ack` if it is not current."""
        now = checked_now(now_ms, self._machine.now)
        check_receipt(offset, consumer, attempt)
        return self._machine.ack_through(offset, consumer, attempt, now)

    def nack(
        self,
        offset: int,
        consumer: str,
        attempt: int,
        *,
        delay_ms: int | None = None,
        reason: str | None = None,
        now_ms: int | None = None,
    ) -> list[Effect[Item]]:
        """Report that a delivery failed: the message is retried after a delay, or its retries are exhausted.

        Args:
            delay_ms: A delay that the consumer asks for; makes the policy's longer, never shorter.
            reason: What went wrong, in at most 500 characters; None keeps the reason of the failure before.

        Returns:
            `Released`, the effect of the poison policy, and the deliveries that the freed consumer gets; or `Ignored`.
        """
        now = checked_now(now_ms, self._machine.now)
        check_receipt(offset, consumer, attempt)
        check_duration("delay_ms", delay_ms, 0)
        check_reason(reason)
        return self._machine.nack(offset, consumer, attempt, delay_ms, reason, now)

    def reject(
        self, offset: int, consumer: str, attempt: int, *, reason: str | None = None, now_ms: int | None = None
    ) -> list[Effect[Item]]:
        """Report that no retry can help: the poison policy acts now. As `nack`, without the retries."""
        now = checked_now(now_ms, self._machine.now)
        check_receipt(offset, consumer, attempt)
        check_reason(reason)
        return self._machine.reject(offset, consumer, attempt, reason, now)

    def release(
        self, offset: int, consumer: str, attempt: int, *, delay_ms: int = 0, now_ms: int | None = None
    ) -> list[Effect[Item]]:
        """Return a delivery untouched: the message is delivered again, and no failure is counted. Result as `nack`.

        ``delay_ms`` is how long its key waits behind it, which `RetryPolicy.max_delay_ms` does not bound.
        """
        now = checked_now(now_ms, self._machine.now)
        check_receipt(offset, consumer, attempt)
        check_int("delay_ms", delay_ms, 0)
        return self._machine.release(offset, consumer, attempt, delay_ms, now)

    def extend(
        self, offset: int, consumer: str, attempt: int, *, extend_ms: int | None = None, now_ms: int | None = None
    ) -> list[Effect[Item]]:
        """Move the deadline of a delivery, and of its whole batch, to ``extend_ms`` from now, by default the timeout.

        Returns ``[]``, or `Ignored` if the receipt does not name the current delivery.
        """
        now = checked_now(now_ms, self._machine.now)
        check_receipt(offset, consumer, attempt)
        check_duration("extend_ms", extend_ms, 1)
        return self._machine.extend(offset, consumer, attempt, extend_ms, now)

    # poison, spill, the log: each returns what its key may deliver now, or `Ignored`

    def dead_lettered(self, offset: int, *, now_ms: int | None = None) -> list[Effect[Item]]:
        """Confirm that a `DeadLetter` is written: the message is settled, or blocked if the policy says so."""
        return self._machine.dead_lettered(*self._checked_offset(offset, now_ms))

    def loaded(self, offset: int, item: Item = NO_ITEM, *, now_ms: int | None = None) -> list[Effect[Item]]:
        """Hand in the payload that a `Load` asked for; returns its `Deliver` if its turn has come."""
        offset, now = self._checked_offset(offset, now_ms)
        return self._machine.loaded(offset, item, now)

    def park(self, offset: int, *, now_ms: int | None = None) -> list[Effect[Item]]:
        """Settle one blocked message that is given up; its key goes on."""
        return self._machine.park(*self._checked_offset(offset, now_ms))

    def unblock(self, key: Key, *, now_ms: int | None = None) -> list[Effect[Item]]:
        """End the quarantine of a key, and deliver its blocked messages again, with no failure counted.

        None stands for all blocked messages without a key.
        """
        now = checked_now(now_ms, self._machine.now)
        return self._machine.unblock(key_bytes(key), now)

    def unblock_offset(
        self, offset: int, *, reset_failures: bool = True, now_ms: int | None = None
    ) -> list[Effect[Item]]:
        """Deliver one blocked message again; unless ``reset_failures``, the next failure makes it poison again."""
        offset, now = self._checked_offset(offset, now_ms)
        check_bool("reset_failures", reset_failures)
        return self._machine.unblock_offset(offset, reset_failures, now)

    def redrive(
        self, key: Key, letters: Iterable[StoredLetter[Item]], *, now_ms: int | None = None
    ) -> list[Effect[Item]]:
        """Deliver dead letters of a key again, each at the place in its key that it always had.

        All of them come back before anything is delivered, under their own offsets: before newer outstanding messages
        of the key, behind older ones. Open deliveries of the key stay open. The position and the token do not know the
        letters, so keep them in their dead-letter store until they are settled: after a crash without a snapshot,
        redrive them again. O(k log k) for k letters, and O(older outstanding messages of the key).

        Args:
            letters: The fields of their `DeadLetter`, in any order, at most `free_slots` of them.

        Returns:
            The deliveries that are possible now; `Ignored` for each letter that is outstanding, and for all of them
            while the key is in quarantine.

        Raises:
            ConfigError: The configuration has no ``redrive``, or a rule has no answer for the key.
            RedriveTooEarlyError: One of them may still be offered, or something older than it.
            WindowFullError: There are more new ones than free slots.
        """
        given = listed_letters(letters)  # first: reading them may call this dispatcher
        now = checked_now(now_ms, self._machine.now)
        data = self._lane_key(key)
        return self._machine.redrive(data, checked_letters(given, self._machine.config), now)

    def gone(self, offset: int, *, now_ms: int | None = None) -> list[Effect[Item]]:
        """Settle a message that can no longer be read: now, or when its open delivery ends."""
        return self._machine.gone(*self._checked_offset(offset, now_ms))

    def truncate(self, before: int, *, now_ms: int | None = None) -> list[Effect[Item]]:
        """Begin the log at an offset: `gone` for everything outstanding below it."""
        now = checked_now(now_ms, self._machine.now)
        check_position("before", before)
        return self._machine.truncate(before, now)

    # consumers: each returns `Released` for deliveries that it ended, then the deliveries that are possible now

    def add_consumer(
        self,
        name: str,
        *,
        filters: Iterable[str] = (),
        weight: Weight | None = None,
        limit: int | None = None,
        now_ms: int | None = None,
    ) -> list[Effect[Item]]:
        """Add a consumer; keys that move to it are handed over as their open deliveries end. O(vnodes log n + lanes).

        Args:
            name: One session: a name that is active or inactive is refused, one that still drains starts a new session.
            filters: Glob patterns of the keys it accepts; none for all.
            weight: Its share relative to the others'; by default 1, or what a placement that already names it gives it.
            limit: Deliveries it may have open; by default the configured limit. 0 to begin with lets it pull.

        Raises `ConsumerExistsError` if the name is connected.
        """
        patterns = checked_list("patterns", filters, "patterns")  # first: reading them may call this dispatcher
        now = checked_now(now_ms, self._machine.now)
        check_kind("name", name, str)
        check_name(name)
        if weight is not None:
            check_number("weight", weight, above=True)
        if limit is not None:
            check_int("limit", limit, 0)
        self._machine.membership.join(name, checked_filter(patterns, self._machine.config), weight, limit, now)
        return self._machine.wake(now)

    def remove_consumer(self, name: str, *, drain_ms: int | None = 0, now_ms: int | None = None) -> list[Effect[Item]]:
        """Remove a consumer; an unknown name is ignored.

        Its keys move at once, and each goes on when its open deliveries have ended. It may finish these for
        ``drain_ms``; None for as long as it takes.
        """
        now = checked_now(now_ms, self._machine.now)
        check_kind("name", name, str)
        if drain_ms is not None:
            check_int("drain_ms", drain_ms, 0, ", or None for no limit")
        self._machine.now = now
        self._machine.membership.leave(name, drain_ms, now)
        return self._machine.wake(now)

    def set_inactive(self, name: str, *, now_ms: int | None = None) -> list[Effect[Item]]:
        """Report that a consumer's connection is gone: it gets nothing, and keeps its keys for the grace period.

        Its open deliveries stay open, and acks count. An unknown name is ignored.
        """
        now = checked_now(now_ms, self._machine.now)
        self._machine.membership.deactivate(check_kind("name", name, str), now)
        return self._machine.wake(now)

    def set_active(self, name: str, *, resumed: bool = False, now_ms: int | None = None) -> list[Effect[Item]]:
        """Report that a consumer is back; unless it ``resumed``, its open deliveries have failed, and come again."""
        now = checked_now(now_ms, self._machine.now)
        check_bool("resumed", resumed)
        self._machine.membership.activate(check_kind("name", name, str), now, resumed=resumed)
        return self._machine.wake(now)

    def set_limit(self, name: str, limit: int, *, now_ms: int | None = None) -> list[Effect[Item]]:
        """Set how many deliveries a consumer may have open, an int of at least 0; deliveries beyond that stay open."""
        now = checked_now(now_ms, self._machine.now)
        check_int("limit", limit, 0)
        self._machine.membership.set_limit(check_kind("name", name, str), limit)
        return self._machine.wake(now)

    def set_filters(self, name: str, filters: Iterable[str], *, now_ms: int | None = None) -> list[Effect[Item]]:
        """Replace a consumer's key filters. Cost as `add_consumer`."""
        patterns = checked_list("patterns", filters, "patterns")  # first: reading them may call this dispatcher
        now = checked_now(now_ms, self._machine.now)
        accepts = checked_filter(patterns, self._machine.config)
        self._machine.membership.set_filters(check_kind("name", name, str), accepts)
        return self._machine.wake(now)

    def set_weight(self, name: str, weight: Weight, *, now_ms: int | None = None) -> list[Effect[Item]]:
        """Change a consumer's share of the keys. Cost as `add_consumer`."""
        now = checked_now(now_ms, self._machine.now)
        check_number("weight", weight, above=True)
        self._machine.membership.set_weight(check_kind("name", name, str), weight)
        return self._machine.wake(now)

    def set_placement(self, placement: Placement, *, now_ms: int | None = None) -> list[Effect[Item]]:
        """Place keys in another way; connected consumers that the placement lacks are added to a copy of it.

        Raises `ArgumentError` if it cannot have them, or its hash refuses a key that is known here.
        """
        now = checked_now(now_ms, self._machine.now)
        check_members("placement", placement, Placement)
        self._machine.membership.set_placement(placement)
        return self._machine.wake(now)

    def pull(
        self, name: str, most: int, *, only: int | None = None, per_key: int | None = None, now_ms: int | None = None
    ) -> list[Effect[Item]]:
        """Hand a consumer some of what waits for it, whatever its limit: for consumers that ask, with a limit of 0.

        Args:
            most: How many messages it takes, an int of at least 1.
            only: Hand out nothing but this offset, out of its turn, if it waits for nothing but capacity of the
                consumer. The lowest outstanding one is loaded though the window may be full.
            per_key: How many messages of one key a batch may have this time, at most ``batch_per_key``, the default.

        Returns:
            The deliveries, and a `Load` in place of one that has to be read again: once it is `loaded`, ask again.
            ``[]`` if nothing waits for it, or it is inactive.
        """
        now = checked_now(now_ms, self._machine.now)
        check_int("most", most, 1)
        if only is not None:
            check_offset("only", only)
        if per_key is not None:
            most_per_key = self._machine.config.batch_per_key
            check_int("per_key", per_key, 1, ", the batch_per_key that is configured", most=most_per_key)
        return self._machine.pull(check_kind("name", name, str), most, only, per_key, now)

    def set_group(
        self,
        name: str,
        *,
        weight: int = 1,
        max_in_flight: int | None = None,
        per_second: int | None = None,
        burst: int = 1,
        now_ms: int | None = None,
    ) -> list[Effect[Item]]:
        """Set all limits of a group of keys, as `GroupLimits` names them; what is open stays open.

        It need not have a message yet; ``""`` has the keys that are in no other. Raises `ArgumentError` without groups.
        """
        now = checked_now(now_ms, self._machine.now)
        groups = checked_groups(self._machine.groups, name)
        limits = GroupLimits(weight=weight, max_in_flight=max_in_flight, per_second=per_second, burst=burst)
        self._machine.now = now
        groups.set_group(name, limits)
        return self._machine.wake(now)

    def pause_group(self, name: str, *, now_ms: int | None = None) -> list[Effect[Item]]:
        """Deliver nothing of a group until `resume_group`; what is open stays open. Raises as `set_group`."""
        now = checked_now(now_ms, self._machine.now)
        checked_groups(self._machine.groups, name).pause(name)
        return self._machine.wake(now)

    def resume_group(self, name: str, *, now_ms: int | None = None) -> list[Effect[Item]]:
        """End the pause of a group; nothing if it has none. Raises as `set_group`."""
        now = checked_now(now_ms, self._machine.now)
        groups = checked_groups(self._machine.groups, name)
        self._machine.now = now
        groups.resume(name)
        return self._machine.wake(now)

    def flushed(self, key: Key, session: int, *, now_ms: int | None = None) -> list[Effect[Item]]:
        """Confirm that a consumer has flushed its state of a key, as a `KeyEnding` asked: the session has ended.

        Returns `KeyEnded`, and what its key may deliver now; `Ignored` if that session is not to be flushed.
        """
        now = checked_now(now_ms, self._machine.now)
        data = self._lane_key(key)
        if data is None:
            raise ArgumentError("key", key, "be a key: messages without one have no session")
        check_int("session", session, 1)
        return self._machine.flushed(data, session, now)

    def next_deadline_ms(self) -> int | None:
        """Return when `handle_timeout` has something to do next, or None. Exact. O(log n) amortised."""
        return self._machine.timers.next_deadline

    def handle_timeout(self, *, now_ms: int | None = None) -> list[Effect[Item]]:
        """Do what is due: ack timeouts, retries, drains, and evictions last. Early or extra calls are free.

        Returns `Released`, `Evicted` and the effects of policies, in the order in which they fell due; then the
        deliveries that are possible now. O(log n) for each deadline. A loop that may wake early passes
        ``max(deadline, now)``.
        """
        return self._machine.handle_timeout(checked_now(now_ms, self._machine.now))

    def _checked_offset(self, offset: int, now_ms: int | None) -> tuple[int, int]:
        """Return the offset and the instant of a call about one message."""
        now = checked_now(now_ms, self._machine.now)
        check_offset("offset", offset)
        return offset, now
