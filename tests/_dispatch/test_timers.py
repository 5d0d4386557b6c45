"""Deadlines without scans: the queue and the heap together answer what a plain dictionary would."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keyshared._dispatch.timers import Timers

TIMEOUT = 30


class Egg:
    """Something that is timed."""

    def __init__(self) -> None:
        self.deadline: int | None = None


def start_last(timers: Timers, egg: Egg, deadline: int) -> None:
    egg.deadline = timers.start_last(egg, deadline)


def start_all_last(timers: Timers, eggs: list[Egg], deadline: int) -> None:
    due = timers.start_all_last(eggs, deadline)
    for egg in eggs:
        egg.deadline = due


def records(timers: Timers) -> int:
    """How many records it keeps, stale ones included."""
    return timers._queued + len(timers._heap)


def test_nothing_is_due_when_nothing_was_started() -> None:
    assert (None, []) == (Timers().next_deadline, Timers().pop_due(1_000_000))


def test_a_deadline_is_due_at_its_instant_and_not_before() -> None:
    timers, egg = Timers(), Egg()
    timers.start(egg, 10)

    assert [] == timers.pop_due(9)
    assert [(10, egg)] == timers.pop_due(10)


def test_what_was_due_has_no_deadline_any_more() -> None:
    timers, egg = Timers(), Egg()
    timers.start(egg, 10)
    timers.pop_due(10)

    assert None is egg.deadline
    assert (None, []) == (timers.next_deadline, timers.pop_due(10))


def test_a_timer_that_is_set_again_forgets_its_first_deadline_in_queue_and_heap() -> None:
    timers, queued, heaped = Timers(), Egg(), Egg()
    start_last(timers, queued, 10)
    timers.start(heaped, 10)

    start_last(timers, queued, 40)
    timers.start(heaped, 50)
    assert (40, []) == (timers.next_deadline, timers.pop_due(39))
    assert [(40, queued)] == timers.pop_due(40)
    assert [(50, heaped)] == timers.pop_due(50)


def test_a_timer_can_move_between_queue_and_heap_and_is_due_once() -> None:
    timers, egg = Timers(), Egg()
    start_last(timers, egg, 30)
    timers.start(egg, 20)
    start_last(timers, egg, 30)

    assert [(30, egg)] == timers.pop_due(60)


@pytest.mark.interpreted("asks which object a number is")
def test_deadlines_of_one_instant_are_one_int() -> None:
    timers, one, other, *more = Timers(), Egg(), Egg(), Egg(), Egg()
    start_last(timers, one, int("30000"))
    start_last(timers, other, int("30000"))
    start_all_last(timers, more, int("30000"))

    assert one.deadline is other.deadline is more[0].deadline is more[1].deadline
    assert len(timers.pop_due(30_000)) == 4


def test_timers_that_are_set_together_are_due_together_and_stale_ones_are_dropped() -> None:
    timers, eggs = Timers(), [Egg() for _ in range(100)]
    start_all_last(timers, [], 10)
    assert timers.next_deadline is None
    for deadline in range(10, 30):
        start_all_last(timers, eggs, deadline)

    assert records(timers) <= 3 * len(eggs) + 64
    assert {id(each) for _, each in timers.pop_due(29)} == {id(egg) for egg in eggs}


def test_a_timer_that_is_set_twice_to_one_instant_is_due_once() -> None:
    timers, egg = Timers(), Egg()
    for start in (Timers.start, start_last):
        start(timers, egg, 30)
        start(timers, egg, 30)

    assert [(30, egg)] == timers.pop_due(30)


def test_a_deadline_may_lie_before_the_clock_began() -> None:
    # What was overdue when it was stored, on a host whose clock starts at 0.
    timers, overdue = Timers(), Egg()
    timers.start(overdue, -1)
    assert -1 == timers.next_deadline

    overdue.deadline = None
    assert None is timers.next_deadline
    assert [] == timers.pop_due(0)


def test_the_earliest_deadline_is_found_wherever_it_is() -> None:
    timers, queued, heaped = Timers(), Egg(), Egg()
    start_last(timers, queued, 30)
    timers.start(heaped, 20)

    assert 20 == timers.next_deadline
    timers.start(heaped, 40)
    assert 30 == timers.next_deadline
    queued.deadline = None
    assert 40 == timers.next_deadline


def test_stopped_timers_do_not_pile_up_behind_one_that_lives() -> None:
    timers, lasting = Timers(), Egg()
    start_last(timers, lasting, 10_000)
    timers.start(lasting, 10_000)
    for now in range(1_000):
        queued = Egg()
        start_last(timers, queued, 10_000 + now)
        queued.deadline = None
        brief = Egg()
        timers.start(brief, 10_001 + now)
        brief.deadline = None

    assert records(timers) <= 2 * (2 * 1 + 64 + 1)


@pytest.mark.parametrize("start", [Timers.start, start_last])
def test_setting_the_same_deadline_again_and_again_does_not_pile_up(start: Callable[[Timers, Egg, int], None]) -> None:
    # Deliveries that come and go within one instant.
    timers, egg = Timers(), Egg()
    for _ in range(1_000):
        start(timers, egg, 30)

    assert records(timers) <= 2 * (2 * 1 + 64 + 1)


@pytest.mark.no_cover
@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("start"), st.integers(0, 9), st.integers(0, 99)),
            st.tuples(st.just("start_last"), st.integers(0, 9), st.just(TIMEOUT)),
            st.tuples(st.just("stop"), st.integers(0, 9), st.just(0)),
            st.tuples(st.just("pass"), st.just(0), st.integers(0, 40)),
        ),
        max_size=60,
    ),
    st.integers(1, 40),
)
def test_it_answers_as_a_dictionary_of_deadlines_would(plan: list[tuple[str, int, int]], repeat: int) -> None:
    timers, eggs, slow, now = Timers(), [Egg() for _ in range(10)], dict[int, int](), 0
    for action, number, delay in plan * repeat:
        if action == "pass":
            now += delay
            due = [(deadline, eggs[each]) for each, deadline in slow.items() if deadline <= now]
            slow = {each: deadline for each, deadline in slow.items() if deadline > now}
            assert sorted((d, id(egg)) for d, egg in due) == sorted((d, id(egg)) for d, egg in timers.pop_due(now))
        elif action == "stop":
            eggs[number].deadline = None
            slow.pop(number, None)
        else:
            start = Timers.start if action == "start" else start_last
            start(timers, eggs[number], now + delay)
            slow[number] = now + delay
        assert min(slow.values(), default=None) == timers.next_deadline
        assert [slow.get(each) for each in range(10)] == [egg.deadline for egg in eggs]


def test_what_runs_is_told_once_for_each_record_that_is_not_stale() -> None:
    timers, soft, hard, done = Timers(), Egg(), Egg(), Egg()
    timers.start(soft, 10)
    timers.start(soft, 20)
    start_last(timers, hard, 5)
    start_last(timers, done, 5)
    done.deadline = None

    assert [hard, soft] == list(timers.running())
