"""While the token is full, a window hands out the lowest message and nothing else; what is ready keeps its place."""

from random import Random

import pytest

from keyshared._dispatch.budget import BudgetedWindow
from keyshared._window.holes import MeasuringCursor
from keyshared.errors import InvariantError
from keyshared.window import Consumer, Entry, InFlightWindow, State

THREE_HOLES = 26  # with three holes a token has 21 characters, above three quarters; without one it has 13


class Ann:
    """Every key belongs to ann."""

    def owner(self, key: bytes) -> str:  # noqa: ARG002  # whatever it is
        """Name of the owner."""
        return "ann"


class Desk:
    """A window with a budget, ann who takes from it, and a short way to say what she gets."""

    def __init__(self, *, limit: int = 50, budget: int = THREE_HOLES, **config: int) -> None:
        self.cursor = MeasuringCursor(budget=budget)
        self.window: InFlightWindow = BudgetedWindow(Ann(), **{"capacity": 50, **config})
        self.window.cursor = self.cursor
        self.ann = self.window.add(Consumer("ann", 0, limit))
        self.next = 0

    def offer(self, *keys: bytes | None) -> list[int]:
        """Offer these keys at consecutive offsets."""
        granted = []
        for key in keys:
            granted += self.window.offer(self.next, key, f"item {self.next}")
            self.next += 1
        return self.seen(granted)

    def settle(self, *offsets: int) -> list[int]:
        """Settle messages, one after the other."""
        granted = []
        for offset in offsets:
            granted += self.window.settle(self.at(offset))
        return self.seen(granted)

    def move(self, offset: int, to: State = State.QUEUED) -> list[int]:
        """Move a message and wake."""
        self.window.move(self.at(offset), to)
        return self.seen(self.window.wake())

    def pull(self, most: int, only: int | None = None) -> list[int]:
        """Let ann ask."""
        return self.seen(self.window.pull(self.ann, most, None if only is None else self.at(only)))

    def provide(self, offset: int) -> list[int]:
        """Load a message and wake."""
        self.window.provide(self.at(offset), f"item {offset}")
        return self.seen(self.window.wake())

    def at(self, offset: int) -> Entry:
        """The outstanding message."""
        entry = self.window.find(offset)
        assert entry is not None
        return entry

    def seen(self, granted: list[Entry]) -> list[int]:
        """The offsets that are open now, and in other states, negative. Everything must be in order by then."""
        self.window.check_invariants()
        self.cursor.check_invariants()
        return [entry.offset if entry.state == State.IN_FLIGHT else -entry.offset for entry in granted]


def full() -> Desk:
    """A desk whose lowest message, 0, is open with ann, and whose token has three holes, at 2, 4 and 6."""
    desk = Desk()
    desk.offer(*(b"k%d" % number for number in range(8)))
    desk.settle(2, 4, 6)
    assert desk.cursor.is_full
    return desk


def test_nothing_new_goes_out_while_the_token_is_full() -> None:
    desk = full()

    assert [] == desk.offer(b"new", None, b"k1", b"new")
    assert [desk.at(offset).lane.listed for offset in (8, 9)] == [desk.ann.ready, desk.window.shared]
    assert [] == desk.settle(7)  # what was open stays open, and may be settled
    assert [] == desk.move(5)  # what comes back waits, too
    assert desk.window.is_held(desk.at(5))
    assert not desk.window.is_held(desk.at(0))


def test_the_lowest_message_goes_out_past_all_that_is_ready() -> None:
    desk = full()
    desk.offer(b"new")

    assert [0] == desk.move(0)
    desk.move(0, State.DELAYED)
    assert [] == desk.seen(desk.window.wake())  # the others wait for it
    assert [0] == desk.move(0)


def test_it_ends_at_one_half_and_what_is_ready_goes_out_in_its_order() -> None:
    desk = full()
    desk.offer(b"x", b"y", None, b"u")

    assert [] == desk.settle(0, 1, 3)  # what follows is open already; the position passes two holes
    assert desk.cursor.is_full
    assert [8, 9, 10, 11] == desk.settle(5)
    assert not desk.cursor.is_full


def test_a_message_that_becomes_the_lowest_goes_out() -> None:
    desk = Desk(per_key=1)
    desk.offer(b"a", b"a", b"b", b"c", b"d", b"e", b"f", b"g")
    desk.settle(3, 5, 7)
    assert desk.cursor.is_full

    assert [1] == desk.settle(0)
    assert [] == desk.move(2)
    assert [2] == desk.settle(1)


def test_the_lowest_message_waits_for_room_at_its_consumer_as_any_other() -> None:
    desk = full()
    desk.window.set_limit(desk.ann, 0)
    assert [] == desk.move(0)

    assert [] == desk.pull(5, only=1)
    assert [0] == desk.pull(5)
    assert [] == desk.pull(5)
    desk.move(0)
    assert [0] == desk.pull(1, only=0)


def test_a_keyless_message_that_is_the_lowest_goes_to_whoever_has_room() -> None:
    desk = Desk()
    desk.offer(None, b"b", b"c", b"d", b"e", b"f", b"g")
    desk.settle(2, 4, 6)
    desk.offer(None)

    assert [0] == desk.move(0)
    desk.window.set_limit(desk.ann, 0)
    assert [] == desk.move(0)
    assert [] == desk.seen(desk.window.wake())


def test_the_lowest_message_is_loaded_though_those_that_are_held_fill_the_window() -> None:
    desk = Desk(limit=0, capacity=4, max_tracked=50)
    desk.offer(b"p", b"q")
    desk.next = 3
    late = desk.window.offer_later(2, b"z", None, 1_000)
    desk.offer(*(b"k%d" % number for number in range(8)))
    assert [State.SPILLED] * 9 == [State(desk.at(offset).state) for offset in range(2, 11)]
    desk.window.set_limit(desk.ann, 10)
    assert [0, 1, -3, -4] == desk.seen(desk.window.wake())
    late.deadline = None
    desk.window.ripen(late)  # its time has come, and it waits for a slot behind all others
    assert [] == desk.seen(desk.window.wake())
    assert [[3], [4]] == [desk.provide(3), desk.provide(4)]
    for settled, loads in [(1, 5), (3, 6)]:
        assert [-loads] == desk.settle(settled)
        assert [loads] == desk.provide(loads)
    for settled, loads in [(5, 7), (4, 8), (6, 9)]:
        assert [-loads] == desk.settle(settled)
        assert [] == desk.provide(loads)
    assert desk.cursor.is_full

    assert [] == desk.move(0, State.BLOCKED)
    desk.window.remove(desk.at(0))
    assert [-10, -2] == desk.seen(desk.window.wake())
    assert desk.window.capacity + 1 == desk.window.loaded
    assert [2] == desk.provide(2)


def test_a_budget_that_is_far_away_changes_nothing() -> None:
    desk = Desk(budget=1_000, limit=2)
    assert [0, 1] == desk.offer(b"a", b"b", b"c", b"d")
    assert [[2], [3]] == [desk.settle(1), desk.settle(0)]


@pytest.mark.no_cover
@pytest.mark.parametrize("seed", range(40))
def test_in_whatever_order_messages_are_settled_all_of_them_go_out(seed: int) -> None:
    random = Random(seed)
    choose = random.choice
    desk = Desk(
        limit=choose([3, 10]),
        capacity=choose([6, 8, 50]),
        max_tracked=200,
        per_key=1 + seed % 2,
        loaded_per_key=choose([2, 50]),
    )
    settled = 0
    while settled < 80:
        if desk.next < 80 and desk.window.free_slots and random.random() < 0.6:
            desk.offer(choose([None, b"a", b"b", b"c", b"d", b"e"]))
            continue
        loading = [entry for entry in desk.window.outstanding() if entry.state == State.LOADING]
        opened = sorted(desk.ann.open)
        assert opened or loading or not desk.cursor.outstanding, "nothing can happen any more"
        if loading:
            desk.provide(choose(loading).offset)
        elif not opened:
            continue
        elif random.random() < 0.2:
            desk.move(choose(opened))
        else:
            desk.settle(choose(opened))
            settled += 1


def test_an_idle_consumer_is_found() -> None:
    desk = full()
    desk.offer(b"new")
    desk.cursor.is_full = False

    with pytest.raises(InvariantError, match="a token that is too long is full"):
        desk.cursor.check_invariants()
    desk.cursor.check_invariants = lambda: None  # type: ignore[method-assign]
    with pytest.raises(InvariantError, match="has room, so nothing that is ready waits for it"):
        desk.window.check_invariants()
