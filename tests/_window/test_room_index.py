"""Who has most room, answered without looking at everyone."""

import gc

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.alphabet import subscription

from keyshared._window.room_index import RoomIndex
from keyshared.window import Consumer


def index(**rooms: int) -> tuple[RoomIndex, dict[str, Consumer]]:
    """Consumers with that much room, in this order of joining."""
    made = RoomIndex()
    consumers = {name: Consumer(name, order, limit) for order, (name, limit) in enumerate(rooms.items())}
    for consumer in consumers.values():
        made.add(consumer)
    return made, consumers


def take(rooms: RoomIndex, consumer: Consumer, count: int = 1) -> None:
    """Use that much of a consumer's room, and say so."""
    consumer.free -= count
    rooms.note(consumer)


def test_nobody_has_most_room_among_none() -> None:
    assert None is RoomIndex().roomiest()


def test_whoever_has_most_room_is_named_as_often_as_asked() -> None:
    rooms, consumers = index(ann=1, bob=3, cat=2)

    assert [consumers["bob"]] * 2 == [rooms.roomiest(), rooms.roomiest()]


def test_the_earliest_joined_wins_a_tie() -> None:
    rooms, consumers = index(zoe=2, ann=2)

    assert consumers["zoe"] is rooms.roomiest()


def test_of_two_with_one_place_in_the_order_of_joining_one_is_named_all_the_same() -> None:
    rooms = RoomIndex()
    gone, back, third = (Consumer(name, 0, 2) for name in ("ann", "ann", "bob"))
    rooms.add(gone)
    assert gone is rooms.roomiest()
    rooms.discard(gone)
    rooms.add(back)
    rooms.add(third)

    assert back is rooms.roomiest()


def test_room_that_was_used_counts_no_more_and_room_that_was_freed_counts_again() -> None:
    rooms, consumers = index(ann=2, bob=1)

    take(rooms, consumers["ann"], 2)
    assert consumers["bob"] is rooms.roomiest()
    take(rooms, consumers["ann"], -2)
    assert consumers["ann"] is rooms.roomiest()


@pytest.mark.parametrize("free", [0, -1], ids=["full", "beyond its limit"])
def test_a_consumer_without_room_is_not_named_even_if_it_has_most(free: int) -> None:
    rooms, consumers = index(ann=1)

    take(rooms, consumers["ann"], 1 - free)
    assert None is rooms.roomiest()


def test_a_consumer_that_is_out_is_not_named_although_it_has_room() -> None:
    rooms, consumers = index(ann=5, bob=1)

    rooms.discard(consumers["ann"])
    rooms.discard(consumers["ann"])
    assert consumers["bob"] is rooms.roomiest()
    rooms.note(consumers["ann"])
    assert consumers["bob"] is rooms.roomiest()
    rooms.add(consumers["ann"])
    assert consumers["ann"] is rooms.roomiest()


def test_a_thousand_changes_leave_few_records() -> None:
    rooms, consumers = index(ann=10_000, bob=1)
    for _ in range(1_000):
        take(rooms, consumers["ann"])
        assert consumers["ann"] is rooms.roomiest()

    assert len(rooms._heap) <= 4 * len(consumers) + 64


def test_changes_that_nobody_asks_about_are_noted_once() -> None:
    rooms, consumers = index(ann=10_000)
    for _ in range(1_000):
        take(rooms, consumers["ann"])

    assert 1 == len(rooms._changed)


@pytest.mark.no_cover
def test_consumers_that_come_and_go_unasked_leave_nothing_behind() -> None:
    gc.collect()  # what other tests have left
    dispatcher = subscription("ann")
    for _ in range(500):
        dispatcher.add_consumer("bob")
        dispatcher.remove_consumer("bob")

    known = [each for each in gc.get_objects() if isinstance(each, Consumer) and each.name == "bob"]
    assert len(known) <= 2 * 2 + 64 + 1


@given(
    st.lists(
        st.tuples(st.sampled_from(["add", "discard", "use", "ask"]), st.integers(0, 4), st.integers(-3, 3)),
        max_size=80,
    ),
    st.integers(1, 30),
)
def test_it_names_whom_a_look_at_everyone_would_name(plan: list[tuple[str, int, int]], repeat: int) -> None:
    rooms, consumers = RoomIndex(), [Consumer(str(order), order, 1) for order in range(5)]
    inside: set[int] = set()
    for action, number, count in plan * repeat:
        consumer = consumers[number]
        if action == "add":
            rooms.add(consumer)
            inside.add(number)
        elif action == "discard":
            rooms.discard(consumer)
            inside.discard(number)
        elif action == "use":
            take(rooms, consumer, count)
        else:
            able = [consumers[each] for each in inside if consumers[each].free > 0]
            expected = min(able, key=lambda each: (-each.free, each.order), default=None)
            assert expected is rooms.roomiest()
            assert len(rooms._heap) <= 4 * len(inside) + 64
