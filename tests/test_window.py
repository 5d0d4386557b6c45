"""The in-flight window by itself: no time, no retries, no membership."""

import copy
import pickle
from collections.abc import Callable
from itertools import product
from typing import cast

import pytest

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

    def test_a_message_with_a_deadline_holds_its_key_until_it_ripens(self) -> None:
        desk = Desk()
        assert [] == desk.window.offer(0, b"a1", "early", deadline=9)
        assert [] == desk.window.offer(1, b"a1", "late")

        desk.window.ripen(desk.at(0))
        assert ([(0, "ann")], None) == (desk.wake(), desk.at(0).deadline)

    def test_a_message_without_its_payload_may_ripen_too(self) -> None:
        desk = Desk(loaded_per_key=1)
        for offset in range(2):
            desk.window.offer(offset, b"a1", None, deadline=9)
        spilled = desk.at(1)
        assert State.SPILLED == spilled.state

        desk.window.ripen(spilled)
        assert ([], None) == (desk.wake(), spilled.deadline)
        desk.window.remove(desk.at(0))
        assert ([(1, "LOADING")], [(1, "ann")]) == (desk.wake(), desk.provide(1))

    def test_a_deadline_is_an_int(self) -> None:
        desk = Desk()

        with pytest.raises(ArgumentError, match="deadline"):
            desk.window.offer(0, b"a1", None, deadline=1.5)  # type: ignore[arg-type]
        assert [] == desk.window.outstanding()

    def test_the_second_waits_and_other_keys_do_not(self) -> None:
        desk = Desk()

        assert [(0, "ann"), (2, "ann"), (3, "bob")] == desk.offer(b"a1", b"a1", b"a2", b"b1")

    def test_what_nobody_owns_waits_for_an_owner(self) -> None:
        desk = Desk()

        assert [] == desk.offer(b"z1")
        assert [b"z1"] == [lane.key for lane in desk.window._core.ownerless.lanes]

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

    def test_a_wrong_offset_is_named_before_a_full_window(self) -> None:
        desk = Desk(capacity=1)
        desk.offer(b"a1")

        with pytest.raises(OffsetOrderError):
            desk.window.offer(0, b"a2")

    def test_a_consumer_gets_no_more_than_its_limit(self) -> None:
        desk = Desk(ann=2)

        assert [(0, "ann"), (1, "ann"), (3, "bob")] == desk.offer(b"a1", b"a2", b"a3", b"b1")
        assert [(2, "ann")] == desk.settle(0)


class TestOrder:
    """Within a key the order of offsets is the order of service."""

    def test_the_messages_of_a_key_go_out_one_after_the_other(self) -> None:
        desk = Desk()
        desk.offer(b"a1", b"a1", b"a1")

        assert [[(1, "ann")], [(2, "ann")], []] == [desk.settle(offset) for offset in range(3)]
        assert {} == desk.window._core.lanes
        assert 2 == desk.window.cursor.safe_cursor

    def test_what_was_put_back_comes_before_what_is_newer(self) -> None:
        desk = Desk()
        desk.offer(b"a1", b"a1")

        assert [(0, "ann")] == desk.move(0)
        assert 2 == desk.at(0).attempt
        assert [(1, "ann")] == desk.settle(0)

    @pytest.mark.parametrize("held", [State.DELAYED, State.DEAD_LETTERING, State.BLOCKED])
    def test_what_is_held_holds_back_what_is_newer(self, held: State) -> None:
        desk = Desk()
        desk.offer(b"a1", b"a1", b"a2")

        granted = desk.move(0, held)
        assert ([(0, "DEAD_LETTERING")] if held is State.DEAD_LETTERING else []) == granted
        assert 1 == desk.window._core.held[held]
        assert [(1, "ann")] == desk.remove(0)
        assert 0 == desk.window._core.held[held]

    @pytest.mark.parametrize("per_key", [2, 3])
    def test_as_many_of_a_key_are_open_as_allowed(self, per_key: int) -> None:
        desk = Desk(per_key=per_key)

        assert [(offset, "ann") for offset in range(per_key)] == desk.offer(*[b"a1"] * 5)
        assert [(per_key, "ann")] == desk.settle(1)
        assert [(per_key + 1, "ann")] == desk.settle(0)

    def test_with_several_open_the_oldest_that_came_back_goes_first(self) -> None:
        desk = Desk(per_key=3)
        desk.offer(*[b"a1"] * 5)
        for offset in (2, 0, 1):
            desk.window.move(desk.at(offset), State.QUEUED)

        assert [(0, "ann"), (1, "ann"), (2, "ann")] == desk.wake()

    def test_one_that_is_held_lets_nothing_pass_although_others_are_open(self) -> None:
        desk = Desk(per_key=2)
        desk.offer(*[b"a1"] * 4)

        assert [] == desk.move(0, State.DELAYED)
        assert [] == desk.settle(1)
        assert [(0, "ann"), (2, "ann")] == desk.move(0)


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
        desk = Desk(first_attempt=100)
        desk.offer(b"a1", b"a1")
        desk.move(0)

        assert 102 == desk.at(0).attempt
        desk.settle(0)
        assert 101 == desk.at(1).attempt


class TestMemory:
    """Spilling, loading, and lanes that wait for a slot."""

    def test_what_is_beyond_the_limit_of_its_key_is_spilled_and_its_item_dropped(self) -> None:
        desk = Desk(loaded_per_key=2)

        assert [(0, "ann"), (2, "SPILLED"), (3, "SPILLED")] == desk.offer(*[b"a1"] * 4)
        assert (None, 2) == (desk.at(2).item, desk.window.loaded)

    def test_the_slot_of_a_settled_message_goes_to_the_oldest_spilled_one_of_its_key(self) -> None:
        desk = Desk(loaded_per_key=2)
        desk.offer(*[b"a1"] * 4)

        assert [(2, "LOADING"), (1, "ann")] == desk.settle(0)
        assert [] == desk.provide(2)
        assert "item 2" == desk.at(2).item
        assert [(3, "LOADING"), (2, "ann")] == desk.settle(1)

    def crowded(self, **config: int) -> Desk:
        """Ann has room for one and holds it; 1 and 2 wait, 3 is spilled and 4 is at bob: every slot is taken."""
        desk = Desk(ann=1, capacity=4, **config)
        granted = desk.offer(b"a1", b"a2", b"a3", b"a4", b"b1")
        assert [(0, "ann"), (3, "SPILLED"), (4, "bob")] == granted
        return desk

    def starved(self, **config: int) -> Desk:
        """The same, but 3 could go to ann if only there were memory."""
        desk = self.crowded(**config)
        desk.window.set_limit("ann", 4)
        assert [(1, "ann"), (2, "ann")] == desk.wake()
        assert [b"a4"] == [lane.key for lane in desk.window._core.starved.lanes]
        return desk

    def test_what_has_to_wait_is_spilled_while_others_that_wait_take_half_the_window(self) -> None:
        desk = self.crowded()

        assert (4, 2, None) == (desk.window.loaded, desk.window.waiting, desk.at(3).item)

    def test_a_spilled_message_whose_turn_has_come_is_loaded_for_its_owner(self) -> None:
        desk = self.crowded()

        assert [[(1, "ann")], [(2, "ann")], [(3, "LOADING")]] == [desk.settle(offset) for offset in range(3)]
        assert ({3: desk.at(3)}, 0) == (desk.ann.reserved, desk.ann.free)
        assert [(3, "ann")] == desk.provide(3)
        assert ({}, 0) == (desk.ann.reserved, desk.ann.free)

    def test_what_is_settled_while_it_is_loaded_gives_its_reservation_back(self) -> None:
        desk = self.crowded()
        for offset in range(3):
            desk.settle(offset)
        desk.offer(b"a5")

        assert [(5, "ann")] == desk.remove(3)
        assert {} == desk.ann.reserved

    def test_what_was_loaded_for_one_who_owns_it_no_more_goes_to_who_does(self) -> None:
        desk = self.crowded()
        for offset in range(3):
            desk.settle(offset)
        desk.owners.names["a"] = "bob"
        desk.window.reassign()
        desk.wake()

        assert [(3, "bob")] == desk.provide(3)
        assert 1 == desk.ann.free

    def test_what_was_loaded_for_one_whose_limit_has_sunk_waits(self) -> None:
        desk = self.crowded()
        for offset in range(3):
            desk.settle(offset)
        desk.window.set_limit("ann", 0)
        desk.wake()

        assert [] == desk.provide(3)
        assert [desk.ann] == desk.window.emptied
        desk.window.set_limit("ann", 1)
        assert [(3, "ann")] == desk.wake()

    def test_a_cancelled_reservation_is_room_again_and_the_message_goes_to_its_owner_once_it_is_there(self) -> None:
        desk = self.crowded()
        for offset in range(3):
            desk.settle(offset)
        desk.offer(b"a5")
        desk.window._core.cancel_reservations(desk.ann)

        assert [(5, "ann")] == desk.wake()
        assert [] == desk.provide(3)
        assert [(3, "ann")] == desk.settle(5)

    def test_a_cancelled_reservation_is_room_for_a_keyless_message(self) -> None:
        desk = self.crowded()
        desk.window.set_limit("bob", 1)
        for offset in range(3):
            desk.settle(offset)
        assert [] == desk.offer(None)
        desk.window._core.cancel_reservations(desk.ann)

        assert [(5, "ann")] == desk.wake()

    def test_a_slot_that_is_freed_feeds_the_lane_that_waits_longest(self) -> None:
        desk = self.starved()

        assert [(3, "LOADING")] == desk.settle(4)
        assert [3] == list(desk.ann.reserved)

    def test_a_slot_that_is_freed_does_not_feed_a_lane_whose_owner_has_no_room_now(self) -> None:
        desk = self.starved()
        desk.window.set_limit("ann", 3)
        assert [] == desk.wake()

        assert [] == desk.settle(4)
        assert [b"a4"] == [lane.key for lane in desk.ann.ready.lanes]

    def test_a_quarantined_lane_is_fed_for_nobody(self) -> None:
        desk = self.starved()
        desk.window.quarantine(b"a4")
        assert [] == desk.wake()

        assert [(3, "LOADING")] == desk.settle(4)
        assert {} == desk.ann.reserved
        assert [(3, "DEAD_LETTERING")] == desk.provide(3)

    @pytest.mark.parametrize("quarantined", [False, True])
    def test_who_asks_for_the_lowest_message_gets_it_loaded_if_it_is_theirs_or_in_quarantine(
        self, *, quarantined: bool
    ) -> None:
        desk = self.starved()
        for offset in range(3):
            desk.window._core.capacity -= 1
            assert [] == desk.settle(offset)
        if quarantined:
            desk.window.quarantine(b"a4")
        assert [] == desk.wake()

        asked = [desk.window.pull(name, 1, only=desk.at(3)) for name in ("bob", "ann")]
        assert ([[desk.at(3)], []] if quarantined else [[], [desk.at(3)]]) == asked
        desk.window.check_invariants()

    def test_a_starved_lane_that_is_settled_starves_no_more(self) -> None:
        desk = self.starved()

        assert [] == desk.remove(3)
        assert not len(desk.window._core.starved)

    def test_a_keyless_message_is_spilled_and_loaded_like_any_other(self) -> None:
        desk = Desk(ann=1, bob=0, capacity=4)
        assert [(0, "ann"), (3, "SPILLED")] == desk.offer(None, None, None, None)
        desk.window.set_limit("bob", 9)
        desk.window._core.capacity = 3

        assert [(1, "bob"), (2, "bob")] == desk.wake()
        assert [3] == [lane.head.offset for lane in desk.window._core.starved.lanes if lane.head]
        assert [(3, "LOADING")] == desk.settle(0)
        assert [3] == list(desk.bob.reserved)
        assert [(3, "bob")] == desk.provide(3)


class TestQuarantine:
    """Messages of a quarantined key are dead letters."""

    def test_they_go_one_at_a_time_and_in_order(self) -> None:
        desk = Desk()
        desk.offer(b"a1", b"a1", b"a1")
        desk.window.move(desk.at(0), State.QUEUED)
        desk.window.quarantine(b"a1")

        assert [(0, "DEAD_LETTERING")] == desk.wake()
        assert [(1, "DEAD_LETTERING")] == desk.settle(0)
        assert [(2, "DEAD_LETTERING")] == desk.settle(1)

    def test_what_is_open_is_waited_for(self) -> None:
        desk = Desk()
        desk.offer(b"a1", b"a1")
        desk.window.quarantine(b"a1")

        assert [] == desk.wake()
        assert not len(desk.window._core.draining)
        assert [(1, "DEAD_LETTERING")] == desk.settle(0)

    def test_what_waits_for_room_waits_no_more(self) -> None:
        desk = Desk(ann=0)
        desk.offer(b"a1")
        desk.window.quarantine(b"a1")

        assert [(0, "DEAD_LETTERING")] == desk.wake()
        assert not len(desk.ann.ready)

    def test_a_spilled_message_is_loaded_first(self) -> None:
        desk = Desk(ann=0, capacity=4)
        assert [(2, "SPILLED")] == desk.offer(b"a1", b"a2", b"a3")
        desk.window.quarantine(b"a3")

        assert [(2, "LOADING")] == desk.wake()
        assert [(2, "DEAD_LETTERING")] == desk.provide(2)

    def test_without_memory_it_waits_for_a_slot(self) -> None:
        desk = Desk(ann=0, capacity=4)
        desk.offer(b"a1", b"a2", b"a3", b"b1", b"b2")
        desk.window.quarantine(b"a3")

        assert [] == desk.wake()
        assert [b"a3"] == [lane.key for lane in desk.window._core.starved.lanes]
        assert [(2, "LOADING")] == desk.settle(3)

    def test_a_key_can_be_quarantined_before_its_first_message_and_while_it_has_no_lane(self) -> None:
        desk = Desk()
        desk.offer(b"a1")
        desk.window.quarantine(b"a1")
        desk.window.quarantine(b"a2")

        assert [] == desk.wake()
        assert [(1, "DEAD_LETTERING")] == desk.offer(b"a2")

    def test_lifted_it_goes_to_its_consumer_again(self) -> None:
        desk = Desk()
        desk.offer(b"a1", b"a1")
        desk.window.quarantine(b"a1")
        desk.wake()
        desk.window.lift_quarantine(b"a1")

        assert [] == desk.wake()
        assert not len(desk.window._core.draining)
        assert [(1, "ann")] == desk.settle(0)

    def test_what_was_archived_without_a_delivery_can_be_blocked_and_go_on(self) -> None:
        desk = Desk()
        desk.window.quarantine(b"a1")
        assert [(0, "DEAD_LETTERING")] == desk.offer(b"a1")

        assert [] == desk.move(0, State.BLOCKED)
        desk.window.lift_quarantine(b"a1")
        assert [(0, "ann")] == desk.move(0)

    def test_lifting_what_is_not_quarantined_is_nothing(self) -> None:
        desk = Desk()
        desk.offer(b"a1", b"a1")
        before = books(desk.window)

        desk.window.lift_quarantine(b"a1")
        assert [] == desk.wake()
        assert before == books(desk.window)


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

    def test_a_lower_limit_takes_nothing_away(self) -> None:
        desk = Desk()
        desk.offer(b"a1", b"a2", b"a3")
        desk.window.set_limit("ann", 1)

        assert [] == desk.wake()
        assert (-2, 3) == (desk.ann.free, len(desk.ann.open))
        assert [] == desk.offer(b"a4")
        assert [[], [], [(3, "ann")]] == [desk.settle(offset) for offset in range(3)]

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

    def test_a_key_that_moves_waits_until_its_previous_owner_is_done(self) -> None:
        desk = Desk()
        desk.offer(b"a1", b"a1", b"a1")
        desk.owners.names["a"] = "bob"
        desk.window.reassign()
        desk.wake()
        desk.offer(b"a1")

        assert [b"a1"] == [lane.key for lane in desk.window._core.draining.lanes]
        assert [(1, "bob")] == desk.settle(0)
        assert not len(desk.window._core.draining)

    def test_a_key_that_loses_its_owner_waits_for_one(self) -> None:
        desk = Desk(ann=0)
        desk.offer(b"a1")
        del desk.owners.names["a"]
        desk.window.reassign()

        assert [] == desk.wake()
        assert [b"a1"] == [lane.key for lane in desk.window._core.ownerless.lanes]

    def test_after_a_reassignment_those_that_waited_longest_come_first(self) -> None:
        desk = Desk(ann=0, bob=2)
        desk.offer(b"a2", b"z1", b"a1")
        desk.owners.names |= {"a": "bob", "z": "bob"}
        desk.window.reassign()

        assert [(0, "bob"), (1, "bob")] == desk.wake()

    def test_a_lane_at_its_limit_drains_from_the_moment_in_which_its_key_moves(self) -> None:
        desk = Desk()
        desk.offer(b"a1", b"a1")
        desk.owners.names["a"] = "bob"
        desk.window.reassign()

        assert [] == desk.wake()
        assert [b"a1"] == [lane.key for lane in desk.window._core.draining.lanes]

    def test_a_lane_at_its_limit_whose_key_comes_home_drains_no_more(self) -> None:
        desk = Desk()
        desk.offer(b"a1", b"a1", b"a1")
        for owner in ("bob", "ann"):
            desk.owners.names["a"] = owner
            desk.window.reassign()
            if owner == "bob":
                desk.wake()
                assert [b"a1"] == [lane.key for lane in desk.window._core.draining.lanes]

        assert [] == desk.remove(1)
        assert not len(desk.window._core.draining)
        assert [(2, "ann")] == desk.settle(0)

    def test_a_message_drains_although_one_before_it_has_done_so_and_was_settled(self) -> None:
        desk = Desk()
        desk.offer(b"a1")
        desk.owners.names["a"] = "bob"
        desk.window.reassign()
        desk.wake()
        desk.offer(b"a1")
        desk.remove(1)
        assert not len(desk.window._core.draining)

        desk.offer(b"a1")
        assert [b"a1"] == [lane.key for lane in desk.window._core.draining.lanes]
        desk.window.check_invariants()


class TestKeyless:
    """Messages without a key go to whoever has most room."""

    def test_most_room_then_earliest_joined(self) -> None:
        desk = Desk(ann=2, bob=3)

        assert [(0, "bob"), (1, "ann"), (2, "bob"), (3, "ann"), (4, "bob")] == desk.offer(*[None] * 6)
        assert [(5, "ann")] == desk.settle(1)

    def test_those_who_may_not_have_them_get_none(self) -> None:
        desk = Desk(ann=1, bob=9)
        desk.window.set_keyless("bob", keyless=False)

        assert [(0, "ann")] == desk.offer(None, None)
        assert 1 == len(desk.window._core.keyless)

    def test_one_who_may_have_them_from_now_on_gets_those_that_wait(self) -> None:
        desk = Desk(ann=1, bob=9)
        desk.window.set_keyless("bob", keyless=False)
        desk.offer(None, None, b"a1", None)
        desk.window.set_keyless("bob", keyless=True)

        assert [(1, "bob"), (3, "bob")] == desk.wake()

    def test_keyless_and_keyed_take_turns_by_how_long_they_wait(self) -> None:
        desk = Desk(ann=1, bob=0)

        assert [(0, "ann")] == desk.offer(b"a1", b"a2", None, b"a3", None)
        assert [[(offset + 1, "ann")] for offset in range(4)] == [desk.settle(offset) for offset in range(4)]

    def test_one_that_was_put_back_goes_to_whoever_has_most_room_then(self) -> None:
        desk = Desk(ann=2, bob=1)
        desk.offer(None, None)
        desk.settle(1)
        desk.window.set_limit("bob", 9)

        assert [(0, "bob")] == desk.move(0)


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
