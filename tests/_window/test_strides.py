"""Several offers or settlements in one stride do what single ones do one after the other."""

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from keyshared._dispatch.batches import BatchWindow
from keyshared._dispatch.budget import BudgetedWindow
from keyshared._dispatch.group_book import GroupBook
from keyshared._dispatch.look_ahead import LookAheadWindow, Reach
from keyshared._dispatch.scopes import ScopedWindow
from keyshared._dispatch.unit_gate import UnitGate
from keyshared._window.beside import SideCursor
from keyshared._window.holes import MeasuringCursor
from keyshared._window.watched import WatchedCursor
from keyshared.config import DrainUnit, GroupLimits, LookAhead
from keyshared.cursor import Cell, ContiguousCursor
from keyshared.ring import HashRing
from keyshared.window import Consumer, Entry, InFlightWindow, State

NAMES = ("c1", "c2", "c3")
RING = HashRing(NAMES)
KEYS = [b"%d" % number for number in range(12)]


class Few:
    """Keys of the first two consumers, and some of nobody."""

    def owner(self, key: bytes) -> str | None:
        return None if key == KEYS[-1] else NAMES[len(key) % 2 if key in KEYS[:6] else 0]


def budgeted() -> InFlightWindow:
    window = BudgetedWindow(RING, capacity=40)
    window.cursor = MeasuringCursor(budget=80)
    return window


WINDOWS: dict[str, Callable[[], InFlightWindow]] = {
    "wide": lambda: InFlightWindow(RING, capacity=100),
    "narrow": lambda: InFlightWindow(RING, capacity=8, loaded_per_key=2),
    "two of a key": lambda: InFlightWindow(RING, capacity=40, per_key=2, loaded_per_key=3),
    "one lane": lambda: InFlightWindow(RING, capacity=40, one_lane=True),
    "units": lambda: InFlightWindow(RING, capacity=40, gate=UnitGate(DrainUnit.HASH, RING)),
    "batches of a key": lambda: BatchWindow(RING, capacity=40, batch=3),
    "groups": lambda: ScopedWindow(RING, capacity=40, book=GroupBook(None, GroupLimits()), most_open=4),
    "look-ahead": lambda: LookAheadWindow(RING, capacity=40, reach=Reach(LookAhead(per_consumer=3), 3, NAMES)),
    "budget of a token": budgeted,
    "nobody owns some": lambda: InFlightWindow(Few(), capacity=12, loaded_per_key=1),
}


def made(make: Callable[[], InFlightWindow]) -> InFlightWindow:
    window = make()
    for order, name in enumerate(NAMES):
        window.add(Consumer(name, order, limit=1 + order, keyless=order > 0))
    window.wake()
    return window


def shown(entries: list[Entry]) -> list[tuple[int, int, str | None]]:
    return [(each.offset, each.state, None if each.consumer is None else each.consumer.name) for each in entries]


def provide(window: InFlightWindow) -> list[Entry]:
    """Load what is to be loaded."""
    for entry in window.outstanding():
        if entry.state == State.LOADING:
            window.provide(entry, None)
    return window.wake()


@pytest.mark.parametrize("make", WINDOWS.values(), ids=WINDOWS)
def test_a_stride_is_the_same_as_single_calls(make: Callable[[], InFlightWindow]) -> None:
    random = Random(5)  # reproducible, not secret
    for _ in range(12):
        stride, singly = made(make), made(make)
        keys: list[Any] = [None, *random.sample(KEYS, 4), KEYS[-1]][random.randrange(2) :]
        offset = 0
        for _ in range(20):
            messages = [
                (offset + place, random.choice(keys), None)
                for place in range(min(stride.free_slots, random.randrange(7)))
            ]
            offset += len(messages)
            offered = [entry for message in messages for entry in singly.offer(*message)]
            assert shown(stride.offer_many(messages)) == shown(offered)
            if random.random() < 0.1:
                limit = random.choice([0, 2])
                for window in (stride, singly):
                    window.set_limit(window.consumers["c1"], limit)
                assert shown(stride.wake()) == shown(singly.wake())
            opened = [entry.offset for entry in stride.outstanding() if entry.state == State.IN_FLIGHT]
            chosen = random.sample(opened, random.randint(0, len(opened)))
            settled, was_full = [], False
            for each in chosen:
                settled += singly.settle(singly.find(each))  # type: ignore[arg-type]  # it is outstanding
                was_full = was_full or singly.loaded >= singly.capacity
            granted, told = stride.settle_many([stride.find(each) for each in chosen])  # type: ignore[misc]  # as above
            assert shown(granted) == shown(settled)
            assert told == was_full
            assert [each.name for each in stride.emptied] == [each.name for each in singly.emptied]
            stride.check_invariants()
            assert shown(provide(stride)) == shown(provide(singly))


class Both(MeasuringCursor, WatchedCursor):
    """A cursor that measures and notes."""


CURSORS: dict[str, Callable[[], Any]] = {
    "plain": ContiguousCursor,
    "watched": WatchedCursor,
    "beside": SideCursor,
    "measuring": lambda: MeasuringCursor(budget=100),
    "both": lambda: Both(budget=100),
}


@pytest.mark.parametrize("make", CURSORS.values(), ids=CURSORS)
def test_a_cursor_takes_and_closes_several_cells_as_one_after_the_other(make: Callable[[], Any]) -> None:
    random = Random(7)  # reproducible, not secret
    stride, singly = make(), make()
    offset = 0
    for most in [*[6] * 60, *[400] * 6]:
        stride.append_many([Cell(offset + 2 * place) for place in range(most)])
        for place in range(most):
            singly.append(Cell(offset + 2 * place))
        offset += 2 * most
        live = [cell.offset for cell in stride]
        chosen = random.choice([live, live[: most // 2], random.sample(live, len(live) * 2 // 3), []])
        stride.close_many([stride.find(each) for each in chosen])
        for each in chosen:
            singly.close(singly.find(each))
        stride.check_invariants()
        assert stride.acked_ranges() == singly.acked_ranges()
        assert (stride.safe_cursor, stride.resume_offset) == (singly.safe_cursor, singly.resume_offset)
        if isinstance(stride, WatchedCursor):
            assert [each.offset for each in stride.ended] == [each.offset for each in singly.ended]  # type: ignore[union-attr]  # cells only
