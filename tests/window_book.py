"""The window's public face against a slow book of it, written from rules 2, 3, 10 and 11 of the contract.

The book keeps a `Message` for each outstanding one and no counter: everything else is found by looking at all of them.
It predicts nothing. It judges each grant by the moment in which it was made, and after each call says of every message
that waits what keeps it: a message that nothing keeps has been forgotten.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from keyshared.errors import EntryStateError, WindowFullError
from keyshared.window import Entry, InFlightWindow, State

NAMES = ("ann", "bob")
MOVES = {
    State.IN_FLIGHT: (State.QUEUED, State.DELAYED, State.DEAD_LETTERING, State.BLOCKED),
    State.DELAYED: (State.QUEUED,),
    State.DEAD_LETTERING: (State.BLOCKED,),
    State.BLOCKED: (State.QUEUED,),
}
BUSY = (State.IN_FLIGHT, State.LOADING)
Choose = Callable[[Any], Any]


@dataclass
class Message:
    """An outstanding message."""

    offset: int
    key: bytes | None
    deadline: int | None
    state: State = State.QUEUED
    has_slot: bool = True
    consumer: str | None = None  # who has it open, or for whom it is loaded
    attempt: int = 0

    @property
    def lane(self) -> bytes | int:
        """Its key; a message without one is a lane of its own."""
        return self.offset if self.key is None else self.key


class Book:
    """Makes the calls, and judges what they return."""

    def __init__(self, choose: Choose) -> None:
        self.choose = choose
        self.capacity, self.most = choose([2, 4, 8]), choose([8, 16])
        self.per_key = choose([1, 1, 2])
        self.per_lane = max(self.per_key, choose([1, 2, 4]))
        self.owners: dict[str, str | None] = {"a": "ann", "b": "bob", "c": None}
        self.limits: dict[str, int] = {name: choose([0, 1, 2, 4]) for name in NAMES}
        self.keyless = dict.fromkeys(NAMES, True)
        self.quarantined: set[bytes] = set()
        self.messages: dict[int, Message] = {}
        self.returned: list[Message] = []
        self.ready: dict[bytes | int, tuple[str | None, int]] = {}  # at whom a lane waits, and since which call
        self.calls = self.next = 0
        self.window = InFlightWindow(
            self, capacity=self.capacity, max_tracked=self.most, per_key=self.per_key, loaded_per_key=self.per_lane
        )
        for name, limit in self.limits.items():
            self.window.add(name, limit=limit)
        self.take(self.window.wake())

    def owner(self, key: bytes) -> str | None:
        """Return the owner of a key; the window asks this too."""
        return self.owners[key[:1].decode()]

    def lane(self, message: Message) -> list[Message]:
        return [other for other in self.messages.values() if other.lane == message.lane]

    def free(self, name: str) -> int:
        return self.limits[name] - sum(one.consumer == name and one.state in BUSY for one in self.messages.values())

    def loaded(self) -> int:
        return sum(one.has_slot for one in self.messages.values())

    def waiting(self) -> int:
        return sum(one.has_slot and one.state is not State.IN_FLIGHT for one in self.messages.values())

    def keeps(self, message: Message) -> str | None:
        """Return what keeps a message that is not open, None if nothing does."""
        lane = self.lane(message)
        opened = [other for other in lane if other.state is State.IN_FLIGHT]
        slot = None if message.has_slot or self.loaded() < self.capacity else "slot"
        if message.state is not State.QUEUED or message.deadline is not None:
            return "its own state"
        if any(one.state is not State.IN_FLIGHT for one in lane if one.offset < message.offset):
            return "an older one"
        if message.key is None:
            return slot if any(self.keyless[name] and self.free(name) > 0 for name in NAMES) else "capacity"
        if message.key in self.quarantined:
            return "an open one" if opened else slot
        owner = self.owner(message.key)
        if owner is None or len(opened) >= self.per_key or any(one.consumer != owner for one in opened):
            return "its key"
        return slot if self.free(owner) > 0 else "capacity"

    # judging

    def take(self, granted: list[Entry], *, puller: str | None = None, offered: Message | None = None) -> None:
        """Judge what was granted, each at its moment, write it down, and compare what the window shows."""
        spilled = []
        for entry in granted:
            message, state = self.messages[entry.offset], State(entry.state)
            if state is State.IN_FLIGHT:
                assert entry.consumer is not None
                self.deliver(message, entry.consumer.name, pulls=entry.consumer.name == puller)
                assert (entry.attempt, entry.item) == (message.attempt, message.offset)
            elif state is State.LOADING:
                assert not message.has_slot, "loaded without need"
                if self.keeps(message) in (None, "capacity"):
                    self.ready.pop(message.lane, None)  # it has had its turn
                message.state, message.has_slot = State.LOADING, True
                message.consumer = None if entry.consumer is None else entry.consumer.name
            elif state is not State.DEAD_LETTERING:
                spilled.append(message)
            elif message.state is not State.DEAD_LETTERING:
                assert message.key in self.quarantined, "archived without a quarantine"
                assert message.has_slot, "archived without its payload"
                assert self.keeps(message) is None, "archived before its turn"
                message.state = State.DEAD_LETTERING
                self.returned.append(message)
        loads = sum(entry.state == State.LOADING for entry in granted)
        self.judge_spilling(spilled, offered, loads, len(granted) - len(spilled) - loads)
        self.look()

    def deliver(self, message: Message, consumer: str, *, pulls: bool) -> None:
        """Open a delivery, if everything allows it but the limit of a consumer that pulls."""
        limit, self.limits[consumer] = self.limits[consumer], self.limits[consumer] + 50 * pulls
        assert message.has_slot, "delivered without its payload"
        assert self.keeps(message) is None, f"delivered although {self.keeps(message)} keeps it"
        assert self.free(consumer) > 0, "beyond the limit"
        assert self.keyless[consumer] if message.key is None else self.owner(message.key) == consumer
        self.limits[consumer] = limit
        at, since = self.ready.pop(message.lane, (None, 0))
        if at == consumer and not pulls:
            passed = [one for one in self.messages.values() if self.waits_longer(one, consumer, since)]
            assert not passed, f"{message} passed {passed}"
        message.state, message.consumer, message.attempt = State.IN_FLIGHT, consumer, message.attempt + 1

    def waits_longer(self, message: Message, consumer: str, since: int) -> bool:
        at, began = self.ready.get(message.lane, (None, since))
        waits = at == consumer and began < since and message.key not in self.quarantined
        return waits and message.has_slot and self.keeps(message) in (None, "capacity")

    def judge_spilling(self, spilled: list[Message], offered: Message | None, loads: int, others: int) -> None:
        """Rule 3: what cannot go out now gives up its payload in three cases, what comes back in one."""
        archived = [one for one in self.returned if one.state is State.DEAD_LETTERING]
        missing = self.loaded() - len(spilled) - self.window.loaded  # a dead letter carries its payload nevertheless
        assert 0 <= missing <= len(archived), f"slots {missing} {archived} {self.returned} {spilled}"
        half = (self.capacity + 1) // 2
        for message in [*spilled, *archived[:missing]]:
            assert message.has_slot, "spilled twice"
            assert message is offered or message in self.returned, "spilled what waited"
            message.has_slot = False
        crowded = self.waiting() >= half - others
        for message in spilled:
            lane = [one for one in self.lane(message) if one is not message]
            full = sum(one.has_slot for one in lane) >= self.per_lane - loads or not all(one.has_slot for one in lane)
            assert crowded or (message is offered and full), "spilled too soon"
        for message in [*self.returned, *([offered] if offered else [])]:
            if message.offset in self.messages and message.has_slot and message.state not in BUSY:
                assert self.waiting() - 1 - loads < half, "kept beyond half the window"
        assert crowded or not missing, "spilled too soon"
        self.returned.clear()

    def look(self) -> None:
        """Compare what the window shows, and ask of each message what keeps it."""
        self.calls += 1
        assert list(self.messages) == [entry.offset for entry in self.window.outstanding()]
        for entry in self.window.outstanding():
            message = self.messages[entry.offset]
            spilled = message.state is State.QUEUED and not message.has_slot
            assert entry.state == (State.SPILLED if spilled else message.state), f"{entry} {message}"
            assert message.state is State.IN_FLIGHT or self.keeps(message), f"forgotten: {message}"
        assert {one.name: one.free for one in self.window.consumers.values()} == {n: self.free(n) for n in NAMES}
        assert (self.loaded(), self.waiting()) == (self.window.loaded, self.window.waiting)
        assert self.loaded() <= self.capacity + 1
        assert self.window.free_slots == max(0, min(self.capacity - self.loaded(), self.most - len(self.messages)))
        lowest = min(self.messages, default=self.next)
        assert self.window.cursor.safe_cursor == (lowest - 1 if lowest else None)
        before, self.ready = self.ready, {}
        for one in self.messages.values():
            owner = self.owner(one.key) if one.key is not None else None
            if owner is not None and self.keeps(one) == "capacity":
                at, since = before.get(one.lane, (None, 0))
                self.ready[one.lane] = (owner, since if at == owner else self.calls)

    # calls

    def step(self) -> None:
        """Make a call that fits, or one of several changes and then `wake`."""
        kind = self.choose(["offer"] * 4 + ["settle"] * 3 + ["load", "load", "pull", "change", "change", "change"])
        if kind == "offer":
            self.offer()
        elif kind == "settle" and self.messages:
            entry = self.pick()
            del self.messages[entry.offset]
            self.take(self.window.settle(entry))
        elif kind == "load" and (loading := [one for one in self.messages.values() if one.state is State.LOADING]):
            message = self.choose(loading)
            message.state, message.consumer = State.DELAYED if message.deadline else State.QUEUED, None
            entry = self.find(message.offset)
            self.window.provide(entry, message.offset)
            self.take(self.window.wake())
        elif kind == "pull":
            name, most = self.choose(NAMES), self.choose([1, 2])
            only = self.pick() if self.messages and self.choose([True, False]) else None
            granted = self.window.pull(name, most, only=only)
            assert sum(entry.state == State.IN_FLIGHT for entry in granted) <= most
            assert only is None or granted in ([], [only])
            self.take(granted, puller=name)
        elif kind == "change":
            for _ in range(self.choose([1, 1, 2, 3])):
                self.choose([self.change_message, self.change_message, self.change_setting])()
            self.take(self.window.wake())

    def offer(self) -> None:
        key, deadline = self.choose([b"a1", b"a1", b"a2", b"a3", b"b1", b"c1", None]), self.choose([None] * 5 + [9])
        offset = self.next
        if not self.window.free_slots:
            with pytest.raises(WindowFullError):
                self.window.offer(offset, key, offset)
            return
        self.next += 1
        message = self.messages[offset] = Message(offset, key, deadline)
        message.state = State.DELAYED if deadline else State.QUEUED
        granted = self.window.offer(offset, key, offset, deadline=deadline)
        if any(entry.offset == offset and entry.state == State.SPILLED for entry in granted):
            message.state = State.QUEUED  # spilled at the offer: its instant holds it, and no state
        self.take(granted, offered=message)

    def pick(self) -> Entry:
        return self.find(self.choose(list(self.messages)))

    def find(self, offset: int) -> Entry:
        entry = self.window.find(offset)
        assert entry is not None
        return entry

    def change_message(self) -> None:
        """Remove a message, let its instant come, or move it if that step is one."""
        if not self.messages:
            return
        entry = self.pick()
        message = self.messages[entry.offset]
        if self.choose([0, 0, 0, 1]):
            self.window.remove(entry)
            del self.messages[entry.offset]
        elif message.deadline is not None:
            self.window.ripen(entry)
            message.deadline, message.state = None, message.state if message.state in BUSY else State.QUEUED
        else:
            self.move(entry, message, self.choose(MOVES.get(message.state, list(State))))

    def move(self, entry: Entry, message: Message, to: State) -> None:
        if to not in MOVES.get(message.state, ()):
            with pytest.raises(EntryStateError):
                self.window.move(entry, to)
            return
        if message.state is State.IN_FLIGHT:
            self.returned.append(message)
        self.window.move(entry, to)
        message.state, message.consumer = to, None

    def change_setting(self) -> None:
        name, key = self.choose(NAMES), self.choose([b"a1", b"b1"])
        match self.choose(["limit", "limit", "keyless", "owner", "owner", "quarantine"]):
            case "limit":
                self.limits[name] = self.choose([0, 1, 2, 4])
                self.window.set_limit(name, self.limits[name])
            case "keyless":
                self.keyless[name] = not self.keyless[name]
                self.window.set_keyless(name, keyless=self.keyless[name])
            case "owner":
                self.owners[self.choose("abc")] = self.choose([*NAMES, None])
                self.window.reassign()
                self.ready.clear()  # those that waited longest come first, wherever they waited
            case _ if key in self.quarantined:
                self.quarantined.remove(key)
                assert self.window.lift_quarantine(key)
            case _:
                self.quarantined.add(key)
                self.window.quarantine(key)


def run(choose: Choose, steps: int) -> InFlightWindow:
    book = Book(choose)
    for _ in range(steps):
        book.step()
    return book.window
