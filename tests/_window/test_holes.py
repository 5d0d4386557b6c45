"""A cursor that measures its token knows at any moment what the text of it would be, without writing it."""

from random import Random

import pytest

from keyshared._window.holes import Holes, MeasuringCursor
from keyshared.cursor import Cell, ContiguousCursor
from keyshared.errors import InvariantError


def offer(cursor: MeasuringCursor, *offsets: int) -> list[Cell]:
    """Offer these, unchecked, as a window does."""
    cells = [Cell(offset) for offset in offsets]
    for cell in cells:
        cursor.pass_to(cell.offset)
        cursor.append(cell)
    return cells


def full_after(budget: int, settled: list[int], messages: int = 100) -> bool:
    cursor = MeasuringCursor(budget=budget)
    cells = offer(cursor, *range(messages))
    for offset in settled:
        cursor.close(cells[offset])
    return bool(cursor.is_full)


def test_stretches_that_touch_become_one_and_others_stay_apart() -> None:
    holes = Holes()
    for start, stop in [(5, 7), (20, 21), (9, 10), (7, 9), (1, 2)]:
        holes.add(start, stop)
    assert [(1, 2), (5, 10), (20, 21)] == list(zip(holes.starts, holes.stops, strict=True))
    holes.add(0, 30)
    assert ([0], [30]) == (holes.starts, holes.stops)


def test_what_the_position_has_passed_is_forgotten() -> None:
    holes = Holes()
    for start in (2, 4, 900):
        holes.add(start, start + 1)
    assert 7 == holes.bytes_above(1)
    holes.drop_below(2)
    assert 3 == len(holes.starts)
    holes.drop_below(5)
    assert (1, 3) == (len(holes.starts), holes.bytes_above(6))
    holes.drop_below(1_000)
    assert 0 == holes.bytes_above(1_000)


@pytest.mark.no_cover
@pytest.mark.parametrize("base", [0, -70, 2**63 - 2_000])
@pytest.mark.parametrize("seed", range(25))
def test_the_length_is_that_of_the_text_whatever_is_offered_settled_skipped_and_known(seed: int, base: int) -> None:
    random = Random(seed)
    before = ContiguousCursor()
    for offset in range(base, base + random.randrange(60)):
        before.offer(offset)
    before.settle_many([offset for offset in range(base, base + 60) if random.random() < random.choice([0.2, 0.8])])
    cursor = MeasuringCursor(budget=120)
    cursor.resume_from(before.to_token().text)
    cursor.check_invariants()
    resume = cursor.resume_offset
    cells: list[Cell] = []
    at = base if resume is None else resume
    for _ in range(150):
        if random.random() < 0.5:
            at += random.choice([0, 0, 0, 1, 5, 300 if base < 2**62 else 3])
            if cursor.recalls(at) or random.random() < 0.2:
                cursor.pass_to(at)
                cursor.skip(at)
            else:
                cells += offer(cursor, at)
            at += 1
        elif cells:
            cursor.close(cells.pop(random.choice([0, -1, random.randrange(len(cells))])))
        cursor.check_invariants()


def test_a_stored_cursor_is_measured_when_it_is_there_again() -> None:
    cursor = MeasuringCursor(budget=1_000)
    cells = offer(cursor, *range(40))
    for cell in cells[1::2]:
        cursor.close(cell)
    again = MeasuringCursor(budget=1_000)
    for cell in cursor:
        if again.last is not None and cell.prev is not None and again.last < cell.prev:
            again.skip(cell.prev)
        again.append(Cell(cell.offset))
    again.skip(39)
    again.recall(cursor.start, cursor.remembered())
    again.check_invariants()
    assert cursor.length == again.length


def test_it_is_full_above_three_quarters_and_until_one_half() -> None:
    cursor = MeasuringCursor(budget=80)
    cells = offer(cursor, *range(100))
    lengths = []
    for cell in cells[2::2]:
        if cursor.is_full:
            break
        cursor.close(cell)
        lengths.append(cursor.length)
    assert lengths[-2] <= 60 < lengths[-1]
    for cell in cells[:-2]:
        if cell.state:
            cursor.close(cell)
            assert cursor.is_full == (cursor.length > 40)
        if not cursor.is_full:
            return
    pytest.fail("it never had room again")


def test_near_is_told_before_a_settlement_can_make_it_full() -> None:
    for offset in (2**62, -(2**62)):
        cursor = MeasuringCursor(budget=1_000)
        cells = offer(cursor, *range(offset, offset + 2**40, 2**33 + 1))
        for cell in cells[2::2]:
            near = cursor.is_near
            cursor.close(cell)
            assert near or not cursor.is_full


def test_a_log_in_order_never_fills_it() -> None:
    assert not full_after(74, list(range(99)))
    assert full_after(74, list(range(1, 100, 2)))


def test_a_length_that_drifted_is_found() -> None:
    cursor = MeasuringCursor(budget=100)
    cells = offer(cursor, *range(5))
    cursor.close(cells[2])
    cursor.length += 1
    with pytest.raises(InvariantError, match="the length of the token is known"):
        cursor.check_invariants()
