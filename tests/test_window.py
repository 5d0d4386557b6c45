"""The in-flight window by itself: no time, no retries, no membership."""

import copy
import pickle
from collections.abc import Callable
from itertools import product
from random import Random
from typing import cast

import pytest
from tests.window_book import run

from keyshared._core.records import Place, Transition
from keyshared.errors import (
    ArgumentError,
    ConsumerExistsError,
    EntryStateError,
    InvariantError,
    OffsetOrderError,
    UnknownConsumerError,
    WindowFullError,
)
from keyshared.window import NEXT_STATE, Entry, InFlightWindow, Lane, State


class ByLetter:
    """A key belongs to whoever has its first letter."""

    def __init__(self, **names: str) -> None:
        self.names = names

    def owner(self, key: bytes) -> str | None:
        """Name of the owner."""
        return self.names.get(key[:1].decode())


class Desk:
    """A window whose keys a.. belong to ann and b.. to bob, and what a test wants to say in one word about it."""

    def __init__(self, *, ann: int = 5, bob: int = 5, capacity: int = 20, **config: int) -> None:
        self.owners = ByLetter(a="ann", b="bob")
        self.window = InFlightWindow(self.owners, capacity=capacity, **config)  # type: ignore[arg-type]
        self.ann = self.window.add("ann", limit=ann)
        self.bob = self.window.add("bob", limit=bob)
        self.window.wake()
        self.next = 0

    def offer(self, *keys: bytes | None) -> list[tuple[int, str]]:
        """Offer these keys at consecutive offsets."""
        granted = []
        for key in keys:
            granted += self.window.offer(self.next, key, f"item {self.next}")
            self.next += 1
        return self.seen(granted)

    def at(self, offset: int) -> Entry:
        """The outstanding message."""
        entry = self.window.find(offset)
        assert entry is not None
        return entry

    def settle(self, offset: int) -> list[tuple[int, str]]:
        """Settle a message."""
        return self.seen(self.window.settle(self.at(offset)))

    def move(self, offset: int, to: State = State.QUEUED) -> list[tuple[int, str]]:
        """Move a message and wake."""
        self.window.move(self.at(offset), to)
        return self.wake()

    def provide(self, offset: int) -> list[tuple[int, str]]:
        """Load a message and wake."""
        self.window.provide(self.at(offset), f"item {offset}")
        return self.wake()

    def remove(self, offset: int) -> list[tuple[int, str]]:
        """Remove a message and wake."""
        self.window.remove(self.at(offset))
        return self.wake()

    def wake(self) -> list[tuple[int, str]]:
        """Act on what was changed."""
        return self.seen(self.window.wake())

    def seen(self, granted: list[Entry]) -> list[tuple[int, str]]:
        """What was granted, in short: to whom it goes, or what it is now. Everything must be in order by then."""
        self.window.check_invariants()
        return [
            (entry.offset, entry.consumer.name if entry.state == State.IN_FLIGHT and entry.consumer else _name(entry))
            for entry in granted
        ]


def _name(entry: Entry) -> str:
    return State(entry.state).name


def books(window: InFlightWindow) -> object:
    """Everything that the window knows, as plain data."""
    return (
        window.cursor.safe_cursor,
        window.cursor.last,
        [(e.offset, e.key, e.item, e.state, e.attempt, e.consumer and e.consumer.name) for e in window.outstanding()],
        [(c.name, c.limit, c.free, list(c.open), list(c.reserved), c.keyless) for c in window.consumers.values()],
        [[(lane.key, lane.open, lane.loaded) for lane, _ in place.items()] for place in window._core.places()],
        (window.loaded, window.waiting, list(window._core.held), list(window._core.quarantined)),
    )


class TestOffering:
    """`offer`."""

    def test_the_first_message_of_a_key_goes_out_at_once_with_its_item(self) -> None:
        desk = Desk()

        (entry,) = desk.window.offer(7, b"a1", "hello")
        assert (desk.ann, "hello", 1, State.IN_FLIGHT) == (entry.consumer, entry.item, entry.attempt, entry.state)
        assert [b"a1"] == list(desk.window._core.lanes)
        assert entry is desk.window.find(7)

    def test_a_deadline_is_an_int(self) -> None:
        desk = Desk()

        with pytest.raises(ArgumentError, match="deadline"):
            desk.window.offer(0, b"a1", None, deadline=1.5)  # type: ignore[arg-type]
        assert [] == desk.window.outstanding()

    def test_what_an_unknown_name_owns_waits_too(self) -> None:
        desk = Desk()
        desk.owners.names["z"] = "zoe"

        assert [] == desk.offer(b"z1")
        assert 1 == len(desk.window._core.ownerless)

    @pytest.mark.parametrize("offset", [5, 4, -1, True, 6.0, "6", None])
    def test_an_offset_that_does_not_grow_is_refused_and_changes_nothing(self, offset: object) -> None:
        desk = Desk()
        desk.window.offer(5, b"a1")
        before = books(desk.window)

        with pytest.raises(OffsetOrderError) as caught:
            desk.window.offer(offset, b"a2")  # type: ignore[arg-type]
        assert (offset, 5) == (caught.value.offset, caught.value.last)
        assert before == books(desk.window)

    def test_a_full_window_refuses_and_changes_nothing(self) -> None:
        desk = Desk(capacity=2)
        desk.offer(b"a1", b"a2")
        before = books(desk.window)

        assert 0 == desk.window.free_slots
        with pytest.raises(WindowFullError, match="all 2 slots"):
            desk.offer(b"b1")
        assert before == books(desk.window)

    def test_spilled_messages_count_against_what_may_be_tracked(self) -> None:
        desk = Desk(capacity=20, max_tracked=3, loaded_per_key=1)
        desk.offer(b"a1", b"a1", b"a1")
        before = books(desk.window)

        assert 0 == desk.window.free_slots
        with pytest.raises(WindowFullError, match="all 3 slots"):
            desk.offer(b"b1")
        assert before == books(desk.window)


class TestSteps:
    """`move`, `provide`, `remove`, `settle` against the table of states."""

    def in_state(self, state: State) -> tuple[Desk, Entry]:
        """A desk with a message of that state at offset 0 of key a1, or the newest where it cannot be the first."""
        desk = Desk(loaded_per_key=1)
        (entry,) = desk.window.offer(0, b"a1", "item")
        if state in {State.SPILLED, State.LOADING}:
            (spilled,) = desk.window.offer(1, b"a1", "item")
            if state is State.LOADING:
                desk.window.settle(entry)
            return desk, spilled
        if state is State.QUEUED:
            desk.window.set_limit("ann", 0)
        if state is State.SETTLED:
            desk.window.settle(entry)
        elif state is not State.IN_FLIGHT:
            desk.window.move(entry, state)
            desk.window.wake()
        return desk, entry

    @pytest.mark.parametrize("state", State)
    def test_the_example_of_a_state_is_in_it(self, state: State) -> None:
        desk, entry = self.in_state(state)

        desk.window.check_invariants()
        assert state == entry.state

    @pytest.mark.parametrize(("state", "to"), list(product(State, State)))
    def test_a_move_is_made_if_the_table_has_it_and_else_refused_and_nothing_changed(
        self, state: State, to: State
    ) -> None:
        desk, entry = self.in_state(state)
        before = books(desk.window)
        changes = {Transition.PUT_BACK, Transition.DELAY, Transition.ARCHIVE, Transition.BLOCK}
        legal = {NEXT_STATE.get((state, change)) for change in changes} - {None}

        if state not in {State.QUEUED, State.LOADING} and to in legal:
            desk.window.move(entry, to)
            assert to == entry.state
            desk.wake()
            return
        with pytest.raises(EntryStateError) as caught:
            desk.window.move(entry, to)
        assert (entry.offset, state.name, to.name) == (caught.value.offset, caught.value.state, caught.value.wanted)
        assert before == books(desk.window)
        assert [] == desk.wake()
        assert before == books(desk.window)

    @pytest.mark.parametrize("state", [state for state in State if state is not State.LOADING])
    def test_only_what_is_being_loaded_can_be_provided(self, state: State) -> None:
        desk, entry = self.in_state(state)
        before = books(desk.window)

        with pytest.raises(EntryStateError) as caught:
            desk.window.provide(entry, "another item")
        assert (state.name, "QUEUED") == (caught.value.state, caught.value.wanted)
        assert before == books(desk.window)

    @pytest.mark.parametrize("how", [InFlightWindow.settle, InFlightWindow.remove])
    @pytest.mark.parametrize("state", [state for state in State if state is not State.SETTLED])
    def test_a_message_can_be_settled_once_whatever_its_state(
        self, state: State, how: Callable[[InFlightWindow, Entry], object]
    ) -> None:
        desk, entry = self.in_state(state)

        how(desk.window, entry)
        desk.wake()
        assert State.SETTLED == entry.state
        assert (None, None) == (entry.item, desk.window.find(entry.offset))
        before = books(desk.window)
        with pytest.raises(EntryStateError) as caught:
            how(desk.window, entry)
        assert "SETTLED" == caught.value.state
        assert before == books(desk.window)

    def test_many_changes_at_one_instant_are_acted_on_by_lowest_offset(self) -> None:
        desk = Desk(ann=3)
        desk.offer(b"a3", b"a2", b"a1")
        for offset in (2, 0, 1):
            desk.window.move(desk.at(offset), State.QUEUED)

        assert [(0, "ann"), (1, "ann"), (2, "ann")] == desk.wake()
        assert [] == desk.wake()

    def test_attempts_start_above_the_number_of_the_epoch(self) -> None:
        desk = Desk(first_attempt=100, start=-5)
        assert -5 == desk.window.cursor.resume_offset
        desk.offer(b"a1", b"a1")
        desk.move(0)

        assert 102 == desk.at(0).attempt
        desk.settle(0)
        assert 101 == desk.at(1).attempt


class TestConsumers:
    """Who is connected, what they may hold, and what is theirs."""

    def test_a_name_is_added_once(self) -> None:
        desk = Desk()

        with pytest.raises(ConsumerExistsError):
            desk.window.add("ann", limit=7)
        assert desk.ann is desk.window.consumers["ann"]

    def test_nobody_unknown_is_discarded(self) -> None:
        with pytest.raises(UnknownConsumerError):
            Desk().window.discard("zoe")

    def test_nobody_is_discarded_who_holds_something(self) -> None:
        desk = Desk()
        desk.offer(b"a1", b"a2")
        before = books(desk.window)

        with pytest.raises(EntryStateError) as caught:
            desk.window.discard("ann")
        assert (0, "IN_FLIGHT") == (caught.value.offset, caught.value.state)
        assert before == books(desk.window)

    def test_what_was_ready_for_one_who_is_discarded_goes_to_the_new_owner(self) -> None:
        desk = Desk(ann=0)
        desk.offer(b"a1", b"a2")
        desk.window.discard("ann")
        desk.owners.names["a"] = "bob"
        desk.window.reassign()

        assert [(0, "bob"), (1, "bob")] == desk.wake()

    def test_a_new_consumer_gets_what_waited_for_it(self) -> None:
        desk = Desk()
        desk.owners.names["c"] = "cat"
        desk.offer(b"c1")
        desk.window.add("cat", limit=1)
        desk.window.reassign()

        assert [(0, "cat")] == desk.wake()

    @pytest.mark.parametrize("how", ["settle", "remove", "move"])
    def test_one_of_limit_zero_is_named_when_its_last_delivery_has_ended(self, how: str) -> None:
        desk = Desk()
        desk.offer(b"a1", b"a2")
        desk.window.set_limit("ann", 0)
        desk.wake()

        getattr(desk, how)(0)
        assert [] == desk.window.emptied
        getattr(desk, how)(1)
        assert [desk.ann] == desk.window.emptied

    def test_after_a_reassignment_those_that_waited_longest_come_first(self) -> None:
        desk = Desk(ann=0, bob=2)
        desk.offer(b"a2", b"z1", b"a1")
        desk.owners.names |= {"a": "bob", "z": "bob"}
        desk.window.reassign()

        assert [(0, "bob"), (1, "bob")] == desk.wake()


class TestKeyless:
    """Messages without a key go to whoever has most room."""

    def test_most_room_then_earliest_joined(self) -> None:
        desk = Desk(ann=2, bob=3)

        assert [(0, "bob"), (1, "ann"), (2, "bob"), (3, "ann"), (4, "bob")] == desk.offer(*[None] * 6)
        assert [(5, "ann")] == desk.settle(1)

    def test_keyless_and_keyed_take_turns_by_how_long_they_wait(self) -> None:
        desk = Desk(ann=1, bob=0)

        assert [(0, "ann")] == desk.offer(b"a1", b"a2", None, b"a3", None)
        assert [[(offset + 1, "ann")] for offset in range(4)] == [desk.settle(offset) for offset in range(4)]


class TestCopies:
    """A window is plain data: it can be copied and pickled."""

    @pytest.mark.parametrize("clone", [copy.deepcopy, lambda window: pickle.loads(pickle.dumps(window))])  # noqa: S301  # our own bytes
    def test_a_copy_goes_on_by_itself(self, clone: Callable[[InFlightWindow], InFlightWindow]) -> None:
        desk = Desk(ann=2)
        desk.offer(b"a1", b"a2", b"a2", None, b"a3", b"b1")
        before = books(desk.window)
        twin = clone(desk.window)

        assert before == books(twin)
        twin.check_invariants()
        lone = twin.find(0)
        assert lone is not None
        assert [4] == [entry.offset for entry in twin.settle(lone)]
        twin.check_invariants()
        assert before == books(desk.window)


@pytest.mark.parametrize("seed", range(12))
def test_a_life_is_as_its_book_says(seed: int) -> None:
    run(Random(seed).choice, 100).check_invariants()


def test_what_a_quarantine_archived_and_spilled_is_the_oldest_spilled_one_when_it_is_given_back() -> None:
    desk = Desk(ann=0, bob=0, capacity=2)
    desk.offer(b"b1")
    desk.window.quarantine(b"a1")
    assert [(1, "DEAD_LETTERING")] == desk.offer(b"a1")
    desk.move(1, State.BLOCKED)
    desk.window.lift_quarantine(b"a1")

    assert [(2, "SPILLED")] == desk.offer(b"a1")
    assert [] == desk.move(1)
    desk.window.set_limit("ann", 1)
    assert ([(1, "LOADING")], [(1, "ann")]) == (desk.wake(), desk.provide(1))


def test_what_was_archived_and_has_gone_on_before_the_next_wake_is_granted_once() -> None:
    desk = Desk()
    desk.offer(b"a1")
    for state in (State.DEAD_LETTERING, State.BLOCKED, State.QUEUED):
        desk.window.move(desk.at(0), state)

    assert [(0, "ann")] == desk.wake()


class TestShownAs:
    """What a debugger shows."""

    def test_messages_and_consumers_say_what_they_are(self) -> None:
        desk = Desk()
        desk.offer(b"a1")

        assert "Entry(offset=0, state=4)" == repr(desk.at(0))
        assert "<Consumer 'ann' 1/5>" == repr(desk.ann)


def _first(desk: Desk) -> Lane:
    return desk.at(0).lane


DAMAGE: dict[str, Callable[[Desk], object] | tuple[Callable[[Desk], object], ...]] = {
    "knows its newest": lambda d: setattr(_first(d), "tail", d.at(0)),
    "knows the one before it": lambda d: setattr(d.at(1), "older", None),
    "has what is outstanding": lambda d: setattr(d.at(1), "lane", d.at(3).lane),
    "oldest message that never went out": lambda d: setattr(_first(d), "fresh", d.at(3)),
    "nothing in flight behind fresh": lambda d: setattr(d.at(1), "state", 4),
    "knows what came back": lambda d: setattr(_first(d), "back", [d.at(0)]),
    "never had more open": lambda d: setattr(d.window._core.rule, "limit", 0),
    "knows its oldest spilled": lambda d: setattr(_first(d), "spilled", None),
    "counts its open deliveries": lambda d: setattr(_first(d), "open", 2),
    "'ann' knows its open": lambda d: setattr(_first(d), "holder", d.bob),
    "has a holder while": lambda d: cast("dict[str, object]", d.window._core.consumers).pop("ann"),
    "counts what is loaded": lambda d: setattr(_first(d), "loaded", 3),
    "not loaded beyond": lambda d: setattr(d.window._core.rule, "loaded", 1),
    "for which consumer a message is loaded": lambda d: setattr(_first(d), "taker", d.bob),
    "lanes are of outstanding keys": lambda d: d.window._core.lanes.update({b"zz": _first(d)}),
    "'bob' knows its open": lambda d: d.bob.open.clear(),
    "'bob' knows its reservations": lambda d: d.bob.reserved.update({3: d.at(3)}),
    "'bob' counts its capacity": lambda d: setattr(d.bob, "free", 9),
    "'ann' has capacity, so": (lambda d: setattr(d.ann, "limit", 9), lambda d: setattr(d.ann, "free", 8)),
    "loaded messages are counted": lambda d: setattr(d.window._core, "loaded", 9),
    "fit the window": lambda d: setattr(d.window._core, "capacity", 1),
    "every payload is at hand": lambda d: setattr(d.window._core, "spills", False),
    "waiting messages are counted": lambda d: setattr(d.window._core, "waiting", 9),
    "tracked messages fit": lambda d: setattr(d.window._core, "max_tracked", 1),
    "state 7 is counted": lambda d: d.window._core.held.__setitem__(State.BLOCKED, 1),
    "in one place at most": lambda d: d.window._core.starved.put(d.at(4).lane, 99),
    "what waits longer is served first": lambda d: d.ann.ready.lanes.move_to_end(d.at(4).lane),
    "order of waiting is taken once": lambda d: d.ann.ready.lanes.update(dict.fromkeys(d.ann.ready.lanes, 1)),
    "the last number is known": lambda d: setattr(d.window._core, "number", 0),
    "living lanes only": lambda d: d.window._core.enlist(d.window._core.new_lane(None), d.window._core.ownerless),
    "a lane knows its place": lambda d: setattr(d.at(4).lane, "place", None),
    "cannot go on, so it waits in no place": lambda d: _put(d, 6, d.window._core.draining),
    "in quarantine, so": lambda d: d.window._core.quarantined.update({b"a2": None}),
    "waits for an owner": lambda d: (d.owners.names.pop("a"), _ask_again(d)),
    "drains exactly while": (lambda d: setattr(d.at(4).lane, "open", 0), lambda d: _move_a1(d)),  # noqa: PLW0108  # defined below
    "for one of its own": lambda d: _put(d, 0, d.ann.ready),
    "waits for its owner, or for memory": lambda d: _put(d, 4, d.window._core.ownerless),
    "knows its owner of now": lambda d: setattr(_first(d), "owner", d.bob),
    "take part": lambda d: d.window._core.rooms.discard(d.bob),
    "to be brought in if": lambda d: setattr(d.ann, "dirty", not d.ann.dirty),
    "nothing waits for memory while": lambda d: _put(d, 4, d.window._core.starved),
    "left": lambda d: _put(d, 4, d.window._core.orphaned),
}


def _put(desk: Desk, offset: int, place: Place) -> None:
    desk.window._core.enlist(desk.at(offset).lane, place)


def _move_a1(desk: Desk) -> None:
    """Another owner, and nothing has looked at the lane since."""
    desk.owners.names["a"] = "bob"
    _ask_again(desk)


def _ask_again(desk: Desk) -> bool:
    for lane in desk.window._core.lanes.values():
        lane.version = -1
    return True


@pytest.mark.parametrize("fact", DAMAGE)
def test_damage_is_found(fact: str) -> None:
    desk = Desk(ann=1, loaded_per_key=2)
    desk.offer(b"a1", b"a1", b"a1", b"b1", b"a2", b"a3", b"b2", b"a2")
    desk.move(6, State.DELAYED)
    desk.window.check_invariants()

    damage = DAMAGE[fact]
    for step in damage if isinstance(damage, tuple) else (damage,):
        step(desk)
    with pytest.raises(InvariantError, match=fact):
        desk.window.check_invariants()
