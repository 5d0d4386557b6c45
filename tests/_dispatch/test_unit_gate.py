"""The window with a gate of larger drain units: what it does otherwise than with that of keys, call by call."""

import copy

import pytest
from tests.alphabet import AlphabetRing

from keyshared._dispatch.unit_gate import UnitGate
from keyshared._window.lanes import Alone
from keyshared.config import DrainUnit
from keyshared.errors import EntryStateError, InvariantError
from keyshared.window import Consumer, Entry, InFlightWindow, Lane, State


class Owners:
    """An alphabet ring that can be replaced."""

    def __init__(self, *names: str) -> None:
        self.ranges = AlphabetRing(names).ranges

    def owner(self, key: bytes) -> str | None:
        """Name of the owner."""
        return self.ranges.owner_of(key)

    def are(self, *names: str) -> None:
        """Place keys on these names."""
        self.ranges = AlphabetRing(names).ranges


class Desk:
    """A window with ann, bob and cat connected, whoever of them the ring names."""

    def __init__(self, *names: str, gate: type[UnitGate] = UnitGate, limit: int = 5, **limits: int) -> None:
        self.owners = Owners(*names)
        self.window = InFlightWindow(self.owners, gate=gate(DrainUnit.RANGE, self.owners), **{"capacity": 20, **limits})  # type: ignore[arg-type]
        self.consumers = [
            self.window.add(Consumer(name, order, limit)) for order, name in enumerate(("ann", "bob", "cat"))
        ]
        self.next = 0

    def offer(self, *keys: bytes | None) -> list[tuple[int, str]]:
        """Offer these keys at consecutive offsets."""
        granted: list[Entry] = []
        for key in keys:
            granted += self.window.offer(self.next, key)
            self.next += 1
            self.window.check_invariants()
        return seen(granted)

    def at(self, offset: int) -> Entry:
        """The outstanding message."""
        entry = self.window.find(offset)
        assert entry is not None
        return entry

    def settle(self, offset: int) -> list[tuple[int, str]]:
        """Settle a message."""
        granted = self.window.settle(self.at(offset))
        self.window.check_invariants()
        return seen(granted)

    def are(self, *names: str) -> list[tuple[int, str]]:
        """Change the placement."""
        self.owners.are(*names)
        self.window.reassign()
        granted = self.window.wake()
        self.window.check_invariants()
        return seen(granted)


def seen(granted: list[Entry]) -> list[tuple[int, str]]:
    """Offset, and consumer or state."""
    return [
        (e.offset, e.consumer.name if e.consumer and e.state == State.IN_FLIGHT else State(e.state).name)
        for e in granted
    ]


def test_the_only_message_of_a_key_needs_no_lane_while_its_unit_is_its_owners() -> None:
    desk = Desk("bob")
    assert [(0, "bob"), (1, "bob")] == desk.offer(b"a", b"b")
    assert all(isinstance(desk.at(offset).lane, Alone) for offset in (0, 1))
    assert [] == desk.are("ann", "bob")
    assert [] == desk.offer(b"a2")
    assert [(2, "ann")] == desk.settle(0)
    assert not isinstance(desk.at(2).lane, Alone)
    assert [[], []] == [desk.settle(offset) for offset in (1, 2)]


def test_the_next_message_of_a_key_goes_out_the_short_way_and_is_counted() -> None:
    desk = Desk("bob")
    desk.offer(b"a", b"a", b"a")
    assert [(1, "bob")] == desk.settle(0)
    assert [] == desk.are("ann")
    assert [] == desk.offer(b"z")
    assert [(2, "ann"), (3, "ann")] == desk.settle(1)


def test_the_next_message_of_a_key_does_not_go_out_the_short_way_past_what_others_hold() -> None:
    desk = Desk("bob", "cat")
    assert [(0, "bob"), (1, "cat")] == desk.offer(b"b", b"c", b"c")
    desk.are("cat")
    assert [] == desk.settle(1)
    assert [(2, "cat")] == desk.settle(0)


def test_a_message_settled_twice_is_refused_as_ever() -> None:
    desk = Desk("bob")
    desk.offer(b"a")
    entry = desk.at(0)
    desk.settle(0)
    with pytest.raises(EntryStateError):
        desk.window.settle(entry)


def test_messages_without_a_key_are_settled_as_ever() -> None:
    desk = Desk("bob", limit=1)
    assert [(0, "ann"), (1, "bob"), (2, "cat")] == desk.offer(None, None, None, None)
    assert [(3, "bob")] == desk.settle(1)
    desk.window.move(desk.at(3), State.QUEUED)
    assert [(3, "bob")] == seen(desk.window.wake())
    desk.window.check_invariants()


def test_a_payload_that_was_read_for_somebody_does_not_go_past_what_others_hold() -> None:
    desk = Desk("ann", "bob", limit=1, capacity=4)
    assert [(0, "bob"), (3, "SPILLED"), (4, "ann")] == desk.offer(b"b1", b"b2", b"b3", b"b4", b"a")
    assert [[(1, "bob")], [(2, "bob")], [(3, "LOADING")]] == [desk.settle(offset) for offset in (0, 1, 2)]
    assert {3: desk.at(3)} == desk.window.consumers["bob"].reserved

    desk.are("bob")
    desk.window.provide(desk.at(3), "again")
    assert [] == desk.window.wake()
    assert desk.at(3).lane.listed is desk.window.draining
    assert [(3, "bob")] == desk.settle(4)


def test_a_consumer_that_is_added_before_reassign_is_called_finds_the_units_of_now() -> None:
    desk = Desk("bob")
    desk.offer(b"a", b"b")
    desk.owners.are("ann", "bob", "dan")
    desk.window.add(Consumer("dan", 3, 5))
    desk.window.reassign()
    desk.window.wake()
    assert [] == desk.offer(b"a2")
    assert [(2, "ann")] == desk.settle(0)


def test_several_ends_before_one_wake_wake_once() -> None:
    desk = Desk("bob")
    desk.offer(b"a", b"b")
    desk.are("cat")
    desk.offer(b"a2", b"b2", b"c2")
    window = desk.window
    window.move(desk.at(0), State.DELAYED)
    assert [] == window.wake()
    window.move(desk.at(1), State.QUEUED)
    assert [(1, "cat"), (2, "cat"), (3, "cat"), (4, "cat")] == seen(window.wake())


def test_an_end_and_a_change_of_placement_before_one_wake_look_at_every_lane_once() -> None:
    desk = Desk("bob")
    desk.offer(b"a", b"b")
    desk.are("cat")
    desk.offer(b"a2", b"b2")
    desk.window.remove(desk.at(0))
    desk.window.remove(desk.at(1))
    assert [(2, "ann"), (3, "cat")] == desk.are("ann", "cat")


def test_a_copy_goes_on_by_itself() -> None:
    desk = Desk("bob")
    desk.offer(b"a")
    desk.are("ann")
    desk.offer(b"b")
    twin = copy.deepcopy(desk)
    for each in (twin, desk):
        assert [(1, "ann")] == each.settle(0)


class Deaf(UnitGate):
    """Notes no unit of a lane."""

    def place(self, lane: Lane, key: bytes) -> None:
        """Do nothing, or rather keep what was noted for another placement."""
        super().place(lane, key)
        lane.unit += 1


class CountsNoBegin(UnitGate):
    """Counts no delivery that goes out the long way."""

    def opened(self, entry: Entry) -> None:
        """Do nothing."""


class CountsNoShortBegin(UnitGate):
    """Counts no delivery that goes out the short way."""

    def admits(self, entry: Entry, owner: Consumer) -> bool:  # noqa: ARG002  # that is the fault
        """Let it go."""
        return True


class CountsNoShortEnd(UnitGate):
    """Counts no delivery that ends the short way."""

    def releases(self, entry: Entry) -> bool:  # noqa: ARG002  # that is the fault
        """Let it end."""
        return True


class CountsNoEnd(UnitGate):
    """Counts no delivery that ends the long way."""

    def closed(self, entry: Entry) -> None:
        """Do nothing."""


class NotesNobodyWho(UnitGate):
    """Forgets who drains."""

    def wait(self, lane: Lane) -> None:
        """Do nothing."""


class StaysBehind(UnitGate):
    """Knows the placement of before for ever."""

    def follow(self, version: int) -> None:
        """Do nothing."""


class KeepsNobody(UnitGate):
    """Lets every lane go."""

    def keeps(self, lane: Lane, owner: Consumer) -> bool:  # noqa: ARG002  # that is the fault
        """Let it go."""
        return False


class WakesNobody(UnitGate):
    """Does not look again at those whom somebody has stopped to keep."""

    def take_vacated(self) -> list[Lane]:
        """Forget them."""
        super().take_vacated()
        return []


def live(gate: type[UnitGate]) -> None:
    """Let messages go out, wait, be put back and settled by every way there is, and recount after each step."""
    desk = Desk("bob", gate=gate, per_key=2)
    desk.offer(b"a", b"b", b"b", b"b", None)
    desk.settle(1)
    desk.are("cat")
    desk.window.set_limit(desk.consumers[2], 0)  # c waits for bob first, and not for room at cat
    desk.offer(b"c")
    desk.window.set_limit(desk.consumers[2], 5)
    desk.window.move(desk.at(2), State.DELAYED)
    desk.window.wake()
    desk.window.check_invariants()
    for offset in (0, 3, 4, 5):
        desk.settle(offset)


def test_what_the_faulty_gates_are_put_through_is_nothing_to_a_sound_one() -> None:
    live(UnitGate)


@pytest.mark.parametrize(
    "gate",
    [
        *(Deaf, CountsNoBegin, CountsNoShortBegin, CountsNoShortEnd, CountsNoEnd),
        *(NotesNobodyWho, StaysBehind, KeepsNobody, WakesNobody),
    ],
)
def test_a_recount_notices_what_a_faulty_gate_leaves_out(gate: type[UnitGate]) -> None:
    with pytest.raises((InvariantError, KeyError)):
        live(gate)
