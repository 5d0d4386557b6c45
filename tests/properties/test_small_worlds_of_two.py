"""Where two verbs meet: every sequence of calls in a small world of both, judged, and as the model says."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, TypeAlias

import pytest
from tests.broken import BROKEN
from tests.model import ModelDispatcher
from tests.placements import RankedPlacement
from tests.properties.calls import Call
from tests.properties.driving import Fast, outcome
from tests.properties.forks import copies_of
from tests.properties.schedules import RULES
from tests.properties.test_small_worlds import LATER, Node, explore, fulfil, keys_of_both
from tests.properties.watch import Watch

from keyshared.config import DispatcherConfig, GroupLimits, LookAhead, Poison, Rules, Unmatched
from keyshared.effects import DeadLetter, Deliver, Effect, Load
from keyshared.errors import InvariantError, SnapshotError

OF_X, OF_Y = keys_of_both()
RANGES = RankedPlacement(("x", "y")).ranges
MORE = {
    owner: [key for key in map(bytes, product(range(97, 123), repeat=2)) if RANGES.owner_of(key) == owner]
    for owner in "xy"
}
KEYS = {
    "x": OF_X,
    "y": OF_Y,
    **dict(zip("uvw", MORE["x"], strict=False)),
    **dict(zip("st", MORE["y"], strict=False)),
}  # those of x, and of y
JOIN_X, JOIN_Y = (Call("add_consumer", (name,)) for name in "xy")
CRASHES = (Call("crash"), Call("crash", ("token",)))


@dataclass
class Both(Node):
    """One state of the real dispatcher, and of the model beside it."""

    model: Any = None
    more: "More" = lambda _: ()
    unread: tuple[int, ...] = ()  # of the log, after a crash
    healing: Sequence[Call] = ()

    def forks(self) -> "Callable[[], Both]":
        copied = copies_of((self.watch, self.model), [self.dispatcher.config, self.watch.claims])
        known = (self.to_offer, self.offered, self.keys, self.now, self.path)
        rest = (self.more, self.unread, self.healing)

        def fork() -> Both:
            watch, model = copied()
            return Both(watch.dispatcher, watch, *known, model, *rest)

        return fork

    def note_offer(self, offset: int, key: bytes | None) -> None:
        if offset in self.unread:
            self.unread = self.unread[1:]
        else:
            super().note_offer(offset, key)

    def compare(self, call: Call, effects: Sequence[Effect]) -> None:
        expected = outcome(self.model, call)
        assert expected == effects, f"{self.path}: {expected} by the model, {effects} by the real one"

    def advance(self, call: Call) -> "Both":
        if call.name == "crash":
            self.path = (*self.path, call)
            if call.args:
                self.restart_from_the_token()
            else:
                self.restart_from_a_snapshot()
            resume = self.dispatcher.resume_offset or 0
            self.unread = tuple(offset for offset in self.offered if offset >= resume)
        else:
            super().advance(call)
        return self

    def restart_from_a_snapshot(self) -> None:
        """Everybody stays connected."""
        items, config = dict.fromkeys(self.offered, None), self.dispatcher.config
        for name in ("dispatcher", "model"):
            old = getattr(self, name)
            state = json.loads(json.dumps(old.snapshot()))
            known = {"now_ms": self.now, "items": items, "rules": old.rules}
            setattr(self, name, type(old).restore(state, old.placement, config, **known))
        self.watch.restarted(self.dispatcher, self.now)

    def restart_from_the_token(self) -> None:
        """Nobody is connected, and nothing is known but what was settled."""
        config, text, rules = self.dispatcher.config, self.dispatcher.cursor_token().text, self.dispatcher.rules
        self.model = ModelDispatcher(RankedPlacement(), config, rules=rules, resume_from=self.model.token())
        self.dispatcher = type(self.dispatcher)(RankedPlacement(), config, rules=rules, resume_from=text)
        self.watch, self.now = Watch(self.dispatcher, config), 0

    def rereads(self) -> Sequence[Call]:
        """What a host reads again before it reads on: after a restart only."""
        return [Call("offer", (offset, self.keys[self.offered.index(offset)])) for offset in self.unread]

    def next_offer(self, **kwargs: Any) -> Call:
        """The next message of the log."""
        return Call("offer", (len(self.offered), self.to_offer[0]), kwargs)

    def heals(self) -> Sequence[Call]:
        return [*self.rereads(), *self.healing]

    def inputs(self) -> Iterator[Call]:
        yield from self.rereads()[:1]
        if self.to_offer and not self.unread and self.dispatcher.room_for(self.to_offer[0]):
            yield self.next_offer()
        if (due := self.dispatcher.next_deadline_ms()) is not None:
            yield Call("handle_timeout", kwargs={"now_ms": max(due, self.now)})
        yield from self.more(self)

    def identity(self) -> str:
        """With the model's state: what the real one has forgotten is no state that it may be taken for."""
        return json.dumps([super().identity(), self.model.snapshot(), self.unread], sort_keys=True)

    @property
    def open(self) -> list[Deliver]:
        return [effect for effect in self.dispatcher.outstanding_effects() if isinstance(effect, Deliver)]


More: TypeAlias = Callable[[Both], Iterable[Call]]
"""What can happen next besides offers and time."""


def answers(*names: str, **kwargs: Any) -> More:
    """Each open delivery gets each of these answers."""
    return lambda both: (Call(name, each.receipt, kwargs) for each in both.open for name in names)


def loads(both: Both) -> Iterator[Call]:
    """What was asked for is loaded."""
    yield from (fulfil(effect) for effect in both.dispatcher.outstanding_effects() if isinstance(effect, Load))


def late_acks(both: Both) -> Iterator[Call]:
    """Acks of deliveries that have ended."""
    now = {each.receipt for each in both.open}
    for message in both.dispatcher.outstanding():
        for attempt in range(1, message.attempt + 1):
            if (message.offset, "x", attempt) not in now:
                yield Call("ack", (message.offset, "x", attempt))


def calls(*several: Call) -> More:
    """The same calls in any state."""
    return lambda _: several


def members(both: Both) -> Iterator[Call]:
    """Both join, and leave at once or after a drain."""
    for name in "xy":
        yield from both.changes(name)


def gone(both: Both) -> Iterator[Call]:
    """Any message can no longer be read."""
    yield from (Call("gone", (message.offset,)) for message in both.dispatcher.outstanding())


def offers(both: Both) -> Iterator[Call]:
    """The next message is offered for later."""
    if both.to_offer and both.dispatcher.room_for(both.to_offer[0]):
        yield both.next_offer(not_before_ms=both.now + 3)


def crashes(both: Both) -> Iterator[Call]:
    """A crash, though not one after the other; and x comes back."""
    if both.path[-1].name != "crash":
        yield from CRASHES
    if both.state_of("x") is None:
        yield JOIN_X


def returns(both: Both) -> Iterator[Call]:
    """What is done comes back, once; what was to be archived is."""
    if not both.unread:
        yield from both.returns()
    yield from (fulfil(each) for each in both.dispatcher.outstanding_effects() if isinstance(each, DeadLetter))


@dataclass(frozen=True)
class Meeting:
    """A small world in which two verbs meet.

    Attributes:
        keys: Of its log.
        begins: The calls that come first.
        more: What may come after them, besides offers and time.
        calls: How many calls come after them.
        config: What the verbs need.
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

    def start(self, factory: Any = Fast) -> Both:
        config = DispatcherConfig(**{"window": 5, "retry": LATER, "ack_timeout_ms": None, **self.config})
        keys = tuple(KEYS[letter] for letter in self.keys)
        watch = Watch(factory(RankedPlacement(), config, rules=self.rules), config)
        model = ModelDispatcher(RankedPlacement(), config, rules=self.rules)
        more = self.more
        both = Both(
            watch.dispatcher,
            watch,
            keys,
            model=model,
            more=lambda node: (call for each in more for call in each(node)),
            healing=self.healing,
        )
        for call in self.begins:
            both.advance(both.next_offer(**call.kwargs) if call.name == "offer" else call)
        return both


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
def test_every_sequence_where_two_verbs_meet_is_as_the_model_says_and_can_be_drained(name: str) -> None:
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
def test_a_world_of_two_verbs_shows_a_fault_of_one_of_them(name: str) -> None:
    meeting = MEETINGS[name]
    broken = next(one.broken for faults in BROKEN.values() for one in faults if one.broken.__name__ == TWINS[name])
    with pytest.raises((AssertionError, InvariantError, SnapshotError)):
        explore(meeting.start(broken), meeting.calls)
