"""The in-flight window against a slow, obvious model: a list of messages, a list of who waits where, and scans.

The model keeps no counter, no pointer and no index; the place of a lane in its one list of listings is its place in the
sequence. Both have to grant the same messages in the same order, or refuse with the same exception.
"""

from collections.abc import Callable
from dataclasses import dataclass

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from keyshared.errors import EntryStateError, KeySharedError, OffsetOrderError, WindowFullError
from keyshared.window import Consumer, Entry, InFlightWindow, Lane, State

NAMES = ("ann", "bob", "cat")
KEYS = (b"a1", b"a2", b"b1", b"b2", b"z1", None)
MOVES = {
    State.IN_FLIGHT: (State.QUEUED, State.DELAYED, State.DEAD_LETTERING, State.BLOCKED),
    State.DELAYED: (State.QUEUED,),
    State.DEAD_LETTERING: (State.BLOCKED,),
    State.BLOCKED: (State.QUEUED,),
}
WAITING = (State.QUEUED, State.SPILLED)

Grant = tuple[int, int, str | None, int]
LaneName = bytes | int  # a message without a key is a lane of its own, named by its offset


@dataclass
class Message:
    """An outstanding message."""

    offset: int
    key: bytes | None
    state: State = State.QUEUED
    consumer: str | None = None  # who has it open, or for whom it is loaded
    attempt: int = 0

    @property
    def lane(self) -> LaneName:
        return self.offset if self.key is None else self.key


class Model:
    """What the window promises, in the plainest words."""

    def __init__(self, capacity: int, max_tracked: int, per_key: int, loaded_per_key: int) -> None:
        self.capacity, self.max_tracked = capacity, max_tracked
        self.per_key, self.loaded_per_key = per_key, loaded_per_key
        self.last: int | None = None
        self.messages: list[Message] = []
        self.listings: list[tuple[LaneName, str]] = []  # "ready ann", "shared", "ownerless", "draining", "starved"
        self.limits: dict[str, int] = {}
        self.keyless = dict.fromkeys(NAMES, True)
        self.owners: dict[str, str | None] = {"a": "ann", "b": "bob", "z": None}
        self.quarantined: set[bytes] = set()
        self.touched: set[LaneName] = set()
        self.freed: set[str] = set()
        self.stale = False
        self.granted: list[Message] = []

    # what is so, found by looking

    def lane(self, name: LaneName) -> list[Message]:
        return [message for message in self.messages if message.lane == name]

    def opened(self, name: LaneName) -> list[Message]:
        return [message for message in self.lane(name) if message.state is State.IN_FLIGHT]

    def candidate(self, name: LaneName) -> Message | None:
        return next((message for message in self.lane(name) if message.state is not State.IN_FLIGHT), None)

    def room(self, name: str) -> int:
        used = [m for m in self.messages if m.consumer == name and m.state in {State.IN_FLIGHT, State.LOADING}]
        return self.limits[name] - len(used)

    def loaded(self) -> int:
        return sum(message.state is not State.SPILLED for message in self.messages)

    def waiting(self) -> int:
        return self.loaded() - sum(message.state is State.IN_FLIGHT for message in self.messages)

    def queue(self, where: str) -> list[LaneName]:
        return [lane for lane, place in self.listings if place == where]

    def roomiest(self) -> str | None:
        able = [name for name in NAMES if self.keyless[name] and self.room(name) > 0]
        return max(able, key=lambda name: (self.room(name), -NAMES.index(name)), default=None)

    def owner(self, lane: LaneName) -> str | None:
        return self.roomiest() if isinstance(lane, int) else self.owners[lane[:1].decode()]

    def could_get(self, consumer: str, lane: LaneName) -> bool:
        if isinstance(lane, int):
            return self.keyless[consumer]
        opened = self.opened(lane)
        mine = lane not in self.quarantined and self.owner(lane) == consumer
        return mine and len(opened) < self.per_key and all(message.consumer == consumer for message in opened)

    # what a lane does

    def put(self, lane: LaneName, where: str | None) -> None:
        if where is not None and (lane, where) in self.listings:
            return
        self.listings = [listing for listing in self.listings if listing[0] != lane]
        if where is not None:
            self.listings.append((lane, where))

    def open(self, message: Message, consumer: str) -> bool:
        self.put(message.lane, None)
        message.state, message.consumer = State.IN_FLIGHT, consumer
        message.attempt += 1
        self.granted.append(message)
        return True

    def load(self, message: Message, consumer: str | None) -> bool:
        if self.queue("starved") or self.loaded() >= self.capacity:
            self.put(message.lane, "starved")
        else:
            self.load_now(message, consumer)
        return False

    def load_now(self, message: Message, consumer: str | None) -> None:
        self.put(message.lane, None)
        message.state, message.consumer = State.LOADING, consumer
        self.granted.append(message)

    def send(self, message: Message, consumer: str) -> bool:
        return self.load(message, consumer) if message.state is State.SPILLED else self.open(message, consumer)

    def step(self, lane: LaneName) -> bool:
        message, opened = self.candidate(lane), self.opened(lane)
        if message is None or message.state not in WAITING:
            self.put(lane, None)
            return False
        if lane in self.quarantined:
            return self.step_quarantined(message, waits=bool(opened))
        owner = self.owner(lane)
        if isinstance(lane, int):
            if owner is None or self.queue(f"ready {owner}") or self.queue("shared"):
                self.put(lane, "shared")
                return False
            return self.send(message, owner)
        if owner is None:
            self.put(lane, "ownerless")
        elif any(other.consumer != owner for other in opened):
            self.put(lane, "draining")
        elif len(opened) >= self.per_key:
            self.put(lane, None)
        elif self.room(owner) <= 0 or self.queue(f"ready {owner}") or (self.keyless[owner] and self.queue("shared")):
            self.put(lane, f"ready {owner}")
        else:
            return self.send(message, owner)
        return False

    def step_quarantined(self, message: Message, *, waits: bool) -> bool:
        if waits:
            self.put(message.lane, None)
        elif message.state is State.SPILLED:
            self.load(message, None)
        else:
            self.put(message.lane, None)
            message.state = State.DEAD_LETTERING
            self.granted.append(message)
        return False

    def examine(self, *lanes: LaneName) -> None:
        turns = list(lanes)
        while turns:
            lane = turns.pop(0)
            if self.step(lane):
                turns.append(lane)

    def serve(self, consumer: str) -> None:
        while self.room(consumer) > 0:
            places = {f"ready {consumer}"} | ({"shared"} if self.keyless[consumer] else set())
            lane = next((lane for lane, place in self.listings if place in places), None)
            if lane is None:
                return
            self.put(lane, None)
            message = self.candidate(lane)
            assert message is not None
            if self.send(message, consumer):
                self.examine(lane)

    def feed(self) -> None:
        while self.queue("starved") and self.loaded() < self.capacity:
            lane = self.queue("starved")[0]
            self.put(lane, None)
            message, owner = self.candidate(lane), self.owner(lane)
            assert message is not None
            if lane in self.quarantined:
                self.load_now(message, None)
            elif owner is not None and self.room(owner) > 0 and self.could_get(owner, lane):
                self.load_now(message, owner)
            else:
                self.examine(lane)

    # the calls

    def take_grants(self) -> list[Grant]:
        granted, self.granted = self.granted, []
        return [(m.offset, m.state, m.consumer if m.state in HELD_BY else None, m.attempt) for m in granted]

    def offer(self, offset: int, key: bytes | None) -> list[Grant]:
        if self.last is not None and offset <= self.last:
            raise OffsetOrderError(offset, self.last)
        if self.loaded() >= self.capacity:
            raise WindowFullError(self.capacity)
        if len(self.messages) >= self.max_tracked:
            raise WindowFullError(self.max_tracked)
        self.last = offset
        message = Message(offset, key)
        older = [other.state is not State.SPILLED for other in self.lane(message.lane)]
        self.messages.append(message)
        if not all(older) or sum(older) >= self.loaded_per_key:
            message.state = State.SPILLED
            self.granted.append(message)
            if message is self.candidate(message.lane):  # behind an older one it changes nothing for its lane
                self.examine(message.lane)
            return self.take_grants()
        self.examine(message.lane)
        if message.state is State.QUEUED and 2 * (self.waiting() - 1) >= self.capacity:
            message.state = State.SPILLED
            self.granted.append(message)
        return self.take_grants()

    def remove(self, message: Message) -> None:
        had_slot = message.state is not State.SPILLED
        if message.state in HELD_BY and message.consumer is not None:
            self.freed.add(message.consumer)
        self.messages.remove(message)
        message.state = State.SETTLED  # if it was granted something at this instant, that is moot
        lane = self.lane(message.lane)
        spilled = [other for other in lane if other.state is State.SPILLED]
        if had_slot and spilled:
            spilled[0].state, spilled[0].consumer = State.LOADING, None
            self.granted.append(spilled[0])
        if lane:
            self.touched.add(message.lane)
        else:
            self.touched.discard(message.lane)
            self.put(message.lane, None)

    def move(self, message: Message, to: State) -> None:
        if to not in MOVES.get(message.state, ()):
            raise EntryStateError(message.offset, message.state.name, to.name)
        if message.state is State.IN_FLIGHT and message.consumer is not None:
            self.freed.add(message.consumer)
        message.state = to
        self.touched.add(message.lane)
        if to is State.DEAD_LETTERING:
            self.granted.append(message)

    def provide(self, message: Message) -> None:
        if message.state is not State.LOADING:
            raise EntryStateError(message.offset, message.state.name, State.QUEUED.name)
        reserving, message.consumer, message.state = message.consumer, None, State.QUEUED
        self.touched.add(message.lane)
        if reserving is None:
            return
        self.freed.add(reserving)
        next_one = message is self.candidate(message.lane)
        if self.room(reserving) > 0 and next_one and self.could_get(reserving, message.lane):
            self.open(message, reserving)

    def wake(self) -> list[Grant]:
        touched, self.touched = self.touched, set()
        self.examine(*sorted(touched, key=lambda lane: self.lane(lane)[0].offset))
        if self.stale:
            self.stale = False
            lanes = [lane for lane, _ in self.listings]
            self.listings = []
            self.examine(*lanes)
            listed = [lane for lane, _ in self.listings]
            others = dict.fromkeys(message.lane for message in self.messages)
            self.examine(*(lane for lane in others if lane not in listed and not isinstance(lane, int)))
        freed, self.freed = self.freed, set()
        for name in NAMES:
            if name in freed:
                self.serve(name)
        while self.queue("shared") and (idle := self.roomiest()) is not None:
            self.serve(idle)
        self.feed()
        return self.take_grants()


HELD_BY = (State.IN_FLIGHT, State.LOADING)


def seen(granted: list[Entry]) -> list[Grant]:
    """What the window granted, in the model's words."""
    return [
        (e.offset, e.state, e.consumer.name if e.state in HELD_BY and e.consumer else None, e.attempt) for e in granted
    ]


def refused_by(error: KeySharedError) -> tuple[type, tuple[object, ...]]:
    """What was raised, with all that it says."""
    return type(error), error.args


class Owners:
    """Answers as the model does."""

    def __init__(self, model: Model) -> None:
        self.model = model

    def owner(self, key: bytes) -> str | None:
        """Name of the owner."""
        return self.model.owner(key)


class WindowAgainstModel(RuleBasedStateMachine):
    """Every call to both."""

    window_class = InFlightWindow

    @initialize(
        capacity=st.integers(1, 8),
        spare=st.integers(0, 8),
        per_key=st.integers(1, 3),
        loaded_per_key=st.integers(1, 4),
        limits=st.tuples(*[st.integers(0, 4)] * 3),
    )
    def start(self, capacity: int, spare: int, per_key: int, loaded_per_key: int, limits: tuple[int, ...]) -> None:
        sizes = (capacity, capacity + spare, per_key, max(per_key, loaded_per_key))
        self.model = Model(*sizes)
        self.model.limits = dict(zip(NAMES, limits, strict=True))
        self.window = self.window_class(
            Owners(self.model), capacity=sizes[0], max_tracked=sizes[1], per_key=sizes[2], loaded_per_key=sizes[3]
        )
        for order, name in enumerate(NAMES):
            self.window.add(Consumer(name, order, self.model.limits[name]))
        self.changed = True
        self.wake()

    @rule()
    def wake(self) -> None:
        expected = self.model.wake()
        assert expected == seen(self.window.wake())
        self.changed = False

    def woken(self) -> None:
        if self.changed:
            self.wake()

    @rule(keys=st.lists(st.sampled_from(KEYS), min_size=1, max_size=6), gap=st.sampled_from((1, 1, 1, 5, 0, -3)))
    def offer(self, keys: list[bytes | None], gap: int) -> None:
        self.woken()
        for key in keys:
            offset = (self.model.last or 0) + gap
            try:
                expected = self.model.offer(offset, key)
            except (OffsetOrderError, WindowFullError) as error:
                with pytest.raises(type(error)) as caught:
                    self.window.offer(offset, key)
                assert refused_by(error) == refused_by(caught.value)
            else:
                assert expected == seen(self.window.offer(offset, key, offset))

    def pick(self, data: st.DataObject) -> tuple[Message, Entry]:
        message = data.draw(st.sampled_from(self.model.messages))
        entry = self.window.find(message.offset)
        assert entry is not None
        return message, entry

    def some(self) -> bool:
        return bool(self.model.messages)

    @precondition(some)
    @rule(data=st.data())
    def settle(self, data: st.DataObject) -> None:
        self.woken()
        message, entry = self.pick(data)
        self.model.remove(message)
        expected = self.model.wake()
        assert expected == seen(self.window.settle(entry))

    @precondition(some)
    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        message, entry = self.pick(data)
        self.model.remove(message)
        self.window.remove(entry)
        self.changed = True

    @precondition(some)
    @rule(data=st.data(), to=st.sampled_from(State))
    def move(self, data: st.DataObject, to: State) -> None:
        message, entry = self.pick(data)
        to = data.draw(st.sampled_from((*MOVES.get(message.state, ()), to)))
        try:
            self.model.move(message, to)
        except EntryStateError as error:
            with pytest.raises(EntryStateError) as caught:
                self.window.move(entry, to)
            assert refused_by(error) == refused_by(caught.value)
        else:
            self.window.move(entry, to)
            self.changed = True

    @precondition(some)
    @rule(data=st.data())
    def provide(self, data: st.DataObject) -> None:
        loading = [message for message in self.model.messages if message.state is State.LOADING]
        message = data.draw(st.sampled_from(loading or self.model.messages))
        entry = self.window.find(message.offset)
        assert entry is not None
        try:
            self.model.provide(message)
        except EntryStateError as error:
            with pytest.raises(EntryStateError) as caught:
                self.window.provide(entry, message.offset)
            assert refused_by(error) == refused_by(caught.value)
        else:
            self.window.provide(entry, message.offset)
            self.changed = True

    @rule(name=st.sampled_from(NAMES), limit=st.integers(0, 5))
    def set_limit(self, name: str, limit: int) -> None:
        self.model.limits[name] = limit
        self.model.freed.add(name)
        self.window.set_limit(self.window.consumers[name], limit)
        self.changed = True

    @rule(name=st.sampled_from(NAMES), keyless=st.booleans())
    def set_keyless(self, name: str, *, keyless: bool) -> None:
        self.model.keyless[name] = keyless
        if keyless:
            self.model.freed.add(name)
        self.window.set_keyless(self.window.consumers[name], keyless=keyless)
        self.changed = True

    @rule(name=st.sampled_from(NAMES))
    def cancel_reservations(self, name: str) -> None:
        for message in self.model.messages:
            if message.state is State.LOADING and message.consumer == name:
                message.consumer = None
        self.model.freed.add(name)
        self.window.cancel_reservations(self.window.consumers[name])
        self.changed = True

    @rule(letter=st.sampled_from("abz"), name=st.sampled_from((*NAMES, None)))
    def reassign(self, letter: str, name: str | None) -> None:
        self.model.owners[letter] = name
        self.model.stale = True
        self.window.reassign()
        self.changed = True

    @rule(key=st.sampled_from(KEYS[:-1]), on=st.booleans())
    def quarantine(self, key: bytes, *, on: bool) -> None:
        changes = on or key in self.model.quarantined  # lifting what is not there touches nothing
        if on:
            self.model.quarantined.add(key)
            self.window.quarantine(key)
        else:
            self.model.quarantined.discard(key)
            self.window.lift_quarantine(key)
        if changes and self.model.lane(key):
            self.model.touched.add(key)
        self.changed = True

    @invariant()
    def they_agree(self) -> None:
        entries = self.window.outstanding()
        expected = [(m.offset, m.key, int(m.state), m.attempt) for m in self.model.messages]
        assert expected == [(entry.offset, entry.key, entry.state, entry.attempt) for entry in entries]
        assert (self.model.loaded(), self.model.waiting()) == (self.window.loaded, self.window.waiting)
        assert {name: self.model.room(name) for name in NAMES} == {
            c.name: c.free for c in self.window.consumers.values()
        }
        if self.changed:
            return
        assert [lane for lane, _ in self.model.listings] == [named(lane) for lane in self.window.waiting_lanes()]
        self.window.check_invariants()


def named(lane: Lane) -> LaneName:
    """A lane as the model names it."""
    if lane.key is not None:
        return lane.key
    assert lane.head is not None
    return lane.head.offset


TestWindowAgainstModel = WindowAgainstModel.TestCase


class _ForgetsRoom(InFlightWindow):
    def set_limit(self, consumer: Consumer, limit: int) -> None:
        super().set_limit(consumer, limit)
        self._freed.pop(consumer)


class _FeedsNobody(InFlightWindow):
    def _feed(self, granted: list[Entry]) -> None:
        del granted


class _ServesTheNewestFirst(InFlightWindow):
    def _examine_in_turns(self, lanes: list[Lane], granted: list[Entry]) -> None:
        super()._examine_in_turns(lanes[::-1], granted)


def _in_steps(broken: type[InFlightWindow]) -> WindowAgainstModel:
    """A machine whose steps a test writes down: random ones come upon some faults after minutes only."""

    class Broken(WindowAgainstModel):
        window_class = broken

    return Broken()


def _gets_room(machine: WindowAgainstModel) -> None:
    machine.start(capacity=4, spare=0, per_key=1, loaded_per_key=1, limits=(0, 0, 0))
    machine.offer(keys=[b"a1"], gap=1)
    machine.set_limit(name="ann", limit=1)
    machine.wake()


def _gets_a_slot(machine: WindowAgainstModel) -> None:
    """The turn of a spilled message has come, and what it waits for is memory."""
    machine.start(capacity=2, spare=2, per_key=1, loaded_per_key=1, limits=(0, 1, 0))
    machine.offer(keys=[b"a1", b"a2", b"b1"], gap=1)
    machine.set_limit(name="ann", limit=2)
    machine.wake()
    machine.model.remove(machine.model.messages[-1])
    expected = machine.model.wake()
    newest = machine.window.find(3)
    assert newest is not None
    assert expected == seen(machine.window.settle(newest))


def _wakes_several(machine: WindowAgainstModel) -> None:
    machine.start(capacity=8, spare=0, per_key=1, loaded_per_key=1, limits=(2, 0, 0))
    machine.reassign(letter="a", name=None)
    machine.offer(keys=[b"a1", b"a2"], gap=1)
    machine.reassign(letter="a", name="ann")
    machine.wake()


FAULTS = {_ForgetsRoom: _gets_room, _FeedsNobody: _gets_a_slot, _ServesTheNewestFirst: _wakes_several}


@pytest.mark.parametrize(("broken", "steps"), FAULTS.items())
def test_a_window_with_a_fault_fails(broken: type[InFlightWindow], steps: Callable[[WindowAgainstModel], None]) -> None:
    steps(_in_steps(InFlightWindow))
    with pytest.raises(AssertionError):
        steps(_in_steps(broken))


def test_a_keyless_message_put_back_goes_to_somebody_else_when_its_holder_takes_what_is_older() -> None:
    machine = _in_steps(InFlightWindow)
    machine.start(capacity=2, spare=0, per_key=1, loaded_per_key=1, limits=(1, 0, 1))
    machine.offer(keys=[None, b"a1"], gap=1)
    entry = machine.window.find(1)
    assert entry is not None
    machine.model.move(machine.model.messages[0], State.QUEUED)
    machine.window.move(entry, State.QUEUED)
    granted = machine.model.wake()

    assert [(2, "ann"), (1, "cat")] == [(offset, consumer) for offset, _, consumer, _ in granted]
    assert granted == seen(machine.window.wake())
