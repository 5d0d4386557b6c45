"""In-flight window: per-key lanes, the open deliveries of each consumer, and what may go out next.

The window knows order, limits and memory. It knows no time, no retry policy and no rules of membership: the caller
brings those, and says who owns a key. `KeySharedDispatcher` is one such composition; a broker with its own timers can
be another.

Three kinds of call:

- `offer` and `settle`, the two that every message goes through, do all there is to do and return what they granted;
- other changes (`move`, `provide`, `remove`, `set_limit`, `reassign`, ...) only change the state, so that many can
  happen at one instant;
- `wake` then looks at exactly the lanes and consumers that those changes touched, and returns what was granted. Call it
  before the next `offer` or `settle`.

What is granted is a list of entries, in order, and the state of each says what to do with it: ``IN_FLIGHT`` hand it to
``entry.consumer``; ``LOADING`` read its payload again and `provide` it; ``DEAD_LETTERING`` archive it. The payload of
every other one was dropped (``SPILLED``, or it waits for its retry): a later grant asks to load it again.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from keyshared._arguments import offset_error
from keyshared._checks import (
    OFFSET_STOP,
    check_bool,
    check_int,
    check_kind,
    check_members,
    check_offset,
    check_position,
)
from keyshared._core.invariants import check_window
from keyshared._core.lanes import Owners
from keyshared._core.records import (
    DEAD_LETTERING,
    IN_FLIGHT,
    LOADING,
    NEXT_STATE,
    SETTLED,
    Consumer,
    Entry,
    Lane,
    Place,
    Rule,
    State,
    holds_slot,
)
from keyshared._core.window import Window
from keyshared.config import DEFAULT_MAX_LOADED_PER_KEY, DEFAULT_MAX_TRACKED
from keyshared.cursor import ContiguousCursor
from keyshared.effects import BlockReason, Ending
from keyshared.errors import (
    ConsumerExistsError,
    EntryStateError,
    OffsetOrderError,
    UnknownConsumerError,
    WindowFullError,
)
from keyshared.glob import KeyFilter
from keyshared.hashing import Key, key_bytes, required_key_bytes
from keyshared.placement.protocol import check_name

__all__ = ["NEXT_STATE", "Consumer", "Entry", "InFlightWindow", "Lane", "Owners", "State"]

_MOVES: Final = (State.QUEUED, State.DELAYED, State.DEAD_LETTERING, State.BLOCKED)
_LEGAL_MOVES: Final = {
    (before, after) for (before, _), after in NEXT_STATE.items() if after in _MOVES and before >= State.IN_FLIGHT
}
_GRANTED: Final = (IN_FLIGHT, LOADING, DEAD_LETTERING)
_EVERY_KEY: Final = KeyFilter()
_NO_KEY: Final = KeyFilter([""])


class InFlightWindow:
    """Outstanding messages in per-key lanes, with limits per key, per consumer and in total.

    Not thread-safe. Offsets grow strictly; a key is bytes, a str, or None for a message without order.

    Args:
        owners: Who owns a key. Asked once per lane and version; call `reassign` when its answers may have changed.
        capacity: Messages whose payload is in memory (in flight or waiting).
        max_tracked: Outstanding messages, spilled ones included.
        per_key: Open deliveries per key.
        loaded_per_key: Messages of one key whose payload is in memory.
        spills: Whether the payload of a message that waits may be dropped; if not, ``loaded_per_key`` is unused.
        start: The value of ``cursor.resume_offset`` before the first offer.
        first_attempt: Deliveries have attempt numbers above this.

    Raises:
        ArgumentError: An argument is of another type or out of range.

    Complexity:
        Every call is O(1) amortised plus what it grants, O(log vnodes) where an owner is looked up.

    Example:
        >>> class Everything:
        ...     def owner(self, key: bytes) -> str:
        ...         return "c1"
        >>> window = InFlightWindow(Everything(), capacity=10)
        >>> _ = window.add("c1", limit=5)
        >>> first, = window.offer(0, b"k", "hello")
        >>> first.consumer.name, first.item
        ('c1', 'hello')
        >>> window.offer(1, b"k", "world")          # the key is in flight: it waits
        []
        >>> [entry.offset for entry in window.settle(first)]
        [1]
        >>> window.cursor.safe_cursor
        0
    """

    __slots__ = ("_core", "_cursor", "_joined")

    def __init__(
        self,
        owners: Owners,
        *,
        capacity: int,
        max_tracked: int = DEFAULT_MAX_TRACKED,
        per_key: int = 1,
        loaded_per_key: int = DEFAULT_MAX_LOADED_PER_KEY,
        spills: bool = True,
        start: int | None = None,
        first_attempt: int = 0,
    ) -> None:
        check_members("owners", owners, Owners)
        check_int("capacity", capacity, 1)
        check_int("max_tracked", max_tracked, 1)
        check_int("per_key", per_key, 1)
        check_int("loaded_per_key", loaded_per_key, per_key)
        check_bool("spills", spills)
        if start is not None:
            check_position("start", start, "be None or an int")
        loaded = loaded_per_key if spills else capacity
        rule = Rule(per_key, 1, loaded, ())
        self._cursor = ContiguousCursor(start)
        cursor = self._cursor.core
        self._core = Window(owners, cursor, capacity=capacity, max_tracked=max_tracked, rule=rule, spills=spills)
        self._core.first_attempt = check_int("first_attempt", first_attempt, 0)
        self._joined = 0

    # messages

    def offer(self, offset: int, key: Key, item: object = None, *, deadline: int | None = None) -> list[Entry]:
        """Track a message and let it go out if its turn has come; return what was granted, [] if it waits.

        Args:
            offset: Greater than every offset offered before.
            key: Its key; None for none.
            item: A passenger that comes back with the entry.
            deadline: The instant before which it must not go out, for the caller's timer; its key waits behind it until
                the caller calls `ripen`.

        Raises:
            KeyTypeError: The key is of another type.
            OffsetOrderError: The offset is not an int greater than the last one.
            ArgumentError: The offset has more than 63 bits, or ``deadline`` is no int.
            WindowFullError: No slot is free.
        """
        core, last = self._core, self._core.cursor.last
        if type(offset) is not int or not -OFFSET_STOP < offset < OFFSET_STOP:
            raise offset_error(offset, last)
        data = key if type(key) is bytes else key_bytes(key)
        if deadline is not None:
            check_int("deadline", deadline, alternative=", or None")
        if last is not None and offset <= last:
            raise OffsetOrderError(offset, last)
        if core.loaded >= core.capacity or core.cursor.outstanding >= core.max_tracked:
            raise WindowFullError(core.capacity if core.loaded >= core.capacity else core.max_tracked)
        if data is not None and deadline is None and data not in core.lanes:
            first = core.offer_first(offset, data, item)
            if first is not None:
                return [first]
        core.offer(offset, data, item, deadline)
        return self._granted()

    def ripen(self, entry: Entry) -> None:
        """Continue with a message that was offered with a deadline, whether its payload is at hand or not."""
        self._check_outstanding(entry, State.QUEUED)
        entry.deadline = None
        if entry.state == State.DELAYED:
            self._core.put_back(entry, State.QUEUED)
        else:
            self._core.touched[entry.lane] = None

    def settle(self, entry: Entry) -> list[Entry]:
        """Settle a message, whatever its state, and return what was granted; `EntryStateError` if it is settled."""
        if type(entry) is not Entry or entry.state != IN_FLIGHT:
            self._check_outstanding(entry, State.SETTLED)
        if entry.state == IN_FLIGHT:
            following = self._core.ack(entry)
            if following is not None:
                return [*self._granted(), following]
        else:
            self._core.settle(entry, Ending.ACKED)
            self._core.wake()
        return self._granted()

    def remove(self, entry: Entry) -> None:
        """Settle a message in any state, and leave the rest to `wake`; `EntryStateError` if it is settled."""
        self._check_outstanding(entry, State.SETTLED)
        self._core.settle(entry, Ending.ACKED)

    def move(self, entry: Entry, to: State) -> None:
        """End a delivery without settling the message, or let a held message go on.

        Args:
            entry: An outstanding message.
            to: ``QUEUED``, ``DELAYED``, ``DEAD_LETTERING`` or ``BLOCKED``.

        Raises:
            EntryStateError: That step is not in `NEXT_STATE`. Nothing was changed.
        """
        self._check_outstanding(entry, to)
        if (entry.state, to) not in _LEGAL_MOVES:
            raise EntryStateError(entry.offset, State(entry.state).name, to.name)
        self._core.put_back(entry, int(to))

    def provide(self, entry: Entry, item: object) -> None:
        """Hand in the payload of a message in state ``LOADING``; `EntryStateError` if it is in another one."""
        self._check_outstanding(entry, State.QUEUED)
        if entry.state != LOADING:
            raise EntryStateError(entry.offset, State(entry.state).name, State.QUEUED.name)
        self._core.provide(entry, item)

    def find(self, offset: int) -> Entry | None:
        """Return the outstanding message of an offset, or None. O(log n)."""
        check_offset("offset", offset)
        return self._core.find(offset)

    def quarantine(self, key: Key) -> None:
        """Send the messages of a key to the dead-letter store, one at a time and in order, instead of to a consumer."""
        self._core.quarantined[required_key_bytes(key)] = None
        self._touch(required_key_bytes(key))

    def lift_quarantine(self, key: Key) -> bool:
        """End the quarantine of a key; return whether it had one."""
        had_one = required_key_bytes(key) in self._core.quarantined
        self._core.quarantined.pop(required_key_bytes(key), None)
        self._touch(required_key_bytes(key))
        return had_one

    # consumers

    def add(self, name: str, *, limit: int, keyless: bool = True) -> Consumer:
        """Add a consumer; call `reassign` if keys move to it.

        Args:
            name: Its name.
            limit: Open deliveries that it may have.
            keyless: Whether it may get messages without a key.

        Raises:
            ConsumerExistsError: The name is connected.
            ArgumentError: An argument is of another type or out of range.
        """
        check_kind("name", name, str)
        check_name(name)
        check_int("limit", limit, 0)
        check_bool("keyless", keyless)
        if name in self._core.consumers:
            raise ConsumerExistsError(name)
        ready = Place(BlockReason.CONSUMER_FULL)
        consumer = Consumer(name, self._joined, limit, ready, _EVERY_KEY if keyless else _NO_KEY, None)
        self._joined += 1
        self._core.add(consumer)
        return consumer

    def discard(self, name: str) -> None:
        """Forget a consumer that has nothing open; raise `EntryStateError` if it has: `move` or `settle` that first."""
        consumer = self._known(name)
        for offset in consumer.open:
            raise EntryStateError(offset, State.IN_FLIGHT.name, State.QUEUED.name)
        self._core.discard(consumer)
        self._core.reassign()

    def set_limit(self, name: str, limit: int) -> None:
        """Change how many deliveries a consumer may have open; deliveries beyond that stay open."""
        check_int("limit", limit, 0)
        self._core.set_limit(self._known(name), limit)

    def set_keyless(self, name: str, *, keyless: bool) -> None:
        """Change whether a consumer may get messages without a key."""
        check_bool("keyless", keyless)
        consumer = self._known(name)
        self._core.set_keyless(consumer, keyless=keyless)
        self._core.freed[consumer] = None

    def reassign(self) -> None:
        """Note that owners may have changed; `wake` then asks again for every lane that waits."""
        self._core.reassign()

    def wake(self) -> list[Entry]:
        """Act on all changes since the last call; return what was granted, in service order."""
        self._core.wake()
        return self._granted()

    def pull(self, name: str, most: int, *, only: Entry | None = None) -> list[Entry]:
        """Hand out what waits for a consumer, past its limit; return what was granted, in service order.

        Args:
            name: The consumer.
            most: How many messages, an int of at least 1.
            only: Nothing but this one, out of its turn; nothing at all if it waits for more than this consumer. If it
                is spilled and the lowest one outstanding, it is loaded though the window may be full.
        """
        check_int("most", most, 1)
        self._core.pull(self._known(name), most if only is None else 1, only, None)
        return self._granted()

    # queries

    @property
    def cursor(self) -> ContiguousCursor:
        """The cursor over what is settled. Read it; only the window moves it."""
        return self._cursor

    @property
    def consumers(self) -> Mapping[str, Consumer]:
        """Connected consumers by name, in the order of joining."""
        return MappingProxyType(self._core.consumers)

    @property
    def emptied(self) -> list[Consumer]:
        """Consumers of limit 0 at which nothing is open, and for which nothing is being loaded. O(consumers)."""
        return [each for each in self._core.consumers.values() if not (each.limit or each.free)]

    @property
    def free_slots(self) -> int:
        """How many messages may be offered now."""
        return self._core.free_slots

    @property
    def loaded(self) -> int:
        """How many messages have their payload in memory."""
        return self._core.loaded

    @property
    def waiting(self) -> int:
        """How many of these are not in flight."""
        return self._core.waiting

    def outstanding(self) -> list[Entry]:
        """Return all outstanding messages in offset order. O(n)."""
        return list(self._core.outstanding())

    def check_invariants(self) -> None:
        """Raise `InvariantError` if the structure contradicts itself. For tests; O(n)."""
        check_window(self._core)

    # inside

    def _granted(self) -> list[Entry]:
        """Return what the core has granted, and the messages whose payload it dropped."""
        core = self._core
        if not (core.granted or core.dropped or core.emptied):
            return []
        # What was granted may have moved on since, and may have been granted again.
        granted = [entry for entry in dict.fromkeys(core.granted) if entry.state in _GRANTED]
        for entry in core.dropped:
            if entry.state != SETTLED and not holds_slot(entry) and entry not in granted:
                entry.item = None  # what is to be archived keeps its payload for that
                granted.append(entry)
        core.granted.clear()
        core.dropped.clear()
        core.emptied.clear()
        return granted

    def _check_outstanding(self, entry: Entry, to: State) -> None:
        check_kind("entry", entry, Entry)
        if entry.state == SETTLED:
            raise EntryStateError(entry.offset, State.SETTLED.name, to.name)

    def _known(self, name: str) -> Consumer:
        consumer = self._core.consumers.get(name)
        if consumer is None:
            raise UnknownConsumerError(name)
        return consumer

    def _touch(self, key: bytes) -> None:
        lane = self._core.lanes.get(key)
        if lane is not None:
            self._core.touched[lane] = None
