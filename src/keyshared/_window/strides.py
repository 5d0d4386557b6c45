"""Several offers or settlements in one stride: what single calls would do one after the other, in a loop.

The cases that nearly every message is one of are written out, because calls are most of what a message costs. Every
other case takes the way of a single call.
"""

from abc import abstractmethod
from collections.abc import Iterable, Sequence

from keyshared._window.lanes import IN_FLIGHT, LISTINGS, QUEUED, Consumer, Entry, Lane, live_from
from keyshared._window.turns import WindowTurns

__all__ = ["WindowStrides", "offer_each", "settle_each"]


class WindowStrides(WindowTurns):
    """What an `InFlightWindow` does in one stride."""

    __slots__ = ()

    @abstractmethod
    def offer(self, offset: int, key: bytes | None, item: object = None) -> list[Entry]:
        """As `InFlightWindow.offer`."""

    @abstractmethod
    def settle(self, entry: Entry) -> list[Entry]:
        """As `InFlightWindow.settle`."""

    @abstractmethod
    def remove(self, entry: Entry) -> None:
        """As `InFlightWindow.remove`."""

    @abstractmethod
    def wake(self) -> list[Entry]:
        """As `InFlightWindow.wake`."""

    def offer_many(self, messages: Iterable[tuple[int, bytes | None, object]]) -> list[Entry]:  # noqa: C901  # see above
        """Take several messages, as `InFlightWindow.offer` would one after the other.

        Args:
            messages: Offset, key and passenger of each, unchecked: there is a slot for each, and the offsets grow.

        Returns:
            What was granted.
        """
        granted: list[Entry] = []
        tracked: list[Entry] = []
        cursor, lanes, per_key = self.cursor, self.lanes, self.per_key
        consumers, owner_of, attempt = self.consumers, self._owners.owner, self.first_attempt + 1
        is_plain = not (self._one_lane or self._counts is not None or self.quarantined)
        for offset, key, item in messages:
            lane = lanes.get(key)  # type: ignore[arg-type]  # None is the key of no lane
            if key is None or not is_plain or self.shared:
                pass
            elif lane is None:
                owner = consumers.get(owner_of(key))  # type: ignore[arg-type]  # None is no name
                if owner is not None and owner.free > 0 and not owner.ready:
                    # It is alone, and goes out.
                    entry = Entry(offset, key, item, owner.alone)
                    tracked.append(entry)
                    entry.state = IN_FLIGHT
                    entry.attempt = attempt
                    owner.open[offset] = entry
                    owner.free -= 1
                    if not owner.noted:
                        self._rooms.note(owner)
                    self.loaded += 1
                    lanes[key] = entry
                    granted.append(entry)
                    continue
                if owner is not None and owner.free <= 0 and 2 * (self.waiting + 1) <= self.capacity:
                    waiting = self._wait_alone(offset, key, item, owner)
                    if waiting is not None:
                        tracked.append(waiting)
                        continue
            elif (
                type(lane) is Lane
                and lane.open >= per_key
                and lane.holder is lane.owner
                and lane.version == self._version
                and lane.spilled is None
                and lane.loaded < self.loaded_per_key
                and 2 * (self.waiting + 1) <= self.capacity
            ):
                # It waits behind as much of its key as may be open.
                entry = Entry(offset, key, item, lane)
                tracked.append(entry)
                lane.tail.after = entry  # type: ignore[union-attr]  # something of it is open
                lane.tail = entry
                if lane.fresh is None:
                    lane.fresh = entry
                lane.loaded += 1
                self.loaded += 1
                self.waiting += 1
                continue
            if tracked:
                cursor.append_many(tracked)
                tracked = []
            granted += self.offer(offset, key, item)
        cursor.append_many(tracked)
        return granted

    def _wait_alone(self, offset: int, key: bytes, item: object, owner: Consumer) -> Entry | None:
        """List the only message of its key, without a lane, with its owner that has no room; None if it needs a lane.

        The cursor has to be told of it. Its place is that of its offset, so it needs no number of its own.
        """
        place = offset << LISTINGS
        if not self._is_lean or place <= self._sequence:
            return None
        self._sequence = place
        entry = self.lanes[key] = Entry(offset, key, item, owner.alone)
        owner.ready[entry] = 0  # type: ignore[index]  # where messages wait alone, that is a ready list
        self.loaded += 1
        self.waiting += 1
        return entry

    def settle_many(self, entries: Sequence[Entry]) -> tuple[list[Entry], bool]:  # noqa: C901, PLR0912, PLR0915  # see above
        """Settle several messages, as `InFlightWindow.settle` would one after the other.

        Args:
            entries: Messages in flight, each of them once.

        Returns:
            What was granted, and whether the window was full in between.
        """
        granted: list[Entry] = []
        was_full = False
        closed: list[Entry] = []
        cursor, lanes, rooms = self.cursor, self.lanes, self._rooms
        for entry in entries:
            lane = entry.lane
            head = lane.head
            if (head is not entry and head is not None) or (
                self._counts is not None and not self._counts.releases(entry)
            ):
                cursor.close_many(closed)
                closed = []
                self.remove(entry)
                granted += self.wake()
                was_full = was_full or self.loaded >= self.capacity
                continue
            consumer: Consumer = lane.holder  # type: ignore[assignment]  # whatever is in flight has one
            del consumer.open[entry.offset]
            consumer.free += 1
            if not consumer.noted:
                rooms.note(consumer)
            closed.append(entry)
            self.loaded -= 1
            entry.item = None
            if head is None:
                del lanes[entry.key]  # type: ignore[arg-type]  # a keyless message has a lane of its own
            elif (after := live_from(entry.after) if lane.gaps else entry.after) is None:
                lane.head = lane.tail = None
                if lane.key is not None:
                    del lanes[lane.key]
            else:
                lane.head = after
                entry.after = None
                lane.loaded -= 1
                if lane.spilled is not None and self.loaded < self.capacity and lane.loaded < self.loaded_per_key:
                    self._load(lane, lane.spilled, None, granted)
                    was_full = was_full or self.loaded >= self.capacity
                if (
                    after is lane.fresh
                    and lane.owner is consumer
                    and after.state == QUEUED
                    and lane.version == self._version
                    and consumer.free > 0
                    and not (consumer.ready or self.shared or self.quarantined or self.starved)
                    and (self._counts is None or self._counts.admits(after, consumer))
                ):
                    lane.fresh = live_from(after.after) if lane.gaps else after.after
                    after.state = IN_FLIGHT
                    after.attempt = self._next_attempt(after) if self.first_attempt else after.attempt + 1
                    consumer.open[after.offset] = after
                    consumer.free -= 1
                    self.waiting -= 1
                    granted.append(after)
                    continue
                lane.open -= 1
                if not lane.open:
                    lane.holder = None
                self._examine(lane, granted)
            if consumer.ready or self.shared or self.starved:
                self._serve(consumer, granted)
                if self.starved:
                    self._feed(granted)
                was_full = was_full or self.loaded >= self.capacity
            if not (consumer.free or consumer.limit):
                self.emptied.append(consumer)
        cursor.close_many(closed)
        return granted, was_full


def offer_each(window: WindowStrides, messages: Iterable[tuple[int, bytes | None, object]]) -> list[Entry]:
    """Do what `offer_many` does for a window that offers in its own way."""
    granted: list[Entry] = []
    for offset, key, item in messages:
        granted += window.offer(offset, key, item)
    return granted


def settle_each(window: WindowStrides, entries: Iterable[Entry]) -> tuple[list[Entry], bool]:
    """Do what `settle_many` does for a window that settles in its own way."""
    granted: list[Entry] = []
    was_full = False
    for entry in entries:
        granted += window.settle(entry)
        was_full = was_full or window.loaded >= window.capacity
    return granted, was_full
