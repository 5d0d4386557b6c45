"""What a dispatcher answers about itself: the questions change nothing, and take no time."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Generic, cast

from keyshared._checks import check_int, check_kind, check_offset
from keyshared._dispatch.endings import Endings
from keyshared._dispatch.explain import (
    Blocking,
    DispatcherStats,
    GroupStats,
    KeySession,
    Outstanding,
    RestartMark,
    describe,
    gather_stats,
    why_blocked,
)
from keyshared._dispatch.health import Health, gather_health
from keyshared._dispatch.members import Member
from keyshared._dispatch.membership import Membership, held_by
from keyshared._dispatch.outbox import Outbox
from keyshared._dispatch.routing import Routing
from keyshared.config import DispatcherConfig, Rules
from keyshared.cursor import DEFAULT_TOKEN_BYTES, CursorToken
from keyshared.effects import Deliver, Effect, Item
from keyshared.hashing.named import Key, key_bytes
from keyshared.placement.protocol import Placement
from keyshared.window import InFlightWindow

if TYPE_CHECKING:  # a dispatcher that does not ask for them loads none of them
    from keyshared._dispatch.groups import Groups
    from keyshared._dispatch.measure import HealthRoom
    from keyshared._dispatch.sessions import Sessions
    from keyshared._dispatch.waiting import WaitingLimits
    from keyshared._window.lanes import Entry

__all__ = ["DispatcherReading"]


class DispatcherReading(Generic[Item]):
    """The queries of `KeySharedDispatcher`."""

    _config: DispatcherConfig
    _endings: Endings
    _groups: "Groups | None"
    _health: "HealthRoom | None"
    _members: dict[str, Member]
    _membership: Membership
    _now: int
    _outbox: Outbox
    _routing: Routing
    _rules: Rules | None
    _sessions: "Sessions | None"
    _waiting: "WaitingLimits | None"
    _window: InFlightWindow

    @property
    def config(self) -> DispatcherConfig:
        """The configuration it was made with."""
        return self._config

    @property
    def rules(self) -> Rules | None:
        """The rules it was made with."""
        return self._rules

    def groups(self) -> list[GroupStats]:
        """What every group is like at this moment that has a message or a limit of its own, by name. O(ready keys)."""
        return [] if self._groups is None else self._groups.stats()

    @property
    def safe_cursor(self) -> int | None:
        """Greatest offered offset below the lowest outstanding one; None before any. Never moves back."""
        return self._window.cursor.safe_cursor

    @property
    def resume_offset(self) -> int | None:
        """Where a restart that has only the cursor reads on: lowest outstanding offset, else the next one."""
        return self._window.cursor.resume_offset

    @property
    def restart_mark(self) -> RestartMark:
        """What a restart would redo, as a mark that is equal until something is settled or offered. O(1).

        Example:
            >>> from keyshared import HashRing, KeySharedDispatcher
            >>> d = KeySharedDispatcher(HashRing())
            >>> _ = d.add_consumer("c1"), d.offer(7, "slow"), d.offer(8, "b")
            >>> mark = d.restart_mark
            >>> d.ack(8, "c1", 1), d.restart_mark == mark       # no CursorAdvanced, and yet a token to commit
            ([], False)
        """
        cursor = self._window.cursor
        return RestartMark(cursor.last, cursor.outstanding)

    @property
    def free_slots(self) -> int:
        """How many messages may be offered now; at 0 stop reading until `Resumed`.

        While a restart with wider limits is due, each spilled message takes one of the slots.
        """
        return self._window.free_slots

    def room_for(self, key: Key) -> int:
        """How many messages of a key may be offered now, the limits of what waits included. O(log vnodes).

        No `Resumed` tells when there is room again: ask after a delivery of the key, or of its consumer, has ended.

        Example:
            >>> from keyshared.config import DispatcherConfig
            >>> from keyshared import HashRing, KeySharedDispatcher
            >>> d = KeySharedDispatcher(HashRing(), DispatcherConfig(window=9, spill=False, max_waiting_per_key=1))
            >>> _ = d.add_consumer("c1"), d.offer_many([(0, "busy", None)]), d.offer_many([(1, "busy", None)])
            >>> d.free_slots, d.room_for("busy"), d.room_for("idle")
            (7, 0, 1)
        """
        data = key_bytes(key)
        return self._window.free_slots if self._waiting is None else self._waiting.room_for(data)

    def acked_ranges(self) -> list[tuple[int, int]]:
        """Half-open stretches above the cursor in which everything offered is settled. O(n)."""
        return self._window.cursor.acked_ranges()

    def cursor_token(self, max_bytes: int = DEFAULT_TOKEN_BYTES) -> CursorToken:
        """The position and what is acked above it as a short text, for a restart that has no snapshot. O(n).

        ``KeySharedDispatcher(..., resume_from=token.text)`` goes on from it, any number of times: what one life
        does not read again stays settled for the next.

        Args:
            max_bytes: Length that the text may have; the default fits the metadata of a Kafka commit.

        Returns:
            The text, and what of the acked stretches did not fit.

        Raises:
            ArgumentError: Not even the position fits.

        Example:
            >>> from keyshared import HashRing, KeySharedDispatcher
            >>> d = KeySharedDispatcher(HashRing())
            >>> _ = d.add_consumer("c1")
            >>> first, second = d.offer_many([(7, "a", None), (8, "b", None)])
            >>> d.ack(*second.receipt)
            []
            >>> again = KeySharedDispatcher(HashRing(), resume_from=d.cursor_token().text)
            >>> _ = again.add_consumer("c1")
            >>> effects = again.offer_many([(7, "a", None), (8, "b", None), (9, "c", None)])
            >>> [effect.offset for effect in effects]
            [7, 9]
        """
        return self._window.cursor.to_token(max_bytes)

    @property
    def placement(self) -> Placement:
        """A copy of the placement as it is now, with everybody who joined.

        Keep it beside a snapshot where it is history or was made by hand (`AutoSplit`, `ExclusiveRanges`,
        `AssignedRanges`), or change it and give it to `set_placement`.
        """
        return self._routing.placement_copy()

    def owner(self, key: Key) -> str | None:
        """Name of the consumer that a key belongs to now; None if nobody, or if there is no key."""
        data = key_bytes(key)
        if data is None and not self._config.ordering_required:
            return None
        return self._routing.owner(b"" if data is None else data)

    def why_blocked(self, offset: int) -> Blocking | None:
        """What an outstanding message waits for; None if it is in flight, or not outstanding. O(log n).

        None also of what a restart with wider limits has made possible, until `handle_timeout` hands it out.

        Example:
            >>> from keyshared import HashRing, KeySharedDispatcher
            >>> d = KeySharedDispatcher(HashRing())
            >>> d.offer(0, "k"), d.why_blocked(0).reason.value
            ([], 'no_consumer')
        """
        check_offset("offset", offset)
        entry = self._window.find(offset)
        return None if entry is None else why_blocked(self._window, self._membership, self._endings, entry)

    def describe(self, offset: int) -> Outstanding | None:
        """What is known of an outstanding message; None if it is not outstanding. O(log n)."""
        check_offset("offset", offset)
        entry = self._window.find(offset)
        return None if entry is None else describe(self._window, self._membership, self._endings, entry)

    def outstanding(self) -> Iterator[Outstanding]:
        """All outstanding messages in offset order, lazily; make no calls meanwhile. O(log n) each."""
        for cell in self._window.cursor:
            yield describe(self._window, self._membership, self._endings, cast("Entry", cell))

    def in_flight(self, consumer: str | None = None) -> list[Deliver[Item]]:
        """Open deliveries of one consumer, or of all in the order of joining, each in offset order. O(result)."""
        names = self._members if consumer is None else [check_kind("consumer", consumer, str, ", or None")]
        chosen = [self._members[name] for name in names if name in self._members]
        return [self._outbox.delivery(entry) for member in chosen for entry in held_by(member)]

    def outstanding_effects(self) -> list[Effect[Item]]:
        """Every obligation that is not met: `KeyEnding`, `DeadLetter`, `Load`, then `Deliver`, each by age. O(n)."""
        return self._outbox.outstanding()

    def is_current(self, effect: Effect) -> bool:
        """Whether an effect still holds; ask just before acting on an obligation. Notices always do.

        Raises:
            ArgumentError: That is no effect, such as the receipt of a `Deliver`.
        """
        return self._outbox.is_current(effect)

    def health(self, *, busiest: int = 10) -> Health:
        """Ages, busiest keys and counts, at the instant of the last call; changes nothing.

        Args:
            busiest: How many keys to name at most.

        Returns:
            The figures. Without ``DispatcherConfig(measure=True)`` those are None that somebody had to keep.

        Raises:
            ArgumentError: ``busiest`` is not an int of at least 0.

        Complexity:
            O(outstanding + keys log keys).

        Example:
            >>> from keyshared import DispatcherConfig, HashRing, KeySharedDispatcher
            >>> d = KeySharedDispatcher(HashRing(), DispatcherConfig(measure=True))
            >>> _ = d.offer(0, "a", now_ms=0), d.offer(1, "a", now_ms=5_000)
            >>> d.health().oldest_ms, d.health().busiest
            (5000, ((b'a', 2),))
        """
        check_int("busiest", busiest, 0)
        return gather_health(self._window, self._health, busiest=busiest, now=self._now)

    def sessions(self) -> list[KeySession]:
        """Every session of a key that has not ended, in the order of beginning; ``[]`` without sessions. O(result)."""
        return [] if self._sessions is None else self._sessions.all()

    def stats(self) -> DispatcherStats:
        """Figures of this moment, all read from the one state there is. O(consumers)."""
        return gather_stats(self._window, self._members)
