"""All schedules of two keys, two consumers, three messages up to a bound: all promises in all states, and a way out."""

import json
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import pytest
from tests.placements import RankedPlacement
from tests.properties.calls import Call, Step
from tests.properties.driving import Fast, outcome
from tests.properties.forks import copies_of
from tests.properties.schedules import RULES, observe, place_of
from tests.properties.watch import Watch

from keyshared.config import DispatcherConfig, DrainUnit, GroupLimits, KeySessions, OnEvict, Poison, RetryPolicy, Rules
from keyshared.dispatcher import ConsumerState
from keyshared.effects import BlockReason, DeadLetter, Deliver, Effect, KeyEnding, Load

CONSUMERS = ("x", "y")
ENOUGH = 60  # calls of a fair host: three messages with every retry, load and dead letter need fewer
CALLS_AFTER_START = 5

AT_ONCE = RetryPolicy(max_redeliveries=1, base_delay_ms=0)
LATER = RetryPolicy(max_redeliveries=1, base_delay_ms=3)

CONFIGS = {
    "one at a time": DispatcherConfig(
        window=4, max_in_flight_per_consumer=1, ack_timeout_ms=10, retry=AT_ONCE, inactive_grace_ms=4
    ),
    "two of a key, retries wait": DispatcherConfig(
        window=3,
        max_in_flight_per_consumer=2,
        max_in_flight_per_key=2,
        max_loaded_per_key=2,
        ack_timeout_ms=None,
        retry=LATER,
        poison=Poison.BLOCK,
        archive_blocked=True,
        inactive_grace_ms=4,
        drain_timeout_ms=6,
    ),
    "two of a key as a batch": DispatcherConfig(
        window=3,
        max_in_flight_per_consumer=2,
        batch_per_key=2,
        max_loaded_per_key=2,
        ack_timeout_ms=10,
        retry=LATER,
        inactive_grace_ms=4,
    ),
    "keys are flushed": DispatcherConfig(
        window=3,
        max_in_flight_per_consumer=1,
        ack_timeout_ms=10,
        retry=AT_ONCE,
        inactive_grace_ms=4,
        sessions=KeySessions(flush_ms=None),
    ),
    "only the latest, retries wait": DispatcherConfig(
        window=3,
        max_in_flight_per_consumer=1,
        max_loaded_per_key=1,
        ack_timeout_ms=10,
        retry=LATER,
        inactive_grace_ms=4,
        latest_only=True,
    ),
    "spilling, quarantine": DispatcherConfig(
        window=2,
        max_in_flight_per_consumer=1,
        max_loaded_per_key=1,
        ack_timeout_ms=10,
        retry=RetryPolicy(max_redeliveries=0),
        poison=Poison.DEAD_LETTER,
        quarantine=True,
        on_evict=OnEvict.DROP,
        inactive_grace_ms=4,
    ),
    "what is done comes back, two of a key": DispatcherConfig(
        window=3,
        max_in_flight_per_consumer=2,
        max_in_flight_per_key=2,
        max_loaded_per_key=2,
        ack_timeout_ms=None,
        retry=RetryPolicy(max_redeliveries=0),
        inactive_grace_ms=4,
        redrive=True,
    ),
    "nothing spills, one may wait": DispatcherConfig(
        window=3,
        max_in_flight_per_consumer=1,
        ack_timeout_ms=10,
        retry=AT_ONCE,
        inactive_grace_ms=4,
        spill=False,
        max_waiting_per_key=1,
    ),
}

GROUPED = {
    "one of a group, two of all": DispatcherConfig(
        window=4,
        max_in_flight=2,
        ack_timeout_ms=10,
        retry=AT_ONCE,
        inactive_grace_ms=4,
        group=GroupLimits(max_in_flight=1),
    ),
    "a token at a time": DispatcherConfig(
        window=3, ack_timeout_ms=10, retry=LATER, inactive_grace_ms=4, group=GroupLimits(per_second=100)
    ),
    "one of all, keys are flushed": DispatcherConfig(
        window=4, max_in_flight=1, retry=AT_ONCE, inactive_grace_ms=4, sessions=KeySessions(flush_ms=None)
    ),
    "one of a group, only the latest, what is done comes back": DispatcherConfig(
        window=3, retry=LATER, latest_only=True, redrive=True, inactive_grace_ms=4, group=GroupLimits(max_in_flight=1)
    ),
}

HAND_OVERS = {
    name: DispatcherConfig(
        window=4,
        max_in_flight_per_consumer=2,
        ack_timeout_ms=10,
        retry=LATER,
        inactive_grace_ms=4,
        drain_timeout_ms=6 if unit is DrainUnit.RANGE else None,
        unit=unit,
        sessions=sessions,
    )
    for name, unit, sessions in (
        ("hash", DrainUnit.HASH, None),
        ("range", DrainUnit.RANGE, None),
        ("hash, keys are flushed", DrainUnit.HASH, KeySessions(linger_ms=2, flush_ms=3)),
    )
}


def keys_of_both() -> tuple[bytes, bytes]:
    """A key that x owns and one that y owns when both are there."""
    ranges = RankedPlacement(CONSUMERS).ranges
    owned = {ranges.owner_of(key): key for key in (bytes([letter]) for letter in range(97, 123))}
    return owned["x"], owned["y"]


@dataclass
class Node:
    """One state of the small world."""

    dispatcher: Any
    watch: Watch
    to_offer: tuple[bytes | None, ...]
    offered: tuple[int, ...] = ()
    keys: tuple[bytes | None, ...] = ()  # of what was offered
    now: int = 0
    path: tuple[Call, ...] = ()

    def forks(self) -> "Callable[[], Node]":
        """What makes an independent state like this one, each time; what never changes is shared."""
        copied = copies_of(self.watch, [self.dispatcher.config, self.watch.claims])
        known = (self.to_offer, self.offered, self.keys, self.now, self.path)

        def fork() -> Node:
            watch = copied()
            return Node(watch.dispatcher, watch, *known)

        return fork

    def advance(self, call: Call) -> "Node":
        """Make one more call, judged."""
        self.path = (*self.path, call)
        if call.name == "offer":
            self.note_offer(*call.args)
        self.now = call.kwargs.get("now_ms", self.now)
        effects = outcome(self.watch.recorder, call)
        assert not isinstance(effects, type), f"{self.path} raised {effects}"
        self.compare(call, effects)
        found = self.watch.see(Step(call, tuple(effects), observe(self.dispatcher, self.offered), self.now))
        assert not found, f"{self.path}: {found}"
        return self

    def note_offer(self, offset: int, key: bytes | None) -> None:
        """A message is offered."""
        self.offered, self.keys, self.to_offer = (*self.offered, offset), (*self.keys, key), self.to_offer[1:]

    def compare(self, call: Call, effects: Sequence[Effect]) -> None:
        """What a call returns is as somebody else says; here there is nobody."""

    def inputs(self) -> Iterator[Call]:
        """Everything that can happen next."""
        if self.to_offer and self.dispatcher.room_for(self.to_offer[0]):
            yield Call("offer", (len(self.offered), self.to_offer[0]))
        for effect in self.dispatcher.outstanding_effects():
            if isinstance(effect, Deliver):
                yield Call("ack", effect.receipt)
                yield Call("nack", effect.receipt)
                if self.dispatcher.config.batch_per_key > 1:
                    yield Call("ack_through", effect.receipt)
            else:
                yield fulfil(effect)
        yield from self.returns()
        if (due := self.dispatcher.next_deadline_ms()) is not None:
            yield Call("handle_timeout", kwargs={"now_ms": max(due, self.now)})
        for name in CONSUMERS:
            yield from self.changes(name)
            if self.dispatcher.groups() and self.state_of(name) is ConsumerState.ACTIVE:
                yield Call("pull", (name, 1))

    def returns(self) -> Iterator[Call]:
        """Each message that is done comes back once."""
        if not self.dispatcher.config.redrive or not self.dispatcher.free_slots:
            return
        back = {letter[0] for call in self.path if call.name == "redrive" for letter in call.args[1]}
        for offset, key in zip(self.offered, self.keys, strict=True):
            if offset not in back and self.dispatcher.describe(offset) is None:
                yield Call("redrive", (key, [(offset, 1, None)]))

    def state_of(self, name: str) -> ConsumerState | None:
        consumer = self.dispatcher.stats().consumers.get(name)
        return None if consumer is None else consumer.state

    def changes(self, name: str) -> Iterator[Call]:
        state = self.state_of(name)
        if state not in {ConsumerState.ACTIVE, ConsumerState.INACTIVE}:
            yield Call("add_consumer", (name,))
            return
        yield Call("remove_consumer", (name,))
        yield Call("remove_consumer", (name,), {"drain_ms": 5})
        yield Call("set_inactive" if state is ConsumerState.ACTIVE else "set_active", (name,))

    def heals(self) -> Sequence[Call]:
        """What a fair host does first."""
        return ()

    def identity(self) -> str:
        return json.dumps([self.dispatcher.snapshot(), len(self.to_offer)], sort_keys=True)


def fulfil(effect: object) -> Call:
    """What a host does about an obligation."""
    match effect:
        case Deliver():
            return Call("ack", effect.receipt)
        case Load():
            return Call("loaded", (effect.offset, "again"))
        case DeadLetter():
            return Call("dead_lettered", (effect.offset,))
        case KeyEnding(key, _, session):
            return Call("flushed", (key, session))
        case _:
            raise AssertionError(effect)


def drain(node: Node, can_be_drained: set[str]) -> None:
    """A fair host gets everything settled from here: one consumer stays, obligations are met, the blocked parked.

    What it does next follows from the state, so a state from which it has got there before is the end of the way.
    """
    for call in node.heals():
        node.advance(call)
    state = node.state_of("x")
    if state not in {ConsumerState.ACTIVE, ConsumerState.INACTIVE}:
        node.advance(Call("add_consumer", ("x",)))
    elif state is ConsumerState.INACTIVE:
        node.advance(Call("set_active", ("x",), {"resumed": True}))
    on_the_way: set[str] = set()
    for _ in range(ENOUGH):
        if (identity := node.identity()) in can_be_drained:
            break
        on_the_way.add(identity)
        if obligations := sorted(node.dispatcher.outstanding_effects(), key=place_of):
            node.advance(fulfil(obligations[0]))
        elif list(node.dispatcher.outstanding()):
            way = next(way_on(node), None)
            assert way is not None, f"{node.path} leaves something outstanding for ever"
            node.advance(way)
        else:
            assert max(node.offered, default=-1) + 1 == (node.dispatcher.resume_offset or 0)
            break
    else:
        raise AssertionError(f"{node.path} leaves something outstanding for ever")
    can_be_drained |= on_the_way


def way_on(node: Node) -> Iterator[Call]:
    """What a fair host does when nothing is asked of it."""
    for message in node.dispatcher.outstanding():
        if message.blocking is not None and message.blocking.reason is BlockReason.BLOCKED:
            yield Call("park", (message.offset,))
    if (due := node.dispatcher.next_deadline_ms()) is not None:
        yield Call("handle_timeout", kwargs={"now_ms": max(due, node.now)})


def explore(start: Node, calls: int) -> int:
    """Breadth first over all inputs, so that a state is met first with most calls left; how many states there are."""
    known, can_be_drained = {start.identity()}, set[str]()
    todo = deque([(start, calls)])
    while todo:
        node, left = todo.popleft()
        if left:
            fork = node.forks()
            for call in node.inputs():
                after = fork().advance(call)
                identity = after.identity()
                if identity not in known:
                    known.add(identity)
                    todo.append((after, left - 1))
        drain(node, can_be_drained)
    return len(known)


def begun(config: DispatcherConfig, keys: tuple[bytes | None, ...], rules: Rules | None = None) -> Node:
    """The state in which both consumers are there, and no message is."""
    watch = Watch(Fast(RankedPlacement(), config, rules=rules), config)
    start = Node(watch.dispatcher, watch, keys)
    for name in CONSUMERS:
        start.advance(Call("add_consumer", (name,)))
    return start


@pytest.mark.parametrize("pattern", ["xxx", "xyx", "xx-"])
@pytest.mark.parametrize("name", CONFIGS)
def test_every_state_of_a_small_world_keeps_all_promises_and_can_be_drained(name: str, pattern: str) -> None:
    of_x, of_y = keys_of_both()
    keys = tuple({"x": of_x, "y": of_y, "-": None}[letter] for letter in pattern)
    assert explore(begun(CONFIGS[name], keys), CALLS_AFTER_START) > 250


@pytest.mark.parametrize("pattern", ["xyx", "xx-"])
@pytest.mark.parametrize("name", GROUPED)
def test_every_state_of_a_small_world_with_groups_keeps_all_promises_and_can_be_drained(
    name: str, pattern: str
) -> None:
    of_x, of_y = keys_of_both()
    keys = tuple({"x": of_x, "y": of_y, "-": None}[letter] for letter in pattern)
    assert explore(begun(GROUPED[name], keys, RULES), CALLS_AFTER_START) > 250


@pytest.mark.parametrize("name", HAND_OVERS)
def test_every_hand_over_of_two_keys_of_one_slot_keeps_all_promises_and_can_be_drained(name: str) -> None:
    ranges = RankedPlacement(CONSUMERS).ranges
    _, of_y = keys_of_both()
    twin = next(
        key for key in map(bytes, product(range(97, 123), repeat=2)) if ranges.slot_of(key) == ranges.slot_of(of_y)
    )
    assert explore(begun(HAND_OVERS[name], (of_y, twin, of_y)), CALLS_AFTER_START) > 250
