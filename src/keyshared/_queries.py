"""What can be asked of a dispatcher between two calls: the half of its face that changes nothing and takes no time."""

from collections.abc import Iterator
from typing import Final, Generic, get_args, get_origin

from keyshared._checks import check_int, check_kind, check_offset
from keyshared._core.explain import describe, gather_health, gather_stats, why_blocked
from keyshared._core.invariants import check_machine
from keyshared._core.machine import Machine
from keyshared._core.snapshot import dump
from keyshared._core.values import (
    Blocking,
    DispatcherStats,
    GroupStats,
    Health,
    KeySession,
    Outstanding,
    RestartMark,
)
from keyshared.config import Rules
from keyshared.effects import Deliver, Effect, Item
from keyshared.errors import ArgumentError
from keyshared.hashing import Key, key_bytes
from keyshared.placement.protocol import Placement

__all__ = ["Queries"]

_EFFECTS: Final = frozenset(get_origin(kind) or kind for kind in get_args(Effect))


class Queries(Generic[Item]):
    """The questions to a dispatcher.

    Example:
        >>> from keyshared import HashRing, KeySharedDispatcher
        >>> d = KeySharedDispatcher(HashRing())
        >>> d.offer(0, "k"), d.why_blocked(0).reason.value, d.resume_offset
        ([], 'no_consumer', 0)
    """

    __slots__ = ("__weakref__", "_machine")

    _machine: Machine

    @property
    def rules(self) -> Rules | None:
        """The rules it was made with."""
        return self._machine.rules

    @property
    def safe_cursor(self) -> int | None:
        """Greatest offered offset below the lowest outstanding one; None before any. Never moves back."""
        return self._machine.window.cursor.safe_cursor

    @property
    def resume_offset(self) -> int | None:
        """Where a restart that has only the cursor reads on: lowest outstanding offset, else the next one."""
        return self._machine.window.cursor.resume_offset

    @property
    def restart_mark(self) -> RestartMark:
        """The work that a restart would redo, as a mark that is equal until something is settled or offered. O(1).

        An ack above the cursor changes it, although no `CursorAdvanced` tells of that: commit the token then.
        """
        cursor = self._machine.window.cursor
        return RestartMark(cursor.last, cursor.outstanding)

    @property
    def free_slots(self) -> int:
        """How many messages may be offered now; at 0 stop reading until `Resumed`."""
        return self._machine.admission.free_slots

    def room_for(self, key: Key) -> int:
        """Return how many messages of a key may be offered now, ``max_waiting_per_key`` included. O(1).

        No `Resumed` follows when the key has room again: ask after a delivery of the key has ended.
        """
        return self._machine.admission.room_for(self._lane_key(key))

    def acked_ranges(self) -> list[tuple[int, int]]:
        """Return half-open stretches above the cursor in which everything offered is settled. O(n)."""
        return self._machine.window.cursor.acked_ranges()

    @property
    def placement(self) -> Placement:
        """A copy of the placement as it is now, with every consumer that joined.

        Keep it beside a snapshot where it is history or was made by hand (`AutoSplit`, `ExclusiveRanges`,
        `AssignedRanges`), or change it and give it to `set_placement`.
        """
        return self._machine.routing.placement_copy()

    def owner(self, key: Key) -> str | None:
        """Return the name of the consumer that a key belongs to now; None if there is none, or no key."""
        data = self._lane_key(key)
        return None if data is None else self._machine.routing.owner(data)

    def why_blocked(self, offset: int) -> Blocking | None:
        """Return what an outstanding message waits for; None if it is in flight, or not outstanding. O(log n)."""
        check_offset("offset", offset)
        entry = self._machine.window.find(offset)
        return None if entry is None else why_blocked(self._machine, entry)

    def describe(self, offset: int) -> Outstanding | None:
        """Return what is known of an outstanding message; None if it is not outstanding. O(log n)."""
        check_offset("offset", offset)
        entry = self._machine.window.find(offset)
        return None if entry is None else describe(self._machine, entry)

    def outstanding(self) -> Iterator[Outstanding]:
        """Yield all outstanding messages in offset order, lazily; make no calls meanwhile. O(log n) each."""
        for entry in self._machine.window.outstanding():
            yield describe(self._machine, entry)

    def in_flight(self, consumer: str | None = None) -> list[Deliver[Item]]:
        """Return the open deliveries of one consumer, or of all in the order of joining, each in offset order."""
        if consumer is not None:
            check_kind("consumer", consumer, str, ", or None")
        members = self._machine.members
        chosen = members.values() if consumer is None else [members[consumer]] if consumer in members else []
        return [delivery for member in chosen for delivery in self._machine.outbox.deliveries_of(member)]

    def outstanding_effects(self) -> list[Effect[Item]]:
        """Return every obligation that is not met: `KeyEnding`, `DeadLetter`, `Load`, then `Deliver`, by age. O(n)."""
        return self._machine.outbox.outstanding()

    def is_current(self, effect: Effect) -> bool:
        """Return whether an effect still holds; ask just before acting on an obligation. Notices always do."""
        if type(effect) not in _EFFECTS:
            raise ArgumentError("effect", effect, "be an effect, as a call has returned it")
        return self._machine.outbox.is_current(effect)

    def sessions(self) -> list[KeySession]:
        """Return every session of a key that has not ended, in the order of beginning. O(result)."""
        return [] if self._machine.sessions is None else self._machine.sessions.all()

    def groups(self) -> list[GroupStats]:
        """Return figures of each group that has a message or a limit of its own, by name. O(ready keys)."""
        return [] if self._machine.groups is None else self._machine.groups.stats()

    def stats(self) -> DispatcherStats:
        """Return figures of this moment. O(consumers)."""
        return gather_stats(self._machine)

    def health(self, *, busiest: int = 10) -> Health:
        """Return ages, counts, and at most so many of the busiest keys, for monitoring, at the last call's instant.

        Without ``DispatcherConfig(measure=True)`` ages and counts are None. O(outstanding + keys log keys).
        """
        check_int("busiest", busiest, 0)
        return gather_health(self._machine, busiest)

    def snapshot(self) -> dict[str, object]:
        """Return the whole state as plain data that JSON can hold: deadlines as remaining times, no items. O(n)."""
        return dump(self._machine)

    def check_invariants(self) -> None:
        """Raise `InvariantError` if the state contradicts itself. For tests; O(n)."""
        check_machine(self._machine)

    def _lane_key(self, key: Key) -> bytes | None:
        """Return the key that a key is delivered under."""
        data = key_bytes(key)
        return b"" if self._machine.config.ordering_required else data
