"""In-flight window: per-key lanes, what every consumer may hold, and what may go out next.

The window knows order, limits and memory. It knows no time, no retry policy and no rules of membership: whoever
composes it brings those, and says who owns a key. `KeySharedDispatcher` is one such composition; a broker with its own
timers can be another.

Three kinds of call:

- `offer` and `settle`, the two that every message goes through, do all there is to do and return what they granted;
- other changes (`move`, `provide`, `remove`, `set_limit`, `reassign`, ...) only change the books, so that many can
happen at one instant;
- `wake` then looks at exactly the lanes and consumers that those changes touched, and returns what was granted. Call it
before the next `offer` or `settle`: those two count on every lane standing where it belongs.

What is granted is a list of entries, in order, and the state of each says what to do with it: ``IN_FLIGHT`` hand it to
``entry.consumer``, ``LOADING`` read its payload again and `provide` it, ``DEAD_LETTERING`` archive it, ``SPILLED``
forget its payload; anything else: it was changed once more before `wake`, and nothing is to be done.

Why nothing is ever scanned: a lane that could go on stands in exactly one work list (its owner's ready list, or one of
the lists for lanes that wait for an owner, for the end of a drain, for another gate, for a keyless-capable consumer or
for memory), and whatever could make it move on touches that lane or serves that list.
"""

from collections.abc import Iterable, Mapping, Sequence

from keyshared._checks import OFFSET_STOP
from keyshared._window.books import Owners
from keyshared._window.invariants import check_window
from keyshared._window.lanes import (
    DELAYED,
    IN_FLIGHT,
    LEGAL_MOVES,
    LOADING,
    NEXT_STATE,
    QUEUED,
    SETTLED,
    SPILLED,
    Consumer,
    Entry,
    Lane,
    State,
    live_from,
)
from keyshared._window.strides import WindowStrides
from keyshared.errors import EntryStateError

__all__ = ["NEXT_STATE", "Consumer", "Entry", "InFlightWindow", "Lane", "Owners", "State"]


class InFlightWindow(WindowStrides):
    """Outstanding messages in per-key lanes, with limits per key, per consumer and in total.

    Not thread-safe. Offsets grow strictly; a key is bytes, or None for a message without order.

    Args:
        owners: Who owns a key. Asked once per lane and version; call `reassign` when its answers may have changed.
        capacity: Messages whose payload is in memory (in flight or waiting).
        max_tracked: Outstanding messages, spilled ones included.
        per_key: Open deliveries per key.
        loaded_per_key: Messages of one key whose payload is in memory.
        spills: Whether the payload of what has to wait may be dropped; if not, ``loaded_per_key`` counts for nothing.
        one_lane: Treat everything as one key: total order.
        gate: Knows what larger drain units than keys hold open, if something larger is handed over as a whole.
        draining: The list for lanes that drain, if whoever composes the window wants to be told of them.
        start: What ``cursor.resume_offset`` says before the first offer.

    Attributes:
        cursor: What is settled. Read it; only the window moves it.
        consumers: Connected consumers by name.
        lanes: What is outstanding by key, keyless messages excluded: a lane, or the message itself if that is the only
            one of its key, and is in flight or waits for nothing but room.
        quarantined: Keys whose messages go to the dead-letter store instead of a consumer.
        loaded: Messages that hold a slot of ``capacity``.
        waiting: Those of them that are not in flight.
        first_attempt: New deliveries have attempt numbers above this.
        emptied: Consumers of limit 0 whose last delivery has ended; take them out when you have seen them.
        held: How many messages are in each state that only `move` or `remove` ends, by state.
        shared: Keyless messages for whom no consumer has room.
        ownerless: Lanes whose key nobody owns.
        draining: Lanes that wait for the end of deliveries at somebody else than their owner.
        starved: Lanes whose turn has come but whose message cannot be loaded because every slot is taken.
        is_anew: Whether nothing has woken the window since `begin_anew` found something that may go out.

    Complexity:
        Every call is O(1) amortised plus what it grants, O(log vnodes) where an owner is looked up.

    Example:
        >>> class Everything:
        ...     def owner(self, key: bytes) -> str:
        ...         return "c1"
        >>> window = InFlightWindow(Everything(), capacity=10)
        >>> _ = window.add(Consumer("c1", order=0, limit=5))
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

    # the two calls that every message goes through

    def offer(self, offset: int, key: bytes | None, item: object = None) -> list[Entry]:
        """Track a message and let it go out if its turn has come.

        Args:
            offset: Greater than every offset offered before.
            key: Its key; None for none.
            item: A passenger that comes back with the entry.

        Returns:
            What was granted: the message itself, in flight, spilled or dead-lettering; nothing if it waits.

        Raises:
            OffsetOrderError: The offset is not an int greater than the last one.
            ArgumentError: The offset has more than 63 bits.
            WindowFullError: No slot is free.
        """
        cursor = self.cursor
        last = cursor.last
        if (
            type(offset) is not int
            or last is None  # the first one has no bound below yet
            or not last < offset < OFFSET_STOP
            or self.loaded >= self.capacity
            or cursor.outstanding >= self.max_tracked
        ):
            self.check_offer(offset)
        lane_key = b"" if self._one_lane else key
        lane = self.lanes.get(lane_key)  # type: ignore[arg-type]  # None is the key of no lane
        if lane is None:
            return self._offer_first(offset, key, item, lane_key)
        if type(lane) is Entry:
            lane = self._lane_of(lane)
        entry = Entry(offset, key, item, lane)
        cursor.append(entry)
        lane.append(entry)
        if lane.spilled is not None or lane.loaded >= self.loaded_per_key:
            self._spill(lane, entry)
            granted: list[Entry] = [entry]
            if lane.fresh is entry and not lane.back:
                self._examine(lane, granted)
            return granted
        lane.loaded += 1
        self.loaded += 1
        self.waiting += 1
        granted = []
        # Nothing to examine: 6 % of a life of hot keys.
        at_limit = lane.open >= self.per_key and lane.holder is lane.owner and lane.version == self._version
        if not at_limit or self.quarantined:
            self._examine(lane, granted)
        if 2 * self.waiting > self.capacity:
            self._spill_if_crowded(lane, entry, granted)
        return granted

    def offer_later(self, offset: int, key: bytes | None, item: object, deadline: int) -> Entry:
        """Track a message that waits, and holds what is newer of its key, until `move` or `ripen` ends that.

        Args:
            offset: As for `offer`.
            key: Its key; None for none.
            item: A passenger that comes back with the entry.
            deadline: What the entry carries for the embedder's timer.

        Returns:
            The message, delayed or spilled.

        Raises:
            OffsetOrderError: As `offer`.
            ArgumentError: As `offer`.
            WindowFullError: As `offer`.
        """
        self.check_offer(offset)
        lane_key = b"" if self._one_lane else key
        known = None if lane_key is None else self.lanes.get(lane_key)
        lane = self.new_lane(lane_key) if known is None else self._lane_of(known) if isinstance(known, Entry) else known
        if lane_key is not None:
            self.lanes[lane_key] = lane
        entry = Entry(offset, key, item, lane)
        entry.deadline = deadline
        self.cursor.append(entry)
        lane.append(entry)
        if lane.spilled is not None or lane.loaded >= self.loaded_per_key:
            self._spill(lane, entry)
            return entry
        lane.loaded += 1
        self.loaded += 1
        self.waiting += 1
        self._spill_if_crowded(lane, entry, [])
        if entry.state == QUEUED:
            entry.state = DELAYED
            self.held[DELAYED] += 1
        return entry

    def ripen(self, entry: Entry) -> None:
        """Move on a message that was offered for later, whether its payload is at hand or not.

        Args:
            entry: An outstanding message whose deadline is over, and that was taken from it.
        """
        if entry.state == DELAYED:
            self.move(entry, State.QUEUED)
        else:
            self._touched[entry.lane] = None

    def _offer_first(self, offset: int, key: bytes | None, item: object, lane_key: bytes | None) -> list[Entry]:
        """Offer the only message of its key. Mostly it goes out at once, or waits for room: then it needs no lane."""
        if lane_key is not None and not self._one_lane:
            owner = self.consumers.get(self._owners.owner(lane_key))  # type: ignore[arg-type]  # None is no name
            if owner is None:
                pass
            elif owner.free <= 0:
                if lane_key not in self.quarantined:
                    waiting = self._wait_alone(offset, lane_key, item, owner)
                    if waiting is not None:
                        self.cursor.append(waiting)
                        return self._spill_alone(waiting) if 2 * self.waiting > self.capacity else []
            elif not (owner.ready or self.shared or self.quarantined):
                entry = Entry(offset, key, item, owner.alone)
                if self._counts is None or self._counts.admits(entry, owner):
                    self.cursor.append(entry)
                    entry.state = IN_FLIGHT
                    entry.attempt = self.first_attempt + 1
                    owner.open[offset] = entry
                    owner.free -= 1
                    if not owner.noted:
                        self._rooms.note(owner)
                    self.loaded += 1
                    self.lanes[lane_key] = entry
                    return [entry]
        return self._offer_in_lane(offset, key, item, lane_key)

    def _spill_alone(self, entry: Entry) -> list[Entry]:
        """Spill a message that waits alone while waiting ones, itself aside, take half the window."""
        if 2 * (self.waiting - 1) < self.capacity or not self.spills:
            return []
        self.loaded -= 1
        self.waiting -= 1
        entry.state = SPILLED
        entry.item = None
        return [entry]

    def _offer_in_lane(self, offset: int, key: bytes | None, item: object, lane_key: bytes | None) -> list[Entry]:
        """Offer the only message of its key, which may have to wait."""
        lane = Lane(lane_key)
        entry = Entry(offset, key, item, lane)
        self.cursor.append(entry)
        lane.append(entry)
        lane.loaded = 1
        self.loaded += 1
        self.waiting += 1
        if lane_key is not None:
            self.lanes[lane_key] = lane
        granted: list[Entry] = []
        self._examine(lane, granted)
        if 2 * self.waiting > self.capacity:
            self._spill_if_crowded(lane, entry, granted)
        return granted

    def settle(self, entry: Entry) -> list[Entry]:  # noqa: C901  # written out, see below
        """Settle a message, whatever its state, and let go out what that makes possible.

        Args:
            entry: An outstanding message of this window.

        Returns:
            What was granted.

        Raises:
            EntryStateError: The message is settled already.
        """
        lane = entry.lane
        head = lane.head
        if (
            entry.state != IN_FLIGHT
            or (head is not entry and head is not None)
            or (self._counts is not None and not self._counts.releases(entry))
        ):
            self.remove(entry)
            return self.wake()
        # The short way: the oldest message of a lane is acked. That is remove() and wake() written out, because every
        # message comes by here: without it a life takes 1.3 to 1.7 times as long (`python -m benchmarks life`).
        consumer: Consumer = lane.holder  # type: ignore[assignment]  # whatever is in flight has one
        del consumer.open[entry.offset]
        consumer.free += 1
        if not consumer.noted:
            self._rooms.note(consumer)
        self.cursor.close(entry)
        self.loaded -= 1
        entry.item = None
        granted: list[Entry] = []
        if head is None:
            del self.lanes[entry.key]  # type: ignore[arg-type]  # a keyless message has a lane of its own
        elif (after := live_from(entry.after) if lane.gaps else entry.after) is None:
            lane.head = lane.tail = None
            if lane.key is not None:
                del self.lanes[lane.key]
        else:
            lane.head = after
            entry.after = None
            lane.loaded -= 1
            if lane.spilled is not None and self.loaded < self.capacity and lane.loaded < self.loaded_per_key:
                self._load(lane, lane.spilled, None, granted)
            if (
                after is lane.fresh
                and lane.owner is consumer
                and after.state == QUEUED
                and lane.version == self._version
                and consumer.free > 0
                and not (consumer.ready or self.shared or self.quarantined or self.starved)
                and (self._counts is None or self._counts.admits(after, consumer))
            ):
                # The next one goes where this one was, less what cancels out: a tenth of a life of hot keys.
                lane.fresh = live_from(after.after) if lane.gaps else after.after
                after.state = IN_FLIGHT
                after.attempt = self._next_attempt(after) if self.first_attempt else after.attempt + 1
                consumer.open[after.offset] = after
                consumer.free -= 1
                self.waiting -= 1
                granted.append(after)
                return granted
            lane.open -= 1
            if not lane.open:
                lane.holder = None
            self._examine(lane, granted)
        if consumer.ready or self.shared:
            self._serve(consumer, granted)
        if self.starved:
            self._feed(granted)
        if not (consumer.free or consumer.limit):
            self.emptied.append(consumer)
        return granted

    # changes of the books; wake() acts on them

    def move(self, entry: Entry, to: State) -> None:
        """End a delivery without settling the message, or let a held message go on.

        Args:
            entry: An outstanding message.
            to: ``QUEUED``, ``DELAYED``, ``DEAD_LETTERING`` or ``BLOCKED``.

        Raises:
            EntryStateError: That step is not in `NEXT_STATE`. Nothing was changed.
        """
        if (entry.state, to) not in LEGAL_MOVES:
            raise EntryStateError(entry.offset, State(entry.state).name, to.name)
        lane = self._lane_of(entry)
        if entry.state == IN_FLIGHT:
            self._close(entry)
            lane.take_back(entry)
        self.held[entry.state] -= 1
        self.held[to] += 1
        entry.state = int(to)
        self._touched[lane] = None
        if to is State.DEAD_LETTERING:
            self._granted.append(entry)

    def provide(self, entry: Entry, item: object) -> bool:
        """Hand in the payload of a message that was being loaded; it goes out at once if a consumer waits for it.

        Args:
            entry: A message in state ``LOADING``.
            item: The passenger it shall carry.

        Returns:
            Whether anything can come of it in `wake`: not if it waits behind others of its lane, as it did before.

        Raises:
            EntryStateError: The message is not being loaded. Nothing was changed.
        """
        if entry.state != LOADING:
            raise EntryStateError(entry.offset, State(entry.state).name, State.QUEUED.name)
        lane = entry.lane
        waits = None if lane.taker is None else entry.consumer
        entry.state = QUEUED
        entry.item = item
        if entry.deadline is not None:
            entry.state = DELAYED
            self.held[DELAYED] += 1
        if waits is None and (lane.back or lane.fresh is not entry):
            return False
        self._touched[lane] = None
        if waits is None:
            return True
        self._unreserve(waits, entry)
        if waits.free > 0 and entry is lane.candidate and self._could_get(waits, lane):
            self._send(lane, entry, waits, self._granted)
        return True

    def remove(self, entry: Entry) -> None:
        """Settle a message in any state; its slot goes to the oldest spilled message of its lane, if there is one.

        Args:
            entry: An outstanding message.

        Raises:
            EntryStateError: The message is settled already.
        """
        if entry.state == SETTLED:
            raise EntryStateError(entry.offset, State.SETTLED.name, State.SETTLED.name)
        lane = self._lane_of(entry)
        had_slot = entry.state != SPILLED
        if entry.state == IN_FLIGHT:
            self._close(entry)
        elif lane.taker is not None and (taker := entry.consumer) is not None:
            self._unreserve(taker, entry)
        self.held[entry.state] -= 1
        self.cursor.close(entry)
        lane.unlink(entry, self.cursor.outstanding + len(self.beside))
        entry.item = None
        if had_slot:
            lane.loaded -= 1
            self.loaded -= 1
            self.waiting -= 1
            # The limit of the key binds only where something has come back beside the log: that is loaded beyond it.
            if lane.spilled is not None and self.loaded < self.capacity and lane.loaded < self.loaded_per_key:
                self._load(lane, lane.spilled, None, self._granted)
        if lane.head is None:
            self._forget(lane)
        else:
            self._touched[lane] = None

    def quarantine(self, key: bytes) -> None:
        """Send the messages of a key to the dead-letter store, one at a time and in order, instead of to a consumer."""
        self.quarantined[key] = None
        self.touch_key(key)

    def lift_quarantine(self, key: bytes) -> bool:
        """End the quarantine of a key; return whether it had one."""
        if key not in self.quarantined:
            return False
        del self.quarantined[key]
        self.touch_key(key)
        return True

    def reassign(self) -> None:
        """Note that owners may have changed; `wake` then asks again for every lane that waits."""
        self._follow()
        self._stale = True

    def keep_back(self, keys: Iterable[bytes]) -> None:
        """Act on gates that have closed, and on nothing else, after `wake`: so nothing goes out.

        Args:
            keys: Keys of which the next message was touched because its gate refuses it now.
        """
        lanes = {lane: None for key in keys if isinstance(lane := self.lanes.get(key), Lane) and lane in self._touched}
        for lane in lanes:
            del self._touched[lane]
        self._examine_in_turns(_by_lowest_offset(lanes), [])

    def wake(self) -> list[Entry]:
        """Act on all changes since the last call.

        Touched lanes come first, by their lowest offset, and with them, longest waiting first, those that nobody keeps
        any more; after `reassign`, the lanes of all work lists, longest waiting first, and those that were at their
        limit, by lowest offset; then consumers that have got room, in order of joining; then lanes that wait for a slot
        of the window.

        Returns:
            What was granted, in service order.
        """
        granted, self._granted = self._granted, []
        self.is_anew = False
        vacated = () if self._counts is None else self._counts.take_vacated()
        if self._touched or vacated:
            touched, self._touched = self._touched, {}
            let_go = [] if self._stale else self._no_more_kept(vacated, touched)
            self._examine_in_turns([*_by_lowest_offset(touched), *let_go], granted)
        if self._stale:
            self._stale = False
            waiting = [] if self._is_all_open() else self._all_waiting()
            lanes = [self._lane_of(each) if isinstance(each, Entry) else each for each in waiting]
            for lane in lanes:  # all of them first: a lane must not queue behind one that is about to go elsewhere
                self._unlist(lane)
            self._examine_in_turns(lanes, granted)
            self._examine_in_turns(_by_lowest_offset(self._at_limit()), granted)
        if self._freed:
            freed, self._freed = self._freed, {}
            for consumer in sorted(freed, key=_order_of):
                self._serve(consumer, granted)
        if self.shared:
            self._serve_shared(granted)
        if self.starved:
            self._feed(granted)
        return granted

    def pull(
        self,
        consumer: Consumer,
        most: int,
        only: Entry | None = None,
        per_key: int | None = None,  # noqa: ARG002
    ) -> list[Entry]:
        """Hand out what waits for a consumer, past its limit: for whoever asks instead of being sent to.

        Args:
            consumer: A connected one.
            most: How many messages.
            only: Nothing but this one, out of its turn; nothing at all if it is not what its lane is waiting with. If
                it is spilled and the lowest one outstanding, it is loaded though the window may be full.
            per_key: How many messages of one key may go out in one turn this time, where turns have several.

        Returns:
            What was granted, in service order.
        """
        granted: list[Entry] = []
        extra = most - consumer.free
        consumer.limit += extra
        consumer.free = most
        if only is None:
            self._serve(consumer, granted)
        else:
            self._hand_out(only, consumer, granted)
        consumer.limit -= extra
        consumer.free -= extra
        self._rooms.note(consumer)
        return granted

    # checks

    def check_invariants(self) -> None:
        """Raise `InvariantError` if the structure contradicts itself. For tests; O(n)."""
        check_window(self)

    def _no_more_kept(self, draining: Sequence[Lane], touched: Mapping[Lane, None]) -> list[Lane]:
        """Those of these lanes whose owner may go on now, and that are not touched anyway, longest waiting first."""
        freed = [lane for lane in draining if lane not in touched and not self._still_drains(lane)]
        return sorted(freed, key=self.draining.__getitem__)


def _by_lowest_offset(lanes: dict[Lane, None]) -> list[Lane]:
    """Lanes in the order in which they wake."""
    return sorted(lanes, key=_lowest_offset)


def _lowest_offset(lane: Lane) -> int:
    return lane.head.offset if lane.head is not None else 0


def _order_of(consumer: Consumer) -> int:
    return consumer.order
