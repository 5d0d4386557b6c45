"""Where two verbs meet: every sequence of calls in a small world of both, judged, and as the model says."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, TypeAlias

import pytest
from tests.model import ModelDispatcher
from tests.placements import RankedPlacement
from tests.properties.broken import BROKEN
from tests.properties.calls import Call
from tests.properties.driving import Fast, outcome
from tests.properties.test_small_worlds import LATER, Node, explore, fulfil, keys_of_both
from tests.properties.watch import Watch

from keyshared.config import DispatcherConfig, Poison, Unmatched
from keyshared.effects import Deliver, Effect, Load
from keyshared.errors import InvariantError

OF_X, OF_Y = keys_of_both()
JOIN_X, JOIN_Y = (Call("add_consumer", (name,)) for name in "xy")
CRASHES = (Call("crash"), Call("crash", ("token",)))


@dataclass
class Both(Node):
    """One state of the real dispatcher, and of the model beside it."""

    model: Any = None
    more: "More" = lambda _: ()
    unread: tuple[int, ...] = ()  # of the log, after a crash
    healing: Sequence[Call] = ()

    def fork(self) -> "Both":
        shared = {id(self.dispatcher.config): self.dispatcher.config}
        watch, model = deepcopy(self.watch, shared), deepcopy(self.model, shared)
        known = (self.to_offer, self.offered, self.keys, self.now, self.path)
        return Both(watch.dispatcher, watch, *known, model, self.more, self.unread, self.healing)

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
            setattr(self, name, type(old).restore(state, old.placement, config, now_ms=self.now, items=items))
        self.watch.restarted(self.dispatcher, self.now)

    def restart_from_the_token(self) -> None:
        """Nobody is connected, and nothing is known but what was settled."""
        config, text = self.dispatcher.config, self.dispatcher.cursor_token().text
        self.model = ModelDispatcher(RankedPlacement(), config, resume_from=self.model.token())
        self.dispatcher = type(self.dispatcher)(RankedPlacement(), config, resume_from=text)
        self.watch, self.now = Watch(self.dispatcher, config), 0

    def rereads(self) -> Sequence[Call]:
        """What a host reads again before it reads on: after a restart only."""
        return [Call("offer", (offset, self.keys[offset])) for offset in self.unread]

    def heals(self) -> Sequence[Call]:
        return [*self.rereads(), *self.healing]

    def inputs(self) -> Iterator[Call]:
        yield from self.rereads()[:1]
        if self.to_offer and not self.unread and self.dispatcher.room_for(self.to_offer[0]):
            yield Call("offer", (len(self.offered), self.to_offer[0]))
        if (due := self.dispatcher.next_deadline_ms()) is not None:
            yield Call("handle_timeout", kwargs={"now_ms": max(due, self.now)})
        yield from self.more(self)

    def identity(self) -> str:
        return json.dumps([super().identity(), self.unread])

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
        later = {"not_before_ms": both.now + 3}
        yield Call("offer", (len(both.offered), both.to_offer[0]), later)


def crashes(both: Both) -> Iterator[Call]:
    """A crash, though not one after the other; and x comes back."""
    if both.path[-1].name != "crash":
        yield from CRASHES
    if both.state_of("x") is None:
        yield JOIN_X


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
    """

    keys: str
    begins: Sequence[Call]
    more: Sequence[More]
    calls: int
    config: Mapping[str, Any]
    healing: Sequence[Call] = ()

    def start(self, factory: Any = Fast) -> Both:
        config = DispatcherConfig(**{"window": 5, "retry": LATER, "ack_timeout_ms": None, **self.config})
        keys = tuple({"x": OF_X, "y": OF_Y}[letter] for letter in self.keys)
        watch = Watch(factory(RankedPlacement(), config), config)
        model = ModelDispatcher(RankedPlacement(), config)
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
            both.advance(Call("offer", (len(both.offered), both.to_offer[0])) if call.name == "offer" else call)
        return both


OFFER = Call("offer")
BATCH = {"batch_per_key": 2}
ONE_LANE = {"ordering_required": True, "unmatched": Unmatched.HOLD, "poison": Poison.BLOCK}
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
    "settlement, restart": "SkipNotTold",
}


@pytest.mark.interpreted("changes the class of a living part")
@pytest.mark.parametrize("name", MEETINGS)
def test_a_world_of_two_verbs_shows_a_fault_of_one_of_them(name: str) -> None:
    meeting = MEETINGS[name]
    broken = next(kind for kinds in BROKEN.values() for kind in kinds if kind.__name__ == TWINS[name])
    with pytest.raises((AssertionError, InvariantError)):
        explore(meeting.start(broken), meeting.calls)
