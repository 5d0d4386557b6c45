"""All schedules of a few messages and calls, up to a bound: the judge in all states, and a way out of each.

First two keys, two consumers and three messages under one feature, then two features where they meet.
"""

import json
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, TypeAlias

import pytest
from tests.broken import BROKEN
from tests.placements import RankedPlacement
from tests.properties.calls import Call
from tests.properties.contract_judge import Judge
from tests.properties.driving import Fast
from tests.properties.forks import copies_of
from tests.properties.schedules import RULES, place_of

from keyshared.config import (
    DispatcherConfig,
    DrainUnit,
    GroupLimits,
    KeySessions,
    LookAhead,
    OnEvict,
    Poison,
    RetryPolicy,
    Rules,
    Unmatched,
)
from keyshared.dispatcher import ConsumerState
from keyshared.effects import BlockReason, DeadLetter, Deliver, KeyEnding, Load
from keyshared.errors import InvariantError, KeySharedError, SnapshotError

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


RANGES = RankedPlacement(CONSUMERS).ranges
OF_X, OF_Y = (next(key for key in (bytes([n]) for n in range(97, 123)) if RANGES.owner_of(key) == one) for one in "xy")
MORE_OF_X, MORE_OF_Y = (
    [key for key in map(bytes, product(range(97, 123), repeat=2)) if RANGES.owner_of(key) == one] for one in "xy"
)
TWIN = next(key for key in MORE_OF_Y if RANGES.slot_of(key) == RANGES.slot_of(OF_Y))
OTHER = next(key for key in MORE_OF_Y if key != TWIN)
KEYS = {"x": OF_X, "y": OF_Y, "t": TWIN, "s": OTHER, **dict(zip("uvw", MORE_OF_X, strict=False))}
"""Keys of x, and of y; y and t are of one slot."""

JOIN_X, JOIN_Y = (Call("add_consumer", (name,)) for name in CONSUMERS)
CRASHES = (Call("crash"), Call("crash", ("token",)))


@dataclass
class Node:
    """One state of a small world.

    Attributes:
        judge: Has the dispatcher, and makes its calls.
        to_offer: The keys of what is not offered yet.
        keys: Of what was offered; offsets count from 0.
        path: The calls that have led here.
        more: What can happen besides offers and time; None for everything.
        unread: Offsets of the log to be offered again, after a crash.
        healing: What a fair host does first.
    """

    judge: Judge
    to_offer: tuple[bytes | None, ...]
    keys: tuple[bytes | None, ...] = ()
    path: tuple[Call, ...] = ()
    more: "More | None" = None
    unread: tuple[int, ...] = ()
    healing: Sequence[Call] = ()

    @property
    def dispatcher(self) -> Any:
        return self.judge.dispatcher

    @property
    def now(self) -> int:
        return self.judge.now

    @property
    def open(self) -> list[Deliver]:
        return [effect for effect in self.dispatcher.outstanding_effects() if isinstance(effect, Deliver)]

    def forks(self) -> "Callable[[], Node]":
        """What makes an independent state like this one, each time; what never changes is shared."""
        copied = copies_of(self.judge, [self.judge.config])
        return lambda: replace(self, judge=copied())

    def advance(self, call: Call) -> "Node":
        """Make one more call, judged."""
        self.path = (*self.path, call)
        if call.name == "crash":
            self.crash(*call.args)
            return self
        if call.name == "offer":
            self.note_offer(*call.args)
        options = dict(call.kwargs)
        self.judge.now = options.pop("now_ms", self.now)
        try:
            self.judge.call(call.name, *call.args, **options)
        except KeySharedError as error:
            raise AssertionError(f"{self.path} raised") from error
        return self

    def note_offer(self, offset: int, key: bytes | None) -> None:
        if offset in self.unread:
            self.unread = self.unread[1:]
        else:
            self.keys, self.to_offer = (*self.keys, key), self.to_offer[1:]

    def crash(self, *kept: str) -> None:
        """Go on with what was restored from a snapshot, or from a token: then nobody is connected."""
        old, config = self.dispatcher, self.judge.config
        if kept:
            text = old.cursor_token().text
            self.judge.resumed_from_token(type(old)(RankedPlacement(), config, rules=old.rules, resume_from=text))
            self.judge.now = 0
        else:
            state, items = json.loads(json.dumps(old.snapshot())), dict.fromkeys(range(len(self.keys)))
            given = {"now_ms": self.now, "items": items, "rules": old.rules}
            self.judge.restored(type(old).restore(state, old.placement, config, **given))
        resume = self.dispatcher.resume_offset or 0
        self.unread = tuple(range(resume, len(self.keys)))

    def rereads(self) -> Sequence[Call]:
        """What a host reads again before it reads on: after a restart only."""
        return [Call("offer", (offset, self.keys[offset])) for offset in self.unread]

    def next_offer(self, **kwargs: Any) -> Call:
        """The next message of the log."""
        return Call("offer", (len(self.keys), self.to_offer[0]), kwargs)

    def inputs(self) -> Iterator[Call]:
        """Everything that can happen next."""
        yield from self.rereads()[:1]
        if self.to_offer and not self.unread and self.dispatcher.room_for(self.to_offer[0]):
            yield self.next_offer()
        if (due := self.dispatcher.next_deadline_ms()) is not None:
            yield Call("handle_timeout", kwargs={"now_ms": max(due, self.now)})
        yield from self.anything() if self.more is None else self.more(self)

    def anything(self) -> Iterator[Call]:
        """Every answer, obligation, return, join and leave."""
        for effect in self.dispatcher.outstanding_effects():
            if isinstance(effect, Deliver):
                yield Call("ack", effect.receipt)
                yield Call("nack", effect.receipt)
                if self.dispatcher.config.batch_per_key > 1:
                    yield Call("ack_through", effect.receipt)
            else:
                yield fulfil(effect)
        yield from self.returns()
        for name in CONSUMERS:
            yield from self.changes(name)
            if self.dispatcher.groups() and self.state_of(name) is ConsumerState.ACTIVE:
                yield Call("pull", (name, 1))

    def returns(self) -> Iterator[Call]:
        """Each message that is done comes back once."""
        if not self.dispatcher.config.redrive or not self.dispatcher.free_slots:
            return
        back = {letter[0] for call in self.path if call.name == "redrive" for letter in call.args[1]}
        for offset, key in enumerate(self.keys):
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

    def identity(self) -> str:
        return json.dumps([self.dispatcher.snapshot(), len(self.to_offer), self.unread], sort_keys=True)


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
    for call in (*node.rereads(), *node.healing):
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
            assert len(node.keys) == (node.dispatcher.resume_offset or 0)
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


def begun(
    config: DispatcherConfig, keys: tuple[bytes | None, ...], rules: Rules | None = None, factory: Any = Fast
) -> Node:
    """The state in which nobody is there, and no message is."""
    judge = Judge(factory(RankedPlacement(), config, rules=rules), config, rules)
    judge.slot_bits = None
    return Node(judge, keys)


def with_both(config: DispatcherConfig, pattern: str, rules: Rules | None = None) -> Node:
    """The state in which both consumers are there, and no message is."""
    node = begun(config, tuple(None if letter == "-" else KEYS[letter] for letter in pattern), rules)
    for name in CONSUMERS:
        node.advance(Call("add_consumer", (name,)))
    return node


@pytest.mark.parametrize("pattern", ["xxx", "xyx", "xx-"])
@pytest.mark.parametrize("name", CONFIGS)
def test_every_state_of_a_small_world_keeps_all_promises_and_can_be_drained(name: str, pattern: str) -> None:
    assert explore(with_both(CONFIGS[name], pattern), CALLS_AFTER_START) > 250


@pytest.mark.parametrize("pattern", ["xyx", "xx-"])
@pytest.mark.parametrize("name", GROUPED)
def test_every_state_of_a_small_world_with_groups_keeps_all_promises_and_can_be_drained(
    name: str, pattern: str
) -> None:
    assert explore(with_both(GROUPED[name], pattern, RULES), CALLS_AFTER_START) > 250


@pytest.mark.parametrize("name", HAND_OVERS)
def test_every_hand_over_of_two_keys_of_one_slot_keeps_all_promises_and_can_be_drained(name: str) -> None:
    assert explore(with_both(HAND_OVERS[name], "yty"), CALLS_AFTER_START) > 250


More: TypeAlias = Callable[[Node], Iterable[Call]]
"""What can happen next besides offers and time."""


def answers(*names: str, **kwargs: Any) -> More:
    """Each open delivery gets each of these answers."""
    return lambda node: (Call(name, each.receipt, kwargs) for each in node.open for name in names)


def loads(node: Node) -> Iterator[Call]:
    """What was asked for is loaded."""
    yield from (fulfil(effect) for effect in node.dispatcher.outstanding_effects() if isinstance(effect, Load))


def late_acks(node: Node) -> Iterator[Call]:
    """Acks of deliveries that have ended."""
    now = {each.receipt for each in node.open}
    for message in node.dispatcher.outstanding():
        for attempt in range(1, message.attempt + 1):
            if (message.offset, "x", attempt) not in now:
                yield Call("ack", (message.offset, "x", attempt))


def calls(*several: Call) -> More:
    """The same calls in any state."""
    return lambda _: several


def members(node: Node) -> Iterator[Call]:
    """Both join, and leave at once or after a drain."""
    for name in "xy":
        yield from node.changes(name)


def gone(node: Node) -> Iterator[Call]:
    """Any message can no longer be read."""
    yield from (Call("gone", (message.offset,)) for message in node.dispatcher.outstanding())


def offers(node: Node) -> Iterator[Call]:
    """The next message is offered for later."""
    if node.to_offer and node.dispatcher.room_for(node.to_offer[0]):
        yield node.next_offer(not_before_ms=node.now + 3)


def crashes(node: Node) -> Iterator[Call]:
    """A crash, though not one after the other; and x comes back."""
    if node.path[-1].name != "crash":
        yield from CRASHES
    if node.state_of("x") is None:
        yield JOIN_X


def returns(node: Node) -> Iterator[Call]:
    """What is done comes back, once; what was to be archived is."""
    if not node.unread:
        yield from node.returns()
    yield from (fulfil(each) for each in node.dispatcher.outstanding_effects() if isinstance(each, DeadLetter))


@dataclass(frozen=True)
class Meeting:
    """A small world in which two features meet.

    Attributes:
        keys: Of its log.
        begins: The calls that come first.
        more: What may come after them, besides offers and time.
        calls: How many calls come after them.
        config: What the features need.
        healing: What a fair host does before all is settled.
        rules: Functions of its keys.
    """

    keys: str
    begins: Sequence[Call]
    more: Sequence[More]
    calls: int
    config: Mapping[str, Any]
    healing: Sequence[Call] = ()
    rules: Rules | None = None

    def start(self, factory: Any = Fast) -> Node:
        config = DispatcherConfig(**{"window": 5, "retry": LATER, "ack_timeout_ms": None, **self.config})
        node = begun(config, tuple(KEYS[letter] for letter in self.keys), self.rules, factory)
        node.more, node.healing = self.anything_more, self.healing
        for call in self.begins:
            node.advance(node.next_offer(**call.kwargs) if call.name == "offer" else call)
        return node

    def anything_more(self, node: Node) -> Iterator[Call]:
        return (call for each in self.more for call in each(node))


OFFER = Call("offer")
BATCH = {"batch_per_key": 2}
ONE_LANE = {"ordering_required": True, "unmatched": Unmatched.HOLD, "poison": Poison.BLOCK}
FULL = {"max_ack_holes": 2}
LIMIT_OF_X = Rules(mark="two of x", limit_of=lambda key: 2 if key == OF_X else 3)
LATEST_OF_X = Rules(mark="latest of x", latest_only=lambda key: key == OF_X)


def limits_of_y(*limits: int) -> tuple[Call, ...]:
    return tuple(Call("set_limit", ("y", limit)) for limit in limits)


ACKED = {place: Call("ack", (place, "x", 1)) for place in range(8)}
MEETINGS = {
    "batch, spill": Meeting(
        "xxxx",
        [JOIN_X, *[OFFER] * 4],
        [answers("ack", "nack", "release", "ack_through"), loads],
        6,
        BATCH | {"max_loaded_per_key": 2},
    ),
    "batch, limit": Meeting(
        "xxxxy",
        [JOIN_X, *[OFFER] * 4],
        [answers("ack", "nack", "ack_through"), calls(*(Call("set_limit", ("x", limit)) for limit in (0, 1, 3)))],
        4,
        {"batch_per_key": 3, "max_in_flight_per_consumer": 2},
        [Call("set_limit", ("x", 2))],
    ),
    "batch, drain": Meeting(
        "yyy", [JOIN_X, OFFER, OFFER], [answers("ack", "nack"), members], 4, BATCH | {"drain_timeout_ms": 6}
    ),
    "batch, release": Meeting(
        "xxxx", [JOIN_X, *[OFFER] * 3], [answers("ack", "release"), answers("release", delay_ms=5)], 5, BATCH
    ),
    "batch, late ack": Meeting("xxxx", [JOIN_X, *[OFFER] * 3], [answers("ack", "nack"), late_acks], 6, BATCH),
    "batch, ordering required": Meeting(
        "xyxx", [JOIN_X, *[OFFER] * 3], [answers("ack", "nack", "release", "ack_through")], 5, BATCH | ONE_LANE
    ),
    "not before, release": Meeting(
        "xxy", [JOIN_X], [offers, answers("ack", "release"), answers("release", delay_ms=5)], 5, {}
    ),
    "not before, unmatched": Meeting(
        "xyxy",
        [Call("add_consumer", ("x",), {"filters": (OF_X.decode(),)})],
        [offers, answers("ack"), calls(*(Call("set_filters", ("x", only)) for only in ((), (OF_X.decode(),))))],
        6,
        {"unmatched": Unmatched.SKIP},
        [Call("set_filters", ("x", ()))],
    ),
    "not before, gone": Meeting("xxy", [JOIN_X], [offers, answers("ack", "nack"), gone], 5, {"max_loaded_per_key": 1}),
    "token budget, spill": Meeting(
        "ystuuvvwxy",
        [
            *(JOIN_X, JOIN_Y, *limits_of_y(0), *[OFFER] * 3, Call("truncate", (2,))),
            *(OFFER, ACKED[3], OFFER, OFFER, ACKED[5], OFFER, OFFER),  # what is lowest is spilled, and the window full
        ],
        [answers("ack", "nack"), loads, calls(*limits_of_y(0, 1))],
        6,
        FULL | {"window": 3},
        limits_of_y(1),
    ),
    "token budget, not before": Meeting(
        "uvvwwxux",
        [
            JOIN_X,
            Call("offer", kwargs={"not_before_ms": 3}),
            OFFER,
            ACKED[1],
            OFFER,
            OFFER,
            ACKED[3],
            OFFER,
            OFFER,
            ACKED[5],
        ],
        [offers, answers("ack", "nack", "release")],
        4,
        FULL,
    ),
    "batch, key limit": Meeting(
        "xxxyyyyxy",
        [*[OFFER] * 7, JOIN_X],
        [answers("ack", "nack", "ack_through")],
        3,
        {"batch_per_key": 3, "window": 20},
        rules=LIMIT_OF_X,
    ),
    "batch, limit of all": Meeting(
        "xxxyy", [*[OFFER] * 4, JOIN_X], [answers("ack", "nack"), members], 3, {"batch_per_key": 3, "max_in_flight": 2}
    ),
    "look-ahead, delayed": Meeting(
        "xyxyx",
        [JOIN_X],
        [offers, answers("ack", "nack"), members],
        4,
        {"look_ahead": LookAhead(per_consumer=1, per_subscription=2)},
    ),
    "batch, latest keys": Meeting(
        "yxyxyxy", [*[OFFER] * 4, JOIN_X], [answers("ack", "nack", "release")], 4, BATCH, rules=LATEST_OF_X
    ),
    "groups, key limit": Meeting(
        "xxxyyy",
        [JOIN_X, *[OFFER] * 4],
        [answers("ack", "nack")],
        4,
        {"group": GroupLimits(max_in_flight=3)},
        rules=replace(RULES, mark="groups and limits", limit_of=LIMIT_OF_X.limit_of),
    ),
    "redrive, key limit": Meeting(
        "xxxx",
        [JOIN_X, OFFER, OFFER, OFFER, Call("reject", (0, "x", 1)), Call("dead_lettered", (0,))],
        [answers("ack", "nack", "reject"), returns],
        4,
        {"redrive": True},
        rules=LIMIT_OF_X,
    ),
    "key limit, drain": Meeting(
        "yyyyx", [JOIN_X, *[OFFER] * 4], [answers("ack", "nack"), members], 3, {"drain_timeout_ms": 6}, rules=LIMIT_OF_X
    ),
    "key limit, restart": Meeting(
        "xxxyx", [JOIN_X, *[OFFER] * 3], [answers("ack", "nack"), crashes], 5, {}, rules=LIMIT_OF_X
    ),
    "latest keys, others": Meeting(
        "xyxyxy",
        [JOIN_X, OFFER, OFFER],
        [offers, answers("ack", "nack"), loads, gone, members],
        3,
        {"max_loaded_per_key": 1, "max_in_flight_per_consumer": 1},
        rules=LATEST_OF_X,
    ),
    "latest keys, redrive and restart": Meeting(
        "xyxx",
        [JOIN_X, OFFER, OFFER],
        [answers("ack", "reject"), returns, crashes],
        5,
        {"redrive": True, "max_loaded_per_key": 1},
        rules=LATEST_OF_X,
    ),
    "settlement, restart": Meeting(
        "xyx", [JOIN_X], [answers("ack", "reject"), gone, crashes], 5, {"tell_settled": True}
    ),
}


@pytest.mark.parametrize("name", MEETINGS)
def test_every_sequence_where_two_features_meet_keeps_all_promises_and_can_be_drained(name: str) -> None:
    meeting = MEETINGS[name]
    assert explore(meeting.start(), meeting.calls) > 100


TWINS = {
    "batch, spill": "SecondBatchBesideTheFirst",
    "batch, limit": "LimitForgottenOnRetry",
    "batch, drain": "MovesWithoutDraining",
    "batch, release": "MiddleFailureGoesOn",
    "batch, late ack": "ForgetsTooEarly",
    "batch, ordering required": "AckThroughSkipsOne",
    "not before, release": "PostponedGoesAtOnce",
    "not before, unmatched": "FirstDeliveryIsEarly",
    "not before, gone": "SpilledForgetsItsTime",
    "token budget, spill": "BudgetHoldsTheLowest",
    "token budget, not before": "BudgetNeverOpens",
    "batch, key limit": "RuleOfOneKeyCountsForAll",
    "batch, limit of all": "SubscriptionLimitOffByOne",
    "look-ahead, delayed": "LookAheadOfTheLeft",
    "batch, latest keys": "LatestRuleIsIgnored",
    "groups, key limit": "RuleOfOneKeyCountsForAll",
    "redrive, key limit": "KeyLimitForgottenOnRetry",
    "key limit, drain": "KeyLimitIsOneForAll",
    "key limit, restart": "KeyRuleForgottenInACrash",
    "latest keys, others": "RuleOfOneKeyCountsForAll",
    "latest keys, redrive and restart": "LatestRuleIsIgnored",
    "settlement, restart": "SkipNotTold",
}


@pytest.mark.interpreted("changes the class of a living part")
@pytest.mark.parametrize("name", MEETINGS)
def test_a_world_of_two_features_shows_a_fault_of_one_of_them(name: str) -> None:
    meeting = MEETINGS[name]
    broken = next(one.broken for faults in BROKEN.values() for one in faults if one.broken.__name__ == TWINS[name])
    with pytest.raises((AssertionError, InvariantError, SnapshotError)):
        explore(meeting.start(broken), meeting.calls)
