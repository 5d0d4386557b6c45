"""The reliable Key-Shared dispatcher: takes facts and the time, returns effects.

It composes the window (order, limits, memory), membership and routing (who owns a key), timers, and the policies of a
configuration. Here are the inputs, one method each; nothing else decides what a host is told. The queries are those of
`DispatcherReading`.

Why lists of effects, and not callbacks or something to poll: cause and effect stay together in a log, a call that
raises has emitted nothing, and the state can be asked, copied and stored between any two calls.
"""

from collections.abc import Callable, Iterable, Mapping
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, Self, cast

from keyshared._checks import (
    check_bool,
    check_int,
    check_kind,
    check_mapping,
    check_offset,
    check_position,
    checked_list,
    checked_now,
    configuration,
    require,
)
from keyshared._dispatch.admission import Admission, Message, limits_for
from keyshared._dispatch.configured import check_rules, window_for
from keyshared._dispatch.endings import endings_for
from keyshared._dispatch.explain import (
    Blocking,
    ConsumerStats,
    DispatcherStats,
    GroupStats,
    KeySession,
    Outstanding,
    RestartMark,
    SessionPhase,
)
from keyshared._dispatch.health import Health
from keyshared._dispatch.members import Member, MemberState
from keyshared._dispatch.membership import Membership
from keyshared._dispatch.outboxes import ledger_for, outbox_for
from keyshared._dispatch.reading import DispatcherReading
from keyshared._dispatch.receipts import (
    Receipt,
    StoredLetter,
    check_length,
    check_not_before,
    check_reason,
    check_receipt,
    checked_letters,
    current,
    explain_ignored,
    open_through,
    read_receipts,
)
from keyshared._dispatch.rooms import (
    dump_rooms,
    groups_of,
    health_of,
    load_rooms,
    redriven_of,
    refresh_rooms,
    rooms_for,
    sessions_of,
)
from keyshared._dispatch.routing import Routing
from keyshared._dispatch.snapshot import (
    EPOCH_BITS,
    Reader,
    Restart,
    check_epoch,
    dump_members,
    dump_window,
    load_member,
    load_messages,
    load_places,
    placement_mark,
    read_snapshot,
)
from keyshared._dispatch.timers import Duties, Duty, Stage, Timers, due_order
from keyshared._window.lanes import BLOCKED, DEAD_LETTERING, IN_FLIGHT, LOADING, SPILLED, Entry
from keyshared.config import DispatcherConfig, GroupLimits, Rules
from keyshared.config.groups import check_group_limits
from keyshared.effects import (
    Call,
    Effect,
    Ending,
    Ignored,
    IgnoredReason,
    Item,
    ReleaseReason,
    Skipped,
    SkipReason,
)
from keyshared.errors import ArgumentError, ClockError, ConsumerExistsError, InvariantError, SnapshotError
from keyshared.hashing.named import Key, key_bytes
from keyshared.placement.protocol import Placement
from keyshared.placement.ranges import Weight

if TYPE_CHECKING:
    from keyshared._dispatch.groups import Groups
    from keyshared._dispatch.latest import LatestWindow

__all__ = [
    "Blocking",
    "ConsumerStats",
    "DispatcherStats",
    "GroupStats",
    "Health",
    "KeySession",
    "KeySharedDispatcher",
    "MemberState",
    "Message",
    "Outstanding",
    "Receipt",
    "RestartMark",
    "SessionPhase",
    "StoredLetter",
]

SNAPSHOT_VERSION: Final = 2
NO_ITEM: Final[Any] = None
"""What comes back with a message whose host gave nothing along, whatever type its items have."""

_offset_of: Final = attrgetter("offset")
_order_of: Final = attrgetter("order")

_WAITS_FOR: Final = {
    Call.DEAD_LETTERED: (DEAD_LETTERING, IgnoredReason.NOT_DEAD_LETTERING),
    Call.PARK: (BLOCKED, IgnoredReason.NOT_BLOCKED),
    Call.UNBLOCK_OFFSET: (BLOCKED, IgnoredReason.NOT_BLOCKED),
}
"""The state of a message that waits for a call of the host, and why the call is ignored in any other."""


class KeySharedDispatcher(DispatcherReading[Item]):
    """Hands messages of one key to one consumer at a time, in order, and different keys to different consumers at once.

    Every input returns the effects that the host has to apply, in order: see `keyshared.effects`. ``now_ms`` is a
    monotonic clock in whole milliseconds; None means the instant of the previous call, and time that goes back raises
    `ClockError`. A receipt is offset, consumer and attempt of a delivery; what cannot be one raises `ArgumentError`.
    A call for a consumer that is not connected, or only drains, raises `UnknownConsumerError`. A call that raises has
    changed nothing. Not thread-safe: read the clock, call, and queue the effects in one critical section, and let one
    task apply them.

    The type of the items is a parameter: a ``KeySharedDispatcher[Order]`` takes orders, and its `Deliver` carry orders.
    Without it an item may be anything. An item that the host did not give is None, whatever the type.

    Keys are ``bytes``, ``str`` (its UTF-8 bytes) or None for a message without order. Offsets grow strictly; gaps are
    legal.

    Args:
        placement: Where keys go. Copied: consumers are added to the copy as they join.
        config: Limits, timeouts and policies.
        rules: Functions of a key, such as the one that answers with its group.
        resume_from: Text of a `cursor_token` of an earlier life: read on from `resume_offset` and offer everything. Its
            position counts instead of ``config.start``.

    Raises:
        ConfigError: ``rules`` and ``config`` contradict each other.
        SnapshotError: ``resume_from`` is truncated, damaged, of another version, or no token at all.

    Complexity:
        O(1) amortised for each message and answer, O(log n) where a deadline or an owner is searched; never a scan of
        the window, of the consumers or of a key's backlog. Memory O(outstanding).

    Source:
        Danube "Key-Shared Dispatch Architecture"; differs: nothing is polled, lost, reordered or acked on behalf of
        anybody (docs/danube.md lists every fault and why it cannot happen here).

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

    def __init__(
        self,
        placement: Placement,
        config: DispatcherConfig | None = None,
        *,
        rules: Rules | None = None,
        resume_from: str | None = None,
    ) -> None:
        config = DispatcherConfig() if config is None else check_kind("config", config, DispatcherConfig)
        self._config = config
        self._rules = None if rules is None else check_rules(rules, config)
        self._routing = Routing(placement, one_key=b"" if config.ordering_required else None)
        self._window = window_for(config, self._routing, self._routing.filters, rules)
        self._routing.acceptance.keep_for(self._window.lanes)
        ledger = self._ledger = ledger_for(config, self._window)
        self._latest = cast("LatestWindow", self._window) if self._window.supersedes else None
        if resume_from is not None:
            self._window.cursor.resume_from(resume_from)
        timers = self._timers = Timers()
        limits = self._waiting = limits_for(config, self._routing, self._window)
        counts = None if limits is None else limits.counts
        self._endings = endings_for(config, self._window, timers, ledger, counts)
        self._notes = self._endings.notes
        self._rooms = rooms_for(config, self._window, timers, self._endings, ledger)
        sessions = self._sessions = sessions_of(self._rooms)
        self._membership = Membership(config, self._routing, self._window, timers, self._endings, sessions=sessions)
        self._members = self._membership.members
        self._admission = Admission(config, self._window, self._membership, limits)
        self._health = health_of(self._rooms)
        self._redriven = redriven_of(self._rooms)
        self._groups = groups_of(self._rooms)
        if self._groups is not None:
            self._admission.watch(self._groups)
        self._restart = Restart(self._window)
        self._duties: Duties = {
            **self._restart.duties,
            Entry: Duty(Stage.DELIVERIES, _offset_of, self._endings.due),
            Member: Duty(Stage.CONSUMERS, _order_of, self._membership.deadline_reached),
            **{kind: duty for room in self._rooms for kind, duty in room.duties.items()},
        }
        make_outbox = outbox_for(config, ledger if config.tell_settled else None, counts, self._health)
        self._outbox = make_outbox(
            self._window, self._membership, self._endings, timers, self._rooms, ack_timeout_ms=config.ack_timeout_ms
        )
        self._outbox.resume(paused=False)
        self._strides = self._outbox.tells_once and not self._rooms  # a room looks at each call
        self._now = 0
        self._epoch = 0

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

        Deliveries that were open stay open for the time they had left. Offers up to the greatest offset that the
        snapshot knows are answered with ``[]`` until the first one above it, so the host may simply read on from
        `resume_offset`; each hands its passenger to the message that waits for it.

        Args:
            state: What `snapshot` returned, perhaps after a trip through JSON.
            placement: Of the same kind and settings as the original's; without consumers, those come from the snapshot.
                One that is history or was made by hand has to be the original's own, see `placement`.
            config: The configuration to go on with. Where wider limits make something possible, `handle_timeout` is due
                at once; the first offer of something new hands it out, too.
            now_ms: The clock of this process; it may have started anew.
            epoch: Raise it by one after every crash: deliveries get attempt numbers above ``epoch << 32``, so that acks
                of deliveries that the snapshot has not seen stay fenced. Never goes below the snapshot's own.
            items: Passengers by offset, which are not part of a snapshot.
            rules: Of the same mark as the original's.

        Returns:
            The dispatcher; `outstanding_effects` says what is to be done at once.

        Raises:
            ConfigError: ``rules`` and ``config`` contradict each other.
            SnapshotError: The state is truncated, forged, of another version, of another placement or drain unit, or of
                rules of another mark.
            ClockError: ``now_ms`` is not an int of at least 0.
            ArgumentError: ``epoch`` is not an int from 0 to 2**31 - 1.

        Complexity:
            O(n log n), n messages outstanding.

        Example:
            >>> from keyshared.ring import HashRing
            >>> d = KeySharedDispatcher(HashRing())
            >>> _ = d.add_consumer("c1"), d.offer(7, "k", "hello")
            >>> again = KeySharedDispatcher.restore(d.snapshot(), HashRing(), now_ms=0, epoch=1, items={7: "hello"})
            >>> again.outstanding_effects() == d.outstanding_effects()
            True
        """
        check_epoch(epoch)
        if type(now_ms) is not int or now_ms < 0:
            raise ClockError(now_ms, 0)
        items = {} if items is None else check_mapping("items", items)
        data = read_snapshot(state)
        if data.field("version").integer() != SNAPSHOT_VERSION:
            raise data.field("version").refuse(f"be {SNAPSHOT_VERSION}, the version that this release writes")
        new = cls(placement, config, rules=rules)
        new._now = now_ms
        try:
            new._load(data, epoch, items)
            new.check_invariants()
        except SnapshotError:
            raise
        except (ArgumentError, ConsumerExistsError, InvariantError) as broken:
            raise data.refuse(f"describe a dispatcher that can exist ({broken})") from broken
        return new

    # messages in

    def offer(
        self,
        offset: int,
        key: Key,
        item: Item = NO_ITEM,
        *,
        not_before_ms: int | None = None,
        now_ms: int | None = None,
    ) -> list[Effect[Item]]:
        """Take the next message of the log.

        Args:
            offset: Greater than any offered before.
            key: What the message is ordered by; None for nothing.
            item: A passenger that comes back with its `Deliver`.
            not_before_ms: An instant of the same clock before which it is not delivered, and its key waits behind it.
                One that has come says nothing, and a retry does not look at it.

        Returns:
            `Deliver` if it goes out at once; `Spilled` if its payload is not wanted now; `Skipped` if no consumer
            accepts its key and the policy says so; ``[]`` if it waits, or was known before a restart. With
            ``latest_only`` also `Skipped` of an older message of its key, which it supersedes. That, and one that was
            settled above the position of a token, can let the cursor pass: `CursorAdvanced`.

        Raises:
            KeyTypeError: The key is of another type.
            ConfigError: A function of the rules raised for this key, or did not answer as it should.
            OffsetOrderError: The offset is not an int above the last one.
            ArgumentError: The offset has more than 63 bits, or ``not_before_ms`` is no int.
            WindowFullError: `free_slots` is 0; as a `KeyFullError` or `ConsumerFullError`: `room_for` its key is.
            UnmatchedKeyError: Nobody accepts the key or nobody owns its slot, and the policy is to raise.

        Complexity:
            O(log vnodes) for the first message of a key, and one pass over the key where there are filters; else O(1).
        """
        if now_ms is None:
            now_ms = self._now
        elif type(now_ms) is not int or now_ms < self._now:
            raise ClockError(now_ms, self._now)
        if type(key) is not bytes:
            key = key_bytes(key)
        if not_before_ms is not None or self._admission.asks:
            return self._offer_asked(offset, key, item, not_before_ms, now_ms)
        granted = self._window.offer(offset, key, item)
        self._now = now_ms
        return self._outbox.finish_offer(granted, now_ms)

    def offer_many(self, messages: Iterable[Message[Item]], *, now_ms: int | None = None) -> list[Effect[Item]]:
        """Take several messages at one instant: the effects of single offers in one list, with one state at the end.

        Args:
            messages: Tuples of offset, key and passenger, and perhaps ``not_before_ms``; at most `free_slots` of them,
                and of a key, or of all keys of a consumer, as many as `room_for` says.

        Returns:
            As `offer`.

        Raises:
            ArgumentError: Something else than such tuples was given.
            MisuseError: As `offer`, for any of them; then none was taken.
        """
        given = checked_list("messages", messages, "messages")  # first: reading them may call this dispatcher
        now = checked_now(now_ms, self._now)
        batch, instants = self._admission.check_batch(given)
        self._now = now
        if instants or self._admission.asks or not self._strides:
            calls = [self.offer(*message, not_before_ms=instants.get(message[0])) for message in batch]
            return self._outbox.merge(calls, () if self._latest is None else _skipped_in(calls))
        return self._outbox.finish_many(self._window.offer_many(batch), now, was_full=False)

    # answers

    def ack(self, offset: int, consumer: str, attempt: int, *, now_ms: int | None = None) -> list[Effect[Item]]:
        """Settle one delivery and hand out what it was holding back.

        Args:
            offset: Offset of the delivery; the three together are its `Deliver.receipt`. What is equal to the numbers
                of a current delivery settles it, True or 1.0 for 1: to look at their types would cost each ack.

        Returns:
            The deliveries that are possible now, then `CursorAdvanced` if the cursor moved. `Ignored` alone if the
            receipt does not name the current delivery; but a late ack, one of a delivery that was made to that consumer
            and has ended, settles a message that is not open at that moment, and is noted of one that is open again:
            however that delivery ends, it will count as acked.

        Complexity:
            O(1) amortised plus what is delivered; O(log n) for a late ack.

        Source:
            Danube "Contiguous Cursor Advancement"; differs: who acks and which delivery is checked.
        """
        if now_ms is None:
            now_ms = self._now
        elif type(now_ms) is not int or now_ms < self._now:
            raise ClockError(now_ms, self._now)
        try:
            entry = self._members[consumer].open[offset]
        except (KeyError, TypeError):
            return self._late_ack(offset, consumer, attempt, now_ms)
        if entry.attempt != attempt:
            return self._late_ack(offset, consumer, attempt, now_ms)
        self._now = now_ms
        entry.deadline = None
        if self._notes:
            self._notes.pop(offset, None)
        return self._outbox.finish([], self._window.settle(entry), now_ms)

    def ack_many(self, receipts: Iterable[Receipt], *, now_ms: int | None = None) -> list[Effect[Item]]:
        """Settle several deliveries at one instant: the effects of single acks in one list, with one state at the end.

        Args:
            receipts: `Deliver.receipt` of each.

        Returns:
            As `ack`.

        Raises:
            ArgumentError: Something else than receipts was given; then nothing was settled.
        """
        given = checked_list("receipts", receipts, "receipts")  # first: reading them may call this dispatcher
        now = checked_now(now_ms, self._now)
        batch, entries = read_receipts(given, self._members)
        self._now = now
        if entries is None or not self._strides:
            return self._outbox.merge([self.ack(*receipt) for receipt in batch], {receipt[0] for receipt in batch})
        for entry in entries:
            entry.deadline = None
        if self._notes:
            for entry in entries:
                self._notes.pop(entry.offset, None)
        granted, was_full = self._window.settle_many(entries)
        return self._outbox.finish_many(granted, now, was_full=was_full)

    def ack_through(self, offset: int, consumer: str, attempt: int, *, now_ms: int | None = None) -> list[Effect[Item]]:
        """Settle a delivery and every older open one of its key: how far a handler of batches has come.

        Args:
            offset: Offset of the delivery; the three together are its `Deliver.receipt`.

        Returns:
            As `ack_many` for all of them. If the receipt does not name the current delivery, nothing older is settled
            either: as `ack`.

        Raises:
            ArgumentError: That cannot be a receipt.

        Example:
            >>> from keyshared import DispatcherConfig, HashRing
            >>> d = KeySharedDispatcher(HashRing(), DispatcherConfig(batch_per_key=3))
            >>> _ = [d.offer(offset, "order-1") for offset in range(4)], d.add_consumer("c1")
            >>> [(effect.offset, effect.attempt) for effect in d.in_flight()]
            [(0, 1), (1, 1), (2, 1)]
            >>> d.ack_through(1, "c1", 1), [effect.offset for effect in d.in_flight()]
            ([CursorAdvanced(safe_cursor=1)], [2])
        """
        now = checked_now(now_ms, self._now)
        check_receipt(offset, consumer, attempt)
        entry = current(self._members, offset, consumer, attempt)
        if entry is None:
            return self.ack(offset, consumer, attempt, now_ms=now)
        return self.ack_many(open_through(entry), now_ms=now)

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
        """Report that a delivery failed: the message is retried after a delay, or is poison by now. Its key waits.

        Args:
            delay_ms: A delay that the consumer asks for; makes the policy's longer, never shorter.
            reason: What went wrong, in at most 500 characters: `DeadLetter`, `Blocked` and `describe` say it. None
                keeps what was said of the failure before.

        Returns:
            `Released`, what the poison policy decided, and the deliveries that the freed consumer gets; `Ignored` alone
            if the receipt does not name the current delivery.

        Raises:
            ArgumentError: That cannot be a receipt, the delay is not an int of at least 0, or the reason is no text of
                that length.

        Source:
            Pulsar issue 23480: a nack must not reorder its key.
        """
        now = checked_now(now_ms, self._now)
        check_length("delay_ms", delay_ms, at_least=0)
        check_reason(reason)
        receipt = (offset, consumer, attempt)
        return self._end(Call.NACK, ReleaseReason.NACKED, receipt, now, delay_ms=delay_ms, why=reason)

    def reject(
        self, offset: int, consumer: str, attempt: int, *, reason: str | None = None, now_ms: int | None = None
    ) -> list[Effect[Item]]:
        """Report that no retry can help: the message is poison now. As `nack`, without the retries."""
        now = checked_now(now_ms, self._now)
        check_reason(reason)
        return self._end(Call.REJECT, ReleaseReason.REJECTED, (offset, consumer, attempt), now, why=reason)

    def release(
        self, offset: int, consumer: str, attempt: int, *, delay_ms: int = 0, now_ms: int | None = None
    ) -> list[Effect[Item]]:
        """Return a delivery untouched: it is delivered again, and no failure is counted.

        Args:
            delay_ms: How long the message waits, and its key behind it. `RetryPolicy.max_delay_ms` is no bound for it.

        Returns:
            As `nack`.

        Raises:
            ArgumentError: That cannot be a receipt, or the delay is not an int of at least 0.

        Example:
            >>> from keyshared.ring import HashRing
            >>> d = KeySharedDispatcher(HashRing())
            >>> _ = d.add_consumer("c1"), d.offer(0, "order-1")
            >>> [released] = d.release(0, "c1", 1, delay_ms=60_000, now_ms=5)  # "ask me again in a minute"
            >>> released.retry_at_ms, released.failures, d.why_blocked(0).reason.value
            (60005, 0, 'postponed')
        """
        now = checked_now(now_ms, self._now)
        check_int("delay_ms", delay_ms, 0)
        receipt = (offset, consumer, attempt)
        return self._end(Call.RELEASE, ReleaseReason.RELEASED, receipt, now, delay_ms=delay_ms)

    def extend(
        self, offset: int, consumer: str, attempt: int, *, extend_ms: int | None = None, now_ms: int | None = None
    ) -> list[Effect[Item]]:
        """Move the deadline of a delivery, and of its whole batch.

        Args:
            extend_ms: From ``now_ms`` on; by default the configured ack timeout.

        Returns:
            ``[]``, or `Ignored` if the receipt does not name the current delivery.

        Raises:
            ArgumentError: That cannot be a receipt, or the time is not an int of at least 1.
        """
        now = checked_now(now_ms, self._now)
        check_length("extend_ms", extend_ms, at_least=1)
        length = self._config.ack_timeout_ms if extend_ms is None else extend_ms
        entry = self._answered(Call.EXTEND, (offset, consumer, attempt), now)
        if isinstance(entry, Ignored):
            return [entry]
        if length is not None:
            for each in self._endings.together(entry):
                self._timers.start(each, now + length)
        return []

    # poison, spill, the log

    def dead_lettered(self, offset: int, *, now_ms: int | None = None) -> list[Effect[Item]]:
        """Confirm that a `DeadLetter` is written: the message is settled, or stays blocked if the policy says so.

        Returns:
            What its key may deliver now; `Ignored` if no dead letter of it was asked for.
        """
        return self._confirm(Call.DEAD_LETTERED, offset, now_ms, self._endings.archived)

    def loaded(self, offset: int, item: Item = NO_ITEM, *, now_ms: int | None = None) -> list[Effect[Item]]:
        """Hand in the payload that a `Load` asked for.

        Returns:
            Its `Deliver` if its turn has come; `Ignored` if nobody asked for it.
        """
        if now_ms is None:
            now_ms = self._now
        elif type(now_ms) is not int or now_ms < self._now:
            raise ClockError(now_ms, self._now)
        entry = self._window.find(offset) if type(offset) is int else None
        if entry is None or entry.state != LOADING:
            check_offset("offset", offset)
            self._now = now_ms
            reason = IgnoredReason.UNKNOWN_OFFSET if entry is None else IgnoredReason.NOT_LOADING
            return [Ignored(offset, None, None, Call.LOADED, reason)]
        self._now = now_ms
        return self._outbox.wake([], now_ms) if self._window.provide(entry, item) else []

    def park(self, offset: int, *, now_ms: int | None = None) -> list[Effect[Item]]:
        """Settle one blocked message that is given up; its key goes on.

        Returns:
            `Settled`, and what its key may deliver now; `Ignored` if the message is not blocked.
        """
        return self._confirm(Call.PARK, offset, now_ms, self._endings.park)

    def unblock(self, key: Key, *, now_ms: int | None = None) -> list[Effect[Item]]:
        """End the quarantine of a key, and deliver what it or a block keeps back with no failure counted.

        Args:
            key: The key; None for all blocked messages without one.

        Returns:
            The deliveries that are possible now.

        Raises:
            KeyTypeError: See `key_bytes`.
        """
        now = checked_now(now_ms, self._now)
        data = key_bytes(key)
        self._now = now
        self._endings.unblock(data)
        return self._outbox.wake([], now)

    def unblock_offset(
        self, offset: int, *, reset_failures: bool = True, now_ms: int | None = None
    ) -> list[Effect[Item]]:
        """Deliver one blocked message again.

        Args:
            reset_failures: Whether all retries are granted anew; if not, its failures stay counted, so that one that
                had no retry left is poison again when the next delivery fails.

        Returns:
            The deliveries that are possible now; `Ignored` if the message is not blocked.
        """
        now = checked_now(now_ms, self._now)
        check_bool("reset_failures", reset_failures)

        def unblock(entry: Entry, _: list[Effect]) -> None:
            self._endings.unblock_one(entry, reset_failures=reset_failures)

        return self._confirm(Call.UNBLOCK_OFFSET, offset, now, unblock)

    def redrive(
        self, key: Key, letters: Iterable[StoredLetter[Item]], *, now_ms: int | None = None
    ) -> list[Effect[Item]]:
        """Deliver dead letters of a key again, each at the place in its key that it always had.

        All of them come back before anything is delivered, under their own offsets: before what is newer of the key and
        outstanding, behind what is older. What is open of the key stays open. The position and the token do not know
        them, so until they are settled their dead-letter store has them: after a crash without a snapshot, redrive them
        again.

        Args:
            key: The key of all of them.
            letters: What their `DeadLetter` said, in any order, at most `free_slots` of them.

        Returns:
            The deliveries that are possible now; `Ignored` for each letter that is outstanding, and for all of them
            while the key is in quarantine.

        Raises:
            KeyTypeError: See `key_bytes`.
            ArgumentError: One of them is no letter, or the hash of the placement refuses the key.
            ConfigError: The configuration has no ``redrive``, or a rule has no answer for the key.
            RedriveTooEarlyError: One of them may still be offered, or something older than it.
            WindowFullError: There are more new ones than free slots.

        Complexity:
            O(k log k) for k letters, and O(older messages of the key that are outstanding).

        Example:
            >>> from keyshared import DispatcherConfig, HashRing
            >>> d = KeySharedDispatcher(HashRing(), DispatcherConfig(redrive=True))
            >>> _ = d.add_consumer("c1"), d.offer(0, "order-1", "created"), d.offer(1, "order-1", "paid")
            >>> letter, = d.reject(0, "c1", 1)[1:]
            >>> _ = d.dead_lettered(0), d.nack(1, "c1", 1)                      # "paid" before "created" cannot work
            >>> effects = d.redrive("order-1", [StoredLetter(letter.offset, letter.attempt, letter.item)])
            >>> [(effect.offset, effect.item, effect.attempt, effect.failures) for effect in effects]
            [(0, 'created', 2, 0)]
        """
        given = checked_letters(letters)  # first: reading them may call this dispatcher
        now = checked_now(now_ms, self._now)
        data = key_bytes(key)
        if self._redriven is None:
            with configuration():
                raise ArgumentError("redrive", False, "be True to redrive: DispatcherConfig(redrive=True)")
        self._admission.check_slot(data)
        ignored = self._redriven.take(data, given)
        self._now = now
        return self._outbox.wake(ignored, now)

    def gone(self, offset: int, *, now_ms: int | None = None) -> list[Effect[Item]]:
        """Settle a message that can no longer be read: now, or when its open delivery ends.

        Returns:
            `Skipped`, and what its key may deliver now; ``[]`` if it is in flight or not outstanding.
        """
        now = checked_now(now_ms, self._now)
        check_offset("offset", offset)
        self._now = now
        notices: list[Effect] = []
        entry = self._window.find(offset)
        if entry is not None:
            self._endings.gone(entry, notices)
        return self._outbox.wake(notices, now)

    def truncate(self, before: int, *, now_ms: int | None = None) -> list[Effect[Item]]:
        """Begin the log at an offset: `gone` for everything outstanding below it."""
        now = checked_now(now_ms, self._now)
        check_position("before", before)
        self._now = now
        notices: list[Effect] = []
        for entry in self._window.older_than(before):
            self._endings.gone(entry, notices)
        return self._outbox.wake(notices, now)

    # consumers

    def add_consumer(
        self,
        name: str,
        *,
        filters: Iterable[str] = (),
        weight: Weight | None = None,
        limit: int | None = None,
        now_ms: int | None = None,
    ) -> list[Effect[Item]]:
        """Add a consumer; keys that move to it are handed over as their open deliveries end.

        Args:
            name: One session: a name that is active or inactive is refused, one that still drains starts anew.
            filters: Glob patterns of the keys it accepts; none for all.
            weight: Its share relative to the others'; by default 1, or what a placement that already names it gives it.
            limit: Deliveries it may have open; by default the configured limit. 0 to begin with lets it pull.

        Returns:
            The deliveries that are possible now.

        Raises:
            ConsumerExistsError: The name is connected.
            ArgumentError: The name, a pattern, the weight or the limit can never work.

        Complexity:
            O(vnodes log n + lanes that wait + what is delivered); if anything waits at all, also O(consumers + open
            deliveries).
        """
        patterns = checked_list("patterns", filters, "patterns")  # first: reading them may call this dispatcher
        now = checked_now(now_ms, self._now)
        notices: list[Effect] = []
        self._membership.join(name, patterns, weight, limit, notices, now=now)
        self._now = now
        return self._outbox.wake(notices, now)

    def remove_consumer(self, name: str, *, drain_ms: int | None = 0, now_ms: int | None = None) -> list[Effect[Item]]:
        """Remove a consumer.

        Args:
            name: Who leaves; an unknown name is ignored.
            drain_ms: How long it may finish what it holds; None for as long as it takes. Its keys move at once, and
                each goes on when its open deliveries have ended.

        Returns:
            `Released` for what it held, and the deliveries that are possible now.

        Raises:
            ArgumentError: The time is not an int of at least 0.
        """
        now = checked_now(now_ms, self._now)
        notices: list[Effect] = []
        self._membership.leave(name, drain_ms, notices, now=now)
        self._now = now
        return self._outbox.wake(notices, now)

    def set_inactive(self, name: str, *, now_ms: int | None = None) -> list[Effect[Item]]:
        """Report that a consumer's connection is gone: it gets nothing, and keeps its keys for the grace period.

        What it holds stays open, and acks count. An unknown name is ignored.
        """
        now = checked_now(now_ms, self._now)
        self._membership.deactivate(name, now)
        self._now = now
        return self._outbox.wake([], now)

    def set_active(self, name: str, *, resumed: bool = False, now_ms: int | None = None) -> list[Effect[Item]]:
        """Report that a consumer is back.

        Args:
            resumed: Whether it still has what it held; if not, that is sent again, and counts as a failure.

        Returns:
            `Released` for what is sent again, and the deliveries that are possible now.
        """
        now = checked_now(now_ms, self._now)
        check_bool("resumed", resumed)
        notices: list[Effect] = []
        self._membership.activate(name, notices, now=now, resumed=resumed)
        self._now = now
        return self._outbox.wake(notices, now)

    def set_limit(self, name: str, limit: int, *, now_ms: int | None = None) -> list[Effect[Item]]:
        """Set how many deliveries a consumer may have open; what it holds beyond that stays.

        Returns:
            The deliveries that are possible now.

        Raises:
            ArgumentError: The limit is not an int of at least 0.
        """
        now = checked_now(now_ms, self._now)
        self._membership.set_limit(name, limit)
        self._now = now
        return self._outbox.wake([], now)

    def flushed(self, key: Key, session: int, *, now_ms: int | None = None) -> list[Effect[Item]]:
        """Confirm that a consumer has flushed what it kept for a key, as a `KeyEnding` asked: the session has ended.

        Args:
            key: The key of the session.
            session: Its number.

        Returns:
            `KeyEnded`, and what its key may deliver now; `Ignored` if that session is not to be flushed.

        Raises:
            KeyTypeError: The key is of another type.
            ArgumentError: The key is None, or the session is no int of at least 1.

        Example:
            >>> from keyshared import DispatcherConfig, HashRing
            >>> from keyshared.config import KeySessions
            >>> d = KeySharedDispatcher(HashRing(), DispatcherConfig(sessions=KeySessions(flush_ms=None)))
            >>> _ = d.add_consumer("c1")
            >>> begun, delivered = d.offer(0, "order-1")
            >>> begun
            KeyBegun(key=b'order-1', consumer='c1', session=1)
            >>> ending, _ = d.ack(*delivered.receipt)
            >>> d.offer(1, "order-1"), d.why_blocked(1).reason.value
            ([], 'flushing')
            >>> [type(effect).__name__ for effect in d.flushed(ending.key, ending.session)]
            ['KeyEnded', 'KeyBegun', 'Deliver']
        """
        now = checked_now(now_ms, self._now)
        data = key_bytes(key)
        if data is None:
            raise ArgumentError("key", key, "be a key: messages without one have no session")
        check_int("session", session, 1)
        self._now = now
        if self._sessions is None or not self._sessions.flush_ends(data, session):
            return [Ignored(None, None, session, Call.FLUSHED, IgnoredReason.NOT_FLUSHING)]
        return self._outbox.wake([], now)

    def pull(
        self,
        name: str,
        most: int,
        *,
        only: int | None = None,
        per_key: int | None = None,
        now_ms: int | None = None,
    ) -> list[Effect[Item]]:
        """Hand a consumer some of what waits for it, whatever its limit: for those who ask and have a limit of 0.

        Args:
            most: How many messages it takes, an int of at least 1.
            only: Hand out nothing but this offset, and that out of its turn; nothing if it has to wait for more than
                room at the consumer. If it is the lowest one outstanding and spilled, there is a `Load` though the
                window may be full.
            per_key: How many messages of one key a batch may have this time, from 1 to ``batch_per_key`` of the
                configuration, which is the default.

        Returns:
            The deliveries, and a `Load` in place of one that has to be read again: once it is `loaded`, ask again.
            ``[]`` if nothing waits for it, or it is inactive.

        Raises:
            ArgumentError: ``most``, ``only`` or ``per_key`` can never work.

        Complexity:
            O(what is handed out); with ``only`` O(log n).

        Example:
            >>> from keyshared.ring import HashRing
            >>> d = KeySharedDispatcher(HashRing())
            >>> _ = d.add_consumer("c1", limit=0), d.offer(0, "a"), d.offer(1, "b"), d.offer(2, "a")
            >>> [effect.offset for effect in d.pull("c1", 10)]      # 2 waits for 0
            [0, 1]
        """
        now = checked_now(now_ms, self._now)
        check_int("most", most, 1)
        if only is not None:
            check_offset("only", only)
        if per_key is not None:
            check_int("per_key", per_key, 1, ", the batch_per_key that is configured", most=self._config.batch_per_key)
        member = self._membership.connected(name)
        self._now = now
        entry = None if only is None else self._window.find(only)
        if member.state is not MemberState.ACTIVE or (entry is None and only is not None):
            return []
        return self._outbox.finish([], self._window.pull(member, most if only is None else 1, entry, per_key), now)

    def set_filters(self, name: str, filters: Iterable[str], *, now_ms: int | None = None) -> list[Effect[Item]]:
        """Replace a consumer's key filters. Cost and result as `add_consumer`; raises also `UnknownConsumerError`."""
        patterns = checked_list("patterns", filters, "patterns")  # first: reading them may call this dispatcher
        now = checked_now(now_ms, self._now)
        self._membership.set_filters(name, patterns)
        self._now = now
        return self._outbox.wake([], now)

    def set_weight(self, name: str, weight: Weight, *, now_ms: int | None = None) -> list[Effect[Item]]:
        """Change a consumer's share. Cost and result as `add_consumer`; raises also `UnknownConsumerError`."""
        now = checked_now(now_ms, self._now)
        self._membership.set_weight(name, weight)
        self._now = now
        return self._outbox.wake([], now)

    # groups

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
        """Set all limits of a group of keys; what is open stays open.

        Args:
            name: The group, which need not have a message yet; ``""`` has the keys that are in no other.
            weight: How many turns in a row its keys get at a consumer.
            max_in_flight: Its open deliveries; None for no limit.
            per_second: How many of its deliveries may begin in a second, in the long run; None for no limit.
            burst: How many of them may begin at once.

        Returns:
            The deliveries that are possible now.

        Raises:
            ArgumentError: There are no groups, or a limit is out of range.

        Example:
            >>> from keyshared import HashRing
            >>> from keyshared.config import Rules
            >>> rules = Rules(mark="tenants-1", group_of=lambda key: key.partition(b"/")[0].decode())
            >>> d = KeySharedDispatcher(HashRing(), rules=rules)
            >>> _ = d.add_consumer("c1"), d.set_group("acme", max_in_flight=1)
            >>> [effect.key for effect in d.offer_many([(0, "acme/1", None), (1, "acme/2", None), (2, "bo/1", None)])]
            [b'acme/1', b'bo/1']
        """
        now = checked_now(now_ms, self._now)
        groups = self._groups_of(name)
        check_group_limits(weight, max_in_flight, per_second, burst)
        limits = GroupLimits(weight=weight, max_in_flight=max_in_flight, per_second=per_second, burst=burst)
        groups.set_group(name, limits, now)
        self._now = now
        return self._outbox.wake([], now)

    def pause_group(self, name: str, *, now_ms: int | None = None) -> list[Effect[Item]]:
        """Deliver nothing of a group until `resume_group`; what is open stays open. Raises as `set_group`."""
        now = checked_now(now_ms, self._now)
        self._groups_of(name).pause(name)
        self._now = now
        return self._outbox.wake([], now)

    def resume_group(self, name: str, *, now_ms: int | None = None) -> list[Effect[Item]]:
        """End the pause of a group; nothing if it has none. Result and errors as `set_group`."""
        now = checked_now(now_ms, self._now)
        self._groups_of(name).resume(name)
        self._now = now
        return self._outbox.wake([], now)

    def set_placement(self, placement: Placement, *, now_ms: int | None = None) -> list[Effect[Item]]:
        """Place keys in another way; connected consumers that the placement lacks are added to a copy of it.

        Raises:
            ArgumentError: That is no placement, or it cannot have these consumers, or its hash refuses a key that is
                outstanding or in quarantine, or has a session.
        """
        now = checked_now(now_ms, self._now)
        self._membership.set_placement(placement)
        self._now = now
        return self._outbox.wake([], now)

    # time

    def next_deadline_ms(self) -> int | None:
        """Return when `handle_timeout` has something to do next, or None. Exact. O(log n) amortised."""
        return self._timers.next_deadline

    def handle_timeout(self, *, now_ms: int | None = None) -> list[Effect[Item]]:
        """Do what is due: ack timeouts, retries, drains, and evictions last. Calls that are early or extra are free.

        Args:
            now_ms: Monotonic milliseconds; a loop that may wake early passes ``max(deadline, now)``.

        Returns:
            `Released`, `Evicted` and what policies decided, in the order in which it fell due; then the deliveries that
            are possible now.

        Complexity:
            O(log n) for each deadline that is due; never a scan.
        """
        now = self._now = checked_now(now_ms, self._now)
        if self._groups is None:
            return self._act(now)
        self._groups.forget_idle(now)
        calls = [self._act(now)]
        while (deadline := self._timers.next_deadline) is not None and deadline <= now:
            calls.append(self._act(now))  # a group has used its tokens up, and time has brought more
        return calls[0] if len(calls) == 1 else self._outbox.merge(calls)

    # the whole of it

    def snapshot(self) -> dict[str, object]:
        """The whole state as plain data that survives JSON: deadlines as what remains of them, no passengers. O(n)."""
        return {
            "version": SNAPSHOT_VERSION,
            "epoch": self._epoch,
            "unit": self._config.unit.value,
            "rules": None if self._rules is None else self._rules.mark,
            "paused": self._outbox.paused,
            "ranges": placement_mark(self._routing.ranges),
            "consumers": dump_members(self._members, self._now),
            **dump_window(self._window, self._endings, self._now),
            "rooms": dump_rooms(self._rooms, self._now),
        }

    def check_invariants(self) -> None:
        """Raise `InvariantError` if the books contradict one another. For tests; O(n)."""
        self._window.check_invariants()
        self._membership.check_invariants()
        self._outbox.check_invariants()
        self._endings.check_invariants()
        for room in self._rooms:
            room.check_invariants()
        is_due = self._restart.deadline is not None
        require(is_due or not self._window.wants_wake, "what may go out went out, unless a restart made it possible")

    # inside

    def _load(self, data: Reader, epoch: int, items: Mapping[int, object]) -> None:
        if data.field("unit").text() != self._config.unit:
            raise data.field("unit").refuse(f"be {self._config.unit.value!r}, the drain unit of the configuration")
        mark = None if self._rules is None else self._rules.mark
        if data.field("rules").maybe(Reader.text) != mark:
            raise data.field("rules").refuse(f"be {mark!r}, the mark of the rules that are given")
        self._epoch = max(epoch, data.field("epoch").epoch())
        self._window.first_attempt = self._epoch << EPOCH_BITS
        for order, consumer in enumerate(data.field("consumers").items()):
            self._membership.readmit(load_member(consumer, order, self._timers, self._now))
        if data.field("ranges").text() != placement_mark(self._routing.ranges):
            raise data.field("ranges").refuse("belong to the placement that is given: same kind, same settings")
        load_messages(data, self._window, self._endings, self._timers, now=self._now, items=items)
        if self._redriven is not None:
            self._redriven.readmit(data.field("rooms"), self._now, items)
        for member in self._members.values():
            self._endings.time_open(member.open.values(), self._now)
            self._membership.time_away(member, self._now)
        load_places(data, self._window)
        if self._ledger is not None:
            self._ledger.forget()
        load_rooms(data.field("rooms"), self._rooms, self._now)
        self._window.begin_anew()  # it changes lists, and those are compared with what rooms have kept
        refresh_rooms(self._rooms, self._now)
        if self._window.wants_wake:
            self._timers.start(self._restart, self._now)
        self._outbox.resume(paused=data.field("paused").flag())
        self._admission.begin()

    def _admit(self, offset: int, key: bytes | None, item: object, now: int) -> list[Effect[Item]] | None:
        """Answer an offer of what need not be tracked; None for any other, which nothing can stand against now."""
        if self._admission.is_known(offset):
            self._now = now
            self._admission.remember(offset, item)
            return self._outbox.known(offset, key)
        if self._admission.take_settled(offset):
            return self._pass_over(offset, key, Ending.EARLIER, [], now)
        if not self._admission.admit(offset, key):
            return self._pass_over(offset, key, Ending.UNMATCHED, [Skipped(offset, key, SkipReason.UNMATCHED)], now)
        return None

    def _groups_of(self, name: str) -> "Groups":
        """Return the room of groups, if there are any; the name of one is checked."""
        if self._groups is None or self._rules is None or self._rules.group_of is None:
            raise ArgumentError("name", name, "be of a group: there are no groups without Rules(group_of=...)")
        check_kind("name", name, str)
        return self._groups

    def _pass_over(
        self, offset: int, key: bytes | None, how: Ending, notices: list[Effect], now: int
    ) -> list[Effect[Item]]:
        """Take a message that nobody has to get."""
        self._now = now
        if self._ledger is not None:
            self._ledger.say(offset, key, how)
        self._window.cursor.skip(offset)
        return self._outbox.finish(notices, [], now)

    def _offer_asked(
        self, offset: int, key: bytes | None, item: Item, not_before_ms: int | None, now: int
    ) -> list[Effect[Item]]:
        """Take a message that may be known already, not wanted, or not wanted yet."""
        check_not_before(not_before_ms)
        if not self._admission.asks:
            return self._take(offset, key, item, not_before_ms, now)
        answer = self._admit(offset, key, item, now)
        if answer is not None:
            return answer
        # What a restart has made possible is before what is new.
        woken = [] if self._restart.deadline is None else self._outbox.wake([], now)
        if self._latest is not None and (older := self._latest.overtaken(key)):
            taken = self._supersede(older, offset, item, not_before_ms, now)
        else:
            if self._groups is not None:
                self._groups.forget_idle(now)
            taken = self._take(offset, key, item, not_before_ms, now)
        return self._outbox.merge([woken, taken], _skipped_in([taken])) if woken else taken

    def _take(
        self, offset: int, key: bytes | None, item: Item, not_before_ms: int | None, now: int
    ) -> list[Effect[Item]]:
        """Take a message that supersedes nothing, and that may not be wanted yet."""
        if not_before_ms is None or not_before_ms <= now:
            granted = self._window.offer(offset, key, item)
        else:
            self._admission.check_slot(key)
            entry = self._window.offer_later(offset, key, item, not_before_ms)
            self._timers.start(entry, not_before_ms)
            granted = [entry] if entry.state == SPILLED else []
        self._now = now
        return self._outbox.finish_offer(granted, now)

    def _supersede(
        self, older: list[Entry], offset: int, item: object, not_before_ms: int | None, now: int
    ) -> list[Effect[Item]]:
        """Take a message in the place of those of its key that wait for their first delivery."""
        window = cast("LatestWindow", self._latest)
        self._now = now
        notices: list[Effect] = []
        self._endings.supersede(older, notices)
        deadline = not_before_ms if not_before_ms is not None and not_before_ms > now else None
        granted = window.replace(older, offset, cast("bytes", older[0].key), item, deadline)
        if deadline is not None:
            self._timers.start(cast("Entry", window.find(offset)), deadline)
        return self._outbox.finish(notices, granted, now)

    def _act(self, now: int) -> list[Effect[Item]]:
        """Do what is due, and deliver what that makes possible."""
        notices: list[Effect] = []
        for duty, timed in due_order(self._timers.pop_due(now), self._duties):
            duty.act(timed, notices, now)
        return self._outbox.wake(notices, now)

    def _answered(self, call: Call, receipt: Receipt, now: int) -> Entry | Ignored:
        """Find the delivery that a receipt names, if it is current, and take the time of the call, which is checked."""
        check_receipt(*receipt)
        self._now = now
        entry = current(self._members, *receipt)
        if entry is not None:
            return entry
        return explain_ignored(call, receipt, self._window.find(receipt[0]), self._endings.ended(receipt[0]))

    def _end(
        self,
        call: Call,
        reason: ReleaseReason,
        receipt: Receipt,
        now: int,
        *,
        delay_ms: int | None = None,
        why: str | None = None,
    ) -> list[Effect[Item]]:
        """End the delivery that a receipt names, as its consumer asks."""
        entry = self._answered(call, receipt, now)
        if isinstance(entry, Ignored):
            return [entry]
        notices: list[Effect] = []
        self._endings.end(entry, reason, notices, now, delay_ms=delay_ms, why=why)
        return self._outbox.wake(notices, now)

    def _late_ack(self, offset: int, consumer: str, attempt: int, now: int) -> list[Effect[Item]]:
        """Answer an ack that does not name a current delivery."""
        check_receipt(offset, consumer, attempt)
        self._now = now
        entry = self._window.find(offset)
        ignored = explain_ignored(Call.ACK, (offset, consumer, attempt), entry, self._endings.ended(offset))
        if entry is None or ignored.reason is not IgnoredReason.STALE_ATTEMPT:
            return [ignored]
        if entry.state == IN_FLIGHT:
            self._endings.mark_late(entry)
            return [ignored._replace(reason=IgnoredReason.LATE_ACK_NOTED)]
        self._endings.settle(entry, Ending.LATE_ACK)
        return self._outbox.wake([], now)

    def _confirm(
        self, call: Call, offset: int, now_ms: int | None, act: Callable[[Entry, list[Effect]], None]
    ) -> list[Effect[Item]]:
        """Act on a message that waits for that call of the host."""
        now = checked_now(now_ms, self._now)
        check_offset("offset", offset)
        self._now = now
        state, otherwise = _WAITS_FOR[call]
        entry = self._window.find(offset)
        if entry is None or entry.state != state:
            reason = IgnoredReason.UNKNOWN_OFFSET if entry is None else otherwise
            return [Ignored(offset, None, None, call, reason)]
        notices: list[Effect] = []
        act(entry, notices)
        return self._outbox.wake(notices, now)


def _skipped_in(calls: Iterable[Iterable[Effect[Any]]]) -> set[int]:
    """Return what was settled by calls without a delivery that counted."""
    return {effect.offset for call in calls for effect in call if isinstance(effect, Skipped)}
