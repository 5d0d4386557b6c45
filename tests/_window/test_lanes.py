"""What a settlement costs that is not in the order of its key: counted in steps and in looks, not in time."""

from collections.abc import Callable
from typing import Any, Final

import pytest
from tests.steps import steps_of

from keyshared._window.beside import SideCursor, come_back
from keyshared._window.lanes import SLACK, Consumer, Entry, Lane, State
from keyshared.errors import InvariantError
from keyshared.ring import HashRing
from keyshared.window import InFlightWindow

FEW: Final = 200
MANY: Final = 1_600
_COUNTS: Final = pytest.mark.interpreted("counts steps of the interpreter")


def opened(count: int) -> tuple[InFlightWindow, list[Entry]]:
    """A window and so many messages of one key, all of which are in flight."""
    window = InFlightWindow(HashRing(["ann"]), capacity=3 * count, per_key=count, loaded_per_key=count)
    window.add(Consumer("ann", 0, limit=count))
    window.wake()
    return window, [entry for offset in range(count) for entry in window.offer(offset, b"k", None)]


def waiting(count: int) -> tuple[InFlightWindow, list[Entry]]:
    """The same, of which only the oldest is in flight."""
    window = InFlightWindow(HashRing(["ann"]), capacity=3 * count, loaded_per_key=count)
    window.add(Consumer("ann", 0, limit=count))
    window.wake()
    for offset in range(count):
        window.offer(offset, b"k", None)
    return window, window.outstanding()


def returned(count: int) -> tuple[InFlightWindow, list[Entry]]:
    """The same, all of which were in flight and have come back; their consumer has left."""
    window, entries = opened(count)
    for entry in entries:
        window.move(entry, State.QUEUED)
    window.discard("ann")
    window.reassign()
    window.wake()
    return window, entries


def beside(count: int) -> tuple[InFlightWindow, list[Entry]]:
    """A window and so many messages of one key that were settled and have come back beside the log."""
    window = InFlightWindow(HashRing(), capacity=count, start=0)
    window.cursor = SideCursor(0)
    for offset in range(count):
        window.cursor.skip(offset)
    entries: list[Entry] = []
    for offset in range(count):
        near = entries[-1] if entries else None
        entries.append(come_back(window, offset, b"k", None, attempt=1, near=near))
    window.wake()
    return window, entries


def newest_first(window: InFlightWindow, entries: list[Entry]) -> Callable[[], None]:
    """Settle all but the oldest half, the newest first."""

    def settle() -> None:
        for entry in reversed(entries[len(entries) // 2 :]):
            window.remove(entry)

    return settle


@_COUNTS
@pytest.mark.no_cover
@pytest.mark.parametrize("made", [opened, waiting, returned, beside])
def test_whoever_settles_the_newest_first_passes_over_what_is_settled_once(
    made: Callable[[int], tuple[InFlightWindow, list[Entry]]],
) -> None:
    few, many = (steps_of(newest_first(*made(count))) / count for count in (FEW, MANY))

    assert many < 1.5 * few


class Looked(list[Entry]):
    """Knows how often somebody looks at one of its items."""

    looks = 0

    def __getitem__(self, index: Any) -> Any:
        self.looks += 1
        return super().__getitem__(index)

    def __contains__(self, _: object) -> bool:
        raise AssertionError("it is looked through")

    def remove(self, _: object) -> None:
        raise AssertionError("it is looked through")


@pytest.mark.interpreted("puts another kind of list into a lane")
def test_what_came_back_is_found_among_the_others_without_a_look_at_each() -> None:
    window, entries = returned(MANY)
    back = entries[0].lane.back = Looked(entries)

    window.remove(entries[MANY // 2])
    assert (MANY - 1, True) == (len(back), 0 < back.looks <= 15)
    window.check_invariants()


def test_what_is_in_flight_among_what_came_back_is_settled_as_any_other() -> None:
    window, entries = opened(5)
    for entry in entries[::2]:
        window.move(entry, State.QUEUED)
    lane = entries[0].lane
    window.remove(entries[3])
    window.remove(entries[1])
    window.check_invariants()
    window.remove(entries[4])
    window.check_invariants()
    assert [0, 2] == [entry.offset for entry in lane.back or ()]


@_COUNTS
@pytest.mark.no_cover
def test_settled_messages_do_not_stay_beyond_the_slack_when_little_is_outstanding() -> None:
    window, entries = beside(MANY)
    for entry in reversed(entries[5:]):
        window.remove(entry)
    lane, kept = entries[0].lane, 0
    entry_or_none = lane.head
    while entry_or_none is not None:
        kept, entry_or_none = kept + 1, entry_or_none.after

    assert kept <= 5 + SLACK


class StaysInBack(Lane):
    """What has come back and is settled now is not taken out of the list of what has come back."""

    __slots__ = ()

    def unlink(self, entry: Entry, outstanding: int) -> None:
        self.back, back = None, self.back
        super().unlink(entry, outstanding)
        self.back = back


class TakesTheNextBack(Lane):
    """What stands in the place of what is looked for is taken for it."""

    __slots__ = ()

    def unlink(self, entry: Entry, outstanding: int) -> None:
        super().unlink(entry, outstanding)
        if self.back and entry is not self.head and entry.offset % 2:
            self.back.pop()


class KeepsItsFresh(Lane):
    """The oldest message that never went out is settled, and still taken for it."""

    __slots__ = ()

    def unlink(self, entry: Entry, outstanding: int) -> None:
        fresh = self.fresh
        super().unlink(entry, outstanding)
        self.fresh = fresh


class KeepsItsSpilled(Lane):
    """The oldest spilled message is settled, and nobody is in its place."""

    __slots__ = ()

    def unlink(self, entry: Entry, outstanding: int) -> None:
        spilled = self.spilled
        super().unlink(entry, outstanding)
        self.spilled = None if spilled is entry else spilled


@pytest.mark.interpreted("changes the class of a living part")
@pytest.mark.parametrize(
    ("fault", "match"),
    [
        (Lane, None),
        (StaysInBack, "knows what came back"),
        (TakesTheNextBack, "knows what came back"),
        (KeepsItsFresh, "knows its oldest message that never went out"),
        (KeepsItsSpilled, "knows its oldest spilled message"),
    ],
)
def test_a_lane_that_takes_out_too_little_or_too_much_is_found(fault: type[Lane], match: str | None) -> None:
    window = InFlightWindow(HashRing(["ann"]), capacity=9, per_key=5, loaded_per_key=7)
    window.add(Consumer("ann", 0, limit=5))
    window.wake()
    entries = [entry for offset in range(10) for entry in window.offer(offset, b"k", None)][:5]
    for entry in (entries[0], entries[2], entries[4]):
        window.move(entry, State.QUEUED)
    entries[0].lane.__class__ = fault
    found = None
    for offset in (7, 4, 3, 5):
        window.remove(window.find(offset))  # type: ignore[arg-type]  # it is there
        try:
            window.check_invariants()
        except InvariantError as error:
            found = str(error)
            break

    assert (match is None and found is None) or (match is not None and found is not None and match in found)
