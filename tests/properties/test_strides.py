"""A batch that is taken in one stride against the same batch as single calls whose effects are merged.

The oracle says what a batch is; its worlds are small, and most of them have a feature that looks at each call. Here the
worlds have none, the batches are larger, and the two ways of the real dispatcher have to agree on everything.
"""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.placements import RankedPlacement
from tests.properties.calls import Call, Step
from tests.properties.driving import Fast, outcome
from tests.properties.schedules import World, any_config, mixed, observe

from keyshared._window.lanes import Consumer, Entry
from keyshared.config import DispatcherConfig, Unmatched
from keyshared.cursor import Cell, ContiguousCursor
from keyshared.dispatcher import KeySharedDispatcher
from keyshared.effects import Deliver, Effect, Load, Resumed, Spilled
from keyshared.errors import InvariantError
from keyshared.ring import HashRing
from keyshared.window import InFlightWindow

pytestmark = pytest.mark.interpreted("changes the class of a living part")

LENGTH = 80
SEEDS = range(60)  # of them the first is enough that shows what is looked for
NOTHING_LOOKS: dict[str, Any] = {
    "redrive": False,
    "measure": False,
    "drain_timeout_ms": None,
    "sessions": None,
    "token_bytes": None,
    "look_ahead": None,
    "max_in_flight": None,
    "max_waiting_per_key": None,
    "max_waiting_per_consumer": None,
}


class BatchWorld(World):
    """A world of batches."""

    def some_offers(self) -> Call:
        if not self.free_slots:
            return self.some_acks()
        offset, messages = self._next_offset(), []
        for _ in range(min(self.free_slots, self.choose(range(1, 13)))):
            not_before = self._not_before().values() if self.choose([True, *[False] * 7]) else ()
            messages.append((offset, self.choose(self.keys), f"item {offset}", *not_before))
            offset += self.choose(self.strides)
        return self._timed("offer_many", messages)

    def some_acks(self) -> Call:
        """Mostly of open deliveries, each once; else one of them twice, or something else in between."""
        left = [effect.receipt for effect in self.obligations if isinstance(effect, Deliver)]
        receipts: list[Any] = []
        if not left:
            return self.choose([World.oblige, World.oblige, World.add_consumer, World.handle_timeout])(self)
        for _ in range(self.choose(range(1, len(left) + 1))):
            receipts.append(self.choose(left))
            left.remove(receipts[-1])
        if self.choose([True, *[False] * 9]):
            receipts.insert(self.choose(range(len(receipts) + 1)), self.choose([*receipts, self._receipt()]))
        return self._timed("ack_many", receipts)


OFTEN: dict[Any, int] = {
    BatchWorld.some_offers: 12,
    BatchWorld.some_acks: 12,
    World.offer: 3,
    World.ack: 2,
    World.oblige: 8,
    World.nack: 2,
    World.reject: 1,
    World.release: 1,
    World.gone: 1,
    World.unblock: 1,
    World.add_consumer: 3,
    World.leave: 1,
    World.set_inactive: 1,
    World.set_active: 1,
    World.set_limit: 2,
    World.set_filters: 1,
    World.set_placement: 1,
    World.pull: 1,
    World.handle_timeout: 4,
}


def run(seed: int, factory: Any = Fast) -> int:
    """Make the calls of one world of both, and compare them; return how many batches went in one stride."""
    choose: Any = Random(seed).choice  # reproducible, not secret
    window = choose([3, 4, 8, 16, 40])
    config = replace(
        any_config(choose),
        **NOTHING_LOOKS,
        window=window,
        max_tracked=window + choose([0, 6, 40]),
        latest_only=False,
        unmatched=Unmatched.HOLD,
    )
    world = BatchWorld(config, choose)
    world.calls = mixed(OFTEN, choose)
    world.restarts = 0
    world.joining, world.limits = choose([1, 2, 3]), choose([(None,), (None,), (None, 0, 1, 2)])
    world.filters = choose([((),), ((),), ((),), ((), ("a", "b"))])
    strides: Any = factory(RankedPlacement(), world.config)
    singly: Any = Fast(RankedPlacement(), world.config)
    assert strides._strides
    singly._strides = False
    taken = _count_strides(strides._window)
    for _ in range(LENGTH):
        call = world.next_call()
        expected, actual = outcome(singly, call), outcome(strides, call)
        assert expected == actual, f"{call}: {expected} singly, {actual} in one stride"
        strides.check_invariants()
        assert singly.snapshot() == strides.snapshot(), call
        assert (singly.stats(), singly.next_deadline_ms()) == (strides.stats(), strides.next_deadline_ms()), call
        if isinstance(expected, list):
            now = call.kwargs.get("now_ms", world.now)
            offered = sorted({*world.offered, *(each[0] for each in _offers(call))})
            world.learn(Step(call, tuple(expected), observe(singly, offered), now))
    return len(taken)


def _offers(call: Call) -> Sequence[Sequence[Any]]:
    return [call.args] if call.name == "offer" else call.args[0] if call.name == "offer_many" else ()


def _count_strides(window: Any) -> list[int]:
    """Note each stride of more than one message of a window."""
    taken: list[int] = []
    kind = type(window)

    class Counting(kind):  # type: ignore[misc, valid-type]  # whichever kind it is
        __slots__ = ()

        def offer_many(self, messages: Sequence[Any]) -> Any:
            taken.extend([1] * (len(messages) > 1))
            return super().offer_many(messages)

        def settle_many(self, entries: Sequence[Entry]) -> Any:
            taken.extend([1] * (len(entries) > 1))
            return super().settle_many(entries)

    window.__class__ = Counting
    return taken


@given(seed=st.integers(0, 2**32 - 1))
@settings(suppress_health_check=[HealthCheck.too_slow])
def test_a_batch_in_one_stride_does_what_its_single_calls_do(seed: int) -> None:
    run(seed)


def test_the_worlds_take_many_batches_in_one_stride() -> None:
    assert sum(run(seed) for seed in range(20)) > 60


class _ForgetsAFullWindow(InFlightWindow):
    """Nobody learns that the window was full between two settlements."""

    def settle_many(self, entries: Sequence[Entry]) -> tuple[list[Entry], bool]:
        return super().settle_many(entries)[0], False


class _ServesNobody(InFlightWindow):
    """Who has got room in a stride gets nothing of what is ready."""

    _strides = False

    def settle_many(self, entries: Sequence[Entry]) -> tuple[list[Entry], bool]:
        self._strides = True
        settled = super().settle_many(entries)
        self._strides = False
        return settled

    def _serve(self, consumer: Consumer, granted: list[Entry]) -> None:
        if not self._strides:
            super()._serve(consumer, granted)


class _ForgetsThoseWithoutKey(InFlightWindow):
    """What is offered in a stride passes messages without a key that wait."""

    def offer_many(self, messages: Any) -> list[Entry]:
        shared, self.shared = self.shared, OrderedDict()
        granted = super().offer_many(messages)
        shared.update(self.shared)
        self.shared = shared
        return granted


class _CountsOneTooFew(InFlightWindow):
    """What begins to wait in a stride counts less than it is."""

    def offer_many(self, messages: Any) -> list[Entry]:
        before = self.waiting
        granted = super().offer_many(messages)
        self.waiting -= self.waiting > before
        return granted


class _LeavesTheCursor(ContiguousCursor):
    """What is settled in a stride is settled, and the position stays."""

    __slots__ = ()

    def close_many(self, cells: Sequence[Cell]) -> None:
        before = self.safe_cursor
        super().close_many(cells)
        self.safe_cursor = before if self.outstanding else self.safe_cursor


def _with_window(kind: type[InFlightWindow]) -> Any:
    class Broken(KeySharedDispatcher[object]):
        def __init__(self, *args: Any, **settings: Any) -> None:
            super().__init__(*args, **settings)
            if type(self._window) is InFlightWindow:
                self._window.__class__ = kind

    return Broken


class _StuckCursor(KeySharedDispatcher[object]):
    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        if type(self._window.cursor) is ContiguousCursor:
            self._window.cursor.__class__ = _LeavesTheCursor


class _BelievesARepetition(KeySharedDispatcher[object]):
    """The second receipt of a delivery in a batch is passed over, as if it had never come."""

    def ack_many(self, receipts: Any, **when: Any) -> Any:
        return super().ack_many(dict.fromkeys(receipts), **when)


def full_in_between(factory: Any) -> list[Effect]:
    """Settle three deliveries, of which the first one loads two messages into a window that is nearly full."""
    keys: dict[str | None, list[str]] = {}
    ring = HashRing(["c1", "c2", "c3"])
    for key in map(str, range(50)):
        keys.setdefault(ring.owner(key), []).append(key)
    dispatcher = factory(HashRing(), DispatcherConfig(window=8, max_loaded_per_key=1))
    for name, limit in (("c1", 1), ("c2", 5), ("c3", 0)):
        dispatcher.add_consumer(name, limit=limit)
    open_at_c1, spilled = keys["c1"][:2]
    log = [*keys["c3"][:4], open_at_c1, spilled, open_at_c1, *keys["c2"][:2]]
    effects = [effect for offset, key in enumerate(log) for effect in dispatcher.offer(offset, key)]
    assert [effect.offset for effect in effects if isinstance(effect, Spilled)] == [5, 6]
    assert dispatcher.free_slots == 1
    told: list[Effect] = dispatcher.ack_many([(4, "c1", 1), (7, "c2", 1), (8, "c2", 1)])
    return told


def test_a_window_that_was_full_between_two_settlements_resumes() -> None:
    assert [type(effect) for effect in full_in_between(Fast)] == [Load, Load, Resumed]
    assert Resumed(2) not in full_in_between(_with_window(_ForgetsAFullWindow))


_WINDOWS = (_ServesNobody, _ForgetsThoseWithoutKey, _CountsOneTooFew)
BROKEN = (*map(_with_window, _WINDOWS), _StuckCursor, _BelievesARepetition)


@pytest.mark.parametrize("broken", BROKEN, ids=[*(kind.__name__ for kind in _WINDOWS), "cursor", "repetition"])
def test_a_broken_stride_is_caught(broken: Any) -> None:
    for seed in SEEDS:
        try:
            run(seed, broken)
        except (AssertionError, InvariantError):
            return
    pytest.fail("no world shows it")
