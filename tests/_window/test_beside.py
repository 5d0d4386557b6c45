"""The cursor knows what has come back beside the log, and lets it move nothing."""

import pickle

import pytest

from keyshared._window.beside import SideCursor
from keyshared.cursor import Cell
from keyshared.errors import InvariantError


def filled(*offsets: int) -> SideCursor:
    """A cursor to which these were offered, and nothing of them is settled."""
    cursor = SideCursor()
    for offset in offsets:
        cursor.append(Cell(offset))
    return cursor


def closed(cursor: SideCursor, *offsets: int) -> SideCursor:
    for offset in offsets:
        cell = cursor.find(offset)
        assert cell is not None
        cursor.close(cell)
    return cursor


def test_a_side_cell_is_found_and_closed_and_nothing_moves() -> None:
    cursor = closed(filled(1, 2, 3), 1, 2)
    back = Cell(1)
    cursor.put(back)
    assert back is cursor.find(1)
    before = (cursor.safe_cursor, cursor.resume_offset, cursor.outstanding, cursor.to_token())
    cursor.check_invariants()
    cursor.close(back)
    assert (2, 3, 1, cursor.to_token()) == before
    assert cursor.find(1) is None
    assert [1, 2, 1] == [cell if isinstance(cell, int) else cell.offset for cell in cursor.ended]
    cursor.check_invariants()


def test_iteration_is_in_offset_order_and_passes_over_what_is_closed_meanwhile() -> None:
    cursor = closed(filled(1, 2, 3, 4, 5), 2, 4)
    cursor.put(Cell(4))
    cursor.put(Cell(2))
    assert [1, 2, 3, 4, 5] == [cell.offset for cell in cursor]
    seen = []
    for cell in cursor:
        seen.append(cell.offset)
        if cell.offset == 1:
            closed(cursor, 2, 3)
    assert [1, 4, 5] == seen
    assert [(2, 5)] == cursor.acked_ranges()


def test_closing_a_cell_of_the_log_moves_the_cursor_past_a_side_cell() -> None:
    cursor = closed(filled(1, 2), 1)
    cursor.put(Cell(1))
    assert 2 == closed(cursor, 2).safe_cursor
    cursor.skip(7)
    assert (7, 8, [1]) == (cursor.safe_cursor, cursor.resume_offset, [cell.offset for cell in cursor])


@pytest.mark.parametrize(
    ("start", "offsets", "expected"), [(None, (), None), (5, (), 5), (None, (3,), 4), (5, (8,), 9), (5, (2,), 5)]
)
def test_the_next_offer_is_above_the_last_one_and_not_below_the_start(
    start: int | None, offsets: tuple[int, ...], expected: int | None
) -> None:
    cursor = SideCursor(start)
    for offset in offsets:
        cursor.skip(offset)
    assert expected == cursor.next_offer


def test_it_survives_a_pickle() -> None:
    cursor = closed(filled(1, 2), 1)
    cursor.put(Cell(1))
    again = pickle.loads(pickle.dumps(cursor))  # noqa: S301  # its own
    assert [1, 2] == [cell.offset for cell in again]


@pytest.mark.parametrize(
    ("offset", "key", "state", "requirement"),
    [
        (1, 3, 1, "side cells are known by their offsets"),
        (1, 1, 0, "side cells are known by their offsets"),
        (9, 9, 1, "what has come back is never offered again"),
        (2, 2, 1, "what has come back is not outstanding in the log"),
    ],
)
def test_a_side_cell_that_cannot_be_is_found(offset: int, key: int, state: int, requirement: str) -> None:
    cursor = closed(filled(1, 2), 1)
    cursor.beside[key] = Cell(offset, state)
    with pytest.raises(InvariantError, match=requirement):
        cursor.check_invariants()


def test_nothing_is_beside_a_log_that_was_not_read() -> None:
    cursor = SideCursor()
    cursor.put(Cell(1))
    with pytest.raises(InvariantError, match="never offered again"):
        cursor.check_invariants()
